"""Several attention heads, positions and several triggers: do they help the transformer
of this package to recall, or hurt?

    key and value    k_j = z_in(x_j) + 1{j = ell} z_trig(t) + p_j,     v_j = k_j, or k_j
        less the trigger or p_j
    head h           a_h = softmax_j(k_j . W_h z_eos),     o_h = U_h sum_j a_hj v_j
    logits           Z_out sum_h V_h o_h,     loss = mean cross-entropy (nats)

W_h (d x d) and V_h (d x d_head) are trained from zero by the three steps of the recipe
(arXiv:2603.15923), each along jax.grad of the loss, and then by `further` steps of an
optax optimizer. The value maps U_h (d_head x d) are fixed: without them all heads would
stay equal. Heads that share d (the default) cut the identity into H parts: where all of
them lock, their outputs together are the output of one head. With one head, one trigger
and no positions this is the model of `jaxrecall.simulate`, on the same draws for the
same seed.

python heads.py                                          # accuracy against N for 1, 2
    and 4 heads, and N* for each
jaxrecall sweep --grid heads.yaml --workers 2            # the same from a grid file
    that says simulator: heads:simulator
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import optax

import jaxrecall
from jaxrecall import field

N_MAX = 4096
"""Samples that every run draws; those from N on have weight 0, so that one program
serves all N. Raise it for longer curves.
"""

POSITIONS, TRIGGERS, WHICH, MAPS = range(100, 104)
"""Addresses of random numbers of this file; `jaxrecall.draws` has those up to 9."""


def logits(model, tokens, ell, t):
    """Logits (V,) of a sequence, and attention (H, L): tokens (L,), the informative one
    at `ell` and marked by trigger t.
    """
    is_ell = (jnp.arange(len(tokens)) == ell)[:, None]
    trigger = jnp.where(is_ell, model["z_trig"][t][None], 0.0)
    z, in_value = model["Z_in"][tokens], model["in_value"]
    keys = z + trigger + model["p"]
    values = z + in_value["trigger"] * trigger + in_value["positions"] * model["p"]
    attention = jax.nn.softmax((model["W"] @ model["z_eos"]) @ keys.T)
    outputs = jnp.einsum("hcd,hd->hc", model["U"], attention @ values)
    return model["Z_out"] @ jnp.einsum("hdc,hc->d", model["V"], outputs), attention


def loss(trained, fixed, samples, weights):
    """Weighted mean of the cross-entropy (nats) over samples: tokens (n, L), positions,
    labels and triggers (n,).
    """
    tokens, ell, labels, t = samples
    scores, _ = jax.vmap(logits, (None, 0, 0, 0))(fixed | trained, tokens, ell, t)
    return weights @ optax.softmax_cross_entropy_with_integer_labels(scores, labels)


def positions_of(kind, L, d, key):
    """(L, d) position vectors of norm about 1.

    sinusoidal    sqrt(2/d) (sin, cos)(j / 10000^(2i/d)),   Vaswani et al.,
        arXiv:1706.03762, section 3.5
    random        entries N(0, 1/d), which the three steps leave as they are, and
        further steps train
    """
    if kind == "none":
        return jnp.zeros((L, d))
    if kind == "random":
        return jax.random.normal(jax.random.fold_in(key, POSITIONS), (L, d)) / d**0.5
    angle = jnp.arange(L)[:, None] / 10000.0 ** (jnp.arange(0, d, 2)[None] / d)
    waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=1)
    return waves[:, :d] * (2 / d) ** 0.5


def value_maps(H, width, d, key):
    """(H, width, d) value maps: the identity cut into H parts where H width = d, else
    the first rows of a random rotation each.
    """
    if width * H == d:
        return jnp.eye(d).reshape(H, width, d)
    normal = jax.random.normal(jax.random.fold_in(key, MAPS), (H, d, d))
    return jnp.linalg.qr(normal)[0][:, :width]


Size = Annotated[int, field(low=1)]
Rate = Annotated[float, field(low=0)]


@jaxrecall.simulator(
    static=("V", "d", "L", "H", "d_head", "triggers", "n_test"), measure="accuracy"
)
def simulator(
    key,
    *,
    V: Annotated[int, field(low=2)] = 64,
    N: Annotated[int, field(low=1, high=N_MAX)],
    d: Size = 32,
    L: Size = 8,
    H: Size = 1,
    d_head: Annotated[int, field(low=0)] = 0,
    positions: Literal["none", "sinusoidal", "random"] = "none",
    triggers: Size = 1,
    trigger_in_value: bool = True,
    positions_in_value: bool = True,
    eta: Rate = 1e-3,
    kappa: Rate = 100.0,
    gamma2: Rate = 0.0,
    further: Annotated[int, field(low=0)] = 0,
    optimizer: Literal["adam", "sgd"] = "adam",
    lr: Rate = 0.02,
    n_test: Size = 1024,
):
    """Trains the heads on N samples, and measures them on n_test sequences.

    A d_head of 0 means d / H: then V_1 ... V_H together have d^2 entries for any H.
    Each sample is marked by one of so many triggers. A gamma2 of 0 means gamma. If
    further steps follow, it should be of the order of V.
    """
    plain = jaxrecall.Point(V=V, N=N_MAX, d=d, L=L, n_test=n_test)
    draws = jaxrecall.draws(plain, key)
    triggers_key, which_key = (jax.random.fold_in(key, i) for i in (TRIGGERS, WHICH))
    more = jax.random.normal(triggers_key, (triggers - 1, d)) / d**0.5
    which = jax.random.bits(which_key, (N_MAX + n_test,)) % triggers
    train, test = (*draws.batches[0], which[:N_MAX]), (*draws.test, which[N_MAX:])
    weights = jnp.where(jnp.arange(N_MAX) < N, 1.0, 0.0) / N

    fixed = {
        "Z_in": draws.Z_in,
        "Z_out": draws.Z_out,
        "z_eos": draws.z_eos,
        "z_trig": jnp.concatenate([draws.z_trig[None], more]),
        "p": positions_of(positions, L, d, key),
        "U": value_maps(H, d_head or d // H, d, key),
        "in_value": {
            "trigger": 1.0 * trigger_in_value,
            "positions": 1.0 * positions_in_value,
        },
    }

    def mean_loss(trained, samples):
        return loss(trained, fixed, samples, weights)

    rates = jaxrecall.rates(plain, eta=eta, kappa=kappa)
    rates = rates._replace(gamma2=jnp.where(gamma2 > 0, gamma2, rates.gamma))
    V_0, W_0 = jnp.zeros((H, d, fixed["U"].shape[1])), jnp.zeros((H, d, d))
    _, W_1, V_2 = jaxrecall.recipe(
        lambda V_mat, W, samples: mean_loss({"V": V_mat, "W": W}, samples),
        V_0,
        W_0,
        [train] * 3,
        rates,
    )

    trained = {"V": V_2, "W": W_1}
    if positions == "random":
        trained["p"] = fixed["p"]
    update = {"sgd": optax.sgd, "adam": optax.adam}[optimizer](lr)
    trained, _ = jaxrecall.train(mean_loss, trained, lambda t: train, update, further)
    return measured(fixed | trained, test) | {
        "loss": mean_loss(trained, train),
        "parameters": V_2.size + H * d,
    }


def measured(model, test):
    """The columns that follow from a model and its test sequences, and two more: `loss`
    is the mean cross-entropy of the N samples (nats), and `parameters` the number of
    entries of all V_h and of W_h z_eos, which is all that W_h acts by.

    accuracy          fraction of test sequences whose label has the largest logit
    test_margin       mean of (logit of the label - best other) / std of the logits
    attention_mass    mean softmax weight on the informative token, over heads and
        sequences
    trigger_score     mean over heads and triggers of z_trig . W_h z_eos (nats)
    score_std         std over the vocabulary of z_in . W_h z_eos, mean over heads
        (nats)
    """
    tokens, ell, labels, t = test
    scores, attention = jax.vmap(logits, (None, 0, 0, 0))(model, tokens, ell, t)
    is_label = jnp.arange(scores.shape[1])[None] == labels[:, None]
    of_label = jnp.sum(jnp.where(is_label, scores, 0.0), axis=1)
    best_other = jnp.max(jnp.where(is_label, -jnp.inf, scores), axis=1)
    margin = (of_label - best_other) / jnp.std(scores, axis=1)
    mass = jnp.take_along_axis(attention, ell[:, None, None], axis=2)
    w = model["W"] @ model["z_eos"]
    return {
        "accuracy": jnp.mean(jnp.argmax(scores, axis=1) == labels),
        "test_margin": jnp.mean(margin),
        "attention_mass": jnp.mean(mass),
        "trigger_score": jnp.mean(w @ model["z_trig"].T),
        "score_std": jnp.mean(jnp.std(w @ model["Z_in"].T, axis=1)),
    }


GRID = {
    "name": "heads",
    "seeds": 8,
    "blocks": [{"axes": {"H": [1, 2, 4], "N": [64, 128, 256, 512, 1024, 2048, 4096]}}],
}

if __name__ == "__main__":
    df = jaxrecall.run(GRID, simulator=simulator)
    print(df.pivot_table("accuracy", "N", "H").round(3))
    search = {
        "base": {"trigger_in_value": False},
        "blocks": [{"axes": {"H": [1, 2]}}],
        "search": {"axis": "N", "from": 16, "to": N_MAX},
    }
    print(jaxrecall.thresholds(jaxrecall.run(search, seeds=100, simulator=simulator)))
