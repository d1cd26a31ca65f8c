"""Which engine carries out a plan, as chosen on the command line: this process, a pool of workers, or a Slurm array."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from ....errors import UsageError
from ...grid import Grid
from ...shard import Shard
from .. import runner
from ..job import Executor
from .pool import Pool

ENGINES = ("local", "ray", "slurm")
EXECUTORS = ("slurm", "local", "debug")


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("more than one process")
    group.add_argument(
        "--shard",
        metavar="i/n",
        help="run share i of n, i from 0; jax: the share of this process in jax.distributed (default: of a Slurm array task)",
    )
    group.add_argument(
        "--workers", metavar="K", help="number of workers: one per accelerator, or each with its own CPU cores; with slurm: number of tasks"
    )
    group.add_argument(
        "--engine", choices=ENGINES, default="local", help="what runs the workers (default: local, processes of this machine)"
    )
    group.add_argument(
        "--ray-address", metavar="A", help="join a running Ray cluster: HOST:PORT of its head node, or auto (default: start one here)"
    )
    group.add_argument(
        "--worker-resource",
        metavar="NAME=X",
        action="append",
        default=[],
        help="resources of a Ray worker: CPU=4, GPU=1, TPU=4; repeatable",
    )
    group.add_argument("--slurm-executor", choices=EXECUTORS, default="slurm", help="local and debug try the Slurm engine without Slurm")
    group.add_argument(
        "--slurm",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of sbatch: partition=gpu, time=240 (minutes); repeatable",
    )


@dataclass(frozen=True)
class Engine:
    """An engine and its options."""

    name: str
    workers: int | None
    ray_address: str | None
    resources: dict[str, float]
    slurm_executor: str
    slurm: dict[str, str]
    pad_to: tuple[int, int, int] | None
    """For the tasks of a Slurm array."""

    def check(self, grid: Grid, shard: Shard | None) -> None:
        """Raises UsageError where it cannot carry out the grid, or the shard of it."""
        if self.name != "slurm":
            return
        if grid.search:
            raise UsageError(
                "--engine slurm: runs shards, got a search, which is sequential; allowed: --workers, --engine ray, --shard 0/1"
            )
        if shard:
            raise UsageError(f"--engine slurm: got {shard}; allowed: a call outside of a Slurm array and of jax.distributed")

    @contextmanager
    def opened(self, grid: Grid) -> Iterator[Executor]:
        """An executor for plans of the grid; its workers are being started. Raises UsageError if they cannot be."""
        if self.name == "slurm":
            from .slurm import Array

            assert self.workers
            yield Array(grid, self.workers, self.slurm_executor, self.slurm, self.pad_to).execute
        elif self.name == "local" and self.workers is None:
            yield runner.execute
        else:
            with closing(self._pool()) as pool:
                yield pool.execute

    def _pool(self) -> Pool:
        if self.name == "ray":
            from .ray import RayPool

            return RayPool(self.workers, self.ray_address, self.resources)
        from .local import LocalPool

        assert self.workers
        return LocalPool(self.workers)


def engine(args: argparse.Namespace, pad_to: tuple[int, int, int] | None = None) -> Engine:
    """The engine that the options choose; raises UsageError with a line for each wrong option."""
    lines, name = [], args.engine
    if args.workers is not None and not (args.workers.isdecimal() and int(args.workers) > 0):
        lines.append(f"--workers: got {args.workers}; allowed: whole numbers from 1")
    for flag, given, of in (
        ("--ray-address", args.ray_address, "ray"), ("--worker-resource", args.worker_resource, "ray"), ("--slurm", args.slurm, "slurm"),
    ):  # fmt: skip
        if given and name != of:
            lines.append(f"{flag}: goes with --engine {of}, got --engine {name}")
    resources: dict[str, float] = {}
    for one in args.worker_resource:
        resource, _, amount = one.partition("=")
        try:
            resources[resource] = float(amount)
            if not (resource and 0 < resources[resource] < math.inf):
                raise ValueError
        except ValueError:
            lines.append(f"--worker-resource: got {one}; allowed: NAME=X with X above 0, as in GPU=1")
    for one in args.slurm:
        if not re.fullmatch(r"[a-z][a-z_-]*=.+", one):
            lines.append(f"--slurm: got {one}; allowed: KEY=VALUE as sbatch names it, as in partition=gpu")
    module, extra = {"ray": ("ray", "ray"), "slurm": ("submitit", "slurm")}.get(name, ("jaxrecall", ""))
    if find_spec(module) is None:
        lines.append(f'--engine {name}: {module} is not installed; to install it: pip install "jaxrecall[{extra}]"')
    if name == "slurm" and args.shard:
        lines.append("--shard: goes with --engine local or ray; the tasks of --engine slurm are the shards, --workers says how many")
    if name == "slurm" and args.workers is None:
        lines.append("--workers: nothing given; with --engine slurm it says how many tasks the array has, as in --workers 64")
    if lines:
        raise UsageError(lines)
    slurm = dict(one.split("=", 1) for one in args.slurm)
    workers = args.workers and int(args.workers)
    return Engine(name, workers, args.ray_address, resources, args.slurm_executor, slurm, pad_to)
