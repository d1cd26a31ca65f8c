"""Which engine carries out a plan: this process, workers, or a Slurm array."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..calibration import cores
from ..grid import Grid
from ..running import runner
from ..running.job import Executor, Job
from ..running.progress import plural
from ..shard import Shard
from ..simulators import simulator_of
from .worker import Setup

EXTRAS = {"ray": "ray", "slurm": "submitit"}
"""The extra of this package that an engine needs has its name, and holds this module."""

MAX_WORKERS = 1000
"""More are refused: each is a process, or a task of an array, whose usual limit this is."""

WORKERS = f"whole numbers from 1 to {MAX_WORKERS}"
MIN_AMOUNT, MAX_AMOUNT = 1e-4, 1e6
"""Of a resource of a Ray worker: Ray counts ten-thousandths."""

WHOLE_ABOVE_1 = ("GPU", "TPU")
"""Resources of which Ray gives a part of one, or whole ones."""

SET_BY_SWEEP = ("array", "error", "output")
"""Options of sbatch that the sweep sets itself."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `chosen` reads, and `--shard`."""
    add = parser.add_argument_group("more than one process").add_argument
    add(
        "--shard",
        metavar="i/n",
        help="run share i of n, i from 0; jax: the share of this process in jax.distributed (default: of a Slurm array task)",
    )
    add("--workers", metavar="K", help="workers: one per accelerator, or each with its own CPU cores; with slurm: tasks")
    add("--engine", choices=("local", *EXTRAS), default="local", help="what runs the workers (default: processes of this machine)")
    add("--ray-address", metavar="A", help="join a running Ray cluster: HOST:PORT of its head, or auto (default: start one here)")
    repeatable: dict[str, Any] = {"action": "append", "default": []}
    add("--worker-resource", metavar="NAME=X", help="resources of a Ray worker: CPU=4, GPU=1, TPU=4; repeatable", **repeatable)
    add("--slurm", metavar="KEY[=VALUE]", help="an option of sbatch: partition=gpu, time=240 (minutes); repeatable", **repeatable)
    executors = ("slurm", "local", "debug")
    add("--slurm-executor", choices=executors, default="slurm", help="local and debug try the Slurm engine without Slurm")


@dataclass(frozen=True)
class Engine:
    """What carries out a plan: this process if `name` is "local" and `workers` is None."""

    name: str = "local"
    workers: int | None = None
    ray_address: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    slurm: Mapping[str, str] = field(default_factory=dict)
    slurm_executor: str = "slurm"

    def check(self, grid: Grid, shard: Shard | None = None) -> None:
        """Raises UsageError where it cannot carry out the grid, or the shard of it, or where submitit refuses an option."""
        if self.name == "slurm":
            if grid.search:
                allowed = "--workers, --engine ray, --shard 0/1"
                raise UsageError(f"--engine slurm: runs shards, got a search, which is sequential; allowed: {allowed}")
            if shard:
                raise UsageError(f"--engine slurm: got {shard}; allowed: a call outside of a Slurm array and of jax.distributed")
            from .slurm import executor

            executor(self.slurm_executor, Path("_slurm"), self.slurm, grid.name)
        in_workers = self.name != "local" or self.workers
        if in_workers and (problem := simulator_of(grid).problem_in_workers(grid.points)):
            raise UsageError(f"{problem} (or use one process)")

    def size(self, job: Job) -> int | None:
        """The number of workers, no more than there are runs; None: as many as fit a cluster, or none but this process."""
        most = max(1, job.plan.n_runs)
        if self.name == "ray" and not self.ray_address:
            return min(self.workers or cores(), most)
        return self.workers and min(self.workers, most)

    def facts(self, job: Job) -> dict[str, Any]:
        """Its name, the number of workers for a job, and what each of them requests, as plain data; joins the cluster to find out.

        Raises UsageError where no cluster is at the address.
        """
        size, requests = self.size(job), {}
        if self.name == "ray":
            from .ray import request_of, size_on

            requests = dict(request_of(self.ray_address, size, self.resources))
            size = size_on(self.ray_address, size, requests, job.plan.n_runs) if self.ray_address else size
        elif self.name == "slurm":
            from .slurm import sbatch_options

            requests = sbatch_options(self.slurm, job.grid.name)
        return {"engine": self.name, "workers": size, "requests": requests}

    def describe(self, job: Job) -> str:
        """The same as a line of text."""
        size, requests = (self.facts(job)[name] for name in ("workers", "requests"))
        with_ = ", ".join(
            name if value is True else f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in requests.items()
        )
        if self.name == "slurm":
            of = "Slurm" if self.slurm_executor == "slurm" else f"submitit's executor {self.slurm_executor}"
            return f"submits one array of {plural(size, 'task')} to {of}, with {with_}"
        if self.name == "ray":
            where = f"the Ray at {self.ray_address}" if self.ray_address else "a Ray that is started on this machine"
            return f"runs in {plural(size, 'worker')} of {where}, each with {with_}"
        return f"runs in {plural(size, 'worker')} of this machine" if size else "runs in this process"

    @contextmanager
    def opened(self, job: Job, import_paths: tuple[str, ...] = ()) -> Iterator[Executor]:
        """An executor for plans of the job; its workers, which can import from `import_paths`, are being started.

        Raises UsageError if they cannot be.
        """
        size = self.size(job)
        if self.name == "slurm":
            from .slurm import SlurmArray

            yield SlurmArray(job, size or 1, self.slurm_executor, self.slurm, import_paths).execute
        elif self.name == "ray":
            from .ray import RayWorkers

            setup = Setup(import_paths, simulator_of(job.grid).contents(job.grid.points))
            with closing(RayWorkers(size, self.ray_address, self.resources, setup, job.plan.n_runs)) as workers:
                yield workers.execute
        elif size:
            from .local import LocalWorkers

            with closing(LocalWorkers(size, Setup(import_paths, simulator_of(job.grid).contents(job.grid.points)))) as workers:
                yield workers.execute
        else:
            yield runner.execute


