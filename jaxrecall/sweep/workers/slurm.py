"""--engine slurm: the shards of a grid as one Slurm array, by submitit; this process waits for it and reports progress.

Every task carries out a shard of the grid into the same folder. A task whose time runs out is queued again and resumes; calling
the same command again submits the shards that lack runs. The executors `local` and `debug` need no Slurm: tasks are processes of
this machine, or run one after the other in this process.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable

from ...errors import UsageError
from ...model.columns import CODE_VERSION
from ...model.point import RunId
from ...process import Interrupts
from ..calibration import node_cache
from ..custom import add_to_path
from ..grid import rebuilt
from ..plan import Plan
from ..running import runner
from ..running.job import Job, carry_out, prepare
from ..running.progress import Progress, display
from ..running.recorder import Outcome
from ..shard import Shard, shares
from ..store.files import read_json
from ..store.store import Store
from ..store.table import RUN, read

MINUTES = 60
"""A task's time unless `--slurm time=` is given; then it is queued again."""

SUBMITIT = {"nodes", "ntasks-per-node", "array-parallelism", "signal-delay-s"}
"""Options that submitit reads itself, the last two of them its own; it hands all others to sbatch as they are."""

WHOLE = {"time", *SUBMITIT}
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
        on_node: whether it runs on another machine, which keeps compiled programs on its own disk.
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
            outcome = carry_out(job, runner.execute, Progress(display(announce=True)), interrupts)
        print(*job.problems(), sep="\n", file=sys.stderr)
        return outcome.exit_code


def sbatch_options(options: Mapping[str, str], name: str) -> dict[str, Any]:
    """All options of an array by their name in sbatch: those given, and its time and name; True for one without a value.

    Raises UsageError.
    """
    given: dict[str, Any] = {key.replace("_", "-"): value or True for key, value in options.items()}
    for key in WHOLE & given.keys():
        if not re.fullmatch(r"\d{1,9}", str(given[key])):
            raise UsageError(f"--slurm: got {key}={given[key]}; allowed: whole numbers, as in {key}=2")
        given[key] = int(given[key])
    return {"time": MINUTES, "job-name": name} | given


def executor(kind: str, folder: Path, options: Mapping[str, str], name: str) -> Any:
    """submitit's executor of that kind, with options as sbatch names them. Raises UsageError, also for what submitit refuses."""
    others = sbatch_options(options, name)
    basic = {"timeout_min": others.pop("time"), "name": others.pop("job-name")}
    known = {f"slurm_{key.replace('-', '_')}": others.pop(key) for key in SUBMITIT & others.keys()}
    known |= {f"slurm_{key}": [others.pop(key)] for key in COMMANDS & others.keys()}
    try:
        by = submitit.AutoExecutor(folder, cluster=kind, slurm_max_num_timeout=TIMEOUTS)
        by.update_parameters(**basic, **known, slurm_additional_parameters=others)
    except Exception as error:  # of many types, assertions among them
        raise UsageError(f"--slurm: submitit refuses the options: {_in_one_line(error)}") from error
    return by


