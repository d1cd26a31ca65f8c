"""Which engine carries out a plan: this process, worker processes, or Ray."""

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
from ...errors import UsageError, in_one_line, plural
from ..grid import Grid
from ..machine import cores
from ..simulators.custom import x64
from .job import Executor, Job
from .pool import LocalPool, Pool, Setup, accelerators
from .record import execute

MAX_WORKERS = 1000
"""More are refused: each is a process."""

WORKERS = f"whole numbers from 1 to {MAX_WORKERS}"
RESOURCE = (
    "NAME=X with X from 0.0001 to 1000000, as in GPU=1; above 1 GPU and TPU are whole"
    " numbers"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `chosen` reads, and `--shard`."""
    add = parser.add_argument_group("more than one process").add_argument
    add(
        "--shard",
        metavar="i/n",
        help="run share i of n, i from 0 (default: of a Slurm array task)",
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
    help = "resources of a Ray worker: CPU=4, GPU=1, TPU=4; repeatable"
    add("--worker-resource", metavar="NAME=X", help=help, action="append", default=[])


@dataclass(frozen=True)
class Engine:
    """What carries out a plan: this process if `name` is "local" and `workers` is
    None.
    """

    name: str = "local"
    workers: int | None = None
    ray_address: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def check(self, grid: Grid) -> None:
        """Raises UsageError where it cannot carry out the grid."""
        if (self.name == "ray" or self.workers) and (
            problem := grid.simulator.problem_in_workers(grid.points)
        ):
            raise UsageError(f"{problem} (or use one process)")

    def size(self, job: Job) -> int | None:
        """The number of workers, no more than there are runs, and on this machine than
        go into its memory.

        None: as many as fit a cluster, or none but this process.
        """
        asked = self.workers or (
            cores() if self.name == "ray" and not self.ray_address else None
        )
        room = job.plan.most_workers if self.shares_memory else MAX_WORKERS
        return asked and max(1, min(asked, job.plan.n_runs, room))

    @property
    def shares_memory(self) -> bool:
        """Whether the workers share the memory of this machine, and have no
        accelerators of their own.
        """
        return not self.ray_address and not accelerators(os.environ)

    def share(self, job: Job) -> None:
        """Divides memory and cores between the workers; the job has a remark if fewer
        start than were asked for.
        """
        size = self.size(job) or 1
        if self.shares_memory:
            job.plan = replace(job.plan, workers=size)
        if size < min(self.workers or 1, job.plan.n_runs):
            room = (
                f"the memory limit of {job.plan.limit / 2**20:.0f} MiB has room for a"
                " run in no more"
            )
            job.remarks.append(
                f"--workers: got {self.workers}; {size} start, as {room}"
                " (limits.max_bytes raises it)"
            )

    def facts(self, job: Job) -> dict[str, object]:
        """Its name, the number of workers for a job, and what each of them requests, as
        plain data.

        The number is None for this process, or for as many as fit a cluster.
        """
        return {
            "engine": self.name,
            "workers": self.size(job),
            "requests": self._requests(job),
        }

    def describe(self, job: Job) -> str:
        """The same as a line of text."""
        size, requests = self.size(job), self._requests(job)
        if self.name == "local":
            return (
                f"runs in {plural(size, 'worker')} of this machine"
                if size
                else "runs in this process"
            )
        where = (
            f"the Ray at {self.ray_address}"
            if self.ray_address
            else "a Ray that is started on this machine"
        )
        each = ", ".join(f"{name}={amount:g}" for name, amount in requests.items())
        return (
            f"runs in {plural(size, 'worker') if size else 'as many workers as fit'} of"
            f" {where}, each with {each}"
        )

    @contextmanager
    def opened(
        self, job: Job, interrupts: Interrupts, import_paths: tuple[str, ...] = ()
    ) -> Iterator[Executor]:
        """An executor for plans of the job.

        Its workers, which can import from `import_paths`, are being started.

        Raises UsageError if they cannot be, or if JAX does not start in this process.
        """
        if not job.to_do or (self.name == "local" and not self.workers):
            with interrupts.deferred():
                if job.to_do:
                    start_jax()
            yield execute
            return
        out = (
            sys.stderr if self.name == "ray" else sys.stdout
        )  # Ray prints there what the sweep tells, too
        with (
            redirect_stdout(out),
            closing(self._pool(job, Setup(import_paths, x64()))) as pool,
        ):
            yield pool.execute

    def _pool(self, job: Job, setup: Setup) -> Pool:
        size = self.size(job)
        if self.name == "local":
            return LocalPool(size or 1, setup)
        from .ray import RayPool

        return RayPool(
            setup, self.ray_address, size, job.plan.n_runs, self._requests(job)
        )

    def _requests(self, job: Job) -> dict[str, float]:
        """What Ray is asked for: where one is started here, each worker has its share
        of the cores.
        """
        usual = 1 if self.ray_address else max(1, cores() // (self.size(job) or 1))
        return {"CPU": float(usual), **self.resources} if self.name == "ray" else {}


def start_jax() -> None:
    """Starts JAX in this process; raises UsageError where its settings let no run
    succeed.
    """
    try:
        from ...simulator.program import start
    except (
        ImportError,
        ValueError,
    ) as error:  # of too little memory, or of a variable that JAX reads
        raise UsageError(f"JAX cannot be imported: {in_one_line(error)}") from error
    start()


def chosen(args: argparse.Namespace) -> Engine:
    """The engine that the options choose; raises UsageError with a line for each wrong
    option.
    """
    lines = [
        f"{flag}: goes with --engine ray, got --engine {args.engine}"
        for flag, given in (
            ("--ray-address", args.ray_address),
            ("--worker-resource", args.worker_resource),
        )
        if given and args.engine != "ray"
    ]
    if args.workers is not None and not re.fullmatch(
        rf"0{{,9}}([1-9]\d{{,2}}|{MAX_WORKERS})", args.workers
    ):
        lines.append(f"--workers: got {args.workers}; allowed: {WORKERS}")
    resources = {given: _resource(given) for given in args.worker_resource}
    lines += [
        f"--worker-resource: got {given}; allowed: {RESOURCE}"
        for given, found in resources.items()
        if not found
    ]
    if args.engine == "ray" and find_spec("ray") is None:
        lines.append(
            "--engine ray: ray is not installed; to install it: pip install"
            ' "jaxrecall[ray]"'
        )
    if lines:
        raise UsageError(lines)
    return Engine(
        args.engine,
        args.workers and int(args.workers),
        args.ray_address,
        dict(filter(None, resources.values())),
    )


def _resource(given: str) -> tuple[str, float] | None:
    """A resource and its amount; None for what Ray would refuse, or wait for without
    end.
    """
    found = re.fullmatch(r"([^=]+)=(\d{0,7}\.?\d{0,9})", given)
    name, amount = (found[1], float(f"0{found[2]}")) if found else ("", 0.0)
    whole = name not in ("GPU", "TPU") or amount <= 1 or amount % 1 == 0
    return (name, amount) if 1e-4 <= amount <= 1e6 and whole else None
