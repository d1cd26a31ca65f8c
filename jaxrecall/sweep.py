"""python -m jaxrecall.sweep: from a grid file to a table and a picture. Runs that are done are never run again."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import Refused, StoreError, UsageError
from .grid import json_schema, read_grid
from .plan import shard as sharding
from .run.engines.engine import Engine, add_options, engine
from .run.interrupts import Interrupts
from .run.job import Job, carry_out, interrupted
from .run.outcome import FAILED, INTERRUPTED, OK, USAGE, Outcome
from .run.prepare import prepare
from .run.progress import Events, progress
from .simulator.shape import Shape
from .store.load import load


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m jaxrecall.sweep",
        description="Runs every (point, seed) of a grid that its results folder lacks, then draws accuracy against N.",
        epilog="Exit codes: 0 done, 2 usage or a refused grid, 3 something failed while running, 130 interrupted.",
    )
    p.add_argument("--grid", metavar="FILE", help="the grid, YAML; see sweeps/ for examples")
    p.add_argument("--out", metavar="DIR", help="results folder (default: results/<grid name>)")
    p.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], help="override an entry of the grid: base.V=512; repeatable")
    p.add_argument("--dry-run", action="store_true", help="show what would run and what it costs; run nothing")
    p.add_argument("--json", action="store_true", help="with --dry-run: one JSON object and nothing else")
    p.add_argument("--pad-to", "--bucket", metavar="VxD[xM]", help="run every point in one program of these padded sizes")
    p.add_argument("--json-log", action="store_true", help="progress as one JSON object a line on stdout, and nothing else there")
    p.add_argument("--fail-fast", action="store_true", help="stop at the first failed chunk")
    p.add_argument("--print-schema", action="store_true", help="print the JSON Schema of grid files")
    add_options(p)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    resume_command = f"{Path(sys.executable).name} -m jaxrecall.sweep {shlex.join(argv)}"
    with Interrupts() as interrupts:
        try:
            return _main(args, resume_command, interrupts)
        except Refused as error:
            print(error, file=sys.stderr)
            return USAGE
        except KeyboardInterrupt:
            print(interrupted(resume_command), file=sys.stderr)
            return INTERRUPTED


def _main(args: argparse.Namespace, resume_command: str, interrupts: Interrupts) -> int:
    if args.print_schema:
        print(json.dumps(json_schema(), indent=2))
        return OK
    if not args.grid:
        raise UsageError("--grid: nothing given; allowed: a grid file, as in --grid sweeps/quickstart.yaml")
    if args.json and not args.dry_run:
        raise UsageError("--json: goes with --dry-run only")
    if args.json_log and args.dry_run:
        raise UsageError("--json-log: got with --dry-run; allowed: in a sweep, a dry run takes --json")
    pad_to = Shape.parse(args.pad_to) if args.pad_to else None
    by = engine(args, pad_to)
    grid, shard = read_grid(args.grid, args.set), sharding.chosen(args.shard)
    by.check(grid, shard)
    job = prepare(grid, args.out or Path("results") / grid.name, shard, pad_to, args.fail_fast, resume_command)
    for remark in job.remarks:
        print(remark, file=sys.stderr)
    if args.dry_run:
        print(json.dumps(job.facts()) if args.json else "\n".join(job.describe()))
        return OK
    return _sweep(job, by, Events(sys.stdout) if args.json_log else None, interrupts)


def _sweep(job: Job, by: Engine, events: Events | None, interrupts: Interrupts) -> int:
    """Runs what is missing, reports what became of it, draws the picture; returns the exit code."""
    outcome = Outcome()
    try:
        with by.opened(job.grid) if job.to_do else contextlib.nullcontext(_nothing) as execute:
            outcome = carry_out(job, execute, progress(job.tally, events), interrupts)
        code = outcome.exit_code
        for line in job.problems(outcome):
            print(line, file=sys.stderr)
        if job.has_picture(outcome):
            try:
                _picture(job, events)
            except (StoreError, OSError) as error:
                print(f"the picture could not be made: {error}; finished runs are kept. To go on: {job.resume_command}", file=sys.stderr)
                code = code or FAILED
    except KeyboardInterrupt:
        print(interrupted(job.resume_command), file=sys.stderr)
        code = INTERRUPTED
    if events:
        facts = {"unsaved": outcome.unsaved, "failed": outcome.failed, "interrupted": code == INTERRUPTED, "command": job.resume_command}
        events.emit("done", exit_code=code, runs_executed=outcome.runs, seconds=events.elapsed, **facts)
    return code


def _nothing(*_: object) -> Outcome:
    return Outcome()


def _picture(job: Job, events: Events | None) -> None:
    """The table and the picture of what this grid has so far; no table for a machine."""
    import pandas as pd

    from .report import accuracy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # copies left by compact are no news here
        frame: Any = load(job.store.folder)
    runs = job.runs
    mine = frame[[run in runs for run in zip(frame["point_id"], frame["seed"], strict=True)]]
    if mine.empty:
        return
    path = job.store.folder / "accuracy.png"
    remark = accuracy.of_sweep(mine, job.grid.axes, job.grid.name, path)
    if events:
        events.emit("picture", path=str(path), rows=len(mine))
        return
    if rows := job.table():
        heading, number, table = "N at which the mean accuracy over seeds crosses theta, and its 95 % interval", _short, pd.DataFrame(rows)
    else:
        x, line, panels = accuracy.places(job.grid.axes)
        heading = f"accuracy, mean over {mine['seed'].nunique()} seeds" + (f"; one column per {line}" if line else "")
        number = "{:.3f}".format
        table = mine.pivot_table(values="accuracy", index=[*panels, x], columns=line)
    shown = {"max_rows": 40, "max_columns": 12, "width": 120, "float_format": number}
    with pd.option_context(*(part for name, value in shown.items() for part in (f"display.{name}", value))):
        print(f"\n{heading}")
        print(table)
    print(f"\ntable:   {job.store.folder / 'parts'} ({len(mine)} rows of this grid; jaxrecall.load({str(job.store.folder)!r}))")
    print(f"picture: {path}" + (f" ({remark})" if remark else ""))


def _short(number: float) -> str:
    return f"{number:.4g}" if number < 1e4 else f"{number:.0f}"


if __name__ == "__main__":
    exit_code = main()
    if exit_code == INTERRUPTED:
        sys.stdout.flush()
        os._exit(exit_code)  # everything is saved; the usual way out would wait for the batch in flight
    raise SystemExit(exit_code)
