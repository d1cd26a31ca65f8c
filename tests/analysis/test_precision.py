"""Decoders of a rounded gradient, `sweeps/rounding.py`, and the rows of their study."""

import importlib
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import ROOT
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point, realize
from jaxrecall.model.reference import decoders, three_step

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
    assert_close(G, three_step(r, POINT).V1 / POINT.eta, "roots")
    ours = rounding.pair_scores(POINT, G, 0.0, r.Z_in, r.Z_out)
    theirs = decoders.whitened(POINT, G, r.Z_in, r.Z_out, r.z_trig)
    assert_close(ours, theirs, "roots")


def test_a_rounded_number_is_the_middle_of_its_interval(rounding):
    G = np.array([-1.0, -0.3, 0.0, 0.6, 1.0])
    told, error = rounding.rounded(G, 2, 1.0)
    assert told.tolist() == [-0.75, -0.25, 0.25, 0.75, 0.75]
    assert_close(error, 0.5 / 12**0.5)
    assert rounding.rounded(G, rounding.EXACT, 1.0)[0] is G


def test_the_likelihood_of_counts_is_that_of_the_draws(rounding):
    """Two samples with a label: token 0 occurs 3 times, token 1 twice, token 2 once."""
    counts = np.array([[3, 2, 1]] * 3)
    scores = rounding.count_scores(counts, 3)[:, 0]
    assert_close(scores, np.array([np.log(6), np.log(2), -np.inf]))


def test_d_matters_to_the_best_decoder_only_if_the_gradient_is_rounded(rounding):
    """All chances under a permutation add up to one."""
    counts, chances, labels = rounding.possible(3, 2, 2)
    assert_close(chances.sum(0), np.ones_like(chances.sum(0)))
    assert len(labels) == 6
    assert {*counts.sum((1, 2))} == {4}
    point = SimpleNamespace(V=3, d=1, L=2, N=2, bits=0)
    key = jax.random.key(0)
    exact = rounding.best(point, key)["recovered"]
    point.d = 3
    assert_close(rounding.best(point, key)["recovered"], exact)
    point.bits = 1
    assert 1 / 3 <= rounding.best(point, key)["recovered"] < exact - 0.01


@pytest.mark.parametrize("name", ["precision", "precision-small"])
def test_rows_are_those_of_the_simulator(rounding, name):
    rows = jaxrecall.load(ROOT / "results/study" / name)
    names = {"precision": "decoders", "precision-small": "best_decoder"}
    simulator = getattr(rounding, names[name])
    rows = rows.query("V <= 64 and d <= 32 and bits in (0, 4)")
    fields = [*({"V", "d", "L", "N", "bits", "decoder"} & {*rows})]
    places = rows.groupby(fields)["recovered"].agg(["mean", "std", "size"])
    stored = places[places["mean"].between(0.4, 0.7)].sort_values("size").iloc[-1]
    at = dict(zip(fields, stored.name, strict=True))
    base = json.loads(json.dumps(at, default=int))
    made = jaxrecall.run({"base": base}, seeds=8, progress=False, simulator=simulator)
    # versions of NumPy draw other counts with the same seed
    deviation = stored["std"] * (1 / stored["size"] + 1 / 8) ** 0.5
    assert stored["size"] > 2
    assert_close(made["recovered"].mean(), stored["mean"], 6 * deviation)
