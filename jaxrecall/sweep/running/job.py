"""A job: a grid, its results folder, and what is missing there.

`prepare` writes nothing, and refuses everything that can be refused before a run;
`carry_out` runs a job by any executor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import NamedTuple

from ...cli.command import commit, versions, xla_flags
from ...cli.process import INTERRUPTED, Interrupts
from ...errors import GridError, StoreError, UsageError, plural
from ...model.point import TRAINING, Run, RunId
from ..files import Json
from ..grid import Grid
from ..machine import cores, described, memory_described, memory_limit
from ..plan import Plan, Shard, make_plan, without_shard
from ..searches import KnownAccuracies, Searches, as_known
from ..simulators import Facts
from ..store import PART_ROWS, Done, Store
from .call import Call
from .progress import Display, duration

Executor = Callable[[Plan, Call], None]
"""Carries out a plan; the call takes the rows."""

UNKNOWN = "time and memory are unknown until the first batch has run"
"""The estimate for a simulator of the user's."""


@dataclass(frozen=True)
class Workload:
    """How many runs of a job are done and left, and the estimated cost of the latter.

    For a search it is the worst case: every run that may be left is at the largest
    value of its axis.
    """

    points: int
    runs: int
    done: int
    todo: int
    programs: int
    program_list: list[Json]
    est_flops: float | None = None
    est_seconds: float | None = None
    est_peak_bytes: int | None = None


