"""The MLP's activations, for NumPy and JAX alike: the value act(u) and the slope act'(u) of each, elementwise.

An entry of ACTIVATIONS is a function of u, of the array module (numpy or jax.numpy) and of erf for its arrays. To add an
activation, add an entry; it may then be used as the field `activation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ValueAndSlope = Callable[[Any, Any, Callable[[Any], Any]], tuple[Any, Any]]


def relu(u: Any, xp: Any, erf: Any) -> tuple[Any, Any]:
    return xp.maximum(u, 0), (u > 0).astype(u.dtype)


def gelu(u: Any, xp: Any, erf: Any) -> tuple[Any, Any]:
    below_u = (1 + erf(u * 2**-0.5)) / 2  # the normal distribution function
    return u * below_u, below_u + u * xp.exp(-u * u / 2) * (2 * xp.pi) ** -0.5


def tanh(u: Any, xp: Any, erf: Any) -> tuple[Any, Any]:
    t = xp.tanh(u)
    return t, 1 - t * t


def quadratic(u: Any, xp: Any, erf: Any) -> tuple[Any, Any]:
    return (u * u - 1) * 2**-0.5, u * 2**0.5


def identity(u: Any, xp: Any, erf: Any) -> tuple[Any, Any]:
    return u, xp.ones_like(u)


ACTIVATIONS: dict[str, ValueAndSlope] = {"relu": relu, "gelu": gelu, "tanh": tanh, "quadratic": quadratic, "identity": identity}


def value_and_slope(activation: str, u: Any, xp: Any, erf: Callable[[Any], Any]) -> tuple[Any, Any]:
    """act(u) and act'(u), elementwise, for NumPy (`xp=numpy, erf=scipy.special.erf`) or JAX arrays; raises ValueError."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: got {activation!r}; allowed: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation](u, xp, erf)
