"""Which engine carries out a plan: this process, workers, or a Slurm array."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from ...errors import UsageError
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
    add("--slurm", metavar="KEY=VALUE", help="an option of sbatch: partition=gpu, time=240 (minutes); repeatable", **repeatable)
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
        """Raises UsageError where it cannot carry out the grid, or the shard of it."""
        if self.name == "slurm":
            if grid.search:
                allowed = "--workers, --engine ray, --shard 0/1"
                raise UsageError(f"--engine slurm: runs shards, got a search, which is sequential; allowed: {allowed}")
            if shard:
                raise UsageError(f"--engine slurm: got {shard}; allowed: a call outside of a Slurm array and of jax.distributed")
        in_workers = self.name != "local" or self.workers
        if in_workers and (problem := simulator_of(grid).problem_in_workers(grid.points)):
            raise UsageError(f"{problem} (or use one process)")

    def size(self, job: Job) -> int | None:
        """The number of workers, no more than there are runs; None: as many as fit, or none but this process."""
        return self.workers and min(self.workers, max(1, job.plan.n_runs))

    def facts(self, job: Job) -> dict[str, Any]:
        """Its name and the number of workers for a job, as plain data."""
        return {"engine": self.name, "workers": self.size(job)}

    def describe(self, job: Job) -> str:
        """The same as a line of text."""
        size = self.size(job)
        if self.name == "local":
            return f"runs in {plural(size, 'worker')} of this machine" if size else "runs in this process"
        what = {"ray": "worker", "slurm": "task"}[self.name]
        return f"runs in {plural(size, what) if size else 'as many workers as fit'} of {self.name.capitalize()}"

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
        ("--workers", [args.workers] * (args.workers is not None), rf"0*([1-9]\d{{,2}}|{MAX_WORKERS})", WORKERS),
        ("--worker-resource", args.worker_resource, r"[^=]+=(?=.*[1-9])\d*\.?\d+", "NAME=X with X above 0, as in GPU=1"),
        ("--slurm", args.slurm, r"[a-z][a-z_-]*=.+", "KEY=VALUE as sbatch names it, as in partition=gpu"),
        ("--slurm", args.slurm, r"(?!time=).*|time=\d+", "whole minutes, as in time=240"),
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
    resources, slurm = (dict(one.split("=", 1) for one in given) for given in (args.worker_resource, args.slurm))
    amounts = {resource: float(amount) for resource, amount in resources.items()}
    return Engine(name, args.workers and int(args.workers), args.ray_address, amounts, slurm, args.slurm_executor)
