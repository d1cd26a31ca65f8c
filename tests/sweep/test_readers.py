"""Every reader of Parquet sees the same rows and columns in the parts of a folder,
whatever grids ran into it.
"""

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers import NO_FIGURE, ROOT
from pandas.testing import assert_frame_equal
from test_store import PRELUDE, put, rows

import jaxrecall
from jaxrecall import load
from jaxrecall.compact import main as compact
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.table import read_facts

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
def grid(cwd) -> list[str]:
    """The words of a sweep of both laws."""
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
    grid += ["--set", 'blocks.0.axes.embedding=[gaussian, "equicorrelated(rho=0.2)"]']
    assert sweep(grid) == 0
    assert "table:   out/parts (8 runs" in capsys.readouterr().out
    whole = check(8, "embedding.rho")
    assert list(whole.columns) == [*COLUMNS, "per", "embedding.rho"]
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
def test_a_grid_that_adds_columns_gives_them_to_older_parts(grid, capsys):
    first = ["--grid", "first.yaml", "--out", "out"]
    assert sweep([*first, *NO_FIGURE]) == 0
    before = load("out")
    assert "embedding.alpha" not in before

    def facts() -> dict[Path, tuple]:
        found = {}
        for path in Path("out/parts").iterdir():
            found[path] = read_facts(pq.read_schema(path)), path.stat().st_mtime_ns
        return found

    old = facts()
    other = (
        "blocks.0.axes.tokens=[zipf]",
        'blocks.0.axes.embedding=["power_law(alpha=1)"]',
        "blocks.0.axes.embedding_out=[low_rank]",
    )
    sets = [word for each in other for word in ("--set", each)]
    assert sweep([*grid, *sets, *NO_FIGURE]) == 0
    assert f"{len(old)} files lack columns of other grids" in capsys.readouterr().err
    whole = check(8, "embedding.rho", "embedding.alpha", "tokens.s", "per")
    again = whole[whole["tokens.s"].isna()][[*before]].reset_index(drop=True)
    assert_frame_equal(again, plain(before))
    now = facts()
    for path, (fact, _) in old.items():  # age and axes of a part are those of its sweep
        assert now[path][0] == fact
    # a grid with fewer columns has nothing to rewrite
    assert sweep([*first, *NO_FIGURE]) == 0
    assert facts() == now
    assert compact(["out", "--prune"]) == 0
    assert len(load("out")) == 8
    assert sweep([*first, "--set", "seeds=3"]) == 0
    assert "table:   out/parts and out/table.parquet (6 runs" in capsys.readouterr().out
    assert len(schemas("out", "**/*.parquet")) == 1
    (schema,) = {pq.read_schema(path) for path in Path("out/parts").iterdir()}
    unit = schema.field("embedding_out.rank").metadata[b"unit"]
    assert unit == b"directions"


def test_a_folder_of_an_older_version_is_read_resumed_and_rewritten(grid, capsys):
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
    check(6, "embedding.rho", "embedding.alpha")
    assert_frame_equal(load("out")[[*before]], before)


# --- parts that get columns


def wide(store: Store, kind: str, *names: str) -> None:
    store.columns = {**COLUMNS, **dict.fromkeys(names, (kind, ""))}


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "out")
    store.prepare({})
    return store


def test_columns_that_cannot_be_joined_are_one_line_that_names_compact(store):
    for i, (kind, mood) in enumerate((("string", "good"), ("int64", 3))):
        sweep, told = Store(store.folder), []
        wide(sweep, kind, "mood")
        sweep.unify(told.append)
        sweep.write(rows(i, mood=mood))
    (line,) = told
    assert line.startswith(f"{store.parts}: the columns of its files differ (")
    assert line.endswith(f"jaxrecall.compact {store.folder}")


def test_a_file_that_is_no_result_is_not_rewritten(store):
    store.write(rows(0, 1))
    foreign = put(store, "foreign", rows(2))
    pq.write_table(pq.read_table(foreign).drop_columns(["n_correct"]), foreign)
    before = foreign.read_bytes()
    wide(store, "float64", "embedding.a")
    told: list[str] = []
    store.unify(told.append)
    assert foreign.read_bytes() == before
    (line,) = told
    assert ": 1 files lack columns of other grids" in line


# --- other processes


def started(store: Store, body: str, *words: str) -> subprocess.Popen[str]:
    """Widens the folder in another process, and then does more."""
    code = f"""{PRELUDE}
store = Store(sys.argv[1])
store.columns = {{**COLUMNS, sys.argv[2]: ("float64", "")}}
{body}
store.unify(lambda line: None)
"""
    call = [sys.executable, "-c", code, store.folder, *words]
    return subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.system  # a dozen processes, ten of them killed
def test_ten_kills_of_a_rewrite_lose_and_double_no_row(store):
    chance = random.Random(0)
    for i in range(12):
        store.write(rows(2 * i, 2 * i + 1))
    paths, seconds, n_mixed = sorted(store.parts.iterdir()), 0.0, 0
    for kill in range(11):
        body = "print('now', flush=True)"
        with started(store, body, f"embedding.a{kill}") as process:
            assert process.stdout.readline() == "now\n"
            start = time.monotonic()
            if kill:
                time.sleep(chance.uniform(0, seconds))
                process.send_signal(signal.SIGKILL)
            process.wait()
            seconds = seconds or time.monotonic() - start
        n_mixed += len(schemas(store.folder)) > 1
        assert sorted(store.parts.iterdir()) == paths
        assert sum(pq.read_metadata(path).num_rows for path in paths) == 24
        kept = load(store.folder)[[*COLUMNS]]
        assert kept.to_dict("records") == rows(*range(24))
    assert n_mixed >= 5  # most of them in the middle of it
    store.unify(lambda line: None)
    assert len(schemas(store.folder)) == 1
    assert load(store.folder)[[*COLUMNS]].to_dict("records") == rows(*range(24))


@pytest.mark.system  # test_store.py has two writers of the same columns
def test_two_sweeps_of_different_columns_leave_one_schema(store):
    store.write(rows(0, 1))
    body = """
store.unify(lambda line: None)
for i in range(int(sys.argv[3]), int(sys.argv[3]) + 10):
    store.write([row(i) | {sys.argv[2]: float(i)}])
"""
    calls = (("embedding.a", "10"), ("embedding.b", "20"))
    both = [started(store, body, *words) for words in calls]
    assert [process.communicate() for process in both] == [("", None)] * 2
    assert len(schemas(store.folder)) == 1
    frame = load(store.folder)
    assert frame[[*COLUMNS]].to_dict("records") == rows(0, 1, *range(10, 30))
    assert frame["embedding.a"].dropna().tolist() == [*range(10, 20)]
    assert frame["embedding.b"].dropna().tolist() == [*range(20, 30)]
