"""Runs of our simulator in this process: compiled programs, batch by batch, with several batches always in progress."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from ..model.point import Run
from ..simulator.shape import Shape
from .calibration import add_times, cores
from .cost import Amounts, Work, memory_limit, operations, work
from .plan import Chunk, Terms
from .running.progress import Remarks, Traces, duration

T = TypeVar("T")

BATCH_SECONDS = 0.25
ANNOUNCED_SECONDS = 10.0
SMALL_ETA = 1e-6
"""With this rate of step 1, that of the shipped studies, predictions before step 3 are as good as uniform; docs/running.md."""


Costs = dict[Run, float]
"""Runs, and the seconds that each is estimated to take on one core."""

Metrics = list[dict[str, Any]]
"""The metric columns of the rows of a run."""


class Meter:
    """Shares the CPU time of this process, of all its threads, equally among the pieces of work that are in progress.

    XLA computes in threads of its own, so the CPU time of the thread that started a piece would not do. Unlike wall time, CPU time
    does not count how long other programs have kept the cores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[object, float] = {}
        self._shared = time.process_time()

    def measured(self, work: Callable[[], T]) -> tuple[T, float]:
        """What the work returns, and its CPU seconds; to be called by any number of threads."""
        piece = object()
        with self._lock:
            self._share()
            self._seconds[piece] = 0.0
        try:
            result = work()
        finally:
            with self._lock:
                self._share()
                seconds = self._seconds.pop(piece)
        return result, seconds

    def _share(self) -> None:
        """Gives each piece in progress its share of the CPU time since the last call."""
        now = time.process_time()
        for piece in self._seconds:
            self._seconds[piece] += (now - self._shared) / len(self._seconds)
        self._shared = now


class BatchRunner:
    """Runs chunks batch by batch through compiled programs, with several batches always in progress. Creating one starts JAX.

    On a CPU the runs of a batch run one after the other, and several threads run one batch each. On an accelerator the runs of a
    batch are vmapped, while another batch waits. `width` is how many runs of a shape share the memory.
    """

    def __init__(self, terms: Terms, remarks: Remarks):
        from ..simulator import program  # starts JAX, which must not happen before everything that can be refused has been

        program.start()
        self.program = program
        self.terms, self.remarks = terms, remarks
        self.batch_seconds = min(BATCH_SECONDS, terms.settings.part_seconds)
        self.width: dict[Shape, int] = {}
        self.meter = Meter()
        self.measured: dict[Shape, tuple[Amounts, float]] = {}
        """What the runs of each program took: CPU seconds on a CPU, else seconds of wall time."""

        self.compiled: dict[Shape, float | None] = {}
        """Seconds that each program took to compile, None if an earlier process had."""

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces]]:
        """Runs of the chunk and their rows, batch by batch; runs that an error bound rejects come last, in the exact form.

        Where memory runs out, the width of this program is halved for the rest of the call.
        """
        rejected: list[Run] = []
        precision = self.terms.settings.precision
        for shape, runs in ((chunk.shape, list(chunk.runs)), (chunk.shape.fallback, rejected)):
            if shape is None:
                break
            left = dict.fromkeys(runs)
            if shape == chunk.shape.fallback:
                self._announce(shape, runs)
            while left:
                width = self.width.setdefault(shape, self._first_width(shape))
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
        """Says that runs were rejected by an error bound where they take long: no estimate before has counted them."""
        seconds = sum(self.terms.seconds_of(run, shape) for run in runs) / cores()
        if seconds > ANNOUNCED_SECONDS:
            hint = f"; a smaller eta may allow it, as {SMALL_ETA:g}" if any(run.point.eta > SMALL_ETA for run in runs) else ""
            self.remarks.message(f"program {shape}: {len(runs)} runs may not take a shortcut, about {duration(seconds)} more{hint}")

    def _batches(self, shape: Shape, runs: list[Run], width: int) -> Iterator[tuple[Costs, list[Metrics | None], float]]:
        """Batches of runs with their estimated costs, their metrics and seconds, in order."""
        self.remarks.compiling(str(shape))
        start = time.perf_counter()
        compiled = self.program.compiled(shape, width, self.terms.settings.precision)
        self.compiled[shape] = None if compiled.was_kept else compiled.compile_seconds
        self.remarks.compiled(str(shape), time.perf_counter() - start)
        threads = width if self.program.on_cpu() else min(width, 2)
        # Decoders run on the host, one thread each: BLAS threads of all of them would wait for each other, and wait busily.
        # The pool's threads are daemons: an interrupted sweep does not wait for them.
        with threadpool_limits(1, user_api="blas"), ThreadPool(threads) as pool:
            ahead: deque[tuple[Costs, AsyncResult[Any]]] = deque()
            for batch in (*self._by_cost(shape, runs, compiled.batch, threads), None):
                if batch:
                    call = functools.partial(self.program.execute, compiled, list(batch))
                    ahead.append((batch, pool.apply_async(self.meter.measured, (call,))))
                while len(ahead) > (threads if batch else 0):
                    done, result = ahead.popleft()
                    try:
                        (metrics, seconds), cpu_seconds = result.get()
                    except (self.program.OutOfMemory, self.program.ExecutionError):
                        for _, other in ahead:  # so that their memory is free again
                            other.wait()
                        raise
                    asked = (work(run.point, grouped=_grouped(rows)) for run, rows in zip(done, metrics, strict=True))
                    amounts = operations(shape, sum(asked, Work()))
                    add_times(self.measured, {shape: (amounts, cpu_seconds if self.program.on_cpu() else seconds)})
                    yield done, metrics, seconds

    def _by_cost(self, shape: Shape, runs: list[Run], most: int, threads: int) -> Iterator[Costs]:
        """Batches of at most `most` runs and `batch_seconds` of work, on a CPU small enough to go round all threads.

        The most expensive come first, so that all threads finish at about the same time.
        Batches that run together are of similar length.
        """
        if self.program.on_cpu():
            most = min(most, max(1, len(runs) // (4 * threads)))
        batch: Costs = {}
        costs = {run: self.terms.seconds_of(run, shape) for run in runs}
        for run, seconds in sorted(costs.items(), key=lambda item: -item[1]):
            if batch and (len(batch) == most or sum(batch.values()) + seconds > self.batch_seconds):
                yield batch
                batch = {}
            batch[run] = seconds
        yield batch

    def _first_width(self, shape: Shape) -> int:
        """As many as the plan allows."""
        if self.program.on_cpu():
            return self.terms.width(shape)
        return self.terms.vmapped_width(shape, self.program.memory_of_device() or memory_limit())


def _grouped(rows: Metrics | None) -> bool | None:
    """Whether all further steps of a run read tokens with weights; None if a bound rejected it."""
    return rows[-1]["form"].endswith("locked descent") if rows else None
