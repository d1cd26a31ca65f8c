"""A worker of any kind: it runs one task after another and reports events."""

from __future__ import annotations

from collections.abc import Callable

from ...door import runner_for
from ...plan import Terms
from ..recorder import Failure
from .events import Compiled, Compiling, Ended, Event, Failed, FailedRuns, Finished, Message, Task


class Worker:
    """Runs tasks in this process; `send` gets the events. `stopping`, once set, ends a task after its current batch."""

    def __init__(self, send: Callable[[Event], None]):
        from ....simulator import program  # starts JAX

        self.send, self.stopping = send, False
        self.terms: Terms | None = None
        program.start()

    def run(self, task: Task) -> None:
        if task.terms != self.terms:
            self.terms, self.runner = task.terms, runner_for(task.terms, self)
        try:
            for runs, traces in self.runner.rows(task.chunk):
                self.send(FailedRuns([run.id for run in runs], traces) if isinstance(traces, Failure) else Finished(traces))
                if self.stopping:
                    break
        except Exception as error:
            self.send(Failed(Failure.of(error)))
        else:
            self.send(Ended(self.runner.measured.copy(), self.runner.compiled.copy()))
            self.runner.measured.clear()

    def compiling(self, program: str) -> None:
        self.send(Compiling(program))

    def compiled(self, program: str, seconds: float) -> None:
        self.send(Compiled(program, seconds))

    def message(self, line: str) -> None:
        self.send(Message(line))
