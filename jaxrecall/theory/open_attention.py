"""Accuracy and critical N, whether attention is locked or not. Ours, not the paper's: docs/theory.md, sections 4 and 5."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from .locked import locked_accuracy
from .model import Model, check_theta
from .noise import activation_moments, has_score_noise, score_noise, trigger

LARGEST_N = 2.0**40


def accuracy(model: Model, N: float) -> float:
    """Test accuracy (fraction) after three steps with N samples; docs/theory.md, section 4.

    It is `locked_accuracy` where L = 1 or score noise is not covered. Raises TheoryError.
    """
    if model.L == 1 or not has_score_noise(model):
        return locked_accuracy(model, N)
    T, a = trigger(model, N)
    gain = activation_moments(model.activation, model.L).slope ** 2 if model.m else 1
    score = model.kappa * (1 - 1 / model.L) * gain * (T + a / model.d)
    mass, rivals = attention(score, score_noise(model, N).snr, model.V, model.L)
    found = float((mass > 0.5).mean())
    if not found:
        return 0.0
    stray = float(((1 - mass) ** 2).mean() / rivals * (mass.mean() / (mass**2).mean()) ** 2 / N)
    return found * locked_accuracy(model, N, stray)


def attention(score: float, snr: float, V: int, L: int, nodes: int = 4096) -> tuple[np.ndarray, float]:
    """Softmax weight of the informative token at quasi-random nodes, and how many rivals share the rest.

    `score` is the trigger's, in nats. The rivals' sum is that of a random energy model: the largest term, or the mean.
    """
    u = (np.arange(nodes) + 0.5) / nodes
    other = (np.arange(nodes) * (math.sqrt(5) - 1) / 2 + 0.5) % 1  # golden ratio: the second coordinate of a lattice
    sigma = score / snr
    own = score + sigma * ndtri(u)
    if L > 2 and sigma**2 < 2 * math.log(L - 1):
        return expit(own - math.log(L - 1) - sigma**2 / 2), L - 1.0
    distinct = -V * math.expm1((L - 1) * math.log1p(-1 / V))
    return expit(own - sigma * ndtri(other ** (1 / distinct))), 1.0


def critical_N(model: Model, theta: float = 0.5) -> float:
    """Smallest N (samples) at which `accuracy` reaches theta (fraction), inf if it never does; docs/theory.md, section 5.

    Raises TheoryError.
    """
    check_theta(theta)

    def excess(log_N: float) -> float:
        return accuracy(model, math.exp(log_N)) - theta

    if excess(math.log(LARGEST_N)) < 0:
        return math.inf
    return math.exp(brentq(excess, 0, math.log(LARGEST_N), xtol=1e-3)) if excess(0) < 0 else 1.0  # type: ignore[arg-type]
