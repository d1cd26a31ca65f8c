"""Orthogonal embeddings: unit vectors, because every metric is invariant under rotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import Problem
from .embedding import Draws, EmbeddingLaw, Moments
from .law import register


@register
@dataclass(frozen=True)
class Orthogonal(EmbeddingLaw):
    name = "orthogonal"
    moments = Moments(overlap=False, random_length=False)

    def rows(self, draws: Draws, xp: Any) -> Any:
        width = xp.arange(draws.normals.shape[1], dtype=draws.row.dtype)
        return (width[None, :] == draws.row).astype(draws.normals.dtype)

    def special(self, draws: Draws, xp: Any) -> Any:
        """Unit vectors V and V + 1, which no token has."""
        return self.rows(draws._replace(row=draws.row + draws.V + int(draws.table == "z_eos")), xp)

    def problems(self, V: int, d: int) -> list[Problem]:
        if d >= V + 2:
            return []
        message = f"got {d} with orthogonal embeddings and V={V}; allowed: d >= V + 2 = {V + 2}"
        return [Problem("d", message, "d >= V + 2 or embedding != 'orthogonal'")]
