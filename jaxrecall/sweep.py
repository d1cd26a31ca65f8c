"""python -m jaxrecall.sweep: from a grid file to a table and a picture. Runs that are done are never run again."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .errors import GridError, Refused, StoreError
from .grid import Grid, json_schema, read_grid
from .plan import plan as planning
from .plan import shard as sharding
from .plan.cost import cores
from .plan.shard import Shard
from .run import engines
from .run.interrupts import Interrupts
from .run.progress import Events, Outcome, Tally, duration, progress
from .science.columns import CODE_VERSION
from .search.rounds import Rounds, known_rows
from .simulator.shape import Shape
from .store.load import load
from .store.store import Store

OK, USAGE, FAILED, INTERRUPTED = 0, 2, 3, 130

Begin = Callable[[], engines.Execute]


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m jaxrecall.sweep",
        description="Runs every (point, seed) of a grid that its results folder lacks, then draws accuracy against N.",
        epilog="Exit codes: 0 done, 2 usage or a refused grid, 3 something failed while running, 130 interrupted.",
    )
    p.add_argument("--grid", metavar="FILE", help="the grid, YAML; see sweeps/ for examples")
    p.add_argument("--out", metavar="DIR", help="results folder (default: results/<grid name>)")
    p.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], help="override an entry of the grid: base.V=512; repeatable")
    p.add_argument("--dry-run", action="store_true", help="say what would run and what it costs; run nothing")
    p.add_argument("--json", action="store_true", help="with --dry-run: one JSON object and nothing else")
    p.add_argument("--bucket", metavar="VxD[xM]", help="run every point in one program of these padded sizes")
    p.add_argument("--json-log", action="store_true", help="progress as one JSON object a line on stdout, and nothing else there")
    p.add_argument("--fail-fast", action="store_true", help="stop at the first failed chunk")
    p.add_argument("--print-schema", action="store_true", help="print the JSON Schema of grid files")
    engines.add_options(p)
    return p


@dataclass
class Job:
    """A grid, its results folder, and what is missing there."""

    grid: Grid
    store: Store
    engine: engines.Engine
    shard: Shard | None
    runs: set[tuple[str, int]]  # of the grid, or of this shard of it, as (point_id, seed)
    done: int
    plan: planning.Plan
    command: str  # repeats or resumes this call
    search: Rounds | None = None  # then `runs` are those that it has used or waits for, and `plan` is a guess

    @property
    def to_do(self) -> bool:
        return bool(self.search.waiting if self.search else self.plan.chunks)

    @property
    def title(self) -> str:
        return f"{self.grid.name}, {self.shard}" if self.shard else self.grid.name

    @property
    def n_points(self) -> int:
        return len(self.grid.points) if self.search else len({point_id for point_id, _ in self.runs})


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    command = f"{Path(sys.executable).name} -m jaxrecall.sweep {shlex.join(argv)}"
    with Interrupts() as interrupts:
        try:
            return _main(args, command, interrupts)
        except KeyboardInterrupt:
            return _interrupted(command)


def _main(args: argparse.Namespace, command: str, interrupts: Interrupts) -> int:
    if args.print_schema:
        print(json.dumps(json_schema(), indent=2))
        return OK
    try:
        if not args.grid:
            raise GridError("--grid: nothing given; allowed: a grid file, as in --grid sweeps/quickstart.yaml")
        if args.json and not args.dry_run:
            raise GridError("--json: goes with --dry-run only")
        if args.json_log and args.dry_run:
            raise GridError("--json-log: got with --dry-run; allowed: in a sweep, a dry run takes --json")
        job = _prepare(args, command)
        if args.dry_run:
            _dry_run(job, args.json)
            return OK
        with job.engine.opened(job.grid) if job.to_do else contextlib.nullcontext() as begin:
            job.store.prepare(_manifest(job))
            job.store.clear_failures(job.runs)
            return _sweep(job, begin, args.fail_fast, Events(sys.stdout) if args.json_log else None, interrupts)
    except Refused as error:
        print(error, file=sys.stderr)
        return USAGE


def _prepare(args: argparse.Namespace, command: str) -> Job:
    """Everything that can be refused, before anything is written or JAX is started."""
    engine = engines.engine(args)
    forced = Shape.parse(args.bucket) if args.bucket else None
    grid, shard = read_grid(args.grid, args.set), sharding.chosen(args.shard)
    if grid.search and (engine.name == "slurm" or (shard and shard.count > 1)):
        got = shard or "--engine slurm, whose tasks are shards,"
        raise GridError(f"--shard: got {got} for a search, which asks by what it has found; allowed: --workers, --engine ray, --shard 0/1")
    if engine.name == "slurm" and shard:
        raise GridError(f"--engine slurm: got {shard}; allowed: a call outside of a Slurm array and of jax.distributed")
    store = Store(args.out or Path("results") / grid.name)
    store.check()
    done = store.done(CODE_VERSION, grid.precision)
    if done.foreign:
        others = ", ".join(f"{n} rows of code_version {v}, precision {p}" for (v, p), n in done.foreign.items())
        raise StoreError(
            f"{store.folder}: holds {others}; this call would add code_version {CODE_VERSION}, precision {grid.precision}. "
            "Choose another --out, set run.precision to match, or move the old rows away."
        )
    for path, reason in done.unreadable:
        print(f"{path}: not readable as results, its runs count as missing ({reason})", file=sys.stderr)
    limit = grid.limits.max_bytes or planning.memory_limit()
    if grid.search:
        search = Rounds(grid, known_rows(store) if done.runs else {}, forced, limit)
        runs, n_done, plan = search.runs | search.waiting, len(search.runs), search.guess
    else:
        mine = shard.of(grid.points, grid.seeds) if shard else [(point, seed) for point in grid.points for seed in grid.seeds]
        search, runs = None, {(point.point_id, seed) for point, seed in mine}
        todo = [(point, seed) for point, seed in mine if (point.point_id, seed) not in done.runs]
        n_done, plan = len(runs) - len(todo), planning.make(todo, forced, limit=limit)
    if plan.peak_bytes > limit:
        biggest = max(plan.buckets, key=planning.peak_bytes)
        raise GridError(
            f"limits.max_bytes: program {biggest} needs about {plan.peak_bytes / 2**20:.0f} MiB; allowed: {limit / 2**20:.0f} MiB. "
            "Lower V, d or m, or raise limits.max_bytes."
        )
    return Job(grid, store, engine, shard, runs, n_done, plan, command, search)


def _dry_run(job: Job, as_json: bool) -> None:
    grid, plan, facts = job.grid, job.plan, _facts(job)
    if as_json:
        print(json.dumps(facts))
        return
    if job.search:
        print(f"{grid.name}: searches {job.search}")
        print(f"{job.done} runs of it in {job.store.folder}, at most {facts['todo']} to do in {facts['programs']} programs")
        print(f"about {duration(facts['est_seconds'])} if every one of them were at the largest N")
        return
    left_out = [f", {n} {why}" for n, why in ((grid.n_excluded, "excluded by where"), (grid.n_duplicates, "duplicates dropped")) if n]
    print(f"{grid.name}: {len(grid.points)} points x {len(grid.seeds)} seeds = {grid.n_runs} runs" + "".join(left_out))
    if job.shard:
        print(f"{job.shard}: {len(job.runs)} of these runs")
    print(f"{job.done} done in {job.store.folder}, {plan.n_runs} to do")
    for entry in facts["program_list"]:
        print(
            f"  program {entry['bucket']} {entry['activation']}: {entry['points']} points, {entry['runs']} runs, "
            f"{entry['chunks']} chunks, about {duration(entry['est_seconds'])}, {entry['est_peak_bytes'] / 2**20:.0f} MiB"
        )
    print(f"about {plan.flops:.2g} flops, {duration(plan.seconds)} with compilation, {plan.peak_bytes / 2**20:.0f} MiB at the peak")


def _facts(job: Job) -> dict[str, Any]:
    plan = job.plan
    return {
        "points": job.n_points,
        "runs": len(job.runs),
        "done": job.done,
        "todo": plan.n_runs,
        "programs": len(plan.buckets),
        "program_list": plan.describe(),
        "est_flops": plan.flops,
        "est_seconds": plan.seconds,
        "est_peak_bytes": plan.peak_bytes,
    } | (job.search.facts() if job.search else {})


def _manifest(job: Job) -> dict[str, Any]:
    grid, command = job.grid, job.command
    if job.shard and (before := job.store.read_manifest()) and before.get("grid") == grid.resolved:
        command = before.get("command", command)  # goes on with more than this shard
    versions = {name: version(name) for name in ("jaxrecall", "jax", "jaxlib", "numpy", "pyarrow")}
    return {"grid": grid.resolved, "code_version": CODE_VERSION, "precision": grid.precision, "versions": versions, "command": command}


def _sweep(job: Job, begin: Begin | None, fail_fast: bool, events: Events | None, interrupts: Interrupts) -> int:
    """Runs what is missing, says what became of it, draws the picture; returns the exit code."""
    outcome, code = Outcome(), OK
    try:
        outcome = _run(job, begin, fail_fast, events, interrupts)
        code = _ended(outcome, job)
        if job.search:
            job.runs = job.search.runs
            path = job.store.note("search", job.search.report())
            if events:
                events.emit("search", path=str(path), searches=len(job.search.cells), finished=job.search.finished)
        if job.done + outcome.runs > outcome.unsaved and not job.shard:  # the whole grid's picture is for the call without --shard
            try:
                _picture(job, events)
            except (StoreError, OSError) as error:
                print(f"the picture could not be made: {error}; finished runs are kept. To go on: {job.command}", file=sys.stderr)
                code = code or FAILED
    except KeyboardInterrupt:
        code = _interrupted(job.command)
    if events:
        facts = {"unsaved": outcome.unsaved, "failed": outcome.failed, "interrupted": code == INTERRUPTED, "command": job.command}
        events.emit("done", exit_code=code, runs_executed=outcome.runs, seconds=events.elapsed, **facts)
    return code


def _run(job: Job, begin: Begin | None, fail_fast: bool, events: Events | None, interrupts: Interrupts) -> Outcome:
    plan, grid, folder = job.plan, job.grid, job.store.folder
    if events:
        counts = {name: fact for name, fact in _facts(job).items() if name in ("runs", "done", "todo", "programs", "est_seconds")}
        events.emit("start", grid=grid.name, out=str(folder), shard=job.shard and str(job.shard), **counts)
    elif not job.to_do:
        print(f"nothing to do: all {job.done} runs {f'of {job.shard} ' if job.shard else ''}are in {folder}")
    elif job.search:
        print(f"{grid.name}: searches {job.search}, {job.done} runs done; rows go to {folder}", flush=True)
    else:
        print(
            f"{job.title}: {job.done} of {len(job.runs)} runs done, {plan.n_runs} to do in {len(plan.buckets)} programs, "
            f"about {duration(plan.seconds)} on {cores()} cores; rows go to {folder}",
            flush=True,
        )
    if begin is None:
        return Outcome()
    execute = begin()
    tell = progress(job.search.tally if job.search else Tally(plan.n_runs, sum(chunk.seconds for chunk in plan.chunks)), events)
    interrupts.say = tell.say

    def run(plan: planning.Plan) -> Outcome:
        return execute(plan, job.store, grid.precision, tell, interrupts, job.command, fail_fast, grid.part_seconds)

    try:
        return job.search.run(run, fail_fast) if job.search else run(plan)
    finally:
        tell.close()


def _ended(outcome: Outcome, job: Job) -> int:
    """Says what went wrong, and the command that goes on; the exit code."""
    if outcome.unsaved:
        print(
            f"{outcome.unsaved} finished rows could not be saved and are lost. To compute just those again: {job.command}", file=sys.stderr
        )
    if outcome.interrupted:
        return _interrupted(job.command)
    if outcome.failed:
        print(f"{outcome.failed} chunks failed, see {job.store.folder / 'failures'}. To try them again: {job.command}", file=sys.stderr)
    return FAILED if outcome.failed or outcome.unsaved else OK


def _interrupted(command: str) -> int:
    print(f"interrupted; finished runs are kept. To go on: {command}", file=sys.stderr)
    return INTERRUPTED


def _picture(job: Job, events: Events | None) -> None:
    """The table and the picture of what this grid has so far; no table for a machine."""
    import pandas as pd

    from .report import accuracy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # copies left by compact are no news here
        frame: Any = load(job.store.folder)
    mine = frame[[run in job.runs for run in zip(frame["point_id"], frame["seed"], strict=True)]]
    if mine.empty:
        return
    path = job.store.folder / "accuracy.png"
    remark = accuracy.of_sweep(mine, job.grid.axes, job.grid.name, path)
    if events:
        events.emit("picture", path=str(path), rows=len(mine))
        return
    if job.search:
        heading, number = "N at which the mean accuracy over seeds crosses theta, and its 95 % interval", _short
        table = pd.DataFrame(job.search.table()).drop(columns="point")
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
