"""What an embedding law must say, and the registry of those there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ...errors import Problem


@dataclass(frozen=True)
class Moments:
    """What the formulas in `theory/` need to know of a law; the mean squared length of a row is 1 in every case."""

    overlap: bool
    """True: rows are independent and their directions uniform, so that cosines between them have variance 1/d.
    False: rows are orthonormal."""

    random_length: bool
    """True: the squared length of a row is chi-square with d degrees of freedom, over d, so that entries are normal.
    False: it is 1, so that entries are coordinates of a random direction, whose tails are lighter."""


class EmbeddingLaw(ABC):
    """How rows of embeddings are made of independent standard normals."""

    name: str
    """Value of the field `embedding`."""

    moments: Moments | None = None
    """What theory needs to know; the formulas refuse a law that leaves it out, the locked-attention surrogate does not."""

    @abstractmethod
    def rows(self, normals: Any, index: Any, d: Any, xp: Any) -> Any:
        """(n, width) embeddings, each a function of its own row of `normals` (n, width) and its own `index` (n, 1).

        `xp` is numpy or jax.numpy. Columns from d on are padding, and rows of zeros are too: what is returned for them is
        dropped, but it must be finite. `index` is v for row v of Z_in or Z_out, V for z_trig and V + 1 for z_eos.
        """

    def problems(self, V: int, d: int) -> list[Problem]:
        """What is wrong with a point of these sizes; nothing by default."""
        return []


class Rescaled(EmbeddingLaw):
    """A law whose rows are the normals over a length. A compiled program divides once for all such laws."""

    @abstractmethod
    def length(self, normals: Any, d: Any, xp: Any) -> Any:
        """(n, 1), or one number for all rows; what it is for rows of zeros, which are padding, does not matter."""

    def rows(self, normals: Any, index: Any, d: Any, xp: Any) -> Any:
        return normals / self.length(normals, d, xp)


EMBEDDING_LAWS: dict[str, EmbeddingLaw] = {}
"""Every law by name, in the order of registration. A law enters a compiled program as its place in this order."""


def law_index(name: str) -> int:
    """The place of a law in EMBEDDING_LAWS."""
    return list(EMBEDDING_LAWS).index(name)


def register(law: EmbeddingLaw) -> EmbeddingLaw:
    """Adds a law, which may then be used as the field `embedding`; raises ValueError if another law has its name."""
    if law.name in EMBEDDING_LAWS:
        raise ValueError(f"embedding law: got {law.name!r} a second time; allowed: a name other than {', '.join(EMBEDDING_LAWS)}")
    EMBEDDING_LAWS[law.name] = law
    return law
