"""A job: a grid, its results folder, and the runs that are missing there.

`prepare` makes a job and changes nothing. It raises every error that can be detected
before a run. `carry_out` runs a job with any executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, product, starmap
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import Table

from ...cli.command import commit, versions, xla_flags
from ...cli.process import INTERRUPTED, Interrupts
from ...errors import GridError, StoreError, UsageError, plural
from ...model.point import Run, RunId
from ..files import Json, Unreadable
from ..grid import Grid
from ..machine import cores, described, memory_described, memory_limit
from ..plan import Plan, Shard, by_id, make_plan, without_shard
from ..simulators.custom import X64, Simulator
from ..simulators.shipped import RECALL
from ..speed import learn, slowness
from ..store import LastValues, MemoryStore, Store
from ..store.table import read_facts
from .call import Call, as_known
from .progress import Display, duration

if TYPE_CHECKING:
    from ..searches import Searches

Executor = Callable[[Plan, Call], None]
"""A function that runs the chunks of a plan and passes the rows to the call."""

point_id = attrgetter("point_id")

STARTED = ("runs", "done", "todo", "programs", "est_seconds")
"""The keys of `Job.facts` that the `start` event contains."""

UNKNOWN = "time and memory are unknown until the first batch has run"
"""The text shown instead of an estimate for a user's simulator."""


