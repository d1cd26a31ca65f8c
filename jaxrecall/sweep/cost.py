"""What runs ask of a machine: their work, the primitive operations that it takes in a
program, and the memory of the program.

Sizes V, d, m, K in formulas are those of the program, padded. p is m, or d without an
MLP.
"""

from __future__ import annotations

import operator
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from ..errors import TheoryError
from ..model.laws import find_law
from ..model.point import BLOCK, REDRAWS, Point
from ..model.training import TRAINS
from ..simulator.forms import may_group_steps, polynomial_products
from ..simulator.shape import LABELS, LIGHT_RUN, STORED_TOKENS, Shape

TILE = 4 * BLOCK
"""Samples per iteration of most programs."""

OTHER_RUN = 7
"""Nobody knows what a run of another simulator costs:
it counts as so many of ours that do nothing, 0.01 s.
"""


class Amounts(NamedTuple):
    """Primitive operations of runs in a program."""

    runs: float = 0.0
    normals: float = 0.0  # drawn for the embeddings
    words: float = 0.0  # random words
    row_floats: float = 0.0  # floats gathered and added row by row
    lookups: float = 0.0  # numbers looked up by token
    scatters: float = 0.0
    exponentials: float = 0.0
    activations: float = 0.0  # hidden units evaluated
    logits: float = 0.0  # compared with labels
    flops: float = 0.0  # of matrix products
    decoded: float = 0.0  # steps of the decoders, which run on the host

    def __add__(self, other: Amounts) -> Amounts:  # type: ignore[override]
        return Amounts(*map(operator.add, self, other))

    def times(self, n: float) -> Amounts:
        return Amounts(*(n * each for each in self))

    def slower(self, factor: float) -> Amounts:
        """As operations that take `factor` times as long, except matrix products and work on the host."""
        return self.times(factor)._replace(flops=self.flops, decoded=self.decoded)


PRIMITIVES = Amounts._fields


class Work(NamedTuple):
    """What runs ask for whatever program they run in; the work of several is the sum."""

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
    further: int = 0  # all further steps

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(*map(operator.add, self, other))

    def times(self, n: int) -> Work:
        return Work(*(n * each for each in self))


def work(point: Any, runs: int = 1, grouped: bool | None = None) -> Work:
    """The work of so many runs of a point; `grouped` says whether their further steps
    read tokens with weights, as is expected unless given."""
    if not isinstance(point, Point):
        return Work(runs)
    samples, n_rows = _whole(point.N, TILE), len(point.recorded_steps)
    n_test = n_rows * _whole(point.n_test, BLOCK)
    evaluated = n_test + n_rows * _whole(min(point.N, point.n_test), BLOCK)
    labels = evaluated * _whole(point.V, LABELS)
    grouped = point.trains_on and (point.is_memory or expected_grouped(point) if grouped is None else grouped)
    further = (*_further_work(point, n_rows, grouped), point.further_steps) if point.trains_on else ()
    if point.pool is None:
        samples, gaussian = (0, point.V) if point.in_the_limit else (samples, 0)
        return Work(1, samples, samples * point.L, evaluated, evaluated * point.L, labels, gaussian, *further).times(runs)
    batches, limit = 3 if point.fresh_batches else 1, point.in_the_limit
    drawn = {  # words one by one, or counts in their limit
        "samples": (batches * samples, batches * point.V * point.pool),
        "noise": (batches * _whole(point.pool, BLOCK) * (point.L - 1), batches * point.pool * point.V),
        "test": (n_test * (point.L - 1), n_test * point.V),
    }
    pairs, noise, test = (0 if name in limit else words for name, (words, _) in drawn.items())
    gaussian = sum(drawn[name][1] for name in limit)
    return Work(1, pairs, noise, evaluated, test, labels, gaussian, *further).times(runs)


GROUPED_NATS = 64.0
"""How far attention has to be ahead, about, for further steps to read tokens with weights."""


def expected_grouped(point: Point) -> bool:
    """Whether the further steps of a point are expected to read tokens with weights: by
    theory the trigger is ahead of the range of the tokens' scores, by enough, and
    embeddings that are trained move neither."""
    if not may_group_steps(point) or TRAINS[point.trains or ""] or point.start == "zero" or point.V > (point.batch or point.N):
        return False
    from ..theory import Model, score_noise

    try:
        noise = 1 / score_noise(Model.from_point(point, any_training=True), point.N).snr
    except (TheoryError, ArithmeticError):
        return False
    spread = 2 * NormalDist().inv_cdf((point.V - 0.375) / (point.V + 0.25))  # of V normal numbers, largest less smallest
    return point.kappa * (1 - spread * noise) > GROUPED_NATS


