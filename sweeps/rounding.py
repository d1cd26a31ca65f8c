"""Decoders of the rounded first gradient, for precision.yaml and precision-small.yaml.

The gradient is that of step 1 in float64, from counts of tokens and labels, with the
trigger out of the value path. Each entry is rounded to `bits` bits: to the middle of
one of 2^bits intervals between minus and plus its largest absolute entry.
"""

from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import factorial

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

import jaxrecall

EXACT = 0
"""The value of `bits` that leaves the gradient as it is in float64."""

UNRESOLVED = 1e-5
"""The ridge of the package's decoders, as a fraction of the mean eigenvalue."""


def drawn(point, key):
    """Returns a generator and Z_in, Z_out (V, d) and the permutation (V,).

    They are the same for all N and bits.
    """
    words = np.asarray(jax.random.key_data(key)).tolist()
    rng = np.random.default_rng([*words, point.V, point.d])
    Z_in, Z_out = rng.normal(size=(2, point.V, point.d)) / point.d**0.5
    return rng, Z_in, Z_out, rng.permutation(point.V)


def draw_counts(point, rng, pi):
    """Returns counts (V, V): how often samples of each label (row) have each token.

    A sample has its informative token and L - 1 others.
    """
    even = np.full(point.V, 1 / point.V)
    of_token = rng.multinomial(point.N, even)
    others = rng.multinomial(of_token * (point.L - 1), even)
    counts = np.empty_like(others)
    counts[pi] = others + np.diag(of_token)
    return counts


def gradient(counts, Z_in, Z_out):
    """Returns minus the gradient of V_mat (..., d, d) at initialization, from counts
    (..., V, V) of labels by tokens.
    """
    tokens = counts.sum((-1, -2), keepdims=True)
    return (Z_out - Z_out.mean(0)).T @ counts @ Z_in / tokens


def rounded(G, bits, largest):
    """Returns G rounded to `bits` bits, and the standard deviation of a rounding error
    that is uniform in an interval.
    """
    if bits == EXACT:
        return G, 0.0
    step = 2 * largest / 2**bits
    cells = np.clip(np.floor(G / step), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (cells + 0.5) * step, step / 12**0.5


def pair_scores(point, G, error, Z_in, Z_out):
    """Returns scores (V, V), tokens by labels: the log-likelihood of each pair, up to a
    factor, if all else in G is Gaussian.

    With error = 0 these are the scores of the package's decoder `assignment`
    (docs/theory.md, section 7). `error` adds a variance error^2 to each entry of G. The
    noise of G is then diagonal in the eigenvectors U and W of the two matrices whose
    inverses are A and B.
    """
    V, N, L = point.V, point.N, point.L
    Z_c = Z_out - Z_out.mean(0)
    g = (1 - 1 / L) * Z_in.mean(0)
    rho = L**2 * V**2 / (N + (L - 1) * V)
    gram_in, gram_out = Z_in.T @ Z_in, Z_c.T @ Z_c
    out_noise, U = np.linalg.eigh(gram_out)
    in_noise, W = np.linalg.eigh(gram_in + rho * np.outer(g, g))
    out_noise += UNRESOLVED * np.trace(gram_out) / point.d
    in_noise += UNRESOLVED * np.trace(gram_in) / point.d
    of_count = (1 + (L - 1) * V / N) / (L**2 * V**3)
    precision = 1 / (np.outer(out_noise, in_noise) + error**2 / of_count)
    left, right = Z_in @ W, Z_c @ U
    found = left @ (precision * (U.T @ G @ W)).T @ right.T
    expected = left**2 @ precision.T @ (right**2).T / (L * V)
    return found - expected / 2


def count_scores(counts, L):
    """Returns scores (V, V), tokens by labels: the exact log-likelihood of each pair
    given all counts (V, V), labels by tokens.

    Of the tokens of n samples with a label, n are its own and the others are uniform.
    So the likelihood that v is its own is proportional to count! / (count - n)!.
    """
    n = counts.sum(1, keepdims=True) // L
    rest = counts - n
    likelihood = gammaln(counts + 1) - gammaln(np.maximum(rest, 0) + 1)
    return np.where(rest < 0, -np.inf, likelihood).T


def decoded(point, key):
    """Returns the columns of a run of `decoders`."""
    rng, Z_in, Z_out, pi = drawn(point, key)
    counts = draw_counts(point, rng, pi)
    G = gradient(counts, Z_in, Z_out)
    told, error = rounded(G, point.bits, abs(G).max())
    if point.decoder == "counts":
        scores = count_scores(counts, point.L)
    else:
        scores = pair_scores(point, told, error, Z_in, Z_out)
    _, assigned = linear_sum_assignment(scores, maximize=True)
    return {
        "recovered": np.mean(assigned == pi),
        "rounding": np.sqrt(np.mean((told - G) ** 2) / np.mean(G**2)),
    }


@cache
def possible(V, L, N):
    """Returns every table of counts (tables, V, V) of N samples, its chance under each
    permutation (tables, permutations), and the permutations (permutations, V).
    """
    labels = np.array([*permutations(range(V))])
    sequences = [*product(range(V), repeat=L)]
    chances = {}
    for tokens, place, label in product(sequences, range(L), range(V)):
        sample = (*sorted(tokens), label)
        chance = (labels[:, tokens[place]] == label) / len(sequences) / L
        chances[sample] = chances.get(sample, 0) + chance
    tables = np.zeros((len(chances), V, V), int)
    for table, (*tokens, label) in zip(tables, chances, strict=True):
        np.add.at(table[label], tokens, 1)
    chosen = np.array([*combinations_with_replacement(range(len(tables)), N)])
    of_one = np.array([*chances.values()])
    orders = np.array([arrangements(samples) for samples in chosen])
    return (
        tables[chosen].sum(1),
        orders[:, None] * of_one[chosen].prod(1),
        labels,
    )


def arrangements(samples):
    """The number of orders of samples, some of which may be equal."""
    _, times = np.unique(samples, return_counts=True)
    return factorial(len(samples)) / np.prod([factorial(n) for n in times])


def best(point, key):
    """Returns the columns of a run of `best_decoder`."""
    _, Z_in, Z_out, _ = drawn(point, key)
    counts, chances, labels = possible(point.V, point.L, point.N)
    G = gradient(counts, Z_in, Z_out)
    told, _ = rounded(G, point.bits, abs(G).max())
    told = told.reshape(len(told), -1).round(9)
    _, which = np.unique(told, axis=0, return_inverse=True)
    seen = np.zeros((which.max() + 1, len(labels)))
    np.add.at(seen, which.ravel(), chances)
    joint = np.stack([seen @ (labels == label) for label in range(point.V)])
    return {"recovered": joint.max(0).sum() / point.V / len(labels)}


SIZES = {
    "V": (int, None, 2, 4096, "static"),
    "d": (int, None, 1, 4096, "static"),
    "L": (int, None, 2, 65536, "static"),
    "N": (int, None, 1, 2**30, "static"),
    "bits": (int, EXACT, 0, 52, "static", "bits of an entry of the gradient; 0: all"),
}
RECOVERED = {"recovered": (float, "fraction of the labels that are recovered")}
ROUNDING = {"rounding": (float, "rms rounding error over the rms entry")}

decoders = jaxrecall.Simulator(
    decoded,
    fields=SIZES | {"decoder": (str, "pairs", ("pairs", "counts"), None, "static")},
    columns=RECOVERED | ROUNDING,
    accuracy="recovered",
    jit=False,
)
best_decoder = jaxrecall.Simulator(
    best, fields=SIZES, columns=RECOVERED, accuracy="recovered", jit=False
)
