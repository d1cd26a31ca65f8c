"""How much runs ask of a machine: their sizes (`Work`) and counts of primitive operations (`Amounts`)."""

from __future__ import annotations

import operator
import os
from typing import NamedTuple

from ..model.point import BLOCK, Point

LABELS = 64
"""Labels per block when logits are compared with labels: small, so that padding past V costs little."""

TILE = 4 * BLOCK  # samples per iteration of most programs


KEPT = 2**20
"""Most noise tokens that a run keeps for further steps, where it would draw them again in each: 4 MiB."""


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

    def slower(self, factor: float) -> Amounts:
        """As operations that take `factor` times as long, except matrix products and work on the host."""
        return Amounts(*(factor * amount for amount in self))._replace(flops=self.flops, decoded=self.decoded)


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

    @staticmethod
    def of(point: Point, runs: int = 1) -> Work:
        samples = _whole(point.N, TILE)
        n_rows = len(point.recorded_steps)
        n_test = n_rows * _whole(point.n_test, BLOCK)
        evaluated = n_test + n_rows * _whole(min(point.N, point.n_test), BLOCK)
        labels = evaluated * _whole(point.V, LABELS)
        further = (*_of_steps(point), n_rows) if point.trains_on else (0, 0, 0, 0)
        if point.pool is None:
            of_run = (samples, samples * point.L, evaluated, evaluated * point.L, labels, 0, *further)
            return Work(runs, *(runs * n for n in of_run))
        batches = 3 if point.fresh_batches else 1
        drawn = {
            "samples": (batches * samples, batches * point.V * point.pool),
            "noise": (batches * _whole(point.pool, BLOCK) * (point.L - 1), batches * point.pool * point.V),
            "test": (n_test * (point.L - 1), n_test * point.V),
        }
        limit = point.in_the_limit
        pairs, noise, test = (0 if name in limit else words for name, (words, _) in drawn.items())
        gaussian = sum(drawn[name][1] for name in limit)
        return Work(runs, *(runs * n for n in (pairs, noise, evaluated, test, labels, gaussian, *further)))

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(*map(operator.add, self, other))

    def times(self, n: int) -> Work:
        return Work(*(n * each for each in self))


def _of_steps(point: Point) -> tuple[int, int, int]:
    """`stepped`, `stepped_tokens` and `stepped_words` of a run that trains on."""
    if point.pool:
        return point.further_steps, 0, 0
    samples = point.further_steps * _whole(point.batch or point.N, BLOCK)
    tokens = samples * point.L
    if point.batch:
        return samples, tokens, 4 * tokens  # forward and back; a chosen sample takes both words of a cipher
    kept = not point.fresh_batches and _whole(point.N, BLOCK) * point.L <= KEPT
    return samples, tokens, _whole(point.N, BLOCK) * point.L if kept else 2 * tokens


def memory_limit() -> int:
    """80 % of this machine's memory, bytes."""
    return int(0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _whole(n: int, size: int) -> int:
    """n rounded up to a multiple of `size`."""
    return -(-n // size) * size