@dataclass
class Job:
    """A grid, its results folder, and the runs that are missing there."""

    grid: Grid
    store: Store
    shard: Shard | None
    search: Searches | None
    """The searches of all cells, or None if the grid has no `search`."""

    wanted: set[RunId]
    """The ids of all runs of the sweep or its shard. The set is empty for a search."""

    n_done: int
    """The number of runs that are already finished."""

    plan: Plan
    """The plan of the missing runs. For a search, the plan is a guess."""

    remarks: list[str]
    """Lines to print before the job starts."""

    call: Call
    """The record of the completed work. The record is kept even after a signal."""

    cache_remark: str = ""
    """A line that states why compiled programs are not kept. The engine adds it."""

    @property
    def runs(self) -> set[RunId]:
        """The ids of all runs of this job, finished or not.

        For a search, the set contains the runs up to the next round.
        """
        if not self.search:
            return self.wanted
        return self.search.used.union(by_id(self.search.pending))

    @property
    def to_do(self) -> bool:
        """Whether any run is missing."""
        return bool(self.search.pending if self.search else self.plan.chunks)

    def facts(self) -> Json:
        """Returns the number of runs left and their estimated cost, as plain data.

        For a search, the numbers are upper bounds: every cell needs as many runs as it
        may use, and all of them are at the largest level of the searched axis.
        """
        plan, search = self.plan, self.search
        if search:
            n_points, programs = search.n_points, search.programs()
            n_runs, flops, seconds = search.cost()
        else:
            n_points = len(set(map(point_id, self.wanted)))
            programs = plan.describe()
            n_runs, flops, seconds = plan.n_runs, plan.flops, plan.seconds
        facts = {
            "points": n_points,
            "runs": self.n_done + n_runs,
            "done": self.n_done,
            "todo": n_runs,
            "programs": len(programs),
            "program_list": programs,
            **dict.fromkeys(("est_flops", "est_seconds", "est_peak_bytes")),
        }
        if plan.simulator.costs_known:
            facts["est_flops"], facts["est_seconds"] = flops, seconds
            facts["est_peak_bytes"] = plan.peak_bytes
        if search:
            facts["searches"] = len(search.cells)
            facts["finished"] = search.finished
        return facts

    def describe(self) -> list[str]:
        """Returns lines of text that describe the job, for a dry run."""
        title = self.search or _size_of(self.grid)
        lines = [f"{self.grid.name}: {title}"]
        if self.shard:
            lines.append(f"{self.shard}: {len(self.wanted)} of these runs")
        if not self.to_do:
            return [*lines, self.start_line()]
        facts = self.facts()
        at_most = "at most " if self.search else ""
        lines.append(
            f"{self.n_done} done in {self.store.folder}, {at_most}{facts['todo']} to do"
            f" in {plural(facts['programs'], 'program')}"
        )
        if self.search:
            return [*lines, _cost_of_search(self.search, facts["est_seconds"])]
        lines += map(_program_line, facts["program_list"])
        return [*lines, _cost_of_sweep(self.plan), described()]

    def start_line(self) -> str:
        """Returns the line that is printed when the job starts."""
        folder, plan = self.store.folder, self.plan
        n_done = plural(self.n_done, "run")
        if not self.to_do:
            these = f"{n_done} of {self.shard}" if self.shard else n_done
            return f"nothing to do: all {these} are in {folder}"
        if self.search:
            what = f"{self.grid.name}: {self.search}"
            return f"{what}, {n_done} done; rows go to {folder}"
        title = f"{self.grid.name}, {self.shard}" if self.shard else self.grid.name
        cost = f"about {_time(plan)}" if plan.simulator.costs_known else UNKNOWN
        return (
            f"{title}: {self.n_done} of {len(self.wanted)} runs done, {plan.n_runs} to"
            f" do in {plural(len(plan.peaks), 'program')}, {cost}; rows go to {folder}"
        )

    def manifest(self) -> Json:
        """Returns the contents of manifest.json.

        The manifest contains the grid, its known runs, the versions of packages, the
        commit if known, and the command that resumes the job.
        """
        simulator, settings = self.grid.simulator, self.plan.settings
        manifest = {
            "grid": self.grid.resolved,
            "plan": self.recorded(),
            "code_version": simulator.version,
            "precision": simulator.precision(settings.precision),
            "versions": versions(),
            "digests": self.store.about.get("digests", {}),
        }
        if xla_flags():
            manifest["xla_flags"] = " ".join(xla_flags())
        if commit():
            manifest["commit"] = commit()
        again = self.call.resume_command
        manifest["command"] = without_shard(again) if self.shard else again
        return manifest

    def recorded(self) -> Json:
        """Returns a dict that lists runs, so that `status` need not expand the grid.

        `runs` is a list of pairs of texts. The first text lists seeds, and the second
        lists the ids of the points that have these seeds. A sweep lists all runs of the
        grid, including those of other shards. A search lists the runs up to the next
        round, and `progress` describes its state.
        """
        points = self.grid.points
        if not self.search:
            seeds = " ".join(map(str, self.grid.seeds))
            ids = " ".join(map(point_id, points))
            return {"points": len(points), "progress": None, "runs": [[seeds, ids]]}
        progress = str(self.search)
        if self.search.pending:
            progress += "; the runs to do are those of its next round"
        runs = []
        for id, group in groupby(sorted(self.runs), point_id):
            runs.append([" ".join(str(run.seed) for run in group), id])
        return {"points": len(points), "progress": progress, "runs": runs}

    def has_picture(self) -> bool:
        """Whether a figure should be drawn.

        A shard draws no figure. A later call without --shard draws the figure of the
        whole grid. None can be drawn if the folder was deleted meanwhile.
        """
        has_rows = self.n_done + self.call.runs > self.call.unsaved
        return has_rows and not self.shard and self.store.manifest.exists()

    def problems(self) -> Iterator[str]:
        """Yields a line for each kind of failure, with the command that resumes the
        job.
        """
        call, again = self.call, self.call.resume_command
        if call.unsaved:
            yield (
                f"{call.unsaved} finished runs could not be saved and are lost. To"
                f" compute just those again: {again}"
            )
        if call.exit_code == INTERRUPTED:
            yield interrupted(again)
        elif call.failures:
            failed = call.early_end("--keep-going") or f"{call.n_failed} runs failed"
            yield f"{failed}. To try again: {again}"


def interrupted(resume_command: str) -> str:
    """Returns the line to print after a signal has ended a call."""
    return f"interrupted; finished runs are kept. To resume: {resume_command}"


