"""The predictions of theory that figures and tables of runs show.

Among the modules for figures, only this one applies formulas of theory. A formula
receives every setting of a row. If a setting differs from its default and the formula
does not cover it, there is no prediction. `Theory.reason` returns the reason.

Along an axis of numbers, a line of theory is a smooth curve through enough predictions,
at tested values and between them. Where other settings follow the axis, theory is known
at the tested values alone, and is drawn as ticks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit

from ... import theory
from ...errors import TheoryError, TheoryWarning
from ...model.values import is_missing
from ...theory import Model
from ...theory.critical import RANGES, critical_near, warn_of_plateau
from ...theory.limits import warn_of_limits
from ...theory.model import FIELDS_OF_MODEL
from ...theory.noise import has_score_noise
from ..fit.roles import Table
from .axis import Axis, with_columns
from .curve import FRACTION, LOG, Curve
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

END: Style = {"linestyle": "none", "size": 1.3}
"""The style of marks at the end of lines."""

ENDS = {
    "infinite": ("^", ">", "theory is infinite beyond"),
    "zero": ("v", "<", "theory is 0 beyond"),
    "not covered": ("|", "_", "theory ends: not covered"),
}
"""A dict from the state of theory beyond the end of a line to the mark of the end, the
mark of the end of a line that runs upwards, and the legend.
"""

At = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """What a line of theory shows: the accuracy, or the critical value of an axis."""

    critical: str = ""
    theta: float = 0.5

    def predict(self, model: Model, at: At, guess: float | None) -> float:
        """Returns the value of a model, at the N of the settings `at`. Raises
        TheoryError.
        """
        N = float(at["N"]) if "N" in at and self.critical != "N" else None
        if not self.critical:
            return theory.accuracy(model, N)  # type: ignore[arg-type]
        found = critical_near(model, self.critical, self.theta, N, guess)
        warn_of_limits(model)
        if found == 0:
            return -math.inf  # a curve on a logarithmic scale has no such point
        return found


@dataclass(frozen=True)
class Cell:
    """The settings of a line at its tested places.

    `values` select the line. `rows` has the settings at each place, and `name` is the
    column of places. `follows` is whether another setting varies from place to place.
    """

    values: Selection
    rows: Table
    name: str
    follows: bool

    @property
    def tested(self) -> list[Any]:
        return self.rows[self.name].tolist()

    def at(self, place: float | None = None, i: int = 0) -> Selection:
        """Returns the settings at a place, or those of the i-th tested place."""
        found = self.rows.iloc[i].to_dict()
        if place is not None:
            found[self.name] = place
            if "mass" in found:
                found["mass"] = self._mass(place)
        return found

    def _mass(self, place: float) -> float:
        """Returns the attention mass at a place.

        Between two tested places, it is the smaller mass of the two.
        """
        rows = self.rows.sort_values(self.name)
        places = rows[self.name].to_numpy(float)
        right = np.searchsorted(places, place)
        left = right if places[right] == place else right - 1
        return float(rows["mass"].iloc[[left, right]].min())


class Theory:
    """The predictions of theory for the runs of a figure, and what they warn of."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.assumes = False
        self._known: dict[Any, float] = {}
        self._models: dict[Any, Model] = {}
        self._warned: dict[str, list[str]] = {}

    def within(self, runs: Runs) -> Theory:
        """Returns the predictions for a part of the runs. Both share their warnings."""
        part = Theory(runs)
        part._known = self._known
        part._models = self._models
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
        runs = self.runs
        settings = self._settings([*runs.axes, runs.along])
        cells = self._cells(settings, x, by)
        return self._layers(Quantity(), x, cells, "theory", (0.0, 1.0))

    def critical(
        self, theta: float, x: Axis, by: Sequence[str], limits: tuple[float, float]
    ) -> list[Layer]:
        """Returns the layers of predicted critical values along x.

        `limits` are the limits of y, within which the ends of lines are marked.
        """
        runs = self.runs
        if runs.along not in RANGES:
            return []
        cells = self._cells(self._settings(runs.axes, runs.along), x, by)
        quantity = Quantity(runs.along, theta)
        return self._layers(quantity, x, cells, "theory", limits)

    def contour(
        self, x: Axis, y: Axis, panels: Sequence[str], theta: float
    ) -> list[Layer]:
        """Returns the layers of the line over two axes where theory predicts the
        accuracy theta.
        """
        if not self.runs.has_theory:
            return []
        along, target = self._roles_of(x, y)
        if target:
            by = [a for a in self.runs.every if a != target.name]
            settings = self._settings(by, target.name)
            cells = self._cells(settings, along, panels)
            if not any(cell.follows for cell in cells):
                quantity = Quantity(target.name, theta)
                limits = _inside(target)
                return self._layers(quantity, along, cells, target.name, limits, y)
        return self._tested_contour(x, y, panels, theta)

    def _roles_of(self, x: Axis, y: Axis) -> tuple[Axis, Axis | None]:
        """Returns the axis along which a line over two axes is computed, and the axis
        whose critical value it shows. The latter is None if it is none of theory's.
        """
        order = [y, x]
        if x.name == "N":
            order = [x, y]
        for target in order:
            along = y if target is x else x
            is_target = target.name in RANGES and target.kind != "names"
            if is_target and self._is_smooth(along):
                return along, target
        return x, None

    def _tested_contour(
        self, x: Axis, y: Axis, panels: Sequence[str], theta: float
    ) -> list[Layer]:
        """Returns the contour of the accuracies that are predicted at tested places."""
        runs = self.runs
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
        found["theory"] = found["theory"].where(np.isfinite(found["theory"]))
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

    def _cells(self, settings: Table, x: Axis, by: Sequence[str]) -> list[Cell]:
        """Returns the cells of the lines along x, which have the values of axes `by`.

        Places that are not positive make cells of their own.
        """
        table = with_columns(settings, x.name)
        found = []
        for values in values_of(table, by):
            rows = where(table, values)
            if not self._is_smooth(x):
                found.append(Cell(values, rows, x.name, follows=True))
                continue
            is_positive = rows[x.name] > 0
            for part in (rows[is_positive], rows[~is_positive]):
                if len(part):
                    follows = _follows(part, [*by, x.name])
                    has_zero = not (part[x.name] > 0).all()
                    cell = Cell(values, part, x.name, follows or has_zero)
                    found.append(cell)
        return found

    def _layers(
        self,
        quantity: Quantity,
        x: Axis,
        cells: Sequence[Cell],
        name: str,
        limits: tuple[float, float],
        y: Axis | None = None,
    ) -> list[Layer]:
        """Returns the layers of lines, of their ends, and of theory at tested values.

        `name` is the column of theory. In a map, y is the axis upwards.
        """
        if not self.runs.has_theory:
            return []
        scale = LOG if quantity.critical else FRACTION
        like = None
        lines, ticks, ends = [], [], []
        for cell in cells:
            if cell.follows:
                ticks += self._ticks(quantity, cell, name)
                continue
            like = Curve(
                lambda place, guess, cell=cell: self._covered(
                    quantity, cell.at(place), guess
                ),
                scale,
                x.name in WHOLE,
                like,
            )
            like.trace(cell.tested)
            self._check(quantity, cell, like)
            for places, values in like.pieces():
                part = pd.DataFrame({x.name: places, name: values})
                part = part.assign(**cell.values)
                if len(places) == 1:
                    ticks += part.to_dict("records")
                else:
                    lines += _monotonic(part, name, y is not None, len(lines))
            for end in like.ends():
                place = {x.name: end.x, name: float(np.clip(end.y, *limits))}
                ends.append({**cell.values, **place, "state": _state(end.beyond)})
        up = y.name if y else name
        return self._drawn(lines, ticks, ends, up, turned=up != name)

    def _drawn(
        self,
        lines: list[Table],
        ticks: list[Selection],
        ends: list[Selection],
        up: str,
        turned: bool,
    ) -> list[Layer]:
        layers: list[Layer] = []
        if lines:
            table = pd.concat(lines, ignore_index=True)
            layers.append(Polyline(table, up, self.legend, THEORY, each="piece"))
        if ticks:
            named = "" if lines else self.legend
            layers.append(Polyline(pd.DataFrame(ticks), up, named, TICK))
        if not layers:
            return []
        for state, (mark, turned_mark, named) in ENDS.items():
            mine = [end for end in ends if end["state"] == state]
            if mine:
                style = END | {"marker": turned_mark if turned else mark}
                layers.append(Polyline(pd.DataFrame(mine), up, named, style))
        return layers

    def _ticks(self, quantity: Quantity, cell: Cell, name: str) -> Iterator[Selection]:
        """Yields the places at which theory is known, and its values there."""
        for i, place in enumerate(cell.tested):
            value = self._covered(quantity, cell.at(i=i))
            if math.isfinite(value):
                yield {**cell.values, cell.name: place, name: value}

    def _check(self, quantity: Quantity, cell: Cell, curve: Curve) -> None:
        """Collects the warnings of a prediction in the middle of a curve and at its
        ends.
        """
        if quantity.critical != "N":
            return
        for place in cell.tested:
            found = curve.values.get(place, math.nan)
            if math.isfinite(found):
                with self._collecting():
                    at = self._of_formula(quantity, cell.at(place))
                    warn_of_plateau(self._model(at), quantity.theta, found)

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
        key = quantity, _key(at)
        if key not in self._known:
            model = self._model(at)
            with self._collecting():
                self._known[key] = quantity.predict(model, at, guess)
        return self._known[key]

    def _model(self, at: At) -> Model:
        """Returns the model of the settings `at`, which is made once. Raises
        TheoryError.
        """
        key = _key(at)
        if key not in self._models:
            with self._collecting():
                self._models[key] = model_of(at)
        return self._models[key]

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


