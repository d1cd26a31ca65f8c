"""Noisy training labels: the draw by itself, the simulator against the float64
reference, and who refuses them.
"""

import random

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from attack.points import check, numbers, switches
from cases import cases
from helpers import assert_same_metrics, diagnose, fits, quickly, redraws
from scipy.stats import chisquare
from test_descent import SMALL, path
from tolerances import assert_close

from jaxrecall import Point, draws, measure, realize, simulate, theory
from jaxrecall.errors import PointError
from jaxrecall.model.columns import COLUMNS, NOISES
from jaxrecall.model.reference import three_step
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.store.table import make_table, read_part

NOISY = Point(**SMALL | {"steps": 3, "label_noise": 0.3})
LARGE = NOISY.replace(V=12, N=32_768, d=4, L=2, n_test=50)


def clean_labels(r):
    """pi of the informative tokens."""
    informative = np.take_along_axis(r.train_tokens, r.train_positions[..., None], -1)
    return r.perm[informative[..., 0]]


# --- the draw


@pytest.mark.parametrize(
    "case", cases("[{}, {fresh_batches: true}, {steps: 8, lr: 1, batch: 40}]")
)
def test_noise_moves_training_labels_and_no_other_draw(case):
    point = NOISY.replace(**case)
    noisy, clean = realize(point, 3), realize(point.replace(label_noise=0.0), 3)
    moved = [
        name
        for name in clean._fields
        if not np.array_equal(getattr(clean, name), getattr(noisy, name))
    ]
    assert moved == ["train_labels"]
    assert noisy.train_labels.dtype == clean.train_labels.dtype
    np.testing.assert_array_equal(clean_labels(noisy), clean.train_labels)


@pytest.mark.parametrize("noise", [0.25, 1.0])
def test_labels_are_drawn_anew_uniformly_with_this_probability(noise):
    point = LARGE.replace(label_noise=noise)
    r = realize(point, 0)
    wrong = r.train_labels != clean_labels(r)
    expected = noise * (1 - 1 / point.V)
    error = (expected * (1 - expected) / point.N) ** 0.5
    assert_close(wrong.mean(), expected, 4 * error)
    first, second = wrong.reshape(-1, 2, 256).mean((0, 2))  # two words of a cipher
    assert_close(first, second, 4 * 2 * error)
    tokens = r.train_tokens[np.arange(point.N), r.train_positions]
    offsets = (r.train_labels - clean_labels(r))[wrong] % point.V
    of_noise = offsets, r.train_labels[wrong], tokens[wrong]
    counts = np.array([np.bincount(each, minlength=point.V) for each in of_noise])
    assert not counts[0, 0]
    assert chisquare(counts[0, 1:]).pvalue > 1e-3
    assert chisquare(counts[1:], axis=1).pvalue.min() > 1e-3


def test_labels_depend_on_their_address_alone():
    """A prefix in N and in L, noisy samples stay so with more noise, and every fresh
    batch has labels of its own.
    """
    fresh = LARGE.replace(fresh_batches=True)
    r, few = realize(fresh, 1), realize(fresh.replace(N=700, L=5), 1)
    np.testing.assert_array_equal(few.train_labels, r.train_labels[:, :700])
    labels = realize(LARGE, 1).train_labels
    np.testing.assert_array_equal(labels, r.train_labels[0])
    first, second, _ = r.train_labels != clean_labels(r)
    more = realize(LARGE.replace(label_noise=0.6), 1).train_labels
    np.testing.assert_array_equal(more[first], labels[first])
    both, each = (first & second).mean(), first.mean()
    assert_close(both, each * second.mean(), 4 * (each / LARGE.N) ** 0.5)
    traced = quickly(lambda: draws(LARGE, jax.random.fold_in(jax.random.key(0), 1)))
    np.testing.assert_array_equal(traced().train_labels, labels)


def test_ids_of_points_without_noise_stay():
    point = Point(V=64, N=1024, d=32, L=8)
    assert point.replace(label_noise=-0.0).point_id == "1b6b3ad224741ad3"
    assert point.point_id == "1b6b3ad224741ad3"
    assert point.replace(label_noise=0.3).point_id != point.point_id


