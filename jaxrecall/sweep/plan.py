"""Groups the missing runs into programs and chunks.

The simulator determines which points share a program, and estimates the cost of runs. A
chunk is a list of runs of one program, which are started and reported together.

A process may run only a share of the runs. The share is chosen by --shard i/n, or by
the process's number in a job array of a cluster. The share depends on the grid alone,
not on finished runs or measured rates. So no run is missed or run twice, even if the
processes start at different times and on different machines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from ..errors import UsageError
from ..model.point import Run, RunId
from .files import Json
from .grid import Grid
from .grid.file import USUAL, Settings
from .machine import cores, memory_limit
from .simulators import AnyPoint, Program, Room, grouped
from .simulators.custom import Simulator
from .simulators.shipped import RECALL
from .speed import COMPILE, slowness

CHUNK_SECONDS = 20.0
CHUNK_RUNS = 4096

MAX_LOADING = 4
"""The largest number of programs that are loaded at the same time. Each takes memory
while it compiles.
"""


@dataclass(frozen=True)
class Chunk:
    """A list of runs of one program, which are started and reported together."""

    program: Program
    runs: tuple[Run, ...]
    seconds: float  # estimated wall time

    def part(self, runs: Sequence[Run]) -> Chunk:
        """Returns a chunk that contains only the given runs of this chunk."""
        seconds = self.seconds * len(runs) / len(self.runs)
        return Chunk(self.program, tuple(runs), seconds)


@dataclass(frozen=True)
class Plan:
    """The chunks to run, their estimated cost, and the settings of the runs."""

    chunks: tuple[Chunk, ...]
    flops: float
    peaks: Mapping[Program, int]  # bytes of each program with one run at a time
    settings: Settings
    limit: int  # bytes that a program may use
    batch: int | None  # vmapped runs on an accelerator; None: half a second's work
    n_runs: int
    simulator: Simulator = RECALL
    workers: int = 1  # processes that share the limit and the cores

    @property
    def room(self) -> Room:
        """The memory and cores that each worker may use."""
        cores_each = -(-cores() // self.workers)
        return Room(
            self.settings.precision,
            self.limit // self.workers,
            cores_each,
            self.n_runs,
            self.batch,
            cores_each * self.run_seconds / (len(self.peaks) or 1),
        )

    @property
    def peak_bytes(self) -> int:
        """The number of bytes that the largest program uses in all workers together.

        The number includes all runs that a worker runs at the same time.
        """
        room, largest = self.room, 0
        for each in self.peaks.values():
            at_a_time = min(room.cores, self.n_runs, room.limit // (each or 1))
            largest = max(largest, each * max(1, at_a_time))
        return largest * self.workers

    @property
    def most_workers(self) -> int:
        """The largest number of workers such that each has enough memory for a run."""
        return max(1, self.limit // (max(self.peaks.values(), default=0) or 1))

    @cached_property
    def run_seconds(self) -> float:
        """The wall time of all runs on a usual machine, in seconds."""
        return sum(chunk.seconds for chunk in self.chunks)

    @property
    def seconds(self) -> float:
        """The estimated wall time of all runs and of compiling or loading the programs
        on this machine, in seconds.
        """
        start_seconds = slowness().of(COMPILE) * self.start_seconds
        return start_seconds + _seconds_here(self.chunks)

    @property
    def n_loading(self) -> int:
        """The largest number of programs that a worker loads at the same time."""
        if not self.simulator.loads_in_threads:
            return 1
        return min(self.room.cores, MAX_LOADING)

    @property
    def start_seconds(self) -> float:
        """The wall time in which a usual machine compiles or loads all programs, in
        seconds.
        """
        total = sum(map(self.simulator.start_seconds, self.peaks))
        return total / min(self.n_loading, len(self.peaks) or 1)

    def seconds_of(self, run: Run, program: Program) -> float:
        """Returns the estimated time of a run in a program on one core, in seconds."""
        return self.simulator.cost(program, run.point).seconds

    def describe(self) -> list[Json]:
        """Returns a list with one dict for each program: its label, runs and cost."""
        by_program = grouped(self.chunks, attrgetter("program"))
        return list(starmap(self._entry, by_program.items()))

    def _entry(self, program: Program, chunks: Sequence[Chunk]) -> Json:
        runs = [run for chunk in chunks for run in chunk.runs]
        known = self.simulator.costs_known
        return {
            "bucket": str(program),
            "program": program.label,
            "points": len({run.point for run in runs}),
            "runs": len(runs),
            "chunks": len(chunks),
            "est_seconds": _seconds_here(chunks) if known else None,
            "est_peak_bytes": self.peaks[program] if known else None,
        }


def _seconds_here(chunks: Iterable[Chunk]) -> float:
    """The estimated wall time of chunks on this machine, in seconds."""
    factor = slowness().of
    return sum(factor(chunk.program.label) * chunk.seconds for chunk in chunks)


def make_plan(
    runs: Iterable[Run],
    limit: int | None = None,
    settings: Settings = USUAL,
    *,
    program: Callable[[AnyPoint], Program] | None = None,
    batch: int | None = None,
    simulator: Simulator = RECALL,
) -> Plan:
    """Returns a plan that runs all of `runs`.

    Unless `program` is given, points share programs where that saves time.

    Args:
        runs: the runs to compute.
        limit: the number of bytes that a program may use. The default is 80 % of the
            memory that this process may use.
        settings: the settings of the runs.
        program: a function that returns the program of a point.
        batch: the number of runs that an accelerator vmaps. By default, a batch takes
            about half a second.
        simulator: the simulator of the points. The default is that of this package.
    """
    of_points = grouped(runs, itemgetter(0))
    n = {point: len(of_point) for point, of_point in of_points.items()}
    chunks, peaks, flops, n_cores = [], {}, 0.0, cores()
    groups = grouped(n, program or simulator.programs(n).__getitem__)
    for each, points in sorted(groups.items()):
        timed, peak = [], 0
        for point in points:
            cost = simulator.cost(each, point)
            seconds = cost.seconds / n_cores
            timed += [(run, seconds) for run in of_points[point]]
            flops += n[point] * cost.flops
            peak = max(peak, cost.bytes)
        peaks[each] = peak
        for piece in pieces(timed, CHUNK_RUNS, CHUNK_SECONDS):
            chunks.append(Chunk(each, *piece))
    return Plan(
        tuple(chunks),
        flops,
        peaks,
        settings,
        limit or memory_limit(),
        batch,
        sum(n.values()),
        simulator,
    )


def by_id(runs: Iterable[Run]) -> dict[RunId, Run]:
    return {run.id: run for run in runs}


def pieces(
    costs: Iterable[tuple[Run, float]], most: int, seconds: float
) -> Iterator[tuple[tuple[Run, ...], float]]:
    """Cuts runs, in order, into pieces.

    A piece has at most `most` runs, and takes at most `seconds` by the estimates. A run
    that takes longer than `seconds` is a piece of its own. Each piece is yielded with
    its total cost.
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


