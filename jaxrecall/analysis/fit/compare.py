"""Compares two values of an axis, such as two optimizers, seed by seed.

With common streams, a seed has the same draws in both conditions. What the seed adds to
ln N* is then nearly the same in both, and cancels in the ratio. All estimates are
weighted sums of ln N* over cells. The jackknife leaves out a seed in both conditions at
once, so that the interval of a sum contains what cancels in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .cells import check_axis
from .columns import AxisValue, without
from .estimate import Estimates, interval

RATIO, MEAN_RATIO = "ratio", "mean ratio"


def compare_values(
    e: Estimates, axis: str, regime: str = ""
) -> Iterator[dict[str, AxisValue]]:
    """Yields the rows that compare each value of an axis with its first value.

    Only cells that are in the law and differ in this axis alone are compared. There is
    a ratio of N* for each such pair of cells, with its other axes; the geometric mean
    of these ratios; and, for each axis with an exponent, the difference of exponents.

    Raises FitError if `axis` is not an axis of the family.
    """
    axes = e.family.cells[0].at
    check_axis("compare", axis, axes)
    reference, *others = dict.fromkeys(cell.at[axis] for cell in e.family.cells)
    rest = without(axes, [axis])
    places: dict[AxisValue, dict[tuple[AxisValue, ...], int]] = {}
    for i, cell in enumerate(e.cells):
        places.setdefault(cell.at[axis], {})[cell.values(rest)] = i
    first = places.get(reference, {})
    for value in others:
        second = places.get(value, {})
        both = [at for at in second if at in first]
        pairs = np.array([(second[at], first[at]) for at in both], int).reshape(-1, 2)
        common = {"axis": axis, "value": value, "reference": reference}
        common["regime"] = regime
        for at, pair in zip(both, pairs, strict=True):
            row = _row(e, RATIO, _ratio(e, pair[None]), pair[None])
            yield common | row | dict(zip(rest, at, strict=True))
        if len(pairs):
            yield common | _row(e, MEAN_RATIO, _ratio(e, pairs), pairs)
            slopes = _slopes(e, pairs[:, 0]) - _slopes(e, pairs[:, 1])
            for name, weights in zip(e.family.law, slopes, strict=True):
                if name != axis and np.isfinite(weights).all():
                    yield common | _row(e, f"exponent of {name}", weights, pairs)


def _ratio(e: Estimates, pairs: np.ndarray) -> np.ndarray:
    """The weights (cells,) of the mean of ln(second / first) over pairs of cells."""
    weights = np.zeros(len(e.cells))
    weights[pairs[:, 0]] = 1 / len(pairs)
    weights[pairs[:, 1]] = -1 / len(pairs)
    return weights


def _slopes(e: Estimates, cells: np.ndarray) -> np.ndarray:
    """Returns the matrix (axes, cells) whose product with ln N* is the exponents of the
    law through some cells.
    """
    among = np.isin(np.arange(len(e.cells)), cells)
    law = e.law_of([cell for cell, is_in in zip(e.cells, among, strict=True) if is_in])
    weights = np.zeros((len(e.family.law), len(e.cells)))
    weights[:, among] = law.weights
    return weights


def _row(
    e: Estimates, quantity: str, weights: np.ndarray, pairs: np.ndarray
) -> dict[str, AxisValue]:
    """Returns the estimate of a weighted sum of ln N*, with its interval over seeds.

    The ratios are the exponential of such a sum.
    """
    y = e.y[:, e.inside]
    has_run = [(e.cells[i].n > 0).any(axis=0) for i in np.unique(pairs)]
    n_seeds = int(np.any(has_run, axis=0).sum())
    sums = y @ weights
    ends = [sums[0], *interval(sums, n_seeds, float(e.shape_deviation(weights)))]
    if quantity in (RATIO, MEAN_RATIO):
        ends = list(np.exp(ends))
    row: dict[str, AxisValue] = dict(zip(("estimate", "lo", "hi"), ends, strict=True))
    return row | {
        "quantity": quantity,
        "n_cells": len(pairs),
        "n_seeds": n_seeds,
        "correlation": _correlation(y[1:] - y[0], pairs),
        "theta": e.given_theta,
        "part": e.family.name,
        "along": e.family.critical,
    }


def _correlation(apart: np.ndarray, pairs: np.ndarray) -> float:
    """The correlation of the errors of the two cells of a pair, over all pairs."""
    second, first = apart[:, pairs[:, 0]], apart[:, pairs[:, 1]]
    both = np.sqrt((second**2).sum() * (first**2).sum())
    return float((second * first).sum() / both) if both > 0 else np.nan
