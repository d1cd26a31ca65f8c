"""python -m jaxrecall.compact: merges the parts of a results folder into one table."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.compact")

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from .cli.command import Parser, answer, command
from .errors import StoreError
from .sweep.files import (
    Unreadable,
    holds_results,
    no_rows,
    refuse_link,
    result_files,
    storage_errors,
)
from .sweep.store import Store
from .sweep.store.table import (
    ROW,
    VERSION,
    hash_file,
    in_table_order,
    joined,
    read_facts,
    refuse_foreign,
    rows_in,
    with_facts,
)


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction: the path of the table, and counts of rows and files.

    `n_dropped` is the number of duplicate rows. The files in `unreadable` were left
    unchanged.
    """

    table: Path
    n_rows: int
    n_dropped: int
    n_parts: int
    unreadable: Unreadable


def compact(folder: str | Path, prune: bool = False) -> Compacted:
    """Merges the table and the parts of a folder into a sorted `table.parquet`.

    The table has one row for each run, step and version. If there are several such
    rows, an ok row is preferred. `prune` removes the parts that were merged, once the
    table is safe on disk. Unreadable files are kept. Raises StoreError if the folder
    cannot be compacted.
    """
    target = Store(folder)
    target.check()
    if not holds_results(target.folder):
        raise no_rows([target.folder], [])
    with compaction_lock(target):
        digests: dict[Path, str] = {}
        unreadable: Unreadable = []
        rows = joined(_tables(target.folder, digests, unreadable))
        why = dict(unreadable).get(target.table)
        if why is not None:
            raise StoreError(
                f"{target.table}: cannot be read ({why}) and would be overwritten; move"
                " it away and run again"
            )
        refuse_foreign(target.table)
        if not len(rows):
            raise no_rows([target.folder], unreadable)
        digests.pop(target.table, None)
        order = in_table_order(rows, [*ROW, *VERSION])
        n_rows, n_dropped = len(order), len(rows) - len(order)
        facts = read_facts(rows) | {"merged": list(digests.values())}
        target.put_table(target.table, with_facts(rows.take(order), facts))
        if prune:
            with storage_errors(target.parts), target.opened(target.parts) as parts:
                for path in digests:
                    (parts / path.name).unlink(missing_ok=True)
    return Compacted(target.table, n_rows, n_dropped, len(digests), unreadable)


def _tables(
    folder: Path, digests: dict[Path, str], unreadable: Unreadable
) -> Iterator[pa.Table]:
    """Yields the tables of the files in a folder. Adds the digest of each file to
    `digests`, and files that cannot be read to `unreadable`.
    """
    for path in result_files(folder):
        digest = hash_file(path)  # before reading, as the file may be replaced
        for table in rows_in(path, unreadable):
            digests[path] = digest
            yield table


@contextmanager
def compaction_lock(store: Store) -> Iterator[None]:
    """Returns a context that allows only one compaction of the folder at a time.

    Without the lock, the slower of two compactions could replace the newer table by an
    older one, after the parts have been removed.
    """
    import fcntl  # not available on Windows

    path = store.staging / "compact.lock"
    refuse_link(path)
    with storage_errors(path), store.opened(store.staging) as staging:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        lock = os.open(staging / path.name, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(lock).st_mode):
                raise StoreError(f"{path}: is not a regular file; move it away")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(
                    f"{store.folder}: another compact is running on it; wait until it"
                    " has finished"
                ) from error
            except OSError:
                pass  # a file system without locks
            yield
        finally:
            os.close(lock)


@command()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 2 refused."""
    parser = Parser(
        "compact",
        "Merge the Parquet files of a results folder into DIR/table.parquet, sorted,"
        " each row once.",
    )
    parser.add_argument("folder", metavar="DIR", help="results folder")
    parser.add_argument(
        "--prune",
        action="store_true",
        help="then remove the files whose rows are in the table",
    )
    args = parser.parse_args(argv)
    result = compact(args.folder, args.prune)
    return answer(*lines(result, args.prune))


def lines(result: Compacted, pruned: bool) -> Iterator[str]:
    """Yields lines of text that describe the result."""
    size = result.table.stat().st_size / 1e6
    yield f"{result.table}: {result.n_rows} rows, {size:.2f} MB"
    removed = "kept; --prune removes them"
    if pruned:
        removed = f"{result.n_parts} removed"
    yield (
        f"{result.n_parts} files merged ({removed}), {result.n_dropped} duplicates"
        " dropped"
    )
    for path, why in result.unreadable:
        yield f"cannot be read, left unchanged: {path} ({why})"
