"""A results folder: rows in, and which runs are done.

    manifest.json    the grid and the command of the last sweep
    search.json      what a search found
    parts/           finished rows, *.parquet and nothing else, so that any Parquet
        reader takes the folder
    table.parquet    the parts merged and sorted, once `compact` has run
    failures/        one JSON file per failed chunk
    _staging/        files being written; what a killed process leaves here is never
        read, and removed in time

A file appears whole or not at all: it is written to `_staging/`, fsynced, and renamed.
What is done is decided by the rows that can be read, never by file names, so any number
of processes may write one folder, and writing twice is harmless.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ...cli.command import called
from ...errors import StoreError
from ...model.columns import COLUMNS
from ...model.point import RunId
from ..files import (
    PARTS,
    TABLE,
    TEMPORARY_NAME,
    Json,
    Unreadable,
    atomic_write,
    listed,
    local_path,
    read_json,
    result_files,
    storage_errors,
)
from .table import (
    ROW,
    RUN,
    VERSION,
    Read,
    about,
    conformed,
    last_rows,
    of_rows,
    read,
    schema_of,
    to_parquet,
    unlike,
    with_about,
)

PART_BYTES, ROW_BYTES, PART_ROWS = 64 * 2**10, 512, 1000
"""The size of a part without rows, each row's share of it, and the rows for which there
must be room before any is computed.
"""

STALE_SECONDS = 3600.0
"""A file that stays in `_staging` so long was left there by a process that died:
writing one takes seconds.
"""

LOOKS = 10
"""How often a process looks at most, as others may write parts with fewer columns."""

Version = tuple[int, str]
"""code_version and precision."""

LastValues = dict[Version, dict[RunId, tuple[Any, ...]]]
"""Values in the last row of each run of each version, of an ok row before others."""


class LastRows(NamedTuple):
    """The last rows of all runs that `load` can read.

    `tables` are those in which they were found, and `unreadable` the files that cannot
    be read.
    """

    values: LastValues
    unreadable: Unreadable
    tables: list[pa.Table]


@dataclass(frozen=True)
class Done:
    """What is in a folder.

    `runs` are those of one version; `foreign` counts runs of each other (code_version,
    precision).
    """

    runs: set[RunId]
    foreign: dict[Version, int]
    unreadable: Unreadable
    simulators: Set[str] = frozenset()
    """The names of the simulators of the rows."""

    columns: Set[str] = frozenset()
    """The columns of the user's own that the rows have, as JSON."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """Laws of the user's own that rows have, with a hash of their source."""


class Store:
    """The results folder `folder`, which `prepare` makes.

    Every method raises StoreError, one line that says what to do.
    """

    def __init__(self, folder: str | Path):
        self.folder = local_path(folder)
        self.parts = self.folder / PARTS
        self.staging = self.folder / "_staging"
        self.failures = self.folder / "failures"
        self.table = self.folder / TABLE
        self.manifest = self.folder / "manifest.json"
        self.about: Json = {}
        """What the metadata of every part says; see `table.KEY`."""

        self.columns: Mapping[str, tuple[str, ...]] = COLUMNS
        """The columns of the rows to write, in order."""

        self.of_parts = pa.schema([])
        """The columns of all parts, once `unify` has looked."""

        self.kept: Mapping[str, Mapping[str, Any]] = {}
        """The values of helpers of a grid that are columns, by the id of a point;
        `about` has their names.
        """

    def check(self) -> None:
        """Refuses a folder that is a file or lies below one; makes nothing."""
        for path in (*self._folders(), self.failures):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StoreError(
                    f"{self.folder}: {path} is not a folder; move it away or choose"
                    " another results folder (--out)"
                )

    def _folders(self) -> list[Path]:
        """The folders that a sweep needs, the outermost first."""
        return [*reversed(self.folder.parents), self.folder, self.parts, self.staging]

    def prepare(self, manifest: Json, n_rows: int = 0) -> None:
        """Makes the folder, writes `manifest.json`, removes stale `_staging` files.

        If refused, nothing that was made stays behind. A folder without room for a part
        is refused if there are `n_rows` to compute.
        """
        self.check()
        made = list(itertools.filterfalse(os.path.exists, self._folders()))
        try:
            with storage_errors(self.folder, "nothing ran"):
                for path in made:
                    path.mkdir(exist_ok=True)
            if n_rows:
                self._check_room(min(n_rows, PART_ROWS))
            self.note("manifest", manifest)
        except BaseException:
            for path in reversed(made):
                with suppress(OSError):
                    path.rmdir()
            raise
        self._remove_stale_files()

    def read_manifest(self) -> Json | None:
        """What `prepare` wrote, or None."""
        with storage_errors(self.manifest):
            try:
                return read_json(self.manifest)
            except FileNotFoundError:
                return None
            except ValueError as error:
                raise StoreError(
                    f"{self.manifest}: not JSON ({error}); delete it; the next sweep"
                    " writes a new one"
                ) from error

    def done(self, code_version: int, precision: str) -> Done:
        """Runs that need not run again: a readable part or the table has their last
        row, whatever its status.
        """
        values, unreadable, tables = self.last_values()
        runs = set(values.pop((code_version, precision), ()))
        foreign = {version: len(others) for version, others in values.items()}
        simulators, columns, sources = set(), set(), {}
        for table in filter(len, tables):
            facts = about(table)
            simulators.add(str(facts.get("simulator", "jaxrecall")))
            columns.add(json.dumps(facts.get("columns", {}), sort_keys=True))
            sources |= facts.get("sources") or {}
        return Done(runs, foreign, unreadable, simulators, columns, sources)

    def last_values(self, *columns: str) -> LastRows:
        """The values of these columns in the last row of every run."""
        names = [*RUN, *VERSION, "status", *columns]
        tables, unreadable = self.tables([*dict.fromkeys([*names, "step", "steps"])])
        # seeds of a point share one string, which saves much memory at a million runs
        shared, found = {}, {}
        for table in tables.values():
            for row in _rows(last_rows(table), names):
                point_id, seed, code_version, precision, status, *values = row
                of_version = found.setdefault((code_version, precision), {})
                run = RunId(shared.setdefault(point_id, point_id), seed)
                # compact without pruning leaves a row in two files
                if run not in of_version or status == "ok":
                    of_version[run] = tuple(values)
        return LastRows(found, unreadable, list(tables.values()))

    def tables(self, columns: list[str] | None = None) -> Read:
        """The tables by file, with all columns or the given ones."""
        return read(result_files(self.folder), columns)

    def write(self, rows: list[Json]) -> Path:
        """Writes rows as one part, and returns its path.

        The rows have exactly the columns of their simulator, None for null. For columns
        that other parts have, the part has nulls.

        All rows of a run go into one part, as the last of them says that the run is
        done. The name hashes which rows are in the part, so the same rows written twice
        replace their own file.
        """
        rows = [row | self._kept(row["point_id"]) for row in rows]
        table = with_about(of_rows(rows, self.columns), self.about)
        table = conformed(table, self.of_parts)
        names = json.dumps(table.select([*ROW, *VERSION]).to_pylist(), sort_keys=True)
        digest = hashlib.sha256(names.encode()).hexdigest()
        return self.put_table(self.parts / f"{digest[:16]}.parquet", table)

    def unify(self, tell: Callable[[str], None]) -> None:
        """Gives every part the columns of all parts and of the rows to write, null
        where it has none.

        A part is replaced, whole or not at all, by one with its name and its rows, so
        any number of processes may do this while others write. Each looks again until
        it finds nothing to do. So when the last of them has ended, all parts are alike.
        `tell` is called with what is rewritten, or why it cannot be.
        """
        try:
            for look in range(LOOKS):
                known = self.of_parts or schema_of(self.columns)
                self.of_parts, others = unlike(known, result_files(self.folder))
                if self.table in others:
                    others.remove(self.table)
                if not others:
                    break
                if look == 0:
                    tell(
                        f"{self.parts}: {len(others)} files lack columns of other grids"
                        " in the folder, and get them"
                    )
                # of several processes each finds some done by another
                random.shuffle(others)
                for path in others:
                    self._rewrite(path)
        except (StoreError, pa.ArrowException) as error:
            tell(
                f"{self.parts}: the columns of its files differ ({error}); for one"
                f" table of them: {called('compact', [str(self.folder)])}"
            )

    def _rewrite(self, path: Path) -> None:
        """Gives a part the columns of all parts, unless it has them by now."""
        _, others = unlike(self.of_parts, [path])
        for table in read(others).tables.values():
            self.put_table(path, conformed(table, self.of_parts))

    def _kept(self, point_id: str) -> Json:
        """The values of helpers at a point, null where it has none; all of one as text
        if some are.
        """
        values = self.kept.get(point_id, {})
        kept = {}
        for name in self.about.get("kept", ()):
            value = values.get(name)
            if value is not None and self.columns[name][0] == "string":
                value = str(value)
            kept[name] = value
        return kept

    def note(self, name: str, record: Json) -> Path | None:
        """Writes `record` to `<name>.json` in the folder; returns the path, None if
        there is no file to read.
        """
        text = json.dumps(record, indent=2)
        return self.put(self.folder / f"{name}.json", text.encode())

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """Removes the records of failures whose runs are all among `runs`, which are
        done by now or about to be tried again.
        """
        with storage_errors(self.failures):
            for path in self.failures.glob("*.json"):
                try:
                    failed = set(itertools.starmap(RunId, read_json(path)["runs"]))
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # not one of ours
                if failed <= runs:
                    path.unlink(missing_ok=True)

    def _check_room(self, n_rows: int) -> None:
        """Refuses a folder where a file of the size of such a part cannot be written.

        The free space does not show a quota.
        """
        size = PART_BYTES + ROW_BYTES * n_rows
        trial = self.staging / f"{os.getpid()}-{secrets.token_hex(4)}-room"
        try:
            with storage_errors(self.folder, "nothing ran"):
                self.staging.mkdir(exist_ok=True)
                atomic_write(trial, secrets.token_bytes(size), self.staging, sync=True)
                trial.unlink()
        except StoreError as error:
            raise StoreError(
                f"{error}. A part of {n_rows} rows needs about {size / 2**10:.0f} KiB"
            ) from error

    def _remove_stale_files(self) -> None:
        """Removes what processes that died left in `_staging`.

        A process id says nothing on a shared folder. So age decides, by the clock of
        the file system: that of the manifest just written. Taking a file from a live
        but very slow writer costs it one more try.
        """
        with storage_errors(self.staging):
            now = self.manifest.stat().st_mtime
            for path in self.staging.iterdir():
                if TEMPORARY_NAME.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        if now - path.lstat().st_mtime > STALE_SECONDS:
                            path.unlink()

    def put(
        self,
        target: Path,
        data: Any,
        check: Callable[[Path], None] = lambda staged: None,
    ) -> Path:
        """Writes bytes or a buffer to a file of the folder, through `_staging`.

        `check` may refuse the file before it is renamed.
        """
        with storage_errors(target):
            for folder in (self.staging, target.parent):
                folder.mkdir(exist_ok=True)
            atomic_write(target, data, self.staging, sync=True, check=check)
        return target

    def put_table(self, target: Path, table: pa.Table) -> Path:
        """Writes a table to a file of the folder; its rows are read back first."""

        def read_back(staged: Path) -> None:
            tables, unreadable = read([staged])
            if list(map(len, tables.values())) != [len(table)]:
                why = f" ({listed(unreadable)})" if unreadable else ""
                raise StoreError(
                    f"{target}: {len(table)} rows were written but cannot be read"
                    f" back{why}; is the disk in order?"
                )

        return self.put(target, to_parquet(table), read_back)


def _rows(table: pa.Table, names: list[str]) -> Iterator[tuple[Any, ...]]:
    """The values of these columns in each row; a file from before a column was added
    has None.
    """
    for batch in table.to_batches(max_chunksize=2**16):
        lists = []
        for name in names:
            present = name in batch.schema.names
            lists.append(batch[name].to_pylist() if present else [None] * len(batch))
        yield from zip(*lists, strict=True)


class MemoryStore(Store):
    """A results folder in memory: tables by the path that each file would have."""

    def __init__(self) -> None:
        super().__init__("memory")
        self.held: dict[Path, pa.Table] = {}

    def check(self) -> None:
        """Nothing can be in the way."""

    def prepare(self, manifest: Json, n_rows: int = 0) -> None:
        """There is nothing to make."""

    def unify(self, tell: Callable[[str], None]) -> None:
        """There is no file."""

    def tables(self, columns: list[str] | None = None) -> Read:
        return Read(self.held, [])

    def note(self, name: str, record: Json) -> None:
        """Nobody reads it: the caller raises what failed."""

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """There are none."""

    def put_table(self, target: Path, table: pa.Table) -> Path:
        self.held[target] = table
        return target
