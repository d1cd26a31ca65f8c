r"""Estimates the level at which accuracy crosses theta, with a confidence interval.

`Curve` is the curve of accuracies. `AnyCurve` assumes less, so it serves any measure,
such as a loss, an error or a time. `of_measure` chooses between them.

The curve of a cell is a local logistic regression of the mean accuracy over seeds
(Zychaluk and Foster, "Model-free estimation of the psychometric function", Attention,
Perception & Psychophysics 71, 2009; Loader, "Local Regression and Likelihood", 1999).
Levels are given as x, the ln of the axis. At each level x, the regression solves

    sum_i n_i K(u_i) (a_i - p_i) (1, u_i, u_i^2) = penalty
    logit p_i = b_0 + b_1 u_i + b_2 u_i^2,  u_i = (x_i - x) / h

over the levels x_i with n_i runs of mean accuracy a_i. The kernel is K(u) = (1 - u^2)^2
for |u| <= 1 and 0 otherwise. Consider the distance from x within which there are as
many runs as seeds. The width h is 1.5 times this distance, and at least an octave. A
small ridge penalty shrinks the curvature b_2. It also shrinks the slope b_1 where one
level is alone. The value of the curve at x is b_0. Between levels, the curve is a
monotone cubic (PCHIP) through these logits. No formula for the whole curve is assumed.
The curve may level off anywhere, and only runs near the crossing influence the
crossing.

This smooth curve blurs a kink or a jump. So a rough curve is computed, too: the smooth
one plus the mean residual of runs within a quarter of an octave. Where the two differ
by d, with a standard error e, the share max(0, 1 - (e t / d)^2) of d is added to the
smooth curve (positive-part shrinkage, James and Stein 1961), with t from `TRUST`.

Seeds are the independent units. D_s is the change of the curve if seed s is left out,
to first order (one Newton step). The squared standard error is the jackknife estimate
(S - 1) / S sum_s D_s^2. S is the effective number of seeds, (sum_s w_s)^2 / sum_s w_s^2
(Kish). w_s is the weight of seed s. Accuracies are compared with theta after the
transformation 2 arcsin sqrt p. The interval contains each level at which the curve
differs from theta by at most t standard errors (Fieller). Here t is the 0.975 quantile
of Student's distribution with S - 2 degrees of freedom. By construction, the interval
contains the crossing. The interval is computed directly, without iterations that change
the crossing. The crossing and the interval are continuous functions of the levels.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

Floats = Any  # numpy.ndarray of floats

OCTAVE = math.log(2)
NARROW = OCTAVE / 4
"""The width of the kernel for the residuals in the rough curve."""

TRUST = 0.85
"""The quantile of Student's distribution below which the difference between the rough
and the smooth curve counts as noise.
"""

BLUR = OCTAVE / 2
"""The least distance from which the curve is continued in order to find a kink. Closer
to a kink, the smooth curve is blurred.
"""

STRAIGHT = 1.2
"""The largest ratio of two slopes that do not count as a kink."""

JUMP = 0.7
"""The share of the range of a jump between two levels that is added to an end."""

RIDGE = np.array([0.0, 1e-3, 0.02])
"""The penalties of b_0, b_1 and b_2, as fractions of the total weight of the runs."""

EDGE = 1e-4
"""The least distance of a mean accuracy from 0 and from 1. A mean that is closer to 0
or 1 is moved to this distance.
"""

MIN_SEEDS = 6
"""The least number of seeds for an interval. With fewer seeds, the standard error is
unreliable.
"""

TAIL = 0.975
PER_OCTAVE = 16  # points per octave for comparing the curve with theta
ONE_STEP = 0.8
"""The share of the curve's whole rise above which the rise between two levels is a
step. The more the share exceeds this number, the less is known about where between the
levels the curve rises.
"""

NORMAL = 1.96


def jackknife(change: Floats, seeds: Floats) -> Floats:
    """Returns the jackknife estimate of a squared standard error, (...,).

    `change` (seeds, ...) contains the change of the estimate if a seed is left out; nan
    counts as no change. `seeds` is the number of seeds.
    """
    return (seeds - 1) / seeds * np.nansum(change**2, axis=0)


def cloglog(p: Floats) -> Floats:
    return np.log(-np.log1p(-p))


def loglog(p: Floats) -> Floats:
    return -np.log(-np.log(p))


class Crossing(NamedTuple):
    """The level at which mean accuracy crosses theta, in ln of the level.

    If the curve does not cross theta, log_x is -inf or inf, and the other fields are
    meaningless.
    """

    log_x: float
    lo: float = -np.inf
    hi: float = np.inf  # 95 % interval
    n_seeds: int = 0  # seeds with runs near the crossing
    slope: float | None = None  # slope of logit accuracy
    without: Floats = 0.0  # change of log_x if a seed is left out, (seeds,)
    # log_x for each shape that the curve may have between two levels
    shapes: Floats = ()
    # distance of the two levels if the whole rise is between them, or 0 if little is
    step: float = 0.0
    is_open: tuple[bool, bool] = (False, False)
    """Two flags: whether the interval is unbounded on the left, and on the right. The
    left side is unbounded if no level shows that the curve is below theta there. The
    right side is unbounded if no level shows that the curve is above theta there.
    """

    @property
    def width(self) -> float:
        return self.hi - self.lo

    @property
    def side(self) -> int:
        """The number 0 if the curve crosses theta, 1 if the curve is below theta, -1 if
        above.
        """
        if math.isfinite(self.log_x):
            return 0
        return 1 if self.log_x > 0 else -1

    @property
    def shape_error(self) -> float:
        """The standard deviation of log_x due to the unknown curve between two levels.

        The true crossing is assumed to be uniform over the range of `shapes`, which
        gives range / sqrt(12). The estimate log_x is often at an end of the range, so
        its distance from the middle is added in quadrature. If there is a step, the
        crossing may be anywhere between the two levels. Then the result is at least the
        distance of the levels / sqrt(12).
        """
        if not len(self.shapes):
            return 0.0
        off_centre = self.log_x - (np.min(self.shapes) + np.max(self.shapes)) / 2
        spread = np.hypot(np.ptp(self.shapes) / 12**0.5, off_centre)
        return float(max(spread, self.step / 12**0.5))

    def with_interval(
        self, below: float, above: float, is_open: tuple[bool, bool]
    ) -> Crossing:
        """Returns the crossing with an interval that extends this far on either side.
        The error of the shape is added to both distances.
        """
        shape = NORMAL * self.shape_error
        return self._replace(
            lo=self.log_x - float(np.hypot(below, shape)),
            hi=self.log_x + float(np.hypot(above, shape)),
            is_open=is_open,
        )


class AnyCurve:
    """The mean of any measure over seeds as a function of ln of the level.

    Nothing is known about the shape of the curve, so the estimate assumes none. The
    means at the levels are joined by straight lines, and the crossing is where the line
    through two neighbouring levels has the value theta. If all means are positive,
    straight lines in the ln of the measure are a second possible shape; its crossing
    enters the interval.

    Seeds are the independent units. D_s is the change of a mean if seed s is left out.
    The squared standard error is the jackknife estimate (S - 1) / S sum_s D_s^2 over S
    seeds. The interval contains each level at which the line differs from theta by at
    most t standard errors (Fieller), where t is the 0.975 quantile of Student's
    distribution with S - 1 degrees of freedom.

    Args:
        x: ln of the levels, an array (levels,) in ascending order.
        values: a value of each run that rises along x, an array (seeds, levels). An
            entry is nan if there is no such run.
        falls: whether the measure itself falls, so that `values` are 1 - measure.

    Attributes:
        has: whether a seed has a run at a level, an array (seeds, levels).
        count: the number of runs at each level, an array (levels,).
        mean: the measured mean at each level, an array (levels,).
        height: the curve at each level, an array (levels,).
        logits: the same on the scale on which slopes are compared.
        weight: the weight of each seed in the curve at each level, (seeds, levels).
        scale: the unit in which the sizes of means are compared.
    """

    def __init__(self, x: Floats, values: Floats, falls: bool = False):
        self.x = np.asarray(x, float)
        self.values = np.asarray(values, float)
        self.has = ~np.isnan(self.values)
        self.count = self.has.sum(axis=0)
        self.mean = np.nansum(self.values, axis=0) / self.count
        self.height = self.logits = self.mean
        self.weight: Floats = self.has
        self.scale = float(np.ptp(self.mean)) or 1.0
        self._falls = falls

    @cached_property
    def without(self) -> Floats:
        """The change of each of `logits` if a seed is left out: (seeds, levels).

        A change is 0 where the seed has no run, or is the only one.
        """
        change = (self.mean - self.values) / np.maximum(self.count - 1, 1)
        return np.where(self.has & (self.count > 1), change, 0.0)

    def smooth(self, x: Floats) -> Floats:
        """Returns the curve at values of x, on the scale of `logits`."""
        return np.interp(x, self.x, self.mean)

    def on_scale(self, theta: float) -> float:
        """Returns a mean on the scale of `logits`."""
        return theta

    def crossing(self, theta: float) -> Crossing:
        """Returns where the curve rises through theta, with its 95 % interval. If there
        are several such crossings, `upward` decides between them.
        """
        above = self.count * (self.height - theta)
        j = upward(self.x, self.logits - self.on_scale(theta), above)
        if isinstance(j, Crossing):
            return j
        log_x, slope = self._meet(theta, j)
        change, _ = self._between(np.array([log_x]))
        shapes, step = self._shapes(theta, j, log_x)
        crossing = Crossing(
            log_x,
            n_seeds=int((self.weight[:, j : j + 2] > 0).any(axis=1).sum()),
            slope=slope / self.scale,
            without=-change[:, 0] / slope,
            shapes=shapes,
            step=step,
        )
        if crossing.n_seeds < MIN_SEEDS:
            return crossing
        return self._with_interval(crossing, theta)

    def off_line(
        self, x: Floats, values: Floats, theta: float, crossing: Crossing
    ) -> Floats:
        """Returns how far means at values of x are off the straight line through a
        crossing, on the scale of `logits` and to first order.
        """
        rise = (crossing.slope or 0.0) * self.scale
        return values - theta - rise * (x - crossing.log_x)

    def reach(self, theta: float) -> float:
        """Returns how far beyond the last level the curve would cross theta, in ln of
        the level.

        The curve is extrapolated with the slope of its last two octaves. The result is
        inf if the curve does not rise there, and 0 if there is only one level.
        """
        if len(self.x) == 1:
            return 0.0
        before = max(self.x[0], self.x[-1] - 2 * OCTAVE)
        rise = self.logits[-1] - self.smooth(before)
        if rise <= 0:
            return np.inf
        missing = self.on_scale(theta) - self.logits[-1]
        return float(missing * (self.x[-1] - before) / rise)

    def _around(self, log_x: float) -> tuple[Floats, int]:
        """Returns values of x at which the curve is compared with theta, and the index
        of log_x among them.
        """
        fine = np.arange(self.x[0], self.x[-1], OCTAVE / PER_OCTAVE)
        x = np.unique(np.concatenate([fine, self.x, [log_x]]))
        return x, int(np.searchsorted(x, log_x))

    def _meet(self, theta: float, j: int) -> tuple[float, float]:
        """Returns the x after level j at which the curve is theta, and its slope."""
        x, z = self.x[j : j + 2], self.mean[j : j + 2] - theta
        slope = float((z[1] - z[0]) / (x[1] - x[0]))
        return float(x[0] - z[0] / slope), slope

    def _between(self, x: Floats) -> tuple[Floats, Floats]:
        """Returns the change of the curve at x if a seed is left out, and the indices
        of the levels below x.

        The change is an array (seeds, x), interpolated linearly between levels.
        """
        j = (np.searchsorted(self.x, x, side="right") - 1).clip(0, len(self.x) - 2)
        part = (x - self.x[j]) / (self.x[j + 1] - self.x[j])
        return self.without[:, j] * (1 - part) + self.without[:, j + 1] * part, j

    def _shapes(self, theta: float, j: int, log_x: float) -> tuple[Floats, float]:
        """Returns the crossings between levels j and j + 1, one for each shape that the
        curve may have, and the distance of the levels if they are a step, or else 0.

        The shapes are the straight line and the line in ln.
        """
        low, high, at = *self.mean[j : j + 2], theta
        if self._falls:
            low, high, at = 1 - low, 1 - high, 1 - at
        if min(low, high, at) <= 0:
            return np.array([log_x]), 0.0
        part = math.log(at / low) / math.log(high / low)
        in_ln = self.x[j] + part * (self.x[j + 1] - self.x[j])
        return np.array([log_x, in_ln]), 0.0

    def _with_interval(self, crossing: Crossing, theta: float) -> Crossing:
        """Returns the crossing with its 95 % interval.

        If no level bounds the interval on a side, that side is unbounded.
        """
        seeds, log_x = crossing.n_seeds, crossing.log_x
        x, at = self._around(log_x)
        change, _ = self._between(x)
        one = np.sqrt(jackknife(change, seeds))
        error = scipy.special.stdtrit(seeds - 1, TAIL) * one
        lo, hi = ends(x, self.smooth(x) - theta, error, at)
        return crossing.with_interval(
            log_x - lo, hi - log_x, (lo == -np.inf, hi == np.inf)
        )


class _Fit(NamedTuple):
    """A curve at all levels."""

    logits: Floats  # (levels,)
    without: Floats  # change of each logit if a seed is left out, (seeds, levels)
    weight: Floats  # of each seed in the curve at each level, (seeds, levels)

    @property
    def n_effective(self) -> Floats:
        """The effective number of seeds at each level, (levels,)."""
        return self.weight.sum(axis=0) ** 2 / (self.weight**2).sum(axis=0)


class Curve(AnyCurve):
    """The mean accuracy over seeds as a function of ln of the level.

    Args:
        x: ln of the levels, an array (levels,) in ascending order.
        accuracy: the accuracy of each run, an array (seeds, levels) of fractions that
            rise with x. An entry is nan if there is no such run.
        edge: the least distance of a mean accuracy from 0 and from 1. A mean that is
            closer to 0 or 1 is moved to this distance.
    """

    def __init__(self, x: Floats, accuracy: Floats, edge: float = EDGE):
        super().__init__(x, accuracy)
        self._edge = edge
        smooth = self._smooth()
        rough = self._rough(smooth)
        off, change = rough.logits - smooth.logits, rough.without - smooth.without
        seeds = rough.n_effective
        t = scipy.special.stdtrit((seeds - 2).clip(1), TRUST)
        noise = t**2 * (seeds - 1) / seeds * (change**2).sum(axis=0)
        share = (off**2 - noise).clip(0) / (off**2 + 1e-12)
        # 0 where the rough curve has at most MIN_SEEDS - 1 seeds
        share = share * (seeds - MIN_SEEDS + 1).clip(0, 1)
        self.logits = smooth.logits + share * off
        self.height = scipy.special.expit(self.logits)
        self.without = smooth.without + share * change
        self.weight = smooth.weight
        self._n_effective = smooth.n_effective
        self.scale = 1.0

    def _kernel(self, narrowest: float) -> tuple[Floats, Floats]:
        """Returns the distances u of levels, and the kernel: arrays (levels, levels).

        Args:
            narrowest: the least width of the kernel, in ln of the level.
        """
        apart = np.abs(self.x - self.x[:, None])
        order = np.argsort(apart, axis=1, kind="stable")
        enough = np.cumsum(self.count[order], axis=1) >= self.has.any(axis=1).sum()
        ordered = np.take_along_axis(apart, order, 1)
        reach = np.take_along_axis(ordered, enough.argmax(axis=1)[:, None], 1)
        u = (self.x - self.x[:, None]) / np.maximum(narrowest, 1.5 * reach)
        return u, (1 - u**2).clip(0) ** 2

    def _smooth(self) -> _Fit:
        """Returns the local logistic regression."""
        u, kernel = self._kernel(OCTAVE)
        powers = u[..., None] ** np.arange(3)
        b, p, information = self._solve(powers, kernel * self.count)
        moments = powers * kernel[..., None]
        measured = np.tensordot(np.nan_to_num(self.values), moments, (1, 1))
        expected = np.tensordot(self.has, moments * p[..., None], (1, 1))
        off = measured - expected
        curved = moments * (p * (1 - p))[..., None]
        curved = curved[..., None] * powers[:, :, None]
        own = np.tensordot(self.has, curved, (1, 1))
        rest = information * (1 + 1e-3 * np.eye(3)) - own
        without = -np.linalg.solve(rest, off[..., None])[..., 0, 0]
        return _Fit(b, without, self.has @ kernel.T)

    def _solve(self, powers: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns b_0, the expected accuracies and the information at all levels.

        Newton's method computes all levels together.
        """
        mean = self.mean.clip(self._edge, 1 - self._edge)
        total = weights.sum(axis=1)
        middle = weights @ mean / total
        penalty = RIDGE * (4 * total * middle * (1 - middle))[:, None]
        ridge = penalty[:, None] * np.eye(3)
        b = np.zeros((len(weights), 3))
        b[:, 0] = scipy.special.logit(middle)
        p = information = ridge
        for _ in range(30):
            p = scipy.special.expit((powers @ b[..., None])[..., 0])
            residuals = weights * (mean - p)
            score = (residuals[:, None] @ powers)[:, 0] - penalty * b
            curved = powers * (weights * p * (1 - p))[..., None]
            information = curved.transpose(0, 2, 1) @ powers + ridge
            step = np.linalg.solve(information, score[..., None])[..., 0]
            b += step / np.maximum(1, np.abs(step).max(axis=1, keepdims=True) / 2)
            if np.abs(step).max() < 1e-6:
                break
        return b[:, 0], p, information

    def _rough(self, smooth: _Fit) -> _Fit:
        """Returns the smooth curve plus the mean residual of nearby runs, in logit."""
        _, kernel = self._kernel(NARROW)
        p = scipy.special.expit(smooth.logits)
        off = self._residual(kernel, self.count, self.count * self.mean, p)
        rest = self.count - self.has
        right = self.count * self.mean - np.nan_to_num(self.values)
        p_rest = p + p * (1 - p) * smooth.without
        off_rest = self._residual(kernel, rest, right, p_rest)
        return _Fit(
            smooth.logits + off,
            smooth.without + off_rest - off,
            self.has @ kernel.T,
        )

    def _residual(
        self, kernel: Floats, count: Floats, right: Floats, p: Floats
    ) -> Floats:
        """Returns logit of the mean accuracy less logit of the expected one, (...,
        levels).

        Args:
            kernel: the weights of levels at each level.
            count: the number of runs at each level.
            right: the sum of their accuracies.
            p: the accuracy that is expected of them.
        """
        runs = (count @ kernel.T).clip(1e-3)
        mean = (right @ kernel.T / runs).clip(self._edge, 1 - self._edge)
        expected = ((count * p) @ kernel.T / runs).clip(self._edge, 1 - self._edge)
        return scipy.special.logit(mean) - scipy.special.logit(expected)

    @cached_property
    def _links(self) -> Any:
        """The curve as three functions of x: the interpolated logit, cloglog and
        loglog.
        """
        p = self.height.clip(self._edge / 2, 1 - self._edge / 2)
        values = np.stack([self.logits, cloglog(p), loglog(p)], axis=1)
        return scipy.interpolate.PchipInterpolator(self.x, values)

    def smooth(self, x: Floats) -> Floats:
        return self._links(x)[..., 0]

    def on_scale(self, theta: float) -> float:
        return scipy.special.logit(theta)

    def _meet(self, theta: float, j: int) -> tuple[float, float]:
        log_x = _root(self._links, j, 0, scipy.special.logit(theta))
        return log_x, max(float(self._links(log_x, 1)[0]), 1e-9)

    def _with_interval(self, crossing: Crossing, theta: float) -> Crossing:
        """Returns the crossing with its 95 % interval.

        If no level bounds the interval on a side, the end is computed from a straight
        line through the crossing. If the computed end is not beyond the levels, that
        side is unbounded.
        """
        log_x = crossing.log_x
        x, at = self._around(log_x)
        change, j = self._between(x)
        seeds = np.minimum(self._n_effective[j], self._n_effective[j + 1])
        p = scipy.special.expit(self.smooth(x))
        z = 2 * np.arcsin(np.sqrt(p)) - 2 * np.arcsin(np.sqrt(theta))
        one = np.sqrt(jackknife(change, seeds) * p * (1 - p))
        error = scipy.special.stdtrit((seeds - 2).clip(1), TAIL) * one
        line = error[at] / (crossing.slope * np.sqrt(theta * (1 - theta)))
        lo, hi = ends(x, z, error, at)
        if lo == -np.inf and log_x - line < x[0]:
            lo = log_x - line
        if hi == np.inf and log_x + line > x[-1]:
            hi = log_x + line
        sure = np.abs(z) > NORMAL * one
        return crossing.with_interval(
            log_x - lo + self._kinked(lo, -1),
            hi - log_x + self._kinked(hi, 1),
            (not sure[: at + 1].any(), not sure[at:].any()),
        )

    def _shapes(self, theta: float, j: int, log_x: float) -> tuple[Floats, float]:
        """Returns the crossings between levels j and j + 1, and the step.

        The shapes are four possible curves: a monotone cubic in each of the links
        logit, cloglog and loglog, and a straight line in the accuracy. The cubic in
        logit gives the estimate.

        If levels are much closer than an octave, the smooth curve blurs a jump between
        them. So the jump is also computed from the measured accuracies, which are
        pooled within an eighth of an octave.
        """
        by_cloglog = _root(self._links, j, 1, cloglog(np.asarray(theta)))
        by_loglog = _root(self._links, j, 2, loglog(np.asarray(theta)))
        p = self.height
        (low, high), (x0, x1) = p[j : j + 2], self.x[j : j + 2]
        straight = x0 + (theta - low) / (high - low) * (x1 - x0)
        share = high - low
        if len(p) > 2:
            near = 1 - 8 / OCTAVE * np.abs(self.x - self.x[j : j + 2, None])
            beside = near.clip(0) * self.has.sum(axis=0)
            jump = np.diff(beside @ self.mean / beside.sum(axis=1))[0]
            share = max(share, jump) / np.ptp(p)
        part = ((share - ONE_STEP) / (1 - ONE_STEP)).clip(0, 1)
        step = part * np.hypot(x1 - x0, (2 * log_x - x0 - x1) * 3**0.5)
        return np.array([log_x, by_cloglog, by_loglog, straight]), float(step)

    def off_line(
        self, x: Floats, values: Floats, theta: float, crossing: Crossing
    ) -> Floats:
        p = scipy.special.expit(
            scipy.special.logit(theta) + crossing.slope * (x - crossing.log_x)
        )
        return (values - p) / (p * (1 - p))

    def _kinked(self, x: float, side: int) -> float:
        """Returns how much further out an end of the interval is if the curve has a
        kink or a jump nearby.

        Args:
            x: the end.
            side: -1 for the lower end, 1 for the upper one.
        """
        if not self.x[0] < x < self.x[-1]:
            return 0.0
        j = int(np.searchsorted(self.x, x, side="right"))
        levels = self.x[j - 1 : j + 1]
        blurred = np.array([min(levels[0], x - BLUR), max(levels[1], x + BLUR)])
        between = self._continued(x, levels)
        around = self._continued(x, blurred.clip(self.x[0], self.x[-1]))
        if min(between) < 0 < max(between):  # a jump
            between *= JUMP
        if min(around) < 0 < max(around):
            around = np.zeros(1)
        return float(max(0.0, *(side * between), *(side * around)))

    def _continued(self, x: float, ends: Floats) -> Floats:
        """Returns how far from x the curve is as high as at x if its two sides continue
        as straight lines in logit.

        Each side continues from an end, with the slope of the octave beyond it. The
        distances are those from the chord between the ends. If both have the same sign,
        the lines meet in a kink, and the curve follows the nearer line. If not, they
        need a jump between them. Then the line whose slope is closer to the chord's is
        taken for both.
        """
        z, height = self.smooth(ends), self.smooth(x)
        chord = (z[1] - z[0]) / (ends[1] - ends[0])
        beyond = (ends + np.array([-OCTAVE, OCTAVE])).clip(self.x[0], self.x[-1])
        known = beyond != ends
        if chord <= 0 or not known.any():
            return np.zeros(1)
        rise = (self.smooth(beyond) - z)[known]
        slope = (rise / (beyond - ends)[known]).clip(1e-9)
        slope = np.clip(chord, slope / STRAIGHT, slope * STRAIGHT)
        lines = (ends[known] + (height - z[known]) / slope).clip(*ends)
        off = lines - (ends[0] + (height - z[0]) / chord)
        return np.sign(off) * np.abs(off).min()


