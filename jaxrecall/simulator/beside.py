"""The memory of a run among others side by side on an accelerator, by what the compilers of a GPU and of a TPU were seen to reserve.

A compiler lets what is needed at different times share its place. So a run takes its tables, and what its largest stage holds at
once: drawing the embeddings, training on a tile of samples, or evaluating a block of sequences. results/accelerators.md has the
estimate beside the compilers' figure for every program that was compiled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..model.point import BLOCK
from .sizes import Sizes

POSITIONS = 16
"""Positions of a sequence whose numbers are read at a time: each iteration starts a handful of kernels, however little they do."""

LANES = 128
"""A TPU pads the last axis of an array to a multiple of this."""

GATHERED = 2.45
"""How much more a TPU holds of rows and words: it writes them out where a GPU makes them in the kernels that use them."""

MARGIN = 1.4
"""Estimates are to lie between one and two times what compilers reserve."""


class Held(NamedTuple):
    """What a form holds of a run: numbers of four bytes."""

    tables: int  # besides the embeddings
    gathered: int  # at once in training: rows and numbers that are looked up or drawn
    computed: int  # at once in training: what is made of them
    sequence: int  # at once in the evaluation, for each sequence of a block


def padded(sizes: Sizes, platform: str) -> Sizes:
    """The sizes as a platform lays them out, by the name that JAX has for it."""
    if platform != "tpu":
        return sizes
    return replace(sizes, **{name: -(-getattr(sizes, name) // LANES) * LANES for name in ("V", "d", "m", "pool")})


def floats(sizes: Sizes, held: Held, platform: str) -> int:
    """Numbers of four bytes that a run takes of padded sizes."""
    V, d, m = sizes.V, sizes.d, sizes.m
    more = GATHERED if platform == "tpu" else 1
    stages = more * 3 * (2 * V + m) * d, more * held.gathered + held.computed, more * BLOCK * held.sequence
    return int(MARGIN * (3 * V * d + 2 * m * d + held.tables + max(stages)))
