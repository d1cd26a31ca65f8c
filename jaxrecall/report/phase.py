"""Phase diagrams over any two axes: mean accuracy, or the leading noise, of what was tested and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..fit.cells import LAW
from . import critical, predict
from .axes import Axis, Roles, borders, column
from .critical import OPEN
from .study import Study
from .style import ACCURACY, DASH, MAX_PANELS, UNTESTED, NotDrawn, Picture, above, canvas, grouped, line, name_axes, untested

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
    found = study.thresholds(theta).assign(cell=study.cells.index)
    drawn = set()
    for ax, (_, rows) in zip(panels, chart.groups, strict=True):
        boxes = chart.boxes(rows)
        shown = patches(boxes)
        shown.set(array=[box.rows["accuracy"].mean() for box in boxes], cmap="viridis", clim=(0, 1))
        ax.add_collection(shown)
        cells = found.loc[sorted(rows["cell"].unique())]
        drawn |= _fitted(ax, chart, cells) if chart.N_up else _contour(ax, chart, rows, found)
        drawn |= _theory(ax, study, chart, rows, theta)
    bar = figure.colorbar(shown, ax=panels, label=f"mean {ACCURACY}", fraction=0.05, pad=0.02)
    bar.ax.axhline(theta, color="black", linewidth=1.2)
    chart.finish(figure, panels, [entry for name, entry in _entries(theta).items() if name in drawn])
    several = sum(box.rows["cell"].nunique() > 1 for _, rows in chart.groups for box in chart.boxes(rows))
    name = "phase" if (x, y) == chart.default else f"phase-{chart.slug}"
    return Picture(name, f"Phase diagram: {y} against {x}", _caption(study, theta, several, chart.gaps), figure)


NEAR = 1.6


class Box:
    """One pixel: the levels that fall on it, and its corners on paper."""

    def __init__(self, rows: Table, x0: float, x1: float, y0: float, y1: float):
        self.rows, self.corners = rows, [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


class Chart:
    """Two axes, and panels for every other that varies."""

    def __init__(self, study: Study, x: str, y: str):
        levels = study.levels
        self.x, self.y = Axis.of(x, levels), Axis.of(y, levels)
        self.default = (study.axes[0], "N") if study.axes else None
        levels = levels.assign(_x=column(x, levels), _y=column(y, levels))
        used = self.x.used | self.y.used
        every = ["N", *study.axes] if levels["N"].nunique() > 1 else list(study.axes)
        self.rest = [axis for axis in every if axis not in used]
        self.all = grouped(levels, self.rest)
        self.groups = self.all[:MAX_PANELS]

    @property
    def N_up(self) -> bool:
        """Whether N* of a cell can stand at the cell's place along x."""
        return self.y.name == "N" and "N" not in self.x.used

    @property
    def slug(self) -> str:
        """The axes as a part of a file name."""
        return "-".join("".join(c if c.isalnum() else {"*": "x", "/": "-by-"}.get(c, "") for c in axis.name) for axis in (self.x, self.y))

    def canvas(self) -> tuple[Any, list[Any]]:
        figure, panels = canvas(len(self.groups))
        for ax, (heading, _) in zip(panels, self.groups, strict=True):
            ax.set_title(heading)
            ax.set_facecolor(UNTESTED["facecolor"])
            ax.patch.set(hatch=UNTESTED["hatch"], edgecolor=UNTESTED["edgecolor"])
            self.x.scale(ax, "x")
            self.y.scale(ax, "y")
        ends_x, ends_y = self.x.edges()[[0, -1]], self.y.edges()[[0, -1]]
        panels[0].set_xlim(*ends_x)
        panels[0].set_ylim(*ends_y)
        return figure, panels

    def boxes(self, rows: Table) -> list[Box]:
        """Pixels of what was tested; none is wider than the usual step, so that gaps stay gaps."""
        out = []
        edges = dict(zip(self.x.values, pairwise(self.x.edges()), strict=True))
        columns = [(value, mine) for value, mine in rows.groupby("_x", sort=True)]
        steps = [np.diff(np.log(self.y.place(sorted(set(mine["_y"]))))) for _, mine in columns] if self.y.numeric else []
        largest = [step.max() for step in steps if step.size]
        for value, mine in columns:
            tested = sorted(set(mine["_y"]), key=self.y.values.index)
            if self.y.numeric:
                ends = _capped(np.log(self.y.place(tested)), float(np.median(largest)) if largest else np.log(2))
            else:
                ends = {v: (at - 0.5, at + 0.5) for v, at in zip(tested, self.y.place(tested), strict=True)}.values()
            for v, (y0, y1) in zip(tested, ends, strict=True):
                out.append(Box(mine[mine["_y"] == v], *edges[value], y0, y1))
        return out

    def finish(self, figure: Any, panels: list[Any], entries: list[Any]) -> None:
        name_axes(figure, panels, self.x.label, self.y.label)
        above(figure, entries + [untested()] * self.gaps)

    @cached_property
    def gaps(self) -> bool:
        """Whether the pixels leave some of a panel open."""

        def area(corners: Any) -> float:
            (x0, y0), (x1, y1) = (
                [np.log(v) if axis.numeric else v for v, axis in zip(corner, (self.x, self.y), strict=True)] for corner in corners
            )
            return (x1 - x0) * (y1 - y0)

        ends = list(zip(self.x.edges()[[0, -1]], self.y.edges()[[0, -1]], strict=True))
        return any(sum(area(box.corners[::2]) for box in self.boxes(rows)) < 0.999 * area(ends) for _, rows in self.groups)


def _capped(at: np.ndarray, step: float) -> list[tuple[float, float]]:
    """Ends of each pixel along y: half way to its neighbours; half a usual step where they are farther than NEAR steps away."""
    middles = borders(at, log=False, most=step)
    ends = []
    for y, (a, b) in zip(at, pairwise(middles), strict=True):
        a, b = (end if abs(end - y) < NEAR * step / 2 else y + np.sign(end - y) * step / 2 for end in (a, b))
        ends.append((np.exp(a), np.exp(b)))
    return ends


def patches(boxes: list[Box]) -> Any:
    """Pixels to colour."""
    from matplotlib.collections import PolyCollection

    return PolyCollection([box.corners for box in boxes], linewidth=0.2, edgecolor="face", zorder=1)


def _entries(theta: float) -> dict[str, Any]:
    white = {"markerfacecolor": "white", "markeredgecolor": "black", "color": "black", "linestyle": "none", "markersize": 5}
    return {
        "fitted": line(f"N* at {theta:g}, fitted", **white | {"marker": "o", "linestyle": "-"}),
        "contour": line(f"fitted contour at {theta:g}", color="black"),
        **{state: line(name, marker=marker, **white) for state, (marker, name) in OPEN.items()},
        "theory": line("theory", color="black", linestyle=DASH),
    }


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


def _caption(study: Study, theta: float, several: int, gaps: bool) -> str:
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
    mixed = f" {several} pixels hold more than one cell and show their mean." if several else ""
    return f"{sentence}.{' Hatched: not tested.' * gaps}{mixed}"
