"""Training beyond the recipe, to read: the plain loss, by jax.grad and optax in
float64.

The simulator takes the same steps in float32, and where W_KQ moves along z_eos^T alone
it keeps only w = W_KQ z_eos. Here W_KQ is the whole d x d matrix, so this judges that
too. All of this is ours.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from .. import functional
from .. import recall as model
from ..laws import OptimizerLaw
from ..point import TRAINS, Point, first_step
from ..task import Embeddings
from .realization import Realization, expect_both
from .steps import EMBEDDINGS, three_step

Parameters = dict[str, Any]


class Descended(NamedTuple):
    """The model of a run at one of its recorded steps, float64."""

    step: int  # gradient steps made so far, those of the recipe among them
    # mean cross-entropy of the N samples (nats), with fresh batches of the last step's
    loss: float
    test_loss: float  # the same of the test sequences
    V1: (
        np.ndarray | None
    )  # (d, p) V_mat after step 1 of the recipe, p = d or m; None from zero
    V_mat: np.ndarray  # (d, p)
    W_KQ: np.ndarray  # (d, d)
    Z_in: np.ndarray  # (V, d)
    Z_out: np.ndarray  # (V, d)
    z_trig: np.ndarray  # (d,)
    z_eos: np.ndarray  # (d,)
    W_in: np.ndarray | None  # (m, d); None without an MLP

    @property
    def w(self) -> np.ndarray:
        """(d,) W_KQ z_eos."""
        return self.W_KQ @ self.z_eos


def descend(realization: Realization, point: Point) -> list[Descended]:
    """What the point's optimizer makes of the model, at each of its recorded steps.

        start        V_mat = 0, W_KQ = 0, or from `three_step`: V_mat = V2, W_KQ = w
            z_eos^T / |z_eos|^2
        each step    theta <- theta + rate update(grad_theta loss),   rate =
            lr_attention for W_KQ and lr for all else

    The whole batch is held at once: memory is 8 N L d bytes and more. A run that
    overflows goes on with numbers that are not finite. Raises ValueError for a point
    without further steps.

        >>> from jaxrecall import Point, descend, realize
        >>> point = Point(V=64, N=1024, d=32, L=8, gamma2=64, steps=100, lr=20,
            optimizer="sgd")
        >>> for learned in descend(realize(point, seed=0), point):
        ...     print(learned.step, learned.loss)  # 3, 5, 10, 20, 50, 100
    """
    expect_both(realization, point)
    if not point.trains_on:
        raise ValueError(
            f"point: got steps={point.steps}, start='three_step', the recipe alone;"
            " allowed: steps > 3, or start='zero'"
        )
    model_of = {
        "activation": point.activation,
        "trigger_in_value": point.trigger_in_value,
    }
    found = []
    with jax.enable_x64(True):
        V1, held = start(realization, point)
        trained = (
            "V_mat",
            *(("W_KQ",) if point.lr_attention else ()),
            *TRAINS[point.trains or ""],
        )
        moved = {name: held.pop(name) for name in trained}
        first = first_step(point.start)
        recorded = np.array(point.recorded_steps) - first
        rates = {
            name: point.lr_attention if name == "W_KQ" else point.lr for name in trained
        }
        kept = _train(
            moved,
            held,
            rates,
            realization,
            recorded,
            first,
            law=point.optimizer,
            **model_of,
        )
        for i, step in enumerate(point.recorded_steps):
            now = held | {name: np.asarray(values[i]) for name, values in kept.items()}
            sets = realization.samples(max(step - 1, 0)), realization.test
            loss, test_loss = (
                float(_loss(now, {}, samples, **model_of)) for samples in sets
            )
            found.append(Descended(step, loss, test_loss, V1, **now))
    return found


def start(
    realization: Realization, point: Point
) -> tuple[np.ndarray | None, Parameters]:
    """V1 of the recipe if it was followed, and what the optimizer starts from, by name.

    All are float64.
    """
    r = realization.astype(np.float64)
    V1, V_mat, W_KQ = None, np.zeros((point.d, point.p)), np.zeros((point.d, point.d))
    if point.start == "three_step":
        V1, w, V_mat = three_step(r, point)
        W_KQ = np.outer(w, r.z_eos) / (r.z_eos @ r.z_eos)
    return V1, {"V_mat": V_mat, "W_KQ": W_KQ} | {
        name: getattr(r, name) for name in EMBEDDINGS
    }


@partial(jax.jit, static_argnames=("activation", "trigger_in_value"))
def _loss(
    moved: Parameters,
    held: Parameters,
    batch: tuple[Array, ...],
    activation: str,
    trigger_in_value: bool,
) -> Array:
    """The plain loss, as a function of what moves."""
    theta = held | moved
    embeddings = Embeddings(*(theta[name] for name in EMBEDDINGS))
    return model.loss(
        model.Recall(
            theta["V_mat"], theta["W_KQ"], embeddings, activation, trigger_in_value
        ),
        *batch,
    )


@partial(jax.jit, static_argnames=("law", "activation", "trigger_in_value"))
def _train(
    moved: Parameters,
    held: Parameters,
    rates: Parameters,
    r: Realization,
    recorded: Array,
    first: int,
    law: OptimizerLaw,
    **model_of: Any,
) -> Parameters:
    """What moves, after each of the numbers of further steps in `recorded`, the last of
    which is all.

    `first` steps were made before.
    """

    def batch_of(t: Array) -> tuple[Array, ...]:
        samples = r.samples(first + t)
        return (
            samples
            if r.train_items is None
            else tuple(part[r.train_items[t]] for part in samples)
        )

    def loss(moved: Parameters, batch: tuple[Array, ...]) -> Array:
        return _loss(moved, held, batch, **model_of)

    return functional.train(
        loss, moved, batch_of, law.descent(rates, recorded[-1]), recorded[-1], recorded
    )[1]
