"""What the grids of the neighbouring papers need beside this package: columns of the
associative memory, a law, and memories by weights.

All is at L = 1. Tokens are in the order of their frequency.
"""

from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
from scipy.special import zeta

from jaxrecall import Simulator
from jaxrecall.model.laws import EmbeddingLaw

FREQUENT, RARE = 0.1, 0.5
"""Parts of the vocabulary: its most frequent tenth and its rarer half."""


@dataclass(frozen=True)
class Rotated(EmbeddingLaw):
    """Orthonormal rows in a random basis: the Gram-Schmidt vectors of Gaussian rows."""

    def rows(self, draws, xp):
        basis, triangle = xp.linalg.qr(draws.normals.T)
        return (basis * xp.where(xp.diagonal(triangle) < 0, -1.0, 1.0)[None]).T.astype(
            draws.normals.dtype
        )


def answers(draws):
    """(V, d) rows of Z_out in the order of the tokens that they answer, of mean
    zero.
    """
    Z_out = draws.Z_out[draws.perm]
    return Z_out - Z_out.mean(axis=0, keepdims=True)


def error(alpha, recalled):
    """1 - sum_i i^-alpha / zeta(alpha) over recalled items i: an infinite power law, of
    which all items beyond V are lost.
    """
    ranks = jnp.arange(1.0, len(recalled) + 1)
    return 1 - jnp.sum(jnp.where(recalled, ranks**-alpha, 0.0)) / float(zeta(alpha))


def is_recalled(draws, learned):
    """(V,): whether the largest logit of a token is that of its label."""
    logits = draws.Z_in @ learned.V2.T @ answers(draws).T
    return jnp.argmax(logits, axis=1) == jnp.arange(len(logits))


def error_1_5(draws, learned):
    """Error under item frequencies i^-1.5, fraction."""
    return error(1.5, is_recalled(draws, learned))


def error_2(draws, learned):
    """Error under item frequencies i^-2, fraction."""
    return error(2.0, is_recalled(draws, learned))


def confidence(draws, learned):
    """(V,) softmax probability of the label of each token."""
    return jnp.diagonal(
        jax.nn.softmax(draws.Z_in @ learned.V2.T @ answers(draws).T, axis=1)
    )


def frequent_confidence(draws, learned):
    """Mean probability of the label over the most frequent tenth of the vocabulary."""
    found = confidence(draws, learned)
    return jnp.mean(found[: int(FREQUENT * len(found))])


def rare_confidence(draws, learned):
    """Mean probability of the label over the rarer half of the vocabulary."""
    found = confidence(draws, learned)
    return jnp.mean(found[-int(RARE * len(found)) :])


def memories(point, key):
    """Errors of W = sum_i q_i u_(y_i) z_i^T with q_i = i^-alpha, and with q_i = 1 up to
    the best of several largest ranks.

    Label y_i = i mod `labels`; z_i and u_y are unit vectors in d dimensions.
    """
    rows = jax.random.normal(key, (point.V + point.labels, point.d))
    rows /= jnp.linalg.norm(rows, axis=1, keepdims=True)
    z, u = rows[: point.V], rows[point.V :]
    y = jnp.arange(point.V) % point.labels
    answer = u[y]

    def recalled(W, n):
        return jnp.argmax(z[:n] @ W.T @ u.T, axis=1) == y[:n]

    def error_of(found):
        ranks = jnp.arange(1.0, len(found) + 1)
        return 1 - jnp.sum(
            jnp.where(found, ranks**-point.alpha, 0.0)
        ) / jax.scipy.special.zeta(point.alpha, 1.0)

    weights = jnp.arange(1.0, point.V + 1)[:, None] ** -point.alpha
    starts = [round(2 ** (k / 2)) for k in range(4, 64) if 2 ** (k / 2) <= point.V]
    W, errors = jnp.zeros((point.d, point.d)), []
    for first, last in pairwise([0, *starts]):
        W += answer[first:last].T @ z[first:last]
        errors.append(error_of(recalled(W, last)))
    return {
        "frequencies": error_of(recalled(answer.T @ (weights * z), point.V)),
        "equal": jnp.min(jnp.stack(errors)),
        "largest_rank": jnp.asarray(starts)[jnp.argmin(jnp.stack(errors))],
        "accuracy": 1 - jnp.min(jnp.stack(errors)),
    }


simulator = Simulator(
    memories,
    fields={
        "V": (int, 4096, 8, 2**20, "static"),
        "d": (int, 64, 2, 4096, "static"),
        "labels": (int, 8, 2, 2**20, "static"),
        "alpha": (float, 2.0, 1.01, 8.0, "traced"),
    },
    columns={
        "frequencies": (float, "error with weights equal to frequencies, fraction"),
        "equal": (
            float,
            (
                "error with equal weights up to the best largest rank, beyond which no"
                " item counts as recalled, fraction"
            ),
        ),
        "largest_rank": (int, "that rank"),
        "accuracy": (float, "1 - equal"),
    },
    accuracy="accuracy",
)
