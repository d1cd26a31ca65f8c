"""The score noise of one run, split by where it comes from: float32, padded. `model/reference/noise.py` has the same to read."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from ..model import embeddings
from ..model.point import REDRAWS
from .loops import unless_zero
from .world import World, centred, f32


def over_redraws(world: World, first_steps: Callable[[World], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Mean of w_hat over redraws of W_in with data and embeddings held, and the largest error bound of step 2 among them.

    `first_steps` gives w_hat and the error of steps 1 and 2, in the form of the run itself; an exact form has error 0.
    """
    run, shape = world.run, world.shape

    def one(r: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, largest = carry
        W_in = embeddings.redrawn_first_layer(run.streams, r, run.d, run.m, (shape.m, shape.d))
        w, error = first_steps(eqx.tree_at(lambda w: w.e.W_in, world, W_in))
        return total + w, jnp.maximum(largest, error)

    total, error = lax.fori_loop(0, REDRAWS, one, (jnp.zeros(shape.d, f32), f32(0)))
    return total / REDRAWS, error


def split(world: World, w: Array, mean_w: Array) -> Array:
    """(4, d): w as the sum of its parts, in the order of `model.reference.noise.NOISES`; `mean_w` is its mean over redraws of W_in.

    Along z_trig; of the rest along Sigma_c zbar, the covariance of the rows of Z_in times their mean; of the rest, what
    differs from the mean over redraws; and that mean. Where Sigma_c zbar has no direction of its own (orthogonal
    embeddings), there is no such part.
    """
    e, V = world.e, world.run.V.astype(f32)
    rows = centred(world, e.Z_in)
    zbar = jnp.sum(e.Z_in, axis=0) / V
    trigger = e.z_trig / jnp.sqrt(jnp.sum(e.z_trig * e.z_trig))
    drift = (rows @ zbar) @ rows / V
    own = drift - (drift @ trigger) * trigger
    length = jnp.sqrt(jnp.sum(own * own))
    rounding = jnp.sqrt(jnp.sum(drift * drift)) + jnp.sum(rows * rows) * jnp.sqrt(jnp.sum(zbar * zbar)) / (V * V)
    bias = jnp.where(length > 1e-5 * rounding, own / unless_zero(length), f32(0))

    def rest(x: Array) -> Array:
        return x - (x @ trigger) * trigger - (x @ bias) * bias

    return jnp.stack([(w @ trigger) * trigger, (w @ bias) * bias, rest(w) - rest(mean_w), rest(mean_w)])


def covariances(world: World, w_hat: Array, mean_w: Array) -> Array:
    """(4, 4): covariances over the vocabulary of the scores of the parts, for w_hat scaled to a largest entry of 1."""
    scale = unless_zero(jnp.max(jnp.abs(w_hat)))
    scores = centred(world, world.e.Z_in) @ split(world, w_hat / scale, mean_w / scale).T
    return scores.T @ scores / world.run.V.astype(f32)
