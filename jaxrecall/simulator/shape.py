"""A bucket: the padded sizes and the variant that one compiled program serves. No JAX here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UsageError
from ..point import BLOCK, Point

MAX_COUNTED_V = 2048
"""Widest padded vocabulary for which a guarded program keeps a V x V table of token counts (16 MiB)."""

LABELS = 64
"""Labels whose logits are held at once when sequences are recalled: past those of a run there are few."""


def is_counted(V: int, m: int) -> bool:
    """Whether a guarded program of these padded sizes counts tokens rather than reads samples."""
    return m == 0 and V <= MAX_COUNTED_V


def form_of(point: Point) -> str:
    """The form that the point runs in: shortcuts count tokens in 32 bits, so N L from 2^31 on runs the full form."""
    return "full" if point.N * point.L >= 2**31 else point.exact


@dataclass(frozen=True, order=True)
class Shape:
    """Padded sizes V x d x m of a program; every point that fits, with the same activation and form, can run in it."""

    V: int
    d: int
    m: int
    activation: str
    exact: str = "guarded"
    diagnose: bool = False
    decoders: bool = False

    def __str__(self) -> str:
        return f"{self.V}x{self.d}" + (f"x{self.m}" if self.m else "")

    @property
    def chunk(self) -> int:
        """Samples streamed at a time: whole blocks. Four suit a CPU's caches and waste little on small N; wide buckets take
        fewer, so that a (chunk, widest) float32 array stays within 16 MiB as long as one block does."""
        return BLOCK * max(1, min(4, 2**22 // (max(self.V, self.d, self.m) * BLOCK)))

    @property
    def in_full(self) -> Shape:
        """The same sizes in the full form, for runs that a guard turns away."""
        return replace(self, exact="full")

    @property
    def variant(self) -> tuple[Any, ...]:
        """What two buckets must share for one to hold the other's points, besides sizes."""
        return self.activation, self.exact, self.diagnose, self.decoders, self.m > 0

    def fits(self, point: Point) -> bool:
        sizes = point.V <= self.V and point.d <= self.d and point.m <= self.m
        return sizes and Shape.sized(point, self.V, self.d, self.m) == self

    @staticmethod
    def sized(point: Point, V: int, d: int, m: int) -> Shape:
        """The bucket of these sizes and of the point's variant, whether it fits or not."""
        return Shape(V, d, m, point.activation, form_of(point), point.diagnose, point.decoders)

    @staticmethod
    def of(point: Point) -> Shape:
        """The bucket of a point on its own: each size padded to a power of two, at least 16."""
        return Shape.sized(point, *(max(16, 1 << (size - 1).bit_length()) if size else 0 for size in (point.V, point.d, point.m)))

    @staticmethod
    def tight(point: Point) -> Shape:
        """The bucket of a point with little padding: four sizes to the octave, multiples of 16."""

        def padded(size: int) -> int:
            step = max(16, 1 << max(0, size.bit_length() - 3))
            return -(-size // step) * step

        return Shape.sized(point, padded(point.V), padded(point.d), padded(point.m))

    @staticmethod
    def parse(text: str) -> tuple[int, int, int]:
        """Sizes (V, d, m) from "256x128" or "256x128x512"; raises UsageError."""
        match = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?", text)
        if not match:
            raise UsageError(f"--bucket: got {text!r}; allowed: VxD or VxDxM in whole numbers, as in 256x128 or 256x128x512")
        V, d, m = (int(size or 0) for size in match.groups())
        return V, d, m
