"""What became of a call: what it computed, what it lost, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..point import RunId

OK, USAGE, FAILED, INTERRUPTED = 0, 2, 3, 130
"""Exit codes of a sweep."""


@dataclass
class Outcome:
    """What became of the runs of a call; outcomes of several calls add up."""

    runs: int = 0
    """Computed."""

    unsaved: int = 0
    """Computed, but no disk would take their rows."""

    failed: int = 0
    """Chunks that failed."""

    interrupted: bool = False

    accuracy: dict[RunId, float | None] = field(default_factory=dict)
    """Of the computed runs, a fraction; None: nonfinite. A search goes by it."""

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.runs + other.runs,
            self.unsaved + other.unsaved,
            self.failed + other.failed,
            self.interrupted or other.interrupted,
            self.accuracy | other.accuracy,
        )

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        return FAILED if self.failed or self.unsaved else OK
