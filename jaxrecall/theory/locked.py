"""Recall by a model whose attention is locked on the informative token. Ours, not the paper's: docs/theory.md, section 3.

Step 3 then sees the samples through their label counts alone. An *attention key* is what attention reads for a token, z_in(v),
with z_trig where the trigger is in the value path; features phi of it are what V_mat reads.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf, gammaincinv, ndtr, ndtri, stdtr, stdtrit
from scipy.stats import poisson, qmc

from ..errors import TheoryError
from ..model.activations import value_and_slope
from ..model.laws import Moments
from .model import Model, check_N

NODES = 1024
"""Quasi-random nodes of the average over embeddings, W_in, the own label's count and logit."""

LEVELS = 80
"""Counts of a wrong label that are summed over; neighbours are lumped where there are more."""


class Nodes(NamedTuple):
    """Quasi-random uniforms, (NODES,) each: what they are quantiles of."""

    key_length: np.ndarray  # |z_in(v)|^2
    trigger_length: np.ndarray  # |z_trig|^2
    cosine: np.ndarray  # between z_in(v) and z_trig
    label_length: np.ndarray  # |z_out(v)|^2
    rest_length: np.ndarray  # |Q|^2 but for the own label
    own_logit: np.ndarray
    own_count: np.ndarray
    own_neurons: np.ndarray  # W_in, as the overlap of a key with itself sees it
    shared_neurons: np.ndarray  # W_in, as the mean overlap sees it


class KeyOverlaps(NamedTuple):
    """Overlaps omega(w, v) = phi(key w)^T phi(key v) of attention keys at the nodes, (NODES,) each."""

    own: np.ndarray  # omega(v, v) less the mean of omega(w, v) over w
    shared: np.ndarray  # that mean: the part that all keys share
    spread: np.ndarray  # variance of omega(w, v) over w


def locked_accuracy(model: Model, N: float, stray: float = 0.0, stored: float = 1.0) -> float:
    """Test accuracy (fraction) with attention locked on the informative token; docs/theory.md, section 3.

    `stray` and `stored` tell of samples whose attention is elsewhere, as in `recall`; orthogonal attention-only models ignore both.
    Raises TheoryError.
    """
    check_N(N)
    if not model.moments.overlap and not model.m:
        return orthogonal_accuracy(model, N)
    return recall(model, N, key_overlaps(model), stray, stored)


def recall(model: Model, N: float, k: KeyOverlaps, stray: float, stored: float = 1.0) -> float:
    """Fraction of the stored vocabulary that label counts and random embeddings let a model recall whose key overlaps are `k`.

    `stray` is the summed square weight, per sample, of tokens that occur with a label where they do not belong, over N times
    the square weight of the right token. `stored` is the part of the vocabulary whose samples reach V_mat in step 3; the others
    count as labels without samples. Raises TheoryError where d is so small that the variance of a logit comes out negative.
    """
    V, d, moments, u = model.V, model.d, model.moments, nodes()
    r, p = counts(N / V)
    r_v = r[np.minimum(np.searchsorted(np.cumsum(p), u.own_count), len(r) - 1)]
    a_v = r_v * k.own + k.shared * (r_v - stored)
    lost = stray * (1 + V / d * moments.overlap) * (k.own**2 + V * k.spread)
    if moments.overlap:
        o, xi, chi2 = output_embeddings(d, moments)
        rest = (V - 2) * (k.shared**2 * (stored * V / N + stored * (1 - stored)) + k.spread * stored * (1 + V / N)) + d * lost
        R2 = chi2 * rest / d
        noise = np.sqrt(o * R2) * xi
        own, variance = o * a_v + noise, (o * a_v**2 + 2 * a_v * noise) / d + R2
        Q2 = a_v**2 + rest  # 0 for a label without samples, if no other label has any part in Q
        b = np.divide(variance * d, Q2, out=np.zeros(NODES), where=Q2 > 0)
    else:
        own, variance, b = a_v + np.sqrt(lost) * ndtri(u.own_logit), lost + 1e-30, np.ones(NODES)
    margin = own[:, None] - (b * k.shared)[:, None] * (r - stored)
    total = variance[:, None] + (b**2 * k.spread)[:, None] * r**2
    if not (total > 0).all():
        raise TheoryError(f"d: got {d} with V={V} and N={N:g}; allowed: larger d or V, the variance of a wrong logit is not positive here")
    wrong = upper_tail(margin / np.sqrt(total), d, moments) @ p
    log_right = (stored * V - 1) * np.log1p(-np.minimum(wrong, 1 - 1e-15))
    if stored < 1:
        wrong = upper_tail((own + b * k.shared * stored) / np.sqrt(variance), d, moments)
        log_right += (1 - stored) * V * np.log1p(-np.minimum(wrong, 1 - 1e-15))
    return float(np.exp(np.minimum(log_right, 0)).mean())


