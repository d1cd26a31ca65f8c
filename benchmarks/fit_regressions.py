"""Other estimates of N* and of the exponents, to check the reported one by: two regressions and a straight line.

Binomial regressions near theta: a line per cell (two-stage) or one law for all cells (joint). They need firthmodels.

Firth's penalty keeps them finite where accuracy jumps from 0 to 1 between two levels, and is nothing elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.special import logit

from jaxrecall.analysis.fit.curve import Curve, bracket, crossing
from jaxrecall.analysis.fit.estimate import Estimates, Law

CELLS_PER_REGRESSION = 16
"""Cells per regression of the two-stage fit. Lines of different cells share nothing, so one call may fit many."""


NEAR = 1.3
"""A level next to those that bracket theta is near it within this many logits: 0.21 to 0.79 around 0.5."""


def by_method(e: Estimates) -> dict[str, np.ndarray]:
    """Exponents by each method, (resamplings, axes)."""
    mine = [c for c, is_in in zip(e.curves, e.inside, strict=True) if is_in]
    straight = np.stack([crossing(c, e.theta, link=np.asarray, smooth=False) for c in mine], axis=1)
    found = {"isotonic": straight, "two_stage": two_stage(mine, e.theta), "joint": joint(mine, e.law, e.theta)}
    return {"local": e.exponents} | {name: e.law.exponents(y) for name, y in found.items()}


def near(c: Curve, theta: float) -> np.ndarray:
    """Levels for a straight line in logits: the two that bracket theta and, if near, one more on each side: (resamplings, levels)."""
    after, side = bracket(c, theta)
    level, after = np.arange(len(c.x)), after[:, None]
    brackets = (level == after - 1) | (level == after)
    next_ones = ((level == after - 2) | (level == after + 1)) & (abs(logit(c.p) - logit(theta)) < NEAR)
    return (brackets | next_ones) & (side == 0)[:, None]


def firth(design: np.ndarray, k: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Coefficients of logit p = design @ beta for k of n right, with Firth's penalty; nan if it does not converge."""
    from firthmodels import FirthLogisticRegression

    right = np.repeat([1, 0], len(k))
    model = FirthLogisticRegression(backend="numpy", fit_intercept=False, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what does not converge is nan below
        try:
            model.fit(np.vstack([design, design]), right, sample_weight=np.concatenate([k, n - k]))
        except (ValueError, np.linalg.LinAlgError):
            return np.full(design.shape[1], np.nan)
    return model.coef_ if model.converged_ else np.full(design.shape[1], np.nan)


def two_stage(curves: Sequence[Curve], theta: float) -> np.ndarray:
    """ln N* from a line in logit p against ln N, each cell its own: (resamplings, cells)."""
    y = np.full((len(curves[0].p), len(curves)), np.nan)
    masks = [near(c, theta) for c in curves]
    for row in range(len(y)):
        cells = [i for i, mask in enumerate(masks) if mask[row].any()]
        rows = {i: np.flatnonzero(masks[i][row]) for i in cells}
        for group in (cells[i : i + CELLS_PER_REGRESSION] for i in range(0, len(cells), CELLS_PER_REGRESSION)):
            y[row, group] = _lines(curves, group, rows, row, theta)
    return y


def _lines(curves: Sequence[Curve], group: Sequence[int], rows: dict[int, np.ndarray], row: int, theta: float) -> np.ndarray:
    """ln N* of the cells in `group` by one regression; one by one if that does not converge."""
    x = [curves[i].x[rows[i]] for i in group]
    middle = np.array([levels.mean() for levels in x])
    at = np.repeat(np.arange(len(group)), [len(levels) for levels in x])
    design = np.zeros((len(at), 2 * len(group)))
    design[np.arange(len(at)), 2 * at] = 1
    design[np.arange(len(at)), 2 * at + 1] = np.concatenate(x) - middle[at]
    a, b = firth(design, *_counts(curves, group, [rows[i] for i in group], row)).reshape(-1, 2).T
    if np.isnan(a).any() and len(group) > 1:
        return np.concatenate([_lines(curves, [i], rows, row, theta) for i in group])
    return middle + (logit(theta) - a) / np.where(b > 0, b, np.nan)


def joint(curves: Sequence[Curve], law: Law, theta: float, everywhere: bool = False) -> np.ndarray:
    """ln N* of the law in one regression, logit p = b_N (ln N - ln N*), ln N* in the law: (resamplings, cells).

    A cell and its copies count as one. everywhere: all levels, not only those near theta.
    """
    y = np.full((len(curves[0].p), len(curves)), np.nan)
    # an independent basis of the law, also where axes move together
    u, s, _ = np.linalg.svd(law.design, full_matrices=False)
    basis = u[:, s > 1e-9 * s[0]] * np.sqrt(len(curves))
    middle = float(np.mean([c.x.mean() for c in curves]))
    share = law.share()
    masks = [np.ones(c.p.shape, bool) if everywhere else near(c, theta) for c in curves]
    for row in range(len(y)):
        rows = [np.flatnonzero(mask[row]) for mask in masks]
        at = np.repeat(np.arange(len(curves)), [len(levels) for levels in rows])
        x = np.concatenate([c.x[levels] for c, levels in zip(curves, rows, strict=True)]) - middle
        k, n = (counts * share[at] for counts in _counts(curves, range(len(curves)), rows, row))
        beta = firth(np.column_stack([x, basis[at]]), k, n)
        if beta[0] > 0:
            y[row] = middle + (logit(theta) - basis @ beta[1:]) / beta[0]
    return y


def _counts(curves: Sequence[Curve], cells: Sequence[int], rows: Sequence[np.ndarray], row: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.concatenate([curves[i].k[row, levels] for i, levels in zip(cells, rows, strict=True)])
    return k, np.concatenate([curves[i].n[row, levels] for i, levels in zip(cells, rows, strict=True)])
