"""Several steps of V_mat before the attention step: agreement with the reference, its
derivatives, its draws, and what is refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_metrics, quickly, relative, streamed

from jaxrecall import (
    Point,
    descend,
    draws,
    measure,
    rates,
    realize,
    simulate,
    soft_accuracy,
    three_step,
)
from jaxrecall.errors import PointError
from jaxrecall.simulator import forward
from jaxrecall.simulator.program_shape import Shape

SMALL = {"V": 30, "N": 1300, "d": 14, "L": 6, "n_test": 600, "eta": 30.0}
SEVERAL = Point(**SMALL, first_steps=5, gamma2=20.0)

ALIKE = [
    ("full", {}),
    ("full", {"fresh_batches": True}),
    ("pool-full", {"pool": 20}),
    pytest.param("full", {"trigger_in_value": False}, marks=pytest.mark.slow),
    pytest.param("full", {"label_noise": 0.3}, marks=pytest.mark.slow),
    pytest.param("full", {"tokens": "zipf"}, marks=pytest.mark.slow),
    pytest.param("full", {"m": 24, "activation": "gelu"}, marks=pytest.mark.slow),
    pytest.param("pool-full", {"pool": 20, "m": 24}, marks=pytest.mark.slow),
    pytest.param("memory", {"L": 1}, marks=pytest.mark.slow),
    pytest.param("memory", {"L": 1, "fresh_batches": True}, marks=pytest.mark.slow),
]


def sized(point):
    return Shape.sized(point, 32, 16, 32 if point.m else 0)


@pytest.mark.parametrize(("form", "changes"), ALIKE, ids=str)
def test_rows_agree_with_the_reference(form, changes):
    point = SEVERAL.replace(**changes)
    r = realize(point, 3)
    expected = three_step(r, point)
    learned, row = streamed(point, 3, sized(point))
    assert learned.w.any() == (point.L > 1)
    for name in ("V1", "V2") if point.L == 1 else ("V1", "w", "V2"):
        assert relative(getattr(learned, name), getattr(expected, name)) < 2e-5, name
    reference = measure(r, point, expected)
    assert row["form"] == form
    assert_same_metrics(row, reference)
    assert row["largest_prediction"] == pytest.approx(
        reference["largest_prediction"], rel=1e-5
    )
    assert row["largest_prediction"] > 1.2


@pytest.mark.slow
def test_further_steps_start_after_them():
    point = SEVERAL.replace(steps=8, lr=3.0, optimizer="sgd")
    r = realize(point, 3)
    expected = measure(r, point, descend(r, point)[-1])
    row = simulate(point, seed=3)
    assert_same_metrics(row, expected)
    assert row["largest_prediction"] == pytest.approx(expected["largest_prediction"])


def test_derivatives_are_those_of_finite_differences():
    point = Point(V=10, N=60, d=6, L=4, n_test=40, first_steps=4, eta=3.0)
    with jax.enable_x64(True):
        r = draws(point, jax.random.key(0)).astype(jnp.float64)

        def score(eta):
            own = rates(point, eta=eta, gamma=50.0, gamma2=5.0)
            return soft_accuracy(r, point, three_step(r, point, own))

        at, step = jnp.array(4.0), 1e-4
        value, slope = quickly(jax.value_and_grad(score))(at)
        up, down = quickly(jax.vmap(score))(at + step * jnp.array([1.0, -1.0])).tolist()
    assert abs(float(slope)) > 1e-3 * float(value)
    assert float(slope) == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_one_first_step_is_the_recipe():
    point = Point(**SMALL)
    assert point == Point(**SMALL, first_steps=1)
    assert "first_steps" not in point.identity()
    assert not Shape.tight(point).repeats


def test_kappa_keeps_its_meaning():
    one, several = Point(**SMALL), Point(**SMALL, first_steps=5)
    assert several.kappa == one.kappa
    assert several.gamma == pytest.approx(one.gamma / 5)
    assert rates(several, kappa=50.0).gamma == pytest.approx(several.gamma / 2)


def test_each_first_step_has_a_fresh_batch_that_no_other_step_has():
    alone = SEVERAL.replace(fresh_batches=True, first_steps=1, steps=5, lr=1.0)
    one, several = realize(alone, 0), realize(alone.replace(first_steps=3), 0)
    assert len(one.train_tokens) == 5
    assert len(several.train_tokens) == 7
    np.testing.assert_array_equal(several.train_tokens[:5], one.train_tokens)
    labels = [several.samples_of_first(s, 3)[2] for s in range(3)]
    np.testing.assert_array_equal(labels[0], several.train_labels[0])
    np.testing.assert_array_equal(labels[1:], several.train_labels[5:])
    assert len(np.unique(several.train_labels, axis=0)) == 7


def test_values_that_are_not_stored_are_computed_again(monkeypatch):
    _, stored = streamed(SEVERAL, 3, sized(SEVERAL))
    monkeypatch.setattr(forward, "STORED_VALUES", 0)
    shape = Shape.sized(SEVERAL, 32, 17, 0)
    _, computed = streamed(SEVERAL, 3, shape)
    assert computed["accuracy"] == pytest.approx(stored["accuracy"])
    assert computed["snr"] == pytest.approx(stored["snr"], rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"first_steps": 0}, "first_steps: got 0; allowed: .*from 1"),
        (
            {"pool": 20, "fresh_batches": True},
            "fresh_batches: got true with pool=20, first_steps=5; allowed: false",
        ),
        ({"decoders": True}, "decoders: got true with first_steps=5"),
    ],
    ids=str,
)
def test_what_is_not_covered_is_refused(changes, refusal):
    with pytest.raises(PointError, match=refusal):
        SEVERAL.replace(**changes)
