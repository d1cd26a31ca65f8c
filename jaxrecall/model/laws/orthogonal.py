"""Orthogonal embeddings: unit vectors, because every metric is invariant under rotations."""

from __future__ import annotations

from typing import Any

from ...errors import Problem
from .law import EmbeddingLaw, Moments


class Orthogonal(EmbeddingLaw):
    name = "orthogonal"
    moments = Moments(overlap=False, random_length=False)

    def rows(self, normals: Any, index: Any, d: Any, xp: Any) -> Any:
        return (xp.arange(normals.shape[1], dtype=index.dtype)[None, :] == index).astype(normals.dtype)

    def problems(self, V: int, d: int) -> list[Problem]:
        if d >= V + 2:
            return []
        message = f"got {d} with orthogonal embeddings and V={V}; allowed: d >= V + 2 = {V + 2}"
        return [Problem("d", message, "d >= V + 2 or embedding != 'orthogonal'")]
