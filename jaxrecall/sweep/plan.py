"""From missing runs to programs and chunks.

The simulator says which points share a program, and what their runs cost. A chunk is a
list of runs of one program that are started and reported together.

A process may have a share of the runs, by --shard i/n or as a task of a Slurm array. It
depends on the grid alone, not on finished runs or measured rates. So processes that
start at different times, on different machines, neither miss a run nor run one twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UsageError
from ..model.point import Run
from .files import Json
from .grid.file import Settings
from .machine import cores, memory_limit
from .simulators import AnyPoint, Program, Room, SimulatorLike, Sizes, grouped
from .simulators.recall import RECALL

CHUNK_SECONDS = 20.0
CHUNK_RUNS = 4096


@dataclass(frozen=True)
class Chunk:
    """Runs of one program that end in one part file."""

    program: Program
    runs: tuple[Run, ...]
    seconds: float  # of wall time

    def part(self, runs: Sequence[Run]) -> Chunk:
        """Some of its runs."""
        return Chunk(
            self.program, tuple(runs), self.seconds * len(runs) / len(self.runs)
        )


@dataclass(frozen=True)
class Plan:
    """The chunks of a set of runs, their estimated cost, and how they are carried
    out.
    """

    chunks: tuple[Chunk, ...]
    flops: float
    seconds: float  # of wall time, compilation counted
    peaks: Mapping[Program, int]  # bytes of each program with one run at a time
    settings: Settings
    limit: int  # bytes that a program may take
    batch: int | None  # vmapped runs on an accelerator; None: half a second's work
    n_runs: int
    simulator: SimulatorLike = RECALL
    workers: int = 1  # processes that share the limit and the cores

    @property
    def room(self) -> Room:
        """What each of the workers may use."""
        cores_each = -(-cores() // self.workers)
        return Room(
            self.settings.precision,
            self.limit // self.workers,
            cores_each,
            self.n_runs,
            self.batch,
        )

    @property
    def peak_bytes(self) -> int:
        """Of the largest program, with as many runs at a time as there will be, in all
        workers.
        """
        at_a_time = min(self.room.cores, self.n_runs)
        return max(
            (
                each
                * max(1, min(at_a_time, self.room.limit // (each or 1)))
                * self.workers
                for each in self.peaks.values()
            ),
            default=0,
        )

    @property
    def most_workers(self) -> int:
        """How many processes have room for a run of the largest program each."""
        return max(1, self.limit // (max(self.peaks.values(), default=0) or 1))

    def seconds_of(self, run: Run, program: Program) -> float:
        """Of one core, for a run in a program."""
        return self.simulator.cost(program, run.point).seconds

    def describe(self) -> list[Json]:
        """One entry a program: its sizes, its choices, its runs and their cost."""
        known = self.simulator.facts.is_ours
        return [
            {
                "bucket": str(program),
                "program": program.label,
                **program.choices,
                "points": len(
                    {run.point.point_id for chunk in chunks for run in chunk.runs}
                ),
                "runs": sum(len(chunk.runs) for chunk in chunks),
                "chunks": len(chunks),
                "est_seconds": (
                    sum(chunk.seconds for chunk in chunks) if known else None
                ),
                "est_peak_bytes": self.peaks[program] if known else None,
            }
            for program, chunks in grouped(
                self.chunks, lambda chunk: chunk.program
            ).items()
        ]


def make(
    runs: Iterable[Run],
    pad_to: Sizes | None = None,
    limit: int | None = None,
    settings: Settings | None = None,
    *,
    program: Callable[[AnyPoint], Program] | None = None,
    batch: int | None = None,
    simulator: SimulatorLike = RECALL,
) -> Plan:
    """The plan for runs: points share programs where that saves time, unless their
    programs are given.

    Args:
        runs: what is to be computed.
        pad_to: sizes (V, d, m) of one program for all.
        limit: bytes that a program may take; 80 % of what this process may use unless
            given.
        settings: how the plan is carried out.
        program: the program of each point.
        batch: how many runs an accelerator vmaps; half a second's work unless given.
        simulator: what is simulated; that of this package unless given.

    Raises:
        UsageError if a point does not fit into `pad_to`, and for `pad_to` with a
        simulator of a user.
    """
    seeds: dict[AnyPoint, list[int]] = {}
    for point, seed in runs:
        seeds.setdefault(point, []).append(seed)
    n = {point: len(of) for point, of in seeds.items()}
    groups = dict(
        sorted(
            (grouped(n, program) if program else simulator.programs(n, pad_to)).items()
        )
    )
    chunks, peaks, flops = [], {}, 0.0
    for each, points in groups.items():
        costs = {point: simulator.cost(each, point) for point in points}
        takes = {point: cost.seconds / cores() for point, cost in costs.items()}
        costed = (
            (Run(point, seed), each_takes)
            for point, each_takes in takes.items()
            for seed in seeds[point]
        )
        chunks += [Chunk(each, *of) for of in pieces(costed, CHUNK_RUNS, CHUNK_SECONDS)]
        peaks[each] = max(cost.bytes for cost in costs.values())
        flops += sum(n[point] * cost.flops for point, cost in costs.items())
    seconds = sum(chunk.seconds for chunk in chunks) + sum(
        each.compile_seconds for each in groups
    )
    return Plan(
        tuple(chunks),
        flops,
        seconds,
        peaks,
        settings or Settings(),
        limit or memory_limit(),
        batch,
        sum(n.values()),
        simulator,
    )


def pieces(
    costs: Iterable[tuple[Run, float]], most: int, seconds: float
) -> Iterator[tuple[tuple[Run, ...], float]]:
    """Runs with their costs in order, cut into pieces of at most `most` runs and
    `seconds`.

    A run that takes longer is a piece of its own. The sum of costs comes with each.
    """
    runs: list[Run] = []
    total = 0.0
    for run, cost in costs:
        if runs and (len(runs) == most or total + cost > seconds):
            yield tuple(runs), total
            runs, total = [], 0.0
        runs.append(run)
        total += cost
    if runs:
        yield tuple(runs), total


ALLOWED = "allowed: i/n with i from 0 to n - 1, as in 0/4 to 3/4"


class Shard(NamedTuple):
    """Share `index` of `count`; `source` says where it was given."""

    index: int
    count: int
    source: str

    def __str__(self) -> str:
        return f"shard {self.index}/{self.count} ({self.source})"

    def of(
        self, points: Sequence[AnyPoint], seeds: Sequence[int], simulator: SimulatorLike
    ) -> list[Run]:
        """The runs of this share, of all (point, seed)."""
        return [
            run
            for index, run in shares(points, seeds, self.count, simulator)
            if index == self.index
        ]


def shares(
    points: Sequence[AnyPoint],
    seeds: Sequence[int],
    count: int,
    simulator: SimulatorLike,
) -> Iterator[tuple[int, Run]]:
    """Every run with the index of its share, of `count`.

    All runs are put in a row, with similar sizes side by side, and the row is cut into
    pieces of equal estimated cost. So a share is off by less than one run, and compiles
    few programs. A run belongs to the piece that holds its middle.
    """
    programs = {
        point: program
        for program, of in simulator.programs(dict.fromkeys(points, 1), "own").items()
        for point in of
    }
    row = sorted(points, key=lambda point: programs[point].kin)
    costs = [simulator.cost(programs[point], point).seconds for point in row]
    total, before = len(seeds) * sum(costs), 0.0
    for point, cost in zip(row, costs, strict=True):
        for seed in seeds:
            yield (
                min(int(count * (before + cost / 2) / total), count - 1),
                Run(point, seed),
            )
            before += cost


def chosen_shard(
    given: str | None, environment: Mapping[str, str] = os.environ
) -> Shard | None:
    """The share given by the flag, else by the environment; None for everything. Raises
    UsageError.
    """
    if given is None:
        return _of_slurm(environment)
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", given)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not index < count:
        raise UsageError(f"--shard: got {given}; {ALLOWED}")
    return Shard(index, count, "--shard")


def without_shard(command: str) -> str:
    """The command without its --shard, which resumes the whole grid.

    Any unique beginning of the flag counts, as for argparse.
    """
    return re.sub(r" --sh(?:a(?:rd?)?)?[ =]\d+/\d+(?!\S)", "", command)


def _of_slurm(environment: Mapping[str, str]) -> Shard | None:
    """The task of a Slurm array, whose numbers may start anywhere.

    Its step must be 1, or shares would be missing.
    """
    task, count, first, last = (
        environment.get(f"SLURM_ARRAY_TASK_{name}")
        for name in ("ID", "COUNT", "MIN", "MAX")
    )
    if task is None or count is None:
        return None
    try:
        index, n = int(task) - int(first or 0), int(count)
        dense = last is None or int(last) - int(first or 0) == n - 1
    except ValueError:
        index = n = dense = 0
    if not dense or not 0 <= index < n:
        allowed = (
            "allowed: an array without gaps, as in --array=0-7, or a --shard i/n of"
            " your own (0/1 is everything)"
        )
        raise UsageError(
            f"SLURM_ARRAY_TASK_ID: got {task} of {count} tasks from {first} to {last};"
            f" {allowed}"
        )
    return Shard(index, n, f"SLURM_ARRAY_TASK_ID {task}")
