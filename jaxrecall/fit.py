"""python -m jaxrecall.fit, and `jaxrecall.fit.fit`: thresholds and exponents."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.fit")

import argparse
import os
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path

from .analysis.fit import Fit, fit
from .analysis.fit.columns import common
from .analysis.fit.estimate import METHOD_TEXT
from .analysis.fit.measure import LAST
from .analysis.fit.reading import parse_columns, read_tables
from .analysis.fit.roles import roles_of
from .analysis.fit.write import default_folder, unwritable, write
from .cli.command import Parser, answer, command
from .sweep.files import local_path
from .sweep.running.progress import PLAIN_EVERY_SECONDS, now_and_then
from .sweep.summary import ALLOWED

__all__ = ["Fit", "fit"]


def parser() -> argparse.ArgumentParser:
    p = Parser(
        "fit",
        "Finds where accuracy crosses theta, as N*, and the exponents of"
        " N* ~ product of axis^exponent.",
        epilog=f"Method: {METHOD_TEXT}.",
    )
    add = p.add_argument
    add(
        "tables",
        metavar="DIR|FILE",
        nargs="+",
        help=(
            "results folders, several taken together, or any one .parquet or .csv table"
            " with a column seed, an axis and a measure"
        ),
    )
    add(
        "--out",
        metavar="DIR",
        help=(
            "where the three tables go (default: the results folder or FILE-fit beside"
            " a file, COLUMN there with --of)"
        ),
    )
    add_table_options(add)
    _add_laws(add)
    _add_forms(add)
    add(
        "--latex",
        action="store_true",
        help=(
            "write thresholds.tex and exponents.tex too, tables for a paper (booktabs)"
        ),
    )
    return p


def add_table_options(add: Callable[..., object]) -> None:
    """Adds the options that say what the columns of a table are and what is fitted."""
    add(
        "--columns",
        nargs="+",
        default=[],
        metavar="NAME=COLUMN",
        help=(
            "the columns of a table that have other names, as in N=n_train"
            " accuracy=test_acc"
        ),
    )
    add(
        "--axes",
        nargs="+",
        metavar="COLUMN",
        help=(
            "the columns of a table that are settings (default: those of its grid, else"
            " all that vary)"
        ),
    )
    add(
        "--average",
        nargs="+",
        metavar="COLUMN",
        help=(
            "average over columns within each seed (default: further seeds, such as"
            " data_seed)"
        ),
    )
    add(
        "--of",
        metavar="COLUMN",
        default="accuracy",
        help=(
            "the column that crosses theta: memory_accuracy, train_accuracy,"
            " attention_mass, attention_top1, matched_accuracy, assignment_accuracy, or"
            " any number that was measured (default: accuracy)"
        ),
    )
    add(
        "--theta",
        type=float,
        nargs="+",
        default=[0.5],
        metavar="T",
        help=(
            "accuracies to cross, fractions; numbers in the units of a measure that is"
            " no fraction (default: 0.5)"
        ),
    )
    add(
        "--summary",
        default="mean",
        help=f"what crosses theta: {ALLOWED} (default: mean)",
    )
    add(
        "--along",
        metavar="AXIS",
        help=(
            "axis along which accuracy crosses: N, d, m, V, L or another number"
            " (default: that of a search, else N, else the only axis of numbers)"
        ),
    )
    add(
        "--step",
        default=LAST,
        metavar="S",
        help=(
            "rows of runs that train on: last (the last step of each point), or all,"
            " which makes an axis (default: last)"
        ),
    )


def _add_laws(add: Callable[..., object]) -> None:
    """Adds the options that choose the laws to fit and the cells to which they are
    fitted.
    """
    add(
        "--where",
        metavar="EXPR",
        nargs="+",
        default=[],
        help=(
            "a law for the configurations where EXPR holds, as in 'L**2 > 10 * V' or"
            " \"optimizer == 'muon'\"; several give a law each"
        ),
    )
    add(
        "--by",
        metavar="AXIS",
        help="a law for each value of an axis, such as optimizer",
    )
    add(
        "--best",
        metavar="AXIS",
        help="take the best value of an axis, such as lr, in each configuration",
    )
    add(
        "--law",
        metavar="COLUMN",
        help=(
            "the law of the mean of a column, such as memory_accuracy, in place of"
            " thresholds"
        ),
    )
    add(
        "--compare",
        metavar="AXIS",
        help=(
            "ratios of N* and differences of exponents between the values of an axis,"
            " such as optimizer, seed by seed; into comparison.parquet"
        ),
    )


def _add_forms(add: Callable[..., object]) -> None:
    """Adds the options that choose other forms of the laws, and what they predict."""
    add(
        "--floor",
        metavar="AXIS",
        nargs="?",
        const="",
        help=(
            "fit E + A x^p along an axis, and compare it with A x^p; into forms.parquet"
            " (default: the only axis of the law)"
        ),
    )
    add(
        "--additive",
        action="store_true",
        help="fit E + A x^p + B z^q over all axes of the law; into additive.parquet",
    )
    add(
        "--product",
        type=float,
        nargs="+",
        help="with --additive: the sizes that make the law smallest where x z = P",
    )
    add(
        "--predict",
        metavar="SIZES",
        nargs="+",
        default=(),
        help=(
            "the value of each law at new sizes, as in V=1024,d=512, with its interval;"
            " into predictions.parquet"
        ),
    )


@command("interrupted; nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 2 refused, 130 interrupted."""
    args = parser().parse_args(argv)
    paths = list(map(local_path, args.tables))
    frame, remarks = read_tables(*paths, columns=parse_columns(args.columns))
    if args.out:
        out = local_path(args.out)
    else:
        usual = roles_of(frame).along or "N"
        along = args.along if args.along != usual else None
        out = default_folder(paths, args.law or args.of, along)
    if os.path.isfile(out):
        raise unwritable(out, FileExistsError("File exists"))
    if os.path.islink(out):  # also for a name that is too long
        out = Path(os.path.realpath(out))
    arguments = common(signature(fit).parameters, vars(args))
    fitted = fit(
        frame,
        args.theta,
        on_progress=now_and_then(PLAIN_EVERY_SECONDS, _progress),
        **{name: getattr(args, name) for name in arguments},
    )
    # a fit that cannot be saved is not lost
    answer(*map("note: {}".format, remarks))
    answer(*str(fitted).split("\n"), "")
    for path, n_rows in write(fitted, out, args.latex, {"rows": len(frame)}).items():
        answer(f"{path.stem + ':':<13}{path} ({n_rows} rows)")
    return answer()


def _progress(done: int, of: int) -> str:
    return f"curves: {100 * done / of:.0f} % done"
