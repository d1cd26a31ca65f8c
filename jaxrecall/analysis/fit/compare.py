"""Compares two values of an axis, such as two optimizers, seed by seed.

With common streams, a seed has the same draws in both conditions. What the seed adds to
ln N* is then nearly the same in both, and cancels in the ratio. All estimates are
weighted sums of ln N* over cells. The jackknife leaves out a seed in both conditions at
once, so that the interval of a sum contains what cancels in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy import ndarray

from .cells import check_axis
from .columns import Row, numbered, without
from .law import Estimates, Law, interval

RATIO, MEAN_RATIO = "ratio", "mean ratio"


def compare_values(e: Estimates, axis: str) -> Iterator[Row]:
    """Yields the rows that compare each value of an axis with its first value.

    Only cells that are in the law and differ in this axis alone are compared. There is
    a ratio of N* for each such pair of cells, with its other axes; the geometric mean
    of these ratios; and, for each axis with an exponent, the difference of exponents.

    Raises FitError if `axis` is not an axis of the family.
    """
    at, law = e.family.at, e.law
    check_axis("compare", axis, at)
    rest = law.family.at[without(at, [axis])]
    line, value = numbered(rest, rest), numbered(at, [axis])[e.inside]
    reference, *others = at[axis].drop_duplicates().tolist()
    # the index of each line's cell with each value of the axis
    cell = np.full((line.max(initial=-1) + 1, len(others) + 1), -1)
    cell[line, value] = np.arange(len(line))
    for j, other in enumerate(others, start=1):
        pairs = cell[(cell[:, j] >= 0) & (cell[:, 0] >= 0)][:, [j, 0]]
        common = {"axis": axis, "value": other, "reference": reference}
        for pair in pairs:
            settings = rest.iloc[[pair[0]]].to_dict("records")[0]
            row = _row(law, RATIO, _ratio(law, pair[None]), pair[None])
            yield common | row | settings
        if len(pairs):
            yield common | _row(law, MEAN_RATIO, _ratio(law, pairs), pairs)
            slopes = _slopes(law, pairs[:, 0]) - _slopes(law, pairs[:, 1])
            for name, weights in zip(law.axes, slopes, strict=True):
                if name != axis and np.isfinite(weights).all():
                    yield common | _row(law, f"exponent of {name}", weights, pairs)


def _ratio(law: Law, pairs: ndarray) -> ndarray:
    """The weights (cells,) of the mean of ln(second / first) over pairs of cells."""
    weights = np.zeros(len(law.crossings))
    weights[pairs[:, 0]] = 1 / len(pairs)
    weights[pairs[:, 1]] = -1 / len(pairs)
    return weights


def _slopes(law: Law, cells: ndarray) -> ndarray:
    """Returns the matrix (axes, cells) whose product with ln N* is the exponents of the
    law through some cells.
    """
    weights = np.zeros((len(law.axes), len(law.crossings)))
    weights[:, cells] = law.take(cells).weights
    return weights


def _row(law: Law, quantity: str, weights: ndarray, pairs: ndarray) -> Row:
    """Returns the estimate of a weighted sum of ln N*, with its interval over seeds.

    The ratios are the exponential of such a sum.
    """
    n_seeds = law.take(pairs.ravel()).n_seeds
    sums = law.log_x @ weights
    ends = [sums[0], *interval(sums, n_seeds, float(law.shape_deviation(weights)))]
    if quantity in (RATIO, MEAN_RATIO):
        ends = list(np.exp(ends))
    second, first = (law.log_x[1:] - law.log_x[0]).T[pairs.T]
    both = np.sqrt((second**2).sum() * (first**2).sum())
    return {
        "quantity": quantity,
        "estimate": ends[0],
        "lo": ends[1],
        "hi": ends[2],
        "n_cells": len(pairs),
        "n_seeds": n_seeds,
        # of the errors of the two cells of a pair, over all pairs
        "correlation": (second * first).sum() / both if both > 0 else np.nan,
    }
