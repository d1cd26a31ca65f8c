"""Noisy training labels: the draw by itself, the simulator against the float64
reference, and who refuses them.
"""

import random

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from attack.points import check, numbers, switches
from helpers import diagnose, redraws
from scipy.stats import chisquare

from jaxrecall import Point, draws, realize, simulate, theory, three_step
from jaxrecall.errors import PointError, TheoryError
from jaxrecall.model.columns import COLUMNS, NOISES
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep.store.table import of_rows, read_file

SMALL = {
    "V": 12,
    "N": 300,
    "d": 10,
    "L": 4,
    "n_test": 200,
    "kappa": 20.0,
    "gamma2": 10.0,
    "label_noise": 0.3,
}
LARGE = Point(V=12, N=40_960, d=4, L=2, n_test=50)


def clean_labels(r):
    """pi of the informative tokens."""
    return r.perm[
        np.take_along_axis(r.train_tokens, r.train_positions[..., None], axis=-1)[
            ..., 0
        ]
    ]


# --- the draw


def test_noise_moves_training_labels_and_no_other_draw():
    for changes in ({}, {"fresh_batches": True}, {"steps": 9, "lr": 1, "batch": 7}):
        clean, noisy = (
            realize(LARGE.replace(N=700, label_noise=noise, **changes), 3)
            for noise in (0.0, 0.3)
        )
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
    assert (
        abs(wrong.mean() - expected) < 4 * (expected * (1 - expected) / point.N) ** 0.5
    )
    # in 1..V-1, whatever the token is
    offset = (r.train_labels - clean_labels(r))[wrong] % point.V
    assert chisquare(np.bincount(offset, minlength=point.V)[1:]).pvalue > 1e-3
    assert (
        chisquare(np.bincount(r.train_labels[wrong], minlength=point.V)).pvalue > 1e-3
    )
    tokens = r.train_tokens[np.arange(point.N), r.train_positions]
    assert chisquare(np.bincount(tokens[wrong], minlength=point.V)).pvalue > 1e-3
    halves = wrong.reshape(-1, 2, 256)  # the two words of a cipher
    assert (
        abs(halves[:, 0].mean() - halves[:, 1].mean())
        < 4 * (2 * expected * (1 - expected) / point.N) ** 0.5 + 1e-12
    )


def test_labels_depend_on_their_address_alone():
    """A prefix in N and in L, noisy samples stay so with more noise, and every fresh
    batch has labels of its own.
    """
    r = realize(LARGE.replace(label_noise=0.3, fresh_batches=True), 1)
    few = realize(LARGE.replace(label_noise=0.3, fresh_batches=True, N=700, L=5), 1)
    np.testing.assert_array_equal(few.train_labels, r.train_labels[:, :700])
    np.testing.assert_array_equal(
        realize(LARGE.replace(label_noise=0.3), 1).train_labels, r.train_labels[0]
    )
    wrong = r.train_labels != clean_labels(r)
    more = realize(LARGE.replace(label_noise=0.6), 1)
    np.testing.assert_array_equal(
        more.train_labels[wrong[0]], r.train_labels[0][wrong[0]]
    )
    both = (wrong[0] & wrong[1]).mean()
    assert abs(both - wrong.mean() ** 2) < 4 * (wrong.mean() / LARGE.N) ** 0.5
    key = jax.random.fold_in(jax.random.key(0), 1)
    np.testing.assert_array_equal(
        draws(LARGE.replace(label_noise=0.3), key).train_labels, r.train_labels[0]
    )


def test_ids_of_points_without_noise_stay():
    assert (
        Point(V=64, N=1024, d=32, L=8).point_id
        == Point(V=64, N=1024, d=32, L=8, label_noise=-0.0).point_id
        == "1b6b3ad224741ad3"
    )
    assert (
        Point(V=64, N=1024, d=32, L=8, label_noise=0.3).point_id != "1b6b3ad224741ad3"
    )


@pytest.mark.slow
def test_rows_of_before_have_no_noise(tmp_path):
    older = of_rows(
        [dict.fromkeys(COLUMNS) | simulate(Point(**SMALL), 0)]
    ).drop_columns("label_noise")
    pq.write_table(older, tmp_path / "older.parquet")
    assert read_file(tmp_path / "older.parquet")["label_noise"].to_pylist() == [0.0]


# --- training and metrics


def test_a_memory_of_noisy_labels_by_hand():
    """Orthogonal rows and locked attention: each token is recalled as its most frequent
    label, pi, which some samples do not have.
    """
    point = Point(
        V=8,
        N=4000,
        d=10,
        L=2,
        n_test=500,
        embedding="orthogonal",
        kappa=1e6,
        label_noise=0.5,
    )
    r, row = realize(point, 0), simulate(point, 0)
    assert (row["accuracy"], row["memory_accuracy"], row["attention_mass"]) == (1, 1, 1)
    right = r.train_labels == clean_labels(r)
    assert row["train_accuracy"] == right[: point.n_test].mean() < 0.7


OFTEN = [
    {},
    {"fresh_batches": True, "label_noise": 1.0, "eta": 1e-6},
    {"kappa": 1e5, "eta": 1e-6, "d": 16},  # locked attention
    {"steps": 20, "lr": 0.5, "optimizer": "momentum", "batch": 40},
]
SELDOM = [  # programs of their own, whose other halves other tests have
    {"tokens": "zipf", "trigger_in_value": False},
    # through the logits of the vocabulary
    {"steps": 20, "lr": 3.0, "fresh_batches": True},
    {"m": 16, "activation": "tanh", "diagnose": True},
    {"steps": 20, "lr": 3.0},
    {"steps": 20, "lr": 3.0, "kappa": 1e5, "eta": 1e-6},
    {"steps": 20, "lr": 0.5, "optimizer": "momentum", "batch": 300, "label_noise": 0.9},
    {
        "steps": 20,
        "lr": 0.005,
        "optimizer": "adam",
        "start": "zero",
        "m": 16,
        "trains": "VWZM",
    },
    {
        "steps": 20,
        "lr": 0.005,
        "optimizer": "adam",
        "start": "zero",
        "m": 16,
        "trains": "VWZM",
        "fresh_batches": True,
    },
]


