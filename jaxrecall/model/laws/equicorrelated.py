"""Embeddings with a direction in common: z_v = (sqrt(1 - rho) n_v + sqrt(rho) g) / sqrt(d), n_v and g standard normal. Ours.

Two rows of one table have the mean inner product rho. Z_in and Z_out have directions of their own; z_trig and z_eos are isotropic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..values import parameter
from .embedding import Draws, EmbeddingLaw, Moments, isotropic
from .law import register


@register
@dataclass(frozen=True)
class Equicorrelated(EmbeddingLaw):
    name = "equicorrelated"
    n_shared = 1
    rho: float = parameter(0.0, "mean inner product of two rows of one table", low=0.0, high=1.0, open_high=True)

    @property
    def moments(self) -> Moments | None:  # type: ignore[override]  those of gaussian rows
        return Moments(overlap=True, random_length=True) if self.rho == 0 else None

    def rows(self, draws: Draws, xp: Any) -> Any:
        rho = xp.asarray(self.rho, draws.normals.dtype)
        mixed = xp.sqrt(1 - rho) * draws.normals + xp.sqrt(rho) * draws.shared
        return isotropic(draws._replace(normals=mixed), xp)
