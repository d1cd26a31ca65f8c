"""Gaussian embeddings: every entry is N(0, 1/d)."""

from __future__ import annotations

from typing import Any

from .law import EmbeddingLaw, Moments


class Gaussian(EmbeddingLaw):
    name = "gaussian"
    moments = Moments(overlap=True, random_length=True)

    def rows(self, normals: Any, index: Any, d: Any, xp: Any) -> Any:
        return normals / xp.sqrt(xp.asarray(d, normals.dtype))
