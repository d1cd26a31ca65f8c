"""The model as functions of JAX: vmapped, differentiated, and over losses of one's own.
Against the NumPy oracle: test_exactness.py.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import quickly
from tolerances import assert_close

from jaxrecall import (
    Point,
    ThreeStep,
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
from jaxrecall.model.columns import COLUMNS, EXTRA_COLUMNS
from jaxrecall.model.point import FIELDS
from jaxrecall.model.reference import three_step as closed_form

POINT = Point(V=24, N=300, d=12, L=5, kappa=20, n_test=128)


def key_of(seed):
    return jax.random.fold_in(jax.random.key(POINT.root_seed), seed)


def test_seeds_are_vmapped_and_agree_with_the_simulator_and_the_oracle():
    @quickly
    @jax.vmap
    def run(seed):
        r = draws(POINT, key_of(seed))
        learned = three_step(r, POINT)
        return learned, measure(r, POINT, learned)["n_correct"]

    learned, n_correct = run(np.arange(4, dtype=np.uint32))
    assert n_correct.tolist() == [row["n_correct"] for row in simulate(POINT, range(4))]
    oracle = closed_form(realize(POINT, 3), POINT)
    last = ThreeStep(*(np.asarray(of_all)[3] for of_all in learned))
    assert_close(last, oracle, "float32")


def test_gradients_are_those_of_finite_differences():
    point = POINT.replace(embedding="equicorrelated(rho=0.2)")

    def score(x):
        eta, kappa, gamma2, rho = x
        r = draws(point, key_of(0), {"embedding.rho": rho}).astype(x.dtype)
        given = rates(point, eta=eta, kappa=kappa, gamma2=gamma2)
        return soft_accuracy(r, point, three_step(r, point, given))

    at = np.array([1.0, 5.0, 2.0, 0.2])
    steps = 1e-4 * np.diag(at)
    with jax.enable_x64(True):
        (value, slopes), moved = quickly(
            lambda at, moved: (jax.value_and_grad(score)(at), jax.vmap(score)(moved))
        )(at, np.concatenate([at + steps, at - steps]))
    up, down = np.asarray(moved).reshape(2, 4)
    expected = (up - down) / (2e-4 * at)
    scale = np.abs(expected)
    scale[0] = value  # at fixed kappa w hardly moves with eta
    assert (scale > 1e-4).all()
    assert_close(np.asarray(slopes) / scale, expected / scale, 1e-4)


def test_rates_follow_as_those_of_a_point():
    for given in ({}, {"gamma": 7.0}, {"gamma2": 2.0}):
        point = POINT.replace(**given)
        assert tuple(rates(point)) == (point.eta, point.gamma, point.gamma2)
        for change in ({"eta": 0.01}, {"kappa": 3.0}, {"gamma": 2.0}):
            if not {*given, *change} >= {"gamma", "kappa"}:
                other = point.replace(**change)
                expected = other.eta, other.gamma, other.gamma2
                assert_close(tuple(rates(point, **change)), expected)
    assert rates(POINT, eta=np.array(-1.0)).eta == -1  # arrays may be traced


def test_the_recipe_takes_its_steps_along_a_loss_of_ones_own():
    r = realize(POINT, 0)

    @quickly
    def both(kappa, r):
        def loss(V_mat, W_KQ, batch):
            tokens, positions, labels = batch
            logits = jax.vmap(model.Recall(V_mat, W_KQ, r.embeddings, "none", True))(
                tokens, positions
            )
            smooth = 0.9 * jax.nn.one_hot(labels, POINT.V) + 0.1 / POINT.V
            return optax.softmax_cross_entropy(logits, smooth).mean()

        def by_hand(zero, given):
            first, second, third = r.batches
            V1 = zero - given.eta * jax.grad(loss)(zero, zero, first)
            W1 = zero - given.gamma * jax.grad(loss, 1)(V1, zero, second)
            return V1, W1, V1 - given.gamma2 * jax.grad(loss)(V1, W1, third)

        def learned(kappa, steps):
            V1, W1, V2 = steps(jnp.zeros((POINT.d, POINT.d)), rates(POINT, kappa=kappa))
            return loss(V2, W1, r.test), (V1, W1, V2)

        def by_recipe(zero, given):
            return recipe(loss, zero, zero, r.batches, given)

        return [
            jax.value_and_grad(learned, has_aux=True)(kappa, steps)
            for steps in (by_hand, by_recipe)
        ]

    expected, found = jax.device_get(both(20.0, r))
    assert_close(found, expected, "float32")
    assert abs(found[1]) > 1e-3


def test_any_optimiser_of_optax_trains_and_steps_are_recorded():
    target = np.arange(3, dtype=np.float32)
    trained = quickly(
        lambda start: train(
            lambda p, batch: ((p - batch) ** 2).sum(),
            start,
            lambda t: target * t,
            optax.sgd(0.1, momentum=0.5),
            20,
            record=[0, 1, 20],
        )
    )(np.zeros(3, np.float32))
    params, kept = jax.device_get(trained)
    by_hand, velocity = [np.zeros(3)], np.zeros(3)
    for t in range(20):
        velocity = 0.5 * velocity + 2 * (by_hand[-1] - t * target)
        by_hand.append(by_hand[-1] - 0.1 * velocity)
    assert_close(kept, np.array(by_hand)[[0, 1, 20]], "float32")
    assert np.array_equal(kept[2], params)


OF_THE_RUN = ["point_id", "seed", "status", "form", "draw_check", "seconds"]
OF_THE_RUN += ["code_version", "jax_version", "device_kind", "dtype", "precision"]
OF_THE_RUN += ["bucket", "cpu_model"]
"""Columns that say which run a row is, and how it was computed."""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"L": 1, "tokens": "zipf", "gamma2": 20}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_measure_gives_every_column_or_names_it(changes):
    point = POINT.replace(**changes)
    r = realize(point, 0)
    traced = quickly(lambda r: measure(r, point, three_step(r, point)))(r)
    plain = measure(r, point, closed_form(r, point))
    assert {*traced} == {*plain}  # a compiled function sorts them
    others = {*OF_THE_RUN, *FIELDS, *EXTRA_COLUMNS}
    assert [*plain] == [name for name in COLUMNS if name not in others]
    row = simulate(point, 0)
    for name, value in plain.items():
        assert (traced[name] is None) == (value is None) == (row[name] is None), name
        if value is not None:
            both = float(traced[name]), float(row[name])
            assert_close(both, (value, value), "float32", of=name)


def test_draws_of_numpy_are_constants_of_what_is_traced():
    expected, seen = realize(POINT, 3), []

    @quickly
    @jax.vmap
    def V2(kappa):
        seen.append(realize(POINT, 3))
        return three_step(seen[-1], POINT, rates(POINT, kappa=kappa)).V2

    first, second = np.asarray(V2(np.float32([10, 20])))
    for name, a, b in zip(expected._fields, seen[0], expected, strict=True):
        assert type(a) is type(b), name
        assert b is None or np.array_equal(a, b), name
    oracle = closed_form(expected, POINT.replace(kappa=10)).V2
    assert_close(first, oracle, "float32")
    assert np.abs(second - first).max() > 1e-3 * np.abs(oracle).max()


def test_a_static_point_says_which_rates_follow():
    traced = []

    @partial(jax.jit, static_argnames="point")
    def gamma_of(eta, point):
        traced.append(point)
        return rates(point, eta=eta).gamma

    point = POINT.replace(kappa=16, eta=0.5)
    given = POINT.replace(gamma=point.gamma, eta=0.5)
    assert all(getattr(point, name) == getattr(given, name) for name in FIELDS)
    points = given, point, point.replace()
    expected = [point.gamma, point.gamma / 2, point.gamma / 2]
    assert [float(gamma_of(1.0, each)) for each in points] == expected
    assert len(traced) == 2
    assert {point: 1}[point.replace(kappa=16)] == 1


@pytest.mark.slow
def test_parameters_of_laws_may_be_of_float64():
    point = POINT.replace(embedding="equicorrelated(rho=0.2)")
    with jax.enable_x64(True):
        ours, other = (
            draws(point, key_of(0), {"embedding.rho": jnp.float64(rho)})
            for rho in (0.2, 0.2 + 1e-12)
        )
    expected = realize(point, 0)
    for name in ("Z_in", "Z_out"):
        assert getattr(ours, name).dtype == np.float64
        assert_close(getattr(ours, name), getattr(expected, name), "float32")
        assert 0 < np.abs(getattr(ours, name) - getattr(other, name)).max() < 1e-11
    one_side = draws(
        point.replace(embedding_out="gaussian"),
        key_of(0),
        {"embedding.rho": jnp.float32(0.9)},
    )
    assert np.abs(one_side.Z_in - expected.Z_in).max() > 0.1