def _size_of(grid: Grid) -> str:
    size = (
        f"{plural(len(grid.points), 'point')} x {plural(len(grid.seeds), 'seed')} ="
        f" {plural(grid.n_runs, 'run')}"
    )
    if grid.n_excluded:
        size += f", {grid.n_excluded} excluded by where"
    if grid.n_duplicates:
        size += f", {grid.n_duplicates} duplicates dropped"
    return size


def _program_line(entry: Json) -> str:
    """Returns a line with the number of runs of a program, and their cost if known."""
    line = (
        f"  program {entry['program']}: {plural(entry['points'], 'point')},"
        f" {plural(entry['runs'], 'run')}, {plural(entry['chunks'], 'chunk')}"
    )
    seconds = entry["est_seconds"]
    if seconds is None:
        return line
    memory = entry["est_peak_bytes"] / 2**20
    return f"{line}, about {duration(seconds)}, {memory:.0f} MiB"


def _cost_of_sweep(plan: Plan) -> str:
    if not plan.simulator.costs_known:
        return UNKNOWN
    cost = (
        f"about {plan.flops:.2g} flops, {_time(plan)}, {plan.peak_bytes / 2**20:.0f}"
        " MiB of memory"
    )
    return cost if plan.workers == 1 else f"{cost} in {plan.workers} workers"


def _cost_of_search(search: Searches, most: float | None) -> str:
    if most is None:
        return UNKNOWN
    _, _, likely = search.cost(in_the_middle=True)
    return (
        f"about {duration(likely)} if crossings are in the middle of"
        f" the range, {duration(most)} if every run were at the largest {search.axis}"
    )


def _time(plan: Plan) -> str:
    seconds = plan.seconds
    time = f"{duration(seconds)} on {plural(cores(), 'core')}, compilation included"
    if not slowness():
        time += f" (up to {duration(3 * seconds)}: no sweep has measured this machine)"
    return time


def prepare(
    grid: Grid,
    folder: str | Path | Store,
    shard: Shard | None = None,
    fail_fast: bool = False,
    keep_going: bool = False,
    resume_command: str = "",
    same_source: bool = False,
) -> Job:
    """Returns the job that runs a grid, or a shard of it, in a results folder.

    Args:
        grid: the points and seeds.
        folder: the results folder, which need not exist.
        shard: the share of the runs, or None for all runs. A search has no shards.
        fail_fast: whether the first failed chunk ends the job.
        keep_going: whether the job goes on even if its first 100 runs fail alike.
        resume_command: the command that repeats or resumes the call.
        same_source: whether code that has changed counts as the code of earlier rows.

    Raises:
        GridError, UsageError or StoreError if the job cannot run.
    """
    replaced, measured = ["manifest.json"], ()
    if grid.search:
        _check_undivided(shard)
        replaced.append("search.json")
        measured = grid.crosses, "status"
    settings = replace(grid.settings, fail_fast=fail_fast, keep_going=keep_going)
    store = folder if isinstance(folder, Store) else Store(folder)
    store.check(*replaced)
    precision = grid.simulator.precision(settings.precision)
    of_others, unreadable, tables = store.last_values(*measured)
    done = of_others.pop((grid.simulator.version, precision), {})
    _refuse_mixing(store, tables, of_others, grid.simulator, precision)
    limit = grid.limits.max_bytes or memory_limit()
    search, wanted = None, dict[RunId, Run]()
    if grid.search:
        from ..searches import Searches  # imports SciPy

        known = {run: as_known(*values) for run, values in done.items()}
        search = Searches(grid, known, settings, limit)
        plan, n_done = search.guess, search.n_done
    else:
        runs = starmap(Run, product(grid.points, grid.seeds))
        wanted = by_id(shard.of(grid) if shard else runs)
        plan = make_plan(
            [run for id, run in wanted.items() if id not in done],
            limit=limit,
            settings=settings,
            program=lambda point: grid.programs[point],
            simulator=grid.simulator,
        )
        n_done = len(wanted) - plan.n_runs
    _check_memory(plan, limit)
    store.about = _metadata(grid, _digests(grid, store, tables, same_source))
    call = Call(store, settings, resume_command, grid.crosses, search)
    remarks = list(_remarks(grid, store, done, unreadable))
    return Job(grid, store, shard, search, set(wanted), n_done, plan, remarks, call)


