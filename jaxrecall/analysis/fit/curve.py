"""One cell's accuracy against N, for many resamplings of the seeds at once, and where it crosses theta.

Row 0 of everything is the table as it is; rows 1, 2, ... are bootstrap resamplings of
whole seeds, drawn once for all cells of a family, so that what cells share through
their seeds stays shared. Accuracy climbs slowly with ln N and levels off below 1, so no
formula for the whole curve is assumed: only the levels around theta say where it
crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression
from scipy.special import logit

from .cells import Cell

Array = np.ndarray
ONE_STEP = 0.97
"""A curve that does this share of its whole rise between two levels says nothing of where in between."""


@dataclass(frozen=True)
class Curve:
    """`x` = ln N (levels,); `k` of `n` right (resamplings, levels),
    summed over seeds; `p` = accuracy made monotone in N (PAVA).
    """

    x: Array
    k: Array
    n: Array
    p: Array


def resamplings(n_seeds: int, count: int) -> Array:
    """How often each seed counts, (1 + count, n_seeds): once
    each in row 0, drawn with replacement below; always the same.
    """
    drawn = np.random.default_rng(0).multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=count)
    return np.vstack([np.ones((1, n_seeds)), drawn])


def curve(cell: Cell, times: Array) -> Curve:
    """The cell's curve under each resampling."""
    k, n = times @ cell.k.T, times @ cell.n.T
    empty = n == 0  # none of the seeds that this level has was drawn
    k, n = np.where(empty, k[0], k), np.where(empty, n[0], n)
    p = k / n
    for row in np.flatnonzero((np.diff(p, axis=1) < 0).any(axis=1)):
        p[row] = isotonic_regression(p[row], weights=n[row]).x
    return Curve(np.log(cell.N), k, n, p)


def bracket(c: Curve, theta: float) -> tuple[Array, Array]:
    """Index of the first level at or above theta, and side: 0
    crossed, 1 never reached, -1 above it from the first level on.
    """
    above = c.p >= theta
    side = np.where(~above.any(axis=1), 1, np.where(above[:, 0], -1, 0))
    return np.where(side == 0, above.argmax(axis=1), 0), side


def above_theta(c: Curve, theta: float, link: Callable[[Array], Array] = logit) -> Array:
    """link(p) - link(theta), kept finite: no accuracy counts
    as nearer to 0 or 1 than half a right answer of one more.
    """
    end = 0.5 / (c.n + 1)
    return link(c.p.clip(np.minimum(end, theta / 2), np.maximum(1 - end, (1 + theta) / 2))) - link(np.asarray(theta))


def crossing(c: Curve, theta: float, link: Callable[[Array], Array] = logit, smooth: bool = True) -> Array:
    """ln N where accuracy is theta, between the levels that bracket it; nan where none do: (resamplings,).

    smooth: a monotone cubic (PCHIP) in ln N through link(p) of all levels; otherwise a
    straight line between the two.
    """
    found = np.full(len(c.p), np.nan)
    after, side = bracket(c, theta)
    (rows,) = np.nonzero(side == 0)
    if not rows.size:
        return found
    j = after[rows]
    before, width = c.x[j - 1], c.x[j] - c.x[j - 1]
    height = above_theta(c, theta, link)[rows]
    if not smooth:
        low, high = (np.take_along_axis(height, i[:, None], axis=1)[:, 0] for i in (j - 1, j))
        found[rows] = before - width * low / (high - low)
        return found
    cubic = PchipInterpolator(c.x, height, axis=1).c[:, j - 1, np.arange(len(rows))]
    a, b = np.zeros(len(rows)), width
    for _ in range(50):  # bisection, all resamplings at once
        middle = (a + b) / 2
        above = np.polyval(cubic, middle) >= 0
        a, b = np.where(above, a, middle), np.where(above, middle, b)
    found[rows] = before + (a + b) / 2
    return found


def shapes(c: Curve, theta: float) -> Array:
    """ln N* of the table by each shape that the curve may have
    between two levels, (shapes,); nan if it is not crossed.

    The shapes are a monotone cubic in three links (logit, which is the estimate,
    cloglog, loglog) and a straight line in the accuracy.
    """
    table = Curve(c.x, c.k[:1], c.n[:1], c.p[:1])
    found = [crossing(table, theta, link) for link in (logit, cloglog, loglog)] + [crossing(table, theta, np.asarray, smooth=False)]
    return np.concatenate(found)


def step(c: Curve, theta: float) -> float:
    """The distance in ln N of the two levels that bracket
    theta if the whole rise falls between them, 0 otherwise.
    """
    after = bracket(c, theta)[0][0]
    return float(c.x[after] - c.x[after - 1]) if one_step(c, theta) else 0.0


def shape_error(c: Curve, theta: float) -> float:
    """How far ln N* may be off because the curve between two
    levels is unknown (standard deviation); 0 if it is not crossed.

    ln N* is taken as uniform over the range of `shapes`: standard deviation
    range / sqrt(12). The estimate often lies at an end of the range, so its distance from the
    middle is added in squares. Where the whole rise falls between two levels, the
    crossing may be anywhere there: their distance / sqrt(12) at least.
    """
    if bracket(c, theta)[1][0]:
        return 0.0
    found = shapes(c, theta)
    off_centre = found[0] - (found.min() + found.max()) / 2
    return float(max(np.hypot(np.ptp(found) / 12**0.5, off_centre), step(c, theta) / 12**0.5))


def one_step(c: Curve, theta: float) -> bool:
    """Whether the table's curve rises, all but entirely, between the two levels that bracket theta."""
    after, side = bracket(c, theta)
    p, j = c.p[0], after[0]
    rise = p[-1] - p[0] if len(p) > 2 else 1.0
    return bool(side[0] == 0 and p[j] - p[j - 1] > ONE_STEP * rise)


def cloglog(p: Array) -> Array:
    return np.log(-np.log1p(-p))


def loglog(p: Array) -> Array:
    return -np.log(-np.log(p))
