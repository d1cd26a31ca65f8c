"""Training beyond the three steps of the paper: what it trains, at
which rates, and the steps that a run records. All ours.

A run that trains on starts from the model after the three steps, or from V_mat = 0 and
W_KQ = 0, and descends the same loss by an optimiser of optax until `steps` gradient
steps are made in total. Each recorded step is a row of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from .laws import OptimizerLaw

if TYPE_CHECKING:
    import optax

    from .point import Point

RECIPE_STEPS = 3
"""Gradient steps of the paper's recipe."""

MAX_STEPS = 10**6

STARTS = ("three_step", "zero")
"""Where further steps start: from the recipe's model, or from zero."""


TRAINS = {"VW": (), "V": (), "VWZ": ("Z_in", "Z_out", "z_trig"), "VWZM": ("Z_in", "Z_out", "z_trig", "W_in")}
"""What may be trained, by name: V_mat always, W_KQ in all but V, and these embeddings and layers."""


def transformation(point: Point) -> optax.GradientTransformation:
    """The optax.GradientTransformation of the further steps of a Point, for parameters by name.

    V_mat, W_KQ (d, d) and the embeddings and layers that are trained have their rates in it, and
    its updates are added to them. Equal settings give the same object.
    """
    return _transformation(point.optimizer_law, point.lr, point.lr_attention, point.trains, point.further_steps)


@lru_cache(64)
def _transformation(law: OptimizerLaw, lr: float, lr_attention: float, trains: str, steps: int) -> optax.GradientTransformation:
    return law.descent({"V_mat": lr, "W_KQ": lr_attention} | dict.fromkeys(TRAINS[trains], lr), steps)


def recorded_steps(start: str, steps: int) -> tuple[int, ...]:
    """The steps of a run that have a row: the first, then 1, 2 and 5 of each decade, then the last.

    >>> recorded_steps("three_step", 100)  # 3, 5, 10, 20, 50, 100
    """
    first = first_step(start)
    decades = (k * 10**e for e in range(7) for k in (1, 2, 5))
    return tuple(dict.fromkeys((first, *(step for step in decades if first < step < steps), steps)))


def first_step(start: str) -> int:
    """Steps that are made before the optimiser takes over."""
    return RECIPE_STEPS if start == "three_step" else 0


MAX_RECORDED = len(recorded_steps("zero", MAX_STEPS))
