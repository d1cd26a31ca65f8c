"""python -m jaxrecall.fit, and `jaxrecall.fit.fit`: thresholds and exponents of a
table.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.fit")

import argparse
from collections.abc import Sequence

from .analysis.fit import Fit, fit, runs
from .analysis.fit.estimate import METHOD_TEXT
from .analysis.fit.write import check_folder, default_folder, write
from .cli.command import Parser, answer, command
from .sweep.files import is_folder, local_path
from .sweep.running.progress import PLAIN_EVERY_SECONDS, now_and_then
from .sweep.store.table import older, seen

__all__ = ["Fit", "fit"]


def parser() -> argparse.ArgumentParser:
    p = Parser(
        "fit",
        "Finds where accuracy crosses theta, as N*, cell by cell, and the exponents of"
        " N* ~ product of axis^exponent.",
        epilog=f"Method: {METHOD_TEXT}.",
    )
    add, needed, fractions = (
        p.add_argument,
        ", ".join(runs.NEEDED),
        ", ".join(runs.OF_FRACTIONS),
    )
    where = (
        "a law for the cells where EXPR holds, as in 'L**2 > 10 * V' or \"optimizer =="
        " 'muon'\"; several give a law each"
    )
    out = (
        "where the three tables go (default: the results folder or FILE-fit beside a"
        " file, COLUMN there with --of)"
    )
    table = (
        "results folders, several taken together, or any one table with columns"
        f" {needed}"
    )
    add("tables", metavar="DIR|FILE.parquet", nargs="+", help=table)
    add("--out", metavar="DIR", help=out)
    add(
        "--of",
        metavar="COLUMN",
        default="accuracy",
        help=(
            f"the fraction that crosses theta: {fractions} or another (default:"
            " accuracy)"
        ),
    )
    add(
        "--theta",
        type=float,
        nargs="+",
        default=[0.5],
        metavar="T",
        help="accuracies to cross, fractions (default: 0.5)",
    )
    add("--where", metavar="EXPR", nargs="+", default=[], help=where)
    add("--along", metavar="AXIS", help=runs.ALONG)
    add(
        "--by",
        metavar="AXIS",
        help="a law for each value of an axis, such as optimizer",
    )
    add(
        "--best",
        metavar="AXIS",
        help="take the best value of an axis, such as lr, in each cell",
    )
    add(
        "--law",
        metavar="COLUMN",
        help=(
            "the law of the mean of a column, such as memory_accuracy, in place of"
            " thresholds"
        ),
    )
    add("--step", nargs="+", default=[runs.LAST], metavar="S", help=runs.STEP_HELP)
    add(
        "--latex",
        action="store_true",
        help=(
            "write thresholds.tex and exponents.tex too, tables for a paper (booktabs)"
        ),
    )
    add(
        "--resamples", type=int, help=argparse.SUPPRESS
    )  # of earlier versions; it has no effect
    return p


@command("interrupted; nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, fits, writes, prints; returns the exit code: 0 done, 2 refused, 130
    interrupted.
    """
    args = parser().parse_args(argv)
    paths = list(map(local_path, args.tables))
    step = runs.parsed(args.step)
    frame, remarks = runs.read(*paths)
    along = args.along if args.along != runs.along_of(frame, None) else None
    out = (
        local_path(args.out)
        if args.out
        else default_folder(paths, args.law or args.of, along)
    )
    check_folder(out)
    told = now_and_then(
        PLAIN_EVERY_SECONDS, lambda done, of: f"curves: {100 * done / of:.0f} % done"
    )
    asked = {
        name: getattr(args, name)
        for name in ("where", "along", "of", "best", "by", "law")
    }
    found = fit(frame, args.theta, on_progress=told, step=step, **asked)
    answer(*(f"note: {remark}" for remark in remarks), *str(found).split("\n"), "")
    rows = seen([frame]) if is_folder(paths[0]) else {"rows": len(frame)}
    answer(
        *(
            f"{path.stem + ':':<13}{path} ({n_rows} rows)"
            for path, n_rows in write(found, out, args.latex, rows).items()
        )
    )
    return answer(
        *(
            f"note: {line}"
            for line in (older(paths[0], rows) if len(paths) == 1 else ())
        )
    )
