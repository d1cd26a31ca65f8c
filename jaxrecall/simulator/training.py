"""Training: `recipe` takes the three steps, `further` those of an optimiser.

The recipe has rates of its own, and takes exact gradients or shortcuts (`forms`).
Further steps are by an optimiser of optax, and the model is recorded now and then. They
are ours, not the paper's. Where attention is locked a sample is its informative token,
so V weighted tokens stand for all samples. At L = 1 that is exact. Elsewhere a step
reads weighted tokens only where a bound allows it, which is computed from the attention
logits and the parameters of that step, and where they are no more than its samples.
`model/reference/steps.py` and `descent.py` train the plain model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from ..model import keys
from ..model.point import MAX_STEPS, TRAINS, first_step, recorded_steps
from . import counts, gradient, pairs, record, shortcut, stream
from .forward import Scores, activations, attention_scores, zero_if_rounding
from .gradient import Batch, Parameters, State, moved
from .loops import (
    longest,
    n_of_step,
    norm,
    over_samples,
    over_step,
    scatter_add,
    with_noise_tokens,
)
from .pool_draws import drawn_tokens, token_parts, with_pools
from .shortcut import LOCKED_NATS, FirstSteps, nats_ahead
from .world import (
    Trained,
    World,
    batch_of_step,
    centred,
    f32,
    i32,
    stream_of_step,
    trained,
    values,
    zeros_dp,
)

MAX_RECORDED = len(recorded_steps("zero", MAX_STEPS))

SAMPLES: dict[str, shortcut.Samples] = {
    "stream": stream,
    "counts": counts,
    "pairs": pairs,
}
"""How a form sums over samples."""

Descent = tuple[Parameters, PyTree, Array]
"""Parameters, what the optimiser remembers, and how often samples were read."""

GradientAt = Callable[[Parameters, Array], tuple[Parameters, Array]]
"""(parameters, step) -> the gradient, and 1 (int32) if the samples of the step were
read, or 0.
"""


def run(world: World) -> tuple[Trained, record.Raw]:
    """The model after the recipe, or untrained at a start from zero, and the raw
    metrics.
    """
    shape = world.shape
    if shape.pool:
        world = with_pools(world)
    model = untrained(world) if shape.start == "zero" else recipe(world)
    if shape.optimizer:
        return model, {
            "trace": further(world, model),
            "errors": model.errors,
            "locked": model.locked,
        }
    return model, record.after_recipe(world, model, first_steps)


def recipe(world: World) -> Trained:
    """The three gradient steps: V1 = eta G1, w = gamma eta w_hat, V2 = eta G1 + gamma2
    G2.

    G1 and G2 are minus the gradients by V_mat in steps 1 and 3. `Trained` holds V1 /
    eta and V2 / scale.
    """
    form, run, first = world.shape.trained_by, world.run, first_steps(world)
    if not form.exact:
        return shortcut.step3(world, SAMPLES[form.samples], first)
    state = State(
        first.G1, run.eta, attention_scores(world, first.w_hat, run.attention_rate)
    )
    return trained(
        world, first.G1, first.w_hat, -_exact_gradient(world, state, "V_mat", 2)
    )


def first_steps(world: World) -> FirstSteps:
    """Steps 1 and 2 alone. At V_mat = 0 predictions are uniform in any form."""
    form = world.shape.trained_by
    samples = SAMPLES.get(form.samples)
    G1, known = (
        samples.step1(world)
        if samples
        else (-_exact_gradient(world, State(zeros_dp(world)), "V_mat", 0), None)
    )
    A = centred(world, world.e.Z_out @ G1)
    if samples and not form.exact:
        w_hat, phi2 = samples.step2(world, A, known)
    else:
        w_hat, phi2 = (
            -jnp.sum(world.e.z_eos * world.e.z_eos)
            * _exact_gradient(world, State(G1, world.run.eta), "w", 1),
            None,
        )
        w_hat = jnp.where(
            world.run.L > 1, w_hat, f32(0)
        )  # a lone token has all the attention
    return FirstSteps(G1, A, zero_if_rounding(world, w_hat, A), phi2)


def _exact_gradient(world: World, state: State, name: str, step: int) -> Array:
    """The gradient with respect to one parameter in a step of the recipe."""
    if world.shape.pool:
        return gradient.over_pairs(world, state, [name], step)[name]
    if world.shape.memory:
        return gradient.over_tokens(
            world, state, [name], token_parts(world, batch_of_step(world, step))
        )[name]
    batch = Batch(
        world.run.N,
        partial(over_samples, world, batch_of_step(world, step), world.run.N),
    )
    return gradient.through_outputs(world, state, [name], batch)[name]


def further(world: World, trained: Trained) -> record.Raw:
    """Raw metrics at every recorded step, each with a leading axis MAX_RECORDED.

    `trained` is the model after the recipe, or zero.
    """
    first = first_step(world.shape.start)
    candidates = jnp.array(recorded_steps(world.shape.start, MAX_STEPS), i32)
    fixed_w = trained.rate * trained.w
    stepping = (
        world
        if world.shape.pool or world.shape.batched or world.shape.memory
        else with_noise_tokens(world)
    )
    params = start(world, trained)
    rates = {name: rate_of(world, name) for name in params}
    optimizer = world.law("optimizer").descent(rates, world.run.steps - first)
    gradient_at = (grouped_where_locked if world.shape.groups else exact_at)(
        stepping, fixed_w
    )

    def one(step: Array, state: Descent) -> Descent:
        params, memory, n_read = state
        slope, read = gradient_at(params, step)
        slope = zero_attention_if_rounding(world, params, slope)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            moves, memory = optimizer.update(slope, memory, params)
        return (
            {name: params[name] + move for name, move in moves.items()},
            memory,
            n_read + read,
        )

    def until_recorded(
        c: Array, carry: tuple[Array, Descent, record.Raw]
    ) -> tuple[Array, Descent, record.Raw]:
        done, state, records = carry
        target = jnp.minimum(candidates[c], world.run.steps)
        state = lax.fori_loop(done, target, one, state)
        now = measured(state[0], target) | {"n_read": state[2]}
        return (
            target,
            state,
            jax.tree.map(lambda all, this: all.at[c].set(this), records, now),
        )

    def measured(params: Parameters, step: Array) -> dict[str, Array]:
        last = stream_of_step(world, jnp.maximum(step - 1, 0))
        return record.at_step(
            moved(world, params),
            params,
            attention_of(world, params, fixed_w),
            trained.V1,
            last,
        )

    shapes = jax.eval_shape(lambda: measured(params, i32(first)) | {"n_read": i32(0)})
    records = jax.tree.map(
        lambda a: jnp.zeros((MAX_RECORDED, *a.shape), a.dtype), shapes
    )
    n_recorded = jnp.sum((candidates < world.run.steps).astype(i32), dtype=i32) + 1
    return lax.fori_loop(
        0,
        n_recorded,
        until_recorded,
        (i32(first), (params, optimizer.init(params), i32(0)), records),
    )[2]


def exact_at(world: World, fixed_w: Array) -> GradientAt:
    """A function that computes the gradient from the samples of a step."""
    return lambda params, step: (gradient_of_step(world, params, fixed_w, step), i32(1))


def grouped_where_locked(world: World, fixed_w: Array) -> GradientAt:
    """A function that computes the gradient from weighted tokens where attention is
    locked.

    Elsewhere it does from the samples.
    """
    parts = parts_of_step(world, i32(0))

    def gradient_at(params: Parameters, step: Array) -> tuple[Parameters, Array]:
        w = attention_of(world, params, fixed_w)
        here = moved(world, params)
        state = gradient.at_parameters(here, params["V_mat"], w)

        def by_token() -> Parameters:
            new = jnp.bool_(world.shape.batched) | world.run.fresh_batches
            now = lax.cond(new, lambda: parts_of_step(world, step), lambda: parts)
            return of_parameters(
                world, gradient.over_tokens(here, state, wanted_of(params), now), params
            )

        if world.shape.memory:
            return by_token(), i32(0)
        assert state.scores
        grouped = may_group(here, params, w, state.scores)

        def by_sample() -> Parameters:
            return gradient_of_step(unread(world, grouped), params, fixed_w, step)

        return lax.cond(grouped, by_token, by_sample), (~grouped).astype(i32)

    return gradient_at


TOLERANCE = 2.0**-20
"""Most that dropping all other tokens may change a trained
parameter over MAX_STEPS steps, relative to its norm.
"""


def parts_of_step(world: World, step: Array) -> Array:
    """(V,): the part of the samples of further step `step` that has each informative
    token.
    """
    if world.shape.pool:
        return pairs.shares(world)
    stream = stream_of_step(world, step)
    if world.shape.memory and not world.shape.batched:
        return token_parts(world, stream)

    def tile(blocks: keys.Addresses, real: Array, counts: Array) -> Array:
        x = (
            drawn_tokens(world, stream, blocks)
            if world.shape.memory
            else world.tokens(blocks, 0)
        )
        return scatter_add(counts, x, real.astype(i32))

    return over_step(world, step, tile, jnp.zeros(world.shape.V, i32)).astype(
        f32
    ) / n_of_step(world).astype(f32)


def may_group(world: World, params: Parameters, w: Array, scores: Scores) -> Array:
    """Whether weighted tokens are accurate enough for a step, and no more work than its
    samples.

    The informative token is ahead of any other by `nats_ahead`, which is ln L + lead.
    So all others together have less than the part s = exp(-lead) of its weight. From a
    lead of LOCKED_NATS on, what they add to h is rounding. They add at most s
    e^log_size to a gradient. An optimiser may divide by the size of a gradient, so this
    moves a parameter by up to rate and `gain` times as much. Over MAX_STEPS steps that
    must be within TOLERANCE of the norm of every parameter.
    """
    run, gain = world.run, world.law("optimizer").gain
    lead = nats_ahead(world, scores) - jnp.log(run.L.astype(f32))
    by_step = jnp.log(jnp.maximum(run.lr, run.lr_attention)) + jnp.log(
        f32(gain * MAX_STEPS / TOLERANCE)
    )
    least = jnp.min(jnp.stack([norm(parameter) for parameter in params.values()]))
    pays = True if world.shape.pool else run.V <= n_of_step(world)
    return (
        (lead >= LOCKED_NATS)
        & (lead >= log_size(world, params, w) + by_step - jnp.log(least))
        & pays
    )


def log_size(world: World, params: Parameters, w: Array) -> Array:
    """Log of a bound on what other tokens add to any gradient, over their part of
    attention.

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
        (phi, slope), (_, curvature) = jax.jvp(
            lambda u: activations(world, u), (u,), (jnp.ones_like(u),)
        )
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
    return replace(
        world,
        run=replace(
            world.run, **{name: jnp.where(grouped, 1, getattr(world.run, name))}
        ),
    )


