"""Charts of runs: accuracy, critical values, maps and the data collapse.

Reports, sweeps and the functions of `plot` draw these charts.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ...model.point import LAW_FIELDS
from ...sweep.files import atomic_write
from ...sweep.store.table import comment
from ...sweep.summary import MEAN, parsed
from ..fit import Fit
from ..fit.columns import Table, is_numeric
from ..fit.roles import ACCURACY, Roles, roles_of
from ..fit.table_axes import fixed
from . import searches
from .averages import check_one_run_per_seed
from .axis import Axis, columns_in, with_columns
from .grammar import MEASURES, Chart, Measure
from .layers import Contour, Layer, Pixels, Points, Polyline, Selection
from .several import telling
from .style import Style, label, look, measure_label, settings
from .table_of_runs import MEASURE, Runs, averaged, in_one_panel, rows_of, scale_of
from .theory_lines import Theory

MARK: Style = {"marker": "d", "size": 1.6, "linestyle": "none", "edged": True}
STAR: Style = {"marker": "o", "size": 1.1, "open": True}
DOTTED: Style = {"marker": "none", "width": 0.5, "linestyle": ":"}

VALUE = "value"
"""The column that contains the values of several columns."""

LONGEST_LAW = 30
"""The largest number of characters that a law may have in a heading.

A longer law is shown by its name alone.
"""


def means(
    rows: Table,
    columns: Sequence[str],
    x: str,
    places: Mapping[str, Sequence[str]],
    roles: Roles,
    named: str = "",
    band: str = "sd",
) -> Chart:
    """Returns a chart of the mean of each column along x, with bands.

    Several columns have panels of their own, as in `with_measures`.

    Args:
        rows: runs, which are averaged over seeds.
        columns: the columns that are averaged.
        x: the axis along x.
        places: the columns for the `lines`, `panels`, `rows` and `columns` of Chart.
        roles: the roles of the table's columns.
        named: the label along y, if it is not that of the only column.
        band: the band around the mean, one of BANDS.
    """
    rows = with_columns(rows, x)
    used = list(
        dict.fromkeys([x, *(name for names in places.values() for name in names)])
    )
    if len(columns) == 1:
        y = columns[0]
        table = averaged(rows, used, y, band)
        axis = Axis.make(x, table, roles)
        named = named or label(y, roles)
        chart = Chart([Polyline(table, y)], axis, named, scale=scale_of(table[y]))
        return replace(chart, **places)
    table, measures = stacked(
        {name: averaged(rows, used, name, band) for name in columns}, roles
    )
    layer = Polyline(table, VALUE)
    chart = Chart([layer], Axis.make(x, table, roles), measures=measures)
    return replace(chart, **with_measures(places))


def stacked(
    parts: Mapping[str, Table], roles: Roles
) -> tuple[Table, dict[str, Measure]]:
    """Returns tables of several columns as one table, and what each column measures.

    Each table contains the column of its name, which becomes the column VALUE.
    """
    named, measures = [], {}
    for name, part in parts.items():
        measures[name] = Measure(label(name, roles), scale_of(part[name]))
        named.append(part.rename(columns={name: VALUE}).assign(**{MEASURES: name}))
    table = pd.concat(named, ignore_index=True)
    table[MEASURES] = pd.Categorical(table[MEASURES], [*parts])
    return table, measures


def with_measures(places: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Returns places in which each measure has panels of its own.

    Without other panels, those of the measures follow each other. Otherwise they are
    rows, or columns if there are rows already, and panels that follow each other become
    columns.
    """
    found = {"lines": (), "rows": (), "columns": (), "panels": ()} | {**places}
    if not (found["rows"] or found["columns"] or found["panels"]):
        return found | {"panels": [MEASURES]}
    found["columns"] = [*found["columns"], *found.pop("panels")]
    free = "columns" if found["rows"] else "rows"
    return found | {free: [*found[free], MEASURES]}


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
    if marks is not None and x == runs.along and searches.is_search(runs):
        chart = searches.chart(runs, lines, panels, marks["theta"].unique())
    else:
        places = {"lines": lines, "panels": panels}
        measure, named = [MEASURE], runs.label
        chart = means(runs.rows, measure, x, places, runs.roles, named, runs.band)
    if theory:
        shown = theory.within(searches.drawn(runs, chart))
        chart = with_theory(chart, shown.accuracy(chart.x, [*lines, *panels]))
    if marks is not None:
        chart = chart.plus(crossings(marks, x))
    return chart


