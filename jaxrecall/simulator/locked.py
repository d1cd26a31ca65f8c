"""Further steps where attention is locked, and all steps at L = 1, from weighted tokens.

A sample is then its informative token, so V weighted tokens stand for all samples.

At L = 1 that is exact. Elsewhere a step reads weighted tokens only where a bound allows
it, which is computed from the attention logits and the parameters of that step, and
where they are no more than its samples. Otherwise it reads its samples. Sums and bounds
are ours.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from ..model import keys
from ..model.laws import find_law
from ..model.point import MAX_STEPS
from . import gradient, pairs
from .forward import Scores, activations, features
from .gradient import Parameters, State
from .loops import longest, n_of_step, norm, over_step, over_vocabulary, scatter_add
from .pool_draws import drawn_tokens, token_parts
from .shortcut import LOCKED_NATS, nats_ahead
from .world import World, f32, i32, stream_of_step, values

TOLERANCE = 2.0**-20
"""Most that dropping all other tokens may change a trained
parameter over MAX_STEPS steps, relative to its norm.
"""


def shares(world: World, step: Array) -> Array:
    """(V,): the part of the samples of further step `step` that has each informative token."""
    if world.shape.pool:
        return pairs.shares(world)
    stream = stream_of_step(world, step)
    if world.shape.memory and not world.shape.batched:
        return token_parts(world, stream)

    def tile(blocks: keys.Addresses, real: Array, counts: Array) -> Array:
        x = drawn_tokens(world, stream, blocks) if world.shape.memory else world.tokens(blocks, 0)
        return scatter_add(counts, x, real.astype(i32))

    return over_step(world, step, tile, jnp.zeros(world.shape.V, i32)).astype(f32) / n_of_step(world).astype(f32)


def may_group(world: World, params: Parameters, w: Array, scores: Scores) -> Array:
    """Whether weighted tokens are accurate enough for a step, and no more work than its samples.

    The informative token is ahead of any other by `nats_ahead`, which is ln L + lead.
    So all others together have less than the part s = exp(-lead) of its weight. From a
    lead of LOCKED_NATS on, what they add to h is rounding. They add at most s
    e^log_size to a gradient. An optimiser may divide by the size of a gradient, so this
    moves a parameter by up to rate and `gain` times as much. Over MAX_STEPS steps that
    must be within TOLERANCE of the norm of every parameter.
    """
    run, optimizer = world.run, find_law("optimizer", world.shape.optimizer)
    lead = nats_ahead(world, scores) - jnp.log(run.L.astype(f32))
    moved = jnp.log(jnp.maximum(run.lr, run.lr_attention)) + jnp.log(f32(optimizer.gain * MAX_STEPS / TOLERANCE))
    least = jnp.min(jnp.stack([norm(parameter) for parameter in params.values()]))
    pays = True if world.shape.pool else run.V <= n_of_step(world)
    return (lead >= LOCKED_NATS) & (lead >= log_size(world, params, w) + moved - jnp.log(least)) & pays


def log_size(world: World, params: Parameters, w: Array) -> Array:
    """Log of a bound on what other tokens add to any gradient, over their part of attention.

    It is to leading order in that part, s.

    Let D be above every difference of two values or keys, B above |W_in| times phi' or
    phi'' (1 without an MLP), F above |phi|, and O above the rows of Z_out. Others move
    h by s D, phi and phi' by s B D, a logit by s O |V_mat| B D, and r = p - e_y, whose
    entries add up to 2 at most, by twice that. The gradient of a loss by h is W_in^T
    phi' V_mat^T Z_out^T r, below 2 B O |V_mat|. A gradient changes by products of
    these, each once or twice: with a key and z_eos in that of W_KQ, w in that of a key,
    and W_in once more where phi' moves. A product of all, each plus one, is above any.
    """
    e = world.e
    phi, W_in, B = values(world), f32(0), f32(1)
    if e.W_in is not None:
        u = phi @ e.W_in.T
        (phi, slope), (_, curvature) = jax.jvp(lambda u: activations(world, u), (u,), (jnp.ones_like(u),))
        W_in = norm(e.W_in)
        B = W_in * jnp.max(jnp.maximum(jnp.abs(slope), jnp.abs(curvature)))
    D = 2 * longest(e.Z_in) + norm(e.z_trig)
    twice = jnp.stack([longest(e.Z_out), norm(params["V_mat"]), B, D, norm(e.z_eos)])
    once = jnp.stack([longest(phi), norm(w), W_in])
    return jnp.log(f32(4)) + 2 * jnp.sum(jnp.log1p(twice)) + jnp.sum(jnp.log1p(once))


def unread(world: World, grouped: Array) -> World:
    """The world, with a single sample if grouped and runs are vmapped.

    These compute both kinds of a step.
    """
    if not world.vmapped:
        return world
    name = "batch" if world.shape.batched else "N"
    return replace(world, run=replace(world.run, **{name: jnp.where(grouped, 1, getattr(world.run, name))}))


def over_tokens(world: World, state: State, wanted: Collection[str], weights: Array) -> Parameters:
    """The gradient of the mean loss of tokens with weights (V,), each with all the attention.

    It is with respect to `wanted`.

    It is that of the sum of r^T logits with r held fixed, as in `gradient.over_pairs`.
    With respect to w it is zero.
    """
    values_of = {name: state.V_mat if name == "V_mat" else getattr(world.e, name) for name in wanted if name != "w"}

    def held(parameters: Parameters, v: Array, weight: Array) -> Array:
        here = replace(world, e=replace(world.e, **{name: value for name, value in parameters.items() if name != "V_mat"}))
        phi, _ = features(here, values(here).at[v].get(mode="clip"))
        logits = gradient.mapped(gradient.output_maps(here, parameters.get("V_mat", state.V_mat)), phi)
        return weight @ gradient.slope_along(world, logits, world.perm.at[v].get(mode="clip"), state.rate)

    def rows(v: Array, real: Array, so_far: Parameters) -> Parameters:
        weight = jnp.where(real, weights.at[v].get(mode="clip"), f32(0))
        return jax.tree.map(jnp.add, so_far, jax.grad(held)(values_of, v, weight))

    found = over_vocabulary(world, rows, jax.tree.map(jnp.zeros_like, values_of))
    return found | ({"w": jnp.zeros(world.shape.d, f32)} if "w" in wanted else {})
