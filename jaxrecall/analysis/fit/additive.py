"""Fits powers of several sizes that add up above a floor, and their minimum.

    y = E + A x^p + B z^q + ...

Here y is N* or the mean of a column, and x, z, ... are axes. All terms are positive.
The fit goes through ln y. Residuals up to WIDE times their median count as squares, and
larger ones as absolute values (Huber, "Robust estimation of a location parameter",
Annals of Mathematical Statistics 35, 1964).

Intervals are percentiles of a wild bootstrap (Wu, "Jackknife, bootstrap and other
resampling methods in regression analysis", Annals of Statistics 14, 1986). In each
draw, the residual of each cell, divided by 1 minus its leverage, has a random sign. The
changes of ln y that leave out one seed have random weights. Residuals are then without
the part that seeds explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import scipy
from numpy import ndarray

from ...sweep.crossing import MIN_SEEDS
from .columns import Row
from .law import Estimates, Law
from .misfit import LEVEL, ROUNDING, misfit
from .tables import farthest

STARTS = (0.1, 0.5)
"""The sizes of the powers from which the first fit starts."""

FIRST_HUBER, WIDE = 1e-3, 3.0

DRAWS = 200


def add_powers(e: Estimates, products: Sequence[float]) -> Iterator[Row]:
    """Yields the numbers of a law of added powers, with their intervals, and the sizes
    that make it smallest at each of the products of all sizes.

    Nothing is yielded if the law has factors, if its cells are not more than its
    unknowns, or if they have fewer than three values of a size.
    """
    law = e.law
    sizes = law.family.at[[*law.axes]]
    too_few = len(sizes) <= 1 + 2 * len(law.axes) or sizes.nunique().min() < 3
    if law.factors or too_few:
        return
    logs = np.log(sizes.to_numpy(float))
    x, y = logs - logs.mean(axis=0), law.log_x
    first = fit_powers(x, y[0], FIRST_HUBER)
    huber = WIDE * np.median(abs(first.fun)) + ROUNDING
    best = fit_powers(x, y[0], huber, first.x)
    errors, chance = _bootstrap(x, law, best)
    rms = np.sqrt(np.mean(best.fun**2))
    warnings = []
    if law.n_seeds < MIN_SEEDS:
        warnings.append("few seeds: intervals are over configurations alone")
    if chance < LEVEL:
        warnings.append(
            f"no sum of powers: ln {law.family.critical} lies {rms:.2g} (rms) from it,"
            f" and farthest at {farthest(law, best.fun)}; try a law for some"
            " configurations (where)"
        )
    start = best.x.copy()
    start[0] = max(start[0], y[0].min() - 3)  # a floor near 0 would never rise
    drawn = y[0] + best.fun + errors
    draws = [fit_powers(x, one, huber, start).x for one in drawn]
    unknowns = np.array([best.x, *draws])
    names, values = _numbers(unknowns, logs.mean(axis=0), law.axes, products)
    ends = np.nanquantile(values[1:], [0.025, 0.975], axis=0)
    for name, value, low, high in zip(names, values[0], *ends, strict=True):
        yield {
            **dict(zip(("quantity", "axis", "product"), name, strict=True)),
            "estimate": value,
            "lo": low,
            "hi": high,
            "rms": rms,
            "rejected": bool(chance < LEVEL),
            "warning": "; ".join(warnings),
            "n_cells": len(x),
            "n_seeds": law.n_seeds,
        }


def _bootstrap(x: ndarray, law: Law, best: Any) -> tuple[ndarray, float]:
    """Returns drawn errors of ln y (draws, cells), and the chance of residuals as large
    as those of the fit if the law holds.

    With too few seeds for an interval, the bootstrap is over cells alone. The chance is
    then that of residuals of which products of two logarithms of sizes explain as large
    a share.
    """
    y, n_seeds = law.log_x, law.n_seeds
    basis = scipy.linalg.orth(best.jac, rcond=ROUNDING)
    off = y[0] + best.fun - y
    off -= off @ basis @ basis.T
    n_free = len(x) - basis.shape[1]
    rng = np.random.default_rng(0)
    leverage = (basis**2).sum(axis=1).clip(max=0.999)
    errors = rng.choice([-1, 1], (DRAWS, len(x))) * best.fun / (1 - leverage)
    # as Student's t has them in place of a normal number
    errors *= np.sqrt(n_free / rng.chisquare(n_free, (DRAWS, 1)))
    if n_seeds < MIN_SEEDS:
        bends = np.array([a * b for a, b in combinations_with_replacement(x.T, 2)])
        bends = scipy.linalg.orth((bends - bends @ basis @ basis.T).T, rcond=ROUNDING)
        shares = [
            ((each @ bends) ** 2).sum(axis=-1) / ((each**2).sum(axis=-1) + ROUNDING**2)
            for each in (off[0], errors - errors @ basis @ basis.T)
        ]
        return errors, 1 - np.mean(shares[1] < shares[0])
    of_law = misfit(off, n_free, n_seeds, law.shape_variance)
    errors *= np.sqrt(max(0.0, 1 - of_law.ratio**-2))
    of_seeds = rng.normal(size=(DRAWS, len(y) - 1)) @ (y[1:] - y[0])
    square = n_seeds * rng.chisquare(n_seeds - 1, (DRAWS, 1))
    errors += of_seeds * (n_seeds - 1) / np.sqrt(square)
    return errors, of_law.chance


def fit_powers(
    x: ndarray, y: ndarray, huber: float, start: ndarray | None = None
) -> Any:
    """Returns the fit whose unknowns are ln of E, A, B, ..., then the powers p, q, ...

    Args:
        x: ln of the sizes (cells, sizes), with mean 0.
        y: ln y (cells,).
        huber: the residual beyond which absolute values count.
        start: the unknowns from which to search. If None, the best of several is taken.
    """
    n_terms = 1 + x.shape[1]
    starts = [start]
    if start is None:
        terms = np.full(n_terms, y.mean())
        powers = product(STARTS, repeat=n_terms - 1)
        starts = [np.append(terms, np.sign(y @ x) * each) for each in powers]

    def logs(unknowns: ndarray) -> ndarray:
        return np.insert(x * unknowns[n_terms:], 0, 0, axis=1) + unknowns[:n_terms]

    def residuals(unknowns: ndarray) -> ndarray:
        return np.logaddexp.reduce(logs(unknowns), axis=1) - y

    def jacobian(unknowns: ndarray) -> ndarray:
        shares = scipy.special.softmax(logs(unknowns), axis=1)
        return np.hstack([shares, shares[:, 1:] * x])

    options = {"jac": jacobian, "loss": "huber", "f_scale": huber}
    fits = [scipy.optimize.least_squares(residuals, one, **options) for one in starts]
    return min(fits, key=lambda fit: fit.cost)


def _numbers(
    unknowns: ndarray,
    middle: ndarray,
    sizes: Sequence[str],
    products: Sequence[float],
) -> tuple[list[tuple[str, str, float]], ndarray]:
    """Returns names of numbers (quantity, axis, product), and values (fits, numbers).

    At a fixed product of the sizes, y is smallest where all p A x^p are equal. There is
    no such place if the powers have two signs.
    """
    floor, terms, powers = np.split(unknowns, [1, 1 + len(sizes)], axis=1)
    factors = terms - powers * middle
    names = [("floor", "", np.nan)]
    names += product(("factor", "exponent"), sizes, [np.nan])
    values = [np.exp(floor), np.exp(factors), powers]
    slopes = (np.log(abs(powers)) + factors) / powers
    shares = 1 / powers / (1 / powers).sum(axis=1, keepdims=True)
    shares[np.ptp(np.sign(powers), axis=1) > 0] = np.nan
    for whole in products:
        names += product(["optimum"], sizes, [whole])
        level = np.log(whole) + slopes.sum(axis=1, keepdims=True)
        values.append(np.exp(shares * level - slopes))
    names += product(["growth of optimum"], sizes, [np.nan])
    return names, np.hstack([*values, shares])
