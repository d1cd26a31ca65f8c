"""Measures the figures of a group.

Most of them are ratios: programs are timed in turn, and the medians are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np

from . import clock, whole
from .asked import ASKED, Asked, Ratio
from .programs import NotHere, Ready, prepared
from .record import Measured
from .work import Bench, points

AVERAGES = {"mean": mean, "median": median}


def group(bench: Bench, name: str) -> dict[str, Measured]:
    """Measures the figures of a group, by their keys."""
    measured: dict[str, Measured] = {}
    rows = [row for row in ASKED if row.group == name]
    ratios = [ratio for row in rows if row.by == "ratios" for ratio in row.ratios]
    times = {
        work: of_programs(
            bench,
            [name for ratio in ratios if ratio.work == work for name in ratio.programs],
            partial(bench.work.grid, work),
        )
        for work in dict.fromkeys(ratio.work for ratio in ratios)
    }
    for row in rows:
        if row.by == "ratios":
            measured[row.key] = compared(row, times[row.ratios[0].work])
        elif row.by == "each":
            measured[row.key] = each(bench, row)
        elif row.key not in measured:
            measured |= whole.FIGURES[row.by](bench)
    return measured


@dataclass
class Times:
    """The times of programs with the same work, by their names."""

    calls: dict[str, list[float]] = field(default_factory=dict)  # seconds of each call
    ready: dict[str, Ready] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # why they cannot run here

    def fastest(self, programs: Iterable[str], average: str = "median") -> float:
        """The seconds of the fastest of some programs, for all of the work."""
        seconds = AVERAGES[average]
        return min(seconds(self.calls[it]) / self.ready[it].share for it in programs)

    def ratio(
        self, asked: Ratio, over: Sequence[str], average: str = "median"
    ) -> float:
        under = self.fastest([asked.under], average) if asked.under else 1.0
        return self.fastest(over, average) / under


def of_programs(bench: Bench, programs: Iterable[str], grid: Any) -> Times:
    """Times programs in turn; `grid` returns the work with some fields changed."""
    times = Times()
    for name in dict.fromkeys(programs):
        try:
            times.ready[name] = prepared(bench, name, grid)
        except NotHere as reason:
            times.missing[name] = f"not run: {reason}"
    engines = {name: ready.engine for name, ready in times.ready.items()}
    times.calls = clock.interleaved(engines, bench.rounds, bench.log)
    return times


def compared(row: Asked, times: Times) -> Measured:
    """Returns the ratios of times as values of one figure, or why there are none."""
    measured = Measured()
    notes: dict[str, None] = {}
    for asked in row.ratios:
        for name in asked.programs:
            if name in times.missing:
                notes[times.missing[name]] = None
                continue
            measured.seconds[name] = times.calls[name]
            measured.table += times.ready[name].terms
            if note := times.ready[name].note:
                notes[f"{name}: {note}"] = None
        if any(name in times.missing for name in (*asked.over, asked.under)):
            continue
        measured.values.append(times.ratio(asked, asked.over))
        if asked.beside:
            measured.beside = f"{times.ratio(asked, asked.beside):.3g}x"
    measured.note = "; ".join(notes)
    if len(measured.values) < len(row.ratios):
        measured.values = []
    return measured


def each(bench: Bench, row: Asked) -> Measured:
    """Measures a ratio at each point of a grid, or only a program."""
    (asked,) = row.ratios
    measured, found = Measured(), list[float]()
    for point in points(bench.work.grid(asked.work)):
        times = of_programs(bench, asked.programs, point.replace)
        line = {name: point.values()[name] for name in row.fields}
        for name in asked.programs:
            line[name] = times.fastest([name], row.average)
        found.append(times.ratio(asked, asked.over, row.average))
        measured.table.append(line | {"ratio": found[-1]})
    levels = [line[row.fields[0]] for line in measured.table]
    measured.values = [SUMMARIES[name](found, levels) for name in row.summary]
    return measured


def slope(values: list[float], levels: list[Any]) -> float:
    """The log-log slope of the values against the levels."""
    return float(np.polyfit(np.log(levels), np.log(values), 1)[0])


SUMMARIES: dict[str, Callable[[list[float], list[Any]], float]] = {
    "min": lambda values, levels: min(values),
    "median": lambda values, levels: median(values),
    "max": lambda values, levels: max(values),
    "last over first": lambda values, levels: values[-1] / values[0],
    "slope": slope,
}
