"""python -m jaxrecall.sweep: from a grid file to a table and a figure. Finished runs
are never run again.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from ..cli.process import start

    start("jaxrecall.sweep.__main__")

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..cli.command import Parser, answer, called, command
from ..cli.process import INTERRUPTED, Interrupts
from ..errors import UsageError, in_one_line, printable
from ..model.columns import is_parameter
from .api import import_paths
from .grid import json_schema, read_grid
from .plan import chosen_shard
from .running.job import Job, carry_out, interrupted, prepare
from .running.options import Engine, add_options, chosen
from .running.progress import Events, counter, display
from .search import OUTCOMES
from .simulators.merging import as_sizes
from .store.load import limited_by_kappa, load, not_finite

WIDEST = 40
"""Signs of a text in a table; pandas cuts a longer one."""

FIGURE = "jaxrecall.analysis.figures.charts"
"""What draws the figure: above this folder, and so loaded by its name once there are
rows.
"""


def parser() -> argparse.ArgumentParser:
    p = Parser(
        "sweep",
        "Run every (point, seed) of a grid that is not in its results folder yet, then"
        " draw accuracy against N.",
        epilog=(
            "Exit codes: 0 done, 2 wrong usage or a refused grid, 3 something failed"
            " while running, 130 interrupted."
        ),
    )
    p.add_argument(
        "--grid",
        metavar="FILE",
        help="the grid, a YAML file; the command `examples` lists some to copy",
    )
    p.add_argument(
        "--out", metavar="DIR", help="results folder (default: results/<grid name>)"
    )
    p.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="override an entry of the grid: base.V=512; repeatable",
    )
    p.add_argument(
        "--dry-run",
        action="store_true",
        help="show what would run and its estimated cost; run nothing",
    )
    p.add_argument(
        "--json",
        action="store_true",
        help="with --dry-run: print one JSON object and nothing else",
    )
    p.add_argument(
        "--pad-to",
        "--bucket",
        metavar="VxD[xM]",
        help="run every point that may be padded in one program of these sizes",
    )
    p.add_argument(
        "--json-log",
        action="store_true",
        help=(
            "print progress on stdout as JSON events, one object per line, and nothing"
            " else"
        ),
    )
    p.add_argument(
        "--fail-fast", action="store_true", help="stop at the first failed chunk"
    )
    p.add_argument(
        "--print-schema",
        action="store_true",
        help="print the JSON Schema of grid files",
    )
    add_options(p)
    return p


@command()
def main(argv: Sequence[str] | None = None, resume_command: str = "") -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    resume_command = resume_command or called("sweep", argv)
    with Interrupts() as interrupts:
        try:
            return _main(args, resume_command, interrupts)
        except KeyboardInterrupt:
            print(interrupted(resume_command), file=sys.stderr)
            return INTERRUPTED


def _main(args: argparse.Namespace, resume_command: str, interrupts: Interrupts) -> int:
    if args.print_schema:
        return answer(*json.dumps(json_schema(), indent=2).splitlines())
    if not args.grid:
        raise UsageError(
            "--grid: nothing given; allowed: a grid file, as in --grid quickstart.yaml"
            f" ({called('examples')} lists some)"
        )
    if args.json and not args.dry_run:
        raise UsageError("--json: got without --dry-run; allowed: with --dry-run only")
    if args.json_log and args.dry_run:
        raise UsageError(
            "--json-log: got with --dry-run; allowed: without it (a dry run takes"
            " --json)"
        )
    pad_to = as_sizes(args.pad_to) if args.pad_to else None
    by = chosen(args)
    paths = import_paths(args.grid)
    grid, shard = (
        read_grid(args.grid, args.set, counter("points of the grid")),
        chosen_shard(args.shard),
    )
    by.check(grid)
    job = prepare(
        grid,
        args.out or Path("results") / grid.name,
        shard,
        pad_to,
        args.fail_fast,
        resume_command,
    )
    by.share(job)
    for remark in job.remarks:
        print(printable(remark), file=sys.stderr)
    if args.dry_run:
        if args.json:
            return answer(json.dumps(job.facts() | by.facts(job)))
        return answer(*job.describe(), *([by.describe(job)] if job.to_do else []))
    return _sweep(
        job, by, paths, Events(sys.stdout) if args.json_log else None, interrupts
    )


def _sweep(
    job: Job,
    by: Engine,
    paths: tuple[str, ...],
    events: Events | None,
    interrupts: Interrupts,
) -> int:
    """Runs what is missing, reports problems, draws the figure; returns the exit
    code.
    """
    shown = events or display(announce=True)
    try:
        with by.opened(job, interrupts, paths) as execute:
            code = carry_out(job, execute, shown, interrupts).exit_code
        for line in job.problems():
            print(line, file=sys.stderr)
        if job.has_picture():
            try:
                _picture(job, events)
            except (
                Exception
            ) as error:  # of what draws, its settings or the disk: the rows are there
                again = (
                    f"Finished runs are kept. To try again: {job.record.resume_command}"
                )
                print(
                    f"the figure could not be made: {in_one_line(error)}. {again}",
                    file=sys.stderr,
                )
    except KeyboardInterrupt:
        print(interrupted(job.record.resume_command), file=sys.stderr)
        code = INTERRUPTED
    if events:
        record = job.record
        facts = {
            "runs_executed": record.runs,
            "unsaved": record.unsaved,
            "failed": len(record.failures),
        }
        events.emit(
            "done",
            exit_code=code,
            **facts,
            interrupted=code == INTERRUPTED,
            command=record.resume_command,
        )
    return code


def _picture(job: Job, events: Events | None) -> None:
    """Draws the runs of this grid at their last step.

    Prints a table of them unless the output is JSON events.
    """
    import pandas as pd

    charts = import_module(FIGURE)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # duplicates left by compact are expected here
        frame: Any = load(job.store.folder, last=True)
    runs = job.runs
    mine = frame[
        [run in runs for run in zip(frame["point_id"], frame["seed"], strict=True)]
    ]
    if mine.empty:
        return
    mine.attrs["accuracy"] = job.grid.crosses
    path = job.store.folder / "accuracy.png"
    rows = job.search.table() if job.search else None
    axes = [
        name
        for name in job.grid.axes
        if name in mine and not (is_parameter(name) and mine[name].isna().all())
    ]  # some have no run yet
    remark = charts.draw_sweep(mine, axes, job.grid.name, path, rows, job.grid.searched)
    if events:
        events.emit("picture", path=str(path), rows=len(mine))
        return
    if rows:
        heading = (
            f"{rows[0]['axis']} at which the mean {job.grid.crosses} over seeds crosses"
            " theta, and its 95 % interval"
        )
        number, table = (
            _short,
            pd.DataFrame(rows).drop(columns=["axis", "N_star", "warning"]),
        )
    else:
        x, line, panels = charts.places(axes)
        heading = f"accuracy, mean over {mine['seed'].nunique()} seeds" + (
            f"; one column per {line}" if line else ""
        )
        number = "{:.3f}".format
        means = mine.groupby([*panels, x, *([line] if line else [])], dropna=False)[
            job.grid.simulator.facts.accuracy
        ].mean()
        table = means.unstack(line) if line else means.to_frame()
    shown = {
        "max_rows": 40,
        "max_columns": None if rows else 12,
        "max_colwidth": WIDEST,
        "width": 120,
        "float_format": number,
    }
    with pd.option_context(
        *(part for name, value in shown.items() for part in (f"display.{name}", value))
    ):
        print(f"\n{heading}")
        print(table)
    for outcome in dict.fromkeys(row["outcome"] for row in rows or ()):
        print(f"{outcome}: {OUTCOMES[outcome]}")
    for i, row in enumerate(rows or ()):
        if row["warning"]:
            print(f"warning, {i}: {row['warning']}")
    for line in not_finite(mine, job.grid.simulator.facts):
        print(f"\nwarning: {line}")
    if line := limited_by_kappa(mine, axes, job.search.axis if job.search else "N"):
        print(f"\nwarning: {line}")
    places = [
        str(place)
        for place in (job.store.parts, job.store.table)
        if place.is_file() or any(place.glob("*"))
    ]
    print(
        f"\ntable:   {' and '.join(places)} ({len(mine)} runs of this grid;"
        f" jaxrecall.load({str(job.store.folder)!r}))"
    )
    print(f"figure:  {path}" + (f" ({remark})" if remark else ""))


def _short(number: float) -> str:
    return f"{number:.4g}" if number < 1e4 else f"{number:.0f}"
