"""The misfit of a law: noise alone rejects it, and exponents allow for it."""

import re

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power
from scipy.stats import t as student
from test_fit import crossed
from tolerances import assert_close

from jaxrecall.analysis.fit.misfit import half_widths, misfit
from jaxrecall.fit import fit
from results import coverage

SIZES = [16, 32, 64, 128, 256, 512, 1024]


def losses(value, axes, seeds=8, noise=0.02, stream=0):
    """Runs whose loss is `value(run)`, times the exponential of normal noise."""
    axes = {"V": [64], "N": [1000], "d": [32], "L": [4], "m": [0]} | axes
    frame = crossed(**axes, seed=range(seeds))
    off = noise * np.random.default_rng(stream).normal(size=len(frame))
    return frame.assign(loss=value(frame) * np.exp(off))


def jackknife(estimate, frame):
    """Half of the 95 % interval of an estimate, which leaves out one seed each."""
    seeds = frame["seed"].unique()
    without = [estimate(frame[frame["seed"] != seed]) for seed in seeds]
    squares = np.sum((np.array(without) - estimate(frame)) ** 2)
    free = len(seeds) - 1
    return student.ppf(0.975, free) * np.sqrt(free / len(seeds) * squares)


def laws(frame):
    return fit(frame, law="loss", along="N").exponents.set_index("axis")


def test_a_law_is_rejected_by_noise_and_not_by_a_fixed_distance():
    def floor(c):
        return 1 + 4 * c["d"] ** -0.5

    found = fit(losses(floor, {"d": SIZES}, noise=0.01), law="loss", along="d")
    (row,) = found.exponents.itertuples()
    assert row.rejected
    assert 15 < row.misfit < 25
    assert re.search(rf"rejected.*\n.* True .* {row.misfit:.2g} ", repr(found))
    told = found.diagnostics.set_index("diagnostic")
    assert 0.04 < told["value"]["residual"] < 0.05  # within the former 5 %
    assert "no single power law" in told["text"]["warning"]
    loud = laws(losses(floor, {"d": SIZES}, noise=0.2, stream=2)).loc["d"]
    assert not loud["rejected"]
    assert loud["misfit"] < 2


def test_noise_alone_rejects_few_true_laws():
    rng = np.random.default_rng(0)
    draws, n_seeds = 1000, 7
    n_rejected = 0
    for _ in range(draws):
        # noise that differs between cells and is common to some of them
        noise = rng.normal(size=(n_seeds, 6)) * [1, 1, 2, 2, 3, 5]
        noise[:, :3] += rng.normal(size=(n_seeds, 1))
        design = np.vander(np.arange(6), 2)
        noise -= noise @ design @ np.linalg.pinv(design)
        mean = noise.mean(axis=0)
        off = np.vstack([mean, mean + (mean - noise) / (n_seeds - 1)])
        n_rejected += misfit(off, 4, n_seeds, 0.0).is_certain
    assert 0.015 < n_rejected / draws < 0.07


def test_cells_that_share_a_misfit_count_once():
    axes = {"V": [32, 64, 128, 256], "d": SIZES[:4], "L": [4, 16, 64, 256]}
    shared = 0.15 * np.random.default_rng(5).normal(size=16)

    def law(c):
        return c["V"] ** 1.5 / c["d"] * c["L"] ** 0.5

    def off(c):
        return law(c) * np.exp(shared[c.groupby(["V", "d"]).ngroup()])

    row = laws(losses(off, axes))
    width = row["hi"] - row["lo"]
    assert row["rejected"].all()
    assert (row["interval_by"] == "cells")[["V", "d"]].all()
    # sixteen clusters of four cells: half the number of cells' standard error
    logs = np.log(axes["V"])
    spread = 0.15 / np.sqrt(4 * ((logs - logs.mean()) ** 2).sum())
    assert 0.6 < width["V"] / (2 * student.ppf(0.975, 14) * spread) < 1.7
    assert width["L"] < 0.3 * width["V"]
    assert row["lo"]["L"] < 0.5 < row["hi"]["L"]
    plain = laws(losses(law, axes)).loc["V"]
    assert plain["lo"] < 1.5 < plain["hi"]
    assert plain["hi"] - plain["lo"] < 0.3 * width["V"]


def test_clusters_have_the_variance_and_the_freedom_of_their_source():
    """A second implementation, with full matrices."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(9), rng.normal(size=(9, 2))])
    cluster = np.array([0, 1, 2, 0, 1, 2, 3, 3, 0])
    inverse = np.linalg.inv(X.T @ X)
    rest = np.eye(9) - X @ inverse @ X.T
    off = rest @ rng.normal(size=9)
    still = np.tile(off, (9, 1))  # no noise
    found = half_widths(X, (inverse @ X.T)[1:], still, 8, [cluster], True)
    for j in (1, 2):
        scores, parts = [], []
        for g in range(4):
            mine = cluster == g
            power = fractional_matrix_power(rest[np.ix_(mine, mine)], -0.5)
            adjusted = power @ X[mine] @ inverse[j]
            scores.append(adjusted @ off[mine])
            parts.append(rest[mine].T @ adjusted)
        B = np.array(parts) @ np.array(parts).T
        freedom = np.trace(B) ** 2 / np.trace(B @ B)
        half = student.ppf(0.975, freedom) * np.linalg.norm(scores)
        assert_close(found[j - 1], half)


def test_cells_without_an_interval_are_not_in_the_law():
    frame = losses(lambda c: 1 / c["d"], {"d": SIZES[:5]})
    few = frame[(frame["d"] > 16) | (frame["seed"] < 3)]
    # it would bend the law
    few = few.assign(loss=few["loss"].mask(few["d"] == 16, 2 * few["loss"]))
    found = fit(few, law="loss", along="d")
    (row,) = found.exponents.itertuples()
    assert (row.n_cells, row.left_out) == (4, "1 few seeds")
    assert " 1 few seeds " in repr(found)
    rest = fit(frame[frame["d"] > 16], law="loss", along="d").exponents
    assert_close(row.exponent, rest["exponent"][0])


def test_a_true_law_is_not_rejected():
    assert not coverage.check(coverage.Setting(), 1)["rejected"].any()


@pytest.mark.parametrize("kind", coverage.MISFITS)
def test_each_kind_of_misfit_is_rejected(kind):
    assert coverage.check(coverage.Setting(misfit=kind), 3)["rejected"].all()
