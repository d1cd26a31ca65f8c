"""The spectral recipe of sweeps/papers: its steps, its rows beside those of `simulate`,
and what its committed tables say.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT, papers_script

import jaxrecall
from jaxrecall.sweep.grid import read_grid

PLAIN = 1e6
NAMES = ("spectral", "spectral-critical", "spectral-sizes", "spectral-exact")


@pytest.fixture
def spectral(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "sweeps/papers")
    return importlib.import_module("spectral")


@pytest.fixture(scope="module")
def script():
    return papers_script("spectral")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("s", "inside"), [pytest.param(0.0, True, marks=pytest.mark.slow), (1.0, False)]
)
def test_without_damping_the_rows_are_those_of_simulate(spectral, s, inside):
    tokens = f"zipf(s={s})" if s else "uniform"
    point = jaxrecall.Point(
        V=32,
        N=300,
        d=48,
        L=6,
        n_test=256,
        tokens=tokens,
        trigger_in_value=inside,
        exact="full",
        eta=1e-5,
    )
    for row in jaxrecall.simulate(point, seed=range(2)):
        base = {
            "V": 32,
            "d": 48,
            "L": 6,
            "s": s,
            "N": 300,
            "sequences": 384,
            "pool": False,
            "n_test": 256,
        }
        base |= {"trigger_in_value": inside, "push": row["trigger_score"]}
        grid = {"base": base, "blocks": [{"axes": {"lam1": [PLAIN, 0.0]}}]}
        rows = jaxrecall.run(
            grid, seeds=[row["seed"]], simulator=spectral.simulator, progress=False
        ).set_index("lam1")
        plain, polar = rows.loc[PLAIN], rows.loc[0.0]
        for name in ("accuracy", "memory_accuracy", "step1_memory_accuracy"):
            assert plain[name] == pytest.approx(row[name], abs=1e-6)
        for name in ("attention_mass", "trigger_score", "score_std"):
            assert plain[name] == pytest.approx(row[name], rel=2e-4)
        assert polar["score_std"] != pytest.approx(row["score_std"], rel=1e-2)


@pytest.mark.parametrize("lam", [0.0, 0.03, 1.0, PLAIN])
def test_damping_is_that_of_the_singular_values(spectral, lam):
    rng = np.random.default_rng(0)
    # of rank 3: the other singular values are rounding
    G = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 8))
    U, s, Vt = np.linalg.svd(G)
    share = s[:3] / s[0]
    wanted = U[:, :3] * (share * np.sqrt((1 + lam**2) / (share**2 + lam**2))) @ Vt[:3]
    for scale in (1.0, 1e-9):
        np.testing.assert_allclose(
            spectral.damped(jnp.asarray(scale * G, jnp.float32), lam), wanted, atol=3e-6
        )
    if lam == PLAIN:
        np.testing.assert_allclose(wanted, G / s[0], atol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.2])
def test_the_three_steps_are_those_of_numpy(spectral, lam):
    rng = np.random.default_rng(1)
    V, d, K, P, push, eta = 5, 4, 6, 20, 3.0, 0.7
    tables = {name: rng.normal(size=(V, d)) for name in ("Z_in", "Z_out")} | {
        "z_trig": rng.normal(size=d)
    }
    tables["values"] = tables["Z_in"] + tables["z_trig"]
    counts = rng.integers(0, 3, (K, V)) + np.eye(K, V)
    x = rng.integers(V, size=P)
    k = rng.integers(K, size=P)
    weights = rng.dirichlet(np.ones(P))
    V1, w, V2 = stepwise(tables, counts, x, k, weights, lam, push, eta)
    with jax.enable_x64(True):
        samples = (
            jnp.asarray(counts),
            jnp.asarray(x),
            jnp.asarray(k),
            jnp.asarray(weights),
        )
        found = jax.jit(spectral.three_steps)(
            {name: jnp.asarray(table) for name, table in tables.items()},
            samples,
            lam,
            lam,
            push,
            eta,
        )
        for mine, theirs in zip(found, (V1, w, V2), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)


def stepwise(tables, counts, x, k, weights, lam, push, eta):
    """The three steps in NumPy, sample by sample over the tokens of a sequence written
    out.
    """
    Z, Z_out, z_trig, values = (
        tables[name] for name in ("Z_in", "Z_out", "z_trig", "values")
    )
    samples = []
    for token, noise in zip(x, k, strict=True):
        others = np.repeat(np.arange(len(Z)), counts[noise].astype(int))
        keys = np.vstack([Z[token] + z_trig, Z[others]])
        samples.append(
            (keys, np.vstack([values[token], Z[others]]), np.eye(len(Z))[token])
        )

    def slopes(V_mat, w):
        by_V, by_w = np.zeros_like(V_mat), np.zeros_like(w)
        for (keys, vectors, label), weight in zip(samples, weights, strict=True):
            attention = np.exp(keys @ w) / np.exp(keys @ w).sum()
            h = attention @ vectors
            logits = Z_out @ V_mat @ h
            back = Z_out.T @ (np.exp(logits) / np.exp(logits).sum() - label)
            by_V += weight * np.outer(back, h)
            by_w += weight * keys.T @ (attention * ((vectors - h) @ V_mat.T @ back))
        return by_V, by_w

    def damped(G):
        U, s, Vt = np.linalg.svd(G)
        kept = s > 1e-12 * s[0]
        share = s[kept] / s[0]
        return U[:, kept] * (share * np.hypot(1, lam) / np.hypot(share, lam)) @ Vt[kept]

    zero = np.zeros_like(z_trig)
    V1 = -eta * damped(slopes(np.zeros((len(zero), len(zero))), zero)[0])
    g = slopes(V1, zero)[1]
    w = -push * g / abs(z_trig @ g)
    return V1, w, -damped(slopes(V1, w)[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_table_holds_the_runs_of_its_grid(spectral, name):
    rows = jaxrecall.load(ROOT / "results/papers" / name)
    grid = read_grid(ROOT / f"sweeps/papers/{name}.yaml")
    assert set(rows["status"]) == {"ok"}
    if grid.search is None:
        assert set(zip(rows["point_id"], rows["seed"], strict=True)) == {
            (p.point_id, seed) for p in grid.points for seed in grid.seeds
        }
    else:
        cells = jaxrecall.thresholds(ROOT / "results/papers" / name)
        fields = ["V", "d", "L", "lam1", "lam3", "trigger_in_value"]
        assert set(rows[fields].itertuples(index=False, name=None)) == {
            tuple(getattr(p, name) for name in fields) for p in grid.points
        }
        assert len(cells) == len(grid.points)
        assert not set(cells["outcome"]) & {"unfinished", "nonfinite"}


def test_plain_steps_at_two_rates_are_those_of_the_grid(script):
    grid = read_grid(ROOT / "sweeps/papers/spectral-rate.yaml")
    cells = jaxrecall.thresholds(ROOT / "results/papers/spectral-rate")
    assert set(zip(cells["eta"], cells["L"], strict=True)) == {
        (point.eta, point.L) for point in grid.points
    }
    page = (ROOT / "docs/papers.md").read_text()
    shown = [line for line in script.rates().splitlines()[2:] if line in page]
    assert len(shown) == 3
    front = (ROOT / "README.md").read_text().replace("\n   ", " ")
    fitted = script.exponents().splitlines()
    for recipe, text in (("steps 1 and 3", front), ("plain, eta = 2048", page)):
        exponent = next(line for line in fitted if f"| out | {recipe} | L |" in line)
        assert f"L^{exponent.split('|')[-2].strip()}" in text


@pytest.mark.slow
def test_the_verdicts_follow_from_the_tables(script):
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in script.verdict().splitlines()[2:]
    ]
    table = {line[0]: line[1:] for line in lines}
    for way in ("out", "in"):
        plain, polar = (
            ends(cell) for cell in table[f"exponent of L, trigger {way}"][:2]
        )
        assert polar[0] < 1.5 < polar[1] < plain[0] < 2 < plain[1]
    rows = jaxrecall.load(ROOT / "results/papers/spectral-critical")
    for cell, lam in zip(table["N* at L = 4, trigger in"], (PLAIN, 0.0), strict=False):
        mine = rows[
            (rows["L"] == 4)
            & rows["trigger_in_value"]
            & (rows["lam1"] == lam)
            & (rows["lam3"] == lam)
        ]
        means, (low, high) = mine.groupby("N")["accuracy"].mean(), ends(cell)
        assert means[means.index < low].max() < 0.5 < means[means.index > high].min()
    rows = jaxrecall.load(ROOT / "results/papers/spectral")
    for s, N in ((0.5, 65536), (1, 2048), (1.5, 2048)):
        mine = rows[
            (rows["s"] == s)
            & (rows["N"] == N)
            & rows["pool"]
            & ~rows["trigger_in_value"]
            & (rows["d"] == 128)
            & (rows["eta"] == 1e-4)
        ]
        mine = mine[(mine["lam1"] == 0) & (mine["lam3"] == 0) & (mine["push"] == 100)]
        masses, (low, high) = (
            mine.groupby("L")["attention_mass"].mean(),
            ends(table[f"L at which attention is 1/2, s = {s}, N = {N}"][1]),
        )
        assert (
            masses[masses.index < low / 1.4].min()
            > 0.5
            > masses[masses.index > 1.1 * high].max()
        )


def ends(cell):
    """The interval of a cell, 1.46 [1.40, 1.52]."""
    return [
        float(end.replace(",", ""))
        for end in cell.split("[")[1].rstrip("]").split(", ")
    ]


def test_the_moment_is_that_of_random_rows(script):
    rows = np.random.default_rng(0).normal(size=(600, 400)) / 20
    assert np.mean(np.linalg.eigvalsh(rows @ rows.T) ** 4) == pytest.approx(
        script.moment(1.5), rel=0.05
    )
