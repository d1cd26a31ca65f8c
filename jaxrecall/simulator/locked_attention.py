"""Locked attention: all other tokens have less weight than rounding.

A sample is then its informative token, so V weighted tokens stand for all samples. The
recipe asks for a lead of LOCKED_NATS in step 3. Further steps ask for more, as an
optimiser may divide by the size of a gradient. Sums and bounds are ours.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from ..model.point import MAX_STEPS
from .arrays import f32, longest, masked, norm, transposed_product
from .forward import Scores, activations, attention_scores, features
from .gradient import Parameters
from .loops import over_vocabulary
from .sources.source import source_of
from .world import World, centred, values, zeros_dp

LOCKED_NATS = 17.0
"""Required lead in attention logit, beyond ln L: all other
weights together are then under 2^-24 of the informative one's.
"""


def nats_ahead(world: World, scores: Scores) -> Array:
    """The least lead (nats) of an informative token's logit over any other token's."""
    real = world.no_label == 0
    lowest = jnp.min(jnp.where(real, scores.token, f32(math.inf)))
    highest = jnp.max(jnp.where(real, scores.token, f32(-math.inf)))
    return scores.trigger + lowest - highest


def is_locked(world: World, w_hat: Array) -> Array:
    """Whether the informative token is ahead by LOCKED_NATS + ln L, whatever it is."""
    scores = attention_scores(world, w_hat, world.run.attention_rate)
    return nats_ahead(world, scores) >= LOCKED_NATS + jnp.log(world.run.L.astype(f32))


def memory_gradient(world: World, A: Array) -> Array:
    """The gradient by V_mat in step 3 under locked attention.

        -sum_x n_x/N T^T (e_{pi x} - p_x) phi(v_x)^T,     p_x the softmax

    A is Z_out G1, T is Z_out, both centred, which changes neither the softmax nor
    T^T (e - p). Where the bound on step 2 holds, logits are too small for exp to
    overflow, so their largest is not taken off.
    """
    run, T = world.run, centred(world, world.e.Z_out)
    parts = source_of(world).parts(world)

    def rows(v: Array, real: Array, G: Array) -> Array:
        phi, _ = features(world, values(world).at[v].get(mode="clip"))
        p = jnp.exp(run.eta * (phi @ A.T) + world.no_label[None])
        mean = p @ T / jnp.sum(p, axis=1, keepdims=True)
        label = world.perm.at[v].get(mode="clip")
        toward = masked(real, T.at[label].get(mode="clip") - mean)
        weighted = toward * parts.at[v].get(mode="clip")[:, None]
        return G + transposed_product(weighted, phi)

    return -over_vocabulary(world, rows, zeros_dp(world))


def unread(world: World, skipped: Array, number: str) -> World:
    """The world with a single sample if all are skipped and runs are vmapped.

    Vmapped runs compute both branches of a condition. `number` is the argument that
    says how many samples there are.
    """
    if not world.vmapped:
        return world
    n = jnp.where(skipped, 1, getattr(world.run, number))
    return replace(world, run=replace(world.run, **{number: n}))


TOLERANCE = 2.0**-20
"""Most that dropping all other tokens may change a trained
parameter over MAX_STEPS steps, relative to its norm.
"""


def may_group(world: World, params: Parameters, w: Array, scores: Scores) -> Array:
    """Whether weighted tokens are accurate enough for a further step, and no more work.

    The informative token is ahead of any other by `nats_ahead`, which is ln L + lead.
    So all others together have less than the part s = exp(-lead) of its weight. From a
    lead of LOCKED_NATS on, what they add to h is rounding. They add at most s
    e^log_size to a gradient. An optimiser may divide by the size of a gradient, so this
    moves a parameter by up to rate and `gain` times as much. Over MAX_STEPS steps that
    must be within TOLERANCE of the norm of every parameter.
    """
    run, gain = world.run, world.law("optimizer").gain
    lead = nats_ahead(world, scores) - jnp.log(run.L.astype(f32))
    rate = jnp.log(jnp.maximum(run.lr, run.lr_attention))
    by_steps = rate + jnp.log(f32(gain * MAX_STEPS / TOLERANCE))
    least = jnp.min(jnp.stack([norm(parameter) for parameter in params.values()]))
    needed = log_size(world, params, w) + by_steps - jnp.log(least)
    pays = run.V <= source_of(world).work_of_step(world)
    return (lead >= LOCKED_NATS) & (lead >= needed) & pays


def log_size(world: World, params: Parameters, w: Array) -> Array:
    """Log of a bound on what other tokens add to any gradient, over their part s of it.

    It is to leading order in s. Let D be above every difference of two values or keys,
    B above |W_in| times phi' or phi'' (1 without an MLP), F above |phi|, and O above
    the rows of Z_out. Others move h by s D, phi and phi' by s B D, a logit by s O
    |V_mat| B D, and r = p - e_y, whose entries add up to 2 at most, by twice that. The
    gradient of a loss by h is W_in^T phi' V_mat^T Z_out^T r, below 2 B O |V_mat|. A
    gradient changes by products of these, each once or twice: with a key and z_eos in
    that of W_KQ, w in that of a key, and W_in once more where phi' moves. A product of
    all, each plus one, is above any.
    """
    e = world.e
    phi, W_in, B = values(world), f32(0), f32(1)
    if e.W_in is not None:
        u = phi @ e.W_in.T
        act, tangent = lambda u: activations(world, u), jnp.ones_like(u)
        (phi, slope), (_, curvature) = jax.jvp(act, (u,), (tangent,))
        W_in = norm(e.W_in)
        B = W_in * jnp.max(jnp.maximum(jnp.abs(slope), jnp.abs(curvature)))
    D = 2 * longest(e.Z_in) + norm(e.z_trig)
    twice = jnp.stack([longest(e.Z_out), norm(params["V_mat"]), B, D, norm(e.z_eos)])
    once = jnp.stack([longest(phi), norm(w), W_in])
    return jnp.log(f32(4)) + 2 * jnp.sum(jnp.log1p(twice)) + jnp.sum(jnp.log1p(once))