def _further_work(point: Point, n_rows: int, grouped: bool) -> tuple[int, int, int, int, int]:
    """The fields of Work from `stepped` to `grouped`, of a run that trains on."""
    if grouped:
        drawn = point.batch or (point.N if point.fresh_batches and not point.in_the_limit else 0)
        return 0, 0, 2 * point.further_steps * _whole(drawn, BLOCK), n_rows, point.further_steps
    if point.pool:
        return point.further_steps, 0, 0, n_rows, 0
    samples = point.further_steps * _whole(point.batch or point.N, BLOCK)
    tokens = samples * point.L
    if point.batch:
        return samples, tokens, 4 * tokens, n_rows, 0  # forward and back; a chosen sample takes both words of a cipher
    stored = not point.fresh_batches and _whole(point.N, BLOCK) * point.L <= STORED_TOKENS
    return samples, tokens, _whole(point.N, BLOCK) * point.L if stored else 2 * tokens, n_rows, 0


def operations(shape: Any, work: Work) -> Amounts:
    """The primitive operations of work in a program, with open attention, which costs more than locked."""
    if not isinstance(shape, Shape):
        return Amounts(runs=OTHER_RUN * work.runs)
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, work.runs
    evaluation = Amounts(
        runs=runs,
        normals=runs * (2 * V + m) * d,
        activations=work.evaluated * m,
        logits=work.labels,
        words=work.evaluated_tokens,
        flops=2 * work.labels * d + work.evaluated * 4 * m * d + max(runs, work.recorded) * 4 * V * d * (V + (2 * m or 2 * d)),
        decoded=runs * (V**3 + 4 * d**3 + 4 * V * d * (V + d)) if shape.decoders else 0,
    )
    if K:
        pairs = work.evaluated * V
        evaluation += Amounts(scatters=work.evaluated_tokens, exponentials=pairs, flops=2 * pairs * d)
    else:
        evaluation += Amounts(row_floats=work.evaluated_tokens * d)
    recipe = Amounts() if shape.start == "zero" else _recipe(shape, work)
    redraws = recipe.times(REDRAWS * 2 / 3) if shape.diagnose and m else Amounts()  # two steps for each
    total = evaluation + recipe + redraws + (_further_steps(shape, work) if shape.optimizer else Amounts())
    return total.slower(LIGHT_RUN) if shape.light else total


def _recipe(shape: Shape, work: Work) -> Amounts:
    """The three steps."""
    V, d, m, p, runs = shape.V, shape.d, shape.m, shape.m or shape.d, work.runs
    samples, tokens, exact = work.samples, work.tokens, shape.trained_by.exact
    if shape.pool:
        draws = Amounts(normals=work.gaussian, words=2 * samples + tokens, scatters=samples + tokens)
        return draws + _pairs(shape, work, 3) + (_softmax(shape, runs * V * shape.pool, 4) if exact else _error_bounds(shape, work))
    if shape.form == "memory":
        return Amounts(normals=work.gaussian, words=3 * tokens, scatters=3 * tokens) + _softmax(shape, runs * V, 1)
    if shape.form == "counts":
        tables = Amounts(lookups=runs * V**2, flops=runs * 8 * V * d * (V + d))
        read = Amounts(words=5 * tokens, lookups=3 * tokens, scatters=3 * tokens, exponentials=2 * tokens)
        return tables + read + _error_bounds(shape, work)
    streamed = Amounts(
        words=4 * tokens,
        row_floats=(3 if exact else 4) * tokens * d,
        lookups=tokens if exact else 0,
        scatters=tokens,
        exponentials=2 * tokens,
        activations=3 * samples * m,
        flops=samples * (4 * d * p + 8 * m * d),
    )
    if exact:
        return streamed + _softmax(shape, samples, 2) + Amounts(flops=2 * samples * V * d)
    locked = Amounts(exponentials=runs * V**2, flops=runs * 2 * V * (d * p + V * (d + p)))
    return streamed + locked + _error_bounds(shape, work)


def _softmax(shape: Shape, samples: int, steps: int) -> Amounts:
    """The exact softmax of samples in some of the steps 2 and 3; that
    of all pairs of a pool is formed twice, once for the way back.
    """
    return Amounts(exponentials=steps * samples * shape.V, flops=steps * samples * 4 * (shape.V + shape.m) * shape.d)


