"""Embeddings near a subspace of few dimensions: z_v = (sqrt(1 - noise) sum_k s_vk g_k / sqrt(rank) + sqrt(noise) n_v) / sqrt(d). Ours.

All of s_vk, g_k and n_v are standard normal; the `rank` directions g_k (d,) are those of a table, s_v (rank,) and n_v (d,) those of
a row. A part `noise` of the mean squared length is isotropic. Given the directions, rows are independent with covariance
S = ((1 - noise) / rank sum_k g_k g_k^T + noise I) / d, of trace about 1. Z_in and Z_out have directions of their own; z_trig and z_eos are
isotropic. With noise = 1 the rows are gaussian.

Sizes of learned tables: a few directions hold most of the variance (Mu and Viswanath, "All-but-the-top: simple and effective
postprocessing for word representations", ICLR 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..values import parameter
from .embedding import Draws, EmbeddingLaw, Gaussian, Moments, isotropic
from .law import register


@register
@dataclass(frozen=True)
class LowRank(EmbeddingLaw):
    name = "low_rank"
    rank: int = parameter(16, "directions that the rows of a table are near to", low=1, high=65536)
    noise: float = parameter(0.0, "part of the mean squared length that is isotropic", low=0.0, high=1.0)

    @property
    def n_shared(self) -> int:  # type: ignore[override]
        return self.rank

    @property
    def n_own(self) -> int:  # type: ignore[override]
        return self.rank

    @property
    def moments(self) -> Moments | None:  # type: ignore[override]
        return Gaussian.moments if self.noise == 1 else None

    def rows(self, draws: Draws, xp: Any) -> Any:
        noise = xp.asarray(self.noise, draws.normals.dtype)
        inside = (draws.own / xp.asarray(self.rank, noise.dtype) ** 0.5) @ draws.shared
        return isotropic(draws._replace(normals=xp.sqrt(1 - noise) * inside + xp.sqrt(noise) * draws.normals), xp)
