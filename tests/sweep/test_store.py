"""The results folder: what is written comes back, nothing half-written is seen, and
what is done is decided by rows.
"""

import inspect
import json
import math
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jaxrecall
from jaxrecall import compact as cli
from jaxrecall.compact import compact, compaction_lock
from jaxrecall.errors import StoreError
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.files import atomic_write, json_text
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.load import load
from jaxrecall.sweep.store.table import KEY, SCHEMA, read, read_file

ROOT = Path(jaxrecall.__file__).parents[1]


def row(i: int, **changes: object) -> dict:
    """A row unlike any other in every number; 10 seeds to a point."""
    plain = {
        "int64": 1000 + i,
        "float64": i + 1 / 3,
        "bool": i % 2 == 0,
        "string": f"text {i}",
    }
    values = {name: plain[kind] for name, (kind, _) in COLUMNS.items()}
    version = {
        "status": "ok",
        "code_version": 1,
        "precision": "highest",
        "root_seed": 0,
    }
    return values | version | {"point_id": f"{i // 10:016x}", "seed": i % 10} | changes


def rows(*which: int, **changes: object) -> list[dict]:
    return [row(i, **changes) for i in which]


PRELUDE = f"""
import os, signal, sys
from jaxrecall.model.columns import COLUMNS
from jaxrecall.errors import StoreError
from jaxrecall.compact import compact
from jaxrecall.sweep.store.load import load
from jaxrecall.sweep.store import Store
{inspect.getsource(row)}
{inspect.getsource(rows)}
"""


def script(body: str, *arguments: object) -> list[str]:
    """The command that runs `body` in another process, arguments in `sys.argv`."""
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(body), *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(
    body: str, *arguments: object, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess:
    command = [*before, *script(body, *arguments)]
    return subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_namespace(mount: str) -> tuple[str, ...]:
    """A command prefix: the rest runs after `mount`, in a mount namespace that ends
    with it. Skips where that is refused.
    """
    prefix = (
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{mount} && exec "$@"',
        "sh",
    )
    if (
        not shutil.which("unshare")
        or subprocess.run(
            [*prefix, "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs a mount of its own: no unshare, or user namespaces are off")
    return prefix


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "sweep")
    store.prepare({"name": "sweep"})
    return store


def quiet_load(path) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load(path)


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


# --- rows in, rows out


def test_rows_come_back_exactly(store):
    written = rows(*range(25), gamma=1e38, eta=5e-324)
    store.write(written[::-1])
    frame = quiet_load(store.folder)
    assert list(frame.columns) == list(COLUMNS)
    assert isinstance(frame.index, pd.RangeIndex)
    assert frame.to_dict("records") == written
    natural = {
        "int64": "int64",
        "float64": "float64",
        "bool": "bool",
        "string": str(pd.Series(["a"]).dtype),
    }
    assert {n: str(t) for n, t in frame.dtypes.items()} == {
        n: natural[kind] for n, (kind, _) in COLUMNS.items()
    }


def test_nulls_keep_ints_whole_and_bools_logical(store):
    nothing = {
        "n_correct": None,
        "accuracy": None,
        "form": None,
        "trigger_in_value": None,
        "status": "nonfinite",
    }
    part = store.write(
        [row(0, n_correct=2**53 + 1), row(1, **nothing), row(2, snr=float("nan"))]
    )
    frame = quiet_load(store.folder)
    assert frame.n_correct.dtype == "Int64"
    assert frame.trigger_in_value.dtype == "boolean"
    assert frame.accuracy.dtype == "float64"
    assert frame.n_correct[0] == 2**53 + 1
    assert frame.isna().sum().loc[lambda n: n > 0].to_dict() == {
        "n_correct": 1,
        "accuracy": 1,
        "snr": 1,
        "form": 1,
        "trigger_in_value": 1,
    }
    pd.testing.assert_frame_equal(pd.read_parquet(part), frame)
    assert pq.read_table(part)["snr"].null_count == 0, "nan is a number, not a null"


def test_part_is_sorted_compressed_and_says_where_it_comes_from(store):
    part = store.write(rows(12, 3, 7, 0, jax_version="0.9"))
    with pq.ParquetFile(part) as file:
        assert file.schema_arrow.remove_metadata() == SCHEMA
        provenance = json.loads(file.schema_arrow.metadata[b"jaxrecall"])
        column = file.metadata.row_group(0).column(1)
        assert column.compression == "ZSTD"
        assert (
            column.path_in_schema,
            column.statistics.min,
            column.statistics.max,
        ) == ("seed", 0, 7)
        table = file.read()
    assert provenance.pop("created").endswith("+00:00")
    assert provenance == {
        "code_version": 1,
        "precision": "highest",
        "jax_version": "0.9",
    }
    runs = list(
        zip(table["point_id"].to_pylist(), table["seed"].to_pylist(), strict=True)
    )
    assert runs == sorted(runs)
    assert b"pandas" in table.schema.metadata


def test_numbers_take_no_dictionary_and_no_encoding_that_readers_may_lack(store):
    """Distinct numbers are smaller than with a dictionary of them."""
    store.write([row(i, accuracy=i / 7) for i in range(2000)])
    path = compact(store.folder).table
    encodings, sizes = {}, {}
    for column in columns_of(path):
        encodings[column.path_in_schema] = {*column.encodings}
        sizes[column.path_in_schema] = column.total_compressed_size
    assert encodings["point_id"] == {"PLAIN", "RLE", "RLE_DICTIONARY"}
    assert encodings["accuracy"] == encodings["n_correct"] == {"PLAIN", "RLE"}
    pq.write_table(pq.read_table(path), store.folder / "plain", compression="zstd")
    for column in columns_of(store.folder / "plain"):
        if column.path_in_schema == "accuracy":
            assert sizes["accuracy"] < 0.95 * column.total_compressed_size


def columns_of(path):
    """Returns the metadata of the columns of a Parquet file with one row group."""
    group = pq.read_metadata(path).row_group(0)
    return [group.column(i) for i in range(group.num_columns)]


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        {"a": {}, "b": []},
        {"a": {"b": [1, 2.5, None, "x"]}, "c": "\n\u2028é"},
        {"cells": [{"V": 1, "point": {"d": [2]}}, {"V": 2}], "n": math.pi},
        {"runs": [["0 1", "ab"], ["2", "cd"]]},
        [[1], [{"a": 2}]],
    ],
)
def test_json_comes_back_and_a_list_of_cells_has_a_line_for_each(value):
    text = json_text(value)
    assert json.loads(text) == value
    items = [*value.values()] if isinstance(value, dict) else [value]
    for item in items:
        if isinstance(item, list) and item and isinstance(item[0], dict | list):
            compact_lines = [line.strip().rstrip(",") for line in text.splitlines()]
            for each in item:
                assert json.dumps(each, separators=(",", ":")) in compact_lines


