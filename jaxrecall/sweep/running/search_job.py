"""A job that searches the critical N of every cell of a grid, in rounds of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import StoreError
from ...model.point import RunId
from ..grid import Grid
from ..plan import Plan
from ..search.rounds import Rounds, known_rows
from ..settings import Settings
from ..store.store import Done, Store
from .job import Job
from .outcome import Outcome
from .progress import Progress
from .tally import SearchTally, duration, plural

CELLS = ("root_seed", "base", "blocks")
"""Keys of a grid that say which cells are searched."""


class SearchJob(Job):
    """The searches of all cells of a grid. `plan` is a guess that decides the programs. Rows of the folder are used, not run again."""

    def __init__(
        self,
        grid: Grid,
        store: Store,
        done: Done,
        pad_to: tuple[int, int, int] | None,
        limit: int,
        settings: Settings,
        resume_command: str,
    ):
        self.rounds = Rounds(grid, known_rows(store) if done.runs else {}, pad_to, limit, settings)
        self.search_tally = SearchTally(len(self.rounds.cells), self.rounds.finished)
        super().__init__(grid, store, self.rounds.guess, self.search_tally, resume_command)
        self.n_done = len(self.rounds.used)

    @property
    def runs(self) -> set[RunId]:
        return self.rounds.used | {run.id for run in self.rounds.pending}

    def n_others(self, done: set[RunId]) -> int:
        """Rows of an earlier search of the same cells count as this grid's, whether or not this search uses them."""
        if not done:
            return 0
        try:
            before = (self.store.read_manifest() or {})["grid"]
            same_cells = all(before.get(key) == self.grid.resolved.get(key) for key in CELLS)
        except (StoreError, KeyError, TypeError, AttributeError):  # not a manifest; the next call replaces it
            return 0
        return 0 if same_cells else len(done - self.rounds.used)

    @property
    def to_do(self) -> bool:
        return bool(self.rounds.pending)

    def facts(self) -> dict[str, Any]:
        """Runs and costs are those of the worst case, in which every run that may be left is at the largest N."""
        left = self.rounds.worst_case()
        return {
            "points": len(self.grid.points),
            "runs": len(self.rounds.used) + left.n_runs,
            "done": self.n_done,
            "todo": left.n_runs,
            "programs": len(self.plan.shapes),
            "program_list": self.rounds.programs(),
            "est_flops": left.flops,
            "est_seconds": left.seconds,
            "est_peak_bytes": self.plan.peak_bytes,
            "searches": len(self.rounds.cells),
            "finished": self.rounds.finished,
        }

    def describe(self) -> list[str]:
        facts = self.facts()
        programs = plural(facts["programs"], "program")
        return [
            f"{self.grid.name}: {self.rounds}",
            f"{plural(self.n_done, 'run')} done in {self.store.folder}, at most {facts['todo']} to do in {programs}",
            f"about {duration(self.rounds.likely_seconds())} if cells cross in the middle of the range, "
            f"{duration(facts['est_seconds'])} if every run were at the largest N",
        ]

    def start_line(self) -> str:
        if not self.to_do:
            return f"nothing to do: all {self.n_done} runs are in {self.store.folder}"
        return f"{self.grid.name}: {self.rounds}, {plural(self.n_done, 'run')} done; rows go to {self.store.folder}"

    def run(self, execute: Callable[[Plan], Outcome], progress: Progress) -> None:
        """Runs rounds until every cell is finished or waits for a failed run, or the call is to stop. Then writes search.json."""
        rounds, failed = self.rounds, set[RunId]()
        while runs := [run for run in rounds.pending if run.id not in failed]:
            self.search_tally.next_round(len(runs))
            outcome = execute(rounds.plan(runs))
            rounds.update(outcome.accuracy)
            self.search_tally.finished = rounds.finished
            self.search_tally.est_done = float(rounds.finished)
            failed |= {run.id for run in runs} - outcome.accuracy.keys()
            if outcome.interrupted or outcome.unsaved or (outcome.failed and self.plan.settings.fail_fast):
                break
        progress.searched(self.store.note("search", rounds.report()), len(rounds.cells), rounds.finished)

    def table(self) -> list[dict[str, Any]]:
        """One row per cell and theta."""
        return [{name: value for name, value in row.items() if name != "point"} for row in self.rounds.table()]
