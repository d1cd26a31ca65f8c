"""Splits w into four parts, and computes the covariances of their attention scores."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from ..model import task
from ..model.point import REDRAWS
from .arrays import f32, norm, unless_zero
from .error_bounds import softmax_errors
from .recipe import first_steps
from .world import World, centred


def over_redraws(world: World) -> tuple[Array, Array]:
    """Returns the mean of w_hat over redraws of W_in, and the largest error bound of
    step 2.

    Data and embeddings are not redrawn. Steps 1 and 2 use the form of the run. In an
    exact form, the error bound is 0.
    """
    run, shape = world.run, world.shape
    size = shape.m, shape.d

    def one(r: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, largest = carry
        W_in = task.redrawn_first_layer(run.streams, r, run.d, run.m, size)
        redrawn = replace(world, e=replace(world.e, W_in=W_in))
        G1, A, w_hat, phi2 = first_steps(redrawn)
        if phi2 is not None:
            error, _ = softmax_errors(redrawn, G1, A, phi2, phi2)
            largest = jnp.maximum(largest, error)
        return total + w_hat, largest

    start = jnp.zeros(shape.d, f32), f32(0)
    total, largest = lax.fori_loop(0, REDRAWS, one, start)
    return total / REDRAWS, largest


def split(world: World, w: Array, mean_w: Array) -> Array:
    """The four parts of w, in the order of NOISES, as an array (4, d). They sum to w.

    The first part is along z_trig. Let Sigma_c be the covariance of the rows of Z_in,
    and zbar their mean. The second part is along the component of Sigma_c zbar that is
    orthogonal to z_trig. It is zero if this component is zero, as for orthogonal
    embeddings. The third and fourth parts sum to the rest of w. The fourth part is
    computed from `mean_w`, the mean of w over redraws of W_in, by removing the
    components along the first two parts.
    """
    e, V = world.e, world.run.V.astype(f32)
    rows = centred(world, e.Z_in)
    zbar = jnp.sum(e.Z_in, axis=0) / V
    trigger = e.z_trig / norm(e.z_trig)
    drift = (rows @ zbar) @ rows / V
    across = drift - (drift @ trigger) * trigger
    rounding = norm(drift) + jnp.sum(rows * rows) * norm(zbar) / (V * V)
    has_direction = norm(across) > 1e-5 * rounding
    bias = jnp.where(has_direction, across / unless_zero(norm(across)), f32(0))

    def rest(x: Array) -> Array:
        return x - (x @ trigger) * trigger - (x @ bias) * bias

    along_trigger, along_bias = (w @ trigger) * trigger, (w @ bias) * bias
    common = rest(mean_w)
    return jnp.stack([along_trigger, along_bias, rest(w) - common, common])


def covariances(world: World, w_hat: Array, mean_w: Array) -> Array:
    """The covariance matrix (4, 4) of the scores of the four parts of w. The
    covariances are taken over the vocabulary.

    First, w is divided by its largest absolute entry.
    """
    scale = unless_zero(jnp.max(jnp.abs(w_hat)))
    parts = split(world, w_hat / scale, mean_w / scale)
    scores = centred(world, world.e.Z_in) @ parts.T
    return scores.T @ scores / world.run.V.astype(f32)
