"""The searches of a grid's cells, side by side: what all of them want next is one round of ordinary runs. No JAX here.

Which program a cell runs in is settled once, so that no round compiles anything that an earlier one has compiled. Rows that
the folder holds are looked up instead of run: a search that was stopped goes on where it was, asking the same questions again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..grid import Grid
from ..plan import plan as planning
from ..plan.cost import Calibration, cores
from ..plan.plan import Plan
from ..point import Point, Run
from ..run.progress import Outcome, Tally, duration
from ..simulator.shape import Shape
from ..simulator.work import Work
from ..store.store import Store
from .cell import OUTCOMES, CellSearch, Request, Spec

RUNS_PER_CELL = 60  # a guess, to weigh padding against compiling
PROGRAM = ("bucket", "activation", "exact", "points", "est_peak_bytes")

Known = dict[tuple[str, int], float | None]
"""Accuracy by (point_id, seed); None: nonfinite."""


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
        return self.points[N], seed


class Rounds:
    """All cells of a grid that has a `search`, and what is known of their runs; `wanted` are the runs of the next round."""

    def __init__(self, grid: Grid, known: Known, forced: tuple[int, int, int] | None = None, limit: int | None = None):
        assert grid.search
        self.spec, self.axes = grid.search, [axis for axis in grid.axes if axis != grid.search.axis]
        limits = {"low": self.spec.from_, "high": self.spec.to, "width": self.spec.width, "max_runs": self.spec.max_runs}
        specs = [Spec(theta, seeds=grid.seeds, **limits) for theta in self.spec.theta]
        self.cells = [Cell(point, CellSearch(spec)) for point in grid.points for spec in specs]
        self.known = known
        self.tally = SearchTally(self)
        self.runs: set[tuple[str, int]] = set()
        """Runs that the cells have asked for and been told, as (point_id, seed)."""
        self._forced, self._limit = forced, limit
        self.waiting = {(point.point_id, seed) for point, seed in self.wanted()}

    @cached_property
    def guess(self) -> Plan:
        """A plan that settles which program a cell runs in: by the cells alone, so that every call decides alike."""
        middle = round(math.sqrt(self.spec.from_ * self.spec.to))
        points = dict.fromkeys(cell.point.replace(N=middle) for cell in self.cells)
        runs = [(point, seed) for point in points for seed in range(RUNS_PER_CELL)]
        return planning.make(runs, self._forced, Calibration(), self._limit)

    @cached_property
    def _buckets(self) -> dict[Point, Shape]:
        return {point.replace(N=1): chunk.bucket for chunk in self.guess.chunks for point, _ in chunk.runs}

    @property
    def finished(self) -> int:
        return sum(cell.search.result is not None for cell in self.cells)

    def run(self, execute: Callable[[Plan], Outcome], fail_fast: bool = False) -> Outcome:
        """Round after round through `execute`, until all cells are finished, wait for runs that failed, or are told to stop."""
        total = Outcome()
        failed: set[Run] = set()
        while runs := [run for run in self.wanted() if run not in failed]:
            self.tally.next_round(len(runs))
            one = execute(self.plan(runs))
            failed |= {(point, seed) for point, seed in runs if (point.point_id, seed) not in self.known}
            total = Outcome(total.runs + one.runs, total.unsaved + one.unsaved, total.failed + one.failed, one.interrupted)
            if one.interrupted or one.unsaved or (one.failed and fail_fast):
                break
        return total

    def wanted(self) -> list[Run]:
        """The runs that the unfinished cells wait for, each once; none when all are finished."""
        wanted: dict[tuple[str, int], Run] = {}
        for cell in self.cells:
            while requests := cell.search.wanted:
                runs = {(run[0].point_id, run[1]): run for run in map(cell.run, requests)}
                if missing := {name: run for name, run in runs.items() if name not in self.known}:
                    wanted |= missing
                    break
                cell.search.tell([self.known[name] for name in runs])
                self.runs.update(runs)
        return list(wanted.values())

    def plan(self, runs: Sequence[Run]) -> Plan:
        """The plan of a round: each run in the program of its cell, in batches of one size whatever the round."""
        groups: dict[Shape, list[Run]] = {}
        for point, seed in runs:
            groups.setdefault(self._bucket(point), []).append((point, seed))
        calibration = Calibration.kept()
        plans = [planning.make(group, (bucket.V, bucket.d, bucket.m), calibration, self._limit) for bucket, group in groups.items()]
        return replace(
            plans[0],
            chunks=tuple(chunk for plan in plans for chunk in plan.chunks),
            flops=sum(plan.flops for plan in plans),
            seconds=sum(plan.seconds for plan in plans),
            batch=max(1, len(self.cells) // (4 * len(self.guess.buckets))),
        )

    def _bucket(self, point: Point) -> Shape:
        shape = self._buckets[point.replace(N=1)]
        return Shape.sized(point, shape.V, shape.d, shape.m)

    def facts(self) -> dict[str, Any]:
        """What a dry run tells; runs and costs are those of the worst case: every run that is left, at the largest N."""
        left = [(cell, self.spec.max_runs - len(cell.search.asked)) for cell in self.cells if cell.search.result is None]
        ends = [(cell.point.replace(N=self.spec.to), n) for cell, n in left]
        amounts = [self._bucket(point).amounts(Work.of(point, n)) for point, n in ends]
        rates = Calibration.kept().rates
        return {
            "searches": len(self.cells),
            "finished": self.finished,
            "runs": len(self.runs) + sum(n for _, n in left),
            "todo": sum(n for _, n in left),
            "program_list": [{key: entry[key] for key in PROGRAM} for entry in self.guess.describe()],
            "est_flops": sum(a.flops for a in amounts),
            "est_seconds": sum(map(rates.seconds, amounts)) / cores() + rates.compile_seconds * len({self._bucket(p) for p, _ in ends}),
        }

    def __str__(self) -> str:
        theta = ", ".join(f"{theta:g}" for theta in self.spec.theta)
        finished = f"{self.finished} of {len(self.cells)} finished"
        return f"where accuracy crosses {theta} in {len(self.cells) // len(self.spec.theta)} cells, {finished}"

    def report(self) -> dict[str, Any]:
        """What search.json holds: what was asked for, and the table with the whole point of each entry."""
        return {"search": self.spec.model_dump(by_alias=True), "outcomes": OUTCOMES, "cells": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """One entry a cell and theta: the crossing and its interval, null where there is none, what it cost, what happened."""
        return [_entry(cell, self.axes) for cell in self.cells]


def known_rows(store: Store) -> Known:
    """What the folder's rows say, ok before others."""
    known: Known = {}
    for _, run, accuracy in store.rows("accuracy")[0]:
        if known.get(run) is None:
            known[run] = accuracy
    return known


