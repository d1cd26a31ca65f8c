"""Charts of runs: accuracy, critical values, maps, the data collapse, and the figure
that a sweep ends with.

Reports, sweeps and the functions of `plot` draw these charts.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ...model.point import LAW_FIELDS
from ...sweep.files import atomic_write
from ...sweep.store.table import comment
from ...sweep.summary import MEAN, parsed
from ..fit import Fit
from ..fit.columns import Table, groups, is_numeric, without
from ..fit.repeated import tell_apart
from ..fit.roles import ACCURACY, Roles, roles_of
from ..fit.table_axes import fixed
from .figure import Chart
from .layers import Contour, Layer, Pixels, Points, Polyline, Selection
from .style import Style, look, settings
from .table_of_runs import (
    MEASURE,
    Runs,
    averaged,
    check_one_run_per_seed,
    columns_in,
    in_one_panel,
    rows_of,
    with_columns,
)
from .theory_lines import Theory

MARK: Style = {"marker": "d", "size": 1.6, "linestyle": "none", "edged": True}
STAR: Style = {"marker": "o", "size": 1.1, "open": True}
BARE: Style = {"marker": "o", "size": 0.9, "linestyle": "none"}
DOTTED: Style = {"marker": "none", "width": 0.5, "linestyle": ":"}
FITTED: Style = {"marker": "none", "width": 0.8}
"""The style of fitted curves and laws."""


def accuracy(
    runs: Runs,
    x: str,
    lines: Sequence[str],
    panels: Sequence[str],
    marks: Table | None = None,
    theory: Theory | None = None,
) -> Chart:
    """Returns a chart of the mean measure along x with its band, and with theory.

    If `marks` contains thresholds, marks show where accuracy crosses theta.
    """
    rows = with_columns(runs.rows, x)
    means = averaged(rows, [x, *lines, *panels], MEASURE, runs.band)
    labels = {MEASURE: runs.label}
    layers = [Polyline(means, MEASURE)]
    chart = Chart(layers, x, runs.roles, lines=lines, panels=panels, labels=labels)
    if theory:
        chart = with_theory(chart, theory.accuracy(x, [*lines, *panels]))
    if marks is not None:
        chart = chart.plus(crossings(marks, x))
    return chart


def crossings(marks: Table, x: str) -> list[Layer]:
    """Returns a list with the marks where accuracy along x crosses theta.

    The marks have bars for their intervals. The list is empty if nothing crosses.
    """
    there = marks[marks["critical"].notna()].drop(columns="tried", errors="ignore")
    if there.empty:
        return []
    there = there.assign(**{x: there["critical"].astype(float)})
    return estimates(there, "theta", f"{x}* and 95 % interval", MARK, across=True)


def estimates(
    stars: Table,
    y: str,
    legend: str = "",
    style: Style | None = None,
    across: bool = False,
) -> list[Layer]:
    """Returns the marks of thresholds, and open marks on those that may not cross.

    The bar of an interval with an open end would cross the whole panel, and ends at the
    estimate.
    """
    low, high = stars["lo"].astype(float), stars["hi"].astype(float)
    closed = stars.assign(lo=low.where(low > 0), hi=high.where(high < np.inf))
    layers: list[Layer] = [Points(closed, y, legend, style or {}, across=across)]
    unsure = stars[stars["critical"].notna() & ((low <= 0) | (high == np.inf))]
    if len(unsure):
        unsure = unsure.drop(columns=["lo", "hi", "tried"], errors="ignore")
        hollow = (style or BARE) | {"open": True}
        layers.append(Points(unsure, y, "crossing not sure", hollow, across=across))
    return layers


def critical(
    runs: Runs,
    found: Fit,
    theta: float,
    x: str,
    lines: Sequence[str],
    panels: Sequence[str],
    theory: Theory | None = None,
) -> Chart:
    """Returns a chart of thresholds along x, with the fitted law and theory.

    The law is drawn from the first to the last cell that crosses theta. It is left out
    if the fit rejects it.
    """
    stars = with_columns(runs.thresholds(found, theta), x)
    layers = estimates(stars, "critical")
    # beyond the cells that cross, the law would be extrapolated
    law = stars[stars["law"].notna() & stars["critical"].notna()]
    if len(law) and is_numeric(law[x]):
        law = law.drop(columns="n_seeds")
        layers.append(Polyline(law, "law", "law, fitted", FITTED, each="part"))
    named = f"{runs.along}* at {runs.measure} {theta:g}"
    if runs.along in runs.roles.units:
        named += f" ({runs.roles.units[runs.along]})"
    chart = Chart(layers, x, runs.roles, lines=lines, panels=panels, scale="log")
    chart = replace(chart, labels={"critical": named})
    if theory:
        chart = with_theory(chart, theory.critical(theta, x, [*lines, *panels]))
    return chart


def with_theory(chart: Chart, layers: Sequence[Layer]) -> Chart:
    """Returns the chart with layers of theory.

    If theory is the same for all lines of the chart, it is one line in the colour of
    text. Otherwise each line of theory has the colour of its line.
    """
    place = [chart.x, *chart.panels]
    shared = []
    for layer in layers:
        values = layer.table.groupby(place, dropna=False)[layer.y]
        if values.nunique().max() > 1 or values.size().max() < 2:
            return chart.plus(layers)
        table = layer.table.drop_duplicates(place).drop(columns=[*chart.lines])
        shared.append(replace(layer, table=table))
    return chart.plus(shared)


def phase(
    runs: Runs,
    found: Fit,
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
    levels = with_columns(runs.levels, x, y)
    used = columns_in(x) | columns_in(y)
    across = [name for name in (x, y) if runs.along not in columns_in(name)]
    panels = tell_apart(levels, across, without(runs.axes, used))

    def order(axis: str) -> tuple[bool, bool, int]:
        return axis in used, axis == runs.along, levels[axis].nunique()

    # each pixel must be one cell
    panels += tell_apart(levels, [x, y, *panels], sorted(runs.every, key=order))
    named = runs.label
    if not runs.summary.is_share:
        named = f"{runs.summary} {named}"
    ends = (0.0, 1.0) if runs.is_fraction else None
    pixels = Pixels(levels, MEASURE, named, ends=ends)
    chart = Chart([pixels], x, runs.roles, y, panels=panels)
    if (runs.along in columns_in(x)) == (runs.along in columns_in(y)):
        chart = chart.plus([Contour(levels, MEASURE, level=theta)])
    else:
        named = f"{runs.along}* at {theta:g}, fitted"
        stars = runs.thresholds(found, theta)
        stars = stars.assign(**{runs.along: stars["critical"]})
        if y != runs.along:  # bars and open marks need the axis itself along y
            stars = stars[stars["critical"].notna()]
            stars = stars.drop(columns=["lo", "hi", "tried"])
        stars = with_columns(stars, x, y)
        chart = chart.plus([Points(stars, y, named, STAR, joined=True)])
    if theory:
        chart = chart.plus(theory.contour(x, y, panels, theta))
    return chart


def collapse(runs: Runs, found: Fit, theta: float, lines: Sequence[str]) -> Chart:
    """Returns a chart of the curve of every cell against N / N*.

    Each cell has its own N*. If accuracy crosses along another axis, this axis replaces
    N.
    """
    stars = runs.thresholds(found, theta)
    star = f"{runs.along} / {runs.along}*"
    levels = runs.levels.drop(columns=["low", "high"])
    levels = levels.merge(stars[[*runs.axes, "critical"]], on=[*runs.axes])
    levels[star] = levels[runs.along] / levels["critical"]
    levels = levels.dropna(subset=[star])
    levels["_cell"] = groups(levels, runs.axes).ngroup()
    across = pd.DataFrame({star: [levels[star].min(), levels[star].max()], "at": theta})
    ends = [0.0, 1.0]
    if not runs.is_fraction:
        ends = [levels[MEASURE].min(), levels[MEASURE].max()]
    upward = pd.DataFrame({star: 1.0, "at": ends})
    small: Style = {"size": 0.7, "width": 0.7}
    layers = [Polyline(levels, MEASURE, style=small, each="_cell")]
    layers += [Polyline(line, "at", style=DOTTED) for line in (across, upward)]
    chart = Chart(layers, star, runs.roles, lines=lines)
    return replace(chart, labels={MEASURE: runs.label})


def placed(
    frame: Table, axes: Sequence[str], searched: str = ""
) -> tuple[str, str | None, list[str]]:
    """Returns the axis along x, the axis that makes lines, and the axes of panels.

    If nothing varies, x is a field of numbers, so that the only point has a place.
    """
    x = searched or ("N" if "N" in axes else next(iter(axes), ""))
    if not x:
        fields = ["N", *roles_of(frame).fields]
        x = next(name for name in fields if name in frame and is_numeric(frame[name]))
    rest = without(axes, [x])
    line = "d" if "d" in rest else next(iter(rest), None)
    return x, line, without(rest, [line])


def draw_sweep(
    frame: Table,
    axes: Sequence[str],
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
    y = roles.measure
    for name in {"pool", "batch"} & {*axes}:
        # 0 means no pool, as m = 0 means no MLP
        frame = frame.assign(**{name: frame[name].fillna(0).astype(int)})
    drawn = frame.dropna(subset=[y])
    x, line, panels = placed(frame, axes, searched)
    lines, panels = in_one_panel(drawn, [line] if line else [], panels)
    names = [x, *lines, *panels]
    rows = rows_of(drawn, roles)
    check_one_run_per_seed(drawn, rows, roles, names, [y], "")
    shared = constants(frame, roles)
    shared = {name: shared[name] for name in without(shared, [*axes, x])}
    heading = f"{title}: {settings(shared)}" if shared else title
    chosen = parsed(summary) or MEAN
    if chosen.is_share:
        rows = rows.assign(**{MEASURE: chosen.values(rows[MEASURE], 0.0)})
    runs = Runs(drawn, rows, roles, x, tuple(without(axes, [x])), chosen)
    marks = pd.DataFrame(thresholds) if thresholds else None
    chart = accuracy(runs, x, lines, panels, marks)
    if chosen == MEAN:
        most = "up to " if thresholds else ""
        seeds = f"{most}{drawn['seed'].nunique()}"
        heading += f"\nmean over {seeds} seeds, band = one standard deviation"
    png = io.BytesIO()
    with look(place="report"):
        record = comment({"rows": len(frame)})
        figure = chart.figure(heading)
        figure.savefig(png, format="png", metadata={"Comment": record})
    atomic_write(path, png.getbuffer())  # several shards may draw at the same time
    remarks = [chart.remark] if chart.remark else []
    if n_missing := len(frame) - len(drawn):
        remarks.insert(0, f"{n_missing} non-finite runs are not drawn")
    return "; ".join(remarks) or None


def constants(frame: Table, roles: Roles) -> Selection:
    """Returns a dict of the settings that headings list.

    All rows share these settings. The sizes are always included. The pool, the path of
    the trigger and the laws are included if they are not the defaults.
    """
    shared: Selection = {}
    for name in roles.numbers:
        if frame[name].nunique() == 1:
            shared[name] = frame[name].iloc[0]
    for name, value in fixed(frame, roles).items():
        if name.partition(".")[0] in ("pool", "trigger_in_value", *LAW_FIELDS):
            shared[name] = value
    return shared
