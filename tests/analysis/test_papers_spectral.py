"""The spectral recipe of sweeps/papers: its steps, its rows beside those of `simulate`,
and the page of its results.
"""

from functools import partial

import jax
import numpy as np
import pytest
from helpers import papers_script, quickly
from test_papers import PAGE, beside_the_grids
from tolerances import assert_close

import jaxrecall

PLAIN = 1e6
spectral = beside_the_grids("spectral")


@pytest.fixture(scope="module")
def script():
    return papers_script("spectral")


@pytest.mark.slow
@pytest.mark.parametrize(("s", "inside"), [(0.0, True), (1.0, False)])
def test_without_damping_the_rows_are_those_of_simulate(s, inside):
    sizes = {"V": 32, "N": 300, "d": 48, "L": 6, "n_test": 256}
    sizes["trigger_in_value"] = inside
    tokens = f"zipf(s={s})" if s else "uniform"
    point = jaxrecall.Point(**sizes, tokens=tokens, exact="full", eta=1e-5)
    for row in jaxrecall.simulate(point, seed=range(2)):
        base = sizes | {"s": s, "sequences": 384, "pool": False}
        base["push"] = row["trigger_score"]
        grid = {"base": base, "blocks": [{"axes": {"lam1": [PLAIN, 0.0]}}]}
        rows = jaxrecall.run(
            grid, seeds=[row["seed"]], simulator=spectral.simulator, progress=False
        ).set_index("lam1")
        plain, polar = rows.loc[PLAIN], rows.loc[0.0]
        for name in ("accuracy", "memory_accuracy", "step1_memory_accuracy"):
            assert_close(plain[name], row[name], "float32", of=name)
        for name in ("attention_mass", "trigger_score", "score_std"):
            assert_close(plain[name] / row[name], 1, 4e-4)
        assert abs(polar["score_std"] / row["score_std"] - 1) > 0.01


def test_damping_is_that_of_the_singular_values():
    rng = np.random.default_rng(0)
    # of rank 3: the other singular values are rounding
    G = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 8))
    program = quickly(spectral.damped)
    for lam in (0.0, 0.03, 1.0, PLAIN):
        for scale in (1.0, 1e-9):
            found = program((scale * G).astype(np.float32), lam)
            assert_close(found, damped(G, lam), "float32")
    assert_close(damped(G, PLAIN), G / np.linalg.norm(G, 2), scale=10)


def test_the_three_steps_are_those_of_numpy():
    rng = np.random.default_rng(1)
    V, d, K, P, push, eta = 5, 4, 6, 20, 3.0, 0.7
    Z_in, Z_out = rng.normal(size=(2, V, d))
    tables = {"Z_in": Z_in, "Z_out": Z_out, "z_trig": rng.normal(size=d)}
    tables["values"] = tables["Z_in"] + tables["z_trig"]
    counts = rng.integers(0, 3, (K, V)) + np.eye(K, V)
    x, k = rng.integers(V, size=P), rng.integers(K, size=P)
    samples = counts, x, k, rng.dirichlet(np.ones(P))
    with jax.enable_x64(True):
        three_steps = quickly(spectral.three_steps)
        slopes = quickly(jax.grad(partial(plain_loss, tables, *samples), (0, 1)))
        for lam in (0.0, 0.2):
            found = three_steps(tables, samples, lam, lam, push, eta)
            zero = np.zeros(d)
            V1 = -eta * damped(slopes(np.zeros((d, d)), zero)[0], lam)
            g = np.asarray(slopes(V1, zero)[1])
            w = -push * g / abs(tables["z_trig"] @ g)
            V2 = -damped(slopes(V1, w)[0], lam)
            assert_close(found, (V1, w, V2), "roots")


def damped(G, lam):
    U, s, Vt = np.linalg.svd(G, full_matrices=False)
    kept = s > 1e-12 * s[0]
    share = s[kept] / s[0]
    return U[:, kept] * (share * np.hypot(1, lam) / np.hypot(share, lam)) @ Vt[kept]


def plain_loss(tables, counts, x, k, weights, V_mat, w):
    """The mean over samples, with the tokens of each sequence written out."""
    Z, total = tables["Z_in"], 0.0
    for token, noise, weight in zip(x, k, weights, strict=True):
        others = np.repeat(np.arange(len(Z)), counts[noise].astype(int))
        keys = np.vstack([Z[token] + tables["z_trig"], Z[others]])
        values = np.vstack([tables["values"][token], Z[others]])
        logits = tables["Z_out"] @ V_mat @ (jax.nn.softmax(keys @ w) @ values)
        total -= weight * jax.nn.log_softmax(logits)[token]
    return total


def test_the_exponent_of_orthogonalised_steps_is_on_the_page(script):
    fitted = script.exponents().splitlines()
    line = next(line for line in fitted if "| out | steps 1 and 3 | L |" in line)
    assert f"| {line.split('|')[-2].strip()} |" in PAGE


def test_the_moment_is_that_of_random_rows(script):
    rows = np.random.default_rng(0).normal(size=(600, 400)) / 20
    moment = np.mean(np.linalg.eigvalsh(rows @ rows.T) ** 4)
    assert_close(moment / script.moment(1.5), 1, 0.05)
