"""Cells that are the same runs under another name: one piece of evidence, however often it is listed.

With `streams: common`, cells share their random draws. If what they differ in has no effect on a run, as d has none with orthogonal
embeddings and L hardly any once attention is locked, they give the same counts, seed by seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Table = Any  # pandas.DataFrame, whose own types say less than Any
CHANCE = 1e-9
"""Counts are taken for a copy if cells that share no draws would agree in all of them with less than this probability."""

SHARED = 0.5
"""Two cells are compared if they share at least this part of the runs of the smaller."""


def originals(rows: Table, cell: np.ndarray) -> list[int | None]:
    """The earlier cell that each cell copies, or None; `cell` numbers the cell of each row, `_seed` its seed.

    A cell copies another if they agree exactly in n_correct and n_test at every (seed, N) that both have. Those must be half of
    the runs of the smaller, and hold enough counts between 0 and n_test that agreement is no accident (CHANCE). Cells of one L
    must also agree in `draw_check`, if the table has it; the check depends on L, so between other cells it decides nothing.
    """
    if not len(cell):
        return []
    _, point = np.unique(rows[["N", "_seed"]].to_numpy(), axis=0, return_inverse=True)
    shape = (cell.max() + 1, point.max() + 1)
    k, n = np.zeros((2, *shape))
    check = np.zeros(shape, np.int64)
    k[cell, point.ravel()], n[cell, point.ravel()] = rows["n_correct"], rows["n_test"]
    if "draw_check" in rows:
        check[cell, point.ravel()] = rows["draw_check"].fillna(0)
    L = np.zeros(shape[0])
    L[cell] = rows["L"]
    found: list[int | None] = []
    for i in range(shape[0]):
        at = n[i] > 0
        before = np.array([j for j, original in enumerate(found) if original is None], dtype=int)
        both = n[np.ix_(before, at)] > 0
        differ = (k[np.ix_(before, at)] != k[i, at]) | (n[np.ix_(before, at)] != n[i, at])
        differ |= (check[np.ix_(before, at)] != check[i, at]) & (L[before] == L[i])[:, None]
        enough = both.sum(axis=1) >= SHARED * np.minimum(at.sum(), (n[before] > 0).sum(axis=1))
        same = ~(both & differ).any(axis=1) & enough & (both @ _log_chance(k[i, at], n[i, at]) < np.log(CHANCE))
        found.append(int(before[same.argmax()]) if same.any() else None)
    return found


def _log_chance(k: np.ndarray, n: np.ndarray) -> np.ndarray:
    """ln of the probability that another binomial count of the same mean equals k of n."""
    variance = k * (1 - k / n)
    return -np.log(np.maximum(1, np.sqrt(4 * np.pi * variance)))
