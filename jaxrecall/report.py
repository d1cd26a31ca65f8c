"""python -m jaxrecall.report: a results folder or table as one HTML page, and its
figures.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from .cli.process import start

    start("jaxrecall.report")

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence

from .analysis.figures.style import FORMATS
from .analysis.fit import runs
from .analysis.report import Report, write
from .cli.command import Parser, answer, command
from .sweep.running.progress import COUNT_EVERY_SECONDS, now_and_then


def parser() -> argparse.ArgumentParser:
    p = Parser(
        "report",
        "One HTML page with figures, thresholds, exponents, theory and provenance; the"
        " figures as files beside it.",
        epilog=(
            "An axis is a column that varies between cells: d, L, V, m, ... A phase"
            " diagram takes N and arithmetic too: 'm * d' N."
        ),
    )
    add = p.add_argument
    add(
        "table",
        metavar="DIR|FILE.parquet",
        help="a results folder, or any table with columns " + ", ".join(runs.NEEDED),
    )
    add(
        "--out",
        metavar="FILE.html",
        help="the page (default: DIR/report.html, or FILE-report.html beside a file)",
    )
    add(
        "--theta",
        type=float,
        nargs="+",
        default=[0.5],
        metavar="T",
        help="accuracies to cross; maps show the first (default: 0.5)",
    )
    add("--along", metavar="AXIS", help=runs.ALONG)
    add(
        "--x",
        metavar="AXIS",
        help=(
            "along x in the figure of critical values, or arithmetic (default: the"
            " first of d, L, V, m)"
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
    phase = "a phase diagram's axes; repeatable (default: those of --x and --along)"
    add("--phase", metavar=("X", "Y"), nargs=2, action="append", default=[], help=phase)
    add("--step", nargs="+", default=[runs.LAST], metavar="S", help=runs.STEP_HELP)
    for name in ("--resamples", "--surrogate"):
        add(
            name, type=int, help=argparse.SUPPRESS
        )  # of earlier versions; they have no effect
    add(
        "--size",
        metavar="SIZE",
        help=(
            "of each figure: column, text, or inches as in 3.4x2.6 (default: what suits"
            " its panels)"
        ),
    )
    formats = (
        f"formats of the figures beside the page, of {', '.join(FORMATS)} (default:"
        f" {' '.join(FORMATS[:2])})"
    )
    add(
        "--format",
        nargs="+",
        choices=FORMATS,
        default=FORMATS[:2],
        metavar="F",
        help=formats,
    )
    trust = (
        "a module, or its .py file, to import: rows name laws of it, and theory is"
        " drawn for those (default: nothing is imported)"
    )
    add("--trust", metavar="MODULE", action="append", default=[], help=trust)
    add(
        "--style",
        metavar="FILE",
        help="a style file of matplotlib (.mplstyle), or the name of one of its styles",
    )
    return p


@command("interrupted; the report is not complete")
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, writes, prints; returns the exit code: 0 done, 2 refused, 130
    interrupted.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    on_progress = now_and_then(
        COUNT_EVERY_SECONDS,
        lambda what, done, of: f"{what}: {done} of {of} done" if of else what,
    )
    report = write(args, f"python -m jaxrecall.report {shlex.join(argv)}", on_progress)
    return answer(*lines(report, args.format))


def lines(report: Report, formats: Sequence[str]) -> Iterator[str]:
    """Every figure, and where it all is."""
    for remark in report.remarks:
        yield f"note: {remark}"
    for name, heading, remark in report.pictures:
        yield f"{name}: {heading}" + f" ({remark})" * bool(remark)
    yield ""
    yield f"page:     {report.page} ({report.page.stat().st_size / 1e6:.2f} MB)"
    yield f"figures:  {report.folder} ({len(report.pictures)} as {', '.join(formats)})"
