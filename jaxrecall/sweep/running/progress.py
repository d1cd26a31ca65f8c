"""The progress of a call: what has happened so far, and how it
is shown: a live bar, a line every 30 seconds, or JSON events.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from ...errors import printable

PLAIN_EVERY_SECONDS = 30.0
COUNT_EVERY_SECONDS = 5.0
NOTEBOOK_WIDTH = 100

Rows = Sequence[dict[str, Any]]
"""Finished rows, as the results folder takes them."""

Traces = Sequence[Rows]
"""The rows of finished runs, run by run; the last row of a run is that of its last step."""


class Remarks(Protocol):
    """Receives what happens to programs."""

    def compiling(self, program: str) -> None: ...
    def compiled(self, program: str, seconds: float) -> None: ...
    def message(self, line: str) -> None: ...


class Failure(NamedTuple):
    """What went wrong, and where."""

    error: str
    traceback: str
    host: str

    @staticmethod
    def of(error: Exception) -> Failure:
        return Failure(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)), socket.gethostname())

    @property
    def line(self) -> str:
        """The error in one line, without the name of its class where there is a message."""
        kind, _, text = self.error.partition(": ")
        message = text if text and kind.isidentifier() else self.error.removesuffix(": ")
        return message.splitlines()[0]


class Progress:
    """What has happened in a call: runs, cost, time to compile, failures.

    The time left is based on the estimated cost, corrected by the measured speed. A
    search counts finished cells instead, as its cost is not known in advance.

    Args:
        display: is called with this record, the name of each event, a line of text and
            the same as data; None: nothing is shown.
    """

    def __init__(self, display: Display | None = None):
        self.display = display
        self.n_runs, self.est_seconds, self.accuracy_column = 0, 0.0, "accuracy"
        self.n_cells, self.cells_finished, self.round = 0, 0, 0
        self.n_programs, self.n_compiled = 0, 0
        self.done, self.est_done, self.compile_seconds, self.n_failed = 0, 0.0, 0.0, 0
        self.accuracy: float | None = None
        self.start = time.monotonic()

    def compiling(self, program: str) -> None:
        """A program is being compiled, or loaded. The time before the first one does not count."""
        if not self.has_begun:
            self.start = time.monotonic()
        self.tell("compiling", f"compiling {program}", program=program)

    def compiled(self, program: str, seconds: float) -> None:
        self.compile_seconds += seconds
        self.n_compiled += 1
        self.tell("compiled", program, program=program, seconds=seconds)

    def advanced(self, traces: Traces, est_seconds: float) -> None:
        """Runs are finished; they were estimated to take `est_seconds`."""
        self.done += len(traces)
        self.est_done += est_seconds
        known = [trace[-1][self.accuracy_column] for trace in traces if trace[-1][self.accuracy_column] is not None]
        self.accuracy = known[-1] if known else self.accuracy
        counts: dict[str, Any] = {"rows": sum(map(len, traces)), "runs_executed": self.done, "todo": self.n_runs - self.done}
        self.tell("batch", **counts, accuracy=self.accuracy, eta=self.eta)

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        """A chunk failed; the estimated cost of the rest of it is no longer counted."""
        self.n_failed += 1
        self.est_seconds -= est_seconds
        self.tell("failed", line, runs=n_runs, details=details and str(details), text=line)

    def message(self, line: str) -> None:
        """Any other message."""
        self.tell("message", line, text=line)

    def tell(self, event: str, line: str = "", **facts: Any) -> None:
        """Displays an event: besides those above `start`, `part` (a
        file is written), `search` (its results are) and `close`.
        """
        if self.display:
            self.display(self, event, printable(line), facts)

    @property
    def has_begun(self) -> bool:
        return bool(self.done or self.n_failed or self.compile_seconds)

    @property
    def share(self) -> float:
        """The part of the cells that is finished, or of the cost."""
        if self.n_cells:
            return self.cells_finished / self.n_cells
        return self.est_done / self.est_seconds if self.est_seconds > 0 else 1.0

    @property
    def eta(self) -> float | None:
        """Seconds left, programs still to be compiled counted; None before the first row is finished, and in a search."""
        if self.n_cells or not self.est_done:
            return None
        elapsed = time.monotonic() - self.start - self.compile_seconds
        compilation = max(0, self.n_programs - self.n_compiled) * self.compile_seconds / max(1, self.n_compiled)
        return max(0.0, self.est_seconds - self.est_done) * elapsed / self.est_done + compilation

    def line(self) -> str:
        """Runs done, time left, compile time, accuracy of the last
        run, and failures; short enough for 80 columns with a bar.
        """
        parts = [f"{self.done}/{self.n_runs} runs, {100 * self.share:.0f} %"]
        if self.n_cells:
            parts = [f"{self.cells_finished}/{self.n_cells} cells, round {self.round}, {self.done} runs"]
        if (eta := self.eta) is not None:
            parts.append(f"{duration(eta)} left")
        if self.compile_seconds >= 0.1:
            parts.append(f"compiled {duration(self.compile_seconds)}")
        if self.accuracy is not None:
            parts.append(f"last accuracy {self.accuracy:.2f}")
        if self.n_failed:
            parts.append(f"{self.n_failed} failed")
        return ", ".join(parts)


Display = Callable[[Progress, str, str, Mapping[str, Any]], None]
"""Shows an event: (progress, name of the event, line of text, facts)."""


class Lines:
    """A line every 30 seconds and one at the end, for logs
    and pipes; `announce`: also the line that starts a sweep.
    """

    def __init__(self, out: TextIO, announce: bool = True):
        self.out, self.announce = out, announce
        self.now_and_then = now_and_then(PLAIN_EVERY_SECONDS, Progress.line, out)

    def __call__(self, progress: Progress, event: str, line: str, facts: Mapping[str, Any]) -> None:
        if event == "start" and self.announce:
            print(line, flush=True)
        elif event in ("message", "failed"):
            _print(line, self.out)
        elif event in ("compiled", "batch"):
            self.now_and_then(progress)
        elif event == "close" and progress.has_begun:
            _print(progress.line(), self.out)


class Bar:
    """A live bar in a terminal or a notebook, from the first program on."""

    def __init__(self, announce: bool = True, notebook: bool = False):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichBar

        # of itself rich asks for widgets in a notebook, which may be missing
        terminal: dict[str, Any] = {"file": sys.stdout, "force_terminal": True, "force_jupyter": False, "width": NOTEBOOK_WIDTH}
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[line]}"))
        console = Console(**terminal) if notebook else Console(stderr=True)
        self.bar = RichBar(*columns, console=console, refresh_per_second=2 if notebook else 10)
        self.task, self.announce = self.bar.add_task("sweep", total=1.0, line=""), announce

    def __call__(self, progress: Progress, event: str, line: str, facts: Mapping[str, Any]) -> None:
        if event == "start" and self.announce:
            print(line, flush=True)
        if event in ("compiling", "batch"):  # rows of other processes come without programs
            self.bar.start()
        about = {"description": "sweep" if event == "close" else line} if event in ("compiling", "compiled", "close") else {}
        self.bar.update(self.task, completed=progress.share, line=progress.line(), **about)  # type: ignore[arg-type]
        if event in ("message", "failed"):
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        if event == "close":
            self.bar.stop()


class Events:
    """Every event as a line with a JSON object: `event`, `at`
    (seconds since the start of the call) and the facts of that event.
    """

    def __init__(self, out: TextIO):
        self.out, self.start = out, time.monotonic()

    def __call__(self, progress: Progress, event: str, line: str, facts: Mapping[str, Any]) -> None:
        if event != "close":
            self.emit(event, **facts)

    def emit(self, event: str, **facts: Any) -> None:
        _print(json.dumps({"event": event, "at": self.elapsed, **facts}), self.out)

    @property
    def elapsed(self) -> float:
        return round(time.monotonic() - self.start, 3)


def display(announce: bool) -> Display | None:
    """What suits the place: a bar in a notebook or a terminal,
    lines elsewhere, nothing in a program without streams.
    """
    if _in_notebook():
        return Bar(announce, notebook=True)
    if sys.stderr is None or sys.stderr.closed:
        return None
    return Bar(announce) if sys.stderr.isatty() else Lines(sys.stderr, announce)


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython(), "kernel") if ipython and hasattr(ipython, "get_ipython") else False


def _print(line: str, out: TextIO | None) -> None:
    if out is None or out.closed:
        return
    with suppress(OSError):  # a log on a full disk, or a reader that has gone, must not end the sweep
        out.write(line + "\n")  # in one call: the line of a signal handler must not come in between
        out.flush()


def now_and_then(seconds: float, line: Callable[..., str], out: TextIO | None = None) -> Callable[..., None]:
    """A function that prints `line` of its arguments on `out`
    (stderr), `seconds` after the last time at the earliest.
    """
    last = time.monotonic()

    def show(*arguments: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            _print(line(*arguments), out or sys.stderr)

    return show


def counter(what: str) -> Callable[[int, int], None]:
    """A function of the parts done and all parts, which prints a line on stderr every few seconds."""
    return now_and_then(COUNT_EVERY_SECONDS, lambda done, of: f"{what}: {done} of {of}")


def plural(n: int, noun: str) -> str:
    """1 run, 2 runs"""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def duration(seconds: float) -> str:
    """0.4 s, 12 s, 3 min 20 s, 2 h 5 min"""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {s} s"
