"""python -m jaxrecall.sweep: runs a grid file, and makes a table and a figure.

Finished runs are never run again.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take long
    from ..cli.process import start

    start("jaxrecall.sweep.__main__")

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ..cli.command import Parser, answer, called, command
from ..cli.process import INTERRUPTED, Interrupts
from ..errors import UsageError, in_one_line, printable
from ..model.columns import is_parameter
from .files import Json
from .grid import json_schema, read_grid
from .plan import chosen_shard
from .running.engine import Engine, add_options, chosen
from .running.job import Job, carry_out, interrupted, prepare
from .running.progress import Events, display
from .store.load import load, not_finite
from .store.table import refuse_foreign

WIDEST = 40
"""The largest number of characters of a text in a table. pandas cuts longer texts."""

FIGURE = "jaxrecall.analysis.figures.charts"
"""The name of the module that draws the figure. The module belongs to a layer above
this folder. So it is imported by name, and only if there are rows.
"""

FIGURE_FILE = "accuracy.png"


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
    add, flag = p.add_argument, partial(p.add_argument, action="store_true")
    add(
        "--grid",
        metavar="FILE",
        help="the grid, a YAML file; the command `examples` lists some to copy",
    )
    add("--out", metavar="DIR", help="results folder (default: results/<grid name>)")
    add(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="override an entry of the grid: base.V=512; repeatable",
    )
    flag("--dry-run", help="show what would run and its estimated cost; run nothing")
    flag("--json", help="with --dry-run: print one JSON object and nothing else")
    flag(
        "--json-log",
        help=(
            "print progress on stdout as JSON events, one object per line, and nothing"
            " else"
        ),
    )
    either = partial(p.add_mutually_exclusive_group().add_argument, action="store_true")
    either("--fail-fast", help="stop at the first failed chunk")
    either("--keep-going", help="go on even if the first 100 runs fail alike")
    flag(
        "--same-source",
        help="add rows although your code has changed: its numbers are the same",
    )
    flag("--print-schema", help="print the JSON Schema of grid files")
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
    engine = chosen(args)
    grid = read_grid(args.grid, args.set)
    shard = chosen_shard(args.shard)
    engine.check(grid)
    folder = args.out or Path("results") / grid.name
    job = prepare(
        grid,
        folder,
        shard,
        args.fail_fast,
        args.keep_going,
        resume_command,
        args.same_source,
    )
    # figures of earlier versions have no record; `_draw` leaves them as they are
    if not shard and not os.path.exists(job.store.manifest):
        job.store.check(FIGURE_FILE)
    engine = engine.fitted(job)
    for remark in job.remarks:
        print(printable(remark), file=sys.stderr)
    if args.dry_run and args.json:
        facts = job.facts() | {
            "engine": engine.name,
            "workers": engine.workers,
            "requests": engine.resources,
        }
        return answer(json.dumps(facts))
    if args.dry_run:
        lines = job.describe()
        if job.to_do:
            lines.append(engine.describe())
        return answer(*lines)
    events = Events(sys.stdout) if args.json_log else None
    return _sweep(job, engine, events, interrupts)


def _sweep(
    job: Job,
    engine: Engine,
    events: Events | None,
    interrupts: Interrupts,
) -> int:
    """Computes the missing runs, reports problems, and draws the figure.

    Returns the exit code.
    """
    call = job.call
    shown = events or display(announce=True)
    try:
        with engine.opened(job, interrupts) as execute:
            code = carry_out(job, execute, shown, interrupts).exit_code
        for line in job.problems():
            print(line, file=sys.stderr)
        if job.has_picture():
            _show(job, events)
    except KeyboardInterrupt:
        print(interrupted(call.resume_command), file=sys.stderr)
        code = INTERRUPTED
    if events:
        events.emit(
            "done",
            exit_code=code,
            runs_executed=call.runs,
            unsaved=call.unsaved,
            failed=call.n_failed,
            interrupted=code == INTERRUPTED,
            command=call.resume_command,
        )
    return code


def _show(job: Job, events: Events | None) -> None:
    """Prints a table of the last step of each run of the grid, and draws a figure.

    No table is printed if the output consists of JSON events. The rows are safe even if
    the drawing, its settings or the disk cause an error.
    """
    rows = _last_rows(job)
    if rows.empty:
        return
    axes = [name for name in job.grid.axes if _is_drawn(name, rows)]
    if not events:
        _print_results(job, rows, axes)
        sys.stdout.flush()  # the figure takes a second
    try:
        _draw(job, rows, axes, events)
    except Exception as error:
        print(
            f"the figure could not be made: {in_one_line(error)}. Finished runs are"
            f" kept. To try again: {job.call.resume_command}",
            file=sys.stderr,
        )


def _print_results(job: Job, rows: Any, axes: Sequence[str]) -> None:
    """Prints the thresholds of a search, or the means, and where the rows are."""
    if job.search:
        _print_cells(job, job.search.table())
    else:
        _print_means(job, rows, axes)
    for line in not_finite(rows, job.grid.simulator):
        print(f"\nwarning: {line}")
    places = []
    for place in (job.store.parts, job.store.table):
        if place.is_file() or any(place.glob("*")):
            places.append(str(place))
    print(
        f"\ntable:   {' and '.join(places)} ({len(rows)} runs of this grid;"
        f" jaxrecall.load({str(job.store.folder)!r}))"
    )


def _draw(job: Job, rows: Any, axes: Sequence[str], events: Events | None) -> None:
    """Draws the figure of a sweep, and tells its path."""
    path = job.store.folder / FIGURE_FILE
    refuse_foreign(path)
    cells = job.search.table() if job.search else None
    draw = import_module(FIGURE).draw_sweep
    grid = job.grid
    summary = grid.search.summary if grid.search else "mean"
    remark = draw(
        rows, axes, grid.name, path, cells, grid.searched, grid.crosses, summary
    )
    if events:
        events.emit("picture", path=str(path), rows=len(rows))
        return
    remark = f" ({remark})" if remark else ""
    print(f"figure:  {path}{remark}")


def _last_rows(job: Job) -> Any:
    """Returns a table with the last row of each run of the job."""
    with warnings.catch_warnings():
        # duplicates left by compact are expected here
        warnings.simplefilter("ignore", UserWarning)
        frame = load(job.store.folder, last=True)
    runs = job.runs
    mine = [run in runs for run in zip(frame["point_id"], frame["seed"], strict=True)]
    return frame[mine]


def _is_drawn(axis: str, rows: Any) -> bool:
    """Whether any row has a value on the axis. An axis may have no finished run yet."""
    return axis in rows and not (is_parameter(axis) and rows[axis].isna().all())


def _print_means(job: Job, rows: Any, axes: Sequence[str]) -> None:
    """Prints, for each point, the mean accuracy over seeds."""
    x, lines, panels = import_module(FIGURE).placed(rows, axes)
    measure = job.grid.simulator.accuracy
    heading = f"{measure}, mean over {rows['seed'].nunique()} seeds"
    for line in lines:
        heading += f"; one column per {line}"
    means = rows.groupby([*panels, x, *lines], dropna=False)[measure].mean()
    table = means.unstack(lines) if lines else means.to_frame()
    _print_table(heading, table, "{:.3f}".format, 12)


def _print_cells(job: Job, cells: Sequence[Json]) -> None:
    """Prints the results of a search, and explains their outcomes and warnings."""
    import pandas as pd

    from .search import OUTCOMES

    heading = (
        f"{cells[0]['axis']} at which the {job.grid.summarised} over seeds crosses"
        " theta, and its 95 % interval"
    )
    table = pd.DataFrame(cells).drop(columns=["axis", "N_star", "warning"])
    _print_table(heading, table, _short, None)
    for outcome in table["outcome"].unique():
        print(f"{outcome}: {OUTCOMES[outcome]}")
    for i, cell in enumerate(cells):
        if cell["warning"]:
            print(f"warning, {i}: {cell['warning']}")


def _print_table(
    heading: str,
    table: Any,
    number: Callable[[float], str],
    max_columns: int | None,
) -> None:
    import pandas as pd

    with pd.option_context(
        "display.max_rows",
        40,
        "display.max_columns",
        max_columns,
        "display.max_colwidth",
        WIDEST,
        "display.width",
        120,
        "display.float_format",
        number,
    ):
        print(f"\n{heading}")
        print(table)


def _short(number: float) -> str:
    return f"{number:.4g}" if number < 1e4 else f"{number:.0f}"
