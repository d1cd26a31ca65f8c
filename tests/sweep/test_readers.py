"""Every reader of Parquet sees the same rows and columns in the parts of a grid, and
`load` in those of several grids.
"""

import re
import subprocess
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers import NO_FIGURE, ROOT
from pandas.testing import assert_frame_equal
from test_store import rows

import jaxrecall
from jaxrecall import load
from jaxrecall.compact import main as compact
from jaxrecall.errors import StoreError
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.store import Store

TWO_LAWS = """
name: laws
base: {V: 16, L: 4, d: 8, n_test: 64, N: 64, exact: full}
seeds: 2
keep: [per]
blocks: [{axes: {per: [1, 2], embedding: ["equicorrelated(rho=0.2)", "power_law(alpha=1)"]}, derive: {N: 32 * per}}]
"""  # noqa: E501
PARTS = "results/quickstart/parts/*.parquet"
READERS = re.findall(
    r"^df = (.*?)(?:  #.*)?$",
    (ROOT / "docs/table.md").read_text().replace("(parts,", f"({PARTS!r},"),
    re.M,
)
"""The lines of docs/table.md that read a folder."""


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """In one order, as Python's numbers, with None for what is missing."""
    frame = frame.sort_values(["point_id", "seed"], ignore_index=True)
    return frame.astype(object).where(frame.notna(), None)


def check(n_rows: int, *columns: str) -> pd.DataFrame:
    """All readers agree on the folder `out`, and see so many rows and these columns
    with and without values; returns the table.
    """
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    given = {"jaxrecall": jaxrecall, "pandas": pd, "polars": polars, "duckdb": duckdb}
    frames = []
    named = Path("d=999")  # which some readers would take for a column
    if not named.exists():
        named.symlink_to("out")
    for line in READERS:
        frame = eval(line.replace("results/quickstart", str(named)), given)
        if not isinstance(frame, pd.DataFrame):
            frame = pd.DataFrame(frame.to_dicts())
        frames.append(plain(frame))
    whole, *others = frames
    assert len(others) == 3
    assert len(whole) == n_rows
    for name in columns:
        assert 0 < whole[name].notna().sum() < n_rows, name
    for frame in others:
        assert {*frame} == {*whole}
        assert_frame_equal(frame[[*whole]], whole, check_dtype=False)
    return whole


@pytest.fixture
def grid(tmp_path, monkeypatch) -> list[str]:
    """The words of a sweep of both laws."""
    monkeypatch.chdir(tmp_path)
    Path("laws.yaml").write_text(TWO_LAWS)
    first = TWO_LAWS.replace("keep: [per]\n", "").replace(', "power_law(alpha=1)"', "")
    Path("first.yaml").write_text(first)
    return ["--grid", "laws.yaml", "--out", "out"]


def schemas(folder: str | Path, files: str = "parts/*") -> set[frozenset]:
    found = set()
    for file in Path(folder).glob(files):
        schema = pq.read_schema(file)
        found.add(frozenset(zip(schema.names, map(str, schema.types), strict=True)))
    return found


def test_parts_of_a_grid_with_two_laws_have_the_same_columns(grid, capsys):
    assert sweep(grid) == 0
    assert "table:   out/parts (8 runs" in capsys.readouterr().out
    whole = check(8, "embedding.rho", "embedding.alpha")
    assert list(whole.columns) == [*COLUMNS, "per", "embedding.alpha", "embedding.rho"]
    schema = pq.read_schema(next(Path("out/parts").iterdir()))

    def told(name: str) -> list[bytes | None]:
        metadata = schema.field(name).metadata
        return [metadata.get(key) for key in (b"description", b"unit")]

    assert told("embedding.rho") == [
        b"mean inner product of two rows of one table",
        b"1",
    ]
    assert told("N") == [COLUMNS["N"][1].encode(), None]
    assert told("per") == [b"variable of the grid", None]


@pytest.mark.slow
def test_parts_of_grids_with_different_columns_are_read_together(grid, capsys):
    first = ["--grid", "first.yaml", "--out", "out"]
    assert sweep([*first, *NO_FIGURE]) == 0
    before = load("out")
    assert "embedding.alpha" not in before
    other = (
        "blocks.0.axes.tokens=[zipf]",
        'blocks.0.axes.embedding=["power_law(alpha=1)"]',
        "blocks.0.axes.embedding_out=[low_rank]",
    )
    sets = [word for each in other for word in ("--set", each)]
    assert sweep([*grid, *sets, *NO_FIGURE]) == 0
    assert len(schemas("out")) == 2
    whole = load("out")
    for name in ("embedding.rho", "embedding.alpha", "tokens.s", "per"):
        assert 0 < whole[name].notna().sum() < len(whole) == 8
    again = whole[whole["tokens.s"].isna()][[*before]].reset_index(drop=True)
    assert_frame_equal(plain(again), plain(before))
    assert compact(["out", "--prune"]) == 0
    assert_frame_equal(load("out"), whole)
    assert sweep([*first, "--set", "seeds=3"]) == 0
    assert "table:   out/parts and out/table.parquet (6 runs" in capsys.readouterr().out
    unit = pq.read_schema("out/table.parquet").field("embedding_out.rank")
    assert unit.metadata[b"unit"] == b"directions"


def test_a_folder_of_an_older_version_is_read_and_resumed(grid, capsys):
    """It was written by commit 23eb476, whose parts differ: three laws, no union."""
    archive = ROOT / "tests/sweep/folder-of-23eb476.tar.xz"
    subprocess.run(["tar", "-xf", archive], check=True)
    Path("older").rename("out")
    assert len(schemas("out")) == 3
    before = load("out")
    assert compact(["out"]) == 0
    assert_frame_equal(load("out/table.parquet"), before)
    Path("out/table.parquet").unlink()
    assert sweep(["--grid", "out/older.yaml", "--out", "out"]) == 0
    assert "nothing to do: all 6 runs are in out" in capsys.readouterr().out
    assert_frame_equal(load("out"), before)


def test_columns_that_cannot_be_joined_are_one_line(tmp_path):
    store = Store(tmp_path / "out")
    store.prepare({})
    for i, (kind, mood) in enumerate((("string", "good"), ("int64", 3))):
        store.columns = {**COLUMNS, "mood": (kind, "")}
        store.write(rows(i, mood=mood))
    with pytest.raises(StoreError, match=r"^the tables do not go together: .*mood"):
        load(store.folder)
    assert len(store.done(1, "highest").runs) == 2
