"""Embedding laws. Each law makes rows of embeddings from independent standard normals.

The interface of a law comes first, then the plain laws, then those with structure:
clusters, a subspace of few dimensions, a power-law spectrum. Each law with structure
has gaussian rows at one value of its parameter. `array` makes rows from a file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import ClassVar, NamedTuple

import numpy as np

from ...errors import Problem
from ..values import Numbers, parameter
from .law import Law, register


class Moments(NamedTuple):
    """The properties of a law that the formulas in `theory/` need.

    A law can declare moments only if the mean squared length of its rows is 1.
    """

    overlap: bool
    """True if rows are independent with uniform directions, so that cosines between
    them have variance 1/d. False if rows are orthonormal.
    """

    random_length: bool
    """True if d times the squared length of a row is chi-square with d degrees of
    freedom, so that entries are normal. False if the squared length is 1, so that
    entries are coordinates of a random direction, with lighter tails.
    """

    common: float = 0.0
    """The part of the squared length that lies along one direction shared by all rows
    of a table.
    """


class Draws(NamedTuple):
    """The random numbers from which a law makes the rows of one table.

    Columns from d on are padding. Rows of zeros are padding too.
    """

    table: str
    """The name of the table: Z_in, Z_out, z_trig or z_eos."""

    row: Numbers
    """(n, 1) the number of each row in its table: the token or label, or 0 for z_trig
    and z_eos.
    """

    normals: Numbers
    """(n, width) independent N(0, 1) entries, addressed by row. With a smaller V or d,
    these are a prefix of the same entries.
    """

    shared: Numbers
    """(law.n_shared, width) independent N(0, 1) entries that all rows of this table
    share. Every table has entries of its own.
    """

    V: Numbers
    d: Numbers

    own: Numbers = None
    """(n, law.n_own) additional independent N(0, 1) entries of each row. With a smaller
    V or n_own, these are a prefix of the same entries.
    """

    given: Numbers = None
    """(n, width) the rows made by `from_host`, for a law with `on_host`."""


Orders = Callable[[int, int], np.ndarray]
"""A function of r and n that returns the r-th random order of 0..n-1 for a table, (n,)
integers. Laws that choose among n items use such orders.
"""


class EmbeddingLaw(Law):
    """A law by which rows of embeddings are made. The same code serves NumPy and JAX
    through `xp`.

    In a compiled program the parameters are arrays.
    """

    field: ClassVar[str] = "embedding"
    n_shared: ClassVar[int] = 0
    """The number of rows of normals that all rows of a table share."""

    n_own: ClassVar[int] = 0
    """The number of additional normals that each row needs beyond its d normals."""

    on_host: ClassVar[bool] = False
    """Whether `from_host` makes the rows. If so, the rows are an argument of a program,
    and `draws.given` contains them.
    """

    moments: ClassVar[Moments | None] = None
    """The properties that the formulas in `theory/` need. The formulas refuse a law for
    which this is None.
    """

    @abstractmethod
    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        """Returns (n, width) rows of Z_in or Z_out.

        The rows returned for padding are dropped, but they must be finite.
        """

    def from_host(self, orders: Orders, V: int, d: int) -> np.ndarray:
        """Returns (V, d) float32 rows of Z_in or Z_out as a NumPy array, if `on_host`
        is true.
        """
        raise NotImplementedError

    def special(self, draws: Draws, xp: ModuleType) -> Numbers:
        """Returns (1, width) z_trig or z_eos, isotropic unless a law overrides this
        method.
        """
        return isotropic(draws, xp)

    def problems(self, V: int, d: int) -> list[Problem]:
        """Returns the problems that the law has at these sizes. The default is none."""
        return []

    def make(self, draws: Draws, xp: ModuleType) -> Numbers:
        """Returns the rows of the table that `draws` belongs to: `rows` for Z_in and
        Z_out, `special` for z_trig and z_eos.
        """
        if draws.table in ("Z_in", "Z_out"):
            return self.rows(draws, xp)
        return self.special(draws, xp)


@lru_cache(1024)
def problems_of_rows(law: EmbeddingLaw, V: int, d: int) -> list[Problem]:
    """Returns the problems in the rows that a law from outside the package makes.

    The first and the last row of each table are made with NumPy. NumPy raises an error
    if a law looks up a row that does not exist. A compiled program would use the last
    row instead.
    """
    rng = np.random.default_rng(0)
    for table in ("Z_in", "Z_out", "z_trig", "z_eos"):
        numbers = [0, V - 1] if table in ("Z_in", "Z_out") else [0]
        row = np.array(numbers, np.int32)[:, None]
        normals = rng.standard_normal((len(row), d)).astype(np.float32)
        try:
            shared = rng.standard_normal((law.n_shared, d)).astype(np.float32)
            own = rng.standard_normal((len(row), law.n_own)).astype(np.float32)
            draws = Draws(table, row, normals, shared, V, d, own)
            rows = np.asarray(law.make(draws, np))
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
        else:
            if rows.shape != normals.shape:
                got = f"shape {rows.shape}"
            elif not np.isfinite(rows).all():
                got = "numbers that are not finite"
            else:
                continue
        got = f"got {law}, of which rows {numbers} of {table} are {got}"
        return [Problem("embedding", got, allowed=f"{normals.shape} finite numbers")]
    return []


def isotropic(draws: Draws, xp: ModuleType) -> Numbers:
    """Returns rows with entries N(0, 1/d)."""
    return draws.normals / xp.sqrt(xp.asarray(draws.d, draws.normals.dtype))


def mixed(
    draws: Draws, xp: ModuleType, share: float, rest: Numbers, part: Numbers
) -> Numbers:
    """Returns the rows (sqrt(1 - share) rest + sqrt(share) part) / sqrt(d)."""
    share = xp.asarray(share, draws.normals.dtype)
    normals = xp.sqrt(1 - share) * rest + xp.sqrt(share) * part
    return isotropic(draws._replace(normals=normals), xp)


@register
@dataclass(frozen=True)
class Gaussian(EmbeddingLaw):
    """Every entry is N(0, 1/d)."""

    moments = Moments(overlap=True, random_length=True)
    rows = EmbeddingLaw.special


@register
@dataclass(frozen=True)
class Sphere(EmbeddingLaw):
    """Rows are uniform on the unit sphere. They are normalised standard normals."""

    moments = Moments(overlap=True, random_length=False)

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        square = xp.sum(draws.normals * draws.normals, axis=1, keepdims=True)
        length = xp.sqrt(square)
        return draws.normals / xp.where(length > 0, length, 1)

    special = rows


@register
@dataclass(frozen=True)
class Orthogonal(EmbeddingLaw):
    """Rows are unit vectors of the axes. Any other orthonormal rows have the same
    metrics, which are invariant under rotations.
    """

    moments = Moments(overlap=False, random_length=False)

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        width = xp.arange(draws.normals.shape[1], dtype=draws.row.dtype)
        return (width[None, :] == draws.row).astype(draws.normals.dtype)

    def special(self, draws: Draws, xp: ModuleType) -> Numbers:
        """Returns unit vector V for z_trig, and unit vector V + 1 for z_eos. No token
        has these vectors.
        """
        row = draws.row + draws.V + int(draws.table == "z_eos")
        return self.rows(draws._replace(row=row), xp)

    def problems(self, V: int, d: int) -> list[Problem]:
        if d >= V + 2:
            return []
        got = f"got {d} with orthogonal embeddings and V={V}"
        where = "d >= V + 2 or embedding != 'orthogonal'"
        return [Problem("d", got, where, f"d >= V + 2 = {V + 2}")]


@register
@dataclass(frozen=True)
class Equicorrelated(EmbeddingLaw):
    """All rows of a table share a random direction (ours).

        z_v = (sqrt(1 - rho) n_v + sqrt(rho) g) / sqrt(d)

    Here n_v and g are standard normal. The mean inner product of two rows of one table
    is rho. Z_in and Z_out have different directions. z_trig and z_eos are isotropic.
    """

    n_shared = 1
    rho: float = parameter(
        0.0,
        "mean inner product of two rows of one table",
        low=0.0,
        high=1.0,
        open_high=True,
    )

    @property
    def moments(self) -> Moments:
        return Moments(overlap=True, random_length=True, common=self.rho)

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        return mixed(draws, xp, self.rho, draws.normals, draws.shared)


@register
@dataclass(frozen=True)
class Clustered(EmbeddingLaw):
    """Each row is near the centre of its cluster k = v mod `clusters` (ours).

        z_v = (sqrt(1 - spread) c_k + sqrt(spread) n_v) / sqrt(d)

    The centres c_k and the n_v are standard normal (d,). The mean inner product is 1 -
    spread for two rows of one cluster, and 0 for rows of different clusters. The sizes
    of clusters differ by at most one. The assignment of tokens to clusters does not
    matter, because labels are a random permutation. With spread = 1 the rows are
    gaussian. With one cluster they are equicorrelated with rho = 1 - spread.
    """

    clusters: int = parameter(
        16, "clusters of a table", unit="clusters", low=1, high=65536
    )
    spread: float = parameter(
        0.5,
        "fraction of the mean squared length that lies within clusters",
        low=0.0,
        high=1.0,
    )

    @property
    def n_shared(self) -> int:
        return self.clusters

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        centres = draws.shared[draws.row[:, 0] % self.clusters]
        return mixed(draws, xp, self.spread, centres, draws.normals)


@register
@dataclass(frozen=True)
class LowRank(EmbeddingLaw):
    """Rows are near a subspace of `rank` dimensions (ours).

        z_v = (sqrt(1 - noise) sum_k s_vk g_k / sqrt(rank) + sqrt(noise) n_v) / sqrt(d)

    Here s_vk, g_k and n_v are standard normal. All rows of a table share the `rank`
    directions g_k (d,). Each row has its own s_v (rank,) and n_v (d,). The fraction
    `noise` of the mean squared length is isotropic. Given the directions, rows are
    independent with covariance S = ((1 - noise) / rank sum_k g_k g_k^T + noise I) / d,
    whose trace is about 1. With noise = 1 the rows are gaussian.

    In learned tables a few directions contain most of the variance (Mu and Viswanath,
    "All-but-the-top: simple and effective postprocessing for word representations",
    ICLR 2018).
    """

    name = "low_rank"
    rank: int = parameter(
        16,
        "directions that the rows of a table are near to",
        unit="directions",
        low=1,
        high=65536,
    )
    noise: float = parameter(
        0.0, "fraction of the mean squared length that is isotropic", low=0.0, high=1.0
    )

    @property
    def n_shared(self) -> int:
        return self.rank

    @property
    def n_own(self) -> int:
        return self.rank

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        rank = xp.asarray(self.rank, draws.normals.dtype)
        inside = (draws.own / rank**0.5) @ draws.shared
        return mixed(draws, xp, self.noise, inside, draws.normals)


@register
@dataclass(frozen=True)
class PowerLaw(EmbeddingLaw):
    """Entry i of a row is N(0, l_i), with l_i ~ i^-alpha: a power-law spectrum.

    The l_i add up to 1: l_i = i^-alpha / (1 + 2^-alpha + ... + d^-alpha).

    Learned representations have such spectra (Ghosh et al., "Investigating power laws
    in deep representation learning", arXiv:2202.05808). The eigenvectors are the axes,
    because gradient descent from zero is invariant under rotations of Z_in, and under
    rotations of Z_out. (Training by Adam is not invariant, because Adam scales each
    coordinate.) With alpha = 0 the rows are gaussian. The effective dimension (tr S)^2
    / tr S^2 of S = diag(l) is (sum i^-alpha)^2 / sum i^(-2 alpha).
    """

    name = "power_law"
    alpha: float = parameter(
        1.0, "exponent of the covariance spectrum, i^-alpha", low=0.0, high=10.0
    )

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        kind = draws.normals.dtype
        i = xp.arange(1, draws.normals.shape[1] + 1, dtype=kind)
        d = xp.asarray(draws.d, kind)
        powers = xp.exp(-xp.asarray(self.alpha, kind) * xp.log(i))
        spectrum = xp.where(i <= d, powers, xp.asarray(0, kind))
        scale = xp.sqrt(spectrum * d / xp.sum(spectrum))
        return isotropic(draws._replace(normals=draws.normals * scale[None]), xp)
