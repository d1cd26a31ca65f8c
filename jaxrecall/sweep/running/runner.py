"""Runs the chunks of a plan in this process, with several batches in progress at a
time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.pool import AsyncResult, ThreadPool

from threadpoolctl import threadpool_limits

from ...errors import OutOfMemory, in_one_line
from ...model.point import Run
from ..plan import Chunk, Plan, pieces
from ..simulators import Loaded, Outcomes, Program
from .call import Call
from .progress import Event, Failure, Traces

BATCH_SECONDS = 0.25

Batch = dict[Run, float]
"""A dict from each run to its estimated time on one core, in seconds."""

Finished = tuple[list[Run], Traces | Failure]
"""A list of runs, and either the rows of each run or one failure for all of them."""


class Runner:
    """Runs chunks batch by batch, and calls `on_event` with events about programs."""

    def __init__(
        self,
        plan: Plan,
        on_event: Callable[[Event], None],
        is_replaceable: bool = False,
    ):
        self.plan, self.simulator = plan, plan.simulator
        self.on_event, self.is_replaceable = on_event, is_replaceable
        self.width: dict[Program, int] = {}
        """A dict from each program to the number of its runs that share memory at a
        time.
        """

        self.announced: set[Program] = set()
        self.later = {chunk.program: chunk for chunk in reversed(plan.chunks)}
        """The first chunk of each program that is not loaded yet, the next one last."""

        self.loading: dict[Program, Future[Loaded]] = {}
        """The programs that threads load, while others run."""

        self.loaders = ThreadPoolExecutor(plan.n_loading)

    def rows(self, chunk: Chunk) -> Iterator[Finished]:
        """Yields runs and their results, batch by batch. The results are rows or a
        Failure.

        Runs that the program rejects are executed last, by its fallback. If there is
        too little memory for a single run, or if the user's code raises an error while
        it is compiled, all remaining runs fail together. After another error, they fail
        too, unless this process is a worker that another can replace. The method starts
        JAX.

        If memory runs out, the program runs half as many runs at a time from then on.
        """
        left = dict.fromkeys(chunk.runs)
        rejected: dict[Run, None] = {}
        seconds = chunk.seconds / len(chunk.runs)
        fallback = chunk.program.fallback
        try:
            yield from self._finished(chunk.program, left, rejected, seconds)
            if rejected and fallback:
                left, rejected = rejected, {}
                yield from self._finished(fallback, left, rejected, seconds)
        except Exception as error:
            failure = Failure.of(error)
            is_known = failure.where or isinstance(error, OutOfMemory)
            if self.is_replaceable and not is_known:
                raise
            yield [*left, *rejected], failure

    def _finished(
        self,
        program: Program,
        left: dict[Run, None],
        rejected: dict[Run, None],
        seconds: float,
    ) -> Iterator[Finished]:
        """Executes the runs in `left` until it is empty, and moves rejected runs to
        `rejected`.

        Raises OutOfMemory if there is not enough memory for a single run.
        """
        while left:
            width = self._width(program, seconds, len(left))
            try:
                for batch, outcomes in self._batches(program, list(left), width):
                    for run, outcome in zip(batch, outcomes, strict=True):
                        if outcome is None:
                            rejected[run] = None
                    yield from _by_outcome(batch, outcomes)
                    for run in batch:
                        del left[run]
            except OutOfMemory as error:
                if width == 1:
                    raise
                self.width[program] = width // 2
                line = (
                    f"program {program}: out of memory with {width} runs at a time"
                    f" ({in_one_line(error)}); continuing with {width // 2}"
                )
                self.on_event(("message", line))

    def _width(self, program: Program, seconds: float, n_started: int) -> int:
        """Returns the number of runs of a program that share memory at a time."""
        if program not in self.width:
            room = self.plan.room._replace(n_started=n_started)
            self.width[program] = self.simulator.width(program, seconds, room)
        return self.width[program]

    def _loaded(self, program: Program, width: int) -> Loaded:
        """Returns the loaded program. If it must be compiled first, reports that."""
        start, is_new = time.perf_counter(), program not in self.announced
        if is_new:
            self.announced.add(program)
            self.on_event(("compiling", str(program)))
            if self.simulator.loads_in_threads:
                self._load_next()
        if program in self.loading:
            loaded = self.loading.pop(program).result()
        else:
            loaded = self.simulator.run(program, width, self.plan.room)
        if is_new:
            self.on_event(("compiled", str(program), time.perf_counter() - start))
        return loaded

    def _load_next(self) -> None:
        """Lets threads load the next programs, one for each core at most."""
        room = self.plan.room
        while self.later and len(self.loading) < self.plan.n_loading:
            program, chunk = self.later.popitem()
            n_runs = len(chunk.runs)
            width = self._width(program, chunk.seconds / n_runs, n_runs)
            load = self.loaders.submit(self.simulator.run, program, width, room)
            self.loading[program] = load

    def _batches(
        self, program: Program, runs: list[Run], width: int
    ) -> Iterator[tuple[Batch, Outcomes]]:
        """Yields batches of runs with their outcomes, in order.

        Each decoder runs on the host in one thread. BLAS is also limited to one thread.
        Otherwise the BLAS threads of several decoders would wait for each other, and
        would keep the cores busy meanwhile. The decoder threads are daemons, so an
        interrupted sweep does not wait for them.
        """
        loaded = self._loaded(program, width)
        batches = self._by_cost(program, runs, loaded)
        if not loaded.threads:
            for batch in batches:
                yield batch, loaded.run(batch)
            return
        ahead = deque()
        with threadpool_limits(1, user_api="blas"), ThreadPool(loaded.threads) as pool:
            for batch in batches:
                ahead.append((batch, pool.apply_async(loaded.run, (batch,))))
                if len(ahead) > loaded.threads:
                    yield _oldest(ahead)
            while ahead:
                yield _oldest(ahead)

    def _by_cost(
        self, program: Program, runs: list[Run], loaded: Loaded
    ) -> Iterator[Batch]:
        """Yields batches that fit the program and take at most BATCH_SECONDS, or the
        time between two part files.

        If the runs of a batch are executed one after another, the batches are small
        enough to keep all threads busy. The most expensive batches are yielded first.
        So all threads finish at about the same time. Batches that run at the same time
        also take about equally long.
        """
        costs = {run: self.plan.seconds_of(run, program) for run in runs}
        most, size, seconds = loaded.most, loaded.order, math.inf
        if size is None:
            size = costs.__getitem__
            seconds = min(BATCH_SECONDS, self.plan.settings.part_seconds)
            if loaded.threads:
                most = min(most, max(1, len(runs) // (4 * loaded.threads)))
        largest_first = sorted(
            costs.items(), key=lambda item: size(item[0]), reverse=True
        )
        for batch, _ in pieces(largest_first, most, seconds):
            yield {run: costs[run] for run in batch}


def _oldest(
    ahead: deque[tuple[Batch, AsyncResult[Outcomes]]],
) -> tuple[Batch, Outcomes]:
    """Removes the oldest batch in progress, waits for it, and returns it with its
    outcomes.
    """
    batch, result = ahead.popleft()
    try:
        return batch, result.get()
    except Exception:
        for _, other in ahead:  # then their memory is free
            other.wait()
        raise


def _by_outcome(batch: Batch, outcomes: Outcomes) -> Iterator[Finished]:
    """Yields the runs that have rows, then the failed runs grouped by error message."""
    done, failed = {}, {}
    for run, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, Exception):
            runs, _ = failed.setdefault(str(outcome), ([], Failure.of(outcome)))
            runs.append(run)
        elif outcome is not None:
            done[run] = outcome
    if done:
        yield list(done), list(done.values())
    yield from failed.values()


def run_here(plan: Plan, call: Call) -> None:
    """Runs every chunk of a plan in this process."""
    with call.interrupts.deferred():  # JAX is started here
        runner = Runner(plan, call.handle)
    with call.interrupts.patient():
        try:
            for chunk in plan.chunks:
                if call.stopping:
                    break
                _run(chunk, runner.rows(chunk), call)
        finally:
            call.save(now=True)


def _run(chunk: Chunk, batches: Iterator[Finished], call: Call) -> None:
    """Runs a chunk until it is finished, or until the call must stop."""
    while not call.stopping:
        try:
            with call.interrupts.droppable():
                finished = next(batches, None)
        except KeyboardInterrupt:
            return
        if not finished:
            return
        runs, got = finished
        call.take(chunk.part(runs), got)
