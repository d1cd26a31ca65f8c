"""Accuracy, whether attention is locked or not; docs/theory.md, section 4.

Ours, not the paper's.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri

from .locked import Reading, locked_accuracy
from .model import Model, check_N
from .noise import ScoreNoise, gains, has_score_noise, overlap, score_noise, trigger

SEEDS = 4096
"""Quasi-random seeds: how far the noise exposes the trigger,
how large it is, and how large the largest rival score is.
"""

GROUPS = 8
"""Groups of seeds of like p, for each of which recall is computed once."""

DRAWN = 64
"""Tables of embeddings, and test sequences of each, over which attention is a mean
where tokens are not equally frequent.
"""


class ScoreDistribution(NamedTuple):
    """How the scores of tokens and trigger are distributed; docs/theory.md, section
    4.2.

    They are in standard deviations of the tokens' scores.
    """

    snr: float  # of the trigger
    exposure: float  # standard deviation of the trigger's score over seeds
    variation: (
        float  # that of the logarithm of the tokens' standard deviation over seeds
    )
    skewness: float  # of the tokens' scores
    kurtosis: float  # their excess kurtosis
    scale: float  # that of the logarithm of all scores over seeds


class Attention(NamedTuple):
    """Where attention is, (SEEDS,) each; docs/theory.md, section 4.1."""

    locked: np.ndarray  # part of the tokens that get more than half of it
    read: np.ndarray  # part of the tokens that are stored and read at all
    of: Reading  # of these; floats or (SEEDS,)


def accuracy(model: Model, N: float) -> float:
    """Test accuracy (fraction) after three steps with N samples; docs/theory.md,
    section 4.

    Attention may be locked, open or in between.

    It is `locked_accuracy` where L = 1 or score noise is not covered. Derived, with no
    fitted constant. Raises TheoryError.
    """
    if model.L == 1 or not has_score_noise(model):
        return locked_accuracy(model, N)
    at, locked = (
        attention(model, N),
        cache(partial(locked_accuracy, model, N)),
    )  # groups are alike where attention is locked
    recalled = []
    for group in np.lexsort([at.read, np.broadcast_to(-at.of.rival, SEEDS)]).reshape(
        GROUPS, -1
    ):
        read, of = (
            at.read[group].mean(),
            Reading(
                *(
                    float(np.median(np.broadcast_to(part, SEEDS)[group]))
                    for part in at.of
                )
            ),
        )
        of = of._replace(stored=1.0 if read > 1 - 1e-3 else float(read))
        recalled.append(read * locked(of) if read * model.V >= 1 else 0.0)
    return float(np.mean(recalled))


def locked_fraction(model: Model, N: float) -> float:
    """Part of the tokens that get more than half of the attention; docs/theory.md,
    section 4.

    It is the mean over seeds.
    """
    check_N(model, N, any_tokens=True)
    if any(np.ptp(shares) for shares in model.token_shares):
        return locked_by_frequency(model, N)
    return float(attention(model, N).locked.mean())


def attention(model: Model, N: float) -> Attention:
    """`rivalry` of a model with N samples."""
    check_N(model, N)
    T, a = trigger(model, N)
    score = (
        model.kappa
        / model.trigger_length**2
        * (1 - 1 / model.L)
        * gains(model).total
        * (T + a / model.d)
    )
    if score <= 0:  # attention is pushed away from the trigger
        return partly(np.zeros(SEEDS))
    return rivalry(score, score_distribution(model, score_noise(model, N), N), model)


def score_distribution(
    model: Model, noise: ScoreNoise, N: float = math.inf
) -> ScoreDistribution:
    """The distribution of scores with this noise; docs/theory.md, section 4.2."""
    c, d, moments = overlap(model), model.d, model.moments
    if not c:
        return ScoreDistribution(noise.snr, 0.0, 0.0, 0.0, 0.0, 0.0)
    bias = (
        noise.mean_bias**2 + noise.mlp**2
    ) * noise.snr**2  # their part in the variance
    gradient = (noise.gradient * noise.snr) ** 2
    exposure = (
        bias * (c + 1) * c / (1 + 3 * c + c * c) + gradient * c / (1 + c)
    ) * model.trigger_length
    exposure += (
        model.trigger_in_value
        * (noise.snr * model.V * model.L / N) ** 2
        * model.common_length
        * model.trigger_length
        / d
    )
    if moments.random_length:
        exposure += 2 * noise.snr**2 / d
        return ScoreDistribution(
            noise.snr,
            math.sqrt(exposure),
            bias * variation(c, model.V),
            0.0,
            0.0,
            math.sqrt(2 / d),
        )
    variance = c * (1 + 3 * c + c * c)
    of_length = variance / 2 + c * (1 + c)
    skewness = -12 * (1 + c) / d * of_length / variance**1.5 * bias**1.5
    kurtosis = -24 / d * (of_length / variance * bias) ** 2
    return ScoreDistribution(
        noise.snr,
        math.sqrt(exposure),
        bias * variation(c, model.V),
        skewness,
        kurtosis,
        0.0,
    )


def variation(c: float, V: int) -> float:
    """How much larger the mean bias of one seed is than that of another.

    It is the standard deviation of its logarithm.
    """
    narayana = [
        sum(
            math.comb(n, k) * math.comb(n, k - 1) * c ** (k - 1)
            for k in range(1, n + 1)
        )
        / n
        for n in range(1, 9)
    ]
    moments = np.array([1, *narayana])  # tr K^n / V by the law of Marchenko and Pastur
    of_bias = np.array([0, -2 * c * c, 1 - 2 * c, -2, 1])
    square = np.convolve(of_bias, of_bias) @ moments - (of_bias @ moments[:5]) ** 2
    return math.sqrt(max(square / (c * (1 + 3 * c + c * c)) ** 2 - 1, 0) / (2 * V))


def rivalry(score: float, of: ScoreDistribution, model: Model) -> Attention:
    """(SEEDS,) the part of the tokens that lock, and N times `stray` of their samples.

    A token locks that gets more than half of the attention.

    `score` is the trigger's, in nats. The rivals' sum is that of a random energy model:
    the largest term, or the mean. A seed has one size of the noise, one exposure of the
    trigger to it, and one largest rival.
    """
    # a lattice; its generator is made of powers of the plastic number, the analogue of
    # the golden ratio in two dimensions more
    plastic = 1.324717957244746
    first, second, third = (
        ((np.arange(SEEDS) + 0.5) * step) % 1
        for step in (1 / SEEDS, 1 / plastic, 1 / plastic**2)
    )
    if of.snr == 0 or score == 0:  # attention is uniform
        return partly(np.zeros(SEEDS))
    snr = of.snr * np.exp(of.variation**2 - of.variation * ndtri(third))
    fourth = (np.arange(SEEDS) * 2**0.5) % 1 * (1 - 1e-9) + 5e-10
    sigma = score / snr * np.exp(of.scale * ndtri(fourth))
    exposed = snr + of.exposure * ndtri(first)
    typical, V, L = score / of.snr, model.V, model.L
    if L > 2 and typical * typical < 2 * math.log(L - 1):
        behind = (
            math.log(L - 1) + sigma**2 / 2 - sigma * exposed
        )  # of the informative token, nats
        tokens = expit(
            np.multiply.outer(sigma, ndtri((np.arange(16) + 0.5) / 16))
            - behind[:, None]
        )
        mean = tokens.mean(axis=1)
        rival = np.exp(behind - sigma * ndtri(second))
        mass = 1 / (1 + rival)
        stray = (
            ((1 - mass) ** 2).mean() / (L - 1) * (mass.mean() / (mass**2).mean()) ** 2
        )
        uneven = (tokens**2).mean(axis=1) / mean**2 - 1
        p = ndtr(-behind / sigma)
        if model.m or not model.moments.overlap:
            return partly(p, stray)
        return Attention(
            p,
            np.ones(SEEDS),
            Reading(
                1.0,
                mass / mean,
                uneven,
                (1 - mean) * sigma * of.snr,
                rival,
                sigma,
                stray,
            ),
        )
    distinct = -V * math.expm1((L - 1) * math.log1p(-1 / V))
    often = max(math.log((L - 1) / V), 0.0)  # how often the largest rival comes
    z = ndtri(second ** (1 / distinct))
    largest = (
        z + of.skewness / 6 * (z * z - 1) + of.kurtosis / 24 * (z**3 - 3 * z)
    )  # the expansion of Cornish and Fisher
    return partly(ndtr(exposed - largest - often / sigma))


def partly(p: np.ndarray, stray: float = 0.0) -> Attention:
    """Attention that is whole on a part p of the tokens and elsewhere on the others."""
    return Attention(p, p, Reading(stray=stray))


def token_scores(model: Model, N: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Scores after step 2 in nats: of tokens (V,), mean and standard deviation over
    tables; the same of the trigger.

    Where tokens are not equally frequent, labels pull the mean embedding into w however
    many samples there are, and frequent tokens win attention. Of samples without noise
    in their counts; docs/theory.md, section 4.3.
    """
    model.require("attention with token frequencies", m=0)
    model.require_law(
        "attention with token frequencies",
        lambda moments: moments.overlap and not moments.common,
    )
    (p, q), V, d, L, t = (
        model.token_shares,
        model.V,
        model.d,
        model.L,
        int(model.trigger_in_value),
    )
    k, again = 1 - 1 / L, 0 if model.fresh_batches else 1 / N
    excess = p - 1 / V + again  # what a label's error keeps of the mean embedding
    mean_b = (
        p * excess / L + k * (p @ excess) * q
    )  # by token, its embedding's part in the mean of b
    own = (
        p + again + t * excess
    ) / L + k * excess * q  # b of a label, times the value of its token
    informative = k * p / L * (own - (p + again) * q / L - k * excess * (q @ q))
    noise = k * q * (k * mean_b - p @ own / L - (1 - 2 / L) * (mean_b @ q))
    weights, signal = noise + informative, informative.sum()
    through = (
        k**4 * (mean_b @ mean_b + t * (p @ excess / L) ** 2) / d
    )  # variance of z^T b, times k^4
    variance = (weights @ weights - weights**2 + signal**2) / d + through * (
        q**2 + 2 * q / d + 1 / d**2 + q @ q / d
    )
    exposure = (weights @ weights + 2 * signal**2) / d + through * (
        1 / d**2 + q @ q / d
    )
    nats = model.kappa * L**2 * V
    mean = weights + k**2 * mean_b / d
    return (
        nats * mean,
        nats * np.sqrt(variance),
        nats * signal,
        nats * np.sqrt(exposure),
    )


def locked_by_frequency(model: Model, N: float) -> float:
    """Part of the test tokens that get more than half of the attention, mean over
    tables and sequences that are drawn.
    """
    mean, deviation, trigger, exposure = token_scores(model, N)
    (p, q), locked, rng = model.token_shares, 0.0, np.random.default_rng(0)
    for _ in range(DRAWN):
        score = mean + deviation * rng.standard_normal(model.V)
        tokens = rng.choice(model.V, DRAWN, p=p)
        own = trigger + exposure * rng.standard_normal() + score[tokens]
        counts = rng.multinomial(model.L - 1, q, DRAWN)
        rivals = (counts * np.exp(np.minimum(score - own[:, None], 100))).sum(axis=1)
        locked += np.mean(rivals < 1)
    return float(locked / DRAWN)
