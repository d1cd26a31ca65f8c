"""From missing runs to programs and chunks.

A program is compiled per shape: padded sizes, activation and form. Points start in
tight shapes of their own; two shapes are merged where the padding costs less than the
compilation that it saves. A chunk is a list of runs of one program that are started and
reported together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..errors import UsageError
from ..model.point import Point, Run
from ..simulator.shape import Shape
from .calibration import Calibration
from .cost import Work, operations, peak_bytes, work
from .grid.file import Settings
from .machine import cores, memory_limit
from .simulators import Simulator

CHUNK_SECONDS = 20.0
CHUNK_RUNS = 4096

MAX_VMAPPED = 1024
"""Most vmapped runs on an accelerator."""

Sizes = tuple[int, int, int]
"""V, d and m."""


@dataclass(frozen=True)
class Chunk:
    """Runs of one program that end in one part file."""

    shape: Shape
    runs: tuple[Run, ...]
    seconds: float  # of wall time

    def part(self, runs: Sequence[Run]) -> Chunk:
        """Some of its runs."""
        return Chunk(self.shape, tuple(runs), self.seconds * len(runs) / len(self.runs))


class Member(NamedTuple):
    """A point of a plan, its seeds, and the work of one run."""

    point: Point
    seeds: list[int]
    work: Work


@dataclass(frozen=True)
class Plan:
    """The chunks of a set of runs, their estimated cost, and how they are carried out."""

    chunks: tuple[Chunk, ...]
    flops: float
    seconds: float  # of wall time, compilation counted
    seconds_in_full: float  # the same, were every run rejected by the error bound of its form
    settings: Settings
    limit: int  # bytes that a program may take
    calibration: Calibration
    batch: int | None  # vmapped runs on an accelerator; None: half a second's work
    n_runs: int
    simulator: Any = None  # one of a user; None: that of this package
    workers: int = 1  # processes that share the limit and the cores

    @property
    def without_chunks(self) -> Plan:
        """What a process needs to run some of the chunks: a
        few numbers, while a plan may hold millions of runs.
        """
        return replace(self, chunks=())

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(dict.fromkeys(chunk.shape for chunk in self.chunks))

    @property
    def peak_bytes(self) -> int:
        """Of the largest program, with as many runs at a time as there will be, in all workers."""
        return max((peak_bytes(shape) * self.width(shape) * self.workers for shape in self.shapes), default=0)

    @property
    def most_workers(self) -> int:
        """How many processes have room for a run of the largest program each."""
        return max(1, self.limit // (max(map(peak_bytes, self.shapes), default=0) or 1))

    def width(self, shape: Shape) -> int:
        """Runs of a worker at a time on a CPU: one per core, as far as memory goes."""
        return max(1, min(-(-cores() // self.workers), self.n_runs, self.limit // self.workers // (peak_bytes(shape) or 1)))

    def vmapped_width(self, shape: Shape, memory: int, seconds: float) -> int:
        """Vmapped runs on each accelerator with `memory` bytes, a power of two: what
        was asked or half a second's work if a run takes `seconds`, as far as memory
        goes, of which the batch that waits takes as much."""
        wanted = int(min(MAX_VMAPPED, self.n_runs, self.batch or 0.5 / seconds))
        width = 1 << max(0, wanted.bit_length() - 1)
        while width > 1 and 2 * width * peak_bytes(shape.vmapped(width)) > memory:
            width //= 2
        return width

    def seconds_of(self, run: Run, shape: Shape) -> float:
        """Of one core, for a run in a program."""
        return self.calibration.rates.seconds(operations(shape, work(run.point)))

    def describe(self) -> list[dict[str, Any]]:
        """One entry a program: its shape, activation, members and cost."""
        by_shape: dict[Shape, list[Chunk]] = {}
        for chunk in self.chunks:
            by_shape.setdefault(chunk.shape, []).append(chunk)
        return [
            {
                "bucket": str(shape),
                **_choices(shape),
                "points": len({run.point.point_id for c in chunks for run in c.runs}),
                "runs": sum(len(c.runs) for c in chunks),
                "chunks": len(chunks),
                "est_seconds": None if self.simulator else sum(c.seconds for c in chunks),
                "est_peak_bytes": None if self.simulator else peak_bytes(shape),
            }
            for shape, chunks in by_shape.items()
        ]


def _choices(shape: Shape) -> dict[str, Any]:
    """What else distinguishes a program of this package."""
    if not isinstance(shape, Shape):
        return {}
    return {
        "activation": shape.activation,
        "pool": shape.pool,
        "optimizer": shape.optimizer or None,
        "trains": shape.trains or None,
        "exact": "full" if shape.trained_by.exact else "guarded",
    }


def make(
    runs: Iterable[Run],
    pad_to: Sizes | None = None,
    calibration: Calibration | None = None,
    limit: int | None = None,
    settings: Settings | None = None,
    *,
    program: Callable[[Any], Any] | None = None,
    batch: int | None = None,
    simulator: Any = None,
) -> Plan:
    """The plan for runs: shapes of our simulator are merged where that saves time,
    unless their programs are given.

    Args:
        runs: what is to be computed.
        pad_to: sizes (V, d, m) of one program for all.
        calibration: rates of the machine; those that were measured on this one unless
            given.
        limit: bytes that a program may take; 80 % of what this process may use unless
            given.
        settings: how the plan is carried out.
        program: the program of each point.
        batch: how many runs an accelerator vmaps; half a second's work unless given.
        simulator: what is simulated; that of this package unless given.

    Raises:
        UsageError if a point does not fit into `pad_to`, and for `pad_to` with a
        simulator of a user.
    """
    known = calibration or Calibration.kept()
    own = simulator if isinstance(simulator, Simulator) else None
    if own and pad_to:
        raise UsageError("--bucket: got with a simulator of your own; allowed: without it")
    if own:
        known, program = Calibration(), own.program
    by_point: dict[Any, list[int]] = {}
    for point, seed in runs:
        by_point.setdefault(point, []).append(seed)
    if pad_to:
        program = _padded(by_point, pad_to)
    members = [Member(point, seeds, work(point)) for point, seeds in by_point.items()]
    groups = _grouped(members, program) if program else _merged(members, known)
    n_runs = sum(map(len, by_point.values()))
    return Plan(*_estimated(groups, known), settings or Settings(), limit or memory_limit(), known, batch, n_runs, own)


def _estimated(groups: dict[Shape, list[Member]], known: Calibration) -> tuple[tuple[Chunk, ...], float, float, float]:
    """The first four fields of a plan, of members by program."""
    chunks = tuple(chunk for shape in sorted(groups) for chunk in _chunks(shape, groups[shape], known))
    asked = {shape: _work(group) for shape, group in groups.items()}
    fallbacks = {shape.fallback: asked[shape] for shape in groups if shape.fallback}
    seconds = sum(chunk.seconds for chunk in chunks) + known.compilation(groups)
    again = sum(known.rates.on_all_cores(operations(shape, of)) for shape, of in fallbacks.items())
    again += known.compilation(fallbacks.keys() - groups.keys())
    flops = sum(operations(shape, of).flops for shape, of in asked.items())
    return chunks, flops, seconds, seconds + again


def program_for(point: Any, program: Any) -> Any:
    """The program of these sizes for a point, which may need
    another form; that of another simulator serves as it is.
    """
    if not isinstance(program, Shape):
        return program
    return replace(Shape.sized(point, program.V, program.d, program.m), light=program.light)


def _padded(points: Iterable[Point], sizes: Sizes) -> Callable[[Point], Shape]:
    """Gives each point the program of these sizes; raises UsageError where one does not fit."""
    V, d, m = sizes

    def program(point: Point) -> Shape:
        return Shape.sized(point, V, d, m if point.m else 0)

    if misfits := [point for point in points if not program(point).fits(point)]:
        need = (max(getattr(point, size) for point in misfits) for size in ("V", "d", "m"))
        given, least = (Shape(*of, activation="none") for of in (sizes, need))
        raise UsageError(f"--bucket: got {given}, too small for {len(misfits)} points; allowed: at least {least}")
    return program


def _grouped(members: Iterable[Member], program: Callable[[Any], Any]) -> dict[Shape, list[Member]]:
    """The members of each program."""
    groups: dict[Shape, list[Member]] = {}
    for member in members:
        groups.setdefault(program(member.point), []).append(member)
    return groups


def _merged(members: Iterable[Member], calibration: Calibration) -> dict[Shape, list[Member]]:
    """Merges shapes of the same variant until every merge would cost more than a
    compilation. Then compiles a shape lightly, or puts it into one that is compiled
    already, or that another program may fall back on, where that costs less."""
    groups: dict[Shape, list[Member]] = {}
    tight = sorted(_grouped(members, Shape.tight).items(), key=lambda item: item[0].variant)
    for _, of_variant in itertools.groupby(tight, key=lambda item: item[0].variant):
        groups |= _of_variant(dict(of_variant), calibration)
    chosen: dict[Shape, list[Member]] = {}
    fallbacks: set[Shape] = set()
    for shape, group in sorted(groups.items(), key=lambda item: item[0].fallback is None):
        cheapest = _cheapest(shape, _work(group), calibration, fallbacks)
        chosen.setdefault(cheapest, []).extend(group)
        if cheapest.fallback:
            fallbacks.add(cheapest.fallback)
    return chosen


def _cheapest(shape: Shape, of: Work, calibration: Calibration, fallbacks: set[Shape]) -> Shape:
    """The program that does the work of a shape in the least time."""

    def cost(program: Shape) -> float:
        seconds = calibration.rates.on_all_cores(operations(program, of))
        share = 0.5 if program in fallbacks else 1  # a fallback may have to be compiled in any case
        return seconds + share * calibration.seconds_to_get(program)

    light = [] if shape.optimizer else [replace(shape, light=True)]  # steps of an optimiser take nearly twice as long in one
    others = sorted(calibration.programs | fallbacks)
    return min([shape, *light, *(b for b in others if b.variant == shape.variant and _both(b, shape) == b)], key=cost)


def _of_variant(groups: dict[Shape, list[Member]], calibration: Calibration) -> dict[Shape, list[Member]]:
    """Greedily merges the two shapes of a variant that save most, as long as a merge saves time."""

    def seconds(shape: Shape, of: Work) -> float:
        return calibration.rates.on_all_cores(operations(shape, of)) + calibration.seconds_to_get(shape)

    asked = {shape: _work(group) for shape, group in groups.items()}
    takes = {shape: seconds(shape, of) for shape, of in asked.items()}

    def saved(a: Shape, b: Shape) -> float:
        return takes[a] + takes[b] - seconds(_both(a, b), asked[a] + asked[b])

    savings = {pair: saved(*pair) for pair in itertools.combinations(sorted(groups), 2)}
    while savings:
        a, b = max(savings, key=lambda pair: savings[pair])
        if savings[a, b] <= 0:
            break
        both = _both(a, b)
        group, total = groups.pop(a) + groups.pop(b), asked.pop(a) + asked.pop(b)
        groups[both], asked[both] = groups.get(both, []) + group, asked.get(both, Work()) + total
        takes[both] = seconds(both, asked[both])
        savings = {pair: s for pair, s in savings.items() if not {a, b, both} & set(pair)}
        savings |= {(other, both): saved(other, both) for other in groups if other != both}
    return groups


def _both(a: Shape, b: Shape) -> Shape:
    return replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m), tile=0)


def _work(members: Iterable[Member]) -> Work:
    return sum((member.work.times(len(member.seeds)) for member in members), Work())


def _chunks(shape: Shape, members: list[Member], calibration: Calibration) -> Iterable[Chunk]:
    runs: list[Run] = []
    total = 0.0
    costs: dict[Work, float] = {}  # of points that differ in nothing that costs time in this program
    for point, seeds, asked in members:
        each = costs.get(asked) or costs.setdefault(asked, calibration.rates.on_all_cores(operations(shape, asked)))
        for seed in seeds:
            if runs and (total + each > CHUNK_SECONDS or len(runs) == CHUNK_RUNS):
                yield Chunk(shape, tuple(runs), total)
                runs, total = [], 0.0
            runs.append(Run(point, seed))
            total += each
    if runs:
        yield Chunk(shape, tuple(runs), total)
