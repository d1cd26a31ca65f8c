"""Estimates ln N* for each cell of a family at one theta.

The crossing of each cell is computed from its own levels around theta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...sweep.crossing import AnyCurve, Crossing, Curve, edge_of
from ...sweep.summary import MEAN, Summary
from .cells import Family, check_axis
from .columns import is_numeric, split, without
from .law import Estimates, interval

METHOD = "local"
METHOD_TEXT = (
    "local logistic regression of the accuracy, cell by cell; least squares through the"
    " cells"
)
"""The explanation of METHOD, which is the value of the column `method`."""


def estimate(
    family: Family,
    thetas: Sequence[float],
    best: str | None = None,
    summary: Summary = MEAN,
) -> Iterator[Estimates]:
    """Yields the estimates of a family at each theta.

    If the law describes a column, yields the means of the column instead. With `best`,
    cells that differ in this axis alone are one cell.
    """
    if family.what:
        yield estimate_at_best(_estimate_means(family), best)
        return
    rising = [family.mirrored(theta) for theta in thetas]
    levels = [summary.crossed(theta) for theta in rising]
    edge, curves = edge_of(*levels), []
    is_fraction = family.is_fraction or summary != MEAN
    for i, level in enumerate(levels):
        if not curves or summary != MEAN:
            curves = []
            for cell in family.cells:
                if not len(cell.N):
                    curves.append(None)
                    continue
                with np.errstate(invalid="ignore"):
                    values = (cell.k / cell.n).T
                values = summary.values(values, rising[i], family.falls)
                if is_fraction:  # means are clipped to the range edge to 1 - edge
                    curves.append(Curve(np.log(cell.N), values, edge))
                else:
                    curves.append(AnyCurve(np.log(cell.N), values, family.falls))
        crossings = []
        for curve in curves:
            crossings.append(curve.crossing(level) if curve else Crossing(np.inf))
        estimates = Estimates(family, thetas[i], level, curves, crossings)
        yield estimate_at_best(estimates, best)


def _estimate_means(family: Family) -> Estimates:
    """Returns estimates in which the mean over seeds replaces N* in each cell, which
    has one level.
    """
    with np.errstate(invalid="ignore"):
        means = [cell.k / cell.n for cell in family.cells]
    crossings = [_mean(values.ravel()) for values in means]
    curves = [None] * len(means)
    return Estimates(family, np.nan, np.nan, curves, crossings)


def _mean(values: np.ndarray) -> Crossing:
    """Returns a crossing whose log_x is ln of the mean of `values` over seeds.

    A seed without a run has the value nan. log_x is inf if the mean is not positive.
    """
    if not np.nansum(values) > 0:
        return Crossing(np.inf)
    curve = AnyCurve(np.zeros(1), values[:, None])
    (mean,), (count,) = curve.mean, curve.count
    rest = mean + curve.without[:, 0]  # the mean with each seed left out
    is_positive = rest > 0
    return Crossing(
        float(np.log(mean)),
        n_seeds=int(count),
        without=np.log(np.where(is_positive, rest / mean, 1.0)),
        shapes=np.log([mean]),
        is_open=(not is_positive.all(), False),
    )


def estimate_at_best(e: Estimates, axis: str | None) -> Estimates:
    """Returns the crossing of each cell at the best value of an axis, such as a rate.
    Without an axis, returns the estimates as they are.

    The best value is the one whose curve crosses theta first, or last if accuracy falls
    along the curve. In the law of a mean, it has the largest mean, or the smallest if
    the column falls. The same runs determine the best value and the crossing. The value
    is chosen again whenever a seed is left out. The choice favours values that are good
    by chance, so the chosen value seems better than it is. The command `python
    results/coverage.py tables` measures this bias. A cell has a caution if its value is
    the smallest or the largest number that was tried.
    """
    family = e.family
    if not axis:
        return e
    check_axis("best", axis, family.at)
    rest = without(family.at, [axis])
    is_range, values = is_numeric(family.at[axis]), family.at[axis].to_numpy()
    sign = -1 if family.falls != bool(family.what) else 1
    is_worst = ~np.isfinite(e.log_x) if family.what else np.isnan(e.log_x)
    order = sign * np.where(is_worst, sign * np.inf, e.log_x)

    def rank(i: int) -> tuple[float, float]:
        # if none crosses, use the one with the best accuracy at the last level
        curve = e.curves[i]
        return order[0, i], -sign * curve.mean[-1] if curve else np.inf

    chosen, crossings, cautions = [], [], []
    for options in split(family.at, rest):
        best = min(options, key=rank)
        crossing = e.crossings[best]
        if crossing.side == 0:
            first = sign * order[:, options].min(axis=1)
            crossing = _chosen_anew(crossing, first - first[0])
        ends = {options[0]: "smallest", options[-1]: "largest"}
        caution = ""
        if len(options) > 1 and is_range and best in ends:
            caution = f"{axis} = {values[best]:g} is the {ends[best]} tried"
        chosen.append(best)
        crossings.append(crossing)
        cautions.append(caution)
    family = family.take(chosen)
    names = family.names.assign(**{axis: family.at[axis]})
    at = family.at[rest]
    family = replace(family, at=at, origin=at, names=names)
    curves = [e.curves[i] for i in chosen]
    return replace(
        e, family=family, curves=curves, crossings=crossings, cautions=cautions
    )


def _chosen_anew(crossing: Crossing, change: np.ndarray) -> Crossing:
    """Returns the crossing with an interval that accounts for the choice of the value.

    `change` contains 0, and for each seed the change of ln N* when the seed is left out
    and the value is chosen again.
    """
    open_below, open_above = crossing.is_open
    is_open = (
        open_below or bool(np.isneginf(change).any()),
        open_above or bool(np.isposinf(change).any()),
    )
    change = np.where(np.isfinite(change), change, 0.0)
    y = crossing.log_x + change
    lo, hi = interval(y, crossing.n_seeds, crossing.shape_error)
    return crossing._replace(without=change[1:], is_open=is_open, lo=lo, hi=hi)