@dataclass
class Job:
    """A grid, its results folder, and what is missing there."""

    grid: Grid
    store: Store
    shard: Shard | None
    search: Searches | None
    """The searches of all cells, where the grid has a `search`."""

    wanted: set[RunId]
    """All runs of a sweep."""

    n_done: int
    """The number of runs that need not run again."""

    plan: Plan
    """The plan of the missing runs; of a search a guess, which decides the programs."""

    remarks: list[str]
    """Lines to print before the job starts."""

    call: Call
    """What was carried out, also if a signal ends the call."""

    @property
    def runs(self) -> set[RunId]:
        """All runs of this job, finished or not; of a search up to its next round."""
        if not self.search:
            return self.wanted
        return self.search.used | {run.id for run in self.search.pending}

    @property
    def to_do(self) -> bool:
        """Whether anything is missing."""
        return bool(self.search.pending if self.search else self.plan.chunks)

    def workload(self) -> Workload:
        plan = self.plan
        if self.search:
            n_points = len(self.grid.points)
            n_runs, flops, seconds = self.search.worst_case()
            programs = self.search.programs()
        else:
            n_points = len({run.point_id for run in self.wanted})
            n_runs, flops, seconds = plan.n_runs, plan.flops, plan.seconds
            programs = plan.describe()
        work = Workload(
            points=n_points,
            runs=self.n_done + n_runs,
            done=self.n_done,
            todo=n_runs,
            programs=len(programs),
            program_list=programs,
        )
        if not plan.simulator.facts.is_ours:
            return work
        return replace(
            work,
            est_flops=flops,
            est_seconds=seconds,
            est_peak_bytes=plan.peak_bytes,
        )

    def facts(self) -> Json:
        """The workload as plain data; of a search also how many cells are finished."""
        facts = vars(self.workload())
        if not self.search:
            return facts
        return facts | {
            "searches": len(self.search.cells),
            "finished": self.search.finished,
        }

    def describe(self) -> list[str]:
        """The workload as lines of text, for a dry run."""
        if self.search:
            return [
                f"{self.grid.name}: {self.search}",
                *self._search_lines(self.search),
            ]
        lines = [f"{self.grid.name}: {_size_of(self.grid)}"]
        if self.shard:
            lines.append(f"{self.shard}: {len(self.wanted)} of these runs")
        return lines + self._sweep_lines()

    def _sweep_lines(self) -> list[str]:
        if not self.to_do:
            return [self.start_line()]
        plan, work = self.plan, self.workload()
        cost = UNKNOWN
        if plan.simulator.facts.is_ours:
            cost = (
                f"about {plan.flops:.2g} flops, {_time(plan)},"
                f" {plan.peak_bytes / 2**20:.0f} MiB of memory"
            )
            if plan.workers > 1:
                cost += f" in {plan.workers} workers"
        return [
            f"{self.n_done} done in {self.store.folder}, {work.todo} to do in"
            f" {plural(work.programs, 'program')}",
            *map(_program_line, work.program_list),
            cost,
            described(),
        ]

    def _search_lines(self, search: Searches) -> list[str]:
        if not self.to_do:
            return [self.start_line()]
        work = self.workload()
        cost = UNKNOWN
        if work.est_seconds is not None:
            cost = (
                f"about {duration(search.likely_seconds())} if cells cross in the"
                f" middle of the range, {duration(work.est_seconds)} if every run were"
                f" at the largest {search.axis}"
            )
        return [
            f"{self.n_done} done in {self.store.folder}, at most {work.todo} to do in"
            f" {plural(work.programs, 'program')}",
            cost,
        ]

    def start_line(self) -> str:
        """The workload as one line, printed when the job starts."""
        folder, plan = self.store.folder, self.plan
        n_done = plural(self.n_done, "run")
        if not self.to_do:
            these = f"{n_done} of {self.shard}" if self.shard else n_done
            return f"nothing to do: all {these} are in {folder}"
        if self.search:
            return (
                f"{self.grid.name}: {self.search}, {n_done} done; rows go to {folder}"
            )
        title = f"{self.grid.name}, {self.shard}" if self.shard else self.grid.name
        cost = f"about {_time(plan)}" if plan.simulator.facts.is_ours else UNKNOWN
        return (
            f"{title}: {self.n_done} of {len(self.wanted)} runs done, {plan.n_runs} to"
            f" do in {plural(len(plan.peaks), 'program')}, {cost}; rows go to {folder}"
        )

    def manifest(self) -> Json:
        """The contents of manifest.json.

        The grid, its runs as far as they are known, versions, the commit if known, and
        the command that resumes the job.
        """
        facts, settings = self.grid.simulator.facts, self.plan.settings
        manifest = {
            "grid": self.grid.resolved,
            "plan": self.recorded(),
            "code_version": facts.version,
            "precision": facts.precision(settings.precision),
            "versions": versions(),
        }
        if xla_flags():
            manifest["xla_flags"] = " ".join(xla_flags())
        if commit():
            manifest["commit"] = commit()
        again = self.call.resume_command
        manifest["command"] = without_shard(again) if self.shard else again
        return manifest

    def recorded(self) -> Json:
        """What `status` counts by, so that it need not make the grid again.

        All runs of the grid, of every shard, as seeds and the ids of the points that
        have them; of a search those until its next round, and how far it is.
        """
        points = self.grid.points
        if not self.search:
            seeds = " ".join(map(str, self.grid.seeds))
            ids = " ".join(point.point_id for point in points)
            return {"points": len(points), "progress": None, "runs": [[seeds, ids]]}
        progress = str(self.search)
        if self.search.pending:
            progress += "; the runs to do are those of its next round"
        runs = []
        for point_id, group in groupby(sorted(self.runs), lambda run: run.point_id):
            runs.append([" ".join(str(run.seed) for run in group), point_id])
        return {"points": len(points), "progress": progress, "runs": runs}

    def has_picture(self) -> bool:
        """Whether there are rows to draw.

        The whole grid is drawn by the call without --shard.
        """
        is_whole = self.search is not None or not self.shard
        return is_whole and self.n_done + self.call.runs > self.call.unsaved

    def problems(self) -> Iterator[str]:
        """A line for each kind of loss or failure, with the command that resumes."""
        call, again = self.call, self.call.resume_command
        if call.unsaved:
            yield (
                f"{call.unsaved} finished runs could not be saved and are lost. To"
                f" compute just those again: {again}"
            )
        if call.exit_code == INTERRUPTED:
            yield interrupted(again)
        elif call.failures:
            yield (
                f"{plural(len(call.failures), 'chunk')} failed, see"
                f" {self.store.failures}. To try them again: {again}"
            )


def interrupted(resume_command: str) -> str:
    """The line for a call that a signal ended."""
    return f"interrupted; finished runs are kept. To resume: {resume_command}"


def _size_of(grid: Grid) -> str:
    points, seeds = plural(len(grid.points), "point"), plural(len(grid.seeds), "seed")
    size = f"{points} x {seeds} = {plural(grid.n_runs, 'run')}"
    if grid.n_excluded:
        size += f", {grid.n_excluded} excluded by where"
    if grid.n_duplicates:
        size += f", {grid.n_duplicates} duplicates dropped"
    return size


