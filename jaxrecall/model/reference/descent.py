"""Training beyond the recipe, written readably with the plain loss, jax.grad and optax
in float64.

The simulator computes the same steps in float32. Where W_KQ moves along z_eos^T alone,
the simulator stores only w = W_KQ z_eos. Here W_KQ is the whole d x d matrix, so a
comparison also checks that storing w is enough. The paper has no such training.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy import ndarray

from .. import functional
from .. import recall as model
from ..laws import OptimizerLaw
from ..point import TRAINS, Point, first_step
from ..task import Embeddings
from .realization import EMBEDDINGS, Realization, expect_both
from .steps import three_step

Theta = dict[str, Any]
"""A dict from the names of parameters to their values."""


class Descended(NamedTuple):
    """The parameters and losses of a run at one of its recorded steps, in float64."""

    step: int  # the number of gradient steps so far, including the recipe's
    # mean cross-entropy (nats) of the N samples, those of the last step if fresh
    loss: float
    test_loss: float  # mean cross-entropy (nats) of the test sequences
    # (d, p) V_mat after step 1 of the recipe, p = d or m; None if the start is zero
    V1: ndarray | None
    V_mat: ndarray  # (d, p)
    W_KQ: ndarray  # (d, d)
    Z_in: ndarray  # (V, d)
    Z_out: ndarray  # (V, d)
    z_trig: ndarray  # (d,)
    z_eos: ndarray  # (d,)
    W_in: ndarray | None  # (m, d); None without an MLP

    @property
    def w(self) -> ndarray:
        """The vector W_KQ z_eos (d,)."""
        return self.W_KQ @ self.z_eos


def descend(realization: Realization, point: Point) -> list[Descended]:
    """Returns the model at each recorded step of the point's optimizer.

    The start is V_mat = 0 and W_KQ = 0, or the output of `three_step`: V_mat = V2 and
    W_KQ = w z_eos^T / |z_eos|^2. A step is

        theta <- theta + rate update(grad_theta loss)

    with the rate lr_attention for W_KQ and lr for all else. The whole batch is in
    memory at once and needs at least 8 N L d bytes. A run that overflows continues with
    infinities and NaN. Raises ValueError for a point without further steps.

        >>> from jaxrecall import Point, descend, realize
        >>> further = {"steps": 100, "lr": 20, "optimizer": "sgd"}
        >>> point = Point(V=64, N=1024, d=32, L=8, gamma2=64, **further)
        >>> for learned in descend(realize(point, seed=0), point):
        ...     print(learned.step, learned.loss)  # 3, 5, 10, 20, 50, 100
    """
    expect_both(realization, point)
    if not point.trains_on:
        raise ValueError(
            f"point: got steps={point.steps}, start='three_step', the recipe alone;"
            " allowed: steps > 3, or start='zero'"
        )
    settings = point.activation, point.trigger_in_value
    rates = dict.fromkeys(("V_mat", *TRAINS[point.trains or ""]), point.lr)
    if point.lr_attention:
        rates["W_KQ"] = point.lr_attention
    first = first_step(point.start)
    recorded = np.array(point.recorded_steps) - first
    models = []
    with jax.enable_x64(True):
        V1, theta = start(realization, point)
        kept = _train(
            theta,
            rates,
            realization,
            recorded,
            first,
            point.optimizer,
            settings,
        )
        for i, step in enumerate(point.recorded_steps):
            now = theta | {name: np.asarray(values[i]) for name, values in kept.items()}
            batch = realization.samples(max(step - 1, 0))
            loss = float(_loss(now, batch, settings))
            test_loss = float(_loss(now, realization.test, settings))
            models.append(Descended(step, loss, test_loss, V1, **now))
    return models


def start(realization: Realization, point: Point) -> tuple[ndarray | None, Theta]:
    """Returns V1 and the parameters from which the optimizer starts, in float64.

    V1 is None if the optimizer starts from zero.
    """
    r = realization.astype(np.float64)
    theta = dict(zip(EMBEDDINGS, r, strict=False))
    if point.start == "three_step":
        V1, w, V2 = three_step(r, point)
        W_KQ = np.outer(w, r.z_eos) / (r.z_eos @ r.z_eos)
    else:
        V1, V2 = None, np.zeros((point.d, point.p))
        W_KQ = np.zeros((point.d, point.d))
    return V1, theta | {"V_mat": V2, "W_KQ": W_KQ}


@partial(jax.jit, static_argnames="settings")
def _loss(theta: Theta, batch: tuple[Array, ...], settings: tuple[Any, bool]) -> Array:
    """Returns the plain loss as a function of all parameters. `settings` are the
    activation and whether the trigger is in the values.
    """
    embeddings = Embeddings(*(theta[name] for name in EMBEDDINGS))
    recall = model.Recall(theta["V_mat"], theta["W_KQ"], embeddings, *settings)
    return model.loss(recall, *batch)


@partial(jax.jit, static_argnames=("law", "settings"))
def _train(
    theta: Theta,
    rates: Theta,
    r: Realization,
    recorded: Array,
    first: int,
    law: OptimizerLaw,
    settings: tuple[Any, bool],
) -> Theta:
    """Returns the trained parameters after each number of further steps in `recorded`.
    They are the parameters in `rates`. `theta` contains all parameters at the start.

    The last number in `recorded` is the number of all further steps. `first` steps were
    made before them.
    """

    def batch_of(t: Array) -> tuple[Array, ...]:
        samples = r.samples(first + t)
        if r.train_items is None:
            return samples
        return tuple(part[r.train_items[t]] for part in samples)

    def loss(moved: Theta, batch: tuple[Array, ...]) -> Array:
        return _loss(theta | moved, batch, settings)

    moved = {name: theta[name] for name in rates}
    steps = recorded[-1]
    optimizer = law.descent(rates, steps)
    _, kept = functional.train(loss, moved, batch_of, optimizer, steps, recorded)
    return kept
