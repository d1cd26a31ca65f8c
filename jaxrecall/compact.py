"""Command line: merge the parts of a results folder into one sorted table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .errors import StoreError
from .store.compact import compact


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, merges, prints; returns the exit code: 0 done, 2 refused."""
    parser = argparse.ArgumentParser(
        prog="python -m jaxrecall.compact",
        description="Merge the parts of a results folder into DIR/table.parquet, sorted, one row per run.",
    )
    parser.add_argument("folder", metavar="DIR", help="results folder")
    parser.add_argument("--from", dest="others", metavar="DIR", nargs="+", default=[], help="merge these results folders into it too")
    parser.add_argument("--prune", action="store_true", help="then remove the parts that are in the table")
    args = parser.parse_args(argv)
    try:
        result = compact(args.folder, args.prune, args.others)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = result.table.stat().st_size / 1e6
    removed = f"{result.n_pruned} removed" if args.prune else "kept; --prune removes them"
    print(f"{result.table}: {result.n_rows} rows, {size:.2f} MB")
    print(f"{result.n_parts} parts merged ({removed}), {result.n_dropped} duplicates dropped")
    for path, why in result.unreadable:
        print(f"left as it is, unreadable: {path} ({why})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