def _digests(
    grid: Grid, store: Store, tables: list[Table], same_source: bool
) -> dict[str, str]:
    """Returns the digests of the user's code whose rows a folder holds or will hold.

    Raises StoreError if the code of some rows has changed. The change is accepted if it
    is in the manifest or if `same_source` is true.
    """
    if isinstance(store, MemoryStore):
        return {}
    accepted: dict[str, str] = {}
    with suppress(StoreError):  # the sweep replaces a damaged manifest
        match store.read_manifest():
            case {"digests": dict(recorded)}:
                accepted = recorded
    digests = accepted | grid.simulator.sources(grid.points)
    changed = set[str]()
    for table in tables:
        for name, digest in (read_facts(table).get("digests") or {}).items():
            if digests.get(name, digest) not in (digest, accepted.get(name)):
                changed.add(name)
    if changed and not same_source:
        held = f"rows of {', '.join(sorted(changed))} from other source than it has now"
        advice = (
            "Undo the change, give a changed law a new name, choose another --out, add"
            " --same-source if the numbers are the same"
        )
        raise _mixed(store, held, advice=advice)
    return digests


def _metadata(grid: Grid, digests: Mapping[str, str]) -> Json:
    """Returns the metadata for the part files of a grid."""
    about = grid.simulator.about() | {
        "axes": list(grid.axes),
        "searched": grid.searched,
        "fixed": grid.fixed,
    }
    if digests:
        about["digests"] = digests
    if grid.kept_columns:
        about["kept"] = list(grid.kept_columns)
    if xla_flags():
        about["xla_flags"] = xla_flags()
    return about


def _remarks(
    grid: Grid, store: Store, done: Iterable[RunId], unreadable: Unreadable
) -> Iterator[str]:
    """Yields remarks on the grid and the folder, which are printed before the job."""
    for path, reason in unreadable:
        yield (
            f"{path}: cannot be read as results, so its runs count as missing"
            f" ({reason})"
        )
    if grid.search:
        return
    points = set(map(point_id, grid.points))
    n_others = sum(run.point_id not in points for run in done)
    if n_others:
        yield (
            f"note: {store.folder} also holds {n_others} runs of points not in this"
            " grid; load, fit and report read them too. --out DIR keeps grids apart"
        )


def _check_undivided(shard: Shard | None) -> None:
    if shard:
        raise UsageError(
            f"search: got {shard}; allowed: one process, or --workers or --engine ray,"
            " which divide each round"
        )


def _check_memory(plan: Plan, limit: int) -> None:
    """Raises GridError if a program needs more bytes than the limit."""
    if plan.peak_bytes <= limit:
        return
    largest = max(plan.peaks, key=plan.peaks.__getitem__)
    allowed, advice = f"{limit / 2**20:.0f} MiB", "Lower V, d or m."
    if limit == memory_limit():
        allowed = memory_described()
    elif plan.peak_bytes <= memory_limit():
        advice = "Lower V, d or m, or raise limits.max_bytes."
    raise GridError(
        f"limits.max_bytes: program {largest} needs about"
        f" {plan.peak_bytes / 2**20:.0f} MiB; allowed: {allowed}. {advice}"
    )


