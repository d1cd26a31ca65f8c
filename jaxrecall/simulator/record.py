"""What is measured of a run: after the recipe, and at each recorded step of an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from . import losses, metrics, noise
from .loops import unless_zero
from .world import Trained, World


def after_recipe(world: World, trained: Trained, first_steps: Callable[[World], tuple[Array, Array]]) -> dict[str, Any]:
    """Raw metrics of the model, and the bounds on its error; `rows.finish` makes columns of them.

    `first_steps` trains steps 1 and 2 alone, for redraws of W_in.
    """
    raw: dict[str, Any] = metrics.measure(world, trained)
    errors = trained.errors
    if world.shape.diagnose:
        mean_w, error = noise.over_redraws(world, first_steps) if world.shape.m else (trained.w, jnp.float32(0))
        raw["noise"] = noise.covariances(world, trained.w, mean_w)
        errors = errors and (jnp.maximum(errors[0], error), errors[1])
    if world.shape.decoders:
        e = world.e
        raw["decoders"] = {"perm": world.perm, "G1": trained.V1, "Z_in": e.Z_in, "Z_out": e.Z_out, "z_trig": e.z_trig}
    return raw | {"errors": errors, "locked": trained.locked}


def at_step(world: World, params: dict[str, Array], w: Array, V1: Array, last: Array) -> dict[str, Array]:
    """Raw metrics, losses and norms of a model with parameters at their true scale; `last` is the stream of the last samples.

    The embeddings of the world are those that were trained.
    """
    V_mat = params["V_mat"]
    draws = metrics.draw_check(world)
    world = replace(world, run=replace(world.run, batches=jnp.broadcast_to(last, (3, 2))))
    raw = metrics.measure(world, Trained(V1, w, jnp.float32(1), V_mat))
    loss, test_loss = losses.train_and_test(world, V_mat, w)
    finite = jnp.stack([jnp.all(jnp.isfinite(a)) for a in (loss, test_loss, *params.values())])
    return raw | {
        "loss": loss,
        "test_loss": test_loss,
        "norms": norms(world, params, w),
        "finite": raw["finite"] & jnp.all(finite),
        "draw_check": draws,
    }


def norms(world: World, params: dict[str, Array], w: Array) -> Array:
    """(6,): norms of V_mat and W_KQ, and of the rows of Z_in and Z_out with their overlaps, as the columns of a trace say."""
    e, V = world.e, world.run.V.astype(jnp.float32)

    def rows(Z: Array) -> tuple[Array, Array]:
        square = jnp.sum(Z * Z, axis=1)
        unit = Z * lax.rsqrt(unless_zero(square))[:, None]
        gram = unit.T @ unit
        return jnp.sqrt(jnp.sum(square) / V), jnp.sqrt(jnp.maximum(jnp.sum(gram * gram) - V, 0) / (V * (V - 1)))

    W_KQ = jnp.sqrt(jnp.sum(params["W_KQ"] ** 2)) if "W_KQ" in params else jnp.sqrt(jnp.sum(w * w) / jnp.sum(e.z_eos * e.z_eos))
    (norm_in, overlap_in), (norm_out, overlap_out) = rows(e.Z_in), rows(e.Z_out)
    return jnp.stack([jnp.sqrt(jnp.sum(params["V_mat"] ** 2)), W_KQ, norm_in, norm_out, overlap_in, overlap_out])
