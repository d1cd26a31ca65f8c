"""Estimates the cost of runs before anything runs: flops, random words and memory.

Two numbers determine how long a run takes. The first is the flops of its matrix
products. The second is the time of everything else, in units of the time to draw one
random word. Drawing its random word is the main cost of each token of a sample, so the
unit is called a token. Both rates below were measured on one core of a usual x86-64
machine. Another machine is faster or slower by about the same factor for all runs. A
sweep estimates its remaining time from the measured speed.

Costs that depend on the source of the samples are in `sources/*_cost.py`. In formulas,
V, d, m and K are the padded sizes of the program, and p is m, or d without an MLP.
"""

from __future__ import annotations

import operator
from functools import cache, lru_cache
from importlib import import_module
from typing import NamedTuple

from ..model.point import BLOCK, REDRAWS, TRAINS, Point
from .forms import source_for
from .program_shape import LABELS, LIGHT_RUN, STORED_TOKENS, STORED_VALUES, Shape

TILE = 4 * BLOCK
"""The number of samples per iteration of most programs."""

FLOPS_A_SECOND, TOKENS_A_SECOND = 2.0e11, 8.0e8
"""The speeds of one core: flops per second, and tokens (random words) per second."""

RUN = 1.1e6
"""The fixed cost of a run in tokens, which equals 1.4 ms."""

NORMAL, EXPONENTIAL, UNIT, ROW = 4.0, 1 / 3, 0.6, 1 / 30
"""Costs in tokens. NORMAL is the cost of a normal number, and EXPONENTIAL that of an
exponential. UNIT is the cost of a hidden unit, or of comparing a logit with a label.
ROW is the cost of gathering and adding one float of a row.
"""

DECODED = 1 / 20
"""The cost in tokens of one operation of the decoders on the host."""


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
        samples = whole(point.N, TILE)
        tokens = samples * point.L
        return Work(
            samples=samples, tokens=tokens, evaluated_tokens=evaluated * point.L
        )

    def repeated(self, point: Point) -> Work:
        """The work of the first steps after the first one.

        Tokens are drawn again if the mean values of the samples are not stored. The
        recipe reads them three times, and a first step once.
        """
        steps, samples = point.first_steps - 1, whole(point.N, BLOCK)
        is_stored = not point.fresh_batches and samples * point.d <= STORED_VALUES
        tokens = 0 if is_stored else samples * point.L // 3
        return Work(repeated=steps * samples, tokens=steps * tokens)

    def further_draws(self, point: Point) -> Work:
        """The work of the further steps of a run.

        All steps are assumed to read samples, because it is unknown before the run
        whether attention will be locked.
        """
        samples = point.further_steps * whole(point.batch or point.N, BLOCK)
        tokens = samples * point.L
        stored = whole(point.N, BLOCK) * point.L
        # drawn in the forward pass and again in the backward pass
        words = 2 * tokens
        if point.batch:
            # each token of a chosen sample costs both output words of the cipher
            words = 4 * tokens
        elif not point.fresh_batches and stored <= STORED_TOKENS:
            words = stored
        return Work(stepped=samples, stepped_tokens=tokens, stepped_words=words)

    def recipe(self, shape: Shape, asked: Work) -> Amount:
        """The cost of the three steps if attention is not locked. Locked attention
        costs less.
        """
        raise NotImplementedError

    def sequences(self, shape: Shape, asked: Work) -> Amount:
        """The cost of attention in the sequences that are measured."""
        return Amount(0, ROW * asked.evaluated_tokens * shape.d)

    def further_steps(self, shape: Shape, asked: Work) -> Amount:
        """The cost of further steps that read samples.

        The backward pass costs twice as much as the forward pass.
        """
        V, d, m = shape.V, shape.d, shape.m
        samples, each, of_sample = asked.stepped, 5 + EXPONENTIAL * 2 + ROW * d, 0
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
            asked.stepped_words + each * asked.stepped_tokens + rest,
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


@cache
def cost_of(source: str) -> SourceCost:
    """Returns the `COST` object of the source with this name."""
    return import_module(f"{__package__}.sources.{source}_cost").COST


@lru_cache(2**16)
def work(point: Point) -> Work:
    """The work of one run of the point."""
    source, n_rows = cost_of(source_for(point)), len(point.recorded_steps)
    n_test = n_rows * whole(point.n_test, BLOCK)
    evaluated = n_test + n_rows * whole(min(point.N, point.n_test), BLOCK)
    labels = evaluated * whole(point.V, LABELS)
    asked = Work(runs=1, evaluated=evaluated, labels=labels)
    asked += source.draws(point, evaluated, n_test)
    if point.first_steps > 1:
        asked += source.repeated(point)
    if point.trains_on:
        asked += Work(recorded=n_rows) + source.further_draws(point)
    return asked


