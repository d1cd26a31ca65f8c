"""The misfit of a law: the distance of its cells from it that noise does not explain.

Residuals have the shape (1 + seeds, cells): from all seeds, then with each seed left
out. The latter give the noise of the former by the jackknife.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy
from numpy import ndarray

from ...sweep.crossing import TAIL, jackknife

LEVEL = 0.03
"""The nominal probability with which noise alone rejects a true law.

The probability is up to 0.07 if few seeds have noise that differs between cells.
"""

LEAST_FREEDOM = 1.5
"""The degrees of freedom below which the misfit of clusters widens no interval, unless
the misfit is likely. With one degree of freedom, Student's t is 13.
"""

LIKELY = 0.1
"""The probability from noise alone below which a misfit is likely."""

SHARED = 0.001
"""The probability below which the errors of independent cells would be as alike."""

ALIKE = 0.5
"""The correlation of misfits above which cells along an axis are one cluster."""

ROUNDING = 1e-9  # error of ln N* that has no cause


class Misfit(NamedTuple):
    """The rms distance of ln N* from the law, the distance that noise alone would give,
    and the probability that noise alone gives such a distance or more.
    """

    rms: float
    noise: float
    chance: float

    @property
    def ratio(self) -> float:
        return self.rms / self.noise

    @property
    def is_certain(self) -> bool:
        return self.chance < LEVEL

    @property
    def is_likely(self) -> bool:
        return self.chance < LIKELY


def misfit(off: ndarray, free: int, n_seeds: int, shape: float) -> Misfit:
    """Returns the misfit of a law with the residuals `off`.

    The sum of squared residuals, divided by its expectation from noise, has an F
    distribution with f and f (S - 1) degrees of freedom (Box, "Some theorems on
    quadratic forms", Annals of Mathematical Statistics 25, 1954). The number f is
    tr(C)^2 / tr(C^2), where C is the covariance of the residuals. Its estimate from S
    seeds is that of Huynh and Feldt with Lecoutre's correction (Journal of Educational
    Statistics 16, 1991).

    Args:
        off: residuals (1 + seeds, cells) of ln N*.
        free: the number of distinct cells, less that of the unknowns.
        n_seeds: the number of seeds S, at least 2.
        shape: the variance of ln N* due to the unknown shape of curves.
    """
    n = n_seeds - 1
    apart = off[1:] - off[0]
    covariance = n / n_seeds * apart @ apart.T  # its traces are those of C
    total, squares = np.trace(covariance), (covariance**2).sum()
    above = (n + 1) * total**2 - 2 * squares
    below = n * squares - total**2
    f = np.clip(above / below, 1, free) if below > 0 else free
    noise = total / free + shape + ROUNDING**2
    square = (off[0] ** 2).sum() / free
    chance = scipy.special.fdtrc(f, f * n, square / noise)
    return Misfit(float(np.sqrt(square)), float(np.sqrt(noise)), float(chance))


def agreement(off: ndarray, n_seeds: int, cluster: ndarray) -> float:
    """The correlation of the misfits of two cells of one cluster; 0 without such cells.

    What noise adds to the squares and products of the residuals `off` is subtracted.
    `cluster` contains the number of each cell's cluster.
    """
    pairs = (np.bincount(cluster) ** 2).sum() - len(cluster)
    own = _beyond_noise(off, n_seeds).sum()
    if not pairs or own <= 0:
        return 0.0
    shared = _beyond_noise(_sums(off, cluster), n_seeds).sum() - own
    return float(shared / pairs / (own / len(cluster)))


def shared_errors(y: ndarray, n_seeds: int) -> float:
    """The mean correlation of the errors of two cells; 0 if it may be due to chance.

    y has the shape (1 + seeds, cells). If cells were independent, (S - 1) times the
    variance of the sum of their standardized errors, over the number of cells, would
    have a chi-squared distribution with S - 1 degrees of freedom.
    """
    apart = y[1:] - y[0]
    apart = apart[:, (apart**2).sum(axis=0) > 0]
    n_cells = apart.shape[1]
    if n_cells < 2:
        return 0.0
    apart = apart / np.sqrt((apart**2).sum(axis=0))
    ratio = (apart.sum(axis=1) ** 2).sum() / n_cells
    if scipy.special.chdtrc(n_seeds - 1, (n_seeds - 1) * ratio) > SHARED:
        return 0.0
    return float((ratio - 1) / (n_cells - 1))


def half_widths(
    design: ndarray,
    weights: ndarray,
    off: ndarray,
    n_seeds: int,
    clusterings: Iterable[ndarray],
    is_likely: bool,
) -> ndarray:
    """Returns the half width that misfit adds to the 95 % interval of each exponent.

    The misfits of different clusters are independent, and those of one cluster need not
    be. The variance is the estimate CR2 (Bell and McCaffrey, "Bias reduction in
    standard errors for linear regression with multi-stage samples", Survey Methodology
    28, 2002; Pustejovsky and Tipton, Journal of Business & Economic Statistics 36,
    2018), less what noise adds to it. Student's t has the degrees of freedom that Bell
    and McCaffrey give. The widest of the clusterings counts. One with fewer than
    LEAST_FREEDOM degrees of freedom counts only if the misfit is likely.

    Args:
        design: (cells, unknowns).
        weights: (axes, cells): the matrix that multiplies ln N* to give the exponents.
        off: residuals (1 + seeds, cells).
        n_seeds: the number of seeds.
        clusterings: arrays with the number of each cell's cluster.
        is_likely: whether noise alone hardly explains the residuals.
    """
    left, s, _ = np.linalg.svd(design, full_matrices=False)
    basis = left[:, s > 1e-9 * s[0]]
    widest = np.zeros(len(weights))
    for cluster in clusterings:
        adjusted = _adjusted(basis, np.nan_to_num(weights), cluster)
        for j, row in enumerate(adjusted):
            freedom = _freedom(basis, row, cluster)
            scores = _sums(row * off, cluster)
            variance = _beyond_noise(scores, n_seeds).sum()
            if variance > 0 and (is_likely or freedom >= LEAST_FREEDOM):
                half = scipy.special.stdtrit(freedom, TAIL) * np.sqrt(variance)
                widest[j] = max(widest[j], half)
    return widest


def _beyond_noise(y: ndarray, n_seeds: int) -> ndarray:
    """Returns the squares of y[0], less their jackknife variances over seeds."""
    return y[0] ** 2 - jackknife(y[1:] - y[0], n_seeds)


def _sums(values: ndarray, cluster: ndarray) -> ndarray:
    """Returns the sums over the cells of each cluster, (..., clusters)."""
    sums = np.zeros((*values.shape[:-1], cluster.max() + 1))
    np.add.at(sums.T, cluster, values.T)
    return sums


def _adjusted(basis: ndarray, weights: ndarray, cluster: ndarray) -> ndarray:
    """Returns weights (axes, cells) @ (1 - H)^(-1/2), cluster by cluster.

    H is the block of basis @ basis.T for the cells of the cluster. The power is that of
    the pseudoinverse.
    """
    adjusted = weights.copy()
    for i in range(cluster.max() + 1):
        members = np.flatnonzero(cluster == i)
        u, s, _ = np.linalg.svd(basis[members], full_matrices=False)
        rest = 1 - s**2
        factor = np.where(rest > 1e-9, rest.clip(1e-9) ** -0.5, 0.0) - 1
        adjusted[:, members] += weights[:, members] @ u * factor @ u.T
    return adjusted


def _freedom(basis: ndarray, adjusted: ndarray, cluster: ndarray) -> float:
    """The degrees of freedom of the variance, tr(B)^2 / tr(B^2).

    B is the covariance of the scores of the clusters if cells are independent, with one
    variance.
    """
    alone = _sums(adjusted**2, cluster)
    shared = _sums((adjusted[:, None] * basis).T, cluster)
    each = (shared**2).sum(axis=0)
    trace = (alone - each).sum()
    products = shared @ shared.T
    squares = (alone**2 - 2 * alone * each).sum() + (products**2).sum()
    return float(trace**2 / squares) if squares > 0 else 0.0
