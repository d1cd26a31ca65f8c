"""The cost of samples with a pool of noise, which are represented by weighted pairs."""

from __future__ import annotations

import numpy as np

from ...model.point import BLOCK, Point
from ..cost import (
    EXPONENTIAL,
    NORMAL,
    TILE,
    UNIT,
    Amount,
    SourceCost,
    Work,
    flops_of_logits,
    softmax,
    softmax_bounds,
    whole,
)
from ..program_shape import Shape


class PoolCost(SourceCost):
    def draws(self, point: Point, evaluated: int, n_test: int) -> Work:
        """The work of drawing words one by one, or counts in the Gaussian limit."""
        assert point.pool
        batches, limit = 3 if point.fresh_batches else 1, point.in_the_limit
        pairs = batches * whole(point.N, TILE)
        noise = batches * whole(point.pool, BLOCK) * (point.L - 1)
        test, gaussian = n_test * (point.L - 1), 0
        if "samples" in limit:
            pairs = 0
            gaussian += batches * point.V * point.pool
        if "noise" in limit:
            noise = 0
            gaussian += batches * point.V * point.pool
        if "test" in limit:
            test = 0
            gaussian += n_test * point.V
        return Work(
            samples=pairs, tokens=noise, evaluated_tokens=test, gaussian=gaussian
        )

    def repeated(self, point: Point) -> Work:
        """The work of the first steps after the first one.

        The backward pass computes the pairs once more.
        """
        assert point.pool
        pairs = 2 * point.V * point.pool
        return Work(repeated=(point.first_steps - 1) * pairs)

    def further_draws(self, point: Point) -> Work:
        return Work(stepped=point.further_steps)

    def recipe(self, shape: Shape, asked: Work) -> Amount:
        words = NORMAL * asked.gaussian + 3 * asked.samples + 2 * asked.tokens
        steps = Amount(0, words) + _pairs(shape, asked)
        if not shape.trained_by.exact:
            return steps + softmax_bounds(shape, asked)
        return steps + softmax(shape, asked.runs * shape.V * shape.pool, 4)

    def sequences(self, shape: Shape, asked: Work) -> Amount:
        counts = asked.evaluated * shape.V
        tokens = asked.evaluated_tokens + EXPONENTIAL * counts
        return Amount(2 * counts * shape.d, tokens)

    def further_steps(self, shape: Shape, asked: Work) -> Amount:
        """The cost of further steps over all pairs.

        The backward pass computes the pairs once more.
        """
        V, d, m, K = shape.V, shape.d, shape.m, shape.pool
        pairs = asked.stepped * V * K
        tables = asked.stepped * 8 * (K * V * d + V * K * d + (V + K) * m * d)
        return Amount(
            4 * pairs * flops_of_logits(shape) + tables,
            asked.stepped_words + pairs * (EXPONENTIAL * 6 + UNIT * 3 * m),
        )

    def floats(self, shape: Shape) -> int:
        V, d, m, K, p = shape.V, shape.d, shape.m, shape.pool, shape.m or shape.d
        floats = 14 * V * K + 6 * K * d + m * (8 * V + 10 * K)
        if shape.trained_by.exact:
            floats += K * (4 * V + 8 * p)
        return floats

    def floats_of_descent(self, shape: Shape) -> int:
        return 0


COST = PoolCost()


def products_of_steps(degree: int) -> int:
    """The number of products of a (V, K) and a (K, m) matrix in steps 1 and 2.

    The activation must be a polynomial of this degree.
    """
    step1, step2 = 3 * degree - 1, 3 * degree - 1
    return step1 + step2


def _pairs(shape: Shape, asked: Work) -> Amount:
    """The cost of the three steps over all pairs of a token and a noise sequence."""
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, asked.runs
    flops, units = 6 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m), 3
    coefficients = None
    if m:
        coefficients = shape.activation.coefficients(np)
    if coefficients:  # steps 1 and 2 are matrix products
        units = 1
        flops += 2 * V * K * m * products_of_steps(len(coefficients) - 1)
    each = EXPONENTIAL * 9 + UNIT * units * m
    return Amount(runs * flops, runs * V * K * each)
