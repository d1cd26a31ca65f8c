"""The columns that switches add, to read: float64, in NumPy.

`diagnose` splits the noise of the scores, `decoders` reads labels off step 1.

The score of token v is s(v) = z_in(v)^T w, w = W_KQ z_eos; what it varies over the
vocabulary competes with the trigger's score z_trig^T w. By Gram-Schmidt, w is the sum
of four vectors, so s is the sum of four noises:

    leakage    along z_trig, which the token embeddings are not orthogonal to
    bias       of the rest, along Sigma_c zbar: the mean embedding zbar as the covariance Sigma_c of the rows of Z_in passes it on
    mlp        of the rest, what differs from its mean over redraws of W_in with data and embeddings held; 0 without an MLP
    gradient   what is left: that mean

`simulator/record.py` splits the same, streamed. The decoders say what the gradient of
step 1 tells about the labels, whatever a transformer makes of it. For attention-only,
G1 = -grad_V L_hat(0, 0) = Z_c^T X Z_in + Z_c^T delta g^T, Z_c the centred output
embeddings:

    X        (V, V), labels by tokens: (permutation + counting noise) / (L V)
    delta    (V,) how far each label's share of the samples is from 1/V, variance 1 / (N V)
    g        (1 - 1/L) mean of z_in + z_trig / L (where the trigger is in the values): what every sample of a label adds alike

A decoder knows the embeddings and the sizes, but neither permutation nor samples. Split
and decoders are ours.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linear_sum_assignment

from ..columns import NOISES
from ..point import Point
from .realization import Realization
from .steps import ThreeStep, in_float64, three_step


def diagnose(realization: Realization, point: Point, learned: ThreeStep, redraws: np.ndarray) -> dict[str, float | None]:
    """The noise columns of the run's row, from `three_step` and redraws of W_in (n, m, d)."""
    r = in_float64(realization)
    mean_w = learned.w
    if point.m:
        mean_w = np.mean([three_step(realization._replace(W_in=W_in), point).w for W_in in redraws], axis=0)
    scale = np.abs(learned.w).max() or 1.0
    parts = split(r, learned.w / scale, mean_w / scale)
    return noise_columns(np.cov(r.Z_in @ parts.T, rowvar=False, ddof=0), float(r.z_trig @ learned.w / scale))


def split(r: Realization, w: np.ndarray, mean_w: np.ndarray) -> np.ndarray:
    """(4, d): w as the sum of its parts, in the order of NOISES.

    `mean_w` is its mean over redraws of W_in.
    """
    zbar = r.Z_in.mean(0)
    Sigma_c = np.cov(r.Z_in, rowvar=False, ddof=0).reshape(len(zbar), -1)
    drift = Sigma_c @ zbar
    trigger = r.z_trig / np.linalg.norm(r.z_trig)
    own = drift - (drift @ trigger) * trigger
    rounding = np.linalg.norm(drift) + np.trace(Sigma_c) * np.linalg.norm(zbar) / len(r.Z_in)
    bias = own / np.linalg.norm(own) if np.linalg.norm(own) > 1e-5 * rounding else np.zeros_like(own)

    def rest(x: np.ndarray) -> np.ndarray:
        return x - (x @ trigger) * trigger - (x @ bias) * bias

    return np.stack([(w @ trigger) * trigger, (w @ bias) * bias, rest(w) - rest(mean_w), rest(mean_w)])


def noise_columns(covariances: np.ndarray, trigger: float) -> dict[str, float | None]:
    """The noise columns from the covariances (4, 4) of the parts' scores and the trigger's score.

    Null where that is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.asarray(covariances, np.float64) / np.float64(trigger) ** 2
    defined = bool(np.isfinite(relative).all())
    std = {f"noise_{name}": relative[i, i] ** 0.5 for i, name in enumerate(NOISES)}
    both = {f"cov_{NOISES[i]}_{NOISES[j]}": relative[i, j] for i, j in combinations(range(4), 2)}
    return {name: float(value) if defined else None for name, value in (std | both).items()}


UNRESOLVED = 1e-5
"""Ridge along all directions, in parts of the mean eigenvalue: what float32 sums say below it is rounding."""


def decoder_columns(
    point: Point, perm: np.ndarray, G1: np.ndarray, Z_in: np.ndarray, Z_out: np.ndarray, z_trig: np.ndarray
) -> dict[str, float | None]:
    """The decoder columns: fractions recovered from G1 (d, d); null if it overflowed.

    Arrays may be padded.
    """
    names = "matched_accuracy", "whitened_accuracy", "assignment_accuracy"
    V, d = point.V, point.d
    if not np.isfinite(G1).all():
        return dict.fromkeys(names)
    G1, Z_in, Z_out, z_trig = (a.astype(np.float64) for a in (G1[:d, :d], Z_in[:V, :d], Z_out[:V, :d], z_trig[:d]))
    scores = whitened(point, G1, Z_in, Z_out, z_trig)
    decoded = matched(G1, Z_in, Z_out).argmax(1), scores.argmax(1), linear_sum_assignment(scores, maximize=True)[1]
    return {name: float((labels == perm[:V]).mean()) for name, labels in zip(names, decoded, strict=True)}


def matched(G1: np.ndarray, Z_in: np.ndarray, Z_out: np.ndarray) -> np.ndarray:
    """(V, V) tokens by labels: z_out(u)^T G1 z_in(v), the matched filter."""
    return Z_in @ G1.T @ Z_out.T


def whitened(point: Point, G1: np.ndarray, Z_in: np.ndarray, Z_out: np.ndarray, z_trig: np.ndarray) -> np.ndarray:
    """(V, V) tokens by labels: log-likelihood of a pair, if all else in G1 is Gaussian.

    It is up to a factor.

        score(v, u) = z_in(v)^T B z - h(v) h(u) / (2 L V),     z = G1^T A z_c(u)
        A = (Z_c^T Z_c)^-1,     B = (Z_in^T Z_in + rho g g^T)^-1,     rho = L^2 V^2 / (N + (L - 1) V)
        h(u) = z_c(u)^T A z_c(u),     h(v) = z_in(v)^T B z_in(v)

    Least squares for X with delta as a further regressor: rho, about L V / (1 + N / (L
    V)), is its variance over that of an entry of X, (1 + (L - 1) V / N) / (L^2 V^3). So
    the ridge lies along g alone; one along all directions, or along none, recovers less
    (tests/model/test_decoders.py).
    """
    V, N, L = point.V, point.N, point.L
    Z_c = Z_out - Z_out.mean(0)
    g = (1 - 1 / L) * Z_in.mean(0) + point.trigger_in_value / L * z_trig
    gram_in, gram_out = Z_in.T @ Z_in, Z_c.T @ Z_c
    A = inverse(gram_out, gram_out)
    B = inverse(gram_in + L**2 * V**2 / (N + (L - 1) * V) * np.outer(g, g), gram_in)
    left, right = Z_in @ B, Z_c @ A
    expected = np.outer((left * Z_in).sum(1), (right * Z_c).sum(1)) / (L * V)
    return left @ G1.T @ right.T - expected / 2


def inverse(K: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Inverse of K (d, d), eased by what float32 sums leave unresolved at the scale of `gram`."""
    eased = K + UNRESOLVED * np.trace(gram) / len(gram) * np.eye(len(gram))
    return cho_solve(cho_factor(eased), np.eye(len(gram)))
