"""The law of the counts that a pool of noise sequences leaves of its samples: multinomial, or its Gaussian limit.

n draws that fall evenly on cells are drawn one by one while they are few, or few for each cell. Beyond, their counts are had from
standard normals g, by the expansion of Cornish and Fisher: mean, variance and skewness of a Poisson count, the sum held to n,

    count = mean + x - (mean of x over the cells),     x = sqrt(mean) g + (g^2 - 1) / 6,     mean = n / cells
"""

from __future__ import annotations

from typing import Any

MAX_DRAWS = 2**20
"""Draws that are always made one by one."""

MIN_MEAN = 8
"""Draws a cell below which they are made one by one however many they are. At a mean of 8 a cell stays empty with probability
2.4e-4 in the limit, against 3.4e-4."""

MAX_SAMPLES, MAX_LENGTH = 10**15, 10**9
"""Largest N and L with a pool, whose cost they do not raise; in float32 they scale other numbers alone."""


def in_the_limit(draws: int, cells: int) -> bool:
    """Whether the counts of so many draws on so many cells are drawn from the Gaussian limit."""
    return draws > MAX_DRAWS and draws >= MIN_MEAN * cells


def fluctuation(g: Any, root_mean: Any) -> Any:
    """x / sqrt(mean) of counts, from standard normals g and sqrt(mean)."""
    return g + (g * g - 1) / (6 * root_mean)