def crossings(marks: Table, x: str) -> list[Layer]:
    """Returns a list with the marks where accuracy along x crosses theta.

    The marks have bars for their intervals. The list is empty if nothing crosses.
    """
    there = marks[marks["critical"].notna()].drop(columns="state", errors="ignore")
    if there.empty:
        return []
    there = there.assign(**{x: there["critical"].astype(float)})
    named = f"{x}* and 95 % interval"
    layers: list[Layer] = [Points(closed(there), "theta", named, MARK, across=True)]
    return [*layers, *not_sure(there, "theta", MARK, across=True)]


def closed(stars: Table) -> Table:
    """Returns thresholds without the open ends of intervals, whose bars would cross the
    whole panel.
    """
    low, high = stars["lo"].astype(float), stars["hi"].astype(float)
    return stars.assign(lo=low.where(low > 0), hi=high.where(high < np.inf))


def not_sure(
    stars: Table, y: str, style: Style | None = None, across: bool = False
) -> list[Layer]:
    """Returns a list with open marks on the thresholds whose interval has an open end.

    The list is empty if there are none.
    """
    low, high = stars["lo"].astype(float), stars["hi"].astype(float)
    unsure = stars[stars["critical"].notna() & ((low <= 0) | (high == np.inf))]
    if unsure.empty:
        return []
    shown = unsure.drop(columns=["lo", "hi", "state"], errors="ignore")
    style = (style or {"marker": "o", "size": 0.9}) | {"open": True}
    style |= {"linestyle": "none"}
    return [Points(shown, y, "crossing not sure", style, across=across)]


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
    # beyond the cells that cross, the law would be extrapolated
    law = stars[stars["law"].notna() & stars["critical"].notna()]
    law = law.drop(columns="n_seeds")
    axis = Axis.make(x, stars, runs.roles)
    layers: list[Layer] = [Points(closed(stars), "critical")]
    layers += not_sure(stars, "critical")
    if len(law) and axis.kind != "names":
        layers.append(Polyline(law, "law", "law, fitted", searches.FITTED, each="part"))
    named = f"{runs.along}* at {runs.measure} {theta:g}"
    if runs.along in runs.roles.units:
        named += f" ({runs.roles.units[runs.along]})"
    chart = Chart(layers, axis, named, lines=lines, panels=panels, scale="log")
    if theory:
        predicted = theory.critical(theta, axis, [*lines, *panels])
        chart = with_theory(chart, predicted)
    return chart


def with_theory(chart: Chart, layers: Sequence[Layer]) -> Chart:
    """Returns the chart with layers of theory.

    If theory is the same for all lines of the chart, it is one line in the colour of
    text. Otherwise each line of theory has the colour of its line.
    """
    place = [chart.x.name, *chart.panels]
    each = [layer.table.groupby(place, dropna=False)[layer.y] for layer in layers]
    are_same = all(values.nunique().max() <= 1 for values in each)
    if are_same and each and each[0].size().max() > 1:
        shared = []
        for layer in layers:
            table = layer.table.drop_duplicates(place).drop(columns=[*chart.lines])
            shared.append(replace(layer, table=table))
        layers = shared
    return chart.plus(layers)


def over(
    pixels: Pixels, x: str, y: str, places: Mapping[str, Sequence[str]], roles: Roles
) -> Chart:
    """Returns a chart of colours over two axes."""
    along_x = Axis.make(x, pixels.table, roles)
    along_y = Axis.make(y, pixels.table, roles)
    return replace(Chart([pixels], along_x, y=along_y), **places)


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
    panels = []
    for axis in runs.axes:
        if axis not in used and telling(levels, across, [axis]):
            panels.append(axis)
    if runs.along in runs.every and runs.along not in used:
        panels += telling(levels, [x, y, *panels], [runs.along])

    def order(axis: str) -> tuple[bool, int]:
        return axis == runs.along, levels[axis].nunique()

    for axis in sorted(runs.every, key=order):
        if levels.duplicated([x, y, *panels]).any() and axis not in panels:
            panels.append(axis)  # each pixel must be one cell
    named = runs.label
    if not runs.summary.is_share:
        named = f"{runs.summary} {named}"
    ends = (0.0, 1.0) if runs.is_fraction else None
    pixels = Pixels(levels, MEASURE, named, ends=ends)
    chart = over(pixels, x, y, {"panels": panels}, runs.roles)
    if (runs.along in columns_in(x)) == (runs.along in columns_in(y)):
        chart = chart.plus([Contour(levels, MEASURE, level=theta)])
    else:
        named = f"{runs.along}* at {theta:g}, fitted"
        stars = runs.thresholds(found, theta)
        stars = stars.assign(**{runs.along: stars["critical"]})
        if y != runs.along:  # bars and open marks need the axis itself along y
            stars = stars[stars["critical"].notna()]
            stars = stars.drop(columns=["lo", "hi", "state"])
        stars = with_columns(stars, x, y)
        chart = chart.plus([Points(stars, y, named, STAR, joined=True)])
    if theory and chart.y:
        chart = chart.plus(theory.contour(chart.x, chart.y, panels, theta))
    return chart


