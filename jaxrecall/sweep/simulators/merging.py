"""Which points share a program.

A program is compiled per shape: padded sizes, activation and form. Points start in
tight shapes of their own. Two shapes are merged where the padding costs less than the
compilation that it saves. This depends on the points alone, so the same grid has the
same programs on every machine and whenever it is resumed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ...errors import UsageError
from ...model.point import Point
from ...simulator.cost import Work, amount, work
from ...simulator.program_shape import Shape
from ..machine import cores
from . import Sizes, grouped


def as_sizes(text: str) -> Sizes:
    """Sizes (V, d, m) from "256x128" or "256x128x512"; raises UsageError."""
    match = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?", text)
    if not match:
        raise UsageError(
            f"--bucket: got {text!r}; allowed: VxD or VxDxM in whole numbers, as in"
            " 256x128 or 256x128x512"
        )
    V, d, m = (int(size or 0) for size in match.groups())
    return V, d, m


def padded(points: Iterable[Point], sizes: Sizes) -> Callable[[Point], Shape]:
    """Gives each point the program of these sizes; UsageError if one is too large."""
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
            f"--bucket: got {given}, too small for {len(misfits)} points; allowed: at"
            f" least {least}"
        )
    return program


@dataclass
class PlannedProgram:
    """A program, its points, and the work of their runs."""

    shape: Shape
    points: list[Point]
    asked: Work

    def seconds(self) -> float:
        """To compile the program and to run it."""
        return seconds(self.shape, self.asked) + self.shape.compile_seconds

    def joined(self, other: PlannedProgram) -> PlannedProgram:
        """One program for the points of both."""
        shape = larger(self.shape, other.shape)
        return PlannedProgram(
            shape, self.points + other.points, self.asked + other.asked
        )


def seconds(shape: Shape, asked: Work) -> float:
    """To run work in a program on all cores."""
    return amount(shape, asked).seconds / cores()


def merged(points: Mapping[Point, int]) -> dict[Shape, list[Point]]:
    """The points of each program; each point has so many runs.

    Shapes of the same variant are merged until every merge would cost more than a
    compilation. Then each gets the program in which it costs least.
    """
    variants: dict[object, list[PlannedProgram]] = {}
    for shape, of_shape in sorted(grouped(points, Shape.tight).items(), key=_variant):
        asked = sum((work(point).times(points[point]) for point in of_shape), Work())
        member = PlannedProgram(shape, of_shape, asked)
        variants.setdefault(shape.variant, []).append(member)
    members: list[PlannedProgram] = []
    for of_variant in variants.values():
        members += _merge(of_variant)
    chosen: dict[Shape, list[Point]] = {}
    fallbacks: set[Shape] = set()
    for member in sorted(members, key=lambda member: member.shape.fallback is None):
        shape = _cheapest(member, fallbacks)
        chosen.setdefault(shape, []).extend(member.points)
        if shape.fallback:
            fallbacks.add(shape.fallback)
    return chosen


def _variant(item: tuple[Shape, list[Point]]) -> tuple[object, ...]:
    return item[0].variant


def _cheapest(member: PlannedProgram, fallbacks: set[Shape]) -> Shape:
    """The program in which the work of a member costs least: its own, the same
    compiled lightly, or a fallback of others, which may have to be compiled anyway.
    """
    shape = member.shape
    compiled = {shape: shape.compile_seconds}
    if not shape.optimizer:  # its steps take nearly twice as long in a light program
        light = replace(shape, light=True)
        compiled[light] = light.compile_seconds
    for other in sorted(fallbacks):
        if other.variant == shape.variant and larger(other, shape) == other:
            compiled[other] = 0.5 * other.compile_seconds
    costs = {each: seconds(each, member.asked) + compiled[each] for each in compiled}
    return min(costs, key=costs.__getitem__)


def _merge(members: list[PlannedProgram]) -> list[PlannedProgram]:
    """Merges the two programs of a variant that save most, while that saves time."""
    # members go by a number, as pairs of shapes take long to hash
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
    """The sizes of both."""
    return replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m), tile=0)
