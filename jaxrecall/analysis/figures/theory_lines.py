"""The predictions of theory that figures and tables of runs show.

Among the modules for figures, only this one applies formulas of theory. A formula
receives every setting of a row. If a setting differs from its default and the formula
does not cover it, there is no prediction. `Theory.reason` returns the reason.

Along an axis of numbers, a line of theory is a monotone cubic through predictions at
the tested values and at some values between them. Where other settings follow the axis,
theory is known at the tested values alone, and is drawn as ticks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from ...theory.critical import RANGES, critical_near, warn_of_plateau
from ...theory.limits import warn_of_limits
from ...theory.model import FIELDS_OF_MODEL
from ...theory.noise import has_score_noise
from ..fit.columns import Table
from .axis import Axis, with_columns
from .layers import (
    THEORY,
    Contour,
    Layer,
    Polyline,
    Selection,
    values_of,
    where,
)
from .style import Style
from .table_of_runs import NO_SETTINGS, Runs, averaged, is_setting

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

At = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """What a line of theory shows: the accuracy, or the critical value of an axis."""

    critical: str = ""
    theta: float = 0.5

    def predict(self, model: Model, at: At, guess: float | None) -> float:
        """Returns the value of a model, at the N of the settings `at`.

        A critical value that is not positive and finite is nan. Raises TheoryError.
        """
        N = float(at["N"]) if "N" in at and self.critical != "N" else None
        if not self.critical:
            return theory.accuracy(model, N)  # type: ignore[arg-type]
        size = critical_near(model, self.critical, self.theta, N, guess)
        warn_of_limits(model)
        return size if 0 < size < math.inf else math.nan


class Theory:
    """The predictions of theory for the runs of a figure, and what they warn of."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.assumes = False
        self._known: dict[Any, float] = {}
        self._warned: dict[str, list[str]] = {}

    def within(self, runs: Runs) -> Theory:
        """Returns the predictions for a part of the runs. Both share their warnings."""
        part = Theory(runs)
        part._known = self._known
        part._warned = self._warned
        return part

    @property
    def messages(self) -> list[str]:
        """The sentences about settings in which theory was measured to be off.

        There is one for each cause, with the number of predictions that it affects.
        """
        found = []
        for texts in self._warned.values():
            more = ""
            if len(texts) > 1:
                more = f" ({len(texts)} predictions of theory are affected)"
            found.append(texts[0] + more)
        return found

    def warn(self) -> None:
        """Warns with TheoryWarning of each message."""
        for message in self.messages:
            warnings.warn(message, TheoryWarning, stacklevel=3)

    def accuracy(self, x: Axis, by: Sequence[str]) -> list[Layer]:
        """Returns the layers of predicted accuracy along x, with a line for each
        combination of values of the axes `by`.
        """
        settings = self._settings([*self.runs.axes, self.runs.along])
        return self._layers(Quantity(), x, settings, by)

    def critical(self, theta: float, x: Axis, by: Sequence[str]) -> list[Layer]:
        """Returns the layers of predicted critical values along x."""
        runs = self.runs
        if runs.along not in RANGES:
            return []
        settings = self._settings(runs.axes, runs.along)
        return self._layers(Quantity(runs.along, theta), x, settings, by)

    def contour(
        self, x: Axis, y: Axis, panels: Sequence[str], theta: float
    ) -> list[Layer]:
        """Returns the layers of the line over two axes where the accuracies that theory
        predicts at the tested values cross theta.
        """
        runs = self.runs
        if not runs.has_theory:
            return []
        rows = self._settings([*runs.axes, runs.along])
        found = [self._covered(Quantity(), row) for row in rows.to_dict("records")]
        table = with_columns(rows.assign(theory=found), x.name, y.name)
        # between places, the logit is closer to linear than the accuracy
        off = logit(table["theory"].clip(1e-3, 1 - 1e-3)) - logit(theta)
        shown = averaged(table.assign(off=off), [x.name, y.name, *panels], "off")
        if shown.empty:
            return []
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
        settings = self._settings(runs.axes, runs.along)
        quantity = Quantity(runs.along, theta)
        values = [self._covered(quantity, row) for row in settings.to_dict("records")]
        found = settings[[*runs.axes]].assign(theory=np.array(values, dtype=float))
        if not runs.axes:
            return table.merge(found, how="cross")
        return table.merge(found, on=[*runs.axes], how="left")

    def reason(self) -> str:
        """Returns a sentence that counts the cells without a predicted accuracy.

        The sentence includes the reason for the first of these cells. The text is empty
        if there are no such cells, or if theory is about other rows.
        """
        if not self.runs.has_theory:
            return ""
        cells = self._settings(self.runs.axes, self.runs.along).to_dict("records")
        reasons = []
        for cell in cells:
            try:
                self._value(Quantity(), {**cell, "N": 1024.0}, None)
            except TheoryError as refused:
                reasons.append(refused)
        if not reasons:
            return ""
        uncovered = f"{len(reasons)} of {len(cells)} cells"
        return f"Theory does not cover {uncovered} ({reasons[0]})."

    def _settings(self, by: Sequence[str], target: str = "") -> Table:
        """Returns the settings of each combination of values of the axes `by`.

        A setting of the formulas that varies within a combination makes it foreign,
        unless it is the axis of the critical value.
        """
        runs = self.runs
        by = list(dict.fromkeys(by))
        settings = runs.settings(by)
        for name in runs.rows:
            if not _matters(name) or name in by or name == target:
                continue
            if by:
                counts = runs.rows.groupby(by, dropna=False, observed=True)[name]
                several = counts.nunique().to_numpy() > 1
            else:
                several = np.array([runs.rows[name].nunique() > 1])
            told = f"{name}: several values in a cell"
            settings["foreign"] = settings["foreign"].mask(several, told)
        return settings

    def _is_smooth(self, x: Axis) -> bool:
        """Whether theory is a smooth function of an axis."""
        if x.kind == "names" or x.name in NOT_SMOOTH:
            return False
        return x.name in self.runs.rows and is_setting(x.name)

    def _layers(
        self, quantity: Quantity, x: Axis, settings: Table, by: Sequence[str]
    ) -> list[Layer]:
        """Returns the layer of lines, and that of ticks where no line can be drawn."""
        if not self.runs.has_theory:
            return []
        lines, ticks = [], []
        table = with_columns(settings, x.name)
        for values in values_of(table, by):
            rows = where(table, values).sort_values(x.name)
            if quantity.critical == "N":
                self._check(quantity, rows)
            is_line = self._is_smooth(x) and not _follows(rows, [*by, x.name])
            between = BETWEEN if is_line and (rows[x.name] > 0).all() else 0
            for piece in self._pieces(quantity, x.name, _places(rows, x.name, between)):
                if between and len(piece) > 1:
                    piece = smooth(piece, x.name, is_log=bool(quantity.critical))
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

    def _check(self, quantity: Quantity, rows: Table) -> None:
        """Collects the warnings of predictions at tested values."""
        for at in rows.to_dict("records"):
            size = self._covered(quantity, at)
            if math.isfinite(size):
                model = self._model(self._of_formula(quantity, at))
                with self._collecting():
                    warn_of_plateau(model, quantity.theta, size)

    def _pieces(
        self, quantity: Quantity, name: str, places: Sequence[At]
    ) -> list[Table]:
        """Returns tables with the columns `name` and theory: the longest parts of the
        places that have a value of theory.
        """
        values: list[float] = []
        for at in places:
            guess = values[-1] if values else None
            values.append(self._covered(quantity, at, guess))
        every = pd.DataFrame({name: [at[name] for at in places], "theory": values})
        is_known = every["theory"].notna()
        known = every[is_known]
        return [part for _, part in known.groupby((~is_known).cumsum()[is_known])]

    def _covered(self, quantity: Quantity, at: At, guess: float | None = None) -> float:
        """Returns the value for the settings `at`, or nan where theory covers none."""
        at = self._of_formula(quantity, at)
        try:
            assumes = self._assumes(at)
            if assumes and at.get("mass", 1.0) <= LOCKED:
                return math.nan
            found = self._value(quantity, at, guess)
        except TheoryError:
            return math.nan
        self.assumes |= assumes and math.isfinite(found)
        return found

    def _of_formula(self, quantity: Quantity, at: At) -> Selection:
        """Returns settings without the size along the axis of the critical value.

        A size m is kept, because the activation depends on it.
        """
        dropped = quantity.critical if quantity.critical != "m" else ""
        return {name: value for name, value in at.items() if name != dropped}

    def _assumes(self, at: At) -> bool:
        """Whether theory covers settings only by assuming that attention is locked."""
        model = self._model(at)
        return model.L != 1 and not has_score_noise(model)

    def _value(self, quantity: Quantity, at: At, guess: float | None) -> float:
        settings = sorted((name, str(at[name])) for name in at if name != "mass")
        key = quantity, tuple(settings)
        if key not in self._known:
            model = self._model(at)
            with self._collecting():
                self._known[key] = quantity.predict(model, at, guess)
        return self._known[key]

    def _model(self, at: At) -> Model:
        """Returns the model of the settings `at`. Raises TheoryError."""
        with self._collecting():
            return model_of(at)

    def _collecting(self) -> _Collecting:
        return _Collecting(self._warned)


