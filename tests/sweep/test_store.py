"""The results folder: what is written comes back, nothing half-written is seen, and
what is done is decided by rows.
"""

import inspect
import json
import os
import random
import re
import resource
import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pandas.testing import assert_frame_equal

from jaxrecall import compact as command
from jaxrecall import load
from jaxrecall.compact import compact, compaction_lock
from jaxrecall.errors import StoreError
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.files import atomic_write
from jaxrecall.sweep.store import Store, table
from jaxrecall.sweep.store.table import KEY, SCHEMA, read_part

VERSION = {"code_version": 1, "precision": "highest"}


def row(i: int, **changes: object) -> dict:
    """A row unlike any other in every number; 10 seeds to a point."""
    plain = {
        "int64": 1000 + i,
        "float64": i + 1 / 3,
        "bool": i % 2 == 0,
        "string": f"text {i}",
    }
    values = {name: plain[kind] for name, (kind, _) in COLUMNS.items()}
    run = {"point_id": f"{i // 10:016x}", "seed": i % 10, "root_seed": 0}
    return values | VERSION | {"status": "ok"} | run | changes


def rows(*which: int, **changes: object) -> list[dict]:
    return [row(i, **changes) for i in which]


def runs(*which: int) -> set[tuple[str, int]]:
    return {(each["point_id"], each["seed"]) for each in rows(*which)}


def done(store: Store) -> set[tuple[str, int]]:
    by_version, *_ = store.last_values()
    return {*by_version.get((1, "highest"), ())}


PRELUDE = f"""
import os, signal, sys
from jaxrecall.model.columns import COLUMNS
from jaxrecall.sweep.store import Store
VERSION = {VERSION}
{inspect.getsource(row)}
{inspect.getsource(rows)}
"""
"""Code that makes rows in another process."""


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "sweep")
    store.prepare({"name": "sweep"})
    return store


def put(store: Store, name: str, rows: list[dict], **columns: list) -> Path:
    """A part of another program, with further columns."""
    part = pa.Table.from_pylist(rows, SCHEMA)
    for column, values in columns.items():
        part = part.append_column(column, pa.array(values))
    pq.write_table(part, store.parts / f"{name}.parquet")
    return store.parts / f"{name}.parquet"


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writing more to a file fails here, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- rows in, rows out


def test_rows_come_back_exactly(store):
    written = rows(*range(25), gamma=1e38, eta=5e-324)
    store.write(written[::-1])
    frame = load(store.folder)
    assert isinstance(frame.index, pd.RangeIndex)
    assert frame.to_dict("records") == written
    plain = {"int64": [1], "float64": [0.5], "bool": [True], "string": ["a"]}
    natural = pd.DataFrame(plain).dtypes
    kinds = {name: natural[kind] for name, (kind, _) in COLUMNS.items()}
    assert list(frame.dtypes.items()) == list(kinds.items())


def test_nulls_keep_ints_whole_and_bools_logical(store):
    nothing = dict.fromkeys(("n_correct", "accuracy", "form", "trigger_in_value"))
    whole, nan = row(0, n_correct=2**53 + 1), row(2, snr=float("nan"))
    part = store.write([whole, row(1, status="nonfinite", **nothing), nan])
    frame = load(store.folder)
    some = frame[["n_correct", "trigger_in_value", "accuracy"]]
    assert [*map(str, some.dtypes)] == ["Int64", "boolean", "float64"]
    assert frame.n_correct[0] == 2**53 + 1
    missing = frame.isna().sum()
    assert missing[missing > 0].to_dict() == dict.fromkeys([*nothing, "snr"], 1)
    assert_frame_equal(pd.read_parquet(part), frame)
    assert pq.read_table(part)["snr"].null_count == 0, "nan is a number, not a null"


