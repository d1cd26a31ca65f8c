"""What a worker is given, and what it reports."""

from __future__ import annotations

from typing import NamedTuple

from ...plan.plan import Chunk, Terms
from ...simulator.shape import Shape
from ...simulator.work import Amounts
from ..failure import Failure
from ..tally import Rows


class Task(NamedTuple):
    """A chunk, and how to run it."""

    chunk: Chunk
    terms: Terms


class Ready(NamedTuple):
    """It has started and is free for work."""


class Compiling(NamedTuple):
    program: str


class Compiled(NamedTuple):
    program: str
    seconds: float


class Message(NamedTuple):
    line: str


class Finished(NamedTuple):
    """Rows of its task."""

    rows: Rows


class Ended(NamedTuple):
    """Its task has ended; batches that were measured, and the seconds that each program took to compile."""

    measured: list[tuple[Amounts, float]]
    compiled: dict[Shape, float | None]


class Failed(NamedTuple):
    """Its task has failed."""

    failure: Failure


class Lost(NamedTuple):
    """It is dead, or cannot be used."""

    reason: str
    host: str


Event = Ready | Compiling | Compiled | Message | Finished | Ended | Failed | Lost
