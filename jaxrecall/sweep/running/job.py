"""A job: a grid, its results folder, and what is missing there. A sweep is a search of
one round.

`prepare` writes nothing, and refuses everything that can be refused before a run;
`carry_out` runs a job by any executor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path

from ...cli.command import commit, versions, xla_flags
from ...cli.process import INTERRUPTED, Interrupts
from ...errors import GridError, StoreError, UsageError, plural
from ...model.point import TRAINING, Run, RunId
from ..files import Json
from ..grid import Grid
from ..machine import cores, described, memory_described, memory_limit
from ..plan import Plan, Shard, without_shard
from ..plan import make as make_plan
from ..rounds import Rounds, as_known
from ..simulators import Facts
from ..store import PART_ROWS, Done, Store
from .progress import Display, duration
from .record import Record

Executor = Callable[[Plan, Record], None]
"""Carries out a plan; the record takes the rows."""

UNKNOWN = "time and memory are unknown until the first batch has run"
"""Of a simulator of the user's."""


@dataclass
class Job:
    """A grid, its results folder, and what is missing there."""

    grid: Grid
    store: Store
    shard: Shard | None
    search: Rounds | None
    """The searches of all cells, where the grid has a `search`."""

    wanted: set[RunId]
    """All runs of a sweep."""

    n_done: int
    """Runs that need not run again."""

    plan: Plan
    """Of the missing runs; of a search a guess, which decides the programs."""

    remarks: list[str]
    """Lines to print before the job starts."""

    record: Record
    """Of what was carried out, also if a signal ends the call."""

    @property
    def runs(self) -> set[RunId]:
        """All runs of this job, finished or not; of a search those until its next
        round.
        """
        return (
            self.search.used | {run.id for run in self.search.pending}
            if self.search
            else self.wanted
        )

    @property
    def to_do(self) -> bool:
        """Whether anything is missing."""
        return bool(self.search.pending if self.search else self.plan.chunks)

    def facts(self) -> Json:
        """The runs that are left and their estimated cost, as plain data.

        Of a search the worst case, in which every run that may be left is at the
        largest value of its axis.
        """
        plan, search = self.plan, self.search
        n_runs, flops, seconds = (
            search.worst_case() if search else (plan.n_runs, plan.flops, plan.seconds)
        )
        programs = search.programs() if search else plan.describe()
        known = plan.simulator.facts.is_ours
        return {
            "points": (
                len(self.grid.points)
                if search
                else len({run.point_id for run in self.wanted})
            ),
            "runs": self.n_done + n_runs,
            "done": self.n_done,
            "todo": n_runs,
            "programs": len(programs),
            "program_list": programs,
            "est_flops": flops if known else None,
            "est_seconds": seconds if known else None,
            "est_peak_bytes": plan.peak_bytes if known else None,
            **(
                {"searches": len(search.cells), "finished": search.finished}
                if search
                else {}
            ),
        }

    def describe(self) -> list[str]:
        """The same as lines of text, for a dry run."""
        grid, plan, facts, search = self.grid, self.plan, self.facts(), self.search
        title = (
            f"{plural(len(grid.points), 'point')} x {plural(len(grid.seeds), 'seed')} ="
            f" {plural(grid.n_runs, 'run')}"
        )
        title += f", {grid.n_excluded} excluded by where" * bool(grid.n_excluded)
        title += f", {grid.n_duplicates} duplicates dropped" * bool(grid.n_duplicates)
        lines = [f"{grid.name}: {search or title}"]
        if self.shard and not search:
            lines.append(f"{self.shard}: {len(self.wanted)} of these runs")
        if not self.to_do:
            return [*lines, self.start_line()]
        at_most, programs = (
            "at most " * bool(search),
            plural(facts["programs"], "program"),
        )
        lines.append(
            f"{self.n_done} done in {self.store.folder}, {at_most}{facts['todo']} to do"
            f" in {programs}"
        )
        lines += (
            [] if search else [_program_line(entry) for entry in facts["program_list"]]
        )
        if not plan.simulator.facts.is_ours:
            lines.append(UNKNOWN)
        elif search:
            all_at_most = (
                f"{duration(facts['est_seconds'])} if every run were at the largest"
                f" {search.axis}"
            )
            lines.append(
                f"about {duration(search.likely_seconds())} if cells cross in the"
                f" middle of the range, {all_at_most}"
            )
        else:
            each = f" in {plan.workers} workers" * (plan.workers > 1)
            lines.append(
                f"about {plan.flops:.2g} flops, {_time(plan)},"
                f" {plan.peak_bytes / 2**20:.0f} MiB of memory{each}"
            )
        return [*lines, *([] if search else [described()])]

    def start_line(self) -> str:
        """The same as one line, printed when the job starts."""
        folder, n_runs, plan = self.store.folder, len(self.runs), self.plan
        if not self.to_do:
            return (
                f"nothing to do: all {plural(self.n_done, 'run')}"
                f" {f'of {self.shard} ' if self.shard else ''}are in {folder}"
            )
        if self.search:
            return (
                f"{self.grid.name}: {self.search}, {plural(self.n_done, 'run')} done;"
                f" rows go to {folder}"
            )
        title = f"{self.grid.name}, {self.shard}" if self.shard else self.grid.name
        about = f"about {_time(plan)}" if plan.simulator.facts.is_ours else UNKNOWN
        to_do = f"{plan.n_runs} to do in {plural(len(plan.peaks), 'program')}, {about}"
        return (
            f"{title}: {self.n_done} of {n_runs} runs done, {to_do}; rows go to"
            f" {folder}"
        )

    def manifest(self) -> Json:
        """The contents of manifest.json.

        The grid, its runs as far as they are known, versions, the commit if known, and
        the command that resumes the job.
        """
        again = self.record.resume_command
        return {
            "grid": self.grid.resolved,
            "plan": self.recorded(),
            "code_version": self.grid.simulator.facts.version,
            "precision": self.grid.simulator.facts.precision(
                self.plan.settings.precision
            ),
            "versions": versions(),
            **{
                name: found
                for name, found in (
                    ("xla_flags", " ".join(xla_flags())),
                    ("commit", commit()),
                )
                if found
            },
            "command": without_shard(again) if self.shard else again,
        }

    def recorded(self) -> Json:
        """What `status` counts by, so that it need not make the grid again.

        All runs of the grid, of every shard, as seeds and the ids of the points that
        have them; of a search those until its next round, and how far it is.
        """
        points, progress = self.grid.points, None
        runs = [
            [
                " ".join(map(str, self.grid.seeds)),
                " ".join(point.point_id for point in points),
            ]
        ]
        if self.search:
            by_point = groupby(sorted(self.runs), lambda run: run.point_id)
            runs = [
                [" ".join(str(run.seed) for run in found), point_id]
                for point_id, found in by_point
            ]
            progress = (
                f"{self.search}"
                + "; the runs to do are those of its next round"
                * bool(self.search.pending)
            )
        return {"points": len(points), "progress": progress, "runs": runs}

    def has_picture(self) -> bool:
        """Whether there are rows to draw; the whole grid's picture is for the call
        without --shard.
        """
        return self.n_done + self.record.runs > self.record.unsaved and (
            not self.shard or self.search is not None
        )

    def problems(self) -> Iterator[str]:
        """One line for each kind of loss or failure, with the command that resumes the
        job.
        """
        record, again = self.record, self.record.resume_command
        if record.unsaved:
            yield (
                f"{record.unsaved} finished runs could not be saved and are lost. To"
                f" compute just those again: {again}"
            )
        if record.exit_code == INTERRUPTED:
            yield interrupted(again)
        elif record.failures:
            yield (
                f"{plural(len(record.failures), 'chunk')} failed, see"
                f" {self.store.failures}. To try them again: {again}"
            )


