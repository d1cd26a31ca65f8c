"""The three steps with the singular values of each gradient damped: does the optimiser
change what attention learns?

    V1 = -eta h1(G1),     w = -push g / |z_trig . g|,     V2 = -h3(G3),     h(U S V^T) =
        U h(S) V^T
    h(s) = (s / s_1) sqrt(1 + lam^2) / sqrt((s / s_1)^2 + lam^2),     s_1 the largest
        singular value

G1 = grad_V loss(0, 0), g = grad_w loss(V1, 0), G3 = grad_V loss(V1, w), w = W_KQ z_eos.
lam = 0 is the exact polar factor, lam = 1e6 to rounding the plain gradient over its
norm. The gradient of W_KQ has rank one, so h could change the length of w alone: `push`
sets it, the |trigger_score| in nats, alike for all lam. eta is the spectral norm of V1.
V2 leaves V1 out, as where gamma2 >> eta.

A sample is a token x and a noise sequence k with a weight, and noise sequences are
counts of tokens. Without a pool these are the samples of `jaxrecall.simulate` for the
same seed, and lam1 = lam3 = 1e6, a small eta and its trigger_score give its rows with
exact: full.
"""

import jax
import jax.numpy as jnp

import jaxrecall

WEIGHTS = 100
"""Address of random numbers of this file; `jaxrecall.draws` has those up to 9."""


def damped(G, lam):
    """U h(S) V^T, of spectral norm 1. Singular values at rounding level are 0, as in
    the optimiser `polar`.
    """
    U, s, Vt = jnp.linalg.svd(G, full_matrices=False)
    share = s / s[0]
    h = jnp.where(
        share > max(G.shape) * jnp.finfo(G.dtype).eps,
        share * jnp.hypot(1.0, lam) / jnp.hypot(share, lam),
        0.0,
    )
    return (U * h[None]) @ Vt


def attend(tables, w, counts):
    """Scores of tokens with the trigger (V,), lse of those of noise sequences (K,), and
    what these attend to (K, d).
    """
    scores = tables["Z_in"] @ w
    total = jax.nn.logsumexp(scores[None], b=counts, axis=1)
    # one logsumexp for all tokens of a sequence: e^(score - total) is at most 1 where
    # the token occurs, and must not overflow elsewhere
    weights = counts * jnp.exp(
        jnp.where(counts > 0, scores[None] - total[:, None], -jnp.inf)
    )
    return scores + tables["z_trig"] @ w, total, weights @ tables["Z_in"]


def predict(tables, V_mat, w, counts, x, k):
    """Logits (P, V) of pairs of a token and a noise sequence, labels in the order of
    their tokens, and attention on the token (P,).
    """
    own, total, noise = attend(tables, w, counts)
    attention = jax.nn.sigmoid(own[x] - total[k])
    of_token, of_noise = (
        tables["values"] @ V_mat.T @ tables["Z_out"].T,
        noise @ V_mat.T @ tables["Z_out"].T,
    )
    return (
        attention[:, None] * of_token[x] + (1 - attention)[:, None] * of_noise[k],
        attention,
    )


def loss(V_mat, w, tables, counts, x, k, weights):
    """Weighted mean of the cross-entropy (nats) over pairs."""
    logits, _ = predict(tables, V_mat, w, counts, x, k)
    own = jnp.take_along_axis(logits, x[:, None], axis=1)[:, 0]
    return weights @ (jax.nn.logsumexp(logits, axis=1) - own)


def noise_of(tokens, positions, V):
    """The informative tokens (n,), and counts (n, V) of those beside them."""
    rows = jnp.arange(len(tokens))
    x = tokens[rows, positions]
    return x, jnp.zeros((len(tokens), V)).at[rows[:, None], tokens].add(1.0).at[
        rows, x
    ].add(-1.0)


def three_steps(tables, samples, lam1, lam3, push, eta):
    """V1, w and V2."""
    d = tables["Z_in"].shape[1]
    V0, w0 = jnp.zeros((d, d), tables["Z_in"].dtype), jnp.zeros(d, tables["Z_in"].dtype)
    V1 = -eta * damped(jax.grad(loss)(V0, w0, tables, *samples), lam1)
    g = jax.grad(loss, 1)(V1, w0, tables, *samples)
    w = -push * g / jnp.abs(tables["z_trig"] @ g)
    return V1, w, -damped(jax.grad(loss)(V1, w, tables, *samples), lam3)


