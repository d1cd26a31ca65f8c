"""The cost of samples at L = 1, which are represented by weighted tokens."""

from __future__ import annotations

from ...model.point import BLOCK, Point
from ..cost import NORMAL, Amount, SourceCost, Work, softmax, whole
from ..program_shape import Shape


class MemoryCost(SourceCost):
    def draws(self, point: Point, evaluated: int, n_test: int) -> Work:
        drawn = super().draws(point, evaluated, n_test)
        if not point.in_the_limit:
            return drawn
        return drawn._replace(samples=0, tokens=0, gaussian=point.V)

    def repeated(self, point: Point) -> Work:
        return Work(repeated=(point.first_steps - 1) * point.V)

    def further_draws(self, point: Point) -> Work:
        drawn = point.batch or 0
        if not point.batch and point.fresh_batches and not point.in_the_limit:
            drawn = point.N
        steps = point.further_steps
        return Work(stepped_words=2 * steps * whole(drawn, BLOCK), grouped=steps)

    def recipe(self, shape: Shape, asked: Work) -> Amount:
        draws = Amount(0, NORMAL * asked.gaussian + 6 * asked.tokens)
        return draws + softmax(shape, asked.runs * shape.V, 1)

    def tile_rows(self, shape: Shape) -> int:
        return min(shape.tile, shape.V)


COST = MemoryCost()
