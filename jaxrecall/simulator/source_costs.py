"""The cost of samples by their source: draws, gradients, and memory.

`cost` adds the cost of everything else. In formulas, V, d, m and K are the padded sizes
of the program, and p is m, or d without an MLP.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from ..model.point import BLOCK, TRAINS, Point
from .program_shape import STORED_TOKENS, STORED_VALUES, Shape

TILE = 4 * BLOCK
"""The number of samples per iteration of most programs."""

FLOPS_A_SECOND, TOKENS_A_SECOND = 2.0e11, 8.0e8
"""The speeds of one core: flops per second, and tokens (random words) per second."""

NORMAL, EXPONENTIAL, UNIT, ROW = 4.0, 1 / 3, 0.6, 1 / 30
"""Costs in tokens. NORMAL is the cost of a normal number, and EXPONENTIAL that of an
exponential. UNIT is the cost of a hidden unit, or of comparing a logit with a label.
ROW is the cost of gathering and adding one float of a row.
"""


class Amount(NamedTuple):
    """The cost of runs in a program: the flops, and the cost of everything else in
    tokens.
    """

    flops: float = 0.0
    tokens: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.flops + other.flops, self.tokens + other.tokens)

    def times(self, n: float) -> Amount:
        return Amount(n * self.flops, n * self.tokens)

    @property
    def seconds(self) -> float:
        """The number of seconds on one core."""
        return self.flops / FLOPS_A_SECOND + self.tokens / TOKENS_A_SECOND


class Work(NamedTuple):
    """The amount of work of runs, which does not depend on the program."""

    runs: int = 0
    # samples drawn: N, which here and below is rounded up to whole tiles or blocks
    samples: int = 0
    tokens: int = 0  # tokens drawn: N L, or those of a pool
    repeated: int = 0  # softmaxes that first steps 1, 2, ... compute
    evaluated: int = 0  # test and train sequences that are measured
    evaluated_tokens: int = 0
    labels: int = 0  # logits of these sequences
    gaussian: int = 0  # counts that are drawn from their Gaussian limit
    stepped: int = 0  # samples that further steps read, or with a pool, steps
    stepped_tokens: int = 0  # tokens of these samples; 0 with a pool
    stepped_words: int = 0  # random words drawn for further steps
    recorded: int = 0  # recorded rows of runs with further steps
    grouped: int = 0  # further steps that read weighted tokens

    def __add__(self, other: Work) -> Work:
        return Work(*map(operator.add, self, other))

    def times(self, n: int) -> Work:
        return Work(*(n * each for each in self))


class SourceCost:
    """The cost of samples from a source. The methods of this class fit most sources."""

    def draws(self, point: Point, evaluated: int, n_test: int) -> Work:
        """The work of drawing the samples of a run.

        `evaluated` is the number of sequences that are measured, summed over rows.
        `n_test` of them are test sequences.
        """
        samples = rounded_up(point.N, TILE)
        tokens = samples * point.L
        return Work(
            samples=samples, tokens=tokens, evaluated_tokens=evaluated * point.L
        )

    def repeated(self, point: Point) -> Work:
        """The work of the first steps after the first one.

        Tokens are drawn again if the mean values of the samples are not stored. The
        recipe reads them three times, and a first step once.
        """
        steps, samples = point.first_steps - 1, rounded_up(point.N, BLOCK)
        is_stored = not point.fresh_batches and samples * point.d <= STORED_VALUES
        tokens = 0 if is_stored else samples * point.L // 3
        return Work(repeated=steps * samples, tokens=steps * tokens)

    def further_draws(self, point: Point) -> Work:
        """The work of the further steps of a run.

        All steps are assumed to read samples, because it is unknown before the run
        whether attention will be locked.
        """
        samples = point.further_steps * rounded_up(point.batch or point.N, BLOCK)
        tokens = samples * point.L
        stored = rounded_up(point.N, BLOCK) * point.L
        # drawn in the forward pass and again in the backward pass
        words = 2 * tokens
        if point.batch:
            # each token of a chosen sample costs both output words of the cipher
            words = 4 * tokens
        elif not point.fresh_batches and stored <= STORED_TOKENS:
            words = stored
        return Work(stepped=samples, stepped_tokens=tokens, stepped_words=words)

    def recipe(self, shape: Shape, load: Work) -> Amount:
        """The cost of the three steps if attention is not locked. Locked attention
        costs less.
        """
        raise NotImplementedError

    def sequences(self, shape: Shape, load: Work) -> Amount:
        """The cost of attention in the sequences that are measured."""
        return Amount(0, ROW * load.evaluated_tokens * shape.d)

    def further_steps(self, shape: Shape, load: Work) -> Amount:
        """The cost of further steps that read samples.

        The backward pass costs twice as much as the forward pass.
        """
        V, d, m = shape.V, shape.d, shape.m
        samples, each, of_sample = load.stepped, 5 + EXPONENTIAL * 2 + ROW * d, 0
        if trains_rows(shape):
            each += 1
        if shape.through_logits:
            each += ROW * (V - d)
            of_sample = 2 * V * V
        else:
            of_keys = 2 * V * d if shape.trains != "V" else 0
            of_sample = 3 * flops_of_logits(shape) + of_keys + flops_of_values(shape)
        update = 6 * V * d * (m or d)
        rest = samples * (EXPONENTIAL * 3 * V + UNIT * 2 * m)
        return Amount(
            samples * of_sample + (samples // BLOCK) * update,
            load.stepped_words + each * load.stepped_tokens + rest,
        )

    def tile_rows(self, shape: Shape) -> int:
        """The number of samples in a tile, or of tokens if L = 1."""
        return shape.tile

    def floats(self, shape: Shape) -> int:
        """The number of extra floats that the recipe stores when this source is
        used.
        """
        return 0

    def floats_of_descent(self, shape: Shape) -> int:
        """The number of extra floats that further steps store when this source is
        used.
        """
        return 5 * shape.V * shape.V if shape.through_logits else 0


class StreamCost(SourceCost):
    """The cost of samples that are read as they are drawn."""

    def recipe(self, shape: Shape, load: Work) -> Amount:
        V, d, m, p = shape.V, shape.d, shape.m, shape.m or shape.d
        exact, samples = shape.trained_by.exact, load.samples
        rows = 3 if exact else 4
        each = 5 + exact + 2 * EXPONENTIAL + ROW * rows * d
        tokens = each * load.tokens + UNIT * 3 * samples * m
        streamed = Amount(samples * 8 * m * d, tokens)
        if exact:
            slopes = Amount(samples * (4 * d * p + 2 * V * d))
            return streamed + softmax(shape, samples, 2) + slopes
        locked = 2 * V * (d * p + V * (d + p))
        of_tokens = Amount(load.runs * locked, EXPONENTIAL * load.runs * V**2)
        return streamed + of_tokens + softmax_bounds(shape, load)

    def floats(self, shape: Shape) -> int:
        if shape.trained_by.exact:
            return STORED_VALUES if shape.repeats else 0
        V, m, p = shape.V, shape.m, shape.m or shape.d
        return 4 * V * p + 3 * m * m


COUNTED = 1024
"""The number of samples in a tile whose arrays are in memory if samples are only
counted. The reserved memory does not grow with the tile.
"""


class CountsCost(SourceCost):
    """The cost of samples that are represented by co-occurrence counts of tokens."""

    def recipe(self, shape: Shape, load: Work) -> Amount:
        V, d, runs = shape.V, shape.d, load.runs
        tables = Amount(runs * 8 * V * d * (V + d), runs * V**2)
        draws = Amount(0, (11 + 2 * EXPONENTIAL) * load.tokens)
        return tables + draws + softmax_bounds(shape, load)

    def tile_rows(self, shape: Shape) -> int:
        return min(shape.tile, COUNTED) if shape.counts_only else shape.tile

    def floats(self, shape: Shape) -> int:
        return 4 * shape.V * shape.d + 5 * shape.V * shape.V


class PoolCost(SourceCost):
    """The cost of samples with a pool, which are represented by weighted pairs."""

    def draws(self, point: Point, evaluated: int, n_test: int) -> Work:
        """The work of drawing words one by one, or counts in the Gaussian limit."""
        assert point.pool
        batches, limit = 3 if point.fresh_batches else 1, point.in_the_limit
        pairs = batches * rounded_up(point.N, TILE)
        noise = batches * rounded_up(point.pool, BLOCK) * (point.L - 1)
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

    def recipe(self, shape: Shape, load: Work) -> Amount:
        words = NORMAL * load.gaussian + 3 * load.samples + 2 * load.tokens
        steps = Amount(0, words) + _pairs(shape, load)
        if not shape.trained_by.exact:
            return steps + softmax_bounds(shape, load)
        return steps + softmax(shape, load.runs * shape.V * shape.pool, 4)

    def sequences(self, shape: Shape, load: Work) -> Amount:
        counts = load.evaluated * shape.V
        tokens = load.evaluated_tokens + EXPONENTIAL * counts
        return Amount(2 * counts * shape.d, tokens)

    def further_steps(self, shape: Shape, load: Work) -> Amount:
        """The cost of further steps over all pairs.

        The backward pass computes the pairs once more.
        """
        V, d, m, K = shape.V, shape.d, shape.m, shape.pool
        pairs = load.stepped * V * K
        tables = load.stepped * 8 * (K * V * d + V * K * d + (V + K) * m * d)
        return Amount(
            4 * pairs * flops_of_logits(shape) + tables,
            load.stepped_words + pairs * (EXPONENTIAL * 6 + UNIT * 3 * m),
        )

    def floats(self, shape: Shape) -> int:
        V, d, m, K, p = shape.V, shape.d, shape.m, shape.pool, shape.m or shape.d
        floats = 14 * V * K + 6 * K * d + m * (8 * V + 10 * K)
        if shape.trained_by.exact:
            floats += K * (4 * V + 8 * p)
        return floats

    def floats_of_descent(self, shape: Shape) -> int:
        return 0


def products_of_steps(degree: int) -> int:
    """The number of products of a (V, K) and a (K, m) matrix in steps 1 and 2.

    The activation must be a polynomial of this degree.
    """
    step1, step2 = 3 * degree - 1, 3 * degree - 1
    return step1 + step2


def _pairs(shape: Shape, load: Work) -> Amount:
    """The cost of the three steps over all pairs of a token and a noise sequence."""
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, load.runs
    flops, units = 6 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m), 3
    coefficients = None
    if m:
        coefficients = shape.activation.coefficients(np)
    if coefficients:  # steps 1 and 2 are matrix products
        units = 1
        flops += 2 * V * K * m * products_of_steps(len(coefficients) - 1)
    each = EXPONENTIAL * 9 + UNIT * units * m
    return Amount(runs * flops, runs * V * K * each)


class MemoryCost(SourceCost):
    """The cost of samples at L = 1, which are represented by weighted tokens."""

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
        return Work(stepped_words=2 * steps * rounded_up(drawn, BLOCK), grouped=steps)

    def recipe(self, shape: Shape, load: Work) -> Amount:
        draws = Amount(0, NORMAL * load.gaussian + 6 * load.tokens)
        return draws + softmax(shape, load.runs * shape.V, 1)

    def tile_rows(self, shape: Shape) -> int:
        return min(shape.tile, shape.V)


COSTS = {
    "stream": StreamCost(),
    "counts": CountsCost(),
    "pool": PoolCost(),
    "memory": MemoryCost(),
}
"""A dict from the name of each source of `sources` to its cost."""


def trains_rows(shape: Shape) -> bool:
    """Whether further steps train the rows of Z_in."""
    return "Z_in" in TRAINS[shape.trains]


def flops_of_logits(shape: Shape) -> int:
    """The flops that one sample needs for the features of an MLP and for the logits."""
    return 2 * shape.V * shape.d + 4 * shape.m * shape.d


def flops_of_values(shape: Shape) -> int:
    """The flops that one sample needs to train the rows of Z_in. 0 if they are not
    trained.
    """
    return 2 * shape.V * shape.d if trains_rows(shape) else 0


def softmax(shape: Shape, samples: int, steps: int) -> Amount:
    """The cost of computing the exact softmax of `samples` samples in `steps` gradient
    steps.

    For a pool, `steps` counts each of the steps 2 and 3 twice, because the backward
    pass computes the softmax of the pairs again.
    """
    flops = steps * samples * 4 * (shape.V + shape.m) * shape.d
    return Amount(flops, EXPONENTIAL * steps * samples * shape.V)


def softmax_bounds(shape: Shape, load: Work) -> Amount:
    """The cost of computing `error_bounds.softmax_errors`.

    This function computes about a dozen products of matrices with min(V, d) rows and
    columns.
    """
    V, d = shape.V, shape.d
    side = min(V, d)
    outer = 2 * (max(V, d) + (shape.m or max(V, d)))
    return Amount(load.runs * side**2 * (22 * side + outer))


def rounded_up(n: int, size: int) -> int:
    """Returns n rounded up to a multiple of `size`."""
    return -(-n // size) * size
