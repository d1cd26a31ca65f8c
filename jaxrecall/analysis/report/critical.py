"""Critical N against an axis, log-log: the reported thresholds, the fitted law and theory's curve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..fit.axes import LAW
from . import predict
from .axes import Axis, Roles, column
from .study import Study
from .style import DASH, MARKERS, MAX_PANELS, NotDrawn, Picture, above, canvas, grouped, head, key, line, log_axis, name_axes, shades, text

Table = Any  # pandas.DataFrame, whose own types say less than Any
OPEN = {
    "plateau": ("X", "levels off below"),
    "not reached": ("^", "not reached, N* is above"),
    "above": ("v", "above from the start"),
}


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """One picture per theta."""
    if roles.x is None:
        raise NotDrawn("no axis but N varies")
    for theta in study.thetas:
        yield _picture(study, roles, theta)


def _picture(study: Study, roles: Roles, theta: float) -> Picture:
    found = study.thresholds(theta)
    assert roles.x
    axis = Axis.of(roles.x, study.cells)
    groups = grouped(found, roles.panels)
    some = grouped(found, roles.panels, MAX_PANELS)
    figure, panels = canvas(len(some))
    theory = False
    head(figure, panels, [heading for heading, _ in some])
    for ax, (_, cells) in zip(panels, some, strict=True):
        theory |= panel(ax, study, cells, axis, roles.lines, theta)
    panels[0].set_ylim(*limits(found))
    for ax in panels:
        log_axis(ax.yaxis)
    if roles.lines:
        key(figure, lines_of(study, roles.lines), roles.lines)
    above(figure, signs(found, theory))
    name_axes(figure, panels, axis.label, f"critical N* at accuracy {theta:g} (samples)")
    name = "critical-n" if theta == study.thetas[0] else f"critical-n-{theta:g}"
    more = f" {len(some)} of {len(groups)} panels are drawn." if len(some) < len(groups) else ""
    return Picture(name, f"Critical N at accuracy {theta:g}", caption(study, theta) + more, figure)


def panel(ax: Any, study: Study, cells: Table, axis: Axis, lines: str | None, theta: float, with_theory: bool = True) -> bool:
    """Thresholds, laws and theory of some cells; returns whether theory's curve is there."""
    values = Axis.of(lines, study.cells).values if lines else (None,)
    theory = False
    for i, (value, colour) in enumerate(zip(values, shades(len(values)), strict=True)):
        rows = cells[cells[lines] == value] if lines else cells
        side = (i - (len(values) - 1) / 2) / len(values)
        _line(ax, study, rows, axis, colour, MARKERS[i % len(MARKERS)], side)
        if with_theory:
            x, y = curve(study.cells.loc[rows.index], axis, theta)
            ax.plot(x, y, color=colour, linewidth=0.9, **joined(axis))
            theory |= bool(np.isfinite(y).any())
    ax.margins(x=0.08)
    axis.scale(ax, "x")
    ax.set_yscale("log")
    ax.grid(True)
    return theory


def lines_of(study: Study, lines: str) -> list[Any]:
    """The legend of the lines."""
    values = Axis.of(lines, study.cells).values
    styles = zip(values, shades(len(values)), MARKERS * len(values), strict=False)
    return [line(text(v), color=c, marker=m, linestyle="none") for v, c, m in styles]


def signs(found: Table, theory: bool) -> list[Any]:
    """The legend of what is not a line of cells."""
    entries = [line("law, fitted")] if (found["law"].notna() & ~found["rejected"]).any() else []
    entries += [line("theory", linestyle=DASH)] if theory else []
    return entries + open_signs(found)


def open_signs(found: Table) -> list[Any]:
    """The legend of cells without a crossing."""
    return [
        line(name, marker=marker, linestyle="none", markerfacecolor="white", markersize=5)
        for state, (marker, name) in OPEN.items()
        if (found["state"] == state).any()
    ]


def _line(ax: Any, study: Study, rows: Table, axis: Axis, colour: Any, marker: str, side: float) -> None:
    """One line of cells and its law."""
    at = marks(ax, rows, axis, colour, marker, side)
    inside = (rows["in_law"] & rows["law"].notna() & ~rows["rejected"]).to_numpy()
    if axis.numeric and inside.sum() > 1:
        for part in study.cells.loc[rows.index, "part"].unique():
            mine = inside & (study.cells.loc[rows.index, "part"] == part).to_numpy()
            order = np.argsort(at[mine])
            ax.plot(at[mine][order], rows["law"].to_numpy()[mine][order], color=colour, linewidth=1.0)


