"""From missing runs to programs and chunks.

A program is compiled per shape: padded sizes, activation and form. Points start in tight shapes of their own; two shapes
are merged where the padding costs less than the compilation that it saves. A chunk is a list of runs of one program that are
started and reported together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..errors import UsageError
from ..model.point import Point, Run
from ..simulator.shape import Shape
from ..simulator.sizes import Sizes
from ..simulator.work import Work, memory_limit
from .cost import Calibration, cores
from .settings import Settings

CHUNK_SECONDS = 20.0
CHUNK_RUNS = 4096

MAX_BESIDE = 1024
"""Most runs side by side on an accelerator."""


@dataclass(frozen=True)
class Chunk:
    """Runs of one program that end in one part file."""

    shape: Shape
    runs: tuple[Run, ...]
    seconds: float  # of wall time

    def part(self, runs: Sequence[Run]) -> Chunk:
        """Some of its runs."""
        return Chunk(self.shape, tuple(runs), self.seconds * len(runs) / len(self.runs))


@dataclass(frozen=True)
class Terms:
    """What a process needs to run chunks of a plan, besides the chunks: a few numbers, while a plan may hold millions of runs."""

    settings: Settings
    limit: int  # bytes that a program may take
    calibration: Calibration
    batch: int | None  # runs side by side on an accelerator; None: half a second's work
    n_runs: int
    seconds_per_run: dict[Shape, float]

    @staticmethod
    def of(chunks: Sequence[Chunk], settings: Settings, limit: int, calibration: Calibration, batch: int | None = None) -> Terms:
        """Those of these chunks."""
        seconds: dict[Shape, float] = {}
        runs: dict[Shape, int] = {}
        for chunk in chunks:
            seconds[chunk.shape] = seconds.get(chunk.shape, 0.0) + chunk.seconds
            runs[chunk.shape] = runs.get(chunk.shape, 0) + len(chunk.runs)
        per_run = {shape: seconds[shape] / runs[shape] for shape in runs}
        turned_away = {shape.fallback: each for shape, each in per_run.items() if shape.fallback}
        return Terms(settings, limit, calibration, batch, sum(runs.values()), turned_away | per_run)

    def width(self, shape: Shape) -> int:
        """Runs side by side on a CPU: one per core, as far as memory goes."""
        return max(1, min(cores(), self.n_runs, self.limit // shape.peak_bytes))

    def width_beside(self, shape: Shape, platform: str, memory: int) -> int:
        """Runs side by side on each accelerator with `memory` bytes, a power of two: what was asked or half a second's work, as far
        as memory goes, of which the batch that waits takes as much."""
        wanted = int(min(MAX_BESIDE, self.n_runs, self.batch or 0.5 / self.seconds_per_run[shape]))
        width = 1 << max(0, wanted.bit_length() - 1)
        while width > 1 and 2 * width * shape.beside_bytes(width, platform) > memory:
            width //= 2
        return width

    def seconds_of(self, run: Run, shape: Shape) -> float:
        """Of one core, for a run in a program."""
        return self.calibration.rates.seconds(shape.amounts(Work.of(run.point)))


class Member(NamedTuple):
    """A point of a plan, its seeds, and the work of one run."""

    point: Point
    seeds: list[int]
    work: Work


@dataclass(frozen=True)
class Plan:
    """The chunks of a set of runs, their estimated cost, and the terms on which they run."""

    chunks: tuple[Chunk, ...]
    flops: float
    seconds: float  # of wall time, compilation counted
    seconds_in_full: float  # the same, were every run turned away by the error bound of its form
    terms: Terms

    @property
    def settings(self) -> Settings:
        return self.terms.settings

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(dict.fromkeys(chunk.shape for chunk in self.chunks))

    @property
    def peak_bytes(self) -> int:
        """Of the largest program, with as many runs side by side as there will be."""
        return max((shape.peak_bytes * self.terms.width(shape) for shape in self.shapes), default=0)

    @property
    def n_runs(self) -> int:
        return self.terms.n_runs

    def describe(self) -> list[dict[str, Any]]:
        """One entry a program: its shape, activation, members and cost."""
        return [
            {
                "bucket": str(shape),
                "activation": shape.activation,
                "pool": shape.pool,
                "optimizer": shape.optimizer or None,
                "trains": shape.trains or None,
                "exact": "full" if shape.runs_as.exact else "guarded",
                "points": len({run.point.point_id for c in mine for run in c.runs}),
                "runs": sum(len(c.runs) for c in mine),
                "chunks": len(mine),
                "est_seconds": sum(c.seconds for c in mine),
                "est_peak_bytes": shape.peak_bytes,
            }
            for shape in self.shapes
            for mine in [[c for c in self.chunks if c.shape == shape]]
        ]


def make(
    runs: Iterable[Run],
    pad_to: tuple[int, int, int] | None = None,
    calibration: Calibration | None = None,
    limit: int | None = None,
    settings: Settings | None = None,
    quick: bool = False,
) -> Plan:
    """The plan for `runs`, with the measured rates of this machine, for programs of at most `limit` bytes (80 % of its memory).

    With `pad_to` = (V, d, m) every point runs in that shape, `quick` to compile or not; raises UsageError where one does not fit.
    """
    calibration = calibration or Calibration.kept()
    by_point: dict[Point, list[int]] = {}
    for point, seed in runs:
        by_point.setdefault(point, []).append(seed)
    members = [Member(point, seeds, Work.of(point)) for point, seeds in by_point.items()]
    groups = _forced(members, pad_to, quick) if pad_to else _merged(members, calibration)
    work = {shape: _work(group) for shape, group in groups.items()}
    fallbacks = {shape.fallback: work[shape] for shape in groups if shape.fallback}
    chunks = tuple(chunk for shape in sorted(groups) for chunk in _chunks(shape, groups[shape], calibration))
    seconds = sum(chunk.seconds for chunk in chunks) + sum(map(calibration.seconds_to_get, groups))
    again = sum(calibration.rates.on_all_cores(shape.amounts(of)) for shape, of in fallbacks.items())
    return Plan(
        chunks=chunks,
        flops=sum(shape.amounts(of).flops for shape, of in work.items()),
        seconds=seconds,
        seconds_in_full=seconds + again + sum(map(calibration.seconds_to_get, fallbacks.keys() - groups.keys())),
        terms=Terms.of(chunks, settings or Settings(), limit or memory_limit(), calibration),
    )


def joined(plans: Sequence[Plan], batch: int) -> Plan:
    """One plan from several with the same settings, which runs `batch` runs side by side on an accelerator."""
    chunks, terms = tuple(chunk for plan in plans for chunk in plan.chunks), plans[0].terms
    return Plan(
        chunks=chunks,
        flops=sum(plan.flops for plan in plans),
        seconds=sum(plan.seconds for plan in plans),
        seconds_in_full=sum(plan.seconds_in_full for plan in plans),
        terms=Terms.of(chunks, terms.settings, terms.limit, terms.calibration, batch),
    )


def _forced(members: Iterable[Member], sizes: tuple[int, int, int], quick: bool) -> dict[Shape, list[Member]]:
    groups: dict[Shape, list[Member]] = {}
    V, d, m = sizes
    misfits = []
    for member in members:
        point = member.point
        shape = replace(Shape.sized(point, V, d, m if point.m else 0), quick=quick)
        groups.setdefault(shape, []).append(member)
        if not shape.fits(point):
            misfits.append(point)
    if misfits:
        need = (max(getattr(point, size) for point in misfits) for size in ("V", "d", "m"))
        given, least = (Sizes(*of, activation="none") for of in (sizes, need))
        raise UsageError(f"--bucket: got {given}, too small for {len(misfits)} points; allowed: at least {least}")
    return groups


def _merged(members: Iterable[Member], calibration: Calibration) -> dict[Shape, list[Member]]:
    """Greedily merges the two shapes that save most, until every merge would cost more than a compilation. Then makes
    a shape quick to compile, or puts it into one that is compiled already, or that another program may fall back on, where that costs
    less."""
    groups: dict[Shape, list[Member]] = {}
    for member in members:
        groups.setdefault(Shape.tight(member.point), []).append(member)
    work = {shape: _work(group) for shape, group in groups.items()}
    get = calibration.seconds_to_get

    def seconds(shape: Shape, of: Work) -> float:
        return calibration.rates.on_all_cores(shape.amounts(of))

    def saved(a: Shape, b: Shape) -> float:
        both = _both(a, b)
        padding = seconds(both, work[a] + work[b]) - seconds(a, work[a]) - seconds(b, work[b])
        return get(a) + get(b) - get(both) - padding

    def pairs(of: Iterable[tuple[Shape, Shape]]) -> dict[tuple[Shape, Shape], float]:
        return {(a, b): saved(a, b) for a, b in of if a.variant == b.variant}

    savings = pairs(itertools.combinations(sorted(groups), 2))
    while savings:
        a, b = max(savings, key=lambda pair: savings[pair])
        if savings[a, b] <= 0:
            break
        both = _both(a, b)
        group, total = groups.pop(a) + groups.pop(b), work.pop(a) + work.pop(b)
        groups[both], work[both] = groups.get(both, []) + group, work.get(both, Work()) + total
        savings = {pair: s for pair, s in savings.items() if not {a, b, both} & set(pair)}
        savings |= pairs((other, both) for other in groups if other != both)

    settled: dict[Shape, list[Member]] = {}
    for shape, group in sorted(groups.items(), key=lambda item: item[0].fallback is None):
        fallbacks = {guarded.fallback for guarded in settled if guarded.fallback}
        others = [b for b in sorted(calibration.programs | fallbacks) if b.variant == shape.variant and _both(b, shape) == b]

        def cost(b: Shape, of: Work = work[shape], fallbacks: set[Shape] = fallbacks) -> float:
            return get(b) * (0.5 if b in fallbacks else 1) + seconds(b, of)  # a fallback may have to be compiled in any case

        quick = [] if shape.optimizer else [replace(shape, quick=True)]  # steps of an optimiser take nearly twice as long in one
        settled.setdefault(min([shape, *quick, *others], key=cost), []).extend(group)
    return settled


def _both(a: Shape, b: Shape) -> Shape:
    return replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m), tile=0)


def _work(members: Iterable[Member]) -> Work:
    total = Work()
    for member in members:
        total += member.work.times(len(member.seeds))
    return total


def _chunks(shape: Shape, members: list[Member], calibration: Calibration) -> Iterable[Chunk]:
    runs: list[Run] = []
    total = 0.0
    costs: dict[Work, float] = {}  # of points that differ in nothing that costs time in this program
    for point, seeds, work in members:
        each = costs.get(work) or costs.setdefault(work, calibration.rates.on_all_cores(shape.amounts(work)))
        for seed in seeds:
            if runs and (total + each > CHUNK_SECONDS or len(runs) == CHUNK_RUNS):
                yield Chunk(shape, tuple(runs), total)
                runs, total = [], 0.0
            runs.append(Run(point, seed))
            total += each
    if runs:
        yield Chunk(shape, tuple(runs), total)
