"""Signals that interrupt: SIGINT, SIGTERM and SIGHUP, from the start of a command to its end."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ...cli import SIGNALS, resend_interrupts


class Interrupts:
    """A signal raises KeyboardInterrupt; while runs are in progress the first one only requests a stop.

    A context manager; on exit the earlier signal handlers are restored. `requested` is true once a signal has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self.message: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
        self._patient = self._droppable = self._drop = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()  # no other may set handlers
        # a handler that Python does not know, None, could not be put back
        ours = [number for number in SIGNALS if main and signal.getsignal(number) is not None and not _ignored(number)]
        self._before = {number: signal.signal(number, self._handle) for number in ours}
        self._hook = sys.unraisablehook
        if main:
            sys.unraisablehook = resend_interrupts
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Inside it the first signal sets `requested` and is reported, but interrupts nothing, so that finished rows can be saved."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    @contextmanager
    def droppable(self) -> Iterator[None]:
        """Inside it, within `patient`, a second signal raises KeyboardInterrupt; so does one that came before it was entered."""
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
            self.message("stopping when the running batch is finished; its rows are kept. A second signal drops it")


def _ignored(number: int) -> bool:
    """Whether the caller wants the process to outlive its terminal, as nohup does."""
    return number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) == signal.SIG_IGN