def _program_line(entry: Json) -> str:
    """What a program runs, and what that costs if it is known."""
    counts = [plural(entry[f"{noun}s"], noun) for noun in ("point", "run", "chunk")]
    line = f"  program {entry['program']}: {', '.join(counts)}"
    if entry["est_seconds"] is None:
        return line
    memory = f"{entry['est_peak_bytes'] / 2**20:.0f} MiB"
    return f"{line}, about {duration(entry['est_seconds'])}, {memory}"


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
    precision = grid.simulator.facts.precision(settings.precision)
    sources = grid.simulator.sources(grid.points)
    done = _done(store, grid.simulator.facts, precision, sources)
    limit = grid.limits.max_bytes or memory_limit()
    search, wanted = None, set[RunId]()
    if grid.search:
        known = _known_accuracies(store, grid, precision) if done.runs else {}
        search = Searches(grid, known, settings, pad_to, limit)
        plan, n_done = search.guess, len(search.used)
    else:
        runs = _runs_of(grid, shard)
        wanted = {run.id for run in runs}
        missing = [run for run in runs if run.id not in done.runs]
        plan = make_plan(missing, pad_to, limit, settings, simulator=grid.simulator)
        n_done = len(wanted) - plan.n_runs
    _check_memory(plan, limit)
    store.columns, store.kept = grid.columns, grid.kept
    store.about = _metadata(grid, sources)
    call = Call(store, settings, resume_command, grid.crosses, search)
    remarks = list(_remarks(grid, store, done))
    return Job(grid, store, shard, search, wanted, n_done, plan, remarks, call)


def _runs_of(grid: Grid, shard: Shard | None) -> list[Run]:
    """The runs of a grid, or of a shard of it."""
    if shard:
        return shard.of(grid.points, grid.seeds, grid.simulator)
    return [Run(point, seed) for point in grid.points for seed in grid.seeds]


def _known_accuracies(store: Store, grid: Grid, precision: str) -> KnownAccuracies:
    """What a search needs of the finished runs in the folder."""
    found, _, _ = store.last_values(grid.crosses, "status")
    mine = found.get((grid.simulator.facts.version, precision), {})
    return {run: as_known(*values) for run, values in mine.items()}


def _metadata(grid: Grid, sources: Mapping[str, str]) -> Json:
    """The metadata of the parts that a grid writes."""
    about = grid.simulator.facts.about() | {
        "axes": list(grid.axes),
        "searched": grid.searched,
        "fixed": grid.fixed,
    }
    if sources:
        about["sources"] = sources
    if grid.kept_columns:
        about["kept"] = list(grid.kept_columns)
    if xla_flags():
        about["xla_flags"] = xla_flags()
    return about


def _remarks(grid: Grid, store: Store, done: Done) -> Iterator[str]:
    """What to know of the grid and the results folder before the job starts."""
    for path, reason in done.unreadable:
        yield (
            f"{path}: cannot be read as results, so its runs count as missing"
            f" ({reason})"
        )
    base = grid.resolved["base"]
    unused = [
        name
        for name in TRAINING
        if base.get(name) is not None and grid.fixed.get(name, "") is None
    ]
    if unused:
        yield (
            f"note: {', '.join(unused)}: no effect, as no point takes more than the"
            " three steps; steps: 100 takes 97 more"
        )
    if grid.search:
        return
    points = {point.point_id for point in grid.points}
    n_others = sum(run.point_id not in points for run in done.runs)
    if n_others:
        yield (
            f"note: {store.folder} also holds {n_others} runs of points not in this"
            " grid; load, fit and report read them too. --out DIR keeps grids apart"
        )


def _check_memory(plan: Plan, limit: int) -> None:
    """Raises GridError where a program needs more bytes than the limit."""
    if plan.peak_bytes <= limit:
        return
    largest = max(plan.peaks, key=plan.peaks.__getitem__)
    allowed = f"{limit / 2**20:.0f} MiB"
    if limit == memory_limit():
        allowed = memory_described()
    raise GridError(
        f"limits.max_bytes: program {largest} needs about"
        f" {plan.peak_bytes / 2**20:.0f} MiB; allowed: {allowed}. Lower V, d or m, or"
        " raise limits.max_bytes."
    )


class _Conflict(NamedTuple):
    """Rows of a folder that must not be mixed with those of a call."""

    held: str
    added: str = ""
    advice: str = "Choose another --out"


