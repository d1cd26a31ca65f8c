"""The outcome of a call: the runs it computed, those it lost, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...cli import FAILED, INTERRUPTED, OK
from ...model.point import RunId


@dataclass
class Outcome:
    """The outcome of the runs of a call; outcomes of several calls can be added."""

    runs: int = 0
    """Computed."""

    unsaved: int = 0
    """Computed, but their rows could not be saved."""

    failed: int = 0
    """Chunks that failed."""

    failures: list[str] = field(default_factory=list)
    """One line for each failed chunk that was seen here."""

    interrupted: bool = False

    accuracy: dict[RunId, float | None] = field(default_factory=dict)
    """Accuracy of the computed runs at their last step, a fraction; None: nonfinite. A search decides by it."""

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.runs + other.runs,
            self.unsaved + other.unsaved,
            self.failed + other.failed,
            self.failures + other.failures,
            self.interrupted or other.interrupted,
            self.accuracy | other.accuracy,
        )

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        return FAILED if self.failed or self.unsaved else OK
