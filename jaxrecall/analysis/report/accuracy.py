"""Accuracy against N, or against another axis: the picture a sweep ends with and a report begins with."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files import atomic_write
from . import predict
from .axes import Axis, Roles
from .critical import OPEN
from .study import Study
from .style import (
    ACCURACY,
    DASH,
    MARKERS,
    MAX_PANELS,
    Picture,
    above,
    canvas,
    distinguishing,
    grouped,
    head,
    key,
    label,
    line,
    look,
    name_axes,
    settings,
    shades,
    text,
)

Table = Any  # pandas.DataFrame, whose own types say less than Any
LINE = "_line"
"""Column that says which line a level belongs to, where more than one axis makes the lines."""

MAX_LINES = 14
"""Most lines of one panel that more than one axis makes."""

MARK = {"marker": "d", "color": "black", "markerfacecolor": "white", "markersize": 4.5, "markeredgewidth": 0.8}


def places(axes: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """Which of a grid's axes goes along x, which makes the lines, which make the panels."""
    x = "N" if "N" in axes or not axes else axes[0]
    rest = [axis for axis in axes if axis != x]
    lines = "d" if "d" in rest else rest[0] if rest else None
    return x, lines, [axis for axis in rest if axis != lines]


def of_sweep(
    frame: Table, axes: Sequence[str], title: str, path: Path, thresholds: Sequence[Mapping[str, Any]] | None = None
) -> str | None:
    """The picture of the rows of a sweep along its axes, as PNG at `path`. Returns a remark where something is not drawn.

    `thresholds` are what a search found, if the sweep is one: its axes, theta, N_star, lo and hi.
    """
    import pandas as pd

    for name in {"pool", "batch"} & {*axes}:
        frame = frame.assign(**{name: frame[name].fillna(0).astype(int)})  # 0 is no pool, as m = 0 is no MLP
    drawn = frame.dropna(subset=["accuracy"])
    remarks = [f"{len(frame) - len(drawn)} non-finite runs are not drawn"] if len(drawn) < len(frame) else []
    x, lines, panels = places(axes)
    levels = averaged(frame, [*panels, *([lines] if lines else []), x])
    marks = pd.DataFrame(thresholds) if thresholds else None
    if (n := len(grouped(levels, split(levels, lines, panels)[1]))) > MAX_PANELS:
        remarks.append(f"{MAX_PANELS} of {n} panels are drawn")
    fixed = [name for name in ("V", "N", "d", "L", "m") if name not in axes and name != x]
    upto = "up to " if thresholds else ""  # a search runs other seeds at other levels
    band = f"mean over {upto}{drawn['seed'].nunique()} seeds, band = one standard deviation"
    heading = f"{title}: {settings(frame.iloc[0], fixed)}\n{band}" if fixed else f"{title}\n{band}"
    png = io.BytesIO()
    with look():
        draw(levels, x, lines, panels, heading, marks).savefig(png, format="png")
    atomic_write(path, png.getbuffer())  # shards may draw at once
    return "; ".join(remarks) or None


def averaged(frame: Table, by: Sequence[str]) -> Table:
    """Mean accuracy, standard deviation over seeds and number of seeds of the rows alike in `by`."""
    return frame.groupby(list(by), dropna=False)["accuracy"].agg(accuracy="mean", n_seeds="count", sd=lambda p: p.std(ddof=0)).reset_index()


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """The same of a report, with each cell's fitted crossings and theory's curve."""
    import pandas as pd

    lines, panels = roles.one_for_lines(study.cells, study.axes)
    marks = pd.concat([study.thresholds(theta).assign(cell=study.cells.index) for theta in study.thetas])
    curves = [_predicted(study, cell) for cell in study.cells.index]
    predicted = pd.concat([curve for curve in curves if curve is not None] or [pd.DataFrame(columns=[*study.levels])])
    n = len(grouped(study.levels, split(study.levels, lines, panels)[1]))
    figure = draw(study.levels, "N", lines, panels, "", marks, predicted)
    yield Picture("accuracy", "Accuracy against N", _caption(study, marks, n), figure)


