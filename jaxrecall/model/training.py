"""Training beyond the three steps of the paper: its optimisers,
what they train, and the steps that a run records. All ours.

A run that trains on starts from the model after the three steps, or from V_mat = 0 and
W_KQ = 0, and descends the same loss by an optimiser of optax until `steps` gradient
steps are made in total. Each recorded step is a row of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

RECIPE_STEPS = 3
"""Gradient steps of the paper's recipe."""

MAX_STEPS = 10**6

STARTS = ("three_step", "zero")
"""Where further steps start: from the recipe's model, or from zero."""


class Optimizer(NamedTuple):
    """An optimiser of optax, with the settings that optax
    has by default unless given. Rates multiply its updates.
    """

    factory: str
    """Name in optax of the function of a rate that makes it."""

    settings: Mapping[str, float] = MappingProxyType({})
    elementwise: bool = True
    """Whether it may scale each entry of W_KQ by itself. One that does not moves W_KQ
    along z_eos^T alone, so w = W_KQ z_eos is all of it, and is trained in its place."""
    gain: float = math.inf
    """How far apart two runs move an entry in a step at most, mean over steps, at rate
    1, for each unit by which their gradients differ. A finite one lets steps with
    locked attention read weighted tokens."""


GAIN_OF_ADAM = 4.2e8
"""m / (sqrt v + epsilon): m moves by 1 / epsilon, sqrt
v by as much times |m| / sqrt v, which is at most 3.2.
"""

OPTIMIZERS = {
    "sgd": Optimizer("sgd", elementwise=False, gain=1.0),
    "momentum": Optimizer("sgd", {"momentum": 0.9}, elementwise=False, gain=10.0),
    "adam": Optimizer("adam", gain=GAIN_OF_ADAM),
    "adamw": Optimizer("adamw", gain=GAIN_OF_ADAM),
}
"""Optimisers by name. One more entry is one more optimiser, and right without `elementwise` and `gain`.

By the defaults of optax adam and adamw have beta1 0.9, beta2 0.999, epsilon 1e-8, and
adamw weight decay 1e-4.
"""


@cache
def updates(name: str) -> Any:
    """The optax.GradientTransformation of an optimiser at rate 1, so that one program serves all rates."""
    import optax

    return getattr(optax, OPTIMIZERS[name].factory)(1.0, **OPTIMIZERS[name].settings)


TRAINS = {"VW": (), "V": (), "VWZ": ("Z_in", "Z_out", "z_trig"), "VWZM": ("Z_in", "Z_out", "z_trig", "W_in")}
"""What may be trained, by name: V_mat always, W_KQ in all but V, and these embeddings and layers."""


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
