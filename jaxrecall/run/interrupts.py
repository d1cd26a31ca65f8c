"""SIGINT and SIGTERM, from the start of a command to its end."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """A signal raises KeyboardInterrupt, but while runs are in flight the first one only requests an end.

    A context manager: outside of it the signals do what they did before. `requested` says that a signal came.
    """

    def __init__(self) -> None:
        self.requested = False
        self.message: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
        self._patient = self._droppable = self._drop = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()  # no other may set handlers
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM) if main}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within it a signal sets `requested`, is reported, and interrupts nothing: what is finished can be saved."""
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

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._drop = again = self.requested
        self.requested = True
        if not self._patient or (again and self._droppable):
            raise KeyboardInterrupt
        if not again:
            self.message("stopping after the batch in flight, its rows are kept; once more to drop it")
