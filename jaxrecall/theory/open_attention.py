"""Accuracy, whether attention is locked or not; docs/theory-derivations.md, section 4.

The formulas are ours, not the paper's.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy.special import expit, ndtr, ndtri

from .distributions import NODES, normal_levels
from .first_steps import are_drawn, check_first_steps, find_filter, quadrature
from .limits import warn_of_limits
from .locked import distinct_tokens, recalled_by_node
from .model import Model, check_N
from .noise import ScoreNoise, gains, has_score_noise, parts_of_noise, trigger
from .overlaps import LOCKED, Reading
from .several_steps import drawn_accuracy

SEEDS = 4096
"""The number of quasi-random seeds. For each seed, they determine the trigger's
exposure to the noise, the size of the noise, and the largest rival score.
"""

GROUPS = 8
"""The number of groups of seeds with similar attention. Each has its part of the nodes
over which recall is averaged.
"""


class ScoreDistribution(NamedTuple):
    """The parameters of the distribution of token scores and trigger scores;
    docs/theory-derivations.md, section 4.2.

    The unit of scores is the standard deviation of the tokens' scores.
    """

    snr: float  # of the trigger's score
    exposure: float = 0.0  # standard deviation of the trigger's score over seeds
    # standard deviation of the logarithm of the tokens' standard deviation over seeds
    variation: float = 0.0
    skewness: float = 0.0  # of the tokens' scores
    kurtosis: float = 0.0  # excess kurtosis of the tokens' scores
    scale: float = 0.0  # standard deviation of the logarithm of all scores over seeds
    bias: float = 0.0  # fraction of the tokens' variance along the mean bias
    # standard deviation over seeds of the mean bias, relative to its root mean square,
    # where the first steps have taken its mean away
    wander: float = 0.0
    exposure_to_bias: float = 0.0  # the part of `exposure` that is along the mean bias


Attention = tuple[ndarray, Reading]
"""The attention in each seed; docs/theory-derivations.md, section 4.1: the fraction of
the tokens that get more than half, (SEEDS,), and the reading of the tokens that are
stored and read, whose entries are floats or (SEEDS,). Where the entries are floats,
only the tokens that get more than half are stored and read, otherwise all.
"""


def accuracy(model: Model, N: float) -> float:
    """Test accuracy (fraction) after the steps of the model with N samples;
    docs/theory-derivations.md, section 4.

    Attention may be locked, open or in between. If L = 1 or `score_noise` does not
    cover the model, the result is `locked_accuracy`. The formula is derived and has no
    fitted constant. Raises TheoryError. Warns with TheoryWarning if kappa is small.
    """
    check_N(model, N)
    check_first_steps(model, N, drawn=are_drawn(model))
    predicted = predicted_accuracy(model, N)
    warn_of_limits(model)
    return predicted


@lru_cache(maxsize=2**14)
def predicted_accuracy(model: Model, N: float) -> float:
    """Returns what `accuracy` returns, without a warning, and also where the first
    steps are too large.
    """
    if are_drawn(model):
        return drawn_accuracy(model, N)
    if model.L == 1 or not has_score_noise(model):
        return float(np.mean(recalled_by_node(model, N)))
    locked, reading = attention(model, N)
    weight, n_nodes = 1.0, NODES // GROUPS
    # recall is averaged over groups and nodes at once
    if np.ndim(reading.rival):
        groups = np.argsort(-reading.rival, kind="stable").reshape(GROUPS, -1)
        medians = []
        for part in reading:
            of_groups = np.broadcast_to(part, SEEDS)[groups]
            medians.append(np.repeat(np.median(of_groups, axis=1), n_nodes))
        reading = Reading(*medians)
    else:
        read = np.repeat(np.sort(locked).reshape(GROUPS, -1).mean(axis=1), n_nodes)
        weight = np.where(read * model.V < 1, 0.0, read)
        if not weight.any():
            return 0.0
        reading = reading._replace(stored=np.where(read > 1 - 1e-3, 1.0, read))
    return float(np.mean(weight * recalled_by_node(model, N, reading)))


def locked_fraction(model: Model, N: float) -> float:
    """The fraction of tokens that get more than half of the attention, averaged over
    seeds; docs/theory-derivations.md, section 4.
    """
    check_N(model, N)
    check_first_steps(model, N, recall=False)
    locked, _ = attention(model, N)
    return float(locked.mean())


def attention(model: Model, N: float) -> Attention:
    """Returns the attention in each seed of a model that is trained on N samples."""
    T, a = trigger(model, N)
    unit = model.kappa / model.trigger_length**2 * (1 - 1 / model.L)
    score = unit * gains(model).total * (T + a / model.d)
    if score <= 0:  # attention is pushed away from the trigger
        return np.zeros(SEEDS), LOCKED
    scores = score_distribution(model, parts_of_noise(model, N), N)
    sigma, exposed = seed_scores(score, scores)
    typical = score / scores.snr
    # as in a random energy model, the sum of the rivals' weights is close to its mean,
    # or its largest term dominates
    if model.L > 2 and typical * typical < 2 * math.log(model.L - 1):
        return many_rivals(sigma, exposed, scores.snr, model)
    return one_rival(sigma, exposed, scores, model)


def score_distribution(
    model: Model, noise: ScoreNoise, N: float = math.inf
) -> ScoreDistribution:
    """Returns the distribution of the scores that have this noise;
    docs/theory-derivations.md, section 4.2.
    """
    c, d, snr = model.c, model.d, noise.snr
    if not c:
        return ScoreDistribution(snr)
    # contributions to the variance
    bias = (noise.mean_bias**2 + noise.mlp**2) * snr**2
    gradient = (noise.gradient * snr) ** 2
    of_bias = bias * (c + 1) * c / (1 + 3 * c + c * c)
    of_noise = of_bias + gradient * c / (1 + c)
    of_common = (snr * model.V * model.L / N) ** 2 * model.common_length / d
    exposure = (of_noise + model.trigger_in_value * of_common) * model.trigger_length
    first = find_filter(model)
    scores = ScoreDistribution(
        snr,
        variation=bias * variation(c, model.V),
        bias=bias,
        wander=math.sqrt(max(1 - (first.bias / first.bias_size) ** 2, 0.0)),
        exposure_to_bias=math.sqrt(of_bias * model.trigger_length),
    )
    if model.moments.random_length:
        exposure += 2 * snr**2 / d
        return scores._replace(exposure=math.sqrt(exposure), scale=math.sqrt(2 / d))
    variance = c * (1 + 3 * c + c * c)
    of_length = variance / 2 + c * (1 + c)
    return scores._replace(
        exposure=math.sqrt(exposure),
        skewness=-12 * (1 + c) / d * of_length / variance**1.5 * bias**1.5,
        kurtosis=-24 / d * (of_length / variance * bias) ** 2,
    )


@lru_cache(maxsize=1024)
def variation(c: float, V: int) -> float:
    """The standard deviation over seeds of log(mean bias)."""
    over = quadrature(c, V)
    of_bias = np.polyval([1, -2, 1 - 2 * c, -2 * c * c], over.eigenvalue)
    square = over.of_eigenvalues @ (over.eigenvalue * of_bias**2)
    square -= (over.of_eigenvalues @ of_bias) ** 2
    relative = square / (c * (1 + 3 * c + c * c)) ** 2
    return math.sqrt(max(relative - 1, 0) / (2 * V))


@cache
def seed_lattice() -> tuple[ndarray, ...]:
    """Returns four normal variables and a uniform, the rank, of each seed.

    The seeds form a lattice. The generator of the lattice consists of powers of the
    plastic number, which is the two-dimensional analogue of the golden ratio.
    """
    plastic = 1.324717957244746
    places = np.arange(SEEDS)
    steps = 1 / SEEDS, 1 / plastic, 1 / plastic**2
    first, rank, third = np.outer(steps, places + 0.5) % 1
    fourth, fifth = np.outer([2**0.5, 3**0.5], places) % 1 * (1 - 1e-9) + 5e-10
    return (*ndtri([first, third, fourth, fifth]), rank)


def seed_scores(score: float, scores: ScoreDistribution) -> tuple[ndarray, ndarray]:
    """Returns the standard deviation sigma of the tokens' scores in nats, and the
    trigger's score divided by sigma, in each seed, (SEEDS,) each.

    Each seed has one noise size, and one exposure of the trigger to the noise.
    """
    first, third, fourth, fifth, _ = seed_lattice()
    size = np.exp(scores.variation**2 - scores.variation * third)
    snr, exposure = scores.snr * size, scores.exposure
    if scores.wander:
        bias = math.sqrt(1 - scores.wander**2) + scores.wander * fifth
        more = bias**2 - 1
        variance = 1 + scores.bias * more
        snr = snr / np.sqrt(variance)
        exposed = scores.exposure**2 + scores.exposure_to_bias**2 * more
        exposure = np.sqrt(exposed / variance)
    sigma = score / snr * np.exp(scores.scale * fourth)
    return sigma, snr + exposure * first


@lru_cache(maxsize=64)
def largest_rival(n: float) -> ndarray:
    """Returns the largest of n normal variables in each seed, (SEEDS,)."""
    *_, rank = seed_lattice()
    return ndtri(rank ** (1 / n))


def many_rivals(
    sigma: ndarray, exposed: ndarray, snr: float, model: Model
) -> Attention:
    """Returns the attention if all noise tokens contribute to the sum of the rivals'
    weights.
    """
    L = model.L
    # log of the rivals' sum over the trigger's weight: the score that the informative
    # token needs
    behind = math.log(L - 1) + sigma**2 / 2 - sigma * exposed
    locked = ndtr(-behind / sigma)
    rival = np.exp(behind - sigma * largest_rival(1))
    mass = 1 / (1 + rival)
    unlocked = ((1 - mass) ** 2).mean() / (L - 1)
    stray = unlocked * (mass.mean() / (mass**2).mean()) ** 2
    if model.m or not model.moments.overlap:
        return locked, Reading(stray=stray)
    of_tokens = np.multiply.outer(sigma, normal_levels(16))
    on_token = expit(of_tokens - behind[:, None])
    mean = on_token.mean(axis=1)
    reading = Reading(
        weight=mass / mean,
        uneven=(on_token**2).mean(axis=1) / mean**2 - 1,
        aligned=(1 - mean) * sigma * snr,
        rival=rival,
        spread=sigma,  # type: ignore[arg-type]
        stray=stray,
    )
    return locked, reading


def one_rival(
    sigma: ndarray, exposed: ndarray, scores: ScoreDistribution, model: Model
) -> Attention:
    """Returns the attention if a single token dominates the sum of the rivals'
    weights.
    """
    V, L = model.V, model.L
    # log of the number of times that the largest rival occurs
    often = max(math.log((L - 1) / V), 0.0)
    z = largest_rival(distinct_tokens(V, L))
    # the Cornish-Fisher expansion
    skewed = scores.skewness / 6 * (z * z - 1)
    largest = z + skewed + scores.kurtosis / 24 * z * (z * z - 3)
    return ndtr(exposed - largest - often / sigma), LOCKED
