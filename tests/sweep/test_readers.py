"""Every reader of Parquet sees the same rows and columns in the parts of a grid."""

import re
import tarfile
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers import ROOT
from test_store import quiet_load

import jaxrecall
from jaxrecall.compact import main as compact
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.__main__ import main as sweep

TWO_LAWS = """
name: laws
base: {V: 16, L: 4, d: 8, n_test: 64, N: 64}
seeds: 2
keep: [per]
blocks: [{axes: {per: [1, 2], embedding: ["equicorrelated(rho=0.2)", "power_law(alpha=1)"]}, derive: {N: 32 * per}}]
"""
READERS = re.findall(r"^df = (.*?)(?:  #.*)?$", (ROOT / "docs/table.md").read_text(), re.M)
"""The lines of docs/table.md that read a folder."""


def frames(folder: Path) -> list[pd.DataFrame]:
    """The table by each of the readers of docs/table.md, in one order."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    given = {"jaxrecall": jaxrecall, "pandas": pd, "polars": polars, "duckdb": duckdb}
    found = []
    for line in READERS:
        frame = eval(line.replace("results/quickstart", str(folder)), given)
        frame = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(frame.to_dicts())
        found.append(frame.sort_values(["point_id", "seed"]).reset_index(drop=True).astype(object))
    return found


def check(folder: Path, n_rows: int, *columns: str) -> pd.DataFrame:
    """All readers agree, and see so many rows and these columns with and without values; returns the table."""
    whole, *others = frames(folder)
    assert len(others) == 3
    assert len(whole) == n_rows
    for name in columns:
        assert 0 < whole[name].notna().sum() < n_rows, name
    for frame in others:
        assert set(frame) == set(whole)
        pd.testing.assert_frame_equal(frame[list(whole)].where(frame.notna(), None), whole.where(whole.notna(), None), check_dtype=False)
    return whole


@pytest.fixture
def grid(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("laws.yaml").write_text(TWO_LAWS)
    Path("first.yaml").write_text(TWO_LAWS.replace("keep: [per]\n", "").replace(', "power_law(alpha=1)"', ""))
    return "laws.yaml"


def types(file: str | Path) -> frozenset:
    schema = pq.read_schema(file)
    return frozenset(zip(schema.names, map(str, schema.types), strict=True))


def schemas(folder: Path) -> set[frozenset]:
    return {types(file) for file in (folder / "parts").iterdir()}


def test_parts_of_a_grid_with_two_laws_have_the_same_columns(grid, capsys):
    assert sweep(["--grid", grid, "--out", "out"]) == 0
    assert "table:   out/parts (8 runs" in capsys.readouterr().out
    whole = check(Path("out"), 8, "embedding.rho", "embedding.alpha")
    assert list(whole.columns) == [*COLUMNS, "per", "embedding.alpha", "embedding.rho"]


def test_a_grid_that_adds_columns_leaves_older_parts_as_they_are_and_compact_joins_them(grid):
    assert sweep(["--grid", "first.yaml", "--out", "out"]) == 0
    before = quiet_load("out")
    assert "embedding.alpha" not in before
    stamps = {path: path.stat().st_mtime_ns for path in Path("out/parts").iterdir()}
    assert sweep(["--grid", grid, "--out", "out", "--set", "blocks.0.axes.tokens=[zipf]"]) == 0
    assert stamps.items() <= {path: path.stat().st_mtime_ns for path in Path("out/parts").iterdir()}.items()
    whole = quiet_load("out")
    pd.testing.assert_frame_equal(whole[whole["tokens.s"].isna()][list(before)].reset_index(drop=True), before, check_dtype=False)
    assert compact(["out", "--prune"]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet("out/table.parquet"), whole)


def test_a_folder_of_an_older_version_is_read_and_resumed(tmp_path, monkeypatch, capsys):
    """It was written by commit 23eb476, whose parts differ: three laws, no union."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open(ROOT / "tests/sweep/folder-of-23eb476.tar.xz") as archive:
        archive.extractall(filter="data")
    assert len(schemas(Path("older"))) == 3
    before = quiet_load("older")
    assert compact(["older"]) == 0
    pd.testing.assert_frame_equal(quiet_load("older/table.parquet"), before)
    Path("older/table.parquet").unlink()
    assert sweep(["--grid", "older/older.yaml", "--out", "older"]) == 0
    assert "nothing to do: all 6 runs are in older" in capsys.readouterr().out
    pd.testing.assert_frame_equal(quiet_load("older")[list(before)], before)


def test_parameters_say_what_they_mean_and_count(grid):
    laws = ("--set", 'blocks.0.axes.embedding=["equicorrelated(rho=0.2)"]', "--set", "blocks.0.axes.embedding_out=[low_rank]")
    assert sweep(["--grid", grid, "--out", "out", *laws]) == 0
    schema = pq.read_schema(next(Path("out/parts").iterdir()))
    told = {name: [schema.field(name).metadata.get(key) for key in (b"description", b"unit")] for name in schema.names}
    assert told["embedding.rho"] == [b"mean inner product of two rows of one table", b"1"]
    assert told["embedding_out.rank"] == [b"directions that the rows of a table are near to", b"directions"]
    assert told["N"] == [COLUMNS["N"][1].encode(), None]
    assert told["per"] == [b"helper of the grid", None]
