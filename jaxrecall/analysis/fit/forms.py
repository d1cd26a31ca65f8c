"""Compares forms of a law along one axis: a power, and a power above a floor.

The forms of a quantity y, which is N* or the mean of a column, are

    power   y = A x^p
    floor   y = E + A x^p

The latter holds the limit of a logarithm, E + A ln x, in which p is near 0.

For a given p, E and A follow from a linear fit, so that only p is searched (Golub and
Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems
whose variables separate", SIAM Journal on Numerical Analysis 10, 1973). The squares of
relative errors are summed, as in a fit of ln y. Intervals are those of the jackknife
over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy
from numpy import ndarray

from ...errors import FitError
from ...sweep.crossing import jackknife
from .columns import Row, split, without
from .law import Estimates, interval
from .misfit import misfit

LARGEST_POWER = 6.0

LEFT_OUT = 1 / 3
"""The share of the sizes that are left out, and predicted from the smaller ones."""


class Form(NamedTuple):
    """The numbers p, E and A of a form. E is nan if the form has none."""

    exponent: float
    floor: float
    factor: float

    def at(self, x: ndarray) -> ndarray:
        """Returns y at the sizes x."""
        return np.nan_to_num(self.floor) + self.factor * x**self.exponent


def _power(x: ndarray, y: ndarray) -> Form:
    p, constant = np.polyfit(np.log(x), np.log(y), 1)
    return Form(p, np.nan, np.exp(constant))


def _above_floor(x: ndarray, y: ndarray) -> Form:
    middle = np.exp(np.log(x).mean())
    ratio = x / middle

    def squares(p: float) -> float:
        # the term is (x^p - 1) / p, or ln x for p = 0
        _, squares, *_ = np.polyfit(
            scipy.special.boxcox(ratio, p), y, 1, w=1 / y, full=True
        )
        return squares.sum()

    grid = np.linspace(-LARGEST_POWER, LARGEST_POWER, 61)
    best, step = min(grid, key=squares), grid[1] - grid[0]
    bounds = (best - step, best + step)
    p = scipy.optimize.minimize_scalar(
        squares, bounds=bounds, options={"xatol": 1e-6}
    ).x
    slope, constant = np.polyfit(scipy.special.boxcox(ratio, p), y, 1, w=1 / y)
    return Form(p, constant - slope / p, slope / p * middle**-p)


FORMS = {"power": (_power, 2), "floor": (_above_floor, 3)}
"""A dict from each form to the function that fits it, and the least number of sizes."""


def compare_forms(e: Estimates, axis: str) -> Iterator[Row]:
    """Yields a row for each form and each line of cells along an axis.

    The cells of a line are in the law and differ in this axis alone. The column `error`
    contains the rms error of ln y at the largest sizes if they are left out of the fit.

    Raises FitError if `axis` is not an axis that gets an exponent.
    """
    axes, at = e.law.axes, e.law.family.at
    if not axis and len(axes) == 1:
        (axis,) = axes
    if axis not in axes:
        allowed = ", ".join(axes) or "none, since no size varies"
        raise FitError(f"floor: got {axis or 'no axis'}; allowed: {allowed}")
    rest, sizes = at[without(at, [axis])], at[axis].to_numpy(float)
    for line in split(rest, rest):
        line = line[np.argsort(sizes[line])]
        settings = rest.iloc[line[:1]].to_dict("records")[0]
        for name, (_, least) in FORMS.items():
            if len(line) >= least:
                y = np.exp(e.law.log_x[:, line])
                row = _row(name, sizes[line], y, e.law.n_seeds)
                yield settings | {"axis": axis} | row


def _row(name: str, x: ndarray, y: ndarray, n_seeds: int) -> Row:
    """Returns the numbers of a form with their intervals, and its error.

    y has the shape (1 + seeds, sizes): from all seeds, then with each left out.
    """
    fit, least = FORMS[name]
    forms = [fit(x, one) for one in y]
    row: Row = {"form": name, "n_cells": len(x), "n_seeds": n_seeds}
    for field, values in zip(Form._fields, np.array(forms).T, strict=True):
        low, high = interval(values, n_seeds)
        row |= {field: values[0], f"{field}_lo": low, f"{field}_hi": high}
    n_out = int(len(x) * LEFT_OUT)
    error = noise = np.nan
    if n_out and len(x) - n_out >= least:
        smaller = fit(x[:-n_out], y[0, :-n_out])
        error = _rms(smaller.at(x[-n_out:]), y[0, -n_out:])
        apart = np.log(y[1:, -n_out:] / y[0, -n_out:])
        noise = float(np.sqrt(jackknife(apart, n_seeds).mean()))
    rms, rejected = _rms(forms[0].at(x), y[0]), False
    if np.isfinite(rms) and len(x) > least and n_seeds > 1:
        off = np.log([one.at(x) for one in forms]) - np.log(y)
        rejected = misfit(off, len(x) - least, n_seeds, 0.0).is_certain
    return row | {
        "rms": rms,
        "error": error,
        "noise": noise,
        "n_out": n_out,
        "rejected": rejected,
    }


def _rms(predicted: ndarray, y: ndarray) -> float:
    """The rms of ln(predicted / y); inf if a prediction is not positive."""
    if (predicted <= 0).any():
        return np.inf
    return float(np.sqrt(np.mean(np.log(predicted / y) ** 2)))
