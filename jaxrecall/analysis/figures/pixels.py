"""Maps: pixels over two axes, of what was tested and of nothing else, and level lines over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .axis import Axis, borders, column
from .grammar import Layer, Panel
from .style import UNTESTED, outline

Table = Any  # pandas.DataFrame, whose own types say less than Any
NEAR = 1.6
"""A pixel reaches half way to its neighbour, if that is not farther than this many usual steps."""

Corners = tuple[float, float, float, float]
"""Where a pixel begins and ends along x, and along y."""


@dataclass(frozen=True)
class Pixels(Layer):
    """A coloured pixel for each row with a value of `y`; no two rows of a panel share a place. What was not tested is hatched.

    Numbers have a scale of colours from `low` to `high`, with a mark at `mark`, and with `contour` a line where the values cross it.
    With `colours` the column holds their keys, each with its name. `gaps` says whether something was not tested.
    """

    y: str = "accuracy"
    name: str = ""
    low: float | None = 0.0
    high: float | None = 1.0
    mark: float | None = None
    contour: bool = False
    gaps: bool = False
    colours: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    def draw(self, panel: Panel) -> None:
        from matplotlib.collections import PolyCollection

        ax, rows = panel.ax, panel.rows(self.table)
        ax.set_facecolor(UNTESTED["facecolor"])
        ax.patch.set(hatch=UNTESTED["hatch"], edgecolor=UNTESTED["edgecolor"])
        found = [(corners, row) for corners, row in pixels(panel.x, panel.y or panel.x, rows) if row[self.y] == row[self.y]]
        corners = [[(a, c), (b, c), (b, d), (a, d)] for (a, b, c, d), _ in found]
        shown = PolyCollection(corners, linewidth=0.2, edgecolor="face", zorder=1)
        values = [row[self.y] for _, row in found]
        if self.colours:
            shown.set(facecolor=[self.colours[value][1] for value in values], edgecolor="white", linewidth=0.5)
        else:
            shown.set(array=values, cmap="viridis", clim=self._ends())
        ax.add_collection(shown)
        if self.contour and panel.y:
            self._contour(panel, panel.y, rows)

    def _contour(self, panel: Panel, y: Axis, rows: Table) -> None:
        """The line at `mark`, where values are known on all sides of it; none crosses the break of an axis."""
        z = np.full((len(y.values), len(panel.x.values)), np.nan)
        for a, b, value in zip(column(panel.x.name, rows), column(y.name, rows), rows[self.y], strict=True):
            if not ((panel.x.broken and a == 0) or (y.broken and b == 0)):
                z[y.values.index(b), panel.x.values.index(a)] = value
        if min(z.shape) > 1 and self.mark is not None and np.nanmin(z, initial=1) < self.mark < np.nanmax(z, initial=0):
            at = panel.x.place(panel.x.values), y.place(y.values)
            shown = panel.ax.contour(*at, np.ma.masked_invalid(z), levels=[self.mark], colors="black", linewidths=1.2, zorder=3)
            shown.set_path_effects(outline())

    def _ends(self) -> tuple[float, float]:
        """The ends of the scale of colours: those of the values unless given."""
        values = self.heights()
        return (
            float(np.nanmin(values) if self.low is None else self.low),
            float(np.nanmax(values) if self.high is None else self.high),
        )

    def finish(self, figure: Any, axes: Any) -> None:
        """The scale of the colours."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        if not self.colours:
            scale = ScalarMappable(Normalize(*self._ends()), "viridis")
            bar = figure.colorbar(scale, ax=axes, label=self.name or self.y, fraction=0.05, pad=0.02)
            if self.mark is not None:
                bar.ax.axhline(self.mark, color="black", linewidth=1.2)

    def heights(self) -> np.ndarray:
        return np.zeros(0) if self.colours else self.table[self.y].to_numpy(float)

    def entries(self) -> list[Any]:
        from matplotlib.patches import Patch

        there = set(self.table[self.y]) if self.colours else set()
        found = [Patch(color=colour, label=name) for value, (name, colour) in self.colours.items() if value in there]
        return found + [Patch(label="not tested", **UNTESTED)] * self.gaps


def has_gaps(x: Axis, y: Axis, panels: Sequence[Table]) -> bool:
    """Whether the pixels leave some of a panel open."""

    def length(axis: Axis, low: float, high: float) -> float:
        return float(np.log(high / low)) if axis.numeric else high - low

    whole = np.prod([sum(length(axis, *span) for span in axis.spans()) for axis in (x, y)])
    covered = [sum(length(x, a, b) * length(y, c, d) for (a, b, c, d), _ in pixels(x, y, rows)) for rows in panels]
    return bool(min(covered) < 0.999 * whole)


def pixels(x: Axis, y: Axis, rows: Table) -> Iterator[tuple[Corners, dict[str, Any]]]:
    """Each row with its pixel; none is wider than the usual step, so that gaps stay gaps. A row without a place has none."""
    placed = rows.assign(_x=column(x.name, rows), _y=column(y.name, rows)).dropna(subset=["_x", "_y"])
    tested = sorted(set(placed["_x"]), key=x.values.index)
    across = dict(zip(tested, _ends(x, tested, np.median(_steps(x, tested) or [np.log(2)])), strict=True))
    columns = [(value, mine, sorted(set(mine["_y"]), key=y.values.index)) for value, mine in placed.groupby("_x", sort=True)]
    largest = [max(steps) for *_, tested in columns if (steps := _steps(y, tested))]
    usual = float(np.median(largest)) if largest else np.log(2)
    for value, mine, tested in columns:
        up = dict(zip(tested, _ends(y, tested, usual), strict=True))
        for row in mine.to_dict("records"):
            yield (*across[value], *up[row["_y"]]), row


def _steps(axis: Axis, tested: Sequence[Any]) -> list[float]:
    """Distances between neighbours on a log axis, without 0."""
    return np.diff(np.log([float(v) for v in tested if v > 0])).tolist() if axis.numeric else []


def _ends(axis: Axis, tested: Sequence[Any], step: float) -> list[tuple[float, float]]:
    """The stretch of paper of each tested value, where `step` is usual between neighbours."""
    spans = dict(zip(axis.values, axis.spans(), strict=True))
    if not axis.numeric:
        return [spans[v] for v in tested]
    positive = [v for v in tested if v > 0]
    low, high = spans[min(v for v in axis.values if v > 0)][0], axis.ends()[1]
    capped = [(max(a, low), min(b, high)) for a, b in (_capped(np.log(axis.place(positive)), step) if positive else [])]
    return [spans[v] for v in tested if v == 0] + capped


def _capped(at: np.ndarray, step: float) -> list[tuple[float, float]]:
    """Ends of each pixel: half way to its neighbours; half a usual step where they are farther than NEAR steps away."""
    ends = []
    for y, (a, b) in zip(at, pairwise(borders(at, log=False, most=step)), strict=True):
        a, b = (end if abs(end - y) < NEAR * step / 2 else y + np.sign(end - y) * step / 2 for end in (a, b))
        ends.append((np.exp(a), np.exp(b)))
    return ends