def learned(point, key):
    tokens = f"zipf(s={point.s})" if point.s else "uniform"
    V = point.V
    r = jaxrecall.draws(
        jaxrecall.Point(
            V=V,
            d=point.d,
            L=point.L,
            N=point.sequences,
            n_test=point.n_test,
            tokens=tokens,
        ),
        key,
    )
    trigger = jnp.where(point.trigger_in_value, 1.0, 0.0) * r.z_trig
    tables = {
        "Z_in": r.Z_in,
        "Z_out": r.Z_out[r.perm],
        "z_trig": r.z_trig,
        "values": r.Z_in + trigger[None],
    }
    p = jnp.arange(1.0, V + 1) ** -point.s
    p = p / jnp.sum(p)
    x, counts = noise_of(*r.batches[0][:2], V)
    k = jnp.arange(point.sequences)
    # pairs of every token and every noise sequence, as often as a Poisson number says
    if point.pool:
        x, k = jnp.repeat(jnp.arange(V), point.sequences), jnp.tile(k, V)
        weights = jax.random.poisson(
            jax.random.fold_in(key, WEIGHTS), point.N * p[x] / point.sequences
        ).astype(jnp.float32)
    else:
        weights = jnp.where(
            point.N > point.sequences, jnp.nan, jnp.where(k < point.N, 1.0, 0.0)
        )  # NaN: a row of status nonfinite
    with jax.default_matmul_precision("highest"):
        samples = counts, x, k, weights / jnp.sum(weights)
        V1, w, V2 = three_steps(
            tables, samples, point.lam1, point.lam3, point.push, point.eta
        )
        return measured(tables, V1, w, V2, r.test[:2], p, point.eta)


def measured(tables, V1, w, V2, test, p, eta):
    """The columns that follow from what was learned."""
    V = len(p)
    x, counts = noise_of(*test, V)
    logits, attention = predict(tables, V2, w, counts, x, jnp.arange(len(x)))
    recalled = jnp.argmax(
        tables["values"] @ V2.T @ tables["Z_out"].T, axis=1
    ) == jnp.arange(V)
    mean = p @ tables["Z_in"]
    return {
        "accuracy": jnp.mean(jnp.argmax(logits, axis=1) == x),
        "attention_mass": jnp.mean(attention),
        "memory_accuracy": jnp.mean(recalled),
        "step1_memory_accuracy": jnp.mean(
            jnp.argmax(tables["Z_in"] @ V1.T @ tables["Z_out"].T, axis=1)
            == jnp.arange(V)
        ),
        "trigger_score": tables["z_trig"] @ w,
        "score_std": jnp.std(tables["Z_in"] @ w),
        "mean_share": jnp.sum((V1 @ mean) ** 2) / jnp.sum(mean**2) / jnp.sum(V1**2),
        "effective_rank": jnp.sum(V1**2) / eta**2,
    }


simulator = jaxrecall.Simulator(
    learned,
    fields={  # name: (type, default, low, high, "static" or "traced")
        "V": (int, 64, 2, 4096, "static"),
        "N": (int, None, 1, 2**30, "traced"),
        "d": (int, 64, 1, 4096, "static"),
        "L": (int, 8, 2, 65536, "static"),
        "s": (float, 0.0, 0.0, 10.0, "static"),  # tokens zipf(s); 0: uniform
        "trigger_in_value": (bool, False, None, None, "traced"),
        "sequences": (
            int,
            512,
            1,
            2**20,
            "static",
        ),  # drawn; without a pool the first N of them are the samples
        "pool": (
            bool,
            True,
            None,
            None,
            "static",
        ),  # whether samples are pairs of a token and the noise of one of the sequences
        "lam1": (float, 1e6, 0.0, 1e6, "traced"),
        "lam3": (float, 1e6, 0.0, 1e6, "traced"),
        "push": (float, 100.0, 0.0, None, "traced"),
        "eta": (float, 1e-4, 0.0, None, "traced"),
        "n_test": (int, 512, 1, 2**20, "static"),
    },
    columns={  # name: (type, meaning)
        "accuracy": (
            float,
            "fraction of test sequences whose label has the largest logit",
        ),
        "attention_mass": (
            float,
            "mean softmax weight on the informative token of test sequences",
        ),
        "memory_accuracy": (
            float,
            (
                "fraction of the vocabulary recalled by V2 from the value of the token"
                " alone"
            ),
        ),
        "step1_memory_accuracy": (
            float,
            "the same by V1, from the embedding of the token",
        ),
        "trigger_score": (float, "z_trig . w (nats), +push or -push"),
        "score_std": (
            float,
            "standard deviation of z_in . w over the vocabulary (nats)",
        ),
        "mean_share": (float, "part of |V1|^2 along the mean embedding of tokens"),
        "effective_rank": (
            float,
            "sum of the squared singular values of V1 over the largest",
        ),
    },
    accuracy="accuracy",
)