@lru_cache(4096)
def amount(shape: Shape, asked: Work) -> Amount:
    """The cost of the work `asked` when the program of `shape` runs it."""
    source = cost_of(shape.trained_by.source)
    total = _evaluation(shape, asked) + source.sequences(shape, asked)
    if shape.start != "zero":
        recipe = source.recipe(shape, asked) + softmax(shape, asked.repeated, 1)
        total += recipe
        if shape.diagnose and shape.m:  # each redraw repeats two of the three steps
            total += recipe.times(REDRAWS * 2 / 3)
    if shape.optimizer:
        total += _grouped_steps(shape, asked) + source.further_steps(shape, asked)
    if shape.light:
        return Amount(total.flops, total.tokens * LIGHT_RUN)
    return total


def _evaluation(shape: Shape, asked: Work) -> Amount:
    """The cost of drawing embeddings and of computing metrics."""
    V, d, m, runs = shape.V, shape.d, shape.m, asked.runs
    products = max(runs, asked.recorded) * 4 * V * d * (V + (2 * m or 2 * d))
    flops = 2 * asked.labels * d + asked.evaluated * 4 * m * d + products
    draws = NORMAL * runs * (2 * V + m) * d + asked.evaluated_tokens
    tokens = RUN * runs + draws + UNIT * (asked.evaluated * m + asked.labels)
    if shape.decoders:
        tokens += DECODED * runs * (V**3 + 4 * d**3 + 4 * V * d * (V + d))
    return Amount(flops, tokens)


def _grouped_steps(shape: Shape, asked: Work) -> Amount:
    """The cost of further steps that read weighted tokens: the forward and the backward
    pass.
    """
    V, d, m = shape.V, shape.d, shape.m
    tokens, update = asked.grouped * V, 6 * V * d * (m or d)
    of_token = 3 * flops_of_logits(shape) + flops_of_values(shape)
    return Amount(
        tokens * of_token + asked.grouped * update,
        tokens * (EXPONENTIAL * 6 * V + UNIT * 3 * m),
    )


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


def softmax_bounds(shape: Shape, asked: Work) -> Amount:
    """The cost of computing `error_bounds.softmax_errors`.

    This function computes about a dozen products of matrices with min(V, d) rows and
    columns.
    """
    V, d = shape.V, shape.d
    side = min(V, d)
    outer = 2 * (max(V, d) + (shape.m or max(V, d)))
    return Amount(asked.runs * side**2 * (22 * side + outer))


@lru_cache(256)
def peak_bytes(shape: Shape) -> int:
    """The estimated peak memory of a run in bytes: its tables, and the arrays of one
    tile.

    Compilers reserve less memory, sometimes only an eighth of it.
    """
    source = cost_of(shape.trained_by.source)
    V, d, m, p, tile = (
        shape.V,
        shape.d,
        shape.m,
        shape.m or shape.d,
        source.tile_rows(shape),
    )
    floats = 10 * V * d + 4 * V * p + 2 * m * d + 6 * d * p + tile * 4 * (V + d + m)
    floats += source.floats(shape)
    # twice on the device and twice on the host: for this batch and the one that waits
    floats += 4 * V * d * len(shape.given_tables)
    if shape.stores_tokens:
        floats += STORED_TOKENS // 2
    if shape.diagnose:
        floats += 4 * V * d
        if m:
            floats += 4 * V * p + 2 * d * p + 2 * m * d
    if shape.decoders:  # results of the program, and float64 arrays on the host
        floats += 5 * V * d + 10 * V * V + 20 * d * d
    if shape.optimizer:
        floats += _floats_of_any_descent(shape, tile) + source.floats_of_descent(shape)
    return 4 * floats


def _floats_of_any_descent(shape: Shape, tile: int) -> int:
    """The number of floats that further steps store with any source: parameters,
    gradients, two moments, tables of the vocabulary, and the arrays of the backward
    pass.
    """
    V, d, m, p = shape.V, shape.d, shape.m, shape.m or shape.d
    trained, way_back = d * p + d * d, tile * (4 * V + 2 * d)
    if trains_rows(shape):
        trained += 2 * V * d
        way_back *= 2
    if "W_in" in TRAINS[shape.trains]:
        trained += m * d
    return 5 * trained + 6 * V * (d + shape.pool) + way_back


def whole(n: int, size: int) -> int:
    """Returns n rounded up to a multiple of `size`."""
    return -(-n // size) * size
