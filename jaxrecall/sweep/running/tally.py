"""The progress of a call: runs and cost done so far, the time left, and the line that shows them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

Rows = Sequence[dict[str, Any]]
"""Finished rows, as the results folder takes them."""

Traces = Sequence[Rows]
"""The rows of finished runs, run by run; the last row of a run is that of its last step."""


class Tally:
    """Runs and estimated cost done so far; the ETA is based on the estimated cost, corrected by the measured speed."""

    def __init__(self, n_runs: int, est_seconds: float):
        self.n_runs, self.est_seconds = n_runs, est_seconds
        self.done, self.est_done, self.compile_seconds, self.failed = 0, 0.0, 0.0, 0
        self.start = time.monotonic()
        self.accuracy: float | None = None

    def begin(self) -> None:
        """The first program starts; the time before it does not count in the ETA."""
        if not self.started:
            self.start = time.monotonic()

    def add(self, traces: Traces, est_seconds: float) -> None:
        self.done += len(traces)
        self.est_done += est_seconds
        known = [trace[-1]["accuracy"] for trace in traces if trace[-1]["accuracy"] is not None]
        self.accuracy = known[-1] if known else self.accuracy

    def drop(self, est_seconds: float) -> None:
        """A chunk failed; the rest of its cost is no longer counted."""
        self.failed += 1
        self.est_seconds -= est_seconds

    @property
    def started(self) -> bool:
        """Whether anything has happened yet."""
        return bool(self.done or self.failed or self.compile_seconds)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    @property
    def eta(self) -> float | None:
        """Seconds left, without compilation; None before the first row is finished."""
        if not self.est_done:
            return None
        return max(0.0, self.est_seconds - self.est_done) * (self.elapsed - self.compile_seconds) / self.est_done

    def line(self) -> str:
        """Runs done, time left, compile time, last accuracy and failures; short enough for 80 columns with a bar."""
        parts = [self.done_so_far()]
        if self.eta is not None:
            parts.append(f"{duration(self.eta)} left")
        if self.compile_seconds >= 0.1:
            parts.append(f"compiled {duration(self.compile_seconds)}")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy:.2f}")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)

    def done_so_far(self) -> str:
        """Runs, and their share of the cost."""
        percent = 100 * self.est_done / self.est_seconds if self.est_seconds > 0 else 100.0
        return f"{self.done}/{self.n_runs} runs, {percent:.0f} %"


class SearchTally(Tally):
    """Counts finished cells instead of cost, as the cost of a search is not known in advance."""

    def __init__(self, n_cells: int, finished: int):
        super().__init__(0, n_cells)
        self.n_cells, self.finished, self.round = n_cells, finished, 0

    def add(self, traces: Traces, est_seconds: float) -> None:
        super().add(traces, 0.0)

    def drop(self, est_seconds: float) -> None:
        super().drop(0.0)

    def next_round(self, n_runs: int) -> None:
        """A round of so many runs begins."""
        self.round, self.n_runs, self.est_done = self.round + 1, self.n_runs + n_runs, float(self.finished)

    @property
    def eta(self) -> float | None:
        return None

    def done_so_far(self) -> str:
        """Cells, rounds and runs."""
        return f"{self.finished}/{self.n_cells} cells, round {self.round}, {self.done} runs"


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
