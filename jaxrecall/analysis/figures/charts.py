"""The charts of runs that a report, the end of a sweep and `plot` share: accuracy,
critical values, maps and the collapse.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from scipy.special import logit

from ...model.point import LAW_FIELDS
from ...sweep.files import atomic_write
from ..fit import Fit
from ..fit.axes import fixed
from .axis import Axis, columns_in, with_columns
from .grammar import (
    THEORY,
    Chart,
    Contour,
    Layer,
    Line,
    Pixels,
    Points,
    Style,
    Table,
    Values,
)
from .runs import Runs, averaged, in_one_panel, scale_of
from .style import accuracy_label, label, look, settings

MARK = {
    "marker": "d",
    "markersize": 5.5,
    "markeredgecolor": "black",
    "markeredgewidth": 0.7,
    "linestyle": "none",
}
LAW: Style = {"marker": "none", "linewidth": 1.0}
TICK: Style = {"linestyle": "none", "marker": "_", "markersize": 12}
"""Theory where nothing lies between the values."""

STAR = {"color": "black", "markerfacecolor": "white", "marker": "o", "markersize": 4}
DOTTED = {"color": "black", "marker": "none", "linewidth": 0.6, "linestyle": ":"}

LONGEST_LAW = 30
"""Letters of a law in a heading; of a longer one the name alone."""


def theory_line(table: Table, x: Axis) -> list[Layer]:
    """Theory along x; none where it covers nothing."""
    shown = table.drop(
        columns=["n_seeds", "low", "high", "lo", "hi", "state"], errors="ignore"
    )
    return (
        [
            Line(
                shown,
                "theory",
                theory_name(table),
                TICK if x.kind == "names" else THEORY,
            )
        ]
        if table["theory"].notna().any()
        else []
    )


def theory_name(table: Table) -> str:
    """The legend of theory, which says where it assumes that attention is locked."""
    return (
        "theory, assumes locked attention"
        if table["assumes"][table["theory"].notna()].any()
        else "theory"
    )


def means(
    rows: Table,
    columns: Sequence[str],
    x: str,
    lines: Sequence[str],
    panels: Sequence[str],
    named: str = "",
    band: str = "sd",
) -> Chart:
    """Means of columns of runs along x, with their band; of several columns each is a
    line.
    """
    y, rows = columns[0], with_columns(rows, x)
    if len(columns) > 1:
        rows = rows.melt(
            [*dict.fromkeys([x, *lines, *panels])], [*columns], "_column", "value"
        )
        y, lines = "value", [*lines, "_column"]
    table = averaged(rows, [*lines, *panels, x], y, band)
    return Chart(
        [Line(table, y)],
        Axis.make(x, table),
        named or label(y),
        lines=lines,
        panels=panels,
        scale=scale_of(table[y]),
    )


def accuracy(
    runs: Runs,
    x: str,
    lines: Sequence[str],
    panels: Sequence[str],
    marks: Table | None = None,
    theory: bool = False,
    of: str | None = None,
) -> Chart:
    """Mean accuracy along x with its band, marks where it crosses theta, and theory
    along the axis of the runs.
    """
    chart = means(runs.rows, ["accuracy"], x, lines, panels, accuracy_label(of))
    layers = [*chart.layers]
    if theory and x == runs.along:
        layers += theory_line(runs.predicted, chart.x)
    return replace(
        chart, layers=[*layers, *(crossings(marks, x) if marks is not None else [])]
    )


def crossings(marks: Table, x: str) -> list[Layer]:
    """Where lines of accuracy along x cross theta, with intervals."""
    there = marks[marks["critical"].notna()].drop(columns="state", errors="ignore")
    there = there.assign(**{x: there["critical"].astype(float)})
    return (
        [Points(there, "theta", f"{x}* and 95 % interval", MARK, across=True)]
        if len(there)
        else []
    )


def critical(
    runs: Runs,
    found: Fit,
    theta: float,
    x: str,
    lines: Sequence[str],
    panels: Sequence[str],
    theory: bool = True,
) -> Chart:
    """Thresholds along x with the fitted law, where the fit does not reject it, and
    theory.
    """
    stars = with_columns(runs.thresholds(found, theta, theory), x)
    axis, law = Axis.make(x, stars), stars[stars["law"].notna()]
    layers: list[Layer] = [Points(stars, "critical")]
    if len(law) and axis.kind != "names":
        layers.append(
            Line(law.drop(columns="n_seeds"), "law", "law, fitted", LAW, each="part")
        )
    layers += theory_line(stars, axis) if theory else []
    named = f"{runs.along}* at accuracy {theta:g}" + " (samples)" * (runs.along == "N")
    return Chart(layers, axis, named, lines=lines, panels=panels, scale="log")


def over(pixels: Pixels, x: str, y: str, panels: Sequence[str]) -> Chart:
    """Colours over two axes."""
    return Chart(
        [pixels],
        Axis.make(x, pixels.table),
        y=Axis.make(y, pixels.table),
        panels=panels,
    )


def phase(
    runs: Runs,
    found: Fit,
    theta: float,
    x: str,
    y: str,
    theory: bool = True,
    of: str | None = None,
) -> Chart:
    """Mean accuracy over two axes, with panels for all others that vary.

    Where one of the axes has that of the thresholds, these and theory stand over it;
    else there is a line where the mean accuracy is theta.
    """
    panels = [axis for axis in runs.every if axis not in columns_in(x) | columns_in(y)]
    levels = with_columns(runs.levels, x, y)
    for axis in sorted(
        runs.every, key=lambda axis: (axis == runs.along, levels[axis].nunique())
    ):
        if levels.duplicated([x, y, *panels]).any() and axis not in panels:
            panels.append(axis)  # a pixel is one cell
    pixels = Pixels(levels, "accuracy", f"mean {accuracy_label(of)}", ends=(0.0, 1.0))
    layers: list[Layer] = [pixels]
    if (runs.along in columns_in(x)) == (runs.along in columns_in(y)):
        layers.append(Contour(levels, "accuracy", level=theta))
    else:
        stars = runs.thresholds(found, theta)
        at = with_columns(stars.assign(**{runs.along: stars["critical"]}), x, y)
        at = (
            at
            if y == runs.along
            else at[at["critical"].notna()].drop(columns=["lo", "hi", "state"])
        )
        layers.append(
            Points(at, y, f"{runs.along}* at {theta:g}, fitted", STAR, joined=True)
        )
    return replace(
        over(pixels, x, y, panels),
        layers=layers + (theory_contour(runs, x, y, panels, theta) if theory else []),
    )


def theory_contour(
    runs: Runs, x: str, y: str, panels: Sequence[str], theta: float
) -> list[Layer]:
    """Where theory's accuracy is theta over two axes; none where it covers nothing."""
    table = with_columns(runs.predicted, x, y)
    off = logit(table["theory"].clip(1e-3, 1 - 1e-3)) - logit(
        theta
    )  # rises more evenly between the places than accuracy
    shown = averaged(table.assign(off=off), [x, y, *panels], "off")
    return (
        [
            Contour(
                shown, "off", theory_name(table), THEORY | {"color": "black"}, level=0.0
            )
        ]
        if len(shown)
        else []
    )


