"""The law of a measured mean, such as the memory accuracy, over points: ln of the mean over seeds in place of ln N*."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...sweep.crossing import Crossing
from .cells import Cell, Family
from .estimate import Estimates


def estimates(family: Family, column: str) -> Estimates:
    """Each level of each cell as a cell of its own, with ln of its mean over seeds, and without each seed."""
    cells, found = [], []
    for cell in family.cells:
        for level, k, n in zip(cell.N, cell.k, cell.n, strict=True):
            with np.errstate(invalid="ignore"):
                found.append(_mean(family.mirrored(k / n)))
            cells.append(Cell(cell.at | {family.along: level}, np.array([level]), k[None], n[None]))
    points = replace(family, cells=cells, powers=(*family.powers, family.along), what=column)
    return Estimates(points, np.nan, [], found)


def _mean(values: Any) -> Crossing:
    """ln of the mean of some seeds; nan where there is no run."""
    has = ~np.isnan(values)
    total, count = np.nansum(values), int(has.sum())
    if not total > 0:
        return Crossing(np.inf)
    rest = np.where(has, total - values, total) / np.where(has, max(count - 1, 1), count)
    alone = not (rest > 0).all()
    change = np.log(rest / (total / count), where=rest > 0, out=np.zeros(len(values)))
    log = float(np.log(total / count))
    return Crossing(log, n_seeds=count, without=change, shapes=np.array([log]), is_open=(alone, False))
