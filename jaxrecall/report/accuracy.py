"""Accuracy against N, or against another axis: the picture a sweep ends with and a report begins with."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_write
from . import predict
from .axes import Axis, Roles
from .critical import OPEN
from .study import Study
from .style import ACCURACY, DASH, MARKERS, MAX_PANELS, Picture, above, canvas, grouped, key, label, line, look, name_axes, shades, text

Table = Any  # pandas.DataFrame, whose own types say less than Any


def places(axes: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """Which of a grid's axes goes along x, which makes the lines, which make the panels."""
    x = "N" if "N" in axes or not axes else axes[0]
    rest = [axis for axis in axes if axis != x]
    lines = "d" if "d" in rest else rest[0] if rest else None
    return x, lines, [axis for axis in rest if axis != lines]


def of_sweep(frame: Table, axes: Sequence[str], title: str, path: Path) -> str | None:
    """The picture of the rows of a sweep along its axes, as PNG at `path`. Returns a remark where something is not drawn."""
    drawn = frame.dropna(subset=["accuracy"])
    remarks = [f"{len(frame) - len(drawn)} non-finite runs are not drawn"] if len(drawn) < len(frame) else []
    x, lines, panels = places(axes)
    by = [axis for axis in (*panels, lines, x) if axis]
    levels = frame.groupby(by)["accuracy"].agg(accuracy="mean", n_seeds="count", sd=lambda p: p.std(ddof=0)).reset_index()
    if (n := len(grouped(levels, panels))) > MAX_PANELS:
        remarks.append(f"the first {MAX_PANELS} of {n} panels are drawn")
    fixed = [f"{name} = {text(frame[name].iloc[0])}" for name in ("V", "N", "d", "L", "m") if name not in axes and name != x]
    heading = f"{title}: {', '.join(fixed)}\nmean over {drawn['seed'].nunique()} seeds, band = one standard deviation"
    png = io.BytesIO()
    with look():
        draw(levels, x, lines, panels, heading).savefig(png, format="png")
    atomic_write(path, png.getbuffer())  # shards may draw at once
    return "; ".join(remarks) or None


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """The same of a report, with each cell's fitted crossings and theory's curve."""
    import pandas as pd

    lines = roles.lines or roles.x
    panels = [axis for axis in study.axes if axis != lines]
    marks = pd.concat([study.thresholds(theta).assign(cell=study.cells.index) for theta in study.thetas])
    curves = [_predicted(study, cell) for cell in study.cells.index]
    predicted = pd.concat([curve for curve in curves if curve is not None] or [pd.DataFrame(columns=[*study.levels])])
    n = len(grouped(study.levels, panels))
    figure = draw(study.levels, "N", lines, panels, "", marks, predicted)
    yield Picture("accuracy", "Accuracy against N", _caption(study, marks, n), figure)


def draw(levels: Table, x: str, lines: str | None, panels: Sequence[str], title: str = "", marks: Any = None, predicted: Any = None) -> Any:
    """Mean accuracy with a band of one standard deviation over seeds.

    `levels` has the columns named by x, lines and panels, `accuracy` and `sd`; `marks` has thresholds (theta, N_star, lo, hi)
    and `predicted` has theory's accuracy, both with the same columns.
    """
    groups = grouped(levels, panels)[:MAX_PANELS]
    along = Axis.of(x, levels)
    figure, cells = canvas(len(groups))
    values = Axis.of(lines, levels).values if lines else (None,)
    colours = shades(len(values))
    for ax, (heading, rows) in zip(cells, groups, strict=True):
        shown = {axis: rows[axis].iloc[0] for axis in panels}
        for i, value in enumerate(values):
            only = shown | ({lines: value} if lines else {})
            _line(ax, _where(rows, only).sort_values(x), along, colours[i], MARKERS[i % len(MARKERS)])
            if predicted is not None:
                curve = _where(predicted, only)
                ax.plot(curve[x], curve["accuracy"], color=colours[i], linestyle=DASH, linewidth=0.9)
            if marks is not None:
                _crossings(ax, _where(marks, only), colours[i])
        along.scale(ax, "x")
        ax.set_ylim(-0.02, 1.02)
        ax.grid(True)
        ax.set_title(heading)
    if lines:
        style = zip(values, colours, MARKERS * len(values), strict=False)
        key(figure, [line(text(v), color=c, marker=m) for v, c, m in style], lines)
    if marks is not None:
        how = {"marker": "d", "linestyle": "none", "markerfacecolor": "white", "markersize": 5}
        extra = [line("N*, fitted, and 95 % interval", **how)] if marks["N_star"].notna().any() else []
        extra += [line("theory", linestyle=DASH, linewidth=0.9)] if predicted is not None and len(predicted) else []
        extra += [line("few seeds", marker="o", linestyle="none", markerfacecolor="white")] if _few(levels).any() else []
        above(figure, extra)
    name_axes(figure, cells, label(x), ACCURACY)
    if title:
        figure.suptitle(title, fontsize=8)
    return figure


def _where(table: Table, values: dict[str, Any]) -> Table:
    for name, value in values.items():
        table = table[table[name].isna() if value != value else table[name] == value]
    return table


def _line(ax: Any, rows: Table, along: Axis, colour: Any, marker: str) -> None:
    if len(rows):
        at = along.place(rows[along.name].tolist())
        ax.plot(at, rows["accuracy"], marker=marker, color=colour)
        few = _few(rows).to_numpy()
        ax.plot(at[few], rows["accuracy"][few], marker, color=colour, markerfacecolor="white")
        low, high = ((rows["accuracy"] + sign * rows["sd"]).clip(0, 1) for sign in (-1, 1))
        ax.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)


def _few(levels: Table) -> Any:
    """Levels with under half as many seeds as the best of these levels, as a threshold search leaves them far from the crossing."""
    return levels["n_seeds"] < 0.5 * levels["n_seeds"].max()


def _crossings(ax: Any, marks: Table, colour: Any) -> None:
    for row in marks[marks["N_star"].notna()].itertuples():
        if row.lo > 0 and np.isfinite(row.hi):
            ax.plot([row.lo, row.hi], [row.theta, row.theta], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=4)
        ax.plot(row.N_star, row.theta, "d", color="black", markerfacecolor="white", markersize=4.5, markeredgewidth=0.8, zorder=5)


def _predicted(study: Study, cell: int) -> Any:
    """Theory's curve over the N that the cell has; None where theory does not reach."""
    import pandas as pd

    at = study.cells.loc[cell]
    N = study.levels.loc[study.levels["cell"] == cell, "N"]
    grid = np.unique(np.geomspace(N.min(), N.max(), 25).round())
    found = [predict.accuracy(at, float(n)) for n in grid]
    if None in found:
        return None
    return pd.DataFrame({"N": grid, "accuracy": found}).assign(**{axis: at[axis] for axis in study.axes})


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
