"""Progress of a call from Python: a bar in a terminal or a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .progress import PlainProgress, Progress, RichProgress
from .tally import Tally, Traces

CELLS = 24
EVERY_SECONDS = 0.2


class TerminalBar(RichProgress):
    """A live bar without the line that announces a sweep."""

    def started(self, line: str, facts: Mapping[str, Any]) -> None:
        pass


class Lines(PlainProgress):
    """A line every 30 seconds and one at the end."""

    def started(self, line: str, facts: Mapping[str, Any]) -> None:
        pass


class NotebookBar(Progress):
    """A bar of text below the cell, which needs no widgets."""

    def __init__(self, tally: Tally):
        super().__init__(tally)
        self.handle: Any = None
        self.last = 0.0

    def compiling(self, program: str) -> None:
        super().compiling(program)
        self._show(f"compiling {program}")

    def compiled(self, program: str, seconds: float) -> None:
        super().compiled(program, seconds)
        self._show(program)

    def advanced(self, traces: Traces, est_seconds: float) -> None:
        super().advanced(traces, est_seconds)
        if time.monotonic() - self.last >= EVERY_SECONDS:
            self._show()

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Any) -> None:
        super().failed(line, est_seconds, n_runs, details)
        self.message(line)

    def message(self, line: str) -> None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.tally.started:
            self._show()

    def _show(self, about: str = "") -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        self.last = time.monotonic()
        share = self.tally.est_done / self.tally.est_seconds if self.tally.est_seconds else 1.0
        full = min(CELLS, round(CELLS * share))
        text = {"text/plain": " ".join(filter(None, ["█" * full + "░" * (CELLS - full), self.tally.line(), about]))}
        if self.handle is None:
            self.handle = display(text, raw=True, display_id=True)
        else:
            self.handle.update(text, raw=True)


def bar(tally: Tally, shown: bool) -> Progress:
    """What suits the place: nothing if it is not `shown`, else a notebook, a terminal, or anything that takes lines."""
    if not shown:
        return Progress(tally)
    if in_notebook():
        return NotebookBar(tally)
    if sys.stderr is None:  # as in a program without a console
        return Progress(tally)
    return TerminalBar(tally) if sys.stderr.isatty() else Lines(tally, sys.stderr)


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython(), "kernel") if ipython and hasattr(ipython, "get_ipython") else False
