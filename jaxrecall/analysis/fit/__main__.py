"""python -m jaxrecall.fit: thresholds and exponents of a table, written as Parquet and summarised."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from ...cli.process import start

    start("jaxrecall.analysis.fit.__main__")

import argparse
from collections.abc import Sequence

from ...cli.command import Parser, called, command
from ...cli.process import OK
from ...errors import printable
from ...sweep.files import is_folder, local_path
from ...sweep.running.progress import PLAIN_EVERY_SECONDS, now_and_then
from ...sweep.store.age import older, seen
from . import runs
from .axes import ALONG, along_of
from .estimate import METHODS, REPORTED
from .fitting import fit
from .write import check_folder, default_folder, write


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog=called("fit"),
        description="Finds where accuracy crosses theta, as N*, cell by cell, and the exponents of N* ~ product of axis^exponent.",
        epilog=f"Method: {METHODS[REPORTED]}.",
    )
    tables = "results folders, several taken together, or any one table with columns " + ", ".join(runs.NEEDED)
    p.add_argument("tables", metavar="DIR|FILE.parquet", nargs="+", help=tables)
    p.add_argument(
        "--out",
        metavar="DIR",
        help="where the three tables go (default: the results folder or FILE-fit beside a file, COLUMN there with --of)",
    )
    some = f"{', '.join(runs.OF_FRACTIONS)} or another (default: accuracy)"
    p.add_argument("--of", metavar="COLUMN", default="accuracy", help=f"the column of fractions that crosses theta: {some}")
    p.add_argument("--theta", type=float, nargs="+", default=[0.5], metavar="T", help="accuracies to cross, fractions (default: 0.5)")
    p.add_argument(
        "--where",
        metavar="EXPR",
        nargs="+",
        default=[],
        help="a law for the cells where EXPR holds, as in 'L**2 > 10 * V' or \"optimizer == 'muon'\"; several give a law each",
    )
    p.add_argument("--along", metavar="AXIS", help=ALONG)
    p.add_argument("--by", metavar="AXIS", help="a law for each value of an axis, such as optimizer")
    p.add_argument("--best", metavar="AXIS", help="take the best value of an axis, such as lr, in each cell")
    p.add_argument("--law", metavar="COLUMN", help="the law of the mean of a column, such as memory_accuracy, in place of thresholds")
    p.add_argument("--step", nargs="+", default=[runs.LAST], metavar="S", help=runs.STEP_HELP)
    p.add_argument("--latex", action="store_true", help="write thresholds.tex and exponents.tex too, tables for a paper (booktabs)")
    p.add_argument("--resamples", type=int, help=argparse.SUPPRESS)  # of earlier versions; it has no effect
    return p


@command("interrupted; nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, fits, writes, prints; returns the exit code: 0 done, 2 refused, 130 interrupted."""
    args = parser().parse_args(argv)
    paths = list(map(local_path, args.tables))
    step = runs.parsed(args.step)
    frame, remarks = runs.read(*paths)
    usual = along_of(frame, None)
    out = local_path(args.out) if args.out else default_folder(paths, args.law or args.of, args.along if args.along != usual else None)
    check_folder(out)
    told = now_and_then(PLAIN_EVERY_SECONDS, lambda done, of: f"curves: {100 * done / of:.0f} % done")
    found = fit(
        frame,
        args.theta,
        on_progress=told,
        where=args.where,
        step=step,
        along=args.along,
        of=args.of,
        best=args.best,
        by=args.by,
        law=args.law,
    )
    print(*(printable(f"note: {remark}") for remark in remarks), *map(printable, str(found).split("\n")), "", sep="\n")
    rows = seen([frame]) if is_folder(paths[0]) else {"rows": len(frame)}
    for path, n_rows in write(found, out, args.latex, rows).items():
        print(f"{path.stem + ':':<13}{path} ({n_rows} rows)")
    for line in older(paths[0], rows) if len(paths) == 1 else ():
        print(printable(f"note: {line}"))
    return OK
