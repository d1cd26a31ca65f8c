"""The MLP's nonlinearities, for NumPy and JAX alike. No JAX here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def value_and_slope(activation: str, u: Any, xp: Any, erf: Callable[[Any], Any]) -> tuple[Any, Any]:
    """act(u) and act'(u), elementwise, for NumPy (`xp=numpy, erf=scipy.special.erf`) or JAX arrays."""
    match activation:
        case "relu":
            return xp.maximum(u, 0), (u > 0).astype(u.dtype)
        case "gelu":
            below_u = (1 + erf(u * 2**-0.5)) / 2  # the normal distribution function
            return u * below_u, below_u + u * xp.exp(-u * u / 2) * (2 * xp.pi) ** -0.5
        case "tanh":
            t = xp.tanh(u)
            return t, 1 - t * t
        case "quadratic":
            return (u * u - 1) * 2**-0.5, u * 2**0.5
        case "identity":
            return u, xp.ones_like(u)
    raise ValueError(f"activation: got {activation!r}; allowed: relu, gelu, tanh, quadratic, identity")
