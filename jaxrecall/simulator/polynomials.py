"""Sums over all pairs of a pool where the activation is a polynomial: matrix products, instead of an activation for each pair and unit.

Under uniform attention the hidden units of a pair (x, k) are own_k u_x + other_k n_k. A polynomial of them is then a polynomial of u_x,
whose coefficients are tables over k.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

Coefficients = Sequence[Any]
"""c of sum_n c[n] u^n; a power that is absent has the number 0."""


class Pairs(NamedTuple):
    """All pairs of a token and a noise sequence, under uniform attention."""

    own: Array  # (K, 1) attention on the token
    other: Array  # (K, 1) attention on the noise sequence
    weights: Array  # (V, K) part of the samples
    u: Array  # (V, m) hidden units of the tokens' values
    n: Array  # (K, m) hidden units of the noise sequences' mean values

    def tables(self, c: Coefficients) -> list[Array]:
        """(K, m) each, the last (K, 1): the coefficients of a polynomial of own u + other n as one of u."""
        y, degree = self.other * self.n, len(c) - 1
        found = [c[degree] * self.own**degree]
        for a in reversed(range(degree)):
            terms = [comb(n, a) * c[n] * y ** (n - a) for n in range(a, degree + 1) if not _absent(c[n])]
            found.insert(0, self.own**a * sum(terms, start=jnp.zeros_like(y)))
        return found

    def means(self, c: Coefficients) -> Array:
        """(V, m): for each token, the sum over noise sequences of weight and polynomial."""
        return sum(self.u**a * (self.weights @ table) for a, table in enumerate(self.tables(c)))  # type: ignore[return-value]

    def over_tokens(self, c: Coefficients, wanted: Array) -> Array:
        """(K, m): for each noise sequence, the sum over tokens of weight, `wanted` (V, m) and polynomial."""
        tables = enumerate(self.tables(c))
        return sum(table * (self.weights.T @ (wanted * self.u**a)) for a, table in tables)  # type: ignore[return-value]

    def over_units(self, c: Coefficients, wanted: Array) -> Array:
        """(V, K): for each pair, weight times the sum over hidden units of `wanted` (V or 1, m) and polynomial."""
        *tables, last = self.tables(c)
        total = jnp.sum(wanted * self.u ** len(tables), axis=1)[:, None] * last.T
        for a, table in enumerate(tables):
            total = total + (wanted * self.u**a if a else wanted) @ table.T
        return self.weights * total


def square(c: Coefficients) -> list[Any]:
    """The coefficients of the polynomial squared."""
    found: list[Any] = [0] * (2 * len(c) - 1)
    for i, a in enumerate(c):
        for j, b in enumerate(c):
            if not (_absent(a) or _absent(b)):
                found[i + j] = found[i + j] + a * b
    return found


def slope_of(c: Coefficients) -> list[Any]:
    """The coefficients of the derivative."""
    return [n * each for n, each in enumerate(c)][1:]


def _absent(coefficient: Any) -> bool:
    return isinstance(coefficient, int | float) and coefficient == 0
