"""Which engine carries out a plan: this process, workers, or a Slurm array."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...cli.process import Interrupts
from ...errors import UsageError, in_one_line
from ..grid import Grid
from ..machine import cores
from ..shard import Shard
from ..simulators.custom import x64
from .job import Executor, Job
from .processes import LocalWorkers, RayWorkers, Request, accelerators, size_on
from .progress import plural
from .recorder import execute
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

AMOUNT = r"[^=]+=(?=.*[1-9])\d*\.?\d+"


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
        """Raises UsageError where it cannot carry out the grid,
        or the shard of it, or where submitit refuses an option.
        """
        if self.name == "slurm":
            if grid.search:
                allowed = "--workers, --engine ray, --shard 0/1"
                raise UsageError(f"--engine slurm: runs shards, got a search, which is sequential; allowed: {allowed}")
            if shard:
                raise UsageError(f"--engine slurm: got {shard}; allowed: a call outside of a Slurm array and of jax.distributed")
            from .slurm import executor

            executor(self.slurm_executor, Path("_slurm"), self.slurm, grid.name)
        in_workers = self.name != "local" or self.workers
        if in_workers and (problem := grid.simulator.problem_in_workers(grid.points)):
            raise UsageError(f"{problem} (or use one process)")

    def size(self, job: Job) -> int | None:
        """The number of workers, no more than there are runs,
        and on this machine than go into its memory; None: as many as fit a cluster, or
        none but this process.
        """
        asked = self.workers or (cores() if self.name == "ray" and not self.ray_address else None)
        room = job.plan.most_workers if self.shares_memory else MAX_WORKERS
        return asked and max(1, min(asked, job.plan.n_runs, room))

    @property
    def shares_memory(self) -> bool:
        """Whether the workers share the memory of this machine, and have no accelerators of their own."""
        return self.name != "slurm" and not self.ray_address and not accelerators(os.environ)

    def share(self, job: Job) -> None:
        """Divides memory and cores between the workers; the job has a remark if fewer start than were asked for."""
        size = self.size(job) or 1
        if self.shares_memory:
            job.plan = replace(job.plan, workers=size)
        if size < min(self.workers or 1, job.plan.n_runs):
            room = f"the memory limit of {job.plan.limit / 2**20:.0f} MiB has room for a run in no more"
            job.remarks.append(f"--workers: got {self.workers}; {size} start, as {room} (limits.max_bytes raises it)")

    def facts(self, job: Job) -> dict[str, Any]:
        """Its name, the number of workers for a job, and what each of
        them requests, as plain data; joins the cluster to find out.

        Raises UsageError where no cluster is at the address.
        """
        size, requests = self.size(job), {}
        if self.name == "ray":
            request = self._request(job, Setup((), {}))
            requests = dict(request.resources)
            size = size_on(request) if self.ray_address else size
        elif self.name == "slurm":
            from .slurm import sbatch_options

            requests = sbatch_options(self.slurm, job.grid.name)
        return {"engine": self.name, "workers": size, "requests": requests}

    def describe(self, job: Job) -> str:
        """The same as a line of text."""
        facts = self.facts(job)
        workers = facts["workers"]
        with_ = ", ".join(map(_assigned, facts["requests"].items()))
        if self.name == "slurm":
            of = "Slurm" if self.slurm_executor == "slurm" else f"submitit's executor {self.slurm_executor}"
            return f"submits one array of {plural(workers, 'task')} to {of}, with {with_}"
        if self.name == "ray":
            where = f"the Ray at {self.ray_address}" if self.ray_address else "a Ray that is started on this machine"
            return f"runs in {plural(workers, 'worker')} of {where}, each with {with_}"
        return f"runs in {plural(workers, 'worker')} of this machine" if workers else "runs in this process"

    @contextmanager
    def opened(self, job: Job, interrupts: Interrupts, import_paths: tuple[str, ...] = ()) -> Iterator[Executor]:
        """An executor for plans of the job; its workers, which
        can import from `import_paths`, are being started.

        Raises UsageError if they cannot be, or if JAX does not start in this process.
        """
        size = self.size(job)
        if self.name == "slurm":
            from .slurm import run_array

            yield partial(run_array, job=job, size=size or 1, kind=self.slurm_executor, options=self.slurm, import_paths=import_paths)
            return
        if self.name == "local" and not size:
            with interrupts.deferred():
                if job.to_do:
                    start_jax()
            yield execute
            return
        setup = Setup(import_paths, {}, x64=x64())
        made = RayWorkers(self._request(job, setup)) if self.name == "ray" else LocalWorkers(size or 1, setup)
        with closing(made) as workers:
            yield workers.execute

    def _request(self, job: Job, setup: Setup) -> Request:
        """What Ray is asked for: where one is started here, each worker has its share of the cores."""
        size = self.size(job)
        usual = 1 if self.ray_address else max(1, cores() // (size or 1))
        resources = {"CPU": float(usual), **self.resources}
        return Request(self.ray_address, size, resources, setup, job.plan.n_runs)


def start_jax() -> None:
    """Starts JAX in this process; raises UsageError where its settings let no run succeed."""
    try:
        from ...simulator.program import start
    except (ImportError, ValueError) as error:  # of too little memory, or of a variable that JAX reads
        raise UsageError(f"JAX cannot be imported: {in_one_line(error)}") from error
    start()


def _assigned(named: tuple[str, Any]) -> str:
    """NAME=VALUE, or the name alone of an option without a value."""
    name, value = named
    if value is True:
        return name
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def chosen(args: argparse.Namespace) -> Engine:
    """The engine that the options choose; raises UsageError with a line for each wrong option."""
    name = args.engine
    lines = [
        f"{flag}: goes with --engine {engine}, got --engine {name}"
        for flag, given, engine in (
            ("--ray-address", args.ray_address, "ray"),
            ("--worker-resource", args.worker_resource, "ray"),
            ("--slurm", args.slurm, "slurm"),
        )
        if given and name != engine
    ]
    lines += _malformed(args)
    module = EXTRAS.get(name, "jaxrecall")
    if find_spec(module) is None:
        lines.append(f'--engine {name}: {module} is not installed; to install it: pip install "jaxrecall[{name}]"')
    if name == "slurm" and args.shard:
        lines.append("--shard: goes with --engine local or ray; the tasks of --engine slurm are the shards, --workers says how many")
    if name == "slurm" and args.workers is None:
        lines.append("--workers: nothing given; with --engine slurm it says how many tasks the array has, as in --workers 64")
    if lines:
        raise UsageError(lines)
    resources = {resource: float(amount) for resource, amount in (one.split("=", 1) for one in args.worker_resource)}
    slurm = {key: value for key, _, value in (one.partition("=") for one in args.slurm)}
    return Engine(name, args.workers and int(args.workers), args.ray_address, resources, slurm, args.slurm_executor)


def _malformed(args: argparse.Namespace) -> Iterator[str]:
    """A line for each value that is not of the form of
    its option, and for each amount that Ray would refuse.
    """
    workers = [] if args.workers is None else [args.workers]
    for flag, given, pattern, allowed in (
        ("--workers", workers, rf"0{{,9}}([1-9]\d{{,2}}|{MAX_WORKERS})", WORKERS),
        ("--worker-resource", args.worker_resource, AMOUNT, "NAME=X with X above 0, as in GPU=1"),
        ("--slurm", args.slurm, r"[a-z][a-z0-9_-]*(=.+)?", "KEY or KEY=VALUE as sbatch names it, as in partition=gpu"),
    ):
        for one in given:
            if not re.fullmatch(pattern, one):
                yield f"{flag}: got {one}; allowed: {allowed}"
    for one in args.worker_resource:
        name, _, text = one.partition("=")
        amount = float(text) if re.fullmatch(AMOUNT, one) else 1.0
        if not MIN_AMOUNT <= amount <= MAX_AMOUNT:
            yield f"--worker-resource: got {name}={amount:g}; allowed: numbers from {MIN_AMOUNT} to {MAX_AMOUNT:.0f}"
        elif name in WHOLE_ABOVE_1 and amount > 1 and amount % 1:
            yield f"--worker-resource: got {name}={amount:g}; allowed: whole numbers, or less than 1"
