"""Rows of real tables: the law of three numbers, the forms of a table, and what the
committed results say.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import ROOT, papers_script
from test_fit import crossed
from test_papers import ARRAYS, beside_the_grids
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point, measure, realize, simulate, three_step
from jaxrecall.model.laws import numpy_draws

RESULTS = ROOT / "results/papers/real"
paper = papers_script("real")
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


SIDES = ["embedding", "embedding_out"]


def cells():
    """The cells of the grid, whose tables of embeddings are not here."""
    grid = yaml.safe_load(ARRAYS.read_text())
    blocks = []
    for block in grid["blocks"]:
        axes = dict(block["axes"])
        together = pd.DataFrame(axes.pop("zip", {"": [0]}))
        blocks.append(crossed(**axes).merge(together, how="cross"))
    found = pd.concat(blocks, ignore_index=True)
    found = found.fillna(grid["base"] | {"tokens": "uniform"})
    return found.fillna({"embedding_out": found["embedding"]})


def test_the_table_holds_the_cells_of_the_grid():
    names = ["V", "d", "L", "tokens", "trigger_in_value", *SIDES]
    held, expected = (
        set(table[names].replace(r"#\w{16}", "", regex=True).itertuples(index=False))
        for table in (jaxrecall.thresholds(RESULTS), cells())
    )
    assert {*map(tuple, held)} == {*map(tuple, expected)}


def test_the_laws_of_the_grid_have_the_numbers_of_the_tables():
    about = json.loads((RESULTS / "tables.json").read_text())
    laws = {text for text in cells()[SIDES].to_numpy().flat if "(" in text}
    laws = {law for law in laws if not law.startswith("array")}
    said = {about[name]["law"] for name in ("minilm", "jieba")}
    for name in ("minilm", "jieba", "jieba-all"):
        fitted = about[name]["fitted"].items()
        numbers = ", ".join(f"{key}={value}" for key, value in fitted)
        said.add(f"real:Learned({numbers})")
    same = {law for law in laws if law.startswith("equicorrelated")}
    assert laws - same == said
    for law, name in zip(sorted(same), ("minilm", "jieba"), strict=True):
        rho, d = float(law[19:-1]), about[name]["d"]
        d_eff = 1 / (rho**2 + (1 - rho**2) / d)
        assert_close(d_eff / about[name]["d_eff"], 1, 0.01)


def test_a_ratio_has_an_interval_from_both_of_its_numbers():
    first = {"critical": [8.0], "lo": [4.0], "hi": [8.0]}
    found = pd.DataFrame(first | {"critical_b": [2.0], "lo_b": [2.0], "hi_b": [4.0]})
    ratio = paper.quotient(found, "", "_b")
    for name, value in (("ratio", 4), ("low", 4 * 2 ** -(2**0.5)), ("high", 4)):
        assert_close(ratio[name][0], value)


def test_the_verdicts_follow_from_the_rows():
    rows = jaxrecall.load(RESULTS).query("V == 512 and trigger_in_value and L == 8")
    crossings = []
    for embedding in (r"minilm\.npy.*mean=1", "^gaussian$"):
        is_side = [rows[side].str.contains(embedding) for side in SIDES]
        by_level = rows[np.all(is_side, axis=0)].groupby("N")["accuracy"]
        near = by_level.agg(["mean", "size"])
        near = near.query("size >= 6 and 0.25 < mean < 0.75")
        weights = np.sqrt(near["size"])
        slope, level = np.polyfit(np.log(near.index), near["mean"], 1, w=weights)
        crossings.append(np.exp((0.5 - level) / slope))
    line = r"MiniLM, d 384, trigger in \|.*V 512: ([\d.]+) "
    said = re.search(line, paper.verdicts())
    assert_close(float(said[1]) / (crossings[0] / crossings[1]), 1, 0.1)
    assert set(paper.ratios()["what"]) >= set(paper.FEATURES)
