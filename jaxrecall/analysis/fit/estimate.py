"""The estimate of one family at one theta: ln N* of every cell, their law, and
intervals.

Each cell's crossing is found by itself, from the levels around theta, and least squares
goes through the cells. That assumes no slope, ceiling or shape that cells would share,
so curves that level off cannot bend the exponents. The seed is the unit of the
intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from ...errors import FitError
from ...sweep.crossing import MIN_SEEDS, NORMAL, TAIL, Crossing, Curve
from .cells import Cell, Family, evidence
from .runs import Value

METHOD = "local"
METHOD_TEXT = (
    "local logistic regression of the accuracy, cell by cell; least squares through the"
    " cells"
)
"""What the column `method` holds, and its meaning."""

MISFIT = 0.05
"""Distance of ln N* from the law (rms) that is worth a warning, if it is also more than
twice the noise.
"""


class Law:
    """ln N* = sum of exponent ln(axis) + one constant per combination of factor values,
    over `cells`.

    Least squares in which a cell and its copies have the weight of one cell.
    """

    def __init__(
        self, cells: Sequence[Cell], axes: Sequence[str], factors: Sequence[str]
    ):
        self.axes = tuple(axes)
        groups = [tuple(cell.at[f] for f in factors) for cell in cells]
        kinds = list(dict.fromkeys(groups))
        constants = np.array(
            [[g == kind for kind in kinds] for g in groups], dtype=float
        ).reshape(len(cells), len(kinds))
        logs = np.log([[cell.at[axis] for axis in axes] for cell in cells]).reshape(
            len(cells), len(axes)
        )
        self.design = (
            np.hstack([constants, logs - logs.mean(axis=0)])
            if len(cells)
            else np.zeros((0, len(axes)))
        )
        self.rank = int(np.linalg.matrix_rank(self.design)) if self.design.size else 0
        self.evidence = evidence(cells)
        self.n_distinct = len(set(self.evidence))

    @cached_property
    def share(self) -> np.ndarray:
        """(cells,): weights in the regression, one over the number of a cell's copies
        with itself.
        """
        return 1 / np.bincount(self.evidence)[self.evidence]

    @cached_property
    def weights(self) -> np.ndarray:
        """(axes, cells): the weight of each cell in each exponent.

        Nan for an axis that is constant or moves with others.
        """
        if not len(self.design):
            return np.zeros((len(self.axes), 0))
        first, root = self.design.shape[1] - len(self.axes), np.sqrt(self.share)
        design = self.design * root[:, None]
        _, s, basis = np.linalg.svd(design)
        null = basis[(s > 1e-9 * s[0]).sum() :, first:]
        weights = np.linalg.pinv(design, rcond=1e-9)[first:] * root
        weights[(abs(null) > 1e-6).any(axis=0)] = np.nan
        return weights

    def exponents(self, y: np.ndarray) -> np.ndarray:
        """Least squares through ln N*, (estimates, cells) -> (estimates, axes).

        Nan where the cells do not determine it.
        """
        # one layout of y, as the last digits depend on it
        return (
            np.ascontiguousarray(y) @ self.weights.T
            if len(self.design)
            else np.full((len(y), len(self.axes)), np.nan)
        )

    def residuals(self, y: np.ndarray) -> np.ndarray:
        """(estimates, cells): how far ln N* lies from the law.

        A cell and its copies together have the square of one cell.
        """
        root = np.sqrt(self.share)
        design, y = self.design * root[:, None], y * root
        return y - y @ (design @ np.linalg.pinv(design, rcond=1e-9)).T


def squared_error(y: np.ndarray, n_seeds: int) -> np.ndarray:
    """The jackknife's squared standard error of y[0], from those without each seed,
    y[1:].

    It is (S - 1) / S times their squared distances.
    """
    return (n_seeds - 1) / n_seeds * np.nansum((y[1:] - y[0]) ** 2, axis=0)


def interval(y: np.ndarray, n_seeds: int, shape: float = 0.0) -> tuple[float, float]:
    """95 % interval of an estimate y[0], from those without each seed, y[1:].

    Nan with fewer than MIN_SEEDS seeds.
    Half width: t with S - 1 degrees of freedom times the standard error, joined in
    squares by 1.96 times `shape`, an error that seeds cannot show.
    """
    if n_seeds < MIN_SEEDS or np.isnan(y[0]):
        return np.nan, np.nan
    half = np.hypot(
        stdtrit(n_seeds - 1, TAIL) * np.sqrt(squared_error(y, n_seeds)), NORMAL * shape
    )
    return y[0] - half, y[0] + half


class Misfit(NamedTuple):
    """Distance of ln N* from the law (rms), and the distance that noise alone would
    give.
    """

    rms: float
    noise: float


@dataclass(frozen=True)
class Estimates:
    """Where the curves of a family's cells cross one theta."""

    family: Family
    theta: float
    curves: Sequence[Curve]
    found: Sequence[Crossing]

    @cached_property
    def side(self) -> np.ndarray:
        """0 if it crosses, 1 if accuracy stays below, -1 above, (cells,)."""
        return np.array([one.side for one in self.found])

    @cached_property
    def y(self) -> np.ndarray:
        """ln N*, and ln N* without each seed, (1 + seeds, cells); nan where there is
        none.
        """
        n_seeds = self.family.cells[0].n.shape[1]
        columns = [
            np.append(0.0, np.broadcast_to(one.without, n_seeds))
            + (np.nan if one.side else one.log_x)
            for one in self.found
        ]
        return np.stack(columns, axis=1)

    @property
    def asked(self) -> float:
        """Theta as a user gave it: `theta` is what k of n crosses, 1 less it where
        accuracy falls.
        """
        return self.family.mirrored(self.theta)

    @cached_property
    def inside(self) -> np.ndarray:
        """Which cells are in the law: those that cross, surely, (cells,)."""
        return np.array([one.side == 0 and not any(one.is_open) for one in self.found])

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells in the law."""
        return [
            cell
            for cell, is_in in zip(self.family.cells, self.inside, strict=True)
            if is_in
        ]

    @cached_property
    def law(self) -> Law:
        return Law(self.cells, self.family.law, self.family.factors)

    @property
    def exponents(self) -> np.ndarray:
        """(1 + seeds, axes): those of all seeds, and without each."""
        return self.law.exponents(self.y[:, self.inside])

    def within(self, among: Sequence[int]) -> Estimates:
        """The same estimates of some of the cells, without their curves."""
        cells, found = (
            [column[i] for i in among] for column in (self.family.cells, self.found)
        )
        return replace(
            self, family=replace(self.family, cells=cells), curves=(), found=found
        )

    def shape_deviation(self, weights: np.ndarray) -> np.ndarray:
        """The standard deviation that the unknown shape of the curves gives weights @
        ln N*.

        Weights are of the law's cells, (..., cells) -> (...).
        All curves are taken to have one shape, whichever it is, so its error cancels in
        part: range over the shapes / sqrt(12). Where a rise falls between two levels,
        the cells err independently, and a cell and its copies as one.
        """
        by_shape, steps = self._shapes
        weights = np.nan_to_num(weights)
        copies = self.law.evidence[:, None] == np.unique(self.law.evidence)
        return (
            np.hypot(
                np.ptp(weights @ by_shape, axis=-1),
                np.linalg.norm((weights * steps) @ copies, axis=-1),
            )
            / 12**0.5
        )

    @cached_property
    def _shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the cells in the law: ln N* by shape (cells, shapes), and the step of the
        rise (cells,).
        """
        mine = [
            one for one, is_in in zip(self.found, self.inside, strict=True) if is_in
        ]
        return np.array([one.shapes for one in mine]).reshape(
            len(mine), -1 if mine else 1
        ), np.array([one.step for one in mine])

    @cached_property
    def misfit(self) -> Misfit | None:
        """How far the cells lie from the law; None with no more distinct cells than
        unknowns.
        """
        free = self.law.n_distinct - self.law.rank
        if free < 1:
            return None
        off = self.law.residuals(self.y[:, self.inside])  # what the seeds share cancels
        shapes = [
            one.shape_error**2
            for one, is_in in zip(self.found, self.inside, strict=True)
            if is_in
        ]
        noise = squared_error(off, self.n_seeds).sum() / free + np.mean(shapes)
        return Misfit(float(np.sqrt((off[0] ** 2).sum() / free)), float(np.sqrt(noise)))

    @cached_property
    def n_seeds(self) -> int:
        """Seeds of the cells in the law."""
        return (
            int(np.any([(cell.n > 0).any(axis=0) for cell in self.cells], axis=0).sum())
            if self.cells
            else 0
        )

    @property
    def rejected(self) -> bool:
        """Whether the cells lie further from the law than the noise explains."""
        return self.misfit is not None and self.misfit.rms > max(
            2 * self.misfit.noise, MISFIT
        )


