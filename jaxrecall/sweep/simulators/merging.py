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
from dataclasses import replace

from ...errors import UsageError
from ...model.point import Point
from ...simulator.cost import Work, amount, work
from ...simulator.shape import Shape
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
    """Gives each point the program of these sizes; raises UsageError where one does not
    fit.
    """
    V, d, m = sizes

    def program(point: Point) -> Shape:
        return Shape.sized(point, V, d, m if point.m else 0)

    if misfits := [point for point in points if not program(point).fits(point)]:
        need = (
            max(getattr(point, size) for point in misfits) for size in ("V", "d", "m")
        )
        given, least = (Shape(*of, activation="none") for of in (sizes, need))
        raise UsageError(
            f"--bucket: got {given}, too small for {len(misfits)} points; allowed: at"
            f" least {least}"
        )
    return program


def merged(points: Mapping[Point, int]) -> dict[Shape, list[Point]]:
    """The points, each of which has so many runs, of each program.

    Shapes of the same variant are merged until every merge would cost more than a
    compilation. Then a shape is compiled lightly, or goes to a program that another one
    may fall back on, which may have to be compiled in any case, where that costs less.
    """
    asked = {point: work(point).times(runs) for point, runs in points.items()}
    tight = sorted(
        grouped(points, Shape.tight).items(), key=lambda item: item[0].variant
    )
    groups: dict[Shape, list[Point]] = {}
    for _, of_variant in itertools.groupby(tight, key=lambda item: item[0].variant):
        groups |= _of_variant(dict(of_variant), asked)
    chosen: dict[Shape, list[Point]] = {}
    fallbacks: set[Shape] = set()
    for shape, of in sorted(groups.items(), key=lambda item: item[0].fallback is None):
        total = sum((asked[point] for point in of), Work())
        light = (
            [] if shape.optimizer else [replace(shape, light=True)]
        )  # steps of an optimiser take nearly twice as long in one
        candidates = dict.fromkeys([shape, *light], 1.0)
        candidates |= {
            other: 0.5
            for other in sorted(fallbacks)
            if other.variant == shape.variant and larger(other, shape) == other
        }
        cost = {
            each: amount(each, total).seconds / cores() + share * each.compile_seconds
            for each, share in candidates.items()
        }
        cheapest = min(candidates, key=cost.__getitem__)
        chosen.setdefault(cheapest, []).extend(of)
        fallbacks |= {cheapest.fallback} if cheapest.fallback else set()
    return chosen


def _of_variant(
    groups: dict[Shape, list[Point]], asked: Mapping[Point, Work]
) -> dict[Shape, list[Point]]:
    """Greedily merges the two shapes of a variant that save most, as long as a merge
    saves time.
    """

    def seconds(shape: Shape, of: Work) -> float:
        return amount(shape, of).seconds / cores() + shape.compile_seconds

    # a shape goes by its place in `shapes`, as pairs of shapes take long to hash
    shapes, found = [*groups], dict(enumerate(groups.values()))
    total = {i: sum((asked[point] for point in of), Work()) for i, of in found.items()}
    takes = {i: seconds(shapes[i], of) for i, of in total.items()}

    def saved(a: int, b: int) -> float:
        return (
            takes[a]
            + takes[b]
            - seconds(larger(shapes[a], shapes[b]), total[a] + total[b])
        )

    savings = {
        pair: saved(*pair)
        for pair in itertools.combinations(sorted(found, key=shapes.__getitem__), 2)
    }
    while (best := max(savings, key=savings.__getitem__, default=None)) and savings[
        best
    ] > 0:
        a, b = best
        merged = larger(shapes[a], shapes[b])
        shapes += [] if merged in shapes else [merged]
        both = shapes.index(merged)
        group, of = found.pop(a) + found.pop(b), total.pop(a) + total.pop(b)
        found[both], total[both] = (
            found.get(both, []) + group,
            total.get(both, Work()) + of,
        )
        takes[both] = seconds(shapes[both], total[both])
        savings = {pair: s for pair, s in savings.items() if not {a, b, both} & {*pair}}
        savings |= {
            (other, both): saved(other, both) for other in found if other != both
        }
    return {shapes[i]: of for i, of in found.items()}


def larger(a: Shape, b: Shape) -> Shape:
    """The sizes of both."""
    return replace(a, V=max(a.V, b.V), d=max(a.d, b.d), m=max(a.m, b.m), tile=0)
