"""Runs in this process: those of a plan, of our simulator with several
batches always in progress, or of one of a user; and single ones.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, Literal, overload

import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import MAX_LIST, PointError, Problem, as_list, expect
from ..model.point import MAX_SEED, Point, Run, checked_seed
from ..simulator.shape import Shape
from .calibration import add_times
from .cost import Amounts, Work, operations, peak_bytes, work
from .machine import cores, memory_described, memory_limit
from .plan import Chunk, Plan
from .running.progress import Failure, Remarks, Rows, Traces, duration
from .simulators import x64

WIDTH = 8
"""Runs of a simulator of a user that are vmapped together; fewer are filled up, so that
each combination of static fields has one program."""

BATCH_SECONDS = 0.25
ANNOUNCED_SECONDS = 10.0
SMALL_ETA = 1e-6
"""With this rate of step 1, that of the shipped studies, predictions
are as good as uniform in all three gradients; docs/running.md.
"""


Costs = dict[Run, float]
"""Runs, and the seconds that each is estimated to take on one core."""

Row = dict[str, Any]
Metrics = list[Row]
"""The metric columns of the rows of a run."""

SEEDS = f"a whole number from 0 to {MAX_SEED}, or a list of up to {MAX_LIST}"


class BatchRunner:
    """Runs chunks batch by batch through compiled programs, with several batches always
    in progress. Creating one starts JAX.

    On a CPU the runs of a batch run one after the other, and several threads run one
    batch each. On an accelerator the runs of a batch are vmapped, while another batch
    waits. `width` is how many runs of a shape share the memory.
    """

    def __init__(self, plan: Plan, remarks: Remarks):
        from ..simulator import program  # starts JAX, which must not happen before everything that can be refused has been

        program.start()
        self.program = program
        self.plan, self.remarks = plan, remarks
        self.batch_seconds = min(BATCH_SECONDS, plan.settings.part_seconds)
        self.width: dict[Shape, int] = {}
        self.measured: dict[Shape, tuple[Amounts, float]] = {}
        """What the runs of each program took: CPU seconds on a CPU, else seconds of wall time."""

        self.compiled: dict[Shape, float | None] = {}
        """Seconds that each program took to compile, None if an earlier process had."""

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces]]:
        """Runs of the chunk and their rows, batch by batch; runs that an error bound
        rejects come last, in the exact form.

        Where memory runs out, the width of this program is halved for the rest of the
        call.
        """
        rejected: list[Run] = []
        precision = self.plan.settings.precision
        for shape, runs in ((chunk.shape, list(chunk.runs)), (chunk.shape.fallback, rejected)):
            if shape is None:
                break
            left = dict.fromkeys(runs)
            if shape == chunk.shape.fallback:
                self._announce(shape, runs)
            while left:
                width = self.width.setdefault(shape, self._first_width(shape, chunk.seconds / len(chunk.runs)))
                try:
                    for costs, metrics, seconds in self._batches(shape, list(left), width):
                        batch = list(costs)
                        done = {run: m for run, m in zip(batch, metrics, strict=True) if m}
                        rejected += [run for run in batch if run not in done]
                        share = seconds / sum(costs.values())
                        yield list(done), [self.program.rows(run, m, shape, precision, share * costs[run]) for run, m in done.items()]
                        for run in batch:
                            del left[run]
                except self.program.OutOfMemory:
                    if width == 1:
                        raise
                    self.width[shape] = width // 2
                    self.remarks.message(f"program {shape}: out of memory with {width} runs at a time; continuing with {self.width[shape]}")

    def _announce(self, shape: Shape, runs: list[Run]) -> None:
        """Says that runs were rejected by an error bound where
        they take long: no estimate before has counted them.
        """
        seconds = sum(self.plan.seconds_of(run, shape) for run in runs) / cores()
        if seconds > ANNOUNCED_SECONDS:
            hint = f"; a smaller eta may allow it, as {SMALL_ETA:g}" if any(run.point.eta > SMALL_ETA for run in runs) else ""
            self.remarks.message(f"program {shape}: {len(runs)} runs may not take a shortcut, about {duration(seconds)} more{hint}")

    def _batches(self, shape: Shape, runs: list[Run], width: int) -> Iterator[tuple[Costs, list[Metrics | None], float]]:
        """Batches of runs with their estimated costs, their metrics and seconds, in order."""
        if is_new := shape not in self.compiled:
            self.remarks.compiling(str(shape))
        start = time.perf_counter()
        compiled = self.program.compiled(shape, width, self.plan.settings.precision)
        self.compiled[shape] = None if compiled.was_kept else compiled.compile_seconds
        if is_new:
            self.remarks.compiled(str(shape), time.perf_counter() - start)
        threads = width if self.program.on_cpu() else min(width, 2)
        # Decoders run on the host, one thread each: BLAS threads of all of them would wait for each other, and wait busily.
        # The pool's threads are daemons: an interrupted sweep does not wait for them.
        with threadpool_limits(1, user_api="blas"), ThreadPool(threads) as pool:
            ahead: deque[tuple[Costs, AsyncResult[Any]]] = deque()
            cpu_time = time.process_time()
            for batch in (*self._by_cost(shape, runs, compiled.batch, threads), None):
                if batch:
                    ahead.append((batch, pool.apply_async(self.program.execute, (compiled, list(batch)))))
                while len(ahead) > (threads if batch else 0):
                    done, result = ahead.popleft()
                    try:
                        metrics, seconds = result.get()
                    except (self.program.OutOfMemory, self.program.ExecutionError):
                        for _, other in ahead:  # so that their memory is free again
                            other.wait()
                        raise
                    # XLA computes in threads of its own, so the time is that of the process, all of whose batches are of one program.
                    before, cpu_time = cpu_time, time.process_time()
                    asked = (work(run.point, grouped=_grouped(rows)) for run, rows in zip(done, metrics, strict=True))
                    amounts = operations(shape, sum(asked, Work()))
                    add_times(self.measured, {shape: (amounts, cpu_time - before if self.program.on_cpu() else seconds)})
                    yield done, metrics, seconds

    def _by_cost(self, shape: Shape, runs: list[Run], most: int, threads: int) -> Iterator[Costs]:
        """Batches of at most `most` runs and `batch_seconds` of work, on a CPU small
        enough to go round all threads.

        The most expensive come first, so that all threads finish at about the same
        time. Batches that run together are of similar length.
        """
        if self.program.on_cpu():
            most = min(most, max(1, len(runs) // (4 * threads)))
        batch: Costs = {}
        costs = {run: self.plan.seconds_of(run, shape) for run in runs}
        for run, seconds in sorted(costs.items(), key=lambda item: -item[1]):
            if batch and (len(batch) == most or sum(batch.values()) + seconds > self.batch_seconds):
                yield batch
                batch = {}
            batch[run] = seconds
        yield batch

    def _first_width(self, shape: Shape, seconds: float) -> int:
        """As many as the plan allows; `seconds` are those of a run."""
        if self.program.on_cpu():
            return self.plan.width(shape)
        return self.plan.vmapped_width(shape, self.program.memory_of_device() or memory_limit(), seconds)


def _grouped(rows: Metrics | None) -> bool | None:
    """Whether all further steps of a run read tokens with weights; None if a bound rejected it."""
    return rows[-1]["form"].endswith("locked descent") if rows else None


class CustomRunner:
    """Runs chunks of a simulator of a user. Creating one starts JAX."""

    def __init__(self, plan: Plan, remarks: Remarks):
        from ..simulator import vmapped

        vmapped.start()
        self.simulator, self.plan, self.remarks, self.vmapped = plan.simulator, plan, remarks, vmapped
        self.precision, self.own_columns = plan.settings.precision, plan.simulator.own_columns
        self.measured: dict[Any, Any] = {}
        self.compiled: dict[Any, float | None] = {}
        self.widths: dict[Any, int] = {}
        """Of each program, where memory is short."""

        self.programs: dict[tuple[Any, int], Any] = {}

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces | Failure]]:
        """Runs of the chunk and their rows, or how they failed; an exception while a
        program is made is raised.

        Where a program needs more memory than there is, or than it may take, the batches
        are halved.
        """
        left = list(chunk.runs)
        while left:
            width = self._width(chunk.shape)
            runs = left[:width]
            try:
                found = self._found(chunk.shape, runs)
            except self.vmapped.OutOfMemory as error:
                if width == 1:
                    yield left, Failure.of(error)
                    return
                self.widths[chunk.shape] = width // 2
                self.remarks.message(f"program {chunk.shape}: {str(error).splitlines()[0]}; continuing with {width // 2}")
            else:
                yield from found
                del left[: len(runs)]

    def _width(self, program: Any) -> int:
        """Runs at a time."""
        return self.widths.get(program, WIDTH) if self.simulator.jit else 1

    def _found(self, program: Any, runs: list[Run]) -> list[tuple[list[Run], Traces | Failure]]:
        """The runs with their rows, then those that failed, together where for the same reason."""
        compiled = self._compiled(program, runs) if self.simulator.jit else None
        start = time.perf_counter()
        try:
            if compiled:
                found = compiled(*self._arguments(runs))
                numbers = [{name: values[i] for name, values in found.items()} for i in range(len(runs))]
            else:
                fn, columns = self.simulator.fn, list(self.own_columns)
                numbers = [self.vmapped.called(fn, run.point, columns, _words(run), self.precision) for run in runs]
        except self.vmapped.OutOfMemory:
            raise
        except Exception as error:  # of the user's function
            return [(runs, Failure.of(error))]
        seconds = (time.perf_counter() - start) / len(runs)
        done: list[Run] = []
        traces: list[Rows] = []
        failed: dict[str, tuple[list[Run], Failure]] = {}
        for run, of_run in zip(runs, numbers, strict=True):
            try:
                traces.append(self._trace(run, of_run, seconds))
                done.append(run)
            except Exception as error:  # of a value that a user's function returned
                failed.setdefault(str(error), ([], Failure.of(error)))[0].append(run)
        return [*([(done, traces)] if done else []), *failed.values()]

    def _arguments(self, runs: list[Run]) -> Any:
        """What a program takes for these runs; the last one
        is repeated where they are fewer than are vmapped.
        """
        padded = runs + [runs[-1]] * (self._width(self.simulator.program(runs[0].point)) - len(runs))
        traced = {name: str(f.type) for name, f in self.simulator.fields.items() if f.metadata["kind"] == "traced"}
        values = {name: (kind, [getattr(run.point, name) for run in padded]) for name, kind in traced.items()}
        return self.vmapped.arguments(values, [_words(run) for run in padded])

    def _compiled(self, program: Any, runs: list[Run]) -> Callable[..., Any]:
        """The program for as many runs as are vmapped."""
        key = program, self._width(program)
        found = self.programs.pop(key, None)
        if found is None:
            self.remarks.compiling(str(program))
            start = time.perf_counter()
            fn, static, columns = self.simulator.fn, dict(program.static), list(self.own_columns)
            if len(self.programs) == self.vmapped.MAX_PROGRAMS:
                del self.programs[next(iter(self.programs))]
            found = self.vmapped.compiled(fn, static, columns, self._arguments(runs), self.precision, self.plan.limit)
            self.remarks.compiled(str(program), time.perf_counter() - start)
        self.programs[key] = found  # the one used last stands last
        return found

    def _trace(self, run: Run, found: dict[str, Any], seconds: float) -> Rows:
        """The rows of a run, one for each of its steps; raises ValueError for a value that a column cannot hold."""
        steps, main = run.point.recorded_steps, self.simulator.accuracy
        columns = {name: _as_column(name, kind, found[name], len(steps)) for name, (kind, _) in self.own_columns.items()}
        columns[main] = [_as_fraction(main, value) for value in columns[main]]
        same = {
            "steps": steps[-1],
            "seconds": seconds,
            "simulator": self.simulator.name,
            "code_version": self.simulator.version,
            "precision": self.simulator.precision(self.precision),
            "x64": x64(),
            **self.vmapped.provenance(),
        }
        rows: list[dict[str, Any]] = []
        for step, *values in zip(steps, *columns.values(), strict=True):
            numbers = dict(zip(columns, values, strict=True))
            status = "nonfinite" if numbers[main] is None else "ok"
            rows.append({**run.id._asdict(), **run.point.as_given(), **numbers, "step": step, "status": status, **same})
        return rows


def _words(run: Run) -> tuple[int, int, int]:
    """What the key of a run is made of: root seed, seed, and the point where streams are independent."""
    point = run.point
    return point.root_seed, run.seed, int(point.point_id[:8], 16) if point.streams == "independent" else 0


ROUNDING = 1e-6
"""An accuracy beyond 0 or 1 by no more is that."""


def _as_fraction(name: str, value: Any) -> Any:
    """An accuracy as it is, but for rounding; raises ValueError if it is no fraction."""
    if value is None or 0 <= value <= 1:
        return value
    if -ROUNDING <= value <= 1 + ROUNDING:
        return min(max(value, 0.0), 1.0)
    raise ValueError(f"the simulator returned {value:g} for the column {name}; allowed: fractions from 0 to 1")


def _as_column(name: str, kind: str, value: Any, n: int) -> list[Any]:
    """The values of a column at n steps, one for all or one each; raises ValueError."""
    given = np.asarray(value)
    if given.shape not in ((), (n,)):
        more = f", or {n}, one for each step" if n > 1 else ""
        raise ValueError(f"the simulator returned {name} of shape {given.shape}; allowed: one number{more}")
    return [_as_cell(name, kind, each) for each in np.broadcast_to(given, n).tolist()]


def _as_cell(name: str, kind: str, value: Any) -> Any:
    """A value as a column of this Arrow type holds it; None if there is none, or it is not finite. Raises ValueError."""
    if value is None or kind == "string":
        return None if value is None else str(value)
    number = float(value)
    if not math.isfinite(number):
        return None
    if (kind == "int64" and not (number.is_integer() and abs(number) < 2**63)) or (kind == "bool" and number not in (0, 1)):
        allowed = "whole numbers of int64" if kind == "int64" else "a bool"
        raise ValueError(f"the simulator returned {number} for the column {name}; allowed: {allowed}")
    return {"int64": int, "bool": bool, "float64": float}[kind](value)


Runner = BatchRunner | CustomRunner


def runner_for(plan: Plan, remarks: Remarks) -> Runner:
    """What runs the chunks of a plan in this process. Starts JAX.

    Its `rows(chunk)` yields runs of the chunk with their rows, or with the Failure of
    these alone; an exception is one of all that are left. Its `measured` and `compiled`
    are what it has learned for later plans.
    """
    return CustomRunner(plan, remarks) if plan.simulator else BatchRunner(plan, remarks)


@overload
def simulate(point: Point, seed: int, *, trace: Literal[False] = False) -> Row: ...
@overload
def simulate(point: Point, seed: Iterable[int], *, trace: Literal[False] = False) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: Literal[True]) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool) -> Row | list[Row]: ...
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool = False) -> Row | list[Row]:
    """The row that a sweep writes for (point, seed), without `seconds` and `bucket`: a
    dict of the columns in table order.

    For a list of seeds it returns a list of rows. Of a run that trains on, it is the
    row of the last step; with `trace` it returns a list of the rows of all recorded
    steps, in order of step, seed by seed. The first call for a shape compiles its
    program, which takes seconds; points of similar sizes share it, and the compiled
    program is kept for later processes. Raises PointError for what is no point, for
    seeds out of range or too many, and for a point that needs more than 80 % of this
    machine's memory.

        >>> from jaxrecall import Point, simulate
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> row = simulate(point, seed=0)
        >>> rows = simulate(point, seed=range(8))
        >>> losses = [row["loss"] for row in simulate(point.replace(steps=100, lr=0.1), seed=0, trace=True)]
    """
    from ..simulator import program  # starts JAX

    expect("point", point, Point, "a jaxrecall.Point", PointError)
    several = isinstance(seed, Iterable) and not isinstance(seed, str)
    seeds = as_list("seed", seed, SEEDS, PointError) if several else [seed]
    wanted = [Run(point, checked_seed(one)) for one in seeds]
    _check_memory(point)
    program.start()
    runs = _rows(point, wanted)
    if trace:
        return [row for rows in runs for row in rows]
    last = [rows[-1] for rows in runs]
    return last if several else last[0]


def _check_memory(point: Point) -> None:
    """Raises PointError for a point whose program needs more memory than there is."""
    need, limit = peak_bytes(Shape.rounded(point)), memory_limit()
    if need > limit:
        name = max(("V", "d", "m"), key=lambda size: getattr(point, size))
        sizes = ", ".join(f"{size}={getattr(point, size)}" for size in ("V", "d", "m"))
        message = f"got {sizes}, which needs about {need / 2**20:.0f} MiB; allowed: {memory_described()}"
        raise PointError([Problem(name, message)])


def _rows(point: Point, runs: Sequence[Run]) -> list[list[Row]]:
    """The rows of runs of one point, in their order. Those
    that a bound rejects run once more, in the exact form.
    """
    from ..simulator import program

    found: dict[Run, Metrics] = {}
    shape = Shape.rounded(point)
    while shape and (left := [run for run in runs if run not in found]):
        compiled = program.compiled(shape)
        for i in range(0, len(left), compiled.batch):
            batch = left[i : i + compiled.batch]
            decomposes = point.trains_on and point.optimizer_law.attention == "column"
            with threadpool_limits(1, user_api="blas") if decomposes else nullcontext():  # its threads wait busily for each other
                metrics = program.execute(compiled, batch)[0]
            found |= {run: rows for run, rows in zip(batch, metrics, strict=True) if rows}
        shape = shape.fallback
    whole = (program.rows(run, found[run], Shape.rounded(point), "highest", None) for run in runs)
    return [[{name: value for name, value in row.items() if name not in ("seconds", "bucket")} for row in of_run] for of_run in whole]
