"""Phase diagrams over any two axes: mean accuracy, or the leading noise, of what was tested and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..fit.axes import LAW
from . import critical, predict
from .axes import Roles, column
from .chart import Chart, patches
from .critical import OPEN
from .study import Study
from .style import ACCURACY, DASH, NotDrawn, Picture, line

Table = Any  # pandas.DataFrame, whose own types say less than Any


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """Mean accuracy over each pair of axes, with the fitted contour and theory's."""
    if not roles.phases:
        raise NotDrawn("no axis but N varies")
    for x, y in roles.phases:
        yield _picture(study, x, y)


def _picture(study: Study, x: str, y: str) -> Picture:
    theta = study.thetas[0]
    chart = Chart(study, x, y)
    figure, panels = chart.canvas()
    drawn = set()
    for ax, (_, rows) in zip(panels, chart.groups, strict=True):
        shown, lines = panel(ax, study, chart, rows, theta)
        drawn |= lines
    scale(figure, panels, shown, theta)
    chart.finish(figure, panels, entries(theta, drawn))
    name = "phase" if (x, y) == chart.default else f"phase-{chart.slug}"
    return Picture(name, f"Phase diagram: {y} against {x}", _caption(study, theta, chart), figure)


def panel(ax: Any, study: Study, chart: Chart, rows: Table, theta: float, theory: bool = True) -> tuple[Any, set[str]]:
    """One panel's pixels, fitted thresholds and theory; returns the pixels and which of `entries` are there."""
    boxes = chart.boxes(rows)
    shown = patches(boxes)
    shown.set(array=[box.rows["accuracy"].mean() for box in boxes], cmap="viridis", clim=(0, 1))
    ax.add_collection(shown)
    found = study.thresholds(theta).assign(cell=study.cells.index)
    cells = found.loc[sorted(rows["cell"].unique())]
    drawn = _fitted(ax, chart, cells) if chart.N_up else _contour(ax, chart, rows, found)
    return shown, drawn | (_theory(ax, study, chart, rows, theta) if theory else set())


def scale(figure: Any, panels: Any, shown: Any, theta: float) -> None:
    """The scale of the colours, with theta marked."""
    bar = figure.colorbar(shown, ax=panels, label=f"mean {ACCURACY}", fraction=0.05, pad=0.02)
    bar.ax.axhline(theta, color="black", linewidth=1.2)


def entries(theta: float, drawn: set[str]) -> list[Any]:
    """The legend of the lines and marks that are drawn."""
    white = {"markerfacecolor": "white", "markeredgecolor": "black", "color": "black", "linestyle": "none", "markersize": 5}
    every = {
        "fitted": line(f"N* at {theta:g}, fitted", **white | {"marker": "o", "linestyle": "-"}),
        "contour": line(f"fitted contour at {theta:g}", color="black"),
        **{state: line(name, marker=marker, **white) for state, (marker, name) in OPEN.items()},
        "theory": line("theory", color="black", linestyle=DASH),
    }
    return [entry for name, entry in every.items() if name in drawn]


def _stroke() -> list[Any]:
    from matplotlib.patheffects import Normal, Stroke

    return [Stroke(linewidth=2.6, foreground="white"), Normal()]


def _fitted(ax: Any, chart: Chart, cells: Table) -> set[str]:
    """N* of the cells along x, joined, with intervals; and a mark where there is none."""
    values = np.array(column(chart.x.name, cells))
    order = np.argsort(at := chart.x.place(values), kind="stable")
    at, cells, values = at[order], cells.iloc[order], values[order]
    N = cells["N_star"].to_numpy()
    if chart.x.numeric and len(set(at)) == len(at):
        ax.plot(at, np.where(values != 0, N, np.nan), color="black", path_effects=_stroke(), zorder=3)  # nan breaks the line
    low, high = ((N - cells["lo"]).clip(0).fillna(0), (cells["hi"] - N).clip(0).fillna(0))
    limit = ax.get_ylim()[1] * 10
    bars = [low.to_numpy(), np.minimum(high.to_numpy(), limit)]
    ax.errorbar(at, N, bars, fmt="o", color="black", markerfacecolor="white", markersize=4, elinewidth=0.9, zorder=4)
    drawn = {"fitted"} if np.isfinite(N).any() else set()
    for state, (marker, _) in OPEN.items():
        mine = (cells["state"] == state).to_numpy()
        if mine.any():
            tried = critical.tried(cells)[mine]
            ax.plot(at[mine], tried, marker, color="black", markerfacecolor="white", markersize=5, zorder=4)
            drawn.add(state)
    return drawn


