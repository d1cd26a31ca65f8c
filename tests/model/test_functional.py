"""The model as functions of JAX: against the NumPy oracle, vmapped, differentiated, and over losses of one's own."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrecall import Point, draws, measure, model, rates, realize, recipe, simulate, soft_accuracy, three_step, train
from jaxrecall.errors import PointError
from jaxrecall.model.columns import COLUMNS
from jaxrecall.model.reference.metrics import MEASURED, UNMEASURED

POINT = Point(V=24, N=300, d=12, L=5, kappa=20, n_test=128)
CHANGES = [
    {},
    {"trigger_in_value": False},
    {"fresh_batches": True},
    {"gamma2": 3.0},
    {"embedding": "equicorrelated(rho=0.2)"},
    {"tokens": "zipf(s=1)"},
    *(
        {"m": 20, "activation": name, "kappa": 200}
        for name in ("relu", "gelu", "tanh", "quadratic", "cubic", "mixed(linear=0.3)", "identity")
    ),
]
MORE = [a | b for a, b in itertools.product(CHANGES[:6], CHANGES[6:])]


def in_jax(point: Point, seed: int, dtype: type) -> object:
    return jax.tree.map(jnp.asarray, realize(point, seed).astype(dtype))


@pytest.mark.parametrize("change", [*CHANGES, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE)], ids=str)
def test_the_three_steps_of_jax_are_those_of_the_oracle(change):
    point = POINT.replace(**change)
    expected = three_step(realize(point, 1), point)
    for dtype, error in ((np.float64, 1e-12), (np.float32, 2e-5)):
        with jax.enable_x64(dtype is np.float64):
            found = three_step(in_jax(point, 1, dtype), point, chunk=128)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == dtype
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=error * np.abs(theirs).max())


def test_seeds_are_vmapped_and_agree_with_the_simulator():
    seeds = jnp.arange(4)

    def run(seed):
        r = draws(POINT, jax.random.fold_in(jax.random.key(POINT.root_seed), seed))
        learned = three_step(r, POINT)
        return learned, measure(r, POINT, learned)["n_correct"]

    learned, found = jax.jit(jax.vmap(run))(seeds)
    assert found.tolist() == [row["n_correct"] for row in simulate(POINT, range(4))]
    for of_all, of_one in zip(learned, jax.jit(run)(3)[0], strict=True):
        np.testing.assert_allclose(of_all[3], of_one, rtol=0, atol=2e-6 * float(jnp.abs(of_one).max()))


def test_gradients_are_those_of_finite_differences():
    point = POINT.replace(embedding="equicorrelated(rho=0.2)")
    with jax.enable_x64(True):
        at, key = jnp.array([1.0, 5.0, 2.0, 0.2]), jax.random.key(0)

        def score(x):
            eta, kappa, gamma2, rho = x
            r = draws(point, key, {"embedding.rho": rho}).astype(x.dtype)
            return soft_accuracy(r, point, three_step(r, point, rates(point, eta=eta, kappa=kappa, gamma2=gamma2)))

        value, found = jax.jit(jax.value_and_grad(score))(at)
        steps = 1e-4 * jnp.diag(at)
        up, down = jax.jit(jax.vmap(score))(jnp.concatenate([at[None] + steps, at[None] - steps])).reshape(2, 4)
        expected = (up - down) / (2e-4 * at)
        scale = jnp.abs(expected).at[0].set(value)  # at fixed kappa w hardly moves with eta
        assert jnp.all(scale > 1e-4)
        assert jnp.all(jnp.abs(found - expected) <= 1e-4 * scale)


def test_rates_follow_as_those_of_a_point():
    for given in ({}, {"gamma": 7.0}, {"gamma2": 2.0}):
        point = POINT.replace(**given)
        assert tuple(rates(point)) == (point.eta, point.gamma, point.gamma2)
        for change in ({"eta": 0.01}, {"kappa": 3.0}, {"gamma": 2.0}):
            if not {*given, *change} >= {"gamma", "kappa"}:
                other = point.replace(**change)
                np.testing.assert_allclose(rates(point, **change), (other.eta, other.gamma, other.gamma2), rtol=1e-12)
    with pytest.raises(PointError, match="kappa: got both kappa and gamma"):
        rates(POINT, kappa=1.0, gamma=1.0)


def test_a_loss_of_ones_own_in_chunks_is_that_of_the_whole_batch():
    r = in_jax(POINT, 0, np.float32)

    def loss(V_mat, W_KQ, batch):
        tokens, positions, labels = batch
        logits = jax.vmap(model.Recall(V_mat, W_KQ, r.embeddings, POINT.activation, POINT.trigger_in_value))(tokens, positions)
        smooth = 0.9 * jax.nn.one_hot(labels, POINT.V) + 0.1 / POINT.V
        return optax.softmax_cross_entropy(logits, smooth).mean()

    zero = jnp.zeros((POINT.d, POINT.d))
    whole, chunked = (recipe(loss, zero, zero, r.batches, rates(POINT), chunk) for chunk in (None, 77))
    for one, other in zip(whole, chunked, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * float(jnp.abs(one).max()))


def test_any_optimiser_of_optax_trains_and_steps_are_recorded():
    target = jnp.arange(3.0)
    params, kept = train(lambda p, batch: ((p - batch) ** 2).sum(), jnp.zeros(3), lambda t: target, optax.adam(0.1), 50, record=[0, 1, 50])
    assert kept.shape == (3, 3)
    assert jnp.array_equal(kept[0], jnp.zeros(3))
    assert jnp.array_equal(kept[2], params)
    np.testing.assert_allclose(params, target, atol=0.3)
    by_hand, state = jnp.zeros(3), optax.adam(0.1).init(jnp.zeros(3))
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        for _ in range(50):
            updates, state = optax.adam(0.1).update(2 * (by_hand - target), state, by_hand)
            by_hand = optax.apply_updates(by_hand, updates)
    np.testing.assert_allclose(params, by_hand, atol=1e-6)


def test_measure_gives_every_column_or_names_it():
    assert {*MEASURED, *UNMEASURED} == {*COLUMNS}
    r = in_jax(POINT, 0, np.float32)
    traced = jax.jit(lambda r: measure(r, POINT, three_step(r, POINT)))(r)
    plain = measure(realize(POINT, 0), POINT, three_step(realize(POINT, 0), POINT))
    assert {*traced} == {*plain}  # a compiled function sorts them
    assert [*plain] == [*MEASURED]
    for name, value in plain.items():
        assert (traced[name] is None) == (value is None)
        if value is not None:
            np.testing.assert_allclose(float(traced[name]), value, rtol=2e-4, err_msg=name)
