"""Figures of a threshold search: fitted curves, and levels whose marks show seeds.

A search runs many seeds at a few levels near the crossing, and single seeds elsewhere.
A line through the means of its levels would join single seeds. So the figure of a
search has the curve that the search and the fit estimate, and a mark at each level. The
area of a mark is proportional to the number of seeds. Whether a table is that of a
search follows from its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import expit

from ...sweep.crossing import OCTAVE, PER_OCTAVE, Curve, by_level, edge_of
from ...sweep.mean_crossing import MeanCurve
from ...sweep.summary import Summary
from ..fit.columns import Table, groups, seed_columns
from ..fit.roles import Roles
from .axis import Axis
from .grammar import Chart
from .layers import Layer, Panel, Polyline, entry, where
from .style import Style, keywords
from .table_of_runs import MEASURE, Runs, scale_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist

SOME = 0.25
"""The share of levels with few seeds from which a table counts as that of a search."""

WIDEST = 2.0
"""The width of the mark with the most seeds, relative to the user's markers."""

FITTED: Style = {"marker": "none", "width": 0.8}
"""The style of fitted curves and laws."""

REACH = 32.0
"""How far a collapse reaches on either side of N*, as a factor."""


def is_search(runs: Runs) -> bool:
    """Whether the runs are those of a search: many levels of a cell have less than half
    as many seeds as its level with the most.
    """
    levels = runs.levels
    most = levels["n_seeds"].max()
    if runs.axes:
        by_cell = levels.groupby([*runs.axes], dropna=False)
        most = by_cell["n_seeds"].transform("max")
    return (levels["n_seeds"] < 0.5 * most).mean() > SOME


def runs_along(
    rows: Table, roles: Roles, along: str, axes: Sequence[str], summary: Summary
) -> Runs:
    """Returns the runs of a search along an axis, whose grid varies these axes."""
    values = rows[roles.measure]
    if summary.is_share:
        values = summary.values(values, 0.0)
    rows = rows.assign(**{MEASURE: values})
    others = tuple(axis for axis in axes if axis != along)
    return Runs(rows, rows, roles, along, others, summary)


@dataclass(frozen=True)
class Dots(Layer):
    """A layer of means whose marks have an area proportional to their n_seeds."""

    def draw(self, panel: Panel) -> None:
        for rows, style, _ in panel.lines(self.table):
            panel.ax.scatter(
                panel.at(rows),
                panel.up(rows, self.y),
                s=self._width(rows["n_seeds"].to_numpy()) ** 2,
                marker=style.get("marker", "o"),
                color=style["color"],
                alpha=0.5,
                linewidth=0,
            )

    def _width(self, n_seeds: np.ndarray) -> np.ndarray:
        """Returns the widths of marks in points."""
        widest = keywords({"size": WIDEST})["markersize"]
        return widest * np.sqrt(n_seeds / self.table["n_seeds"].max())

    def heights(self) -> np.ndarray:
        return self.table[self.y].to_numpy(float)

    def entries(self, n_places: int) -> list[Artist]:
        """Returns entries that show the marks with the fewest and the most seeds."""
        found = []
        counts = self.table["n_seeds"]
        for n in sorted({counts.min(), counts.max()}):
            name = "1 seed" if n == 1 else f"{n} seeds"
            shown = {
                "markersize": float(self._width(np.array(n))),
                "markeredgewidth": 0,
            }
            found.append(entry(name, marker="o", linestyle="none", **shown))
        return found


def chart(
    runs: Runs,
    lines: Sequence[str],
    panels: Sequence[str],
    thetas: Sequence[float],
) -> Chart:
    """Returns a chart of the fitted curve of each cell, and of its levels.

    Curves are estimated for the panels that are drawn.
    """
    levels = runs.levels.drop(columns=["low", "high"])
    axis = Axis.make(runs.along, levels, runs.roles, ticks=False)
    scale = scale_of(levels[MEASURE])
    found = Chart([Dots(levels, MEASURE)], axis, runs.label, scale=scale)
    found = replace(found, lines=lines, panels=panels)
    fitted = curves(drawn(runs, found), thetas)
    if fitted.empty:
        return found
    return found.plus([Polyline(fitted, MEASURE, "curve, fitted", FITTED)])


def drawn(runs: Runs, found: Chart) -> Runs:
    """Returns the runs that are in the panels of a chart."""
    rows = [where(runs.rows, values) for values in found.parts]
    return replace(runs, rows=pd.concat(rows))


def curves(runs: Runs, thetas: Sequence[float]) -> Table:
    """Returns the fitted curves as a table with the columns of the axes, `along` and
    MEASURE.

    There is no curve of a median: what the fit estimates is the share of seeds that
    have reached theta. Nor is there a curve through a single level.
    """
    parts = []
    rows = runs.rows
    if runs.summary.kind == "median":
        rows = rows.iloc[:0]
    seed = rows.groupby(seed_columns(rows)).ngroup()
    for _, mine in groups(rows.assign(_seed=seed), runs.axes):
        if mine[runs.along].nunique() > 1:
            x, values = _fitted(mine, runs, thetas)
            part = pd.DataFrame({runs.along: np.exp(x), MEASURE: values})
            for name in runs.axes:
                part[name] = mine[name].iloc[0]
            parts.append(part)
    if not parts:
        return pd.DataFrame(columns=[*runs.axes, runs.along, MEASURE])
    return pd.concat(parts, ignore_index=True)


def _fitted(
    rows: Table, runs: Runs, thetas: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns ln of places along the axis, and the fitted curve of a cell there."""
    log_x = np.log(rows[runs.along].to_numpy(float))
    levels, values = by_level(log_x, rows["_seed"], rows[MEASURE].to_numpy(float))
    fine = np.arange(levels[0], levels[-1], OCTAVE / PER_OCTAVE)
    x = np.union1d(levels, fine)
    if runs.is_fraction and all(0 < theta < 1 for theta in thetas):
        return x, expit(Curve(levels, values, edge_of(*thetas)).smooth(x))
    return x, np.interp(x, levels, MeanCurve(levels, values).mean)


def collapsed(runs: Runs, stars: Table, thetas: Sequence[float]) -> Table:
    """Returns the fitted curves against `along` / its critical value in each cell.

    Curves reach a factor REACH beyond the critical value. Cells that do not surely
    cross theta have none.
    """
    star = f"{runs.along} / {runs.along}*"
    sure = stars[(stars["lo"] > 0) & np.isfinite(stars["hi"])]
    found = curves(runs, thetas).merge(sure[[*runs.axes, "critical"]], on=[*runs.axes])
    found[star] = found[runs.along] / found["critical"]
    return found[found[star].between(1 / REACH, REACH)]