def _contour(ax: Any, chart: Chart, rows: Table, found: Table) -> set[str]:
    """Where the fitted N*, between cells side by side, equals the N of the panel."""
    z = np.full((len(chart.y.values), len(chart.x.values)), np.nan)
    for (x, y), mine in rows.groupby(["_x", "_y"]):
        if (chart.x.broken and not x) or (chart.y.broken and not y):
            continue  # no line crosses a break
        z[chart.y.values.index(y), chart.x.values.index(x)] = np.log(found.loc[mine["cell"], "N_star"] / mine["N"].to_numpy()).mean()
    return _level(ax, chart.x.place(chart.x.values), chart.y.place(chart.y.values), z, "solid") & {"contour"}


def _theory(ax: Any, study: Study, chart: Chart, rows: Table, theta: float) -> set[str]:
    """Theory's critical N along x, or its contour of accuracy theta over two fields."""
    cells = study.cells.loc[sorted(rows["cell"].unique())]
    if chart.N_up:
        x, y = critical.curve(cells, chart.x, theta)
        if len(set(x)) < len(x):
            return set()
        ax.plot(x, y, color="black", path_effects=_stroke(), zorder=3, **critical.joined(chart.x))
        return {"theory"} if np.isfinite(y).any() else set()
    axes = (chart.x, chart.y)
    if any(axis.name not in LAW or min(axis.values) <= 0 or len(axis.values) < 2 for axis in axes):
        return set()
    x, y = (np.unique(np.geomspace(axis.values[0], axis.values[-1], 13).round().astype(int)) for axis in axes)
    at = cells.iloc[0].to_dict()
    z = [[predict.accuracy({**at, chart.x.name: int(a), chart.y.name: int(b)}, float(rows["N"].iloc[0])) for a in x] for b in y]
    z = np.array(z, dtype=float) - theta
    return _level(ax, x, y, z, DASH) & {"theory"}


def _level(ax: Any, x: np.ndarray, y: np.ndarray, z: np.ndarray, style: Any) -> set[str]:
    """The line z = 0, where z is known on all sides of it."""
    if min(z.shape) < 2 or not (np.nanmin(z, initial=np.inf) < 0 < np.nanmax(z, initial=-np.inf)):
        return set()
    drawn = ax.contour(x, y, np.ma.masked_invalid(z), levels=[0.0], colors="black", linestyles=[style], linewidths=1.2, zorder=3)
    drawn.set_path_effects(_stroke())
    return {"contour", "theory"}


def _caption(study: Study, theta: float, chart: Chart) -> str:
    levels = study.levels
    reach = levels["accuracy"] >= theta
    sentence = f"{reach.sum()} of {len(levels)} tested points reach accuracy {theta:g}"
    theory = np.array([predict.accuracy(row, float(row["N"])) for row in levels.to_dict("records")], dtype=float)
    known = np.isfinite(theory)
    if known.any():
        wrong = known & ((theory >= theta) != reach.to_numpy())
        sentence += f"; theory puts {wrong.sum()} of {known.sum()} on the wrong side of it"
        if wrong.any():
            worst = int(np.argmax(np.where(wrong, abs(theory - levels["accuracy"]), -1)))
            sentence += f", the farthest {study.where(worst)}: observed {levels['accuracy'][worst]:.2f}, predicted {theory[worst]:.2f}"
    else:
        sentence += "; theory does not cover them"
    return f"{sentence}.{chart.remark}{' Hatched: not tested.' * chart.gaps}"