def collapse(
    runs: Runs, found: Fit, theta: float, lines: Sequence[str], of: str | None = None
) -> Chart:
    """The curve of every cell against its axis in units of the cell's own crossing."""
    stars = runs.thresholds(found, theta)[[*runs.axes, "critical"]]
    levels = runs.levels.drop(columns=["low", "high", "n_seeds"]).merge(
        stars, on=[*runs.axes]
    )
    star = f"{runs.along} / {runs.along}*"
    levels = levels.assign(**{star: levels[runs.along] / levels["critical"]}).dropna(
        subset=[star]
    )
    levels["_cell"] = levels.groupby([*runs.axes], dropna=False).ngroup()
    curves = Line(
        levels, "accuracy", style={"markersize": 2.5, "linewidth": 0.8}, each="_cell"
    )
    axis = Axis.make(star, levels, ticks=False)
    ends = [
        {star: low, "at": theta} for low in axis.values[:: max(1, len(axis.values) - 1)]
    ]
    cross = [
        Line(pd.DataFrame(rows), "at", style=DOTTED)
        for rows in (ends, [{star: 1.0, "at": 0.0}, {star: 1.0, "at": 1.0}])
    ]
    return Chart([curves, *cross], axis, accuracy_label(of), lines=lines)


def places(
    axes: Sequence[str], searched: str = ""
) -> tuple[str, str | None, list[str]]:
    """Which of a grid's axes goes along x, which makes the lines, which make the
    panels.
    """
    x = searched or ("N" if "N" in axes or not axes else axes[0])
    rest = [axis for axis in axes if axis != x]
    lines = "d" if "d" in rest else rest[0] if rest else None
    return x, lines, [axis for axis in rest if axis != lines]


