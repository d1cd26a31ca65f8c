"""The runs of a plan in this process, of any simulator, with several batches always in progress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import AsyncResult, ThreadPool

from threadpoolctl import threadpool_limits

from ..errors import OutOfMemory
from ..model.point import Run
from .machine import cores
from .plan import Chunk, Plan
from .running.progress import Failure, Remarks, Traces, duration
from .simulators import Loaded, Program, Rows

BATCH_SECONDS = 0.25
ANNOUNCED_SECONDS = 10.0
SMALL_ETA = 1e-6
"""With this rate of step 1, that of the shipped studies, predictions
are as good as uniform in all three gradients; docs/running.md.
"""

Costs = dict[Run, float]
"""Runs, and the seconds that each is estimated to take on one core."""

Found = list[Rows | Exception | None]


class Runner:
    """Runs chunks batch by batch through compiled programs."""

    def __init__(self, plan: Plan, remarks: Remarks):
        self.plan, self.remarks, self.simulator = plan, remarks, plan.simulator
        self.batch_seconds = min(BATCH_SECONDS, plan.settings.part_seconds)
        self.width: dict[Program, int] = {}
        """How many runs of a program share the memory."""

        self.announced: set[Program] = set()

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces | Failure]]:
        """Runs of the chunk and their rows, or the Failure of these alone, batch by batch.

        Runs that a program rejects come last, in its fallback. An exception is one of
        all that are left. Starts JAX.

        Where memory runs out, the width of this program is halved for the rest of the
        call.
        """
        rejected: list[Run] = []
        for program, runs in ((chunk.program, list(chunk.runs)), (chunk.program.fallback, rejected)):
            if program is None:
                break
            left = dict.fromkeys(runs)
            if left and program == chunk.program.fallback:
                self._announce(program, runs)
            while left:
                if program not in self.width:
                    self.width[program] = self.simulator.width(program, chunk.seconds / len(chunk.runs), self.plan.room)
                width = self.width[program]
                try:
                    for batch, found in self._batches(program, list(left), width):
                        rejected += [run for run, rows in zip(batch, found, strict=True) if rows is None]
                        yield from _sorted(batch, found)
                        for run in batch:
                            del left[run]
                except OutOfMemory as error:
                    if width == 1:
                        yield [*left, *(rejected if program == chunk.program else ())], Failure.of(error)
                        return
                    self.width[program] = width // 2
                    told = str(error) if "limits.max_bytes" in str(error) else f"out of memory with {width} runs at a time"
                    self.remarks.message(f"program {program}: {told}; continuing with {width // 2}")

    def _announce(self, program: Program, runs: list[Run]) -> None:
        """Says that runs were rejected by an error bound where they take long: no estimate before has counted them."""
        seconds = sum(self.plan.seconds_of(run, program) for run in runs) / cores()
        if seconds > ANNOUNCED_SECONDS:
            hint = f"; a smaller eta may allow it, as {SMALL_ETA:g}" if any(run.point.eta > SMALL_ETA for run in runs) else ""
            self.remarks.message(f"program {program}: {len(runs)} runs may not take a shortcut, about {duration(seconds)} more{hint}")

    def _loaded(self, program: Program, width: int) -> Loaded:
        """The program, announced if it is new here."""
        if program in self.announced:
            return self.simulator.run(program, width, self.plan.room)
        self.announced.add(program)
        self.remarks.compiling(str(program))
        start = time.perf_counter()
        loaded = self.simulator.run(program, width, self.plan.room)
        self.remarks.compiled(str(program), time.perf_counter() - start)
        return loaded

    def _batches(self, program: Program, runs: list[Run], width: int) -> Iterator[tuple[Costs, Found]]:
        """Batches of runs with their estimated costs, and what became of them, in order."""
        loaded = self._loaded(program, width)
        with _pool(loaded.threads) as pool:
            ahead: deque[tuple[Costs, AsyncResult[Found] | None]] = deque()
            for batch in (*self._by_cost(program, runs, loaded), None):
                if batch:
                    ahead.append((batch, pool and pool.apply_async(loaded.run, (batch,))))
                while len(ahead) > (loaded.threads if batch else 0):
                    done, result = ahead.popleft()
                    try:
                        found = result.get() if result else loaded.run(done)
                    except Exception:
                        for other in filter(None, (other for _, other in ahead)):  # so that their memory is free again
                            other.wait()
                        raise
                    yield done, found

    def _by_cost(self, program: Program, runs: list[Run], loaded: Loaded) -> Iterator[Costs]:
        """Batches of at most as many runs as a program takes and `batch_seconds` of work.

        They are small enough to go round all threads where the runs of a batch take
        turns.

        The most expensive come first, so that all threads finish at about the same
        time. Batches that run together are of similar length.
        """
        most = min(loaded.most, max(1, len(runs) // (4 * loaded.threads))) if loaded.in_turn else loaded.most
        batch: Costs = {}
        costs = {run: self.plan.seconds_of(run, program) for run in runs}
        for run, seconds in sorted(costs.items(), key=lambda item: -item[1]):
            if batch and (len(batch) == most or sum(batch.values()) + seconds > self.batch_seconds):
                yield batch
                batch = {}
            batch[run] = seconds
        yield batch


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPool | None]:
    """Threads for batches; none where they run in the calling one.

    Decoders run on the host, one thread each: BLAS threads of all of them would wait for
    each other, and wait busily. The pool's threads are daemons: an interrupted sweep does
    not wait for them.
    """
    if not threads:
        yield None
        return
    with threadpool_limits(1, user_api="blas"), ThreadPool(threads) as pool:
        yield pool


def _sorted(batch: Costs, found: Sequence[Rows | Exception | None]) -> Iterator[tuple[list[Run], Traces | Failure]]:
    """The runs with rows, then those that failed, together where for the same reason."""
    done = {run: rows for run, rows in zip(batch, found, strict=True) if rows is not None and not isinstance(rows, Exception)}
    if done:
        yield list(done), list(done.values())
    failed: dict[str, tuple[list[Run], Failure]] = {}
    for run, error in zip(batch, found, strict=True):
        if isinstance(error, Exception):
            failed.setdefault(str(error), ([], Failure.of(error)))[0].append(run)
    yield from failed.values()
