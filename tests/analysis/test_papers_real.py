"""Rows of real tables: the law of three numbers, the forms of a table, and what the
committed results say.
"""

import importlib
import itertools
import json
import re

import numpy as np
import pytest
import yaml
from helpers import ROOT, papers_script

import jaxrecall
from jaxrecall import Point, measure, realize, simulate, three_step
from jaxrecall.model.laws import numpy_draws

GRID = yaml.safe_load((ROOT / "sweeps/papers/real.yaml").read_text())


paper = papers_script("real")


@pytest.fixture
def real(monkeypatch):
    """The module beside the grid, as `real`."""
    monkeypatch.syspath_prepend(str(ROOT / "sweeps/papers"))
    return importlib.import_module("real")


@pytest.fixture(scope="module")
def about():
    return json.loads((ROOT / "results/papers/real/tables.json").read_text())


def table(law, V=20_000, d=32):
    rng = np.random.default_rng(0)
    return law.rows(
        numpy_draws(
            law, "Z_in", np.arange(V)[:, None], rng.standard_normal((V, d)), (V, d), rng
        ),
        np,
    )


def test_the_law_has_the_spectrum_the_common_direction_and_the_lengths_that_it_is_given(
    real,
):
    rows = table(real.Learned(alpha=0.7))
    power = np.arange(1, 33) ** -0.7
    np.testing.assert_allclose(np.mean(rows**2, axis=0), power / power.sum(), rtol=0.05)
    rows = table(real.Learned(rho=0.3), d=2000, V=5000)
    assert np.sum(rows.mean(axis=0) ** 2) == pytest.approx(
        0.3 * np.mean(np.sum(rows**2, axis=1)), rel=0.05
    )
    lengths = np.linalg.norm(table(real.Learned(spread=0.4), d=2000, V=5000), axis=1)
    assert np.mean(lengths**2) == pytest.approx(1, rel=0.02)
    low, middle, high = np.quantile(lengths, (0.1, 0.5, 0.9))
    assert [high / middle, middle / low] == pytest.approx([1.8**0.4, 5**0.4], rel=0.03)


def test_its_numbers_are_found_again_in_a_table_of_it(real):
    numbers = {"alpha": 0.5, "rho": 0.05, "spread": 0.3}
    rows = table(real.Learned(**numbers), d=256)
    assert real.fitted(rows, real.facts(rows)) == pytest.approx(numbers, rel=0.15)


@pytest.mark.slow
def test_a_run_with_it_is_that_of_float64_code(real):
    point = Point(
        V=24,
        N=600,
        d=20,
        L=4,
        n_test=512,
        eta=1e-6,
        embedding="real:Learned(alpha=0.5, rho=0.1, spread=0.4)",
    )
    row, draws = simulate(point, seed=0), realize(point, seed=0)
    measured = measure(draws, point, three_step(draws, point))
    assert row["n_correct"] == measured["n_correct"]
    for name in ("trigger_score", "snr"):
        assert row[name] == pytest.approx(measured[name], rel=1e-3)
    assert 0.1 < row["accuracy"] < 1


def test_forms_of_a_table_lack_one_feature_each(real):
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((500, 6)) * np.arange(1, 7) + 1) * rng.uniform(
        0.5, 2, (500, 1)
    )
    forms = real.forms(rows)
    np.testing.assert_allclose(np.linalg.norm(forms["-unit"], axis=1), 1)
    np.testing.assert_allclose(
        forms["-white"].T @ forms["-white"] / 500, np.eye(6), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.norm(forms["-white-unit"], axis=1), 1)


def without_hash(text):
    return re.sub(r"#\w{16}", "", text)


def cells():
    """The cells of the grid: V, d, L, tokens, trigger, embeddings of both sides."""
    for block in GRID["blocks"]:
        axes = dict(block["axes"])
        zipped = axes.pop("zip", {})
        together = [
            dict(zip(zipped, values, strict=True))
            for values in zip(*zipped.values(), strict=True)
        ] or [{}]
        for values, more in itertools.product(
            itertools.product(*axes.values()), together
        ):
            at = GRID["base"] | dict(zip(axes, values, strict=True)) | more
            out = at.get("embedding_out", at["embedding"])
            yield (
                at["V"],
                at["d"],
                at["L"],
                at.get("tokens", "uniform"),
                at["trigger_in_value"],
                at["embedding"],
                out,
            )


def test_the_table_holds_the_cells_of_the_grid():
    found = jaxrecall.thresholds(ROOT / "results/papers/real")
    names = ["V", "d", "L", "tokens", "trigger_in_value", "embedding", "embedding_out"]
    held = {
        (*row[:3], row[3], row[4], *map(without_hash, row[5:]))
        for row in found[names].itertuples(index=False, name=None)
    }
    assert held == {(*cell[:5], *map(without_hash, cell[5:])) for cell in cells()}


def test_the_laws_of_the_grid_have_the_numbers_of_the_tables(about):
    texts = {
        text
        for cell in cells()
        for text in cell[5:]
        if "(" in text and "array" not in text
    }
    tables = {name: about[name] for name in ("minilm", "jieba", "jieba-all")}
    said = {
        f"real:Learned({', '.join(f'{key}={value}' for key, value in table['fitted'].items())})"  # noqa: E501
        for table in tables.values()
    }
    said |= {tables[name]["law"] for name in ("minilm", "jieba")}
    same = {text for text in texts if text.startswith("equicorrelated")}
    assert texts - same == said
    d_eff = {
        d: 1 / (rho**2 + (1 - rho**2) / d)
        for rho, d in zip(
            sorted(float(text[19:-1]) for text in same), (384, 128), strict=True
        )
    }
    assert d_eff == pytest.approx(
        {
            table["d"]: table["d_eff"]
            for name, table in tables.items()
            if name != "jieba-all"
        },
        rel=0.005,
    )


def test_a_ratio_has_an_interval_from_both_of_its_numbers():
    import pandas as pd

    found = pd.DataFrame(
        {
            "critical": [8.0],
            "lo": [4.0],
            "hi": [8.0],
            "critical_b": [2.0],
            "lo_b": [2.0],
            "hi_b": [4.0],
        }
    )
    ratio = paper.quotient(found, "", "_b")
    assert ratio["ratio"][0] == pytest.approx(4)
    assert ratio["low"][0] == pytest.approx(4 * 2 ** -(2**0.5))
    assert ratio["high"][0] == pytest.approx(4)


def test_the_verdicts_follow_from_the_rows():
    rows = jaxrecall.load(ROOT / "results/papers/real")
    rows = rows[(rows["V"] == 512) & rows["trigger_in_value"] & (rows["L"] == 8)]
    crossings = {}
    for name, embedding in (
        ("raw", r"minilm\.npy.*mean=1"),
        ("gaussian", "^gaussian$"),
    ):
        both = rows[
            rows["embedding"].str.contains(embedding)
            & rows["embedding_out"].str.contains(embedding)
        ]
        near = (
            both.groupby("N")["accuracy"]
            .agg(["mean", "size"])
            .query("size >= 6 and 0.25 < mean < 0.75")
        )
        slope, level = np.polyfit(
            np.log(near.index), near["mean"], 1, w=np.sqrt(near["size"])
        )
        crossings[name] = np.exp((0.5 - level) / slope)
    said = re.search(
        r"MiniLM, d 384, trigger in \|.*V 512: ([\d.]+) ", paper.verdicts()
    )
    assert float(said[1]) == pytest.approx(
        crossings["raw"] / crossings["gaussian"], rel=0.1
    )
    assert set(paper.ratios()["what"]) >= set(paper.FEATURES)
