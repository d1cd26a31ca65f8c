"""How far a report is, on the standard error stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...sweep.running.progress import PLAIN_EVERY_SECONDS, now_and_then


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Gives a function of the present step, the parts done and all parts: a live bar on a terminal, elsewhere a line every half minute."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading", total=None)
            yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)
        return
    yield now_and_then(PLAIN_EVERY_SECONDS, lambda what, done, of: f"{what}: {done} of {of} done")
