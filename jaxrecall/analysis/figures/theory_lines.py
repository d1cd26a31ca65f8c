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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit

from ... import theory
from ...errors import TheoryError, TheoryWarning
from ...theory import Model
from ...theory.critical import RANGES, critical_size, warn_of_plateau
from ...theory.limits import warn_of_limits
from ...theory.model import FIELDS_OF_MODEL
from ...theory.noise import has_score_noise
from ...theory.tables import is_setting
from ..fit.columns import Table, groups, n_values, without
from ..fit.table_axes import unstated
from .layers import THEORY, Axis, Contour, Layer, Polyline, values_of, where
from .style import Style
from .table_of_runs import Runs, averaged

LOCKED = 0.95
"""The attention mass on the informative token above which attention counts as locked.
"""

WHOLE = ("V", "d", "L", "m", "N", "first_steps")
"""The axes of whole numbers."""

NOT_SMOOTH = ("step", "steps", "pool", "batch")
"""The settings of numbers along which theory does not change smoothly."""

TICKS: Style = {"linestyle": "none", "marker": "_", "size": 3.4}
"""The style of theory where no line can join the values."""

BETWEEN = 24
"""The number of predictions of a line besides those at the tested values."""


class Theory:
    """The predictions of theory for the runs of a figure, and what they warn of.

    `messages` are the sentences about settings in which theory was measured to be off,
    by their cause.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.assumes = False
        self.messages: dict[str, str] = {}
        self._known: dict[Any, float] = {}

    def warn(self) -> None:
        """Warns with TheoryWarning of each message."""
        for message in self.messages.values():
            warnings.warn(message, TheoryWarning, stacklevel=3)

    def contour(
        self, x: str, y: str, panels: Sequence[str], theta: float
    ) -> list[Layer]:
        """Returns the layer of the line over two axes where the accuracies that theory
        predicts at the tested values cross theta.
        """
        if not self.runs.has_theory:
            return []
        cells = self._cells("")
        accuracy = np.array(self._predict(cells))
        # between places, the logit is closer to linear than the accuracy
        off = logit(accuracy.clip(1e-3, 1 - 1e-3)) - logit(theta)
        shown = averaged(cells.assign(off=off), [x, y, *panels], "off")
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
        predicted = self._predict(cells, runs.along, theta)
        cells = cells[[*runs.axes]].assign(theory=predicted)
        return table.merge(cells, how="left" if runs.axes else "cross")

    def reason(self) -> str:
        """Returns a sentence that counts the cells without a predicted accuracy.

        The sentence includes the reason for the first of these cells. The text is empty
        if there are no such cells, or if theory is about other rows.
        """
        if not self.runs.has_theory:
            return ""
        cells, reasons = self._cells(self.runs.along), []
        self._predict(cells.assign(N=1024.0), reasons=reasons)
        if not reasons:
            return ""
        return (
            f"Theory does not cover {len(reasons)} of {len(cells)} configurations"
            f" ({reasons[0]})."
        )

    def _cells(self, critical: str) -> Table:
        """Returns the settings of each cell, or of each level of a cell if `critical`,
        the axis of critical values, is empty.

        Columns that are no setting of ours are kept if the table does not state its
        axes. Theory refuses them, and settings with several values in a cell.
        """
        runs = self.runs
        levels = groups(runs.rows, [*runs.axes, runs.along])
        by = [*runs.axes] if critical else [*runs.axes, runs.along]
        by_cell = groups(runs.rows, by)
        settings = without(filter(is_setting, runs.rows), by)
        if runs.roles.axes is None:
            for name in unstated(runs.rows, runs.roles):
                if n_values(runs.rows, name) == 1:
                    settings.append(name)
        cells = by_cell[settings].first()
        for name in without(filter(_matters, settings), [critical]):
            several = by_cell[name].nunique() > 1
            if several.any():
                cells[name] = cells[name].astype(object).mask(several, "several values")
        if "attention_mass" in runs.rows:
            means = levels["attention_mass"].mean().reset_index()
            cells["attention_mass"] = groups(means, by)["attention_mass"].min()
        return cells.reset_index(drop=not by)

    def lines(
        self, x: str, by: Sequence[str], critical: str = "", theta: float = 0.5
    ) -> list[Layer]:
        """Returns a layer with a line of theory along x for each combination of values
        of the axes `by`, or with ticks if no line can join them. Theory is that of the
        critical values along the axis `critical`, or else of accuracy.
        """
        if not self.runs.has_theory or critical not in ("", *RANGES):
            return []
        cells = self._cells(critical)
        others = without(filter(_matters, cells), [*by, x, critical])
        lines = [where(cells, values) for values in values_of(cells, by)]
        is_line = x in self.runs.rows and is_setting(x) and x not in NOT_SMOOTH
        is_line = is_line and Axis.of(cells, x).kind == "log"
        for rows in lines:
            follows = bool((rows[others].nunique() > 1).any())
            is_line = is_line and len(rows) > 1 and not follows
        if is_line:
            lines = [_with_places_between(rows, x) for rows in lines]
        table = pd.concat(lines, ignore_index=True)
        predicted = self._predict(table, critical, theta)
        if np.isnan(predicted).all():
            return []
        shown = table[[x, *by]].assign(theory=predicted)
        return [Polyline(shown, "theory", self.legend, THEORY if is_line else TICKS)]

    def _predict(
        self,
        cells: Table,
        critical: str = "",
        theta: float = 0.5,
        reasons: list[TheoryError] | None = None,
    ) -> list[float]:
        """Returns the accuracy of each cell at its N, or its critical value at theta;
        nan where theory covers none, for which `reasons` gets the errors.

        Critical values are looked for where the values before them lead.
        """
        values: list[float] = []
        for at in cells.to_dict("records"):
            guess = _next_value(values) if critical else math.nan
            try:
                values.append(self._predict_one(at, critical, theta, guess))
            except TheoryError as error:
                values.append(math.nan)
                if reasons is not None:
                    reasons.append(error)
        return values

    def _predict_one(
        self, at: Mapping[str, Any], critical: str, theta: float, guess: float
    ) -> float:
        """Returns one value, or nan where attention was not locked as theory assumes.

        Raises TheoryError where theory does not cover the settings.
        """
        # the activation depends on the size m
        at = {name: at[name] for name in at if name == "m" or name != critical}
        key = critical, theta, str(sorted(at.items()))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TheoryWarning)
            model = Model.from_fields(at)
            assumes = model.L != 1 and not has_score_noise(model)
            if assumes and at.get("attention_mass", 1.0) <= LOCKED:
                return math.nan
            if key not in self._known:
                self._known[key] = _apply(model, at, critical, theta, guess)
        for message in (str(warning.message) for warning in caught):
            self.messages.setdefault(message.partition(":")[0], message)
        self.assumes |= assumes and math.isfinite(self._known[key])
        return self._known[key]


def _next_value(values: Sequence[float]) -> float:
    """Returns a guess at the next of the values along a line, whose places are about
    evenly spaced: they grow by the same factor again. It is nan at the start.
    """
    before, last = [math.nan, math.nan, *values][-2:]
    return last if math.isnan(before) else last * last / before


def _apply(
    model: Model, at: Mapping[str, Any], critical: str, theta: float, guess: float
) -> float:
    if not critical:
        return theory.accuracy(model, at["N"])
    near = None if math.isnan(guess) else guess
    size = critical_size(model, critical, theta, at.get("N"), near)
    warn_of_limits(model)
    if not 0 < size < math.inf:
        return math.nan
    if critical == "N":
        warn_of_plateau(model, theta, size)
    return size


def _matters(name: str) -> bool:
    """Whether formulas depend on a setting."""
    return name in (*FIELDS_OF_MODEL, "N", "step") or (is_setting(name) and "." in name)


def _with_places_between(rows: Table, name: str) -> Table:
    """Returns the rows of a line with others between them, evenly on a logarithmic
    scale. These have the settings of the row before.
    """
    tested = rows.sort_values(name)
    between = np.geomspace(tested[name].min(), tested[name].max(), BETWEEN)
    if name in WHOLE:
        between = between.round().astype(tested[name].dtype)
    places = np.union1d(tested[name], between)
    tested = tested.astype({name: places.dtype})
    return pd.merge_asof(pd.DataFrame({name: places}), tested, on=name)