def test_name_hashes_the_runs_and_the_version(store):
    names = [
        store.write(batch).name
        for batch in (
            rows(1, 2),
            rows(2, 1, accuracy=0.0),
            rows(1, 3),
            rows(1, 2, code_version=2),
            rows(1, 2, precision="default"),
        )
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 4
    assert all(
        len(name) == 24 and int(name[:16], 16) >= 0 and name.endswith(".parquet")
        for name in names
    )
    assert sorted(p.name for p in store.parts.iterdir()) == sorted(set(names))
    assert not list(store.staging.iterdir())


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ([{"point_id": "a"}], "'seed'"),
        ([row(0) | {"extra": 1}], "no such columns: extra"),
        ([row(0, seed="x")], "rows: seed: .*'x'.*; allowed: int64 or None"),
        ([row(0, n_correct=2**70)], "rows: n_correct: .*allowed: int64"),
        ([row(0, seed=None)], "nulls in seed"),
    ],
)
def test_rows_that_are_no_rows_are_refused(store, batch, error):
    with pytest.raises((StoreError, ValueError, KeyError), match=error):
        store.write(batch)
    assert not list(store.parts.iterdir())
    assert not list(store.staging.iterdir())


# --- the folder itself


def test_prepare_makes_the_folder_and_keeps_what_is_there(tmp_path):
    store = Store(str(tmp_path / "a" / "b"))
    assert store.read_manifest() is None
    store.prepare({"grid": [1, 2]})
    assert sorted(p.name for p in store.folder.iterdir()) == [
        "_staging",
        "manifest.json",
        "parts",
    ]
    assert store.read_manifest() == {"grid": [1, 2]}
    store.write(rows(0))
    store.prepare({"grid": [3]})
    assert store.read_manifest() == {"grid": [3]}
    assert len(quiet_load(store.folder)) == 1


def test_check_and_done_make_nothing(tmp_path):
    store = Store(tmp_path / "a" / "b")
    store.check()
    done = store.done(1, "highest")
    assert (done.runs, done.foreign, done.unreadable) == (set(), {}, [])
    assert not list(tmp_path.iterdir())


def test_done_of_a_folder_that_holds_other_things_reads_none_of_them(tmp_path):
    Store(tmp_path / "other").prepare({})
    part = Store(tmp_path / "other").write(rows(0))
    shutil.copy(part, tmp_path / "stray.parquet")
    done = Store(tmp_path).done(1, "highest")
    assert (done.runs, done.unreadable) == (set(), [])


@pytest.mark.parametrize("below", ["", "sub", "sub/sub"])
def test_a_file_in_the_way_is_named_and_nothing_is_made(tmp_path, below):
    (tmp_path / "taken").write_text("mine")
    store = Store(tmp_path / "taken" / below)
    for refused in (
        store.check,
        lambda: store.prepare({}),
        lambda: compact(store.folder),
    ):
        with pytest.raises(
            StoreError,
            match=r"/taken is not a folder; .*choose another results folder \(--out\)",
        ):
            refused()
    assert everything(tmp_path) == {"taken": b"mine"}


@pytest.mark.parametrize("obstacle", ["parts", "_staging", "manifest.json"])
def test_a_refused_prepare_leaves_nothing_behind(tmp_path, obstacle):
    folder = tmp_path / "sweep"
    folder.mkdir()
    if obstacle == "manifest.json":
        (folder / obstacle).mkdir()
    else:
        (folder / obstacle).write_text("")
    before = everything(tmp_path)
    with pytest.raises(StoreError, match="sweep"):
        Store(folder).prepare({})
    assert everything(tmp_path) == before


def test_a_manifest_that_is_no_json_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(TypeError):
        Store(tmp_path / "sweep").prepare({"x": object()})
    with pytest.raises(StoreError, match="File name too long"):
        Store(tmp_path / "new" / ("x" * 300)).prepare({})
    assert not list(tmp_path.iterdir())


