"""The progress of a sweep: a live bar on a terminal, a line every 30 seconds in a log, or JSON events."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from .tally import Tally, Traces

PLAIN_EVERY_SECONDS = 30.0
COUNT_EVERY_SECONDS = 5.0


class Remarks(Protocol):
    """Receives what happens to programs."""

    def compiling(self, program: str) -> None: ...
    def compiled(self, program: str, seconds: float) -> None: ...
    def message(self, line: str) -> None: ...


class Progress:
    """Receives what happens while a plan runs, and keeps a tally. This one shows nothing."""

    def __init__(self, tally: Tally):
        self.tally = tally

    def started(self, line: str, facts: Mapping[str, Any]) -> None:
        """The call starts: a line of text, and the same as data."""

    def compiling(self, program: str) -> None:
        """A program is being compiled, or loaded."""
        self.tally.begin()

    def compiled(self, program: str, seconds: float) -> None:
        self.tally.compile_seconds += seconds

    def advanced(self, traces: Traces, est_seconds: float) -> None:
        """Runs are finished; they were estimated to take `est_seconds`."""
        self.tally.add(traces, est_seconds)

    def saved(self, part: Path, n_rows: int) -> None:
        """A part file is written."""

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        """A chunk failed; `est_seconds` is the estimated cost of the rest of it."""
        self.tally.drop(est_seconds)

    def searched(self, path: Path, n_cells: int, n_finished: int) -> None:
        """The results of a search are written."""

    def message(self, line: str) -> None:
        """Any other message."""

    def close(self) -> None:
        """The call ends."""


class PlainProgress(Progress):
    """One line every 30 seconds, for logs and pipes."""

    def __init__(self, tally: Tally, out: TextIO):
        super().__init__(tally)
        self.out, self.last = out, time.monotonic()

    def started(self, line: str, facts: Mapping[str, Any]) -> None:
        print(line, flush=True)

    def compiled(self, program: str, seconds: float) -> None:
        super().compiled(program, seconds)
        self._now_and_then()

    def advanced(self, traces: Traces, est_seconds: float) -> None:
        super().advanced(traces, est_seconds)
        self._now_and_then()

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        super().failed(line, est_seconds, n_runs, details)
        self.message(line)

    def message(self, line: str) -> None:
        _print(line, self.out)

    def close(self) -> None:
        if self.tally.started:
            self.message(self.tally.line())

    def _now_and_then(self) -> None:
        if time.monotonic() - self.last >= PLAIN_EVERY_SECONDS:
            self.last = time.monotonic()
            self.message(self.tally.line())


class RichProgress(Progress):
    """A live bar on a terminal, from the first program on."""

    def __init__(self, tally: Tally):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        super().__init__(tally)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[line]}"))
        self.bar = Bar(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task("sweep", total=max(tally.est_seconds, 1e-9), line=tally.line())

    def started(self, line: str, facts: Mapping[str, Any]) -> None:
        print(line, flush=True)

    def compiling(self, program: str) -> None:
        super().compiling(program)
        self.bar.start()
        self.bar.update(self.task, description=f"compiling {program}")

    def compiled(self, program: str, seconds: float) -> None:
        super().compiled(program, seconds)
        self.bar.update(self.task, description=program, line=self.tally.line())

    def advanced(self, traces: Traces, est_seconds: float) -> None:
        super().advanced(traces, est_seconds)
        self.bar.start()  # rows of other processes come without programs
        self.bar.update(self.task, completed=self.tally.est_done, line=self.tally.line())

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        super().failed(line, est_seconds, n_runs, details)
        self.bar.update(self.task, total=max(self.tally.est_seconds, 1e-9), line=self.tally.line())
        self.message(line)

    def message(self, line: str) -> None:
        self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self.bar.update(self.task, description="sweep", line=self.tally.line())
        self.bar.stop()


class Events:
    """One JSON object a line: `event`, `at` (seconds since the start of the call) and the facts of that event."""

    def __init__(self, out: TextIO):
        self.out, self.start = out, time.monotonic()

    @property
    def elapsed(self) -> float:
        return round(time.monotonic() - self.start, 3)

    def emit(self, event: str, **facts: Any) -> None:
        _print(json.dumps({"event": event, "at": self.elapsed, **facts}), self.out)


class JsonProgress(Progress):
    """Every step as a JSON event."""

    def __init__(self, tally: Tally, events: Events):
        super().__init__(tally)
        self.emit = events.emit

    def started(self, line: str, facts: Mapping[str, Any]) -> None:
        self.emit("start", **facts)

    def compiling(self, program: str) -> None:
        super().compiling(program)
        self.emit("compiling", program=program)

    def compiled(self, program: str, seconds: float) -> None:
        super().compiled(program, seconds)
        self.emit("compiled", program=program, seconds=seconds)

    def advanced(self, traces: Traces, est_seconds: float) -> None:
        super().advanced(traces, est_seconds)
        tally, n_rows = self.tally, sum(map(len, traces))
        self.emit("batch", rows=n_rows, runs_executed=tally.done, todo=tally.n_runs - tally.done, accuracy=tally.accuracy, eta=tally.eta)

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        super().failed(line, est_seconds, n_runs, details)
        self.emit("failed", runs=n_runs, details=details and str(details), text=line)

    def saved(self, part: Path, n_rows: int) -> None:
        self.emit("part", path=str(part), rows=n_rows)

    def searched(self, path: Path, n_cells: int, n_finished: int) -> None:
        self.emit("search", path=str(path), searches=n_cells, finished=n_finished)

    def message(self, line: str) -> None:
        self.emit("message", text=line)


def progress(tally: Tally, events: Events | None = None) -> Progress:
    """JSON events if `events` is given, else a bar on a terminal or lines in a log."""
    if events:
        return JsonProgress(tally, events)
    return RichProgress(tally) if sys.stderr.isatty() else PlainProgress(tally, sys.stderr)


def _print(line: str, out: TextIO) -> None:
    with suppress(OSError):  # a log on a full disk, or a reader that has gone, must not end the sweep
        out.write(line + "\n")  # in one call: the line of a signal handler must not come in between
        out.flush()


def now_and_then(seconds: float, line: Callable[..., str]) -> Callable[..., None]:
    """A function that prints `line` of its arguments on stderr, `seconds` after the last time at the earliest."""
    last = time.monotonic()

    def show(*arguments: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            _print(line(*arguments), sys.stderr)

    return show


def counter(what: str) -> Callable[[int, int], None]:
    """A function of the parts done and all parts, which prints a line on stderr every few seconds."""
    return now_and_then(COUNT_EVERY_SECONDS, lambda done, of: f"{what}: {done} of {of}")