def test_part_is_sorted_compressed_and_says_where_it_comes_from(store):
    part = store.write(rows(12, 3, 7, 0, jax_version="0.9"))
    seeds = pq.read_metadata(part).row_group(0).column(1)
    assert (seeds.path_in_schema, seeds.compression) == ("seed", "ZSTD")
    assert (seeds.statistics.min, seeds.statistics.max) == (0, 7)
    written = pq.read_table(part)
    assert written.schema.remove_metadata() == SCHEMA
    provenance = json.loads(written.schema.metadata[KEY])
    assert provenance.pop("created").endswith("+00:00")
    assert provenance == VERSION | {"jax_version": "0.9"}
    assert written["point_id"].to_pylist() == [f"{i:016x}" for i in (0, 0, 0, 1)]
    assert written["seed"].to_pylist() == [0, 3, 7, 2]


def test_name_hashes_the_runs_and_the_version(store):
    batches = [
        rows(1, 2),
        rows(2, 1, accuracy=0.0),
        rows(1, 3),
        rows(1, 2, code_version=2),
        rows(1, 2, precision="default"),
    ]
    written = [store.write(batch).name for batch in batches]
    assert written[0] == written[1]
    assert len({*written}) == 4
    assert all(re.fullmatch(r"[0-9a-f]{16}\.parquet", name) for name in written)
    assert names(store.parts) == sorted({*written})
    assert names(store.staging) == []


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ([{"point_id": "a"}], "'seed'"),
        ([row(0) | {"extra": 1}], "no such columns: extra"),
        ([row(0, seed="x")], "^rows: seed: "),
        ([row(0, n_correct=2**70)], "^rows: n_correct: "),
        ([row(0, seed=None)], "nulls in seed"),
    ],
)
def test_rows_that_are_no_rows_are_refused(store, batch, error):
    before = everything(store.folder)
    with pytest.raises((StoreError, ValueError, KeyError), match=error):
        store.write(batch)
    assert everything(store.folder) == before


# --- the folder itself


def test_prepare_makes_the_folder_and_keeps_what_is_there(tmp_path):
    store = Store(str(tmp_path / "a" / "b"))
    store.check()
    assert store.read_manifest() is None
    assert store.last_values() == ({}, [], [])
    assert names(tmp_path) == [], "looking makes nothing"
    store.prepare({"grid": [1, 2]})
    assert names(store.folder) == ["_staging", "manifest.json", "parts"]
    store.write(rows(0))
    store.prepare({"grid": [3]})
    assert store.read_manifest() == {"grid": [3]}
    assert len(load(store.folder)) == 1
    store.manifest.write_bytes(b'{"name": ')
    with pytest.raises(StoreError, match=r"manifest\.json: not JSON"):
        store.read_manifest()


def test_done_of_a_folder_that_holds_other_things_reads_none_of_them(store, tmp_path):
    shutil.copy(store.write(rows(0)), tmp_path / "stray.parquet")
    assert Store(tmp_path).last_values() == ({}, [], [])


@pytest.mark.parametrize("below", ["", "sub", "sub/sub"])
def test_a_file_in_the_way_is_named_and_nothing_is_made(tmp_path, below):
    (tmp_path / "taken").write_text("mine")
    store = Store(tmp_path / "taken" / below)
    for refused in (store.check, lambda: compact(store.folder)):
        with pytest.raises(StoreError, match="/taken is not a folder"):
            refused()
    assert everything(tmp_path) == {"taken": b"mine"}


@pytest.mark.parametrize("obstacle", ["parts", "_staging", "manifest.json/x"])
def test_a_refused_prepare_leaves_nothing_behind(tmp_path, obstacle):
    path = tmp_path / "sweep" / obstacle
    path.parent.mkdir(parents=True)
    path.write_text("")
    before = everything(tmp_path)
    with pytest.raises(StoreError, match="sweep"):
        Store(tmp_path / "sweep").prepare({})
    with pytest.raises(TypeError):
        Store(tmp_path / "new").prepare({"x": object()})
    with pytest.raises(StoreError, match="File name too long"):
        Store(tmp_path / "new" / ("x" * 300)).prepare({})
    assert everything(tmp_path) == before


