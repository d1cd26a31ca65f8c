"""Runs the searches of all cells of a grid in rounds.

A round consists of the ordinary runs that all cells need next.

The programs depend only on the cells and their requests, so a resumed search uses the
same programs. If the folder contains the rows of a run, they are looked up and the run
is not repeated. So a search that was stopped makes the same requests again, and resumes
where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product, starmap

from ..errors import GridError, plural
from ..model.point import Run, RunId
from .files import Json
from .grid import Grid, Search
from .grid.axes import AnyPoint
from .grid.expand import SearchLine
from .grid.file import USUAL, Settings, as_dict
from .machine import cores
from .plan import Plan, by_id, make_plan
from .search import OUTCOMES, CellSearch, Request, farthest
from .simulators import Program
from .simulators.custom import Simulator
from .speed import COMPILE, slowness
from .summary import MEAN, parsed

RUNS_PER_CELL, ROUNDS = 60, 25
"""The guessed number of runs in a cell, and of rounds in a search. The guesses are used
to estimate the time, and to decide whether padding is cheaper than compiling.
"""

ROUND_SECONDS = 0.03
"""The number of seconds per round for planning, saving and updating the cells."""


TIER = 2
"""The largest ratio of levels that share a program. A plan merges further programs
where that saves time.
"""

KnownAccuracies = dict[RunId, float | None]
"""A dict from each run to its accuracy. If the search uses another column, the values
are those of that column. None means nonfinite, and NaN means that the row has no value.
"""


@dataclass(eq=False, kw_only=True)
class SearchedCell(CellSearch):
    """The search of one cell for one theta, with the points along the searched axis.

    Attributes:
        points: a dict from each level, in ascending order, to its point.
        point: the point at the lowest level.
        following: the names of the fields that vary along the axis.
        tiers: a dict from each level to the point whose program
            is used for the level.
    """

    line: SearchLine
    simulator: Simulator

    def __post_init__(self) -> None:
        super().__post_init__()
        self.points = self.line.levels
        levels = list(self.points)
        self.point = self.points[levels[0]]
        first, last = self.point.as_given(), self.points[levels[-1]].as_given()
        self.following = {name for name in first if first[name] != last[name]}
        self.tiers = _tiers(self.points, self.simulator)

    def run(self, request: Request) -> Run:
        level, seed = request
        return Run(self.points[level], seed)

    @property
    def warning(self) -> str:
        """A warning about the results of the cell, or an empty text."""
        warnings = []
        if self.line.bounded:
            levels = list(self.points)
            warnings.append(
                f"bounded by {self.line.bounded}: only {levels[0]:g} to {levels[-1]:g}"
                " are valid"
            )
        if self.against:
            way = "falls" if self.rises else "rises"
            hint = f"try rises: {str(not self.rises).lower()}"
            warnings.append(f"accuracy {way} along the axis: {hint}")
        if self.beyond:
            way = "rises above theta and falls again"
            if not self.rises:
                way = "falls below theta and rises again"
            warnings.append(f"accuracy {way}, at {self.beyond:g}")
        return "; ".join(warnings)


def _tiers(
    points: Mapping[float, AnyPoint], simulator: Simulator
) -> dict[float, AnyPoint]:
    """Returns a dict from each level to the point whose program is used for the level.

    If all levels have the same sizes, this is the point at the middle level. Otherwise
    a level's program is also used for the levels below it down to 1 / TIER of the
    level, not included.
    """
    levels = list(points)
    ends = points[levels[0]], points[levels[-1]]
    if len({str(simulator.program(point)) for point in ends}) == 1:
        return dict.fromkeys(levels, points[levels[len(levels) // 2]])
    tiers, top = {}, levels[-1]
    for level in reversed(levels):
        if level * TIER <= top:
            top = level
        tiers[level] = points[top]
    return tiers


def _cells(grid: Grid, search: Search) -> list[SearchedCell]:
    """Returns the cells of a grid, one for each line of points and each theta."""
    cells = []
    simulator = grid.simulator
    rises = search.rises
    if rises is None:
        rises = simulator.rises.get(search.axis, True)
    is_other = search.of not in (None, simulator.accuracy)
    is_known = search.axis in simulator.rises and not is_other
    is_known = is_known or search.rises is not None
    assumed = not is_known and (is_other or not simulator.has_theory)
    lattice = search.lattice(grid.names)
    for line in grid.lines:
        levels = {k: level for k, level in lattice.items() if level in line.levels}
        for theta in search.theta:
            cell = SearchedCell(
                theta=theta,
                levels=levels,
                width=search.width,
                max_runs=search.max_runs,
                seeds=grid.seeds,
                rises=rises,
                checks=is_known or assumed,
                assumed=assumed,
                summary=parsed(search.summary) or MEAN,
                farthest=farthest(search.axis, search.width),
                line=line,
                simulator=simulator,
            )
            cells.append(cell)
    return cells


def _tops(cells: Iterable[SearchedCell]) -> dict[AnyPoint, None]:
    """Returns the points of all tiers of the cells, in order."""
    tops = {}
    for cell in cells:
        tops |= dict.fromkeys(reversed(cell.tiers.values()))
    return tops


class Searches:
    """The cells of a grid with a `search`, and the accuracies that are known so far.

    Attributes:
        cells: the cells of the grid.
        pending: the runs of the next round, for which unfinished cells wait. A run is
            listed once, even if several cells need it.
        used: the ids of the runs whose accuracy any cell has received.
    """

    def __init__(
        self,
        grid: Grid,
        known: KnownAccuracies,
        settings: Settings = USUAL,
        limit: int | None = None,
    ):
        assert grid.search
        search = grid.search
        self.search, self.simulator, self.axis = search, grid.simulator, search.axis
        self._value = grid.names.value
        self.crosses = grid.crosses
        self.cells = _cells(grid, search)
        varying = {self.axis}.union(*(cell.following for cell in self.cells))
        self.axes = [axis for axis in grid.axes if axis not in varying]
        self.used: set[RunId] = set()
        self._known = known
        self._plan = partial(
            make_plan, limit=limit, settings=settings, simulator=grid.simulator
        )
        self._tiers: dict[AnyPoint, AnyPoint] = {}
        self.update({})

    def update(self, accuracy: Mapping[RunId, float | None]) -> None:
        """Records the accuracy of runs, and advances every cell as far as possible."""
        self._known.update(accuracy)
        pending = {}
        for cell in self.cells:
            pending |= self._missing(cell)
        self.pending = list(pending.values())

    def _missing(self, cell: SearchedCell) -> dict[RunId, Run]:
        """Advances a cell as far as possible. Returns the runs for which the cell
        waits.
        """
        while requests := cell.pending:
            runs = by_id(map(cell.run, requests))
            missing = {id: run for id, run in runs.items() if id not in self._known}
            if missing:
                for level, _ in requests:
                    self._tiers[cell.points[level]] = cell.tiers[level]
                return missing
            cell.update(list(map(self._measure, runs)))
            self.used.update(runs)
        return {}

    def _measure(self, run: RunId) -> float | None:
        """Returns the known measure of a run. Raises GridError if the row has none."""
        value = self._known[run]
        if value is None or math.isfinite(value):
            return value
        got = "null" if math.isnan(value) else format(value, "g")
        raise GridError(
            f"search.of: got {self.search.of}, which is {got} in a row"
            f" ({run.point_id}, seed {run.seed}); allowed: a column that is a finite"
            " number in every row"
        )

    @cached_property
    def _programs(self) -> dict[AnyPoint, Program]:
        """A dict from the point of each tier to its program.

        The programs depend on the cells alone, so every call chooses the same ones.
        """
        usual = dict.fromkeys(_tops(self.cells), RUNS_PER_CELL)
        return self.simulator.programs(usual)

    @cached_property
    def guess(self) -> Plan:
        """The plan of a search in which each tier has the usual number of runs."""
        runs = starmap(Run, product(_tops(self.cells), range(RUNS_PER_CELL)))
        return self._plan(runs, program=self._programs.__getitem__)

    @property
    def finished(self) -> int:
        """The number of finished cells."""
        return len(self.cells) - len(self._unfinished)

    @property
    def n_points(self) -> int:
        return len(self.cells) // len(self.search.theta)

    @property
    def n_done(self) -> int:
        """The number of finished runs."""
        done: set[RunId] = set()
        for cell in self.cells:
            done.update(by_id(map(cell.run, cell.completed)))
        return len(done)

    def plan(self, runs: Sequence[Run]) -> Plan:
        """Returns the plan of a round. Batches have the same size in every round."""
        batch = max(1, len(self.cells) // (4 * len(self.guess.peaks)))
        return self._plan(
            runs,
            program=lambda point: self.simulator.program(
                point, self._programs[self._tiers[point]]
            ),
            batch=batch,
        )

    def programs(self) -> list[Json]:
        """Returns a list with one dict for each program, without guesses about runs.

        For a user's simulator, the list contains every program that a level could need.
        """
        if not self.simulator.costs_known:
            points = {}
            for cell in self.cells:
                points |= dict.fromkeys(cell.points.values(), 1)
            programs = {*self.simulator.programs(points).values()}
            return [{"bucket": str(program)} for program in sorted(programs)]
        entries = self.guess.describe()
        for entry in entries:
            for guessed in ("runs", "chunks", "est_seconds"):
                del entry[guessed]
        return entries

    @property
    def _unfinished(self) -> list[SearchedCell]:
        return [cell for cell in self.cells if not cell.result]

    def cost(self, in_the_middle: bool = False) -> tuple[int, float, float]:
        """Returns the numbers of remaining runs, flops and seconds.

        Each cell is assumed to need as many runs as it may, all at the largest level;
        or as many as usual, all at the middle level. The time to compile fallbacks is
        included, because some runs exceed an error bound.
        """
        if not self._unfinished:
            return 0, 0.0, 0.0
        n_runs = self.search.max_runs
        if in_the_middle:
            n_runs = min(n_runs, RUNS_PER_CELL)
        # ordered, so that sums have the same last digit in every process
        programs = {}
        slow = slowness()
        left, flops, seconds = 0, 0.0, ROUNDS * ROUND_SECONDS
        for cell in self._unfinished:
            levels = list(cell.points)
            level = levels[len(levels) // 2 if in_the_middle else -1]
            point = cell.points[level]
            of_tier = self._programs[cell.tiers[level]]
            program = self.simulator.program(point, of_tier)
            programs |= dict.fromkeys((program, program.fallback or program))
            cost = self.simulator.cost(program, point)
            n = max(n_runs - len(cell.accuracy), 1)
            left += n
            flops += n * cost.flops
            seconds += slow.of(program.label) * n * cost.seconds / cores()
        start = sum(map(self.simulator.start_seconds, programs))
        return left, flops, seconds + slow.of(COMPILE) * start

    def __str__(self) -> str:
        theta = ", ".join(map("{:g}".format, self.search.theta))
        return (
            f"search for the {self.axis} where {self.crosses} crosses {theta} in"
            f" {plural(self.n_points, 'configuration')}, {self.finished} of"
            f" {len(self.cells)} finished"
        )

    def report(self) -> Json:
        """Returns the contents of search.json: settings, outcomes and cells."""
        cells = []
        for cell in self.cells:
            point = dict(cell.point.as_given())
            for name in (self.axis, *cell.following):
                point.pop(name, None)
            cells.append(self._entry(cell) | {"point": point})
        return {"search": as_dict(self.search), "outcomes": OUTCOMES, "cells": cells}

    def table(self) -> list[Json]:
        """Returns one dict per cell and theta: the crossing, the outcome and the cost.

        If there is no interval, its ends are null.
        """
        return list(map(self._entry, self.cells))

    def _entry(self, cell: SearchedCell) -> Json:
        outcome, found = cell.result or ("unfinished", None)
        entry = {
            **{axis: self._value(cell.point, axis) for axis in self.axes},
            **cell.line.helpers,
            "theta": cell.theta,
            "axis": self.axis,
            **dict.fromkeys(("critical", "lo", "hi", "N_star")),
            "outcome": outcome,
            "seeds": len({seed for _, seed in cell.accuracy}),
            "runs": len(cell.accuracy),
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
        if "N" in self.simulator.fields:
            levels = (level for level, _ in cell.completed)
            entry["samples"] = sum(cell.points[level].N for level in levels)
        return entry