def _refuse_mixing(
    store: Store,
    tables: list[Table],
    of_others: LastValues,
    simulator: Simulator,
    precision: str,
) -> None:
    """Raises StoreError if the rows of the folder must not be mixed with new rows.

    This is so if they are of another simulator, or have other user columns, or if
    `of_others` contains rows of another code_version or precision. `_digests` compares
    the user's code.
    """
    facts = [read_facts(table) for table in tables if len(table)]
    with_columns = {_columns(each) for each in facts}
    ours = _columns(simulator.about())
    others = with_columns - {ours}
    if others:
        held = f"rows with these columns of your own: {' and '.join(sorted(others))}"
        advice = "Choose another --out, give the same columns"
        raise _mixed(store, held, f"rows with {ours}", advice)
    others = {str(each.get("simulator", RECALL.name)) for each in facts}
    others -= {simulator.name}
    if others:
        held = f"rows of the simulator {', '.join(sorted(others))}"
        raise _mixed(store, held, f"rows of {simulator.name}")
    if of_others:
        held, precisions = [], [precision]
        for (version, other), runs in of_others.items():
            held.append(
                f"{len(runs)} runs of code_version {version}, precision {other}"
            )
            precisions.append(other)
        is_x64 = any(each.endswith(X64) for each in precisions)
        setting = "JAX_ENABLE_X64" if is_x64 else "run.precision"
        added = f"code_version {simulator.version}, precision {precision}"
        advice = f"Choose another --out, set {setting} to match"
        raise _mixed(store, ", ".join(held), added, advice)


def _mixed(
    store: Store, held: str, added: str = "", advice: str = "Choose another --out"
) -> StoreError:
    """Returns the error for a folder whose rows must not be mixed with new rows."""
    if added:
        held += f"; this call would add {added}"
    return StoreError(
        f"{store.folder}: holds {held}. {advice}, or move the old rows away."
    )


def _columns(facts: Json) -> str:
    """Returns a text that lists the user's own columns in the facts about a table."""
    return ", ".join(sorted(facts.get("columns", {}))) or "none"


def carry_out(
    job: Job, execute: Executor, display: Display | None, interrupts: Interrupts
) -> Call:
    """Creates the results folder if needed, and computes its missing runs.

    Raises StoreError if the folder cannot be used, and KeyboardInterrupt if a signal
    arrives before the first run.
    """
    call, store, plan = job.call, job.store, job.plan
    call.display, call.interrupts = display, interrupts
    store.columns, store.kept = job.grid.columns, job.grid.kept
    store.prepare(job.manifest())
    store.unify(call.message)
    store.clear_failures(job.runs)
    if not job.search:
        call.n_runs, call.n_programs = plan.n_runs, len(plan.peaks)
        call.est_seconds = plan.run_seconds
    # programs are not kept yet
    start_seconds = plan.start_seconds / max(1, len(plan.peaks))
    facts = job.facts()
    call.show(
        "start",
        job.start_line(),
        grid=job.grid.name,
        out=str(store.folder),
        shard=str(job.shard) if job.shard else None,
        **{name: facts[name] for name in STARTED},
    )
    if job.cache_remark:
        call.message(job.cache_remark)
    interrupts.message = call.message
    try:
        if job.search:
            _search(job, job.search, execute)
        elif job.to_do:
            execute(plan, call)
        store.unify(call.message)  # another call may have added columns meanwhile
        if plan.simulator.costs_known:
            compile_estimate = call.n_compiled * start_seconds
            learn(
                run=(call.run_seconds, call.est_done),
                compile=(call.compile_seconds, compile_estimate),
                programs=[program.label for program in plan.peaks],
            )
    finally:
        call.close()
    return call


def _search(job: Job, search: Searches, execute: Executor) -> None:
    """Executes rounds until every cell is finished or waits for a failed run.

    The function returns earlier if the call must stop. In all cases it writes the
    results so far to search.json.
    """
    call, store = job.call, job.store
    failed: set[RunId] = set()
    while runs := [run for run in search.pending if run.id not in failed]:
        call.round += 1
        call.n_runs += len(runs)
        execute(search.plan(runs), call)
        search.update(call.accuracy)
        store.note("manifest", job.manifest())
        failed |= by_id(runs).keys() - call.accuracy.keys()
        if call.stopping or call.unsaved:
            break
    path = store.note("search", search.report())
    call.show(
        "search", path=str(path), searches=len(search.cells), finished=search.finished
    )
