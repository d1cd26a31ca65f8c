"""Muon on the associative memory: the simulator of its iterates, and what is read from
the committed tables.
"""

from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
import yaml
from helpers import papers_script, quickly
from test_papers import beside_the_grids
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point

iterates = beside_the_grids("muon")


@pytest.fixture(scope="module")
def tables():
    return papers_script("muon")


def problem(V, d, alpha=1.5):
    """Probabilities, rows of both tables, and a matrix that recalls some items."""
    rng = np.random.default_rng(0)
    p = np.arange(1, V + 1) ** -alpha
    Z_in, Z_out = rng.normal(size=(2, V, d)) / d**0.5
    return p / p.sum(), Z_in, Z_out, 3 * rng.normal(size=(d, d))


def test_the_exact_gradient_is_that_of_autodiff():
    p, Z_in, Z_out, W = problem(300, 8)

    def loss(W):
        logits = Z_in @ W.T @ Z_out.T
        labels = np.arange(300)
        return p @ optax.softmax_cross_entropy_with_integer_labels(logits, labels)

    with jax.enable_x64(True):
        at_W, at_zero = -np.asarray(
            quickly(jax.vmap(jax.grad(loss)))(np.stack([W, 0 * W]))
        )
    recalled, G = iterates.after(W, p, Z_in, Z_out)
    assert_close(G, at_W)
    assert 0 < recalled.sum() < 300
    assert (recalled == ((Z_in @ W.T @ Z_out.T).argmax(axis=1) == np.arange(300))).all()
    recalled, G = iterates.after(0 * W, p, Z_in, Z_out)
    assert not recalled.any()
    assert_close(G, at_zero)
    assert_close(iterates.thresholded(p, Z_in, Z_out), G)


def test_a_test_of_the_frequent_items_agrees_with_a_test_of_all():
    p, Z_in, Z_out, W = problem(600, 8)
    every, _ = iterates.after(W, p, Z_in, Z_out, "thresholded")
    first, _ = iterates.after(W, p, Z_in, Z_out, "thresholded", tested=300)
    np.testing.assert_array_equal(first[:300], every[:300])
    assert every[300:].any()
    assert not first[300:].any()
    exact, _ = iterates.after(W, p, Z_in, Z_out, "exact", tested=300)
    np.testing.assert_array_equal(exact, every)


ONE_STEP = yaml.safe_load("""
{V: 128, N: 1000000000000000, d: 16, L: 1, n_test: 64, tokens: zipf(s=1.5), trains: V,
 trigger_in_value: false, start: zero, steps: 1, optimizer: polar}
""")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_first_step_is_the_polar_step_of_the_shipped_simulator(seed):
    lr = 2.0
    point = Point(**ONE_STEP, lr=lr)
    key = jax.random.key(point.root_seed, impl="threefry2x32")
    drawn = jaxrecall.draws(point.replace(N=1), jax.random.fold_in(key, seed))
    Z_in, Z_out, perm = map(np.asarray, (drawn.Z_in, drawn.Z_out, drawn.perm))
    schedule = scheduled(1, 1.5, c_lam=0.0, c_eta=lr / 4)
    p, *_ = problem(128, 16)
    rows = Z_in.astype(float), Z_out[perm].astype(float)
    [(recalled, _)] = iterates.iterates(*rows, p, schedule)
    row = jaxrecall.simulate(point, seed=seed)
    assert row["recalled"] == recalled.sum() > 5
    assert_close(row["V_norm"], lr * 16**0.5, "float32")  # |U V^T| = sqrt(d)


def scheduled(n_steps, alpha, decay="constant", gradient="exact", **constants):
    given = {"decay": decay, "gradient": gradient, "dtype": "float64"}
    return SimpleNamespace(n_steps=n_steps, alpha=alpha, **given, **constants)


@pytest.mark.parametrize("gradient", ["exact", "thresholded"])
def test_two_steps_follow_the_schedule(gradient):
    p, Z_in, Z_out, _ = problem(200, 16, alpha=2.0)
    schedule = scheduled(2, 2.0, "inverse", gradient, c_lam=0.5, c_eta=3.0)
    W, G = np.zeros((16, 16)), iterates.thresholded(p, Z_in, Z_out)
    steps = iterates.iterates(Z_in, Z_out, p, schedule)
    for t, (recalled, spread) in enumerate(steps, start=1):
        lam = 0.5 * 16 ** (-2 * (2 - 0.75**t) + 0.5)
        # G (G^T G + lambda^2)^(-1/2) = U h(S) V^T
        W = W + 3.0 * 4.0 / t * G @ fractional_power(G.T @ G + lam**2 * np.eye(16))
        s = np.linalg.svd(G, compute_uv=False)
        assert_close(spread, s[-1] / s[0], scale=1)
        right, G = iterates.after(W, p, Z_in, Z_out)
        np.testing.assert_array_equal(recalled, right)
        if gradient == "thresholded":
            lost = (p * ~right)[:, None] * (Z_out - Z_out.mean(axis=0))
            G = lost.T @ Z_in
    assert right.sum() > 5


def fractional_power(S):
    """S^(-1/2) of a positive matrix."""
    values, vectors = np.linalg.eigh(S)
    return vectors / values**0.5 @ vectors.T


def test_a_run_again_is_that_of_the_table(tables):
    mine = tables.rows("muon-constants").query(
        "d == 32 and seed == 1 and alpha == 1.5 and c_lam == 1 and c_eta == 1 and dtype"
        " == 'float32'"
    )
    axes = {"gradient": ["exact", "thresholded"], "decay": [*iterates.DECAYS]}
    base = {"V": 1024, "d": 32, "c_lam": 1, "alpha": 1.5}
    grid = {"base": base, "blocks": [{"axes": axes}]}
    again = jaxrecall.run(grid, seeds=[1], simulator=iterates.simulator, progress=False)
    names = [f"recalled_{t}" for t in range(1, 7)]
    mine = mine.set_index([*axes]).sort_index()[names]
    again = again.set_index([*axes]).sort_index()[names]
    assert len(mine) == 6
    # the order of sums differs between machines
    assert (mine - again).abs().max(axis=None) <= 1
