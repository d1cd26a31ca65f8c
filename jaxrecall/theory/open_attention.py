"""Accuracy, whether attention is locked or not. Ours, not the paper's: docs/theory.md, section 4."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, ndtr, ndtri

from .locked import locked_accuracy
from .model import Model, check_N
from .noise import gains, has_score_noise, score_noise, trigger

SEEDS = 4096
"""Quasi-random seeds: how far the bias of the attention scores exposes the trigger, and how large the largest rival score is."""

GROUPS = 8
"""Groups of seeds of like p, for each of which recall is computed once."""


def accuracy(model: Model, N: float) -> float:
    """Test accuracy (fraction) after three steps with N samples, attention locked, open or in between; docs/theory.md, section 4.

    It is `locked_accuracy` where L = 1 or score noise is not covered. Derived, with no fitted constant. Raises TheoryError.
    """
    if model.L == 1 or not has_score_noise(model):
        return locked_accuracy(model, N)
    p, stray = locked_tokens(model, N)
    of_groups = np.sort(p).reshape(GROUPS, -1).mean(axis=1)
    of_groups = np.where(of_groups > 1 - 1e-3, 1.0, of_groups)
    recalled = {p: locked_accuracy(model, N, stray / N, p) if p * model.V >= 1 else 0.0 for p in map(float, set(of_groups))}
    return float(np.mean([p * recalled[p] for p in of_groups]))


def locked_fraction(model: Model, N: float) -> float:
    """Part of the tokens that get more than half of the attention, mean over seeds; docs/theory.md, section 4."""
    return float(locked_tokens(model, N)[0].mean())


def locked_tokens(model: Model, N: float) -> tuple[np.ndarray, float]:
    """`locked_part` of a model with N samples."""
    check_N(N)
    T, a = trigger(model, N)
    score = model.kappa * (1 - 1 / model.L) * gains(model).total * (T + a / model.d)
    if score <= 0:  # attention is pushed away from the trigger
        return np.zeros(SEEDS), 0.0
    return locked_part(score, score_noise(model, N).snr, model.V, model.L)


def locked_part(score: float, snr: float, V: int, L: int) -> tuple[np.ndarray, float]:
    """(SEEDS,) the part of the tokens that get more than half of the attention, and N times `stray` of their samples.

    `score` is the trigger's, in nats. The rivals' sum is that of a random energy model: the largest term, or the mean. A seed has
    one bias, which the trigger is exposed to as the tokens are, and one largest rival.
    """
    u = (np.arange(SEEDS) + 0.5) / SEEDS
    other = (np.arange(SEEDS) * (math.sqrt(5) - 1) / 2 + 0.5) % 1  # golden ratio: the second coordinate of a lattice
    sigma = score / snr
    if sigma == 0:  # attention is uniform
        return np.zeros(SEEDS), 0.0
    exposed = snr + ndtri(u)
    variance = sigma * sigma  # ** would raise where it overflows
    if L > 2 and variance < 2 * math.log(L - 1):
        rivals = math.log(L - 1) + variance / 2
        mass = expit(sigma * (exposed + ndtri(other)) - rivals)
        stray = ((1 - mass) ** 2).mean() / (L - 1) * (mass.mean() / (mass**2).mean()) ** 2
        return ndtr(exposed - rivals / sigma), float(stray)
    distinct = -V * math.expm1((L - 1) * math.log1p(-1 / V))
    often = max(math.log((L - 1) / V), 0.0)  # how often the largest rival comes
    return ndtr(exposed - ndtri(other ** (1 / distinct)) - often / sigma), 0.0
