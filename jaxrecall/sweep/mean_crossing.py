"""Estimates the level at which the mean of any measure crosses theta.

The measure may be a loss, an error or a time. Nothing is known about the shape of its
curve, so the estimate assumes none: the mean over seeds at each level is joined by
straight lines, and the crossing is where the line through two neighbouring levels has
the value theta. Levels are given as x, the ln of the axis. If all means are positive,
straight lines in the ln of the measure are a second possible shape; its crossing enters
the interval.

Seeds are the independent units. D_s is the change of a mean if seed s is left out. The
squared standard error is the jackknife estimate (S - 1) / S sum_s D_s^2 over S seeds.
The interval contains each level at which the line differs from theta by at most t
standard errors (Fieller), where t is the 0.975 quantile of Student's distribution with
S - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from .crossing import (
    MIN_SEEDS,
    TAIL,
    AnyCurve,
    Crossing,
    Curve,
    Floats,
    by_level,
    edge_of,
    ends,
    upward,
)


class MeanCurve(AnyCurve):
    """The mean of a measure over seeds as a function of ln of the level.

    Args:
        x: ln of the levels, an array (levels,) in ascending order.
        values: a value of each run that rises along x, an array (seeds, levels). An
            entry is nan if there is no such run.
        falls: whether the measure itself falls, so that `values` are 1 - measure.

    `scale` is the difference between the largest and the smallest mean.
    """

    def __init__(self, x: Floats, values: Floats, falls: bool = False):
        self.x = np.asarray(x, float)
        self.values = np.asarray(values, float)
        self.has = ~np.isnan(self.values)
        self._falls = falls
        self.mean = np.nansum(self.values, axis=0) / self.has.sum(axis=0)
        self.logits = self.mean
        self.scale = float(np.ptp(self.mean)) or 1.0

    @cached_property
    def without(self) -> Floats:
        """The change of each mean if a seed is left out: an array (seeds, levels).

        A change is 0 where the seed has no run, or is the only one.
        """
        rest = np.maximum(self.has.sum(axis=0) - 1, 1)
        change = (self.mean - self.values) / rest
        alone = self.has.sum(axis=0) == 1
        return np.where(self.has & ~alone, change, 0.0)

    def smooth(self, x: Floats) -> Floats:
        return np.interp(x, self.x, self.mean)

    def on_scale(self, theta: float) -> float:
        return theta

    def crossing(self, theta: float) -> Crossing:
        x, z = self.x, self.mean - theta
        j = upward(x, z, self.has.sum(axis=0) * z)
        if isinstance(j, Crossing):
            return j
        slope = (z[j + 1] - z[j]) / (x[j + 1] - x[j])
        log_x = float(x[j] - z[j] / slope)
        change = self._change(np.array([log_x]))[:, 0]
        crossing = Crossing(
            log_x,
            n_seeds=int(self.has[:, j : j + 2].any(axis=1).sum()),
            slope=float(slope / self.scale),
            without=-change / slope,
            shapes=self._shapes(theta, j, log_x),
        )
        return self._with_interval(crossing, theta)

    def _shapes(self, theta: float, j: int, log_x: float) -> Floats:
        """Returns the crossings of the straight line and of the line in ln."""
        low, high, at = *self.mean[j : j + 2], theta
        if self._falls:
            low, high, at = 1 - low, 1 - high, 1 - at
        if min(low, high, at) <= 0:
            return np.array([log_x])
        part = math.log(at / low) / math.log(high / low)
        return np.array([log_x, self.x[j] + part * (self.x[j + 1] - self.x[j])])

    def _change(self, x: Floats) -> Floats:
        """Returns the change of the line if a seed is left out: (seeds, x)."""
        return np.array([np.interp(x, self.x, one) for one in self.without])

    def _with_interval(self, crossing: Crossing, theta: float) -> Crossing:
        """Returns the crossing with its 95 % interval.

        If no level bounds the interval on a side, that side is unbounded.
        """
        seeds, log_x = crossing.n_seeds, crossing.log_x
        if seeds < MIN_SEEDS:
            return crossing
        x, at = self._around(log_x)
        one = np.sqrt((seeds - 1) / seeds * (self._change(x) ** 2).sum(axis=0))
        error = stdtrit(seeds - 1, TAIL) * one
        lo, hi = ends(x, self.smooth(x) - theta, error, at)
        return crossing.with_interval(
            log_x - lo, hi - log_x, (lo == -np.inf, hi == np.inf)
        )

    def off_line(
        self, x: Floats, values: Floats, theta: float, crossing: Crossing
    ) -> Floats:
        rise = (crossing.slope or 0.0) * self.scale
        return values - theta - rise * (x - crossing.log_x)


def of_measure(
    log_x: Floats, seed: Floats, values: Floats, theta: float, falls: bool = False
) -> AnyCurve:
    """Returns the curve of some runs. Each seed may have runs at any number of levels.

    If theta and all values are fractions, the curve is a local logistic regression.

    Args:
        log_x: ln of the level of each run.
        seed: the seed of each run.
        values: a value of each run that rises along the axis.
        theta: the value that the curve must cross.
        falls: whether the measure itself falls, so that `values` are 1 - measure.
    """
    x, table = by_level(log_x, seed, values)
    if 0 < theta < 1 and all(0 <= value <= 1 for value in values):
        return Curve(x, table, edge_of(theta))
    return MeanCurve(x, table, falls)
