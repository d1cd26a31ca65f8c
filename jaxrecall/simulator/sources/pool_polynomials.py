"""Computes sums of polynomial activations over all pairs of a pool by matrix
products.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ...model.values import Numbers

Coefficients = Sequence[Numbers]
"""The coefficients c of the polynomial sum_n c[n] u^n. An absent power has the
coefficient 0.
"""


class Polynomials(NamedTuple):
    """All pairs of a token and a noise sequence, under uniform attention.

    The value of a hidden unit for a pair is own u + other n.
    """

    own: Array  # (K, 1) attention on the token
    other: Array  # (K, 1) attention on the noise sequence
    weights: Array  # (V, K) fraction of the samples
    u: Array  # (V, m) hidden units of the tokens' values
    n: Array  # (K, m) hidden units of the noise sequences' mean values

    def tables(self, c: Coefficients) -> list[Array]:
        """The coefficients of the polynomial c(own u + other n) in powers of u.

        All coefficients are (K, m), except for the last, which is (K, 1).
        """
        y, degree = self.other * self.n, len(c) - 1
        tables = []
        for a in range(degree):
            total = jnp.zeros_like(y)
            for n in range(a, degree + 1):
                if not _absent(c[n]):
                    total = total + comb(n, a) * c[n] * y ** (n - a)
            tables.append(self.own**a * total)
        return [*tables, c[degree] * self.own**degree]

    def means(self, c: Coefficients) -> Array:
        """For each token, the sum of weight times polynomial c over noise sequences, as
        an array (V, m).
        """
        total = jnp.zeros_like(self.u)
        for a, table in enumerate(self.tables(c)):
            total = total + self.u**a * (self.weights @ table)
        return total

    def over_tokens(self, c: Coefficients, wanted: Array) -> Array:
        """For each noise sequence, a sum over tokens, as an array (K, m).

        The terms are weight times polynomial c times `wanted` (V, m).
        """
        total = jnp.zeros_like(self.n)
        for a, table in enumerate(self.tables(c)):
            total = total + table * (self.weights.T @ (wanted * self.u**a))
        return total

    def over_units(self, c: Coefficients, wanted: Array) -> Array:
        """For each pair, the weight times a sum over hidden units, as an array (V, K).

        The terms are `wanted` times polynomial c; `wanted` is (V, m) or (1, m).
        """
        *tables, last = self.tables(c)
        total = jnp.sum(wanted * self.u ** len(tables), axis=1)[:, None] * last.T
        for a, table in enumerate(tables):
            total = total + (wanted * self.u**a if a else wanted) @ table.T
        return self.weights * total


def square(c: Coefficients) -> list[Numbers]:
    """The coefficients of the square of the polynomial."""
    products: list[Numbers] = [0] * (2 * len(c) - 1)
    for i, a in enumerate(c):
        for j, b in enumerate(c):
            if not (_absent(a) or _absent(b)):
                products[i + j] = products[i + j] + a * b
    return products


def differentiate(c: Coefficients) -> list[Numbers]:
    """The coefficients of the derivative of the polynomial."""
    return [n * each for n, each in enumerate(c)][1:]


def _absent(coefficient: Numbers) -> bool:
    return isinstance(coefficient, int | float) and coefficient == 0
