"""What a worker does: it runs one chunk after another, and tells what happens.

Chunks arrive as bytes and are unpickled here alone, so that only workers need the
modules that they name.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from ...errors import UsageError
from ...model.columns import CODE_VERSION
from ..machine import cores
from ..plan import Chunk, Plan
from ..runners import Runner
from ..simulators.custom import add_to_path
from .progress import Failure

Event = tuple[Any, ...]
"""What a worker tells: a name, and what belongs to it. `Spread.take` has them all."""


class Setup(NamedTuple):
    """What a worker is told first."""

    import_paths: Iterable[str] = ()
    """Folders from which it can import, besides the usual ones."""

    x64: bool = False
    """Whether jax_enable_x64 is on in the process that takes its rows, where a program may have set it."""

    cores: float = 0.0
    """That it may use, of those of its process; 0: all."""

    code_version: int = CODE_VERSION
    """Of the process that takes its rows."""


class Worker:
    """Runs chunks in this process, which starts JAX; `tell` takes the events that come between rows."""

    def __init__(self, setup: Setup, tell: Callable[[Event], None]):
        if setup.code_version != CODE_VERSION:
            raise RuntimeError(f"jaxrecall of code_version {CODE_VERSION} there, {setup.code_version} here")
        os.environ["JAX_ENABLE_X64"] = str(setup.x64)  # JAX has not started
        add_to_path(setup.import_paths)
        from ...simulator import program

        program.start()
        self.tell, self.workers = tell, max(1, int(cores() / setup.cores)) if setup.cores else 1
        self.plan: Plan | None = None

    def rows(self, message: bytes) -> Iterator[Event]:
        """Runs a pickled chunk with its plan, batch by batch."""
        chunk, plan = self.unpickled(message)
        if self.plan != plan:
            self.plan, self.runner = plan, Runner(plan, self)
        for runs, got in self.runner.rows(chunk):
            yield "took", [run.id for run in runs], got

    def unpickled(self, message: bytes) -> tuple[Chunk, Plan]:
        chunk, plan = pickle.loads(message)
        return chunk, replace(plan, workers=self.workers)

    def compiling(self, program: str) -> None:
        self.tell(("compiling", program))

    def compiled(self, program: str, seconds: float) -> None:
        self.tell(("compiled", program, seconds))

    def message(self, line: str) -> None:
        self.tell(("message", line))


def last_event(error: Exception) -> Event:
    """Of a worker that ends with an exception, after which a device may refuse everything."""
    return "refused" if isinstance(error, UsageError) else "lost", Failure.of(error)


def main(connection: Connection) -> None:
    """Runs the chunks that come through the connection until it is closed."""

    def tell(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:
            os._exit(0)  # the parent is gone, or wants no more

    try:
        worker = Worker(connection.recv(), tell)
        tell(("ready",))
        while True:
            for event in worker.rows(connection.recv_bytes()):
                tell(event)
            tell(("ended",))
    except EOFError:
        os._exit(0)
    except Exception as error:
        tell(last_event(error))
        os._exit(1)
