"""The tasks of a worker, and the events that it reports."""

from __future__ import annotations

from typing import NamedTuple

from ....model.point import RunId
from ....simulator.shape import Shape
from ....simulator.work import Amounts
from ...plan import Chunk, Terms
from ..progress import Traces
from ..recorder import Failure


class Task(NamedTuple):
    """A chunk, and how to run it."""

    chunk: Chunk
    terms: Terms


class Ready(NamedTuple):
    """The worker has started and is free."""


class Compiling(NamedTuple):
    program: str


class Compiled(NamedTuple):
    program: str
    seconds: float


class Message(NamedTuple):
    line: str


class Finished(NamedTuple):
    """Some runs of the worker's task are finished."""

    traces: Traces


class Ended(NamedTuple):
    """The worker's task has ended; what its runs took, and the seconds that each program took to compile."""

    measured: dict[Shape, tuple[Amounts, float]]
    compiled: dict[Shape, float | None]


class FailedRuns(NamedTuple):
    """Some runs of the worker's task have failed, and the task goes on."""

    runs: list[RunId]
    failure: Failure


class Failed(NamedTuple):
    """The worker's task has failed."""

    failure: Failure


class Lost(NamedTuple):
    """The worker has died, or cannot be used."""

    reason: str
    host: str


Event = Ready | Compiling | Compiled | Message | Finished | Ended | FailedRuns | Failed | Lost
