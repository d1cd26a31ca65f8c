"""All estimates of one family at one theta: ln N* of every cell by every method, and the law through the cells that cross.

`local` is the reported estimate: each cell's crossing by itself, from the levels around theta, then least squares through
the cells. It assumes no slope, ceiling or shape that cells would share, so curves that level off cannot bend the exponents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .cells import Family
from .curve import Curve, bracket, crossing, shape_error, shapes, step
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


MISFIT = 0.05
"""Distance of ln N* from the law (rms) that is worth a warning, if it is also more than twice the noise."""


class Misfit(NamedTuple):
    """Distance of ln N* from the law (rms), and the distance that noise alone would give."""

    rms: float
    noise: float


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

    def shape_of(self, weights: np.ndarray) -> np.ndarray:
        """Standard deviation that the unknown shape of the curves gives weights @ ln N* of the law's cells, (..., cells) -> (...).

        All curves are taken to have one shape, whichever it is, so its error cancels in part: range over the shapes / sqrt(12).
        Where a rise falls between two levels, the cells err independently, and a cell and its copies as one.
        """
        by_shape, steps = self._shapes
        weights = np.nan_to_num(weights)
        copies = self.law.evidence[:, None] == np.unique(self.law.evidence)
        return np.hypot(np.ptp(weights @ by_shape, axis=-1), np.linalg.norm((weights * steps) @ copies, axis=-1)) / 12**0.5

    @cached_property
    def _shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the cells in the law: ln N* by shape, (cells, shapes), and the step that the whole rise falls into, (cells,)."""
        mine = [c for c, is_in in zip(self.curves, self.inside, strict=True) if is_in]
        by_shape = np.array([shapes(c, self.theta) for c in mine]).reshape(len(mine), -1) if mine else np.zeros((0, 1))
        return by_shape, np.array([step(c, self.theta) for c in mine])

    @cached_property
    def misfit(self) -> Misfit | None:
        """How far the cells lie from the law; None with no more distinct cells than unknowns, or without resamplings."""
        free = self.law.n_distinct - self.law.rank
        if free < 1:
            return None
        off = self.law.residuals(self.y[REPORTED][:, self.inside])
        drawn = ((off[1:] - off[0]) ** 2).sum(axis=1)  # what the seeds share cancels here and in off
        noise = np.nanmean(drawn) / free + np.mean(self.shape[self.inside] ** 2) if np.isfinite(drawn).any() else np.nan
        return Misfit(float(np.sqrt((off[0] ** 2).sum() / free)), float(np.sqrt(noise)))

    @property
    def rejected(self) -> bool:
        """Whether the cells lie further from the law than the noise explains."""
        return self.misfit is not None and self.misfit.rms > max(2 * self.misfit.noise, MISFIT)

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
