"""The record of a call: its finished runs, whose rows are saved, its failures, and how
far it is.

And the runs of a plan in this process, of any simulator, with several batches always in
progress.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.pool import AsyncResult, ThreadPool

from threadpoolctl import threadpool_limits

from ...cli.process import FAILED, INTERRUPTED, OK, Interrupts
from ...errors import OutOfMemory, StoreError, plural, printable
from ...model.point import Run, RunId
from ..files import Json
from ..grid.file import Settings
from ..machine import cores
from ..plan import Chunk, Plan, pieces
from ..rounds import Rounds, as_known
from ..simulators import Loaded, Program, Rows
from ..store import Store
from .progress import Display, Event, Failure, Shown, Traces, duration

WAITS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
"""Seconds from one refused write to the next try; the last refusal gives up."""

POLL_SECONDS = 0.05


@dataclass
class Record:
    """What has happened in a call, whatever carries it out, told to a display.

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
    search: Rounds | None = None
    display: Display | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)

    n_runs: int = 0
    """To be computed, as far as known."""

    est_seconds: float = 0.0
    """That they take."""

    n_programs: int = 0
    round: int = 0
    runs: int = 0
    """Computed."""

    unsaved: int = 0
    """Of those, the ones whose rows are not saved."""

    failures: list[str] = field(default_factory=list)
    """One line for each chunk that failed."""

    accuracy: dict[RunId, float | None] = field(default_factory=dict)
    """Accuracy of the computed runs at their last step, or what
    else a search decides by, as `rounds.Known` has it.
    """

    last: float | None = None
    """The last of these that is a number."""

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
        return FAILED if self.failures or self.unsaved else OK

    @property
    def stopping(self) -> bool:
        """Whether no more chunks should start."""
        return (
            self.interrupts.requested
            or self.gave_up
            or (self.settings.fail_fast and bool(self.failures))
        )

    def hear(self, event: Event, who: str = "", share: float = 1.0) -> None:
        """Takes an event about programs: one is being compiled or loaded, it is ready,
        or a message.

        The time before the first program does not count.

        Args:
            event: as `Runner` tells it.
            who: the worker that tells it.
            share: the part of its seconds that counts; of K workers that compile at
                once, 1 / K.
        """
        match event:
            case "compiling", program:
                self.start = self.start if self.has_begun else time.monotonic()
                self.tell("compiling", f"compiling {program}", program=program)
            case "compiled", program, seconds:
                self.start = min(
                    self.start, time.monotonic() - share * seconds
                )  # a task of Ray tells of both at its first batch
                self.compile_seconds += share * seconds
                self.n_compiled += 1
                self.tell("compiled", program, program=program, seconds=share * seconds)
            case "message", line:
                self.message(f"{who}{line}")

    def message(self, line: str) -> None:
        self.tell("message", line, text=line)

    def take(self, part: Chunk, got: Traces | Failure) -> None:
        """Takes the rows of runs, part of a chunk, or how they failed."""
        if isinstance(got, Failure):
            self.failed(part, got)
            return
        for run, trace in zip(part.runs, got, strict=True):
            value = trace[-1][self.accuracy_column]
            self.accuracy[run.id] = as_known(value, trace[-1]["status"])
            self.last = self.last if value is None else value
            self.rows += trace
        self.runs += len(got)
        self.unsaved += len(got)
        self.est_done += part.seconds
        counts = {
            "rows": sum(map(len, got)),
            "runs_executed": self.runs,
            "todo": self.n_runs - self.runs,
        }
        self.tell("batch", "", **counts, accuracy=self.last, eta=self.eta)
        self.save()

    def failed(self, rest: Chunk, failure: Failure) -> None:
        """Records a failure, with its runs and the command that tries them again."""
        first, last, n = rest.runs[0].id, rest.runs[-1].id, len(rest.runs)
        record = {
            **failure._asdict(),
            "jax_version": version("jax"),
            "bucket": str(rest.program),
        }
        record |= {"runs": [run.id for run in rest.runs], "repeat": self.resume_command}
        path = None
        try:
            path = self.store.note(
                f"failures/{first.point_id}-{first.seed}-{n}", record
            )
            details = f"details: {path}; " if path else ""
        except StoreError as refused:
            details = f"details could not be written: {refused}; "
        line = (
            f"failed: {plural(n, 'run')} of program {rest.program}, {first.point_id}"
            f" seed {first.seed} to {last.point_id} seed {last.seed}: {failure.line}"
            f" ({details}to try again: {self.resume_command})"
        )
        self.failures.append(line)
        self.est_seconds -= rest.seconds
        self.tell("failed", line, runs=n, details=path and str(path), text=line)

    def save(self, now: bool = False) -> None:
        """Writes the unsaved rows if a part is due, or `now`.

        While the disk refuses, waits and retries as long as tries are left.
        """
        if not self.rows or self.gave_up or not (now or time.monotonic() >= self.due):
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
                end = time.monotonic() + wait
                while time.monotonic() < end and not self.interrupts.requested:
                    time.sleep(POLL_SECONDS)
                continue
            if n_refused:
                self.message(f"saving works again: {len(self.rows)} rows written")
            self.tell("part", path=str(path), rows=len(self.rows))
            self.rows, self.unsaved = [], 0
            self.due = time.monotonic() + self.settings.part_seconds
            return
        self.gave_up = True

    def tell(self, event: str, line: str = "", **facts: object) -> None:
        """Displays an event; see `Shown`."""
        if self.display:
            self.display(
                Shown(
                    event,
                    printable(line),
                    facts,
                    self.summary() if self.has_begun else "",
                )
            )

    @property
    def has_begun(self) -> bool:
        return bool(self.runs or self.failures or self.compile_seconds)

    @property
    def eta(self) -> float | None:
        """Seconds left, programs still to be compiled counted; None before the first
        row is finished, and in a search.
        """
        if self.search or not self.est_done:
            return None
        elapsed = max(0.0, time.monotonic() - self.start - self.compile_seconds)
        compilation = (
            max(0, self.n_programs - self.n_compiled)
            * self.compile_seconds
            / max(1, self.n_compiled)
        )
        return (
            max(0.0, self.est_seconds - self.est_done) * elapsed / self.est_done
            + compilation
        )

    def summary(self) -> str:
        """Runs done, time left, compile time, accuracy of the last run, and failures.

        Short enough for 80 columns.
        """
        share = self.est_done / self.est_seconds if self.est_seconds > 0 else 1.0
        parts = [f"{self.runs}/{self.n_runs} runs, {100 * share:.0f} %"]
        if self.search:
            parts = [
                f"{self.search.finished}/{len(self.search.cells)} cells, round"
                f" {self.round}, {self.runs} runs"
            ]
        if (eta := self.eta) is not None:
            parts.append(f"{duration(eta)} left")
        if self.compile_seconds >= 0.1:
            parts.append(f"compiled {duration(self.compile_seconds)}")
        if self.last is not None:
            parts.append(f"last accuracy {self.last:.2f}")
        if self.failures:
            parts.append(f"{len(self.failures)} failed")
        return ", ".join(parts)


