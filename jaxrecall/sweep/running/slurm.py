"""--engine slurm: the shards of a grid as one Slurm array,
by submitit; this process waits for it and reports progress.

Every task carries out a shard of the grid into the same folder. A task whose time runs
out is queued again and resumes; calling the same command again submits the shards that
lack runs. The executors `local` and `debug` need no Slurm: tasks are processes of this
machine, or run one after the other in this process.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable

from ...cli.process import Interrupts
from ...errors import UsageError, in_one_line
from ...model.point import RunId
from ..files import read_json
from ..grid import rebuilt
from ..shard import Shard, shares
from ..simulators.custom import add_to_path
from ..store.table import RUN, read
from .job import Job, carry_out, prepare
from .progress import Progress, display
from .ray import node_cache
from .recorder import Recorder, execute

MINUTES = 60
"""A task's time unless `--slurm time=` is given; then it is queued again."""

SUBMITIT = {"nodes", "ntasks-per-node", "array-parallelism", "signal-delay-s"}
"""Options that submitit reads itself, the last two of
them its own; it hands all others to sbatch as they are.
"""

WHOLE = {"time", *SUBMITIT}
SET_BY_SWEEP = ("array", "error", "output")
"""Options of sbatch that the sweep sets itself."""

COMMANDS = {"setup", "teardown"}
"""Options of submitit: a command that runs before, or after, that of a task."""

TIMEOUTS = 1000
POLL_SECONDS = 1.0
WAIT_SECONDS = 60.0
"""For tasks that were cancelled to save what they have."""


class ShardTask(Checkpointable):
    """Runs a shard of a grid; submitit pickles it, and queues it again when its time runs out.

    Args:
        grid: the file of the resolved grid.
        folder: the results folder.
        pad_to: sizes of one program for every point, if there is to be one.
        fail_fast: whether the first failed chunk ends the shard.
        resume_command: of the whole array.
        import_paths: folders from which the task can import, besides the usual ones.
        on_node: whether it runs on another machine, which keeps compiled programs on
            its own disk.
    """

    def __init__(self, **about: Any):
        self.about = about

    def __call__(self, shard: Shard) -> int:
        """Runs the shard; returns the exit code."""
        about = {**self.about}
        add_to_path(about.pop("import_paths"))
        if about.pop("on_node"):
            os.environ.setdefault("JAXRECALL_CACHE", node_cache())
        with Interrupts() as interrupts:
            job = prepare(rebuilt(read_json(about.pop("grid"))), shard=shard, **about)
            outcome = carry_out(job, execute, Progress(display(announce=True)), interrupts)
        print(*job.problems(), sep="\n", file=sys.stderr)
        return outcome.exit_code


def sbatch_options(options: Mapping[str, str], name: str) -> dict[str, Any]:
    """All options of an array by their name in sbatch: those
    given, and its time and name; True for one without a value.

    Raises UsageError.
    """
    given: dict[str, Any] = {key.replace("_", "-"): value or True for key, value in options.items()}
    for key, value in given.items():
        got = f"--slurm: got {key}" + (f"={value}" if value is not True else "")
        if key in SET_BY_SWEEP:
            raise UsageError(f"{got}; allowed: any option of sbatch but {', '.join(SET_BY_SWEEP)}, which are set")
        if key in WHOLE and not re.fullmatch(r"\d{1,9}", str(value)):
            allowed = "whole minutes, as in time=240" if key == "time" else f"whole numbers, as in {key}=2"
            raise UsageError(f"{got}; allowed: {allowed}")
    given |= {key: int(given[key]) for key in WHOLE & given.keys()}
    return {"time": MINUTES, "job-name": name} | given


def executor(kind: str, folder: Path, options: Mapping[str, str], name: str) -> Any:
    """submitit's executor of that kind, with options as sbatch
    names them. Raises UsageError, also for what submitit refuses.
    """
    others = sbatch_options(options, name)
    if kind == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        allowed = "a machine of a Slurm cluster that submits, or --slurm-executor local to try it"
        raise UsageError(f"--engine slurm: no sbatch and srun here; allowed: {allowed}")
    basic = {"timeout_min": others.pop("time"), "name": others.pop("job-name")}
    known = {f"slurm_{key.replace('-', '_')}": others.pop(key) for key in SUBMITIT & others.keys()}
    known |= {f"slurm_{key}": [others.pop(key)] for key in COMMANDS & others.keys()}
    try:
        by = submitit.AutoExecutor(folder, cluster=kind, slurm_max_num_timeout=TIMEOUTS)
        by.update_parameters(**basic, **known, slurm_additional_parameters=others)
    except Exception as error:  # of many types, assertions among them
        raise UsageError(f"--slurm: submitit refuses the options: {in_one_line(error, 400)}") from error
    return by