class _Collecting(warnings.catch_warnings):
    """A context that collects the texts of TheoryWarnings by their first word."""

    def __init__(self, texts: dict[str, list[str]]) -> None:
        super().__init__(record=True)
        self._texts = texts

    def __enter__(self) -> None:
        self._log = super().__enter__()
        warnings.simplefilter("always", TheoryWarning)

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        for warning in self._log or []:
            text = str(warning.message)
            cause, _, _ = text.partition(":")
            known = self._texts.setdefault(cause, [])
            if text not in known:
                known.append(text)


def model_of(at: At) -> Model:
    """Returns the model of the settings `at`.

    Raises TheoryError if no formula covers the settings.
    """
    if at.get("foreign"):
        raise TheoryError(f"{at['foreign']}; covered by theory: no such column")
    settings = {}
    for name, value in at.items():
        if isinstance(value, np.generic):
            value = value.item()
        if name not in NO_SETTINGS and not is_missing(value):
            settings[name] = value
    return Model.from_fields(settings)


def _follows(rows: Table, by: Sequence[str]) -> bool:
    """Whether a setting on which theory depends varies, other than those in `by`."""
    names = [name for name in rows if _matters(name) and name not in by]
    return any(rows[name].nunique(dropna=False) > 1 for name in names)


def _matters(name: str) -> bool:
    """Whether formulas depend on a setting."""
    return name in (*FIELDS_OF_MODEL, "N", "step") or (is_setting(name) and "." in name)


def _places(rows: Table, name: str, between: int) -> list[Selection]:
    """Returns the settings at the tested places, which are in order, and at some
    `between` places between them, evenly on a logarithmic scale.
    """
    tested = rows.to_dict("records")
    places: list[Selection] = tested[:1]
    steps = 1 + math.ceil(between / max(1, len(tested) - 1))
    for left, right in pairwise(tested):
        low, high = left[name], right[name]
        for place in np.geomspace(low, high, steps + 1)[1:-1] if between else ():
            place = round(place) if name in WHOLE else float(place)
            at: Selection = left | {name: place}
            if "mass" in at:
                at["mass"] = min(left["mass"], right["mass"])
            if low < place < high and place != places[-1][name]:
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
