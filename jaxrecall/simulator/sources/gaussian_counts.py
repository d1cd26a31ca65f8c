"""Counts of many draws on cells, from standard normals, and draws by such counts.

n draws that fall evenly on cells are made one by one while they are few, or few for
each cell. Beyond that, their counts are had from standard normals g, by the expansion
of Cornish and Fisher: mean, variance and skewness of a Poisson count, the sum held to
n,

    count = mean + x - (mean of x over the cells),     x = sqrt(mean) g + (g^2 - 1) / 6,
        mean = n / cells

`Point.in_the_limit` decides where. `shares_of_draws` has the counts of cells that are
not equally likely.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from ...model.point import MIN_MEAN
from ..arrays import f32, i32


def fluctuation(g: Array, root_mean: Array) -> Array:
    """x / sqrt(mean) of counts, from standard normals g and sqrt(mean)."""
    return g + (g * g - 1) / (6 * root_mean)


def shares_of_draws(g: Array, p: Array, n: Array, axes: tuple[int, ...]) -> Array:
    """The parts of n draws that fall on each cell, of probabilities p, from normals g.

    Each row of g along `axes` is one table of counts. A count of mean n p from MIN_MEAN
    on is that of the limit, and the smaller ones are quantiles of their exact law. The
    larger ones are scaled so that all add up to n. So the smaller ones, which are a
    small part of all, differ independently.
    """
    mean = n * p
    few = mean < MIN_MEAN

    def quantiles() -> Array:
        return jnp.where(few, poisson_quantile(g, mean) / n, f32(0))

    small = lax.cond(jnp.any(few & (p > 0)), quantiles, lambda: jnp.zeros_like(g))
    of_limit = p + jnp.sqrt(p / n) * fluctuation(g, jnp.sqrt(mean))
    large = jnp.where(few, f32(0), jnp.maximum(of_limit, f32(0)))

    def total(part: Array) -> Array:
        of_rows = jnp.sum(part, axes[-1], keepdims=True)
        return jnp.sum(of_rows, axes[0], keepdims=True)

    return small + large * ((1 - total(small)) / total(large))


MOST = 32
"""A count of mean up to MIN_MEAN is below it, but for a chance of 2e-10, less than the
normals resolve.
"""


def poisson_quantile(g: Array, mean: Array) -> Array:
    """The Poisson count whose place in its law is that of a standard normal g.

    Its mean is up to MIN_MEAN. The count of n draws on a cell of probability p differs
    from it with a chance of at most p.
    """
    mean = jnp.minimum(mean, f32(MIN_MEAN))
    chances = [jnp.exp(-mean)]
    for k in range(1, MOST):
        chances.append(chances[-1] * mean / k)
    # summed from the smallest
    at_least = jnp.cumsum(jnp.stack(chances[::-1]), axis=0)[::-1]
    above = lax.erfc(g * f32(0.5**0.5)) / 2
    count = jnp.zeros_like(g)
    for k in range(1, MOST):
        count = count + (above < at_least[k]).astype(f32)
    return count


def inverse(cumulated: Array, u: Array) -> Array:
    """(n,) int32: where cumulated weights pass the parts u (n,) of their sum.

    Weights are (n or 1, places). The place that is found has positive weight.
    """
    part = jnp.minimum(u, f32(1 - 2**-23))[:, None] * cumulated[:, -1:]
    return jnp.sum((cumulated <= part).astype(i32), axis=1, dtype=i32)
