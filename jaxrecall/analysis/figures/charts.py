"""The charts of runs that a report, the end of a sweep and `plot` share: accuracy, critical values, maps and the collapse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from scipy.special import logit

from ..fit import Fit
from . import predict
from .axis import Axis, column, columns_in
from .grammar import THEORY, Chart, Contour, Layer, Line, Pixels, Points, Style, Table
from .runs import Runs, averaged, scale_of
from .style import accuracy_label, label

MARK = {"marker": "d", "markersize": 5.5, "markeredgecolor": "black", "markeredgewidth": 0.7, "linestyle": "none"}
LAW: Style = {"marker": "none", "linewidth": 1.0}
TICK: Style = {"linestyle": "none", "marker": "_", "markersize": 12}
"""Theory where nothing lies between the values."""

STAR = {"color": "black", "markerfacecolor": "white", "marker": "o", "markersize": 4}
DOTTED = {"color": "black", "marker": "none", "linewidth": 0.6, "linestyle": ":"}


def with_columns(table: Table, *axes: str) -> Table:
    """The table with a column for each axis that is arithmetic."""
    return table.assign(**{axis: column(axis, table) for axis in axes if axis not in table})


def theory_line(table: Table, x: Axis) -> list[Layer]:
    """Theory along x; none where it covers nothing."""
    shown = table.drop(columns=["n_seeds", "low", "high", "lo", "hi", "state"], errors="ignore")
    return [Line(shown, "theory", theory_name(table), TICK if x.kind == "names" else THEORY)] if table["theory"].notna().any() else []


def theory_name(table: Table) -> str:
    """The legend of theory, which says where it assumes that attention is locked."""
    return "theory, assumes locked attention" if table["assumes"][table["theory"].notna()].any() else "theory"


def means(
    rows: Table,
    columns: Sequence[str],
    x: str,
    lines: Sequence[str],
    panels: Sequence[str],
    named: str = "",
    scale: str | None = None,
    band: str = "sd",
) -> Chart:
    """Means of columns of runs along x, with their band; of several columns each is a line."""
    y, rows = columns[0], with_columns(rows, x)
    if len(columns) > 1:
        rows = rows.melt([*dict.fromkeys([x, *lines, *panels])], [*columns], "_column", "value")
        y, lines = "value", [*lines, "_column"]
    table = averaged(rows, [*lines, *panels, x], y, band)
    return Chart([Line(table, y)], Axis.make(x, table), named or label(y), lines=lines, panels=panels, scale=scale or scale_of(table[y]))


def accuracy(
    runs: Runs, x: str, lines: Sequence[str], panels: Sequence[str], marks: Table | None = None, theory: bool = False, of: str | None = None
) -> Chart:
    """Mean accuracy along x with its band, marks where it crosses theta, and theory along the axis of the runs."""
    chart = means(runs.rows, ["accuracy"], x, lines, panels, accuracy_label(of))
    layers = [*chart.layers]
    if theory and x == runs.along:
        layers += theory_line(runs.predicted(runs.levels, [*runs.axes, x], predict.accuracy), chart.x)
    return replace(chart, layers=[*layers, *(crossings(marks, x) if marks is not None else [])])


def crossings(marks: Table, x: str) -> list[Layer]:
    """Where lines of accuracy along x cross theta, with intervals."""
    there = marks[marks["critical"].notna()].drop(columns="state", errors="ignore")
    there = there.assign(**{x: there["critical"].astype(float)})
    return [Points(there, "theta", f"{x}* and 95 % interval", MARK, across=True)] if len(there) else []


def critical(runs: Runs, found: Fit, theta: float, x: str, lines: Sequence[str], panels: Sequence[str], theory: bool = True) -> Chart:
    """Thresholds along x with the fitted law, where the fit does not reject it, and theory."""
    stars = with_columns(runs.thresholds(found, theta, theory), x)
    axis, law = Axis.make(x, stars), stars[stars["law"].notna()]
    layers: list[Layer] = [Points(stars, "critical")]
    if len(law) and axis.kind != "names":
        layers.append(Line(law.drop(columns="n_seeds"), "law", "law, fitted", LAW, each="part"))
    layers += theory_line(stars, axis) if theory else []
    named = f"{runs.along}* at accuracy {theta:g}" + " (samples)" * (runs.along == "N")
    return Chart(layers, axis, named, lines=lines, panels=panels, scale="log")


def over(pixels: Pixels, x: str, y: str, panels: Sequence[str]) -> Chart:
    """Colours over two axes."""
    return Chart([pixels], Axis.make(x, pixels.table), y=Axis.make(y, pixels.table), panels=panels)


def phase(runs: Runs, found: Fit, theta: float, x: str, y: str, theory: bool = True, of: str | None = None) -> Chart:
    """Mean accuracy over two axes, with panels for all others that vary.

    Where one of the axes has that of the thresholds, these and theory stand over it;
    else there is a line where the mean accuracy is theta.
    """
    panels = [axis for axis in runs.every if axis not in columns_in(x) | columns_in(y)]
    levels = with_columns(runs.levels, x, y)
    for axis in sorted(runs.every, key=lambda axis: (axis == runs.along, levels[axis].nunique())):
        if levels.duplicated([x, y, *panels]).any() and axis not in panels:
            panels.append(axis)  # a pixel is one cell
    pixels = Pixels(levels, "accuracy", f"mean {accuracy_label(of)}", ends=(0.0, 1.0))
    layers: list[Layer] = [pixels]
    if (runs.along in columns_in(x)) == (runs.along in columns_in(y)):
        layers.append(Contour(levels, "accuracy", level=theta))
    else:
        stars = runs.thresholds(found, theta)
        at = with_columns(stars.assign(**{runs.along: stars["critical"]}), x, y)
        at = at if y == runs.along else at[at["critical"].notna()].drop(columns=["lo", "hi", "state"])
        layers.append(Points(at, y, f"{runs.along}* at {theta:g}, fitted", STAR, joined=True))
    return replace(over(pixels, x, y, panels), layers=layers + (theory_contour(runs, x, y, panels, theta) if theory else []))


def theory_contour(runs: Runs, x: str, y: str, panels: Sequence[str], theta: float) -> list[Layer]:
    """Where theory's accuracy is theta over two axes; none where it covers nothing."""
    table = with_columns(runs.predicted(runs.levels, [*runs.axes, runs.along], predict.accuracy), x, y)
    off = logit(table["theory"].clip(1e-3, 1 - 1e-3)) - logit(theta)  # rises more evenly between the places than accuracy
    shown = averaged(table.assign(off=off), [x, y, *panels], "off")
    return [Contour(shown, "off", theory_name(table), THEORY | {"color": "black"}, level=0.0)] if len(shown) else []


def collapse(runs: Runs, found: Fit, theta: float, lines: Sequence[str], of: str | None = None) -> Chart:
    """The curve of every cell against its axis in units of the cell's own crossing."""
    stars = runs.thresholds(found, theta)[[*runs.axes, "critical"]]
    levels = runs.levels.drop(columns=["low", "high", "n_seeds"]).merge(stars, on=[*runs.axes])
    star = f"{runs.along} / {runs.along}*"
    levels = levels.assign(**{star: levels[runs.along] / levels["critical"]}).dropna(subset=[star])
    levels["_cell"] = levels.groupby([*runs.axes], dropna=False).ngroup()
    curves = Line(levels, "accuracy", style={"markersize": 2.5, "linewidth": 0.8}, each="_cell")
    axis = Axis.make(star, levels, ticks=False)
    ends = [{star: low, "at": theta} for low in axis.values[:: max(1, len(axis.values) - 1)]]
    cross = [Line(pd.DataFrame(rows), "at", style=DOTTED) for rows in (ends, [{star: 1.0, "at": 0.0}, {star: 1.0, "at": 1.0}])]
    return Chart([curves, *cross], axis, accuracy_label(of), lines=lines)
