"""Accuracy, whether attention is locked or not; docs/theory.md, section 4.

Ours, not the paper's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri

from .locked import locked_accuracy
from .model import Model, check_N
from .noise import ScoreNoise, gains, has_score_noise, overlap, score_noise, trigger

SEEDS = 4096
"""Quasi-random seeds: how far the noise exposes the trigger,
how large it is, and how large the largest rival score is.
"""

GROUPS = 8
"""Groups of seeds of like p, for each of which recall is computed once."""


class ScoreDistribution(NamedTuple):
    """How the scores of tokens and trigger are distributed; docs/theory.md, section 4.2.

    They are in standard deviations of the tokens' scores.
    """

    snr: float  # of the trigger
    exposure: float  # standard deviation of the trigger's score over seeds
    variation: float  # that of the logarithm of the tokens' standard deviation over seeds
    skewness: float  # of the tokens' scores
    kurtosis: float  # their excess kurtosis


def accuracy(model: Model, N: float) -> float:
    """Test accuracy (fraction) after three steps with N samples; docs/theory.md, section 4.

    Attention may be locked, open or in between.

    It is `locked_accuracy` where L = 1 or score noise is not covered. Derived, with no
    fitted constant. Raises TheoryError.
    """
    if model.L == 1 or not has_score_noise(model):
        return locked_accuracy(model, N)
    p, stray = locked_tokens(model, N)
    of_groups = np.sort(p).reshape(GROUPS, -1).mean(axis=1)
    of_groups = np.where(of_groups > 1 - 1e-3, 1.0, of_groups)
    recalled = {}
    for p in map(float, set(of_groups)):
        recalled[p] = locked_accuracy(model, N, stray / N, p) if p * model.V >= 1 else 0.0
    return float(np.mean([p * recalled[p] for p in of_groups]))


def locked_fraction(model: Model, N: float) -> float:
    """Part of the tokens that get more than half of the attention; docs/theory.md, section 4.

    It is the mean over seeds.
    """
    return float(locked_tokens(model, N)[0].mean())


def locked_tokens(model: Model, N: float) -> tuple[np.ndarray, float]:
    """`locked_part` of a model with N samples."""
    check_N(model, N)
    T, a = trigger(model, N)
    score = model.kappa * (1 - 1 / model.L) * gains(model).total * (T + a / model.d)
    if score <= 0:  # attention is pushed away from the trigger
        return np.zeros(SEEDS), 0.0
    return locked_part(score, score_distribution(model, score_noise(model, N)), model.V, model.L)


def score_distribution(model: Model, noise: ScoreNoise) -> ScoreDistribution:
    """The distribution of scores with this noise; docs/theory.md, section 4.2."""
    c, d, moments = overlap(model), model.d, model.moments
    if not c:
        return ScoreDistribution(noise.snr, 0.0, 0.0, 0.0, 0.0)
    bias = (noise.mean_bias**2 + noise.mlp**2) * noise.snr**2  # their part in the variance
    gradient = (noise.gradient * noise.snr) ** 2
    exposure = bias * (c + 1) * c / (1 + 3 * c + c * c) + gradient * c / (1 + c)
    if moments.random_length:
        exposure += 2 * noise.snr**2 / d
        return ScoreDistribution(noise.snr, math.sqrt(exposure), bias * variation(c, model.V), 0.0, 0.0)
    variance = c * (1 + 3 * c + c * c)
    of_length = variance / 2 + c * (1 + c)
    skewness = -12 * (1 + c) / d * of_length / variance**1.5 * bias**1.5
    kurtosis = -24 / d * (of_length / variance * bias) ** 2
    return ScoreDistribution(noise.snr, math.sqrt(exposure), bias * variation(c, model.V), skewness, kurtosis)


def variation(c: float, V: int) -> float:
    """How much larger the mean bias of one seed is than that of another.

    It is the standard deviation of its logarithm.
    """
    orders = range(1, 9)
    narayana = [sum(math.comb(n, k) * math.comb(n, k - 1) * c ** (k - 1) for k in range(1, n + 1)) / n for n in orders]
    moments = np.array([1, *narayana])  # tr K^n / V by the law of Marchenko and Pastur
    of_bias = np.array([0, -2 * c * c, 1 - 2 * c, -2, 1])
    square = np.convolve(of_bias, of_bias) @ moments - (of_bias @ moments[:5]) ** 2
    return math.sqrt(max(square / (c * (1 + 3 * c + c * c)) ** 2 - 1, 0) / (2 * V))


def locked_part(score: float, of: ScoreDistribution, V: int, L: int) -> tuple[np.ndarray, float]:
    """(SEEDS,) the part of the tokens that lock, and N times `stray` of their samples.

    A token locks that gets more than half of the attention.

    `score` is the trigger's, in nats. The rivals' sum is that of a random energy model:
    the largest term, or the mean. A seed has one size of the noise, one exposure of the
    trigger to it, and one largest rival.
    """
    # a lattice; its generator is made of powers of the plastic number, the analogue of the golden ratio in two dimensions more
    plastic = 1.324717957244746
    first, second, third = (((np.arange(SEEDS) + 0.5) * step) % 1 for step in (1 / SEEDS, 1 / plastic, 1 / plastic**2))
    if of.snr == 0 or score == 0:  # attention is uniform
        return np.zeros(SEEDS), 0.0
    snr = of.snr * np.exp(of.variation**2 - of.variation * ndtri(third))
    sigma = score / snr
    exposed = snr + of.exposure * ndtri(first)
    typical = score / of.snr
    if L > 2 and typical * typical < 2 * math.log(L - 1):
        rivals = math.log(L - 1) + sigma**2 / 2
        mass = expit(sigma * (exposed + ndtri(second)) - rivals)
        stray = ((1 - mass) ** 2).mean() / (L - 1) * (mass.mean() / (mass**2).mean()) ** 2
        return ndtr(exposed - rivals / sigma), float(stray)
    distinct = -V * math.expm1((L - 1) * math.log1p(-1 / V))
    often = max(math.log((L - 1) / V), 0.0)  # how often the largest rival comes
    z = ndtri(second ** (1 / distinct))
    largest = z + of.skewness / 6 * (z * z - 1) + of.kurtosis / 24 * (z**3 - 3 * z)  # the expansion of Cornish and Fisher
    return ndtr(exposed - largest - often / sigma), 0.0
