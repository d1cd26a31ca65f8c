"""The gradient of the mean loss at a state of the model, with exact predictions. Forms
are ours.

It is summed over samples, a tile at a time, or over all pairs of a token and a noise
sequence of a pool. r = p - e_y (n, V) is the slope of a sample's loss by its logits.
Where attention puts weight a on a token, the slope by that token's attention logit is a
(g - c): g is the slope of the loss along the token's value, and c is the mean of g
under attention.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from ..model import keys
from ..model.point import BLOCK
from . import pairs
from .forward import (
    Attended,
    Scores,
    Values,
    attend,
    attend_evenly,
    features,
    features_of,
    is_label,
    label_of,
    probabilities,
    scores_under,
)
from .loops import (
    gather,
    masked,
    over_positions,
    over_vocabulary,
    scatter_add,
    transposed_product,
    with_padding_row,
)
from .pool_draws import pool_of_step, weights_of
from .world import World, f32, i32, in_value, values

Parameters = dict[str, Array]
"""What is trained, by name: V_mat (d, p); w = W_KQ z_eos (d,), or
W_KQ (d, d) where an optimiser scales entries; and more of TRAINS.
"""


class State(NamedTuple):
    """Where the gradient is taken. The embeddings are those of the world."""

    V_mat: Array
    """(d, p), up to the factor `rate`."""

    rate: Array | float = 1.0
    """The model has rate V_mat. The gradient with respect to w is
    then given over `rate`, so that no small rate makes it vanish.
    """

    scores: Scores | None = None
    """Attention logits (nats); None is attention at w = 0, which is uniform."""

    w: Array | None = None
    """(d,) W_KQ z_eos of the scores, where the embeddings are trained too."""


def at_parameters(world: World, V_mat: Array, w: Array) -> State:
    """The state of a model at its true scale."""
    return State(V_mat, 1.0, scores_under(world, w), w)


def moved(world: World, parameters: Parameters) -> World:
    """The world with the embeddings and layers that are among the parameters, as
    trained so far.
    """
    return replace(
        world,
        e=replace(
            world.e,
            **{
                name: value
                for name, value in parameters.items()
                if hasattr(world.e, name)
            },
        ),
    )


class Batch(NamedTuple):
    """The samples of a gradient step."""

    n: Array
    fold: Callable[..., Parameters]
    """`fold(body, start)` goes over them as `loops.over_samples` does."""


def mean_over(
    world: World, batch: Batch, tile: Callable[[keys.Addresses, Array], Parameters]
) -> Parameters:
    """The means over samples of what `tile(addresses, real)` adds up for a tile of
    them.
    """

    def add(blocks: keys.Addresses, real: Array, so_far: Parameters) -> Parameters:
        return jax.tree.map(jnp.add, so_far, tile(blocks, real))

    some = (
        keys.blocks(world.run.batches[0], 0, world.shape.tile // BLOCK),
        jnp.zeros(world.shape.tile, bool),
    )
    zero = jax.tree.map(
        lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(tile, *some)
    )
    return {
        name: part / batch.n.astype(f32) for name, part in batch.fold(add, zero).items()
    }


def over_pairs(
    world: World, state: State, wanted: Collection[str], step: int
) -> Parameters:
    """The gradient of the mean loss of all pairs of a gradient step, weighted.

    It is with respect to `wanted`, of step 0, 1 or 2.

    It is that of the sum of r^T logits with r held, which is the gradient of the loss.
    """
    counts, E = pool_of_step(world, step)
    of_state = {
        "V_mat": state.V_mat,
        "w": jnp.zeros(world.shape.d, f32) if state.w is None else state.w,
    }
    at = {
        name: of_state[name] if name in of_state else getattr(world.e, name)
        for name in wanted
    }

    def tables(parameters: Parameters) -> tuple[pairs.Own, tuple[Array, Maps]]:
        here = moved(world, parameters)
        V_mat, w = (parameters.get(name, of_state[name]) for name in of_state)
        scores = (
            scores_under(here, w)
            if "w" in parameters or state.scores is None
            else state.scores
        )
        own, of_noise = pairs.hidden_tables(here, pairs.attended(here, counts, scores))
        return own, (of_noise, output_maps(here, V_mat))

    def held(
        own: pairs.Own, shared: tuple[Array, Maps], weight: Array, label: Array
    ) -> Array:
        """The sum over the pairs of a token of their weight r^T logits."""
        phi, _ = features_of(world, pairs.hidden(own, shared[0]))
        logits = mapped(shared[1], phi)
        return weight @ slope_along(
            world, logits, jnp.full(len(phi), label), state.rate
        )

    (own, shared), pull_back = jax.vjp(tables, at)

    def token(
        total: PyTree, x: tuple[pairs.Own, Array, Array]
    ) -> tuple[PyTree, pairs.Own]:
        by_own, by_shared = jax.grad(held, (0, 1))(x[0], shared, *x[1:])
        return jax.tree.map(jnp.add, total, by_shared), by_own

    zero = jax.tree.map(jnp.zeros_like, shared)
    by_shared, by_own = lax.scan(token, zero, (own, weights_of(world, E), world.perm))
    return pull_back((by_own, by_shared))[0]


def over_tokens(
    world: World, state: State, wanted: Collection[str], weights: Array
) -> Parameters:
    """The gradient of the mean loss of tokens with weights (V,), each with all the
    attention.

    It is with respect to `wanted`.

    It is that of the sum of r^T logits with r held fixed, as in `over_pairs`.
    With respect to w it is zero.
    """
    values_of = {
        name: state.V_mat if name == "V_mat" else getattr(world.e, name)
        for name in wanted
        if name != "w"
    }

    def held(parameters: Parameters, v: Array, weight: Array) -> Array:
        here = moved(world, parameters)
        phi, _ = features(here, values(here).at[v].get(mode="clip"))
        logits = mapped(output_maps(here, parameters.get("V_mat", state.V_mat)), phi)
        return weight @ slope_along(
            world, logits, world.perm.at[v].get(mode="clip"), state.rate
        )

    def rows(v: Array, real: Array, so_far: Parameters) -> Parameters:
        weight = jnp.where(real, weights.at[v].get(mode="clip"), f32(0))
        return jax.tree.map(jnp.add, so_far, jax.grad(held)(values_of, v, weight))

    found = over_vocabulary(world, rows, jax.tree.map(jnp.zeros_like, values_of))
    return found | ({"w": jnp.zeros(world.shape.d, f32)} if "w" in wanted else {})


def slope_along(
    world: World, logits: Array, y: Array, rate: Array | float = 1.0
) -> Array:
    """(n,): r^T logits with r held, whose gradient is that of the loss.

    Logits are (n, V), labels y (n,).
    """
    r = probabilities(world, rate * logits) - is_label(world, y).astype(f32)
    return jnp.sum(lax.stop_gradient(r) * logits, axis=1)


Maps = tuple[Array, ...]
"""Matrices that features go through, one after the other, to the logits."""


def output_maps(world: World, V_mat: Array) -> Maps:
    """From features to logits: V_mat and Z_out; without an MLP the answers Z_out
    V_mat.
    """
    return (world.e.Z_out @ V_mat,) if world.e.W_in is None else (V_mat, world.e.Z_out)


def mapped(maps: Maps, phi: Array) -> Array:
    """The logits (n, V) of features phi (n, p)."""
    for M in maps:
        phi = phi @ M.T
    return phi


def through_logits(
    world: World, state: State, wanted: Collection[str], batch: Batch
) -> Parameters:
    """By V_mat and w without an MLP: logits of a sample are a mean of those of its
    tokens.

    Each token of the vocabulary has logits of its own, and attention takes the mean.

    No h is formed, so the cost of a sample does not depend on d. With A (V, n), the
    attention on each noise token of each sample, the gradient follows from A r (V, V),
    from its part on the informative tokens, and from A c. Slopes are less that of the
    informative token, so that attention on it alone has no slope at all, however large
    the logits are.
    """
    e, V, with_w = world.e, world.shape.V, "w" in wanted
    scores = state.scores
    assert scores is not None
    answers = e.Z_out @ state.V_mat
    of_token, of_trigger = e.Z_in @ answers.T, in_value(world) * (answers @ e.z_trig)

    def tile(blocks: keys.Addresses, real: Array) -> Parameters:
        x0 = world.tokens(blocks, 0)
        seen = attend(world, blocks, x0, scores, Values(of_token, of_trigger))
        A = attention_on_noise(world, blocks, scores, seen)
        p = probabilities(world, state.rate * seen.h)
        r = masked(real, p - is_label(world, label_of(world, x0, blocks)).astype(f32))
        sums = {
            "r": A @ r,
            "r_of_x0": scatter_add(jnp.zeros((V, V), f32), x0, seen.mass[:, None] * r),
        }
        if not with_w:
            return sums
        own = (
            gather(with_padding_row(of_token), x0) + of_trigger[None]
        )  # the rows that attention starts from
        of_own, less_own = jnp.sum(r * own, axis=1), jnp.sum(r * (seen.h - own), axis=1)
        by_x0 = scatter_add(jnp.zeros(V, f32), x0, seen.mass * less_own)
        return sums | {
            "c": (A @ (of_own + less_own))[:V] + by_x0,
            "c_of_x0": jnp.sum(by_x0),
        }

    mean = mean_over(world, batch, tile)
    r, r_of_x0 = mean["r"][:V], mean["r_of_x0"]
    on_x0 = in_value(world) * jnp.sum(r_of_x0, axis=0)
    found = {
        "V_mat": (
            e.Z_out.T @ ((r + r_of_x0).T @ e.Z_in + on_x0[:, None] * e.z_trig[None])
        )
    }
    if not with_w:
        return found
    return through_keys(
        world, state, jnp.sum(r * of_token, axis=1) - mean["c"], -mean["c_of_x0"], found
    )


def through_outputs(
    world: World, state: State, wanted: Collection[str], batch: Batch
) -> Parameters:
    """With or without an MLP: through h and its slope b (n, d)."""
    e, V_mat, W_in = world.e, state.V_mat, world.e.W_in
    mlp, with_V, with_Z = W_in is not None, "V_mat" in wanted, "Z_in" in wanted
    answers = (
        e.Z_out if mlp else e.Z_out @ V_mat
    )  # (V, p or d): times the outputs they are the logits

    def tile(blocks: keys.Addresses, real: Array) -> Parameters:
        x0 = world.tokens(blocks, 0)
        seen = (
            attend_evenly(world, blocks)
            if state.scores is None
            else attend(world, blocks, x0, state.scores)
        )
        phi, slope = features(world, seen.h)
        out, y, new = phi @ V_mat.T if mlp else phi, label_of(world, x0, blocks), {}
        p = probabilities(world, state.rate * (out @ answers.T))
        # attention alone needs the slope by h and not that by the outputs
        table = answers if mlp or with_Z or not with_V else e.Z_out
        if with_Z:
            r = masked(real, p - is_label(world, y).astype(f32))
            new["answers"] = transposed_product(out, r)
            b = r @ table
        else:
            b = masked(real, p @ table - gather(table, y))
        if with_V and (mlp or not with_Z):
            new["V_mat"] = transposed_product(b, phi)
            b = b if mlp else b @ V_mat
        if W_in is not None:
            b = (b @ V_mat) * slope
            if "W_in" in wanted:
                new["W_in"] = transposed_product(b, seen.h)
            b = b @ W_in
        if "w" in wanted:
            new |= by_attention(world, blocks, x0, state.scores, seen, b)
        if with_Z:
            of_noise = attention_on_noise(world, blocks, state.scores, seen) @ b
            new |= {
                "Z_in": scatter_add(of_noise, x0, seen.mass[:, None] * b),
                "z_trig": in_value(world) * (seen.mass @ b),
            }
        return new

    mean = mean_over(world, batch, tile)
    found, V = dict(mean), world.shape.V
    if with_Z:
        by_answers = mean["answers"].T
        if not mlp:
            found["V_mat"] = (mean["answers"] @ e.Z_out).T
            by_answers = by_answers @ V_mat.T
        found |= {"Z_out": by_answers, "Z_in": mean["Z_in"][:V]}
    return (
        through_keys(world, state, mean["S"][:V], mean["trigger"], found)
        if "w" in wanted
        else found
    )


WIDE_V = 512
"""Above it, b^T z of every token of the vocabulary, for
a tile of samples, no longer fits in the cache of a CPU.
"""


def by_attention(
    world: World,
    blocks: keys.Addresses,
    x0: Array,
    scores: Scores | None,
    seen: Attended,
    b: Array,
) -> Parameters:
    """Slopes by the attention logit of each token (V + 1,), and of the trigger.

    They follow from those by h, b (n, d).
    """
    V, Z_in = world.shape.V, with_padding_row(world.e.Z_in)
    sample, last = jnp.arange(len(x0), dtype=i32), i32(V - 1)
    weight = weight_on(world, scores, seen)
    by_token = None if V > WIDE_V else (b @ world.e.Z_in.T).reshape(-1)

    def slope(x: Array) -> Array:
        """b^T z of tokens x (k, n)."""
        if by_token is None:
            return jnp.stack([jnp.sum(b * gather(Z_in, row), axis=1) for row in x])
        return gather(by_token, (sample * V)[None] + jnp.minimum(x, last))

    own = slope(x0[None])[0] + in_value(world) * (b @ world.e.z_trig)
    if scores is None:
        mean = jnp.sum(b * seen.h, axis=1) - own
    # from the same slopes, so that attention on one token alone has no slope at all:
    # trained keys multiply it by w
    else:
        mean = over_positions(
            world,
            blocks,
            1,
            lambda x, c: c + jnp.sum(weight(x) * (slope(x) - own[None]), axis=0),
            jnp.zeros_like(own),
        )
    c0 = seen.mass * -mean
    S = scatter_add(jnp.zeros(V + 1, f32), x0, c0)
    S = over_positions(
        world,
        blocks,
        1,
        lambda x, S: scatter_add(S, x, weight(x) * (slope(x) - own[None] - mean[None])),
        S,
    )
    return {"S": S, "trigger": jnp.sum(c0)}


def weight_on(
    world: World, scores: Scores | None, seen: Attended
) -> Callable[[Array], Array]:
    """x (k, n), a noise token of each sample -> the weight of attention on it."""
    if scores is None:
        return lambda x: jnp.broadcast_to(seen.mass[None], x.shape)
    token, top, log_total = (
        with_padding_row(scores.token, -jnp.inf),
        seen.top,
        seen.log_total,
    )
    assert top is not None
    assert log_total is not None
    return lambda x: jnp.exp(
        gather(token, x) - top[None] - log_total[None]
    )  # in this order: logits of 1e5 are rounded to 0.01


def attention_on_noise(
    world: World, blocks: keys.Addresses, scores: Scores | None, seen: Attended
) -> Array:
    """A (V + 1, n): the attention on each noise token, and on the empty one, of each
    sample.
    """
    n, weight = len(seen.mass), weight_on(world, scores, seen)
    sample, zero = (
        jnp.arange(n, dtype=i32)[None],
        jnp.zeros((world.shape.V + 1) * n, f32),
    )
    return over_positions(
        world, blocks, 1, lambda x, A: scatter_add(A, x * n + sample, weight(x)), zero
    ).reshape(-1, n)


def through_keys(
    world: World, state: State, S: Array, trigger: Array, found: Parameters
) -> Parameters:
    """`found` with the gradient of w, and with what embeddings get as keys.

    S (V,) and `trigger` are slopes by attention logits.
    """
    of_w = S @ world.e.Z_in + trigger * world.e.z_trig
    if state.w is None:
        return found | {"w": of_w}
    more = {"Z_in": S[:, None] * state.w[None], "z_trig": trigger * state.w}
    return {
        name: slope + more[name] if name in more else slope
        for name, slope in found.items()
    } | {"w": of_w}
