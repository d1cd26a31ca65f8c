"""What has happened in a call: finished runs, whose rows are saved, and failures."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.metadata import version

from ...cli.process import FAILED, INTERRUPTED, OK, Interrupts
from ...errors import StoreError, plural, printable
from ...model.point import RunId
from ..files import Json
from ..grid.file import Settings
from ..plan import Chunk, by_id
from ..searches import Searches, as_known
from ..store import Store
from .progress import Display, Event, Failure, Shown, Traces, duration

WAITS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
"""Seconds from one refused write to the next try; the last refusal gives up."""

POLL_SECONDS = 0.05


@dataclass
class Call:
    """What has happened in a call, whatever carries it out; a display shows it.

    Rows are written as parts every `part_seconds`, those of a run together. A refused
    write is reported immediately and retried at growing intervals; after the last try
    `gave_up` is true, and rows that are not saved are lost when the process ends.

    The time left is based on the estimated cost, corrected by the measured speed. A
    search counts finished cells instead, as its cost is not known in advance.
    """

    store: Store
    settings: Settings = field(default_factory=Settings)
    resume_command: str = ""
    accuracy_column: str = "accuracy"
    search: Searches | None = None
    display: Display | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)

    n_runs: int = 0
    """The runs to be computed, as far as they are known."""

    est_seconds: float = 0.0
    """The estimated time of these runs."""

    n_programs: int = 0
    round: int = 0
    runs: int = 0
    """The number of computed runs."""

    unsaved: int = 0
    """The number of computed runs whose rows are not saved."""

    failures: list[str] = field(default_factory=list)
    """One line for each chunk that failed."""

    accuracy: dict[RunId, float | None] = field(default_factory=dict)
    """Accuracy of the computed runs at their last step, or the other column that a
    search uses, in the form of `searches.as_known`.
    """

    last: float | None = None
    """The last accuracy that is a number."""

    gave_up: bool = False
    est_done: float = 0.0
    compile_seconds: float = 0.0
    n_compiled: int = 0

    def __post_init__(self) -> None:
        self.rows: list[Json] = []
        self.start = time.monotonic()
        self.due = self.start + self.settings.part_seconds

    @property
    def exit_code(self) -> int:
        if self.interrupts.requested:
            return INTERRUPTED
        if self.failures or self.unsaved:
            return FAILED
        return OK

    @property
    def stopping(self) -> bool:
        """Whether no more chunks should start."""
        failed_fast = self.settings.fail_fast and bool(self.failures)
        return self.interrupts.requested or self.gave_up or failed_fast

    def handle(self, event: Event, who: str = "", share: float = 1.0) -> None:
        """Handles an event about programs: one compiles, one is ready, or a message.

        The time before the first program does not count.

        Args:
            event: an event of a `Runner`.
            who: the worker that sends it.
            share: the part of its seconds that counts; for K workers that compile at
                once, 1 / K.
        """
        match event:
            case "compiling", program:
                if not self.has_begun:
                    self.start = time.monotonic()
                self.show("compiling", f"compiling {program}", program=program)
            case "compiled", program, seconds:
                own = share * seconds
                # a task of Ray sends both events with its first batch
                self.start = min(self.start, time.monotonic() - own)
                self.compile_seconds += own
                self.n_compiled += 1
                self.show("compiled", program, program=program, seconds=own)
            case "message", line:
                self.message(f"{who}{line}")

    def message(self, line: str) -> None:
        self.show("message", line, text=line)

    def take(self, part: Chunk, got: Traces | Failure) -> None:
        """Takes the rows of runs, part of a chunk, or the reason why they failed."""
        if isinstance(got, Failure):
            self.failed(part, got)
            return
        for run, trace in zip(part.runs, got, strict=True):
            last_row = trace[-1]
            value = last_row[self.accuracy_column]
            self.accuracy[run.id] = as_known(value, last_row["status"])
            if value is not None:
                self.last = value
            self.rows += trace
        self.runs += len(got)
        self.unsaved += len(got)
        self.est_done += part.seconds
        self.show(
            "batch",
            rows=sum(map(len, got)),
            runs_executed=self.runs,
            todo=self.n_runs - self.runs,
            accuracy=self.last,
            eta=self.eta,
        )
        self.save()

    def failed(self, rest: Chunk, failure: Failure) -> None:
        """Records a failure, with its runs and the command that tries them again."""
        first, last = rest.runs[0].id, rest.runs[-1].id
        n = len(rest.runs)
        report = failure._asdict() | {
            "jax_version": version("jax"),
            "bucket": str(rest.program),
            "runs": list(by_id(rest.runs)),
            "repeat": self.resume_command,
        }
        path, details = None, ""
        try:
            path = self.store.note(
                f"failures/{first.point_id}-{first.seed}-{n}", report
            )
            if path:
                details = f"details: {path}; "
        except StoreError as refused:
            details = f"details could not be written: {refused}; "
        line = (
            f"failed: {plural(n, 'run')} of program {rest.program}, {first.point_id}"
            f" seed {first.seed} to {last.point_id} seed {last.seed}: {failure.line}"
            f" ({details}to try again: {self.resume_command})"
        )
        self.failures.append(line)
        self.est_seconds -= rest.seconds
        self.show("failed", line, runs=n, details=path and str(path), text=line)

    def save(self, now: bool = False) -> None:
        """Writes the unsaved rows if a part is due, or `now`.

        While the disk refuses, waits and retries as long as tries are left.
        """
        if not self.rows or self.gave_up:
            return
        if not now and time.monotonic() < self.due:
            return
        for n_refused, wait in enumerate((*WAITS, 0.0)):
            try:
                path = self.store.write(self.rows)
            except StoreError as error:
                if not n_refused:
                    self.message(
                        f"{error}. The sweep waits, and saving is retried for"
                        f" {duration(sum(WAITS))}"
                    )
                self._wait(wait)
                continue
            if n_refused:
                self.message(f"saving works again: {len(self.rows)} rows written")
            self.show("part", path=str(path), rows=len(self.rows))
            self.rows, self.unsaved = [], 0
            self.due = time.monotonic() + self.settings.part_seconds
            return
        self.gave_up = True

    def _wait(self, seconds: float) -> None:
        """Waits so long, or until a signal comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.interrupts.requested:
            time.sleep(POLL_SECONDS)

    def show(self, event: str, line: str = "", **facts: object) -> None:
        """Displays an event; see `Shown`."""
        if self.display:
            summary = self.summary() if self.has_begun else ""
            self.display(Shown(event, printable(line), facts, summary))

    @property
    def has_begun(self) -> bool:
        return bool(self.runs or self.failures or self.compile_seconds)

    @property
    def eta(self) -> float | None:
        """Seconds left, also for programs that are still to be compiled.

        There is no estimate before the first row is finished, and in a search.
        """
        if self.search or not self.est_done:
            return None
        elapsed = max(0.0, time.monotonic() - self.start - self.compile_seconds)
        each = self.compile_seconds / max(1, self.n_compiled)
        compilation = max(0, self.n_programs - self.n_compiled) * each
        est_left = max(0.0, self.est_seconds - self.est_done)
        return est_left * elapsed / self.est_done + compilation

    def summary(self) -> str:
        """Runs done, time left, compile time, accuracy of the last run, and failures.

        Short enough for 80 columns.
        """
        if self.search:
            cells = f"{self.search.finished}/{len(self.search.cells)} cells"
            parts = [f"{cells}, round {self.round}, {self.runs} runs"]
        else:
            share = self.est_done / self.est_seconds if self.est_seconds > 0 else 1.0
            parts = [f"{self.runs}/{self.n_runs} runs, {100 * share:.0f} %"]
        eta = self.eta
        if eta is not None:
            parts.append(f"{duration(eta)} left")
        if self.compile_seconds >= 0.1:
            parts.append(f"compiled {duration(self.compile_seconds)}")
        if self.last is not None:
            parts.append(f"last accuracy {self.last:.2f}")
        if self.failures:
            parts.append(f"{len(self.failures)} failed")
        return ", ".join(parts)
