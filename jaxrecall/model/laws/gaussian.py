"""Gaussian embeddings: every entry is N(0, 1/d)."""

from __future__ import annotations

from typing import Any

from .law import Moments, Rescaled


class Gaussian(Rescaled):
    name = "gaussian"
    moments = Moments(overlap=True, random_length=True)

    def length(self, normals: Any, d: Any, xp: Any) -> Any:
        return xp.sqrt(xp.asarray(d, normals.dtype))