def run_array(recorder: Recorder, job: Job, size: int, kind: str, options: Mapping[str, str], import_paths: tuple[str, ...]) -> None:
    """Submits the shards that have runs of the recorder's
    plan and waits for them; runs count as their parts appear.

    Args:
        recorder: takes what tasks have finished.
        job: the grid and its results folder.
        size: tasks of the array if every shard has runs.
        kind: of submitit's executor: slurm, local or debug.
        options: as sbatch names them.
        import_paths: folders from which tasks can import, besides the usual ones.

    Raises:
        UsageError: if the array cannot be submitted.
    """
    grid, store, arrivals = job.grid, job.store, Arrivals(recorder)
    wanted = sorted({index for index, run in shares(grid.points, grid.seeds, size, grid.simulator) if run.id in arrivals.left})
    shards = [Shard(index, size, "--engine slurm") for index in wanted]
    by = executor(kind, store.folder / "_slurm", options, grid.name)
    task = ShardTask(
        grid=store.note("_slurm/grid", grid.resolved).absolute(),  # as it is now, whenever tasks start
        folder=store.folder.absolute(),
        pad_to=job.pad_to,
        fail_fast=recorder.plan.settings.fail_fast,
        resume_command=recorder.resume_command,
        import_paths=import_paths,
        on_node=kind == "slurm",
    )
    with recorder.interrupts.patient():  # from the first: what is submitted must be cancelled
        try:
            jobs = by.map_array(task, shards)
        except Exception as error:  # whatever submitit or sbatch has against it
            raise UsageError(f"--engine slurm: the array was refused: {in_one_line(error, 400)}") from error
        recorder.progress.message(f"{len(jobs)} tasks submitted, first {jobs[0].job_id}; logs: {by.folder}")
        wait_for(dict(zip(shards, jobs, strict=True)), arrivals)
    recorder.outcome.interrupted = recorder.interrupts.requested


def wait_for(jobs: dict[Shard, Any], arrivals: Arrivals) -> None:
    """Waits for the jobs of shards; an interrupt cancels them."""
    recorder, deadline = arrivals.recorder, math.inf
    interrupts = recorder.interrupts
    while jobs and time.monotonic() < deadline:
        if interrupts.requested and deadline == math.inf:
            deadline = time.monotonic() + WAIT_SECONDS
            for job in jobs.values():
                job.cancel(check=False)
        for shard in [shard for shard, job in jobs.items() if job.done()]:
            job = jobs.pop(shard)
            if not interrupts.requested and (problem := _problem(job)):
                line = f"failed: shard {shard.index}/{shard.count} {problem} (details: {job.paths.stderr})"
                recorder.outcome.failures.append(line)
                recorder.progress.failed(line, 0.0, 0, job.paths.stderr)
        arrivals.report()
        try:
            with interrupts.droppable():
                time.sleep(POLL_SECONDS if jobs else 0)
        except KeyboardInterrupt:
            break
    arrivals.report()


def _problem(job: Any) -> str | None:
    """What went wrong in a task that has ended, or None."""
    try:
        code = job.result()
    except Exception as error:  # whatever the task died of
        return f"ended: {in_one_line(error, 400)}"
    return f"ended with exit code {code}" if code else None


class Arrivals:
    """Runs of the recorder's plan whose rows other processes write
    to the folder; `left` are those that have not appeared yet.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.seen = set(self._parts())
        self.left = {run.id: chunk.seconds / len(chunk.runs) for chunk in recorder.plan.chunks for run in chunk.runs}
        """And the seconds that each was estimated to take."""

    def report(self) -> None:
        """Adds the runs that have appeared since the last call."""
        outcome, progress = self.recorder.outcome, self.recorder.progress
        paths = [path for path in self._parts() if path not in self.seen]
        self.seen.update(paths)
        accuracy, version = progress.accuracy_column, self.recorder.plan.simulator.facts.version
        for path, table in read(paths, [*RUN, "code_version", accuracy])[0].items():
            rows = [row for row in table.to_pylist() if row["code_version"] == version]
            traces = {run: list(trace) for run, trace in groupby(rows, lambda row: RunId(row["point_id"], row["seed"]))}
            new = {run: trace for run, trace in traces.items() if run in self.left}
            outcome.runs += len(new)
            outcome.accuracy |= {run: trace[-1][accuracy] for run, trace in new.items()}
            progress.advanced(list(new.values()), sum(self.left.pop(run) for run in new))
            progress.tell("part", path=str(path), rows=sum(map(len, new.values())))

    def _parts(self) -> list[Path]:
        parts = self.recorder.store.parts
        return sorted(parts.iterdir()) if parts.is_dir() else []
