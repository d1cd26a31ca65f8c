"""Embedding laws with structure: clusters, a subspace of few dimensions, a power-law spectrum.

Z_in and Z_out have centres and directions of their own; z_trig and z_eos are isotropic.
At one value of a parameter each law has gaussian rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from ..values import Numbers, parameter
from .embedding import Draws, EmbeddingLaw, Gaussian, Moments, isotropic
from .law import register


@register
@dataclass(frozen=True)
class Clustered(EmbeddingLaw):
    """z_v = (sqrt(1 - spread) c_k + sqrt(spread) n_v) / sqrt(d), where k = v mod `clusters`. Ours.

    The centres c_k and the n_v are standard normal (d,). Two rows of one cluster have
    the mean inner product 1 - spread, rows of two clusters 0. Clusters are of equal
    size to within one; since labels are a random permutation, which token is in which
    cluster does not matter. With spread = 1 the rows are gaussian, with one cluster
    they are equicorrelated with rho = 1 - spread.
    """

    clusters: int = parameter(16, "clusters of a table", unit="clusters", low=1, high=65536)
    spread: float = parameter(0.5, "part of the mean squared length that lies within clusters", low=0.0, high=1.0)

    @property
    def n_shared(self) -> int:  # type: ignore[override]
        return self.clusters

    @property
    def moments(self) -> Moments | None:  # type: ignore[override]
        return Gaussian.moments if self.spread == 1 else None

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        spread = xp.asarray(self.spread, draws.normals.dtype)
        centres = draws.shared[draws.row[:, 0] % self.clusters]
        return isotropic(draws._replace(normals=xp.sqrt(1 - spread) * centres + xp.sqrt(spread) * draws.normals), xp)


@register
@dataclass(frozen=True)
class LowRank(EmbeddingLaw):
    """z_v = (sqrt(1 - noise) sum_k s_vk g_k / sqrt(rank) + sqrt(noise) n_v) / sqrt(d). Ours.

    All of s_vk, g_k and n_v are standard normal; the `rank` directions g_k (d,) are
    those of a table, s_v (rank,) and n_v (d,) those of a row. A part `noise` of the
    mean squared length is isotropic. Given the directions, rows are independent with
    covariance S = ((1 - noise) / rank sum_k g_k g_k^T + noise I) / d, of trace about 1.
    With noise = 1 the rows are gaussian.

    Sizes of learned tables: a few directions hold most of the variance (Mu and
    Viswanath, "All-but-the-top: simple and effective postprocessing for word
    representations", ICLR 2018).
    """

    name = "low_rank"
    rank: int = parameter(16, "directions that the rows of a table are near to", unit="directions", low=1, high=65536)
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

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        noise = xp.asarray(self.noise, draws.normals.dtype)
        inside = (draws.own / xp.asarray(self.rank, noise.dtype) ** 0.5) @ draws.shared
        return isotropic(draws._replace(normals=xp.sqrt(1 - noise) * inside + xp.sqrt(noise) * draws.normals), xp)


@register
@dataclass(frozen=True)
class PowerLaw(EmbeddingLaw):
    """Entry i of a row is N(0, l_i), l_i = i^-alpha / (1 + 2^-alpha + ... + d^-alpha): a power-law spectrum.

    Such spectra are those of learned representations (Ghosh et al., "Investigating
    power laws in deep representation learning", arXiv:2202.05808). The eigenvectors are
    the axes: the model, trained by gradient descent from zero, is invariant under
    rotations of Z_in, and of Z_out. (Adam is not: it scales each coordinate.) With
    alpha = 0 the rows are gaussian. The effective dimension (tr S)^2 / tr S^2 of S =
    diag(l) is (sum i^-alpha)^2 / sum i^(-2 alpha).
    """

    name = "power_law"
    alpha: float = parameter(1.0, "exponent of the covariance spectrum, i^-alpha", low=0.0, high=10.0)

    @property
    def moments(self) -> Moments | None:  # type: ignore[override]
        return Gaussian.moments if self.alpha == 0 else None

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        kind = draws.normals.dtype
        i = xp.arange(1, draws.normals.shape[1] + 1, dtype=kind)
        d = xp.asarray(draws.d, kind)
        spectrum = xp.where(i <= d, xp.exp(-xp.asarray(self.alpha, kind) * xp.log(i)), xp.asarray(0, kind))
        scale = xp.sqrt(spectrum * d / xp.sum(spectrum))
        return isotropic(draws._replace(normals=draws.normals * scale[None]), xp)