def _done(
    store: Store, facts: Facts, precision: str, sources: Mapping[str, str]
) -> Done:
    """The finished runs of the folder.

    Raises StoreError if it has rows of another simulator, version or precision, or with
    other columns or changed laws of the user's own.
    """
    done = store.done(facts.version, precision)
    conflict = _conflict(done, facts, precision, sources)
    if conflict:
        added = f"; this call would add {conflict.added}" if conflict.added else ""
        raise StoreError(
            f"{store.folder}: holds {conflict.held}{added}. {conflict.advice}, or move"
            " the old rows away."
        )
    return done


def _conflict(
    done: Done, facts: Facts, precision: str, sources: Mapping[str, str]
) -> _Conflict | None:
    mine = json.dumps(facts.about().get("columns", {}), sort_keys=True)
    other_columns = done.columns - {mine}
    if other_columns:
        return _Conflict(
            f"rows with these columns of your own: {_columns(other_columns)}",
            f"rows with {_columns([mine])}",
            "Choose another --out, give the same columns with the same source",
        )
    other_simulators = done.simulators - {facts.name}
    if other_simulators:
        names = ", ".join(sorted(other_simulators))
        return _Conflict(f"rows of the simulator {names}", f"rows of {facts.name}")
    changed = [
        name
        for name, digest in sources.items()
        if done.sources.get(name, digest) != digest
    ]
    if changed:
        return _Conflict(
            f"rows of {', '.join(sorted(changed))} from other source than it has now",
            advice="Give a changed law a new name, choose another --out",
        )
    if not done.foreign:
        return None
    held, precisions = [], [precision]
    for (version, other_precision), n in done.foreign.items():
        held.append(f"{n} runs of code_version {version}, precision {other_precision}")
        precisions.append(other_precision)
    x64 = any("x64" in text for text in precisions)
    setting = "JAX_ENABLE_X64" if x64 else "run.precision"
    return _Conflict(
        ", ".join(held),
        f"code_version {facts.version}, precision {precision}",
        f"Choose another --out, set {setting} to match",
    )


def _columns(texts: Iterable[str]) -> str:
    """Columns of the user's own, each given as JSON."""
    return " and ".join(sorted(text.strip("{}") or "none" for text in texts))


def carry_out(
    job: Job, execute: Executor, display: Display | None, interrupts: Interrupts
) -> Call:
    """Creates the results folder if needed, and runs what is missing there.

    Raises StoreError, also where a part would not fit on the disk, and
    KeyboardInterrupt where a signal comes before anything runs.
    """
    call, store, plan = job.call, job.store, job.plan
    call.display, call.interrupts = display, interrupts
    store.prepare(job.manifest(), _rows_of_a_part(plan) if job.to_do else 0)
    store.unify(call.message)
    store.clear_failures(job.runs)
    if not job.search:
        call.n_runs, call.n_programs = plan.n_runs, len(plan.peaks)
        call.est_seconds = sum(chunk.seconds for chunk in plan.chunks)
    work = job.workload()
    call.show(
        "start",
        job.start_line(),
        grid=job.grid.name,
        out=str(store.folder),
        shard=str(job.shard) if job.shard and not job.search else None,
        runs=work.runs,
        done=work.done,
        todo=work.todo,
        programs=work.programs,
        est_seconds=work.est_seconds,
    )
    interrupts.message = call.message
    try:
        if job.search:
            _search(job, job.search, execute)
        elif job.to_do:
            execute(plan, call)
        store.unify(call.message)  # another call may have added columns meanwhile
    finally:
        call.show("close")
    return call


def _rows_of_a_part(plan: Plan) -> int:
    """The rows of the first runs, so many that they fill a part if there are enough."""
    runs = chain.from_iterable(chunk.runs for chunk in plan.chunks)
    return sum(len(run.point.recorded_steps) for run in islice(runs, PART_ROWS))


def _search(job: Job, search: Searches, execute: Executor) -> None:
    """Runs rounds until every cell is finished or waits for a failed run.

    It ends earlier if the call is to stop, and writes what was found.
    """
    call = job.call
    failed: set[RunId] = set()
    while runs := [run for run in search.pending if run.id not in failed]:
        call.round += 1
        call.n_runs += len(runs)
        execute(search.plan(runs), call)
        search.update(call.accuracy)
        job.store.note("manifest", job.manifest())
        failed |= {run.id for run in runs} - call.accuracy.keys()
        if call.stopping or call.unsaved:
            break
    path = job.store.note("search", search.report())
    call.show(
        "search", path=str(path), searches=len(search.cells), finished=search.finished
    )
