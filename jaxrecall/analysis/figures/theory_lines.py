"""The predictions of theory that figures and tables of runs show.

Among the modules for figures, only this one applies formulas of theory. A formula
receives every setting of a row. If a setting differs from its default and the formula
does not cover it, there is no prediction. `Theory.messages` has the reason.

Along an axis of numbers, a line of theory joins predictions at the tested values and at
some values between them. Where other settings follow the axis, theory is known at the
tested values alone, and is drawn as ticks.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit

from ...errors import TheoryWarning
from ...theory.critical import RANGES
from ...theory.model import FIELDS_OF_MODEL
from ...theory.tables import NO_PREDICTION, is_setting, predict
from ..fit.columns import ColumnNames, Table, groups, n_values, varying, without
from ..fit.table_axes import unstated
from .figure import Chart
from .layers import (
    THEORY,
    Axis,
    Contour,
    Layer,
    Polyline,
    Selection,
    ordered,
    where,
)
from .style import Style
from .table_of_runs import Runs, averaged

WHOLE = ("V", "d", "L", "m", "N", "first_steps")
"""The axes of whole numbers."""

NOT_SMOOTH = ("step", "steps", "pool", "batch")
"""The settings of numbers along which theory does not change smoothly."""

TICKS: Style = {"linestyle": "none", "marker": "_", "size": 3.4}
"""The style of theory where no line can join the values."""

BETWEEN = 12
"""The number of predictions of a line besides those at the tested values."""


@dataclass
class Theory:
    """The predictions of theory for the runs of a figure, and what they warn of.

    `messages` are the sentences about settings in which theory was measured to be off
    or predicts nothing, by their cause. `panels` select the cells with theory.
    """

    runs: Runs
    messages: dict[str, str] = field(default_factory=dict)
    panels: Sequence[Selection] = ({},)

    def warn(self) -> None:
        """Warns with TheoryWarning where theory was measured to be off."""
        for cause, message in self.messages.items():
            if cause != NO_PREDICTION:
                warnings.warn(message, TheoryWarning, stacklevel=3)

    def of(self, chart: Chart) -> Theory:
        """Returns the theory of the panels that a chart draws, with these messages."""
        return replace(self, panels=chart.parts)

    def contour(self, x: str, y: str, panels: ColumnNames, theta: float) -> list[Layer]:
        """Returns the layer of the line over two axes where the accuracies that theory
        predicts at the tested values cross theta.
        """
        if not self.runs.has_theory:
            return []
        cells = self._cells("")
        accuracy = self._predict(cells)
        # between places, the logit is closer to linear than the accuracy
        off = logit(accuracy.clip(1e-3, 1 - 1e-3)) - logit(theta)
        shown = averaged(cells.assign(off=off), [x, y, *panels], "off")
        return [Contour(shown, "off", "theory", THEORY, level=0.0)]

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

    def _cells(self, critical: str) -> Table:
        """Returns the settings of each cell, or of each level of a cell if `critical`,
        the axis of critical values, is empty.

        Columns that are no setting of ours are kept if the table does not state its
        axes. Theory refuses them, and settings with several values in a cell.
        """
        runs = self.runs
        by = [*runs.axes] if critical else runs.every
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
        cells = cells.reset_index(drop=not by)
        return pd.concat([where(cells, panel) for panel in self.panels]).sort_index()

    def lines(
        self, x: str, by: ColumnNames, critical: str = "", theta: float = 0.5
    ) -> list[Layer]:
        """Returns a layer with a line of theory along x for each combination of values
        of the axes `by`, or with ticks if no line can join them. Theory is that of the
        critical values along the axis `critical`, or else of accuracy.
        """
        if not self.runs.has_theory or critical not in ("", *RANGES):
            return []
        cells = self._cells(critical)
        others = without(filter(_matters, cells), [*by, x, critical])
        lines = [rows for _, rows in groups(cells, by)]
        is_smooth = is_setting(x) and x not in NOT_SMOOTH
        is_line = is_smooth and Axis(x, ordered(cells[x])).kind == "log"
        for rows in lines:
            is_line = is_line and len(rows) > 1 and not varying(rows, others)
        if is_line:
            lines = [_with_places_between(rows, x) for rows in lines]
        table = pd.concat(lines, ignore_index=True)
        predicted = self._predict(table, critical, theta)
        if np.isnan(predicted).all():
            return []
        shown = table[[x, *by]].assign(theory=predicted)
        return [Polyline(shown, "theory", "theory", THEORY if is_line else TICKS)]

    def _predict(self, cells: Table, along: str = "", theta: float = 0.5) -> Any:
        """Returns an array with the accuracy of each cell at its N, or its critical
        value along an axis. It is nan where there is none.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TheoryWarning)
            values = predict(cells, along, theta)
        for message in (str(warning.message) for warning in caught):
            self.messages.setdefault(message.partition(":")[0], message)
        if along:
            values[(values == 0) | np.isinf(values)] = np.nan
        return values


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