def gradient_of_step(
    world: World, params: Parameters, fixed_w: Array, step: Array
) -> Parameters:
    """The gradient of the mean loss of gradient step `step`, by parameter."""
    here = moved(world, params)
    state = gradient.at_parameters(
        here, params["V_mat"], attention_of(world, params, fixed_w)
    )
    wanted = wanted_of(params)
    if world.shape.pool:
        found = gradient.over_pairs(here, state, wanted, 0)
    else:
        through = (
            gradient.through_logits
            if world.shape.through_logits
            else gradient.through_outputs
        )
        found = through(
            here, state, wanted, Batch(n_of_step(world), partial(over_step, here, step))
        )
    if "w" in found:
        found["w"] = jnp.where(
            world.run.L > 1, found["w"], f32(0)
        )  # a lone token has all the attention: no optimiser scales rounding up
    return of_parameters(world, found, params)


ALL_ROUNDING = 2.0**-20
"""A gradient of attention below this part of its largest
terms is rounding in float32: 16 times the unit roundoff.
"""


def zero_attention_if_rounding(
    world: World, params: Parameters, slope: Parameters
) -> Parameters:
    """The gradient, but zero for untrained attention whose gradient is rounding.

    So it is where all tokens of each sample are equal. Then w stays 0, and no optimiser
    scales rounding up.

    The gradient of w is a mean of b^T (v - h) k, and that of V_mat one of q phi^T with
    b = V_mat^T q. So the first is summed from terms of up to |V_mat| |grad V_mat| |k|
    |v| / |phi|, where |v| and |phi| are about the same.
    """
    name = next((name for name in ("w", "W_KQ") if name in params), None)
    if name is None:
        return slope
    e = moved(world, params).e
    size = jnp.sqrt(jnp.sum(params["V_mat"] ** 2) * jnp.sum(slope["V_mat"] ** 2)) * (
        longest(e.Z_in) + norm(e.z_trig)
    )
    size = size * norm(e.z_eos) if name == "W_KQ" else size
    untrained = jnp.all(params[name] == 0) & (
        jnp.max(jnp.abs(slope[name])) <= f32(ALL_ROUNDING) * size
    )
    return slope | {name: jnp.where(untrained, f32(0), slope[name])}


