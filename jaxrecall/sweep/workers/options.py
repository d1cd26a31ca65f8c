"""Which engine carries out a plan, as chosen on the command line: this process, workers, or a Slurm array."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any

from ...errors import UsageError
from ..grid import Grid
from ..running import runner
from ..running.job import Executor
from ..shard import Shard

EXTRAS = {"ray": "ray", "slurm": "submitit"}
"""The extra of this package that an engine needs has its name, and holds this module."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `Engine` reads, and `--shard`."""
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


class Engine:
    """The engine that the options choose; raises UsageError with a line for each wrong option."""

    def __init__(self, args: argparse.Namespace):
        self.name, self.pad_to, self.slurm_executor = args.engine, args.pad_to, args.slurm_executor
        lines = []
        for flag, given, engine in (
            ("--ray-address", args.ray_address, "ray"),
            ("--worker-resource", args.worker_resource, "ray"),
            ("--slurm", args.slurm, "slurm"),
        ):
            if given and self.name != engine:
                lines.append(f"{flag}: goes with --engine {engine}, got --engine {self.name}")
        for flag, given, pattern, allowed in (
            ("--workers", [args.workers] * (args.workers is not None), r"0*[1-9]\d*", "whole numbers from 1"),
            ("--worker-resource", args.worker_resource, r"[^=]+=(?=.*[1-9])\d*\.?\d+", "NAME=X with X above 0, as in GPU=1"),
            ("--slurm", args.slurm, r"[a-z][a-z_-]*=.+", "KEY=VALUE as sbatch names it, as in partition=gpu"),
        ):
            lines += [f"{flag}: got {one}; allowed: {allowed}" for one in given if not re.fullmatch(pattern, one)]
        module = EXTRAS.get(self.name, "jaxrecall")
        if find_spec(module) is None:
            lines.append(f'--engine {self.name}: {module} is not installed; to install it: pip install "jaxrecall[{self.name}]"')
        if self.name == "slurm" and args.shard:
            lines.append("--shard: goes with --engine local or ray; the tasks of --engine slurm are the shards, --workers says how many")
        if self.name == "slurm" and args.workers is None:
            lines.append("--workers: nothing given; with --engine slurm it says how many tasks the array has, as in --workers 64")
        if lines:
            raise UsageError(lines)
        self.workers: Any = args.workers and int(args.workers)
        self.ray_address, self.slurm = args.ray_address, dict(one.split("=", 1) for one in args.slurm)
        self.resources = {name: float(amount) for name, amount in (one.split("=", 1) for one in args.worker_resource)}

    def check(self, grid: Grid, shard: Shard | None) -> None:
        """Raises UsageError where it cannot carry out the grid, or the shard of it."""
        if self.name == "slurm" and grid.search:
            allowed = "--workers, --engine ray, --shard 0/1"
            raise UsageError(f"--engine slurm: runs shards, got a search, which is sequential; allowed: {allowed}")
        if self.name == "slurm" and shard:
            raise UsageError(f"--engine slurm: got {shard}; allowed: a call outside of a Slurm array and of jax.distributed")

    @contextmanager
    def opened(self, grid: Grid, import_paths: tuple[str, ...] = ()) -> Iterator[Executor]:
        """An executor for plans of the grid; its workers, which can import from `import_paths`, are being started.

        Raises UsageError if they cannot be.
        """
        if self.name == "slurm":
            from .slurm import SlurmArray

            yield SlurmArray(grid, self.workers, self.slurm_executor, self.slurm, self.pad_to, import_paths).execute
        elif self.name == "ray":
            from .ray import RayWorkers

            with closing(RayWorkers(self.workers, self.ray_address, self.resources, import_paths)) as workers:
                yield workers.execute
        elif self.workers:
            from .local import LocalWorkers

            with closing(LocalWorkers(self.workers, import_paths)) as workers:
                yield workers.execute
        else:
            yield runner.execute
