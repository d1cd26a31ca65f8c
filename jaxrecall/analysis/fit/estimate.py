"""The estimate of one family at one theta: ln N* of every
cell, the law through the cells that cross, and intervals.

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
from scipy.stats import norm
from scipy.stats import t as student

from .cells import Cell, Family, evidence
from .curve import Curve, bracket, crossing, shape_error, shapes, step

REPORTED = "local"
METHODS = {REPORTED: "monotone cubic through the logits of the isotonic accuracy, cell by cell; least squares through the cells"}
"""What the column `method` may hold, each with its meaning."""

OPEN = 0.025
"""A cell whose curve does not cross theta in more than
this share of the resamplings has no upper (or lower) end.
"""

MISFIT = 0.05
"""Distance of ln N* from the law (rms) that is worth a warning, if it is also more than twice the noise."""


MIN_SEEDS_FOR_INTERVAL = 6
"""With fewer seeds no interval is given: a bootstrap over so few is not reliable."""

LEVEL = 0.95
MIN_DRAWS = 0.5
"""Share of the resamplings that must give a number for an interval to be made of them."""


class Law:
    """ln N* = sum of exponent ln(axis) + one constant per combination of factor values, over `cells`.

    Least squares in which a cell and its copies have the weight of one cell. Every
    estimate of ln N* goes through `exponents`; of a joint fit, whose ln N* obey the law
    exactly, that returns the ratios of its coefficients.
    """

    def __init__(self, cells: Sequence[Cell], axes: Sequence[str], factors: Sequence[str]):
        self.axes = tuple(axes)
        groups = [tuple(cell.at[f] for f in factors) for cell in cells]
        kinds = list(dict.fromkeys(groups))
        constants = np.array([[g == kind for kind in kinds] for g in groups], dtype=float).reshape(len(cells), len(kinds))
        logs = np.log([[cell.at[axis] for axis in axes] for cell in cells]).reshape(len(cells), len(axes))
        self.design = np.hstack([constants, logs - logs.mean(axis=0)]) if len(cells) else np.zeros((0, len(axes)))
        self.rank = int(np.linalg.matrix_rank(self.design)) if self.design.size else 0
        self.evidence = evidence(cells)
        self.n_distinct = len(set(self.evidence))

    def share(self, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The weight of each cell in the regression, one
        over the number of its copies with itself: (cells,).
        """
        numbers = self.evidence[among]
        return 1 / np.bincount(numbers)[numbers] if len(numbers) else np.zeros(0)

    def exponents(self, y: np.ndarray) -> np.ndarray:
        """Least squares through ln N*, (resamplings, cells) ->
        (resamplings, axes); nan where the cells do not determine it.
        """
        out = np.full((len(y), len(self.axes)), np.nan)
        known = ~np.isnan(y)
        for pattern in np.unique(known, axis=0) if y.size else []:
            rows = (known == pattern).all(axis=1)
            out[rows] = y[np.ix_(rows, pattern)] @ self.weights(pattern).T
        return out

    def weights(self, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The weight of each cell in each exponent, (axes, cells);
        nan for an axis that is constant or moves with others.
        """
        first = self.design.shape[1] - len(self.axes)
        if not self.design[among].size:
            return np.full((len(self.axes), len(self.design[among])), np.nan)
        root = np.sqrt(self.share(among))
        design = self.design[among] * root[:, None]
        _, s, basis = np.linalg.svd(design)
        null = basis[(s > 1e-9 * s[0]).sum() :, first:]
        weights = np.linalg.pinv(design, rcond=1e-9)[first:] * root
        weights[(abs(null) > 1e-6).any(axis=0)] = np.nan
        return weights

    def residuals(self, y: np.ndarray) -> np.ndarray:
        """How far ln N* lies from the law, (resamplings, cells); a
        cell and its copies together have the square of one cell.
        """
        root = np.sqrt(self.share())
        design, y = self.design * root[:, None], y * root
        return y - y @ (design @ np.linalg.pinv(design, rcond=1e-9)).T


def interval(y: np.ndarray, n_seeds: int, shape: float = 0.0) -> tuple[float, float]:
    """95 % interval of an estimate from itself, y[0], and its
    resamplings, y[1:]; nan with fewer than MIN_SEEDS_FOR_INTERVAL seeds.

    Half width: t with S - 1 degrees of freedom times the bootstrap standard error times
    sqrt(S / (S - 1)), joined in squares by 1.96 times `shape`, an error that resampling
    cannot show.
    """
    drawn = y[1:][~np.isnan(y[1:])]
    if n_seeds < MIN_SEEDS_FOR_INTERVAL or np.isnan(y[0]) or len(drawn) < max(2, MIN_DRAWS * len(y[1:])):
        return np.nan, np.nan
    tail = (1 + LEVEL) / 2
    half = np.hypot(student.ppf(tail, n_seeds - 1) * drawn.std(ddof=1) * np.sqrt(n_seeds / (n_seeds - 1)), norm.ppf(tail) * shape)
    return y[0] - half, y[0] + half


class Misfit(NamedTuple):
    """Distance of ln N* from the law (rms), and the distance that noise alone would give."""

    rms: float
    noise: float


@dataclass(frozen=True)
class Estimates:
    """Of the table (row 0) and of its resamplings, (resamplings, cells): `y` = ln N*,
    nan where there is none; `side` as `bracket` gives it. `shape` is the error of ln N*
    from the unknown shape of each curve, (cells,).
    """

    family: Family
    theta: float
    curves: Sequence[Curve]
    side: np.ndarray
    y: np.ndarray
    shape: np.ndarray

    @property
    def asked(self) -> float:
        """Theta as a user gave it: `theta` is what k of n crosses, 1 less it where accuracy falls."""
        return self.family.mirrored(self.theta)

    @cached_property
    def inside(self) -> np.ndarray:
        """Which cells are in the law: those that cross, surely, (cells,)."""
        sure = ((self.side[1:] != 0).mean(axis=0) <= OPEN) if len(self.side) > 1 else True
        return (self.side[0] == 0) & sure

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells in the law."""
        return [cell for cell, is_in in zip(self.family.cells, self.inside, strict=True) if is_in]

    @cached_property
    def law(self) -> Law:
        return Law(self.cells, self.family.law, self.family.factors)

    @property
    def exponents(self) -> np.ndarray:
        """(resamplings, axes)"""
        return self.law.exponents(self.y[:, self.inside])

    def within(self, part: Family) -> Estimates:
        """The same estimates of some of the cells."""
        among = {id(cell) for cell in part.cells}
        at = [i for i, cell in enumerate(self.family.cells) if id(cell) in among]
        arrays = {"side": self.side[:, at], "y": self.y[:, at], "shape": self.shape[at]}
        return replace(self, family=part, curves=[self.curves[i] for i in at], **arrays)

    def shape_deviation(self, weights: np.ndarray) -> np.ndarray:
        """Standard deviation that the unknown shape of the curves gives
        weights @ ln N* of the law's cells, (..., cells) -> (...).

        All curves are taken to have one shape, whichever it is, so its error cancels in
        part: range over the shapes / sqrt(12). Where a rise falls between two levels,
        the cells err independently, and a cell and its copies as one.
        """
        by_shape, steps = self._shapes
        weights = np.nan_to_num(weights)
        copies = self.law.evidence[:, None] == np.unique(self.law.evidence)
        return np.hypot(np.ptp(weights @ by_shape, axis=-1), np.linalg.norm((weights * steps) @ copies, axis=-1)) / 12**0.5

    @cached_property
    def _shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the cells in the law: ln N* by shape, (cells, shapes),
        and the step that the whole rise falls into, (cells,).
        """
        mine = [c for c, is_in in zip(self.curves, self.inside, strict=True) if is_in]
        by_shape = np.array([shapes(c, self.theta) for c in mine]).reshape(len(mine), -1) if mine else np.zeros((0, 1))
        return by_shape, np.array([step(c, self.theta) for c in mine])

    @cached_property
    def misfit(self) -> Misfit | None:
        """How far the cells lie from the law; None with no more
        distinct cells than unknowns, or without resamplings.
        """
        free = self.law.n_distinct - self.law.rank
        if free < 1:
            return None
        off = self.law.residuals(self.y[:, self.inside])
        drawn = ((off[1:] - off[0]) ** 2).sum(axis=1)  # what the seeds share cancels here and in off
        noise = np.nanmean(drawn) / free + np.mean(self.shape[self.inside] ** 2) if np.isfinite(drawn).any() else np.nan
        return Misfit(float(np.sqrt((off[0] ** 2).sum() / free)), float(np.sqrt(noise)))

    @property
    def rejected(self) -> bool:
        """Whether the cells lie further from the law than the noise explains."""
        return self.misfit is not None and self.misfit.rms > max(2 * self.misfit.noise, MISFIT)

    def is_open(self, side: int) -> np.ndarray:
        """Cells that cross in the table but not surely: too many resamplings are `side`."""
        return (self.side[0] == 0) & ((self.side[1:] == side).mean(axis=0) > OPEN)


def estimate(family: Family, theta: float, curves: Sequence[Curve]) -> Estimates:
    """Where the curves of a family's cells cross theta (fraction), in the table and in each resampling."""
    side = np.stack([bracket(c, theta)[1] for c in curves], axis=1)
    y = np.stack([crossing(c, theta) for c in curves], axis=1)
    return Estimates(family, theta, curves, side, y, np.array([shape_error(c, theta) for c in curves]))
