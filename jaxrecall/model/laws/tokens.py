"""Laws of the tokens: which tokens of the vocabulary a sample holds.

A token is drawn from one random word by an alias table (Walker, ACM TOMS 1977, built as
by Vose, IEEE TSE 1991). Of the words that `keys.below` gives to token v, its cell,
those from some word on draw one other token in its place. Cells are filled in whole
words, so each probability is right to 2^-32, whatever V is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import ClassVar

import numpy as np

from ..values import Numbers, parameter
from .law import Law, register

WORDS = 2**32


class TokenLaw(Law):
    """How tokens are drawn: informative ones by the field `tokens`, noise by
    `noise_tokens`.
    """

    field: ClassVar[str] = "tokens"

    @abstractmethod
    def probabilities(self, V: int, xp: ModuleType) -> Numbers:
        """(V,) probability of each token, up to a factor; `xp` is NumPy."""


@register
@dataclass(frozen=True)
class Uniform(TokenLaw):
    """Every token is equally likely."""

    def probabilities(self, V: int, xp: ModuleType) -> Numbers:
        return xp.full(V, 1 / V)


@register
@dataclass(frozen=True)
class Zipf(TokenLaw):
    """Token v has probability ~ (v + 1)^-s; words of natural language have s near 1.

    Zipf, "Human behavior and the principle of least effort", 1949. With s = 0 tokens
    are uniform, and the same numbers are drawn.
    """

    s: float = parameter(1.0, "exponent: p_v ~ (v + 1)^-s", low=0.0, high=10.0)

    def probabilities(self, V: int, xp: ModuleType) -> Numbers:
        return xp.arange(1.0, V + 1) ** -self.s


@lru_cache(256)
def shares(law: TokenLaw, V: int) -> np.ndarray:
    """(V,) float64: the probability of each token.

    Raises ValueError unless the law gives V numbers of which none is negative and one
    is positive.
    """
    p = np.asarray(law.probabilities(V, np), np.float64)
    if p.shape != (V,) or not np.isfinite(p).all() or p.min() < 0 or not p.max() > 0:
        raise ValueError(
            f"tokens: got {law} with probabilities {p}; allowed: V={V} finite numbers"
            " from 0 on, not all 0"
        )
    return p / p.sum()


def drawn_as(law: TokenLaw, V: int) -> TokenLaw:
    """The law, or the uniform one where all tokens are equally likely."""
    if isinstance(law, Uniform):
        return law
    p = shares(law, V)
    return Uniform() if p.min() == p.max() else law


@lru_cache(256)
def alias_table(law: TokenLaw, V: int) -> np.ndarray:
    """(2, V) uint32: the first word of each cell that draws another token, and that
    token.

    The host makes it, so that neither padding nor a device changes a draw. Raises
    ValueError as `shares`.
    """
    # the first word of each cell, as in `keys.below`
    starts = -(-np.arange(V + 1, dtype=np.int64) * WORDS // V)
    cells = np.diff(starts).tolist()
    is_uniform = isinstance(drawn_as(law, V), Uniform)
    own = cells.copy() if is_uniform else _words(law, V)
    kept, other = [*cells], [*range(V)]
    short = [v for v in range(V) if own[v] < cells[v]]
    long = [v for v in range(V) if own[v] > cells[v]]
    # as long as a cell is not full, a token has more words than its own cell takes
    while short:
        v, giver = short.pop(), long[-1]
        kept[v], other[v] = own[v], giver
        own[giver] -= cells[v] - own[v]
        if own[giver] <= cells[giver]:
            long.pop()
            if own[giver] < cells[giver]:
                short.append(giver)
    # a full cell has itself as the other token
    first = np.where(np.array(kept) < cells, starts[:-1] + kept, 0)
    return np.stack([first, other]).astype(np.uint32)


def _words(law: TokenLaw, V: int) -> list[int]:
    """How many of the 2^32 words draw each token."""
    p = shares(law, V)
    ends = np.round(np.cumsum(p) * WORDS)
    # a last token of probability 0 has no word; rounding may not give it one
    ends[np.flatnonzero(p)[-1] :] = WORDS
    return np.diff(ends, prepend=0).astype(np.int64).tolist()


def tables(laws: Sequence[TokenLaw], V: int) -> np.ndarray | None:
    """(1 or 2, 2, V): alias tables of the informative tokens and of the noise, None if
    all tokens are uniform.

    There is one table where both have the same law.
    """
    distinct = tuple(dict.fromkeys(laws))
    if distinct == (Uniform(),):
        return None
    return np.stack([alias_table(law, V) for law in distinct])


def n_rare(V: int) -> int:
    """Tokens of the rarer half of a vocabulary."""
    return V // 2


def n_frequent(V: int) -> int:
    """Tokens of the most frequent tenth of a vocabulary, at least one."""
    return -(-V // 10)


def rare_and_frequent(law: TokenLaw, V: int) -> np.ndarray:
    """(2, V) bool: the rarer half of the vocabulary, and its most frequent tenth."""
    rank = np.argsort(by_frequency(law, V))
    return np.stack([rank >= V - n_rare(V), rank < n_frequent(V)])


def by_frequency(law: TokenLaw, V: int) -> np.ndarray:
    """(V,): the tokens by frequency, the most frequent first; ties stay in order."""
    return np.argsort(-shares(law, V), kind="stable")
