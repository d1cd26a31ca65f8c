"""Binomial regressions near theta, by firthmodels: a line per cell (two-stage) or one law for all cells (joint).

Firth's penalty keeps them finite where accuracy jumps from 0 to 1 between two levels, and is nothing elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logit

from .curve import Curve, near
from .law import Law

BLOCK = 16
"""Cells per regression of the two-stage fit. Lines of different cells share nothing, so one call may fit many."""


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


def two_stage(curves: Sequence[Curve], theta: float, tell: Callable[[int], None]) -> np.ndarray:
    """ln N* from a line in logit p against ln N, each cell its own: (resamplings, cells)."""
    y = np.full((len(curves[0].p), len(curves)), np.nan)
    masks = [near(c, theta) for c in curves]
    for row in range(len(y)):
        cells = [i for i, mask in enumerate(masks) if mask[row].any()]
        rows = {i: np.flatnonzero(masks[i][row]) for i in cells}
        for block in (cells[i : i + BLOCK] for i in range(0, len(cells), BLOCK)):
            y[row, block] = _lines(curves, block, rows, row, theta)
        tell(1)
    return y


def _lines(curves: Sequence[Curve], block: Sequence[int], rows: dict[int, np.ndarray], row: int, theta: float) -> np.ndarray:
    """ln N* of the cells in `block` by one regression; one by one if that does not converge."""
    x = [curves[i].x[rows[i]] for i in block]
    middle = np.array([part.mean() for part in x])
    at = np.repeat(np.arange(len(block)), [len(part) for part in x])
    design = np.zeros((len(at), 2 * len(block)))
    design[np.arange(len(at)), 2 * at] = 1
    design[np.arange(len(at)), 2 * at + 1] = np.concatenate(x) - middle[at]
    a, b = firth(design, *_counts(curves, block, [rows[i] for i in block], row)).reshape(-1, 2).T
    if np.isnan(a).any() and len(block) > 1:
        return np.concatenate([_lines(curves, [i], rows, row, theta) for i in block])
    return middle + (logit(theta) - a) / np.where(b > 0, b, np.nan)


def joint(curves: Sequence[Curve], law: Law, theta: float, tell: Callable[[int], None], everywhere: bool = False) -> np.ndarray:
    """ln N* of the law in one regression, logit p = b_N (ln N - ln N*), ln N* in the law: (resamplings, cells).

    everywhere: all levels, not only those near theta.
    """
    y = np.full((len(curves[0].p), len(curves)), np.nan)
    # an independent basis of what the law can say, also where axes move together
    u, s, _ = np.linalg.svd(law.design, full_matrices=False)
    basis = u[:, s > 1e-9 * s[0]] * np.sqrt(len(curves))
    middle = float(np.mean([c.x.mean() for c in curves]))
    masks = [np.ones(c.p.shape, bool) if everywhere else near(c, theta) for c in curves]
    for row in range(len(y)):
        rows = [np.flatnonzero(mask[row]) for mask in masks]
        at = np.repeat(np.arange(len(curves)), [len(part) for part in rows])
        x = np.concatenate([c.x[part] for c, part in zip(curves, rows, strict=True)]) - middle
        k, n = _counts(curves, range(len(curves)), rows, row)
        beta = firth(np.column_stack([x, basis[at]]), k, n)
        if beta[0] > 0:
            y[row] = middle + (logit(theta) - basis @ beta[1:]) / beta[0]
        tell(1)
    return y


def _counts(curves: Sequence[Curve], cells: Sequence[int], rows: Sequence[np.ndarray], row: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.concatenate([curves[i].k[row, part] for i, part in zip(cells, rows, strict=True)])
    return k, np.concatenate([curves[i].n[row, part] for i, part in zip(cells, rows, strict=True)])
