"""Runs the chunks of a plan through compiled programs in this process; several batches are always in progress."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any

from threadpoolctl import threadpool_limits

from ...model.point import Run
from ...simulator.shape import Shape
from ..calibration import add_times, cores
from ..cost import Amounts, Work, memory_limit, operations, work
from ..plan import Chunk, Plan, Terms
from ..store.store import Store
from .failure import Failure
from .interrupts import Interrupts
from .meter import Meter
from .outcome import Outcome
from .progress import Progress, Remarks
from .recorder import Recorder
from .tally import Traces, duration

BATCH_SECONDS = 0.25
ANNOUNCED_SECONDS = 10.0

Costs = dict[Run, float]
"""Runs, and the seconds that each is estimated to take on one core."""

Metrics = list[dict[str, Any]]
"""The metric columns of the rows of a run."""


def execute(plan: Plan, store: Store, progress: Progress, interrupts: Interrupts, resume_command: str) -> Outcome:
    """Runs every chunk of the plan; finished rows are saved every `part_seconds` and at the end of each chunk.

    A chunk that fails is reported with `resume_command`, and the others run.
    """
    runner = BatchRunner(plan.terms, progress)
    recorder = Recorder(plan, store, progress, interrupts, resume_command)
    with interrupts.patient():
        for chunk in plan.chunks:
            if recorder.stopping:
                break
            _run(chunk, runner, recorder)
            recorder.saver.end_part()
        recorder.close()
    recorder.learn(runner.measured, runner.compiled)
    return recorder.outcome


def _run(chunk: Chunk, runner: BatchRunner, recorder: Recorder) -> None:
    """Runs a chunk until it is finished, fails or is to stop."""
    batches, left = runner.rows(chunk), {run.id: run for run in chunk.runs}
    while left and not recorder.stopping:
        try:
            with recorder.interrupts.droppable():
                runs, traces = next(batches)
        except KeyboardInterrupt:
            return
        except Exception as error:
            recorder.failed(chunk.part(list(left.values())), Failure.of(error))
            return
        ids = [run.id for run in runs]
        for run in ids:
            del left[run]
        recorder.finished(ids, traces, chunk)


class BatchRunner:
    """Runs chunks batch by batch through compiled programs, with several batches always in progress. Creating one starts JAX.

    On a CPU the runs of a batch run one after the other, and several threads run one batch each. On an accelerator the runs of a
    batch are vmapped, while another batch waits. `width` is how many runs of a shape share the memory.
    """

    def __init__(self, terms: Terms, remarks: Remarks):
        from ...simulator import program  # starts JAX, which must not happen before everything that can be refused has been

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
            self.remarks.message(f"program {shape}: {len(runs)} runs may not take a shortcut, about {duration(seconds)} more")

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
                    amounts = operations(shape, sum((work(run.point) for run in done), Work()))
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
