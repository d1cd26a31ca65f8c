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
import json
import os
import random
import secrets
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
"""Of a part: its size without rows, each row's share, and
the rows for which there must be room before any is computed.
"""

STALE_SECONDS = 3600.0
"""A file that stays in `_staging` so long was left
there by a process that died: writing one takes seconds.
"""

LOOKS = 10
"""How often a process looks at most, as others may write parts with fewer columns."""

Version = tuple[int, str]
"""code_version and precision."""

LastValues = dict[Version, dict[RunId, tuple[Any, ...]]]
"""Values in the last row of each run of each version, of an ok row before others."""


@dataclass(frozen=True)
class Done:
    """What a folder holds.

    `runs` are those of the version asked for; `foreign` counts runs of each other
    (code_version, precision).
    """

    runs: set[RunId]
    foreign: dict[Version, int]
    unreadable: Unreadable
    simulators: frozenset[str] = frozenset()
    """The names of those that the rows are of."""

    columns: frozenset[str] = frozenset()
    """The columns of the user's own that the rows have, as JSON."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """Laws of the user's own that rows have, with a hash of their source."""


class Store:
    """The results folder `folder`.

    Nothing is made before `prepare`; every method raises StoreError, one line, what to
    do.
    """

    def __init__(self, folder: str | Path):
        self.folder = local_path(folder)
        self.parts, self.staging, self.failures = (
            self.folder / name for name in (PARTS, "_staging", "failures")
        )
        self.table, self.manifest = self.folder / TABLE, self.folder / "manifest.json"
        self.about: Json = {}
        """What the metadata of every part says; see `table.KEY`."""

        self.columns: Mapping[str, tuple[str, ...]] = COLUMNS
        """Of the rows to write, in order."""

        self.of_parts = pa.schema([])
        """The columns of all parts, once `unify` has looked."""

        self.kept: Mapping[str, Mapping[str, Any]] = {}
        """Of the helpers of a grid that are columns, which
        `about` names: their values by the id of a point.
        """

    def check(self) -> None:
        """Refuses a folder that is a file or lies below one; makes nothing."""
        for path in (
            *reversed(self.folder.parents),
            self.folder,
            self.parts,
            self.staging,
            self.failures,
        ):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StoreError(
                    f"{self.folder}: {path} is not a folder; move it away or choose"
                    " another results folder (--out)"
                )

    def prepare(self, manifest: Json, n_rows: int = 0) -> None:
        """Makes the folder, writes `manifest.json`, removes stale `_staging` files.

        If refused, nothing that was made stays behind. A folder without room for a part
        is refused if there are `n_rows` to compute.
        """
        self.check()
        made = [
            p
            for p in (
                *reversed(self.folder.parents),
                self.folder,
                self.parts,
                self.staging,
            )
            if not os.path.exists(p)
        ]
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
        """Runs that need not run again, in a readable part or the table.

        Their last row counts, whatever its status.
        """
        runs, unreadable, tables = self.last_values()
        mine = set(runs.pop((code_version, precision), ()))
        facts = [about(table) for table in tables if len(table)]
        simulators = frozenset(str(of.get("simulator", "jaxrecall")) for of in facts)
        columns = frozenset(
            json.dumps(of.get("columns", {}), sort_keys=True) for of in facts
        )
        sources = {
            name: digest
            for of in facts
            for name, digest in (of.get("sources") or {}).items()
        }
        return Done(
            mine,
            {version: len(others) for version, others in runs.items()},
            unreadable,
            simulators,
            columns,
            sources,
        )

    def last_values(
        self, *columns: str
    ) -> tuple[LastValues, Unreadable, list[pa.Table]]:
        """The values of these columns in the last row of every run that `load` can
        read.

        Also the files that cannot be read, and the tables with these columns.
        """
        names = [*RUN, *VERSION, "status", *columns]
        tables, unreadable = self.tables([*dict.fromkeys([*names, "step", "steps"])])
        # seeds of a point share one string, which saves much memory at a million runs
        shared: dict[str, str] = {}
        found: LastValues = {}
        for batch in (
            batch
            for table in tables.values()
            for batch in last_rows(table).to_batches(max_chunksize=2**16)
        ):
            present = (
                batch.schema.names
            )  # a file from before a column was added lacks it
            lists = (
                batch[name].to_pylist() if name in present else [None] * len(batch)
                for name in names
            )
            for point_id, seed, code_version, precision, status, *values in zip(
                *lists, strict=True
            ):
                of_version = found.setdefault((code_version, precision), {})
                run = RunId(shared.setdefault(point_id, point_id), seed)
                if (
                    run not in of_version or status == "ok"
                ):  # compact without pruning leaves a row in two files
                    of_version[run] = tuple(values)
        return found, unreadable, [*tables.values()]

    def tables(
        self, columns: list[str] | None = None
    ) -> tuple[dict[Path, pa.Table], Unreadable]:
        """The tables by file, with all columns or those asked for, and the files that
        cannot be read.
        """
        return read(result_files(self.folder), columns)

    def write(self, rows: list[Json]) -> Path:
        """Writes rows as one part; returns its path.

        They have exactly the columns of their simulator (None for null); of columns
        that other parts have, the part has nulls.

        All rows of a run go into one part, as the last of them says that the run is
        done. The name hashes which rows it holds, so the same rows written twice
        replace their own file.
        """
        table = with_about(
            of_rows([row | self._kept(row["point_id"]) for row in rows], self.columns),
            self.about,
        )
        table = conformed(table, self.of_parts)
        names = json.dumps(table.select([*ROW, *VERSION]).to_pylist(), sort_keys=True)
        return self.put_table(
            self.parts / f"{hashlib.sha256(names.encode()).hexdigest()[:16]}.parquet",
            table,
        )

    def unify(self, tell: Callable[[str], None]) -> None:
        """Gives every part the columns of all parts and of the rows to write, null
        where it has none.

        A part is replaced, whole or not at all, by one with its name and its rows, so
        any number of processes may do this while others write. Each looks again until
        it finds nothing to do. So when the last of them has ended, all parts are alike.
        `tell` is told what is rewritten, or why it cannot be.
        """
        try:
            for look in range(LOOKS):
                self.of_parts, others = unlike(
                    self.of_parts or schema_of(self.columns), result_files(self.folder)
                )
                if not (others := [path for path in others if path != self.table]):
                    break
                if not look:
                    tell(
                        f"{self.parts}: {len(others)} files lack columns of other grids"
                        " in the folder, and get them"
                    )
                for path in random.sample(
                    others, len(others)
                ):  # of several processes each finds some done by another
                    for table in read(unlike(self.of_parts, [path])[1])[0].values():
                        self.put_table(path, conformed(table, self.of_parts))
        except (StoreError, pa.ArrowException) as error:
            tell(
                f"{self.parts}: the columns of its files differ ({error}); for one"
                f" table of them: {called('compact', [str(self.folder)])}"
            )

    def _kept(self, point_id: str) -> Json:
        """The values of helpers at a point, null where it has none; all of one as text
        if some are.
        """
        values = self.kept.get(point_id, {})
        found = {name: values.get(name) for name in self.about.get("kept", ())}
        return {
            name: str(v) if v is not None and self.columns[name][0] == "string" else v
            for name, v in found.items()
        }

    def note(self, name: str, record: Json) -> Path | None:
        """Writes `record` to `<name>.json` in the folder; returns the path, None if
        there is no file to read.
        """
        return self.put(
            self.folder / f"{name}.json", json.dumps(record, indent=2).encode()
        )

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """Removes the records whose every run is among `runs`.

        Those are done by now, or about to be tried again.
        """
        with storage_errors(self.failures):
            for path in self.failures.glob("*.json"):
                try:
                    failed = {
                        RunId(point_id, seed)
                        for point_id, seed in read_json(path)["runs"]
                    }
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
                with suppress(FileNotFoundError):
                    if (
                        TEMPORARY_NAME.fullmatch(path.name)
                        and now - path.lstat().st_mtime > STALE_SECONDS
                    ):
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
            tables, unreadable = read([staged], RUN)
            if [len(found) for found in tables.values()] != [len(table)]:
                why = f" ({listed(unreadable)})" if unreadable else ""
                raise StoreError(
                    f"{target}: {len(table)} rows were written but cannot be read"
                    f" back{why}; is the disk in order?"
                )

        return self.put(target, to_parquet(table), read_back)


class MemoryStore(Store):
    """Holds what a results folder would hold, by the path that each file would have.

    No file or folder is made.
    """

    def __init__(self) -> None:
        super().__init__("memory")
        self.held: dict[Path, pa.Table] = {}

    def check(self) -> None:
        """Nothing can be in the way."""

    def prepare(self, manifest: Json, n_rows: int = 0) -> None:
        """There is nothing to make."""

    def unify(self, tell: Callable[[str], None]) -> None:
        """There is no file."""

    def tables(
        self, columns: list[str] | None = None
    ) -> tuple[dict[Path, pa.Table], Unreadable]:
        return {
            path: table.select(columns) if columns else table
            for path, table in self.held.items()
        }, []

    def note(self, name: str, record: Json) -> None:
        """Nobody reads it: the caller raises what failed."""

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """There are none."""

    def put_table(self, target: Path, table: pa.Table) -> Path:
        self.held[target] = table
        return target
