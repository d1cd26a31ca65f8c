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
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter

from ...model.point import Point
from ...simulator.cost import Work, amount, work_of
from ...simulator.program_shape import Shape
from . import Program, grouped


@dataclass
class PlannedProgram:
    """A program, the points that it computes, and the number of runs with each
    work.
    """

    shape: Shape
    points: list[Point]
    runs: Counter[Work]

    def seconds(self, shape: Shape) -> float:
        """Returns the number of seconds that it takes to compile a program and to do
        the runs in it.
        """
        seconds = sum(n * amount(shape, work).seconds for work, n in self.runs.items())
        return seconds + shape.compile_seconds

    def joined(self, other: PlannedProgram) -> PlannedProgram:
        """Returns one program for the points of both programs."""
        shape = larger(self.shape, other.shape)
        points = self.points + other.points
        return PlannedProgram(shape, points, self.runs + other.runs)


def merged(points: Mapping[Point, int]) -> dict[Point, Program]:
    """Returns a dict from each point to its program. The argument `points` maps each
    point to its number of runs.

    Shapes of the same variant are merged until every further merge would cost more time
    than it saves. Each merged shape is then replaced by the program that does its work
    in the least time.
    """
    tight = []
    for shape, of_shape in grouped(points, Shape.tight).items():
        runs = Counter[Work]()
        for point in of_shape:
            runs[work_of(point)] += points[point]
        tight.append(PlannedProgram(shape, of_shape, runs))
    members: list[PlannedProgram] = []
    for of_variant in grouped(sorted(tight, key=_variant), _variant).values():
        members += _merge(of_variant)
    programs: dict[Point, Program] = {}
    fallbacks: set[Shape] = set()
    for member in sorted(members, key=lambda member: member.shape.fallback is None):
        shape = cheapest(member, fallbacks)
        programs |= dict.fromkeys(member.points, shape)
        if shape.fallback:
            fallbacks.add(shape.fallback)
    return programs


_variant = attrgetter("shape.variant")


def cheapest(member: PlannedProgram, fallbacks: Iterable[Shape] = ()) -> Shape:
    """Returns the program that does the work of a member in the least time.

    There are three kinds of candidates: the member's own program, the same program
    compiled lightly or quickly, and larger programs that other members may need as a
    fallback. Only half the compilation time of a fallback is counted, because the
    fallback may have to be compiled in any case.
    """
    shape = member.shape
    costs = {shape: member.seconds(shape)}
    # further steps take nearly twice as long in a light program
    if not shape.optimizer:
        light = replace(shape, light=True)
        for each in light, replace(light, quick=True, tile=0):
            costs[each] = member.seconds(each)
    for other in sorted(fallbacks):
        if other.variant == shape.variant and larger(other, shape) == other:
            costs[other] = member.seconds(other) - 0.5 * other.compile_seconds
    return min(costs, key=costs.__getitem__)


def _merge(members: list[PlannedProgram]) -> list[PlannedProgram]:
    """Returns the programs of a variant after merging pairs. The pair whose merge saves
    the most time is merged first. Merging stops when no merge saves time.
    """
    # each member has a number, because hashing pairs of shapes is slow
    numbered = dict(enumerate(sorted(members, key=lambda member: member.shape)))
    takes = {i: member.seconds(member.shape) for i, member in numbered.items()}

    @cache
    def saved(a: int, b: int) -> float:
        both = numbered[a].joined(numbered[b])
        # pairs that save the same time differ by rounding alone
        return round(takes[a] + takes[b] - both.seconds(both.shape), 6)

    left = list(numbered)
    while len(left) > 1:
        a, b = max(itertools.combinations(left, 2), key=lambda pair: saved(*pair))
        if saved(a, b) <= 0:
            break
        both = numbered[a].joined(numbered[b])
        gone = {a, b}
        for i in left:
            if i not in gone and numbered[i].shape == both.shape:
                both = numbered[i].joined(both)
                gone.add(i)
        new = len(numbered)
        numbered[new], takes[new] = both, both.seconds(both.shape)
        left = [i for i in left if i not in gone] + [new]
    return [numbered[i] for i in left]


def larger(a: Shape, b: Shape) -> Shape:
    """Returns the shape `a` with V, d and m replaced by the larger values of both
    shapes.
    """
    return replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m), tile=0)