@pytest.mark.slow
def test_rows_of_before_have_no_noise(tmp_path):
    row = dict.fromkeys(COLUMNS) | simulate(NOISY, 0)
    older = make_table([row]).drop_columns("label_noise")
    pq.write_table(older, tmp_path / "older.parquet")
    assert read_part(tmp_path / "older.parquet")["label_noise"].to_pylist() == [0.0]


# --- training and metrics


def test_a_memory_of_noisy_labels_by_hand():
    """Orthogonal rows and locked attention: each token is recalled as its most frequent
    label, pi, which some samples do not have.
    """
    point = NOISY.replace(N=4000, L=2, kappa=1e6, gamma2=None, label_noise=0.5)
    point = point.replace(embedding="orthogonal")
    r, row = realize(point, 0), simulate(point, 0)
    assert (row["accuracy"], row["memory_accuracy"], row["attention_mass"]) == (1, 1, 1)
    right = r.train_labels == clean_labels(r)
    assert row["train_accuracy"] == right[: point.n_test].mean() < 0.7


SELDOM = """
- {}
- {tokens: zipf, trigger_in_value: false}
- {m: 16, activation: tanh, diagnose: true}
- {steps: 5, lr: 3, optimizer: sgd, batch: 40, start: zero}
- {steps: 20, lr: 3}
- {steps: 20, lr: 3, fresh_batches: true}  # through the logits of the vocabulary
- {steps: 20, lr: 3, kappa: 1.0e+5, eta: 1.0e-6}
- {steps: 20, lr: 0.5, optimizer: momentum, batch: 300, label_noise: 0.9}
- {steps: 20, lr: 0.005, optimizer: adam, start: zero, m: 16, trains: VWZM}
- {steps: 20, lr: 0.005, optimizer: adam, start: zero, m: 16, trains: VWZM,
   fresh_batches: true}
"""
# one program serves them and the memory above
OFTEN = """
- {embedding: orthogonal}
- {embedding: orthogonal, fresh_batches: true, label_noise: 1.0, eta: 1.0e-6}
- {embedding: orthogonal, kappa: 1.0e+5, eta: 1.0e-6, d: 16}  # locked attention
"""


@pytest.mark.parametrize("case", cases(OFTEN, SELDOM))
def test_rows_are_those_of_the_reference(case):
    point = NOISY.replace(**case)
    r, row = realize(point, 5), simulate(point, 5)
    learned = path(point, 5)[-1] if point.trains_on else three_step(r, point)
    judge = measure(r, point, learned)
    assert_same_metrics(row, judge)
    if point.trains_on:
        assert_close(row["loss"], judge["loss"], "float32")
    forms = {"zero": "descent", "three_step": "full, descent"}
    assert row["form"] == (forms[point.start] if point.trains_on else "full")
    if point.diagnose:
        noises = diagnose(r, point, learned, redraws(point, 5))
        for name in NOISES:
            assert_close(row[f"noise_{name}"], noises[f"noise_{name}"], "float32")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(30))
def test_random_points_are_refused_or_right(number):
    """Ten points for each of 30 choices of switches, of the recipe alone: many large
    steps blow rounding up, without noise too.
    """
    chance = random.Random(number)
    every = iter(lambda: switches(chance), None)
    fixed = next(fields for fields in every if "steps" not in fields)
    for _ in range(10):
        fields = fixed | numbers(chance) | {"label_noise": chance.choice([1.0, 0.3])}
        del fields["steps"], fields["lr"]
        try:
            point = Point(**fields)
        except PointError:
            continue
        seed = chance.randrange(2**32)
        check(simulate(point, seed), point, seed)


# --- programs, and who refuses


def test_points_share_programs_with_or_without_noise_as_far_as_they_did():
    point = NOISY.replace(exact="full")
    clean, noisy, more = (
        Shape.rounded(point.replace(label_noise=noise)) for noise in (0.0, 0.3, 1.0)
    )
    assert noisy == more != clean
    assert clean.variant != noisy.variant
    assert not fits(clean, point)


@pytest.mark.parametrize("case", cases("[{pool: 16}, {decoders: true}]"))
def test_pools_and_decoders_say_in_a_grid_where_they_are_allowed(case):
    with pytest.raises(PointError) as error:
        NOISY.replace(**case)
    where = f"label_noise == 0.0 or not {next(iter(case))}"
    assert error.value.problems[0].where == where
    NOISY.replace(label_noise=0, **case)


def test_theory_is_there_without_noise():
    theory.Model(NOISY.replace(label_noise=0))
