"""The recipe: three gradient steps, whose samples may come from any source.

`model/functional.py` contains the same three lines for any loss. Learning rates are
kept as separate factors, so that no number is as small as eta or as large as gamma:

    G1    = -grad_V at (0, 0), or the sum over first steps   V1 = eta G1
    w_hat = -|z_eos|^2 grad_w at (V1, 0), over eta           w  = gamma eta w_hat
    G2    = -grad_V at (V1, w)                               V2 = eta G1 + gamma2 G2

Forms with even predictions, p = 1/V, compute a bound on their own error. When attention
is locked, they compute step 3 from weighted tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..model.point import MAX_STEPS
from .arrays import f32
from .error_bounds import softmax_errors
from .forward import Scores, attention_scores, zero_if_rounding
from .gradient import Gradient, State, over_tokens
from .locked_attention import is_locked, unread
from .loops import repeat
from .sources.source import find_source
from .world import Trained, World, centred, reading, stream_of_step, zeros_dp


class FirstSteps(NamedTuple):
    """The results of steps 1 and 2."""

    G1: Array
    A: Array
    """The matrix Z_out G1 (V, p), centred."""
    w_hat: Array
    phi2: Array | None
    """The mean of |phi|^2 in step 2, or a bound on it.

    The value is None if predictions are exact.
    """


def recipe(world: World) -> Trained:
    """Returns the model after the three steps."""
    run, first = world.run, first_steps(world)
    scores = attention_scores(world, first.w_hat, run.attention_rate)
    errors = locked = None
    if world.shape.trained_by.exact:
        state = State(first.G1, run.eta, scores)
        step3 = find_source(world).gradient(world, state, "V_mat", 2)
    else:
        locked = is_locked(world, scores)
        step3 = step3_of_even_predictions(world, first, scores, locked)
        assert first.phi2 is not None
        assert step3.phi2 is not None
        errors = softmax_errors(world, first.G1, first.A, first.phi2, step3.phi2)
    return Trained(
        V1=first.G1,
        w=first.w_hat,
        V2=run.step1_weight * first.G1 - run.step3_weight * step3.value,
        V1_scale=run.eta,
        w_scale=run.attention_rate,
        V2_scale=run.scale,
        errors=errors,
        locked=locked,
    )


def first_steps(world: World) -> FirstSteps:
    """Computes steps 1 and 2 alone.

    In step 1, predictions are even in every form, because V_mat = 0.
    """
    e, source, even = world.e, find_source(world), not world.shape.trained_by.exact
    step1 = source.gradient(world, State(zeros_dp(world), even=True), "V_mat", 0)
    G1 = -step1.value
    if world.shape.repeats:
        G1 = after_further_first_steps(world, G1)
    step2 = source.gradient(world, State(G1, world.run.eta, even=even), "w", 1)
    w_hat = -jnp.sum(e.z_eos * e.z_eos) * step2.value
    # a lone token always has all the attention
    w_hat = jnp.where(world.run.L > 1, w_hat, f32(0))
    A = centred(world, e.Z_out @ G1)
    phi2 = step2.phi2
    if even and phi2 is None:
        phi2 = step1.phi2
    return FirstSteps(G1, A, zero_if_rounding(world, w_hat, A), phi2)


def after_further_first_steps(world: World, G1: Array) -> Array:
    """Returns the sum of the gradients of all first steps, given that of the first one.

    Each step reads the same samples, or with fresh batches its own.
    """

    def one(s: Array, G: Array) -> Array:
        here = reading(world, stream_of_step(world, MAX_STEPS + s))
        step = find_source(world).gradient(here, State(G, world.run.eta), "V_mat", 0)
        return jnp.where(s < world.run.first_steps, G - step.value, G)

    return repeat(world, world.run.first_steps, one, G1, first=1)


def step3_of_even_predictions(
    world: World, first: FirstSteps, scores: Scores, locked: Array
) -> Gradient:
    """The gradient by V_mat in step 3. If attention is locked, it is computed from
    weighted tokens with their softmax.
    """

    def from_samples() -> Gradient:
        here = unread(world, locked, "N")
        state = State(first.G1, world.run.eta, scores, even=True)
        return find_source(world).gradient(here, state, "V_mat", 2)

    def from_tokens() -> Gradient:
        state = State(first.G1, world.run.eta)
        parts = find_source(world).parts(world)
        return Gradient(over_tokens(world, state, ["V_mat"], parts)["V_mat"], f32(0))

    return lax.cond(locked, from_tokens, from_samples)


def untrained(world: World) -> Trained:
    """The model with V_mat = 0 and w = 0."""
    nothing, one = zeros_dp(world), f32(1)
    w = jnp.zeros(world.shape.d, f32)
    return Trained(nothing, w, nothing, one, one, one)