def draw_sweep(
    frame: Table,
    axes: Sequence[str],
    title: str,
    path: Path,
    thresholds: Sequence[Values] | None = None,
    searched: str = "",
) -> str | None:
    """Draws the rows of a sweep along its axes, as PNG at `path`. Returns a remark
    where something is not drawn.

    Args:
        frame: rows of a sweep; `frame.attrs["accuracy"]` names their accuracy, or what
            else crosses theta, if that is not "accuracy".
        axes: the fields that the grid varies, in its order.
        title: the heading, usually the name of the grid.
        path: the PNG file.
        thresholds: what a search found, if the sweep is one: its axes, theta, axis,
            critical, lo and hi.
        searched: the field that it varies.
    """
    y = frame.attrs.get("accuracy", "accuracy")
    for name in {"pool", "batch"} & {*axes}:
        frame = frame.assign(
            **{name: frame[name].fillna(0).astype(int)}
        )  # 0 is no pool, as m = 0 is no MLP
    drawn = frame.dropna(subset=[y])
    x, line, panels = places(axes, searched)
    lines, panels = in_one_panel(drawn, [line] if line else [], panels)
    chart = means(drawn, [y], x, lines, panels, accuracy_label(y))
    if thresholds:
        chart = replace(
            chart, layers=[*chart.layers, *crossings(pd.DataFrame(thresholds), x)]
        )
    shared = {
        name: value for name, value in _fixed(frame).items() if name not in (*axes, x)
    }
    upto = "up to " if thresholds else ""  # a search runs other seeds at other levels
    band = (
        f"mean over {upto}{drawn['seed'].nunique()} seeds, band = one standard"
        " deviation"
    )
    heading = f"{title}: {settings(shared)}\n{band}" if shared else f"{title}\n{band}"
    png = io.BytesIO()
    with look():
        chart.figure(heading).savefig(png, format="png")
    atomic_write(path, png.getbuffer())  # shards may draw at once
    remarks = (
        [f"{len(frame) - len(drawn)} non-finite runs are not drawn"]
        if len(drawn) < len(frame)
        else []
    )
    return "; ".join([*remarks, *filter(None, [chart.remark])]) or None


def _fixed(frame: Table) -> Values:
    """The sizes that all rows share, and the pool, the path of the trigger and the
    laws, where these are not the usual ones.
    """
    sizes = {
        name: frame[name].iloc[0]
        for name in ("V", "N", "d", "L", "m")
        if name in frame and frame[name].nunique() == 1
    }
    others = {
        name: value
        for name, value in fixed(frame).items()
        if name.partition(".")[0] in ("pool", "trigger_in_value", *LAW_FIELDS)
    }
    return sizes | {
        name: value if len(str(value)) <= LONGEST_LAW else str(value).partition("(")[0]
        for name, value in others.items()
    }
