"""The share of a grid's runs that a process has: by --shard i/n, or as a task of a Slurm array.

A share depends on the grid alone, not on finished runs or measured rates. So processes
that start at different times, on different machines, neither miss a run nor run one
twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError
from ..model.point import Run
from .simulators import SimulatorLike

ALLOWED = "allowed: i/n with i from 0 to n - 1, as in 0/4 to 3/4"


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
    """The share given by the flag, else by the environment; None for everything. Raises UsageError."""
    if given is None:
        return _of_slurm(environment)
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", given)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not index < count:
        raise UsageError(f"--shard: got {given}; {ALLOWED}")
    return Shard(index, count, "--shard")


def without_shard(command: str) -> str:
    """The command without its --shard, which resumes the whole
    grid. Any unique beginning of the flag counts, as for argparse.
    """
    return re.sub(r" --sh(?:a(?:rd?)?)?[ =]\d+/\d+(?!\S)", "", command)


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
