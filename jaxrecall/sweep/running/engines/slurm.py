"""--engine slurm: the shards of a grid as one Slurm array, by submitit; this process waits for it and reports progress.

Every task carries out a shard of the grid into the same folder. A task whose time runs out is queued again and resumes; calling
the same command again submits the shards that lack runs. The executors `local` and `debug` need no Slurm: tasks are processes of
this machine, or run one after the other in this process.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import DelayedSubmission

from ....cli import INTERRUPTED, USAGE
from ....errors import Refused, UsageError
from ....model.columns import CODE_VERSION
from ....model.point import RunId
from ...cost import node_cache
from ...grid import Grid, rebuilt
from ...plan import Plan
from ...shard import Shard, shares
from ...store.store import Store
from ...store.table import RUN, read
from .. import runner
from ..interrupts import Interrupts
from ..job import carry_out, interrupted, prepare
from ..progress import Lines, Progress
from ..recorder import Outcome

MINUTES = 60
"""A task's time unless `--slurm time=` is given; then it is queued again."""

TIMEOUTS = 1000
POLL_SECONDS = 1.0
WAIT_SECONDS = 60.0
"""For tasks that were cancelled to save what they have."""


@dataclass(frozen=True)
class ShardTask:
    """The work of a task of the array; submitit pickles it, and queues it again when its time runs out."""

    grid: dict[str, Any]
    """As `Grid.resolved`."""

    folder: str
    pad_to: tuple[int, int, int] | None
    fail_fast: bool
    resume_command: str
    on_node: bool
    """Whether it runs on another machine, which keeps compiled programs on its own disk."""

    def __call__(self, shard: Shard) -> int:
        """Carries out a shard; returns the exit code."""
        if self.on_node:
            os.environ.setdefault("JAXRECALL_CACHE", node_cache())
        with Interrupts() as interrupts:
            try:
                job = prepare(rebuilt(self.grid), self.folder, shard, self.pad_to, self.fail_fast, self.resume_command)
                _print(job.remarks)
                outcome = carry_out(job, runner.execute, Progress(Lines(sys.stderr)), interrupts)
            except Refused as error:
                _print(error.lines)
                return USAGE
            except KeyboardInterrupt:
                _print([interrupted(self.resume_command)])
                return INTERRUPTED
        _print(job.problems())
        return outcome.exit_code

    def checkpoint(self, shard: Shard) -> DelayedSubmission:
        return DelayedSubmission(self, shard)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def check(kind: str, options: Mapping[str, str]) -> None:
    """Raises UsageError if Slurm is not available, or for a time that is not in minutes."""
    if not options.get("time", "1").isdecimal():
        raise UsageError(f"--slurm: got time={options['time']}; allowed: whole minutes, as in time=240")
    if kind == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise UsageError(
            "--engine slurm: no sbatch and srun here; allowed: a machine of a Slurm cluster that submits, "
            "or --slurm-executor local to try it"
        )


def executor(kind: str, folder: Path, options: Mapping[str, str], name: str) -> Any:
    """submitit's executor of that kind, with options as sbatch names them."""
    values: dict[str, Any] = {key.replace("-", "_"): int(value) if value.isdecimal() else value for key, value in options.items()}
    minutes = values.pop("time", MINUTES)
    if kind == "debug":
        return submitit.DebugExecutor(folder)
    if kind == "local":
        local = submitit.LocalExecutor(folder, max_num_timeout=TIMEOUTS)
        local.update_parameters(timeout_min=minutes, **values)
        return local
    slurm = submitit.SlurmExecutor(folder, max_num_timeout=TIMEOUTS)
    known = slurm._valid_parameters()
    others = {key.replace("_", "-"): value for key, value in values.items() if key not in known}
    chosen = {key: value for key, value in values.items() if key in known}
    if "setup" in chosen:
        chosen["setup"] = [chosen["setup"]]  # commands before the task's own
    slurm.update_parameters(job_name=name, time=minutes, **chosen, additional_parameters=others)
    return slurm


