"""Decides which points share a program.

A shape consists of padded sizes, an activation and a form. Each shape is compiled to a
separate program. At first, each point has the tightest shape that fits. Two shapes are
merged if the time that the padding costs is less than the compilation time that the
merge saves. Both are times of one core. The result depends only on the points and on
their numbers of runs. A grid therefore has the same programs on every machine, in
every share, and also when it is resumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import combinations, groupby, starmap
from operator import attrgetter, ge

from ...model.point import Point, fields_of_kind
from ...simulator.cost import Work, amount, work_of
from ...simulator.forms import form_for
from ...simulator.program_shape import Shape
from . import Program, grouped


class Part:
    """Points whose runs always share a program, because they have the same tight shape.

    `seconds` returns the number of seconds that all these runs take in a program of a
    given shape, without its compilation. It is computed once for each shape.
    """

    def __init__(self, points: Sequence[Point], n_runs: Mapping[Point, int]):
        self.points = points
        runs = Counter[Work]()
        for point in points:
            runs[work_of(point)] += n_runs[point]

        @cache
        def seconds(shape: Shape) -> float:
            return sum(n * amount(shape, work).seconds for work, n in runs.items())

        self.seconds = seconds


@dataclass
class PlannedProgram:
    """A program, and the parts of the points that it computes."""

    shape: Shape
    parts: list[Part]

    @cached_property
    def takes(self) -> float:
        """The seconds that the program takes."""
        return self.seconds(self.shape)

    def seconds(self, shape: Shape) -> float:
        """Returns the number of seconds that it takes to compile a program and to do
        the runs in it.
        """
        seconds = sum(part.seconds(shape) for part in self.parts)
        return seconds + shape.compile_seconds


def merged(points: Mapping[Point, int]) -> dict[Point, Program]:
    """Returns a dict from each point to its program. The argument `points` maps each
    point to its number of runs.

    Shapes of the same variant are merged until every further merge would cost more time
    than it saves. Each merged shape is then replaced by the program that does its work
    in the least time.
    """
    by_key: dict[object, list[Point]] = {}
    for _, neighbours in groupby(points, _equal_costs):
        equal = [*neighbours]
        by_key.setdefault(_alike(equal[0]), []).extend(equal)
    of_shapes: dict[Shape, list[Point]] = {}
    for alike in by_key.values():
        of_shapes.setdefault(Shape.tight(alike[0]), []).extend(alike)
    tight = [
        PlannedProgram(shape, [Part(of_shape, points)])
        for shape, of_shape in of_shapes.items()
    ]
    members: list[PlannedProgram] = []
    for of_variant in grouped(sorted(tight, key=_variant), _variant).values():
        members += _merge(of_variant)
    programs: dict[Point, Program] = {}
    fallbacks: set[Shape] = set()
    for member in sorted(members, key=lambda member: member.shape.fallback is None):
        shape = cheapest(member, fallbacks)
        for part in member.parts:
            programs |= dict.fromkeys(part.points, shape)
        if shape.fallback:
            fallbacks.add(shape.fallback)
    return programs


def _alike(point: Point) -> tuple[object, ...]:
    """Returns a key. Points with equal keys have the same shape, which takes longer to
    compute.
    """
    return form_for(point, point.V).name, point.sizes, point.template


_equal_costs = attrgetter("template", "eta", *fields_of_kind("size", "traced"))
"""Returns the values that determine the shape of a point and the cost of its runs."""

_variant = attrgetter("shape.variant")


def cheapest(member: PlannedProgram, fallbacks: Iterable[Shape] = ()) -> Shape:
    """Returns the program that does the work of a member in the least time.

    There are three kinds of candidates: the member's own program, the same program
    compiled lightly or quickly, and larger programs that other members may need as a
    fallback. Only half the compilation time of a fallback is counted, because the
    fallback may have to be compiled in any case.
    """
    shape = member.shape
    costs = {shape: member.takes}
    # further steps take nearly twice as long in a light program
    if not shape.optimizer:
        light = replace(shape, light=True)
        for each in light, replace(light, quick=True, tile=0):
            costs[each] = member.seconds(each)
    for other in sorted(fallbacks):
        if other.variant == shape.variant and all(map(ge, other.sizes, shape.sizes)):
            costs[other] = member.seconds(other) - 0.5 * other.compile_seconds
    return min(costs, key=costs.__getitem__)


def _merge(members: list[PlannedProgram]) -> list[PlannedProgram]:
    """Returns the programs of a variant after merging pairs. The pair whose merge saves
    the most time is merged first. Merging stops when no merge saves time.
    """
    # each member has a number, because hashing pairs of shapes is slow
    numbered = sorted(members, key=attrgetter("shape"))
    left = set(range(len(numbered)))
    with_sizes = cache(partial(_resized, numbered[0].shape))

    def merge(a: int, b: int) -> tuple[float, int, int, PlannedProgram]:
        """Returns the seconds that the merge of two members adds, their numbers, and
        their program.
        """
        one, other = numbered[a], numbered[b]
        sizes = map(max, one.shape.sizes, other.shape.sizes)
        both = PlannedProgram(with_sizes(*sizes), one.parts + other.parts)
        # pairs that save the same time differ by rounding alone
        return round(both.takes - one.takes - other.takes, 6), a, b, both

    merges = list(starmap(merge, combinations(left, 2)))
    heapify(merges)
    while merges:
        added, a, b, both = heappop(merges)
        if added >= 0:
            break
        if {a, b} <= left:
            left -= {a, b}
            numbered.append(both)
            new = len(numbered) - 1
            for i in left:
                heappush(merges, merge(i, new))
            left.add(new)
    return [numbered[i] for i in sorted(left)]


def _resized(shape: Shape, V: int, d: int, m: int) -> Shape:
    return replace(shape, V=V, d=d, m=m, tile=0)
