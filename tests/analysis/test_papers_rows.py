"""Claims of neighbouring papers: the columns and simulators of their grids, the
committed tables, and the verdicts that are printed.
"""

import importlib
from itertools import product

import numpy as np
import pandas as pd
import pytest
from helpers import ROOT, papers_script
from scipy.special import softmax, zeta

import jaxrecall
from jaxrecall import Point, descend, realize
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.sweep.grid import read_grid

SWEPT = ["cabannes", "nichani", "wang", "bits", "noise", "weights"]
OWN = {
    name: f"rows:{name}"
    for name in ("error_1_5", "error_2", "frequent_confidence", "rare_confidence")
}
LAW = "rows:Rotated"


@pytest.fixture(autouse=True)
def beside_the_grids(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "sweeps/papers")


@pytest.fixture(scope="module")
def printed():
    return papers_script("rows")


def point(**fields):
    some = {
        "V": 20,
        "d": 22,
        "L": 1,
        "N": 4096,
        "n_test": 32,
        "tokens": "zipf(s=1.5)",
        "trigger_in_value": False,
        "trains": "V",
    }
    return Point(
        **some | {"start": "zero", "steps": 3, "optimizer": "adam", "lr": 0.3} | fields
    )


@pytest.mark.slow
def test_columns_are_those_of_float64():
    at = point(d=8, embedding="sphere")
    row = jaxrecall.run(
        {"base": as_base(at), "seeds": 1, "columns": OWN}, progress=False
    ).iloc[-1]
    drawn = realize(at, 0)
    V_mat = descend(drawn, at)[-1].V_mat
    Z_in, Z_out = drawn.Z_in, drawn.Z_out[drawn.perm]
    logits = Z_in @ V_mat.T @ Z_out.T
    right, sure = logits.argmax(1) == np.arange(20), np.diag(softmax(logits, axis=1))
    assert 0 < right.sum() < 20
    for alpha, name in ((1.5, "error_1_5"), (2, "error_2")):
        assert row[name] == pytest.approx(
            1 - sum((i + 1.0) ** -alpha for i in np.flatnonzero(right)) / zeta(alpha),
            abs=1e-5,
        )
    assert row["frequent_confidence"] == pytest.approx(sure[:2].mean(), rel=1e-3)
    assert row["rare_confidence"] == pytest.approx(sure[10:].mean(), rel=1e-3)


def as_base(at):
    names = [
        "V",
        "d",
        "L",
        "N",
        "n_test",
        "tokens",
        "trigger_in_value",
        "trains",
        "start",
        "steps",
        "optimizer",
        "lr",
        "embedding",
    ]
    return {name: getattr(at, name) for name in names}


@pytest.mark.slow
def test_a_rotation_of_one_hot_rows_is_seen_by_adam_and_not_by_sgd():
    drawn = realize(point(embedding=LAW), 0)
    for rows in (drawn.Z_in, drawn.Z_out):
        np.testing.assert_allclose(rows @ rows.T, np.eye(20), atol=1e-5)
    assert abs(drawn.Z_in @ drawn.Z_out.T).max() < 0.99  # bases of their own
    loss = {}
    for law, optimizer in product((LAW, "orthogonal"), ("sgd", "adam")):
        loss[law, optimizer] = jaxrecall.simulate(
            point(embedding=law, optimizer=optimizer), 0
        )["loss"]
    assert loss[LAW, "sgd"] == pytest.approx(loss["orthogonal", "sgd"], rel=1e-5)
    assert loss[LAW, "adam"] != pytest.approx(loss["orthogonal", "adam"], rel=0.1)


def test_memories_by_weights_are_those_of_a_loop():
    simulator = importlib.import_module("rows").simulator
    base = {"V": 32, "d": 6, "labels": 4, "alpha": 2.0}
    row = jaxrecall.run(
        {"base": base, "seeds": 1}, simulator=simulator, progress=False
    ).iloc[0]
    rng_rows = drawn_rows(36, 6)
    z, u, y = rng_rows[:32], rng_rows[32:], np.arange(32) % 4

    def error(weights):
        W = sum(q * np.outer(u[y[i]], z[i]) for i, q in enumerate(weights))
        return 1 - sum(
            (i + 1.0) ** -2
            for i in range(len(weights))
            if np.argmax(u @ W @ z[i]) == y[i]
        ) / zeta(2)

    assert row["frequencies"] == pytest.approx(
        error((np.arange(32) + 1.0) ** -2), abs=1e-5
    )
    errors = {n: error(np.ones(n)) for n in (4, 6, 8, 11, 16, 23, 32)}
    assert row["equal"] == pytest.approx(min(errors.values()), abs=1e-5)
    assert errors[row["largest_rank"]] == pytest.approx(row["equal"], abs=1e-5)


