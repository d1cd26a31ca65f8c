"""Axes of the pictures: which one goes where, and how its values stand on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import FitError
from ...sweep.grid.expr import Expression, parse
from ..fit.cells import Family
from .study import varying
from .style import apart, label, log_axis, text, width_of

Table = Any  # pandas.DataFrame, whose own types say less than Any
APART = 1.75
"""How many steps 0 stands below the least positive value of a log axis."""


@dataclass(frozen=True)
class Roles:
    """`x` of the critical-N picture, what makes `lines`, what makes `panels`, and the two axes of each phase diagram."""

    x: str | None
    lines: str | None
    panels: tuple[str, ...]
    phases: tuple[tuple[str, str], ...]

    def one_for_lines(self, cells: Table, axes: Sequence[str]) -> tuple[str | None, list[str]]:
        """Where neither stands along x: of `lines` and `x` the one with more values makes the lines, and all other axes panels."""
        candidates = [axis for axis in (self.lines, self.x) if axis in axes]
        lines = max(candidates, key=lambda axis: cells[axis].nunique()) if candidates else None
        return lines, [axis for axis in axes if axis != lines]


def roles(
    families: Sequence[Family],
    x: str | None = None,
    lines: str | None = None,
    panels: Sequence[str] = (),
    phases: Sequence[Sequence[str]] = (),
) -> Roles:
    """The choices that were made, and good ones for the rest; raises FitError with everything that is wrong."""
    axes, problems = varying(families), []
    for name, given in (("x", [x] if x else []), ("lines", [lines] if lines else []), ("panels", list(panels))):
        for axis in given:
            if axis not in axes:
                problems.append(f"{name}: {axis!r}; allowed, as these vary: {', '.join(axes) or 'none'}")
    chosen = [axis for axis in (x, lines, *panels) if axis]
    if twice := sorted({axis for axis in chosen if chosen.count(axis) > 1}):
        problems.append(f"x, lines, panels: {', '.join(twice)} more than once; an axis has one place")
    cells = [{"N": 1} | cell.at for family in families for cell in family.cells]
    for axis in dict.fromkeys(axis for pair in phases for axis in pair if axis not in cells[0]):
        try:
            if unknown := sorted(_expression(axis).names - {*cells[0]}):
                allowed = f"{', '.join(cells[0])} and arithmetic, as in 'm * d'"
                problems.append(f"phase: {axis!r} has no {', '.join(unknown)}; allowed: {allowed}")
                continue
            for cell in cells:
                _expression(axis).evaluate(cell)
        except ValueError as error:
            problems.append(f"phase: {error}")
    problems += [f"phase: {a!r} twice; allowed: two axes" for a, b in phases if a == b]
    if problems:
        raise FitError(problems)
    rest = [axis for axis in axes if axis not in chosen]
    x = x or (rest.pop(0) if rest else None)
    lines = lines or (rest.pop(0) if rest else None)
    return Roles(x, lines, (*panels, *rest), tuple((a, b) for a, b in phases) or (((x, "N"),) if x else ()))


def _expression(axis: str) -> Expression:
    return parse(axis, calls=False)


@dataclass(frozen=True)
class Axis:
    """One axis on paper: a column, or arithmetic on columns. Numbers stand on a log axis, the rest evenly.

    0 stands apart, below a break of the log axis.
    """

    name: str
    values: tuple[Any, ...]  # tested, sorted
    used: frozenset[str]  # columns that it is made of

    @classmethod
    def of(cls, name: str, table: Table) -> Axis:
        found = {value for value in column(name, table) if value == value}
        used = frozenset([name]) if name in table else _expression(name).names
        return cls(name, tuple(sorted(found, key=lambda v: (isinstance(v, str), v))), used)

    @property
    def numeric(self) -> bool:
        return all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) and v >= 0 for v in self.values) and any(self.values)

    def place(self, values: Any) -> np.ndarray:
        """Where values stand: themselves, or their rank if they are no numbers."""
        if not self.numeric:
            rank = {value: float(i) for i, value in enumerate(self.values)}
            return np.array([rank.get(value, np.nan) for value in values])
        return np.array([float(v) or self._zero for v in values])

    @property
    def broken(self) -> bool:
        """Whether 0 is on an axis that is logarithmic."""
        return self.numeric and 0 in self.values

    @property
    def _positive(self) -> np.ndarray:
        return np.array([float(v) for v in self.values if v > 0])

    @property
    def _zero(self) -> float:
        """Where 0 stands: APART steps below the least positive value."""
        least, *more = self._positive
        return float(least * (least / (more[0] if more else 2 * least)) ** APART)

    def spans(self) -> list[tuple[float, float]]:
        """The stretch of paper that each value has; between those of 0 and of the least positive value there is the break."""
        if not self.broken:
            return list(pairwise(borders(self.place(self.values), self.numeric)))
        edges = borders(self._positive, True) if len(self._positive) > 1 else self._positive[0] * np.array([2**-0.5, 2**0.5])
        half = self._positive[0] / edges[0]
        return [(self._zero / half, self._zero * half), *pairwise(edges)]

    def ends(self) -> tuple[float, float]:
        """The first and the last end of the spans."""
        spans = self.spans()
        return spans[0][0], spans[-1][1]

    def scale(self, ax: Any, which: str) -> None:
        """Scale and ticks of `ax` along "x" or "y"."""
        from matplotlib.ticker import NullLocator

        axis = ax.xaxis if which == "x" else ax.yaxis
        if self.numeric:
            getattr(ax, f"set_{which}scale")("log")
        if self.name == "N":
            getattr(ax, f"set_{which}lim")(*self.ends())
            log_axis(axis)
            return
        if self.broken:
            self._break(ax, which)
        if not self.numeric or len(self.values) <= 9 or self.broken:
            at, labels = self.place(self.values), [text(v) for v in self.values]
            shown = range(len(at))
            if which == "x":
                shown = apart((np.log(at) if self.numeric else at).tolist(), labels, width_of(ax))
            axis.set_ticks([at[i] for i in shown], labels=[labels[i] for i in shown])
            axis.set_minor_locator(NullLocator())

    def _break(self, ax: Any, which: str) -> None:
        """Two strokes across the axis, and a blank strip, between 0 and the least positive value."""
        (_, low), (high, _) = self.spans()[:2]
        strip, blend = (ax.axvspan, ax.get_xaxis_transform()) if which == "x" else (ax.axhspan, ax.get_yaxis_transform())
        strip(low, high, facecolor="white", edgecolor="none", zorder=0.5)
        at = [low * (high / low) ** part for part in (0.35, 0.65)]
        places = (at, [0, 0]) if which == "x" else ([0, 0], at)
        stroke = {"marker": [(-0.5, -1), (0.5, 1)], "markersize": 7, "markeredgewidth": 0.8}
        ax.plot(*places, transform=blend, clip_on=False, zorder=5, linestyle="none", color="black", **stroke)

    @property
    def label(self) -> str:
        return label(self.name)


def borders(at: np.ndarray, log: bool, most: float = np.inf) -> np.ndarray:
    """Middles between neighbouring places and the same step beyond the ends."""
    at = np.log(at) if log else at
    step = np.diff(at) if len(at) > 1 else np.array([min(1.0, most)])
    out = np.concatenate([[at[0] - step[0] / 2], at[:-1] + np.diff(at) / 2 if len(at) > 1 else [], [at[-1] + step[-1] / 2]])
    return np.exp(out) if log else out


def column(name: str, table: Table) -> list[Any]:
    """The values of an axis, row by row, as plain Python."""
    if name in table:
        return table[name].tolist()
    expression = _expression(name)
    return [expression.evaluate(row) for row in table[sorted(expression.names)].to_dict("records")]
