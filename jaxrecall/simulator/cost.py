"""Estimates the cost of runs before anything runs: flops, random words and memory.

Two numbers determine how long a run takes. The first is the flops of its matrix
products. The second is the time of everything else, in units of the time to draw one
random word. This unit is called a token. Both rates below were measured on one core of
a usual x86-64 machine. Another machine is faster or slower by about the same factor for
all runs. A sweep estimates its remaining time from the measured speed.

In formulas, V, d, m and K are the padded sizes of the program, and p is m, or d without
an MLP.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from ..model.point import (
    BLOCK,
    REDRAWS,
    TRAINS,
    Point,
    first_step,
    recorded_steps,
)
from .program_shape import (
    LABELS,
    LIGHT_RUN,
    QUICK_RUN,
    STORED_TOKENS,
    STORED_VALUES,
    Shape,
)

TILE = 4 * BLOCK
"""The number of samples per iteration of most programs."""

COUNTED = 1024
"""The number of samples in a tile whose arrays are in memory if samples are only
counted. The reserved memory does not grow with the tile.
"""

FLOPS_A_SECOND, TOKENS_A_SECOND = 9.0e10, 8.0e8
"""The speeds of one core: flops per second, and tokens (random words) per second."""

RUN = 3.0e5
"""The fixed cost of a run in tokens, which equals 0.4 ms."""

NORMAL, EXPONENTIAL, UNIT, GELU, ROW = 2.5, 1.3, 0.4, 2.0, 1 / 25
"""Costs in tokens. NORMAL is the cost of a normal number, and EXPONENTIAL that of an
exponential. UNIT is the cost of a hidden unit, or of comparing a logit with a label.
GELU is the cost of a hidden unit of the activation gelu. ROW is the cost of gathering
and adding one float of a row.
"""

COUNT = 5
"""The cost in tokens of drawing and counting a token."""

DECODED = 1 / 5
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


Work = namedtuple(
    "Work",
    "N is_stored V L n_test steps first_steps fresh_batches batch in_the_limit",
)
"""The values of a point on which the cost of its runs depends. Many points of a grid
have the same work.

