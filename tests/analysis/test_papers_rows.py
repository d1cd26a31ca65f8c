"""Claims of neighbouring papers: the columns and simulators of their grids, and the
verdicts that are printed.
"""

import jax
import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import papers_script
from scipy.special import softmax, zeta
from test_fit import crossed
from test_papers import PAGE, beside_the_grids
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point, descend, realize

rows = beside_the_grids("rows")
NAMES = ("error_1_5", "error_2", "frequent_confidence", "rare_confidence")
LAW = "rows:Rotated"
BASE = yaml.safe_load("""
{V: 20, d: 22, L: 1, N: 4096, n_test: 32, tokens: zipf(s=1.5), trigger_in_value: false,
 trains: V, start: zero, steps: 3, optimizer: adam, lr: 0.3}
""")


@pytest.fixture(scope="module")
def printed():
    return papers_script("rows")


def error(alpha, recalled):
    """1 - sum_i i^-alpha / zeta(alpha) over the recalled items."""
    return 1 - sum((i + 1.0) ** -alpha for i in np.flatnonzero(recalled)) / zeta(alpha)


@pytest.mark.slow
def test_columns_are_those_of_float64():
    base = BASE | {"d": 8, "embedding": "sphere"}
    columns = {name: f"rows:{name}" for name in NAMES}
    grid = {"base": base, "seeds": 1, "columns": columns}
    row = jaxrecall.run(grid, progress=False).iloc[-1]
    drawn = realize(Point(**base), 0)
    V_mat = descend(drawn, Point(**base))[-1].V_mat
    logits = drawn.Z_in @ V_mat.T @ drawn.Z_out[drawn.perm].T
    right, sure = logits.argmax(1) == np.arange(20), np.diag(softmax(logits, axis=1))
    assert 0 < right.sum() < 20
    expected = error(1.5, right), error(2, right), sure[:2].mean(), sure[10:].mean()
    for name, value in zip(NAMES, expected, strict=True):
        assert_close(row[name], value, 1e-3 * value)


@pytest.mark.slow
def test_a_rotation_of_one_hot_rows_is_seen_by_adam_and_not_by_sgd():
    drawn = realize(Point(**BASE, embedding=LAW), 0)
    for table in (drawn.Z_in, drawn.Z_out):
        assert_close(table @ table.T, np.eye(20), "float32")
    assert abs(drawn.Z_in @ drawn.Z_out.T).max() < 0.99  # bases of their own
    ratio = {}
    for optimizer in ("sgd", "adam"):
        rotated, one_hot = (
            jaxrecall.simulate(
                Point(**BASE | {"embedding": law, "optimizer": optimizer}), 0
            )
            for law in (LAW, "orthogonal")
        )
        ratio[optimizer] = rotated["loss"] / one_hot["loss"]
    assert_close(ratio["sgd"], 1, "float32")
    assert abs(ratio["adam"] - 1) > 0.1


def test_memories_by_weights_are_those_of_numpy():
    base = {"V": 32, "d": 6, "labels": 4, "alpha": 2.0}
    grid = {"base": base, "seeds": 1}
    row = jaxrecall.run(grid, simulator=rows.simulator, progress=False).iloc[0]
    key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), 0)
    drawn = np.asarray(jax.random.normal(key, (36, 6)), np.float64)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    z, u, y = drawn[:32], drawn[32:], np.arange(32) % 4

    def error_of(weights):
        n = len(weights)
        W = (weights[:, None] * u[y[:n]]).T @ z[:n]
        return error(2, (u @ W @ z[:n].T).argmax(axis=0) == y[:n])

    frequencies = error_of((np.arange(32) + 1.0) ** -2)
    assert_close(row["frequencies"], frequencies, "float32", scale=1)
    errors = {n: error_of(np.ones(n)) for n in (4, 6, 8, 11, 16, 23, 32)}
    for least in (min(errors.values()), errors[row["largest_rank"]]):
        assert_close(row["equal"], least, "float32", scale=1)


def test_facts_are_where_recall_falls_through_99_percent(printed, monkeypatch):
    levels = crossed(d=[8], m=[0], seed=[0], V=[10, 20, 40])
    levels["memory_accuracy"] = [1.0, 0.98, 1.0]
    monkeypatch.setattr(printed, "rows", lambda name: levels)
    assert_close(printed.facts.__wrapped__()["V"], np.sqrt([200]))
    monkeypatch.setattr(printed, "rows", lambda name: levels[:1])
    with pytest.raises(ValueError, match=r"allowed: one that crosses 0\.99"):
        printed.facts.__wrapped__()


def verdict(printed, start):
    """The row of a claim: what it says, and what comes of it."""
    return next(row for row in printed.cabannes_rows() if row[1].startswith(start))


def test_an_exponent_is_the_mean_of_the_slopes_of_seeds(printed):
    by_seed = [
        np.polyfit(np.log(one["N"].astype(float)), np.log(one["error_2"]), 1)[0]
        for _, one in printed.infinite_width(2.0).groupby("seed")
    ]
    assert f"; {np.mean(by_seed):.2f} [" in verdict(printed, "error ~ N")[2]
    mean, low, high = printed.interval(by_seed)
    error = np.std(by_seed, ddof=1) / np.sqrt(len(by_seed))
    # t of 7 degrees of freedom
    halves = np.array([mean - low, high - mean]) / error
    assert_close(halves, np.full(2, 2.365), 2e-3)


def test_a_verdict_changes_with_the_table(printed, monkeypatch):
    assert verdict(printed, "worse")[-1] == "holds"
    stored, table = printed.rows, printed.rows("weights")
    swapped = table.assign(frequencies=table["equal"], equal=table["frequencies"])

    def rows(name):
        return swapped if name == "weights" else stored(name)

    monkeypatch.setattr(printed, "rows", rows)
    assert verdict(printed, "worse")[-1] == "differs"


def test_equal_progress_is_where_frequent_labels_reach_it(printed, monkeypatch):
    run = {"optimizer": "sgd", "embedding": "sphere", "d": 66, "lr": 1.0, "seed": 0}
    steps = pd.DataFrame({"step": [1, 5], "frequent_confidence": [0.8, 1.0]})
    steps = steps.assign(rare_confidence=steps["frequent_confidence"] / 2, **run)
    monkeypatch.setattr(printed, "traces", lambda name: steps)
    found = printed.rare.__wrapped__()  # past its cache
    assert_close(found["rare"], np.array([0.45]))
    assert found["after"].tolist() == [5]


def test_power_laws_give_their_exponents_and_verdicts(printed):
    table = crossed(x=(8, 16, 32, 64), seed=range(3))
    table["y"] = (3 + table["seed"]) * table["x"] ** 1.7
    assert_close(printed.slopes(table, "x", "y"), np.full(3, 1.7))
    assert printed.judged(1.0, [1.01, 0.98, 1.02]) == "holds"
    assert printed.judged(1.0, [1.051, 1.05, 1.052]) == "near"
    assert printed.judged(1.0, [1.4, 1.41, 1.42]) == "differs"


def test_every_row_of_the_page_is_printed(printed, capsys):
    printed.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 14
    assert [line for line in lines if line not in PAGE] == []
