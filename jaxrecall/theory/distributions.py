"""The nodes over which recall is averaged, and the distributions that the average
needs.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy.special import gammaincinv, ndtr, ndtri, pdtr, stdtr, stdtrit

from ..model.laws import Moments

NODES = 1024
"""The number of quasi-random nodes used to average over the embeddings, W_in, and the
count and the logit of the token's own label.
"""

LEVELS = 40
"""The largest number of terms in a sum over the possible counts of a wrong label. If
there are more, neighbouring counts are lumped.
"""


class Nodes(NamedTuple):
    """The variables over which recall is averaged, (NODES,) each. Each is a
    quasi-random uniform, or the quantile at this uniform.
    """

    key_length: ndarray  # |z_in(v)|^2
    trigger_length: ndarray  # |z_trig|^2
    cosine: ndarray  # between z_in(v) and z_trig
    label_length: ndarray  # |z_out(v)|^2
    rest_length: ndarray  # |Q|^2 without the own label, divided by its mean
    own_logit: ndarray  # minus its mean, divided by its standard deviation
    own_count: ndarray  # always kept as a uniform
    noise_cosine: ndarray  # between z_in(v) and the noise tokens of a sequence


@lru_cache(maxsize=64)
def quantiles(d: int, moments: Moments) -> Nodes:
    """Returns the nodes as quantiles in d dimensions: squared lengths, cosines and
    logits.
    """
    from scipy.stats import qmc  # slow to import

    sequence = qmc.Sobol(len(Nodes._fields), scramble=False)
    u = Nodes(*(sequence.random(NODES) + 0.5 / NODES).T)
    own_logit = ndtri(u.own_logit)
    if moments.overlap and not moments.random_length:
        own_logit = np.sqrt(d) * cosine(u.own_logit, d)
    return Nodes(
        key_length=row_length(u.key_length, d, moments),
        trigger_length=row_length(u.trigger_length, d, moments),
        cosine=cosine(u.cosine, d),
        label_length=row_length(u.label_length, d, moments),
        rest_length=chi_square(u.rest_length, d),
        own_logit=own_logit,
        own_count=u.own_count,
        noise_cosine=cosine(u.noise_cosine, d),
    )


def row_length(u: ndarray, d: int, moments: Moments) -> ndarray:
    """Returns quantiles of the squared length of an embedding."""
    if moments.random_length:
        return chi_square(u, d)
    return np.ones(NODES)


def chi_square(u: ndarray, d: int) -> ndarray:
    """Returns quantiles of a chi-square with d degrees of freedom, divided by d: mean
    1.
    """
    return 2 / d * gammaincinv(d / 2, u)


def cosine(u: ndarray, d: int) -> ndarray:
    """Returns quantiles of the cosine between two independent directions in d
    dimensions.
    """
    t = stdtrit(d - 1, u)
    return t / np.sqrt(d - 1 + t * t)


@cache
def normal_quadrature(n: int) -> tuple[ndarray, ndarray]:
    """Returns (n,) standard normal values and their weights, whose sum is 1: the nodes
    of a Gauss-Hermite quadrature.
    """
    values, weights = np.polynomial.hermite_e.hermegauss(n)
    return values, weights / weights.sum()


def normal_levels(n: int) -> ndarray:
    """Returns (n,) standard normal values of equal probability."""
    return ndtri((np.arange(n) + 0.5) / n)


class LabelCounts(NamedTuple):
    """The possible counts of a label and their probabilities, (levels,) each."""

    relative: ndarray  # counts divided by their mean
    chance: ndarray  # the probabilities of the counts

    def quantiles(self, u: ndarray) -> ndarray:
        """Returns the relative counts at the uniforms u."""
        level = np.searchsorted(np.cumsum(self.chance), u)
        return self.relative[np.minimum(level, len(self.relative) - 1)]


@lru_cache(maxsize=64)
def poisson_counts(mean: float) -> LabelCounts:
    """Returns the distribution of Poisson counts.

    If there are more than LEVELS counts, each group of neighbouring counts is replaced
    by its mean.
    """
    if mean == np.inf:
        return LabelCounts(np.ones(1), np.ones(1))
    low = np.floor(max(0, mean - 7 * mean**0.5))
    high = np.ceil(mean + 7 * mean**0.5 + 15)
    levels = min(int(high - low) + 1, LEVELS)
    last_of_level = np.round(np.linspace(low - 1, high, levels + 1))
    # a negative count gives nan
    chance = np.diff(np.nan_to_num(pdtr(last_of_level, mean)))
    part_of_mean = np.diff(np.nan_to_num(pdtr(last_of_level - 1, mean)))
    part_of_mean, chance = part_of_mean[chance > 0], chance[chance > 0]
    return LabelCounts(part_of_mean / chance, chance / chance.sum())


def poisson_quantiles(u: ndarray, mean: float) -> ndarray:
    """Returns quantiles of Poisson counts, which are normal if the mean is large."""
    from scipy.stats import poisson  # slow to import

    if mean > 1e6:
        return mean + np.sqrt(mean) * ndtri(u)
    return poisson.ppf(u, mean)


def upper_tail(z: ndarray, mean: ndarray, d: int, moments: Moments) -> ndarray:
    """The probability that a wrong logit exceeds its mean by z.

    `z` and `mean` are in standard deviations of the logit. On the sphere, a logit
    divided by sqrt(d) is a cosine that is spread around a direction;
    docs/theory-derivations.md, section 3.1.
    """
    if not moments.overlap or moments.random_length:
        return ndtr(-z)
    reached = tangent((mean + z) / np.sqrt(d))
    expected = tangent(mean / np.sqrt(d))
    return np.interp((reached - expected) * np.sqrt(d - 1), *student_tail(d))


def tangent(sine: ndarray) -> ndarray:
    sine = np.clip(sine, -0.999, 0.999)
    return sine / np.sqrt(1 - sine**2)


@lru_cache(maxsize=64)
def student_tail(d: int) -> tuple[ndarray, ndarray]:
    """Returns an array of values, and an array of the probabilities that a Student
    variable with d - 1 degrees of freedom exceeds each value.
    """
    values = np.linspace(-40, 40, 16001)
    return values, stdtr(d - 1, -values)


def normal_from_skewed(z: ndarray, skewness: ndarray) -> ndarray:
    """Returns the standard normal value that has the same quantile as the value z of a
    shifted gamma variable.

    The gamma variable has mean 0 and variance 1. The formula is the approximation by
    Wilson and Hilferty.
    """
    s = np.where(np.abs(skewness) < 1e-4, 1e-4, skewness)
    return 6 / s * (np.cbrt(s * z / 2 + 1) - 1) + s / 6
