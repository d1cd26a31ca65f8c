"""What a worker does, wherever it lives: it runs one piece of a plan after another and tells what happens. This starts JAX."""

from __future__ import annotations

from collections.abc import Callable

import jax

from ...plan.plan import Terms
from ...simulator import program
from ..failure import Failure
from ..runner import BATCH_SECONDS, Lanes
from .pool import Event, Task


class Worker:
    """Runs tasks in this process; `send` gets the events. `stopping`, once set, ends a task after its batch in flight."""

    def __init__(self, send: Callable[[Event], None]):
        self.send, self.stopping = send, False
        self.terms: Terms | None = None
        program.keep_compiled()
        jax.local_devices()  # a device that does not start is found out before there is anything to lose

    def run(self, task: Task) -> None:
        if task.terms != self.terms:
            self.terms = task.terms
            self.lanes = Lanes(task.terms, task.precision, self, min(BATCH_SECONDS, task.part_seconds))
        try:
            for _, rows in self.lanes.rows(task.chunk):
                self.send(("rows", rows))
                if self.stopping:
                    break
        except Exception as error:
            self.send(("failed", Failure.of(error)))
        else:
            self.send(("ended", self.lanes.measured.copy(), self.lanes.compiled.copy()))
            self.lanes.measured.clear()

    def compiling(self, program: str) -> None:
        self.send(("compiling", program))

    def compiled(self, program: str, seconds: float) -> None:
        self.send(("compiled", program, seconds))

    def say(self, line: str) -> None:
        self.send(("said", line))
