"""The law ln N* = constant + sum of exponent * ln(axis), and its intervals.

`Estimates` are the crossings of some cells, and a `Law` is that of cells inside it.

Least squares go through the crossings of the cells. The law does not assume that cells
share a slope, a ceiling or a shape, so curves that level off cannot bias the exponents.
Intervals treat the seed as the independent unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy
from numpy import ndarray

from ...sweep.crossing import (
    MIN_SEEDS,
    NORMAL,
    TAIL,
    AnyCurve,
    Crossing,
    jackknife,
)
from .cells import Family
from .columns import ColumnNames, Row, numbered, without
from .misfit import ALIKE, Misfit, agreement, half_widths, misfit


def interval(y: ndarray, n_seeds: int, shape: float = 0.0) -> tuple[float, float]:
    """Returns the two ends of the 95 % interval of an estimate y[0].

    y[1:] are the estimates that leave out one of the S seeds each. Both ends are nan if
    there are fewer than MIN_SEEDS seeds. The half-width is sqrt(a^2 + b^2). Here a is
    the standard error times Student's t with S - 1 degrees of freedom. The squared
    standard error is that of the jackknife, (S - 1) / S times the sum of the squared
    differences between y[1:] and y[0]. b is 1.96 times `shape`, the standard deviation
    of an error that all seeds share.
    """
    if n_seeds < MIN_SEEDS or np.isnan(y[0]):
        return np.nan, np.nan
    squared_error = jackknife(y[1:] - y[0], n_seeds)
    error = scipy.special.stdtrit(n_seeds - 1, TAIL) * np.sqrt(squared_error)
    half = np.hypot(error, NORMAL * shape)
    return y[0] - half, y[0] + half


class Estimate(NamedTuple):
    """An estimate, its 95 % interval, and what determines the interval: seeds, or cells
    if they widen it.
    """

    value: float
    low: float
    high: float
    by: str

    def columns(self, name: str) -> Row:
        """Returns columns of the exponential of the estimate and of its interval."""
        value, low, high = np.exp(self[:3])
        return {name: value, f"{name}_lo": low, f"{name}_hi": high}


@dataclass(frozen=True)
class Estimates:
    """The points where the curves of a family's cells cross theta.

    Attributes:
        family: the cells.
        theta: theta as the user gave it; nan for the law of a mean.
        level: what the means of k / n cross. It differs from theta if accuracy falls
            along the axis, or if a median crosses theta.
        curves: the curve of each cell. It is None for a cell without a number, and in
            the law of a mean.
        crossings: where each cell crosses theta.
        cautions: a warning about each cell, or an empty text.
    """

    family: Family
    theta: float
    level: float
    curves: Sequence[AnyCurve | None]
    crossings: Sequence[Crossing]
    cautions: ColumnNames = ()

    @cached_property
    def log_x(self) -> ndarray:
        """(1 + seeds, cells): ln N* from all seeds, then with each seed left out.

        Cells that do not cross theta have infinite values.
        """
        if not self.crossings:
            return np.empty((1, 0))
        n_seeds = self.family.cells[0].n.shape[1]
        columns = []
        for crossing in self.crossings:
            change = np.broadcast_to(crossing.without, n_seeds)
            columns.append(crossing.log_x + np.append(0.0, change))
        return np.array(columns).T  # the last digits of sums depend on this layout

    @cached_property
    def sure(self) -> ndarray:
        """(cells,): whether each cell crosses theta with certainty."""
        return np.array([c.side == 0 and not any(c.is_open) for c in self.crossings])

    @cached_property
    def inside(self) -> ndarray:
        """(cells,): whether each cell is in the law.

        A cell is in the law if it crosses theta with certainty and has an interval. If
        no cell has an interval, none is needed, and exponents have none either.
        """
        enough = [crossing.n_seeds >= MIN_SEEDS for crossing in self.crossings]
        inside = self.sure & enough
        return inside if inside.any() else self.sure

    @cached_property
    def law(self) -> Law:
        """The law of the cells inside it."""
        inside = vars(self.take(np.flatnonzero(self.inside)))
        return Law(**inside, axes=self.family.law, factors=self.family.factors)

    def take(self, cells: Sequence[int] | ndarray) -> Self:
        """Returns the estimates of some cells."""
        lists = {}
        for name in ("curves", "crossings", "cautions"):
            each = getattr(self, name)
            lists[name] = [each[i] for i in cells] if len(each) else each
        return replace(self, family=self.family.take(cells), **lists)


@dataclass(frozen=True)
class Law(Estimates):
    """The law of some cells, all of which are in it.

    There is one constant for each combination of values of `factors`. In the least
    squares, a cell and its copies together have the weight of one cell.

    Attributes:
        axes: the axes that get an exponent.
        factors: the other axes that vary.
    """

    axes: ColumnNames = ()
    factors: ColumnNames = ()

    @cached_property
    def n_seeds(self) -> int:
        """The number of seeds with runs in the cells."""
        has_run = [(cell.n > 0).any(axis=0) for cell in self.family.cells]
        return int(np.any(has_run, axis=0).sum())

    @cached_property
    def evidence(self) -> ndarray:
        """(cells,): a number that is equal for a cell and its copies."""
        return numbered(self.family.origin, [*self.family.origin])

    @property
    def n_distinct(self) -> int:
        return len(np.unique(self.evidence))

    @cached_property
    def weight(self) -> ndarray:
        """(cells,): the root of each cell's weight, 1 / (1 + its number of copies)."""
        return np.sqrt(1 / np.bincount(self.evidence)[self.evidence])

    @cached_property
    def design(self) -> ndarray:
        """(cells, unknowns): the weighted constants, then the logs of the axes."""
        at = self.family.at
        kinds = numbered(at, self.factors)
        constants = np.eye(kinds.max(initial=-1) + 1)[kinds]
        logs = np.log(at[[*self.axes]].to_numpy(float))
        logs -= logs.sum(axis=0) / max(len(logs), 1)
        return np.hstack([constants, logs]) * self.weight[:, None]

    @cached_property
    def _null(self) -> ndarray:
        """(directions, unknowns): the directions that the cells do not determine."""
        _, s, basis = np.linalg.svd(self.design)
        return basis[(s > 1e-9 * s.max(initial=0.0)).sum() :]

    @property
    def n_free(self) -> int:
        """The number of distinct cells, less that of the unknowns."""
        n_unknowns = self.design.shape[1] - len(self._null)
        return self.n_distinct - n_unknowns

    @cached_property
    def weights(self) -> ndarray:
        """(axes, cells): the matrix that multiplies ln N* to give the exponents.

        The row of an axis is nan if the axis is constant or varies only together with
        other axes.
        """
        unknowns = np.eye(self.design.shape[1])
        return self._weights_of(unknowns[len(unknowns) - len(self.axes) :])

    def _weights_of(self, combinations: ndarray) -> ndarray:
        """Returns the matrix (combinations, cells) that multiplies ln N* to give linear
        combinations (combinations, unknowns) of the unknowns.

        The rows that the cells do not determine are nan.
        """
        solve = np.linalg.pinv(self.design, rcond=1e-9)
        weights = combinations @ solve * self.weight
        weights[(abs(combinations @ self._null.T) > 1e-6).any(axis=1)] = np.nan
        return weights

    def predict(
        self, cells: Sequence[int], sizes: float | Sequence[float]
    ) -> list[Estimate]:
        """Returns ln N* at some sizes, which are values of the axes, with the factors
        of each of the cells. At the size 1 of every axis, it is ln of the prefactor.
        """
        measured = self.family.at[[*self.axes]].to_numpy(float)[cells]
        constants = self.design[cells] / self.weight[cells, None]
        move = np.log(sizes) - np.log(measured)
        move = np.pad(move, ((0, 0), (constants.shape[1] - len(self.axes), 0)))
        return self.estimates(self._weights_of(constants + move))

    def residuals_of(self, y: ndarray) -> ndarray:
        """(estimates, cells): the distances of ln N* from the law.

        The distances are scaled so that a cell and its copies together count as one
        cell in a sum of squares.
        """
        y = y * self.weight
        solved = y @ np.linalg.pinv(self.design, rcond=1e-9).T
        return y - solved @ self.design.T

    @cached_property
    def residuals(self) -> ndarray:
        """(1 + seeds, cells): residuals from all seeds, then with each left out."""
        return self.residuals_of(self.log_x)  # a common shift of all cells cancels

    @cached_property
    def misfit(self) -> Misfit | None:
        """The misfit of the law; None if nothing checks the law.

        This is so if there are no more distinct cells than unknowns, or one seed.
        """
        if self.n_free < 1 or self.n_seeds < 2:
            return None
        return misfit(self.residuals, self.n_free, self.n_seeds, self.shape_variance)

    @property
    def shape_variance(self) -> float:
        """The mean variance of ln N* due to the unknown shape of curves."""
        shapes = [crossing.shape_error**2 for crossing in self.crossings]
        return float(np.mean(shapes))

    @property
    def rejected(self) -> bool:
        """Whether the cells lie further from the law than noise explains."""
        return self.misfit is not None and self.misfit.is_certain

    def shape_deviation(self, weights: ndarray) -> ndarray:
        """The standard deviation of weights @ ln N* that the unknown shape of the
        curves causes.

        `weights` has shape (..., cells), and the result has shape (...). There are two
        contributions. First, all curves are assumed to have the same unknown shape, so
        that part of the error cancels between cells. This contribution is the range of
        weights @ ln N* over the possible shapes, divided by sqrt(12). Second, if a
        curve rises within one step between two levels, the position of the crossing
        within the step is unknown. This error is independent between cells, but a cell
        and its copies share it.
        """
        if not self.crossings:
            return np.zeros(weights.shape[:-1])
        by_shape = np.array([crossing.shapes for crossing in self.crossings])
        steps = np.array([crossing.step for crossing in self.crossings])
        weights = np.nan_to_num(weights)
        copies = self.evidence[:, None] == np.unique(self.evidence)
        shared = np.ptp(weights @ by_shape, axis=-1)
        apart = np.linalg.norm((weights * steps) @ copies, axis=-1)
        return np.hypot(shared, apart) / 12**0.5

    def estimates(self, weights: ndarray) -> list[Estimate]:
        """Returns sums of ln N* with weights (sums, cells), and their 95 % intervals.
        Without cells, the sums are nan.

        An interval is that of the seeds, widened by the misfit of the cells. The
        squares of the two half widths add up.
        """
        # the last digits depend on the memory layout of y, so the layout is fixed
        sums = np.ascontiguousarray(self.log_x) @ weights.T
        if not self.crossings:
            sums[:] = np.nan
        shape = self.shape_deviation(weights)
        beyond = np.zeros(len(weights))
        if self.misfit and self.n_seeds >= MIN_SEEDS:
            beyond = half_widths(
                self.design,
                weights / self.weight,
                self.residuals,
                self.n_seeds,
                self._clusterings(),
                self.misfit.is_likely,
            )
        estimates = []
        for j, half in enumerate(beyond):
            low, high = interval(sums[:, j], self.n_seeds, shape[j])
            middle, wider = sums[0, j], np.hypot((high - low) / 2, half)
            by = "seeds"
            if half > 0:
                by = "cells"
            if np.isnan(low):
                by = ""
            estimates.append(Estimate(middle, middle - wider, middle + wider, by))
        return estimates

    def _clusterings(self) -> list[ndarray]:
        """Returns arrays with the number of each cell's cluster: each cell alone, and
        all cells that differ only in axes along which misfits agree.

        For example, the power law may be wrong in V and d and right in L. Then the
        cells of one V and d share a misfit, and each V and d counts once. A copy is in
        the cluster of its original.
        """
        axes, origin = [*self.axes, *self.factors], self.family.origin
        agreed = {}
        for axis in axes:
            lines = numbered(origin, without(axes, [axis]))
            agreed[axis] = agreement(self.residuals, self.n_seeds, lines)
        alike = sorted(axes, key=agreed.__getitem__)[1:]
        alike = [axis for axis in alike if agreed[axis] > ALIKE]
        clusterings = [numbered(origin, axes)]
        if alike:
            clusterings.append(numbered(origin, without(axes, alike)))
        return clusterings
