"""Muon on the associative memory: the simulator of its iterates, and what is read from
the committed tables.
"""

import importlib
import json
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from helpers import ROOT, papers_script

import jaxrecall
from jaxrecall import Point
from jaxrecall.sweep.grid import read_grid

STUDIES = ["muon", "muon-float64", "muon-iterates", "muon-constants"]
STUDIES += ["muon-wide", "muon-two-steps"]


@pytest.fixture(scope="module")
def iterates():
    """The simulator's module under the name that grids give it, forgotten
    afterwards.
    """
    before = [*sys.path]
    sys.path.insert(0, str(ROOT / "sweeps/papers"))
    yield importlib.import_module("muon")
    sys.path[:] = before
    sys.modules.pop("muon")


@pytest.fixture(scope="module")
def tables():
    return papers_script("muon")


def problem(V, d, alpha=1.5, seed=0):
    rng = np.random.default_rng(seed)
    p = np.arange(1, V + 1) ** -alpha
    return *rng.normal(size=(2, V, d)) / d**0.5, p / p.sum(), rng


def test_the_exact_gradient_is_that_of_autodiff(iterates):
    Z_in, Z_out, p, rng = problem(300, 8)
    W = 3 * rng.normal(size=(8, 8))
    recalled, G = iterates.after(W, p, Z_in, Z_out)
    with jax.enable_x64(True):

        def loss(W):
            return p @ optax.softmax_cross_entropy_with_integer_labels(
                Z_in @ W.T @ Z_out.T, jnp.arange(300)
            )

        np.testing.assert_allclose(
            G, -jax.grad(loss)(jnp.asarray(W)), rtol=1e-11, atol=1e-15
        )
    assert 0 < recalled.sum() < 300
    assert (recalled == ((Z_in @ W.T @ Z_out.T).argmax(axis=1) == np.arange(300))).all()


def test_a_test_of_the_frequent_items_agrees_with_a_test_of_all(iterates):
    Z_in, Z_out, p, rng = problem(600, 8)
    W = 3 * rng.normal(size=(8, 8))
    every, _ = iterates.after(W, p, Z_in, Z_out, "thresholded")
    first, _ = iterates.after(W, p, Z_in, Z_out, "thresholded", tested=300)
    np.testing.assert_array_equal(first[:300], every[:300])
    assert every[300:].any()
    assert not first[300:].any()
    exact, _ = iterates.after(W, p, Z_in, Z_out, "exact", tested=300)
    np.testing.assert_array_equal(exact, every)


