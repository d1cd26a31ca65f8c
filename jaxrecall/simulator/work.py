"""How much runs ask of a machine: their sizes (`Work`) and counts of primitive operations (`Amounts`)."""

from __future__ import annotations

import operator
from typing import NamedTuple

from ..point import BLOCK, Point

LABELS = 64
"""Labels per block when logits are compared with labels: small, so that padding past V costs little."""

TILE = 4 * BLOCK  # samples per iteration of most programs


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


PRIMITIVES = Amounts._fields


class Work(NamedTuple):
    """What runs ask for whatever program they run in; the work of several is the sum."""

    runs: int = 0
    samples: int = 0  # N, here as below rounded up to whole tiles
    tokens: int = 0  # N L
    evaluated: int = 0  # test and train sequences that are measured
    evaluated_tokens: int = 0
    labels: int = 0  # logits of the evaluated

    @staticmethod
    def of(point: Point, runs: int = 1) -> Work:
        samples = -(-point.N // TILE) * TILE
        evaluated = sum(-(-n // BLOCK) * BLOCK for n in (point.n_test, min(point.N, point.n_test)))
        labels = -(-point.V // LABELS) * LABELS
        return Work(runs, *(runs * n for n in (samples, samples * point.L, evaluated, evaluated * point.L, evaluated * labels)))

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(*map(operator.add, self, other))
