"""Every reader of Parquet sees the same rows and columns in the parts of a folder,
whatever grids ran into it.
"""

import random
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers import NO_FIGURE, ROOT
from test_store import environment, quiet_load, row, rows, script

import jaxrecall
from jaxrecall.compact import main as compact
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
READERS = re.findall(
    r"^df = (.*?)(?:  #.*)?$", (ROOT / "docs/table.md").read_text(), re.M
)
"""The lines of docs/table.md that read a folder."""


def frames(folder: Path) -> list[pd.DataFrame]:
    """The table by each of the readers of docs/table.md, in one order."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    given = {"jaxrecall": jaxrecall, "pandas": pd, "polars": polars, "duckdb": duckdb}
    found = []
    for line in READERS:
        frame = eval(line.replace("results/quickstart", str(folder)), given)
        frame = (
            frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(frame.to_dicts())
        )
        found.append(
            frame.sort_values(["point_id", "seed"])
            .reset_index(drop=True)
            .astype(object)
        )
    return found


def check(folder: Path, n_rows: int, *columns: str) -> pd.DataFrame:
    """All readers agree, and see so many rows and these columns with and without
    values; returns the table.
    """
    whole, *others = frames(folder)
    assert len(others) == 3
    assert len(whole) == n_rows
    for name in columns:
        assert 0 < whole[name].notna().sum() < n_rows, name
    for frame in others:
        assert set(frame) == set(whole)
        pd.testing.assert_frame_equal(
            frame[list(whole)].where(frame.notna(), None),
            whole.where(whole.notna(), None),
            check_dtype=False,
        )
    return whole


@pytest.fixture
def grid(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("laws.yaml").write_text(TWO_LAWS)
    Path("first.yaml").write_text(
        TWO_LAWS.replace("keep: [per]\n", "").replace(', "power_law(alpha=1)"', "")
    )
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


@pytest.mark.slow
def test_a_grid_that_adds_columns_gives_them_to_older_parts(grid, capsys):
    first = ["--grid", "first.yaml", "--out", "out"]
    assert sweep([*first, *NO_FIGURE]) == 0
    before = quiet_load("out")
    assert "embedding.alpha" not in before
    facts = {
        path.name: jaxrecall.sweep.store.table.about(pq.read_schema(path))
        for path in Path("out/parts").iterdir()
    }
    other = (
        "--set",
        "blocks.0.axes.tokens=[zipf]",
        "--set",
        'blocks.0.axes.embedding=["power_law(alpha=1)"]',
    )
    assert sweep(["--grid", grid, "--out", "out", *other, *NO_FIGURE]) == 0
    assert (
        f"{len(facts)} files lack columns of other grids in the folder, and get them"
        in capsys.readouterr().err
    )
    whole = check(Path("out"), 8, "embedding.rho", "embedding.alpha", "tokens.s", "per")
    again = whole[whole["tokens.s"].isna()][list(before)].reset_index(drop=True)
    order = ["point_id", "seed"]
    pd.testing.assert_frame_equal(
        again,
        before.sort_values(order).reset_index(drop=True).astype(object),
        check_dtype=False,
    )
    for name, about in facts.items():  # age and axes of a part are those of its sweep
        assert (
            jaxrecall.sweep.store.table.about(pq.read_schema(Path("out/parts", name)))
            == about
        )
    stamps = {path: path.stat().st_mtime_ns for path in Path("out/parts").iterdir()}
    # a grid with fewer columns has nothing to rewrite
    assert sweep([*first, *NO_FIGURE]) == 0
    assert {
        path: path.stat().st_mtime_ns for path in Path("out/parts").iterdir()
    } == stamps
    assert compact(["out", "--prune"]) == 0
    assert len(quiet_load("out")) == 8
    assert sweep([*first, "--set", "seeds=3"]) == 0
    assert "table:   out/parts and out/table.parquet (6 runs" in capsys.readouterr().out
    assert (
        len(
            schemas(Path("out"))
            | {
                frozenset(
                    zip(
                        (s := pq.read_schema("out/table.parquet")).names,
                        map(str, s.types),
                        strict=True,
                    )
                )
            }
        )
        == 1
    )


def test_a_folder_of_an_older_version_is_read_resumed_and_rewritten(
    tmp_path, monkeypatch, capsys
):
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
    check(Path("older"), 6, "embedding.rho", "embedding.alpha")
    pd.testing.assert_frame_equal(quiet_load("older")[list(before)], before)


def test_parameters_say_what_they_mean_and_count(grid):
    laws = (
        "--set",
        'blocks.0.axes.embedding=["equicorrelated(rho=0.2)"]',
        "--set",
        "blocks.0.axes.embedding_out=[low_rank]",
    )
    assert sweep(["--grid", grid, "--out", "out", *laws, *NO_FIGURE]) == 0
    schema = pq.read_schema(next(Path("out/parts").iterdir()))
    told = {
        name: [
            schema.field(name).metadata.get(key) for key in (b"description", b"unit")
        ]
        for name in schema.names
    }
    assert told["embedding.rho"] == [
        b"mean inner product of two rows of one table",
        b"1",
    ]
    assert told["embedding_out.rank"] == [
        b"directions that the rows of a table are near to",
        b"directions",
    ]
    assert told["N"] == [COLUMNS["N"][1].encode(), None]
    assert told["per"] == [b"helper of the grid", None]


def test_columns_that_cannot_be_joined_are_one_line_that_names_compact(tmp_path):
    store = Store(tmp_path / "out")
    store.prepare({})
    store.columns = {**COLUMNS, "mood": ("string", "")}
    store.write([row(0) | {"mood": "good"}])
    other, told = Store(store.folder), []
    other.columns = {**COLUMNS, "mood": ("int64", "")}
    other.unify(told.append)
    (line,) = told
    assert line.startswith(f"{store.parts}: the columns of its files differ (")
    assert re.search(rf"jaxrecall.compact {store.folder}$", line)
    other.write([row(1) | {"mood": 3}])
    assert len(store.done(1, "highest").runs) == 2


# --- other processes


def wide(store: Store, *names: str) -> None:
    store.columns = {**COLUMNS, **dict.fromkeys(names, ("float64", ""))}


WIDE = (
    "def wide(store, *names): store.columns = {**COLUMNS, **{name: ('float64', '') for"
    " name in names}}\n"
)


def test_a_file_that_is_no_result_is_not_rewritten(tmp_path):
    store = Store(tmp_path / "out")
    store.prepare({})
    store.write(rows(0, 1))
    foreign = store.parts / "foreign.parquet"
    pq.write_table(
        pq.read_table(next(store.parts.iterdir())).drop_columns(["n_correct"]), foreign
    )
    before = foreign.read_bytes()
    store.columns = {**COLUMNS, "embedding.a": ("float64", "")}
    told: list[str] = []
    store.unify(told.append)
    assert foreign.read_bytes() == before
    assert told == [
        f"{store.parts}: 1 files lack columns of other grids in the folder, and get"
        " them"
    ]


@pytest.mark.system  # a dozen processes, ten of them killed
def test_ten_kills_of_a_rewrite_lose_and_double_no_row(tmp_path):
    store, chance = Store(tmp_path / "out"), random.Random(0)
    store.prepare({})
    for i in range(12):
        store.write(rows(2 * i, 2 * i + 1))
    names, seconds, n_mixed = sorted(store.parts.iterdir()), [], 0
    body = (
        WIDE + "store = Store(sys.argv[1]); wide(store, sys.argv[2]); print('now',"
        " flush=True); store.unify(lambda line: None)"
    )
    for kill in range(11):
        started = subprocess.Popen(
            script(body, store.folder, f"embedding.a{kill}"),
            env=environment(),
            stdout=subprocess.PIPE,
        )
        with started as process:
            assert process.stdout.readline() == b"now\n"
            start = time.monotonic()
            if kill:
                time.sleep(chance.uniform(0, max(seconds)))
                process.send_signal(signal.SIGKILL)
            process.wait()
            seconds.append(time.monotonic() - start if not kill else 0)
        n_mixed += len(schemas(store.folder)) > 1
        assert sorted(store.parts.iterdir()) == names
        found = [
            pair
            for path in names
            for pair in pq.read_table(path, columns=["point_id", "seed"]).to_pylist()
        ]
        assert len(found) == len({tuple(pair.values()) for pair in found}) == 24
        assert quiet_load(store.folder)[list(COLUMNS)].to_dict("records") == rows(
            *range(24)
        )
    assert n_mixed >= 5  # most of them in the middle of it
    store.unify(lambda line: None)
    assert len(schemas(store.folder)) == 1
    assert quiet_load(store.folder)[list(COLUMNS)].to_dict("records") == rows(
        *range(24)
    )


@pytest.mark.system  # test_store.py has two processes with the same columns
def test_two_sweeps_of_different_columns_leave_one_schema(tmp_path):
    store = Store(tmp_path / "out")
    store.prepare({})
    store.write(rows(0, 1))
    body = (
        WIDE
        + """
store = Store(sys.argv[1])
wide(store, sys.argv[2])
store.unify(lambda line: None)
for i in range(int(sys.argv[3]), int(sys.argv[3]) + 10):
    store.write([row(i) | {sys.argv[2]: float(i)}])
store.unify(lambda line: None)
"""
    )
    calls = [
        script(body, store.folder, f"embedding.{name}", first)
        for name, first in (("a", 10), ("b", 20))
    ]
    both = [subprocess.Popen(call, env=environment()) for call in calls]
    assert [process.wait() for process in both] == [0, 0]
    assert len(schemas(store.folder)) == 1
    frame = quiet_load(store.folder)
    assert frame[list(COLUMNS)].to_dict("records") == rows(0, 1, *range(10, 30))
    assert frame["embedding.a"].dropna().tolist() == [*range(10, 20)]
    assert frame["embedding.b"].dropna().tolist() == [*range(20, 30)]