SHARDS = "allowed: i/n with i from 0 to n - 1, as in 0/4 to 3/4"


ARRAYS = {
    "SLURM_ARRAY_TASK_ID": (
        "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_STEP",
    ),
    "SGE_TASK_ID": ("SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"),
    "PBS_ARRAY_INDEX": (),
    "PBS_ARRAYID": (),
    "LSB_JOBINDEX": (),
}
"""The variables of the job arrays of Slurm, Grid Engine, PBS, Torque and LSF.

The key contains the number of a task. The others contain the first and the last number,
and the step. A scheduler without them does not tell how many tasks there are.
"""

STEPS = {
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    "SLURM_NTASKS": "SLURM_PROCID",
}
"""The variables of processes that srun or mpirun starts together: how many there are,
and the number of a process. The script of a job has those of the last line, too.
"""

NO_TASKS = {("SGE_TASK_ID", "undefined"), ("LSB_JOBINDEX", "0")}
"""The variables and values of jobs that are not part of an array."""


class Shard(NamedTuple):
    """The share `index` of `count` shares. The option or variable `source` chose it."""

    index: int
    count: int
    source: str

    def __str__(self) -> str:
        return f"shard {self.index}/{self.count} ({self.source})"

    def of(self, grid: Grid) -> list[Run]:
        """Returns those runs of a grid that belong to this share.

        All runs are put in a sequence in which runs of a program, and then similar
        sizes, are adjacent. The sequence is cut into pieces of equal estimated cost. A
        run belongs to the piece that contains its middle. So the cost of a share
        differs from the mean by less than the cost of a run, and a share compiles few
        programs.
        """
        programs, simulator = grid.programs, grid.simulator

        def kin(point: AnyPoint) -> tuple[Any, Any]:
            return programs[point].kin, simulator.program(point).kin

        points = sorted(grid.points, key=kin)
        costs = [simulator.cost(programs[point], point).seconds for point in points]
        total, before = len(grid.seeds) * sum(costs), 0.0
        runs = []
        for point, cost in zip(points, costs, strict=True):
            for seed in grid.seeds:
                index = int(self.count * (before + cost / 2) / total)
                if min(index, self.count - 1) == self.index:
                    runs.append(Run(point, seed))
                before += cost
        return runs


