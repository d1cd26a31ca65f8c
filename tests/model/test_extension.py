"""An embedding law, an activation and a simulation form that are defined outside the package: each short, and swept over."""

import math

import jax
import numpy as np
import pytest
from helpers import assert_same_metrics, streamed

from jaxrecall import Point, load, realize, theory, three_step
from jaxrecall.errors import TheoryError
from jaxrecall.model import laws as embedding
from jaxrecall.model.activations import ACTIVATIONS
from jaxrecall.model.laws import EMBEDDING_LAWS, EmbeddingLaw
from jaxrecall.model.reference.metrics import measure
from jaxrecall.simulator import forms, steps
from jaxrecall.simulator.forms import FORMS, Form
from jaxrecall.simulator.shape import Shape
from jaxrecall.simulator.work import Amounts
from jaxrecall.sweep.__main__ import main


class Signs(EmbeddingLaw):
    """Entries +-1/sqrt(d)."""

    name = "signs"

    def rows(self, normals, index, d, xp):
        return xp.where(normals < 0, -1.0, 1.0).astype(normals.dtype) / xp.sqrt(xp.asarray(d, normals.dtype))


def softplus(u, xp, erf):
    value = xp.log1p(xp.exp(-abs(u))) + xp.maximum(u, 0)
    return value, 1 / (1 + xp.exp(-u))


class Small(Form):
    """Exact, for points of few samples."""

    name = "small"

    def covers(self, point, V):
        return point.N < 100

    def train(self, world):
        return steps.train(world)

    def amounts(self, work, sizes):
        return Amounts(words=4 * work.tokens)


@pytest.fixture
def registered():
    embedding.register(Signs())
    forms.register(Small())
    ACTIVATIONS["softplus"] = softplus
    yield
    del EMBEDDING_LAWS["signs"], FORMS["small"], ACTIVATIONS["softplus"]


GRID = """
base: {V: 12, d: 16, L: 4, n_test: 300, eta: 1e-6}
seeds: {count: 2}
blocks:
  - axes: {embedding: [signs, gaussian], N: [64, 600]}
  - axes: {embedding: [signs, gaussian], N: [64], m: [24], activation: [softplus]}
"""


def test_a_sweep_over_a_law_an_activation_and_a_form_of_ones_own(registered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(GRID)
    assert main(["--grid", "own.yaml"]) == 0
    rows = load("results/own")
    assert len(rows) == 12
    assert set(rows["embedding"]) == {"signs", "gaussian"}
    assert set(rows[rows["m"] > 0]["activation"]) == {"softplus"}
    assert set(rows[rows["N"] == 64]["form"]) == {"small"}
    assert set(rows[rows["N"] == 600]["form"]) <= {"counts+counts", "counts+locked"}


def test_the_simulator_agrees_with_the_reference_on_them(registered):
    point = Point(V=12, N=90, d=16, L=4, m=24, n_test=300, embedding="signs", activation="softplus", eta=0.1)
    r = realize(point, 0)
    assert set(np.unique(np.abs(r.Z_in))) == {np.float32(0.25)}
    learned, metrics = streamed(point, 0, Shape.sized(point, 16, 16, 32))
    expected = three_step(r, point)
    for ours, theirs in zip(learned, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * np.abs(theirs).max())
    assert metrics["form"] == "small"
    assert_same_metrics(metrics, measure(r, point, expected))


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "quadratic", "identity", "softplus"])
def test_the_slope_of_every_activation_is_that_of_its_value(registered, activation):
    assert set(ACTIVATIONS) == {"relu", "gelu", "tanh", "quadratic", "identity", "softplus"}
    u = np.linspace(-3, 3, 50) + 1e-3
    with jax.enable_x64(True):
        value = jax.vmap(jax.grad(lambda x: ACTIVATIONS[activation](x, jax.numpy, jax.scipy.special.erf)[0]))(u)
    slope = ACTIVATIONS[activation](u, np, np.vectorize(math.erf))[1]
    np.testing.assert_allclose(slope, value, atol=1e-12)


def test_rows_of_every_law_have_mean_square_length_one(registered):
    V, d = 30, 64
    normals = np.random.default_rng(0).normal(size=(V, d))
    for name, law in EMBEDDING_LAWS.items():
        rows = law.rows(normals, np.arange(V)[:, None], d, np)
        assert rows.shape == (V, d), name
        assert np.mean(np.sum(rows**2, axis=1)) == pytest.approx(1, abs=0.1), name


def test_theory_refuses_a_law_that_supplies_no_moments(registered):
    with pytest.raises(TheoryError, match="embedding: got 'signs'"):
        theory.accuracy(theory.Model(V=64, d=32, L=8, embedding="signs"), 1024)


def test_a_name_that_is_taken_is_refused(registered):
    with pytest.raises(ValueError, match="embedding law: got 'signs' a second time"):
        embedding.register(Signs())
    with pytest.raises(ValueError, match="form: got 'small' a second time"):
        forms.register(Small())


def test_without_registration_the_names_are_refused():
    with pytest.raises(ValueError, match="embedding: got 'signs'; allowed: gaussian, sphere, orthogonal"):
        Point(V=8, N=10, d=4, L=2, embedding="signs")
    assert Shape.of(Point(V=8, N=10, d=4, L=2, eta=1e-9)).form == "counts"
