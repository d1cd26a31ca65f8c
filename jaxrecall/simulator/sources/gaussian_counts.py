"""Computes the counts of many draws into cells from standard normals, and draws from
such counts.

Consider n draws into equally likely cells. If n or the mean count per cell is small,
the draws are made one by one. Otherwise the counts are computed from standard normals g
by the Cornish-Fisher expansion, with the mean, variance and skewness of a Poisson
count. The counts are then shifted so that their sum is n:

    count = mean + x - (mean of x over the cells),     x = sqrt(mean) g + (g^2 - 1) / 6,
        mean = n / cells

`Point.in_the_limit` chooses between the two methods. `shares_of_draws` is used for
cells that are not equally likely.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from ...model.point import MIN_MEAN
from ..arrays import f32, i32


def fluctuation(g: Array, root_mean: Array) -> Array:
    """The fluctuation x / sqrt(mean) of counts, from standard normals g and
    sqrt(mean).
    """
    return g + (g * g - 1) / (6 * root_mean)


def shares_of_draws(g: Array, p: Array, n: Array, axes: tuple[int, ...]) -> Array:
    """For cells of probabilities p, the fractions of n draws that fall into each, from
    normals g.

    Each slice of g along `axes` is one table of counts. If the mean n p of a count is
    at least MIN_MEAN, the count is computed in the Gaussian limit. Otherwise it is a
    Poisson quantile. The counts from the limit are then scaled so that all counts sum
    to n. The other counts are a small part of the total, and they stay independent.
    """
    mean = n * p
    few = mean < MIN_MEAN

    small = lax.cond(
        jnp.any(few & (p > 0)),
        lambda: jnp.where(few, poisson_quantile(g, mean) / n, f32(0)),
        lambda: jnp.zeros_like(g),
    )
    of_limit = p + jnp.sqrt(p / n) * fluctuation(g, jnp.sqrt(mean))
    large = jnp.where(few, f32(0), jnp.maximum(of_limit, f32(0)))

    def total(part: Array) -> Array:
        of_rows = jnp.sum(part, axes[-1], keepdims=True)
        return jnp.sum(of_rows, axes[0], keepdims=True)

    # the sum of many almost equal numbers is less exact than that of their deviations
    excess = total(small + large - p)
    return small + large * (1 - excess / total(large))


MOST = 32
"""A bound on counts with a mean up to MIN_MEAN. A count reaches this bound with a
probability of only 2e-10, which is below the resolution of the normals.
"""


def poisson_quantile(g: Array, mean: Array) -> Array:
    """The Poisson quantile at the level Phi(g), where Phi is the standard normal
    distribution function.

    The argument `mean` is limited to MIN_MEAN. With a probability of at most p, the
    result differs from the count of n draws in a cell of probability p.
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


def first_above(cumulated: Array, u: Array) -> Array:
    """The first indices at which the cumulative weights exceed the fractions u (n,) of
    their sum, as an int32 array (n,).

    `cumulated` has the shape (n or 1, places). The weight at each returned index is
    positive.
    """
    part = jnp.minimum(u, f32(1 - 2**-23))[:, None] * cumulated[:, -1:]
    return jnp.sum((cumulated <= part).astype(i32), axis=1, dtype=i32)
