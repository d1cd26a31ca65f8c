"""Where accuracy crosses a threshold and the 95 % interval of that, from rows at scattered levels and seeds.

What is estimated is where the mean accuracy over seeds crosses. One seed's accuracy goes up and down with the level, so the first
time that it crosses comes too early, and a seed that levels off below never does; the mean has neither fault.

The fit of a whole table (`analysis/fit/curve.py`) has an estimator of its own, and each is kept for what the other cannot do. This one
decides which runs come next, so another would send finished searches after new runs: the fit's does so in 586 of the 607 shipped
ones, and takes three times as long in every round. The fit's interpolates between levels however far apart, where this one has no
pair of levels within an octave to go by: so in 60 of the 62 crossings of the two shipped grids whose levels lie a factor of
4 or more apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import logit, stdtrit

REACH = np.log(2) + 1e-9
"""How far from the crossing a level may lie and still be informative, in ln of the level: an octave."""

HALF_OCTAVE = np.log(2) / 2
MIN_SLOPE = 0.1  # of logit accuracy in x: a flatter curve crosses anywhere
MIN_INTERVAL_SEEDS = 4  # for an interval at all
EDGE = 1e-4  # accuracies nearer to 0 or 1 have no logit to speak of
STEPS = 5


class Threshold(NamedTuple):
    """ln of the level x where mean accuracy crosses theta, -inf or inf where all of it lies above or below; 95 % interval; seeds used."""

    log_x: float
    lo: float = -np.inf
    hi: float = np.inf
    n_seeds: int = 0
    slope: float | None = None  # of logit accuracy in x

    @property
    def width(self) -> float:
        return self.hi - self.lo


def threshold(log_x: Any, seed: Any, accuracy: Any, theta: float) -> Threshold:
    """The crossing of theta (fraction), given ln of the level, seed and accuracy (fraction) of each run, any number of levels for a seed.

    Every seed with a level on either side of the crossing, within an octave, counts with one of each: those nearest to where
    accuracy is a logit from theta, or to half an octave away if that is nearer. x_-, a_- and x_+, a_+ are the means over seeds
    of their x and accuracy:

        x* = x_- + (x_+ - x_-) (logit theta - logit a_-) / (logit a_+ - logit a_-)

    The interval is Student's t with S - 1 degrees of freedom on the delete-one-seed jackknife: the seed is the independent unit.
    """
    x, at = np.unique(np.asarray(log_x, float), return_inverse=True)
    seeds, of = np.unique(seed, return_inverse=True)
    table = np.full((len(seeds), len(x)), np.nan)
    table[of, at] = accuracy
    count = (~np.isnan(table)).sum(0)
    mean = isotonic_regression(np.nansum(table, 0) / count, weights=count).x
    if mean[-1] < theta or mean[0] >= theta:
        return Threshold(np.inf if mean[-1] < theta else -np.inf)
    above = int(np.argmax(mean >= theta))
    crossing, seen = float(np.interp(theta, mean[above - 1 : above + 1], x[above - 1 : above + 1])), []
    pairs, slope = np.empty((4, 0)), None
    for _ in range(STEPS):  # the crossing decides which levels count, and they decide where it is
        pairs = _pairs(x, table, min(max(crossing, x[0] + REACH * 1e-6), x[-1]), distance(slope))
        if pairs.shape[1] < 2:
            return Threshold(crossing)
        if any(np.array_equal(pairs, before) for before in seen):
            break
        seen.append(pairs)
        estimate, slope = line(pairs.mean(1), theta)
        if not slope > MIN_SLOPE:
            return Threshold(crossing, n_seeds=pairs.shape[1])
        crossing += float(np.clip(estimate - crossing, -REACH, REACH))
    S = pairs.shape[1]
    without, slopes = line((pairs.sum(1, keepdims=True) - pairs) / (S - 1), theta)
    if S < MIN_INTERVAL_SEEDS or not (slopes > MIN_SLOPE).all():
        return Threshold(crossing, n_seeds=S, slope=slope)
    error = stdtrit(S - 1, 0.975) * np.sqrt((S - 1) / S * ((without - without.mean()) ** 2).sum())
    return Threshold(crossing, crossing - error, crossing + error, S, slope)


def line(points: Any, theta: float) -> tuple[Any, Any]:
    """Where the line through (x_-, a_-) and (x_+, a_+) crosses, and its slope, in logit accuracy against x."""
    x_below, a_below, x_above, a_above = points
    low, high = (logit(np.clip(a, EDGE, 1 - EDGE)) for a in (a_below, a_above))
    slope = (high - low) / (x_above - x_below)
    with np.errstate(divide="ignore", invalid="ignore"):
        return x_below + (logit(theta) - low) / slope, slope


def distance(slope: float | None) -> float:
    """How far from the crossing, in x, a level is most informative: a logit of accuracy, half an octave at most."""
    return min(1 / slope, HALF_OCTAVE) if slope else HALF_OCTAVE


def _pairs(x: Any, table: Any, crossing: float, away: float) -> Any:
    """x_-, a_-, x_+, a_+ of each seed that has both, shape (4, seeds)."""
    near = ~np.isnan(table) & (np.abs(x - crossing) <= REACH)
    below, above = near & (x < crossing), near & (x >= crossing)
    both = np.flatnonzero(below.any(1) & above.any(1))
    left, right = (
        np.argmin(np.where(side[both], np.abs(x - wanted), np.inf), axis=1)
        for side, wanted in ((below, crossing - away), (above, crossing + away))
    )
    return np.stack([x[left], table[both, left], x[right], table[both, right]])