def test_a_read_only_file_system_is_said_and_nothing_is_left(tmp_path):
    before = in_namespace(f"mount -t tmpfs -o ro tmpfs {tmp_path}")
    body = """
        try:
            Store(sys.argv[1]).prepare({})
        except StoreError as error:
            print(error)
    """
    result = run(body, tmp_path / "sweep", before=before)
    assert "Read-only file system" in result.stdout, result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_vanishes_is_said(store):
    store.write(rows(0))
    shutil.rmtree(store.folder)
    for gone in (lambda: store.write(rows(1)), lambda: store.note("failures/abc", {})):
        with pytest.raises(
            StoreError, match="No such file or directory; saved rows are kept"
        ) as caught:
            gone()
        assert isinstance(caught.value.__cause__, FileNotFoundError)
    store.clear_failures({("a", 0)})
    assert not store.folder.exists(), "a folder that somebody removed is not made again"


def test_failures_come_and_go(store):
    path = store.note("failures/abc", {"error": "boom", "runs": [["a", 0], ["b", 1]]})
    assert path == store.folder / "failures" / "abc.json"
    assert json.loads(path.read_text())["error"] == "boom"
    foreign = store.failures / "note.json"
    foreign.write_text("[1, 2]")
    store.clear_failures({("a", 0)})
    assert path.exists(), "a run that is not among them may still be missing"
    store.clear_failures({("a", 0), ("b", 1), ("c", 2)})
    store.clear_failures({("a", 0), ("b", 1)})
    assert not path.exists()
    assert foreign.exists()


def test_a_broken_manifest_is_said(store):
    store.manifest.write_bytes(b'{"name": ')
    with pytest.raises(StoreError, match=r"manifest\.json: not JSON .* delete it"):
        store.read_manifest()


# --- nothing half-written is ever seen


@pytest.mark.system  # seconds: writers that are killed again and again
def test_a_reader_sees_whole_parts_while_a_writer_is_killed(store):
    body = """
        store = Store(sys.argv[1])
        for k in range(int(sys.argv[2]), 10**9):
            store.write([row(1000 * k + j) for j in range(1000)])
    """
    chance = random.Random(0)
    for start in (0, 10**5, 2 * 10**5):
        writer = subprocess.Popen(script(body, store.folder, start), env=environment())
        try:
            at_first = len(list(store.parts.iterdir()))
            deadline = time.monotonic() + 30
            while (
                len(list(store.parts.iterdir())) < at_first + 5
                and time.monotonic() < deadline
            ):
                assert store.done(1, "highest").unreadable == []
            time.sleep(chance.uniform(0, 0.1))
        finally:
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
        done = store.done(1, "highest")
        assert done.unreadable == []
        parts = list(store.parts.iterdir())
        assert len(parts) >= at_first + 5
        assert len(done.runs) == 1000 * len(parts)
    assert len(quiet_load(store.folder)) == 1000 * len(parts)
    assert compact(store.folder, prune=True).n_rows == 1000 * len(parts)


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_killed_before_the_rename_leaves_the_old_part(store, moment):
    part = store.write(rows(0, 1, form="old"))
    body = """
        def kill(*_):
            os.kill(os.getpid(), signal.SIGKILL)
        setattr(os, sys.argv[2], kill)
        Store(sys.argv[1]).write(rows(0, 1, form="new"))
    """
    assert run(body, store.folder, moment).returncode == -signal.SIGKILL
    assert list(store.parts.iterdir()) == [part]
    assert set(quiet_load(store.folder).form) == {"old"}
    assert len(list(store.staging.iterdir())) == 1
    assert store.write(rows(0, 1, form="new")) == part
    assert set(quiet_load(store.folder).form) == {"new"}


def test_old_files_in_staging_are_swept_and_nothing_else_is(store):
    def age(name: str, seconds: float) -> None:
        path = store.staging / name
        path.write_text("left over")
        then = time.time() - seconds
        os.utime(path, (then, then))

    for name, seconds in (
        ("12-0123abcd-old.parquet", 4000),
        ("12-0123abcd-new.parquet", 3000),
        ("compact.lock", 9e6),
        ("mine.txt", 9e6),
    ):
        age(name, seconds)
    (store.staging / "12-0123abcd-dangling").symlink_to("nowhere")
    store.prepare({})
    assert sorted(p.name for p in store.staging.iterdir()) == [
        "12-0123abcd-dangling",
        "12-0123abcd-new.parquet",
        "compact.lock",
        "mine.txt",
    ]


def test_an_atomic_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def refuse(temporary):
        assert temporary.read_bytes() == b"new"
        assert path.read_bytes() == b"old"
        raise ValueError("no")

    for fails in (
        lambda: atomic_write(path, b"new", check=refuse),
        lambda: atomic_write(path, object()),
    ):
        with pytest.raises((ValueError, TypeError)):
            fails()
        assert everything(tmp_path) == {"file": b"old"}
    atomic_write(path, b"new")
    assert everything(tmp_path) == {"file": b"new"}


def test_a_file_size_limit_keeps_finished_parts(store):
    body = """
        import resource
        store = Store(sys.argv[1])
        store.write(rows(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, 80_000))
        try:
            store.write(rows(*range(5000)))
        except StoreError as error:
            print(type(error.__cause__).__name__, error)
        store.write(rows(1))
    """
    result = run(body, store.folder)
    assert result.returncode == 0, result.stderr
    assert "OSError" in result.stdout
    assert "File too large; saved rows are kept" in result.stdout
    assert len(quiet_load(store.folder)) == 2
    assert not list(store.staging.iterdir())


