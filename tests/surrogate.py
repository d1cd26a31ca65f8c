"""Recall with locked attention, drawn from counts: judges the formulas of
theory/locked.py; docs/theory-derivations.md, section 6.

Exact for eta -> 0: step 3 then sees the samples through their label counts alone, so
that a draw costs V^2 (d + m) at any N and L. The draws are NumPy's own, independent of
the simulator's.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf

from jaxrecall.model.activations import Activation
from jaxrecall.model.laws import Draws, EmbeddingLaw
from jaxrecall.theory import Model


def numpy_draws(
    law: EmbeddingLaw,
    table: str,
    row: np.ndarray,
    normals: np.ndarray,
    sizes: tuple[int, int],
    rng: np.random.Generator,
) -> Draws:
    """The draws of a whole table from NumPy's random numbers; sizes are V and d."""
    V, d = sizes
    shared = rng.standard_normal((law.n_shared, d))
    own = rng.standard_normal((len(row), law.n_own))
    given = (
        law.from_host(lambda _, n: rng.permutation(n), V, d) if law.on_host else None
    )
    return Draws(table, row, normals, shared, V, d, own, given)


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
    """(V, V) logits of label (column) for each token (row), up to scale.

        sum_w n_w (z_out(pi w) - mean z_out) phi(key w)^T,  read by z_out(u) and phi(key
            v)

    `counts` (V,) says how often each *token* w was the informative one; the other
    arrays are those of a realization.
    """
    phi = features(Z_in, z_trig, W_in, trigger_in_value, activation)
    learned = (phi * (counts / counts.mean())[:, None]).T @ (
        Z_out[perm] - Z_out.mean(0)
    )
    return phi @ learned @ Z_out.T


def features(
    Z_in: np.ndarray,
    z_trig: np.ndarray,
    W_in: np.ndarray | None,
    trigger_in_value: bool,
    activation: Activation,
) -> np.ndarray:
    """(V, d or m) what V_mat reads of the attention key of each token."""
    phi = Z_in + trigger_in_value * z_trig
    return phi if W_in is None else activation.value_and_slope(phi @ W_in.T, np, erf)[0]


def locked(model: Model, N: float, seeds: int) -> np.ndarray:
    """(n,) memory accuracy (fraction) with attention locked, one for each seed from 0
    on.

    A seed has the same embeddings at every N, and counts that grow with it; N = inf
    takes every label equally often. Any embedding law will do: its own rows are drawn.
    Samples are the same in all steps.
    """
    assert not model.fresh_batches
    return np.array([_accuracy(model, N, seed) for seed in range(seeds)])


def _accuracy(model: Model, N: float, seed: int) -> float:
    rng = np.random.default_rng([seed, model.V, model.d, model.m])
    Z_in, Z_out, z_trig = _embeddings(model, rng)
    W_in = rng.normal(size=(model.m, Z_in.shape[1])) if model.m else None
    perm = rng.permutation(model.V)
    counts = _counts(model.V, N, rng)
    logits = logits_from_counts(
        counts,
        Z_in,
        Z_out,
        z_trig,
        perm,
        W_in,
        model.trigger_in_value,
        model.activation,
    )
    return float((logits.argmax(1) == perm).mean())


def _counts(V: int, N: float, rng: np.random.Generator) -> np.ndarray:
    """(V,) how often each token is the informative one in N samples.

    Drawn level upon level, so that counts grow with N. Inf takes every label equally
    often.
    """
    if N == math.inf:
        return np.ones(V)
    counts, n, k = np.zeros(V), 0, 0
    while n < int(N):
        upto = min(round(2 ** (k / 4)), int(N)) if k < 120 else int(N)
        counts += rng.multinomial(upto - n, np.full(V, 1 / V))
        n, k = upto, k + 1
    return counts


def _embeddings(
    model: Model, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Z_in (V, width), Z_out (V, width) and z_trig (width,)."""
    V, law = model.V, model.embedding
    # rows made one by one that never overlap are not random
    is_fixed = law.moments is not None and not law.moments.overlap
    normals = (
        np.zeros((2 * V + 1, V + 1))
        if is_fixed
        else rng.normal(size=(2 * V + 1, model.d))
    )

    def table(name: str, normals: np.ndarray) -> np.ndarray:
        return law.make(
            numpy_draws(
                law, name, np.arange(len(normals))[:, None], normals, (V, model.d), rng
            ),
            np,
        )

    return (
        table("Z_in", normals[:V]),
        table("Z_out", normals[V:-1]),
        table("z_trig", normals[-1:])[0],
    )