def test_a_folder_that_vanishes_is_said(store):
    shutil.rmtree(store.folder)
    for gone in (lambda: store.write(rows(1)), lambda: store.note("failures/abc", {})):
        with pytest.raises(StoreError, match="No such file or directory; saved rows"):
            gone()
    store.clear_failures({("a", 0)})
    assert not store.folder.exists(), "a folder that somebody removed is not made again"


def test_failures_come_and_go(store):
    path = store.note("failures/abc", {"error": "boom", "runs": [["a", 0], ["b", 1]]})
    assert path == store.folder / "failures" / "abc.json"
    assert json.loads(path.read_text())["error"] == "boom"
    (store.failures / "note.json").write_text("[1, 2]")
    store.clear_failures({("a", 0)})
    assert path.exists(), "a run that is not among them may still be missing"
    for _ in range(2):
        store.clear_failures({("a", 0), ("b", 1), ("c", 2)})
        assert names(store.failures) == ["note.json"]


# --- nothing half-written is ever seen


def test_old_files_in_staging_are_swept_and_nothing_else_is(store):
    ages = {
        "12-0123abcd-old.parquet": 4000,
        "12-0123abcd-new.parquet": 3000,
        "compact.lock": 9e6,
        "mine.txt": 9e6,
    }
    for name, seconds in ages.items():
        (store.staging / name).write_text("left over")
        os.utime(store.staging / name, (time.time() - seconds,) * 2)
    (store.staging / "12-0123abcd-dangling").symlink_to("nowhere")
    store.prepare({})
    kept = {*ages, "12-0123abcd-dangling"} - {"12-0123abcd-old.parquet"}
    assert names(store.staging) == sorted(kept)


def test_an_atomic_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def refuse(temporary: Path) -> None:
        assert (temporary.read_bytes(), path.read_bytes()) == (b"new", b"old")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        atomic_write(path, b"new", check=refuse)
    with pytest.raises(TypeError):
        atomic_write(path, object())
    assert everything(tmp_path) == {"file": b"old"}
    atomic_write(path, b"new")
    assert everything(tmp_path) == {"file": b"new"}


def test_a_disk_that_takes_no_more_keeps_finished_parts_and_the_table(store):
    store.write(rows(0))
    compact(store.folder, prune=True)
    store.write(rows(1))
    before = everything(store.folder)
    refused = "File too large; saved rows are kept"
    with file_size_limit(1000), pytest.raises(StoreError, match=refused):
        compact(store.folder, prune=True)
    with file_size_limit(1000), pytest.raises(StoreError, match=refused) as caught:
        store.write(rows(2))
    assert isinstance(caught.value.__cause__, OSError)
    assert everything(store.folder) == before
    assert len(load(store.folder)) == 2


