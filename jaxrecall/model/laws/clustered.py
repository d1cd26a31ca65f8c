"""Embeddings in clusters: z_v = (sqrt(1 - spread) c_k + sqrt(spread) n_v) / sqrt(d), where k = v mod `clusters`. Ours.

The centres c_k and the n_v are standard normal (d,). Two rows of one cluster have the mean inner product 1 - spread, rows of two clusters
0. Clusters are of equal size to within one; since labels are a random permutation, which token is in which cluster does not matter. Z_in
and Z_out have centres of their own; z_trig and z_eos are isotropic. With spread = 1 the rows are gaussian, with one cluster they
are equicorrelated with rho = 1 - spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..values import parameter
from .embedding import Draws, EmbeddingLaw, Gaussian, Moments, isotropic
from .law import register


@register
@dataclass(frozen=True)
class Clustered(EmbeddingLaw):
    clusters: int = parameter(16, "clusters of a table", low=1, high=65536)
    spread: float = parameter(0.5, "part of the mean squared length that lies within clusters", low=0.0, high=1.0)

    @property
    def n_shared(self) -> int:  # type: ignore[override]
        return self.clusters

    @property
    def moments(self) -> Moments | None:  # type: ignore[override]
        return Gaussian.moments if self.spread == 1 else None

    def rows(self, draws: Draws, xp: Any) -> Any:
        spread = xp.asarray(self.spread, draws.normals.dtype)
        centres = draws.shared[draws.row[:, 0] % self.clusters]
        return isotropic(draws._replace(normals=xp.sqrt(1 - spread) * centres + xp.sqrt(spread) * draws.normals), xp)
