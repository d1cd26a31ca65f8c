"""The factual recall of Nichani, Lee and Bietti (arXiv:2412.06538): the answer is a
function of a subject and a relation in the sequence.

    tokens     L of them: one subject s < S and one relation r < R at random places,
        noise tokens elsewhere; EOS comes last and asks
    answer     a(s, r) = D r + u(s, r),   u uniform on 0..D-1: each relation has D
        answers of its own
    head h     a_h = softmax_j(z_in(x_j) . W_h z_eos),     o = sum_h O_h U_h sum_j a_hj
        z_in(x_j)
    logits     Z_out f,     f = o,  or with an MLP  f = o + P relu(Q o) / sqrt(m)

U_h (d_head x d), O_h (d x d_head), W_h, P and Q are trained by Adam on N samples;
embeddings are fixed with entries N(0, 1/d). The paper proves that the facts S R that
can be stored grow, up to logarithms, in proportion to the parameters of the heads or of
the MLP, and that answers are first right in their relation alone: then
`relation_accuracy` is high and `accuracy` near 1/D. Its proofs and sizes are its own;
its dynamics are of linear attention on orthogonal rows. Rates, batches and the scales
of the start here are ours, and nothing here measures how the number of facts grows with
the parameters.

python subject_relation.py                                   # accuracy against d for
    several numbers of subjects, and N* for each
jaxrecall sweep --grid subject_relation.yaml --workers 2     # the same from a grid file
    that says simulator: subject_relation:simulator
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrecall

N_MAX = 2**14
"""Samples that every run draws; batches go through the first N, over and over, so that
one program serves all N.
"""


def sample(point, answers, words):
    """Tokens (L,), relation and answer of a sequence, from L + 4 random words; tokens
    are subjects, then relations, then noise.
    """
    s, r = words[0] % point.S, words[1] % point.R
    place = words[2] % point.L
    other = (place + 1 + words[3] % (point.L - 1)) % point.L
    noise = point.S + point.R + words[4:] % point.noise
    return noise.at[place].set(s).at[other].set(point.S + r), r, answers[s, r]


def logits(trained, fixed, tokens):
    """Logits (R D,) of a sequence (L,), and the attention (H, L) of its EOS."""
    x = fixed["Z_in"][tokens]
    attention = jax.nn.softmax((trained["W"] @ fixed["z_eos"]) @ x.T)
    heads = jnp.einsum("hcd,hd->hc", trained["U"], attention @ x)
    f = jnp.einsum("hdc,hc->d", trained["O"], heads)
    if "P" in trained:
        f += trained["P"] @ jax.nn.relu(trained["Q"] @ f) / len(trained["Q"]) ** 0.5
    return fixed["Z_out"] @ f, attention


def loss(trained, fixed, tokens, answers):
    """Mean cross-entropy (nats) of sequences (n, L) with answers (n,)."""
    found, _ = jax.vmap(logits, (None, None, 0))(trained, fixed, tokens)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(found, answers))


def tables(point, key):
    """What is fixed, and what is trained before its first step: W_h = 0 attends to all
    tokens alike, and P = 0 adds nothing.
    """
    d, H, width = point.d, point.H, point.d_head or max(point.d // point.H, 1)
    rows = {
        "Z_in": point.S + point.R + point.noise,
        "Z_out": point.R * point.D,
        "z_eos": 1,
        "U": H * width,
        "O": H * width,
        "Q": point.m,
    }
    normal = jax.random.normal(key, (sum(rows.values()), d)) / d**0.5
    drawn = dict(
        zip(rows, jnp.split(normal, np.cumsum([*rows.values()])[:-1]), strict=True)
    )
    fixed = {"Z_in": drawn["Z_in"], "Z_out": drawn["Z_out"], "z_eos": drawn["z_eos"][0]}
    trained = {
        "W": jnp.zeros((H, d, d)),
        "U": drawn["U"].reshape(H, width, d),
        "O": (
            drawn["O"].reshape(H, width, d).transpose(0, 2, 1)
            * (d / (H * width)) ** 0.5
        ),
    }
    mlp = {"P": jnp.zeros((d, point.m)), "Q": drawn["Q"] * d**0.5}
    return fixed, trained | (mlp if point.m else {})


def learned(point, key):
    """Trains on batches of the N samples, and measures on new sequences."""
    facts_key, tables_key, samples_key = (jax.random.fold_in(key, i) for i in range(3))
    u = jax.random.bits(facts_key, (point.S, point.R)) % point.D
    answers = u.astype(jnp.int32) + point.D * jnp.arange(point.R, dtype=jnp.int32)[None]
    words = jax.random.bits(samples_key, (N_MAX + point.n_test, point.L + 4))
    samples = jax.vmap(sample, (None, None, 0))(point, answers, words)
    tokens, r, right = (part[N_MAX:] for part in samples)
    fixed, trained = tables(point, tables_key)

    def batch_of(t):
        batch = (t * point.batch + jnp.arange(point.batch)) % point.N
        return samples[0][batch], samples[2][batch]

    def mean(trained, batch):
        return loss(trained, fixed, *batch)

    trained, _ = jaxrecall.train(
        mean, trained, batch_of, optax.adam(point.lr), point.updates
    )
    found, attention = jax.vmap(logits, (None, None, 0))(trained, fixed, tokens)
    answer = jnp.argmax(found, axis=1)
    is_signal = (tokens < point.S + point.R)[:, None]
    return {
        "accuracy": jnp.mean(answer == right),
        "relation_accuracy": jnp.mean(answer // point.D == r),
        "attention_mass": jnp.mean(
            jnp.sum(jnp.where(is_signal, attention, 0.0), axis=2)
        ),
        "test_loss": loss(trained, fixed, tokens, right),
        "parameters": (
            sum(a.size for name, a in trained.items() if name != "W")
            + point.H * point.d
        ),
    }


simulator = jaxrecall.Simulator(
    learned,
    fields={  # name: (type, default, low, high, "static" or "traced")
        "S": (int, 16, 1, 65536, "static"),
        "R": (int, 4, 1, 65536, "static"),
        "D": (int, 8, 1, 65536, "static"),
        "noise": (int, 16, 1, 65536, "static"),
        "L": (int, 8, 2, 65536, "static"),
        "N": (int, N_MAX, 1, N_MAX, "traced"),
        "d": (int, 16, 1, 4096, "static"),
        "H": (int, 2, 1, 64, "static"),
        "d_head": (
            int,
            0,
            0,
            4096,
            "static",
        ),  # 0: d / H, so that the heads together have 2 d^2 entries for any H
        "m": (int, 0, 0, 2**20, "static"),
        "updates": (int, 400, 0, 10**6, "traced"),
        "batch": (int, 128, 1, 2**20, "static"),
        "lr": (float, 0.02, 0.0, None, "traced"),
        "n_test": (int, 1024, 1, 2**20, "static"),
    },
    columns={  # name: (type, meaning)
        "accuracy": (float, "fraction of new sequences that are answered right"),
        "relation_accuracy": (
            float,
            "fraction of new sequences whose answer is one of those of the relation",
        ),
        "attention_mass": (
            float,
            (
                "mean softmax weight on the subject and the relation together, over"
                " heads and sequences"
            ),
        ),
        "test_loss": (float, "mean cross-entropy of new sequences (nats)"),
        "parameters": (
            int,
            (
                "entries of U_h, O_h, P and Q, and of W_h z_eos, which is all that W_h"
                " acts by"
            ),
        ),
    },
    accuracy="accuracy",
)

GRID = {
    "name": "subject_relation",
    "seeds": 4,
    "blocks": [{"axes": {"S": [16, 32, 64], "d": [4, 8, 16, 32]}}],
}

if __name__ == "__main__":
    df = jaxrecall.run(GRID, simulator=simulator)
    print(df.pivot_table("accuracy", "d", "S").round(3))
    search = {
        "blocks": [{"axes": {"S": [16, 32]}}],
        "search": {"axis": "N", "theta": 0.8, "from": 16, "to": 4096},
    }
    print(jaxrecall.thresholds(jaxrecall.run(search, seeds=20, simulator=simulator)))