@pytest.mark.parametrize(
    "kw",
    [*OFTEN, *(pytest.param(kw, marks=pytest.mark.slow) for kw in SELDOM)],
    ids=str,
)
def test_rows_are_those_of_the_reference(kw):
    point = Point(**{**SMALL, **kw})
    row = simulate(point, 5)
    check(row, point, 5)
    assert row["form"] == (
        "descent"
        if point.start == "zero"
        else "full, descent"
        if point.trains_on
        else "full"
    )
    if point.diagnose:
        r = realize(point, 5)
        expected = diagnose(r, point, three_step(r, point), redraws(point, 5))
        names = [f"noise_{name}" for name in NOISES]
        assert [row[name] for name in names] == pytest.approx(
            [expected[name] for name in names], rel=1e-3
        )


def random_points(chance, n: int):
    """n points with one choice of switches, as fields, that are allowed without
    noise.
    """
    fixed, found = switches(chance), []
    while len(found) < n:
        fields = fixed | numbers(chance)
        fields["fresh_batches"] = "batch" not in fixed and chance.random() < 0.3
        # logits of 1e10 nats, as gamma2 = gamma gives, and many large steps blow
        # rounding up, without noise too
        if "steps" in fixed:
            fields |= {
                "gamma2": 10 ** chance.uniform(-2, 3),
                "lr": fields["lr"] / 100,
                "steps": 4 + fields["steps"] % 9,
            }
        fields = {
            name: value
            for name, value in fields.items()
            if name not in ("steps", "lr") or "steps" in fixed
        }
        try:
            Point(**fields)
        except PointError:
            fixed, found = switches(chance), []
        else:
            found.append(
                fields
                | {
                    "label_noise": chance.choice(
                        [1.0, *(chance.random() for _ in range(5))]
                    )
                }
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(30))
def test_random_points_are_refused_or_right(number):
    """Ten points for each of 30 choices of switches."""
    chance = random.Random(number)
    for fields in random_points(chance, 10):
        if "pool" in fields or fields.get("decoders"):
            with pytest.raises(
                PointError, match=r"(pool|decoders): got .* with label_noise="
            ):
                Point(**fields)
            continue
        point, seed = Point(**fields), chance.randrange(2**32)
        check(simulate(point, seed), point, seed)


@pytest.mark.slow  # compiles a program for an accelerator; others vmap without noise
def test_vmapped_runs_have_the_labels_of_runs_by_themselves():
    point = Point(**SMALL, steps=9, lr=1.0)
    alone = simulate(point, 0)
    runs = [Run(point, 0), Run(point.replace(label_noise=0.9), 0)]
    vmapped = program.compiled(Shape.rounded(point), 2, vmapped=True)
    both = program.execute(vmapped, runs)[0]
    assert both[0][-1]["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert both[1][-1]["loss"] > both[0][-1]["loss"] + 0.1


# --- programs, and who refuses


def test_points_share_programs_with_or_without_noise_as_far_as_they_did():
    clean, noisy, more = (
        Shape.rounded(Point(**SMALL | {"exact": "full", "label_noise": noise}))
        for noise in (0.0, 0.3, 1.0)
    )
    assert noisy == more != clean
    assert clean.variant != noisy.variant
    assert not clean.fits(Point(**SMALL, exact="full"))


@pytest.mark.slow
def test_shortcuts_step_aside():
    locked = {"eta": 1e-6, "kappa": 1e5, "d": 16}
    point = Point(**SMALL | locked, steps=9, lr=1.0)
    rows = simulate(point, 0), simulate(point.replace(label_noise=0), 0)
    assert [row["form"] for row in rows] == [
        "full, descent",
        "counts+locked, locked descent",
    ]


@pytest.mark.parametrize(
    "kw",
    [{"pool": 16}, {"pool": 16, "steps": 9, "lr": 1.0}, {"decoders": True}],
    ids=str,
)
def test_pools_and_decoders_refuse(kw):
    with pytest.raises(PointError) as error:
        Point(**SMALL, **kw)
    name, value = next(iter(kw.items()))
    assert (
        str(error.value)
        == f"{name}: got {str(value).lower()} with label_noise=0.3; allowed where"
        " label_noise == 0.0"
    )
    assert error.value.problems[0].where == f"label_noise == 0.0 or not {name}"
    Point(**SMALL | kw | {"label_noise": 0})


def test_theory_refuses():
    with pytest.raises(
        TheoryError, match=r"^label_noise: got 0\.3; covered by theory: 0\.0$"
    ):
        theory.Model.from_point(Point(**SMALL))
    with pytest.raises(TheoryError, match="label_noise"):
        theory.Model.from_fields(
            {name: SMALL[name] for name in ("V", "d", "L", "label_noise")}
        )
    theory.Model.from_point(Point(**SMALL | {"label_noise": 0}))


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, "half"])
def test_other_numbers_are_refused(value):
    with pytest.raises(
        PointError, match=r"^label_noise: got .*; allowed: finite numbers from 0 to 1"
    ):
        Point(**SMALL | {"label_noise": value})
