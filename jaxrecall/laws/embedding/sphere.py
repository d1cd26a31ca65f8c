"""Embeddings that are uniform on the unit sphere: normalised standard normals."""

from __future__ import annotations

from typing import Any

from .law import EmbeddingLaw, Moments


class Sphere(EmbeddingLaw):
    name = "sphere"
    moments = Moments(overlap=True, random_length=False)

    def rows(self, normals: Any, index: Any, d: Any, xp: Any) -> Any:
        square = xp.sum(normals * normals, axis=1, keepdims=True)
        return normals / xp.sqrt(xp.where(square > 0, square, xp.ones_like(square)))
