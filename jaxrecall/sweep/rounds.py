"""The searches of all cells of a grid, in rounds.

The runs that all cells need next form one round of ordinary runs.

Programs are chosen by the cell and its requests alone, so that a resumed search takes
the same ones. Rows that are in the folder are looked up instead of run. So a search
that was stopped repeats the same requests and resumes where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial

from ..errors import GridError, plural
from ..model.point import Run, RunId
from .files import Json
from .grid import Grid
from .grid.axes import AnyPoint, Names
from .grid.expand import SearchLine
from .grid.file import Settings, plain
from .machine import cores
from .plan import Plan
from .plan import make as make_plan
from .search import OUTCOMES, CellSearch, Request, Target, farthest
from .simulators import Program, SimulatorLike, Sizes, program_of

RUNS_PER_CELL, ROUNDS = 60, 25
"""Of a usual search: a guess, to weigh padding against compiling and to say how long it
takes.
"""

ROUND_SECONDS = 0.03
"""What planning, saving and learning take in a round, besides its runs."""

CHECKED = ("d", "m", "V", "L")
"""Axes besides those with `rises` whose direction is
checked where accuracy is beyond theta at the first level.
"""

TIER = 2
"""Levels that lie within such a factor share a program; a plan merges those of several
where that saves time.
"""

Known = dict[RunId, float | None]
"""Accuracy of runs, or what else crosses theta; None: nonfinite, NaN: a row without it.
"""


def as_known(value: float | None, status: str) -> float | None:
    """An accuracy as `Known` holds it, from its column and that of the status."""
    return math.nan if value is None and status != "nonfinite" else value


class Cell:
    """The points along the searched axis at fixed values of all else, and the search on
    them.

    It is for one theta.

    Attributes:
        points: by level, in ascending order.
        point: the first of them.
        following: its fields that vary along the axis.
        tiers: levels whose programs serve those below them; one in the middle where all
            have the same sizes.
    """

    def __init__(self, line: SearchLine, target: Target, simulator: SimulatorLike):
        self.line, self.search = line, CellSearch(target)
        self.points = line.levels
        levels = list(self.points)
        self.point = self.points[levels[0]]
        given = self.points[levels[-1]].as_given()
        self.following = {
            name
            for name, value in self.point.as_given().items()
            if value != given[name]
        }
        self.tiers = _tiers(self.points, simulator)

    def run(self, request: Request) -> Run:
        level, seed = request
        return Run(self.points[level], seed)

    def tier(self, level: float) -> AnyPoint:
        """The point whose program serves a level."""
        return self.points[
            next((top for top in self.tiers if top >= level), self.tiers[-1])
        ]

    @property
    def warning(self) -> str:
        """What to be careful about, empty if nothing."""
        target, levels, found = self.search.target, list(self.points), []
        if self.line.bounded:
            found.append(
                f"bounded by {self.line.bounded}: only {levels[0]:g} to {levels[-1]:g}"
                " are valid"
            )
        if self.search.against:
            found.append(
                f"accuracy {'falls' if target.rises else 'rises'} along the axis: try"
                f" rises: {str(not target.rises).lower()}"
            )
        return "; ".join(found)


def _tiers(points: Mapping[float, AnyPoint], simulator: SimulatorLike) -> list[float]:
    """Levels whose programs serve those below them.

    The largest within each factor of TIER, or one in the middle where no size varies.
    """
    levels = list(points)
    if (
        len(
            {
                str(program_of(simulator, points[level]))
                for level in (levels[0], levels[-1])
            }
        )
        == 1
    ):
        return [levels[len(levels) // 2]]
    tops = [levels[-1]]
    for level in reversed(levels):
        if level * TIER <= tops[0]:
            tops.insert(0, level)
    return tops


def _usual_runs(points: Iterable[AnyPoint]) -> list[Run]:
    return [Run(point, seed) for point in points for seed in range(RUNS_PER_CELL)]


class Rounds:
    """All cells of a grid that has a `search`, and the accuracies known so far.

    `pending` are the runs of the next round, each once: those that unfinished cells
    wait for. `used` are the runs whose accuracy a cell has received.
    """

    def __init__(
        self,
        grid: Grid,
        known: Known,
        settings: Settings | None = None,
        pad_to: Sizes | None = None,
        limit: int | None = None,
    ):
        assert grid.search
        search = grid.search
        self.search, self.simulator, self.axis = search, grid.simulator, search.axis

        names = Names(grid.simulator)
        self._value = names.value
        k_of = {level: k for k, level in search.lattice(names).items()}
        checks, away = (
            search.rises is not None or search.axis in CHECKED,
            farthest(search.axis, search.width),
        )
        goal = partial(
            Target,
            width=search.width,
            max_runs=search.max_runs,
            seeds=grid.seeds,
            rises=search.rising,
        )
        self.cells = [
            Cell(
                line,
                goal(
                    theta,
                    {k_of[level]: level for level in line.levels},
                    checks=checks,
                    farthest=away,
                ),
                grid.simulator,
            )
            for line in grid.lines
            for theta in search.theta
        ]
        self.axes = [
            axis
            for axis in grid.axes
            if axis != search.axis
            and all(axis not in cell.following for cell in self.cells)
        ]
        self.used: set[RunId] = set()
        self._known = known
        self._pad_to, self._plan = (
            pad_to,
            partial(
                make_plan, limit=limit, settings=settings, simulator=grid.simulator
            ),
        )
        self._tiers: dict[AnyPoint, AnyPoint] = {}
        self.pending = self._advanced()

    def update(self, accuracy: Mapping[RunId, float | None]) -> None:
        """Takes the accuracy of runs, and advances every cell as far as possible."""
        self._known.update(accuracy)
        self.pending = self._advanced()

    def _advanced(self) -> list[Run]:
        pending: dict[RunId, Run] = {}
        for cell in self.cells:
            while requests := cell.search.pending:
                runs = {run.id: run for run in map(cell.run, requests)}
                if missing := {
                    name: run for name, run in runs.items() if name not in self._known
                }:
                    pending |= missing
                    self._tiers |= {
                        cell.points[level]: cell.tier(level) for level, _ in requests
                    }
                    break
                cell.search.update([self._fraction(name) for name in runs])
                self.used.update(runs)
        return list(pending.values())

    def _fraction(self, name: RunId) -> float | None:
        """The known accuracy of a run; raises GridError where a row has none, or none
        from 0 to 1.
        """
        value = self._known[name]
        if value is None or 0 <= value <= 1:
            return value
        row = (
            f"{'null' if math.isnan(value) else format(value, 'g')} in a row"
            f" ({name.point_id}, seed {name.seed})"
        )
        raise GridError(
            f"search.of: got {self.search.of}, which is {row}; allowed: a column that"
            " is a fraction from 0 to 1 in every row"
        )

    @cached_property
    def _programs(self) -> dict[AnyPoint, Program]:
        """The program of each tier, by its point. They depend on the cells alone, so
        that every call decides the same.
        """
        tops = dict.fromkeys(
            cell.points[top] for cell in self.cells for top in cell.tiers
        )
        plan = self._plan(_usual_runs(tops), pad_to=self._pad_to)
        return {run.point: chunk.program for chunk in plan.chunks for run in chunk.runs}

    @cached_property
    def guess(self) -> Plan:
        """The usual runs of all tiers."""
        return self._plan(
            _usual_runs(self._programs), program=self._programs.__getitem__
        )

    @property
    def finished(self) -> int:
        return sum(cell.search.result is not None for cell in self.cells)

    def plan(self, runs: Sequence[Run]) -> Plan:
        """The plan of a round: each run in its program, in batches of one size whatever
        the round.
        """
        batch = max(1, len(self.cells) // (4 * len(self.guess.peaks)))
        return self._plan(
            runs,
            program=lambda point: program_of(
                self.simulator, point, self._programs[self._tiers[point]]
            ),
            batch=batch,
        )

    def programs(self) -> list[Json]:
        """The programs, before any run: what a guess says of their runs is left out.

        Of a user's simulator all that its levels could need.
        """
        if not (facts := self.simulator.facts).is_ours:
            static = {
                name
                for name, f in facts.fields.items()
                if f.metadata["kind"] == "static"
            }
            points = (
                point
                for cell in self.cells
                for point in (
                    cell.points.values() if cell.following & static else [cell.point]
                )
            )
            return [
                {"bucket": str(program)}
                for program in sorted(
                    {program_of(self.simulator, point) for point in points}
                )
            ]
        guessed = ("runs", "chunks", "est_seconds")
        return [
            {key: value for key, value in entry.items() if key not in guessed}
            for entry in self.guess.describe()
        ]

    def likely_seconds(self) -> float:
        """Wall time that is left if cells cross in the middle of the range after the
        usual number of runs.
        """
        left = [cell for cell in self.cells if not cell.search.result]
        return self._cost(
            [
                (
                    cell,
                    len(cell.points) // 2,
                    max(RUNS_PER_CELL - len(cell.search.accuracy), 1),
                )
                for cell in left
            ]
        )[0]

    def worst_case(self) -> tuple[int, float, float]:
        """Runs, flops and seconds of the worst case of what is left.

        All that the cells may still use, at the largest level.
        """
        left = [
            (cell, -1, self.search.max_runs - len(cell.search.accuracy))
            for cell in self.cells
            if not cell.search.result
        ]
        seconds, flops = self._cost(left)
        return sum(n for *_, n in left), flops, seconds

    def _cost(self, runs: Sequence[tuple[Cell, int, int]]) -> tuple[float, float]:
        """Wall time of so many runs of each cell at one of its levels, and their
        operations.

        Some of them are rejected by an error bound.
        """
        programs: dict[
            Program, None
        ] = {}  # in order, so that sums have the same last digit in every process
        seconds, flops = ROUNDS * ROUND_SECONDS if runs else 0.0, 0.0
        for cell, i, n in runs:
            level = list(cell.points)[i]
            point = cell.points[level]
            program = program_of(
                self.simulator, point, self._programs[cell.tier(level)]
            )
            cost = self.simulator.cost(program, point)
            seconds += n * cost.seconds / cores()
            flops += n * cost.flops
            programs |= dict.fromkeys((program, program.fallback or program))
        return seconds + sum(each.compile_seconds for each in programs), flops

    def __str__(self) -> str:
        theta = ", ".join(f"{theta:g}" for theta in self.search.theta)
        finished = f"{self.finished} of {len(self.cells)} finished"
        cells = plural(len(self.cells) // len(self.search.theta), "cell")
        return (
            f"search for the {self.axis} where accuracy crosses {theta} in {cells},"
            f" {finished}"
        )

    def report(self) -> Json:
        """The contents of search.json: the settings, and the table with the full point
        of each entry.
        """
        cells = []
        for cell, entry in zip(self.cells, self.table(), strict=True):
            point = {
                name: value
                for name, value in cell.point.as_given().items()
                if name not in (self.axis, *cell.following)
            }
            cells.append(entry | {"point": point})
        return {"search": plain(self.search), "outcomes": OUTCOMES, "cells": cells}

    def table(self) -> list[Json]:
        """One entry per cell and theta: the crossing, its interval, the outcome, and
        the cost.

        The interval is null if there is none.
        """
        return [self._entry(cell) for cell in self.cells]

    def _entry(self, cell: Cell) -> Json:
        search = cell.search
        outcome, found = (search.result or ("unfinished", None))[:2]
        critical = math.exp(found.log_x) if found else None
        lo, hi = (
            (math.exp(found.lo), math.exp(found.hi))
            if found and math.isfinite(found.width)
            else (None, None)
        )
        return {
            **{axis: self._value(cell.point, axis) for axis in self.axes},
            **cell.line.helpers,
            "theta": search.target.theta,
            "axis": self.axis,
            "critical": critical,
            "lo": lo,
            "hi": hi,
            "N_star": critical if self.axis == "N" else None,
            "outcome": outcome,
            "seeds": (
                found.n_seeds if found else len({seed for _, seed in search.accuracy})
            ),
            "runs": len(search.accuracy),
            "samples": (
                sum(cell.points[level].N for level, _ in search.completed)
                if "N" in self.simulator.facts.fields
                else None
            ),
            "warning": cell.warning,
        }