def test_bytes_and_name_are_synced_in_order(store, monkeypatch):
    calls = []
    replace = os.replace

    def sync(fd: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")

    def rename(*paths: Path) -> None:
        calls.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    store.write(rows(0))
    assert calls == ["file", "rename", "folder"]


def shorten(fd: int) -> None:
    path = os.readlink(f"/proc/self/fd/{fd}")
    pq.write_table(pq.read_table(path).slice(1), path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("fault", [lambda fd: os.ftruncate(fd, 100), shorten])
def test_bytes_that_do_not_read_back_are_refused(store, monkeypatch, fault):
    before = everything(store.folder)
    monkeypatch.setattr(os, "fsync", fault)
    with pytest.raises(StoreError, match="2 rows were written but cannot be read back"):
        store.write(rows(0, 1))
    assert everything(store.folder) == before


# --- done


def test_done_counts_runs_of_this_version_and_those_of_others(store):
    store.write(rows(0, 1, 12))
    store.write(rows(13, status="nonfinite", n_correct=None))
    store.write(rows(1, 2, 3, code_version=2))
    store.write(rows(1, precision="default"))
    compact(store.folder)
    store.write(rows(4, code_version=2))
    store.write(rows(5))
    by_version, unreadable, _ = store.last_values()
    ours = by_version.pop((1, "highest"))
    assert ours.keys() == runs(0, 1, 5, 12, 13)
    assert {type(value) for run in ours for value in run} == {str, int}
    n_others = {version: len(rows) for version, rows in by_version.items()}
    assert (n_others, unreadable) == ({(2, "highest"): 4, (1, "default"): 1}, [])


REASONS = yaml.safe_load("""
truncated.parquet: magic
empty.parquet: 0 bytes
notes.txt: not a .parquet file
folder.parquet: not a .parquet file
dangling.parquet: not a .parquet file
name.parquet: names of columns are damaged
number.parquet: CRC
foreign.parquet: no column point_id, code_version, precision, status, N,
no_V.parquet: no column V
no_n_correct.parquet: no column n_correct
types.parquet: many
nulls.parquet: nulls in status
mojibake.parquet: UTF8
infinite.parquet: no number in accuracy of a row with status ok
unknown.parquet: no number in n_correct, accuracy of a row with status ok
dict.parquet: ""
deep.parquet: ""
""")
"""What is no part, and words of why."""


def damaged(part: Path, column: str) -> bytes:
    """The bytes of a part with one bit changed at the end of a column."""
    group = pq.read_metadata(part).row_group(0)
    chunk = group.column(SCHEMA.get_field_index(column))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(part.read_bytes())
    data[start + chunk.total_compressed_size - 1] ^= 1
    return bytes(data)


def put_rubbish(store: Store) -> None:
    """Fills parts/ with one part and what is no part."""
    part = store.write(rows(0, 1))
    good = part.read_bytes()
    n_footer = 8 + int.from_bytes(good[-8:-4], "little")
    pages, footer = good[:-n_footer], good[-n_footer:]
    files = {
        "truncated": good[: len(good) // 2],
        "empty": b"",
        "name": pages + footer.replace(b"train_accuracy", b"troin_accuracy", 1),
        "number": damaged(part, "accuracy"),
    }
    for name, data in files.items():
        (store.parts / f"{name}.parquet").write_bytes(data)
    (store.parts / "notes.txt").write_text("hello")
    (store.parts / "folder.parquet").mkdir()
    (store.parts / "dangling.parquet").symlink_to("nowhere")
    changes = {
        "types": {"seed": "many"},
        "nulls": {"status": None},
        "infinite": {"accuracy": float("inf")},
        "unknown": {"accuracy": None, "n_correct": None},
    }
    tables = {"foreign": pd.DataFrame({"seed": [1], "V": [2]})}
    tables |= {name: pd.DataFrame(rows(2, **these)) for name, these in changes.items()}
    for column in ("V", "n_correct"):
        tables[f"no_{column}"] = pd.DataFrame(rows(3)).drop(columns=column)
    for name, frame in tables.items():
        frame.to_parquet(store.parts / f"{name}.parquet")
    mojibake = pa.array([b"\xff\xfe"]).view(pa.string())
    path = put(store, "mojibake", rows(4))
    pq.write_table(pq.read_table(path).set_column(0, "point_id", mojibake), path)
    deep = "[" * 9999 + "]" * 9999
    for name, pandas in (("dict", '{"columns": 5}'), ("deep", deep)):
        path = put(store, name, rows(5))
        odd = pq.read_table(path).replace_schema_metadata({"pandas": pandas})
        pq.write_table(odd, path)


def test_what_is_no_part_is_listed_with_the_reason_and_never_removed(store):
    put_rubbish(store)
    assert done(store) == runs(0, 1)
    _, unreadable, _ = store.last_values()
    listed = {path.name: why for path, why in unreadable}
    assert listed.keys() == REASONS.keys()
    for name, words in REASONS.items():
        assert words in listed[name]
    told = r"17 unreadable files left out: dangling.parquet \(.*, and 14 more"
    with pytest.warns(UserWarning, match=told) as caught:
        assert len(load(store.folder)) == 2
    assert caught[0].filename == __file__
    result = compact(store.folder, prune=True)
    assert (result.n_rows, result.n_parts) == (2, 1)
    assert {path.name for path, _ in result.unreadable} == REASONS.keys()
    assert {*names(store.parts)} == REASONS.keys()


# --- one row per run


def test_load_keeps_one_row_of_a_run_ok_before_others_then_the_newest_version(store):
    """And counts what it drops and mixes."""
    chance = random.Random(2)
    written = []
    for k in range(8):
        some = []
        for i in chance.sample(range(30), 15):
            status = chance.choice(["ok", "degenerate"])
            of = {"status": status, "code_version": chance.randint(1, 3)}
            some.append(row(i, draw_check=1000 * k + i, **of))
        written += some
        store.write(some)
    ranks: dict[tuple, set] = {}
    for each in written:
        rank = each["status"] == "ok", each["code_version"]
        ranks.setdefault((each["point_id"], each["seed"]), set()).add(rank)
    with pytest.warns(UserWarning, match="rows") as caught:
        frame = load(store.folder)
    assert [warning.filename for warning in caught] == [__file__] * 2
    n_versions = 0
    for kept in frame.to_dict("records"):
        assert kept in written, "whole rows, not columns of several"
        of_run = ranks.pop((kept["point_id"], kept["seed"]))
        assert (kept["status"] == "ok", kept["code_version"]) == max(of_run)
        n_versions += len({version for _, version in of_run})
    assert not ranks
    dropped, mixed = sorted(str(warning.message) for warning in caught)
    n_others = n_versions - len(frame)
    assert dropped.startswith(f"dropped {len(written) - len(frame)} rows: ")
    assert dropped.endswith(f"; {n_others} were of another code_version or precision")
    counts = {
        f"{n} rows of {v}, highest" for v, n in Counter(frame.code_version).items()
    }
    assert {*mixed.partition(": ")[2].split("; ")} == counts
    assert compact(store.folder, prune=True).n_rows == n_versions


def test_load_takes_files_folders_parts_and_lists(tmp_path, store):
    other = Store(tmp_path / "other")
    other.prepare({})
    part = store.write(rows(30, 31))
    other.write(rows(10, 11, 12))
    compact(other.folder, prune=True)
    for path, n in ((part, 2), (str(store.parts), 2), (other.table, 3)):
        assert load(path).seed.tolist() == [*range(n)]
    both = load([store.folder, str(other.folder), part])
    assert both.seed.tolist() == [0, 1, 2, 0, 1]
    assert both.index.tolist() == [*range(5)]
    other.write(rows(30, status="nonfinite"))
    with pytest.warns(UserWarning, match="dropped 1 rows"):
        assert {*load([other.folder, store.folder]).status} == {"ok"}


def test_load_sorts_by_the_point_then_the_seed(store):
    given = [(8, 64, 9), (16, 32, 1), (8, 128, 5), (8, 64, 3)]
    some = [row(seed, V=V, N=N) for V, N, seed in given]
    store.write([*some, row(4, V=4, root_seed=1)])
    seeds = load(store.folder).seed.tolist()
    assert seeds == [*(seed for *_, seed in sorted(given)), 4]


def test_no_rows_is_an_error_that_says_what_was_looked_for(tmp_path, store):
    for path in (store.folder, store.parts, [store.folder, tmp_path / "nowhere"], []):
        with pytest.raises(StoreError, match=r"no rows in .*looked for "):
            load(path)
    pq.write_table(SCHEMA.empty_table(), store.parts / "no_rows.parquet")
    for reader in (load, compact):
        with pytest.raises(StoreError, match="no rows in"):
            reader(store.folder)
    (store.parts / "empty.parquet").write_bytes(b"")
    for path in (store.folder, store.parts / "empty.parquet"):
        with pytest.raises(StoreError, match=r"unreadable: empty\.parquet \(.*0 bytes"):
            load(path)


# --- compact


@pytest.mark.parametrize("prune", [False, True])
def test_compact_merges_and_prunes_only_if_asked(store, prune):
    store.write(rows(22, 21, 3))
    store.write(rows(1, 3, status="degenerate"))
    store.write(rows(1, code_version=2))
    before = names(store.parts)
    result = compact(store.folder, prune=prune)
    assert (result.n_rows, result.n_dropped, result.n_parts) == (5, 1, 3)
    assert names(store.parts) == ([] if prune else before)
    merged = pq.read_table(store.table)
    assert merged.schema.remove_metadata() == SCHEMA
    for name, (_, about) in COLUMNS.items():
        metadata = merged.schema.field(name).metadata
        assert metadata[b"description"].decode() == about
    assert json.loads(merged.schema.metadata[KEY])["code_version"] == [1, 2]
    assert merged["seed"].to_pylist() == [1, 1, 3, 1, 2]
    assert merged["status"].to_pylist() == ["degenerate", *["ok"] * 4]
    assert names(store.staging) == ["compact.lock"]


def test_a_pipe_is_no_lock(store):
    store.write(rows(1))
    os.mkfifo(store.staging / "compact.lock")
    with pytest.raises(StoreError, match=r"\.lock: is not a regular file; move"):
        compact(store.folder)


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.filterwarnings("ignore:dropped")
def test_compact_twice_and_new_parts_between(store, prune):
    store.write(rows(0, 1, n_tied=None))
    compact(store.folder, prune=prune)
    once = pq.read_table(store.table)
    again = compact(store.folder, prune=prune)
    assert (again.n_rows, again.n_dropped) == (2, 0 if prune else 2)
    assert pq.read_table(store.table).equals(once)
    store.write(rows(2, 3))
    assert load(store.folder).seed.tolist() == [0, 1, 2, 3]
    assert compact(store.folder, prune=prune).n_rows == 4


def test_the_table_is_safe_before_a_part_goes(store, monkeypatch):
    part = store.write(rows(0, 1))
    unlink, n_safe = Path.unlink, []

    def watched(path: Path, **keywords: bool) -> None:
        if path.name == part.name:
            n_safe.append(len(load(store.table)))
        unlink(path, **keywords)

    monkeypatch.setattr(Path, "unlink", watched)
    compact(store.folder, prune=True)
    assert n_safe == [2]
    assert not part.exists()


def test_an_unreadable_table_is_never_overwritten(store):
    store.write(rows(0))
    store.table.write_bytes(b"damaged")
    assert [path for path, _ in store.last_values()[1]] == [store.table]
    before = everything(store.parts)
    with pytest.raises(StoreError, match=r"table\.parquet: cannot be read .* move it"):
        compact(store.folder, prune=True)
    assert store.table.read_bytes() == b"damaged"
    assert everything(store.parts) == before


def test_a_prune_during_load_loses_no_row(store, monkeypatch):
    for i in range(3):
        store.write(rows(i))
    pruned = []

    def read_then_prune(path: Path) -> pa.Table:
        try:
            return read_part(path)
        finally:
            if not pruned:
                pruned.append(path)
                compact(store.folder, prune=True)

    monkeypatch.setattr(table, "read_part", read_then_prune)
    with pytest.warns(UserWarning, match="dropped 1 rows") as caught:
        assert load(store.folder).seed.tolist() == [0, 1, 2]
    assert len(caught) == 1


def test_one_compact_at_a_time(store):
    store.write(rows(0))
    refused = pytest.raises(StoreError, match="another compact is running on it")
    with compaction_lock(store), refused:
        compact(store.folder)
    assert compact(store.folder).n_rows == 1


def test_rows_of_merged_parts_are_read_once(store, monkeypatch):
    store.write(rows(0, status="degenerate"))
    changed = store.write(rows(1))
    compact(store.folder)
    store.write(rows(2))
    paths = []

    def noted(path: Path) -> pa.Table:
        paths.append(path)
        return read_part(path)

    monkeypatch.setattr(table, "read_part", noted)
    assert load(store.folder).seed.tolist() == [0, 1, 2]
    assert len(paths) == 2, "the new part and the table"
    merged = store.table.read_bytes()
    store.table.write_bytes(merged[:2000] + b"damage" + merged[2006:])
    with pytest.warns(UserWarning, match="1 unreadable files left out: table"):
        assert load(store.folder).seed.tolist() == [0, 1, 2]
    store.table.write_bytes(merged)
    changed.write_bytes(changed.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="1 unreadable files left out"):
        assert load(store.folder).seed.tolist() == [0, 1, 2]


def test_an_older_table_and_unknown_columns(store):
    older = pa.Table.from_pylist(rows(0, 1), SCHEMA).drop_columns(["exact", "n_tied"])
    older = older.replace_schema_metadata({KEY: b'{"created": "2026-11-20"}'})
    pq.write_table(older.select(older.column_names[::-1]), store.table)
    assert list(load(store.table).columns) == list(COLUMNS)
    put(store, "extra", rows(2), mood=["good"])
    store.write(rows(3))
    known = [row(i)["n_tied"] for i in (2, 3)]
    (values,) = store.last_values("n_tied")[0].values()
    tied = [n for _, (n,) in sorted(values.items())]
    assert tied == [None, None, *known]
    assert compact(store.folder, prune=True).n_rows == 4
    for frame in (load(store.folder), pd.read_parquet(store.table)):
        assert list(frame.columns) == [*COLUMNS, "mood"]
        assert frame.n_tied.dtype == "Int64"
        assert frame.n_tied.fillna(-1).tolist() == [-1, -1, *known]
        assert frame.exact.isna().tolist() == [True, True, False, False]
        assert frame.mood.dropna().tolist() == ["good"]


def test_other_writers_of_the_same_columns_are_read(store):
    polars = pytest.importorskip("polars")
    polars.DataFrame(rows(0, 1)).write_parquet(store.parts / "polars.parquet")
    frame = pd.DataFrame(rows(2, 3)).astype({"form": "category", "V": "int32"})
    frame.to_parquet(store.parts / "pandas.parquet")
    compact(store.folder, prune=True)
    assert load(store.folder).to_dict("records") == rows(0, 1, 2, 3)
    assert pq.read_table(store.table).schema.remove_metadata() == SCHEMA


def test_columns_that_do_not_go_together_are_an_error(store):
    put(store, "0", rows(0), mood=["good"])
    put(store, "1", rows(1), mood=[3])
    before = everything(store.parts)
    with pytest.raises(StoreError, match=r"mood.*rename that column"):
        compact(store.folder, prune=True)
    assert everything(store.parts) == before
    assert done(store) == runs(0, 1)


def test_the_command_counts_what_it_merged_and_lists_what_it_left(store, capsys):
    store.write(rows(0, 1))
    store.write(rows(1, 2))
    (store.parts / "bad.parquet").write_bytes(b"")
    told = []
    for options in ([], ["--prune"]):
        assert command.main([str(store.folder), *options]) == 0
        told.append(capsys.readouterr().out.splitlines())
    assert told[0][0].startswith(f"{store.table}: 3 rows, ")
    kept = "2 files merged (kept; --prune removes them), 1 duplicates dropped"
    assert told[0][1] == kept
    assert told[0][2].startswith("cannot be read, left unchanged: ")
    assert told[1][1] == "2 files merged (2 removed), 4 duplicates dropped"
