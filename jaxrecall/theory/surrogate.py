"""Recall with locked attention, and decoders of the initial gradient, from counts; docs/theory.md, sections 6 and 7.4.

Ours, and exact for eta -> 0: step 3 then sees the samples through their label counts
alone, so that a draw costs V^2 (d + m) at any N and L. So does the initial gradient of
a model without an MLP, which sees the counts of tokens that occur with a label. The
draws are NumPy's own, independent of the simulator's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import erf

from ..errors import PointError, TheoryError
from ..model.activations import value_and_slope
from ..model.laws import numpy_draws
from ..model.point import Point
from ..model.reference.decoders import decoder_columns
from .model import Model, check_N


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

        sum_w n_w (z_out(pi w) - mean z_out) phi(key w)^T,  read by z_out(u) and phi(key v)

    `counts` (V,) says how often each *token* w was the informative one; the other
    arrays are those of a realization.
    """
    phi = features(Z_in, z_trig, W_in, trigger_in_value, activation)
    learned = (phi * (counts / counts.mean())[:, None]).T @ (Z_out[perm] - Z_out.mean(0))
    return phi @ learned @ Z_out.T


def gradient_from_counts(
    counts: np.ndarray, L: int, Z_in: np.ndarray, Z_out: np.ndarray, z_trig: np.ndarray, perm: np.ndarray, trigger_in_value: bool = True
) -> np.ndarray:
    """(d, d) minus the gradient of V_mat at initialization, without an MLP.

    `counts` (V, V) says how often each token (column) occurs in the samples of each
    informative *token* (row), which itself occurs in all of them; the other arrays are
    those of a realization.
    """
    values = counts @ Z_in + trigger_in_value * counts.sum(1)[:, None] / L * z_trig
    return (Z_out[perm] - Z_out.mean(0)).T @ values / counts.sum()


def decoders(model: Model, N: float, seeds: int | Iterable[int]) -> dict[str, np.ndarray]:
    """Fractions of pi that decoders of the initial gradient recover, by their column, (n,) one for each seed.

    A number of seeds means 0..n-1. A seed has the same embeddings, and the same counts of
    labels, as `locked`. Raises TheoryError with an MLP.
    """
    check_N(model, N)
    model.require("the decoders", m=0)
    try:
        point = Point(V=model.V, N=int(N), d=model.d, L=model.L, trigger_in_value=model.trigger_in_value)
    except PointError as error:
        raise TheoryError(str(error)) from None
    found = [_decoded(model, point, seed) for seed in (range(seeds) if isinstance(seeds, int) else seeds)]
    return {name: np.array([row[name] for row in found], float) for name in found[0]}


def features(Z_in: np.ndarray, z_trig: np.ndarray, W_in: np.ndarray | None, trigger_in_value: bool, activation: str) -> np.ndarray:
    """(V, d or m) what V_mat reads of the attention key of each token."""
    phi = Z_in + trigger_in_value * z_trig
    return phi if W_in is None else value_and_slope(activation, phi @ W_in.T, np, erf)[0]


def locked(model: Model, N: float, seeds: int | Iterable[int]) -> np.ndarray:
    """(n,) memory accuracy (fraction) with attention locked, one for each seed.

    A number of seeds means 0..n-1.

    A seed has the same embeddings at every N, and counts that grow with it; N = inf
    takes every label equally often. Any embedding law will do: its own rows are drawn.
    Raises TheoryError.
    """
    check_N(model, N, infinite=True)
    model.require("the surrogate", fresh_batches=False)
    return np.array([_accuracy(model, N, seed) for seed in (range(seeds) if isinstance(seeds, int) else seeds)])


def _accuracy(model: Model, N: float, seed: int) -> float:
    rng = np.random.default_rng([seed, model.V, model.d, model.m])
    Z_in, Z_out, z_trig = _embeddings(model, rng)
    W_in = rng.normal(size=(model.m, Z_in.shape[1])) if model.m else None
    perm = rng.permutation(model.V)
    counts = _counts(model.V, N, rng)
    logits = logits_from_counts(counts, Z_in, Z_out, z_trig, perm, W_in, model.trigger_in_value, model.activation)
    return float((logits.argmax(1) == perm).mean())


def _decoded(model: Model, point: Point, seed: int) -> dict[str, float | None]:
    rng = np.random.default_rng([seed, model.V, model.d, model.m])
    tables = _embeddings(model, rng)
    perm = rng.permutation(model.V)
    n = _counts(model.V, point.N, rng).astype(int)
    counts = rng.multinomial(n * (model.L - 1), np.full(model.V, 1 / model.V)) + np.diag(n)
    return decoder_columns(point, perm, gradient_from_counts(counts, model.L, *tables, perm, model.trigger_in_value), *tables)


def _counts(V: int, N: float, rng: np.random.Generator) -> np.ndarray:
    """(V,) how often each token is the informative one in N samples.

    Drawn level upon level, so that counts grow with N. Inf takes every label equally often.
    """
    if N == math.inf:
        return np.ones(V)
    counts, n, k = np.zeros(V), 0, 0
    while n < int(N):
        upto = min(round(2 ** (k / 4)), int(N)) if k < 120 else int(N)
        counts += rng.multinomial(upto - n, np.full(V, 1 / V))
        n, k = upto, k + 1
    return counts


def _embeddings(model: Model, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Z_in (V, width), Z_out (V, width) and z_trig (width,)."""
    V, law = model.V, model.embedding_law
    is_fixed = law.moments is not None and not law.moments.overlap  # rows made one by one that never overlap are not random
    normals = np.zeros((2 * V + 1, V + 1)) if is_fixed else rng.normal(size=(2 * V + 1, model.d))

    def table(name: str, normals: np.ndarray) -> np.ndarray:
        return law.make(numpy_draws(law, name, np.arange(len(normals))[:, None], normals, (V, model.d), rng), np)

    return table("Z_in", normals[:V]), table("Z_out", normals[V:-1]), table("z_trig", normals[-1:])[0]