class SlurmArray:
    """The shards of a job as `size` tasks, with options as sbatch names them.

    `kind` is submitit's: slurm, local or debug. Tasks can import from `import_paths`.
    """

    def __init__(self, job: Job, size: int, kind: str, options: Mapping[str, str], import_paths: tuple[str, ...]):
        self.job, self.size, self.kind, self.options, self.import_paths = job, size, kind, options, import_paths

    def execute(self, plan: Plan, store: Store, progress: Progress, interrupts: Interrupts, resume_command: str) -> Outcome:
        """Submits the shards that have runs of the plan and waits for them; runs count as their parts appear.

        Raises UsageError if they cannot be submitted.
        """
        grid, arrivals = self.job.grid, Arrivals(plan, store)
        wanted = sorted({index for index, run in shares(grid.points, grid.seeds, self.size) if run.id in arrivals.left})
        shards = [Shard(index, self.size, "--engine slurm") for index in wanted]
        by = executor(self.kind, store.folder / "_slurm", self.options, grid.name)
        task = ShardTask(
            grid=store.note("_slurm/grid", grid.resolved).absolute(),  # as it is now, whenever tasks start
            folder=store.folder.absolute(),
            pad_to=self.job.pad_to,
            fail_fast=plan.settings.fail_fast,
            resume_command=resume_command,
            import_paths=self.import_paths,
            on_node=self.kind == "slurm",
        )
        with interrupts.patient():  # from the first: what is submitted must be cancelled
            try:
                jobs = by.map_array(task, shards)
            except Exception as error:  # whatever submitit or sbatch has against it
                raise UsageError(f"--engine slurm: the array was refused: {_in_one_line(error)}") from error
            progress.message(f"{len(jobs)} tasks submitted, first {jobs[0].job_id}; logs: {by.folder}")
            return wait_for(dict(zip(shards, jobs, strict=True)), arrivals, progress, interrupts)


def wait_for(jobs: dict[Shard, Any], arrivals: Arrivals, progress: Progress, interrupts: Interrupts) -> Outcome:
    """Waits for the jobs of shards; an interrupt cancels them."""
    outcome, deadline = Outcome(), math.inf
    while jobs and time.monotonic() < deadline:
        if interrupts.requested and deadline == math.inf:
            deadline = time.monotonic() + WAIT_SECONDS
            for job in jobs.values():
                job.cancel(check=False)
        for shard in [shard for shard, job in jobs.items() if job.done()]:
            job = jobs.pop(shard)
            if not interrupts.requested and (problem := _problem(job)):
                outcome.failed += 1
                line = f"failed: shard {shard.index}/{shard.count} {problem} (details: {job.paths.stderr})"
                progress.failed(line, 0.0, 0, job.paths.stderr)
        arrivals.report(outcome, progress)
        try:
            with interrupts.droppable():
                time.sleep(POLL_SECONDS if jobs else 0)
        except KeyboardInterrupt:
            break
    arrivals.report(outcome, progress)
    outcome.interrupted = interrupts.requested
    return outcome


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__


def _problem(job: Any) -> str | None:
    """What went wrong in a task that has ended, or None."""
    try:
        code = job.result()
    except Exception as error:  # whatever the task died of
        return f"ended: {' '.join(str(error).split())[:200]}"
    return f"ended with exit code {code}" if code else None


class Arrivals:
    """Runs of a plan whose rows other processes write to the folder; `left` are those that have not appeared yet."""

    def __init__(self, plan: Plan, store: Store):
        self.store, self.seen = store, set(_parts(store))
        self.left = {run.id for chunk in plan.chunks for run in chunk.runs}
        self.seconds = {run.point.point_id: chunk.seconds / len(chunk.runs) for chunk in plan.chunks for run in chunk.runs}

    def report(self, outcome: Outcome, progress: Progress) -> None:
        """Adds the runs that have appeared since the last call."""
        paths = [path for path in _parts(self.store) if path not in self.seen]
        self.seen.update(paths)
        for path, table in read(paths, [*RUN, "code_version", "accuracy"])[0].items():
            rows = [row for row in table.to_pylist() if row["code_version"] == CODE_VERSION]
            new = {run: list(trace) for run, trace in groupby(rows, lambda row: RunId(row["point_id"], row["seed"])) if run in self.left}
            self.left -= new.keys()
            outcome.runs += len(new)
            outcome.accuracy |= {run: trace[-1]["accuracy"] for run, trace in new.items()}
            progress.advanced(list(new.values()), sum(self.seconds[run.point_id] for run in new))
            progress.tell("part", path=str(path), rows=sum(map(len, new.values())))


def _parts(store: Store) -> list[Path]:
    return sorted(store.parts.iterdir()) if store.parts.is_dir() else []
