"""Decoders that recover the labels from the gradient of step 1 alone, in NumPy and
float64.

With Z_c the centred output embeddings, the gradient of an attention-only model is G1 =
-grad_V L_hat(0, 0) = Z_c^T X Z_in + Z_c^T delta g^T:

    X        (V, V), labels by tokens: (permutation + counting noise) / (L V)
    delta    (V,), the fraction of samples with each label, minus 1/V; its variance is
             1 / (N V)
    g        (1 - 1/L) mean of z_in + z_trig / L (where the trigger is in the values):
             the part that is the same for all samples

A decoder uses the embeddings and the sizes, but neither the permutation nor the
samples. The paper has no decoders.
"""

from __future__ import annotations

import numpy as np
import scipy  # loads each of its parts on first use
from numpy import ndarray

from ..columns import DECODED
from ..point import Point

UNRESOLVED = 1e-5
"""The ridge along all directions, as a fraction of the mean eigenvalue. Smaller
eigenvalues are only rounding errors of float32 sums.
"""


def decoder_columns(
    point: Point,
    perm: ndarray,
    G1: ndarray,
    Z_in: ndarray,
    Z_out: ndarray,
    z_trig: ndarray,
) -> dict[str, float | None]:
    """Returns the decoder columns: the fractions of labels that are recovered from G1
    (d, d). They are None if G1 overflowed.

    Arrays may be padded.
    """
    V, d = point.V, point.d
    if not np.isfinite(G1).all():
        return dict.fromkeys(DECODED)
    unpadded = G1[:d, :d], Z_in[:V, :d], Z_out[:V, :d], z_trig[:d]
    exact = [a.astype(np.float64) for a in unpadded]
    scores = whitened(point, *exact)
    _, assigned = scipy.optimize.linear_sum_assignment(scores, maximize=True)
    decoded = matched(*exact[:3]).argmax(1), scores.argmax(1), assigned
    accuracies = (np.stack(decoded) == perm[:V]).mean(1)
    return dict(zip(DECODED, accuracies.tolist(), strict=True))


def matched(G1: ndarray, Z_in: ndarray, Z_out: ndarray) -> ndarray:
    """Returns scores (V, V), tokens by labels: the matched filter z_out(u)^T G1
    z_in(v).
    """
    return Z_in @ G1.T @ Z_out.T


def whitened(
    point: Point,
    G1: ndarray,
    Z_in: ndarray,
    Z_out: ndarray,
    z_trig: ndarray,
) -> ndarray:
    """Returns scores (V, V), tokens by labels. Up to a factor they are the
    log-likelihood of each pair if the rest of G1 is Gaussian.

        score(v, u) = z_in(v)^T B z - h(v) h(u) / (2 L V),     z = G1^T A z_c(u)
        A = (Z_c^T Z_c)^-1,     B = (Z_in^T Z_in + rho g g^T)^-1
        rho = L^2 V^2 / (N + (L - 1) V)
        h(u) = z_c(u)^T A z_c(u),     h(v) = z_in(v)^T B z_in(v)

    The scores are the least-squares estimate of X with delta as an additional
    regressor. The variance of an entry of X is (1 + (L - 1) V / N) / (L^2 V^3). rho is
    the variance of delta divided by this variance, about L V / (1 + N / (L V)). The
    ridge is therefore along g alone. A ridge along all directions, or no ridge,
    recovers less (tests/model/test_decoders.py).
    """
    V, N, L = point.V, point.N, point.L
    Z_c = Z_out - Z_out.mean(0)
    g = (1 - 1 / L) * Z_in.mean(0) + point.trigger_in_value / L * z_trig
    gram_in, gram_out = Z_in.T @ Z_in, Z_c.T @ Z_c
    A = invert(gram_out, gram_out)
    rho = L**2 * V**2 / (N + (L - 1) * V)
    B = invert(gram_in + rho * np.outer(g, g), gram_in)
    left, right = Z_in @ B, Z_c @ A
    expected = np.outer((left * Z_in).sum(1), (right * Z_c).sum(1)) / (L * V)
    return left @ G1.T @ right.T - expected / 2


def invert(K: ndarray, gram: ndarray) -> ndarray:
    """Returns the inverse of K (d, d) plus a ridge. The ridge covers the rounding
    errors of float32 sums at the scale of `gram`.
    """
    eye = np.eye(len(gram))
    return scipy.linalg.cho_solve(
        scipy.linalg.cho_factor(K + UNRESOLVED * np.trace(gram) / len(gram) * eye), eye
    )
