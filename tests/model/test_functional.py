"""The model as functions of JAX: against the NumPy oracle, vmapped, differentiated, and
over losses of one's own.
"""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import quickly

from jaxrecall import (
    Point,
    Rates,
    Realization,
    draws,
    measure,
    model,
    rates,
    realize,
    recipe,
    simulate,
    soft_accuracy,
    three_step,
    train,
)
from jaxrecall.errors import PointError
from jaxrecall.model.columns import COLUMNS, EXTRA_COLUMNS
from jaxrecall.model.point import FIELDS

POINT = Point(V=24, N=300, d=12, L=5, kappa=20, n_test=128)
DATA = [
    {},
    {"trigger_in_value": False},
    {"fresh_batches": True},
    {"gamma2": 3.0},
    {"embedding": "equicorrelated(rho=0.2)"},
    {"embedding": "low_rank(rank=4)", "embedding_out": "sphere"},
    {"tokens": "zipf(s=1)"},
    {"noise_tokens": "zipf(s=1)", "label_noise": 0.3},
]
NAMES = ("gelu", "cubic", "relu", "tanh", "quadratic", "mixed(linear=0.3)", "identity")
LAYERS = [{"m": 20, "activation": name, "kappa": 200} for name in NAMES]
OFTEN = [{}, {"trigger_in_value": False}, *DATA[5:], LAYERS[0]]
POINTS = [
    *OFTEN,
    *(
        pytest.param(a | b, marks=pytest.mark.slow)
        for a, b in itertools.product(DATA, LAYERS)
        if a | b not in OFTEN
    ),
]


def in_jax(point: Point, seed: int, dtype: type) -> object:
    return jax.tree.map(jnp.asarray, realize(point, seed).astype(dtype))


@partial(quickly, static_argnames="model_of")
def compiled(r, rates, model_of):
    return three_step(r, model_of, rates, chunk=128)


@pytest.mark.parametrize("change", POINTS, ids=str)
def test_the_three_steps_of_jax_are_those_of_the_oracle(change):
    point = POINT.replace(**change)
    expected = three_step(realize(point, 1), point)
    # what is compiled for
    model_of = POINT.replace(
        m=point.m, activation=point.activation, trigger_in_value=point.trigger_in_value
    )
    for dtype, error in ((np.float64, 1e-12), (np.float32, 2e-5)):
        with jax.enable_x64(dtype is np.float64):
            found = compiled(
                in_jax(point, 1, dtype),
                Rates(*map(jnp.asarray, rates(point))),
                model_of,
            )
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == dtype
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=error * np.abs(theirs).max()
            )


def test_seeds_are_vmapped_and_agree_with_the_simulator():
    seeds = jnp.arange(4)

    def run(seed):
        r = draws(POINT, jax.random.fold_in(jax.random.key(POINT.root_seed), seed))
        learned = three_step(r, POINT)
        return learned, measure(r, POINT, learned)["n_correct"]

    learned, found = quickly(jax.vmap(run))(seeds)
    assert found.tolist() == [row["n_correct"] for row in simulate(POINT, range(4))]
    for of_all, of_one in zip(learned, quickly(run)(3)[0], strict=True):
        np.testing.assert_allclose(
            of_all[3], of_one, rtol=0, atol=2e-6 * float(jnp.abs(of_one).max())
        )


def test_gradients_are_those_of_finite_differences():
    point = POINT.replace(embedding="equicorrelated(rho=0.2)")
    with jax.enable_x64(True):
        at, key = jnp.array([1.0, 5.0, 2.0, 0.2]), jax.random.key(0)

        def score(x):
            eta, kappa, gamma2, rho = x
            r = draws(point, key, {"embedding.rho": rho}).astype(x.dtype)
            return soft_accuracy(
                r,
                point,
                three_step(r, point, rates(point, eta=eta, kappa=kappa, gamma2=gamma2)),
            )

        value, found = quickly(jax.value_and_grad(score))(at)
        steps = 1e-4 * jnp.diag(at)
        up, down = quickly(jax.vmap(score))(
            jnp.concatenate([at[None] + steps, at[None] - steps])
        ).reshape(2, 4)
        expected = (up - down) / (2e-4 * at)
        # at fixed kappa w hardly moves with eta
        scale = jnp.abs(expected).at[0].set(value)
        assert jnp.all(scale > 1e-4)
        assert jnp.all(jnp.abs(found - expected) <= 1e-4 * scale)


