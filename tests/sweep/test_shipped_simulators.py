"""The simulators in examples/: the numbers of the package where they meet it, and
swept and searched.
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT, quickly, usual_promotion
from pandas.testing import assert_frame_equal
from tolerances import assert_close, assert_same_columns

import jaxrecall

sys.path.append(str(ROOT / "examples"))
import cover
import grokking
import heads
import subject_relation
import superposition

SMALL = {"V": 16, "d": 16, "L": 4, "n_test": 256}
SHARED = ["accuracy", "attention_mass", "trigger_score", "score_std", "test_margin"]


@pytest.fixture(autouse=True)
def fewer_samples(monkeypatch):
    for module in (heads, subject_relation):
        monkeypatch.setattr(module, "N_MAX", 1024)
    with usual_promotion():
        yield


def run(simulator, grid, **options):
    return jaxrecall.run(grid, simulator=simulator, progress=False, **options)


def own(base, **axes):
    return {"base": base, "blocks": [{"axes": axes}] if axes else [{}]}


def test_one_head_without_positions_gives_the_rows_of_the_package():
    """Same seed, same draws, same recipe; one side by jax.grad of the loss, the other
    by closed forms.
    """
    axes = {"N": [512, 1024], "kappa": [2.0, 100.0]}
    keys = [*axes, "seed"]
    whole = own(SMALL | {"exact": "full"}, **axes)
    ours = run(None, whole, seeds=3).sort_values(keys)
    theirs = run(heads.simulator, own(SMALL, **axes), seeds=3)
    assert_same_columns(theirs.sort_values(keys), ours, [*keys, *SHARED])
    assert ours["accuracy"].nunique() > 6


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 4.0), ("adam", 0.02)])
def test_further_steps_are_those_of_the_package(optimizer, lr):
    base = SMALL | {"N": 512, "gamma2": 16.0, "optimizer": optimizer, "lr": lr}
    whole = own(base | {"exact": "full", "steps": 23})
    ours = run(None, whole, seeds=3).query("step == 23")
    theirs = run(heads.simulator, own(base | {"further": 20}), seeds=3)
    # adam magnifies gradients that are all rounding
    untouched = {"trigger_score", "score_std"} if optimizer == "adam" else set()
    assert_same_columns(theirs, ours, {*SHARED, "loss"} - untouched)


def test_positions_and_value_maps_are_their_definitions():
    @quickly
    def drawn(key):
        turned = heads.value_maps(3, 4, 6, key)
        positions = heads.positions_of("sinusoidal", 5, 6, key)
        return positions, heads.value_maps(3, 2, 6, key), turned

    sinusoidal, parts, turned = map(np.asarray, drawn(jax.random.key(0)))
    rates = 10000 ** (-np.arange(3) / 3)
    angles = np.outer(np.arange(5), rates)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1) / 3**0.5
    assert_close(sinusoidal, expected, "float32")
    assert np.array_equal(parts.reshape(6, 6), np.eye(6))
    squares = turned @ turned.transpose(0, 2, 1)
    assert_close(squares, np.stack([np.eye(4)] * 3), "float32")


def test_a_sequence_holds_one_subject_one_relation_and_their_answer():
    @quickly
    def sampled(key):
        answers = jnp.arange(15, dtype=jnp.int32).reshape(5, 3)
        words = jax.random.bits(key, (3000, 10))
        return jax.vmap(partial(subject_relation.sample, answers, 7, 6))(words)

    tokens, r, right = map(np.asarray, sampled(jax.random.key(0)))
    subject, relation = tokens < 5, (tokens >= 5) & (tokens < 8)
    assert (subject.sum(1) == 1).all()
    assert (relation.sum(1) == 1).all()
    assert np.array_equal(tokens[relation] - 5, r)
    assert np.array_equal(tokens[subject] * 3 + r, right)
    place = subject.argmax(axis=1) * 6 + relation.argmax(axis=1)
    pairs = np.bincount(place, minlength=36).reshape(6, 6)
    assert not pairs.diagonal().any()
    off = pairs[~np.eye(6, dtype=bool)]
    # chi-squared, 29 degrees of freedom, 0.1 %
    assert ((off - 100) ** 2 / 100).sum() < 58.3


FACTS = {"S": 8, "R": 2, "D": 2, "d": 16, "updates": 50, "batch": 32, "n_test": 128}


@pytest.mark.parametrize(
    ("simulator", "base", "theta"),
    [
        pytest.param(
            heads.simulator,
            SMALL | {"trigger_in_value": False},
            0.5,
            marks=pytest.mark.slow,
        ),
        (subject_relation.simulator, FACTS, 0.75),
    ],
)
def test_a_search_finds_critical_N(simulator, base, theta, tmp_path):
    search = {"axis": "N", "theta": theta, "from": 4, "to": 1024, "width": 0.5}
    first, again = (
        jaxrecall.thresholds(
            run(
                simulator,
                {"base": base, "search": search},
                seeds=40,
                out=tmp_path / "o",
            )
        )
        for _ in range(2)
    )
    (cell,) = first.itertuples()
    assert cell.outcome == "found"
    assert 4 < cell.lo < cell.N_star < cell.hi < 1024
    assert_frame_equal(again, first)


def test_a_perceptron_stores_patterns_up_to_twice_its_dimension():
    axes = {"N": [16], "load": [1.0, 3.0], "updates": [1000]}
    stored = jaxrecall.run(cover.cover, axes=axes, seeds=24, progress=False)
    share = stored.groupby("load")["stored"].mean()
    assert share[1.0] > 0.9
    assert share[3.0] < 0.1


def test_a_network_is_right_on_its_training_pairs_long_before_others():
    axes = {"share": [0.9], "p": [11], "width": [64]}
    learned = jaxrecall.run(grokking.grokking, axes=axes, seeds=4, progress=False)
    share = learned.groupby("step")[["train_accuracy", "test_accuracy"]].mean()
    assert share["train_accuracy"].loc[50] > 0.99
    assert share["test_accuracy"].loc[50] < 0.3
    assert share["test_accuracy"].loc[1000] > 0.7


def test_sparse_features_share_dimensions_and_dense_ones_do_not():
    axes = {"m": [4], "active": [0.02, 1.0], "updates": [600]}
    represented = jaxrecall.run(
        superposition.superposition, axes=axes, seeds=2, progress=False
    )
    share = represented.groupby("active")["represented"].mean()
    assert 0.15 <= share[1.0] <= 0.25
    assert share[0.02] >= 0.4
