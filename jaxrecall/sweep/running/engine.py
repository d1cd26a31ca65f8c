"""Chooses the engine of a plan: this process, worker processes, or Ray."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from ...cli.process import Interrupts
from ...cli.program_cache import OF_JAX, program_cache
from ...errors import UsageError, in_one_line, plural
from ...model.columns import CODE_VERSION
from ..grid import Grid
from ..machine import accelerators, check_memory, cores
from ..simulators.custom import x64
from .job import Executor, Job
from .runner import run_here
from .workers import Workers

MAX_WORKERS = 1000
"""The largest allowed number of workers. Each worker is a process."""

WORKERS = f"whole numbers from 1 to {MAX_WORKERS}"
RESOURCE = (
    "NAME=X with X from 0.0001 to 1000000, as in GPU=1; above 1 GPU and TPU are whole"
    " numbers"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose an engine, and `--shard`."""
    add = parser.add_argument_group("more than one process").add_argument
    add(
        "--shard",
        metavar="i/n",
        help="run shard i of n, i from 0 (default: of a job array task)",
    )
    add(
        "--workers",
        metavar="K",
        help="workers: one per accelerator, or each with its own CPU cores",
    )
    add(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="what runs the workers (default: processes of this machine)",
    )
    add(
        "--ray-address",
        metavar="A",
        help=(
            "join a running Ray cluster: HOST:PORT of its head, or auto (default: start"
            " one here)"
        ),
    )
    add(
        "--worker-resource",
        metavar="NAME=X",
        help="resources of a Ray worker: CPU=4, GPU=1, TPU=4; repeatable",
        action="append",
        default=[],
    )


