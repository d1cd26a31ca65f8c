"""A results folder: rows in, rows out, and which runs are done. No JAX here.

    manifest.json    what the sweep was asked for
    search.json      what a search found
    parts/           finished rows, *.parquet and nothing else, so that any Parquet reader takes the folder
    table.parquet    the parts merged and sorted, once `compact` has run
    failures/        one JSON file per failed chunk
    _staging/        files being written; what a killed process leaves here is never read

A file appears whole or not at all: it is written to `_staging/`, fsynced, and renamed. What is done is decided by the
rows that can be read, never by file names, so any number of processes may write one folder, and writing twice is harmless.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .errors import StoreError
from .row import COLUMNS, in_order

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, (kind, _) in COLUMNS.items()])
RUN = ["point_id", "seed"]
VERSION = ["code_version", "precision"]
NEEDED = [*RUN, *VERSION, "status"]
"""Columns without which a file is no part; any other that is missing was added later and reads as null."""

_SORT = ["root_seed", "V", "N", "d", "L", "m", "embedding", "activation", *RUN, *VERSION]
_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.ENOENT: "was the folder moved or deleted meanwhile?",
    errno.EACCES: "check the permissions, or choose another --out",
    errno.EPERM: "check the permissions, or choose another --out",
    errno.EROFS: "choose another --out",
}

Unreadable = list[tuple[Path, str]]
"""Files that are no readable part, each with the reason."""


@dataclass(frozen=True)
class Done:
    """`runs`: (point_id, seed) of the version asked for; `foreign`: runs of each other (code_version, precision), counted."""

    runs: set[tuple[str, int]]
    foreign: dict[tuple[int, str], int]
    unreadable: Unreadable


@dataclass(frozen=True)
class Compacted:
    """Rows in the table, duplicates dropped, parts merged, parts removed, and files left alone as unreadable."""

    n_rows: int
    n_dropped: int
    n_parts: int
    n_pruned: int
    unreadable: Unreadable


class Store:
    """The results folder `folder`. Nothing is made before `prepare`; every method raises StoreError, one line, what to do."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.parts, self.staging, self.failures = (self.folder / name for name in ("parts", "_staging", "failures"))
        self.table, self.manifest = self.folder / "table.parquet", self.folder / "manifest.json"

    def check(self) -> None:
        """Refuses a folder that is a file or lies below one; makes nothing."""
        for path in (*reversed(self.folder.parents), self.folder, self.parts, self.staging, self.failures):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StoreError(f"{self.folder}: {path} is not a folder; move it away or choose another results folder (--out)")

    def prepare(self, manifest: dict[str, Any]) -> None:
        """Makes the folder and writes `manifest.json`; if that is refused, nothing that was made stays behind."""
        self.check()
        data = json.dumps(manifest, indent=2).encode()
        made = [p for p in (*reversed(self.folder.parents), self.folder, self.parts, self.staging) if not os.path.exists(p)]
        try:
            with _told(self.folder):
                for path in made:
                    path.mkdir(exist_ok=True)
            self._put(self.manifest, data)
        except BaseException:
            for path in reversed(made):
                with suppress(OSError):
                    path.rmdir()
            raise

    def holds_results(self) -> bool:
        """Whether this is a results folder: it has a parts folder or a table, if only an empty one."""
        return os.path.isdir(self.parts) or os.path.exists(self.table)

    def read_manifest(self) -> dict[str, Any] | None:
        """What `prepare` wrote, or None."""
        with _told(self.manifest):
            try:
                return json.loads(self.manifest.read_bytes())
            except FileNotFoundError:
                return None
            except ValueError as error:
                raise StoreError(f"{self.manifest}: not JSON ({error}); delete it, the next sweep writes it anew") from error

    def done(self, code_version: int, precision: str) -> Done:
        """Runs that need not run again: any row counts, whatever its status, in a readable part or the table."""
        tables, unreadable = _read(_results(self.folder), NEEDED)
        # sets, not counts: compact without pruning leaves a row in two files
        runs: dict[tuple[int, str], set[tuple[str, int]]] = {}
        one: dict[str, str] = {}  # seeds of a point share one string: much memory at a million runs
        for batch in (batch for table in tables.values() for batch in table.to_batches(max_chunksize=2**16)):
            for point_id, seed, *version in zip(*(batch[name].to_pylist() for name in (*RUN, *VERSION)), strict=True):
                runs.setdefault(tuple(version), set()).add((one.setdefault(point_id, point_id), seed))
        mine = runs.pop((code_version, precision), set())
        return Done(mine, {version: len(others) for version, others in runs.items()}, unreadable)

    def write(self, rows: list[dict[str, Any]]) -> Path:
        """Writes rows that have exactly the columns of `row.COLUMNS` (None for null) as one part; returns its path.

        The name hashes which runs it holds, so the same runs written twice replace their own file.
        """
        if not rows:
            raise StoreError("rows: got none; a part holds at least one")
        table = _as_table([in_order(row) for row in rows]).sort_by([(name, "ascending") for name in RUN])
        runs = json.dumps(table.select([*RUN, *VERSION]).to_pylist(), sort_keys=True)
        return self._put(self.parts / f"{hashlib.sha256(runs.encode()).hexdigest()[:16]}.parquet", table)

    def note(self, name: str, record: dict[str, Any]) -> Path:
        """Writes `record` to `<name>.json` beside the manifest; returns the path."""
        return self._put(self.folder / f"{name}.json", json.dumps(record, indent=2).encode())

    def record_failure(self, name: str, record: dict[str, Any]) -> Path:
        """Writes `record` to `failures/<name>.json`; returns the path."""
        return self._put(self.failures / f"{name}.json", json.dumps(record, indent=2).encode())

    def clear_failures(self, runs: set[tuple[str, int]]) -> None:
        """Removes the records whose every run is among `runs`: those are done by now, or about to be tried again."""
        with _told(self.failures):
            for path in self.failures.glob("*.json"):
                try:
                    failed = {(point_id, seed) for point_id, seed in json.loads(path.read_bytes())["runs"]}
                except (ValueError, KeyError, TypeError):
                    continue  # not one of ours
                if failed <= runs:
                    path.unlink(missing_ok=True)

    def compact(self, prune: bool = False) -> Compacted:
        """Merges table and parts into `table.parquet`, one row per run and version, ok before others, sorted.

        `prune` removes the parts that went into the table, once it is safe on disk. Unreadable files stay.
        """
        self.check()
        if not self.holds_results():
            raise StoreError(_nothing([self.folder], []))
        with self._alone():
            files = _results(self.folder)
            stamps = {path: _stamp(path) for path in files}
            tables, unreadable = _read(files)
            for path, why in unreadable:
                if path == self.table:
                    raise StoreError(f"{path}: cannot be read ({why}) and would be overwritten; move it away and run again")
            if not any(map(len, tables.values())):
                raise StoreError(_nothing([self.folder], unreadable))
            rows = _joined(tables.values())
            table = _sorted(_best(rows, [*RUN, *VERSION]))
            self._put(self.table, table)
            merged = [path for path in tables if path != self.table]
            # a part that was written anew meanwhile is not what was read
            pruned = [path for path in merged if prune and _stamp(path) == stamps[path]]
            with _told(self.parts):
                for path in pruned:
                    path.unlink(missing_ok=True)
        return Compacted(len(table), len(rows) - len(table), len(merged), len(pruned), unreadable)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One compact at a time: the slower of two could put an old table over a newer one whose parts are gone already."""
        import fcntl  # not on Windows, where the rest can still be read

        with _told(self.staging):
            self.staging.mkdir(exist_ok=True)
            with open(self.staging / "compact.lock", "w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise StoreError(f"{self.folder}: another compact is at work on it; wait until it is done") from error
                except OSError:
                    pass  # a file system without locks
                yield

    def _put(self, target: Path, content: bytes | pa.Table) -> Path:
        """Writes the file whole or not at all; the last step is the rename. Rows are read back before it."""
        staged = self.staging / f"{os.getpid()}-{secrets.token_hex(4)}-{target.name}"
        with _told(target):
            for folder in (self.staging, target.parent):
                folder.mkdir(exist_ok=True)
            try:
                with open(staged, "xb") as file:
                    file.write(_as_parquet(content) if isinstance(content, pa.Table) else content)
                    file.flush()
                    os.fsync(file.fileno())
                if isinstance(content, pa.Table):
                    tables, unreadable = _read([staged], NEEDED)
                    if [len(table) for table in tables.values()] != [len(content)]:
                        why = f" ({_some(unreadable)})" if unreadable else ""
                        raise StoreError(f"{target}: {len(content)} rows were written but cannot be read back{why}; is the disk in order?")
                os.replace(staged, target)
            finally:
                staged.unlink(missing_ok=True)
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return target


def load(path: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """All rows of a results folder, a folder of parts or a .parquet file, or of a list of them, as one tidy DataFrame.

    One row per (point_id, seed): ok before others, then the newest code_version, then the first. Columns in table order,
    unknown ones after; int64, float64, bool and str, and pandas' nullable Int64 and boolean where there are nulls. Warns of
    rows that were dropped, versions that are mixed and files that cannot be read; raises StoreError if there is no row.
    """
    paths = [Path(p) for p in ([path] if isinstance(path, (str, os.PathLike)) else path)]
    files = dict.fromkeys(file for p in paths for file in _files(p))
    tables, unreadable = _read(files)
    if not any(map(len, tables.values())):
        raise StoreError(_nothing(paths, unreadable))
    if unreadable:
        warnings.warn(f"{len(unreadable)} unreadable files left out: {_some(unreadable)}", UserWarning, stacklevel=2)
    rows = _joined(tables.values())
    table = _sorted(_best(rows, RUN))
    if dropped := len(rows) - len(table):
        others = len(rows.group_by([*RUN, *VERSION]).aggregate([])) - len(table)
        text = f"dropped {dropped} rows: one is kept per (point_id, seed), ok before others, then the newest code_version"
        warnings.warn(text + (f"; {others} were of another code_version or precision" if others else ""), UserWarning, stacklevel=2)
    if len(versions := table.group_by(VERSION).aggregate([([], "count_all")]).to_pylist()) > 1:
        mix = "; ".join(f"{v['count_all']} rows of {v['code_version']}, {v['precision']}" for v in versions)
        warnings.warn(f"rows of more than one code_version, precision: {mix}", UserWarning, stacklevel=2)
    return _with_pandas_types(table).to_pandas()


def _files(path: Path) -> list[Path]:
    """What `load` reads for `path`: a file, a results folder, or else a folder of parts."""
    if os.path.isfile(path):
        return [path]
    return _results(path) if Store(path).holds_results() else _entries(path)


def _results(folder: Path) -> list[Path]:
    """Parts first, the table last: a prune meanwhile moves rows that way, so none is missed."""
    return [*_entries(folder / "parts"), folder / "table.parquet"]


def _entries(folder: Path) -> list[Path]:
    with _told(folder):
        return sorted(folder.iterdir()) if os.path.isdir(folder) else []


def _read(paths: Iterable[Path], columns: list[str] | None = None) -> tuple[dict[Path, pa.Table], Unreadable]:
    """The tables by file, and what is no readable part; a file that is gone is neither."""
    tables, unreadable = {}, []
    for path in paths:
        try:
            tables[path] = _read_file(path, columns)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            if os.path.lexists(path):
                unreadable.append((path, " ".join(str(error).split())[:200]))
    return tables, unreadable


def _read_file(path: Path, columns: list[str] | None) -> pa.Table:
    if path.suffix != ".parquet" or not path.is_file():
        raise ValueError("not a .parquet file")
    with pq.ParquetFile(path) as file:
        present = file.schema_arrow.names
        if missing := [name for name in NEEDED if name not in present]:
            raise ValueError(f"no column {', '.join(missing)}")
        table = file.read(columns=columns)
    names = table.column_names
    table = pa.table([table[n].cast(SCHEMA.field(n).type) if n in COLUMNS else table[n] for n in names], names=names)
    table.validate(full=True)
    if null := [name for name in NEEDED if table[name].null_count]:
        raise ValueError(f"nulls in {', '.join(null)}")
    return table


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    """One table: the known columns in table order, null where a file lacks one, then any others."""
    try:
        return pa.concat_tables([SCHEMA.empty_table(), *tables], promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise StoreError(f"the tables do not go together: {error}; rename that column in one of them") from error


def _best(table: pa.Table, keys: list[str]) -> pa.Table:
    """One row per `keys`: ok before others, then the newest code_version, then the first."""
    bad = table["status"].to_numpy() != "ok"
    order = pa.array(np.lexsort((-table["code_version"].to_numpy(), bad)))  # stable; the last key leads
    ranked = table.select(keys).take(order).append_column("row", order)
    return table.take(ranked.group_by(keys, use_threads=False).aggregate([("row", "first")])["row_first"])


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in _SORT])


def _as_table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {}
    for name, (kind, _) in COLUMNS.items():
        try:
            columns[name] = pa.array([row[name] for row in rows], SCHEMA.field(name).type)
        except (pa.ArrowException, OverflowError) as error:
            raise StoreError(f"rows: {name}: {error}; allowed: {kind} or None") from error
    return pa.table(columns, schema=SCHEMA)


def _as_parquet(table: pa.Table) -> pa.Buffer:
    """The bytes of the file; provenance and pandas types are in the metadata of its schema."""
    provenance: dict[str, Any] = {"created": datetime.now(UTC).isoformat(timespec="seconds")}
    for name in (*VERSION, "jax_version"):
        values = table[name].unique().to_pylist()
        provenance[name] = values[0] if len(values) == 1 else values
    table = _with_pandas_types(table)
    sink = pa.BufferOutputStream()
    metadata = {**(table.schema.metadata or {}), b"jaxrecall": json.dumps(provenance).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd", write_statistics=True)
    return sink.getvalue()


def _with_pandas_types(table: pa.Table) -> pa.Table:
    """Tells pandas to read ints and bools with nulls as its nullable types; it would make floats and objects of them."""
    nullable = {"int64": "Int64", "bool": "boolean"}
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = str(field.type)
        numpy = nullable.get(kind, kind) if column.null_count else kind
        kinds = {"pandas_type": "unicode", "numpy_type": "object"} if kind == "string" else {"pandas_type": kind, "numpy_type": numpy}
        columns.append({"name": field.name, "field_name": field.name, **kinds, "metadata": None})
    about = {"index_columns": [], "column_indexes": [], "columns": columns, "creator": {"library": "pyarrow", "version": pa.__version__}}
    return table.replace_schema_metadata({b"pandas": json.dumps(about).encode()})


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Tells a file from one that has replaced it; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _some(unreadable: Unreadable, limit: int = 3) -> str:
    shown = [f"{path.name} ({why})" for path, why in unreadable[:limit]]
    return ", ".join(shown + [f"and {len(unreadable) - limit} more"] * (len(unreadable) > limit))


def _nothing(paths: list[Path], unreadable: Unreadable) -> str:
    where = ", ".join(map(str, paths)) or "an empty list of paths"
    why = f"; unreadable: {_some(unreadable)}" if unreadable else ""
    return f"no rows in {where}: looked for a .parquet file, or a folder with table.parquet or parts/*.parquet{why}; has the sweep run?"


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns an OSError into a StoreError that says where it was, what it was and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        todo = f" ({advice})" if advice else ""
        raise StoreError(
            f"{path}: {error.strerror or error}{todo}; finished parts are kept, the same command goes on from there"
        ) from error
