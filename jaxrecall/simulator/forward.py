"""Computes the forward pass of a tile of samples: attention, features and
predictions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys, task
from ..model.point import BLOCK
from .arrays import (
    f32,
    gather,
    i32,
    longest,
    norm,
    unless_zero,
    whole,
    with_padding_row,
)
from .loops import over_columns, over_positions, repeat
from .program_shape import STORED_VALUES
from .world import MeanValues, World, in_value


def mean_value(world: World, blocks: keys.Addresses) -> Array:
    """The attention output h (tile, d) under uniform attention, which is the mean of
    the values.
    """
    run, e = world.run, world.e
    Z_in = with_padding_row(e.Z_in)

    def add(x: Array, times: Array, h: Array) -> Array:
        for row, n in zip(x, times, strict=True):
            h = h + n[:, None] * gather(Z_in, row)
        return h

    informative = gather(Z_in, world.tokens(blocks, 0))
    total = over_positions(world, blocks, add, informative)
    return (total + in_value(world) * e.z_trig[None]) / run.L.astype(f32)


class Scores(NamedTuple):
    """The two parts of attention logits, in nats."""

    token: Array  # (V,) z_in(v)^T w for every token v
    trigger: Array  # z_trig^T w, which is added to the logit of the informative token


def attention_scores(world: World, w: Array, rate: Array) -> Scores:
    """The attention logits under rate * w.

    The logits under w are divided by the largest absolute logit. They are then
    multiplied by that logit times the rate. The product is limited to 1e30 nats, so
    that no gamma causes an overflow. Beyond this limit, every float32 softmax is an
    argmax.
    """
    token, trigger = world.e.Z_in @ w, world.e.z_trig @ w
    largest = unless_zero(jnp.maximum(jnp.max(jnp.abs(token)), jnp.abs(trigger)))
    nats = jnp.minimum(rate * largest, f32(1e30))
    return Scores(token / largest * nats, trigger / largest * nats)


def unlearned_scores(world: World) -> Scores:
    """The attention logits at w = 0, which are all 0."""
    return Scores(jnp.zeros(world.shape.V, f32), f32(0))


def scores_under(world: World, w: Array) -> Scores:
    """The attention logits in nats under w, which has no scale factor."""
    return Scores(world.e.Z_in @ w, world.e.z_trig @ w)


class NoiseAttention(NamedTuple):
    """Softmax attention over the noise tokens of each sequence, without the informative
    token.

    All weights are relative to the weight of the token with the largest logit.
    """

    value: Array  # (n, d) mean of the values
    total: Array  # (n,) sum of the weights
    top: Array  # (n,) largest attention logit; -inf without noise


def attend_to_counts(world: World, counts: Array, scores: Scores) -> NoiseAttention:
    """The attention over noise tokens, where each token occurs `counts` (n, V)
    times.
    """
    top = lax.stop_gradient(
        jnp.max(jnp.where(counts > 0, scores.token[None], f32(-jnp.inf)), axis=1)
    )
    ahead = jnp.where(top > -jnp.inf, top, f32(0))
    behind = jnp.where(counts > 0, scores.token[None] - ahead[:, None], f32(0))
    return NoiseAttention(*weighted_mean(behind, counts, world.e.Z_in), top)


@jax.custom_jvp
def weighted_mean(logits: Array, counts: Array, Z: Array) -> tuple[Array, Array]:
    """Returns the weighted means (n, d) of the rows of Z (V, d), and the sums (n,) of
    the weights.

    The weights (n, V) are counts * exp(logits).

    If one token has all the weight, the derivative is exactly zero, without any
    rounding error, as in `shares_of`. This matters because the gradient of a trained
    key contains the derivative times w, which can be 1e6.
    """
    weight = _weights(logits, counts)
    total = jnp.sum(weight, axis=1)
    return weight @ Z / unless_zero(total)[:, None], total


@weighted_mean.defjvp
def _(
    at: tuple[Array, ...], by: tuple[Array, ...]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (logits, counts, Z), (d_logits, _, dZ) = at, by
    value, total = weighted_mean(logits, counts, Z)
    weight = _weights(logits, counts)
    share = weight / unless_zero(total)[:, None]
    less_mean = share * (d_logits - jnp.sum(share * d_logits, axis=1)[:, None])
    d_value = less_mean @ Z + share @ dZ
    return (value, total), (d_value, jnp.sum(weight * d_logits, axis=1))


def _weights(logits: Array, counts: Array) -> Array:
    return jnp.where(counts > 0, counts * jnp.exp(logits), f32(0))


@jax.custom_jvp
def shares_of(score: Array, total: Array, top: Array) -> tuple[Array, Array]:
    """Returns the softmax weight of the informative token, and that of all noise tokens
    together.

    `score` is the attention logit of the informative token. `total` and `top` are the
    fields of NoiseAttention. The three arrays have the same rank.
    """
    highest = jnp.maximum(score, top)
    informative, others = jnp.exp(score - highest), total * jnp.exp(top - highest)
    return informative / (informative + others), others / (informative + others)


@shares_of.defjvp
def _(
    at: tuple[Array, ...], by: tuple[Array, ...]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (score, total, top), (d_score, d_total, _) = at, by
    informative, others = shares_of(score, total, top)
    moved = informative * others * (d_score - d_total / unless_zero(total))
    return (informative, others), (moved, -moved)


class Attended(NamedTuple):
    h: Array  # (tile, d) attention output
    mass: Array  # (tile,) softmax weight of the informative token
    is_top: Array  # (tile,) whether that weight is strictly the largest
    # (tile,) largest attention logit (nats)
    top: Array | None = None
    # (tile,) log of the sum over tokens of exp(logit - top)
    log_total: Array | None = None


def attend(
    world: World,
    blocks: keys.Addresses,
    x0: Array,
    scores: Scores,
) -> Attended:
    """Computes softmax attention in one pass over positions. x0 contains the tokens at
    position 0.

    All sums are rescaled when the running maximum of the logits grows.
    """
    token = with_padding_row(scores.token, -jnp.inf)
    rows = with_padding_row(world.e.Z_in)
    own = gather(token, x0) + scores.trigger
    start = jnp.full_like(own, -jnp.inf), jnp.ones_like(own), gather(rows, x0)

    def positions(
        x: Array, times: Array, carry: tuple[Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        rest, total, h = carry
        score = gather(token, x)
        further = jnp.maximum(rest, jnp.max(score, axis=0))
        top = jnp.maximum(own, further)
        keep = jnp.exp(jnp.maximum(own, rest) - top)
        weight = times * jnp.exp(score - top[None])

        def weigh(k: int) -> Array:
            part = h[:, :k] * keep[:, None]
            for w, row in zip(weight, x, strict=True):
                part = part + w[:, None] * gather(rows[:, :k], row)
            return lax.dynamic_update_slice(h, part, (0, 0))

        total = total * keep + jnp.sum(weight, axis=0)
        return further, total, over_columns(world, weigh)

    rest, total, h = over_positions(world, blocks, positions, start)
    top = jnp.maximum(own, rest)
    mass = jnp.exp(own - top) / total
    h_trigger = in_value(world) * mass[:, None] * world.e.z_trig[None]
    h = h / total[:, None] + h_trigger
    return Attended(h, mass, own > rest, top, jnp.log(total))


def with_mean_values(world: World) -> World:
    """Returns the world with the mean values of the first batch, if several first steps
    read them.

    If there are too many, none are computed here. Vmapped runs store none, because they
    would compute them anyway.
    """
    if world.vmapped or not world.shape.repeats:
        return world
    tile, d = world.shape.tile, world.shape.d
    n_stored = max(1, STORED_VALUES // d // tile)
    n_tiles = whole(world.run.N, tile)
    complete = ~world.run.fresh_batches & (n_tiles <= n_stored)

    def store(c: Array, h: Array) -> Array:
        per_tile = tile // BLOCK
        blocks = keys.blocks(world.run.batches[0], c * per_tile, per_tile)
        return lax.dynamic_update_slice(h, mean_value(world, blocks), (c * tile, 0))

    n = jnp.where(complete, n_tiles, 0)
    h = repeat(world, n, store, jnp.zeros((n_stored * tile, d), f32))
    return replace(world, mean_values=MeanValues(h, complete))


def stored_mean_value(world: World, blocks: keys.Addresses) -> Array:
    """Returns the same as `mean_value`, from the stored values if there are any. The
    blocks are a tile of the first batch, as in all steps of the recipe.
    """
    stored = world.mean_values
    if stored is None:
        return mean_value(world, blocks)

    def read() -> Array:
        start = blocks.index[0].astype(i32) * BLOCK
        return lax.dynamic_slice_in_dim(stored.h, start, world.shape.tile)

    return lax.cond(stored.complete, read, lambda: mean_value(world, blocks))


def attend_evenly(world: World, blocks: keys.Addresses) -> Attended:
    """Computes uniform attention, which is the attention for w = 0."""
    h = stored_mean_value(world, blocks)
    mass = jnp.broadcast_to(1 / world.run.L.astype(f32), h.shape[:1])
    return Attended(h, mass, jnp.zeros(h.shape[:1], bool))


ROUNDING = 2.0**-21
"""w is only rounding if it is smaller than this number times the largest change of w
that an informative token alone can cause. In 2,015 small points, rounding was at most
1e-7 of this change, and learned attention was at least 9e-7 of it.
"""


def zero_if_rounding(world: World, w_hat: Array, A: Array) -> Array:
    """Returns w_hat, or zero if attention is untrained and w_hat is only rounding.

    Attention is untrained if all tokens of each sample are equal. The informative token
    alone changes w_hat by up to |z_eos|^2 max |b| |v - h| |k| / L. In this bound, max
    |b| is the largest row norm of A (V, p), the centred Z_out G1. |v - h| and |k| are
    bounded by norms of the embeddings.
    """
    e = world.e
    size = longest(e.Z_in) + norm(e.z_trig)
    push = jnp.sum(e.z_eos * e.z_eos) * longest(A) * size**2 / world.run.L.astype(f32)
    return jnp.where(jnp.max(jnp.abs(w_hat)) <= f32(ROUNDING) * push, f32(0), w_hat)


def features(world: World, h: Array) -> tuple[Array, Array]:
    """Returns phi (n, p), the input of V_mat, and the slope act'(W_in h) / sqrt(m).

    Both arrays are 0 on padded units. Without an MLP, they are h and an array of ones.
    """
    return features_of(world, h if world.e.W_in is None else h @ world.e.W_in.T)


def features_of(world: World, u: Array) -> tuple[Array, Array]:
    """Returns the same as `features`, from u = W_in h (n, m), or from u = h without an
    MLP.
    """
    if world.e.W_in is None:
        return u, jnp.ones_like(u)
    phi, slope = world.law("activation").value_and_slope(u, jnp, jax.scipy.special.erf)
    real = (jnp.arange(world.shape.m, dtype=i32) < world.run.m)[None]
    scale = jnp.where(real, lax.rsqrt(world.run.m.astype(f32)), f32(0))
    return phi * scale, slope * scale


def probabilities(world: World, logits: Array) -> Array:
    """The probabilities p (n, V): the softmax of the logits (n, V) over all labels that
    are not padding.
    """
    return jax.nn.softmax(logits + world.no_label[None], axis=1)


def is_label(world: World, y: Array) -> Array:
    """A mask (n, V) that is true at the label y (n,) of each row."""
    return y[:, None] == jnp.arange(world.shape.V, dtype=i32)[None]


def label_of(world: World, x: Array, train: keys.Addresses) -> Array:
    """The labels of the samples at the addresses `train`, as an int32 array (n,): pi(x)
    for informative tokens x, with label noise.
    """
    labels = gather(world.perm, x)
    if not world.shape.noisy:
        return labels
    return task.noisy_labels(train, labels, world.run.V, world.run.label_noise)
