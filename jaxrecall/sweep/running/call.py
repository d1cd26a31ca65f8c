"""Records the progress of a call: finished runs, saved rows, and failures."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from ...cli.process import FAILED, INTERRUPTED, OK, Interrupts
from ...errors import StoreError, plural, printable
from ...model.point import RunId
from ..files import Json
from ..grid.file import Settings
from ..plan import Chunk, by_id
from ..store import Store, kind_of
from .mistakes import MAX_KINDS, Mistake
from .progress import Display, Event, Failure, Traces, duration

if TYPE_CHECKING:
    from ..searches import Searches

WAITS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
"""The number of seconds to wait after each failed write before the next attempt. If the
last attempt also fails, the call gives up.
"""

POLL_SECONDS = 0.05


def as_known(value: float | None, status: str) -> float | None:
    """Returns the value in `searches.KnownAccuracies` for a row with this value and
    status.
    """
    return math.nan if value is None and status != "nonfinite" else value


@dataclass
class Call:
    """The progress of a call, and its unsaved rows. Every engine uses this class.

    The display shows each event. Rows are written to a new part file every
    `part_seconds`. All rows of a run are written to the same file. A failed write is
    reported immediately and retried after increasing delays. If the last attempt fails,
    `gave_up` becomes true, and the unsaved rows are lost when the process ends.

    The time left is computed from the estimated cost and the measured speed. The cost
    of a search is not known in advance, so the number of finished cells is shown
    instead.
    """

    store: Store
    settings: Settings = field(default_factory=Settings)
    resume_command: str = ""
    accuracy_column: str = "accuracy"
    search: Searches | None = None
    display: Display | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)

    n_runs: int = 0
    """The number of runs to compute. In a search, it grows with every round."""

    est_seconds: float = 0.0
    """The estimated wall time of the runs to compute, in seconds."""

    n_programs: int = 0
    round: int = 0
    runs: int = 0
    """The number of computed runs."""

    unsaved: int = 0
    """The number of computed runs whose rows have not been saved."""

    failures: dict[str, Mistake] = field(default_factory=dict)
    """A dict from each kind of error to the runs that failed with it."""

    accuracy: dict[RunId, float | None] = field(default_factory=dict)
    """A dict from each computed run to its accuracy at the last step, as returned by
    `as_known`. If a search uses another column, the dict contains the values of that
    column.
    """

    last: float | None = None
    """The accuracy of the latest computed run. Runs without an accuracy are skipped."""

    gave_up: bool = False
    est_done: float = 0.0
    est_failed: float = 0.0
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
        """Whether the call must not start further chunks."""
        failed_fast = self.settings.fail_fast and bool(self.failures)
        ended = self.gave_up or failed_fast or self.is_hopeless
        return self.interrupts.requested or ended

    @property
    def is_hopeless(self) -> bool:
        """Whether no run succeeded and so many failed alike that the call ends."""
        if self.runs or self.settings.keep_going:
            return False
        return any(mistake.is_common for mistake in self.failures.values())

    @property
    def n_failed(self) -> int:
        """The number of runs that failed."""
        return sum(mistake.n_runs for mistake in self.failures.values())

    def handle(self, event: Event, who: str = "", share: float = 1.0) -> None:
        """Handles an event about programs: `compiling`, `compiled` or `message`.

        The clock of the call is reset when the first program starts to compile.

        Args:
            event: an event of a `Runner`.
            who: a prefix for messages, which identifies the worker.
            share: the fraction of the compile time that is added to the total. It is 1
                / K if K workers compile at the same time.
        """
        match event:
            case "compiling", program:
                if not self.has_begun:
                    self.start = time.monotonic()
                self.show("compiling", f"compiling {program}", program=program)
            case "compiled", program, seconds:
                own = share * seconds
                self.compile_seconds += own
                self.n_compiled += 1
                self.show("compiled", program, program=program, seconds=own)
            case "message", line:
                self.message(f"{who}{line}")

    def message(self, line: str) -> None:
        self.show("message", line, text=line)

    def take(self, part: Chunk, got: Traces | Failure) -> None:
        """Records either the rows of the runs in `part` or their common failure.

        `part` contains some or all runs of a chunk.
        """
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
        """Records a failure, the runs that failed, and the command that runs them
        again.

        The first failure of a kind is shown at once. Equal ones are only counted.
        """
        self.est_failed += rest.seconds
        runs = list(by_id(rest.runs))
        kind = kind_of(failure.error)
        if kind not in self.failures and len(self.failures) >= MAX_KINDS:
            kind = "other errors"
        if kind in self.failures:
            self.failures[kind].add(runs, self.store)
            self.show("failed")
            return
        first, last, n = runs[0], runs[-1], len(runs)
        report = failure._asdict() | {
            "jax_version": version("jax"),
            "bucket": str(rest.program),
            "runs": {},
            "repeat": self.resume_command,
        }
        mistake = Mistake(f"{first.point_id}-{first.seed}-{n}", failure.line, report)
        self.failures[kind] = mistake
        mistake.add(runs, self.store)
        self._tell(
            mistake,
            f"failed: {plural(n, 'run')} of program {rest.program}, {first.point_id}"
            f" seed {first.seed} to {last.point_id} seed {last.seed}: {mistake}; to try"
            f" again: {self.resume_command}",
        )

    def _tell(self, mistake: Mistake, line: str) -> None:
        details = mistake.details or None
        self.show("failed", line, runs=mistake.n_runs, details=details, text=line)

    def close(self) -> None:
        """Shows how many runs failed with equal errors, and closes the display."""
        for mistake in self.failures.values():
            if mistake.n_times > 1:
                mistake.record(self.store)
                self._tell(mistake, mistake.total)
        self.show("close")

    def early_end(self, option: str) -> str:
        """Returns a sentence if the call ended because its first runs all failed.
        `option` states how to run the others. The text is empty otherwise.
        """
        n_left = self.n_runs - self.runs - self.n_failed
        if not self.is_hopeless or not n_left:
            return ""
        return (
            f"The first {self.n_failed} runs all failed, so {n_left} others were left"
            f" out; {option} runs them, too"
        )

    def save(self, now: bool = False) -> None:
        """Writes the unsaved rows if a part file is due, or if `now` is true.

        If the write fails, the method waits and tries again, once for each of `WAITS`.
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
        """Waits for `seconds`, or until a signal arrives."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.interrupts.requested:
            time.sleep(POLL_SECONDS)

    def show(self, event: str, line: str = "", **facts: object) -> None:
        """Passes an event to the display; see `Display`."""
        if self.display:
            summary = self.summary() if self.has_begun else ""
            self.display(event, printable(line), facts, summary)

    @property
    def has_begun(self) -> bool:
        return bool(self.runs or self.failures or self.compile_seconds)

    @property
    def eta(self) -> float | None:
        """The estimated number of seconds left, including the time to compile programs.

        The estimate is None in a search, and until the first run has finished.
        """
        if self.search or not self.est_done:
            return None
        each = self.compile_seconds / max(1, self.n_compiled)
        compilation = max(0, self.n_programs - self.n_compiled) * each
        est_left = max(0.0, self.est_seconds - self.est_done - self.est_failed)
        return est_left * self.run_seconds / self.est_done + compilation

    @property
    def run_seconds(self) -> float:
        """The number of seconds so far, without those for which programs compiled."""
        return max(0.0, time.monotonic() - self.start - self.compile_seconds)

    def summary(self) -> str:
        """Returns a line that describes the progress of the call.

        The line contains the number of finished runs, the time left, the compile time,
        the last measure, and the number of failures. It has at most 80 characters.
        """
        if self.search:
            cells = f"{self.search.finished}/{len(self.search.cells)} configurations"
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
            parts.append(f"last {self.accuracy_column} {self.last:.2f}")
        if self.failures:
            parts.append(f"{self.n_failed} failed")
        return ", ".join(parts)
