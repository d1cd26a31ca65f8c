"""Training beyond the recipe: steps of an optax optimiser on the loss of all samples or of a batch, and a record now and then.

The gradient is that of the exact softmax, streamed over samples and positions like the steps of the recipe (`backward.py`); with a
pool it is that of all pairs, weighted. `model/reference/descent.py` trains the plain model. Ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from ..model import keys
from ..model.training import ELEMENTWISE, MAX_RECORDED, MAX_STEPS, TRAINS, first_step, recorded_steps
from . import backward, losses, metrics
from .backward import Parameters
from .tiles import keep_noise, over_chosen, over_samples, unless_zero
from .world import Trained, World, f32, i32, zeros_dp

UPDATES: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd": lambda: optax.sgd(1.0),
    "momentum": lambda: optax.sgd(1.0, momentum=0.9),
    "adam": lambda: optax.adam(1.0),
    "adamw": lambda: optax.adamw(1.0),
}
"""Optimisers at rate 1: a run multiplies their updates by its own rates, so that one program serves all rates."""


def trace(world: World, trained: Trained) -> dict[str, Any]:
    """Raw metrics at every recorded step, each with a leading axis MAX_RECORDED; `trained` is the model after the recipe, or zero."""
    first = first_step(world.shape.start)
    candidates = jnp.array(recorded_steps(world.shape.start, MAX_STEPS), i32)
    fixed_w = trained.rate * trained.w
    stepping = world if world.axis or world.shape.pool or world.shape.batched else keep_noise(world)
    params = start(world, trained)
    optimizer = UPDATES[world.shape.optimizer]()

    def one(step: Array, state: tuple[Parameters, Any]) -> tuple[Parameters, Any]:
        params, memory = state
        slope = gradient(stepping, params, fixed_w, step)
        updates: Any
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            updates, memory = optimizer.update(slope, memory, params)
        return {name: params[name] + rate_of(world, name) * update for name, update in updates.items()}, memory

    def until(c: Array, carry: Any) -> Any:
        done, state, records = carry
        target = jnp.minimum(candidates[c], world.run.steps)
        state = lax.fori_loop(done, target, one, state)
        record = recorded(world, state[0], fixed_w, trained.V1, target)
        return target, state, jax.tree.map(lambda all, this: all.at[c].set(this), records, record)

    shapes = jax.eval_shape(lambda: recorded(world, params, fixed_w, trained.V1, i32(first)))
    records = jax.tree.map(lambda a: jnp.zeros((MAX_RECORDED, *a.shape), a.dtype), shapes)
    n_recorded = jnp.sum((candidates < world.run.steps).astype(i32), dtype=i32) + 1
    return lax.fori_loop(0, n_recorded, until, (i32(first), (params, optimizer.init(params)), records))[2]


def start(world: World, trained: Trained) -> Parameters:
    """The parameters at the first step, at their true scale."""
    e, w = world.e, trained.rate * trained.w
    attention: Parameters = {}
    if world.shape.trains != "V":
        in_full = world.shape.optimizer in ELEMENTWISE
        attention = {"W_KQ": w[:, None] * (e.z_eos / jnp.sum(e.z_eos * e.z_eos))[None]} if in_full else {"w": w}
    more = {name: getattr(e, name) for name in TRAINS[world.shape.trains]}
    return {"V_mat": world.run.scale * trained.V2, **attention, **more}


def zero(world: World) -> Trained:
    """The untrained model."""
    nothing = zeros_dp(world)
    return Trained(nothing, jnp.zeros(world.shape.d, f32), f32(1), nothing)


def rate_of(world: World, name: str) -> Array:
    """The learning rate of a parameter. A step of W_KQ along g z_eos^T moves w by |z_eos|^2 g."""
    if name not in ("w", "W_KQ"):
        return world.run.lr
    z_eos = world.e.z_eos
    return world.run.lr_attention * (jnp.sum(z_eos * z_eos) if name == "w" else f32(1))


def moved(world: World, params: Parameters) -> World:
    """The world with embeddings and layers as trained so far."""
    return replace(world, e=replace(world.e, **{name: params[name] for name in TRAINS[world.shape.trains]}))


def attention_of(world: World, params: Parameters, fixed_w: Array) -> Array:
    """w = W_KQ z_eos, `fixed_w` where it is not trained."""
    return params["W_KQ"] @ world.e.z_eos if "W_KQ" in params else params.get("w", fixed_w)


def samples_of(world: World, step: Array) -> Array:
    """Stream of the samples that gradient step 0, 1, ... reads."""
    return jnp.where(
        world.run.fresh_batches, keys.fold(keys.stream(world.run.streams, "train"), step.astype(jnp.uint32)), world.run.batches[0]
    )


def gradient(world: World, params: Parameters, fixed_w: Array, step: Array) -> Parameters:
    """The gradient of the mean loss of gradient step `step`."""
    if world.shape.pool:
        return jax.grad(lambda p: losses.of_pairs(moved(world, p), p["V_mat"], attention_of(world, p, fixed_w)))(params)
    found = streamed(moved(world, params), params, attention_of(world, params, fixed_w), step)
    if "W_KQ" in params:
        found["W_KQ"] = found["w"][:, None] * world.e.z_eos[None]
    return {name: found[name] for name in params}


def streamed(world: World, params: Parameters, w: Array, step: Array) -> Parameters:
    """The gradient with respect to V_mat, w and all of TRAINS, a tile of samples at a time."""
    run = world.run
    way = backward.way_of(world, params["V_mat"], losses.scores_of(world, w), w)

    def tile(blocks: keys.Addresses, real: Array, sums: Parameters) -> Parameters:
        new = way.tile(blocks, real)
        return {name: sums[name] + new[name] for name in sums}

    start = {name: jnp.zeros(size, f32) for name, size in way.sizes.items()}
    if world.shape.batched:
        n, total = run.batch, over_chosen(world, step, run.batch, tile, start)
    else:
        n, total = run.N, over_samples(world, samples_of(world, step), run.N, tile, start)
    return way.gradient({name: part / n.astype(f32) for name, part in total.items()})


def recorded(world: World, params: Parameters, fixed_w: Array, V1: Array, step: Array) -> dict[str, Array]:
    """Raw metrics of the model as trained so far, its losses and norms."""
    w, V_mat = attention_of(world, params, fixed_w), params["V_mat"]
    last = samples_of(world, jnp.maximum(step - 1, 0))
    now = moved(replace(world, run=replace(world.run, batches=jnp.broadcast_to(last, (3, 2)))), params)
    raw = metrics.measure(now, Trained(V1, w, f32(1), V_mat))
    loss, test_loss = losses.of_samples(now, V_mat, w)
    finite = jnp.stack([jnp.all(jnp.isfinite(a)) for a in (loss, test_loss, *params.values())])
    return raw | {
        "loss": loss,
        "test_loss": test_loss,
        "norms": norms(now, params, w),
        "finite": raw["finite"] & jnp.all(finite),
        "draw_check": metrics.draw_check(world),
    }


def norms(world: World, params: Parameters, w: Array) -> Array:
    """(6,): norms of V_mat and W_KQ, and of the rows of Z_in and Z_out with their overlaps, as the columns of a trace say."""
    e, V = world.e, world.run.V.astype(f32)

    def rows(Z: Array) -> tuple[Array, Array]:
        square = jnp.sum(Z * Z, axis=1)
        unit = Z * lax.rsqrt(unless_zero(square))[:, None]
        gram = unit.T @ unit
        return jnp.sqrt(jnp.sum(square) / V), jnp.sqrt(jnp.maximum(jnp.sum(gram * gram) - V, 0) / (V * (V - 1)))

    W_KQ = jnp.sqrt(jnp.sum(params["W_KQ"] ** 2)) if "W_KQ" in params else jnp.sqrt(jnp.sum(w * w) / jnp.sum(e.z_eos * e.z_eos))
    (norm_in, overlap_in), (norm_out, overlap_out) = rows(e.Z_in), rows(e.Z_out)
    return jnp.stack([jnp.sqrt(jnp.sum(params["V_mat"] ** 2)), W_KQ, norm_in, norm_out, overlap_in, overlap_out])
