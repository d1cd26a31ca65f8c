"""Training beyond the recipe: steps of an optax optimiser on the loss of all samples or of a batch, and a record now and then.

The gradient is that of the exact softmax, streamed over samples and positions like the steps of the recipe; with a pool it is that
of all pairs, weighted. `reference/descent.py` trains the plain model. Ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from ..laws.training import ELEMENTWISE, MAX_RECORDED, MAX_STEPS, TRAINS, first_step, recorded_steps
from ..science import keys, task
from . import losses, metrics
from .attention import attend
from .steps import features
from .tiles import add_at, and_empty, at, keep_noise, only, outer, over_chosen, over_positions, over_samples, unless_zero
from .world import Trained, World, f32, i32, in_value, zeros_dp

Parameters = dict[str, Array]
"""What is trained, by name: V_mat (d, p); w = W_KQ z_eos (d,), or W_KQ (d, d) where an optimiser scales entries; and more of TRAINS."""

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
    """The gradient with respect to all of TRAINS and w, a tile of samples at a time.

    r = p - e_y (n, V), the slope of the loss by logits; b, its slope by h; a key of weight a moves it by a b^T (v - h).
    """
    run, e, shape, V_mat = world.run, world.e, world.shape, params["V_mat"]
    scores = losses.scores_of(world, w)
    answers = e.Z_out @ V_mat if e.W_in is None else e.Z_out
    label = jnp.arange(shape.V, dtype=i32)[None]
    with_Z, with_W_in = "Z_in" in params, "W_in" in params

    def tile(blocks: keys.Addresses, real: Array, sums: Parameters) -> Parameters:
        x0 = task.tokens(blocks, 0, run.V)
        seen = attend(world, blocks, x0, scores)
        phi, slope = features(world, seen.h)
        out = phi if e.W_in is None else phi @ V_mat.T
        p = jax.nn.softmax(out @ answers.T + world.no_label[None], axis=1)
        r = only(real, p - (at(world.perm, x0)[:, None] == label).astype(f32))
        b = r @ answers
        new: Parameters = {}
        if e.W_in is None or with_Z:
            new["answers"] = outer(r, out)
        if e.W_in is not None:
            new["V_mat"] = outer(b, phi)
            u = (b @ V_mat) * slope
            if with_W_in:
                new["W_in"] = outer(u, seen.h)
            b = u @ e.W_in
        if shape.trains != "V":
            new |= of_attention(blocks, x0, seen, b)
        return {name: sums[name] + new[name] for name in sums}

    def of_attention(blocks: keys.Addresses, x0: Array, seen: Any, b: Array) -> Parameters:
        sample, last = jnp.arange(len(x0), dtype=i32), i32(shape.V - 1)
        row, along_h = sample * (shape.V + 1), jnp.sum(b * seen.h, axis=1)
        along_values = (b @ e.Z_in.T).reshape(-1)  # of all tokens: a product is faster than rows looked up for each position

        def along(x: Array) -> Array:
            return at(along_values, (sample * shape.V)[None] + jnp.minimum(x, last)) - along_h[None]

        def positions(x: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            S, values = carry
            a = jnp.exp(at(token, x) - seen.log_total[None])
            S = add_at(S, x, a * along(x))
            return S, add_at(values, row[None] + x, a) if with_Z else values

        token = and_empty(scores.token, -jnp.inf)
        c0 = seen.mass * (along(x0[None])[0] + in_value(world) * (b @ e.z_trig))
        values = jnp.zeros(len(x0) * (shape.V + 1) if with_Z else 0, f32)
        S, values = add_at(jnp.zeros(shape.V + 1, f32), x0, c0), add_at(values, row + x0, seen.mass) if with_Z else values
        S, values = over_positions(world, blocks, 1, positions, (S, values))
        new = {"S": S, "trigger": jnp.sum(c0)}
        if with_Z:
            new |= {"values": outer(values.reshape(len(x0), -1), b), "value_of_trigger": in_value(world) * (seen.mass @ b)}
        return new

    V, d = shape.V, shape.d
    sizes: dict[str, tuple[int, ...]] = {"V_mat": V_mat.shape} if e.W_in is not None else {"answers": (V, d)}
    sizes |= {"W_in": (shape.m, d)} if with_W_in else {}
    sizes |= {"S": (V + 1,), "trigger": ()} if shape.trains != "V" else {}
    sizes |= {"answers": (V, d), "values": (V + 1, d), "value_of_trigger": (d,)} if with_Z else {}
    start = {name: jnp.zeros(size, f32) for name, size in sizes.items()}
    if shape.batched:
        n, total = run.batch, over_chosen(world, step, run.batch, tile, start)
    else:
        n, total = run.N, over_samples(world, samples_of(world, step), run.N, tile, start)
    mean = {name: part / n.astype(f32) for name, part in total.items()}

    found: Parameters = {"V_mat": e.Z_out.T @ mean["answers"] if e.W_in is None else mean["V_mat"]}
    if with_W_in:
        found["W_in"] = mean["W_in"]
    if shape.trains != "V":
        S, trigger = mean["S"][:V], mean["trigger"]
        found["w"] = S @ e.Z_in + trigger * e.z_trig
        if with_Z:
            found["Z_in"] = mean["values"][:V] + S[:, None] * w[None]
            found["z_trig"] = mean["value_of_trigger"] + trigger * w
            found["Z_out"] = mean["answers"] @ V_mat.T if e.W_in is None else mean["answers"]
    return found


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
