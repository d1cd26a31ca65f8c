"""Measures the figures of a group.

Most of them are ratios: programs are timed in turn, and the medians are compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from . import clock, estimates, fresh, guard, scale, search, vmapped
from .asked import ASKED, Each, Peaks, Program, Ratio, Slope
from .bench import Bench, NotHere, Ready
from .programs import PROGRAMS, Grid, ours
from .record import Measured
from .work import points

OWN: dict[str, Callable[[Bench], dict[str, Measured]]] = {
    "compiled": fresh.compiled,
    "searched": search.against_dense,
    "guarded": guard.worst,
    "estimated": estimates.against_measured,
    "in_parts": estimates.in_parts,
    "fitted": fresh.fitted,
    "stored": scale.figures,
    "places": vmapped.places,
}
"""The functions that measure figures which are no ratio of times."""


def group(bench: Bench, name: str) -> dict[str, Measured]:
    """Measures the figures of a group, by their keys."""
    found: dict[str, Measured] = {}
    timed: dict[str, Times] = {}
    rows = [row for row in ASKED if row.group == name]
    for row in rows:
        match row.how:
            case str(own):
                if row.key not in found:
                    found |= OWN[own](bench)
            case Slope() as asked:
                found[row.key] = slope(bench, asked)
            case Peaks() as asked:
                found[row.key] = peaks(bench, asked)
            case Each() as asked:
                found[row.key] = each(bench, asked)
            case asked:
                ratios = asked if isinstance(asked, tuple) else (asked,)
                work = ratios[0].work
                if work not in timed:
                    timed[work] = of_work(bench, work, rows)
                found[row.key] = compared(ratios, timed[work])
    return found


@dataclass
class Times:
    """The times of programs, by their names."""

    calls: dict[str, list[float]] = field(default_factory=dict)  # seconds of each call
    whole: dict[str, float] = field(default_factory=dict)  # seconds for all of the work
    ready: dict[str, Ready] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # why they cannot run here

    def fastest(self, programs: Sequence[Program]) -> float:
        return min(self.whole[str(program)] for program in programs)

    def ratio(self, asked: Ratio, over: Sequence[Program]) -> float:
        return self.fastest(over) / self.fastest([asked.under])


def of_work(bench: Bench, work: str, rows: Iterable[Any]) -> Times:
    """Times all programs that the figures of a group ask for at this work."""
    programs: list[Program] = []
    for row in rows:
        for asked in row.how if isinstance(row.how, tuple) else (row.how,):
            if isinstance(asked, Ratio) and asked.work == work:
                programs += asked.programs
    return times(bench, programs, lambda fields: bench.work.grid(work, **fields))


def times(
    bench: Bench, programs: Iterable[Program], grid: Callable[[dict[str, Any]], Grid]
) -> Times:
    """Times programs in turn; `grid` returns the work with some fields changed."""
    found = Times()
    for program in dict.fromkeys(programs):
        try:
            ready = PROGRAMS[program.name](bench, grid(dict(program.fields)))
        except NotHere as reason:
            found.missing[str(program)] = f"not run: {reason}"
            continue
        found.ready[str(program)] = ready
    for once in (True, False):
        engines = {
            name: ready.engine
            for name, ready in found.ready.items()
            if ready.once == once
        }
        found.calls |= bench.interleaved(engines, 1 if once else bench.rounds)
    for name, seconds in found.calls.items():
        found.whole[name] = median(seconds) / found.ready[name].share
    return found


def compared(ratios: Sequence[Ratio], found: Times) -> Measured:
    """Returns the ratios of times as values of one figure, or why there are none."""
    row = Measured()
    values = []
    notes: dict[str, None] = {}
    for asked in ratios:
        for name in map(str, asked.programs):
            if name in found.missing:
                notes[found.missing[name]] = None
                continue
            row.seconds[name] = found.calls[name]
            row.floor += found.ready[name].terms
            if found.ready[name].note:
                notes[f"{name}: {found.ready[name].note}"] = None
        for program in asked.also:
            notes[f"{program} / {asked.under} {found.ratio(asked, [program]):.3g}"] = (
                None
            )
        if any(str(program) in found.missing for program in (*asked.over, asked.under)):
            continue
        value = found.ratio(asked, asked.over)
        values.append(100 * (value - 1) if asked.less_one else value)
        if asked.beside:
            row.beside = f"{found.ratio(asked, asked.beside):.3g}x"
    row.note = "; ".join(notes)
    row.values = values if len(values) == len(ratios) else []
    return row


def each(bench: Bench, asked: Each) -> Measured:
    """Measures a ratio at each point of a grid."""
    over, under = asked.ratio.over, [asked.ratio.under]
    row = Measured()
    ratios = []
    for point in points(bench.work.grid(asked.ratio.work)):
        found = times(
            bench,
            asked.ratio.programs,
            lambda fields, point=point: point.replace(**fields),
        )
        ratios.append(found.ratio(asked.ratio, over))
        fields = point.values()
        row.table.append(
            {name: fields[name] for name in asked.fields}
            | {
                f"{over[0]}, s": found.fastest(over),
                f"{under[0]}, s": found.fastest(under),
                "ratio": ratios[-1],
            }
        )
    row.values = asked.summary(ratios)
    return row


def slope(bench: Bench, asked: Slope) -> Measured:
    some = points(bench.work.grid(asked.work))
    levels = [getattr(point, asked.axis) for point in some]
    names = [f"{asked.axis} = {level:.0e}" for level in levels]
    engines = {
        name: ours(bench, point).engine for name, point in zip(names, some, strict=True)
    }
    seconds = bench.interleaved(engines)
    medians = list(clock.medians(seconds).values())
    note = f"slowest over fastest {max(medians) / min(medians):.2g}"
    found, _ = np.polyfit(np.log(levels), np.log(medians), 1)
    return Measured([float(found)], note=note, seconds=seconds)


def peaks(bench: Bench, asked: Peaks) -> Measured:
    """Measures peak memory at each point of a grid, with a fresh process for each.

    The processes load their program from a cache. Compiling needs more memory than
    running, and its use varies by 10 %, which would hide any growth.
    """
    grid = bench.work.grid(asked.work)
    cache = tempfile.mkdtemp(dir=bench.folder)

    def peak(i: int) -> float:
        return clock.fresh("size", grid=grid, i=i, cache=cache)["peak_bytes"] / 2**20

    peak(0)
    some = points(grid)
    found = [peak(i) for i in range(len(some))]
    note = "; ".join(
        f"{peak:.1f} MiB at N = {point.N:.0e}, L = {point.L:.0e}"
        for peak, point in zip(found, some, strict=True)
    )
    return Measured([found[-1] / found[0]], note=f"{note}; programs from a cache")
