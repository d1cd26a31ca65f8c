"""The searches of all cells of a grid, in rounds: the runs that all cells need next form one round of ordinary runs.

The program of each cell is chosen once, so that no round compiles a program again. Rows that are in the folder are looked up
instead of run. So a search that was stopped repeats the same requests and resumes where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ...model.point import Point, Run, RunId
from ...simulator.shape import Shape
from .. import plan as planning
from ..calibration import Calibration
from ..cost import operations, work
from ..grid import Grid
from ..grid.file import plain
from ..plan import Plan
from ..settings import Settings
from ..store.store import Store
from .cell import OUTCOMES, CellSearch, Request, Target

RUNS_PER_CELL, ROUNDS = 60, 25
"""Of a usual search: a guess, to weigh padding against compiling and to say how long it takes."""

ROUND_SECONDS = 0.03
"""What planning, saving and learning take in a round, besides its runs."""

PROGRAM = ("bucket", "activation", "pool", "optimizer", "trains", "exact", "points", "est_peak_bytes")

Known = dict[RunId, float | None]
"""Accuracy of runs; None: nonfinite."""


@dataclass
class Cell:
    """A point without its N, and its search for one theta."""

    point: Point
    search: CellSearch
    points: dict[int, Point] = field(default_factory=dict)

    def run(self, request: Request) -> Run:
        N, seed = request
        if N not in self.points:
            self.points[N] = self.point.replace(N=N)
        return Run(self.points[N], seed)


class WorstCase(NamedTuple):
    """Runs, flops and seconds of wall time."""

    n_runs: int
    flops: float
    seconds: float


class Rounds:
    """All cells of a grid that has a `search`, and the accuracies known so far.

    `pending` are the runs of the next round, each once: those that unfinished cells wait for. `used` are the runs
    whose accuracy a cell has received.
    """

    def __init__(
        self,
        grid: Grid,
        known: Known,
        pad_to: tuple[int, int, int] | None = None,
        limit: int | None = None,
        settings: Settings | None = None,
    ):
        assert grid.search
        self.search = grid.search
        self.axes = [axis for axis in grid.axes if axis != grid.search.axis]
        limits = {"low": self.search.from_, "high": self.search.to, "width": self.search.width, "max_runs": self.search.max_runs}
        targets = [Target(theta, seeds=grid.seeds, **limits) for theta in self.search.theta]
        self.cells = [Cell(point, CellSearch(target)) for point in grid.points for target in targets]
        self.used: set[RunId] = set()
        self._known = known
        self._pad_to, self._limit, self._settings = pad_to, limit, settings
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
                if missing := {name: run for name, run in runs.items() if name not in self._known}:
                    pending |= missing
                    break
                cell.search.update([self._known[name] for name in runs])
                self.used.update(runs)
        return list(pending.values())

    @cached_property
    def guess(self) -> Plan:
        """A plan that decides the program of each cell. It depends on the cells alone, so that every call decides the same."""
        middle = round(math.sqrt(self.search.from_ * self.search.to))
        points = dict.fromkeys(cell.point.replace(N=middle) for cell in self.cells)
        runs = [Run(point, seed) for point in points for seed in range(RUNS_PER_CELL)]
        return planning.make(runs, self._pad_to, Calibration(), self._limit, self._settings)

    @cached_property
    def _shapes(self) -> dict[Point, Shape]:
        return {self._cell(run.point): chunk.shape for chunk in self.guess.chunks for run in chunk.runs}

    @property
    def finished(self) -> int:
        return sum(cell.search.result is not None for cell in self.cells)

    def plan(self, runs: Sequence[Run]) -> Plan:
        """The plan of a round: each run in the program of its cell, in batches of one size whatever the round."""
        groups: dict[Shape, list[Run]] = {}
        for run in runs:
            groups.setdefault(self._shape(run.point), []).append(run)
        calibration = Calibration.kept()
        plans = [
            planning.make(group, (shape.V, shape.d, shape.m), calibration, self._limit, self._settings, shape.light)
            for shape, group in groups.items()
        ]
        return planning.joined(plans, batch=max(1, len(self.cells) // (4 * len(self.guess.shapes))))

    def _shape(self, point: Point) -> Shape:
        shape = self._shapes[self._cell(point)]
        return replace(Shape.sized(point, shape.V, shape.d, shape.m), light=shape.light)

    def _cell(self, point: Point) -> Point:
        """The same for every N of a cell; its least, as a batch may be no larger than N."""
        return point.replace(N=self.search.from_)

    def programs(self) -> list[dict[str, Any]]:
        """The programs, before any run."""
        return [{key: entry[key] for key in PROGRAM} for entry in self.guess.describe()]

    def likely_seconds(self) -> float:
        """Wall time that is left if cells cross in the middle of the range after the usual number of runs."""
        middle = round(math.sqrt(self.search.from_ * self.search.to))
        left = [cell for cell in self.cells if cell.search.result is None]
        return self._seconds([(cell.point.replace(N=middle), max(RUNS_PER_CELL - len(cell.search.accuracy), 1)) for cell in left])[0]

    def _seconds(self, runs: Sequence[tuple[Point, int]]) -> tuple[float, float]:
        """Wall time of so many runs of each point, if some are rejected by an error bound, and their operations."""
        known = Calibration.kept()
        amounts = [operations(self._shape(point), work(point, n)) for point, n in runs]
        shapes = {self._shape(point) for point, _ in runs}
        programs = shapes | {shape.fallback for shape in shapes if shape.fallback}
        once = sum(map(known.seconds_to_get, programs)) + (ROUNDS * ROUND_SECONDS if runs else 0.0)
        return once + sum(map(known.rates.on_all_cores, amounts)), sum(a.flops for a in amounts)

    def worst_case(self) -> WorstCase:
        """The worst case of what is left: every run that the cells may still use, at the largest N."""
        left = [(cell, self.search.max_runs - len(cell.search.accuracy)) for cell in self.cells if cell.search.result is None]
        seconds, flops = self._seconds([(cell.point.replace(N=self.search.to), n) for cell, n in left])
        return WorstCase(sum(n for _, n in left), flops, seconds)

    def __str__(self) -> str:
        theta = ", ".join(f"{theta:g}" for theta in self.search.theta)
        finished = f"{self.finished} of {len(self.cells)} finished"
        return f"search for the N where accuracy crosses {theta} in {len(self.cells) // len(self.search.theta)} cells, {finished}"

    def report(self) -> dict[str, Any]:
        """The contents of search.json: the settings, and the table with the full point of each entry."""
        return {"search": plain(self.search), "outcomes": OUTCOMES, "cells": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """One entry per cell and theta: the crossing and its interval (null if there is none), the outcome, and the cost."""
        return [_entry(cell, self.axes) for cell in self.cells]


def known_rows(store: Store) -> Known:
    """The accuracy of every run that the folder has, at its last step, ok before others."""
    known: Known = {}
    for _, run, accuracy in store.rows("accuracy")[0]:
        if known.get(run) is None:
            known[run] = accuracy
    return known


def _entry(cell: Cell, axes: Sequence[str]) -> dict[str, Any]:
    search, point = cell.search, cell.point.as_given()
    outcome, found = search.result or ("unfinished", None)
    interval = (math.exp(found.log_N), math.exp(found.lo), math.exp(found.hi)) if found else (None, None, None)
    return {
        **{axis: getattr(cell.point, axis) for axis in axes},
        "theta": search.target.theta,
        **dict(zip(("N_star", "lo", "hi"), interval, strict=True)),
        "outcome": outcome,
        "seeds": found.n_seeds if found else len({seed for _, seed in search.accuracy}),
        "runs": len(search.accuracy),
        "samples": sum(N for N, _ in search.completed),
        "point": {name: value for name, value in point.items() if name != "N"},
    }
