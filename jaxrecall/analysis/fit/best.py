"""The best value of an axis, such as a rate, in each cell: the one whose curve crosses theta first.

It is chosen from the same runs, and anew without each seed. Along an axis on which accuracy falls,
it crosses last. What is best by chance looks better than it is; this bias is measured by
`python -m benchmarks.crossings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import FitError
from ...sweep.crossing import MIN_SEEDS, Crossing, Curve
from .axes import Value
from .cells import Cell, Family
from .estimate import Estimates, curve, interval

Option = tuple[Value, Cell]
"""A value of the axis, and the runs with it."""


def groups(family: Family, axis: str) -> list[list[Option]]:
    """The cells that differ in this axis alone, by its values; raises FitError."""
    if axis not in family.cells[0].at:
        raise FitError(f"best: got {axis!r}; allowed: an axis of the table: {', '.join(family.cells[0].at)}")
    found: dict[object, list[Option]] = {}
    for cell in family.cells:
        rest = {name: value for name, value in cell.at.items() if name != axis}
        found.setdefault(tuple(rest.items()), []).append((cell.at[axis], replace(cell, at=rest, copy_of=None)))
    return list(found.values())


def without(family: Family, axis: str) -> Family:
    """The family without the axis."""
    return replace(family, cells=[options[0][1] for options in groups(family, axis)])


def estimates(family: Family, theta: float, edge: float, axis: str) -> Estimates:
    """The crossings at the best value of an axis."""
    made = [_first(options, theta, edge, axis, family.falls) for options in groups(family, axis)]
    chosen, curves, found = (list(column) for column in zip(*made, strict=True))
    return Estimates(replace(family, cells=chosen), theta, curves, found)


def _first(options: Sequence[Option], theta: float, edge: float, axis: str, falls: bool) -> tuple[Cell, Curve, Crossing]:
    """The cell that crosses first, with its curve, and its crossing with an interval of that choice."""
    curves = [curve(cell, edge) for _, cell in options]
    found = [one.crossing(theta) for one in curves]
    sign = -1 if falls else 1
    n_seeds = options[0][1].n.shape[1]
    each = np.array([one.log_x + np.append(0.0, np.broadcast_to(one.without, n_seeds)) for one in found])
    first = sign * np.where(np.isnan(each), np.inf, sign * each).min(axis=0)
    i = min(range(len(found)), key=lambda i: (sign * each[i, 0], -sign * curves[i].mean[-1]))  # if none crosses, the best at the last level
    cell = _with_value(options[i][1], axis, [value for value, _ in options], i)
    return cell, curves[i], found[i] if found[i].side else _chosen_anew(found[i], first[1:] - first[0])


def _with_value(cell: Cell, axis: str, values: Sequence[Value], i: int) -> Cell:
    """The cell with the value that was chosen, and a warning where it is an end of a range."""
    numbers = len(values) > 1 and all(isinstance(value, (int, float)) for value in values)
    end = {0: "smallest", len(values) - 1: "largest"}.get(i) if numbers else None
    told = f"{axis} = {values[i]:g} is the {end} tried" if end else ""
    return replace(cell, names=cell.names | {axis: values[i]}, told=told)


def _chosen_anew(found: Crossing, change: np.ndarray) -> Crossing:
    """The crossing with an interval in which the value is chosen anew without each seed."""
    open_ends = (found.is_open[0] or bool((change == -np.inf).any()), found.is_open[1] or bool((change == np.inf).any()))
    change = np.where(np.isfinite(change), change, 0.0)
    found = found._replace(without=change, is_open=open_ends)
    if found.n_seeds < MIN_SEEDS:
        return found
    lo, hi = interval(found.log_x + np.append(0.0, change), found.n_seeds, found.shape_error)
    return found._replace(lo=lo, hi=hi)