def upward(x: Floats, z: Floats, excess: Floats) -> int | Crossing:
    """Returns the index of the level after which a curve rises through 0, or a crossing
    beyond the levels if it does not.

    If there are several such levels, an isotonic regression through the curve decides
    between them. The one that is nearest to the crossing of the regression is returned.

    Args:
        x: ln of the levels, an array (levels,).
        z: the curve less theta, on any scale, an array (levels,).
        excess: the curve less theta, times the number of runs, an array (levels,). The
            regression weighs each level by its number of runs.
    """
    parting = int(np.cumsum([0.0, *excess]).argmin())
    upwards = np.flatnonzero((z[:-1] < 0) & (z[1:] >= 0))
    if z[-1] < 0 and (parting == len(x) or not len(upwards)):
        return Crossing(np.inf)
    if (parting == 0 and z[0] >= 0) or not len(upwards):
        return Crossing(-np.inf)
    near = x[[max(parting - 1, 0), min(parting, len(x) - 1)]].mean()
    return int(upwards[np.abs(x[upwards] + x[upwards + 1] - 2 * near).argmin()])


def edge_of(*thetas: float) -> float:
    """Returns the `edge` for a curve that must cross these thetas.

    The edge is at most half the distance of each theta from 0 and from 1.
    """
    return min(EDGE, *(min(theta, 1 - theta) / 2 for theta in thetas))


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
    x, at = np.unique(np.asarray(log_x, float), return_inverse=True)
    seeds, of = np.unique(seed, return_inverse=True)
    table = np.full((len(seeds), len(x)), np.nan)
    table[of, at] = values
    if 0 < theta < 1 and all(0 <= value <= 1 for value in values):
        return Curve(x, table, edge_of(theta))
    return AnyCurve(x, table, falls)


