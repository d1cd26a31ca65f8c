"""The committed studies: what results/README.md says is what the tables beside it hold."""

import importlib.util
import json
import re

import pandas as pd
import pytest
from helpers import ROOT

import jaxrecall
from jaxrecall.grid import read_grid
from jaxrecall.science.columns import CODE_VERSION

README = (ROOT / "results/README.md").read_text()
STUDIES = ["capacity", "mlp", "embeddings", "bound", "phase"]
POOL = (ROOT / "docs/pool.md").read_text()


@pytest.mark.parametrize("name", [*STUDIES, "pool"])
def test_a_study_holds_the_runs_of_its_grid(name):
    grid, folder = read_grid(ROOT / f"sweeps/{name}.yaml"), ROOT / "results/study" / name
    rows = jaxrecall.load(folder)
    assert set(zip(rows["point_id"], rows["seed"], strict=True)) == {(p.point_id, seed) for p in grid.points for seed in grid.seeds}
    assert set(rows["code_version"]) == {CODE_VERSION}
    assert json.loads((folder / "manifest.json").read_text())["grid"]["name"] == name
    assert name == "pool" or "<svg" in (folder / "report.html").read_text()


def test_pictures_are_there_and_exponents_are_those_of_the_fit():
    for path in re.findall(r"!\[[^]]*\]\(([^)]*)\)", README):
        assert (ROOT / "results" / path).exists(), path
    law = pd.read_parquet(ROOT / "results/study/capacity/exponents.parquet")
    law = law[law["record"] & (law["theta"] == 0.5)].set_index("axis")["exponent"]
    assert f"V^{law['V']:.2f} d^{law['d']:.2f} L^{law['L']:.2f}" in README


LAW = ["law_exponents", "law_errors", "law_check"]
POOLS = ["pool_summary", "pool_differences", "pool_noise"]
QUICK = ["capacity", "embeddings", "bound", *LAW, *POOLS]  # agreement takes minutes


@pytest.mark.slow
@pytest.mark.parametrize("table", QUICK)
def test_the_tables_are_printed_by_the_script(table):
    spec = importlib.util.spec_from_file_location("tables", ROOT / "results/tables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert getattr(module, table)() in (POOL if table.startswith("pool") else README)
