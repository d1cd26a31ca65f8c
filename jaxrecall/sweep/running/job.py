"""A job: a grid, its results folder, and what is missing there. `carry_out` runs it by any executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import version
from itertools import islice
from typing import Any

from ...model.columns import CODE_VERSION
from ...model.point import FIELDS, RunId
from ..grid import Grid
from ..plan import Plan
from ..store.store import PART_ROWS, Store
from .interrupts import Interrupts
from .outcome import Outcome
from .progress import Progress
from .tally import Tally, plural

Executor = Callable[[Plan, Store, Progress, Interrupts, str], Outcome]
"""Carries out a plan: (plan, store, progress, interrupts, resume_command) -> outcome. Rows go to the store."""

PACKAGES = ("jaxrecall", "jax", "jaxlib", "numpy", "pyarrow")
STARTED = ("runs", "done", "todo", "programs", "est_seconds")


class Job(ABC):
    """A grid, its results folder, and what is missing there."""

    def __init__(self, grid: Grid, store: Store, plan: Plan, tally: Tally, resume_command: str):
        self.grid, self.store, self.plan, self.tally, self.resume_command = grid, store, plan, tally, resume_command
        self.n_done = 0
        """Runs of this job that need not run again."""

        self.outcome = Outcome()
        """Of all plans that were carried out, also if a signal ends the call between two of them."""

        self.remarks: list[str] = []
        """Lines to print before the job starts."""

        store.about = {"axes": list(grid.axes), "fixed": _fixed(grid)}

    @property
    @abstractmethod
    def runs(self) -> set[RunId]:
        """All runs of this job, finished or not."""

    @abstractmethod
    def n_others(self, done: set[RunId]) -> int:
        """How many of the runs in the results folder are not of this grid."""

    @property
    @abstractmethod
    def to_do(self) -> bool:
        """Whether anything is missing."""

    @property
    def title(self) -> str:
        return self.grid.name

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The runs that are left and their estimated cost, as plain data."""

    @abstractmethod
    def describe(self) -> list[str]:
        """The same as lines of text, for a dry run."""

    @abstractmethod
    def start_line(self) -> str:
        """The same as one line, printed when the job starts."""

    def start_facts(self) -> dict[str, Any]:
        facts = self.facts()
        return {"grid": self.grid.name, "out": str(self.store.folder), "shard": None, **{name: facts[name] for name in STARTED}}

    def manifest(self) -> dict[str, Any]:
        """The contents of manifest.json: the grid, versions, and the command that resumes the job."""
        return {
            "grid": self.grid.resolved,
            "code_version": CODE_VERSION,
            "precision": self.plan.settings.precision,
            "versions": {name: version(name) for name in PACKAGES},
            "command": self.resume_command,
        }

    @abstractmethod
    def run(self, execute: Callable[[Plan], Outcome], progress: Progress) -> None:
        """Runs what is missing, plan by plan."""

    def has_picture(self, outcome: Outcome) -> bool:
        """Whether there are rows to draw."""
        return self.n_done + outcome.runs > outcome.unsaved

    def table(self) -> list[dict[str, Any]] | None:
        """The rows of the table that ends the call; None: mean accuracy is the table."""
        return None

    def problems(self, outcome: Outcome) -> list[str]:
        """One line for each kind of loss or failure, with the command that resumes the job."""
        lines = []
        if outcome.unsaved:
            lines.append(
                f"{outcome.unsaved} finished runs could not be saved and are lost. To compute just those again: {self.resume_command}"
            )
        if outcome.interrupted:
            lines.append(interrupted(self.resume_command))
        elif outcome.failed:
            lines.append(f"{plural(outcome.failed, 'chunk')} failed, see {self.store.failures}. To try them again: {self.resume_command}")
        return lines


def _fixed(grid: Grid) -> dict[str, Any]:
    """The fields that the grid gives and that have one value over all points."""
    given = dict.fromkeys(grid.resolved["base"])
    for block in grid.resolved.get("blocks", ()):
        axes, zipped = dict(block.get("axes", {})), block.get("axes", {}).get("zip", [])
        for group in (axes, block.get("derive", {}), *(zipped if isinstance(zipped, list) else [zipped])):
            given.update(dict.fromkeys(group))
    values = {name: {getattr(point, name) for point in grid.points} for name in given if name in FIELDS}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def interrupted(resume_command: str) -> str:
    """The line for a call that a signal ended."""
    return f"interrupted; finished runs are kept. To resume: {resume_command}"


def carry_out(job: Job, execute: Executor, progress: Progress, interrupts: Interrupts) -> Outcome:
    """Creates the results folder if needed, and runs what is missing in it; `progress` shows `job.tally`.

    Raises StoreError, also where a part would not fit on the disk, and KeyboardInterrupt where a signal comes before anything runs.
    """
    # of so many runs the rows at least fill what `prepare` asks room for
    first = islice((run for chunk in job.plan.chunks for run in chunk.runs), PART_ROWS if job.to_do else 0)
    job.store.prepare(job.manifest(), sum(len(run.point.recorded_steps) for run in first))
    job.store.clear_failures(job.runs)
    progress.started(job.start_line(), job.start_facts())
    interrupts.message = progress.message

    def counted(plan: Plan) -> Outcome:
        outcome = execute(plan, job.store, progress, interrupts, job.resume_command)
        job.outcome += outcome
        return outcome

    try:
        job.run(counted, progress)
    finally:
        progress.close()
    return job.outcome
