"""The cost of samples that are read as they are drawn."""

from __future__ import annotations

from ..cost import (
    EXPONENTIAL,
    ROW,
    UNIT,
    Amount,
    SourceCost,
    Work,
    softmax,
    softmax_bounds,
)
from ..program_shape import STORED_VALUES, Shape


class StreamCost(SourceCost):
    def recipe(self, shape: Shape, asked: Work) -> Amount:
        V, d, m, p = shape.V, shape.d, shape.m, shape.m or shape.d
        exact, samples = shape.trained_by.exact, asked.samples
        rows = 3 if exact else 4
        each = 5 + exact + 2 * EXPONENTIAL + ROW * rows * d
        tokens = each * asked.tokens + UNIT * 3 * samples * m
        streamed = Amount(samples * 8 * m * d, tokens)
        if exact:
            slopes = Amount(samples * (4 * d * p + 2 * V * d))
            return streamed + softmax(shape, samples, 2) + slopes
        locked = 2 * V * (d * p + V * (d + p))
        of_tokens = Amount(asked.runs * locked, EXPONENTIAL * asked.runs * V**2)
        return streamed + of_tokens + softmax_bounds(shape, asked)

    def floats(self, shape: Shape) -> int:
        if shape.trained_by.exact:
            return STORED_VALUES if shape.repeats else 0
        V, m, p = shape.V, shape.m, shape.m or shape.d
        return 4 * V * p + 3 * m * m


COST = StreamCost()