def interrupted(resume_command: str) -> str:
    """The line for a call that a signal ended."""
    return f"interrupted; finished runs are kept. To resume: {resume_command}"


def _program_line(entry: Json) -> str:
    """What a program runs, and what that costs if it is known."""
    counts = ", ".join(
        plural(entry[f"{noun}s"], noun) for noun in ("point", "run", "chunk")
    )
    seconds, memory = entry["est_seconds"], entry["est_peak_bytes"]
    return f"  program {entry['program']}: {counts}" + (
        ""
        if seconds is None
        else f", about {duration(seconds)}, {memory / 2**20:.0f} MiB"
    )


def _time(plan: Plan) -> str:
    return (
        f"{duration(plan.seconds)} on {plural(cores(), 'core')}, compilation included"
    )


def prepare(
    grid: Grid,
    folder: str | Path | Store,
    shard: Shard | None = None,
    pad_to: tuple[int, int, int] | None = None,
    fail_fast: bool = False,
    resume_command: str = "",
) -> Job:
    """The job of a grid, or of a shard of it, in a results folder.

    Args:
        grid: the points and seeds.
        folder: the results folder, which need not exist.
        shard: the share of the runs; None: all.
        pad_to: sizes (V, d, m) of one program for every point; None: as the plan
            chooses.
        fail_fast: whether the first failed chunk ends the job.
        resume_command: the command that repeats or resumes the call.

    Raises:
        GridError, UsageError or StoreError for what is refused.
    """
    if grid.search and shard and shard.count > 1:
        raise UsageError(
            f"--shard: got {shard} for a search, which is sequential; allowed:"
            " --workers, --engine ray, --shard 0/1"
        )
    settings = replace(grid.settings, fail_fast=fail_fast)
    store = folder if isinstance(folder, Store) else Store(folder)
    store.check()
    facts = grid.simulator.facts
    precision = facts.precision(settings.precision)
    sources = grid.simulator.sources(grid.points)
    done = _done(store, facts, precision, sources)
    limit = grid.limits.max_bytes or memory_limit()
    search, wanted = None, set[RunId]()
    if grid.search:
        known = store.last_values(grid.crosses, "status")[0] if done.runs else {}
        mine = known.get((facts.version, precision), {})
        search = Rounds(
            grid,
            {run: as_known(*values) for run, values in mine.items()},
            settings,
            pad_to,
            limit,
        )
        plan, n_done = search.guess, len(search.used)
    else:
        every = (Run(point, seed) for point in grid.points for seed in grid.seeds)
        runs = shard.of(grid.points, grid.seeds, grid.simulator) if shard else [*every]
        wanted = {run.id for run in runs}
        missing = [run for run in runs if run.id not in done.runs]
        plan = make_plan(missing, pad_to, limit, settings, simulator=grid.simulator)
        n_done = len(wanted) - plan.n_runs
    _check_memory(plan, limit)
    store.about = facts.about() | {
        "axes": list(grid.axes),
        "searched": grid.searched,
        "fixed": grid.fixed,
    }
    store.about |= {"sources": sources} if sources else {}
    store.columns, store.kept = grid.columns, grid.kept
    store.about |= {
        name: [*found]
        for name, found in (("kept", grid.kept_columns), ("xla_flags", xla_flags()))
        if found
    }
    record = Record(store, settings, resume_command, grid.crosses, search)
    return Job(
        grid,
        store,
        shard,
        search,
        wanted,
        n_done,
        plan,
        [*_remarks(grid, store, done)],
        record,
    )


