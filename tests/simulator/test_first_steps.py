"""Several steps of V_mat before the attention step: agreement with the reference, its
derivatives, its draws, and what is refused.
"""

import numpy as np
import pytest
from cases import cases, check_recipe
from helpers import assert_same_metrics, streamed
from tolerances import assert_close

from jaxrecall import (
    Point,
    descend,
    measure,
    rates,
    realize,
    simulate,
)
from jaxrecall.simulator import forward
from jaxrecall.simulator.program_shape import Shape

ONE = Point(V=30, N=1300, d=14, L=6, n_test=600, eta=30.0)
SEVERAL = ONE.replace(first_steps=5, gamma2=20.0)

ALIKE = cases(
    "[{}, {fresh_batches: true}]",
    """
    - {pool: 20}
    - {trigger_in_value: false}
    - {label_noise: 0.3}
    - {tokens: zipf}
    - {m: 24, activation: gelu}
    - {pool: 20, m: 24}
    - {L: 1}
    - {L: 1, fresh_batches: true}
    """,
)


def sized(point: Point) -> Shape:
    return Shape.sized(point, 32, 16, 32 if point.m else 0)


@pytest.mark.parametrize("changes", ALIKE)
def test_rows_agree_with_the_reference(changes):
    point = SEVERAL.replace(**changes)
    row, reference = check_recipe(point, 3, sized(point))
    form = "pool-full" if point.pool else "full"
    assert row["form"] == ("memory" if point.is_memory else form)
    largest = reference["largest_prediction"]
    assert_close(row["largest_prediction"], largest, "float32")
    assert largest > 1.2


@pytest.mark.slow
def test_further_steps_start_after_them():
    point = SEVERAL.replace(steps=8, lr=3.0, optimizer="sgd")
    r = realize(point, 3)
    expected = measure(r, point, descend(r, point)[-1])
    row = simulate(point, seed=3)
    assert_same_metrics(row, expected)
    assert_close(row["largest_prediction"], expected["largest_prediction"], "float32")


def test_one_first_step_is_the_recipe_and_kappa_keeps_its_meaning():
    assert ONE.replace(first_steps=1) == ONE
    assert not Shape.tight(ONE).repeats
    several = ONE.replace(first_steps=5)
    assert several.kappa == ONE.kappa
    assert_close(several.gamma, ONE.gamma / 5)
    assert_close(rates(several, kappa=50.0).gamma, several.gamma / 2, "roots")


def test_each_first_step_has_a_fresh_batch_that_no_other_step_has():
    alone = SEVERAL.replace(fresh_batches=True, first_steps=1, steps=5, lr=1.0)
    one, several = realize(alone, 0), realize(alone.replace(first_steps=3), 0)
    assert len(one.train_tokens) == 5
    assert len(several.train_tokens) == 7
    assert np.array_equal(several.train_tokens[:5], one.train_tokens)
    labels = np.stack([several.samples_of_first(s, 3)[2] for s in range(3)])
    assert np.array_equal(labels, several.train_labels[[0, 5, 6]])
    assert len(np.unique(several.train_labels, axis=0)) == 7


def test_values_that_are_not_stored_are_computed_again(monkeypatch):
    _, stored = streamed(SEVERAL, 3, sized(SEVERAL))
    monkeypatch.setattr(forward, "STORED_VALUES", 0)
    # a size of its own: it is traced with the limit changed
    _, computed = streamed(SEVERAL, 3, sized(SEVERAL), tile=1024)
    assert_same_metrics(computed, stored)
