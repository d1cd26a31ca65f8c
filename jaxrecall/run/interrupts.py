"""SIGINT and SIGTERM, from the start of a command to its end. No JAX here."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """A signal raises KeyboardInterrupt, but while runs are in flight the first one only asks for an end.

    A context manager: outside of it the signals do what they did before. `asked` says that a signal came.
    """

    def __init__(self) -> None:
        self.asked = False
        self.say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
        self._patient = self._droppable = self._drop = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()  # no other may set handlers
        self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM) if main}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within it a signal is noted in `asked` and told, and interrupts nothing: what is finished can be saved."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    @contextmanager
    def droppable(self) -> Iterator[None]:
        """Within it, inside of `patient`, a second signal raises KeyboardInterrupt, one that came between two of them too."""
        self._droppable = True
        try:
            if self._drop:
                raise KeyboardInterrupt
            yield
        finally:
            self._droppable = False

    def _hear(self, *_: Any) -> None:
        self._drop = again = self.asked
        self.asked = True
        if not self._patient or (again and self._droppable):
            raise KeyboardInterrupt
        if not again:
            self.say("stopping after the batch in flight, its rows are kept; once more to drop it")