def marks(ax: Any, rows: Table, axis: Axis, colour: Any, marker: str, side: float) -> np.ndarray:
    """Thresholds with their intervals, and open marks where there is none; returns where they stand along x.

    `side`, -1/2 to 1/2, moves them beside those of other lines.
    """
    at = axis.place(column(axis.name, rows))
    steps = np.diff(np.log2(axis.place(axis.values)) if axis.numeric else np.arange(len(axis.values)))
    step = steps.min() if len(steps) else 1.0
    shifted, aside = (at * 2**shift if axis.numeric else at + shift for shift in (side * min(0.2, 0.5 * step), side * 0.7 * step))
    crosses = (rows["state"] == "crosses").to_numpy()
    N = rows["N_star"].to_numpy()
    low = np.where(rows["lo"].isna(), N, rows["lo"])
    high = np.where(rows["hi"].isna(), N, rows["hi"])
    top = 1e3 * np.nanmax(N, initial=1)  # an open end leaves the picture
    bars = np.stack([N - low.clip(1), high.clip(max=top) - N])[:, crosses].clip(0)
    ax.errorbar(shifted[crosses], N[crosses], bars, fmt=marker, color=colour, elinewidth=0.8, capsize=1.5, zorder=3)
    for state, (shape, _) in OPEN.items():
        mine = (rows["state"] == state).to_numpy()
        ax.plot(aside[mine], tried(rows)[mine], shape, color=colour, markerfacecolor="white", markersize=5, zorder=3)
    return at


def joined(axis: Axis) -> dict[str, Any]:
    """How theory stands: a dashed line, or ticks where there is nothing between the values of the axis."""
    return {"linestyle": DASH} if axis.numeric else {"linestyle": "none", "marker": "_", "markersize": 12}


def curve(cells: Table, axis: Axis, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Theory's critical N along the axis, over cells alike in all else; at whole numbers between its values too if it is a field.

    nan, which breaks a line, where accuracy never reaches theta; 0 on a log axis is left out.
    """
    cells = cells[np.array([value != 0 for value in column(axis.name, cells)], bool)] if axis.numeric else cells
    if axis.name in LAW and len(cells) > 1:
        return predict.critical_curve(cells.iloc[0].to_dict(), axis.name, sorted(map(int, cells[axis.name])), theta)
    at = axis.place(column(axis.name, cells))
    y = np.array([predict.critical_N(cell, theta) for cell in cells.to_dict("records")], dtype=float)
    order = np.argsort(at, kind="stable")
    return at[order], np.where(np.isfinite(y), y, np.nan)[order]


def tried(found: Table) -> np.ndarray:
    """Of cells without a crossing: the end of N beyond which it lies."""
    ends = found["N_above"].where(found["state"] == "above", found["N_below"])
    return ends.to_numpy(dtype=float, na_value=np.nan)


def limits(found: Table) -> tuple[float, float]:
    """What holds every threshold and every tried N of the others; theory's curve and open intervals may leave it."""
    seen = np.where(found["state"] == "crosses", found["N_star"], tried(found))
    return seen.min() / 2, seen.max() * 2


def caption(study: Study, theta: float) -> str:
    """The reported exponents with their intervals, theory's, and the cell farthest from the law."""
    found = study.thresholds(theta)
    predicted = [predict.critical_N(study.cells.loc[cell], theta) for cell in found.index]
    theirs = study.exponents_of([np.nan if n is None else n for n in predicted], theta)
    rows = study.fit.exponents
    rows = rows[rows["record"] & (rows["theta"] == theta)]
    sentences = []
    for part in rows["part"].unique():
        terms = []
        for row in rows[rows["part"] == part].itertuples():
            if row.exponent == row.exponent:
                ends = f" ({row.lo:.2f} to {row.hi:.2f})" if row.lo == row.lo else " (no interval)"
                e = theirs.get((part, row.axis), np.nan)
                terms.append(f"{row.axis}^{row.exponent:.2f}{ends}" + (f", theory {e:.2f}" if e == e else ""))
            else:
                terms.append(f"no exponent of {row.axis} ({row.warning})")
        sentences.append(f"{part}: N* ~ " + "; ".join(terms))
        if part in study.rejected(theta):
            sentences.append(f"the cells with {part} do not follow a single power law, so none is drawn; these exponents are averages")
    off = abs(np.log(found["N_star"] / found["law"])).where(found["in_law"])
    if off.notna().any():
        worst = off.idxmax()
        ratio = found["N_star"][worst] / found["law"][worst]
        sentences.append(f"the cell farthest from the law is {study.at(worst)}, at {ratio:.2f} times its law")
    counts = found["state"].value_counts()
    for state, (_, name) in OPEN.items():
        if state in counts:
            sentences.append(f"{counts[state]} of {len(found)} cells: {name}")
    if copies := int(found["copy_of"].notna().sum()):
        sentences.append(f"{copies} of {len(found)} cells are copies of others: the same draws and the same counts")
    sentences.append("Bars: 95 % intervals over seeds")
    return ". ".join(part[0].upper() + part[1:] if part[:2] != "m " else part for part in sentences) + "."