def chosen_shard(
    given: str | None, environment: Mapping[str, str] = os.environ
) -> Shard | None:
    """Returns the share that the flag selects, or else the one that the environment
    selects: that of the task of a job array, divided among the processes of its step.

    Returns None if neither selects a share. The process then runs everything. Raises
    UsageError if the share does not exist.
    """
    if given is None:
        return _of_step(environment, _of_array(environment))
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", given)
    if not match or int(match[1]) >= int(match[2]):
        raise UsageError(f"--shard: got {given}; {SHARDS}")
    return Shard(int(match[1]), int(match[2]), "--shard")


def without_shard(command: str) -> str:
    """Returns the command with --shard removed, so that it resumes the whole grid.

    Any unique abbreviation of the flag is removed, because argparse accepts it.
    """
    return re.sub(r" --sh(?:a(?:rd?)?)?[ =]\d+/\d+(?!\S)", "", command)


def _of_step(environment: Mapping[str, str], whole: Shard | None) -> Shard | None:
    """Returns this process's part of a share, if srun or mpirun started several."""
    for of_all, variable in STEPS.items():
        is_script = of_all == "SLURM_NTASKS" and "SLURM_SUBMIT_DIR" in environment
        count = int(environment.get(of_all) or 1)
        if count > 1 and variable in environment and not is_script:
            rank = int(environment[variable])
            index, parts, source = whole or Shard(0, 1, "")
            told = f"{source} {variable} {rank}".strip()
            return Shard(count * index + rank, count * parts, told)
    return whole


def _of_array(environment: Mapping[str, str]) -> Shard | None:
    """Returns the share of this task of a job array, or None outside of an array and
    for its only task.

    The task numbers may start at any number and may have any step. Raises UsageError if
    the number of tasks is unknown, or if tasks are left out: their shares would be
    missing.
    """
    for variable, of_all in ARRAYS.items():
        task = environment.get(variable)
        if not task or (variable, task) in NO_TASKS:
            continue
        try:
            first, last, step = (int(environment[name]) for name in of_all)
            tasks = range(first, last + 1, step)
            count = int(environment.get("SLURM_ARRAY_TASK_COUNT", len(tasks)))
            if count == len(tasks):
                shard = Shard(tasks.index(int(task)), count, f"{variable} {task}")
                return shard if count > 1 else None
        except (KeyError, ValueError):
            pass  # refused below
        raise UsageError(
            f"{variable}: got {task}, of an array with gaps or of unknown size;"
            " allowed: an array without gaps of Slurm or Grid Engine, which may have"
            " any number of tasks, also to run what is missing; or a shard of your"
            f' choice, such as --shard "${variable}/16" for the tasks 0 to 15, or'
            f' "$(({variable} - 1))/16" for the tasks 1 to 16'
        )
    return None