def _key(at: At) -> tuple[tuple[str, str], ...]:
    """Returns the settings on which theory may depend, as one hashable value."""
    return tuple(sorted((name, str(at[name])) for name in at if name != "mass"))


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


def _state(beyond: float) -> str:
    """Returns the state of theory beyond the end of a line."""
    if math.isnan(beyond):
        return "not covered"
    return "infinite" if beyond > 0 else "zero"


def _inside(axis: Axis) -> tuple[float, float]:
    """Returns limits that are inside a map, whose edges are half a step beyond the
    first and the last value of an axis.
    """
    first, last = axis.values[0], axis.values[-1]
    if axis.kind != "log" or first == last:
        return first, last
    second, before = axis.values[1], axis.values[-2]
    return first * (first / second) ** 0.4, last * (last / before) ** 0.4


def _monotonic(part: Table, name: str, divided: bool, first: int) -> list[Table]:
    """Returns the parts of a line, numbered from `first` on.

    In a map, a line may run upwards. Marks are joined from left to right, so that the
    values of each part must rise or fall.
    """
    if not divided:
        return [part.assign(piece=first)]
    signs = np.sign(np.diff(part[name]))
    turns = 1 + np.flatnonzero(signs[1:] != signs[:-1])
    starts = [0, *turns]
    stops = [*turns, len(part) - 1]
    return [
        part.iloc[start : stop + 1].assign(piece=first + i)
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True))
    ]
