"""How far the resamplings of a fit are, on the standard error stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...sweep.running.progress import PLAIN_EVERY_SECONDS, duration, now_and_then


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """Gives a function of steps done and steps in all: a live bar on a terminal, elsewhere a line every half minute."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("resampling")
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    start = time.monotonic()

    def line(done: int, of: int) -> str:
        return f"resampling: {100 * done / of:.0f} %, {duration((time.monotonic() - start) * (of - done) / done)} to go"

    yield now_and_then(PLAIN_EVERY_SECONDS, line)
