"""Decoders of a rounded gradient, `sweeps/rounding.py`, and the rows of their study."""

import importlib
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import ROOT

import jaxrecall
from jaxrecall import Point, realize, three_step
from jaxrecall.model.reference import decoders

POINT = Point(V=24, N=400, d=14, L=7, trigger_in_value=False, eta=1e-6)


@pytest.fixture
def rounding(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "sweeps")
    return importlib.import_module("rounding")


def test_the_exact_gradient_and_its_scores_are_those_of_the_package(rounding):
    r = realize(POINT, 0).astype(np.float64)
    counts = np.zeros((POINT.V, POINT.V))
    np.add.at(counts, (r.train_labels[:, None], r.train_tokens), 1)
    G = rounding.gradient(counts, r.Z_in, r.Z_out)
    np.testing.assert_allclose(G, three_step(r, POINT).V1 / POINT.eta, rtol=1e-6)
    ours = rounding.pair_scores(POINT, G, 0.0, r.Z_in, r.Z_out)
    theirs = decoders.whitened(POINT, G, r.Z_in, r.Z_out, r.z_trig)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 * abs(theirs).max())


def test_a_rounded_number_is_the_middle_of_its_interval(rounding):
    G = np.array([-1.0, -0.3, 0.0, 0.6, 1.0])
    told, error = rounding.rounded(G, 2, 1.0)
    assert told.tolist() == [-0.75, -0.25, 0.25, 0.75, 0.75]
    assert error == pytest.approx(0.5 / 12**0.5)
    assert rounding.rounded(G, rounding.EXACT, 1.0)[0] is G


def test_the_likelihood_of_counts_is_that_of_the_draws(rounding):
    """Two samples with a label: token 0 occurs 3 times, token 1 twice, token 2 once."""
    counts = np.array([[3, 2, 1]] * 3)
    scores = rounding.count_scores(counts, 3)[:, 0]
    np.testing.assert_allclose(scores, [np.log(6), np.log(2), -np.inf])


def test_d_matters_to_the_best_decoder_only_if_the_gradient_is_rounded(rounding):
    """All chances under a permutation add up to one."""
    counts, chances, labels = rounding.possible(3, 2, 2)
    np.testing.assert_allclose(chances.sum(0), 1)
    assert len(labels) == 6
    assert set(counts.sum((1, 2))) == {4}
    point = SimpleNamespace(V=3, d=1, L=2, N=2, bits=0)
    key = jax.random.key(0)
    exact = rounding.best(point, key)["recovered"]
    point.d = 3
    assert rounding.best(point, key)["recovered"] == pytest.approx(exact)
    point.bits = 1
    assert 1 / 3 <= rounding.best(point, key)["recovered"] < exact - 0.01


@pytest.mark.parametrize("name", ["precision", "precision-small"])
def test_rows_are_those_of_the_simulator(rounding, name):
    rows = jaxrecall.load(ROOT / "results/study" / name)
    simulator = {
        "precision": rounding.decoders,
        "precision-small": rounding.best_decoder,
    }[name]
    rows = rows.query("V <= 64 and d <= 32 and seed == 1 and bits in (0, 4)")
    row = rows[rows["recovered"].between(0.4, 0.7)].iloc[0]
    fields = ["V", "d", "L", "N", "bits", "decoder"]
    base = {name: row[name] for name in fields if name in rows}
    base = json.loads(json.dumps(base, default=int))
    found = jaxrecall.run({"base": base}, seeds=2, progress=False, simulator=simulator)
    assert found["recovered"][1] == pytest.approx(row["recovered"], abs=0.02)
