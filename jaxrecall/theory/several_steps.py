"""Accuracy after several first or last steps, over drawn embeddings and counts;
docs/theory-derivations.md, section 2.8.

The formulas are ours, not the paper's. Samples enter only through how often each token
occurs beside each label, so a seed costs V^3 operations for any N and L.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy.special import softmax

from ..model.point import RECIPE_STEPS
from .distributions import poisson_quantiles
from .first_steps import after_steps
from .model import Model

TOKENS, LEAST_SEEDS = 4096, 8
"""Accuracy is averaged over some TOKENS tokens, in at least LEAST_SEEDS seeds."""


class Draws(NamedTuple):
    """What is drawn for a seed. A label has the number of its informative token."""

    Z_in: ndarray  # (V, d)
    gram: ndarray  # Z_out Z_out^T, (V, V)
    eigenvalues: ndarray  # of the same with rows less their mean, (V,)
    eigenvectors: ndarray  # (V, V)
    z_trig: ndarray  # (d,)
    eos_length: float  # squared length of z_eos
    of_label: ndarray  # uniforms of the counts of labels, (V,)
    of_pair: ndarray  # normals of the counts of noise tokens beside labels, (V, V)


@lru_cache(maxsize=2)
def draw_seeds(V: int, d: int, random_length: bool) -> list[Draws]:
    every = []
    for seed in range(max(LEAST_SEEDS, TOKENS // V)):
        rng = np.random.default_rng([V, d, seed])
        rows = rng.standard_normal((2 * V + 2, d)) / d**0.5
        if not random_length:
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        Z_in, Z_out, (z_trig, z_eos) = rows[:V], rows[V:-2], rows[-2:]
        centred = Z_out - Z_out.mean(0)
        draws = Draws(
            Z_in,
            Z_out @ Z_out.T,
            *np.linalg.eigh(centred @ centred.T),
            z_trig,
            z_eos @ z_eos,
            rng.random(V),
            rng.standard_normal((V, V)),
        )
        every.append(draws)
    return every


def drawn_accuracy(model: Model, N: float) -> float:
    """Returns the accuracy (fraction) after all steps with N samples, of a model with
    several first or last steps of V_mat and the trigger out of the value path.
    """
    V = model.V
    seeds = draw_seeds(V, model.d, model.moments.random_length)
    trained = []
    for drawn in seeds:
        n = poisson_quantiles(drawn.of_label, N / V)
        if not n.any():
            continue
        tokens = tokens_beside_labels(n, model.L, drawn.of_pair)
        first, residual = first_steps(model, n, tokens, drawn)
        outputs = attention_outputs(model, n, tokens, first, residual, drawn)
        trained.append((n / n.sum(), drawn.gram, first, outputs))
    if not trained:
        return 0.0
    share, gram, first, outputs = map(np.stack, zip(*trained, strict=True))
    labels = np.eye(V)
    overlap = outputs @ outputs.mT

    def descent(logits: ndarray) -> ndarray:
        error = labels - softmax(logits, axis=-1)
        return overlap @ (share[..., None] * error) @ gram

    logits = outputs @ first.mT
    logits += model.gamma2 * descent(logits)
    for _ in range(model.steps - RECIPE_STEPS):
        logits += model.lr * descent(logits)
    is_recalled = np.argmax(logits, axis=-1) == np.arange(V)
    return float(is_recalled.sum() / (V * len(seeds)))


def tokens_beside_labels(n: ndarray, L: int, normals: ndarray) -> ndarray:
    """Returns how often each token occurs in the sequences of a label, less the mean
    of the noise tokens, (V labels, V tokens).

    n has the counts of labels, (V,). Counts of noise tokens are Poisson variables, of
    which the mean, the variance and the skewness are kept.
    """
    expected = L / len(n) * n[:, None]
    noise = np.sqrt(expected) * normals + (normals**2 - 1) / 6 * (expected > 0)
    return np.diag(n) + noise - noise.mean(1, keepdims=True)


def first_steps(
    model: Model, n: ndarray, tokens: ndarray, drawn: Draws
) -> tuple[ndarray, ndarray]:
    """Returns Z_out V_mat after the first steps, (V, d), and the residual y - p along
    the mean embedding that they leave, (V,).
    """
    N, k = n.sum(), model.first_steps
    share, mean = n / N, drawn.Z_in.mean(0)
    depth = model.eta / model.V * (mean @ mean) * drawn.eigenvalues
    left, average = after_steps(depth, k)
    along = drawn.eigenvectors.T @ (share - 1 / model.V)
    own = (tokens - np.outer(share, tokens.sum(0))) @ drawn.Z_in / (model.L * N)
    shared = np.outer(drawn.eigenvectors @ (average * along), mean)
    return model.eta * k * drawn.gram @ (own + shared), drawn.eigenvectors @ (
        left * along
    )


def attention_outputs(
    model: Model,
    n: ndarray,
    tokens: ndarray,
    first: ndarray,
    residual: ndarray,
    drawn: Draws,
) -> ndarray:
    """Returns the outputs of attention for each informative token after step 2, (V, d).

    A sequence is taken to contain each noise token L / V times.
    """
    V, L, N = model.V, model.L, n.sum()
    logits = first @ drawn.Z_in.T
    centred = logits - n @ logits / N
    of_tokens = (tokens * centred).sum(0) + L / V * N * (residual @ logits)
    of_trigger = n @ (np.diag(centred) - centred.mean(1))
    rate = model.kappa * L * V / (model.eta * model.first_steps * N)
    w = (of_tokens - of_tokens.mean()) @ drawn.Z_in + of_trigger * drawn.z_trig
    w *= rate * drawn.eos_length
    noise, informative = drawn.Z_in @ w, (drawn.Z_in + drawn.z_trig) @ w
    highest = noise.max()
    own = np.exp(np.minimum(informative - highest, 500))[:, None]
    others = L / V * np.exp(noise - highest)
    return (own * drawn.Z_in + others @ drawn.Z_in) / (own + others.sum())
