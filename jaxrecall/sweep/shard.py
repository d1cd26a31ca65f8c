"""The share of a grid's runs that a process has: by --shard
i/n, as a task of a Slurm array, or as a process of JAX.

A share depends on the grid alone, not on finished runs or measured rates. So processes
that start at different times, on different machines, neither miss a run nor run one
twice.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError, in_one_line
from ..model.point import Run
from .simulators import SimulatorLike

ALLOWED = "allowed: i/n with i from 0 to n - 1, as in 0/4 to 3/4, or jax"


class Shard(NamedTuple):
    """Share `index` of `count`; `source` says where it was given."""

    index: int
    count: int
    source: str

    def __str__(self) -> str:
        return f"shard {self.index}/{self.count} ({self.source})"

    def of(self, points: Sequence[Any], seeds: Sequence[int], simulator: SimulatorLike) -> list[Run]:
        """The runs of this share, of all (point, seed)."""
        return [run for index, run in shares(points, seeds, self.count, simulator) if index == self.index]


def shares(points: Sequence[Any], seeds: Sequence[int], count: int, simulator: SimulatorLike) -> Iterator[tuple[int, Run]]:
    """Every run with the index of its share, of `count`.

    All runs are put in a row, with similar sizes side by side, and the row is cut into
    pieces of equal estimated cost. So a share is off by less than one run, and compiles
    few programs. A run belongs to the piece that holds its middle.
    """
    programs = {point: program for program, of in simulator.programs(dict.fromkeys(points, 1), "own").items() for point in of}
    row = sorted(points, key=lambda point: programs[point].kin)
    costs = [simulator.cost(programs[point], point).seconds for point in row]
    total, before = len(seeds) * sum(costs), 0.0
    for point, cost in zip(row, costs, strict=True):
        for seed in seeds:
            yield min(int(count * (before + cost / 2) / total), count - 1), Run(point, seed)
            before += cost


def chosen(given: str | None, environment: Mapping[str, str] = os.environ) -> Shard | None:
    """The share given by the flag, else by the environment; None for everything. Raises UsageError.

    A process of JAX within a task of a Slurm array has a share of that task's share.
    """
    if given == "jax":
        return _of_jax(environment)
    if given is not None:
        return _parsed(given, "--shard", "--shard")
    shards = [shard for shard in (_of_slurm(environment), _of_process(environment)) if shard]
    index, count = 0, 1
    for shard in shards:
        index, count = index * shard.count + shard.index, count * shard.count
    return Shard(index, count, ", ".join(shard.source for shard in shards)) if shards else None


def without_shard(command: str) -> str:
    """The command without its --shard, which resumes the whole
    grid. Any unique beginning of the flag counts, as for argparse.
    """
    return re.sub(r" --sh(?:a(?:rd?)?)?[ =](?:jax|\d+/\d+)(?!\S)", "", command)


def _parsed(text: str, name: str, source: str) -> Shard:
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not index < count:
        raise UsageError(f"{name}: got {text}; {ALLOWED}")
    return Shard(index, count, source)


def _of_slurm(environment: Mapping[str, str]) -> Shard | None:
    """The task of a Slurm array, whose numbers may start
    anywhere; its step must be 1, or shares would be missing.
    """
    task, count, first, last = (environment.get(f"SLURM_ARRAY_TASK_{name}") for name in ("ID", "COUNT", "MIN", "MAX"))
    if task is None or count is None:
        return None
    try:
        index, n = int(task) - int(first or 0), int(count)
        dense = last is None or int(last) - int(first or 0) == n - 1
    except ValueError:
        index = n = dense = 0
    if not dense or not 0 <= index < n:
        allowed = "allowed: an array without gaps, as in --array=0-7, or a --shard i/n of your own (0/1 is everything)"
        raise UsageError(f"SLURM_ARRAY_TASK_ID: got {task} of {count} tasks from {first} to {last}; {allowed}")
    return Shard(index, n, f"SLURM_ARRAY_TASK_ID {task}")


def _of_process(environment: Mapping[str, str]) -> Shard | None:
    """The process of JAX: as JAX has it where the caller
    has started jax.distributed, else as in the environment.
    """
    jax = sys.modules.get("jax")
    if jax and jax.distributed.is_initialized():
        index, count = jax.process_index(), jax.process_count()
        return Shard(index, count, f"process {index} of jax.distributed")
    index, count = (environment.get(name) for name in ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"))
    if index is None or count is None:
        return None
    return _parsed(f"{index}/{count}", "JAX_PROCESS_ID/JAX_NUM_PROCESSES", f"JAX_PROCESS_ID {index}")


def _of_jax(environment: Mapping[str, str]) -> Shard | None:
    """Starts jax.distributed, which finds its processes on TPU
    slices, under Slurm, MPI and Kubernetes, and shuts it down again.

    Only the index is needed. If it kept running, it would end every process when one
    dies, and the first would wait for the last.
    """
    import jax

    shard = _of_process(environment)
    if jax.distributed.is_initialized():
        return shard
    try:
        jax.distributed.initialize(num_processes=shard and shard.count, process_id=shard and shard.index)
        shard = _of_process(environment)
        jax.distributed.shutdown()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"--shard jax: jax.distributed does not start ({in_one_line(error)}); {ALLOWED}") from error
    return shard