N is rounded up where only the rounded number matters. `is_stored` tells whether a run
stores its mean values for several first steps. The others are attributes of the point.
"""

_others = attrgetter(*Work._fields[2:])


def work_of(point: Point) -> Work:
    N = point.N if point.trains_on else rounded_up(point.N, BLOCK)
    is_stored = not point.fresh_batches and point.N * point.d <= STORED_VALUES
    return Work(N, is_stored, *_others(point))


@lru_cache(2**16)
def amount(shape: Shape, work: Work) -> Amount:
    """The cost of one run of a point with this work in the program of `shape`.

    All further steps are assumed to read samples, because it is unknown before the run
    whether attention will be locked.
    """
    total = _evaluation(shape, work)
    if shape.start != "zero":
        recipe = RECIPES[shape.trained_by.source](shape, work)
        total += recipe
        if shape.diagnose and shape.m:  # each redraw repeats two of the three steps
            total += recipe.times(REDRAWS * 2 / 3)
    if shape.optimizer:
        total += _further_steps(shape, work)
    if shape.light:
        total = Amount(total.flops, total.tokens * LIGHT_RUN)
    return total.times(QUICK_RUN) if shape.quick else total


def _evaluation(shape: Shape, work: Work) -> Amount:
    """The cost of drawing embeddings and of computing metrics."""
    V, d, m = shape.sizes
    n_rows = len(recorded_steps(shape.start, work.steps))
    n_test = n_rows * rounded_up(work.n_test, BLOCK)
    evaluated = n_test + n_rows * rounded_up(min(work.N, work.n_test), BLOCK)
    labels = evaluated * rounded_up(work.V, LABELS)
    products = (n_rows if shape.optimizer else 1) * 4 * V * d * (V + (2 * m or 2 * d))
    flops = 2 * labels * d + evaluated * 4 * m * d + products
    tokens = (
        RUN + NORMAL * (2 * V + m) * d + unit(shape) * evaluated * m + UNIT * labels
    )
    if shape.decoders:
        tokens += DECODED * (V**3 + 4 * d**3 + 4 * V * d * (V + d))
    if not shape.pool:
        return Amount(flops, tokens + evaluated * work.L * (3 + ROW * d))
    # tokens are drawn and counted
    counts = evaluated * V
    if "test" in work.in_the_limit:
        tokens += NORMAL * n_test * V
    else:
        tokens += 2 * n_test * (work.L - 1)
    return Amount(flops + 2 * counts * d, tokens + EXPONENTIAL * counts)


def _stream(shape: Shape, work: Work) -> Amount:
    """The cost of the first steps over samples, if attention is not locked. Locked
    attention costs less.
    """
    V, d, m = shape.sizes
    p = m or d
    exact, samples = shape.trained_by.exact, rounded_up(work.N, TILE)
    # steps 1, 2, ... of the first steps compute the softmax once more
    repeated = (work.first_steps - 1) * rounded_up(work.N, BLOCK)
    # the recipe reads the tokens of a sample three times, and a first step once
    drawn = samples * work.L + (0 if work.is_stored else repeated * work.L // 3)
    each = 25 + exact + 2 * EXPONENTIAL + ROW * (3 if exact else 4) * d
    streamed = Amount(samples * 8 * m * d, each * drawn + unit(shape) * 3 * samples * m)
    if exact:
        slopes = Amount(samples * (4 * d * p + 2 * V * d))
        return streamed + _softmax(shape, 2 * samples + repeated) + slopes
    of_tokens = Amount(2 * V * (d * p + V * (d + p)), EXPONENTIAL * V**2)
    streamed += of_tokens + _softmax(shape, repeated)
    return streamed + _softmax_bounds(shape)


def _counts(shape: Shape, work: Work) -> Amount:
    """The cost of the three steps over co-occurrence counts of tokens."""
    V, d, drawn = shape.V, shape.d, rounded_up(work.N, TILE) * work.L
    tokens = V**2 + COUNT * drawn
    return Amount(8 * V * d * (V + d), tokens) + _softmax_bounds(shape)


def _pool(shape: Shape, work: Work) -> Amount:
    """The cost of the first steps over all pairs of a token and a noise sequence. Words
    are drawn one by one, or counts in the Gaussian limit.
    """
    V, d, m = shape.sizes
    K = shape.pool
    batches, counts = 3 if work.fresh_batches else 1, NORMAL * work.V * K
    samples, noise = 3 * rounded_up(work.N, TILE), 2 * rounded_up(K, BLOCK)
    words = counts if "samples" in work.in_the_limit else samples
    words += counts if "noise" in work.in_the_limit else noise * (work.L - 1)
    flops = 6 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m)
    each = EXPONENTIAL * 9 + unit(shape) * 3 * m
    # the backward pass computes the softmax of the pairs again
    n_softmax = 2 * (work.first_steps - 1) * V * K
    pairs = Amount(flops, batches * words + V * K * each)
    if shape.trained_by.exact:
        return pairs + _softmax(shape, n_softmax + 4 * V * K)
    return pairs + _softmax(shape, n_softmax) + _softmax_bounds(shape)


def _memory(shape: Shape, work: Work) -> Amount:
    """The cost of the first steps over weighted tokens at L = 1."""
    draws = 6 * rounded_up(work.N, TILE)
    if work.in_the_limit:
        draws = NORMAL * work.V
    return Amount(0, draws) + _softmax(shape, work.first_steps * shape.V)


RECIPES = {"stream": _stream, "counts": _counts, "pool": _pool, "memory": _memory}
"""A dict from the name of each source of `sources` to the function that computes the
cost of the first steps.
"""


def _softmax(shape: Shape, n: int) -> Amount:
    """The cost of computing the exact softmax of n samples."""
    flops = n * 4 * (shape.V + shape.m) * shape.d
    return Amount(flops, EXPONENTIAL * n * shape.V)


def _softmax_bounds(shape: Shape) -> Amount:
    """The cost of computing `error_bounds.softmax_errors`.

    This function computes about a dozen products of matrices with min(V, d) rows and
    columns.
    """
    V, d = shape.V, shape.d
    side = min(V, d)
    outer = 2 * (max(V, d) + (shape.m or max(V, d)))
    return Amount(side**2 * (22 * side + outer))


def _further_steps(shape: Shape, work: Work) -> Amount:
    """The cost of further steps.

    The backward pass costs twice as much as the forward pass.
    """
    V, d, m = shape.sizes
    K, steps = shape.pool, work.steps - first_step(shape.start)
    of_logits = 2 * V * d + 4 * m * d  # flops of one sample
    update = 6 * V * d * (m or d)
    if K:
        pairs = steps * V * K
        tables = steps * 8 * (K * V * d + V * K * d + (V + K) * m * d)
        flops = 4 * pairs * of_logits + tables
        return Amount(flops, pairs * (EXPONENTIAL * 6 + unit(shape) * 3 * m))
    of_sample = 3 * of_logits + (2 * V * d if trains_rows(shape) else 0)
    size = rounded_up(work.batch or work.N, BLOCK)
    if shape.trained_by.source == "memory":
        is_drawn = work.batch or (work.fresh_batches and not work.in_the_limit)
        words = 2 * size if is_drawn else 0
        each = EXPONENTIAL * 6 * V + unit(shape) * 3 * m
        return Amount(steps * (V * of_sample + update), steps * (words + V * each))
    samples = steps * size
    n_rows = min(work.L, V + 1)
    if work.fresh_batches or work.N * n_rows > STORED_TOKENS:
        n_rows = work.L
        # tokens are drawn in the forward pass and again in the backward pass. Each
        # token of a chosen sample costs both output words of the cipher.
        words = (4 if work.batch else 2) * samples * work.L
    else:
        words = (1 if n_rows == work.L else COUNT) * work.N * work.L
    if shape.trains != "V":
        of_sample += 2 * V * d  # keys
    of_token = 5 + EXPONENTIAL * 2 + ROW * d + trains_rows(shape)
    each = of_token * n_rows + EXPONENTIAL * 3 * V + unit(shape) * 2 * m
    flops = samples * of_sample + (samples // BLOCK) * update
    return Amount(flops, words + samples * each)


@lru_cache(256)
def peak_bytes(shape: Shape) -> int:
    """The estimated peak memory of a run in bytes: its tables, and the arrays of one
    tile.

    Compilers reserve less memory, sometimes only an eighth of it.
    """
    V, d, m = shape.sizes
    K, p = shape.pool, m or d
    source, exact, tile = shape.trained_by.source, shape.trained_by.exact, shape.tile
    if source == "memory":
        tile = min(tile, V)
    if shape.counts_only:
        tile = min(tile, COUNTED)
    floats = 10 * V * d + 4 * V * p + 2 * m * d + 6 * d * p + tile * 4 * (V + d + m)
    if source == "counts":
        floats += 4 * V * d + 5 * V * V
    if source == "stream":
        of_values = STORED_VALUES if shape.repeats else 0
        floats += of_values if exact else 4 * V * p + 3 * m * m
    if source == "pool":
        floats += 14 * V * K + 6 * K * d + m * (8 * V + 10 * K)
        floats += K * (4 * V + 8 * p) if exact else 0
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
        floats += _floats_of_descent(shape, tile)
    return 4 * floats


def _floats_of_descent(shape: Shape, tile: int) -> int:
    """The number of floats that further steps store: parameters, gradients, two
    moments, tables of the vocabulary, and the arrays of the backward pass.
    """
    V, d, m = shape.sizes
    p = m or d
    trained, way_back = d * p + d * d, tile * (4 * V + 2 * d)
    if trains_rows(shape):
        trained += 2 * V * d
        way_back *= 2
    if "W_in" in TRAINS[shape.trains]:
        trained += m * d
    return 5 * trained + 6 * V * (d + shape.pool) + way_back


def trains_rows(shape: Shape) -> bool:
    """Whether further steps train the rows of Z_in."""
    return "Z_in" in TRAINS[shape.trains]


def unit(shape: Shape) -> float:
    """The cost of a hidden unit in tokens."""
    return GELU if shape.activation == "gelu" else UNIT


def rounded_up(n: int, size: int) -> int:
    """Returns n rounded up to a multiple of `size`."""
    return -(-n // size) * size