class SearchTally(Tally):
    """Cells done instead of cost done: how much a search will cost is not known before; rows go to the rounds."""

    def __init__(self, rounds: Rounds):
        super().__init__(0, len(rounds.cells))
        self.rounds, self.round = rounds, 0

    def add(self, rows: list[dict[str, Any]], est_seconds: float) -> None:
        self.rounds.known |= {(row["point_id"], row["seed"]): row["accuracy"] for row in rows}
        super().add(rows, 0.0)

    def drop(self, est_seconds: float) -> None:
        super().drop(0.0)

    def next_round(self, n_runs: int) -> None:
        self.round, self.n_runs, self.est_done = self.round + 1, self.n_runs + n_runs, float(self.rounds.finished)

    @property
    def eta(self) -> float | None:
        return None

    def line(self) -> str:
        """Cells done, runs so far, compile time, last accuracy, failures."""
        parts = [f"{self.rounds.finished}/{len(self.rounds.cells)} cells, round {self.round}, {self.done} runs"]
        if self.compile_seconds >= 0.1:
            parts.append(f"compiled {duration(self.compile_seconds)}")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy:.2f}")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)


def _entry(cell: Cell, axes: Sequence[str]) -> dict[str, Any]:
    search, point = cell.search, cell.point.as_given()
    outcome, found = search.result or ("unfinished", None)
    interval = (math.exp(found.log_N), math.exp(found.lo), math.exp(found.hi)) if found else (None, None, None)
    return {
        **{axis: getattr(cell.point, axis) for axis in axes},
        "theta": search.spec.theta,
        **dict(zip(("N_star", "lo", "hi"), interval, strict=True)),
        "outcome": outcome,
        "seeds": found.n_seeds if found else len({seed for _, seed in search.asked}),
        "runs": len(search.asked),
        "samples": sum(N for N, _ in search.requests),
        "point": {name: value for name, value in point.items() if name != "N"},
    }
