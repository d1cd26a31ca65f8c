"""Command line: merge the parts of a results folder into one sorted table."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli import start

    start("jaxrecall.compact")

import argparse
import sys
from collections.abc import Sequence

from .cli import OK, USAGE, called
from .errors import StoreError
from .sweep.store.compact import compact


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, merges, prints; returns the exit code: 0 done, 2 refused."""
    parser = argparse.ArgumentParser(
        prog=called("compact"),
        description="Merge the parts of a results folder into DIR/table.parquet, sorted, each row once.",
    )
    parser.add_argument("folder", metavar="DIR", help="results folder")
    parser.add_argument("--from", dest="others", metavar="DIR", nargs="+", default=[], help="also merge these results folders into it")
    parser.add_argument("--prune", action="store_true", help="then remove the parts whose rows are in the table")
    args = parser.parse_args(argv)
    try:
        result = compact(args.folder, args.prune, args.others)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    size = result.table.stat().st_size / 1e6
    removed = f"{result.n_pruned} removed" if args.prune else "kept; --prune removes them"
    print(f"{result.table}: {result.n_rows} rows, {size:.2f} MB")
    print(f"{result.n_parts} parts merged ({removed}), {result.n_dropped} duplicates dropped")
    for path, why in result.unreadable:
        print(f"cannot be read, left unchanged: {path} ({why})")
    return OK
