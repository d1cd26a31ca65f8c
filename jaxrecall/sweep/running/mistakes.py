"""Mistakes: failures with equal errors, which a call tells and records once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import StoreError, plural
from ...model.point import RunId
from ..files import Json
from ..store import Store

ALIKE_RUNS, ALIKE_TIMES = 100, 10
"""A call ends early if this many runs, in this many batches or chunks, fail with equal
errors and no run has succeeded.
"""

MAX_KINDS = 20
"""The largest number of kinds of errors that a call tells apart. All others are one
more kind.
"""


@dataclass
class Mistake:
    """The failures of a call that have equal errors."""

    name: str
    """The name of the file about the mistake."""

    line: str
    """The first of the errors, in one line."""

    report: Json
    """The contents of the file. `runs` is a dict from points to their failed seeds."""

    n_runs: int = 0
    """The number of runs that failed."""

    n_times: int = 0
    """The number of batches and chunks that failed."""

    n_recorded: int = 0
    """The number of runs that the file lists."""

    details: str = ""
    """The path of the file, or the reason why it was not written."""

    def __str__(self) -> str:
        """Returns the error and its details in one line."""
        return f"{self.line}; details: {self.details}" if self.details else self.line

    @property
    def total(self) -> str:
        """A line that states how many runs failed, and with which error."""
        n_runs, program = plural(self.n_runs, "run"), self.report["bucket"]
        return f"{n_runs} failed, the first of program {program}: {self}"

    @property
    def is_common(self) -> bool:
        """Whether so many runs failed that all others probably would."""
        return self.n_runs >= ALIKE_RUNS and self.n_times >= ALIKE_TIMES

    def add(self, runs: Iterable[RunId], store: Store) -> None:
        """Counts runs that failed.

        The file is written again whenever it lists only half of the runs. A million
        failures are therefore about 20 writes.
        """
        for point_id, seed in runs:
            self.report["runs"].setdefault(point_id, []).append(seed)
            self.n_runs += 1
        self.n_times += 1
        if self.n_runs >= 2 * self.n_recorded:
            self.record(store)

    def record(self, store: Store) -> None:
        """Writes the file."""
        self.n_recorded = self.n_runs
        try:
            path = store.note(f"failures/{self.name}", self.report)
            self.details = str(path or "")
        except StoreError as refused:
            self.details = f"could not be written: {refused}"
