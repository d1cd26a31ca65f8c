"""Rows of real tables: the law of three numbers, and the forms of a table."""

import numpy as np
import pytest
from surrogate import numpy_draws
from test_papers import beside_the_grids
from tolerances import assert_close

from jaxrecall import Point, measure, realize, simulate, three_step

real = beside_the_grids("real")


def table(V=20_000, d=32, **numbers):
    law, rng = real.Learned(**numbers), np.random.default_rng(0)
    normals = rng.standard_normal((V, d))
    draws = numpy_draws(law, "Z_in", np.arange(V)[:, None], normals, (V, d), rng)
    return law.rows(draws, np)


def test_the_law_has_the_spectrum_the_common_direction_and_the_lengths_that_it_is_given():  # noqa: E501
    power = np.arange(1, 33) ** -0.7
    squares = np.mean(table(alpha=0.7) ** 2, axis=0)
    assert_close(squares / power * power.sum(), np.ones(32), 0.05)
    rows = table(5000, 2000, rho=0.3)
    shared = np.sum(rows.mean(axis=0) ** 2) / np.mean(np.sum(rows**2, axis=1))
    assert_close(shared, 0.3, 0.02)
    lengths = np.linalg.norm(table(5000, 2000, spread=0.4), axis=1)
    assert_close(np.mean(lengths**2), 1, 0.04)
    low, middle, high = np.quantile(lengths, (0.1, 0.5, 0.9))
    assert_close(high / middle / 1.8**0.4, 1, 0.03)
    assert_close(middle / low / 5**0.4, 1, 0.06)


def test_its_numbers_are_found_again_in_a_table_of_it():
    numbers = {"alpha": 0.5, "rho": 0.05, "spread": 0.3}
    rows = table(d=256, **numbers)
    for name, found in real.fitted(rows, real.facts(rows)).items():
        assert_close(found / numbers[name], 1, 0.25)


@pytest.mark.slow
def test_a_run_with_it_is_that_of_float64_code():
    embedding = "real:Learned(alpha=0.5, rho=0.1, spread=0.4)"
    sizes = {"V": 24, "N": 600, "d": 20, "L": 4, "n_test": 512}
    point = Point(**sizes, eta=1e-6, embedding=embedding)
    row, draws = simulate(point, seed=0), realize(point, seed=0)
    measured = measure(draws, point, three_step(draws, point))
    assert row["n_correct"] == measured["n_correct"]
    for name in ("trigger_score", "snr"):
        assert_close(row[name] / measured[name], 1, 1e-3)
    assert 0.1 < row["accuracy"] < 1


def test_forms_of_a_table_lack_one_feature_each():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 6)) * np.arange(1, 7) + 1
    forms = real.forms(rows * rng.uniform(0.5, 2, (500, 1)))
    for name in ("-unit", "-white-unit"):
        assert_close(np.linalg.norm(forms[name], axis=1), np.ones(500))
    assert_close(forms["-white"].T @ forms["-white"] / 500, np.eye(6))