def collapse(runs: Runs, found: Fit, theta: float, lines: Sequence[str]) -> Chart:
    """Returns a chart of the curve of every cell against N / N*.

    Each cell has its own N*. If accuracy crosses along another axis, this axis replaces
    N. The curves of a search are those that were fitted.
    """
    stars = runs.thresholds(found, theta)
    star = f"{runs.along} / {runs.along}*"
    style: Style = {"size": 0.7, "width": 0.7}
    if searches.is_search(runs):
        levels = searches.collapsed(runs, stars, [theta])
        style = {"marker": "none", "width": 0.6}
    else:
        levels = runs.levels.drop(columns=["low", "high", "n_seeds"])
        levels = levels.merge(stars[[*runs.axes, "critical"]], on=[*runs.axes])
        levels[star] = levels[runs.along] / levels["critical"]
    levels = levels.dropna(subset=[star])
    levels["_cell"] = levels.groupby([*runs.axes], dropna=False).ngroup()
    curves = Polyline(levels, MEASURE, style=style, each="_cell")
    axis = Axis.make(star, levels, runs.roles, ticks=False)
    across = pd.DataFrame({star: [axis.values[0], axis.values[-1]], "at": theta})
    ends = [0.0, 1.0]
    if not runs.is_fraction:
        ends = [levels[MEASURE].min(), levels[MEASURE].max()]
    upward = pd.DataFrame({star: 1.0, "at": ends})
    cross = [Polyline(line, "at", style=DOTTED) for line in (across, upward)]
    return Chart([curves, *cross], axis, runs.label, lines=lines)


def placed(
    frame: Table, axes: Sequence[str], searched: str = ""
) -> tuple[str, str | None, list[str]]:
    """Returns the axis along x, the axis that makes lines, and the axes of panels.

    If nothing varies, x is a field of numbers, so that the only point has a place.
    """
    x = searched
    if not x and axes:
        x = "N" if "N" in axes else axes[0]
    elif not x:
        fields = ["N", *roles_of(frame).fields]
        x = next(name for name in fields if name in frame and is_numeric(frame[name]))
    rest = [axis for axis in axes if axis != x]
    if not rest:
        return x, None, []
    line = "d" if "d" in rest else rest[0]
    rest.remove(line)
    return x, line, rest


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
    rows = rows_of(drawn, roles)
    names = [x, *lines, *panels]
    check_one_run_per_seed(drawn, rows, roles, placed=names, drawn=[y], places="")
    if thresholds:
        marks = pd.DataFrame(thresholds)
        runs = searches.runs_along(drawn, roles, x, axes, parsed(summary) or MEAN)
        chart = searches.chart(runs, lines, panels, [*marks["theta"].unique()])
        chart = chart.plus(crossings(marks, x))
        told = ""
    else:
        named = measure_label(roles, scale_of(drawn[y]) == "fraction")
        places = {"lines": lines, "panels": panels}
        chart = means(drawn, [y], x, places, roles, named)
        n_seeds = drawn["seed"].nunique()
        told = f"\nmean over {n_seeds} seeds, band = one standard deviation"
    shared = constants(frame, roles)
    for name in (*axes, x):
        shared.pop(name, None)
    heading = f"{title}: {settings(shared)}" if shared else title
    heading += told
    png = io.BytesIO()
    with look(place="report"):
        record = comment({"rows": len(frame)})
        figure = chart.figure(heading, is_complete=True)
        figure.savefig(png, format="png", metadata={"Comment": record})
    atomic_write(path, png.getbuffer())  # several shards may draw at the same time
    n_missing = len(frame) - len(drawn)
    remarks = [chart.remark] if chart.remark else []
    if n_missing:
        remarks.insert(0, f"{n_missing} non-finite runs are not drawn")
    return "; ".join(remarks) or None


def constants(frame: Table, roles: Roles) -> Selection:
    """Returns a dict of the settings that headings list.

    All rows share these settings. The sizes are always included. The pool, the path of
    the trigger and the laws are included if they are not the defaults.
    """
    found: Selection = {}
    for name in roles.numbers:
        if frame[name].nunique() == 1:
            found[name] = frame[name].iloc[0]
    for name, value in fixed(frame, roles).items():
        if name.partition(".")[0] in ("pool", "trigger_in_value", *LAW_FIELDS):
            if len(str(value)) > LONGEST_LAW:
                value, _, _ = str(value).partition("(")
            found[name] = value
    return found
