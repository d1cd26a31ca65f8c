"""A job that runs all points and seeds of a grid, or a shard of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.point import Run, RunId
from .. import plan as planning
from ..calibration import cores
from ..grid import Grid
from ..plan import Plan
from ..settings import Settings
from ..shard import Shard, without_shard
from ..store.store import Done, Store
from .job import Job
from .outcome import Outcome
from .progress import Progress
from .tally import Tally, duration, plural


class SweepJob(Job):
    """All runs of a grid, or of a shard of it; `plan` holds those that are missing."""

    def __init__(
        self,
        grid: Grid,
        store: Store,
        done: Done,
        shard: Shard | None,
        pad_to: tuple[int, int, int] | None,
        limit: int,
        settings: Settings,
        resume_command: str,
    ):
        mine = shard.of(grid.points, grid.seeds) if shard else [Run(point, seed) for point in grid.points for seed in grid.seeds]
        plan = planning.make([run for run in mine if run.id not in done.runs], pad_to, limit=limit, settings=settings)
        super().__init__(grid, store, plan, Tally(plan.n_runs, sum(chunk.seconds for chunk in plan.chunks)), resume_command)
        self.shard = shard
        self._runs = {run.id for run in mine}
        self.n_done = len(self._runs) - plan.n_runs

    @property
    def runs(self) -> set[RunId]:
        return self._runs

    def n_others(self, done: set[RunId]) -> int:
        if not done:
            return 0
        points = {point.point_id for point in self.grid.points}
        return sum(run.point_id not in points for run in done)

    @property
    def to_do(self) -> bool:
        return bool(self.plan.chunks)

    @property
    def title(self) -> str:
        return f"{self.grid.name}, {self.shard}" if self.shard else self.grid.name

    def facts(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "points": len({run.point_id for run in self._runs}),
            "runs": len(self._runs),
            "done": self.n_done,
            "todo": plan.n_runs,
            "programs": len(plan.shapes),
            "program_list": plan.describe(),
            "est_flops": plan.flops,
            "est_seconds": plan.seconds,
            "est_peak_bytes": plan.peak_bytes,
        }

    def describe(self) -> list[str]:
        grid, plan = self.grid, self.plan
        left_out = [f", {n} {why}" for n, why in ((grid.n_excluded, "excluded by where"), (grid.n_duplicates, "duplicates dropped")) if n]
        lines = [
            f"{grid.name}: {plural(len(grid.points), 'point')} x {plural(len(grid.seeds), 'seed')} = {plural(grid.n_runs, 'run')}"
            + "".join(left_out)
        ]
        if self.shard:
            lines.append(f"{self.shard}: {len(self._runs)} of these runs")
        lines.append(f"{self.n_done} done in {self.store.folder}, {plan.n_runs} to do")
        lines += map(_of_program, plan.describe())
        lines.append(f"about {plan.flops:.2g} flops, {_time(plan)}, {plan.peak_bytes / 2**20:.0f} MiB of memory")
        return lines

    def start_line(self) -> str:
        plan, folder = self.plan, self.store.folder
        if not self.to_do:
            return f"nothing to do: all {self.n_done} runs {f'of {self.shard} ' if self.shard else ''}are in {folder}"
        return (
            f"{self.title}: {self.n_done} of {len(self._runs)} runs done, {plan.n_runs} to do in {plural(len(plan.shapes), 'program')}, "
            f"about {_time(plan)}; rows go to {folder}"
        )

    def start_facts(self) -> dict[str, Any]:
        return super().start_facts() | {"shard": str(self.shard) if self.shard else None}

    def manifest(self) -> dict[str, Any]:
        command = without_shard(self.resume_command) if self.shard else self.resume_command
        return super().manifest() | {"command": command}

    def run(self, execute: Callable[[Plan], Outcome], progress: Progress) -> None:
        if self.to_do:
            execute(self.plan)

    def has_picture(self, outcome: Outcome) -> bool:
        return super().has_picture(outcome) and not self.shard  # the whole grid's picture is for the call without --shard


def _time(plan: Plan) -> str:
    """The estimate, with that of the full form where shortcuts may save much."""
    in_full = f" ({duration(plan.seconds_in_full)} if no run may take a shortcut)" if plan.seconds_in_full > 2 * plan.seconds else ""
    return f"{duration(plan.seconds)} on {plural(cores(), 'core')}, compilation included{in_full}"


def _of_program(entry: dict[str, Any]) -> str:
    """One line of a dry run."""
    pool = f" pool {entry['pool']}" if entry["pool"] else ""
    further = f" {entry['optimizer']} on {entry['trains']}" if entry["optimizer"] else ""
    runs = ", ".join(plural(entry[f"{noun}s"], noun) for noun in ("point", "run", "chunk"))
    cost = f"about {duration(entry['est_seconds'])}, {entry['est_peak_bytes'] / 2**20:.0f} MiB"
    return f"  program {entry['bucket']} {entry['activation']}{pool}{further}: {runs}, {cost}"
