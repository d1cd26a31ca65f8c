"""Runs the chunks of a plan through compiled programs and stores their rows; some batches are always in flight."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any

import jax
from threadpoolctl import threadpool_limits

from ..grid.file import PART_SECONDS
from ..plan.plan import Chunk, Plan, Terms
from ..point import Run
from ..simulator import program
from ..simulator.shape import Shape
from ..simulator.work import Amounts, Work
from ..store.store import Store
from .failure import Failure
from .interrupts import Interrupts
from .progress import Outcome, Progress, Remarks
from .saver import Saver

BATCH_SECONDS = 0.25
MAX_WIDTH = 64
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "YNNPACK operation failed")  # the second is how matrix products say it on a CPU

Rows = list[dict[str, Any]]

Costs = dict[Run, float]
"""Runs, and the seconds that each is estimated to take on one core."""


def execute(
    plan: Plan,
    store: Store,
    precision: str,
    tell: Progress,
    interrupts: Interrupts,
    repeat: str,
    fail_fast: bool = False,
    part_seconds: float = PART_SECONDS,
) -> Outcome:
    """Runs every chunk of the plan; finished rows are saved every `part_seconds` and at the end of each chunk.

    A chunk that fails is reported with `repeat`, the command that tries it again.
    """
    program.keep_compiled()
    outcome = Outcome()
    saver = Saver(store, tell, part_seconds, lambda: interrupts.asked)
    lanes = Lanes(plan.terms, precision, tell, min(BATCH_SECONDS, part_seconds))
    with interrupts.patient():
        for chunk in plan.chunks:
            if interrupts.asked or saver.gave_up or (fail_fast and outcome.failed):
                break
            batches, left = lanes.rows(chunk), dict.fromkeys(chunk.runs)
            while left and not (interrupts.asked or saver.gave_up):
                try:
                    with interrupts.droppable():
                        runs, rows = next(batches)
                except KeyboardInterrupt:
                    break
                except Exception as error:
                    outcome.failed += 1
                    line, details = Failure.of(error).recorded(chunk.bucket, tuple(left), store, repeat)
                    tell.failed(line, chunk.seconds * len(left) / len(chunk.runs), len(left), details)
                    break
                for run in runs:
                    del left[run]
                outcome.runs += len(rows)
                tell.advanced(rows, chunk.seconds * len(rows) / len(chunk.runs))
                saver.add(rows)
            saver.end_part()
        saver.close()
    plan.calibration.after(lanes.measured, lanes.compiled).keep()
    outcome.unsaved, outcome.interrupted = len(saver.rows), interrupts.asked
    return outcome


class Lanes:
    """Chunks through compiled programs, some batches always in flight.

    On a CPU every lane is a thread that runs one after the other; on an accelerator a batch goes side by side, and another
    waits behind it. `width` is how many runs of a bucket share the memory.
    """

    def __init__(self, terms: Terms, precision: str, tell: Remarks, batch_seconds: float):
        self.terms, self.precision, self.tell, self.batch_seconds = terms, precision, tell, batch_seconds
        self.width: dict[Shape, int] = {}
        self.measured: list[tuple[Amounts, float]] = []
        self.compiled: dict[Shape, float | None] = {}
        """Seconds that each program took to compile, None if an earlier process had."""

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Rows]]:
        """Runs of the chunk and their rows, a batch at a time; those that a guard turns away come last, in the full form.

        Where memory does not suffice, the width of this program is halved for good.
        """
        turned_away: list[Run] = []
        for bucket, runs in ((chunk.bucket, list(chunk.runs)), (chunk.bucket.fallback, turned_away)):
            if bucket is None:
                break
            left = dict.fromkeys(runs)
            while left:
                width = self.width.setdefault(bucket, self._first_width(bucket))
                try:
                    for costs, metrics, seconds in self._batches(bucket, list(left), width):
                        batch = list(costs)
                        done = {run: m for run, m in zip(batch, metrics, strict=True) if m}
                        turned_away += [run for run in batch if run not in done]
                        share = seconds / sum(costs.values())
                        yield list(done), [program.row(Run(*run), m, bucket, self.precision, share * costs[run]) for run, m in done.items()]
                        for run in batch:
                            del left[run]
                except jax.errors.JaxRuntimeError as error:
                    if width == 1 or not any(sign in str(error) for sign in OUT_OF_MEMORY):
                        raise
                    self.width[bucket] = width // 2
                    self.tell.say(f"program {bucket}: out of memory with {width} runs side by side; going on with {width // 2}")

    def _batches(self, bucket: Shape, runs: list[Run], width: int) -> Iterator[tuple[Costs, list[dict[str, Any] | None], float]]:
        """Batches of runs with their estimated costs, their metrics and seconds, in order."""
        self.tell.compiling(str(bucket))
        start = time.perf_counter()
        compiled = program.compiled(bucket, width, self.precision)
        self.compiled[bucket] = None if compiled.was_kept else compiled.compile_seconds
        self.tell.compiled(str(bucket), time.perf_counter() - start)
        threads = width if program.on_cpu() else min(width, 2)
        # Decoders run on the host, one lane each: BLAS threads of all lanes would wait for each other, and wait busily.
        # The pool's threads are daemons: an interrupted sweep does not wait for them.
        with threadpool_limits(1, user_api="blas"), ThreadPool(threads) as pool:
            ahead: deque[tuple[Costs, AsyncResult[Any]]] = deque()
            for batch in (*self._by_cost(bucket, runs, compiled.batch, threads), None):
                if batch:
                    ahead.append((batch, pool.apply_async(program.execute, (compiled, list(batch)))))
                while len(ahead) > (threads if batch else 0):
                    done, result = ahead.popleft()
                    try:
                        metrics, seconds = result.get()
                    except jax.errors.JaxRuntimeError:
                        for _, other in ahead:  # so that their memory is free again
                            other.wait()
                        raise
                    self.measured.append((bucket.amounts(sum((Work.of(point) for point, _ in done), Work())), seconds))
                    yield done, metrics, seconds

    def _by_cost(self, bucket: Shape, runs: list[Run], most: int, threads: int) -> Iterator[Costs]:
        """Batches of at most `most` runs and `batch_seconds` of work, on a CPU small enough to go round all threads.

        The dearest come first: what is left for the end goes evenly round, and side by side are runs of like length.
        """
        if program.on_cpu():
            most = min(most, max(1, len(runs) // (4 * threads)))
        batch: Costs = {}
        costs = {run: self.terms.seconds_of(run, bucket) for run in runs}
        for run, seconds in sorted(costs.items(), key=lambda item: -item[1]):
            if batch and (len(batch) == most or sum(batch.values()) + seconds > self.batch_seconds):
                yield batch
                batch = {}
            batch[run] = seconds
        yield batch

    def _first_width(self, bucket: Shape) -> int:
        """As many as the plan allows on a CPU; on each accelerator what it says or half a second's work, a power of two."""
        if program.on_cpu():
            return self.terms.width(bucket)
        wanted = self.terms.batch or 0.5 / self.terms.seconds_per_run[bucket]
        return 1 << max(0, int(min(MAX_WIDTH, wanted)).bit_length() - 1)
