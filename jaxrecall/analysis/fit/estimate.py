"""Estimates ln N* for each cell of a family at one theta, and fits the law.

The crossing of each cell is computed from its own levels around theta. The law is then
a least-squares fit through the crossings. The method does not assume that cells share a
slope, a ceiling or a shape. Curves that level off therefore cannot bias the exponents.
Intervals treat the seed as the independent unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from ...sweep.crossing import MIN_SEEDS, NORMAL, TAIL, AnyCurve, Crossing, Curve
from ...sweep.summary import MEAN, Summary
from .cells import Cell, Family, check_axis, evidence, numbered
from .columns import AxisValue, without
from .misfit import ALIKE, Misfit, agreement, half_widths, misfit

METHOD = "local"
METHOD_TEXT = (
    "local logistic regression of the accuracy, cell by cell; least squares through the"
    " cells"
)
"""The explanation of METHOD, which is the value of the column `method`."""


class FittedLaw:
    """The law ln N* = constant + sum of exponent * ln(axis), fitted to `cells`.

    There is one constant for each combination of factor values. In the least squares, a
    cell and its copies together have the weight of one cell.
    """

    def __init__(
        self, cells: Sequence[Cell], axes: Sequence[str], factors: Sequence[str]
    ):
        self.axes = tuple(axes)
        self.evidence = evidence(cells)
        self.n_distinct = len(set(self.evidence))
        self.design, self.rank = np.zeros((0, len(axes))), 0
        if cells:
            kinds = numbered(cell.values(factors) for cell in cells)
            constants = np.eye(kinds.max() + 1)[kinds]
            logs = np.log([cell.values(axes) for cell in cells])
            self.design = np.hstack([constants, logs - logs.mean(axis=0)])
            self.rank = int(np.linalg.matrix_rank(self.design))

    @cached_property
    def share(self) -> np.ndarray:
        """(cells,): the weight of each cell in the regression.

        The weight is 1 / (1 + the number of the cell's copies).
        """
        return 1 / np.bincount(self.evidence)[self.evidence]

    @property
    def shared_design(self) -> np.ndarray:
        """The design in which a cell and its copies together count as one cell."""
        return self.design * np.sqrt(self.share)[:, None]

    @cached_property
    def weights(self) -> np.ndarray:
        """(axes, cells): the matrix that multiplies ln N* to give the exponents.

        The row of an axis is nan if the axis is constant or varies only together with
        other axes.
        """
        if not len(self.design):
            return np.zeros((len(self.axes), 0))
        first, root = self.design.shape[1] - len(self.axes), np.sqrt(self.share)
        design = self.shared_design
        _, s, basis = np.linalg.svd(design)
        null = basis[(s > 1e-9 * s[0]).sum() :, first:]
        weights = np.linalg.pinv(design, rcond=1e-9)[first:] * root
        weights[(abs(null) > 1e-6).any(axis=0)] = np.nan
        return weights

    def exponents(self, y: np.ndarray) -> np.ndarray:
        """Returns exponents (estimates, axes) for ln N* of shape (estimates, cells).

        An exponent is nan if the cells do not determine it.
        """
        if not len(self.design):
            return np.full((len(y), len(self.axes)), np.nan)
        # the last digits depend on the memory layout of y, so the layout is fixed
        return np.ascontiguousarray(y) @ self.weights.T

    def residuals(self, y: np.ndarray) -> np.ndarray:
        """(estimates, cells): the distances of ln N* from the law.

        The distances are scaled so that a cell and its copies together count as one
        cell in a sum of squares.
        """
        y = y * np.sqrt(self.share)
        solved = y @ np.linalg.pinv(self.shared_design, rcond=1e-9).T
        return y - solved @ self.shared_design.T


def squared_error(y: np.ndarray, n_seeds: int) -> np.ndarray:
    """The squared standard error of y[0] by the jackknife.

    y[0] is the estimate from all S seeds, and y[1:] are the estimates that leave out
    one seed each. The result is (S - 1) / S times the sum of the squared differences
    between y[1:] and y[0].
    """
    return (n_seeds - 1) / n_seeds * np.nansum((y[1:] - y[0]) ** 2, axis=0)


def interval(y: np.ndarray, n_seeds: int, shape: float = 0.0) -> tuple[float, float]:
    """Returns the two ends of the 95 % interval of an estimate y[0].

    y[1:] are the estimates that leave out one of the S seeds each. Both ends are nan if
    there are fewer than MIN_SEEDS seeds. The half-width is sqrt(a^2 + b^2). Here a is
    the standard error times Student's t with S - 1 degrees of freedom, and b is 1.96
    times `shape`. The number `shape` is the standard deviation of an error that all
    seeds share.
    """
    if n_seeds < MIN_SEEDS or np.isnan(y[0]):
        return np.nan, np.nan
    error = stdtrit(n_seeds - 1, TAIL) * np.sqrt(squared_error(y, n_seeds))
    half = np.hypot(error, NORMAL * shape)
    return y[0] - half, y[0] + half


class ExponentInterval(NamedTuple):
    """A 95 % interval, and what determines it: seeds, or cells if they widen it."""

    low: float
    high: float
    by: str


@dataclass(frozen=True)
class Estimates:
    """The curves of a family's cells, and the points where they cross theta."""

    family: Family
    theta: float
    curves: Sequence[AnyCurve]
    found: Sequence[Crossing]
    asked: float | None = None  # theta of a summary that is not the mean

    @cached_property
    def side(self) -> np.ndarray:
        """(cells,): 0 if the curve crosses theta, 1 if it stays below theta, -1 if it
        stays above theta.
        """
        return np.array([one.side for one in self.found])

    @cached_property
    def y(self) -> np.ndarray:
        """(1 + seeds, cells): ln N* from all seeds, then with each seed left out.

        The value is nan for a cell that does not cross theta.
        """
        n_seeds = self.family.cells[0].n.shape[1]
        y = np.stack([without_seeds(one, n_seeds) for one in self.found], axis=1)
        return np.where(self.side == 0, y, np.nan)

    @property
    def given_theta(self) -> float:
        """Theta as the user gave it.

        The field `theta` is the fraction that k / n crosses. If accuracy falls along
        the axis, this fraction is 1 - `given_theta`.
        """
        if self.asked is not None:
            return self.asked
        return self.family.mirrored(self.theta)

    @cached_property
    def sure(self) -> np.ndarray:
        """(cells,): whether each cell crosses theta with certainty."""
        return np.array([one.side == 0 and not any(one.is_open) for one in self.found])

    @cached_property
    def inside(self) -> np.ndarray:
        """(cells,): whether each cell is in the law.

        A cell is in the law if it crosses theta with certainty and has an interval. If
        no cell has an interval, none is needed, and exponents have none either.
        """
        enough = [one.n_seeds >= MIN_SEEDS for one in self.found]
        inside = self.sure & enough
        return inside if inside.any() else self.sure

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells in the law."""
        return list(compress(self.family.cells, self.inside))

    @cached_property
    def crossings(self) -> list[Crossing]:
        """The crossings of the cells in the law."""
        return list(compress(self.found, self.inside))

    @cached_property
    def law(self) -> FittedLaw:
        return self.law_of(self.cells)

    def law_of(self, cells: Sequence[Cell]) -> FittedLaw:
        """Returns the law with the family's axes, fitted to some cells."""
        return FittedLaw(cells, self.family.law, self.family.factors)

    @property
    def exponents(self) -> np.ndarray:
        """(1 + seeds, axes): exponents from all seeds, then with each seed left out."""
        return self.law.exponents(self.y[:, self.inside])

    def within(self, among: Sequence[bool]) -> Estimates:
        """Returns the estimates of the cells that a mask selects, without curves."""
        family = replace(self.family, cells=list(compress(self.family.cells, among)))
        found = list(compress(self.found, among))
        return replace(self, family=family, curves=(), found=found)

    def shape_deviation(self, weights: np.ndarray) -> np.ndarray:
        """The standard deviation of weights @ ln N* that the unknown shape of the
        curves causes.

        `weights` has shape (..., cells), with the cells of the law. The result has
        shape (...). There are two contributions. First, all curves are assumed to have
        the same unknown shape, so that part of the error cancels between cells. This
        contribution is the range of weights @ ln N* over the possible shapes, divided
        by sqrt(12). Second, if a curve rises within one step between two levels, the
        position of the crossing within the step is unknown. This error is independent
        between cells, but a cell and its copies share it.
        """
        if not self.cells:
            return np.zeros(weights.shape[:-1])
        by_shape = np.array([one.shapes for one in self.crossings])
        steps = np.array([one.step for one in self.crossings])
        weights = np.nan_to_num(weights)
        copies = self.law.evidence[:, None] == np.unique(self.law.evidence)
        shared = np.ptp(weights @ by_shape, axis=-1)
        apart = np.linalg.norm((weights * steps) @ copies, axis=-1)
        return np.hypot(shared, apart) / 12**0.5

    @cached_property
    def residuals(self) -> np.ndarray:
        """(1 + seeds, cells): residuals from all seeds, then with each left out."""
        # a common shift of all cells cancels
        return self.law.residuals(self.y[:, self.inside])

    @cached_property
    def misfit(self) -> Misfit | None:
        """The misfit of the law; None if nothing checks the law.

        This is so if there are no more distinct cells than unknowns, or one seed.
        """
        free = self.law.n_distinct - self.law.rank
        if free < 1 or self.n_seeds < 2:
            return None
        shapes = [one.shape_error**2 for one in self.crossings]
        return misfit(self.residuals, free, self.n_seeds, float(np.mean(shapes)))

    def intervals(self) -> list[ExponentInterval]:
        """Returns the 95 % interval of each exponent.

        It is the seeds' interval, widened by the misfit of the cells. The squares of
        the two half widths add up.
        """
        shape, found = self.shape_deviation(self.law.weights), self.exponents
        beyond = np.zeros(len(self.family.law))
        if self.misfit and self.n_seeds >= MIN_SEEDS:
            beyond = half_widths(
                self.law.shared_design,
                self.law.weights / np.sqrt(self.law.share),
                self.residuals,
                self.n_seeds,
                self._clusterings(),
                self.misfit.is_likely,
            )
        intervals = []
        for j, half in enumerate(beyond):
            low, high = interval(found[:, j], self.n_seeds, shape[j])
            middle, wider = found[0, j], np.hypot((high - low) / 2, half)
            by = "cells" if half > 0 else "seeds"
            if np.isnan(low):
                by = ""
            intervals.append(ExponentInterval(middle - wider, middle + wider, by))
        return intervals

    def _clusterings(self) -> list[np.ndarray]:
        """Returns arrays with the number of each cell's cluster: each cell alone, and
        all cells that differ only in axes along which misfits agree.

        For example, the power law may be wrong in V and d and right in L. Then the
        cells of one V and d share a misfit, and each V and d counts once.
        """
        axes = self.family.varying
        agreed = {}
        for axis in axes:
            lines = self._clusters(without(axes, [axis]))
            agreed[axis] = agreement(self.residuals, self.n_seeds, lines)
        alike = sorted(axes, key=agreed.__getitem__)[1:]
        alike = [axis for axis in alike if agreed[axis] > ALIKE]
        clusterings = [self._clusters(axes)]
        if alike:
            clusterings.append(self._clusters(without(axes, alike)))
        return clusterings

    def _clusters(self, axes: Sequence[str]) -> np.ndarray:
        """The number of each cell's cluster, where cells with equal axes are one.

        A copy is in the cluster of its original.
        """
        origins = [cell.copy_of or cell.at for cell in self.cells]
        return numbered(tuple(at[axis] for axis in axes) for at in origins)

    @cached_property
    def n_seeds(self) -> int:
        """The number of seeds with runs in the cells of the law."""
        has_run = [(cell.n > 0).any(axis=0) for cell in self.cells]
        return int(np.any(has_run, axis=0).sum())

    @property
    def rejected(self) -> bool:
        """Whether the cells lie further from the law than noise explains."""
        return self.misfit is not None and self.misfit.is_certain


def summarised(family: Family, summary: Summary, theta: float) -> Family:
    """Returns the family with the numbers whose mean over seeds the summary compares.

    `theta` rises along the axis, as the values of the cells do.
    """
    if summary == MEAN:
        return family
    cells = []
    for cell in family.cells:
        has = cell.n > 0
        values = cell.k / np.where(has, cell.n, 1)
        k = np.where(has, summary.values(values, theta, family.falls), 0.0)
        cells.append(replace(cell, k=k, n=has.astype(float)))
    return replace(family, cells=cells, is_fraction=True)


def curve(cell: Cell, family: Family, edge: float) -> AnyCurve:
    """Returns the curve of a cell of a family.

    Mean fractions are clipped to the range from `edge` to 1 - `edge`.
    """
    with np.errstate(invalid="ignore"):
        values = (cell.k / cell.n).T
    if family.is_fraction:
        return Curve(np.log(cell.N), values, edge)
    return AnyCurve(np.log(cell.N), values, family.falls)


def without_seeds(found: Crossing, n_seeds: int) -> np.ndarray:
    """(1 + seeds,): ln N* from all seeds, then with each seed left out."""
    return found.log_x + np.append(0.0, np.broadcast_to(found.without, n_seeds))


def split_by_level(family: Family, column: str) -> Family:
    """Returns the family with each level of each cell as a separate cell.

    The law of a column is fitted to such a family.
    """
    cells = []
    for cell in family.cells:
        for level, k, n in zip(cell.N, cell.k, cell.n, strict=True):
            at = cell.at | {family.along: level}
            cells.append(Cell(at, np.array([level]), k[None], n[None]))
    powers = (*family.powers, family.along)
    return replace(family, cells=cells, powers=powers, what=column)


def estimate_means(family: Family) -> Estimates:
    """Returns estimates in which the mean over seeds replaces N* in each cell.

    Each cell must have only one level, as in the results of `split_by_level`.
    """
    with np.errstate(invalid="ignore"):
        found = [_mean(family.mirrored(cell.k[0] / cell.n[0])) for cell in family.cells]
    return Estimates(family, np.nan, [], found)


def _mean(values: np.ndarray) -> Crossing:
    """Returns a crossing whose log_x is ln of the mean of `values` over seeds.

    A seed without a run has the value nan. log_x is inf if the mean is not positive.
    """
    has = ~np.isnan(values)
    total, count = np.nansum(values), int(has.sum())
    if not total > 0:
        return Crossing(np.inf)
    others = np.where(has, total - values, total)
    rest = others / np.where(has, max(count - 1, 1), count)
    change = np.log(rest / (total / count), where=rest > 0, out=np.zeros(len(values)))
    log = float(np.log(total / count))
    return Crossing(
        log,
        n_seeds=count,
        without=change,
        shapes=np.array([log]),
        is_open=(not (rest > 0).all(), False),
    )


class Option(NamedTuple):
    """A value of an axis, and the cell that contains the runs with this value."""

    value: AxisValue
    cell: Cell


def _options(family: Family, axis: str) -> list[list[Option]]:
    """Returns lists of options, where the cells of a list differ in this axis alone.

    Raises FitError if `axis` is not an axis of the family.
    """
    check_axis("best", axis, family.cells[0].at)
    found: dict[object, list[Option]] = {}
    for cell in family.cells:
        rest = dict(cell.at)
        value = rest.pop(axis)
        option = Option(value, replace(cell, at=rest, copy_of=None))
        found.setdefault(tuple(rest.items()), []).append(option)
    return list(found.values())


def without_axis(family: Family, axis: str) -> Family:
    """Returns the family with one axis removed.

    Cells that differ in this axis alone become one cell.
    """
    cells = [options[0].cell for options in _options(family, axis)]
    return replace(family, cells=cells)


def estimate_at_best(family: Family, theta: float, edge: float, axis: str) -> Estimates:
    """Returns the crossing of each cell at the best value of an axis, such as a rate.

    The best value is the one whose curve crosses theta first, or last if accuracy falls
    along the curve. The same runs determine the best value and the crossing. The value
    is chosen again whenever a seed is left out. The choice favours values that are good
    by chance, so the chosen value seems better than it is. The command `python
    results/coverage.py tables` measures this bias.
    """
    sign = -1 if family.falls else 1
    chosen = [
        _first(options, family, theta, edge, axis, sign)
        for options in _options(family, axis)
    ]
    cells, curves, found = map(list, zip(*chosen, strict=True))
    return Estimates(replace(family, cells=cells), theta, curves, found)


def _first(
    options: Sequence[Option],
    family: Family,
    theta: float,
    edge: float,
    axis: str,
    sign: int,
) -> tuple[Cell, AnyCurve, Crossing]:
    """Returns the cell that crosses theta first, its curve, and its crossing.

    If the sign is -1, this is the cell that crosses last. The interval of the crossing
    accounts for the choice.
    """
    curves = [curve(option.cell, family, edge) for option in options]
    found = [one.crossing(theta) for one in curves]
    n_seeds = options[0].cell.n.shape[1]
    each = sign * np.array([without_seeds(one, n_seeds) for one in found])
    # if none crosses, use the one with the best accuracy at the last level
    i = min(range(len(found)), key=lambda i: (each[i, 0], -sign * curves[i].mean[-1]))
    crossing = found[i]
    if crossing.side == 0:
        first = sign * np.where(np.isnan(each), np.inf, each).min(axis=0)
        crossing = _chosen_anew(crossing, first[1:] - first[0])
    return _with_value(options, i, axis), curves[i], crossing


def _with_value(options: Sequence[Option], i: int, axis: str) -> Cell:
    """Returns the cell with the chosen value of the axis.

    The cell gets a warning if the value is the smallest or the largest number that was
    tried.
    """
    value, cell = options[i]
    ends = {0: "smallest", len(options) - 1: "largest"}
    is_range = all(isinstance(option.value, (int, float)) for option in options)
    told = ""
    if len(options) > 1 and is_range and i in ends:
        told = f"{axis} = {value:g} is the {ends[i]} tried"
    return replace(cell, names=cell.names | {axis: value}, told=told)


def _chosen_anew(found: Crossing, change: np.ndarray) -> Crossing:
    """Returns the crossing with an interval that accounts for the choice of the value.

    For each seed, `change` contains the change of ln N* when the seed is left out and
    the value is chosen again.
    """
    open_below, open_above = found.is_open
    is_open = (
        open_below or bool((change == -np.inf).any()),
        open_above or bool((change == np.inf).any()),
    )
    change = np.where(np.isfinite(change), change, 0.0)
    found = found._replace(without=change, is_open=is_open)
    y = without_seeds(found, len(change))
    lo, hi = interval(y, found.n_seeds, found.shape_error)
    return found._replace(lo=lo, hi=hi)
