"""The activations of the MLP. Each returns its value and its slope, in NumPy or JAX."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

from .laws.law import LAWS, Law, register
from .values import Numbers, parameter

Erf = Callable[[Numbers], Numbers]
ValueAndSlope = tuple[Numbers, Numbers]


class Activation(Law):
    """A nonlinearity of the MLP. The same code serves NumPy and JAX through `xp`.

    In a compiled program the parameters are arrays.
    """

    field: ClassVar[str] = "activation"

    @abstractmethod
    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        """Returns act(u) and act'(u), elementwise.

        `xp` is numpy or jax.numpy, and `erf` is the error function of that library.
        """


@register
@dataclass(frozen=True)
class NoActivation(Activation):
    """The activation of the attention-only model, which has no MLP."""

    name = "none"

    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        raise ValueError(
            f"activation: got 'none'; allowed with an MLP: {', '.join(activations())}"
        )


@register
@dataclass(frozen=True)
class Relu(Activation):
    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        return xp.maximum(u, 0), (u > 0).astype(u.dtype)


@register
@dataclass(frozen=True)
class Gelu(Activation):
    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        below_u = (1 + erf(u * 2**-0.5)) / 2  # the normal distribution function
        return u * below_u, below_u + u * xp.exp(-u * u / 2) * (2 * xp.pi) ** -0.5


@register
@dataclass(frozen=True)
class Tanh(Activation):
    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        t = xp.tanh(u)
        return t, 1 - t * t


@register
@dataclass(frozen=True)
class Quadratic(Activation):
    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        return (u * u - 1) * 2**-0.5, u * 2**0.5


@register
@dataclass(frozen=True)
class Cubic(Activation):
    """(u^3 - 3u) / sqrt 6: linear at small inputs.

    For u ~ N(0, 1) it is uncorrelated with u.
    """

    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        return (u * u - 3) * u * 6**-0.5, (u * u - 1) * 1.5**0.5


@register
@dataclass(frozen=True)
class Mixed(Activation):
    """sqrt(1 - linear^2) (u^2 - 1) / sqrt 2 + linear u, with a mean square of 1 for u ~
    N(0, 1).
    """

    linear: float = parameter(0.3, "weight of the linear term", low=-1.0, high=1.0)

    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        linear = xp.asarray(self.linear, u.dtype)
        rest = xp.sqrt((1 - linear * linear) / 2)
        return rest * (u * u - 1) + linear * u, 2 * rest * u + linear


@register
@dataclass(frozen=True)
class Identity(Activation):
    def value_and_slope(self, u: Numbers, xp: ModuleType, erf: Erf) -> ValueAndSlope:
        return u, xp.ones_like(u)


def activations() -> tuple[str, ...]:
    """Returns the short names of the activations of an MLP."""
    return tuple(name for name in LAWS["activation"] if name != "none")
