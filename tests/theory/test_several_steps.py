"""Theory of several first or last steps by drawn counts."""

import numpy as np
import pytest
from helpers import ROOT
from tolerances import assert_close

from jaxrecall import load, theory
from jaxrecall.errors import TheoryError
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


@pytest.mark.parametrize(
    ("study", "L", "N", "step"),
    [
        ("first-steps-long", 1024, 2656, 3),
        ("many-steps", 256, 558, 10),
        ("many-steps", 256, 558, 67),
    ],
)
def test_accuracy_is_that_of_the_study(study, L, N, step):
    """After one last step, after 8 and after 65. Nothing is fitted."""
    rows = load(ROOT / "results/study" / study)
    cell = rows.query(
        "V == d == 64 and first_steps == L // 8 and not trigger_in_value"
        f" and L == {L} and N == {N} and step == {step}"
    )
    after = Model.from_fields(cell.iloc[0].to_dict())
    assert after.steps == step
    assert abs(theory.accuracy(after, N) - cell["accuracy"].mean()) < 0.1


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
