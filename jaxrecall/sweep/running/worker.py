"""What a worker process does: it runs one chunk after another, and reports events.

Chunks arrive as bytes and are unpickled here alone, so that only workers need the
modules that they name.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

from ...errors import UsageError
from ...model.columns import CODE_VERSION
from ...model.laws.array import Content, contents
from ..plan import Chunk, Plan
from ..runners import Runner
from ..simulators.custom import add_to_path
from .progress import Failure

Event = tuple[Any, ...]
"""The name of a method of `Scheduler`, and its arguments but for the worker."""

STOP = b""
"""The message that ends a chunk after its current batch; any
other is a pickled chunk with its plan, without the others.
"""


class Setup(NamedTuple):
    """What a worker process is told first."""

    import_paths: Iterable[str]
    """Folders from which it can import, besides the usual ones."""

    contents: Mapping[str, Content]
    """Of the files that laws name, by hash: they need not be on its machine."""

    code_version: int = CODE_VERSION
    """Of the process that takes its rows."""

    x64: bool = False
    """Whether jax_enable_x64 is on there, where a program may have set it."""


class Worker:
    """Runs chunks in this process; `send` takes the name and the arguments of an event.

    `stopping`, once set, ends a chunk after its current batch.
    """

    def __init__(self, send: Callable[..., None]):
        from ...simulator import program  # starts JAX

        self.send, self.stopping = send, False
        self.runner: Runner | None = None
        program.start()

    def run(self, chunk: Chunk, plan: Plan) -> None:
        """Runs a chunk; its last event, `ended`, says what its
        runs took and how long each program took to compile.
        """
        if self.runner is None or self.runner.plan != plan:
            self.runner = Runner(plan, self)
        for runs, got in self.runner.rows(chunk):
            if isinstance(got, Failure):
                self.send("failed", [run.id for run in runs], got)
            else:
                self.send("finished", got)
            if self.stopping:
                break
        self.send("ended")

    def compiling(self, program: str) -> None:
        self.send("compiling", program)

    def compiled(self, program: str, seconds: float) -> None:
        self.send("compiled", program, seconds)

    def message(self, line: str) -> None:
        self.send("message", line)


def main(connection: Connection) -> None:
    """Runs the chunks that come through the connection until it
    is closed. An exception is the last event of the process.
    """

    def send(*event: Any) -> None:
        try:
            connection.send(event)
        except OSError:
            os._exit(0)  # the parent is gone, or wants no more

    try:
        setup: Setup = connection.recv()
        if setup.code_version != CODE_VERSION:
            raise RuntimeError(f"jaxrecall of code_version {CODE_VERSION} there, {setup.code_version} here")
        os.environ["JAX_ENABLE_X64"] = str(setup.x64)  # JAX has not started
        add_to_path(setup.import_paths)
        contents.update(setup.contents)
        worker, chunks = Worker(send), SimpleQueue[bytes]()
        threading.Thread(target=_listen, args=(connection, worker, chunks), daemon=True).start()
        send("ready")
        while True:
            worker.run(*pickle.loads(chunks.get()))
    except Exception as error:
        send("refused" if isinstance(error, UsageError) else "lost", Failure.of(error))
        os._exit(1)


def _listen(connection: Connection, worker: Worker, chunks: SimpleQueue[bytes]) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        if message == STOP:
            worker.stopping = True
        else:
            chunks.put(message)
