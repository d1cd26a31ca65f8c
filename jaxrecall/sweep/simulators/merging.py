"""Decides which points share a program.

A shape consists of padded sizes, an activation and a form. Each shape is compiled to a
separate program. At first, each point has the tightest shape that fits. Two shapes are
merged if the time that the padding costs is less than the compilation time that the
merge saves. Both are times of one core. The result depends only on the points and on
their numbers of runs. A grid therefore has the same programs on every machine, in
every share, and also when it is resumed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ...errors import UsageError, plural
from ...model.point import Point
from ...simulator.cost import Work, amount, work
from ...simulator.program_shape import Shape
from . import Sizes, grouped

MANY = (100, 30, 10, 3, 1)
"""The numbers of times that a sweep with `run.programs: many` is planned to run. The
first number that gives at most MOST_PROGRAMS programs is used, or else the last one.
"""

MOST_PROGRAMS = 12
"""A process keeps 24 programs in memory, and each of these may have a fallback."""


def as_sizes(text: str) -> Sizes:
    """Returns the sizes (V, d, m) that a text such as "256x128" or "256x128x512" gives.
    Raises UsageError if the text has another form.
    """
    match = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?", text)
    if not match:
        raise UsageError(
            f"--pad-to: got {text!r}; allowed: VxD or VxDxM in whole numbers, as in"
            " 256x128 or 256x128x512"
        )
    V, d, m = (int(size or 0) for size in match.groups())
    return V, d, m


def padded(points: Iterable[Point], sizes: Sizes) -> Callable[[Point], Shape]:
    """Returns a function from a point to the program that has these sizes. Raises
    UsageError if a point is too large for the sizes.
    """
    V, d, m = sizes

    def program(point: Point) -> Shape:
        return Shape.sized(point, V, d, m if point.m else 0)

    misfits = [point for point in points if not program(point).fits(point)]
    if misfits:
        given = Shape(V, d, m, activation="none")
        least = Shape(
            V=max(point.V for point in misfits),
            d=max(point.d for point in misfits),
            m=max(point.m for point in misfits),
            activation="none",
        )
        raise UsageError(
            f"--pad-to: got {given}, too small for {len(misfits)} points; allowed: at"
            f" least {least}"
        )
    return program


@dataclass
class PlannedProgram:
    """A program, the points that it computes, and the work that their runs require."""

    shape: Shape
    points: list[Point]
    asked: Work

    def seconds(self) -> float:
        """Returns the number of seconds that it takes to compile the program and to do
        the work.
        """
        return amount(self.shape, self.asked).seconds + self.shape.compile_seconds

    def joined(self, other: PlannedProgram) -> PlannedProgram:
        """Returns one program for the points of both programs."""
        shape = larger(self.shape, other.shape)
        return PlannedProgram(
            shape, self.points + other.points, self.asked + other.asked
        )


def chosen(points: Mapping[Point, int], many: bool) -> dict[Shape, list[Point]]:
    """Returns a dict from each program to its points. `points` maps each point to its
    number of runs. `many` is whether the sweep is planned to run many times, so that
    compiling hardly counts.
    """
    if not many:
        return merged(points)
    found = {}
    for times in MANY:
        found = merged(points, times, may_be_light=False)
        if len(found) <= MOST_PROGRAMS:
            break
    return found


def reason(points: Mapping[Point, int], many: bool) -> str:
    """Returns a text that compares the programs of a sweep with those of the other
    value of `run.programs`.
    """
    names = ("many", "few") if many else ("few", "many")
    text = "run.programs: {}; with {}, ".format(*names)
    mine, others = chosen(points, many), chosen(points, not many)
    if mine.keys() == others.keys():
        return f"{text}they would be the same"
    compiling, running = (
        of_others - of_mine
        for of_others, of_mine in zip(
            _times(others, points), _times(mine, points), strict=True
        )
    )
    how_many = f"{plural(len(others), 'program')} instead of {len(mine)}"
    if len(others) == len(mine):
        how_many = "as many programs, but other ones"
    return (
        f"{text}the grid would have {how_many}. On one core they would take"
        f" {_compared(compiling)} to compile and {_compared(running)} to run"
    )


def _times(
    programs: Mapping[Shape, list[Point]], points: Mapping[Point, int]
) -> tuple[float, float]:
    """Returns the seconds to compile programs, and the seconds to run their points."""
    running = 0.0
    for shape, of_shape in programs.items():
        for point in of_shape:
            running += amount(shape, work(point)).seconds * points[point]
    return sum(shape.compile_seconds for shape in programs), running


def _compared(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'more' if seconds > 0 else 'less'}"


def merged(
    points: Mapping[Point, int], times: int = 1, may_be_light: bool = True
) -> dict[Shape, list[Point]]:
    """Returns a dict from each program to its points. The argument `points` maps each
    point to its number of runs, and each run is counted `times` times.

    Shapes of the same variant are merged until every further merge would cost more time
    than it saves. Each merged shape is then replaced by the program that does its work
    in the least time.
    """
    tight = []
    for shape, of_shape in grouped(points, Shape.tight).items():
        runs = (work(point).times(times * points[point]) for point in of_shape)
        asked = sum(runs, Work())
        tight.append(PlannedProgram(shape, of_shape, asked))
    members: list[PlannedProgram] = []
    for of_variant in grouped(sorted(tight, key=_variant), _variant).values():
        members += _merge(of_variant)
    found: dict[Shape, list[Point]] = {}
    fallbacks: set[Shape] = set()
    for member in sorted(members, key=lambda member: member.shape.fallback is None):
        shape = _cheapest(member, fallbacks, may_be_light)
        found.setdefault(shape, []).extend(member.points)
        if shape.fallback:
            fallbacks.add(shape.fallback)
    return found


def _variant(member: PlannedProgram) -> tuple[object, ...]:
    return member.shape.variant


def _cheapest(
    member: PlannedProgram, fallbacks: set[Shape], may_be_light: bool
) -> Shape:
    """Returns the program that does the work of a member in the least time.

    There are three kinds of candidates: the member's own program, the same program
    compiled lightly, and larger programs that other members may need as a fallback.
    Only half the compilation time of a fallback is counted, because the fallback may
    have to be compiled in any case.
    """
    shape = member.shape
    compiled = {shape: shape.compile_seconds}
    # further steps take nearly twice as long in a light program
    if may_be_light and not shape.optimizer:
        light = replace(shape, light=True)
        compiled[light] = light.compile_seconds
    for other in sorted(fallbacks):
        if other.variant == shape.variant and larger(other, shape) == other:
            compiled[other] = 0.5 * other.compile_seconds
    costs = {
        each: amount(each, member.asked).seconds + compiling
        for each, compiling in compiled.items()
    }
    return min(costs, key=costs.__getitem__)


def _merge(members: list[PlannedProgram]) -> list[PlannedProgram]:
    """Returns the programs of a variant after merging pairs. The pair whose merge saves
    the most time is merged first. Merging stops when no merge saves time.
    """
    # each member has a number, because hashing pairs of shapes is slow
    found = dict(enumerate(members))
    takes = {i: member.seconds() for i, member in found.items()}

    def saved(a: int, b: int) -> float:
        return takes[a] + takes[b] - found[a].joined(found[b]).seconds()

    in_order = sorted(found, key=lambda i: found[i].shape)
    savings = {pair: saved(*pair) for pair in itertools.combinations(in_order, 2)}
    while savings:
        best = max(savings, key=savings.__getitem__)
        if savings[best] <= 0:
            break
        a, b = best
        both = found.pop(a).joined(found.pop(b))
        gone = {a, b}
        place = len(takes)
        for i, other in found.items():
            if other.shape == both.shape:
                both = other.joined(both)
                gone.add(i)
                place = i
        found[place] = both
        takes[place] = both.seconds()
        savings = {pair: s for pair, s in savings.items() if gone.isdisjoint(pair)}
        for other in found:
            if other != place:
                savings[other, place] = saved(other, place)
    return list(found.values())


def larger(a: Shape, b: Shape) -> Shape:
    """Returns the shape `a` with V, d and m replaced by the larger values of both
    shapes.
    """
    return replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m), tile=0)