def chosen(args: argparse.Namespace) -> Engine:
    """The engine that the options choose; raises UsageError with a line for each wrong option."""
    name, lines = args.engine, []
    for flag, given, engine in (
        ("--ray-address", args.ray_address, "ray"),
        ("--worker-resource", args.worker_resource, "ray"),
        ("--slurm", args.slurm, "slurm"),
    ):
        if given and name != engine:
            lines.append(f"{flag}: goes with --engine {engine}, got --engine {name}")
    for flag, given, pattern, allowed in (
        ("--workers", [args.workers] * (args.workers is not None), rf"0{{,9}}([1-9]\d{{,2}}|{MAX_WORKERS})", WORKERS),
        ("--worker-resource", args.worker_resource, r"[^=]+=(?=.*[1-9])\d*\.?\d+", "NAME=X with X above 0, as in GPU=1"),
        ("--slurm", args.slurm, r"[a-z][a-z0-9_-]*(=.+)?", "KEY or KEY=VALUE as sbatch names it, as in partition=gpu"),
        ("--slurm", args.slurm, r"(?!time\b).*|time=\d{1,9}", "whole minutes, as in time=240"),
        (
            "--slurm",
            args.slurm,
            rf"(?!({'|'.join(SET_BY_SWEEP)})(=|$)).*",
            f"any option of sbatch but {', '.join(SET_BY_SWEEP)}, which are set",
        ),
    ):
        lines += [f"{flag}: got {one}; allowed: {allowed}" for one in given if not re.fullmatch(pattern, one)]
    module = EXTRAS.get(name, "jaxrecall")
    if find_spec(module) is None:
        lines.append(f'--engine {name}: {module} is not installed; to install it: pip install "jaxrecall[{name}]"')
    if name == "slurm" and args.shard:
        lines.append("--shard: goes with --engine local or ray; the tasks of --engine slurm are the shards, --workers says how many")
    if name == "slurm" and args.workers is None:
        lines.append("--workers: nothing given; with --engine slurm it says how many tasks the array has, as in --workers 64")
    if not lines and name == "slurm" == args.slurm_executor and not (shutil.which("sbatch") and shutil.which("srun")):
        allowed = "a machine of a Slurm cluster that submits, or --slurm-executor local to try it"
        lines.append(f"--engine slurm: no sbatch and srun here; allowed: {allowed}")
    if lines:
        raise UsageError(lines)
    amounts = {resource: float(amount) for resource, amount in (one.split("=", 1) for one in args.worker_resource)}
    lines = [
        f"--worker-resource: got {name}={amount:g}; allowed: {allowed}"
        for name, amount in amounts.items()
        if (allowed := _wrong_amount(name, amount))
    ]
    if lines:
        raise UsageError(lines)
    slurm = {name: value for name, _, value in (one.partition("=") for one in args.slurm)}
    return Engine(name, args.workers and int(args.workers), args.ray_address, amounts, slurm, args.slurm_executor)


def _wrong_amount(name: str, amount: float) -> str:
    """What Ray allows of a resource in place of an amount that it would refuse; empty if it takes it."""
    if not MIN_AMOUNT <= amount <= MAX_AMOUNT:
        return f"numbers from {MIN_AMOUNT} to {MAX_AMOUNT:.0f}"
    return "whole numbers, or less than 1" if name in WHOLE_ABOVE_1 and amount > 1 and amount % 1 else ""
