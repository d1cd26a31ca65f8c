"""Recall with locked attention, drawn from what it then depends on: embeddings and label counts. docs/theory.md, section 6.

Ours, and exact for eta -> 0: step 3 then sees the samples through their label counts alone, so that a draw costs V^2 (d + m) at
any N and L. The draws are NumPy's own, independent of the simulator's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import erf, logit

from ..model.activations import value_and_slope
from ..model.laws import numpy_draws
from .model import Model, check_N, check_theta

PER_OCTAVE = 4
"""Levels of N are round(2^(k / 4)); the counts at one are part of those at the next."""

OCTAVES = 30

CACHED = 2**17
"""Draws are kept for the next N where V d and V^2 are at most this: 64 of them take up to 260 MB."""


def logits_from_counts(
    counts: np.ndarray,
    Z_in: np.ndarray,
    Z_out: np.ndarray,
    z_trig: np.ndarray,
    perm: np.ndarray,
    W_in: np.ndarray | None = None,
    trigger_in_value: bool = True,
    activation: str = "none",
) -> np.ndarray:
    """(V, V) logits of label (column) for each token (row), up to scale:

        sum_w n_w (z_out(pi w) - mean z_out) phi(key w)^T,  read by z_out(u) and phi(key v)

    `counts` (V,) says how often each *token* w was the informative one; the other arrays are those of a realization.
    """
    phi = features(Z_in, z_trig, W_in, trigger_in_value, activation)
    learned = (phi * (counts / counts.mean())[:, None]).T @ (Z_out[perm] - Z_out.mean(0))
    return phi @ learned @ Z_out.T


def features(Z_in: np.ndarray, z_trig: np.ndarray, W_in: np.ndarray | None, trigger_in_value: bool, activation: str) -> np.ndarray:
    """(V, d or m) what V_mat reads of the attention key of each token."""
    phi = Z_in + trigger_in_value * z_trig
    return phi if W_in is None else value_and_slope(activation, phi @ W_in.T, np, erf)[0]


def locked(model: Model, N: float, seeds: int | Iterable[int]) -> np.ndarray:
    """(n,) memory accuracy (fraction of the vocabulary) with attention locked, one for each seed (a number means 0..n-1).

    A seed has the same embeddings at every N, and counts that grow with it; N = inf takes every label equally often.
    Any embedding law will do: its own rows are drawn. Raises TheoryError.
    """
    check_N(N)
    model.require("the surrogate", fresh_batches=False)
    return np.array([_accuracy(model, N, seed) for seed in (range(seeds) if isinstance(seeds, int) else seeds)])


def critical_N(model: Model, theta: float = 0.5, seeds: int = 64) -> float:
    """N (samples) at which memory accuracy, averaged over seeds 0..seeds-1, crosses theta; inf where N = inf is not enough.

    Bisection over levels four to the octave, then a straight line in logit accuracy against ln N. It costs about 9 `locked`.
    Raises TheoryError.
    """
    check_theta(theta)

    def mean(N: float) -> float:
        return float(locked(model, N, seeds).mean())

    low, high = 0, OCTAVES * PER_OCTAVE
    values = {low: mean(_level(low)), high: mean(math.inf)}
    if values[low] >= theta:
        return 1.0
    if values[high] < theta:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        values[middle] = mean(_level(middle))
        low, high = (middle, high) if values[middle] < theta else (low, middle)
    x = np.log([_level(low), _level(high)])
    y = logit(np.clip([values[low], values[high]], 1e-6, 1 - 1e-6))
    return float(np.exp(x[0] + (logit(theta) - y[0]) / (y[1] - y[0]) * (x[1] - x[0])))


def _level(k: int) -> int:
    return round(2 ** (k / PER_OCTAVE))


def _accuracy(model: Model, N: float, seed: int) -> float:
    again = model.V * max(model.V, model.d) <= CACHED and (N == math.inf or N == _level(_level_from(N)))
    draw = (_cached_draw if again else _Draw)(model, seed)
    counts, moments = draw.counts.at(N), model.embedding_law.moments
    if again and moments is not None and moments.overlap:  # without overlaps logits are equal, and rounding decides
        keys, labels = draw.overlaps
        logits = (keys * (counts / counts.mean())) @ labels
    else:
        logits = logits_from_counts(counts, *draw.embeddings, draw.W_in, model.trigger_in_value, model.activation)
    return float((logits.argmax(1) == draw.embeddings[-1]).mean())


class _Draw:
    """Everything that a seed draws."""

    def __init__(self, model: Model, seed: int):
        rng = np.random.default_rng([seed, model.V, model.d, model.m])
        self.model = model
        Z_in, Z_out, z_trig = _embeddings(model, rng)
        self.W_in = rng.normal(size=(model.m, Z_in.shape[1])) if model.m else None
        self.embeddings = Z_in, Z_out, z_trig, rng.permutation(model.V)
        self.counts = _Counts(model.V, rng)

    @cached_property
    def overlaps(self) -> tuple[np.ndarray, np.ndarray]:
        """(V, V) overlaps of the attention keys, and of the labels that are stored with the labels that are read."""
        Z_in, Z_out, z_trig, perm = self.embeddings
        phi = features(Z_in, z_trig, self.W_in, self.model.trigger_in_value, self.model.activation)
        return phi @ phi.T, (Z_out[perm] - Z_out.mean(0)) @ Z_out.T


_cached_draw = lru_cache(maxsize=64)(_Draw)


class _Counts:
    """How often each token was the informative one: multinomial, level upon level, drawn when first needed."""

    def __init__(self, V: int, rng: np.random.Generator):
        self.V, self.rng = V, rng
        self.at_level: list[np.ndarray] = []

    def at(self, N: float) -> np.ndarray:
        """(V,) counts of N samples; inf takes every label equally often. An N that is no level ends the levels."""
        if N == math.inf:
            return np.ones(self.V)
        k = _level_from(N)
        while len(self.at_level) <= k:
            upto = min(_level(len(self.at_level)), int(N)) if len(self.at_level) < OCTAVES * PER_OCTAVE else int(N)
            seen = self.at_level[-1] if self.at_level else np.zeros(self.V)
            self.at_level.append(seen + self.rng.multinomial(upto - int(seen.sum()), np.full(self.V, 1 / self.V)))
        return self.at_level[k]


def _level_from(N: float) -> int:
    """The first level that is not below N; OCTAVES * PER_OCTAVE beyond the last."""
    return next((k for k in range(OCTAVES * PER_OCTAVE) if _level(k) >= int(N)), OCTAVES * PER_OCTAVE)


def _embeddings(model: Model, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Z_in (V, width), Z_out (V, width) and z_trig (width,)."""
    V, law = model.V, model.embedding_law
    is_fixed = law.moments is not None and not law.moments.overlap  # rows made one by one that never overlap are not random
    normals = np.zeros((2 * V + 1, V + 1)) if is_fixed else rng.normal(size=(2 * V + 1, model.d))

    def table(name: str, normals: np.ndarray) -> np.ndarray:
        return law.make(numpy_draws(law, name, np.arange(len(normals))[:, None], normals, (V, model.d), rng), np)

    return table("Z_in", normals[:V]), table("Z_out", normals[V:-1]), table("z_trig", normals[-1:])[0]