@dataclass(frozen=True)
class Engine:
    """The choice of where a plan runs: on Ray, in worker processes, or in this process.

    If the engine is local and `workers` is not set, the plan runs in this process.
    """

    name: str = "local"
    workers: int | None = None
    ray_address: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_this_process(self) -> bool:
        return self.name == "local" and not self.workers

    def check(self, grid: Grid) -> None:
        """Raises UsageError if this engine cannot run the grid."""
        if self.is_this_process:
            return
        problem = grid.simulator.problem_in_workers(grid.points)
        if problem:
            raise UsageError(f"{problem} (or use one process)")

    def fitted(self, job: Job) -> Engine:
        """Returns the engine with the number of workers and the resources that the job
        gets, and divides the job's memory and cores among the workers.

        The number of workers is limited by the number of runs and by memory. It is None
        if the job runs in this process, or if a cluster starts as many workers as fit.
        If fewer workers start than were requested, the job gets a remark. If this
        process starts Ray, each worker requests an equal share of the cores.
        """
        plan, size, cpus = job.plan, self.workers, 1
        starts_ray = self.name == "ray" and not self.ray_address
        if starts_ray:
            size = size or cores()
        shares_memory = not self.ray_address and not accelerators(os.environ)
        if size:
            room = plan.most_workers if shares_memory else MAX_WORKERS
            size = max(1, min(size, plan.n_runs, room))
            if shares_memory:
                job.plan = replace(plan, workers=size)
            if size < min(self.workers or 1, plan.n_runs):
                job.remarks.append(
                    f"--workers: got {self.workers}; {size} start, as the memory limit"
                    f" of {plan.limit / 2**20:.0f} MiB has room for a run in no more"
                    " (limits.max_bytes raises it)"
                )
        if self.name == "local":
            return replace(self, workers=size)
        if starts_ray and size:
            cpus = max(1, cores() // size)
        resources = {"CPU": float(cpus), **self.resources}
        return replace(self, workers=size, resources=resources)

    def describe(self) -> str:
        """Returns a line of text that says where the job runs."""
        if self.is_this_process:
            return "runs in this process"
        n_workers = "as many workers as fit"
        if self.workers:
            n_workers = plural(self.workers, "worker")
        if self.name == "local":
            return f"runs in {n_workers} of this machine"
        where = "a Ray that is started on this machine"
        if self.ray_address:
            where = f"the Ray at {self.ray_address}"
        each = ", ".join(f"{name}={n:g}" for name, n in self.resources.items())
        return f"runs in {n_workers} of {where}, each with {each}"

    @contextmanager
    def opened(self, job: Job, interrupts: Interrupts) -> Iterator[Executor]:
        """Returns a context manager that yields an executor for the plans of the job.

        The workers are started on entry and can import from the same folders as this
        process. Raises UsageError if the workers cannot be started, if JAX cannot be
        started in this process, or if there is too little memory for JAX.
        """
        if not job.to_do:
            yield run_here
            return
        check_memory()
        if self.is_this_process:
            with interrupts.deferred():
                job.cache_remark = start_jax()
            yield run_here
            return
        # each worker has a folder like this one, and says nothing about it
        job.cache_remark = program_cache(os.environ.get(OF_JAX)).remark
        # what Ray prints must not mix with the sweep's own lines on stdout
        out = sys.stderr if self.name == "ray" else sys.stdout
        with redirect_stdout(out), closing(self._started(job)) as workers:
            yield workers.execute

    def _started(self, job: Job) -> Workers:
        """Starts the workers."""
        import_paths = tuple(filter(None, sys.path))
        setup = import_paths, x64(), CODE_VERSION
        if self.name == "local":
            return Workers(self.workers or 1, setup)
        from .ray import RayWorkers

        return RayWorkers(
            self.workers, setup, self.ray_address, job.plan.n_runs, self.resources
        )


def start_jax() -> str:
    """Starts JAX in this process.

    Returns a line that states why compiled programs are not kept, or an empty text.
    Raises UsageError if JAX cannot be imported, or if its settings would make every run
    fail.
    """
    try:
        from ...simulator.device import start
    # too little memory, or an invalid environment variable of JAX
    except (ImportError, ValueError) as error:
        raise UsageError(f"JAX cannot be imported: {in_one_line(error)}") from error
    return start()


def chosen(args: argparse.Namespace) -> Engine:
    """Returns the engine that the options choose.

    Raises UsageError with a line for each invalid option.
    """
    lines = []
    if args.engine != "ray":
        of_ray = {
            "--ray-address": args.ray_address,
            "--worker-resource": args.worker_resource,
        }
        for flag, given in of_ray.items():
            if given:
                lines.append(f"{flag}: goes with --engine ray, got --engine local")
    workers = None
    if args.workers is not None:
        if re.fullmatch(rf"0{{,9}}([1-9]\d{{,2}}|{MAX_WORKERS})", args.workers):
            workers = int(args.workers)
        else:
            lines.append(f"--workers: got {args.workers}; allowed: {WORKERS}")
    resources: dict[str, float] = {}
    for given in args.worker_resource:
        resource = _resource(given)
        if resource:
            resources.update([resource])
        else:
            lines.append(f"--worker-resource: got {given}; allowed: {RESOURCE}")
    if args.engine == "ray" and find_spec("ray") is None:
        lines.append(
            "--engine ray: ray is not installed; to install it: pip install"
            ' "jaxrecall[ray]"'
        )
    if lines:
        raise UsageError(lines)
    return Engine(args.engine, workers, args.ray_address, resources)


def _resource(given: str) -> tuple[str, float] | None:
    """Returns the name and amount in the text NAME=X.

    Returns None if the text is invalid, if Ray would refuse the request, or if Ray
    would wait for the resource forever.
    """
    match = re.fullmatch(r"([^=]+)=(\d{0,7}\.?\d{0,9})", given)
    if not match:
        return None
    name, amount = match[1], float(f"0{match[2]}")
    if name in ("GPU", "TPU") and amount > 1 and amount % 1:
        return None
    return (name, amount) if 1e-4 <= amount <= 1e6 else None
