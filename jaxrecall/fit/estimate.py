"""All estimates of one family at one theta: ln N* of every cell by every method, and the law through the cells that cross.

`local` is the reported estimate: each cell's crossing by itself, from the levels around theta, then least squares through
the cells. It assumes no slope, ceiling or shape that cells would share, so curves that level off cannot bend the exponents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .cells import Family
from .curve import Curve, bracket, crossing, shape_error
from .glm import joint, two_stage
from .law import Law

METHODS = {
    "local": "monotone cubic through the logits of the isotonic accuracy, cell by cell; least squares through the cells",
    "isotonic": "straight line between the two levels that bracket theta, isotonic accuracy; least squares through the cells",
    "two_stage": "binomial regression on ln N near theta, cell by cell; least squares through the cells",
    "joint": "one binomial regression for all cells that cross, levels near theta; ratios of its coefficients",
}
REPORTED = "local"

REGRESSIONS = ("two_stage", "joint")
"""Methods that need firthmodels."""

OPEN = 0.025
"""A cell whose curve does not cross theta in more than this share of the resamplings has no upper (or lower) end."""


@dataclass(frozen=True)
class Estimates:
    """`y[method]` = ln N*, (resamplings, cells), nan where there is none; `inside` = cells in the law."""

    family: Family
    theta: float
    curves: Sequence[Curve]
    side: np.ndarray  # (resamplings, cells), as `bracket` gives it
    inside: np.ndarray
    law: Law
    y: dict[str, np.ndarray]
    shape: np.ndarray

    def exponents(self, method: str = REPORTED) -> np.ndarray:
        """(resamplings, axes)"""
        return self.law.exponents(self.y[method][:, self.inside])

    @property
    def shape_of_exponents(self) -> np.ndarray:
        """Standard deviation that the shape error of the cells gives each exponent, (axes,)."""
        return np.sqrt(self.law.weights() ** 2 @ self.shape[self.inside] ** 2)

    def open(self, side: int) -> np.ndarray:
        """Cells that cross in the table but not surely: too many resamplings are `side`."""
        return (self.side[0] == 0) & ((self.side[1:] == side).mean(axis=0) > OPEN)


def estimate(
    family: Family, theta: float, curves: Sequence[Curve], on_progress: Callable[[int], None], methods: Sequence[str] = tuple(METHODS)
) -> Estimates:
    """The methods asked for on every cell; `on_progress` is called with the resamplings that a regression has done."""
    side = np.stack([bracket(c, theta)[1] for c in curves], axis=1)
    sure = ((side[1:] != 0).mean(axis=0) <= OPEN) if len(side) > 1 else True
    inside = (side[0] == 0) & sure
    law = Law([cell for cell, is_in in zip(family.cells, inside, strict=True) if is_in], family.law, family.factors)
    mine = [c for c, is_in in zip(curves, inside, strict=True) if is_in]
    y = {"local": np.stack([crossing(c, theta) for c in curves], axis=1)}
    if "isotonic" in methods:
        y["isotonic"] = np.stack([crossing(c, theta, link=np.asarray, smooth=False) for c in curves], axis=1)
    if "two_stage" in methods:
        y["two_stage"] = two_stage(curves, theta, on_progress)
    if "joint" in methods:
        y["joint"] = np.full(side.shape, np.nan)
        if mine:
            y["joint"][:, inside] = joint(mine, law, theta, on_progress)
        else:
            on_progress(len(side))
    shape = np.array([shape_error(c, theta) for c in curves])
    return Estimates(family, theta, curves, side, inside, law, y, shape)
