"""The simulator of this package, for the sweep engine and for single runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from threadpoolctl import threadpool_limits

from ...cli.program_cache import is_kept
from ...errors import MAX_LIST, PointError, Problem, as_list, expect
from ...model.columns import CODE_VERSION, COLUMNS, OwnColumn, Row, in_order
from ...model.law_parameters import make_point, problem_in_workers
from ...model.laws import Law
from ...model.laws.law import class_name
from ...model.point import FIELDS, LAW_FIELDS, MAX_SEED, Point, Run, checked_seed
from ...model.source import source_digest
from ...simulator.cost import amount, peak_bytes, work_of
from ...simulator.program_shape import Shape
from ..machine import memory_described, memory_limit
from . import RISES, Cost, Loaded, Outcomes, Program, Room
from .custom import ACCURACY, Simulator
from .merging import Part, PlannedProgram, cheapest, merged

if TYPE_CHECKING:
    from ...simulator.program import Executable

MAX_VMAPPED = 1024
"""The largest number of runs that are vmapped on an accelerator."""

LOAD_SECONDS = 0.5
"""The number of seconds that it takes to load a program that is kept."""

ACCELERATOR_SPEED = 20
"""The speed of an accelerator, divided by the estimated speed of one core of a CPU.

On an H200 the ratio was 22 for the runs of a small sweep, and 80 for large runs.
"""

RUNS_OF_POINT = 50
"""The number of runs for which `simulate` chooses a program. It is fixed, so that a row
does not depend on the number of seeds in a call.
"""

TUNED_SECONDS = 1200.0
"""The work of a program's runs, in seconds of one CPU core, above which tuning the
program's kernels saves time on a GPU. This much work takes a GPU about a minute.
"""

SEEDS = f"a whole number from 0 to {MAX_SEED}, or a list of up to {MAX_LIST}"


class RecallSimulator(Simulator):
    """The simulator of this package, with columns of the user's own.

    On a CPU, several threads each compute a batch. The runs of a batch are computed one
    after the other. On an accelerator, the runs of a batch are vmapped, and the next
    batch waits meanwhile.
    """

    costs_known = True
    has_theory = True
    other_rate: ClassVar = {"kappa": "gamma", "gamma": "kappa"}

    def __init__(self, own: tuple[OwnColumn, ...] = ()):
        self.own = own
        # a column of the user's own may depend on settings of the calling thread
        self.loads_in_threads = not own
        self.name = "jaxrecall"
        self.version = CODE_VERSION
        self.accuracy = ACCURACY
        self.rises = RISES
        self.fields = FIELDS
        self.own_columns = {column.name: column.declared for column in own}
        self.row_columns = COLUMNS | self.own_columns

    def precision(self, of_products: str) -> str:
        return of_products

    def about(self) -> dict[str, Any]:
        if not self.own:
            return {}
        return {"columns": {column.name: column.path for column in self.own}}

    def point(self, values: Mapping[str, Any]) -> Point:
        return make_point(values)

    def sources(self, points: Iterable[Point]) -> dict[str, str]:
        used: set[type[Law]] = set()
        for name in LAW_FIELDS:
            laws = filter(None, map(attrgetter(name), points))
            used.update(map(type, laws))
        digests = {column.name: column.digest for column in self.own}
        for law in used:
            path = class_name(law)
            if ":" in path:
                digests[path] = source_digest(law.source(), [])
        return digests

    def program(self, point: Point, like: Shape | None = None) -> Shape:
        if self.own:
            return Shape.with_columns(point, self.own)
        if not like:
            return Shape.tight(point)
        shape = Shape.sized(point, *like.sizes)
        return replace(shape, light=like.light, quick=like.quick, tile=like.tile)

    def programs(self, points: Mapping[Point, int]) -> dict[Point, Program]:
        if self.own:
            return super().programs(points)
        return merged(points)

    def cost(self, program: Shape, point: Point) -> Cost:
        takes = amount(program, work_of(point))
        return Cost(takes.seconds, takes.flops, peak_bytes(program))

    def start_seconds(self, program: Shape) -> float:
        return LOAD_SECONDS if is_kept(program) else program.compile_seconds

    def width(self, program: Shape, seconds: float, room: Room) -> int:
        from ...simulator.program import memory_of_device, on_cpu

        if on_cpu():
            fitting = room.limit // peak_bytes(program)
            return max(1, min(room.cores, room.n_runs, fitting))
        memory = memory_of_device() or memory_limit()
        in_half_a_second = 0.5 * ACCELERATOR_SPEED / seconds
        wanted = int(min(MAX_VMAPPED, room.n_runs, room.batch or in_half_a_second))
        width = 1 << max(0, wanted.bit_length() - 1)
        # the waiting batch needs the same memory
        while width > 1 and 2 * width * peak_bytes(program.vmapped(width)) > memory:
            width //= 2
        return width

    def run(self, program: Shape, width: int, room: Room) -> Loaded:
        from ...simulator.program import compiled, on_cpu

        tuned = room.seconds > TUNED_SECONDS and not on_cpu()
        executable = compiled(program, width, room.precision, tuned=tuned)
        run = partial(_batch, executable, room.precision)
        if on_cpu():
            return Loaded(run, executable.batch, threads=width)
        return Loaded(run, executable.batch, threads=min(width, 2), order=_loop_lengths)

    def problem_in_workers(self, points: Iterable[Point]) -> str | None:
        for column in self.own:
            if column.path.startswith("__main__:"):
                return (
                    f"columns.{column.name}: got {column.path}, which other processes"
                    " cannot import; put it into a module"
                )
        one_of_each = {attrgetter(*LAW_FIELDS)(point): point for point in points}
        problems = map(problem_in_workers, one_of_each.values())
        return next(filter(None, problems), None)

    def __reduce__(self) -> Any:
        return RecallSimulator, (self.own,)


RECALL = RecallSimulator()


_loop_lengths = attrgetter("point.steps", "point.N", "point.L")
"""Returns the numbers that determine how often the loops of a run are repeated."""


def _batch(
    executable: Executable, precision: str, runs: Mapping[Run, float]
) -> Outcomes:
    """Returns the rows of each run. The column `seconds` is the share of the batch's
    time that the run is expected to take.
    """
    from ...simulator import program

    metrics, seconds = program.execute(executable, list(runs))
    total = sum(runs.values())
    rows_of_runs: Outcomes = []
    for (run, share), of_run in zip(runs.items(), metrics, strict=True):
        rows = None
        if of_run is not None:
            of_seconds = seconds * share / total
            rows = program.full_rows(
                run, of_run, executable.shape, precision, of_seconds
            )
        rows_of_runs.append(rows)
    return rows_of_runs


def simulate(point: Point, seed: int | Iterable[int], *, trace: bool = False) -> Any:
    """Returns the row that a sweep writes for (point, seed), without `seconds` and
    `bucket`.

    The row is a dict of the columns in table order. For a list of seeds, the function
    returns a list of rows. If the run is trained further, the row is that of the last
    step. If `trace` is true, the function returns a list with the rows of all recorded
    steps. The rows of each seed are in the order of the steps, one seed after the
    other.

    The first call for a shape compiles a program, which takes seconds. Points of
    similar sizes share the program. Later processes can use the compiled program again.
    The function raises PointError for an argument that is not a point, for seeds that
    are out of range or too many, and for a point that needs more than 80 % of this
    machine's memory.

        >>> from jaxrecall import Point, simulate
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> row = simulate(point, seed=0)
        >>> rows = simulate(point, seed=range(8))
        >>> longer = point.replace(steps=100, lr=0.1)
        >>> losses = [row["loss"] for row in simulate(longer, seed=0, trace=True)]
    """
    from ...simulator.device import start

    expect("point", point, Point, "a jaxrecall.Point", PointError)
    several = isinstance(seed, Iterable) and not isinstance(seed, str)
    seeds = as_list("seed", seed, SEEDS, PointError) if several else [seed]
    wanted = [Run(point, checked_seed(one)) for one in seeds]
    _check_memory(point)
    if remark := start():
        warnings.warn(remark, UserWarning, stacklevel=2)
    part = Part([point], {point: RUNS_OF_POINT})
    planned = PlannedProgram(Shape.rounded(point), [part])
    rows = _rows(point, wanted, cheapest(planned))
    traces = [[_untimed(row) for row in rows[run]] for run in wanted]
    if trace:
        return list(chain.from_iterable(traces))
    last = [trace[-1] for trace in traces]
    return last if several else last[0]


def _untimed(row: Row) -> Row:
    """Returns a row in table order, without `seconds` and `bucket`."""
    ordered = in_order(row)
    del ordered["seconds"], ordered["bucket"]
    return ordered


def _check_memory(point: Point) -> None:
    """Raises PointError if the program of a point needs more memory than is
    available.
    """
    need, limit = peak_bytes(Shape.rounded(point)), memory_limit()
    if need > limit:
        sizes = f"V={point.V}, d={point.d}, m={point.m}"
        got = f"got {sizes}, which needs about {need / 2**20:.0f} MiB"
        largest = max("V", "d", "m", key=partial(getattr, point))
        raise PointError([Problem(largest, got, allowed=memory_described())])


def _rows(point: Point, runs: Sequence[Run], shape: Shape) -> dict[Run, Any]:
    """Returns a dict from runs of one point to their rows. The program of a shape, or
    its fallback, computes the rows.
    """
    from ...simulator import device, program

    traces: dict[Run, Any] = {}
    executable = program.compiled(shape, device.width_for(len(runs)))
    for start in range(0, len(runs), executable.batch):
        batch = dict.fromkeys(runs[start : start + executable.batch], 1.0)
        with _one_thread(point):
            outcomes = _batch(executable, "highest", batch)
        for run, rows in zip(batch, outcomes, strict=True):
            if rows:
                traces[run] = rows
    left = [run for run in runs if run not in traces]
    if left and shape.fallback:
        traces |= _rows(point, left, shape.fallback)
    return traces


def _one_thread(point: Point) -> AbstractContextManager[object]:
    """Returns a context that limits BLAS to one thread if W_KQ matrices are decomposed.
    Several threads would keep the cores busy while they wait for each other.
    """
    if point.optimizer and point.optimizer.attention == "column":
        return threadpool_limits(1, user_api="blas")
    return nullcontext()