def test_at_zero_nothing_is_recalled_and_both_gradients_agree(iterates):
    Z_in, Z_out, p, _ = problem(300, 8)
    recalled, G = iterates.after(np.zeros((8, 8)), p, Z_in, Z_out)
    assert not recalled.any()
    np.testing.assert_allclose(
        iterates.thresholded(p, Z_in, Z_out), G, rtol=1e-11, atol=1e-15
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_the_first_step_is_the_polar_step_of_the_shipped_simulator(iterates, seed):
    lr = 2.0
    point = Point(
        **{
            "V": 128,
            "N": 10**15,
            "d": 16,
            "L": 1,
            "tokens": "zipf(s=1.5)",
            "trigger_in_value": False,
            "n_test": 64,
        },
        **{"start": "zero", "steps": 1, "optimizer": "polar", "trains": "V", "lr": lr},
    )
    drawn = jaxrecall.draws(
        point.replace(N=1),
        jax.random.fold_in(jax.random.key(point.root_seed, impl="threefry2x32"), seed),
    )
    Z_in, Z_out, perm = (
        np.asarray(table) for table in (drawn.Z_in, drawn.Z_out, drawn.perm)
    )
    p = np.arange(1, 129) ** -1.5
    schedule = SimpleNamespace(
        n_steps=1,
        alpha=1.5,
        c_lam=0.0,
        c_eta=lr / 4,
        decay="constant",
        gradient="exact",
        dtype="float64",
    )
    [(recalled, _)] = iterates.iterates(
        Z_in.astype(float), Z_out[perm].astype(float), p / p.sum(), schedule
    )
    row = jaxrecall.simulate(point, seed=seed)
    assert row["recalled"] == recalled.sum() > 5
    assert row["V_norm"] == pytest.approx(lr * 16**0.5, rel=1e-5)  # |U V^T| = sqrt(d)


@pytest.mark.parametrize("gradient", ["exact", "thresholded"])
def test_two_steps_follow_the_schedule(iterates, gradient):
    Z_in, Z_out, p, _ = problem(200, 16, alpha=2.0)
    schedule = SimpleNamespace(
        n_steps=2,
        alpha=2.0,
        c_lam=0.5,
        c_eta=3.0,
        decay="inverse",
        gradient=gradient,
        dtype="float64",
    )
    W, G = np.zeros((16, 16)), iterates.thresholded(p, Z_in, Z_out)
    for t, (recalled, spread) in enumerate(
        iterates.iterates(Z_in, Z_out, p, schedule), start=1
    ):
        lam = 0.5 * 16 ** (-2 * (2 - 0.75**t) + 0.5)
        # G (G^T G + lambda^2)^(-1/2) = U h(S) V^T
        W = W + 3.0 * 4.0 / t * G @ fractional_power(G.T @ G + lam**2 * np.eye(16))
        s = np.linalg.svd(G, compute_uv=False)
        assert spread == pytest.approx(s[-1] / s[0])
        right, G = iterates.after(W, p, Z_in, Z_out)
        np.testing.assert_array_equal(recalled, right)
        if gradient == "thresholded":
            G = sum(
                p[i] * np.outer(Z_out[i] - Z_out.mean(axis=0), Z_in[i])
                for i in range(200)
                if not right[i]
            )
    assert right.sum() > 5


def fractional_power(S):
    """S^(-1/2) of a positive matrix."""
    values, vectors = np.linalg.eigh(S)
    return vectors / values**0.5 @ vectors.T


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_holds_the_runs_of_its_grid(study, iterates):
    grid = read_grid(ROOT / f"sweeps/papers/{study}.yaml")
    folder = ROOT / "results/papers" / study
    rows = jaxrecall.load(folder, last=True)
    assert set(zip(rows["point_id"], rows["seed"], strict=True)) == {
        (p.point_id, seed) for p in grid.points for seed in grid.seeds
    }
    assert set(rows["status"]) == {"ok"}
    assert json.loads((folder / "manifest.json").read_text())["grid"]["name"] == study


def test_a_run_again_is_that_of_the_table(iterates):
    rows = jaxrecall.load(ROOT / "results/papers/muon-constants")
    mine = rows.query(
        "d == 32 and seed == 1 and alpha == 1.5 and c_lam == 1 and c_eta == 1 and dtype"
        " == 'float32'"
    )
    assert set(zip(mine["gradient"], mine["decay"], strict=True)) == {
        (gradient, decay)
        for gradient in ("exact", "thresholded")
        for decay in iterates.DECAYS
    }
    axes = {
        "alpha": [1.5],
        "gradient": ["exact", "thresholded"],
        "decay": [*iterates.DECAYS],
    }
    grid = {"base": {"V": 1024, "d": 32, "c_lam": 1}, "blocks": [{"axes": axes}]}
    again = jaxrecall.run(grid, seeds=[1], simulator=iterates.simulator, progress=False)
    both = mine.merge(again, on=["gradient", "decay", "alpha"])
    for t in range(1, 7):
        # the order of sums differs between machines
        assert (both[f"recalled_{t}_x"] - both[f"recalled_{t}_y"]).abs().max() <= 1


def test_exponents_are_slopes_over_seeds(tables):
    rows = tables.at(tables.in_float64(), alpha=1.5).query("d <= 256")
    slopes = [
        np.polyfit(np.log(one["d"]), np.log(one["recalled_1"].astype(float)), 1)[0]
        for _, one in rows.groupby("seed")
    ]
    interval = scipy.stats.t.interval(0.95, 7, np.mean(slopes), scipy.stats.sem(slopes))
    np.testing.assert_allclose(tables.exponent(rows), (np.mean(slopes), *interval))
    assert (
        f"(1.33) {np.mean(slopes):.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
        in tables.page()
    )


def test_one_step_agrees_with_the_theorems_as_the_page_says(tables):
    for alpha in tables.ALPHAS:
        muon, few, sgd = (
            tables.at(rows, alpha=alpha)
            for rows in (
                tables.in_float64(),
                tables.few_samples(),
                tables.one_step("sgd"),
            )
        )
        mean, low, high = tables.exponent(tables.between(muon, 64, 256))
        assert low < mean < high
        assert abs(mean - 1 - 1 / (2 * alpha)) < 0.07
        assert abs(tables.exponent(few, "N")[0] - 1 / alpha) < 0.1
        slopes = [
            tables.exponent(tables.between(sgd, *ends))[0]
            for ends in ((16, 64), (64, 256), (256, 2048))
        ]
        assert slopes[0] > slopes[1] > slopes[2] > 1 / (2 * alpha)


def test_a_cell_counts_where_the_prediction_is_at_most_a_quarter_of_the_vocabulary(
    tables, iterates
):
    for alpha in tables.ALPHAS:
        for schedule in tables.SCHEDULES:
            rows = tables.iterates(schedule, alpha)
            assert True in set(rows["counts"])
            for row in rows.to_dict("records"):
                assert row["counts"] == (
                    iterates.capacity(row["d"], alpha, row["t"]) <= row["V"] / 4
                )
                assert row["recalled"] == row[f"recalled_{row['t']}"]
    assert not tables.iterates("exact, rate 4 sqrt(d) / t", 1.2)["counts"].all()


def test_logits_in_float32_recall_the_items_that_float64_does(tables):
    table = tables.rows("muon-constants").query(
        "gradient == 'exact' and c_eta == 4 and c_lam == 1 and decay == 'inverse'"
    )
    both = [
        table[table["dtype"] == dtype].set_index(["alpha", "d", "seed"]).sort_index()
        for dtype in ("float32", "float64")
    ]
    assert len(both[1]) == 18
    for t in tables.STEPS:
        assert (both[0][f"recalled_{t}"] == both[1][f"recalled_{t}"]).all()
    assert tables.precision().splitlines()[-1] == "| 18 | 0 |"
