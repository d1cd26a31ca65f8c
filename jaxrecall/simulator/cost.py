"""Estimates the cost of runs before anything runs: flops, random words and memory.

Two numbers determine how long a run takes. The first is the flops of its matrix
products. The second is the time of everything else, in units of the time to draw one
random word. Drawing its random word is the main cost of each token of a sample, so the
unit is called a token. Both rates below were measured on one core of a usual x86-64
machine. Another machine is faster or slower by about the same factor for all runs. A
sweep estimates its remaining time from the measured speed.

Costs that depend on the source of the samples are in `source_costs`.
"""

from __future__ import annotations

from functools import lru_cache

from ..model.point import BLOCK, REDRAWS, TRAINS, Point
from .forms import source_for
from .program_shape import LABELS, LIGHT_RUN, STORED_TOKENS, Shape
from .source_costs import (
    COSTS,
    EXPONENTIAL,
    NORMAL,
    UNIT,
    Amount,
    Work,
    flops_of_logits,
    flops_of_values,
    rounded_up,
    softmax,
    trains_rows,
)

RUN = 1.1e6
"""The fixed cost of a run in tokens, which equals 1.4 ms."""

DECODED = 1 / 20
"""The cost in tokens of one operation of the decoders on the host."""


@lru_cache(2**16)
def work(point: Point) -> Work:
    """The work of one run of the point."""
    source, n_rows = COSTS[source_for(point)], len(point.recorded_steps)
    n_test = n_rows * rounded_up(point.n_test, BLOCK)
    evaluated = n_test + n_rows * rounded_up(min(point.N, point.n_test), BLOCK)
    labels = evaluated * rounded_up(point.V, LABELS)
    load = Work(runs=1, evaluated=evaluated, labels=labels)
    load += source.draws(point, evaluated, n_test)
    if point.first_steps > 1:
        load += source.repeated(point)
    if point.trains_on:
        load += Work(recorded=n_rows) + source.further_draws(point)
    return load


@lru_cache(4096)
def amount(shape: Shape, load: Work) -> Amount:
    """The cost of the work `load` when the program of `shape` runs it."""
    source = COSTS[shape.trained_by.source]
    total = _evaluation(shape, load) + source.sequences(shape, load)
    if shape.start != "zero":
        recipe = source.recipe(shape, load) + softmax(shape, load.repeated, 1)
        total += recipe
        if shape.diagnose and shape.m:  # each redraw repeats two of the three steps
            total += recipe.times(REDRAWS * 2 / 3)
    if shape.optimizer:
        total += _grouped_steps(shape, load) + source.further_steps(shape, load)
    if shape.light:
        return Amount(total.flops, total.tokens * LIGHT_RUN)
    return total


def _evaluation(shape: Shape, load: Work) -> Amount:
    """The cost of drawing embeddings and of computing metrics."""
    V, d, m, runs = shape.V, shape.d, shape.m, load.runs
    products = max(runs, load.recorded) * 4 * V * d * (V + (2 * m or 2 * d))
    flops = 2 * load.labels * d + load.evaluated * 4 * m * d + products
    draws = NORMAL * runs * (2 * V + m) * d + load.evaluated_tokens
    tokens = RUN * runs + draws + UNIT * (load.evaluated * m + load.labels)
    if shape.decoders:
        tokens += DECODED * runs * (V**3 + 4 * d**3 + 4 * V * d * (V + d))
    return Amount(flops, tokens)


def _grouped_steps(shape: Shape, load: Work) -> Amount:
    """The cost of further steps that read weighted tokens: the forward and the backward
    pass.
    """
    V, d, m = shape.V, shape.d, shape.m
    tokens, update = load.grouped * V, 6 * V * d * (m or d)
    of_token = 3 * flops_of_logits(shape) + flops_of_values(shape)
    return Amount(
        tokens * of_token + load.grouped * update,
        tokens * (EXPONENTIAL * 6 * V + UNIT * 3 * m),
    )


@lru_cache(256)
def peak_bytes(shape: Shape) -> int:
    """The estimated peak memory of a run in bytes: its tables, and the arrays of one
    tile.

    Compilers reserve less memory, sometimes only an eighth of it.
    """
    source = COSTS[shape.trained_by.source]
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
