"""Estimates the cost of runs before anything runs: flops, random words and memory.

Two numbers determine how long a run takes. The first is the flops of its matrix
products. The second is the time of everything else, in units of the time to draw one
random word. Drawing its random word is the main cost of each token of a sample, so the
unit is called a token. Both rates below were measured on one core of a usual x86-64
machine. Another machine is faster or slower by about the same factor for all runs. A
sweep estimates its remaining time from the measured speed.

In formulas, V, d, m and K are the padded sizes of the program, and p is m, or d without
an MLP.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import NamedTuple

from ..model.point import BLOCK, REDRAWS, TRAINS, Point
from .forms import source_for
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


@lru_cache(2**16)
def work(point: Point) -> Work:
    """The work of one run of the point.

    All further steps are assumed to read samples, because it is unknown before the run
    whether attention will be locked.
    """
    n_rows, source = len(point.recorded_steps), source_for(point)
    n_test = n_rows * rounded_up(point.n_test, BLOCK)
    evaluated = n_test + n_rows * rounded_up(min(point.N, point.n_test), BLOCK)
    load = Work(
        runs=1,
        evaluated=evaluated,
        evaluated_tokens=evaluated * point.L,
        labels=evaluated * rounded_up(point.V, LABELS),
        recorded=n_rows if point.trains_on else 0,
    )
    if source == "pool":
        return load._replace(**_work_on_pairs(point, n_test))
    if source == "memory":
        return load._replace(**_work_on_tokens(point))
    return load._replace(**_work_on_samples(point))


def _work_on_samples(point: Point) -> dict[str, int]:
    """The fields of `Work` for samples that are read as they are drawn."""
    N, L, samples = rounded_up(point.N, BLOCK), point.L, rounded_up(point.N, TILE)
    repeated = (point.first_steps - 1) * N
    # the recipe reads the tokens of a sample three times, and a first step once
    is_stored = not point.fresh_batches and N * point.d <= STORED_VALUES
    again = 0 if is_stored else repeated * L // 3
    stepped = point.further_steps * rounded_up(point.batch or point.N, BLOCK)
    # tokens are drawn in the forward pass and again in the backward pass
    words = 2 * stepped * L
    if point.batch:
        # each token of a chosen sample costs both output words of the cipher
        words *= 2
    elif stepped and not point.fresh_batches and N * L <= STORED_TOKENS:
        words = N * L
    return {
        "samples": samples,
        "tokens": samples * L + again,
        "repeated": repeated,
        "stepped": stepped,
        "stepped_tokens": stepped * L,
        "stepped_words": words,
    }


def _work_on_tokens(point: Point) -> dict[str, int]:
    """The fields of `Work` for samples that are weighted tokens."""
    steps, batch = point.further_steps, point.batch or 0
    if point.fresh_batches and not point.in_the_limit:
        batch = batch or point.N
    samples = 0 if point.in_the_limit else rounded_up(point.N, TILE)
    return {
        "samples": samples,
        "tokens": samples,
        "gaussian": point.V if point.in_the_limit else 0,
        "repeated": (point.first_steps - 1) * point.V,
        "grouped": steps,
        "stepped_words": 2 * steps * rounded_up(batch, BLOCK),
    }


def _work_on_pairs(point: Point, n_test: int) -> dict[str, int]:
    """The fields of `Work` for weighted pairs of a token and a noise sequence. Words
    are drawn one by one, or counts in the Gaussian limit.
    """
    batches, K, V = 3 if point.fresh_batches else 1, point.pool or 0, point.V
    # numbers of single draws, and of counts
    draws = {
        "samples": (batches * rounded_up(point.N, TILE), batches * V * K),
        "noise": (batches * rounded_up(K, BLOCK) * (point.L - 1), batches * V * K),
        "test": (n_test * (point.L - 1), n_test * V),
    }
    limit = point.in_the_limit
    single = {name: 0 if name in limit else n for name, (n, _) in draws.items()}
    return {
        "samples": single["samples"],
        "tokens": single["noise"],
        "evaluated_tokens": single["test"],
        "gaussian": sum(draws[name][1] for name in limit),
        # the backward pass computes the pairs once more
        "repeated": 2 * (point.first_steps - 1) * V * K,
        "stepped": point.further_steps,
    }


@lru_cache(4096)
def amount(shape: Shape, load: Work) -> Amount:
    """The cost of the work `load` when the program of `shape` runs it."""
    total = _evaluation(shape, load)
    if shape.start != "zero":
        recipe = RECIPES[shape.trained_by.source](shape, load)
        recipe += _softmax(shape, load.repeated)
        total += recipe
        if shape.diagnose and shape.m:  # each redraw repeats two of the three steps
            total += recipe.times(REDRAWS * 2 / 3)
    if shape.optimizer:
        total += _further_steps(shape, load)
    if shape.light:
        total = Amount(total.flops, total.tokens * LIGHT_RUN)
    return total.times(QUICK_RUN) if shape.quick else total


def _evaluation(shape: Shape, load: Work) -> Amount:
    """The cost of drawing embeddings and of computing metrics."""
    V, d, m, runs = shape.V, shape.d, shape.m, load.runs
    products = max(runs, load.recorded) * 4 * V * d * (V + (2 * m or 2 * d))
    flops = 2 * load.labels * d + load.evaluated * 4 * m * d + products
    draws = NORMAL * runs * (2 * V + m) * d + load.evaluated_tokens
    tokens = RUN * runs + draws + UNIT * (load.evaluated * m + load.labels)
    if shape.decoders:
        tokens += DECODED * runs * (V**3 + 4 * d**3 + 4 * V * d * (V + d))
    if shape.pool:  # tokens are drawn and counted
        counts = load.evaluated * V
        tokens += load.evaluated_tokens + EXPONENTIAL * counts
        return Amount(flops + 2 * counts * d, tokens)
    return Amount(flops, tokens + ROW * load.evaluated_tokens * d)


def _stream(shape: Shape, load: Work) -> Amount:
    """The cost of the three steps over samples, if attention is not locked. Locked
    attention costs less.
    """
    V, d, m, p = shape.V, shape.d, shape.m, shape.m or shape.d
    exact, samples = shape.trained_by.exact, load.samples
    rows = 3 if exact else 4
    each = 5 + exact + 2 * EXPONENTIAL + ROW * rows * d
    tokens = each * load.tokens + UNIT * 3 * samples * m
    streamed = Amount(samples * 8 * m * d, tokens)
    if exact:
        slopes = Amount(samples * (4 * d * p + 2 * V * d))
        return streamed + _softmax(shape, 2 * samples) + slopes
    locked = 2 * V * (d * p + V * (d + p))
    of_tokens = Amount(load.runs * locked, EXPONENTIAL * load.runs * V**2)
    return streamed + of_tokens + _softmax_bounds(shape, load)


def _counts(shape: Shape, load: Work) -> Amount:
    """The cost of the three steps over co-occurrence counts of tokens."""
    V, d, runs = shape.V, shape.d, load.runs
    flops = runs * 8 * V * d * (V + d)
    tokens = runs * V**2 + (11 + 2 * EXPONENTIAL) * load.tokens
    return Amount(flops, tokens) + _softmax_bounds(shape, load)


def _pool(shape: Shape, load: Work) -> Amount:
    """The cost of the three steps over all pairs of a token and a noise sequence."""
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, load.runs
    words = NORMAL * load.gaussian + 3 * load.samples + 2 * load.tokens
    flops = 6 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m)
    each = EXPONENTIAL * 9 + UNIT * 3 * m
    pairs = Amount(runs * flops, words + runs * V * K * each)
    if not shape.trained_by.exact:
        return pairs + _softmax_bounds(shape, load)
    # the backward pass computes the softmax of the pairs again
    return pairs + _softmax(shape, 4 * runs * V * K)


def _memory(shape: Shape, load: Work) -> Amount:
    """The cost of the three steps over weighted tokens at L = 1."""
    draws = Amount(0, NORMAL * load.gaussian + 6 * load.tokens)
    return draws + _softmax(shape, load.runs * shape.V)


RECIPES = {"stream": _stream, "counts": _counts, "pool": _pool, "memory": _memory}
"""A dict from the name of each source of `sources` to the function that computes the
cost of the three steps.
"""


def _softmax(shape: Shape, n: int) -> Amount:
    """The cost of computing the exact softmax of n samples."""
    flops = n * 4 * (shape.V + shape.m) * shape.d
    return Amount(flops, EXPONENTIAL * n * shape.V)


def _softmax_bounds(shape: Shape, load: Work) -> Amount:
    """The cost of computing `error_bounds.softmax_errors`.

    This function computes about a dozen products of matrices with min(V, d) rows and
    columns.
    """
    V, d = shape.V, shape.d
    side = min(V, d)
    outer = 2 * (max(V, d) + (shape.m or max(V, d)))
    return Amount(load.runs * side**2 * (22 * side + outer))


def _further_steps(shape: Shape, load: Work) -> Amount:
    """The cost of further steps.

    The backward pass costs twice as much as the forward pass.
    """
    V, d, m, K = shape.V, shape.d, shape.m, shape.pool
    of_logits = 2 * V * d + 4 * m * d  # flops of one sample
    of_values = 2 * V * d if trains_rows(shape) else 0
    words, samples, update = load.stepped_words, load.stepped, 6 * V * d * (m or d)
    if K:
        pairs = samples * V * K
        tables = samples * 8 * (K * V * d + V * K * d + (V + K) * m * d)
        flops = 4 * pairs * of_logits + tables
        return Amount(flops, words + pairs * (EXPONENTIAL * 6 + UNIT * 3 * m))
    of_sample, each = 3 * of_logits + of_values, 5 + EXPONENTIAL * 2 + ROW * d
    grouped = load.grouped * V
    grouped_flops = grouped * of_sample + load.grouped * update
    if trains_rows(shape):
        each += 1
    if shape.trains != "V":
        of_sample += 2 * V * d  # keys
    tokens = words + each * load.stepped_tokens
    tokens += samples * (EXPONENTIAL * 3 * V + UNIT * 2 * m)
    tokens += grouped * (EXPONENTIAL * 6 * V + UNIT * 3 * m)
    flops = samples * of_sample + (samples // BLOCK) * update
    return Amount(flops + grouped_flops, tokens)


@lru_cache(256)
def peak_bytes(shape: Shape) -> int:
    """The estimated peak memory of a run in bytes: its tables, and the arrays of one
    tile.

    Compilers reserve less memory, sometimes only an eighth of it.
    """
    V, d, m, K, p = shape.V, shape.d, shape.m, shape.pool, shape.m or shape.d
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
    V, d, m, p = shape.V, shape.d, shape.m, shape.m or shape.d
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


def rounded_up(n: int, size: int) -> int:
    """Returns n rounded up to a multiple of `size`."""
    return -(-n // size) * size