def curve(cell: Cell, edge: float) -> Curve:
    """The curve of a cell; accuracies nearer to 0 or 1 than `edge` count as so near."""
    with np.errstate(invalid="ignore"):
        return Curve(np.log(cell.N), (cell.k / cell.n).T, edge)


def of_means(family: Family, column: str) -> Estimates:
    """The mean of a column over seeds in place of N*: each level of each cell is a cell
    of its own.
    """
    cells, found = [], []
    for cell in family.cells:
        for level, k, n in zip(cell.N, cell.k, cell.n, strict=True):
            with np.errstate(invalid="ignore"):
                found.append(_mean(family.mirrored(k / n)))
            cells.append(
                Cell(
                    cell.at | {family.along: level}, np.array([level]), k[None], n[None]
                )
            )
    points = replace(
        family, cells=cells, powers=(*family.powers, family.along), what=column
    )
    return Estimates(points, np.nan, [], found)


def _mean(values: np.ndarray) -> Crossing:
    """ln of the mean of some seeds; nan where there is no run."""
    has = ~np.isnan(values)
    total, count = np.nansum(values), int(has.sum())
    if not total > 0:
        return Crossing(np.inf)
    rest = np.where(has, total - values, total) / np.where(
        has, max(count - 1, 1), count
    )
    alone = not (rest > 0).all()
    change = np.log(rest / (total / count), where=rest > 0, out=np.zeros(len(values)))
    log = float(np.log(total / count))
    return Crossing(
        log,
        n_seeds=count,
        without=change,
        shapes=np.array([log]),
        is_open=(alone, False),
    )


