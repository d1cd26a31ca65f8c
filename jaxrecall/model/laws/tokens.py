"""Laws of the tokens: which tokens of the vocabulary a sample holds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from .law import Law, register


class TokenLaw(Law):
    """How tokens are drawn, informative ones and noise alike."""

    field: ClassVar[str] = "tokens"

    @abstractmethod
    def probabilities(self, V: int, xp: Any) -> Any:
        """(V,) probability of each token, up to a factor; `xp` is NumPy."""


@register
@dataclass(frozen=True)
class Uniform(TokenLaw):
    """Every token is equally likely."""

    name = "uniform"

    def probabilities(self, V: int, xp: Any) -> Any:
        return xp.full(V, 1 / V)


@lru_cache(256)
def largest_words(law: TokenLaw, V: int) -> np.ndarray:
    """(V,) uint32, increasing: a token is drawn by the random words up to its entry that no earlier token has.

    Sums are in float64 on the host, so that neither padding nor a device changes a draw. Raises ValueError unless the law gives
    V numbers of which none is negative and one is positive.
    """
    p = np.asarray(law.probabilities(V, np), np.float64)
    if p.shape != (V,) or not np.isfinite(p).all() or p.min() < 0 or not p.max() > 0:
        raise ValueError(f"tokens: got {law} with probabilities {p}; allowed: V={V} finite numbers from 0 on, not all 0")
    ends = np.round(np.cumsum(p) / p.sum() * 2.0**32)
    # a last token of probability 0 has no word; rounding may not give it one
    ends[np.flatnonzero(p)[-1] :] = 2.0**32
    return np.maximum(ends - 1, 0).astype(np.uint32)
