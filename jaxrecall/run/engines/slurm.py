"""--engine slurm: the shards of a grid as one Slurm array, by submitit; here one waits for it and tells how it goes. No JAX here.

Every task is `jaxrecall.sweep --shard i/n` into the same folder. A task whose time runs out is queued again and goes on; calling
the same command again submits the shards that lack runs. The executors `local` and `debug` need no Slurm: tasks are processes of
this machine, or run one after the other in this process.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import DelayedSubmission

from ...errors import GridError
from ...grid import Grid
from ...plan.cost import node_cache
from ...plan.plan import Plan
from ...plan.shard import shares
from ...science.columns import CODE_VERSION
from ...store.store import Store
from ...store.table import read
from ..interrupts import Interrupts
from ..progress import Outcome, Progress

MINUTES = 60
"""A task's time unless `--slurm time=` says; then it is queued again."""

TIMEOUTS = 1000
POLL_SECONDS = 1.0
WAIT_SECONDS = 60.0
"""For tasks that were cancelled to save what they have."""


class ShardTask:
    """What a task of the array does; submitit pickles it, and queues it again when its time is up."""

    def __init__(self, arguments: Sequence[str], on_node: bool):
        self.arguments, self.on_node = list(arguments), on_node

    def __call__(self, shard: str) -> int:
        from ...sweep import main

        if self.on_node:
            os.environ.setdefault("JAXRECALL_CACHE", node_cache())
        return main([*self.arguments, "--shard", shard])

    def checkpoint(self, shard: str) -> DelayedSubmission:
        return DelayedSubmission(self, shard)


def check(kind: str, options: Mapping[str, str]) -> None:
    """Raises GridError where there is no Slurm, or for a time that is not in minutes."""
    if not options.get("time", "1").isdecimal():
        raise GridError(f"--slurm: got time={options['time']}; allowed: whole minutes, as in time=240")
    if kind == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise GridError(
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
    """The shards of a grid as `size` tasks; raises GridError if they cannot be submitted."""

    def __init__(self, grid: Grid, size: int, kind: str, options: Mapping[str, str], arguments: Sequence[str]):
        self.grid, self.size, self.kind, self.options, self.arguments = grid, size, kind, options, arguments
        check(kind, options)

    def execute(self, plan: Plan, store: Store, precision: str, tell: Progress, interrupts: Interrupts, *_: Any) -> Outcome:
        """Submits the shards that have runs of the plan and waits for them; rows count as their parts appear."""
        parts = Parts(plan, store)
        wanted = sorted({i for i, (p, seed) in shares(self.grid.points, self.grid.seeds, self.size) if (p.point_id, seed) in parts.left})
        by = executor(self.kind, store.folder / "_slurm", self.options, self.grid.name)
        task = ShardTask([*self.arguments, "--out", str(store.folder)], self.kind == "slurm")
        shards = [f"{i}/{self.size}" for i in wanted]
        try:
            jobs = by.map_array(task, shards)
        except (FailedSubmissionError, FailedJobError, OSError) as error:
            raise GridError(f"--engine slurm: the array was refused: {' '.join(str(error).split())[:400]}") from error
        tell.say(f"{len(jobs)} tasks submitted, first {jobs[0].job_id}; logs: {by.folder}")
        return waited_for(dict(zip(shards, jobs, strict=True)), parts, tell, interrupts)


def waited_for(waiting: dict[str, Any], parts: Parts, tell: Progress, interrupts: Interrupts) -> Outcome:
    """Waits for the jobs of shards; an interrupt cancels them."""
    outcome = Outcome()
    cancelled: float | None = None
    with interrupts.patient():
        while waiting:
            if interrupts.asked and cancelled is None:
                cancelled = time.monotonic()
                for job in waiting.values():
                    job.cancel(check=False)
            if cancelled is not None and time.monotonic() - cancelled > WAIT_SECONDS:
                break
            for shard in [shard for shard, job in waiting.items() if job.done()]:
                job = waiting.pop(shard)
                why = None if interrupts.asked else _trouble(job)
                if why:
                    outcome.failed += 1
                    tell.failed(f"failed: shard {shard} {why} (details: {job.paths.stderr})", 0.0, 0, job.paths.stderr)
            outcome.runs += parts.tell_new(tell)
            try:
                with interrupts.droppable():
                    time.sleep(POLL_SECONDS if waiting else 0)
            except KeyboardInterrupt:
                break
    outcome.runs += parts.tell_new(tell)
    outcome.interrupted = interrupts.asked
    return outcome


def _trouble(job: Any) -> str | None:
    """What went wrong in a task that is over."""
    try:
        code = job.result()
    except Exception as error:  # whatever the task died of
        return f"ended: {' '.join(str(error).split())[:200]}"
    return f"ended with exit code {code}" if code else None


class Parts:
    """Rows of a plan that other processes write to the folder."""

    def __init__(self, plan: Plan, store: Store):
        self.store, self.seen = store, set(_names(store))
        self.left = {(point.point_id, seed) for chunk in plan.chunks for point, seed in chunk.runs}
        self.seconds = {point.point_id: chunk.seconds / len(chunk.runs) for chunk in plan.chunks for point in dict(chunk.runs)}

    def tell_new(self, tell: Progress) -> int:
        """Tells the rows that have appeared since; how many."""
        paths = [path for path in _names(self.store) if path not in self.seen]
        self.seen.update(paths)
        tables, _ = read(paths, ["point_id", "seed", "code_version", "accuracy"])
        count = 0
        for path, table in tables.items():
            rows = [row for row in table.to_pylist() if row["code_version"] == CODE_VERSION and (row["point_id"], row["seed"]) in self.left]
            self.left -= {(row["point_id"], row["seed"]) for row in rows}
            tell.advanced(rows, sum(self.seconds[row["point_id"]] for row in rows))
            tell.saved(path, len(rows))
            count += len(rows)
        return count


def _names(store: Store) -> list[Path]:
    return sorted(store.parts.iterdir()) if store.parts.is_dir() else []
