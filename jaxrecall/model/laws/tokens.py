"""Token laws: how the tokens of a sample are drawn from the vocabulary.

An alias table converts one random word to a token (Walker, ACM TOMS 1977). The table is
built by the algorithm of Vose (IEEE TSE 1991). The cell of token v contains the words
for which `keys.below` returns v. In each cell, all words above a threshold draw one
other token instead. Thresholds are whole words, so each probability is exact to 2^-32
for every V.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import ClassVar

import numpy as np
from numpy import ndarray

from ...errors import PointError, Problem
from ..values import Numbers, parameter
from .law import Law, register

WORDS = 2**32


class TokenLaw(Law):
    """A distribution of tokens.

    The field `tokens` of a point contains the law of informative tokens. The field
    `noise_tokens` contains the law of noise tokens.
    """

    field: ClassVar[str] = "tokens"

    @abstractmethod
    def probabilities(self, V: int, xp: ModuleType) -> Numbers:
        """Returns the probability of each token up to a common factor, an array (V,).
        `xp` is NumPy.
        """


@register
@dataclass(frozen=True)
class Uniform(TokenLaw):
    """Every token is equally likely."""

    def probabilities(self, V: int, xp: ModuleType) -> Numbers:
        return xp.full(V, 1 / V)


@register
@dataclass(frozen=True)
class Zipf(TokenLaw):
    """Token v has probability ~ (v + 1)^-s. For words of natural language, s is near 1.

    Zipf, "Human behavior and the principle of least effort", 1949. With s = 0, the
    tokens are the same as those of the uniform law.
    """

    s: float = parameter(1.0, "exponent: p_v ~ (v + 1)^-s", low=0.0, high=10.0)

    def probabilities(self, V: int, xp: ModuleType) -> Numbers:
        return xp.arange(1.0, V + 1) ** -self.s


@lru_cache(256)
def token_probabilities(law: TokenLaw, V: int) -> ndarray:
    """Returns the probability of each token, an array (V,) of float64.

    Raises PointError unless the law returns V numbers, none of them negative and at
    least one positive.
    """
    p = np.asarray(law.probabilities(V, np), np.float64)
    if p.shape != (V,) or not np.isfinite(p).all() or p.min() < 0 or not p.max() > 0:
        got = f"got {law} with probabilities {p}"
        allowed = f"V={V} finite numbers from 0 on, not all 0"
        raise PointError([Problem("tokens", got, allowed=allowed)])
    return p / p.sum()


def drawn_as(law: TokenLaw, V: int) -> TokenLaw:
    """Returns the law, or the uniform law if all tokens are equally likely."""
    if isinstance(law, Uniform):
        return law
    p = token_probabilities(law, V)
    return Uniform() if p.min() == p.max() else law


@lru_cache(256)
def alias_table(law: TokenLaw, V: int) -> ndarray:
    """Returns an array (2, V) of uint32. For each cell it contains the first word that
    draws another token, and that token.

    The table is made on the host, so that neither padding nor a device changes a draw.
    Raises PointError as `token_probabilities` does.
    """
    # the first word of each cell, as in `keys.below`
    starts = -(-np.arange(V + 1, dtype=np.int64) * WORDS // V)
    cells = np.diff(starts).tolist()
    is_uniform = isinstance(drawn_as(law, V), Uniform)
    words = cells.copy() if is_uniform else _words(law, V)
    kept, other = [*cells], [*range(V)]
    short = [v for v in range(V) if words[v] < cells[v]]
    long = [v for v in range(V) if words[v] > cells[v]]
    # as long as a cell is not full, some token has more words than fit in its own cell
    while short:
        v, giver = short.pop(), long[-1]
        kept[v], other[v] = words[v], giver
        words[giver] -= cells[v] - words[v]
        if words[giver] <= cells[giver]:
            long.pop()
            if words[giver] < cells[giver]:
                short.append(giver)
    # a full cell has itself as the other token
    first = np.where(np.array(kept) < cells, starts[:-1] + kept, 0)
    return np.stack([first, other]).astype(np.uint32)


def _words(law: TokenLaw, V: int) -> list[int]:
    """Returns a list with the number of words, out of 2^32, that draw each token."""
    p = token_probabilities(law, V)
    ends = np.round(np.cumsum(p) * WORDS)
    # trailing tokens of probability 0 get no word for any rounding
    ends[np.flatnonzero(p)[-1] :] = WORDS
    return np.diff(ends, prepend=0).astype(np.int64).tolist()


def tables(laws: Sequence[TokenLaw], V: int) -> ndarray | None:
    """Returns the alias tables of informative tokens and of noise tokens, an array (1
    or 2, 2, V). It is None if all tokens are uniform.

    The array contains a single table if both have the same law.
    """
    distinct = tuple(dict.fromkeys(laws))
    if distinct == (Uniform(),):
        return None
    return np.stack([alias_table(law, V) for law in distinct])


def n_rare(V: int) -> int:
    """The number of tokens in the rarer half of a vocabulary."""
    return V // 2


def n_frequent(V: int) -> int:
    """The number of tokens in the most frequent tenth of a vocabulary, at least one."""
    return -(-V // 10)


def rare_and_frequent(law: TokenLaw, V: int) -> ndarray:
    """Returns two masks, (2, V): the rarer half of the vocabulary, and its most
    frequent tenth.
    """
    rank = np.argsort(by_frequency(law, V))
    return np.stack([rank >= V - n_rare(V), rank < n_frequent(V)])


def by_frequency(law: TokenLaw, V: int) -> ndarray:
    """Returns the tokens sorted by frequency, an array (V,). The most frequent token
    comes first. Ties keep their order.
    """
    return np.argsort(-token_probabilities(law, V), kind="stable")
