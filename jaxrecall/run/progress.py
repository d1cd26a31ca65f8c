"""What a sweep tells while it runs: a live line on a terminal, a plain line now and then elsewhere, JSON for machines. No JAX here."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

PLAIN_EVERY_SECONDS = 30.0


@dataclass
class Outcome:
    """What became of a call: runs computed, those of them that no disk would take, chunks that failed, whether it was interrupted."""

    runs: int = 0
    unsaved: int = 0
    failed: int = 0
    interrupted: bool = False


class Remarks(Protocol):
    """Told what happens to programs."""

    def compiling(self, program: str) -> None: ...
    def compiled(self, program: str, seconds: float) -> None: ...
    def say(self, line: str) -> None: ...


class Progress(Remarks, Protocol):
    """Told by the runner what happened; tells the user."""

    def advanced(self, rows: list[dict[str, Any]], est_seconds: float) -> None: ...
    def saved(self, part: Path, n_rows: int) -> None: ...
    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None: ...
    def close(self) -> None: ...


class Tally:
    """Runs and estimated cost done so far; the ETA goes by cost, corrected by how fast this machine turns out to be."""

    def __init__(self, n_runs: int, est_seconds: float):
        self.n_runs, self.est_seconds = n_runs, est_seconds
        self.done, self.est_done, self.compile_seconds, self.failed = 0, 0.0, 0.0, 0
        self.start = time.monotonic()
        self.accuracy: float | None = None

    def add(self, rows: list[dict[str, Any]], est_seconds: float) -> None:
        self.done += len(rows)
        self.est_done += est_seconds
        known = [row["accuracy"] for row in rows if row["accuracy"] is not None]
        self.accuracy = known[-1] if known else self.accuracy

    def drop(self, est_seconds: float) -> None:
        """A chunk failed; what is left of it is no longer to do."""
        self.failed += 1
        self.est_seconds -= est_seconds

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    @property
    def eta(self) -> float | None:
        """Seconds to go, compilation not counted; None before anything is known."""
        if not self.est_done:
            return None
        return max(0.0, self.est_seconds - self.est_done) * (self.elapsed - self.compile_seconds) / self.est_done

    def line(self) -> str:
        """Runs, share of the cost, time to go, compile time, last accuracy, failures: short enough for 80 columns with a bar."""
        parts = [f"{self.done}/{self.n_runs} runs", f"{100 * self.est_done / self.est_seconds:.0f} %" if self.est_seconds > 0 else "100 %"]
        if self.eta is not None:
            parts.append(f"{duration(self.eta)} to go")
        if self.compile_seconds:
            parts.append(f"compiled {duration(self.compile_seconds)}")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy:.2f}")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)


class PlainProgress:
    """One line every 30 seconds, for logs and pipes."""

    def __init__(self, tally: Tally, out: TextIO):
        self.tally, self.out, self.last = tally, out, time.monotonic()

    def compiling(self, program: str) -> None:
        pass

    def compiled(self, program: str, seconds: float) -> None:
        self.tally.compile_seconds += seconds
        self._now_and_then()

    def advanced(self, rows: list[dict[str, Any]], est_seconds: float) -> None:
        self.tally.add(rows, est_seconds)
        self._now_and_then()

    def saved(self, part: Path, n_rows: int) -> None:
        pass

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        self.tally.drop(est_seconds)
        self.say(line)

    def say(self, line: str) -> None:
        _print(line, self.out)

    def close(self) -> None:
        self.say(self.tally.line())

    def _now_and_then(self) -> None:
        if time.monotonic() - self.last >= PLAIN_EVERY_SECONDS:
            self.last = time.monotonic()
            self.say(self.tally.line())


class RichProgress:
    """A live bar on a terminal."""

    def __init__(self, tally: Tally):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.tally = tally
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[line]}"))
        self.bar = Bar(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task("sweep", total=max(tally.est_seconds, 1e-9), line=tally.line())
        self.bar.start()

    def compiling(self, program: str) -> None:
        self.bar.update(self.task, description=f"compiling {program}")

    def compiled(self, program: str, seconds: float) -> None:
        self.tally.compile_seconds += seconds
        self.bar.update(self.task, description=program, line=self.tally.line())

    def advanced(self, rows: list[dict[str, Any]], est_seconds: float) -> None:
        self.tally.add(rows, est_seconds)
        self.bar.update(self.task, completed=self.tally.est_done, line=self.tally.line())

    def saved(self, part: Path, n_rows: int) -> None:
        pass

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        self.tally.drop(est_seconds)
        self.bar.update(self.task, total=max(self.tally.est_seconds, 1e-9), line=self.tally.line())
        self.say(line)

    def say(self, line: str) -> None:
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


class JsonProgress:
    """Every step as an event, nothing else."""

    def __init__(self, tally: Tally, events: Events):
        self.tally, self.emit = tally, events.emit

    def compiling(self, program: str) -> None:
        self.emit("compiling", program=program)

    def compiled(self, program: str, seconds: float) -> None:
        self.tally.compile_seconds += seconds
        self.emit("compiled", program=program, seconds=seconds)

    def advanced(self, rows: list[dict[str, Any]], est_seconds: float) -> None:
        tally = self.tally
        tally.add(rows, est_seconds)
        self.emit("batch", rows=len(rows), runs_executed=tally.done, todo=tally.n_runs - tally.done, accuracy=tally.accuracy, eta=tally.eta)

    def saved(self, part: Path, n_rows: int) -> None:
        self.emit("part", path=str(part), rows=n_rows)

    def failed(self, line: str, est_seconds: float, n_runs: int, details: Path | None) -> None:
        self.tally.drop(est_seconds)
        self.emit("failed", runs=n_runs, details=details and str(details), text=line)

    def say(self, line: str) -> None:
        self.emit("message", text=line)

    def close(self) -> None:
        pass


def progress(tally: Tally, events: Events | None = None, out: TextIO = sys.stderr) -> Progress:
    """The kind that was asked for, or fits where `out` goes."""
    if events:
        return JsonProgress(tally, events)
    return RichProgress(tally) if out.isatty() else PlainProgress(tally, out)


def _print(line: str, out: TextIO) -> None:
    with suppress(OSError):  # a log on a full disk, or a reader that has gone, must not end the sweep
        out.write(line + "\n")  # at once: a signal's own line must not come between
        out.flush()


def duration(seconds: float) -> str:
    """0.4 s, 12 s, 3 min 20 s, 2 h 5 min"""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {s} s"
