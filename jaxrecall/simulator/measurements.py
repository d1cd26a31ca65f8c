"""Computes the results of a program for one run: counts, sums, losses and norms.

On the host, `rows.finish` computes columns from these results.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from ..errors import UsageError
from ..model.columns import Drawn
from . import metrics
from .arrays import f32, norm, unless_zero
from .gradient import Parameters
from .score_noise import covariances, over_redraws
from .sources.source import find_source
from .world import Trained, World, reading

Raw = dict[str, PyTree]
"""The results of a program for one run: columns, and numbers from which other columns
are computed.
"""


def after_recipe(world: World, model: Trained) -> Raw:
    """The raw metrics of the model after the recipe, and the error bounds of the
    recipe.
    """
    raw: Raw = metrics.measure(world, model)
    errors = model.errors
    if world.shape.diagnose:
        mean_w, error = model.w, f32(0)
        if world.shape.m:
            mean_w, error = over_redraws(world)
        raw["noise"] = covariances(world, model.w, mean_w)
        errors = errors and (jnp.maximum(errors[0], error), errors[1])
    if world.shape.decoders:
        e = world.e
        raw["decoded"] = {
            "perm": world.perm,
            "G1": model.V1,
            "Z_in": e.Z_in,
            "Z_out": e.Z_out,
            "z_trig": e.z_trig,
        }
    raw["own"] = compute_own_columns(world, model)
    return raw | {"errors": errors, "locked": model.locked}


def at_step(
    world: World, params: Parameters, w: Array, first: Trained, last: Array
) -> Raw:
    """The raw metrics, losses and norms of a model at a recorded further step.

    `params` and w have no scale factors, and the world contains the trained embeddings.
    `first` is the model at the start of the descent. `last` is the stream of the most
    recent samples.
    """
    draws = metrics.draw_check(world)
    world = reading(world, last)
    V_mat = params["V_mat"]
    model = Trained(first.V1, w, V_mat, first.V1_scale, f32(1), f32(1))
    raw = metrics.measure(world, model)
    loss, test_loss = find_source(world).losses(world, V_mat, w)
    numbers = (loss, test_loss, *params.values())
    finite = jnp.stack([jnp.all(jnp.isfinite(a)) for a in numbers])
    return raw | {
        "loss": loss,
        "test_loss": test_loss,
        "norms": norms(world, params, w),
        "own": compute_own_columns(world, model),
        "finite": raw["finite"] & jnp.all(finite),
        "draw_check": draws,
    }


KINDS = {"int64": jnp.integer, "bool": jnp.bool_}
"""The dtypes of user-defined columns that are not floats."""


def compute_own_columns(world: World, model: Trained) -> dict[str, Array]:
    """A dict of the values of the user-defined columns."""
    e, learned = world.e, model.learned()
    draws = Drawn(e.Z_in, e.Z_out, e.z_trig, e.z_eos, e.W_in, world.perm)
    values = {}
    for column in world.shape.columns:
        value = jnp.asarray(column.fn(draws, learned))
        kind, _ = column.declared
        fits = jnp.issubdtype(value.dtype, KINDS.get(kind, jnp.floating))
        if value.shape or not fits:
            raise UsageError(
                f"columns.{column.name}: {column.path} returned {value.dtype}"
                f" {value.shape}; allowed: one {kind}"
            )
        values[column.name] = value
    return values


def norms(world: World, params: Parameters, w: Array) -> Array:
    """The columns `rows.NORMS` as an array (6,): the norms of V_mat and W_KQ, and the
    norms and overlaps of rows.

    The norms and overlaps of rows are computed for Z_in and for Z_out.
    """
    e, V = world.e, world.run.V.astype(f32)

    def of_rows(Z: Array) -> tuple[Array, Array]:
        square = jnp.sum(Z * Z, axis=1)
        unit = Z * lax.rsqrt(unless_zero(square))[:, None]
        gram = unit.T @ unit
        overlap = jnp.maximum(jnp.sum(gram * gram) - V, 0) / (V * (V - 1))
        return jnp.sqrt(jnp.sum(square) / V), jnp.sqrt(overlap)

    W_norm = jnp.sqrt(jnp.sum(w * w) / jnp.sum(e.z_eos * e.z_eos))
    if "W_KQ" in params:
        W_norm = norm(params["W_KQ"])
    norm_in, overlap_in = of_rows(e.Z_in)
    norm_out, overlap_out = of_rows(e.Z_out)
    V_norm = norm(params["V_mat"])
    return jnp.stack([V_norm, W_norm, norm_in, norm_out, overlap_in, overlap_out])
