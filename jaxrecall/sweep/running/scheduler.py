"""A plan carried out by workers of any kind: each takes some runs of one program when it is free.

Rows come back a batch at a time and are saved here, so a worker that dies takes its
batches in flight with it and nothing else; the rest of its runs go to another.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...errors import UsageError
from ...model.point import Run, RunId
from ..machine import cores
from ..plan import CHUNK_RUNS, CHUNK_SECONDS, Chunk
from .progress import Failure, Traces
from .recorder import Recorder
from .worker import STOP, Event

TRIES = 3
"""Workers that a chunk may cost, by an exception or by their death, before it counts as failed."""

MAX_FAILED_STARTS = 3
"""Times in a row that a worker may die before it is ready; then no other is started in its place."""

LEAST_SECONDS = 0.1
"""Of work in a chunk, so that the cost of starting it does not show."""

SHARES = 3
"""A chunk is at most this part, for each worker, of what is left:
large ones first, small ones at the end, when all must finish.
"""

POLL_SECONDS = 0.2


class Workers(ABC):
    """Workers numbered from 0, to which chunks and STOP are
    sent as bytes. One that is lost has another in its place.

    Args:
        size: how many there are.
        peers: how many of them share a machine's memory.
        speed: that of one of them, as a fraction of all cores of this machine.
    """

    is_here: bool
    """Whether they run on this machine, which remembers the speed that they show."""

    def __init__(self, size: int, peers: int, speed: float):
        self.size, self.peers, self.speed = size, peers, speed
        self.idle: set[int] = set()
        self.failed_starts = dict.fromkeys(range(size), 0)
        self.reason = ""
        for worker in range(size):
            self.start(worker)

    @abstractmethod
    def start(self, worker: int) -> None:
        """Starts it; `events` will report that it is ready, or lost."""

    @abstractmethod
    def end(self, worker: int) -> None:
        """Ends it immediately."""

    @abstractmethod
    def send(self, worker: int, message: bytes) -> None: ...

    @abstractmethod
    def events(self, seconds: float) -> Iterable[tuple[int, Event]]:
        """The events that have arrived, by worker; waits at most `seconds` for the first."""

    @abstractmethod
    def close(self) -> None: ...

    def replace(self, worker: int, reason: str) -> None:
        """Ends it, and starts another in its place unless too many there never became ready."""
        self.end(worker)
        self.idle.discard(worker)
        self.reason = reason
        self.failed_starts[worker] += 1
        if self.failed_starts[worker] <= MAX_FAILED_STARTS:
            self.start(worker)

    @property
    def gone(self) -> bool:
        """Whether no worker can be started any more."""
        return min(self.failed_starts.values()) > MAX_FAILED_STARTS

    def execute(self, recorder: Recorder) -> None:
        """Runs the chunks of the recorder's plan. A chunk that
        `TRIES` workers fail at is reported, and the others run.
        """
        Scheduler(self, recorder).run()


class Scheduler:
    """One plan carried out by workers. Each event of a worker is a call of the method of its name."""

    def __init__(self, workers: Workers, recorder: Recorder):
        plan = recorder.plan
        self.workers, self.recorder, self.progress = workers, recorder, recorder.progress
        self.plan = replace(plan.without_chunks, limit=plan.limit // workers.peers, workers=1)
        self.waiting: dict[Any, deque[Run]] = {}
        """Runs that no worker has, by program."""

        for chunk in plan.chunks:
            self.waiting.setdefault(chunk.program, deque()).extend(chunk.runs)
        self.seconds_left = sum(chunk.seconds for chunk in plan.chunks)
        """The estimate for these runs, on all cores of this machine."""

        self.chunks: dict[int, Chunk] = {}
        """Of each worker that has one."""

        self.unfinished: dict[int, dict[RunId, Run]] = {}
        """Runs of these chunks."""

        self.programs: dict[int, Any] = {}
        """The last one of each worker."""

        self.failures = Counter[RunId]()
        """Workers that were lost with a run."""

        self.stopped = False

    def run(self) -> None:
        interrupts = self.recorder.interrupts
        with interrupts.patient():
            while self._has_more():
                try:
                    with interrupts.droppable():
                        events = list(self.workers.events(POLL_SECONDS))
                except KeyboardInterrupt:
                    break
                for worker, (name, *arguments) in events:
                    getattr(self, name)(worker, *arguments)
                self.recorder.saver.add([])  # a part may be due
            self.recorder.close()

    def _has_more(self) -> bool:
        """Gives chunks to free workers, or stops them; whether there is anything to wait for."""
        workers = self.workers
        if self.recorder.stopping:
            for worker in () if self.stopped else self.chunks:
                workers.send(worker, STOP)
            self.stopped = True
            return bool(self.chunks) and not self.recorder.saver.gave_up
        while workers.gone and self.waiting:
            chunk = self._next_chunk(next(iter(self.waiting)), float("inf"))
            self.recorder.failed(chunk, Failure(f"no worker starts: {workers.reason}", "", ""))
        while workers.idle and self.waiting:
            self._give_chunk(workers.idle.pop())
        return bool(self.chunks or self.waiting)

    def _give_chunk(self, worker: int) -> None:
        """Sends the next chunk, of the worker's last program if there is one, else of
        the program that the fewest others run, so that few compile it. It takes a
        chunk's time at most, and is small enough that others do not wait for it at the
        end."""
        speed = self.workers.speed
        seconds = min(max(self.seconds_left / (SHARES * self.workers.size), LEAST_SECONDS * speed), CHUNK_SECONDS * speed)
        users = Counter(chunk.program for chunk in self.chunks.values())
        shape = self.programs.get(worker)
        if shape not in self.waiting:
            shape = min(self.waiting, key=lambda shape: users[shape])
        chunk = self._next_chunk(shape, seconds)
        self.programs[worker], self.chunks[worker], self.unfinished[worker] = shape, chunk, {run.id: run for run in chunk.runs}
        self.workers.send(worker, pickle.dumps((chunk, self.plan)))

    def _next_chunk(self, shape: Any, seconds: float) -> Chunk:
        """Waiting runs of a program that take about `seconds` on all cores of this machine."""
        runs, taken, total = self.waiting[shape], [], 0.0
        while runs and len(taken) < CHUNK_RUNS:
            cost = self.plan.seconds_of(runs[0], shape) / cores()
            if taken and total + cost > seconds:
                break
            taken.append(runs.popleft())
            total += cost
        self.seconds_left -= total
        if not runs:
            del self.waiting[shape]
        return Chunk(shape, tuple(taken), total)

    def ready(self, worker: int) -> None:
        """The worker has started and is free."""
        self.workers.idle.add(worker)
        self.workers.failed_starts[worker] = 0

    def compiling(self, worker: int, program: str) -> None:
        self.progress.compiling(program)

    def compiled(self, worker: int, program: str, seconds: float) -> None:
        self.progress.compiled(program, seconds / self.workers.size)  # of the time of all

    def message(self, worker: int, line: str) -> None:
        self.progress.message(f"worker {worker}: {line}")

    def finished(self, worker: int, traces: Traces) -> None:
        """Some runs of the worker's chunk are finished."""
        ids = [RunId(last["point_id"], last["seed"]) for *_, last in traces]
        self.recorder.finished(ids, traces, self.chunks[worker])
        for run in ids:
            del self.unfinished[worker][run]

    def failed(self, worker: int, ids: list[RunId], failure: Failure) -> None:
        """Some runs of the worker's chunk have failed by themselves, as those of a user's simulator may."""
        runs = [self.unfinished[worker].pop(run) for run in ids]
        self.recorder.failed(self.chunks[worker].part(runs), failure)

    def ended(self, worker: int) -> None:
        """The worker's chunk has ended."""
        del self.chunks[worker]
        self.workers.idle.add(worker)

    def refused(self, worker: int, failure: Failure) -> None:
        """The worker cannot run anything, nor could another in its place; raises UsageError where none has."""
        self.workers.failed_starts[worker] = MAX_FAILED_STARTS
        self.lost(worker, failure)
        if self.workers.gone and not self.recorder.outcome.runs:
            raise UsageError(failure.line)

    def lost(self, worker: int, failure: Failure) -> None:
        """The worker has died or reported an exception, after which a device may refuse
        everything. Another one takes its place, and its runs wait again, but for those
        that have cost too many workers."""
        self.workers.replace(worker, failure.line)
        chunk, unfinished = self.chunks.pop(worker, None), self.unfinished.pop(worker, {})
        if chunk is None:
            return
        self.failures.update(unfinished.keys())
        given_up = [run for run in unfinished.values() if self.failures[run.id] == TRIES]
        again = [run for run in unfinished.values() if self.failures[run.id] < TRIES]
        if given_up:
            self.recorder.failed(chunk.part(given_up), failure)
        if again:
            self.progress.message(f"worker {worker}: {failure.line}; another one takes its {len(again)} runs")
            self.waiting.setdefault(chunk.program, deque()).extendleft(reversed(again))
            self.seconds_left += chunk.part(again).seconds
