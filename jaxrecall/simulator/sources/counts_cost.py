"""The cost of samples that are represented by co-occurrence counts of tokens."""

from __future__ import annotations

from ..cost import EXPONENTIAL, Amount, SourceCost, Work, softmax_bounds
from ..program_shape import Shape

COUNTED = 1024
"""The number of samples in a tile whose arrays are in memory if samples are only
counted. The reserved memory does not grow with the tile.
"""


class CountsCost(SourceCost):
    def recipe(self, shape: Shape, asked: Work) -> Amount:
        V, d, runs = shape.V, shape.d, asked.runs
        tables = Amount(runs * 8 * V * d * (V + d), runs * V**2)
        draws = Amount(0, (11 + 2 * EXPONENTIAL) * asked.tokens)
        return tables + draws + softmax_bounds(shape, asked)

    def tile_rows(self, shape: Shape) -> int:
        return min(shape.tile, COUNTED) if shape.counts_only else shape.tile

    def floats(self, shape: Shape) -> int:
        return 4 * shape.V * shape.d + 5 * shape.V * shape.V


COST = CountsCost()
