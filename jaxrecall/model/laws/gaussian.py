"""Gaussian embeddings: every entry is N(0, 1/d)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .embedding import Draws, Moments, Rescaled
from .law import register


@register
@dataclass(frozen=True)
class Gaussian(Rescaled):
    name = "gaussian"
    moments = Moments(overlap=True, random_length=True)

    def length(self, draws: Draws, xp: Any) -> Any:
        return xp.sqrt(xp.asarray(draws.d, draws.normals.dtype))
