"""Decoders of the initial gradient from counts of tokens and labels alone, for the grid
decoders.yaml: no samples, any N and L.

A sweep with `decoders: true` has the same columns from samples, and the three steps
beside them.
"""

from typing import Annotated

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

import jaxrecall
from jaxrecall import field


def gradient(counts, L, Z_in, Z_out, z_trig, pi, trigger_in_value):
    """(d, d) minus the gradient of V_mat at initialization, without an MLP.

    counts (V, V): how often each token (column) occurs in the samples of each
    informative token (row), which is itself in all of them.
    """
    values = counts @ Z_in + trigger_in_value * counts.sum(1)[:, None] / L * z_trig
    return (Z_out[pi] - Z_out.mean(0)).T @ values / counts.sum()


def whitened(point, G, Z_in, Z_out, z_trig):
    """(V, V) tokens by labels: log-likelihood of a pair up to a factor, if all else in
    G is Gaussian.

    score(v, u) = z_in(v)^T B z - h(v) h(u) / (2 L V),   z = G^T A z_c(u),   h = z_in^T
        B z_in and z_c^T A z_c,   Z_c: Z_out less its mean
    A = (Z_c^T Z_c)^-1,   B = (Z_in^T Z_in + rho g g^T)^-1,   rho = L^2 V^2 / (N + (L -
        1) V),   g: the mean value of a sample
    """
    V, N, L = point.V, point.N, point.L

    def ridge(gram):  # what float32 sums of samples would leave unresolved
        return 1e-5 * np.trace(gram) / point.d * np.eye(point.d)

    Z_c = Z_out - Z_out.mean(0)
    g = (1 - 1 / L) * Z_in.mean(0) + point.trigger_in_value / L * z_trig
    gram_in, gram_out = Z_in.T @ Z_in, Z_c.T @ Z_c
    left = Z_in @ np.linalg.inv(
        gram_in + L**2 * V**2 / (N + (L - 1) * V) * np.outer(g, g) + ridge(gram_in)
    )
    right = Z_c @ np.linalg.inv(gram_out + ridge(gram_out))
    return left @ G.T @ right.T - np.outer(
        (left * Z_in).sum(1), (right * Z_c).sum(1)
    ) / (2 * L * V)


@jaxrecall.simulator(
    static=("V", "d", "L", "N"), measure="assignment_accuracy", jit=False
)
def simulator(
    key,
    *,
    V: Annotated[int, field(low=2)],
    d: Annotated[int, field(low=2)],
    L: Annotated[int, field(low=1)],
    N: Annotated[int, field(low=1, high=2**30)],
    trigger_in_value: bool = True,
):
    """Fractions of the labels that three decoders recover: the matched filter, whitened
    least squares, and the best one-to-one assignment of the latter's scores.
    """
    key_of_numpy = int(np.asarray(jax.random.key_data(key))[-1])
    rng = np.random.default_rng([key_of_numpy, V, d, 0])
    Z_in, Z_out, z_trig = np.split(rng.normal(size=(2 * V + 1, d)) / d**0.5, [V, 2 * V])
    pi, even = rng.permutation(V), np.full(V, 1 / V)
    # samples are drawn in parts that end at these numbers, up to the largest N, so that
    # counts grow with N
    ends = np.minimum(np.round(2 ** (np.arange(121) / 4)), N).astype(int)
    n = rng.multinomial(np.diff(ends, prepend=0), even).sum(0)
    counts = rng.multinomial(n * (L - 1), even) + np.diag(n)
    G = gradient(counts, L, Z_in, Z_out, z_trig, pi, trigger_in_value)
    point = jaxrecall.Point(V=V, d=d, L=L, N=N, trigger_in_value=trigger_in_value)
    scores = whitened(point, G, Z_in, Z_out, z_trig)
    _, assigned = linear_sum_assignment(scores, maximize=True)
    return {
        "matched_accuracy": np.mean((Z_in @ G.T @ Z_out.T).argmax(1) == pi),
        "whitened_accuracy": np.mean(scores.argmax(1) == pi),
        "assignment_accuracy": np.mean(assigned == pi),
    }
