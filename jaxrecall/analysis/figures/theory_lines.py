"""The predictions of theory that figures and tables of runs show.

Among the modules for figures, only this one applies formulas of theory. A formula
receives every setting of a row. If a setting differs from its default and the formula
does not cover it, there is no prediction. `Theory.reason` returns the reason.

Along an axis of numbers, a line of theory joins predictions at the tested values and at
some values between them. Where other settings follow the axis, theory is known at the
tested values alone, and is drawn as ticks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator
from scipy.special import logit

from ... import theory
from ...errors import TheoryError, TheoryWarning
from ...model.values import is_missing
from ...theory import Model
from ...theory.critical import RANGES, critical_size, warn_of_plateau
from ...theory.limits import warn_of_limits
from ...theory.model import FIELDS_OF_MODEL
from ...theory.noise import has_score_noise
from ..fit.columns import Table, groups, is_numeric, without
from .layers import THEORY, Contour, Layer, Polyline, Selection, values_of, where
from .style import Style
from .table_of_runs import Runs, averaged, foreign_setting, is_setting, with_columns

LOCKED = 0.95
"""The attention mass on the informative token above which attention counts as locked.
"""

WHOLE = ("V", "d", "L", "m", "N", "first_steps")
"""The axes of whole numbers."""

NOT_SMOOTH = ("step", "steps", "pool", "batch")
"""The settings of numbers along which theory does not change smoothly."""

TICK: Style = {"linestyle": "none", "marker": "_", "size": 3.4}
"""The style of theory where no line can join the values."""

BETWEEN = 12
"""The number of predictions of a line between the tested values."""

SHOWN = 100
"""The number of points of a line that is drawn."""

FOREIGN, MASS = "_foreign", "_mass"
"""The columns of cells with a text about a setting that no formula covers, and with the
measured attention mass.
"""


class Theory:
    """The predictions of theory for the runs of a figure, and what they warn of."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.assumes = False
        self._known: dict[Any, float] = {}
        self._warned: dict[str, dict[str, None]] = {}

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        """Collects the texts of TheoryWarnings by their first word."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TheoryWarning)
            try:
                yield
            finally:
                for text in (str(warning.message) for warning in caught):
                    cause, _, _ = text.partition(":")
                    self._warned.setdefault(cause, {})[text] = None

    @property
    def messages(self) -> list[str]:
        """The sentences about settings in which theory was measured to be off.

        There is one for each cause, with the number of predictions that it affects.
        """
        messages = []
        for first, *others in self._warned.values():
            n = 1 + len(others)
            more = f" ({n} predictions of theory are affected)" if others else ""
            messages.append(first + more)
        return messages

    def warn(self) -> None:
        """Warns with TheoryWarning of each message."""
        for message in self.messages:
            warnings.warn(message, TheoryWarning, stacklevel=3)

    def accuracy(self, x: str, by: Sequence[str]) -> list[Layer]:
        """Returns the layers of predicted accuracy along x, with a line for each
        combination of values of the axes `by`.
        """
        return self._layers("", 0.5, x, by)

    def critical(self, theta: float, x: str, by: Sequence[str]) -> list[Layer]:
        """Returns the layers of predicted critical values along x."""
        return self._layers(self.runs.along, theta, x, by)

    def contour(
        self, x: str, y: str, panels: Sequence[str], theta: float
    ) -> list[Layer]:
        """Returns the layers of the line over two axes where the accuracies that theory
        predicts at the tested values cross theta.
        """
        if not self.runs.has_theory:
            return []
        cells = self._cells("")
        accuracy = pd.Series(self._predicted(cells, "", theta), cells.index)
        # between places, the logit is closer to linear than the accuracy
        off = logit(accuracy.clip(1e-3, 1 - 1e-3)) - logit(theta)
        table = with_columns(cells.assign(off=off), x, y)
        shown = averaged(table, [x, y, *panels], "off")
        return [Contour(shown, "off", self.legend, THEORY, level=0.0)]

    @property
    def legend(self) -> str:
        """The legend of theory, which says what theory assumes."""
        return "theory, assumes locked attention" if self.assumes else "theory"

    def beside(self, table: Table, theta: float) -> Table:
        """Returns a table of thresholds with the column `theory`, the critical values
        that theory predicts. The column is null where there is none.
        """
        runs = self.runs
        if not runs.has_theory or runs.along not in RANGES:
            return table.assign(theory=np.nan)
        cells = self._cells(runs.along)
        predicted = self._predicted(cells, runs.along, theta)
        cells = cells[[*runs.axes]].assign(theory=predicted)
        if not runs.axes:
            return table.merge(cells, how="cross")
        return table.merge(cells, on=[*runs.axes], how="left")

    def reason(self) -> str:
        """Returns a sentence that counts the cells without a predicted accuracy.

        The sentence includes the reason for the first of these cells. The text is empty
        if there are no such cells, or if theory is about other rows.
        """
        if not self.runs.has_theory:
            return ""
        cells, reasons = self._cells(self.runs.along).to_dict("records"), []
        for cell in cells:
            try:
                self._value({**cell, "N": 1024.0}, "", 0.5)
            except TheoryError as refused:
                reasons.append(refused)
        if not reasons:
            return ""
        uncovered = f"{len(reasons)} of {len(cells)} cells"
        return f"Theory does not cover {uncovered} ({reasons[0]})."

    def _cells(self, target: str) -> Table:
        """Returns the settings of each cell, or of each level of a cell if `target`,
        the axis of critical values, is empty.

        A setting of the formulas that varies within a row makes it foreign.
        """
        runs = self.runs
        by = [*runs.axes] if target else [*runs.axes, runs.along]
        by_cell = groups(runs.rows, by)
        settings = [name for name in runs.rows if is_setting(name) and name not in by]
        cells = by_cell[settings].first()
        cells[FOREIGN] = foreign_setting(runs)
        for name in without(filter(_matters, settings), [target]):
            several = by_cell[name].nunique().to_numpy() > 1
            told = f"{name}: several values in a cell"
            cells[FOREIGN] = cells[FOREIGN].mask(several, told)
        if "attention_mass" in runs.rows:
            levels = groups(runs.rows, [*runs.axes, runs.along])["attention_mass"]
            cells[MASS] = groups(levels.mean().reset_index(), by)[
                "attention_mass"
            ].min()
        return cells.reset_index(drop=not by)

    def _layers(
        self, critical: str, theta: float, x: str, by: Sequence[str]
    ) -> list[Layer]:
        """Returns the layer of lines, and that of ticks where no line can be drawn."""
        if not self.runs.has_theory or critical not in ("", *RANGES):
            return []
        lines, ticks = [], []
        cells = with_columns(self._cells(critical), x)
        for values in values_of(cells, by):
            rows = where(cells, values).sort_values(x)
            if critical == "N":
                self._warn_of_plateaus(rows, theta)
            others = filter(_matters, without(rows, [*by, x, critical]))
            follows = any(rows[name].nunique(dropna=False) > 1 for name in others)
            is_line = self._is_smooth(rows[x]) and not follows
            places = _places(rows, x) if is_line else rows.to_dict("records")
            at = [place[x] for place in places]
            values_at = self._predicted(pd.DataFrame(places), critical, theta)
            every = pd.DataFrame({x: at, "theory": values_at})
            is_known = every["theory"].notna()
            for _, piece in every[is_known].groupby((~is_known).cumsum()[is_known]):
                if is_line and len(piece) > 1:
                    piece = smooth(piece, x, is_log=bool(critical))
                    lines.append(piece.assign(piece=len(lines), **values))
                else:
                    ticks.append(piece.assign(piece=0, **values))
        layers: list[Layer] = []
        for parts, style in ((lines, THEORY), (ticks, TICK)):
            if parts:
                named = "" if layers else self.legend
                shown = pd.concat(parts, ignore_index=True)
                layers.append(Polyline(shown, "theory", named, style, each="piece"))
        return layers

    def _is_smooth(self, column: Table) -> bool:
        """Whether theory is a smooth function of an axis."""
        if not is_numeric(column) or (column <= 0).any() or column.name in NOT_SMOOTH:
            return False
        return column.name in self.runs.rows and is_setting(column.name)

    def _warn_of_plateaus(self, rows: Table, theta: float) -> None:
        for at in rows.to_dict("records"):
            (size,) = self._predicted(pd.DataFrame([at]), "N", theta)
            if math.isfinite(size):
                with self._collecting():
                    warn_of_plateau(model_of(at), theta, size)

    def _predicted(self, cells: Table, critical: str, theta: float) -> list[float]:
        """Returns the accuracy of each cell at its N, or its critical value at theta;
        nan where theory covers none.
        """
        values = [math.nan]
        for at in cells.to_dict("records"):
            try:
                values.append(self._value(at, critical, theta, values[-1]))
            except TheoryError:
                values.append(math.nan)
        return values[1:]

    def _value(
        self,
        at: Mapping[str, Any],
        critical: str,
        theta: float,
        guess: float = math.nan,
    ) -> float:
        """Returns one value, or nan where attention was not locked as theory assumes.

        Raises TheoryError where theory does not cover the settings.
        """
        if critical != "m":  # the activation depends on the size m
            at = {name: value for name, value in at.items() if name != critical}
        key = critical, theta, str(sorted(at.items()))
        with self._collecting():
            model = model_of(at)
            assumes = model.L != 1 and not has_score_noise(model)
            if assumes and at.get(MASS, 1.0) <= LOCKED:
                return math.nan
            if key not in self._known:
                self._known[key] = _formula(model, at, critical, theta, guess)
        value = self._known[key]
        self.assumes |= assumes and math.isfinite(value)
        return value


def _formula(
    model: Model, at: Mapping[str, Any], critical: str, theta: float, guess: float
) -> float:
    N = float(at["N"]) if "N" in at else None
    if not critical:
        return theory.accuracy(model, N)  # type: ignore[arg-type]
    near = None if math.isnan(guess) else guess
    size = critical_size(model, critical, theta, N, near)
    warn_of_limits(model)
    return size if 0 < size < math.inf else math.nan


def model_of(at: Mapping[str, Any]) -> Model:
    """Returns the model of the settings `at`.

    Raises TheoryError if no formula covers the settings.
    """
    if at[FOREIGN]:
        raise TheoryError(f"{at[FOREIGN]}; covered by theory: no such column")
    settings = {}
    for name, value in at.items():
        if isinstance(value, np.generic):
            value = value.item()
        if name not in (FOREIGN, MASS) and not is_missing(value):
            settings[name] = value
    return Model.from_fields(settings)


def _matters(name: str) -> bool:
    """Whether formulas depend on a setting."""
    return name in (*FIELDS_OF_MODEL, "N", "step") or (is_setting(name) and "." in name)


def _places(rows: Table, name: str) -> list[Selection]:
    """Returns the settings at the tested places, which are in order, and at some places
    between them, evenly on a logarithmic scale.
    """
    tested = rows.to_dict("records")
    places: list[Selection] = tested[:1]
    steps = 1 + math.ceil(BETWEEN / max(1, len(tested) - 1))
    for left, right in pairwise(tested):
        for place in np.geomspace(left[name], right[name], steps + 1)[1:-1]:
            place = round(place) if name in WHOLE else float(place)
            at: Selection = left | {name: place}
            if MASS in at:
                at[MASS] = min(left[MASS], right[MASS])
            if places[-1][name] < place < right[name]:
                places.append(at)
        places.append(right)
    return places


def smooth(piece: Table, name: str, is_log: bool) -> Table:
    """Returns SHOWN points of the monotone cubic through the points of a piece.

    The cubic is a function of the logarithm of the axis `name`. With `is_log`, its
    value is the logarithm of theory.
    """
    x, y = piece[name].to_numpy(float), piece["theory"].to_numpy(float)
    line = PchipInterpolator(np.log(x), np.log(y) if is_log else y)
    shown = np.geomspace(x[0], x[-1], SHOWN)
    values = line(np.log(shown))
    return pd.DataFrame({name: shown, "theory": np.exp(values) if is_log else values})