def wanted_of(params: Parameters) -> list[str]:
    """Names of the gradients to compute: w for W_KQ."""
    return ["w" if name == "W_KQ" else name for name in params]


def of_parameters(world: World, found: Parameters, params: Parameters) -> Parameters:
    """The gradient by parameter; a step along g z_eos^T moves w = W_KQ z_eos along
    g.
    """
    return {
        name: (
            found["w"][:, None] * query(world)[None] if name == "W_KQ" else found[name]
        )
        for name in params
    }


def start(world: World, trained: Trained) -> Parameters:
    """The parameters at the first further step, with the factors that `Trained` leaves
    out.
    """
    w, z = trained.rate * trained.w, query(world)
    attention: Parameters = {}
    if world.shape.trains != "V":
        as_vector = world.law("optimizer").attention == "vector"
        attention = (
            {"w": w} if as_vector else {"W_KQ": w[:, None] * (z / jnp.sum(z * z))[None]}
        )
    more = {name: getattr(world.e, name) for name in TRAINS[world.shape.trains]}
    return {"V_mat": world.run.scale * trained.V2, **attention, **more}


def query(world: World) -> Array:
    """z_eos as W_KQ (d, d) or (d, 1) meets it: (d,), or its length alone.

    That is in the basis that starts with it.
    """
    z_eos = world.e.z_eos
    return norm(z_eos)[None] if world.law("optimizer").attention == "column" else z_eos


def untrained(world: World) -> Trained:
    """V_mat = 0 and w = 0."""
    nothing = zeros_dp(world)
    return Trained(nothing, jnp.zeros(world.shape.d, f32), f32(1), nothing)


def rate_of(world: World, name: str) -> Array:
    """The learning rate of a parameter. A step of W_KQ along g z_eos^T moves w by
    |z_eos|^2 g.
    """
    if name not in ("w", "W_KQ"):
        return world.run.lr
    z_eos = world.e.z_eos
    return world.run.lr_attention * (jnp.sum(z_eos * z_eos) if name == "w" else f32(1))


def attention_of(world: World, params: Parameters, fixed_w: Array) -> Array:
    """w = W_KQ z_eos, `fixed_w` where it is not trained."""
    return (
        params["W_KQ"] @ query(world) if "W_KQ" in params else params.get("w", fixed_w)
    )
