"""What runs of our simulator ask of a machine, and so which points share a program.

Two numbers say how long a run takes: the flops of its matrix products, and everything
else in units of a random word, which is what a token of a sample costs first of all. A
plan weighs padding against compiling by them. They are those of one core of a usual
x86-64 machine; on another all are faster or slower, and what is left of a sweep is told
by the pace that was measured.

A program is compiled per shape: padded sizes, activation and form. Points start in
tight shapes of their own. Two shapes are merged where the padding costs less than the
compilation that it saves. This depends on the points alone, so the same grid has the
same programs on every machine and whenever it is resumed.

Sizes V, d, m, K in formulas are those of the program, padded. p is m, or d without an
MLP.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...errors import UsageError
from ...model.point import BLOCK, REDRAWS, TRAINS, Point
from ...simulator.forms import polynomial_products
from ...simulator.shape import LABELS, LIGHT_RUN, STORED_TOKENS, Shape
from ..machine import cores
from . import Sizes, grouped

TILE = 4 * BLOCK
"""Samples per iteration of most programs."""

FLOPS_A_SECOND, TOKENS_A_SECOND = 2.0e11, 8.0e8
"""Of one core."""

RUN = 1.1e6
"""Tokens that a run takes which does nothing: 1.4 ms."""

NORMAL, EXPONENTIAL, UNIT, ROW = 4.0, 1 / 3, 0.6, 1 / 30
"""Tokens of a normal number, of an exponential, of a hidden unit or of a logit that is
compared with a label, and of a float that is gathered and added row by row."""

DECODED = 1 / 20
"""Tokens of a step of the decoders, which run on the host."""


class Amount(NamedTuple):
    """What runs take in a program."""

    flops: float = 0.0
    tokens: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.flops + other.flops, self.tokens + other.tokens)

    def times(self, n: float) -> Amount:
        return Amount(n * self.flops, n * self.tokens)

    @property
    def seconds(self) -> float:
        """Of one core."""
        return self.flops / FLOPS_A_SECOND + self.tokens / TOKENS_A_SECOND


class Work(NamedTuple):
    """What runs ask for whatever program they run in; the work of several is the
    sum.
    """

    runs: int = 0
    samples: int = 0  # drawn: N, here as below rounded up to whole tiles
    tokens: int = 0  # drawn: N L, or those of a pool
    evaluated: int = 0  # test and train sequences that are measured
    evaluated_tokens: int = 0
    labels: int = 0  # logits of the evaluated
    gaussian: int = 0  # counts from their Gaussian limit
    stepped: int = 0  # samples that further steps read; with a pool, steps
    stepped_tokens: int = 0  # those without a pool
    stepped_words: int = 0  # random words for them
    recorded: int = 0  # rows of runs that train on
    grouped: int = 0  # further steps that read tokens with weights

    def __add__(self, other: Work) -> Work:
        return Work(*map(operator.add, self, other))

    def times(self, n: int) -> Work:
        return Work(*(n * each for each in self))


@lru_cache(2**16)
def work(point: Point) -> Work:
    """The work of a run of a point."""
    samples, n_rows = _whole(point.N, TILE), len(point.recorded_steps)
    n_test = n_rows * _whole(point.n_test, BLOCK)
    evaluated = n_test + n_rows * _whole(min(point.N, point.n_test), BLOCK)
    labels = evaluated * _whole(point.V, LABELS)
    further = _further_work(point, n_rows) if point.trains_on else ()
    if point.pool is None:
        samples, gaussian = (0, point.V) if point.in_the_limit else (samples, 0)
        return Work(
            1,
            samples,
            samples * point.L,
            evaluated,
            evaluated * point.L,
            labels,
            gaussian,
            *further,
        )
    batches, limit = 3 if point.fresh_batches else 1, point.in_the_limit
    drawn = {  # words one by one, or counts in their limit
        "samples": (batches * samples, batches * point.V * point.pool),
        "noise": (
            batches * _whole(point.pool, BLOCK) * (point.L - 1),
            batches * point.pool * point.V,
        ),
        "test": (n_test * (point.L - 1), n_test * point.V),
    }
    pairs, noise, test = (
        0 if name in limit else words for name, (words, _) in drawn.items()
    )
    gaussian = sum(drawn[name][1] for name in limit)
    return Work(1, pairs, noise, evaluated, test, labels, gaussian, *further)


def _further_work(point: Point, n_rows: int) -> tuple[int, int, int, int, int]:
    """The fields of Work from `stepped` to `grouped`, of a run that trains on.

    With L above 1 the steps are expected to read all samples: whether attention will be
    locked is not known before the run.
    """
    if point.is_memory:
        drawn = point.batch or (
            point.N if point.fresh_batches and not point.in_the_limit else 0
        )
        return (
            0,
            0,
            2 * point.further_steps * _whole(drawn, BLOCK),
            n_rows,
            point.further_steps,
        )
    if point.pool:
        return point.further_steps, 0, 0, n_rows, 0
    samples = point.further_steps * _whole(point.batch or point.N, BLOCK)
    tokens = samples * point.L
    if point.batch:
        return (
            samples,
            tokens,
            4 * tokens,
            n_rows,
            0,
        )  # forward and back; a chosen sample takes both words of a cipher
    stored = (
        not point.fresh_batches and _whole(point.N, BLOCK) * point.L <= STORED_TOKENS
    )
    return (
        samples,
        tokens,
        _whole(point.N, BLOCK) * point.L if stored else 2 * tokens,
        n_rows,
        0,
    )


@lru_cache(4096)
def amount(shape: Shape, work: Work) -> Amount:
    """What work takes in a program, with open attention, which costs more than
    locked.
    """
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, work.runs
    products = max(runs, work.recorded) * 4 * V * d * (V + (2 * m or 2 * d))
    tokens = (
        RUN * runs
        + NORMAL * runs * (2 * V + m) * d
        + UNIT * (work.evaluated * m + work.labels)
        + work.evaluated_tokens
    )
    tokens += (
        DECODED * runs * (V**3 + 4 * d**3 + 4 * V * d * (V + d))
        if shape.decoders
        else 0
    )
    evaluation = Amount(
        2 * work.labels * d + work.evaluated * 4 * m * d + products, tokens
    )
    pairs = work.evaluated * V
    evaluation += (
        Amount(2 * pairs * d, work.evaluated_tokens + EXPONENTIAL * pairs)
        if K
        else Amount(0, ROW * work.evaluated_tokens * d)
    )
    recipe = Amount() if shape.start == "zero" else _recipe(shape, work)
    redraws = (
        recipe.times(REDRAWS * 2 / 3) if shape.diagnose and m else Amount()
    )  # two steps for each
    total = (
        evaluation
        + recipe
        + redraws
        + (_further_steps(shape, work) if shape.optimizer else Amount())
    )
    return total._replace(tokens=total.tokens * (LIGHT_RUN if shape.light else 1.0))


def _recipe(shape: Shape, work: Work) -> Amount:
    """The three steps."""
    V, d, m, p, runs = shape.V, shape.d, shape.m, shape.m or shape.d, work.runs
    samples, tokens, exact = work.samples, work.tokens, shape.trained_by.exact
    if shape.pool:
        draws = Amount(0, NORMAL * work.gaussian + 3 * samples + 2 * tokens)
        return (
            draws
            + _pairs(shape, work)
            + (
                _softmax(shape, runs * V * shape.pool, 4)
                if exact
                else _error_bounds(shape, work)
            )
        )
    if shape.form == "memory":
        return Amount(0, NORMAL * work.gaussian + 6 * tokens) + _softmax(
            shape, runs * V, 1
        )
    if shape.form == "counts":
        tables = Amount(runs * 8 * V * d * (V + d), runs * V**2)
        return (
            tables
            + Amount(0, (11 + 2 * EXPONENTIAL) * tokens)
            + _error_bounds(shape, work)
        )
    each = 5 + exact + 2 * EXPONENTIAL + ROW * (3 if exact else 4) * d
    streamed = Amount(
        samples * (4 * d * p + 8 * m * d), each * tokens + UNIT * 3 * samples * m
    )
    if exact:
        return streamed + _softmax(shape, samples, 2) + Amount(2 * samples * V * d)
    locked = Amount(runs * 2 * V * (d * p + V * (d + p)), EXPONENTIAL * runs * V**2)
    return streamed + locked + _error_bounds(shape, work)


def _softmax(shape: Shape, samples: int, steps: int) -> Amount:
    """The exact softmax of samples in some of the steps 2 and 3.

    That of all pairs of a pool is formed twice, once for the way back.
    """
    return Amount(
        steps * samples * 4 * (shape.V + shape.m) * shape.d,
        EXPONENTIAL * steps * samples * shape.V,
    )


def _error_bounds(shape: Shape, work: Work) -> Amount:
    """The bounds of `shortcut.softmax_errors`: some dozen products of matrices of the
    smaller side.
    """
    V, d = shape.V, shape.d
    side = min(V, d)
    return Amount(
        work.runs * side**2 * (22 * side + 2 * (max(V, d) + (shape.m or max(V, d))))
    )


def _pairs(shape: Shape, work: Work) -> Amount:
    """The three steps over all pairs of a token and a noise sequence."""
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, work.runs
    flops = 6 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m)
    coefficients = shape.activation.coefficients(np) if m else None
    if coefficients:  # steps 1 and 2 are matrix products
        flops += 2 * V * K * m * sum(polynomial_products(len(coefficients) - 1))
    return Amount(
        runs * flops,
        runs * V * K * (EXPONENTIAL * 9 + UNIT * (1 if coefficients else 3) * m),
    )


def _further_steps(shape: Shape, work: Work) -> Amount:
    """Steps of an optimiser: forward and back, which costs twice as much.

    Over all pairs with a pool, formed once more for the way back.
    """
    V, d, m, K = shape.V, shape.d, shape.m, shape.pool
    of_logits = 2 * V * d + 4 * m * d  # an MLP's features, and its answers
    of_values = 2 * V * d if "Z_in" in TRAINS[shape.trains] else 0
    tokens, update = work.grouped * V, 6 * V * d * (m or d)
    grouped = Amount(
        tokens * (3 * of_logits + of_values) + work.grouped * update,
        tokens * (EXPONENTIAL * 6 * V + UNIT * 3 * m),
    )
    if K:
        pairs = work.stepped * V * K
        tables = work.stepped * 4 * 2 * (K * V * d + V * K * d + (V + K) * m * d)
        return grouped + Amount(
            4 * pairs * of_logits + tables, pairs * (EXPONENTIAL * 6 + UNIT * 3 * m)
        )
    samples, tokens = work.stepped, work.stepped_tokens
    of_keys = 2 * V * d if shape.trains != "V" else 0
    of_sample = (
        2 * V * V if shape.through_logits else 3 * of_logits + of_keys + of_values
    )
    each = (
        4
        + (2 if of_values else 1)
        + EXPONENTIAL * 2
        + ROW * (V if shape.through_logits else d)
    )
    of_samples = samples * (EXPONENTIAL * 3 * V + UNIT * 2 * m)
    return grouped + Amount(
        samples * of_sample + (samples // BLOCK) * update,
        work.stepped_words + each * tokens + of_samples,
    )


@lru_cache(256)
def peak_bytes(shape: Shape) -> int:
    """Estimated peak memory of a run: tables, and what a tile of samples holds at once.

    Compilers reserve less, by up to eight times.
    """
    V, d, m, K, p = shape.V, shape.d, shape.m, shape.pool, shape.m or shape.d
    tile = min(shape.tile, V) if shape.form == "memory" else shape.tile
    floats = 10 * V * d + 4 * V * p + 2 * m * d + 6 * d * p + tile * 4 * (V + d + m)
    if K:
        floats += 14 * V * K + 6 * K * d + m * (8 * V + 10 * K)
        floats += K * (4 * V + 8 * p) if shape.trained_by.exact else 0
    elif shape.form == "counts":
        floats += 4 * V * d + 5 * V * V
    elif not shape.trained_by.exact:
        floats += 4 * V * p + 3 * m * m
    floats += (
        4 * V * d * len(shape.given_tables)
    )  # on the host too, and those of the batch that waits
    if shape.diagnose:
        floats += 4 * V * d + (4 * V * p + 2 * d * p + 2 * m * d if m else 0)
    if shape.decoders:  # what the program returns, and float64 on the host
        floats += 5 * V * d + 10 * V * V + 20 * d * d
    # parameters, their gradient and two moments; tables of the vocabulary; the way back
    if shape.optimizer:
        with_Z, with_W_in = (name in TRAINS[shape.trains] for name in ("Z_in", "W_in"))
        trained = d * p + d * d + 2 * V * d * with_Z + m * d * with_W_in
        floats += (
            5 * trained
            + 6 * V * (d + K)
            + tile * (4 * V + 2 * d) * (2 if with_Z else 1)
        )
        floats += (
            0
            if K
            else (5 * V * V if shape.through_logits else 0)
            + (0 if shape.batched else STORED_TOKENS)
        )
    return 4 * floats


def _whole(n: int, size: int) -> int:
    """n rounded up to a multiple of `size`."""
    return -(-n // size) * size


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
