"""Small cases with answers known by hand."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import METRICS, assert_same_metrics, relative, streamed

from jaxrecall import simulate
from jaxrecall.model.columns import ATTENTION_COLUMNS
from jaxrecall.model.point import Point
from jaxrecall.model.reference.metrics import measure
from jaxrecall.model.reference.realization import realize
from jaxrecall.model.reference.steps import three_step
from jaxrecall.simulator.program_shape import Shape


def test_one_sample():
    """V1 = eta (z_out(y) - mean z_out) h^T, and the one sample is recalled."""
    point = Point(V=20, N=1, d=12, L=3, n_test=50)
    r = realize(point, 2).astype(np.float64)
    x, y = r.train_tokens[0], r.train_labels[0]
    h = (r.Z_in[x].sum(0) + r.z_trig) / 3
    V1 = point.eta * np.outer(r.Z_out[y] - r.Z_out.mean(0), h)
    learned, metrics = streamed(point, 2, Shape(32, 32, 0, "none", "counts"))
    assert relative(three_step(realize(point, 2), point).V1, V1) < 1e-14
    assert relative(learned.V1, V1) < 1e-6
    assert metrics["train_accuracy"] == 1


def test_one_sample_of_two_tokens_moves_attention_along_their_keys():
    """L = 2, eta -> 0: grad_w = -1/4 b^T(v_0 - v_1) (k_0 - k_1), b = V1^T (z_out(y) -
    mean z_out).
    """
    point = Point(V=20, N=1, d=12, L=2, n_test=50, eta=1e-9)
    r = realize(point, 2).astype(np.float64)
    learned = three_step(realize(point, 2), point)
    b = learned.V1.T @ (r.Z_out[r.train_labels[0]] - r.Z_out.mean(0))
    k = (
        r.Z_in[r.train_tokens[0]]
        + (np.arange(2) == r.train_positions[0])[:, None] * r.z_trig
    )
    w = point.gamma * (r.z_eos @ r.z_eos) / 4 * (b @ (k[0] - k[1])) * (k[0] - k[1])
    assert relative(learned.w, w) < 1e-7
    assert (
        relative(streamed(point, 2, Shape(32, 32, 0, "none", "counts"))[0].w, w) < 1e-5
    )


@pytest.mark.slow  # tests of memories see the same in their programs
def test_a_lone_token_leaves_attention_untrained():
    row = simulate(Point(V=20, N=900, d=20, L=1, n_test=300), 0)
    assert row["status"] == "ok"
    assert {row[name] for name in ATTENTION_COLUMNS} == {None}


def test_gamma_zero_leaves_attention_uniform():
    row = simulate(Point(V=20, N=900, d=20, L=4, n_test=300, gamma=0, gamma2=1.0), 0)
    assert row["status"] == "degenerate"
    assert row["attention_mass"] == pytest.approx(0.25, abs=1e-6)
    assert row["attention_top1"] == 0


SELDOM = [
    pytest.param({"exact": "full"} | mlp, marks=pytest.mark.slow)
    for mlp in ({}, {"m": 6})
]
SELDOM += [pytest.param({"m": 6, "activation": "tanh"}, marks=pytest.mark.slow)]


@pytest.mark.parametrize("kw", [{}, *SELDOM], ids=str)
def test_equal_tokens_leave_attention_to_rounding_which_is_degenerate(kw):
    """Seen before: status ok with a trigger score of 1e-6, where all tokens of the only
    sample are equal and w is zero.
    """
    point = Point(
        V=2, N=1, d=5, L=3, n_test=20, trigger_in_value=False, **{"eta": 1e-9, **kw}
    )
    seeds = [
        seed
        for seed in range(40)
        if len(set(realize(point, seed).train_tokens[0])) == 1
    ]
    assert len(seeds) > 4
    assert {row["status"] for row in simulate(point, seeds)} == {"degenerate"}
    others = sorted(set(range(40)) - set(seeds))
    assert {row["status"] for row in simulate(point, others)} == {"ok"}


@pytest.mark.parametrize(
    "kw",
    [
        {
            "N": 2,
            "L": 2,
            "d": 14,
            "streams": "independent",
            "eta": 0.015863746248050217,
            "kappa": 2.8551653143280658,
            "exact": "full",
        },
        {
            "N": 1,
            "L": 9,
            "d": 28,
            "pool": 5,
            "m": 7,
            "activation": "gelu",
            "trigger_in_value": False,
            "eta": 16.600485759693434,
            "kappa": 2276.0,
        },
    ],
    ids=["attention", "mlp"],
)
def test_attention_that_is_small_but_not_rounding_is_ok(kw):
    """Seen before: degenerate, where w is 4e-6 of the largest push and right to three
    digits.
    """
    point = Point(V=2, n_test=200, **kw)
    row, r = simulate(point, 0), realize(point, 0)
    assert row["status"] == "ok"
    assert row["trigger_score"] == pytest.approx(
        r.z_trig.astype(float) @ three_step(r, point).w, rel=0.02
    )


@pytest.mark.parametrize(
    ("optimizer", "trains"),
    [
        ("adam", "VW"),
        *(
            pytest.param("sgd", trains, marks=pytest.mark.slow)
            for trains in ("VWZ", "VW")
        ),
    ],
)
def test_training_from_zero_leaves_attention_to_rounding_which_is_degenerate(
    optimizer, trains
):
    """Seen before: status ok with attention_top1 0.762, where the gradient of W_KQ is
    zero in every step.
    """
    point = Point(
        V=2,
        N=1,
        d=17,
        L=2,
        m=7,
        embedding="orthogonal",
        trigger_in_value=False,
        pool=5,
        n_test=513,
        root_seed=2**32 - 1,
    )
    point = point.replace(
        eta=10.0,
        kappa=0.0,
        gamma2=2.0,
        exact="full",
        start="zero",
        steps=6,
        optimizer=optimizer,
        lr=0.5,
        trains=trains,
    )
    rows = simulate(point, 1, trace=True)
    assert {
        (row["status"], row["attention_top1"], row["snr"], row["W_norm"])
        for row in rows
    } == {("degenerate", 0.0, None, 0.0)}
    assert rows[-1]["V_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("lr", [1e-4, 1e-2, 1.0])
def test_attention_that_training_moves_a_little_is_ok(lr):
    """Its gradient is small at first, as V_mat is."""
    rows = simulate(
        Point(V=8, N=64, d=6, L=4, n_test=64, start="zero", steps=5, lr=lr),
        0,
        trace=True,
    )
    assert [row["status"] for row in rows][:2] == ["degenerate"] * 2
    assert rows[-1]["status"] == "ok"
    assert rows[-1]["W_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "kw",
    [
        {},
        *(
            pytest.param(kw, marks=pytest.mark.slow)
            for kw in ({"m": 6, "activation": "tanh"}, {"pool": 4})
        ),
    ],
    ids=str,
)
def test_no_optimizer_scales_up_the_rounding_of_a_lone_token(kw):
    """Seen before: adam moved W_KQ at its full rate along the signs of a gradient that
    is zero.
    """
    rows = simulate(
        Point(
            V=7,
            N=50,
            d=5,
            L=1,
            n_test=20,
            steps=8,
            optimizer="adam",
            lr=0.1,
            gamma2=1.0,
            **kw,
        ),
        0,
        trace=True,
    )
    assert [(row["status"], row["W_norm"]) for row in rows] == [("ok", 0.0)] * 3


@pytest.mark.parametrize(
    "trigger_in_value", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_orthogonal_embeddings_and_many_samples_recall_everything(trigger_in_value):
    row = simulate(
        Point(
            V=20,
            N=16384,
            d=22,
            L=4,
            embedding="orthogonal",
            trigger_in_value=trigger_in_value,
        ),
        1,
    )
    assert (
        row["accuracy"],
        row["memory_accuracy"],
        row["train_accuracy"],
        row["attention_top1"],
    ) == (1, 1, 1, 1)
    assert row["attention_mass"] > 0.99


@pytest.mark.slow
def test_orthogonal_rows_do_not_depend_on_d():
    a, b = (
        simulate(Point(V=25, N=600, d=d, L=5, embedding="orthogonal"), 3)
        for d in (27, 31)
    )
    assert {name: a[name] for name in METRICS} == {name: b[name] for name in METRICS}
    c, d = (
        simulate(Point(V=25, N=600, d=d, L=5, m=20, embedding="orthogonal"), 3)
        for d in (27, 31)
    )
    assert_same_metrics(c, d)


def test_identity_mlp_is_attention_only():
    """W_in = I, m = d, identity: phi = h / sqrt(d), so V_mat = sqrt(d) times the
    attention-only one at rates eta d, gamma2 d.
    """
    d = 16
    plain = Point(V=30, N=900, d=d, L=6, n_test=600, eta=1e-3, gamma=1e8, gamma2=1e8)
    mlp = Point(
        V=30,
        N=900,
        d=d,
        L=6,
        n_test=600,
        eta=1e-3 * d,
        gamma=1e8,
        gamma2=1e8 * d,
        m=d,
        activation="identity",
    )
    a = three_step(realize(plain, 1), plain)
    r = realize(mlp, 1)._replace(W_in=np.eye(d, dtype=np.float32))
    b = three_step(r, mlp)
    assert relative(b.V1 / np.sqrt(d), a.V1) < 1e-12
    assert relative(b.w, a.w) < 1e-12
    assert relative(b.V2 / np.sqrt(d), a.V2) < 1e-12
    assert_same_metrics(
        measure(r, mlp, b), measure(realize(plain, 1), plain, a), rtol=1e-9
    )

    def identity(world):
        return eqx.tree_at(
            lambda w: w.e.W_in, world, jnp.diag(jnp.arange(32) < d).astype(jnp.float32)
        )

    _, streamed_mlp = streamed(mlp, 1, Shape(32, 32, 32, "identity", "full"), identity)
    assert_same_metrics(
        streamed_mlp, streamed(plain, 1, Shape(32, 32, 0, "none", "counts"))[1]
    )


def test_small_eta_gives_the_uniform_softmax_formula():
    """eta -> 0: p = 1/V in every step, so w and V2 are polynomials in the data; the
    remainder falls like eta.
    """
    errors = []
    for eta in (1e-1, 1e-2, 1e-3):
        point = Point(V=20, N=300, d=12, L=4, n_test=50, eta=eta, kappa=50)
        r = realize(point, 0).astype(np.float64)
        learned = three_step(realize(point, 0), point)
        centred = r.Z_out - r.Z_out.mean(0)
        k = (
            r.Z_in[r.train_tokens]
            + (np.arange(4) == r.train_positions[:, None])[..., None] * r.z_trig
        )
        h = k.mean(1)
        V1 = eta / 300 * centred[r.train_labels].T @ h
        b = centred[r.train_labels] @ V1
        w = (
            point.gamma
            * (r.z_eos @ r.z_eos)
            / (300 * 4)
            * np.einsum("id,ijd,ije->e", b, k - h[:, None], k)
        )
        a = np.exp(k @ w - (k @ w).max(1, keepdims=True))
        attended = ((a / a.sum(1, keepdims=True))[..., None] * k).sum(1)
        V2 = V1 + point.gamma2 / 300 * centred[r.train_labels].T @ attended
        assert relative(learned.V1, V1) < 1e-13
        errors.append(max(relative(learned.w, w), relative(learned.V2, V2)))
    assert errors[2] < 1e-3
    assert all(8 < a / b < 12 for a, b in itertools.pairwise(errors)), errors


@pytest.mark.parametrize(
    "rates",
    [
        {"gamma": 1e38},
        {"gamma": 1e38, "gamma2": 1.0},
        {"eta": 1e-30},
        {"eta": 1e-30, "kappa": 1e6},
    ],
)
def test_extreme_rates_do_not_overflow(rates):
    row = simulate(Point(V=20, N=900, d=20, L=4, n_test=300, **rates), 0)
    assert row["status"] == "ok"
    assert all(np.isfinite(row[name]) for name in METRICS)
    assert row["snr"] == pytest.approx(
        simulate(Point(V=20, N=900, d=20, L=4, n_test=300), 0)["snr"], rel=1e-3
    )


def test_a_point_that_overflows_is_a_row_that_says_so():
    row = simulate(Point(V=20, N=900, d=20, L=4, n_test=300, eta=1e300, gamma=1.0), 0)
    assert row["status"] == "nonfinite"
    assert all(row[name] is None for name in METRICS)
    assert (
        row["draw_check"]
        == simulate(Point(V=20, N=900, d=20, L=4, n_test=300), 0)["draw_check"]
    )
