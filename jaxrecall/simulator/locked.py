"""Further steps where attention is locked: a sample is then its informative token, so V weighted tokens stand for all samples.

A step may be taken so only while a bound allows it, which is computed from the attention logits and the parameters of that step.
Otherwise it reads its samples. Sums and bounds are ours.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from ..model.training import MAX_STEPS, OPTIMIZERS
from . import gradient, pairs
from .attention import Scores
from .features import features
from .gradient import Parameters, State
from .loops import over_chosen, over_vocabulary, scatter_add, token_counts
from .shortcut import LOCKED_NATS, nats_ahead
from .world import World, f32, i32, values

TOLERANCE = 2.0**-20
"""Largest change of a trained parameter, relative to its norm, that all steps of a run may leave out together."""


def shares(world: World, key: Array, step: Array) -> Array:
    """(V,): the part of the samples of a further step that has each informative token; `key` is the stream of all N."""
    if world.shape.pool:
        return pairs.shares(world)
    if not world.shape.batched:
        return token_counts(world, key, world.run.N).astype(f32) / world.run.N.astype(f32)
    counts = over_chosen(
        world,
        step,
        world.run.batch,
        lambda items, real, counts: scatter_add(counts, world.tokens(items, 0), real.astype(i32)),
        jnp.zeros(world.shape.V, i32),
    )
    return counts.astype(f32) / world.run.batch.astype(f32)


def may_group(world: World, params: Parameters, w: Array, scores: Scores) -> Array:
    """Whether a step may read weighted tokens, and whether that is less work than its samples.

    The informative token is ahead of any other by `nats_ahead`, so all others together have at most the share
    s = (L - 1) exp(-nats) of its weight. Two things are left out:

    - what others add to h moves the contribution of a sample by s of its size: rounding from LOCKED_NATS + ln L on;
    - gradients that others alone have, by w, by the embeddings of tokens that are noise, and along their values. All are at most
      s times a product of norms, `size` below, however small the gradient beside them is. An optimiser that divides by the size of
      a gradient makes steps of them, so they are bounded with its gain, over as many steps as a run can have.
    """
    nats = nats_ahead(world, scores) - jnp.log(world.run.L.astype(f32))
    read = None if world.shape.pool else world.run.batch if world.shape.batched else world.run.N
    pays = jnp.bool_(True) if read is None else world.run.V <= read
    return pays & (nats >= LOCKED_NATS) & (nats >= log_left_out(world, params, w) - jnp.log(f32(TOLERANCE)))


def unread(world: World, grouped: Array) -> World:
    """The world where vmapped runs, which make both kinds of a step, read a sample at most if grouped."""
    if not world.vmapped:
        return world
    name = "batch" if world.shape.batched else "N"
    return replace(world, run=world.run.replace(**{name: jnp.where(grouped, 1, getattr(world.run, name))}))


def log_left_out(world: World, params: Parameters, w: Array) -> Array:
    """Log of a bound on what all steps leave out of a parameter over its norm, where the share of others is one.

    With r = p - e_y, |r| <= 2, and D the largest difference of two values or two keys: by h a loss has the slope
    b = W_in^T phi' V_mat^T Z_out^T r. Others add a b^T (v - h) k to the gradient of w, at most a |b| D D; a b^T (v - h) w to
    that of a key; a b to that of a value; and a r phi^T, a V_mat phi, a h b to those of V_mat, Z_out and W_in, phi less that of the
    informative token. A product of all these norms, each plus one, is above any of them.
    """
    run, e = world.run, world.e

    def norm(a: Array) -> Array:
        return jnp.sqrt(jnp.sum(a * a))

    longest = jnp.sqrt(jnp.max(jnp.sum(e.Z_in * e.Z_in, axis=1)))
    apart = 2 * longest + norm(e.z_trig)
    outer = jnp.sqrt(jnp.max(jnp.sum(e.Z_out * e.Z_out, axis=1)))
    steep = f32(1) if e.W_in is None else norm(e.W_in) * jnp.max(jnp.abs(features(world, values(world))[1]))
    sizes = jnp.stack([outer, norm(params["V_mat"]), steep, apart, apart, norm(w), norm(e.z_eos), norm(e.z_eos)])
    least = jnp.min(jnp.stack([norm(parameter) for parameter in params.values()]))
    rate = jnp.maximum(run.lr, run.lr_attention)
    factor = 4 * MAX_STEPS * OPTIMIZERS[world.shape.optimizer].gain
    return jnp.sum(jnp.log1p(sizes)) + jnp.log(rate) + jnp.log(f32(factor)) - jnp.log(least)


def over_tokens(world: World, state: State, wanted: Collection[str], weights: Array) -> Parameters:
    """The gradient with respect to `wanted`, of the mean loss of tokens with weights (V,), attention on each alone.

    It is that of the sum of r^T logits with r held, as over pairs. That of w is zero.
    """
    values_of = {name: state.V_mat if name == "V_mat" else getattr(world.e, name) for name in wanted if name != "w"}

    def held(parameters: Parameters, v: Array, weight: Array) -> Array:
        here = replace(world, e=replace(world.e, **{name: value for name, value in parameters.items() if name != "V_mat"}))
        phi, _ = features(here, values(here).at[v].get(mode="clip"))
        logits = gradient.mapped(gradient.output_maps(here, parameters["V_mat"]), phi)
        return weight @ gradient.slope_along(world, logits, world.perm.at[v].get(mode="clip"))

    def rows(v: Array, real: Array, so_far: Parameters) -> Parameters:
        weight = jnp.where(real, weights.at[v].get(mode="clip"), f32(0))
        return jax.tree.map(jnp.add, so_far, jax.grad(held)(values_of, v, weight))

    found = over_vocabulary(world, rows, jax.tree.map(jnp.zeros_like, values_of))
    return found | ({"w": jnp.zeros(world.shape.d, f32)} if "w" in wanted else {})