def split(levels: Table, lines: str | None, panels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which axes make the lines and which the panels: where most panels would hold a single line, both make lines, in one panel."""
    if not lines or not panels:
        return [lines] if lines else [], list(panels)
    n_lines, n_panels = len(levels.groupby([lines, *panels], dropna=False)), len(levels.groupby(list(panels), dropna=False))
    if n_panels > 2 and n_lines < 1.5 * n_panels and n_lines <= MAX_LINES:
        together = [lines, *(axis for axis in panels if levels[axis].nunique(dropna=False) > 1)]
        return together, []
    return [lines], list(panels)


def draw(levels: Table, x: str, lines: str | None, panels: Sequence[str], title: str = "", marks: Any = None, predicted: Any = None) -> Any:
    """Mean accuracy with a band of one standard deviation over seeds.

    `levels` has the columns named by x, lines and panels, `accuracy` and `sd`; `marks` has thresholds (theta, N_star, lo, hi)
    and `predicted` has theory's accuracy, both with the same columns.
    """
    by, panels = split(levels, lines, panels)
    levels, marks, predicted = (joined(table, by) for table in (levels, marks, predicted))
    groups = grouped(levels, panels, MAX_PANELS)
    figure, cells = canvas(len(groups))
    head(figure, cells, [heading for heading, _ in groups])
    for ax, (_, rows) in zip(cells, groups, strict=True):
        shown = {axis: rows[axis].iloc[0] for axis in panels}
        parts = (where(table, shown) if table is not None else None for table in (marks, predicted))
        panel(ax, rows, levels, x, bool(by), *parts)
    if by:
        key(figure, entries(levels), by[0] if len(by) == 1 else None)
    if entries_above := signs(levels, marks, predicted):
        above(figure, entries_above, title or None)
    elif title:
        figure.suptitle(title, fontsize=8)
    name_axes(figure, cells, label(x), ACCURACY)
    return figure


def panel(ax: Any, rows: Table, levels: Table, x: str, has_lines: bool, marks: Any = None, predicted: Any = None) -> None:
    """The lines of one panel; `levels` are those of all panels, which set the axis and the colours."""
    along = Axis.of(x, levels)
    values = kinds(levels) if has_lines else [None]
    for i, (value, colour) in enumerate(zip(values, shades(len(values)), strict=True)):
        only = {LINE: value} if has_lines else {}
        series(ax, where(rows, only).sort_values(x), along, colour, marker=MARKERS[i % len(MARKERS)])
        if predicted is not None:
            curve = where(predicted, only)
            ax.plot(curve[x], curve["accuracy"], color=colour, linestyle=DASH, linewidth=0.9)
        if marks is not None and x == "N":
            _crossings(ax, where(marks, only), colour)
    along.scale(ax, "x")
    ax.set_ylim(-0.02, 1.02)
    ax.grid(True)


def joined(table: Any, by: Sequence[str]) -> Any:
    """The table with the column LINE: the axis that makes the lines, or the text of several, in their order."""
    if table is None or not by:
        return table
    if len(by) == 1:
        return table.assign(**{LINE: table[by[0]]})
    import pandas as pd

    order = [*table[list(by)].drop_duplicates().sort_values(list(by)).itertuples(index=False, name=None)]
    names = distinguishing(each := [dict(zip(by, row, strict=True)) for row in order], by)
    named = {row: settings(values, names) for row, values in zip(order, each, strict=True)}
    column = [named[row] for row in table[list(by)].itertuples(index=False, name=None)]
    return table.assign(**{LINE: pd.Categorical(column, list(dict.fromkeys(named.values())), ordered=True)})


def kinds(levels: Table) -> list[Any]:
    """What the lines stand for, in order."""
    lines = levels[LINE]
    return list(lines.cat.categories) if hasattr(lines, "cat") else list(Axis.of(LINE, levels).values)


def entries(levels: Table) -> list[Any]:
    """The legend of the lines."""
    values = kinds(levels)
    return [line(text(v), color=c, marker=m) for v, c, m in zip(values, shades(len(values)), MARKERS * len(values), strict=False)]


def signs(levels: Table, marks: Any = None, predicted: Any = None) -> list[Any]:
    """The legend of what is not a line."""
    found = [line("N* and 95 % interval", linestyle="none", **MARK)] if marks is not None and marks["N_star"].notna().any() else []
    found += [line("theory", linestyle=DASH, linewidth=0.9)] if predicted is not None and len(predicted) else []
    return found + [line("few seeds", marker="o", linestyle="none", markerfacecolor="white")] * bool(_few(levels).any())


def where(table: Table, values: dict[str, Any]) -> Table:
    for name, value in values.items():
        table = table[table[name].isna() if value != value else table[name] == value]
    return table


def series(ax: Any, rows: Table, along: Axis, colour: Any, y: str = "accuracy", ends: tuple[float, float] = (0, 1), **style: Any) -> None:
    """One line of means `y` with its band within `ends`, broken between 0 and the rest.

    The half width of the band is the column `sd`, of a column other than accuracy `sd_` and its name.
    Levels with few seeds are hollow and not joined.
    """
    sd = "sd" if y == "accuracy" else f"sd_{y}"
    few, zero = _few(rows), (rows[along.name] == 0) & along.broken
    for mine, apart in (
        (rows[~few & zero], {}),
        (rows[~few & ~zero], {}),
        (rows[few], {"linestyle": "none", "markerfacecolor": "white"}),
    ):
        at = along.place(mine[along.name].tolist())
        ax.plot(at, mine[y], color=colour, **style | apart)
        if not apart:
            low, high = ((mine[y] + sign * mine[sd]).clip(*ends) for sign in (-1, 1))
            ax.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)


def _few(levels: Table) -> Any:
    """Levels with under half as many seeds as the best of these levels, as a threshold search leaves them far from the crossing."""
    return levels["n_seeds"] < 0.5 * levels["n_seeds"].max()


def _crossings(ax: Any, marks: Table, colour: Any) -> None:
    for row in marks[marks["N_star"].notna()].itertuples():
        if row.lo > 0 and np.isfinite(row.hi):
            ax.plot([row.lo, row.hi], [row.theta, row.theta], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=4)
        ax.plot(row.N_star, row.theta, zorder=5, **MARK)


def _predicted(study: Study, cell: int) -> Any:
    """Theory's curve over the N that the cell has; None where theory does not reach."""
    import pandas as pd

    at = study.cells.loc[cell]
    N = study.levels.loc[study.levels["cell"] == cell, "N"].to_numpy(float)
    between = predict.accuracy_curve(at, N)
    if between is None:
        return None
    return pd.DataFrame({"N": between[0], "accuracy": between[1]}).assign(**{axis: at[axis] for axis in study.axes})


def _caption(study: Study, marks: Table, n_panels: int) -> str:
    counted = []
    for theta, mine in marks.groupby("theta"):
        counts = mine["state"].value_counts()
        others = "; ".join(f"{name}: {counts[state]}" for state, (_, name) in OPEN.items() if state in counts)
        counted.append(f"{counts.get('crosses', 0)} of {len(mine)} cells cross accuracy {theta:g}{f' ({others})' if others else ''}")
    sentence = "; ".join(counted)
    levels = study.levels
    theory = [predict.accuracy(row, float(row["N"])) for row in levels.to_dict("records")]
    off = np.array([np.nan if p is None else q - p for p, q in zip(theory, levels["accuracy"], strict=True)])
    if np.isfinite(off).any():
        worst = int(np.nanargmax(abs(off)))
        sentence += (
            f"; theory (dashed) is off by {np.nanmean(abs(off)):.3f} in the mean over {np.isfinite(off).sum()} of {len(off)} levels, "
            f"at most by {abs(off[worst]):.2f} (observed {levels['accuracy'][worst]:.2f} at {study.where(worst)})"
        )
    else:
        sentence += "; theory does not cover these cells"
    more = f"; {MAX_PANELS} of {n_panels} panels are drawn" if n_panels > MAX_PANELS else ""
    return f"{sentence}. Lines: mean over seeds; bands: one standard deviation over seeds{more}."
