"""A plan carried out by a pool of workers, whoever keeps them: each pulls a piece of one program when it is free. No JAX here.

Rows come back a batch at a time and are saved here, so a worker that dies takes its batches in flight with it and nothing else;
what is left of its piece goes to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ...grid.file import PART_SECONDS
from ...plan.plan import Chunk, Plan, Terms
from ...simulator.shape import Shape
from ...simulator.work import Amounts
from ...store.store import Store
from ..failure import Failure
from ..interrupts import Interrupts
from ..progress import Outcome, Progress
from ..saver import Saver
from .desk import Desk, Piece

TRIES = 3
"""Workers that a piece may cost, by an exception or by their death, before it counts as failed."""

STILLBORN = 3
"""Times in a row that a worker may die before it is ready; then no other is started in its place."""

POLL_SECONDS = 0.2
Event = tuple[Any, ...]
"""What a worker tells, kind first, then its facts:

    ready                          started, free for work
    compiling  program             compiled  program, seconds            said  line
    rows       finished rows       ended     batches measured, seconds of each program compiled
    failed     Failure             lost      why, on which host
"""


class Task(NamedTuple):
    """A chunk, and how to run it."""

    chunk: Chunk
    terms: Terms
    precision: str
    part_seconds: float


class Pool(ABC):
    """Workers that run tasks, numbered from 0. One that dies or is ended has another in its place, ready some time later.

    `peers` is how many of them share a machine's memory; `is_here`: on this machine, which remembers what they show.
    """

    peers: int
    is_here: bool

    def __init__(self, size: int):
        self.size = size
        self.idle: set[int] = set()
        self.stillborn = dict.fromkeys(range(size), 0)
        self.why = ""

    @abstractmethod
    def start(self, worker: int) -> None:
        """Has it start; `events` will say that it is ready, or lost."""

    @abstractmethod
    def end(self, worker: int) -> None:
        """Ends it at once."""

    @abstractmethod
    def send(self, worker: int, task: Task) -> None: ...

    @abstractmethod
    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """What came; waits so long for the first."""

    @abstractmethod
    def stop(self) -> None:
        """Has every worker end its task after the batch in flight."""

    @abstractmethod
    def close(self) -> None: ...

    def ready(self, worker: int) -> None:
        self.idle.add(worker)
        self.stillborn[worker] = 0

    def replace(self, worker: int, why: str) -> None:
        """Ends it, and starts another in its place unless too many there never got ready."""
        self.end(worker)
        self.idle.discard(worker)
        self.why = why
        self.stillborn[worker] += 1
        if self.stillborn[worker] <= STILLBORN:
            self.start(worker)

    @property
    def gone(self) -> str | None:
        """Why no worker can be had any more."""
        return f"no worker starts: {self.why}" if min(self.stillborn.values()) > STILLBORN else None


def execute(
    pool: Pool,
    plan: Plan,
    store: Store,
    precision: str,
    tell: Progress,
    interrupts: Interrupts,
    repeat: str,
    fail_fast: bool = False,
    part_seconds: float = PART_SECONDS,
) -> Outcome:
    """What `runner.execute` does, by the workers of the pool. A piece that `TRIES` workers fail at is reported, and the rest goes on."""
    outcome = Outcome()
    saver = Saver(store, tell, part_seconds, lambda: interrupts.asked)
    terms = replace(plan.terms, limit=plan.limit // pool.peers)
    at = Desk(plan, pool.size)
    measured: list[tuple[Amounts, float]] = []
    compiled: dict[Shape, float | None] = {}

    def give_up(piece: Piece, failure: Failure) -> None:
        outcome.failed += 1
        rest = piece.rest
        line, details = failure.recorded(rest.bucket, rest.runs, store, repeat)
        tell.failed(line, rest.seconds, len(rest.runs), details)

    def again(worker: int, failure: Failure) -> None:
        """What is left of the worker's piece goes to another, or is given up."""
        piece = at.pieces.pop(worker, None)
        if piece is None or not piece.left:
            return
        piece = Piece(piece.rest, piece.left, tries=piece.tries + 1)
        if piece.tries >= TRIES:
            give_up(piece, failure)
        else:
            tell.say(f"worker {worker}: {failure.line}; another one takes its {len(piece.left)} runs")
            at.waiting.again.append(piece)

    stopped = False
    with interrupts.patient():
        while True:
            if interrupts.asked or saver.gave_up or (fail_fast and outcome.failed):
                if not at.pieces or saver.gave_up:
                    break
                if not stopped:
                    pool.stop()
                    stopped = True
            elif pool.gone:
                for piece in at.waiting.all():
                    give_up(piece, Failure(pool.gone, "", ""))
                break
            else:
                for worker in sorted(pool.idle):
                    if not at.waiting:
                        break
                    piece = at.give(worker)
                    pool.idle.discard(worker)
                    pool.send(worker, Task(piece.chunk, terms, precision, part_seconds))
                if not at.pieces and not at.waiting:
                    break
            try:
                with interrupts.droppable():
                    told = list(pool.events(POLL_SECONDS))
            except KeyboardInterrupt:
                break
            for worker, (kind, *facts) in told:
                piece = at.pieces.get(worker)
                if kind == "ready":
                    pool.ready(worker)
                elif kind == "compiling":
                    tell.compiling(*facts)
                elif kind == "compiled":
                    tell.compiled(facts[0], facts[1] / pool.size)  # of the time of all
                elif kind == "said":
                    tell.say(f"worker {worker}: {facts[0]}")
                elif kind == "rows" and piece:
                    rows = facts[0]
                    for row in rows:
                        del piece.left[row["point_id"], row["seed"]]
                    outcome.runs += len(rows)
                    tell.advanced(rows, piece.chunk.seconds * len(rows) / len(piece.chunk.runs))
                    saver.add(rows)
                elif kind == "ended":
                    at.ended(worker)
                    pool.idle.add(worker)
                    measured += facts[0]
                    compiled |= facts[1]
                elif kind == "failed":
                    pool.replace(worker, facts[0].line)  # after an error a device may refuse everything
                    again(worker, facts[0])
                elif kind == "lost":
                    pool.replace(worker, facts[0])
                    again(worker, Failure(f"lost: {facts[0]}", "", facts[1]))
            saver.add([])
        saver.close()
    if pool.is_here:
        plan.calibration.after(measured, compiled).keep()
    outcome.unsaved, outcome.interrupted = len(saver.rows), interrupts.asked
    return outcome
