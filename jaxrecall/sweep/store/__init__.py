"""Writes rows into a results folder, and determines which runs are done. The folder
contains:

    manifest.json    the grid and the command of the last sweep
    search.json      the result of a search
    parts/           the finished rows, in *.parquet files and nothing else, so that
        any program that reads Parquet can read the folder
    table.parquet    the parts, merged and sorted; written by `compact`
    failures/        a JSON file for each kind of error, with the runs that failed
    _staging/        files that are being written; a file that a killed process left
        here is never read, and is removed later

A file appears completely or not at all: it is written to `_staging/`, flushed to disk
with fsync, and renamed. Which runs are done is determined by the rows that can be read,
and never by the names of files. Any number of processes may therefore write into one
folder, and writing the same rows twice is harmless.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import Table

from ...cli.command import called
from ...errors import StoreError
from ...model.columns import COLUMNS, Declarations
from ...model.point import RunId
from ..files import (
    PARTS,
    TABLE,
    TEMPORARY_NAME,
    Json,
    Unreadable,
    atomic_write,
    held_folder,
    is_folder,
    listed,
    local_path,
    read_json,
    refuse_link,
    result_files,
    storage_errors,
)
from .table import (
    ROW,
    RUN,
    VERSION,
    Read,
    arrow_schema,
    conformed,
    is_last,
    make_table,
    read_tables,
    refuse_foreign,
    rows_in,
    to_parquet,
    unlike,
    with_facts,
)

STALE_SECONDS = 3600.0
"""The age, in seconds, after which a file in `_staging` is assumed to come from a
process that died. Writing a file takes only seconds.
"""

VARYING = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{16}\b|[-+]?\d[\d.]*(e[-+]?\d+)?")
"""Matches addresses, ids of points, and numbers. Equal errors may differ in these."""

LOOKS = 10
"""The largest number of times that a process looks for parts that lack columns. Other
processes may write such parts at the same time.
"""

Version = tuple[int, str]
"""The code_version and the precision of a row."""

LastValues = dict[Version, dict[RunId, tuple[Any, ...]]]
"""A dict from versions to dicts from runs to values. The values are those in the last
row of the run. If a run has several last rows, a row with status ok is preferred.
"""


class Store:
    """The results folder `folder`. The folder is created by `prepare`.

    Every method may raise StoreError. The message is one line that explains what to do.
    """

    def __init__(self, folder: str | Path):
        self.folder = local_path(folder)
        self.parts = self.folder / PARTS
        self.staging = self.folder / "_staging"
        self.failures = self.folder / "failures"
        self.table = self.folder / TABLE
        self.manifest = self.folder / "manifest.json"
        self.about: Json = {}
        """A dict of the facts in the metadata of every part; see `table.KEY`."""

        self.columns: Declarations = COLUMNS
        """The columns of the rows that will be written, in order."""

        self.of_parts = pa.schema([])
        """The columns of all parts. The schema is empty until `unify` is called."""

        self.kept: Mapping[str, Mapping[str, Any]] = {}
        """A dict from the id of a point to the values of the grid's helpers that are
        columns. `about` lists the names of these helpers.
        """

    def check(self, *replaced: str) -> None:
        """Raises StoreError if the folder cannot be written. Creates nothing.

        It cannot be written if a file exists at the path of the results folder, of a
        folder above it, or of one of its own folders, or if one of its own folders is a
        link. `replaced` lists names of files that the caller is going to write; none of
        them may be a file that this package did not write.
        """
        for path in (*self._folders(), self.failures):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StoreError(
                    f"{self.folder}: {path} is not a folder; move it away or choose"
                    " another results folder (--out)"
                )
        for path in (self.parts, self.staging, self.failures):
            refuse_link(path)
        for name in replaced:
            refuse_foreign(self.folder / name)

    def _folders(self) -> list[Path]:
        """Returns the folders that a sweep needs, beginning with the outermost."""
        return [*reversed(self.folder.parents), self.folder, self.parts, self.staging]

    def opened(self, folder: Path) -> AbstractContextManager[Path]:
        """Returns a context with a path for writing into the results folder or into one
        of its own folders; see `held_folder`. A missing folder is created.

        The results folder itself may be a link, at any time.
        """
        if folder == self.folder:
            return nullcontext(folder)
        folder.mkdir(exist_ok=True)
        return held_folder(folder)

    def prepare(self, manifest: Json) -> None:
        """Creates the folder, writes `manifest.json`, and removes stale files from
        `_staging`.

        If an error is raised, every folder that this call created is removed again.
        """
        self.check()
        created = list(itertools.filterfalse(os.path.exists, self._folders()))
        try:
            with storage_errors(self.folder, "nothing ran"):
                for path in created:
                    path.mkdir(exist_ok=True)
            self.note("manifest", manifest)
        except BaseException:
            for path in reversed(created):
                with suppress(OSError):
                    path.rmdir()
            raise
        self._remove_stale_files()

    def read_manifest(self) -> Json | None:
        """Returns the manifest that `prepare` wrote, or None if there is no
        manifest.
        """
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

    def last_values(self, *columns: str) -> tuple[LastValues, Unreadable, list[Table]]:
        """Returns the values that these columns have in the last rows of all runs that
        `load` can read, the files that cannot be read, and the tables of the others.

        The runs are done, and need not be computed again by the same version. A run is
        done if its last row is in a readable part or in the table. The status of that
        row does not matter.
        """
        names = [*RUN, *VERSION, "status", *columns]
        tables, unreadable = self.tables([*dict.fromkeys([*names, "step", "steps"])])
        # all seeds of a point share one string; this saves much memory at 10^6 runs
        shared, by_version = {}, {}
        for table in tables.values():
            for row in _rows(table.filter(is_last(table)), names):
                point_id, seed, code_version, precision, status, *values = row
                by_run = by_version.setdefault((code_version, precision), {})
                run = RunId(shared.setdefault(point_id, point_id), seed)
                # without pruning, compact leaves a row in two files
                if run not in by_run or status == "ok":
                    by_run[run] = tuple(values)
        return by_version, unreadable, list(tables.values())

    def tables(self, columns: list[str] | None = None) -> Read:
        """Returns the table of each file, with all columns or with only the given
        columns.
        """
        return read_tables(result_files(self.folder), columns)

    def write(self, rows: list[Json]) -> Path:
        """Writes rows as one part, and returns its path.

        Each row has exactly the columns of its simulator. None means null. If other
        parts have further columns, the new part has nulls in these columns.

        All rows of a run must be in one part, because the last of these rows marks the
        run as done. The name of the file is a hash of the ids of its rows. If the same
        rows are written twice, the second file therefore replaces the first.
        """
        rows = [row | self._kept(row["point_id"]) for row in rows]
        table = with_facts(make_table(rows, self.columns), self.about)
        table = conformed(table, self.of_parts)
        names = json.dumps(table.select([*ROW, *VERSION]).to_pylist(), sort_keys=True)
        digest = hashlib.sha256(names.encode()).hexdigest()
        return self.put_table(self.parts / f"{digest[:16]}.parquet", table)

    def unify(self, tell: Callable[[str], None]) -> None:
        """Rewrites parts until every part has the columns of all parts and of the rows
        to write.

        Columns that are new to a part contain nulls. Each part is replaced, completely
        or not at all, by a part with the same name and the same rows. Any number of
        processes may therefore call this function while others write. Each process
        looks again until it finds nothing to do, so all parts have the same columns
        when the last process ends. The function calls `tell` with a message about the
        parts that it rewrites, or about an error that stops the rewriting.
        """
        try:
            for look in range(LOOKS):
                known = self.of_parts or arrow_schema(self.columns)
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
                # other processes may rewrite some of these files meanwhile
                random.shuffle(others)
                for path in others:
                    for part in rows_in(path, []):
                        self.put_table(path, conformed(part, self.of_parts))
        except (StoreError, pa.ArrowException) as error:
            tell(
                f"{self.parts}: the columns of its files differ ({error}); for one"
                f" table of them: {called('compact', [str(self.folder)])}"
            )

    def _kept(self, point_id: str) -> Json:
        """Returns a dict of the kept helpers at a point. A helper that the point lacks
        is None.

        If the column of a helper contains text, all values of the helper are converted
        to text.
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
        """Writes `record` to `<name>.json` in the folder, and returns the path.

        A store that writes no files returns None.
        """
        text = json.dumps(record, indent=1)
        return self.put(self.folder / f"{name}.json", text.encode())

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """Removes each record of failures whose runs are all among `runs`. The caller
        passes runs that are done by now, or that will be tried again.
        """
        if not is_folder(self.failures):
            return
        with storage_errors(self.failures), self.opened(self.failures) as failures:
            for path in failures.glob("*.json"):
                try:
                    failed = failed_runs(read_json(path))
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # not a file of this package
                if failed and failed <= runs:
                    path.unlink(missing_ok=True)

    def _remove_stale_files(self) -> None:
        """Removes the files that processes left in `_staging` when they died.

        Files are chosen by age. Process ids cannot be used, because several machines
        may share the folder. The age of a file is measured relative to the manifest
        that was just written. Both times therefore come from the clock of the file
        system. If a very slow writer loses its file, the writer only has to try again.
        """
        with storage_errors(self.staging), self.opened(self.staging) as staging:
            now = self.manifest.stat().st_mtime
            for path in staging.iterdir():
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
        """Writes bytes or a buffer to a temporary file in `_staging`, and renames the
        file to `target`.

        `check` is called with the temporary file, and may raise an error before the
        rename.
        """
        with (
            storage_errors(target),
            self.opened(self.staging) as staging,
            self.opened(target.parent) as folder,
        ):
            atomic_write(folder / target.name, data, staging, check)
        return target

    def put_table(self, target: Path, table: Table) -> Path:
        """Writes a table to a file of the folder. The rows of the temporary file are
        read back as a check before the rename.
        """

        n_rows, data = len(table), to_parquet(table)
        del table  # its memory is used for the rows that are read back

        def read_back(staged: Path) -> None:
            tables, unreadable = read_tables([staged])
            if list(map(len, tables.values())) != [n_rows]:
                why = f" ({listed(unreadable)})" if unreadable else ""
                raise StoreError(
                    f"{target}: {n_rows} rows were written but cannot be read"
                    f" back{why}; is the disk in order?"
                )

        return self.put(target, data, read_back)


