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

SUMMARIES: dict[str, Callable[[Iterable[float]], float]] = {
    function.__name__: function for function in (min, max, mean, median)
}


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
        elif row.by in POINTWISE:
            measured[row.key] = POINTWISE[row.by](bench, row)
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
        seconds = SUMMARIES[average]
        return min(seconds(self.calls[it]) / self.ready[it].share for it in programs)

    def ratio(
        self, asked: Ratio, over: Sequence[str], average: str = "median"
    ) -> float:
        return self.fastest(over, average) / self.fastest([asked.under], average)


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
        for name in asked.also:
            notes[f"{name} / {asked.under} {times.ratio(asked, [name]):.3g}"] = None
        if any(name in times.missing for name in (*asked.over, asked.under)):
            continue
        value = times.ratio(asked, asked.over)
        measured.values.append(100 * (value - 1) if row.less_one else value)
        if asked.beside:
            measured.beside = f"{times.ratio(asked, asked.beside):.3g}x"
    measured.note = "; ".join(notes)
    if len(measured.values) < len(row.ratios):
        measured.values = []
    return measured


def each(bench: Bench, row: Asked) -> Measured:
    """Measures a ratio at each point of a grid."""
    (asked,) = row.ratios
    measured, ratios = Measured(), []
    for point in points(bench.work.grid(asked.work)):
        times = of_programs(bench, asked.programs, point.replace)
        ratios.append(times.ratio(asked, asked.over, row.average))
        line = {name: point.values()[name] for name in row.fields}
        for name in (*asked.over, asked.under):
            line[f"{name}, s"] = times.fastest([name], row.average)
        measured.table.append(line | {"ratio": ratios[-1]})
    measured.values = [SUMMARIES[name](ratios) for name in row.summary]
    return measured


def slope(bench: Bench, row: Asked) -> Measured:
    """Measures the log-log slope of the time of a run along the axis of a grid."""
    every = {
        getattr(point, row.axis): point for point in points(bench.work.grid(row.work))
    }
    engines = {
        f"{row.axis} = {level:.0e}": prepared(bench, "jaxrecall", point.replace).engine
        for level, point in every.items()
    }
    seconds = clock.interleaved(engines, bench.rounds, bench.log)
    medians = list(map(median, seconds.values()))
    note = f"slowest over fastest {max(medians) / min(medians):.2g}"
    found, _ = np.polyfit(np.log(list(every)), np.log(medians), 1)
    return Measured([float(found)], note=note, seconds=seconds)


def peaks(bench: Bench, row: Asked) -> Measured:
    """Measures peak memory at the last point of a grid over that at the first one, with
    a fresh process for each point.

    The processes load their program from a cache. Compiling needs more memory than
    running, and its use varies by 10 %, which would hide any growth.
    """
    grid, cache = bench.work.grid(row.work), bench.new_folder()

    def peak(i: int) -> float:
        return clock.fresh("size", cache, grid=grid, i=i)["peak_bytes"] / 2**20

    peak(0)
    every = {peak(i): point for i, point in enumerate(points(grid))}
    found = list(every)
    note = "; ".join(
        f"{mib:.1f} MiB at N = {point.N:.0e}, L = {point.L:.0e}"
        for mib, point in every.items()
    )
    return Measured([found[-1] / found[0]], note=f"{note}; programs from a cache")


POINTWISE = {"each": each, "slope": slope, "peaks": peaks}
