"""Embeddings that are uniform on the unit sphere: normalised standard normals."""

from __future__ import annotations

from typing import Any

from .law import Moments, Rescaled


class Sphere(Rescaled):
    name = "sphere"
    moments = Moments(overlap=True, random_length=False)

    def length(self, normals: Any, d: Any, xp: Any) -> Any:
        return xp.sqrt(xp.sum(normals * normals, axis=1, keepdims=True))
