"""Data collapse: accuracy against N in units of each cell's own critical N, and of the fitted law."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .axes import Axis, Roles
from .study import Study
from .style import ACCURACY, MARKERS, NotDrawn, Picture, canvas, key, line, shades, text

Table = Any  # pandas.DataFrame, whose own types say less than Any


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    theta = study.thetas[0]
    found = study.thresholds(theta)
    scales = {"N / N*, its own": found["N_star"]}
    kept = found["in_law"] & ~found["rejected"]
    if study.axes and found["law"][kept].notna().any():
        scales["N / N* of the fitted law"] = found["law"].where(kept)
    if found["N_star"].notna().sum() < 2:
        raise NotDrawn(f"fewer than two cells cross accuracy {theta:g}")
    figure, panels = canvas(len(scales), same_x=False)
    sentences = []
    for ax, (name, scale) in zip(panels, scales.items(), strict=True):
        curves = panel(ax, study, scale, roles.x, theta)
        ax.set_xlabel(name)
        sentences.append(_spread(study, curves, 2.0 if name.endswith("own") else 1.0, name))
    if roles.x:
        key(figure, entries(study, roles.x, theta), roles.x)
    figure.supylabel(ACCURACY, fontsize=8)
    if "N / N* of the fitted law" not in scales and found["rejected"].any():
        sentences.append("The fit rejects a single power law, so there is no collapse by the law.")
    yield Picture("collapse", "Data collapse", " ".join(sentences), figure)


def panel(ax: Any, study: Study, scale: Table, lines: str | None, theta: float) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The curve of every cell that has a scale, against N in units of it; returns those curves, (N / scale, accuracy)."""
    values = _values(study, lines, theta)
    colours = shades(len(values))
    curves = {cell: _curve(study, cell, scale[cell]) for cell in scale.dropna().index}
    for cell, (N, p) in curves.items():
        i = values.index(study.cells[lines][cell]) if lines else 0
        ax.plot(N, p, marker=MARKERS[i % len(MARKERS)], markersize=2.5, linewidth=0.8, color=colours[i])
    ax.axhline(theta, color="black", linewidth=0.6, linestyle=":")
    ax.axvline(1.0, color="black", linewidth=0.6, linestyle=":")
    ax.set_xscale("log")
    ax.set_ylim(-0.02, 1.02)
    ax.grid(True)
    return curves


def entries(study: Study, lines: str, theta: float) -> list[Any]:
    """The legend of the curves."""
    values = _values(study, lines, theta)
    return [line(text(v), color=c, marker=m) for v, c, m in zip(values, shades(len(values)), MARKERS * len(values), strict=False)]


def _values(study: Study, lines: str | None, theta: float) -> tuple[Any, ...]:
    return Axis.of(lines, study.cells[study.thresholds(theta)["N_star"].notna()]).values if lines else (None,)


def _curve(study: Study, cell: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    rows = study.levels[study.levels["cell"] == cell].sort_values("N")
    return rows["N"].to_numpy() / scale, rows["accuracy"].to_numpy()


def _spread(study: Study, curves: dict[int, tuple[np.ndarray, np.ndarray]], at: float, name: str) -> str:
    """Between which accuracies the curves pass a given N, each between its own levels."""
    there = {cell: np.interp(np.log(at), np.log(N), p) for cell, (N, p) in curves.items() if N[0] <= at <= N[-1]}
    where = f"{text(at)} times the N* {'of the law' if name.endswith('law') else 'of each cell'}"
    if len(there) < 2:
        return f"At {where} fewer than two curves have levels."
    low, high = min(there, key=there.__getitem__), max(there, key=there.__getitem__)
    return (
        f"At {where} accuracy lies between {there[low]:.2f} ({study.at(low)}) and {there[high]:.2f} ({study.at(high)}), "
        f"standard deviation over {len(there)} cells {np.std(list(there.values())):.2f}."
    )
