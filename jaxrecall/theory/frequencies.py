"""Attention where tokens are not equally frequent; docs/theory.md, section 4.3.

Ours, not the paper's. Labels then pull the mean embedding into w however many samples there are, and frequent tokens win attention.
"""

from __future__ import annotations

import numpy as np

from .model import Model

DRAWN = 64
"""Tables of embeddings, and test sequences of each, over which attention is a mean."""


def token_scores(model: Model, N: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Scores after step 2 in nats: of tokens (V,), mean and standard deviation over tables; the same of the trigger.

    Of samples without noise in their counts; docs/theory.md, section 4.3.
    """
    model.require("attention with token frequencies", m=0)
    model.require_law("attention with token frequencies", lambda moments: moments.overlap and not moments.common)
    (p, q), V, d, L, t = model.token_shares, model.V, model.d, model.L, int(model.trigger_in_value)
    k, again = 1 - 1 / L, 0 if model.fresh_batches else 1 / N
    excess = p - 1 / V + again  # what a label's error keeps of the mean embedding
    mean_b = p * excess / L + k * (p @ excess) * q  # by token, its embedding's part in the mean of b
    own = (p + again + t * excess) / L + k * excess * q  # b of a label, times the value of its token
    informative = k * p / L * (own - (p + again) * q / L - k * excess * (q @ q))
    noise = k * q * (k * mean_b - p @ own / L - (1 - 2 / L) * (mean_b @ q))
    weights, signal = noise + informative, informative.sum()
    through = k**4 * (mean_b @ mean_b + t * (p @ excess / L) ** 2) / d  # variance of z^T b, times k^4
    variance = (weights @ weights - weights**2 + signal**2) / d + through * (q**2 + 2 * q / d + 1 / d**2 + q @ q / d)
    exposure = (weights @ weights + 2 * signal**2) / d + through * (1 / d**2 + q @ q / d)
    nats = model.kappa * L**2 * V
    mean = weights + k**2 * mean_b / d
    return nats * mean, nats * np.sqrt(variance), nats * signal, nats * np.sqrt(exposure)


def locked_by_frequency(model: Model, N: float) -> float:
    """Part of the test tokens that get more than half of the attention, mean over tables and sequences that are drawn."""
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
