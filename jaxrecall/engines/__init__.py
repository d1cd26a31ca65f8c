"""Past one process: the same plan, carried out by workers of this machine, of Ray, or by a Slurm array. No JAX here.

pool.py    a plan by a pool of workers, whoever keeps them
worker.py  what a worker does
local.py   --workers: processes of this machine      ray.py  --engine ray: actors      slurm.py  --engine slurm: shards as an array
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..errors import GridError
from ..plan import Plan
from ..progress import Outcome
from .pool import Pool, execute

__all__ = ["Execute", "Pool", "add_options", "check", "execute", "pool"]

Execute = Callable[[Plan], Outcome]
ENGINES = ("local", "ray", "slurm")


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("past one process")
    group.add_argument(
        "--shard", metavar="i/n", help="run share i (from 0) of n (default: from a Slurm array or JAX process; jax asks JAX)"
    )
    group.add_argument("--workers", metavar="K", help="worker processes, one per accelerator or each with cores of its own")
    group.add_argument("--engine", choices=ENGINES, default="local", help="who keeps the workers (default: local)")


def check(args: argparse.Namespace) -> None:
    """Refuses what cannot be meant; raises GridError with a line for each."""
    lines = []
    if args.workers is not None and not (args.workers.isdecimal() and int(args.workers) > 0):
        lines.append(f"--workers: got {args.workers}; allowed: whole numbers from 1")
    if lines:
        raise GridError(lines)


def pool(args: argparse.Namespace) -> Pool | None:
    """The workers asked for, on their way; None if this process does the work itself."""
    if args.workers is None:
        return None
    from .local import LocalPool

    return LocalPool(int(args.workers))
