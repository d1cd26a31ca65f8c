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

import jax
import jax.numpy as jnp
import optax

import jaxrecall

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
    found, _ = jax.vmap(logits, (None, 0, 0, 0))(fixed | trained, tokens, ell, t)
    return weights @ optax.softmax_cross_entropy_with_integer_labels(found, labels)


def positions(point, key):
    """(L, d) position vectors of norm about 1.

    sinusoidal    sqrt(2/d) (sin, cos)(j / 10000^(2i/d)),   Vaswani et al.,
        arXiv:1706.03762, section 3.5
    random        entries N(0, 1/d), which the three steps leave as they are, and
        further steps train
    """
    if point.positions == "none":
        return jnp.zeros((point.L, point.d))
    if point.positions == "random":
        return (
            jax.random.normal(jax.random.fold_in(key, POSITIONS), (point.L, point.d))
            / point.d**0.5
        )
    angle = jnp.arange(point.L)[:, None] / 10000.0 ** (
        jnp.arange(0, point.d, 2)[None] / point.d
    )
    return (
        jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=1)[:, : point.d]
        * (2 / point.d) ** 0.5
    )


def value_maps(point, key):
    """(H, d_head, d) value maps: the identity cut into H parts where H d_head = d, else
    the first rows of a random rotation each.
    """
    width = point.d_head or point.d // point.H
    if width * point.H == point.d:
        return jnp.eye(point.d).reshape(point.H, width, point.d)
    normal = jax.random.normal(
        jax.random.fold_in(key, MAPS), (point.H, point.d, point.d)
    )
    return jnp.linalg.qr(normal)[0][:, :width]


def learned(point, key):
    """Trains the heads on N samples, and measures them on test sequences."""
    d, H = point.d, point.H
    plain = jaxrecall.Point(V=point.V, N=N_MAX, d=d, L=point.L, n_test=point.n_test)
    draws = jaxrecall.draws(plain, key)
    more = (
        jax.random.normal(jax.random.fold_in(key, TRIGGERS), (point.triggers - 1, d))
        / d**0.5
    )
    which = (
        jax.random.bits(jax.random.fold_in(key, WHICH), (N_MAX + point.n_test,))
        % point.triggers
    )
    train, test = (*draws.batches[0], which[:N_MAX]), (*draws.test, which[N_MAX:])
    weights = jnp.where(jnp.arange(N_MAX) < point.N, 1.0, 0.0) / point.N

    fixed = {
        "Z_in": draws.Z_in,
        "Z_out": draws.Z_out,
        "z_eos": draws.z_eos,
        "z_trig": jnp.concatenate([draws.z_trig[None], more]),
    }
    fixed |= {"p": positions(point, key), "U": value_maps(point, key)}
    fixed |= {
        "in_value": {
            "trigger": 1.0 * point.trigger_in_value,
            "positions": 1.0 * point.positions_in_value,
        }
    }

    def mean(trained, samples):
        return loss(trained, fixed, samples, weights)

    rates = jaxrecall.rates(plain, eta=point.eta, kappa=point.kappa)
    rates = rates._replace(
        gamma2=jnp.where(point.gamma2 > 0, point.gamma2, rates.gamma)
    )
    V, W = jnp.zeros((H, d, fixed["U"].shape[1])), jnp.zeros((H, d, d))
    _, W, V = jaxrecall.recipe(
        lambda V, W, samples: mean({"V": V, "W": W}, samples), V, W, [train] * 3, rates
    )

    trained = {"V": V, "W": W} | (
        {"p": fixed["p"]} if point.positions == "random" else {}
    )
    optimizer = {"sgd": optax.sgd, "adam": optax.adam}[point.optimizer](point.lr)
    trained, _ = jaxrecall.train(
        mean, trained, lambda t: train, optimizer, point.further
    )
    return measured(fixed | trained, test) | {
        "loss": mean(trained, train),
        "parameters": V.size + H * d,
    }


def measured(model, test):
    """The columns that follow from a model and its test sequences."""
    tokens, ell, labels, t = test
    found, attention = jax.vmap(logits, (None, 0, 0, 0))(model, tokens, ell, t)
    is_label = jnp.arange(found.shape[1])[None] == labels[:, None]
    own = jnp.sum(jnp.where(is_label, found, 0.0), axis=1)
    margin = (own - jnp.max(jnp.where(is_label, -jnp.inf, found), axis=1)) / jnp.std(
        found, axis=1
    )
    w = model["W"] @ model["z_eos"]
    return {
        "accuracy": jnp.mean(jnp.argmax(found, axis=1) == labels),
        "test_margin": jnp.mean(margin),
        "attention_mass": jnp.mean(
            jnp.take_along_axis(attention, ell[:, None, None], axis=2)
        ),
        "trigger_score": jnp.mean(w @ model["z_trig"].T),
        "score_std": jnp.mean(jnp.std(w @ model["Z_in"].T, axis=1)),
    }


simulator = jaxrecall.Simulator(
    learned,
    fields={  # name: (type, default, low, high, "static" or "traced")
        "V": (int, 64, 2, 65536, "static"),
        "N": (int, None, 1, N_MAX, "traced"),
        "d": (int, 32, 1, 4096, "static"),
        "L": (int, 8, 1, 65536, "static"),
        "H": (int, 1, 1, 64, "static"),
        "d_head": (
            int,
            0,
            0,
            4096,
            "static",
        ),  # 0: d / H, so that V_1 ... V_H together have d^2 entries for any H
        "positions": (str, "none", ("none", "sinusoidal", "random"), None, "static"),
        "triggers": (
            int,
            1,
            1,
            1024,
            "static",
        ),  # each sample is marked by one of so many
        "trigger_in_value": (bool, True, None, None, "traced"),
        "positions_in_value": (bool, True, None, None, "traced"),
        "eta": (float, 1e-3, 0.0, None, "traced"),
        "kappa": (float, 100.0, 0.0, None, "traced"),
        "gamma2": (
            float,
            0.0,
            0.0,
            None,
            "traced",
        ),  # 0: as gamma; of the order of V where further steps follow
        "further": (int, 0, 0, 10**6, "traced"),
        "optimizer": (str, "adam", ("adam", "sgd"), None, "static"),
        "lr": (float, 0.02, 0.0, None, "traced"),
        "n_test": (int, 1024, 1, 2**20, "static"),
    },
    columns={  # name: (type, meaning)
        "accuracy": (
            float,
            "fraction of test sequences whose label has the largest logit",
        ),
        "test_margin": (
            float,
            (
                "mean of (logit of the label - best other) / standard deviation of the"
                " logits"
            ),
        ),
        "attention_mass": (
            float,
            (
                "mean softmax weight on the informative token, over heads and test"
                " sequences"
            ),
        ),
        "trigger_score": (
            float,
            "mean over heads and triggers of z_trig . W_h z_eos (nats)",
        ),
        "score_std": (
            float,
            (
                "standard deviation over the vocabulary of z_in . W_h z_eos, mean over"
                " heads (nats)"
            ),
        ),
        "loss": (float, "mean cross-entropy of the N samples (nats)"),
        "parameters": (
            int,
            "entries of all V_h, and of W_h z_eos, which is all that W_h acts by",
        ),
    },
    accuracy="accuracy",
)

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