def _root(curves: Any, j: int, i: int, level: float) -> float:
    """Returns the x between points j and j + 1 at which spline i has the value `level`.

    The spline must rise between these points. The method is bisection.
    """
    a, b, c, d = map(float, curves.c[:, j, i])
    low, high = 0.0, float(curves.x[j + 1] - curves.x[j])
    for _ in range(50):
        middle = (low + high) / 2
        if ((a * middle + b) * middle + c) * middle + d >= level:
            high = middle
        else:
            low = middle
    return float(curves.x[j]) + (low + high) / 2


def _zero(x: Floats, y: Floats, i: int) -> float:
    """Returns the x at which the line through the points i and i + 1 is 0."""
    return float(x[i] - y[i] * (x[i + 1] - x[i]) / (y[i + 1] - y[i]))


def ends(x: Floats, z: Floats, error: Floats, at: int) -> tuple[float, float]:
    """Returns the ends of the interval around point `at` in which z differs from 0 by
    at most the error. An end is infinite if no point bounds the interval there.
    """
    below = np.flatnonzero(z[: at + 1] < -error[: at + 1])
    above = at + np.flatnonzero(z[at:] > error[at:])
    lo = _zero(x, z + error, below[-1]) if len(below) else -np.inf
    hi = _zero(x, z - error, above[0] - 1) if len(above) else np.inf
    return lo, hi
