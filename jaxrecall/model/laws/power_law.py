"""Embeddings whose covariance has a power-law spectrum: entry i of a row is N(0, l_i), l_i = i^-alpha / (1 + 2^-alpha + ... + d^-alpha).

Such spectra are those of learned representations (Ghosh et al., "Investigating power laws in deep representation learning",
arXiv:2202.05808). The eigenvectors are the axes: the model, trained by gradient descent from zero, is invariant under rotations of Z_in,
and of Z_out. (Adam is not: it scales each coordinate.) z_trig and z_eos are isotropic. With alpha = 0 the rows are gaussian. The
effective dimension (tr S)^2 / tr S^2 of S = diag(l) is (sum i^-alpha)^2 / sum i^(-2 alpha).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..values import parameter
from .embedding import Draws, EmbeddingLaw, Gaussian, Moments, isotropic
from .law import register


@register
@dataclass(frozen=True)
class PowerLaw(EmbeddingLaw):
    name = "power_law"
    alpha: float = parameter(1.0, "exponent of the covariance spectrum, i^-alpha", low=0.0, high=10.0)

    @property
    def moments(self) -> Moments | None:  # type: ignore[override]
        return Gaussian.moments if self.alpha == 0 else None

    def rows(self, draws: Draws, xp: Any) -> Any:
        kind = draws.normals.dtype
        i = xp.arange(1, draws.normals.shape[1] + 1, dtype=kind)
        d = xp.asarray(draws.d, kind)
        spectrum = xp.where(i <= d, xp.exp(-xp.asarray(self.alpha, kind) * xp.log(i)), xp.asarray(0, kind))
        scale = xp.sqrt(spectrum * d / xp.sum(spectrum))
        return isotropic(draws._replace(normals=draws.normals * scale[None]), xp)