BATCH_SECONDS = 0.25
ANNOUNCED_SECONDS = 10.0
SMALL_ETA = 1e-6
"""With this rate of step 1, that of the shipped studies, predictions
are as good as uniform in all three gradients; docs/running.md.
"""

Costs = dict[Run, float]
"""Runs, and the seconds that each is estimated to take on one core."""

Found = list[Rows | Exception | None]


class Runner:
    """Runs chunks batch by batch through compiled programs; `tell` takes the events
    about programs.
    """

    def __init__(self, plan: Plan, tell: Callable[[Event], None]):
        self.plan, self.tell, self.simulator = plan, tell, plan.simulator
        self.batch_seconds = min(BATCH_SECONDS, plan.settings.part_seconds)
        self.width: dict[Program, int] = {}
        """How many runs of a program share the memory."""

        self.announced: set[Program] = set()

    def rows(self, chunk: Chunk) -> Iterator[tuple[list[Run], Traces | Failure]]:
        """Runs of the chunk and their rows, or the Failure of these alone, batch by
        batch.

        Runs that a program rejects come last, in its fallback. An exception is one of
        all that are left. Starts JAX.

        Where memory runs out, the width of this program is halved for the rest of the
        call.
        """
        rejected: list[Run] = []
        for program, runs in (
            (chunk.program, list(chunk.runs)),
            (chunk.program.fallback, rejected),
        ):
            if program is None:
                break
            left = dict.fromkeys(runs)
            if left and program == chunk.program.fallback:
                self._announce(program, runs)
            while left:
                if program not in self.width:
                    self.width[program] = self.simulator.width(
                        program, chunk.seconds / len(chunk.runs), self.plan.room
                    )
                width = self.width[program]
                try:
                    for batch, found in self._batches(program, list(left), width):
                        rejected += [
                            run
                            for run, rows in zip(batch, found, strict=True)
                            if rows is None
                        ]
                        yield from _sorted(batch, found)
                        for run in batch:
                            del left[run]
                except OutOfMemory as error:
                    if width == 1:
                        yield (
                            [*left, *(rejected if program == chunk.program else ())],
                            Failure.of(error),
                        )
                        return
                    self.width[program] = width // 2
                    told = (
                        str(error)
                        if "limits.max_bytes" in str(error)
                        else f"out of memory with {width} runs at a time"
                    )
                    self.tell(
                        (
                            "message",
                            f"program {program}: {told}; continuing with {width // 2}",
                        )
                    )

    def _announce(self, program: Program, runs: list[Run]) -> None:
        """Says that runs were rejected by an error bound where they take long: no
        estimate before has counted them.
        """
        seconds = sum(self.plan.seconds_of(run, program) for run in runs) / cores()
        if seconds > ANNOUNCED_SECONDS:
            hint = (
                f"; a smaller eta may allow it, as {SMALL_ETA:g}"
                if any(run.point.eta > SMALL_ETA for run in runs)
                else ""
            )
            line = (
                f"program {program}: {len(runs)} runs may not take a shortcut, about"
                f" {duration(seconds)} more{hint}"
            )
            self.tell(("message", line))

    def _loaded(self, program: Program, width: int) -> Loaded:
        """The program, announced if it is new here."""
        if program in self.announced:
            return self.simulator.run(program, width, self.plan.room)
        self.announced.add(program)
        self.tell(("compiling", str(program)))
        start = time.perf_counter()
        loaded = self.simulator.run(program, width, self.plan.room)
        self.tell(("compiled", str(program), time.perf_counter() - start))
        return loaded

    def _batches(
        self, program: Program, runs: list[Run], width: int
    ) -> Iterator[tuple[Costs, Found]]:
        """Batches of runs with their estimated costs, and what became of them, in
        order.
        """
        loaded = self._loaded(program, width)
        with _pool(loaded.threads) as pool:
            ahead: deque[tuple[Costs, AsyncResult[Found] | None]] = deque()
            for batch in (*self._by_cost(program, runs, loaded), None):
                if batch:
                    ahead.append(
                        (batch, pool and pool.apply_async(loaded.run, (batch,)))
                    )
                while len(ahead) > (loaded.threads if batch else 0):
                    done, result = ahead.popleft()
                    try:
                        found = result.get() if result else loaded.run(done)
                    except Exception:
                        for other in filter(
                            None, (other for _, other in ahead)
                        ):  # so that their memory is free again
                            other.wait()
                        raise
                    yield done, found

    def _by_cost(
        self, program: Program, runs: list[Run], loaded: Loaded
    ) -> Iterator[Costs]:
        """Batches of at most as many runs as a program takes and `batch_seconds` of
        work.

        They are small enough to go round all threads where the runs of a batch take
        turns.

        The most expensive come first, so that all threads finish at about the same
        time. Batches that run together are of similar length.
        """
        most = (
            min(loaded.most, max(1, len(runs) // (4 * loaded.threads)))
            if loaded.in_turn
            else loaded.most
        )
        costs = {run: self.plan.seconds_of(run, program) for run in runs}
        largest_first = sorted(costs.items(), key=lambda item: -item[1])
        return (
            {run: costs[run] for run in batch}
            for batch, _ in pieces(largest_first, most, self.batch_seconds)
        )


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPool | None]:
    """Threads for batches; none where they run in the calling one.

    Decoders run on the host, one thread each: BLAS threads of all of them would wait
    for each other, and wait busily. The pool's threads are daemons: an interrupted
    sweep does not wait for them.
    """
    if not threads:
        yield None
        return
    with threadpool_limits(1, user_api="blas"), ThreadPool(threads) as pool:
        yield pool


def _sorted(
    batch: Costs, found: Sequence[Rows | Exception | None]
) -> Iterator[tuple[list[Run], Traces | Failure]]:
    """The runs with rows, then those that failed, together where for the same
    reason.
    """
    done = {
        run: rows
        for run, rows in zip(batch, found, strict=True)
        if rows is not None and not isinstance(rows, Exception)
    }
    if done:
        yield list(done), list(done.values())
    failed: dict[str, tuple[list[Run], Failure]] = {}
    for run, error in zip(batch, found, strict=True):
        if isinstance(error, Exception):
            failed.setdefault(str(error), ([], Failure.of(error)))[0].append(run)
    yield from failed.values()


def execute(plan: Plan, record: Record) -> None:
    """Runs every chunk of a plan in this process. A chunk that fails is reported, and
    the others run.
    """
    with record.interrupts.deferred():  # JAX starts
        runner = Runner(plan, record.hear)
    with record.interrupts.patient():
        for chunk in plan.chunks:
            if record.stopping:
                break
            _run(chunk, runner.rows(chunk), record)
            record.save(now=True)


def _run(
    chunk: Chunk, batches: Iterator[tuple[list[Run], Traces | Failure]], record: Record
) -> None:
    """Runs a chunk until it is finished, fails or is to stop."""
    left = {run.id: run for run in chunk.runs}
    while left and not record.stopping:
        try:
            with record.interrupts.droppable():
                runs, got = next(batches)
        except KeyboardInterrupt:
            return
        except Exception as error:
            record.failed(chunk.part(list(left.values())), Failure.of(error))
            return
        for run in runs:
            del left[run.id]
        record.take(chunk.part(runs), got)
