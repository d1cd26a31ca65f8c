"""What the gradient at initialization tells about the permutation pi. Ours, not the paper's. No JAX here.

G = -grad_V L_hat(0, 0) is, up to a factor, Z_out^T (S + C) Z_in: S = pi / (L V), C the noise of the tokens that occur with a label.
"""

from __future__ import annotations

import numpy as np
from scipy.special import lambertw

from ..errors import TheoryError
from .locked import Keys, check, cosine, keys, recall, uniforms


def information(V: int, N: float, d: int, L: int) -> float:
    """Information (nats) of G on pi, as if a Gaussian channel: (d^2 / 2) log(1 + N / (L V)). Ours; C is counts, not Gaussian.

    All of pi is log V! nats, so that N d^2 >= 2 L V^2 (log V - 1) is needed while N < L V.
    """
    check(V, N, d, 0, "gaussian", "none")
    if L < 1:
        raise TheoryError(f"L: got {L}; allowed: from 1")
    return d * d / 2 * float(np.log1p(N / (L * V)))


def fano_ceiling(V: int, N: float, d: int, L: int) -> float:
    """Largest expected fraction of pi that any decoder of G recovers: K / V with K log K - K + 1 = I, I as in `information`.

    Ours. A guess without data agrees with pi at k places, E[x^k] <= exp(x - 1); so I nats allow an expected k with
    I >= max_x (k log x - x + 1), which is exact but for I. No nats leave K = 1, log V! nats about K = V.
    """
    nats = information(V, N, d, L)
    K = np.exp(1 + lambertw((nats - 1) / np.e).real) if nats > 1e-12 else 1.0
    return min(1.0, float(K) / V)


def matched_filter_accuracy(V: int, N: float, d: int, L: int, embedding: str = "gaussian", trigger_in_value: bool = True) -> float:
    """Fraction of pi that argmax_u z_out(u)^T G z_in(v) recovers, the column `step1_memory_accuracy` at m = 0.

    Ours: `recall` with A = |z_in(v)|^2, own = A, spread = A/d, L - 1 stray tokens a sample, and what all labels share in
    proportion to their counts: (L - 1) zbar . z_in(v), and z_trig . z_in(v) with the trigger in the value path. So variance
    ((L - 1)/N)(1 + V/d)^2 and (V/N)(1 + V/d)((L - 1)^2/V + 1)/d, beside the interference V/d^2 + 2/d, which no N removes.
    Mean |error| 0.02 for N >= 4 V, worse below.
    """
    information(V, N, d, L)
    if embedding not in ("gaussian", "sphere"):
        raise TheoryError(f"embedding: got {embedding!r}; covered: gaussian, sphere")
    u = uniforms().T
    A = keys(d, 0, embedding, False, "none").own
    shared = A * (L - 1) / V + np.sqrt(A * ((L - 1) ** 2 / V + trigger_in_value)) * cosine(u[2], d)
    return recall(V, N, d, embedding, Keys(A, shared, A / d), (L - 1) / N)
