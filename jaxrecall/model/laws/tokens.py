"""Laws of the tokens: which tokens of the vocabulary a sample holds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from .law import Law, register


class TokenLaw(Law):
    """How tokens are drawn, informative ones and noise alike."""

    field: ClassVar[str] = "tokens"

    @abstractmethod
    def probabilities(self, V: int, xp: Any) -> Any:
        """(V,) probability of each token."""


@register
@dataclass(frozen=True)
class Uniform(TokenLaw):
    """Every token is equally likely."""

    name = "uniform"

    def probabilities(self, V: int, xp: Any) -> Any:
        return xp.full(V, 1 / V)
