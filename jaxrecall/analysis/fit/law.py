"""The law N* ~ product of axis^exponent over the cells of a family, and intervals that take the seed as the unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from .cells import Cell, evidence

MIN_SEEDS_FOR_INTERVAL = 6
"""With fewer seeds no interval is given: a bootstrap over so few is not reliable."""

LEVEL = 0.95
MIN_DRAWS = 0.5
"""Share of the resamplings that must give a number for an interval to be made of them."""


class Law:
    """ln N* = sum of exponent ln(axis) + one constant per combination of factor values, over `cells`.

    Least squares in which a cell and its copies have the weight of one cell. Every estimate of ln N* goes through `exponents`; of
    a joint fit, whose ln N* obey the law exactly, that returns the ratios of its coefficients.
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
        """The weight of each cell in the regression, one over the number of its copies with itself: (cells,)."""
        numbers = self.evidence[among]
        return 1 / np.bincount(numbers)[numbers] if len(numbers) else np.zeros(0)

    def exponents(self, y: np.ndarray) -> np.ndarray:
        """Least squares through ln N*, (resamplings, cells) -> (resamplings, axes); nan where the cells do not determine it."""
        out = np.full((len(y), len(self.axes)), np.nan)
        known = ~np.isnan(y)
        for pattern in np.unique(known, axis=0) if y.size else []:
            rows = (known == pattern).all(axis=1)
            out[rows] = y[np.ix_(rows, pattern)] @ self.weights(pattern).T
        return out

    def weights(self, among: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The weight of each cell in each exponent, (axes, cells); nan for an axis that is constant or moves with others."""
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
        """How far ln N* lies from the law, (resamplings, cells); a cell and its copies together have the square of one cell."""
        root = np.sqrt(self.share())
        design, y = self.design * root[:, None], y * root
        return y - y @ (design @ np.linalg.pinv(design, rcond=1e-9)).T


def interval(y: np.ndarray, n_seeds: int, shape: float = 0.0) -> tuple[float, float]:
    """95 % interval of an estimate from itself, y[0], and its resamplings, y[1:]; nan with fewer than MIN_SEEDS_FOR_INTERVAL seeds.

    Half width: t with S - 1 degrees of freedom times the bootstrap standard error times sqrt(S / (S - 1)), joined in squares
    by 1.96 times `shape`, an error that resampling cannot show.
    """
    drawn = y[1:][~np.isnan(y[1:])]
    if n_seeds < MIN_SEEDS_FOR_INTERVAL or np.isnan(y[0]) or len(drawn) < max(2, MIN_DRAWS * len(y[1:])):
        return np.nan, np.nan
    tail = (1 + LEVEL) / 2
    half = np.hypot(student.ppf(tail, n_seeds - 1) * drawn.std(ddof=1) * np.sqrt(n_seeds / (n_seeds - 1)), norm.ppf(tail) * shape)
    return y[0] - half, y[0] + half