@lru_cache(maxsize=64)
def output_embeddings(d: int, moments: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At the nodes, (NODES,) each: |z_out(v)|^2, the own logit's standard normal, and |Q|^2 over its mean but for the own label."""
    u = nodes()
    xi = ndtri(u.own_logit) if moments.random_length else np.sqrt(d) * cosine(u.own_logit, d)
    return squared_length(u.label_length, d, moments), xi, chi_square(u.rest_length, d)


def orthogonal_accuracy(model: Model, N: float) -> float:
    """Attention-only with orthogonal embeddings: the logits of v are the counts, its own doubled by the trigger's share."""
    V = model.V
    if not model.trigger_in_value:
        return -float(np.expm1((N + 1) * np.log1p(-1 / V)))
    mean = min(N / V, 1000)  # there twice the count of one label is above all others already
    n = np.arange(np.ceil(mean + 7 * mean**0.5 + 15))
    below, upto, tie = poisson.cdf(2 * n - 1, mean), poisson.cdf(2 * n, mean), poisson.pmf(2 * n, mean)
    won = np.where(tie > 1e-9, (upto**V - below**V) / (V * np.maximum(tie, 1e-9)), below ** (V - 1))
    return float(poisson.pmf(n, mean) @ won)


def key_overlaps(model: Model) -> KeyOverlaps:
    """Overlaps of attention keys over tokens and embeddings; docs/theory.md, section 3.2."""
    return _key_overlaps(model.d, model.m, model.moments, model.trigger_in_value, model.activation)


@lru_cache(maxsize=64)
def _key_overlaps(d: int, m: int, moments: Moments, trigger_in_value: bool, activation: str) -> KeyOverlaps:
    u = nodes()
    A = squared_length(u.key_length, d, moments)
    B = squared_length(u.trigger_length, d, moments) * trigger_in_value
    X = np.sqrt(A * B) * cosine(u.cosine, d) * moments.overlap
    if not m:
        return KeyOverlaps(A + X, B + X, moments.overlap * (A + B + 2 * X) / d)
    return _feature_overlaps(A, B, X, d, m, moments, activation)


def _feature_overlaps(A: np.ndarray, B: np.ndarray, X: np.ndarray, d: int, m: int, moments: Moments, activation: str) -> KeyOverlaps:
    """The same behind an MLP, from A = |z_in(v)|^2, B = |z_trig|^2 (0 out of the value path) and X = z_in(v) . z_trig."""
    g, weight = np.polynomial.hermite_e.hermegauss(24)
    weight = weight / weight.sum()

    def act(x: np.ndarray) -> np.ndarray:
        return value_and_slope(activation, x, np, erf)[0]

    def over_neurons(x: Any) -> np.ndarray:
        return np.einsum("nij,i,j->n", x, weight, weight)

    along, across = g[:, None], g[None, :]  # a neuron's W_in along z_trig, and along the rest of the key
    root = np.sqrt(B)[:, None, None]
    others = act(root * along + across)  # act(u_w) given `along`: (NODES, 24, 24)
    mean, slope, bend = (others @ (weight * h) for h in (np.ones(24), g, g * g - 1))
    variance = others**2 @ weight - mean**2
    tilt = (np.divide(X, np.sqrt(B), out=np.zeros(NODES), where=B > 0))[:, None, None]
    v = act((root + tilt) * along + np.sqrt(np.maximum(A[:, None, None] - tilt**2, 0)) * across)

    f, f2 = v * slope[..., None], v * bend[..., None]
    first = over_neurons(f * along) ** 2 + over_neurons(f * across) ** 2
    second = over_neurons(f2 * along**2) ** 2 + 2 * over_neurons(f2 * along * across) ** 2 + over_neurons(f2 * across**2) ** 2
    length = d * moments.random_length * over_neurons(f2) ** 2
    spread = moments.overlap * (first / d + (second + length) / (2 * d * d)) + over_neurons(v**2 * variance[..., None]) / m

    own, shared = v * (v - mean[..., None]), v * mean[..., None]
    mean_own, mean_shared = over_neurons(own), over_neurons(shared)
    sd = np.sqrt((over_neurons(own**2) - mean_own**2) / m)
    slope_of = (over_neurons(own * shared) - mean_own * mean_shared) / m / sd**2
    rest = np.sqrt(np.maximum((over_neurons(shared**2) - mean_shared**2) / m - slope_of**2 * sd**2, 0))
    z, z2 = ndtri(nodes().own_neurons), ndtri(nodes().shared_neurons)
    return KeyOverlaps(mean_own + sd * z, mean_shared + slope_of * sd * z + rest * z2, spread)


@cache
def nodes() -> Nodes:
    """The quasi-random nodes."""
    return Nodes(*(qmc.Sobol(len(Nodes._fields), scramble=False).random(NODES) + 0.5 / NODES).T)


def squared_length(u: np.ndarray, d: int, moments: Moments) -> np.ndarray:
    """Quantiles of the squared length of an embedding."""
    return chi_square(u, d) if moments.random_length else np.ones_like(u)


def chi_square(u: np.ndarray, d: int) -> np.ndarray:
    """Quantiles of a chi-square with d degrees of freedom, over d: mean 1."""
    return 2 / d * gammaincinv(d / 2, u)


def cosine(u: np.ndarray, d: int) -> np.ndarray:
    """Quantiles of the cosine between two independent directions in d dimensions."""
    t = stdtrit(d - 1, u)
    return t / np.sqrt(d - 1 + t * t)


def upper_tail(z: np.ndarray, d: int, moments: Moments) -> np.ndarray:
    """Probability that a wrong label's logit exceeds z of its standard deviations."""
    if not moments.overlap or moments.random_length:
        return ndtr(-z)
    z = np.clip(z, -0.999 * d**0.5, 0.999 * d**0.5)  # z / sqrt(d) is a coordinate of a random direction
    return stdtr(d - 1, -z * np.sqrt((d - 1) / (d - z * z)))


def counts(mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Poisson counts over their mean, and their probabilities, neighbours lumped where there are more than LEVELS."""
    low, high = np.floor(max(0, mean - 7 * mean**0.5)), np.ceil(mean + 7 * mean**0.5 + 15)
    edges = np.linspace(low - 0.5, high + 0.5, min(int(high - low) + 1, LEVELS) + 1)
    p = np.diff(poisson.cdf(edges, mean))
    return (edges[1:] + edges[:-1]) / 2 / mean, p / p.sum()
