"""A plan carried out by a pool of workers of any kind: each takes a piece of one program when it is free.

Rows come back a batch at a time and are saved here, so a worker that dies takes its batches in flight with it and nothing else;
what is left of its piece goes to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from ....model.point import RunId
from ....simulator.shape import Shape
from ....simulator.work import Amounts
from ...cost import add_times
from ...plan import Plan
from ...store.store import Store
from ..interrupts import Interrupts
from ..progress import Progress, Traces
from ..recorder import Failure, Outcome, Recorder
from .dispatcher import Dispatcher, Piece
from .events import Compiled, Compiling, Ended, Event, Failed, FailedRuns, Finished, Lost, Message, Ready, Task

TRIES = 3
"""Workers that a piece may cost, by an exception or by their death, before it counts as failed."""

MAX_FAILED_STARTS = 3
"""Times in a row that a worker may die before it is ready; then no other is started in its place."""

POLL_SECONDS = 0.2


class Pool(ABC):
    """Workers that run tasks, numbered from 0. One that dies or is ended has another in its place, ready some time later.

    `peers` is how many of them share a machine's memory; `is_here`: on this machine, which remembers what they show.
    """

    peers: int
    is_here: bool

    def __init__(self, size: int):
        self.size = size
        self.idle: set[int] = set()
        self.failed_starts = dict.fromkeys(range(size), 0)
        self.reason = ""

    @abstractmethod
    def start(self, worker: int) -> None:
        """Starts it; `events` will report that it is ready, or lost."""

    @abstractmethod
    def end(self, worker: int) -> None:
        """Ends it immediately."""

    @abstractmethod
    def send(self, worker: int, task: Task) -> None: ...

    @abstractmethod
    def events(self, seconds: float) -> Iterable[tuple[int, Event]]:
        """The events that have arrived, by worker; waits at most `seconds` for the first."""

    @abstractmethod
    def stop(self) -> None:
        """Makes every worker end its task after its current batch."""

    @abstractmethod
    def close(self) -> None: ...

    def ready(self, worker: int) -> None:
        self.idle.add(worker)
        self.failed_starts[worker] = 0

    def replace(self, worker: int, reason: str) -> None:
        """Ends it, and starts another in its place unless too many there never became ready."""
        self.end(worker)
        self.idle.discard(worker)
        self.reason = reason
        self.failed_starts[worker] += 1
        if self.failed_starts[worker] <= MAX_FAILED_STARTS:
            self.start(worker)

    @property
    def gone(self) -> str | None:
        """Why no worker can be started any more."""
        return f"no worker starts: {self.reason}" if min(self.failed_starts.values()) > MAX_FAILED_STARTS else None

    def execute(self, plan: Plan, store: Store, progress: Progress, interrupts: Interrupts, resume_command: str) -> Outcome:
        """What `runner.execute` does, by the workers. A piece that `TRIES` workers fail at is reported, and the others run."""
        return PoolExecution(self, Recorder(plan, store, progress, interrupts, resume_command)).run()


class PoolExecution:
    """One plan carried out by a pool."""

    def __init__(self, pool: Pool, recorder: Recorder):
        self.pool, self.recorder, self.progress = pool, recorder, recorder.progress
        terms = recorder.plan.terms
        self.terms = replace(terms, limit=terms.limit // pool.peers)
        self.dispatcher = Dispatcher(recorder.plan, pool.size)
        self.measured: dict[Shape, tuple[Amounts, float]] = {}
        self.compiled: dict[Shape, float | None] = {}
        self.stopped = False

    def run(self) -> Outcome:
        interrupts = self.recorder.interrupts
        with interrupts.patient():
            while self._prepared():
                try:
                    with interrupts.droppable():
                        events = list(self.pool.events(POLL_SECONDS))
                except KeyboardInterrupt:
                    break
                for worker, event in events:
                    self._handle(worker, event)
                self.recorder.saver.add([])  # a part may be due
            self.recorder.close()
        if self.pool.is_here:
            self.recorder.learn(self.measured, self.compiled)
        return self.recorder.outcome

    def _prepared(self) -> bool:
        """Gives work to free workers, or stops them; whether there is anything to wait for."""
        dispatcher, pool = self.dispatcher, self.pool
        if self.recorder.stopping:
            if not self.stopped:
                pool.stop()
                self.stopped = True
            return bool(dispatcher.pieces) and not self.recorder.saver.gave_up
        if pool.gone:
            for piece in dispatcher.backlog.all():
                self.recorder.failed(piece.rest, Failure(pool.gone, "", ""))
            return False
        for worker in sorted(pool.idle):
            if dispatcher.backlog:
                pool.idle.discard(worker)
                pool.send(worker, Task(dispatcher.assign(worker).chunk, self.terms))
        return bool(dispatcher.pieces or dispatcher.backlog)

    def _handle(self, worker: int, event: Event) -> None:
        match event:
            case Ready():
                self.pool.ready(worker)
            case Compiling(program):
                self.progress.compiling(program)
            case Compiled(program, seconds):
                self.progress.compiled(program, seconds / self.pool.size)  # of the time of all
            case Message(line):
                self.progress.message(f"worker {worker}: {line}")
            case Finished(traces):
                self._finished(worker, traces)
            case FailedRuns(ids, failure):
                piece = self.dispatcher.pieces[worker]
                self.recorder.failed(piece.chunk.part([piece.left.pop(run) for run in ids]), failure)
            case Ended():
                self._ended(worker, event)
            case Failed(failure):
                self.pool.replace(worker, failure.line)  # after an error a device may refuse everything
                self._retry(worker, failure)
            case Lost(reason, host):
                self.pool.replace(worker, reason)
                self._retry(worker, Failure(f"lost: {reason}", "", host))

    def _finished(self, worker: int, traces: Traces) -> None:
        if piece := self.dispatcher.pieces.get(worker):
            runs = [piece.left.pop(RunId(last["point_id"], last["seed"])) for *_, last in traces]
            self.recorder.finished([run.id for run in runs], traces, piece.chunk)

    def _ended(self, worker: int, event: Ended) -> None:
        self.dispatcher.ended(worker)
        self.pool.idle.add(worker)
        add_times(self.measured, event.measured)
        self.compiled |= event.compiled

    def _retry(self, worker: int, failure: Failure) -> None:
        """The rest of the worker's piece goes to another worker, or has failed."""
        piece = self.dispatcher.pieces.pop(worker, None)
        if piece is None or not piece.left:
            return
        piece = Piece(piece.rest, piece.left, tries=piece.tries + 1)
        if piece.tries >= TRIES:
            self.recorder.failed(piece.rest, failure)
        else:
            self.progress.message(f"worker {worker}: {failure.line}; another one takes its {len(piece.left)} runs")
            self.dispatcher.backlog.retries.append(piece)