def test_a_full_disk_keeps_finished_parts(tmp_path):
    before = in_namespace(f"mount -t tmpfs -o size=256k tmpfs {tmp_path}")
    body = """
        store = Store(sys.argv[1])
        store.prepare({})
        try:
            for k in range(1000):
                store.write(rows(*range(100 * k, 100 * k + 100)))
        except StoreError as error:
            print(error)
        print(k, len(load(sys.argv[1])), os.listdir(store.staging), len(os.listdir(store.parts)))
        try:
            compact(store.folder, prune=True)
        except StoreError as error:
            print(error)
        print(len(os.listdir(store.parts)), os.listdir(store.folder))
    """  # noqa: E501
    result = run(body, tmp_path / "sweep", before=before)
    assert result.returncode == 0, result.stderr
    told, state, refused, after = result.stdout.splitlines()
    k = int(state.split()[0])
    assert "No space left on device; saved rows are kept" in told
    assert state == f"{k} {100 * k} [] {k}"
    assert "No space left on device" in refused, (
        "the table of this test does not fit either"
    )
    assert after.startswith(f"{k} ")
    assert "table.parquet" not in after


def test_bytes_and_name_are_synced_in_order(store, monkeypatch):
    calls = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: calls.append(
            "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"
        ),
    )
    replace = os.replace
    monkeypatch.setattr(
        os, "replace", lambda *paths: (calls.append("rename"), replace(*paths))
    )
    store.write(rows(0))
    assert calls == ["file", "rename", "folder"]


def test_bytes_that_do_not_read_back_are_refused(store, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: os.ftruncate(fd, 100))
    with pytest.raises(
        StoreError,
        match=r"2 rows were written but cannot be read back .*is the disk in order",
    ):
        store.write(rows(0, 1))
    assert not list(store.parts.iterdir())
    assert not list(store.staging.iterdir())


def test_rows_missing_on_reading_back_are_refused(store, monkeypatch):
    def shorten(fd):
        path = os.readlink(f"/proc/self/fd/{fd}")
        pq.write_table(pq.read_table(path).slice(1), path)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to find the file behind a descriptor")
    monkeypatch.setattr(os, "fsync", shorten)
    with pytest.raises(
        StoreError, match="2 rows were written but cannot be read back;"
    ):
        store.write(rows(0, 1))
    assert not list(store.parts.iterdir())


