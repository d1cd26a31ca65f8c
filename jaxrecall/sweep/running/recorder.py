"""Carries out a plan in this process, and what every engine does
with finished runs: save rows, report progress, record failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...cli.process import FAILED, INTERRUPTED, OK, Interrupts
from ...errors import StoreError
from ...model.point import RunId
from ..plan import Chunk, Plan
from ..rounds import as_known
from ..runners import Runner
from ..store import Store
from .progress import Failure, Progress, Traces, duration, plural

WAITS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
"""Seconds from one refused write to the next try; the last refusal gives up."""

POLL_SECONDS = 0.05


@dataclass
class Outcome:
    """The outcome of the runs of a call."""

    runs: int = 0
    """Computed."""

    unsaved: int = 0
    """Computed, but their rows could not be saved."""

    failures: list[str] = field(default_factory=list)
    """One line for each chunk, or task, that failed."""

    interrupted: bool = False

    accuracy: dict[RunId, float | None] = field(default_factory=dict)
    """Accuracy of the computed runs at their last step, or what
    else a search decides by, as `rounds.Known` has it.
    """

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        return FAILED if self.failed or self.unsaved else OK


class Saver:
    """Takes the rows of runs as they are finished and writes
    them as parts every `part_seconds`, those of a run together.

    `rows` are those that are not saved yet, of `n_runs` runs.

    A refused write is reported immediately and retried at growing intervals. After the
    last try `gave_up` is true, and `rows` are lost when the process ends. `stop`
    returns whether to stop waiting.
    """

    def __init__(self, store: Store, progress: Progress, part_seconds: float, stop: Callable[[], bool] = lambda: False):
        self.store, self.progress, self.part_seconds, self.stop = store, progress, part_seconds, stop
        self.rows: list[dict[str, Any]] = []
        self.n_runs = 0
        self.gave_up = False
        self.due = time.monotonic() + part_seconds

    def add(self, traces: Traces) -> None:
        """Takes the rows of finished runs; writes if a part is due."""
        self.rows += [row for trace in traces for row in trace]
        self.n_runs += len(traces)
        if time.monotonic() >= self.due:
            self.write()

    def write(self) -> None:
        """Writes the unsaved rows; while the disk refuses, waits and retries as long as tries are left."""
        if not self.rows or self.gave_up:
            return
        for n_refused, wait in enumerate((*WAITS, 0.0)):
            try:
                path = self.store.write(self.rows)
            except StoreError as error:
                if not n_refused:
                    self.progress.message(f"{error}. The sweep waits, and saving is retried for {duration(sum(WAITS))}")
                self._wait(wait)
                continue
            if n_refused:
                self.progress.message(f"saving works again: {len(self.rows)} rows written")
            self.progress.tell("part", path=str(path), rows=len(self.rows))
            self.rows, self.n_runs = [], 0
            self.due = time.monotonic() + self.part_seconds
            return
        self.gave_up = True

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stop():
            time.sleep(POLL_SECONDS)


@dataclass
class Recorder:
    """Takes the finished rows and failures of a plan, and adds them to `outcome`.

    Finished rows are saved every `part_seconds` and when a part is ended. A failed
    chunk is reported with `resume_command`.
    """

    plan: Plan
    store: Store
    progress: Progress
    interrupts: Interrupts
    resume_command: str
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.saver = Saver(self.store, self.progress, self.plan.settings.part_seconds, lambda: self.interrupts.requested)

    @property
    def stopping(self) -> bool:
        """Whether no more chunks should start."""
        return self.interrupts.requested or self.saver.gave_up or (self.plan.settings.fail_fast and self.outcome.failed > 0)

    def finished(self, ids: Sequence[RunId], traces: Traces, chunk: Chunk) -> None:
        """Takes the rows of runs of the chunk."""
        self.outcome.runs += len(traces)
        accuracies = [as_known(trace[-1][self.progress.accuracy_column], trace[-1]["status"]) for trace in traces]
        self.outcome.accuracy.update(zip(ids, accuracies, strict=True))
        self.progress.advanced(traces, chunk.seconds * len(traces) / len(chunk.runs))
        self.saver.add(traces)

    def failed(self, rest: Chunk, failure: Failure) -> None:
        """Records the failure of a chunk, with its runs and the
        command that tries them again; `rest` is what did not finish.
        """
        first, last, n = rest.runs[0].id, rest.runs[-1].id, len(rest.runs)
        record = {**failure._asdict(), "jax_version": version("jax"), "bucket": str(rest.program)}
        record |= {"runs": [run.id for run in rest.runs], "repeat": self.resume_command}
        path: Path | None = None
        try:
            path = self.store.record_failure(f"{first.point_id}-{first.seed}-{n}", record)
            details = f"details: {path}; " if path else ""
        except StoreError as refused:
            details = f"details could not be written: {refused}; "
        line = (
            f"failed: {plural(n, 'run')} of program {rest.program}, {first.point_id} seed {first.seed} to {last.point_id} seed "
            f"{last.seed}: {failure.line} ({details}to try again: {self.resume_command})"
        )
        self.outcome.failures.append(line)
        self.progress.failed(line, rest.seconds, n, path)

    def close(self) -> None:
        """Saves the rows that are not saved yet, if the disk accepts them."""
        self.saver.write()
        self.outcome.unsaved += self.saver.n_runs
        self.outcome.interrupted = self.interrupts.requested


def execute(recorder: Recorder) -> None:
    """Runs every chunk of the recorder's plan in this process.
    A chunk that fails is reported, and the others run.
    """
    with recorder.interrupts.deferred():  # JAX starts
        runner = Runner(recorder.plan, recorder.progress)
    with recorder.interrupts.patient():
        for chunk in recorder.plan.chunks:
            if recorder.stopping:
                break
            _run(chunk, runner, recorder)
            recorder.saver.write()
        recorder.close()


def _run(chunk: Chunk, runner: Runner, recorder: Recorder) -> None:
    """Runs a chunk until it is finished, fails or is to stop."""
    batches, left = runner.rows(chunk), {run.id: run for run in chunk.runs}
    while left and not recorder.stopping:
        try:
            with recorder.interrupts.droppable():
                runs, traces = next(batches)
        except KeyboardInterrupt:
            return
        except Exception as error:
            recorder.failed(chunk.part(list(left.values())), Failure.of(error))
            return
        ids = [run.id for run in runs]
        for run in ids:
            del left[run]
        if isinstance(traces, Failure):
            recorder.failed(chunk.part(runs), traces)
        else:
            recorder.finished(ids, traces, chunk)
