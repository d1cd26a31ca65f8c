"""The best value of an axis, such as a rate, in each cell: chosen from the same runs, and anew without each seed.

Of a grid, the value is chosen at every level by the mean over seeds, and the curve of
those that were chosen is fitted. Of a search, whose levels differ from value to value,
each value has its crossing, and the one that comes first is chosen, along an axis on
which accuracy falls the last. What is best by chance looks better than it is; this bias
is measured by `python -m benchmarks.crossings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import FitError
from ...sweep.crossing import MIN_SEEDS, Crossing, Curve
from .cells import Cell, Family
from .estimate import Estimates, curve, interval

Option = tuple[Any, Cell]
"""A value of the axis, and the runs with it."""


def groups(family: Family, axis: str) -> list[list[Option]]:
    """The cells that differ in this axis alone, each group in the order of its values. Raises FitError."""
    if axis not in family.cells[0].at:
        raise FitError(f"best: got {axis!r}; allowed: an axis of the table: {', '.join(family.cells[0].at)}")
    found: dict[Any, list[Option]] = {}
    for cell in family.cells:
        rest = {name: value for name, value in cell.at.items() if name != axis}
        found.setdefault(tuple(rest.items()), []).append((cell.at[axis], replace(cell, at=rest, copy_of=None)))
    return list(found.values())


def without(family: Family, axis: str) -> Family:
    """The family without the axis."""
    return replace(family, cells=[options[0][1] for options in groups(family, axis)])


def estimates(family: Family, theta: float, edge: float, axis: str, searched: bool) -> Estimates:
    """The crossings at the best value of an axis."""
    choose = _by_crossing if searched else _by_level
    made = [choose(options, theta, edge, axis, family.falls) for options in groups(family, axis)]
    chosen, curves, found = (list(column) for column in zip(*made, strict=True))
    return Estimates(replace(family, cells=chosen), theta, curves, found)


def _by_level(options: Sequence[Option], theta: float, edge: float, axis: str, falls: bool) -> tuple[Cell, Curve, Crossing]:
    N = np.unique(np.concatenate([cell.N for _, cell in options]))
    k, n = np.zeros((2, len(options), *(len(N), options[0][1].n.shape[1])))
    for i, (_, cell) in enumerate(options):
        at = np.searchsorted(N, cell.N)
        k[i, at], n[i, at] = cell.k, cell.n

    def at_best(seeds: Any) -> tuple[Cell, Any]:
        """The cell of these seeds, and the number of the value that is chosen at each level."""
        with np.errstate(invalid="ignore"):
            mean = k[..., seeds].sum(axis=2) / n[..., seeds].sum(axis=2)
        best = np.where(np.isnan(mean), np.inf if falls else -np.inf, mean)
        number = best.argmin(axis=0) if falls else best.argmax(axis=0)
        at = number, np.arange(len(N))
        tried = n[at][:, seeds].any(axis=1)
        return replace(options[0][1], N=N[tried], k=k[at][tried][:, seeds], n=n[at][tried][:, seeds]), number[tried]

    S = n.shape[2]
    cell, number = at_best(np.arange(S))
    fitted = curve(cell, edge)
    found = fitted.crossing(theta)
    if found.side:
        return _with_value(cell, axis, [value for value, _ in options], number[-1]), fitted, found
    left_out = [s for s in range(S) if n[..., s].any()] if S > 1 else []
    again = {s: curve(at_best(np.delete(np.arange(S), s))[0], edge).crossing(theta).log_x for s in left_out}
    change = np.array([again.get(s, found.log_x) - found.log_x for s in range(S)])
    nearest = int(np.abs(fitted.x - found.log_x).argmin())
    return _with_value(cell, axis, [value for value, _ in options], number[nearest]), fitted, _chosen_anew(found, change)


def _by_crossing(options: Sequence[Option], theta: float, edge: float, axis: str, falls: bool) -> tuple[Cell, Curve, Crossing]:
    curves = [curve(cell, edge) for _, cell in options]
    found = [one.crossing(theta) for one in curves]
    sign = -1 if falls else 1
    S = options[0][1].n.shape[1]
    each = np.array([one.log_x + np.append(0.0, np.broadcast_to(one.without, S)) for one in found])
    first = sign * np.where(np.isnan(each), np.inf, sign * each).min(axis=0)
    i = int((sign * each[:, 0]).argmin())
    cell = _with_value(options[i][1], axis, [value for value, _ in options], i)
    return cell, curves[i], found[i] if found[i].side else _chosen_anew(found[i], first[1:] - first[0])


def _with_value(cell: Cell, axis: str, values: Sequence[Any], i: int) -> Cell:
    """The cell with the value that was chosen, and a warning where it is an end of a range of numbers."""
    numbers = len(values) > 1 and all(isinstance(value, (int, float)) for value in values)
    end = {0: "smallest", len(values) - 1: "largest"}.get(i) if numbers else None
    told = f"{axis} = {values[i]:g} is the {end} tried" if end else ""
    return replace(cell, names=cell.names | {axis: values[i]}, told=told)


def _chosen_anew(found: Crossing, change: Any) -> Crossing:
    """The crossing with an interval in which the value is chosen anew without each seed."""
    open_ends = (found.is_open[0] or bool((change == -np.inf).any()), found.is_open[1] or bool((change == np.inf).any()))
    change = np.where(np.isfinite(change), change, 0.0)
    found = found._replace(without=change, is_open=open_ends)
    if found.n_seeds < MIN_SEEDS:
        return found
    lo, hi = interval(found.log_x + np.append(0.0, change), found.n_seeds, found.shape_error)
    return found._replace(lo=lo, hi=hi)