class Array:
    """The shards of a grid as `size` tasks; raises UsageError if they cannot be submitted."""

    def __init__(self, grid: Grid, size: int, kind: str, options: Mapping[str, str], pad_to: tuple[int, int, int] | None):
        self.grid, self.size, self.kind, self.options, self.pad_to = grid, size, kind, options, pad_to
        check(kind, options)

    def execute(self, plan: Plan, store: Store, progress: Progress, interrupts: Interrupts, resume_command: str) -> Outcome:
        """Submits the shards that have runs of the plan and waits for them; runs count as their parts appear."""
        parts = Parts(plan, store)
        wanted = sorted({index for index, run in shares(self.grid.points, self.grid.seeds, self.size) if run.id in parts.left})
        by = executor(self.kind, store.folder / "_slurm", self.options, self.grid.name)
        folder, fail_fast = str(store.folder.absolute()), plan.settings.fail_fast
        task = ShardTask(self.grid.resolved, folder, self.pad_to, fail_fast, resume_command, self.kind == "slurm")
        shards = [Shard(index, self.size, "--engine slurm") for index in wanted]
        with interrupts.patient():  # from the first: what is submitted must be cancelled
            try:
                jobs = by.map_array(task, shards)
            except (FailedSubmissionError, FailedJobError, OSError) as error:
                raise UsageError(f"--engine slurm: the array was refused: {' '.join(str(error).split())[:400]}") from error
            progress.message(f"{len(jobs)} tasks submitted, first {jobs[0].job_id}; logs: {by.folder}")
            return waited_for(dict(zip(shards, jobs, strict=True)), parts, progress, interrupts)


def waited_for(waiting: dict[Shard, Any], parts: Parts, progress: Progress, interrupts: Interrupts) -> Outcome:
    """Waits for the jobs of shards; an interrupt cancels them."""
    outcome = Outcome()
    cancelled: float | None = None
    while waiting:
        if interrupts.requested and cancelled is None:
            cancelled = time.monotonic()
            for job in waiting.values():
                job.cancel(check=False)
        if cancelled is not None and time.monotonic() - cancelled > WAIT_SECONDS:
            break
        for shard in [shard for shard, job in waiting.items() if job.done()]:
            job = waiting.pop(shard)
            if not interrupts.requested and (problem := _problem(job)):
                outcome.failed += 1
                line = f"failed: shard {shard.index}/{shard.count} {problem} (details: {job.paths.stderr})"
                progress.failed(line, 0.0, 0, job.paths.stderr)
        parts.report_new(outcome, progress)
        try:
            with interrupts.droppable():
                time.sleep(POLL_SECONDS if waiting else 0)
        except KeyboardInterrupt:
            break
    parts.report_new(outcome, progress)
    outcome.interrupted = interrupts.requested
    return outcome


def _problem(job: Any) -> str | None:
    """What went wrong in a task that has ended, or None."""
    try:
        code = job.result()
    except Exception as error:  # whatever the task died of
        return f"ended: {' '.join(str(error).split())[:200]}"
    return f"ended with exit code {code}" if code else None


class Parts:
    """Runs of a plan whose rows other processes write to the folder."""

    def __init__(self, plan: Plan, store: Store):
        self.store, self.seen = store, set(_names(store))
        self.left = {run.id for chunk in plan.chunks for run in chunk.runs}
        self.seconds = {run.point.point_id: chunk.seconds / len(chunk.runs) for chunk in plan.chunks for run in chunk.runs}

    def report_new(self, outcome: Outcome, progress: Progress) -> None:
        """Adds the runs that have appeared since the last call."""
        paths = [path for path in _names(self.store) if path not in self.seen]
        self.seen.update(paths)
        tables, _ = read(paths, [*RUN, "code_version", "accuracy"])
        for path, table in tables.items():
            new: dict[RunId, list[dict[str, Any]]] = {}
            for row in table.to_pylist():
                run = RunId(row["point_id"], row["seed"])
                if row["code_version"] == CODE_VERSION and run in self.left:
                    new.setdefault(run, []).append(row)
            self.left -= new.keys()
            outcome.runs += len(new)
            outcome.accuracy |= {run: trace[-1]["accuracy"] for run, trace in new.items()}
            progress.advanced(list(new.values()), sum(self.seconds[run.point_id] for run in new))
            progress.saved(path, sum(map(len, new.values())))


def _names(store: Store) -> list[Path]:
    return sorted(store.parts.iterdir()) if store.parts.is_dir() else []
