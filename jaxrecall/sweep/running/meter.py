"""How much CPU time each of several pieces of work takes that go on side by side in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Meter:
    """Shares the CPU time of this process, of all its threads, equally among the pieces that are in progress.

    XLA computes in threads of its own, so the CPU time of the thread that started a piece would not do. Unlike wall time, CPU time
    does not count how long other programs have kept the cores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[object, float] = {}
        self._shared = time.process_time()

    def measured(self, work: Callable[[], T]) -> tuple[T, float]:
        """What the work returns, and its CPU seconds; to be called by any number of threads."""
        piece = object()
        with self._lock:
            self._share()
            self._seconds[piece] = 0.0
        try:
            result = work()
        finally:
            with self._lock:
                self._share()
                seconds = self._seconds.pop(piece)
        return result, seconds

    def _share(self) -> None:
        """Gives each piece in progress its share of the CPU time since the last call."""
        now = time.process_time()
        for piece in self._seconds:
            self._seconds[piece] += (now - self._shared) / len(self._seconds)
        self._shared = now
