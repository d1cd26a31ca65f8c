"""Locked attention: all tokens but the informative one together have less weight than
rounding.

A sample is then equal to its informative token, so V weighted tokens replace all
samples. In step 3 the recipe requires a lead of LOCKED_NATS + ln L. Further steps
require a larger lead, because an optimiser may divide by the size of a gradient. The
formulas for sums and bounds are ours.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from ..model.point import MAX_STEPS
from .arrays import f32, longest, norm
from .forward import Scores, features_of
from .gradient import Parameters
from .sources.source import find_source
from .world import World, values

LOCKED_NATS = 17.0
"""The lead of the informative token's attention logit that is required in addition to
ln L. The weights of all other tokens then sum to less than 2^-24 of the informative
token's weight.
"""


def nats_ahead(world: World, scores: Scores) -> Array:
    """The smallest difference, in nats, between the logit of an informative token and
    the logit of another token.
    """
    real = world.no_label == 0
    lowest = jnp.min(jnp.where(real, scores.token, f32(math.inf)))
    highest = jnp.max(jnp.where(real, scores.token, f32(-math.inf)))
    return scores.trigger + lowest - highest


def is_locked(world: World, scores: Scores) -> Array:
    """Whether the logit of every informative token has a lead of at least LOCKED_NATS +
    ln L.
    """
    return nats_ahead(world, scores) >= LOCKED_NATS + jnp.log(world.run.L.astype(f32))


def unread(world: World, skipped: Array, number: str) -> World:
    """Returns the world with only one sample if samples are skipped and runs are
    vmapped.

    Vmapped runs compute both branches of a condition. With one sample, the unused
    branch is cheap. `number` is the name of the argument that contains the number of
    samples.
    """
    if not world.vmapped:
        return world
    n = jnp.where(skipped, 1, getattr(world.run, number))
    return replace(world, run=replace(world.run, **{number: n}))


TOLERANCE = 2.0**-20
"""The largest allowed change of a trained parameter that results from ignoring all
other tokens over MAX_STEPS steps. It is relative to the norm of the parameter.
"""


def may_group(world: World, params: Parameters, w: Array, scores: Scores) -> Array:
    """Whether weighted tokens are accurate enough for a further step, and cost no more
    than samples.

    The logit of the informative token exceeds every other logit by at least
    `nats_ahead`, which is ln L + lead. So the other tokens together have less than s =
    exp(-lead) times the weight of the informative token. If this lead is at least
    LOCKED_NATS, the other tokens contribute only rounding to h. They contribute at most
    s e^log_size to a gradient (see `log_size`). An optimiser may divide by the size of
    a gradient. So this contribution, times the learning rate and `gain`, bounds the
    change of a parameter in one step. The change over MAX_STEPS steps must be at most
    TOLERANCE times the norm of every parameter.
    """
    run, gain = world.run, world.law("optimizer").gain
    lead = nats_ahead(world, scores) - jnp.log(run.L.astype(f32))
    rate = jnp.log(jnp.maximum(run.lr, run.lr_attention))
    by_steps = rate + jnp.log(f32(gain * MAX_STEPS / TOLERANCE))
    least = jnp.min(jnp.stack([norm(parameter) for parameter in params.values()]))
    needed = log_size(world, params, w) + by_steps - jnp.log(least)
    pays = run.V <= find_source(world).work_of_step(world)
    return (lead >= LOCKED_NATS) & (lead >= needed) & pays


def log_size(world: World, params: Parameters, w: Array) -> Array:
    """The log of a bound on the amount that other tokens add to any gradient, divided
    by s.

    Here s is the weight of the other tokens (`may_group`), and the bound is to leading
    order in s. The formula uses four bounds. D bounds every difference of two values or
    keys. B bounds |W_in| times phi' or phi'', and is 1 without an MLP. F bounds |phi|,
    and O bounds the norms of the rows of Z_out.

    Other tokens change h by at most s D. They change phi and phi' by at most s B D, and
    a logit by at most s O |V_mat| B D. They change r = p - e_y by at most twice the
    change of a logit. The absolute entries of r sum to at most 2. The gradient of a
    loss by h is W_in^T phi' V_mat^T Z_out^T r, whose norm is below 2 B O |V_mat|. The
    change of a gradient is a product in which each of these factors occurs once or
    twice. Some products have further factors: the gradient of W_KQ has a key and z_eos,
    the gradient of a key has w, and the change of phi' has W_in once more. The product
    of all factors, each plus one, is larger than any such product.
    """
    e = world.e
    phi, W_in, B = values(world), f32(0), f32(1)
    if e.W_in is not None:
        u = phi @ e.W_in.T
        act, tangent = lambda u: features_of(world, u), jnp.ones_like(u)
        (phi, slope), (_, curvature) = jax.jvp(act, (u,), (tangent,))
        W_in = norm(e.W_in)
        B = W_in * jnp.max(jnp.maximum(jnp.abs(slope), jnp.abs(curvature)))
    D = 2 * longest(e.Z_in) + norm(e.z_trig)
    twice = jnp.stack([longest(e.Z_out), norm(params["V_mat"]), B, D, norm(e.z_eos)])
    once = jnp.stack([longest(phi), norm(w), W_in])
    return jnp.log(f32(4)) + 2 * jnp.sum(jnp.log1p(twice)) + jnp.sum(jnp.log1p(once))
