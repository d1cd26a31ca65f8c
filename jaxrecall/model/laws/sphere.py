"""Embeddings that are uniform on the unit sphere: normalised standard normals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .embedding import Draws, Moments, Rescaled
from .law import register


@register
@dataclass(frozen=True)
class Sphere(Rescaled):
    name = "sphere"
    moments = Moments(overlap=True, random_length=False)

    def length(self, draws: Draws, xp: Any) -> Any:
        return xp.sqrt(xp.sum(draws.normals * draws.normals, axis=1, keepdims=True))
