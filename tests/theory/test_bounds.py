"""Limits of what can be learned, held against a learner that knows everything, and
decoders from counts in examples/, held against runs.
"""

import importlib
import itertools
import sys

import jax
import numpy as np
import pytest
from helpers import ROOT
from scipy.stats import binom

from jaxrecall import Point, realize, simulate, three_step
from jaxrecall.errors import TheoryError
from jaxrecall.model.reference.decoders import decoder_columns, whitened
from jaxrecall.theory import Model, fano_ceiling, recall_ceiling, sample_information

sys.path.append(str(ROOT / "examples"))
import decoders

DECODERS = ("matched_accuracy", "whitened_accuracy", "assignment_accuracy")


@pytest.mark.parametrize(("V", "L"), [(2, 1), (2, 3), (3, 4), (5, 2)])
def test_the_information_of_a_sample_is_that_of_all_sequences_counted(V, L):
    entropy = []
    for sequence in itertools.product(range(V), repeat=L):
        p = np.bincount(sequence, minlength=V) / L
        entropy.append(-sum(p[p > 0] * np.log(p[p > 0])))
    assert sample_information(Model(V=V, d=2, L=L)) == pytest.approx(
        np.log(V) - np.mean(entropy), abs=1e-12
    )


def test_the_information_of_a_long_sample_vanishes_as_V_over_2_L():
    for V, L in ((64, 10**6), (1024, 10**9)):
        assert sample_information(Model(V=V, d=2, L=L)) == pytest.approx(
            (V - 1) / (2 * L), rel=1e-3
        )


@pytest.mark.parametrize(("V", "L", "most"), [(4, 2, 3), (3, 6, 3), (2, 9, 4)])
def test_no_learner_exceeds_the_ceiling_and_one_exceeds_that_of_the_gaussian_channel(
    monkeypatch, V, L, most
):
    monkeypatch.syspath_prepend(ROOT / "results")
    bound = importlib.import_module("bound")
    model = Model(V=V, d=2, L=L)
    for N in range(1, most + 1):
        known = bound.best_decoder(V, L, N)
        ceiling = recall_ceiling(model, N, sees_position=False)
        assert 1 / V < known <= ceiling
        assert ceiling <= recall_ceiling(model, N, sees_position=True)
        assert V != 4 or N == 1 or known > fano_ceiling(model, N)


def test_a_label_that_was_seen_is_known_to_who_sees_the_position():
    """Counted over all sequences of four informative tokens: those that occur are
    known, and of the others one is guessed.
    """
    seen = np.array(
        [len(set(tokens)) for tokens in itertools.product(range(5), repeat=4)]
    )
    assert recall_ceiling(
        Model(V=5, d=2, L=30), 4, sees_position=True
    ) == pytest.approx(np.mean(seen + (seen < 5)) / 5)


def test_ceilings_rise_with_N_to_one_and_who_sees_the_position_is_never_worse_off():
    for L in (1, 8, 512, 10**6):
        model = Model(V=64, d=8, L=L)
        hidden, seen = (
            [
                recall_ceiling(model, N, sees_position=p)
                for N in np.geomspace(1, 1e12, 60)
            ]
            for p in (False, True)
        )
        assert (np.diff(hidden) >= 0).all()
        assert hidden[0] < 0.1
        assert hidden[-1] == 1
        assert all(a <= b for a, b in zip(hidden, seen, strict=True))
        assert L > 1 or hidden[30] == seen[30]


def test_who_does_not_see_the_position_learns_a_label_in_parts_and_not_more_than_all_of_it():  # noqa: E501
    V, N = 64, 200
    each, n = sample_information(Model(V=V, d=8, L=64)), np.arange(N + 1)
    nats = V * binom.pmf(n, N, 1 / V) @ np.minimum(np.log(V), n * each)
    E = V * recall_ceiling(Model(V=V, d=8, L=64), N, sees_position=False)
    assert E * np.log(E) - E + 1 == pytest.approx(nats, rel=1e-9)
    assert nats < 0.999 * N * each


def counted(r, V):
    """(V, V) how often each token occurs in samples of each informative token, of a
    realization.
    """
    counts = np.zeros((V, V))
    np.add.at(
        counts,
        (
            r.train_tokens[np.arange(len(r.train_tokens)), r.train_positions][:, None],
            r.train_tokens,
        ),
        1,
    )
    return counts


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trigger_in_value": False},
        {"embedding": "sphere"},
        pytest.param({"V": 10, "embedding": "orthogonal"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_gradient_of_the_counts_is_that_of_the_samples(changes):
    point = Point(V=30, N=900, d=12, L=7, n_test=64, eta=1e-6, decoders=True).replace(
        **changes
    )
    for seed in range(3):
        r = realize(point, seed)
        tables = tuple(
            np.asarray(table, np.float64) for table in (r.Z_in, r.Z_out, r.z_trig)
        )
        G1 = decoders.gradient(
            counted(r, point.V), point.L, *tables, r.perm, point.trigger_in_value
        )
        np.testing.assert_allclose(
            G1, three_step(r, point).V1 / point.eta, rtol=1e-9, atol=1e-12
        )
        row = simulate(point, seed)
        assert decoder_columns(point, r.perm, G1, *tables) == {
            name: row[name] for name in DECODERS
        }
        scores = whitened(point, G1, *tables)
        np.testing.assert_allclose(
            decoders.whitened(point, G1, *tables),
            scores,
            rtol=0,
            atol=1e-8 * np.abs(scores).max(),
        )


EXACT = [
    (L, d, N, inside)
    for L in (32, 256)
    for d in (16, 32)
    for N in (128, 1024)
    for inside in (True, False)
]


@pytest.mark.slow
def test_decoders_from_counts_recover_what_they_recover_from_samples():
    """Means over 16 seeds, in standard errors; those of a cell belong together, cells
    do not.
    """
    off = []
    for i, (L, d, N, inside) in enumerate(EXACT):
        point = Point(
            V=32,
            N=N,
            d=d,
            L=L,
            trigger_in_value=inside,
            n_test=1,
            eta=1e-9,
            decoders=True,
            streams="independent",
        )
        found = [
            decoders.decoded(point, jax.random.key(seed))
            for seed in range(100 * i, 100 * i + 16)
        ]
        drawn = {name: np.array([one[name] for one in found]) for name in DECODERS}
        rows = [simulate(point, seed) for seed in range(16)]
        runs = {name: np.array([row[name] for row in rows]) for name in DECODERS}
        errors = {
            name: max(np.hypot(run.std(ddof=1), drawn[name].std(ddof=1)) / 4, 1e-3)
            for name, run in runs.items()
        }
        off.append(
            [
                (drawn[name].mean() - runs[name].mean()) / errors[name]
                for name in DECODERS
            ]
        )
    print(np.round(off, 1))
    assert np.abs(off).max() < 3.5
    assert np.mean(np.abs(off) > 2) < 0.12
    # of 16 independent ones three standard deviations
    assert np.abs(np.mean(off, axis=0)).max() < 0.75


def test_fresh_batches_are_refused():
    with pytest.raises(TheoryError, match="fresh_batches: got True"):
        recall_ceiling(
            Model(V=8, d=4, L=4, fresh_batches=True), 10, sees_position=False
        )