def _error_bounds(shape: Shape, work: Work) -> Amounts:
    """The bounds of `shortcut.softmax_errors`: some dozen products of matrices of the smaller side."""
    V, d = shape.V, shape.d
    side = min(V, d)
    return Amounts(flops=work.runs * side**2 * (22 * side + 2 * (max(V, d) + (shape.m or max(V, d)))))


def _pairs(shape: Shape, work: Work, steps: int) -> Amounts:
    """Some of the three steps over all pairs of a token and a noise sequence."""
    V, d, m, K, runs = shape.V, shape.d, shape.m, shape.pool, work.runs
    flops = steps * 2 * (V * K * d + K * V * d + 2 * K * d * m + V * K * m)
    coefficients = find_law("activation", shape.activation).coefficients(np) if m else None
    if coefficients:  # steps 1 and 2 are matrix products
        flops += 2 * V * K * m * sum(polynomial_products(len(coefficients) - 1))
    by_pair = steps - 2 if coefficients else steps
    return Amounts(exponentials=steps * runs * 3 * V * K, activations=by_pair * runs * V * K * m, flops=runs * flops)


def _further_steps(shape: Shape, work: Work) -> Amounts:
    """Steps of an optimiser: forward and back, which costs twice as much; over all
    pairs with a pool, formed once more for the way back."""
    V, d, m, K = shape.V, shape.d, shape.m, shape.pool
    of_logits = 2 * V * d + 4 * m * d  # an MLP's features, and its answers
    of_values = 2 * V * d if "Z_in" in TRAINS[shape.trains] else 0
    tokens = work.grouped * V
    grouped = Amounts(
        exponentials=6 * tokens * V,
        activations=3 * tokens * m,
        flops=tokens * (3 * of_logits + of_values) + work.grouped * 6 * V * d * (m or d),
    )
    if K:
        pairs = work.stepped * V * K
        tables = work.stepped * 4 * 2 * (K * V * d + V * K * d + (V + K) * m * d)
        return grouped + Amounts(exponentials=6 * pairs, activations=3 * pairs * m, flops=4 * pairs * of_logits + tables)
    samples, tokens = work.stepped, work.stepped_tokens
    of_keys = 2 * V * d if shape.trains != "V" else 0
    of_sample = 2 * V * V if shape.through_logits else 3 * of_logits + of_keys + of_values
    return grouped + Amounts(
        words=work.stepped_words,
        row_floats=tokens * (V if shape.through_logits else d),
        lookups=4 * tokens,
        scatters=(2 if of_values else 1) * tokens,
        exponentials=3 * samples * V + 2 * tokens,
        activations=2 * samples * m,
        flops=samples * of_sample + (samples // BLOCK) * 6 * V * d * (m or d),
    )


def peak_bytes(shape: Any) -> int:
    """Estimated peak memory of a run: tables, and what a tile of
    samples holds at once. Compilers reserve less, by up to eight times.
    """
    if not isinstance(shape, Shape):
        return 0
    V, d, m, K, p = shape.V, shape.d, shape.m, shape.pool, shape.m or shape.d
    floats = 10 * V * d + 4 * V * p + 2 * m * d + 6 * d * p + shape.tile * 4 * (V + d + m)
    if K:
        floats += 14 * V * K + 6 * K * d + m * (8 * V + 10 * K)
        floats += K * (4 * V + 8 * p) if shape.trained_by.exact else 0
    elif shape.form == "counts":
        floats += 4 * V * d + 5 * V * V
    elif not shape.trained_by.exact:
        floats += 4 * V * p + 3 * m * m
    floats += 4 * V * d * len(shape.given_tables)  # on the host too, and those of the batch that waits
    if shape.diagnose:
        floats += 4 * V * d + (4 * V * p + 2 * d * p + 2 * m * d if m else 0)
    if shape.decoders:  # what the program returns, and float64 on the host
        floats += 5 * V * d + 10 * V * V + 20 * d * d
    if shape.optimizer:  # parameters, their gradient and two moments; tables of the vocabulary; the way back
        with_Z, with_W_in = (name in TRAINS[shape.trains] for name in ("Z_in", "W_in"))
        trained = d * p + d * d + 2 * V * d * with_Z + m * d * with_W_in
        floats += 5 * trained + 6 * V * (d + K) + shape.tile * (4 * V + 2 * d) * (2 if with_Z else 1)
        floats += 0 if K else (5 * V * V if shape.through_logits else 0) + (0 if shape.batched else STORED_TOKENS)
    return 4 * floats


def _whole(n: int, size: int) -> int:
    """n rounded up to a multiple of `size`."""
    return -(-n // size) * size
