"""Iterates of a spectral descent on the associative memory of Kim, Nichani, Wu, Bietti
and Lee (arXiv:2603.26554), in NumPy.

    data      item i = 1..V with probability p_i ~ i^-alpha; rows of Z_in and Z_out are
        N(0, 1/d), so of length 1; no samples: the gradient
              is that of infinitely many
    model     logits of item i: Z_out W z_in(i), softmax over all V labels; recalled if
        that of label i is strictly the largest
    step t    W <- W + eta_t U h(S) V^T for the gradient G_t = U S V^T of the mean
        cross-entropy downhill, h(s) = s / sqrt(s^2 + lambda_t^2)
    schedule  eta_t = c_eta sqrt(d) times the decay, 1, 1/t or 2^(1-t); lambda_t = c_lam
        d_t^-alpha sqrt(d),
              d_t = d^(2 - (1 - 1/(2 alpha))^t), the number of items that t steps are
                  predicted to recall

Rows of length 1 make sqrt(d) the natural rate: a step with all singular values 1 then
adds interference of order 1 to each logit.

exact        G_t = sum_i p_i (z_out(i) - sum_j pi_i(j) z_out(j)) z_in(i)^T, the gradient
thresholded  G_t = sum over items i not recalled of p_i (z_out(i) - mean_j z_out(j))
    z_in(i)^T: the residual of a label is 1 until its
             item is recalled and 0 then, and all labels share its opposite, as at W =
                 0. This is our reading of the theorem's gradient

The first step is the same for both. Singular values are computed in float64 always,
logits and their softmax in `dtype`. The residual of a label is summed from the weights
of the others, so it keeps its digits where it is small.
"""

import jax
import numpy as np

import jaxrecall

STEPS = 6
"""The most steps of a run."""

BLOCK = 256
"""Items whose logits are in memory at once."""

DECAYS = {
    "constant": lambda t: 1.0,
    "inverse": lambda t: 1 / t,
    "halving": lambda t: 2.0 ** (1 - t),
}
"""The rate of step t over that of step 1."""


def capacity(d, alpha, t):
    """d_t, the predicted number of items after t steps, up to constants."""
    return d ** (2 - (1 - 1 / (2 * alpha)) ** t)


def thresholded(wanted, Z_in, Z_out):
    """(d, d): sum_i wanted_i (z_out(i) - mean z_out) z_in(i)^T."""
    return (Z_out * wanted[:, None]).T @ Z_in - np.outer(
        Z_out.mean(axis=0), wanted @ Z_in
    )


def after(W, p, Z_in, Z_out, gradient="exact", dtype="float64", tested=None):
    """Which items W recalls (V,), and the gradient downhill (d, d).

    With `tested`, only that many of the most frequent items are tested, and the others
    count as not recalled. An exact gradient tests all.
    """
    V, G = len(p), np.zeros_like(W)
    recalled, residual = np.zeros(V, bool), np.zeros(V)
    outputs, keys = Z_out.astype(dtype), (Z_in @ W.T).astype(dtype)
    end = V if tested is None or gradient == "exact" else min(tested, V)
    for start in range(0, end, BLOCK):
        items = np.arange(start, min(start + BLOCK, end))
        logits, own = keys[items] @ outputs.T, (items - start, items)
        right = logits[own].copy()
        logits[own] = -np.inf
        best = logits.max(axis=1)
        recalled[items] = right > best
        if gradient == "exact":
            top = np.maximum(right, best)
            logits -= top[:, None]
            others = np.exp(logits, out=logits).sum(axis=1)
            total = others + np.exp(right - top)
            residual[items] = others / total
            G -= outputs.T @ (
                logits.T @ (Z_in[items] * (p[items] / total)[:, None]).astype(dtype)
            )
    if gradient == "thresholded":
        return recalled, thresholded(np.where(recalled, 0, p), Z_in, Z_out)
    return recalled, G + (Z_out * (p * residual)[:, None]).T @ Z_in


def iterates(Z_in, Z_out, p, point):
    """After each step: how many items are recalled, and the smallest singular value of
    its gradient over the largest.
    """
    d = Z_in.shape[1]
    W, G = np.zeros((d, d)), thresholded(p, Z_in, Z_out)
    for t in range(1, point.n_steps + 1):
        U, s, Vt = np.linalg.svd(G)
        lam = point.c_lam * capacity(d, point.alpha, t) ** -point.alpha * d**0.5
        W = (
            W
            + point.c_eta
            * d**0.5
            * DECAYS[point.decay](t)
            * (U * (s / np.hypot(s, lam)))
            @ Vt
        )
        wanted = (
            point.gradient if t < point.n_steps else "thresholded"
        )  # of the last step nothing is used, and this is cheaper
        tested = getattr(point, "tested", None) if t == point.n_steps else None
        recalled, G = after(W, p, Z_in, Z_out, wanted, point.dtype, tested)
        yield recalled, s[-1] / s[0]


def run(point, key):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    Z_in, Z_out = rng.normal(size=(2, point.V, point.d)) / point.d**0.5
    p = np.arange(1, point.V + 1) ** -point.alpha
    row = {}
    for t, (recalled, spread) in enumerate(
        iterates(Z_in, Z_out, p / p.sum(), point), start=1
    ):
        row |= {
            f"recalled_{t}": int(recalled.sum()),
            f"spread_{t}": float(spread),
            "accuracy": float(recalled.mean()),
        }
    return {name: row.get(name) for name in COLUMNS}


COLUMNS = {
    "accuracy": (float, "fraction of all items that are recalled after the last step")
}
COLUMNS |= {
    f"recalled_{t}": (int, f"items recalled after step {t}")
    for t in range(1, STEPS + 1)
}
COLUMNS |= {
    f"spread_{t}": (
        float,
        f"smallest singular value of the gradient of step {t}, over the largest",
    )
    for t in range(1, STEPS + 1)
}

FIELDS = {
    "V": (int, None, 2, 65536, "static"),
    "d": (int, None, 2, 4096, "static"),
    "alpha": (float, None, 1.0, 10.0, "traced"),
    "gradient": (str, "exact", ("exact", "thresholded"), None, "static"),
    "c_eta": (float, 1.0, 0.0, None, "traced"),
    "c_lam": (float, 0.3, 0.0, None, "traced"),
    "decay": (str, "constant", tuple(DECAYS), None, "static"),
    "n_steps": (int, STEPS, 1, STEPS, "static"),
    "dtype": (str, "float32", ("float32", "float64"), None, "static"),
}

simulator = jaxrecall.Simulator(
    run, fields=FIELDS, columns=COLUMNS, accuracy="accuracy", jit=False
)

frequent = jaxrecall.Simulator(
    run,
    fields=FIELDS | {"tested": (int, None, 1, 65536, "static")},
    columns=COLUMNS,
    accuracy="accuracy",
    jit=False,
)
"""The same, but after the last step only the `tested` most frequent items are tested.
The others count as not recalled.
"""