def drawn_rows(n, d):
    """Rows of unit length from the key of seed 0."""
    import jax

    key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), 0)
    rows = np.asarray(jax.random.normal(key, (n, d)), np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("name", SWEPT)
def test_a_table_holds_the_runs_of_its_grid(name):
    grid = read_grid(ROOT / f"sweeps/papers/{name}.yaml")
    rows = jaxrecall.load(ROOT / "results/papers" / name)
    assert set(zip(rows["point_id"], rows["seed"], strict=True)) == {
        (p.point_id, seed) for p in grid.points for seed in grid.seeds
    }
    assert name == "weights" or set(rows["code_version"]) == {CODE_VERSION}


def test_facts_are_where_recall_falls_through_99_percent(printed, monkeypatch):
    run = {"d": 8, "m": 0, "seed": 0}
    levels = [
        run | {"V": V, "memory_accuracy": recalled}
        for V, recalled in ((10, 1.0), (20, 0.98), (40, 1.0))
    ]
    monkeypatch.setattr(printed, "rows", lambda name: pd.DataFrame(levels))
    assert printed.facts.__wrapped__()["V"].tolist() == pytest.approx([np.sqrt(200)])
    monkeypatch.setattr(printed, "rows", lambda name: pd.DataFrame(levels[:1]))
    with pytest.raises(ValueError, match=r"allowed: one that crosses 0\.99"):
        printed.facts.__wrapped__()


def test_an_exponent_is_the_mean_of_the_slopes_of_seeds(printed):
    table = printed.infinite_width(2.0)
    by_seed = [
        np.polyfit(np.log(one["N"].astype(float)), np.log(one["error_2"]), 1)[0]
        for _, one in table.groupby("seed")
    ]
    row = next(row for row in printed.cabannes_rows() if row[1].startswith("error ~ N"))
    assert f"; {np.mean(by_seed):.2f} [" in row[2]
    mean, lo, hi = printed.interval(by_seed)
    # t of 7 degrees of freedom
    assert (mean - lo) / (
        np.std(by_seed, ddof=1) / np.sqrt(len(by_seed))
    ) == pytest.approx(2.365, abs=1e-3)
    assert lo < mean < hi


def test_a_verdict_changes_with_the_table(printed, monkeypatch):
    def verdict():
        return next(
            row[-1] for row in printed.cabannes_rows() if row[1].startswith("worse")
        )

    assert verdict() == "holds"
    rows, table = printed.rows, printed.rows("weights")
    swapped = table.assign(frequencies=table["equal"], equal=table["frequencies"])
    monkeypatch.setattr(
        printed, "rows", lambda name: swapped if name == "weights" else rows(name)
    )
    assert verdict() == "differs"


def test_equal_progress_is_where_frequent_labels_reach_it(printed, monkeypatch):
    run = {"optimizer": "sgd", "embedding": "sphere", "d": 66, "lr": 1.0, "seed": 0}
    steps = [
        {"step": step, "frequent_confidence": frequent, "rare_confidence": frequent / 2}
        for step, frequent in ((1, 0.8), (5, 1.0))
    ]
    monkeypatch.setattr(
        printed, "traces", lambda name: pd.DataFrame([run | step for step in steps])
    )
    found = printed.rare.__wrapped__()  # past its cache
    assert found["rare"].tolist() == pytest.approx([0.45])
    assert found["after"].tolist() == [5]


def test_power_laws_give_their_exponents_and_verdicts(printed):
    table = pd.DataFrame(
        [
            {"x": x, "seed": seed, "y": (3 + seed) * x**1.7}
            for x in (8, 16, 32, 64)
            for seed in range(3)
        ]
    )
    assert printed.slopes(table, "x", "y").tolist() == pytest.approx([1.7] * 3)
    assert printed.judged(1.0, [1.01, 0.98, 1.02]) == "holds"
    assert printed.judged(1.0, [1.051, 1.05, 1.052]) == "near"
    assert printed.judged(1.0, [1.4, 1.41, 1.42]) == "differs"


def test_every_row_of_the_page_is_printed(printed, capsys):
    printed.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 14
    page = ROOT / "docs/papers.md"
    if page.exists():
        text = page.read_text()
        assert [line for line in lines if line not in text] == []
