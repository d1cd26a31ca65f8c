"""python -m jaxrecall.report: makes one HTML page and the figures of a table."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.report")

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence

from .analysis.figures.style import FORMATS
from .analysis.report import write
from .cli.command import Parser, answer, command
from .fit import add_table_options
from .sweep.running.progress import COUNT_EVERY_SECONDS, now_and_then


def parser() -> argparse.ArgumentParser:
    p = Parser(
        "report",
        "One HTML page with figures, thresholds, exponents, theory and provenance; the"
        " figures as files beside it.",
        epilog="An axis is a column that varies between configurations, as d or L may.",
    )
    add = p.add_argument
    add(
        "table",
        metavar="DIR|FILE",
        help=(
            "a results folder, or any .parquet or .csv table with a column seed, an"
            " axis and a measure"
        ),
    )
    add(
        "--out",
        metavar="FILE.html",
        help="the page (default: DIR/report.html, or FILE-report.html beside a file)",
    )
    add_table_options(add)
    _add_figures(add)
    return p


def _add_figures(add: Callable[..., object]) -> None:
    """Adds the options that choose what the axes of figures are, and how they look."""
    add(
        "--x",
        metavar="AXIS",
        help=(
            "along x in the figures of critical values and colours (default: the first"
            " of d, L, V, m)"
        ),
    )
    add(
        "--lines",
        metavar="AXIS",
        help="what the lines of a figure differ in (default: the next)",
    )
    add(
        "--panels",
        metavar="AXIS",
        nargs="+",
        default=[],
        help="what the panels differ in (all others do too)",
    )
    add(
        "--size",
        help=(
            "of each figure: column, text, or inches as in 3.4x2.6 (default: what suits"
            " its panels)"
        ),
    )
    add(
        "--format",
        nargs="+",
        choices=FORMATS,
        default=FORMATS[:2],
        metavar="F",
        help=(
            f"formats of the figures beside the page, of {', '.join(FORMATS)} (default:"
            f" {' '.join(FORMATS[:2])})"
        ),
    )
    add(
        "--style",
        help="a style file of matplotlib (.mplstyle), or the name of one of its styles",
    )


@command("interrupted; the report is not complete")
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 done, 2 refused, 130 interrupted."""
    if argv is None:
        argv = sys.argv[1:]
    args = parser().parse_args(argv)
    called = f"python -m jaxrecall.report {shlex.join(argv)}"
    return answer(*write(args, called, now_and_then(COUNT_EVERY_SECONDS, _progress)))


def _progress(what: str, done: int, of: int) -> str:
    if of == 0:
        return what
    return f"{what}: {done} of {of} done"