Option = tuple[Value, Cell]
"""A value of the axis, and the runs with it."""


def _options(family: Family, axis: str) -> list[list[Option]]:
    """The cells that differ in this axis alone, by its values; raises FitError."""
    if axis not in family.cells[0].at:
        raise FitError(
            f"best: got {axis!r}; allowed: an axis of the table:"
            f" {', '.join(family.cells[0].at)}"
        )
    found: dict[object, list[Option]] = {}
    for cell in family.cells:
        rest = {name: value for name, value in cell.at.items() if name != axis}
        found.setdefault(tuple(rest.items()), []).append(
            (cell.at[axis], replace(cell, at=rest, copy_of=None))
        )
    return list(found.values())


def without_axis(family: Family, axis: str) -> Family:
    """The family without one of its axes, of which the best value is taken."""
    return replace(family, cells=[options[0][1] for options in _options(family, axis)])


def of_best(family: Family, theta: float, edge: float, axis: str) -> Estimates:
    """The crossings at the best value of an axis, such as a rate, in each cell: the one
    whose curve crosses theta first.

    It is chosen from the same runs, and anew without each seed. Along an axis on which
    accuracy falls, it crosses last. What is best by chance looks better than it is;
    this bias is measured by `python -m benchmarks.crossings`.
    """
    made = [
        _first(options, theta, edge, axis, family.falls)
        for options in _options(family, axis)
    ]
    chosen, curves, found = (list(column) for column in zip(*made, strict=True))
    return Estimates(replace(family, cells=chosen), theta, curves, found)


def _first(
    options: Sequence[Option], theta: float, edge: float, axis: str, falls: bool
) -> tuple[Cell, Curve, Crossing]:
    """The cell that crosses first, with its curve, and its crossing with an interval of
    that choice.
    """
    curves = [curve(cell, edge) for _, cell in options]
    found = [one.crossing(theta) for one in curves]
    sign = -1 if falls else 1
    n_seeds = options[0][1].n.shape[1]
    each = np.array(
        [
            one.log_x + np.append(0.0, np.broadcast_to(one.without, n_seeds))
            for one in found
        ]
    )
    first = sign * np.where(np.isnan(each), np.inf, sign * each).min(axis=0)
    i = min(
        range(len(found)), key=lambda i: (sign * each[i, 0], -sign * curves[i].mean[-1])
    )  # if none crosses, the best at the last level
    cell = _with_value(options[i][1], axis, [value for value, _ in options], i)
    return (
        cell,
        curves[i],
        found[i] if found[i].side else _chosen_anew(found[i], first[1:] - first[0]),
    )


def _with_value(cell: Cell, axis: str, values: Sequence[Value], i: int) -> Cell:
    """The cell with the value that was chosen, and a warning where it is an end of a
    range.
    """
    numbers = len(values) > 1 and all(
        isinstance(value, (int, float)) for value in values
    )
    end = {0: "smallest", len(values) - 1: "largest"}.get(i) if numbers else None
    told = f"{axis} = {values[i]:g} is the {end} tried" if end else ""
    return replace(cell, names=cell.names | {axis: values[i]}, told=told)


def _chosen_anew(found: Crossing, change: np.ndarray) -> Crossing:
    """The crossing with an interval in which the value is chosen anew without each
    seed.
    """
    open_ends = (
        found.is_open[0] or bool((change == -np.inf).any()),
        found.is_open[1] or bool((change == np.inf).any()),
    )
    change = np.where(np.isfinite(change), change, 0.0)
    found = found._replace(without=change, is_open=open_ends)
    lo, hi = interval(
        found.log_x + np.append(0.0, change), found.n_seeds, found.shape_error
    )
    return found._replace(lo=lo, hi=hi)
