"""Decoders of the initial gradient from counts of tokens and labels alone, for the grid
decoders.yaml: no samples, any N and L.

A sweep with `decoders: true` has the same columns from samples, and the three steps
beside them.
"""

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

import jaxrecall


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


def decoded(point, key):
    V, N, d, L = point.V, point.N, point.d, point.L
    rng = np.random.default_rng(
        [int(np.asarray(jax.random.key_data(key))[-1]), V, d, 0]
    )
    Z_in, Z_out, z_trig = np.split(rng.normal(size=(2 * V + 1, d)) / d**0.5, [V, 2 * V])
    pi, even = rng.permutation(V), np.full(V, 1 / V)
    levels = np.minimum(np.round(2 ** (np.arange(121) / 4)), N).astype(
        int
    )  # up to the largest N: counts grow with N
    n = rng.multinomial(np.diff(levels, prepend=0), even).sum(
        0
    )  # samples of each informative token
    counts = rng.multinomial(n * (L - 1), even) + np.diag(n)
    G = gradient(counts, L, Z_in, Z_out, z_trig, pi, point.trigger_in_value)
    scores = whitened(point, G, Z_in, Z_out, z_trig)
    return {
        "matched_accuracy": np.mean((Z_in @ G.T @ Z_out.T).argmax(1) == pi),
        "whitened_accuracy": np.mean(scores.argmax(1) == pi),
        "assignment_accuracy": np.mean(
            linear_sum_assignment(scores, maximize=True)[1] == pi
        ),
    }


simulator = jaxrecall.Simulator(
    decoded,
    fields={
        "V": (int, None, 2, 65536, "static"),
        "d": (int, None, 2, 65536, "static"),
        "L": (int, None, 1, 65536, "static"),
        "N": (int, None, 1, 2**30, "static"),
        "trigger_in_value": (bool, True, None, None, "static"),
    },
    columns={
        "matched_accuracy": (
            float,
            "fraction of the labels that the matched filter recovers",
        ),
        "whitened_accuracy": (
            float,
            "fraction of the labels that whitened least squares recovers",
        ),
        "assignment_accuracy": (
            float,
            "fraction of the labels that the best one-to-one assignment of it recovers",
        ),
    },
    accuracy="assignment_accuracy",
    jit=False,
)
