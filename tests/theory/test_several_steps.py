"""Theory of several first or last steps by drawn counts."""

import numpy as np
import pytest
from helpers import ROOT
from tolerances import assert_close

from jaxrecall import load, theory
from jaxrecall.errors import TheoryError
from jaxrecall.fit import fit
from jaxrecall.theory import Model
from jaxrecall.theory.first_steps import are_drawn
from jaxrecall.theory.several_steps import tokens_beside_labels

LONG = Model(V=64, d=64, L=1024, trigger_in_value=False, eta=512.0, first_steps=128)


@pytest.mark.parametrize("count", [0.0, 4.0])
def test_counts_of_noise_have_the_moments_of_poisson_variables(count):
    V, L = 400, 1200
    n = np.full(V, count)
    normals = np.random.default_rng(0).standard_normal((V, V))
    noise = tokens_beside_labels(n, L, normals) - np.diag(n)
    expected = L / V * count
    assert_close(noise.mean(), 0, 1e-9)
    assert_close(noise.var(), expected, 0.02 * expected + 1e-9)
    assert_close((noise**3).mean(), expected, 0.15 * expected + 1e-9)


@pytest.mark.parametrize("L", [256, 1024])
def test_critical_N_is_that_of_the_study_along_L(L):
    """Of V = d = 64 and L / 8 first steps. Nothing is fitted; the worst of 19 cells is
    off by a factor of 1.4.
    """
    rows = load(ROOT / "results/study/first-steps-long")
    cell = rows.query(f"V == d == 64 and L == {L} and first_steps == {L // 8}")
    cell = cell[~cell["trigger_in_value"] & cell["pool"].isna()]
    observed = fit(cell, [0.5]).thresholds["N_star"].iloc[0]
    predicted = theory.critical_N(LONG.replace(L=L, first_steps=L // 8))
    assert 0.8 < predicted / observed < 1.25


@pytest.mark.parametrize("step", [10, 67])
def test_accuracy_after_last_steps_is_that_of_the_study(step):
    """The accuracy after one large last step is another one."""
    rows = load(ROOT / "results/study/many-steps")
    cell = rows.query(f"V == d == 64 and L == 256 and N == 558 and step == {step}")
    one = cell.iloc[0]
    names = ("V", "d", "L", "trigger_in_value", "eta", "first_steps", "lr", "gamma2")
    fields = {
        name: one[name] for name in (*names, "steps", "step", "trains", "optimizer")
    }
    after = Model.from_fields(fields)
    reached = theory.accuracy(after, 558)
    assert abs(reached - cell["accuracy"].mean()) < 0.1
    after_one = theory.accuracy(after.replace(steps=3, gamma2=1e9), 558)
    assert abs(after_one - reached) > 0.1


def test_more_steps_than_samples_allow_are_refused():
    assert theory.accuracy(LONG, 2000) > 0.4
    short = LONG.replace(V=128, d=512, L=64, eta=3276.8, first_steps=8)
    with pytest.raises(TheoryError, match="predictions are not uniform in step 2"):
        theory.accuracy(short, 98)
    with pytest.raises(TheoryError, match=r"^eta: got 8192 .* else steps diverge"):
        theory.accuracy(LONG.replace(eta=8192), 2000)


def test_counts_are_drawn_only_where_they_fit_and_all_sizes_are_given():
    assert are_drawn(LONG)
    for other in (LONG.replace(V=4096, L=8192), LONG.replace(V=None)):
        assert not are_drawn(other)


def test_accuracy_rises_with_samples_from_none_to_all():
    reached = [theory.accuracy(LONG, N) for N in (500, 1000, 2000, 4000, 1e12)]
    assert np.all(np.diff(reached) > 0)
    assert reached[0] < 0.2
    assert reached[-1] > 0.99
