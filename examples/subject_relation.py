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

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrecall
from jaxrecall import field

N_MAX = 2**14
"""Samples that every run draws; batches go through the first N, over and over, so that
one program serves all N.
"""


def sample(answers, noise, L, words):
    """Tokens (L,), relation and answer of a sequence, from L + 4 random words; tokens
    are subjects, then relations, then noise.
    """
    S, R = answers.shape
    s, r = words[0] % S, words[1] % R
    place_of_s = words[2] % L
    place_of_r = (place_of_s + 1 + words[3] % (L - 1)) % L
    tokens = S + R + words[4:] % noise
    return tokens.at[place_of_s].set(s).at[place_of_r].set(S + r), r, answers[s, r]


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
    scores, _ = jax.vmap(logits, (None, None, 0))(trained, fixed, tokens)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, answers))


def tables(n_tokens, n_answers, d, H, d_head, m, key):
    """What is fixed, and what is trained before its first step: W_h = 0 attends to all
    tokens alike, and P = 0 adds nothing.
    """
    rows = {
        "Z_in": n_tokens,
        "Z_out": n_answers,
        "z_eos": 1,
        "U": H * d_head,
        "O": H * d_head,
        "Q": m,
    }
    normal = jax.random.normal(key, (sum(rows.values()), d)) / d**0.5
    parts = jnp.split(normal, np.cumsum([*rows.values()])[:-1])
    drawn = dict(zip(rows, parts, strict=True))
    fixed = {"Z_in": drawn["Z_in"], "Z_out": drawn["Z_out"], "z_eos": drawn["z_eos"][0]}
    O_h = drawn["O"].reshape(H, d_head, d).transpose(0, 2, 1)
    trained = {
        "W": jnp.zeros((H, d, d)),
        "U": drawn["U"].reshape(H, d_head, d),
        "O": O_h * (d / (H * d_head)) ** 0.5,
    }
    if m:
        trained |= {"P": jnp.zeros((d, m)), "Q": drawn["Q"] * d**0.5}
    return fixed, trained


Size = Annotated[int, field(low=1)]
Count = Annotated[int, field(low=0)]


@jaxrecall.simulator(
    static=("S", "R", "D", "noise", "L", "d", "H", "d_head", "m", "batch", "n_test"),
    measure="accuracy",
)
def simulator(
    key,
    *,
    S: Size = 16,
    R: Size = 4,
    D: Size = 8,
    noise: Size = 16,
    L: Annotated[int, field(low=2)] = 8,
    N: Annotated[int, field(low=1, high=N_MAX)] = N_MAX,
    d: Size = 16,
    H: Size = 2,
    d_head: Count = 0,
    m: Count = 0,
    updates: Count = 400,
    batch: Size = 128,
    lr: Annotated[float, field(low=0)] = 0.02,
    n_test: Size = 1024,
):
    """Trains on batches of the N samples, and measures on n_test new sequences. A
    d_head of 0 means d / H: then the heads together have 2 d^2 entries for any H.

    accuracy             fraction of new sequences that are answered right
    relation_accuracy    fraction of those whose answer is one of the relation's
    attention_mass       mean softmax weight on subject and relation together, over
        heads and sequences
    test_loss            mean cross-entropy of new sequences (nats)
    parameters           entries of U_h, O_h, P and Q, and of W_h z_eos, which is all
        that W_h acts by
    """
    facts_key, tables_key, samples_key = (jax.random.fold_in(key, i) for i in range(3))
    u = jax.random.bits(facts_key, (S, R)) % D
    answers = u.astype(jnp.int32) + D * jnp.arange(R, dtype=jnp.int32)[None]
    words = jax.random.bits(samples_key, (N_MAX + n_test, L + 4))
    samples = jax.vmap(lambda words: sample(answers, noise, L, words))(words)
    tokens, r, right = (part[N_MAX:] for part in samples)
    width = d_head or max(d // H, 1)
    fixed, trained = tables(S + R + noise, R * D, d, H, width, m, tables_key)

    def batch_of(t):
        chosen = (t * batch + jnp.arange(batch)) % N
        return samples[0][chosen], samples[2][chosen]

    def mean_loss(trained, samples):
        return loss(trained, fixed, *samples)

    trained, _ = jaxrecall.train(mean_loss, trained, batch_of, optax.adam(lr), updates)
    scores, attention = jax.vmap(logits, (None, None, 0))(trained, fixed, tokens)
    answer = jnp.argmax(scores, axis=1)
    is_signal = (tokens < S + R)[:, None]
    mass = jnp.sum(jnp.where(is_signal, attention, 0.0), axis=2)
    n_entries = sum(table.size for name, table in trained.items() if name != "W")
    return {
        "accuracy": jnp.mean(answer == right),
        "relation_accuracy": jnp.mean(answer // D == r),
        "attention_mass": jnp.mean(mass),
        "test_loss": loss(trained, fixed, tokens, right),
        "parameters": n_entries + H * d,
    }


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
