"""Two axes and what was tested on them: pixels, panels, and the background of a phase diagram or a map of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .axes import Axis, borders, column
from .study import Study
from .style import MAX_PANELS, UNTESTED, above, canvas, grouped, head, name_axes, untested

Table = Any  # pandas.DataFrame, whose own types say less than Any
NEAR = 1.6
"""A pixel reaches half way to its neighbour, if that is not farther than this many usual steps."""


class Box:
    """One pixel: the levels that fall on it, and its corners on paper."""

    def __init__(self, rows: Table, x0: float, x1: float, y0: float, y1: float):
        self.rows, self.corners = rows, [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


class Chart:
    """Two axes, and panels for every other that varies, so that a pixel is one cell at one N.

    Where values of an axis made of several columns, such as m * d, stand for more than one cell, those columns make panels too.
    """

    def __init__(self, study: Study, x: str, y: str):
        levels = study.levels
        self.x, self.y = Axis.of(x, levels), Axis.of(y, levels)
        self.default = (study.axes[0], "N") if study.axes else None
        levels = levels.assign(_x=column(x, levels), _y=column(y, levels))
        used = self.x.used | self.y.used
        every = ["N", *study.axes] if levels["N"].nunique() > 1 else list(study.axes)
        self.rest = [axis for axis in every if axis not in used]
        for axis in sorted(used, key=lambda axis: (axis == "N", levels[axis].nunique())):
            if not levels.duplicated(["_x", "_y", *self.rest]).any():
                break
            self.rest += [axis] * (axis not in self.rest and levels[axis].nunique() > 1)
        self.all = grouped(levels, self.rest)
        self.groups = grouped(levels, self.rest, MAX_PANELS)

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
        head(figure, panels, [heading for heading, _ in self.groups])
        for ax in panels:
            self.prepare(ax)
        return figure, panels

    def prepare(self, ax: Any) -> None:
        """Scales, limits and the background of what was not tested."""
        ax.set_facecolor(UNTESTED["facecolor"])
        ax.patch.set(hatch=UNTESTED["hatch"], edgecolor=UNTESTED["edgecolor"])
        self.x.scale(ax, "x")
        self.y.scale(ax, "y")
        ax.set_xlim(*self.x.ends())
        ax.set_ylim(*self.y.ends())

    def boxes(self, rows: Table) -> list[Box]:
        """Pixels of what was tested; none is wider than the usual step, so that gaps stay gaps.

        A row without a value has no place on an axis.
        """
        out, rows = [], rows.dropna(subset=["_x", "_y"])
        columns = [(value, mine) for value, mine in rows.groupby("_x", sort=True)]
        tested = sorted(set(rows["_x"]), key=self.x.values.index)
        ends_x = dict(zip(tested, _ends(self.x, tested, np.median(_steps(self.x, tested) or [np.log(2)])), strict=True))
        largest = [max(steps) for _, mine in columns if (steps := _steps(self.y, sorted(set(mine["_y"]), key=self.y.values.index)))]
        for value, mine in columns:
            tested = sorted(set(mine["_y"]), key=self.y.values.index)
            ends = _ends(self.y, tested, float(np.median(largest)) if largest else np.log(2))
            out += [Box(mine[mine["_y"] == v], *ends_x[value], *end) for v, end in zip(tested, ends, strict=True)]
        return out

    @property
    def remark(self) -> str:
        """Why an axis has panels of its own, and whether some panels are missing; for a caption."""
        apart = sorted((self.x.used | self.y.used) & {*self.rest})
        why = f" Panels of one {' and '.join(apart)} each: a pixel is one cell." if apart else ""
        return why + (f" {len(self.groups)} of {len(self.all)} panels are drawn." if len(self.groups) < len(self.all) else "")

    def finish(self, figure: Any, panels: list[Any], entries: list[Any]) -> None:
        name_axes(figure, panels, self.x.label, self.y.label)
        above(figure, entries + [untested()] * self.gaps)

    @cached_property
    def gaps(self) -> bool:
        """Whether the pixels leave some of a panel open."""

        def length(axis: Axis, low: float, high: float) -> float:
            return float(np.log(high / low)) if axis.numeric else high - low

        whole = np.prod([sum(length(axis, *span) for span in axis.spans()) for axis in (self.x, self.y)])
        for _, rows in self.groups:
            corners = [(box.corners[0], box.corners[2]) for box in self.boxes(rows)]
            if sum(length(self.x, x0, x1) * length(self.y, y0, y1) for (x0, y0), (x1, y1) in corners) < 0.999 * whole:
                return True
        return False


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
