"""The searches of all cells of a grid, in rounds: the runs that all cells need next form one round of ordinary runs.

The searched axis is N, or a number of a simulator of one's own, for which N stands here.

The program of each cell is chosen once, so that no round compiles a program again. Rows that are in the folder are looked up
instead of run. So a search that was stopped repeats the same requests and resumes where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...model.point import Run, RunId
from ..calibration import Calibration
from ..door import RECALL, Recall
from ..grid import Grid
from ..grid.file import plain
from ..own import Simulator
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
    """A point without its value of the searched axis, and its search for one theta."""

    point: Any
    axis: str
    search: CellSearch
    points: dict[float, Any] = field(default_factory=dict)

    def run(self, request: Request) -> Run:
        value, seed = request
        return Run(self.at(value), seed)

    def at(self, value: float) -> Any:
        """The point at a value of the axis."""
        if value not in self.points:
            self.points[value] = self.point.replace(**{self.axis: value})
        return self.points[value]


class Rounds:
    """All cells of a grid that has a `search`, and the accuracies known so far.

    `pending` are the runs of the next round, each once: those that unfinished cells wait for. `used` are the runs
    whose accuracy a cell has received.
    """

    def __init__(
        self,
        grid: Grid,
        known: Known,
        simulator: Recall | Simulator = RECALL,
        settings: Settings | None = None,
        pad_to: tuple[int, int, int] | None = None,
        limit: int | None = None,
    ):
        assert grid.search
        self.search, self.simulator, self.axis = grid.search, simulator, grid.search.axis
        self.axes = [axis for axis in grid.axes if axis != self.axis]
        whole = str(simulator.fields[self.axis].type) == "int"
        limits = {"low": self.search.from_, "high": self.search.to, "width": self.search.width, "max_runs": self.search.max_runs}
        targets = [Target(theta, seeds=grid.seeds, whole=whole, **limits) for theta in self.search.theta]
        self.cells = [Cell(point, self.axis, CellSearch(target)) for point in grid.points for target in targets]
        self.used: set[RunId] = set()
        self._known = known
        self._pad_to, self._limit, self._settings = pad_to, limit, settings or Settings()
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
    def _middle(self) -> float:
        middle = math.sqrt(self.search.from_ * self.search.to)
        return round(middle) if str(self.simulator.fields[self.axis].type) == "int" else middle

    @cached_property
    def guess(self) -> Plan:
        """A plan that decides the program of each cell. It depends on the cells alone, so that every call decides the same."""
        points = dict.fromkeys(cell.at(self._middle) for cell in self.cells)
        runs = [Run(point, seed) for point in points for seed in range(RUNS_PER_CELL)]
        return self.simulator.plan(runs, self._settings, self._pad_to, self._limit, Calibration())

    @cached_property
    def _programs(self) -> dict[Any, Any]:
        return {self._cell(run.point): chunk.shape for chunk in self.guess.chunks for run in chunk.runs}

    def _program(self, point: Any) -> Any:
        return self._programs[self._cell(point)]

    def _cell(self, point: Any) -> Any:
        """The same for every value of the axis; the least, as a batch may be no larger than N."""
        return point.replace(**{self.axis: self.search.from_})

    @property
    def finished(self) -> int:
        return sum(cell.search.result is not None for cell in self.cells)

    def plan(self, runs: Sequence[Run]) -> Plan:
        """The plan of a round: each run in the program of its cell, in batches of one size whatever the round."""
        batch = max(1, len(self.cells) // (4 * len(self.guess.shapes)))
        return self.simulator.plan_round(runs, self._settings, self._limit, self._program, batch)

    def programs(self) -> list[dict[str, Any]]:
        """The programs, before any run."""
        return [{key: entry[key] for key in PROGRAM if key in entry} for entry in self.guess.describe()]

    def likely_seconds(self) -> float:
        """Wall time that is left if cells cross in the middle of the range after the usual number of runs."""
        left = [cell for cell in self.cells if cell.search.result is None]
        return self._cost([(cell.at(self._middle), max(RUNS_PER_CELL - len(cell.search.accuracy), 1)) for cell in left])[0]

    def _cost(self, runs: Sequence[tuple[Any, int]]) -> tuple[float, float]:
        """Wall time of so many runs of each point, if some are rejected by an error bound, and their operations."""
        seconds, flops = self.simulator.cost(runs, self._program)
        return seconds + (ROUNDS * ROUND_SECONDS if runs else 0.0), flops

    def worst_case(self) -> tuple[int, float, float]:
        """Runs, flops and seconds of the worst case of what is left: all that the cells may still use, at the largest N."""
        left = [
            (cell.at(self.search.to), self.search.max_runs - len(cell.search.accuracy)) for cell in self.cells if not cell.search.result
        ]
        seconds, flops = self._cost(left)
        return sum(n for _, n in left), flops, seconds

    def __str__(self) -> str:
        theta = ", ".join(f"{theta:g}" for theta in self.search.theta)
        finished = f"{self.finished} of {len(self.cells)} finished"
        return f"search for the {self.axis} where accuracy crosses {theta} in {len(self.cells) // len(self.search.theta)} cells, {finished}"

    def report(self) -> dict[str, Any]:
        """The contents of search.json: the settings, and the table with the full point of each entry."""
        return {"search": plain(self.search), "outcomes": OUTCOMES, "cells": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """One entry per cell and theta: the crossing and its interval (null if there is none), the outcome, and the cost."""
        return [_entry(cell, self.axes) for cell in self.cells]


def known_rows(store: Store, column: str = "accuracy") -> Known:
    """The accuracy of every run that the folder has, at its last step, ok before others."""
    known: Known = {}
    for _, run, accuracy in store.rows(column)[0]:
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
        "point": {name: value for name, value in point.items() if name != cell.axis},
    }