def test_rates_follow_as_those_of_a_point():
    for given in ({}, {"gamma": 7.0}, {"gamma2": 2.0}):
        point = POINT.replace(**given)
        assert tuple(rates(point)) == (point.eta, point.gamma, point.gamma2)
        for change in ({"eta": 0.01}, {"kappa": 3.0}, {"gamma": 2.0}):
            if not {*given, *change} >= {"gamma", "kappa"}:
                other = point.replace(**change)
                np.testing.assert_allclose(
                    rates(point, **change),
                    (other.eta, other.gamma, other.gamma2),
                    rtol=1e-12,
                )
    with pytest.raises(PointError, match="kappa: got both kappa and gamma"):
        rates(POINT, kappa=1.0, gamma=1.0)
    with pytest.raises(PointError, match="eta: got -1; allowed: finite"):
        rates(POINT, eta=-1)
    with pytest.raises(PointError, match=r"kappa: got nan; allowed: finite"):
        rates(POINT, kappa=float("nan"))
    assert rates(POINT, eta=jnp.float32(-1)).eta == -1  # arrays may be traced


def test_a_loss_of_ones_own_in_chunks_is_that_of_the_whole_batch():
    r = in_jax(POINT, 0, np.float32)

    def loss(V_mat, W_KQ, batch):
        tokens, positions, labels = batch
        logits = jax.vmap(
            model.Recall(
                V_mat, W_KQ, r.embeddings, POINT.activation, POINT.trigger_in_value
            )
        )(tokens, positions)
        smooth = 0.9 * jax.nn.one_hot(labels, POINT.V) + 0.1 / POINT.V
        return optax.softmax_cross_entropy(logits, smooth).mean()

    def learned(kappa, chunk):
        zero = jnp.zeros((POINT.d, POINT.d))
        V1, W1, V2 = recipe(
            loss, zero, zero, r.batches, rates(POINT, kappa=kappa), chunk
        )
        return loss(V2, W1, r.test), (V1, W1, V2)

    chunks = None, 77  # the last chunk is smaller
    both = quickly(
        lambda kappa: [
            jax.value_and_grad(learned, has_aux=True)(kappa, chunk) for chunk in chunks
        ]
    )(20.0)
    (whole, slope), (chunked, slope_in_chunks) = both
    for one, other in zip(
        jax.tree.leaves(whole), jax.tree.leaves(chunked), strict=True
    ):
        np.testing.assert_allclose(
            one, other, rtol=0, atol=1e-5 * float(jnp.abs(one).max())
        )
    np.testing.assert_allclose(slope_in_chunks, slope, rtol=1e-4)
    assert abs(slope) > 1e-3


