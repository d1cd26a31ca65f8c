"""python -m benchmarks: measures, prints the table, and saves it.

The full table takes half an hour; --only selects groups.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from . import clock
from .asked import ASKED, GROUPS
from .record import Measured, Record
from .work import Bench, Work


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="jaxrecall, a torch loop, a jax loop and the floor side by side.",
    )
    p.add_argument(
        "--only",
        nargs="+",
        choices=GROUPS,
        default=list(GROUPS),
        metavar="GROUP",
        help=f"some of {', '.join(GROUPS)}",
    )
    p.add_argument(
        "--repeats",
        type=int,
        default=3,
        metavar="K",
        help="rounds of interleaved calls (default 3)",
    )
    p.add_argument(
        "--tiny",
        action="store_true",
        help="tiny sizes, saved in results/tiny: tries the benchmarks out",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.repeats < 1:
        print(f"--repeats: got {args.repeats}; allowed: from 1", file=sys.stderr)
        return 2
    record = Record(Path("results", "tiny" * args.tiny, "benchmarks.md"))
    start = time.monotonic()

    def log(line: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)

    about = clock.circumstances()
    log(f"{about['machine']}, load {about['load']}")
    if about["load"] > 0.5:
        log("warning: something else is running; figures will be off")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAXRECALL_CACHE"] = ""  # programs are compiled here, not loaded
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        from . import runner  # starts JAX

        bench = Bench(Work(args.tiny), args.repeats, log, Path(folder))
        for group in dict.fromkeys(args.only):
            log(f"== {group}")
            try:
                rows = runner.group(bench, group)
            except Exception as error:
                traceback.print_exc()
                failed += 1
                note = f"not run: {type(error).__name__}: {error}"
                keys = [asked.key for asked in ASKED if asked.group == group]
                rows = {key: Measured(note=note) for key in keys}
            record.merge(rows, about)
    saved = f"saved: {record.path}, {record.json}"
    print("", *record.asked(), "", *record.behind(), "", saved, sep="\n")
    return 3 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