def _remarks(grid: Grid, store: Store, done: Done) -> Iterator[str]:
    """What to know of the grid and the results folder before the job starts."""
    for path, reason in done.unreadable:
        yield (
            f"{path}: cannot be read as results, so its runs count as missing"
            f" ({reason})"
        )
    if unused := [
        name
        for name in TRAINING
        if grid.fixed.get(name, "") is None
        and grid.resolved["base"].get(name) is not None
    ]:
        yield (
            f"note: {', '.join(unused)}: no effect, as no point takes more than the"
            " three steps; steps: 100 takes 97 more"
        )
    points = {point.point_id for point in grid.points}
    n_others = (
        0 if grid.search else sum(run.point_id not in points for run in done.runs)
    )
    if n_others:
        yield (
            f"note: {store.folder} also holds {n_others} runs of points not in this"
            " grid; load, fit and report read them too. --out DIR keeps grids apart"
        )


def _check_memory(plan: Plan, limit: int) -> None:
    """Raises GridError where a program needs more bytes than the limit."""
    if plan.peak_bytes > limit:
        largest = max(plan.peaks, key=plan.peaks.__getitem__)
        allowed = (
            memory_described()
            if limit == memory_limit()
            else f"{limit / 2**20:.0f} MiB"
        )
        raise GridError(
            f"limits.max_bytes: program {largest} needs about"
            f" {plan.peak_bytes / 2**20:.0f} MiB; allowed: {allowed}. Lower V, d or m,"
            " or raise limits.max_bytes."
        )