def failed_runs(report: Json) -> set[RunId]:
    """Returns the runs that a record of failures lists: a dict from points to seeds.

    Records of earlier versions list pairs of a point and a seed. Raises KeyError or
    TypeError if the record lists no runs.
    """
    runs = report["runs"]
    if not isinstance(runs, dict):
        return set(itertools.starmap(RunId, runs))
    return {RunId(point_id, seed) for point_id in runs for seed in runs[point_id]}


def kind_of(error: str) -> str:
    """Returns the first line of an error with its numbers left out. Equal errors have
    equal kinds.
    """
    first, _, _ = error.partition("\n")
    return VARYING.sub("#", first)


def _rows(table: Table, names: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yields a tuple for each row, with the values of these columns.

    A value is None if its column was added after the file was written.
    """
    for batch in table.to_batches(max_chunksize=2**16):
        lists = []
        for name in names:
            present = name in batch.schema.names
            lists.append(batch[name].to_pylist() if present else [None] * len(batch))
        yield from zip(*lists, strict=True)


class MemoryStore(Store):
    """A results folder in memory. `held` is a dict from the path that a file would have
    on disk to its table.
    """

    def __init__(self) -> None:
        super().__init__("memory")
        self.held: dict[Path, Table] = {}

    def check(self, *replaced: str) -> None:
        """Does nothing, because no file can be in the way."""

    def prepare(self, manifest: Json) -> None:
        """Does nothing, because there is no folder to create."""

    def unify(self, tell: Callable[[str], None]) -> None:
        """Does nothing, because there are no files."""

    def tables(self, columns: list[str] | None = None) -> Read:
        return self.held, []

    def note(self, name: str, record: Json) -> None:
        """Does nothing, because the caller raises the errors of failed runs."""

    def clear_failures(self, runs: Set[tuple[str, int]]) -> None:
        """Does nothing, because there are no records of failures."""

    def put_table(self, target: Path, table: Table) -> Path:
        self.held[target] = table
        return target
