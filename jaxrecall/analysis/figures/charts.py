"""Charts of runs: accuracy, critical values, maps, the data collapse, and the figure
that a sweep ends with.

Reports, sweeps and the functions of `plot` draw these charts.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import printable
from ...sweep.files import atomic_write
from ...sweep.store.table import comment
from ...sweep.summary import MEAN, parsed
from ..fit import Fit
from ..fit.checks import tried
from ..fit.columns import ColumnNames, Table, common, groups, is_numeric, without
from ..fit.roles import ACCURACY, roles_of
from ..fit.table_axes import constants, tell_apart
from .figure import Chart
from .layers import Contour, Layer, Pixels, Points, Polyline, Selection
from .style import Style, lay_out, look, settings
from .table_of_runs import (
    MEASURE,
    Places,
    Runs,
    arranged,
    predict_by_law,
    rows_of,
)

if TYPE_CHECKING:  # a sweep's figure has no theory
    from .theory_lines import Theory

MARK: Style = {"marker": "d", "size": 1.6, "markeredgecolor": "0.3"}
STAR: Style = {"marker": "o", "size": 1.1, "open": True}
FITTED: Style = {"marker": "none", "width": 0.8}
"""The style of fitted laws."""


def accuracy(
    runs: Runs,
    x: str,
    lines: ColumnNames,
    panels: ColumnNames = (),
    marks: Table | None = None,
    theory: Theory | None = None,
) -> Chart:
    """Returns a chart of the mean measure along x with its band, and with theory.

    If `marks` contains thresholds, marks show where accuracy crosses theta. Raises
    UsageError if runs with one place differ in more than a seed.
    """
    by = [*lines, *panels]
    runs.check([x, *by])
    layers: list[Layer] = [Polyline(runs.means([x, *by]), MEASURE)]
    chart = Chart(
        layers,
        x,
        runs.roles,
        lines=lines,
        panels=panels,
        labels={MEASURE: runs.label},
    )
    if theory:
        layers += theory.of(chart).lines(x, by)
    if marks is not None:
        layers += crossings(marks, x)
    return chart


def crossings(marks: Table, x: str) -> list[Layer]:
    """Returns a list with the marks where accuracy along x crosses theta.

    The marks have bars for their intervals, which end at the mark where an interval is
    open. The list is empty if nothing crosses.
    """
    there = marks[marks["critical"].notna()]
    if there.empty:
        return []
    there = there.assign(**{x: there["critical"].astype(float)})
    ends = there[["lo", "hi"]].astype(float)
    there[["lo", "hi"]] = ends.where((ends > 0) & (ends < float("inf")))
    return [
        Points(there, "theta", f"{printable(x)}* and 95 % interval", MARK, across=True)
    ]


def critical(
    runs: Runs,
    estimates: Fit,
    theta: float,
    x: str,
    lines: ColumnNames,
    panels: ColumnNames,
    theory: Theory | None = None,
) -> Chart:
    """Returns a chart of thresholds along x, with the fitted law and theory.

    The law is drawn from the first to the last cell that crosses theta. It is left out
    if the fit rejects it.
    """
    stars = runs.thresholds(estimates, theta)
    layers: list[Layer] = [Points(stars, "critical")]
    powers = estimates.exponents[estimates.exponents["theta"] == theta]
    for law in predict_by_law(stars, powers, runs.axes):
        if is_numeric(law[x]):
            law = law[[*runs.axes, "law"]]
            layers.append(Polyline(law, "law", "law, fitted", FITTED))
    if theory:
        layers += theory.lines(x, [*lines, *panels], runs.along, theta)
    named = f"{printable(runs.along)}* at {printable(runs.measure)} {theta:g}"
    if runs.along in runs.roles.units:
        named += f" ({runs.roles.units[runs.along]})"
    return Chart(
        layers,
        x,
        runs.roles,
        lines=lines,
        panels=panels,
        scale="log",
        labels={"critical": named},
    )


def phase(
    runs: Runs,
    estimates: Fit,
    theta: float,
    x: str,
    y: str,
    theory: Theory | None = None,
) -> Chart:
    """Returns a chart of the mean measure over two axes.

    There are panels for all other axes whose values do not follow from the two. If one
    of the two is the axis of the thresholds, the thresholds are drawn on top. Otherwise
    a line shows where the mean accuracy is theta.
    """
    across = without([x, y], [runs.along])
    others = runs.axes if len(across) == 1 else runs.every
    panels = tell_apart(runs.rows, across, others)
    means = runs.means([x, y, *panels])
    named = runs.label
    if not runs.summary.is_share:
        named = f"{runs.summary} {named}"
    layers: list[Layer] = [Pixels(means, MEASURE, named)]
    if len(across) == 1:
        named = f"{printable(runs.along)}* at {theta:g}, fitted"
        stars = runs.thresholds(estimates, theta)
        stars = stars.assign(**{runs.along: stars["critical"]})
        if y != runs.along:  # bars and open marks need the axis itself along y
            stars = stars[stars["critical"].notna()].drop(columns=["lo", "hi"])
        layers.append(Points(stars, y, named, STAR, joined=True))
    else:
        layers.append(Contour(means, MEASURE, level=theta))
    chart = Chart(layers, x, runs.roles, y, panels=panels)
    if theory:
        layers += theory.of(chart).contour(x, y, panels, theta)
    return chart


def collapse(runs: Runs, estimates: Fit, theta: float, lines: ColumnNames) -> Chart:
    """Returns a chart of the curve of every cell against N / N*.

    Each cell has its own N*. If accuracy crosses along another axis, this axis replaces
    N.
    """
    stars = runs.thresholds(estimates, theta).dropna(subset=["critical"])
    star = f"{runs.along} / {runs.along}*"
    axes = [*runs.axes]
    levels = runs.means([*axes, runs.along]).drop(columns=["low", "high"])
    levels = levels.merge(stars[[*axes, "critical"]], on=axes)
    levels[star] = levels[runs.along] / levels["critical"]
    levels["_cell"] = groups(levels, axes).ngroup()
    layer = Polyline(levels, MEASURE, style={"size": 0.7, "width": 0.7}, each="_cell")
    return Chart([layer], star, runs.roles, lines=lines, labels={MEASURE: runs.label})


def placed(frame: Table, axes: ColumnNames, searched: str = "") -> Places:
    """Returns the axes that are along x, make lines, or make panels.

    If nothing varies, x is a field, so that the only point has a place.
    """
    fields = [searched, *sorted(axes, key="N".__ne__), "N", *roles_of(frame).fields]
    x, *_ = common(fields, frame)
    return arranged([*dict.fromkeys([x, *axes])], x)


def draw_sweep(
    frame: Table,
    axes: ColumnNames,
    title: str,
    path: Path,
    thresholds: Sequence[Selection] | None = None,
    searched: str = "",
    of: str = ACCURACY,
    summary: str = "mean",
) -> str | None:
    """Draws the rows of a sweep along its axes as a PNG file at `path`.

    Returns a remark on runs and panels that are not drawn, or None.

    Args:
        frame: the rows of a sweep.
        axes: the fields that the grid varies, in its order.
        title: the heading, usually the name of the grid.
        path: the PNG file.
        thresholds: the results, if the sweep is a threshold search. Each is a dict with
            the values of the axes, and with theta, axis, critical, lo and hi.
        searched: the field that the search varies.
        of: the column that crosses theta, if that is not the accuracy.
        summary: the summary over seeds that crosses theta in the search.
    """
    roles = roles_of(frame).having(of)
    y, chosen = roles.measure, parsed(summary) or MEAN
    drawn = tried(frame, roles, y)
    x, lines, panels = placed(frame, axes, searched)
    rows = rows_of(drawn, roles, chosen)
    runs = Runs(drawn, rows, roles, x, tuple(without(axes, [x])), chosen)
    # the axis of a search may be a helper, from which the axis x is derived
    marks = pd.DataFrame(thresholds).query("axis == @x") if thresholds else None
    chart = accuracy(runs, x, lines, panels, marks)
    shared = constants(frame, roles)
    shared = {name: shared[name] for name in without(shared, [*axes, x])}
    heading = f"{title}: {settings(shared)}" if shared else title
    if chosen == MEAN:
        most = "up to " if thresholds else ""
        seeds = f"{most}{drawn['seed'].nunique()}"
        heading += f"\nmean over {seeds} seeds, band = one standard deviation"
    png = io.BytesIO()
    with look(place="report"):
        record = comment({"rows": len(frame)})
        figure = chart.figure(heading)
        lay_out(figure)
        figure.savefig(png, format="png", metadata={"Comment": record})
    atomic_write(path, png.getbuffer())  # several shards may draw at the same time
    n_missing = frame[y].isna().sum()
    missing = f"{n_missing} runs have no {y}" if n_missing else ""
    return "; ".join(filter(None, [missing, chart.remark])) or None