def _done(
    store: Store, facts: Facts, precision: str, sources: Mapping[str, str]
) -> Done:
    """The finished runs of the folder.

    Raises StoreError if it holds rows of another simulator, version or precision, or
    with other columns or changed laws of the user's own.
    """
    done = store.done(facts.version, precision)
    mine = json.dumps(facts.about().get("columns", {}), sort_keys=True)
    held, adds, advice = "", "", "Choose another --out"
    if others := done.columns - {mine}:
        there, here = (
            " and ".join(sorted(other.strip("{}") or "none" for other in of))
            for of in (others, {mine})
        )
        held, adds = (
            f"rows with these columns of your own: {there}",
            f"rows with {here}",
        )
        advice += ", give the same columns with the same source"
    elif others := done.simulators - {facts.name}:
        held, adds = (
            f"rows of the simulator {', '.join(sorted(others))}",
            f"rows of {facts.name}",
        )
    elif changed := sorted(
        name
        for name, digest in sources.items()
        if done.sources.get(name, digest) != digest
    ):
        held = f"rows of {', '.join(changed)} from other source than it has now"
        advice = "Give a changed law a new name, choose another --out"
    elif done.foreign:
        held = ", ".join(
            f"{n} runs of code_version {v}, precision {p}"
            for (v, p), n in done.foreign.items()
        )
        adds = f"code_version {facts.version}, precision {precision}"
        x64 = any("x64" in p for p in (precision, *(p for _, p in done.foreign)))
        advice += f", set {'JAX_ENABLE_X64' if x64 else 'run.precision'} to match"
    if held:
        added = f"; this call would add {adds}" if adds else ""
        raise StoreError(
            f"{store.folder}: holds {held}{added}. {advice}, or move the old rows away."
        )
    return done


def carry_out(
    job: Job, execute: Executor, display: Display | None, interrupts: Interrupts
) -> Record:
    """Creates the results folder if needed, and runs what is missing in it, round by
    round.

    Raises StoreError, also where a part would not fit on the disk, and
    KeyboardInterrupt where a signal comes before anything runs.
    """
    record, store, plan = job.record, job.store, job.plan
    record.display, record.interrupts = display, interrupts
    # of so many runs the rows at least fill what `prepare` asks room for
    first = islice(
        (run for chunk in plan.chunks for run in chunk.runs),
        PART_ROWS if job.to_do else 0,
    )
    store.prepare(job.manifest(), sum(len(run.point.recorded_steps) for run in first))
    store.unify(record.message)
    store.clear_failures(job.runs)
    if not job.search:
        record.n_runs, record.n_programs = plan.n_runs, len(plan.peaks)
        record.est_seconds = sum(chunk.seconds for chunk in plan.chunks)
    started, facts = ("runs", "done", "todo", "programs", "est_seconds"), job.facts()
    about = {
        "grid": job.grid.name,
        "out": str(store.folder),
        "shard": str(job.shard) if job.shard and not job.search else None,
    }
    record.tell(
        "start", job.start_line(), **about, **{name: facts[name] for name in started}
    )
    interrupts.message = record.message
    try:
        if job.search:
            _search(job, job.search, execute)
        elif job.to_do:
            execute(plan, record)
        store.unify(record.message)  # another call may have added columns meanwhile
    finally:
        record.tell("close")
    return record


def _search(job: Job, search: Rounds, execute: Executor) -> None:
    """Runs rounds until every cell is finished or waits for a failed run, or the call
    is to stop.

    Writes what was found.
    """
    record = job.record
    failed: set[RunId] = set()
    while runs := [each for each in search.pending if each.id not in failed]:
        record.round, record.n_runs = record.round + 1, record.n_runs + len(runs)
        execute(search.plan(runs), record)
        search.update(record.accuracy)
        job.store.note("manifest", job.manifest())
        failed |= {each.id for each in runs} - record.accuracy.keys()
        if record.stopping or record.unsaved:
            break
    path = job.store.note("search", search.report())
    record.tell(
        "search", path=str(path), searches=len(search.cells), finished=search.finished
    )