@pytest.mark.slow
def test_memory_does_not_grow_with_the_samples():
    def bytes_beside_samples(N):
        point = Point(V=16, N=N, d=8, L=64, n_test=64)

        def score(kappa, *arrays):
            r = Realization(*arrays)
            return soft_accuracy(
                r, point, three_step(r, point, rates(point, kappa=kappa))
            )

        samples = jax.eval_shape(
            lambda key: tuple(draws(point, key)), jax.random.key(0)
        )
        return (
            jax.jit(jax.value_and_grad(score))
            .lower(1.0, *samples)
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    few, many = bytes_beside_samples(2**14), bytes_beside_samples(2**18)
    assert 0 < many < 1.2 * few


def test_any_optimiser_of_optax_trains_and_steps_are_recorded():
    target = jnp.arange(3.0)
    params, kept = train(
        lambda p, batch: ((p - batch) ** 2).sum(),
        jnp.zeros(3),
        lambda t: target,
        optax.adam(0.1),
        50,
        record=[0, 1, 50],
    )
    assert kept.shape == (3, 3)
    assert jnp.array_equal(kept[0], jnp.zeros(3))
    assert jnp.array_equal(kept[2], params)
    np.testing.assert_allclose(params, target, atol=0.3)

    @quickly
    def step(params, state):
        updates, state = optax.adam(0.1).update(2 * (params - target), state, params)
        return optax.apply_updates(params, updates), state

    by_hand, state = jnp.zeros(3), optax.adam(0.1).init(jnp.zeros(3))
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        for _ in range(50):
            by_hand, state = step(by_hand, state)
    np.testing.assert_allclose(params, by_hand, atol=1e-6)


OF_THE_RUN = ("point_id", "seed", "status", "form", "draw_check", "seconds")
OF_THE_RUN += (
    "code_version",
    "jax_version",
    "device_kind",
    "dtype",
    "precision",
    "bucket",
)
"""Columns that say which run a row is, and how it was computed."""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param(
            {"L": 1, "tokens": "zipf", "gamma2": 20.0}, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_measure_gives_every_column_or_names_it(changes):
    point = POINT.replace(**changes)
    r = in_jax(point, 0, np.float32)
    traced = quickly(lambda r: measure(r, point, three_step(r, point)))(r)
    plain = measure(realize(point, 0), point, three_step(realize(point, 0), point))
    assert {*traced} == {*plain}  # a compiled function sorts them
    assert [*plain] == [
        name for name in COLUMNS if name not in {*OF_THE_RUN, *FIELDS, *EXTRA_COLUMNS}
    ]
    row = simulate(point, 0)
    for name, value in plain.items():
        assert (traced[name] is None) == (value is None) == (row[name] is None), name
        if value is not None:
            np.testing.assert_allclose(
                [float(traced[name]), row[name]], value, rtol=2e-4, err_msg=name
            )


def test_draws_of_numpy_are_constants_of_what_is_traced():
    expected, seen = realize(POINT, 3), []

    def V2(kappa):
        seen.append(realize(POINT, 3))
        return three_step(seen[-1], POINT, rates(POINT, kappa=kappa)).V2

    found = quickly(jax.vmap(V2))(jnp.array([10.0, 20.0]))
    for name, a, b in zip(expected._fields, seen[0], expected, strict=True):
        assert type(a) is type(b), name
        assert b is None or np.array_equal(a, b), name
    oracle = three_step(expected, POINT.replace(kappa=10)).V2
    np.testing.assert_allclose(
        found[0], oracle, rtol=0, atol=2e-5 * np.abs(oracle).max()
    )
    assert float(jnp.abs(found[1] - found[0]).max()) > 1e-3 * np.abs(oracle).max()


def test_a_static_point_says_which_rates_follow():
    traced = []

    @partial(jax.jit, static_argnames="point")
    def gamma_of(eta, point):
        traced.append(point)
        return rates(point, eta=eta).gamma

    point = POINT.replace(kappa=16, eta=0.5)
    given = POINT.replace(gamma=point.gamma, eta=0.5)
    assert all(getattr(point, name) == getattr(given, name) for name in FIELDS)
    assert gamma_of(1.0, given) == point.gamma
    assert gamma_of(1.0, point) == gamma_of(1.0, point.replace()) == point.gamma / 2
    assert len(traced) == 2
    assert {point: 1}[point.replace(kappa=16)] == 1


@pytest.mark.slow
def test_parameters_of_laws_may_be_of_float64():
    point = POINT.replace(embedding="equicorrelated(rho=0.2)")
    key = jax.random.fold_in(jax.random.key(POINT.root_seed), 0)
    with jax.enable_x64(True):
        found, other = (
            draws(point, key, {"embedding.rho": jnp.float64(rho)})
            for rho in (0.2, 0.2 + 1e-12)
        )
    expected = realize(point, 0)
    for name in ("Z_in", "Z_out"):
        assert getattr(found, name).dtype == np.float64
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=1e-6
        )
        assert 0 < np.abs(getattr(found, name) - getattr(other, name)).max() < 1e-11
    one_side = draws(
        point.replace(embedding_out="gaussian"),
        key,
        {"embedding.rho": jnp.float32(0.9)},
    )
    assert np.abs(one_side.Z_in - expected.Z_in).max() > 0.1


@pytest.mark.parametrize(
    ("law", "parameter"),
    [
        ("equicorrelated", "embedding.roh"),
        ("gaussian", "embedding.rho"),
        ("low_rank(rank=4)", "embedding.rank"),
        ("gaussian", "kappa"),
    ],
)
def test_what_no_law_of_the_embeddings_has_is_refused(law, parameter):
    with pytest.raises(
        PointError,
        match=(
            rf"{parameter}: got 2; allowed: float parameters of the laws of embeddings,"
            r" here .* sizes"
        ),
    ):
        draws(POINT.replace(embedding=law), jax.random.key(0), {parameter: 2})


def test_arguments_of_another_kind_are_refused():
    r = realize(POINT, 0)
    with pytest.raises(PointError, match=r"point: got 3; allowed: a jaxrecall.Point"):
        rates(3)
    with pytest.raises(
        PointError, match=r"rates: got .* allowed: what jaxrecall.rates returns"
    ):
        three_step(r, POINT, (1.0, 2.0, 3.0))
