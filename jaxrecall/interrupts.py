"""SIGINT and SIGTERM while a sweep runs. No JAX here."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any


class Interrupts:
    """The first signal asks the sweep to end after the batch in flight; a second ends it at once, dropping that batch.

    A context manager: outside of it the signals do what they did before.
    """

    def __init__(self) -> None:
        self.asked = False
        self.say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, *_: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.say("stopping after the batch in flight, its rows are kept; once more to drop it")