def test_two_processes_write_one_folder(store):
    body = """
        store = Store(sys.argv[1])
        store.prepare({"by": os.getpid()})
        first = int(sys.argv[2])
        for k in range(first, first + 12):
            store.write(rows(*range(10 * k, 10 * k + 10)))
            store.note("failures/same", {"k": k})
    """
    both = [
        subprocess.Popen(script(body, store.folder, first), env=environment())
        for first in (0, 6)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(list(store.parts.iterdir())) == 18
    assert len(quiet_load(store.folder)) == 180
    assert store.read_manifest()["by"] in [process.pid for process in both]  # type: ignore[index]
    assert not list(store.staging.iterdir())


# --- done


def test_done_counts_runs_of_this_version_and_those_of_others(store):
    store.write(rows(0, 1, 12))
    store.write(rows(13, status="nonfinite", n_correct=None))
    store.write(rows(1, 2, 3, code_version=2))
    store.write(rows(1, precision="default"))
    compact(store.folder)
    store.write(rows(4, code_version=2))
    store.write(rows(5))
    done = store.done(1, "highest")
    assert done.runs == {
        (f"{0:016x}", 0),
        (f"{0:016x}", 1),
        (f"{0:016x}", 5),
        (f"{1:016x}", 2),
        (f"{1:016x}", 3),
    }
    assert {type(value) for run in done.runs for value in run} == {str, int}
    assert done.foreign == {(2, "highest"): 4, (1, "default"): 1}
    assert done.unreadable == []


def put_rubbish(store: Store) -> dict[str, str]:
    """Fills parts/ with what is no part; name -> a word of the reason."""
    good = store.write(rows(0, 1)).read_bytes()
    (store.parts / "truncated.parquet").write_bytes(good[: len(good) // 2])
    (store.parts / "no_footer.parquet").write_bytes(good[:-8])
    (store.parts / "empty.parquet").write_bytes(b"")
    (store.parts / "text.parquet").write_text("not Parquet at all")
    (store.parts / "notes.txt").write_text("hello")
    (store.parts / "folder").mkdir()
    (store.parts / "folder.parquet").mkdir()
    (store.parts / "dangling.parquet").symlink_to("nowhere")
    pd.DataFrame({"seed": [1], "V": [2]}).to_parquet(store.parts / "foreign.parquet")
    mojibake = pa.array([b"\xff\xfe"]).view(pa.string())
    pq.write_table(
        pa.Table.from_pylist(rows(4), SCHEMA).set_column(0, "point_id", mojibake),
        store.parts / "mojibake.parquet",
    )
    pd.DataFrame([row(2, seed="many")]).to_parquet(store.parts / "types.parquet")
    pd.DataFrame([row(3, status=None)]).to_parquet(store.parts / "nulls.parquet")
    return {
        "truncated.parquet": "magic",
        "no_footer.parquet": "magic",
        "empty.parquet": "0 bytes",
        "text.parquet": "magic",
        "notes.txt": "not a .parquet file",
        "folder": "not a .parquet file",
        "folder.parquet": "not a .parquet file",
        "dangling.parquet": "not a .parquet file",
        "foreign.parquet": "no column point_id, code_version, precision, status, N,",
        "mojibake.parquet": "UTF8",
        "types.parquet": "many",
        "nulls.parquet": "nulls in status",
    }


def test_what_is_no_part_is_listed_with_the_reason_and_never_removed(store):
    reasons = put_rubbish(store)
    done = store.done(1, "highest")
    assert done.runs == {(f"{0:016x}", 0), (f"{0:016x}", 1)}
    listed = {path.name: why for path, why in done.unreadable}
    assert listed.keys() == reasons.keys()
    for name, word in reasons.items():
        assert word in listed[name]
    with pytest.warns(
        UserWarning,
        match=r"12 unreadable files left out: dangling.parquet \(.*, and 9 more",
    ) as caught:
        assert len(load(store.folder)) == 2
    assert caught[0].filename == __file__
    result = compact(store.folder, prune=True)
    assert (result.n_rows, result.n_parts) == (2, 1)
    assert {path.name for path, _ in result.unreadable} == reasons.keys()
    assert {path.name for path in store.parts.iterdir()} == reasons.keys()


@pytest.mark.parametrize(
    "pandas",
    [
        [1],
        5,
        {"columns": 5},
        {"columns": None},
        {"columns": {"a": 1}},
        "[" * 9999 + "]" * 9999,
    ],
)
def test_a_part_with_unusual_metadata_is_left_out_and_the_others_are_read(
    store, pandas
):
    store.write(rows(0))
    text = pandas if isinstance(pandas, str) else json.dumps(pandas)
    table = pa.Table.from_pylist(rows(1), SCHEMA).replace_schema_metadata(
        {"pandas": text}
    )
    pq.write_table(table, store.parts / "odd.parquet")
    done = store.done(1, "highest")
    assert [path.name for path, _ in done.unreadable] == ["odd.parquet"]
    assert done.runs == {(f"{0:016x}", 0)}
    with pytest.warns(UserWarning, match="1 unreadable files left out"):
        assert len(load(store.folder)) == 1
    assert compact(store.folder).n_rows == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accuracy", None),
        ("accuracy", float("nan")),
        ("accuracy", float("inf")),
        ("n_correct", None),
    ],
)
def test_a_row_with_status_ok_and_no_result_is_not_done(store, name, value):
    pq.write_table(
        pa.Table.from_pylist([row(0), row(1, **{name: value})], SCHEMA),
        store.parts / "bad.parquet",
    )
    store.write([row(2, accuracy=None, n_correct=None, status="nonfinite")])
    done = store.done(1, "highest")
    assert done.runs == {(f"{0:016x}", 2)}
    assert [why for _, why in done.unreadable] == [
        f"no number in {name} of a row with status ok"
    ]


@pytest.mark.parametrize("lost", [["V"], ["N", "d"], ["n_correct"], ["accuracy", "L"]])
def test_a_part_without_columns_that_every_row_has_is_not_done(store, lost):
    pq.write_table(
        pa.Table.from_pylist(rows(0), SCHEMA).drop_columns(lost),
        store.parts / "partial.parquet",
    )
    done = store.done(1, "highest")
    assert done.runs == set()
    assert all(name in done.unreadable[0][1] for name in lost)


@pytest.mark.parametrize("column", ["accuracy", "jax_version", "seconds"])
def test_a_part_damaged_in_any_column_is_not_done(store, column):
    part = store.write(rows(*range(20)))
    other = store.write(rows(30))
    with pq.ParquetFile(part) as file:
        group = file.metadata.row_group(0)
        chunk = next(
            c
            for c in map(group.column, range(group.num_columns))
            if c.path_in_schema == column
        )
    damaged = bytearray(part.read_bytes())
    damaged[
        (chunk.dictionary_page_offset or chunk.data_page_offset)
        + chunk.total_compressed_size
        - 1
    ] ^= 1
    part.write_bytes(damaged)
    done = store.done(1, "highest")
    assert done.runs == {(f"{3:016x}", 0)}
    assert [path for path, _ in done.unreadable] == [part]
    with pytest.warns(UserWarning, match="1 unreadable files left out"):
        assert len(load(store.folder)) == 1
    store.write(rows(*range(20)))  # what the next sweep does
    assert len(store.done(1, "highest").runs) == len(quiet_load(store.folder)) == 21
    assert part.exists()
    assert other.exists()


def test_any_damage_to_a_part_is_no_exception_and_no_wrong_number(store):
    good = store.write(rows(*range(20))).read_bytes()
    chance = random.Random(1)
    (store.parts / "good.parquet").write_bytes(good)
    path = store.parts / "damaged.parquet"
    whole = read_file(store.parts / "good.parquet")
    for i in range(100):
        damaged = bytearray(good)
        for _ in range(3):
            damaged[chance.randrange(len(good))] = chance.randrange(256)
        path.write_bytes(damaged)
        tables, unreadable = read([path])
        assert (
            [p for p, _ in unreadable] == [path]
            if not tables
            else tables[path].equals(whole)
        ), "either whole or left out"
        if i % 20 == 0:
            done = store.done(1, "highest")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                frame = load(store.folder)
            assert done.runs == {(r["point_id"], r["seed"]) for r in rows(*range(20))}
            assert frame.to_dict("records") == rows(*range(20)), (
                "the damaged file comes first"
            )


def test_a_damaged_name_of_a_column_is_no_column_that_was_added_later(store):
    good = store.write(rows(*range(20))).read_bytes()
    (store.parts / "good.parquet").write_bytes(good)
    places = [found.start() for found in re.finditer(b"train_accuracy", good)]
    assert places
    for place in places:
        (store.parts / "damaged.parquet").write_bytes(
            good[:place] + b"troin" + good[place + 5 :]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert load(store.folder).to_dict("records") == rows(*range(20))


# --- one row per run


def test_load_keeps_the_ok_row_and_says_how_many_it_dropped(store):
    store.write(rows(0, 1, 2, 3, status="degenerate", form="bad"))
    store.write(rows(1, 3, form="good"))
    store.write(rows(3, 4, status="nonfinite", form="worse"))
    with pytest.warns(UserWarning, match="dropped 3 rows") as caught:
        frame = load(store.folder)
    assert dict(zip(frame.seed, frame.form, strict=True)) == {
        0: "bad",
        1: "good",
        2: "bad",
        3: "good",
        4: "worse",
    }
    assert [str(w.message) for w in caught] == [
        "dropped 3 rows: one is kept per (point_id, seed, step), ok before others, then"
        " the newest code_version"
    ]
    assert caught[0].filename == __file__


def test_load_prefers_ok_then_the_newest_version(store):
    store.write(rows(0, 1, 2, code_version=2, precision="default"))
    store.write(rows(0, 1, code_version=10))
    store.write(rows(1, code_version=11, status="nonfinite"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = load(store.folder)
    assert dict(zip(frame.seed, frame.code_version, strict=True)) == {
        0: 10,
        1: 10,
        2: 2,
    }
    dropped, mixed = sorted(str(w.message) for w in caught)
    assert dropped.startswith("dropped 3 rows")
    assert dropped.endswith("; 3 were of another code_version or precision")
    assert mixed.startswith("rows of more than one code_version, precision: ")
    assert "2 rows of 10, highest" in mixed
    assert "1 rows of 2, default" in mixed


def test_rules_against_a_plain_loop(store):
    chance = random.Random(2)
    written = []
    for k in range(12):
        some = [
            row(
                i,
                status=chance.choice(["ok", "degenerate"]),
                code_version=chance.randint(1, 3),
                draw_check=1000 * k + i,
            )
            for i in chance.sample(range(40), 15)
        ]
        written += some
        store.write(some)
    ranks: dict[tuple, list] = {}
    for r in written:
        ranks.setdefault((r["point_id"], r["seed"]), []).append(
            (r["status"] == "ok", r["code_version"])
        )
    with (
        pytest.warns(UserWarning, match="more than one"),
        pytest.warns(UserWarning, match=f"dropped {len(written) - len(ranks)} rows"),
    ):
        frame = load(store.folder)
    kept = {
        (p, s): (status == "ok", v)
        for p, s, status, v in frame[
            ["point_id", "seed", "status", "code_version"]
        ].values.tolist()
    }
    assert kept == {run: max(these) for run, these in ranks.items()}
    # whole rows, not columns of several
    whole = {tuple(r.values()) for r in written}
    assert all(tuple(r) in whole for r in frame.itertuples(index=False, name=None))
    versions = {(r["point_id"], r["seed"], r["code_version"]) for r in written}
    assert compact(store.folder, prune=True).n_rows == len(versions)


def test_load_takes_files_folders_parts_and_lists(tmp_path, store):
    other = Store(tmp_path / "other")
    other.prepare({})
    part = store.write(rows(30, 31))
    other.write(rows(10, 11, 12))
    compact(other.folder, prune=True)
    assert quiet_load(part).seed.tolist() == [0, 1]
    assert quiet_load(str(store.parts)).seed.tolist() == [0, 1]
    assert quiet_load(other.table).seed.tolist() == [0, 1, 2]
    both = quiet_load([store.folder, str(other.folder), part])
    assert both.point_id.tolist() == [f"{1:016x}"] * 3 + [f"{3:016x}"] * 2
    assert both.index.tolist() == [0, 1, 2, 3, 4]
    other.write(rows(30, status="nonfinite"))
    with pytest.warns(UserWarning, match="dropped 1 rows"):
        assert set(load([other.folder, store.folder]).status) == {"ok"}


def test_load_sorts_by_the_point_then_the_seed(store):
    store.write(
        [
            row(9, V=8, N=64),
            row(1, V=16, N=32),
            row(5, V=8, N=128),
            row(3, V=8, N=64),
            row(4, V=4, root_seed=1),
        ]
    )
    assert quiet_load(store.folder)[["V", "N", "seed"]].values.tolist() == [
        [8, 64, 3],
        [8, 64, 9],
        [8, 128, 5],
        [16, 32, 1],
        [4, 1004, 4],
    ]


def test_no_rows_is_an_error_that_says_what_was_looked_for(tmp_path, store):
    for path in (
        tmp_path / "nowhere",
        store.folder,
        store.parts,
        [store.folder, tmp_path / "nowhere"],
        [],
    ):
        with pytest.raises(
            StoreError,
            match=(
                r"no rows in .*looked for .*table\.parquet or parts/\*\.parquet; has"
                r" the sweep run"
            ),
        ):
            load(path)
    pq.write_table(SCHEMA.empty_table(), store.parts / "no_rows.parquet")
    for no_rows in (
        lambda: load(store.folder),
        lambda: load(store.parts / "no_rows.parquet"),
        lambda: compact(store.folder),
    ):
        with pytest.raises(StoreError, match="no rows in"):
            no_rows()
    (store.parts / "empty.parquet").write_bytes(b"")
    for path in (store.folder, store.parts / "empty.parquet"):
        with pytest.raises(StoreError, match=r"unreadable: empty\.parquet \(.*0 bytes"):
            load(path)


COUNTED = pa.proxy_memory_pool(pa.default_memory_pool())
"""A memory pool that counts. It must outlive the arrays that it allocates."""


def test_load_needs_memory_for_one_table(store):
    n_rows, n_parts = 20_000, 2
    few = pa.Table.from_pylist(rows(0), SCHEMA).take(pa.array([0] * n_rows))
    place = few.column_names.index("seed")
    for part in range(n_parts):
        seeds = pa.array(range(part * n_rows, (part + 1) * n_rows))
        table = few.set_column(place, few.field("seed"), seeds)
        pq.write_table(table, store.parts / f"{part}.parquet")
    usual = pa.default_memory_pool()
    pa.set_memory_pool(COUNTED)
    try:
        frame = load(store.folder)
    finally:
        pa.set_memory_pool(usual)
    assert frame["seed"].tolist() == list(range(n_parts * n_rows))
    size = frame.memory_usage(deep=True).sum()
    assert COUNTED.max_memory() < 1.5 * size


# --- compact


@pytest.mark.parametrize("prune", [False, True])
def test_compact_merges_and_prunes_only_if_asked(store, prune):
    first = store.write(rows(22, 21, 3))
    second = store.write(rows(1, 3, status="degenerate"))
    store.write(rows(1, code_version=2))
    result = compact(store.folder, prune=prune)
    assert (result.n_rows, result.n_dropped, result.n_parts) == (5, 1, 3)
    assert len(list(store.parts.iterdir())) == 3 * (not prune)
    table = pq.read_table(store.table)
    assert table.schema.remove_metadata() == SCHEMA
    assert {f.name: f.metadata[b"description"].decode() for f in table.schema} == {
        name: about for name, (_, about) in COLUMNS.items()
    }
    assert json.loads(table.schema.metadata[b"jaxrecall"])["code_version"] == [1, 2]
    assert list(
        zip(table["seed"].to_pylist(), table["status"].to_pylist(), strict=True)
    ) == [
        (1, "degenerate"),
        (1, "ok"),
        (3, "ok"),
        (1, "ok"),
        (2, "ok"),
    ]
    assert not [p for p in store.staging.iterdir() if p.suffix == ".parquet"]
    assert (first.exists(), second.exists()) == (not prune, not prune)


@pytest.mark.parametrize("prune", [False, True])
def test_compact_twice_and_new_parts_between(store, prune):
    store.write(rows(0, 1, n_tied=None))
    compact(store.folder, prune=prune)
    once = pq.read_table(store.table)
    again = compact(store.folder, prune=prune)
    assert (again.n_rows, again.n_dropped) == (2, 0 if prune else 2)
    assert pq.read_table(store.table).equals(once)
    store.write(rows(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error" if prune else "ignore")
        assert load(store.folder).seed.tolist() == [0, 1, 2, 3]
    assert compact(store.folder, prune=prune).n_rows == 4
    assert len(store.done(1, "highest").runs) == 4
    assert len(quiet_load(store.table)) == 4


def test_the_table_is_safe_before_a_part_goes(store, monkeypatch):
    part = store.write(rows(0, 1))
    unlink = Path.unlink

    def watched(path, **keywords):
        if path == part:
            assert len(quiet_load(store.table)) == 2
            synced.append(True)
        return unlink(path, **keywords)

    synced: list[bool] = []
    monkeypatch.setattr(Path, "unlink", watched)
    compact(store.folder, prune=True)
    assert synced
    assert not part.exists()


def test_a_compact_that_fails_leaves_table_and_parts(store):
    store.write(rows(0))
    compact(store.folder, prune=True)
    store.write(rows(1))
    before = everything(store.folder)
    body = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            compact(sys.argv[1], prune=True)
        except StoreError as error:
            print(error)
    """
    assert "File too large" in run(body, store.folder).stdout
    assert everything(store.folder) == before


def test_an_unreadable_table_is_never_overwritten(store):
    store.write(rows(0))
    store.table.write_bytes(b"damaged")
    assert [path for path, _ in store.done(1, "highest").unreadable] == [store.table]
    with pytest.raises(
        StoreError,
        match=r"table\.parquet: cannot be read .* move it away and run again",
    ):
        compact(store.folder, prune=True)
    assert store.table.read_bytes() == b"damaged"
    assert len(list(store.parts.iterdir())) == 1


def test_a_prune_during_load_loses_no_row(store, monkeypatch):
    from jaxrecall.sweep.store import table as module

    store.write(rows(0))
    store.write(rows(1))
    store.write(rows(2))
    read_file, pruned = module.read_file, []

    def read_then_prune(path):
        try:
            return read_file(path)
        finally:
            if not pruned:
                pruned.append(path)
                compact(store.folder, prune=True)

    monkeypatch.setattr(module, "read_file", read_then_prune)
    with pytest.warns(UserWarning, match="dropped 1 rows") as caught:
        assert load(store.folder).seed.tolist() == [0, 1, 2]
    assert len(caught) == 1


def test_one_compact_at_a_time(store):
    store.write(rows(0))
    with (
        compaction_lock(store),
        pytest.raises(StoreError, match="another compact is running on it"),
    ):
        compact(store.folder)
    assert compact(store.folder).n_rows == 1


def test_rows_of_merged_parts_are_read_once(store, monkeypatch):
    from jaxrecall.sweep.store import table as module

    store.write(rows(0, status="degenerate"))
    changed = store.write(rows(1))
    compact(store.folder)
    store.write(rows(2))
    read_paths = []

    def noted(path):
        read_paths.append(path)
        return read_file(path)

    monkeypatch.setattr(module, "read_file", noted)
    assert load(store.folder).seed.tolist() == [0, 1, 2]
    assert len(read_paths) == 2, "the new part and the table"
    table = store.table.read_bytes()
    store.table.write_bytes(table[:2000] + b"damage" + table[2006:])
    with pytest.warns(UserWarning, match=r"1 unreadable files left out: table"):
        assert load(store.folder).seed.tolist() == [0, 1, 2]
    store.table.write_bytes(table)
    changed.write_bytes(changed.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"1 unreadable files left out"):
        assert load(store.folder).seed.tolist() == [0, 1, 2]


def test_an_older_table_and_unknown_columns(store):
    older = pa.Table.from_pylist(rows(0, 1), SCHEMA).drop_columns(["exact", "n_tied"])
    older = older.replace_schema_metadata({KEY: b'{"created": "2026-11-20"}'})
    pq.write_table(older.select(older.column_names[::-1]), store.table)
    assert list(quiet_load(store.table).columns) == list(COLUMNS)
    extra = pa.Table.from_pylist(rows(2), SCHEMA).append_column(
        "mood", pa.array(["good"])
    )
    pq.write_table(
        extra.select(extra.column_names[::-1]), store.parts / "extra.parquet"
    )
    store.write(rows(3))
    values = store.last_values("n_tied")[0]
    assert {run.seed: n for runs in values.values() for run, (n,) in runs.items()} == {
        0: None,
        1: None,
        2: row(2)["n_tied"],
        3: row(3)["n_tied"],
    }
    assert compact(store.folder, prune=True).n_rows == 4
    for frame in (quiet_load(store.folder), pd.read_parquet(store.table)):
        assert list(frame.columns) == [*COLUMNS, "mood"]
        assert frame.n_tied.dtype == "Int64"
        assert frame.n_tied.isna().tolist() == [True, True, False, False]
        assert frame.n_tied[2] == row(2)["n_tied"]
        assert frame.exact.isna().tolist() == [True, True, False, False]
        assert frame.mood.dropna().tolist() == ["good"]


def test_other_writers_of_the_same_columns_are_read(store):
    pl = pytest.importorskip("polars")
    pl.DataFrame(rows(0, 1)).write_parquet(store.parts / "polars.parquet")
    frame = pd.DataFrame(rows(2, 3)).astype({"form": "category", "V": "int32"})
    frame.to_parquet(store.parts / "pandas.parquet")
    compact(store.folder, prune=True)
    assert quiet_load(store.folder).to_dict("records") == rows(0, 1, 2, 3)
    assert pq.read_table(store.table).schema.remove_metadata() == SCHEMA


def test_columns_that_do_not_go_together_are_an_error(store):
    for k, mood in enumerate(("good", 3)):
        table = pa.Table.from_pylist(rows(k), SCHEMA).append_column(
            "mood", pa.array([mood])
        )
        pq.write_table(table, store.parts / f"{k}.parquet")
    with pytest.raises(StoreError, match=r"mood.*rename that column"):
        compact(store.folder, prune=True)
    assert len(list(store.parts.iterdir())) == 2
    assert len(store.done(1, "highest").runs) == 2


# --- other readers, other processes


def test_polars_reads_the_parts(store):
    pl = pytest.importorskip("polars")
    store.write(rows(0, 1, n_tied=None))
    store.write(rows(2, 3))
    frame = pl.read_parquet(store.parts / "*.parquet")
    kinds = {
        "int64": pl.Int64,
        "float64": pl.Float64,
        "bool": pl.Boolean,
        "string": pl.String,
    }
    assert dict(frame.schema) == {
        name: kinds[kind] for name, (kind, _) in COLUMNS.items()
    }
    assert frame.sort("seed").to_dicts() == rows(0, 1, n_tied=None) + rows(2, 3)


def test_duckdb_reads_the_parts(store):
    duckdb = pytest.importorskip("duckdb")
    store.write(rows(0, 1, n_tied=None))
    store.write(rows(2, 3))
    compact(store.folder)
    kinds = {
        "int64": "BIGINT",
        "float64": "DOUBLE",
        "bool": "BOOLEAN",
        "string": "VARCHAR",
    }
    with duckdb.connect() as connection:
        for files in (store.parts / "*.parquet", store.table):
            result = connection.sql(f"from read_parquet('{files}') order by seed")
            assert dict(zip(result.columns, map(str, result.types), strict=True)) == {
                n: kinds[k] for n, (k, _) in COLUMNS.items()
            }
            assert [
                dict(zip(COLUMNS, r, strict=True)) for r in result.fetchall()
            ] == rows(0, 1, n_tied=None) + rows(2, 3)


def test_done_starts_no_pandas_and_nothing_starts_jax(store):
    store.write(rows(0))
    body = """
        store = Store(sys.argv[1])
        assert len(store.done(1, "highest").runs) == 1
        assert "pandas" not in sys.modules
        store.write(rows(1))
        compact(store.folder)
        load(store.table)
        assert "jax" not in sys.modules
    """
    result = run(body, store.folder)
    assert result.returncode == 0, result.stderr


# --- the command line


def test_command_line(store, capsys):
    store.write(rows(0, 1))
    store.write(rows(1, 2))
    (store.parts / "bad.parquet").write_bytes(b"")
    assert cli.main([str(store.folder)]) == 0
    out = capsys.readouterr().out
    assert f"{store.table}: 3 rows, " in out
    assert "2 parts merged (kept; --prune removes them), 1 duplicates dropped" in out
    assert f"cannot be read, left unchanged: {store.parts / 'bad.parquet'} (" in out
    assert cli.main([str(store.folder), "--prune"]) == 0
    assert "2 parts merged (2 removed), 4 duplicates dropped" in capsys.readouterr().out


def test_command_line_tells_errors_in_one_line(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "jaxrecall.compact"]
    result = subprocess.run(
        [*command, tmp_path / "none"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [
        line
        for line in result.stderr.splitlines()
        if not line.startswith("import time:")
    ]
    assert result.returncode == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"no rows in {tmp_path / 'none'}")
    assert not list(tmp_path.iterdir())
    result = subprocess.run(
        [*command, "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert "--prune" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "pyarrow" in imported
    assert not imported & {"jax", "pandas"}
