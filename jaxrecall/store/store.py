"""A results folder: rows in, rows out, and which runs are done. No JAX here.

    manifest.json    what the sweep was asked for
    search.json      what a search found
    parts/           finished rows, *.parquet and nothing else, so that any Parquet reader takes the folder
    table.parquet    the parts merged and sorted, once `compact` has run
    failures/        one JSON file per failed chunk
    _staging/        files being written; what a killed process leaves here is never read, and removed in time

A file appears whole or not at all: it is written to `_staging/`, fsynced, and renamed. What is done is decided by the
rows that can be read, never by file names, so any number of processes may write one folder, and writing twice is harmless.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from ..errors import StoreError
from .table import NEEDED, RUN, SCHEMA, VERSION, Unreadable, best, in_table_order, joined, of_rows, read, to_parquet, with_pandas_types

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "Compacted", "Done", "Store", "StoreError", "load"]

STALE_SECONDS = 3600.0
"""A file that stays in `_staging` so long was left there by a process that died: writing one takes seconds."""

_STAGED = re.compile(r"\d+-[0-9a-f]{8}-.+")
_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.ENOENT: "was the folder moved or deleted meanwhile?",
    errno.EACCES: "check the permissions, or choose another --out",
    errno.EPERM: "check the permissions, or choose another --out",
    errno.EROFS: "choose another --out",
}


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
        self.folder = local_path(folder)
        self.parts, self.staging, self.failures = (self.folder / name for name in ("parts", "_staging", "failures"))
        self.table, self.manifest = self.folder / "table.parquet", self.folder / "manifest.json"

    def check(self) -> None:
        """Refuses a folder that is a file or lies below one; makes nothing."""
        for path in (*reversed(self.folder.parents), self.folder, self.parts, self.staging, self.failures):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StoreError(f"{self.folder}: {path} is not a folder; move it away or choose another results folder (--out)")

    def prepare(self, manifest: dict[str, Any]) -> None:
        """Makes the folder, writes `manifest.json`, sweeps stale `_staging` files; if refused, nothing that was made stays behind."""
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
        self._sweep()

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
        rows, unreadable = self.rows()
        # sets, not counts: compact without pruning leaves a row in two files
        runs: dict[tuple[int, str], set[tuple[str, int]]] = {}
        for version, run in rows:
            runs.setdefault(version, set()).add(run)
        mine = runs.pop((code_version, precision), set())
        return Done(mine, {version: len(others) for version, others in runs.items()}, unreadable)

    def rows(self, *columns: str) -> tuple[Iterator[tuple[Any, ...]], Unreadable]:
        """(code_version, precision), (point_id, seed) and the columns asked for, of every row that `load` can read."""
        names = [*RUN, *VERSION, *columns]
        tables, unreadable = read(_results(self.folder), names)
        one: dict[str, str] = {}  # seeds of a point share one string: much memory at a million runs

        def each() -> Iterator[tuple[Any, ...]]:
            for batch in (batch for table in tables.values() for batch in table.to_batches(max_chunksize=2**16)):
                there = batch.schema.names  # a file from before a column was added lacks it
                lists = (batch[name].to_pylist() if name in there else [None] * len(batch) for name in names)
                for point_id, seed, code_version, precision, *others in zip(*lists, strict=True):
                    yield (code_version, precision), (one.setdefault(point_id, point_id), seed), *others

        return each(), unreadable

    def write(self, rows: list[dict[str, Any]]) -> Path:
        """Writes rows that have exactly the columns of `row.COLUMNS` (None for null) as one part; returns its path.

        The name hashes which runs it holds, so the same runs written twice replace their own file.
        """
        if not rows:
            raise StoreError("rows: got none; a part holds at least one")
        table = of_rows(rows)
        runs = json.dumps(table.select([*RUN, *VERSION]).to_pylist(), sort_keys=True)
        return self._put(self.parts / f"{hashlib.sha256(runs.encode()).hexdigest()[:16]}.parquet", table)

    def note(self, name: str, record: dict[str, Any]) -> Path:
        """Writes `record` to `<name>.json` beside the manifest; returns the path."""
        return self._put(self.folder / f"{name}.json", json.dumps(record, indent=2).encode())

    def record_failure(self, name: str, record: dict[str, Any]) -> Path:
        """Writes `record` to `failures/<name>.json`; returns the path."""
        return self._put(self.failures / f"{name}.json", json.dumps(record, indent=2).encode())

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """Removes the records whose every run is among `runs`: those are done by now, or about to be tried again."""
        with _told(self.failures):
            for path in self.failures.glob("*.json"):
                try:
                    failed = {(point_id, seed) for point_id, seed in json.loads(path.read_bytes())["runs"]}
                except (ValueError, KeyError, TypeError):
                    continue  # not one of ours
                if failed <= runs:
                    path.unlink(missing_ok=True)

    def compact(self, prune: bool = False, others: Sequence[str | Path] = ()) -> Compacted:
        """Merges table and parts into `table.parquet`, one row per run and version, ok before others, sorted.

        Those of `others`, results folders too, go into it as well; the folder is made if it is not there, and has the manifest
        of the first of them unless it has its own. `prune` removes the parts of this folder that went into the table, once it
        is safe on disk. Unreadable files stay.
        """
        self.check()
        stores = [self, *map(Store, others)]
        for store in stores[bool(others) :]:
            if not store.holds_results():
                raise StoreError(_nothing([store.folder], []))
        if others:
            with _told(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            manifests = [manifest for store in stores if (manifest := store.read_manifest())]
            if manifests and not self.manifest.exists():
                self.note("manifest", manifests[0])
            files = [file for store in stores for file in _results(store.folder)]
            stamps = {path: _stamp(path) for path in files}
            tables, unreadable = read(files)
            for path, why in unreadable:
                if path == self.table:
                    raise StoreError(f"{path}: cannot be read ({why}) and would be overwritten; move it away and run again")
            if not any(map(len, tables.values())):
                raise StoreError(_nothing([self.folder], unreadable))
            rows = joined(tables.values())
            table = in_table_order(best(rows, [*RUN, *VERSION]))
            self._put(self.table, table)
            merged = [path for path in tables if path != self.table]
            # a part that was written anew meanwhile is not what was read
            pruned = [path for path in merged if prune and path.parent == self.parts and _stamp(path) == stamps[path]]
            with _told(self.parts):
                for path in pruned:
                    path.unlink(missing_ok=True)
        return Compacted(len(table), len(rows) - len(table), len(merged), len(pruned), unreadable)

    def _sweep(self) -> None:
        """Removes what processes that died left in `_staging`. A process id says nothing on a shared folder, so age decides,

        by the clock of the file system: that of the manifest just written. Taking a file from a live but very slow writer
        costs it one more try.
        """
        with _told(self.staging):
            now = self.manifest.stat().st_mtime
            for path in self.staging.iterdir():
                with suppress(FileNotFoundError):
                    if _STAGED.fullmatch(path.name) and now - path.stat().st_mtime > STALE_SECONDS:
                        path.unlink()

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
                    file.write(to_parquet(content) if isinstance(content, pa.Table) else content)
                    file.flush()
                    os.fsync(file.fileno())
                if isinstance(content, pa.Table):
                    tables, unreadable = read([staged], NEEDED)
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
    paths = [local_path(p) for p in ([path] if isinstance(path, (str, os.PathLike)) else path)]
    files = dict.fromkeys(file for p in paths for file in _files(p))
    tables, unreadable = read(files)
    if not any(map(len, tables.values())):
        raise StoreError(_nothing(paths, unreadable))
    if unreadable:
        warnings.warn(f"{len(unreadable)} unreadable files left out: {_some(unreadable)}", UserWarning, stacklevel=2)
    rows = joined(tables.values())
    table = in_table_order(best(rows, RUN))
    if dropped := len(rows) - len(table):
        others = len(rows.group_by([*RUN, *VERSION]).aggregate([])) - len(table)
        text = f"dropped {dropped} rows: one is kept per (point_id, seed), ok before others, then the newest code_version"
        warnings.warn(text + (f"; {others} were of another code_version or precision" if others else ""), UserWarning, stacklevel=2)
    if len(versions := table.group_by(VERSION).aggregate([([], "count_all")]).to_pylist()) > 1:
        mix = "; ".join(f"{v['count_all']} rows of {v['code_version']}, {v['precision']}" for v in versions)
        warnings.warn(f"rows of more than one code_version, precision: {mix}", UserWarning, stacklevel=2)
    return with_pandas_types(table).to_pandas()


def local_path(path: str | Path) -> Path:
    """The path that a plain path or a file:// URL names; raises StoreError for any other URL."""
    scheme, separator, _ = str(path).partition("://")
    if not separator:
        return Path(path)
    url = urlsplit(str(path))
    if scheme != "file" or url.netloc not in ("", "localhost"):
        raise StoreError(
            f"{path}: is not on this machine's file systems; allowed: a folder or file:///folder, on a network file system too. "
            "To keep results in an object store, copy the folder there (its parts never change, so any sync tool will do)"
        )
    return Path(unquote(url.path))


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
