"""What every executor does with finished runs: save their rows, report progress, record failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...model.point import RunId
from ...simulator.shape import Shape
from ..calibration import Measured
from ..plan import Chunk, Plan
from ..store.store import Store
from .failure import Failure
from .interrupts import Interrupts
from .outcome import Outcome
from .progress import Progress
from .saver import Saver
from .tally import Traces


class Recorder:
    """Takes the finished rows and failures of a plan; `outcome` is its outcome so far.

    Finished rows are saved every `part_seconds` and when a part is ended. A failed chunk is reported with `resume_command`.
    """

    def __init__(self, plan: Plan, store: Store, progress: Progress, interrupts: Interrupts, resume_command: str):
        self.plan, self.store, self.progress, self.interrupts = plan, store, progress, interrupts
        self.resume_command = resume_command
        self.outcome = Outcome()
        self.saver = Saver(store, progress, plan.settings.part_seconds, lambda: interrupts.requested)

    @property
    def stopping(self) -> bool:
        """Whether no more chunks should start."""
        return self.interrupts.requested or self.saver.gave_up or (self.plan.settings.fail_fast and self.outcome.failed > 0)

    def finished(self, ids: Sequence[RunId], traces: Traces, chunk: Chunk) -> None:
        """Takes the rows of runs of the chunk."""
        self.outcome.runs += len(traces)
        self.outcome.accuracy.update((run, trace[-1]["accuracy"]) for run, trace in zip(ids, traces, strict=True))
        self.progress.advanced(traces, chunk.seconds * len(traces) / len(chunk.runs))
        self.saver.add(traces)

    def failed(self, rest: Chunk, failure: Failure) -> None:
        """Records the failure of a chunk; `rest` is the part of it that did not finish."""
        self.outcome.failed += 1
        line, details = failure.recorded(rest.shape, rest.runs, self.store, self.resume_command)
        self.outcome.failures.append(line)
        self.progress.failed(line, rest.seconds, len(rest.runs), details)

    def close(self) -> None:
        """Saves the rows that are not saved yet, if the disk accepts them."""
        self.saver.close()
        self.outcome.unsaved, self.outcome.interrupted = self.saver.n_runs, self.interrupts.requested

    def learn(self, measured: Measured, compiled: Mapping[Shape, float | None]) -> None:
        """Keeps the measured speed of this machine for the next plan."""
        self.plan.terms.calibration.after(measured, compiled).keep()
