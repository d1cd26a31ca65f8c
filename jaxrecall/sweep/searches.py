"""Runs the searches of all cells of a grid in rounds.

A round consists of the ordinary runs that all cells need next.

The programs depend only on the cell and its requests, so a resumed search uses the same
ones. Rows that are in the folder are looked up instead of run. So a search that was
stopped repeats the same requests and resumes where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial

from ..errors import GridError, plural
from ..model.point import Run, RunId
from .files import Json
from .grid import Grid, Search
from .grid.axes import AnyPoint, Names
from .grid.expand import SearchLine
from .grid.file import Settings, plain
from .machine import cores
from .plan import Plan, by_id, make_plan
from .search import OUTCOMES, CellSearch, Request, Target, farthest
from .simulators import Program, SimulatorLike, Sizes, program_of

RUNS_PER_CELL, ROUNDS = 60, 25
"""Guesses of the runs of a cell and of the rounds of a search. They are used to weigh
padding against compiling and to estimate the time.
"""

ROUND_SECONDS = 0.03
"""The seconds that planning, saving and updating the cells take in a round."""

CHECKED = ("d", "m", "V", "L")
"""The axes, in addition to those with `rises`, whose direction is checked if a cell has
no crossing.
"""

TIER = 2
"""The factor within which levels share a program. A plan merges further programs where
that saves time.
"""

KnownAccuracies = dict[RunId, float | None]
"""A dict from each run to its accuracy, or to the value of the column that crosses
theta. None means nonfinite, and NaN means that the row has no value.
"""


def as_known(value: float | None, status: str) -> float | None:
    """Returns the entry of `KnownAccuracies` for a row."""
    return math.nan if value is None and status != "nonfinite" else value


class SearchedCell:
    """The points along the searched axis, all else fixed, and the search for one theta.

    Attributes:
        points: the points by level, in ascending order.
        point: the first of these points.
        following: the names of the fields that vary along the axis.
        tiers: the levels whose programs also serve the levels below them. If all levels
            have the same sizes, this is one level in the middle.
    """

    def __init__(self, line: SearchLine, target: Target, simulator: SimulatorLike):
        self.line, self.search = line, CellSearch(target)
        self.points = line.levels
        points = list(self.points.values())
        self.point = points[0]
        first, last = self.point.as_given(), points[-1].as_given()
        self.following = {name for name in first if first[name] != last[name]}
        self.tiers = _tiers(self.points, simulator)

    def run(self, request: Request) -> Run:
        level, seed = request
        return Run(self.points[level], seed)

    def tier(self, level: float) -> AnyPoint:
        """Returns the point whose program serves a level."""
        for top in self.tiers:
            if top >= level:
                return self.points[top]
        return self.points[self.tiers[-1]]

    @property
    def warning(self) -> str:
        """A text of what to be careful about, empty if there is nothing."""
        warnings = []
        if self.line.bounded:
            levels = list(self.points)
            warnings.append(
                f"bounded by {self.line.bounded}: only {levels[0]:g} to {levels[-1]:g}"
                " are valid"
            )
        if self.search.against:
            rises = self.search.target.rises
            way = "falls" if rises else "rises"
            hint = f"try rises: {str(not rises).lower()}"
            warnings.append(f"accuracy {way} along the axis: {hint}")
        return "; ".join(warnings)


def _tiers(points: Mapping[float, AnyPoint], simulator: SimulatorLike) -> list[float]:
    """Returns the levels whose programs also serve the levels below them.

    These levels are the largest within each factor of TIER. If no size varies, one
    level in the middle is returned.
    """
    levels = list(points)
    first = program_of(simulator, points[levels[0]])
    if str(first) == str(program_of(simulator, points[levels[-1]])):
        return [levels[len(levels) // 2]]
    tops = [levels[-1]]
    for level in reversed(levels):
        if level * TIER <= tops[0]:
            tops.insert(0, level)
    return tops


def _cells(grid: Grid, search: Search, names: Names) -> list[SearchedCell]:
    """Returns the cells of a grid, one for each line of points and each theta."""
    cells = []
    lattice = search.lattice(names)
    for line in grid.lines:
        levels = {k: level for k, level in lattice.items() if level in line.levels}
        for theta in search.theta:
            target = Target(
                theta,
                levels,
                search.width,
                search.max_runs,
                grid.seeds,
                rises=search.rising,
                checks=search.rises is not None or search.axis in CHECKED,
                farthest=farthest(search.axis, search.width),
            )
            cells.append(SearchedCell(line, target, grid.simulator))
    return cells


def _usual_runs(points: Iterable[AnyPoint]) -> list[Run]:
    return [Run(point, seed) for point in points for seed in range(RUNS_PER_CELL)]


class Searches:
    """All cells of a grid that has a `search`, and the accuracies known so far.

    Attributes:
        pending: the runs of the next round, for which unfinished cells wait. Each run
            is listed once.
        used: the ids of the runs whose accuracy a cell has received.
    """

    def __init__(
        self,
        grid: Grid,
        known: KnownAccuracies,
        settings: Settings | None = None,
        pad_to: Sizes | None = None,
        limit: int | None = None,
    ):
        assert grid.search
        search = grid.search
        self.search, self.simulator, self.axis = search, grid.simulator, search.axis
        names = Names(grid.simulator)
        self._value = names.value
        self.cells = _cells(grid, search, names)
        varying = {self.axis}.union(*(cell.following for cell in self.cells))
        self.axes = [axis for axis in grid.axes if axis not in varying]
        self.used: set[RunId] = set()
        self._known, self._pad_to = known, pad_to
        self._plan = partial(
            make_plan, limit=limit, settings=settings, simulator=grid.simulator
        )
        self._tiers: dict[AnyPoint, AnyPoint] = {}
        self.pending = self._advanced()

    def update(self, accuracy: Mapping[RunId, float | None]) -> None:
        """Records the accuracy of runs, and advances every cell as far as possible."""
        self._known.update(accuracy)
        self.pending = self._advanced()

    def _advanced(self) -> list[Run]:
        pending = {}
        for cell in self.cells:
            pending |= self._missing(cell)
        return list(pending.values())

    def _missing(self, cell: SearchedCell) -> dict[RunId, Run]:
        """Advances a cell as far as possible; returns the runs that it waits for."""
        while requests := cell.search.pending:
            runs = by_id(map(cell.run, requests))
            missing = {id: run for id, run in runs.items() if id not in self._known}
            if missing:
                for level, _ in requests:
                    self._tiers[cell.points[level]] = cell.tier(level)
                return missing
            cell.search.update(list(map(self._fraction, runs)))
            self.used.update(runs)
        return {}

    def _fraction(self, run: RunId) -> float | None:
        """Returns the known accuracy of a run.

        Raises GridError if the row has no accuracy, or if the accuracy is not from 0 to
        1.
        """
        value = self._known[run]
        if value is None or 0 <= value <= 1:
            return value
        shown = "null" if math.isnan(value) else format(value, "g")
        raise GridError(
            f"search.of: got {self.search.of}, which is {shown} in a row"
            f" ({run.point_id}, seed {run.seed}); allowed: a column that is a fraction"
            " from 0 to 1 in every row"
        )

    @cached_property
    def _programs(self) -> dict[AnyPoint, Program]:
        """A dict from the point of each tier to its program.

        The programs depend on the cells alone, so every call chooses the same ones.
        """
        tops = {}
        for cell in self.cells:
            tops |= dict.fromkeys(map(cell.points.__getitem__, cell.tiers))
        plan = self._plan(_usual_runs(tops), pad_to=self._pad_to)
        programs = {}
        for chunk in plan.chunks:
            for run in chunk.runs:
                programs[run.point] = chunk.program
        return programs

    @cached_property
    def guess(self) -> Plan:
        """The plan for the usual number of runs at each tier."""
        programs = self._programs
        return self._plan(_usual_runs(programs), program=programs.__getitem__)

    @property
    def finished(self) -> int:
        return len(self.cells) - len(self._unfinished)

    def plan(self, runs: Sequence[Run]) -> Plan:
        """Returns the plan of a round; batches have the same size in every round."""
        batch = max(1, len(self.cells) // (4 * len(self.guess.peaks)))
        return self._plan(
            runs,
            program=lambda point: program_of(
                self.simulator, point, self._programs[self._tiers[point]]
            ),
            batch=batch,
        )

    def programs(self) -> list[Json]:
        """Returns the programs, before any run, without the guesses about their runs.

        For a user's simulator, these are all programs that its levels could need.
        """
        if not self.simulator.facts.is_ours:
            points = {}
            for cell in self.cells:
                points |= dict.fromkeys(cell.points.values(), 1)
            programs = self.simulator.programs(points)
            return [{"bucket": str(program)} for program in sorted(programs)]
        entries = self.guess.describe()
        for entry in entries:
            for guessed in ("runs", "chunks", "est_seconds"):
                del entry[guessed]
        return entries

    @property
    def _unfinished(self) -> list[SearchedCell]:
        return [cell for cell in self.cells if not cell.search.result]

    def likely_seconds(self) -> float:
        """Returns the wall time left if each cell needs the usual number of runs.

        The cells are assumed to cross in the middle of the range.
        """
        _, _, seconds = self._cost(RUNS_PER_CELL, in_the_middle=True)
        return seconds

    def worst_case(self) -> tuple[int, float, float]:
        """Returns the runs, flops and seconds that the cells may still need at most.

        Every run is assumed to be at the largest level.
        """
        return self._cost(self.search.max_runs)

    def _cost(
        self, n_runs: int, in_the_middle: bool = False
    ) -> tuple[int, float, float]:
        """Returns the runs, flops and seconds left if each cell needs `n_runs` in all.

        The compilation of fallbacks is included, because an error bound rejects some
        runs.
        """
        if not self._unfinished:
            return 0, 0.0, 0.0
        # ordered, so that sums have the same last digit in every process
        programs = {}
        left, flops, seconds = 0, 0.0, ROUNDS * ROUND_SECONDS
        for cell in self._unfinished:
            levels = list(cell.points)
            level = levels[len(levels) // 2 if in_the_middle else -1]
            point = cell.points[level]
            sizes = self._programs[cell.tier(level)]
            program = program_of(self.simulator, point, sizes)
            programs |= dict.fromkeys((program, program.fallback or program))
            cost = self.simulator.cost(program, point)
            n = max(n_runs - len(cell.search.accuracy), 1)
            left += n
            flops += n * cost.flops
            seconds += n * cost.seconds / cores()
        return left, flops, seconds + sum(each.compile_seconds for each in programs)

    def __str__(self) -> str:
        theta = ", ".join(map("{:g}".format, self.search.theta))
        finished = f"{self.finished} of {len(self.cells)} finished"
        cells = plural(len(self.cells) // len(self.search.theta), "cell")
        return (
            f"search for the {self.axis} where accuracy crosses {theta} in {cells},"
            f" {finished}"
        )

    def report(self) -> Json:
        """Returns the contents of search.json: settings, and a table with points."""
        cells = []
        for cell in self.cells:
            point = dict(cell.point.as_given())
            for name in (self.axis, *cell.following):
                point.pop(name, None)
            cells.append(self._entry(cell) | {"point": point})
        return {"search": plain(self.search), "outcomes": OUTCOMES, "cells": cells}

    def table(self) -> list[Json]:
        """Returns one entry per cell and theta: the crossing, its outcome and its cost.

        The interval is null if there is none.
        """
        return list(map(self._entry, self.cells))

    def _entry(self, cell: SearchedCell) -> Json:
        search = cell.search
        outcome, found = search.result or ("unfinished", None)
        entry = {
            **{axis: self._value(cell.point, axis) for axis in self.axes},
            **cell.line.helpers,
            "theta": search.target.theta,
            "axis": self.axis,
            **dict.fromkeys(("critical", "lo", "hi", "N_star")),
            "outcome": outcome,
            "seeds": len({seed for _, seed in search.accuracy}),
            "runs": len(search.accuracy),
            "samples": None,
            "warning": cell.warning,
        }
        if found:
            entry["critical"] = math.exp(found.log_x)
            entry["seeds"] = found.n_seeds
            if math.isfinite(found.width):
                entry |= {"lo": math.exp(found.lo), "hi": math.exp(found.hi)}
            if self.axis == "N":
                entry["N_star"] = entry["critical"]
        if "N" in self.simulator.facts.fields:
            entry["samples"] = sum(
                cell.points[level].N for level, _ in search.completed
            )
        return entry
