"""Gives work to workers: the waiting runs, and pieces of them by program, cut when a worker is free."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....model.point import Point, Run, RunId
from ....simulator.shape import Shape
from ...calibration import cores
from ...plan import CHUNK_RUNS, CHUNK_SECONDS, Chunk, Plan, Terms

LEAST_SECONDS = 0.1
"""Of work in a piece, so that the cost of starting it does not show."""

SHARES = 3
"""A piece is at most this part, for each worker, of what is left: large ones first, small ones at the end, when all must finish."""


@dataclass
class Piece:
    """Runs of one program that a worker has or had."""

    chunk: Chunk
    left: dict[RunId, Run]
    start: float = 0.0
    tries: int = 0

    @property
    def rest(self) -> Chunk:
        return self.chunk.part(list(self.left.values()))


@dataclass
class Backlog:
    """Runs that no worker has yet, by program, and pieces that are to be retried."""

    terms: Terms
    runs: dict[Shape, deque[Run]] = field(default_factory=dict)
    seconds: dict[Shape, float] = field(default_factory=dict)
    retries: deque[Piece] = field(default_factory=deque)

    @staticmethod
    def of(plan: Plan) -> Backlog:
        backlog = Backlog(plan.terms)
        for chunk in plan.chunks:
            backlog.runs.setdefault(chunk.shape, deque()).extend(chunk.runs)
            backlog.seconds[chunk.shape] = backlog.seconds.get(chunk.shape, 0.0) + chunk.seconds
        return backlog

    def __bool__(self) -> bool:
        return bool(self.runs or self.retries)

    def take(self, seconds: float, own: Shape | None, others: list[Shape]) -> Piece:
        """A piece of about `seconds`: one that is to be retried, else of the worker's `own` program, else of the one that
        the fewest `others` are at, so that a program is compiled by few."""
        if self.retries:
            return self.retries.popleft()
        shape = own if own in self.runs else min(self.runs, key=lambda b: (others.count(b), -self.seconds[b]))
        runs, taken, total = self.runs[shape], [], 0.0
        costs: dict[Point, float] = {}
        while runs and len(taken) < CHUNK_RUNS:
            cost = costs.get(runs[0].point) or costs.setdefault(runs[0].point, self.terms.seconds_of(runs[0], shape) / cores())
            if taken and total + cost > seconds:
                break
            taken.append(runs.popleft())
            total += cost
        self.seconds[shape] -= total
        if not runs:
            del self.runs[shape], self.seconds[shape]
        return Piece(Chunk(shape, tuple(taken), total), {run.id: run for run in taken})

    def all(self) -> Iterator[Piece]:
        while self:
            yield self.take(float("inf"), None, [])


class Dispatcher:
    """The piece of each worker, and the measured speed of each worker, in estimated seconds per second."""

    def __init__(self, plan: Plan, size: int):
        self.backlog, self.size = Backlog.of(plan), size
        self.pieces: dict[int, Piece] = {}
        self.programs: dict[int, Shape] = {}
        self.speed: dict[int, float] = {}

    def assign(self, worker: int) -> Piece:
        """The next piece: at most a chunk's time, and small enough that other workers do not wait for it at the end."""
        speed = self.speed.get(worker, 1 / self.size)
        fair = sum(self.backlog.seconds.values()) / (SHARES * self.size)
        seconds = min(max(fair, LEAST_SECONDS * speed), CHUNK_SECONDS * speed)
        others = [shape for other, shape in self.programs.items() if other != worker and other in self.pieces]
        piece = self.pieces[worker] = self.backlog.take(seconds, self.programs.get(worker), others)
        piece.start, self.programs[worker] = time.monotonic(), piece.chunk.shape
        return piece

    def ended(self, worker: int) -> None:
        """The worker has finished its piece."""
        piece = self.pieces.pop(worker)
        self.speed[worker] = piece.chunk.seconds / max(time.monotonic() - piece.start, 1e-3)
