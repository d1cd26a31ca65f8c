"""The studies of neighbouring papers: their tables hold the runs of their grids, and
the page shows what scripts print from them.
"""

import importlib
import json
import runpy
import sys

import pytest
from helpers import ROOT

import jaxrecall
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.sweep.grid import read_grid

PAGE = (ROOT / "docs/papers.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
SCRIPTS = {
    "muon": "Muon and SGD on the associative memory",
    "rows": "What a memory stores",
    "spectral": "Does the optimiser change what attention learns?",
    "real": "Embeddings of a real model",
}
GRIDS = {path.stem: path for path in sorted(ROOT.glob("sweeps/papers/*.yaml"))}
ARRAYS = GRIDS.pop("real")
"""Its tables of embeddings are not in the repository."""


def beside_the_grids(name):
    """The module sweeps/papers/NAME.py, under the name that grids give it."""
    folder = str(ROOT / "sweeps/papers")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("muon", "spectral")]
"""Fast tests of their own see what these compute."""


@pytest.mark.parametrize("name", ["rows", "real", *LONG])
def test_the_table_of_a_section_is_printed_by_its_script(name, monkeypatch, capsys):
    assert {*SCRIPTS.values()} <= {*SECTIONS}
    script = ROOT / f"results/papers/{name}.py"
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    printed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    lines = SECTIONS[SCRIPTS[name]].splitlines()
    rows = [line for line in lines if line.startswith("| ") and "---" not in line]
    assert len(rows) > 3
    assert [row for row in rows[1:] if row not in printed] == []


@pytest.mark.parametrize("name", GRIDS)
def test_a_table_holds_the_runs_of_its_grid(name):
    beside_the_grids("muon")
    grid = read_grid(GRIDS[name])
    folder = ROOT / "results/papers" / name
    rows = jaxrecall.load(folder, last=True)
    assert set(rows["status"]) == {"ok"}
    assert json.loads((folder / "manifest.json").read_text())["grid"]["name"] == name
    if name in ("cabannes", "nichani", "wang", "bits", "noise"):
        assert set(rows["code_version"]) == {CODE_VERSION}
    if grid.search is None:
        runs = {(p.point_id, seed) for p in grid.points for seed in grid.seeds}
        assert set(zip(rows["point_id"], rows["seed"], strict=True)) == runs
        return
    cells = jaxrecall.thresholds(folder)
    given = [point.as_given() for point in grid.points]
    names = [name for name in given[0] if len({point[name] for point in given}) > 1]
    expected = {tuple(point[name] for name in names) for point in given}
    for table in (cells, rows):
        assert set(table[names].itertuples(index=False, name=None)) == expected
    assert len(cells) == len(grid.points)
    assert not set(cells["outcome"]) & {"unfinished", "nonfinite"}
