"""Laws from outside the package, as a user would write them in a module of their
own.
"""

from dataclasses import dataclass

from jaxrecall.model.activations import Activation
from jaxrecall.model.laws import EmbeddingLaw, TokenLaw
from jaxrecall.model.values import parameter


@dataclass(frozen=True)
class Signs(EmbeddingLaw):
    """Entries +-1/sqrt(d), of which a part `flipped` towards those of a common row."""

    n_shared = 1
    common: float = parameter(0.0, low=0.0, high=1.0)

    def rows(self, draws, xp):
        mixed = (1 - self.common) * draws.normals + self.common * draws.shared
        return xp.where(mixed < 0, -1.0, 1.0).astype(draws.normals.dtype) / xp.sqrt(
            xp.asarray(draws.d, draws.normals.dtype)
        )


@dataclass(frozen=True)
class Tables(EmbeddingLaw):
    """Rows that tell which table and which row they are of."""

    def rows(self, draws, xp):
        number = xp.asarray(draws.row, draws.normals.dtype) + (
            1 if draws.table == "Z_in" else 2
        )
        return xp.broadcast_to(number, draws.normals.shape)


@dataclass(frozen=True)
class Softplus(Activation):
    """log(1 + exp(beta u)) / beta."""

    beta: float = parameter(1.0, low=0.0, open_low=True)

    def value_and_slope(self, u, xp, erf):
        v = self.beta * u
        return (xp.log1p(xp.exp(-abs(v))) + xp.maximum(v, 0)) / self.beta, 1 / (
            1 + xp.exp(-v)
        )


@dataclass(frozen=True)
class Zipf(TokenLaw):
    """p_v ~ (v + 1)^-s."""

    s: float = parameter(1.0, low=0.0)

    def probabilities(self, V, xp):
        return (xp.arange(V) + 1.0) ** -self.s


@dataclass(frozen=True)
class Shuffled(Zipf):
    """The same of other tokens, so that the most frequent are not the first."""

    def probabilities(self, V, xp):
        return super().probabilities(V, xp)[xp.arange(V) * 11 % V]
