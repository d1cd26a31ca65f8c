"""Limits of what can be learned, held against a learner that knows everything, and
decoders from counts in examples/, held against runs.
"""

import importlib
import itertools
import sys

import jax
import numpy as np
import pytest
from helpers import ROOT, combinations
from scipy.stats import binom
from tolerances import assert_close

from jaxrecall import Point, realize, simulate
from jaxrecall.model.reference import three_step
from jaxrecall.model.reference.decoders import decoder_columns, whitened
from jaxrecall.theory import Model, recall_ceiling

sys.path.append(str(ROOT / "examples"))
import decoders


@pytest.fixture
def bound(monkeypatch):
    """The script of the study of bounds."""
    monkeypatch.syspath_prepend(ROOT / "results")
    return importlib.import_module("bound")


DECODERS = ("matched_accuracy", "whitened_accuracy", "assignment_accuracy")


@pytest.mark.parametrize(("V", "L"), [(2, 1), (2, 3), (3, 4), (5, 2)])
def test_the_information_of_a_sample_is_that_of_all_sequences_counted(bound, V, L):
    entropy = []
    for sequence in itertools.product(range(V), repeat=L):
        p = np.bincount(sequence, minlength=V) / L
        entropy.append(-sum(p[p > 0] * np.log(p[p > 0])))
    information = bound.sample_information(V, L)
    assert_close(information, np.log(V) - np.mean(entropy), scale=1)


@pytest.mark.parametrize(("V", "L"), [(64, 10**6), (1024, 10**9)])
def test_the_information_of_a_long_sample_vanishes_as_V_over_2_L(bound, V, L):
    information = bound.sample_information(V, L)
    assert_close(information * 2 * L / (V - 1), 1, 1e-3)


@pytest.mark.parametrize(("V", "L", "most"), [(4, 2, 3), (3, 6, 3), (2, 9, 4)])
def test_no_learner_exceeds_the_ceiling_and_one_exceeds_that_of_the_gaussian_channel(
    bound, V, L, most
):
    model = Model(V=V, d=2, L=L)
    for N in range(1, most + 1):
        known = bound.best_decoder(V, L, N)
        ceiling = bound.trigger_blind_ceiling(model, N)
        assert 1 / V < known <= ceiling
        assert ceiling <= recall_ceiling(model, N)
        assert V != 4 or N == 1 or known > bound.gaussian_channel(model, N)


def test_a_label_that_was_seen_is_known_to_who_sees_the_position():
    """Counted over all sequences of four informative tokens: those that occur are
    known, and of the others one is guessed.
    """
    drawn = itertools.product(range(5), repeat=4)
    seen = np.array([len({*tokens}) for tokens in drawn])
    ceiling = recall_ceiling(Model(V=5, d=2, L=30), 4)
    assert_close(ceiling, np.mean(seen + (seen < 5)) / 5, "roots")


@pytest.mark.parametrize("L", [1, 8, 512, 10**6])
def test_ceilings_rise_with_N_to_one_and_who_sees_the_position_is_never_worse_off(
    bound, L
):
    model = Model(V=64, d=8, L=L)
    samples = np.geomspace(1, 1e12, 60)
    hidden, seen = (
        np.array([ceiling(model, N) for N in samples])
        for ceiling in (bound.trigger_blind_ceiling, recall_ceiling)
    )
    assert (np.diff(hidden) >= 0).all()
    assert hidden[0] < 0.1
    assert hidden[-1] == 1
    assert (hidden <= seen).all()
    assert L > 1 or hidden[30] == seen[30]


def test_who_does_not_see_the_position_learns_a_label_in_parts(bound):
    V, N = 64, 200
    each, n = bound.sample_information(V, 64), np.arange(N + 1)
    nats = V * binom.pmf(n, N, 1 / V) @ np.minimum(np.log(V), n * each)
    E = V * bound.trigger_blind_ceiling(Model(V=V, d=8, L=64), N)
    assert_close(E * np.log(E) - E + 1, nats, "roots")
    assert nats < 0.999 * N * each


LAWS = [{}, {"trigger_in_value": False}, {"embedding": "sphere"}]
LAWS += [{"V": 10, "embedding": "orthogonal"}]


@pytest.mark.parametrize("changes", combinations(LAWS, often=LAWS[:2].__contains__))
def test_the_gradient_of_the_counts_is_that_of_the_samples(changes):
    sizes = {"V": 30, "N": 900, "d": 12, "L": 7, "n_test": 64}
    point = Point(**sizes | changes, eta=1e-6, decoders=True)
    for seed in range(3):
        r = realize(point, seed)
        tables = [
            np.asarray(table, np.float64) for table in (r.Z_in, r.Z_out, r.z_trig)
        ]
        counts = np.zeros((point.V, point.V))
        informative = r.train_tokens[np.arange(point.N), r.train_positions]
        np.add.at(counts, (informative[:, None], r.train_tokens), 1)
        inside = point.trigger_in_value
        G1 = decoders.gradient(counts, point.L, *tables, r.perm, inside)
        assert_close(G1, three_step(r, point).V1 / point.eta, "roots")
        scores = whitened(point, G1, *tables)
        assert_close(decoders.whitened(point, G1, *tables), scores, "roots")
        row = simulate(point, seed)
        columns = {name: row[name] for name in DECODERS}
        assert decoder_columns(point, r.perm, G1, *tables) == columns


EXACT = [*itertools.product((32, 256), (16, 32), (128, 1024), (True, False))]


@pytest.mark.slow
def test_decoders_from_counts_recover_what_they_recover_from_samples():
    """Means over 16 seeds, in standard errors; those of a cell belong together, cells
    do not.
    """
    off = []
    for i, (L, d, N, inside) in enumerate(EXACT):
        sizes = {"V": 32, "N": N, "d": d, "L": L, "trigger_in_value": inside}
        options = {"eta": 1e-9, "decoders": True, "streams": "independent"}
        point = Point(**sizes, **options, n_test=1)
        keys = [jax.random.key(100 * i + seed) for seed in range(16)]
        drawn, runs = (
            np.array([[row[name] for name in DECODERS] for row in rows])
            for rows in (
                [decoders.simulator(key, **sizes) for key in keys],
                [simulate(point, seed) for seed in range(16)],
            )
        )
        error = np.hypot(runs.std(0, ddof=1), drawn.std(0, ddof=1)) / 4
        off.append((drawn.mean(0) - runs.mean(0)) / np.maximum(error, 1e-3))
    print(np.round(off, 1))
    assert np.abs(off).max() < 3.5
    assert np.mean(np.abs(off) > 2) < 0.12
    # of 16 independent ones three standard deviations
    assert np.abs(np.mean(off, axis=0)).max() < 0.75
