"""Further steps with an optimiser of optax, after the recipe or instead of it.

Further steps are our addition to the paper. The model is recorded at some of the steps.
When attention is locked, a step can use weighted tokens instead of samples. An error
bound, computed from the attention logits and the parameters at that step, decides
whether it does. `model/reference/descent.py` trains the plain model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from ..model.point import MAX_STEPS, TRAINS, first_step, recorded_steps
from .arrays import f32, i32, longest, norm
from .gradient import Parameters, at_parameters, moved, over_tokens
from .locked_attention import may_group, unread
from .measurements import Raw, at_step
from .sources.source import find_source
from .world import Trained, World, stream_of_step

MAX_RECORDED = len(recorded_steps("zero", MAX_STEPS))


class Descent(NamedTuple):
    """The parameters and the optimiser state between two further steps."""

    params: Parameters
    memory: PyTree
    """The state of the optimiser."""
    n_read: Array
    """The number of steps so far that read samples instead of weighted tokens."""


GradientAt = Callable[[Parameters, Array], tuple[Parameters, Array]]
"""A function (parameters, step) -> (gradient, int32). The int32 is 1 if the step read
its samples, else 0.
"""


def descend(world: World, model: Trained) -> Raw:
    """The raw metrics at every recorded step. Each array has a leading axis
    MAX_RECORDED.

    The descent starts from `model`, which is the model after the recipe, or zero.
    """
    first = first_step(world.shape.start)
    candidates = jnp.array(recorded_steps(world.shape.start, MAX_STEPS), i32)
    fixed_w = model.learned().w
    params = start(world, model)
    rates = {name: rate_for(world, name) for name in params}
    optimizer = world.law("optimizer").descent(rates, world.run.steps - first)
    gradient_at = gradient_function(world, fixed_w)

    def one(step: Array, now: Descent) -> Descent:
        slope, read = gradient_at(now.params, step)
        slope = zero_attention_if_rounding(world, now.params, slope)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            moves, memory = optimizer.update(slope, now.memory, now.params)
        params = {name: now.params[name] + move for name, move in moves.items()}
        return Descent(params, memory, now.n_read + read)

    def measured(now: Descent, step: Array) -> Raw:
        last = stream_of_step(world, jnp.maximum(step - 1, 0))
        w = compute_w(world, now.params, fixed_w)
        here = moved(world, now.params)
        raw = at_step(here, now.params, w, model, last)
        return raw | {"n_read": now.n_read}

    def until_recorded(
        c: Array, carry: tuple[Array, Descent, Raw]
    ) -> tuple[Array, Descent, Raw]:
        done, now, records = carry
        target = jnp.minimum(candidates[c], world.run.steps)
        now = lax.fori_loop(done, target, one, now)
        new = measured(now, target)
        records = jax.tree.map(lambda all, one: all.at[c].set(one), records, new)
        return target, now, records

    begin = Descent(params, optimizer.init(params), i32(0))
    shapes = jax.eval_shape(measured, begin, i32(first))
    records = jax.tree.map(
        lambda a: jnp.zeros((MAX_RECORDED, *a.shape), a.dtype), shapes
    )
    n_recorded = jnp.sum((candidates < world.run.steps).astype(i32), dtype=i32) + 1
    carry = i32(first), begin, records
    return lax.fori_loop(0, n_recorded, until_recorded, carry)[2]


def gradient_function(world: World, fixed_w: Array) -> GradientAt:
    """Returns the function that computes the gradient of a step.

    When attention is locked, the gradient is computed from weighted tokens. Otherwise,
    and in programs that do not group samples, it is computed from the samples.
    """
    source = find_source(world)
    first_parts = source.parts_of_step(world, i32(0)) if world.shape.groups else None

    def gradient_at(params: Parameters, step: Array) -> tuple[Parameters, Array]:
        w = compute_w(world, params, fixed_w)
        here = moved(world, params)
        state = at_parameters(here, params["V_mat"], w)
        wanted = ["w" if name == "W_KQ" else name for name in params]

        def by_sample(world: World = here) -> Parameters:
            slopes = source.gradient_of_step(world, state, wanted, step)
            if "w" in slopes:
                # a lone token always has all the attention: no optimiser may scale
                # rounding up
                slopes["w"] = jnp.where(world.run.L > 1, slopes["w"], f32(0))
            return slopes_by_parameter(world, slopes, params)

        def by_token() -> Parameters:
            new = jnp.bool_(world.shape.batched) | world.run.fresh_batches
            parts = lax.cond(
                new, lambda: source.parts_of_step(world, step), lambda: first_parts
            )
            slopes = over_tokens(here, state, wanted, parts)
            return slopes_by_parameter(world, slopes, params)

        if first_parts is None:
            return by_sample(), i32(1)
        if source.weighted_tokens:
            return by_token(), i32(0)
        assert state.scores
        grouped = may_group(here, params, w, state.scores)
        number = "batch" if world.shape.batched else "N"
        if_read = unread(here, grouped, number)
        slopes = lax.cond(grouped, by_token, lambda: by_sample(if_read))
        return slopes, (~grouped).astype(i32)

    return gradient_at


ALL_ROUNDING = 2.0**-20
"""An attention gradient is only float32 rounding if it is smaller than this number
times its largest terms. The number is 16 times the unit roundoff.
"""


def zero_attention_if_rounding(
    world: World, params: Parameters, slope: Parameters
) -> Parameters:
    """Returns `slope` with the attention gradient set to zero if attention is untrained
    and its gradient is only rounding.

    The gradient is only rounding if all tokens of each sample are equal. Setting it to
    zero keeps w at 0, so that no optimiser amplifies the rounding.

    The gradient of w is a mean of b^T (v - h) k, and the gradient of V_mat is a mean of
    q phi^T, where b = V_mat^T q. So the terms of the gradient of w are at most about
    |V_mat| |grad V_mat| |k| |v| / |phi|, where |v| and |phi| are about equal.
    """
    name = "w" if "w" in params else "W_KQ"
    if name not in params:
        return slope
    e = moved(world, params).e
    square = jnp.sum(params["V_mat"] ** 2) * jnp.sum(slope["V_mat"] ** 2)
    size = jnp.sqrt(square) * (longest(e.Z_in) + norm(e.z_trig))
    if name == "W_KQ":
        size = size * norm(e.z_eos)
    is_rounding = jnp.max(jnp.abs(slope[name])) <= f32(ALL_ROUNDING) * size
    untrained = jnp.all(params[name] == 0) & is_rounding
    return slope | {name: jnp.where(untrained, f32(0), slope[name])}


def slopes_by_parameter(
    world: World, slopes: Parameters, params: Parameters
) -> Parameters:
    """Returns the gradient by each parameter, from the gradients `slopes` that were
    computed.

    The gradient by W_KQ is g z_eos^T, where g is the gradient by w.
    """
    by_parameter = {}
    for name in params:
        if name == "W_KQ":
            by_parameter[name] = slopes["w"][:, None] * query(world)[None]
        else:
            by_parameter[name] = slopes[name]
    return by_parameter


def start(world: World, model: Trained) -> Parameters:
    """The parameters at the start of the descent, multiplied by their scale factors."""
    _, w, V_mat = model.learned()
    z = query(world)
    params = {"V_mat": V_mat}
    if world.shape.trains != "V":
        if world.law("optimizer").attention == "vector":
            params["w"] = w
        else:
            params["W_KQ"] = w[:, None] * (z / jnp.sum(z * z))[None]
    for name in TRAINS[world.shape.trains]:
        params[name] = getattr(world.e, name)
    return params


def query(world: World) -> Array:
    """The vector by which W_KQ is multiplied: z_eos (d,), or only its length (1,).

    In the second case W_KQ is (d, 1). It is the first column of the full matrix in a
    basis whose first vector is along z_eos.
    """
    z_eos = world.e.z_eos
    if world.law("optimizer").attention == "column":
        return norm(z_eos)[None]
    return z_eos


def rate_for(world: World, name: str) -> Array:
    """The learning rate of the parameter `name`.

    A step of W_KQ along g z_eos^T moves w by |z_eos|^2 g.
    """
    if name == "w":
        return world.run.lr_attention * jnp.sum(world.e.z_eos * world.e.z_eos)
    return world.run.lr_attention if name == "W_KQ" else world.run.lr


def compute_w(world: World, params: Parameters, fixed_w: Array) -> Array:
    """Returns w = W_KQ z_eos, or `fixed_w` if attention is not trained."""
    if "W_KQ" in params:
        return params["W_KQ"] @ query(world)
    return params.get("w", fixed_w)
