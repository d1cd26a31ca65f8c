"""Computes the gradient of the mean loss at a state of the model.

The gradient is a sum over samples, a tile at a time, or over weighted tokens. The
formulas for the sums are ours.

Let r = p - e_y (n, V) be the slope of a sample's loss by its logits. For a token with
attention weight a, the slope by its attention logit is a (g - c). Here g is the slope
of the loss along the token's value, and c is the mean of g under attention.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from ..model.point import BLOCK
from .arrays import gather, masked, scatter_add, transposed_product, with_padding_row
from .forward import (
    Attended,
    Scores,
    attend,
    attend_evenly,
    features,
    is_label,
    label_of,
    probabilities,
    scores_under,
)
from .loops import over_positions, over_vocabulary
from .world import World, centred, f32, i32, in_value, values

Parameters = dict[str, Array]
"""A dict of trained parameters: V_mat (d, p), w = W_KQ z_eos (d,), and those of TRAINS.

If an optimiser scales single entries, W_KQ (d, d) replaces w.
"""


class State(NamedTuple):
    """The values of V_mat and w at which the gradient is computed.

    The embeddings are in the world.
    """

    V_mat: Array
    """The matrix V_mat (d, p), without the factor `scale`."""

    scale: Array | float = 1.0
    """The scale factor: the matrix of the model is scale * V_mat.

    The gradient with respect to w is divided by `scale`, so that it does not vanish at
    small rates.
    """

    scores: Scores | None = None
    """Attention logits in nats. None means w = 0, where attention is uniform."""

    w: Array | None = None
    """The vector w = W_KQ z_eos (d,), from which the scores were computed. It is needed
    only if embeddings are trained too.
    """

    even: bool = False
    """Whether predictions are 1/V instead of the softmax (see `error_bounds`)."""


class Gradient(NamedTuple):
    """The gradient by one parameter in a step of the recipe."""

    value: Array

    phi2: Array | None = None
    """The mean of |phi|^2 over the samples, or an upper bound on it. None if not
    computed.

    The error bound of even predictions depends on this mean.
    """


def at_parameters(world: World, V_mat: Array, w: Array) -> State:
    """Returns the state of a model whose V_mat and w have no scale factors."""
    return State(V_mat, 1.0, scores_under(world, w), w)


def moved(world: World, parameters: Parameters) -> World:
    """Returns the world with its embeddings and W_in replaced by those that
    `parameters` contains.
    """
    trained = {
        name: value for name, value in parameters.items() if hasattr(world.e, name)
    }
    return replace(world, e=replace(world.e, **trained))


class StepSamples(NamedTuple):
    """The samples of a gradient step."""

    n: Array
    fold: Callable[..., Parameters]
    """A function `fold(body, start)` that loops over the samples, as
    `loops.over_samples` does.
    """


class AddedRows(NamedTuple):
    """Amounts that are added to rows of a table (V + 1, k). The last row belongs to
    samples past the last one.
    """

    index: Array  # (n,) the rows
    amount: Array  # (n, k)


def mean_over(
    world: World,
    batch: StepSamples,
    tile: Callable[[keys.Addresses, Array], Mapping[str, Array | AddedRows]],
) -> Parameters:
    """The mean over the samples of `batch`. `tile(addresses, real)` returns the sums
    over one tile, or the rows of a table to which its samples are added.
    """

    def zero(part: Array | AddedRows) -> Array:
        if isinstance(part, AddedRows):
            return jnp.zeros((world.shape.V + 1, *part.amount.shape[1:]), f32)
        return jnp.zeros(part.shape, part.dtype)

    def plus(so_far: Array, part: Array | AddedRows) -> Array:
        if isinstance(part, AddedRows):
            return scatter_add(so_far, part.index, part.amount)
        return so_far + part

    def add(blocks: keys.Addresses, real: Array, so_far: Parameters) -> Parameters:
        parts = tile(blocks, real)
        return {name: plus(so_far[name], part) for name, part in parts.items()}

    some_blocks = keys.blocks(world.run.batches[0], 0, world.shape.tile // BLOCK)
    some_real = jnp.zeros(world.shape.tile, bool)
    shapes = jax.eval_shape(tile, some_blocks, some_real)
    start = {name: zero(part) for name, part in shapes.items()}
    n = batch.n.astype(f32)
    return {name: part / n for name, part in batch.fold(add, start).items()}


def over_tokens(
    world: World, state: State, wanted: Collection[str], weights: Array
) -> Parameters:
    """The gradients of the weighted loss of tokens, by the parameters `wanted`. The
    weights have the shape (V,).

    Each token has all the attention, so the gradient with respect to w is zero.
    """
    at = {}
    for name in wanted:
        if name != "w":
            at[name] = state.V_mat if name == "V_mat" else getattr(world.e, name)

    def slope_of_rows(parameters: Parameters, v: Array, weight: Array) -> Array:
        here = moved(world, parameters)
        phi, _ = features(here, values(here).at[v].get(mode="clip"))
        logits = mapped(output_maps(here, parameters.get("V_mat", state.V_mat)), phi)
        y = world.perm.at[v].get(mode="clip")
        return weight @ slope_along(world, logits, y, state.scale)

    def rows(v: Array, real: Array, so_far: Parameters) -> Parameters:
        weight = jnp.where(real, weights.at[v].get(mode="clip"), f32(0))
        new = jax.grad(slope_of_rows)(at, v, weight)
        return jax.tree.map(jnp.add, so_far, new)

    slopes = over_vocabulary(world, rows, jax.tree.map(jnp.zeros_like, at))
    if "w" in wanted:
        slopes["w"] = jnp.zeros(world.shape.d, f32)
    return slopes


def slope_along(world: World, logits: Array, y: Array, scale: Array | float) -> Array:
    """The product r^T logits (n,), with r held constant. Its gradient equals that of
    the loss.

    The logits are (n, V), and the labels y are (n,).
    """
    r = probabilities(world, scale * logits) - is_label(world, y).astype(f32)
    return jnp.sum(lax.stop_gradient(r) * logits, axis=1)


Maps = tuple[Array, ...]
"""Matrices that map features to logits, applied one after the other."""


def output_maps(world: World, V_mat: Array) -> Maps:
    """The maps from features to logits: V_mat and then Z_out. Without an MLP, Z_out
    V_mat.
    """
    if world.e.W_in is None:
        return (world.e.Z_out @ V_mat,)
    return V_mat, world.e.Z_out


def mapped(maps: Maps, phi: Array) -> Array:
    """The logits (n, V) of features phi (n, p)."""
    for M in maps:
        phi = phi @ M.T
    return phi


def read_tile(
    world: World, state: State, blocks: keys.Addresses
) -> tuple[Array, Attended, Array, Array, Array]:
    """Returns what a gradient reads of a tile of samples: the informative tokens, the
    attention, the features and their slopes, and the labels.
    """
    x0 = world.tokens(blocks, 0)
    if state.scores is None:
        seen = attend_evenly(world, blocks)
    else:
        seen = attend(world, blocks, x0, state.scores)
    return x0, seen, *features(world, seen.h), label_of(world, x0, blocks)


def through_labels(
    world: World, state: State, name: str, batch: StepSamples
) -> Gradient:
    """The gradient by `name`, V_mat or w, with even predictions.

    The slope of a sample's loss by its features phi then depends on its label alone. It
    is a row of a table (V, p), which is computed once. For the gradient by V_mat,
    features are summed by label before the product. On an accelerator, where sums by
    label are slow, a product sums the samples of a tile.
    """
    less_mean = centred(world, world.e.Z_out)
    of_label = -less_mean @ state.V_mat

    def tile(blocks: keys.Addresses, real: Array) -> dict[str, Array | AddedRows]:
        x0, seen, phi, slope, y = read_tile(world, state, blocks)
        phi2 = jnp.sum(phi * phi, axis=1)
        new: dict[str, Array | AddedRows] = {
            "phi2": jnp.sum(jnp.where(real, phi2, f32(0)))
        }
        if name == "w":
            b = masked(real, gather(of_label, y)) * slope
            if world.e.W_in is not None:
                b = b @ world.e.W_in
            new |= by_attention(world, blocks, x0, state.scores, seen, b)
        elif world.vmapped:
            toward = masked(real, gather(less_mean, y))
            new["V_mat"] = -transposed_product(toward, phi)
        else:
            new["by_label"] = AddedRows(jnp.where(real, y, world.shape.V), phi)
        return new

    mean = mean_over(world, batch, tile)
    if "by_label" in mean:
        mean["V_mat"] = -transposed_product(less_mean, mean["by_label"][:-1])
    if name == "w":
        S = mean["S"][: world.shape.V]
        mean |= through_keys(world, state, S, mean["trigger"], {})
    return Gradient(mean[name], mean["phi2"])


def through_outputs(
    world: World, state: State, wanted: Collection[str], batch: StepSamples
) -> Parameters:
    """The gradient with or without an MLP, computed from h and the slope b (n, d) of
    the loss by h.

    If embeddings are trained, or if there are several first steps, samples are summed
    in the table r^T phi (V, p) of the slopes by answers. It gives the gradient by V_mat
    with fewer products of samples.
    """
    e, V_mat, W_in = world.e, state.V_mat, world.e.W_in
    mlp, with_V, with_Z = W_in is not None, "V_mat" in wanted, "Z_in" in wanted
    with_answers = with_Z or (world.shape.repeats and not mlp and "w" not in wanted)
    # (V, p or d): outputs times these are the logits
    answers = e.Z_out if mlp else e.Z_out @ V_mat
    # attention alone needs only the slope by h, and not the slope by the outputs
    table = answers if mlp or with_Z or not with_V else e.Z_out

    def tile(blocks: keys.Addresses, real: Array) -> Parameters:
        x0, seen, phi, slope, y = read_tile(world, state, blocks)
        new: Parameters = {}
        out = phi @ V_mat.T if mlp else phi
        p = probabilities(world, state.scale * (out @ answers.T))
        if with_answers:
            r = masked(real, p - is_label(world, y).astype(f32))
            new["answers"] = transposed_product(out, r)
            b = r @ table
        else:
            b = masked(real, p @ table - gather(table, y))
        if with_V and (mlp or not with_answers):
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
            new["Z_in"] = scatter_add(of_noise, x0, seen.mass[:, None] * b)
            new["z_trig"] = in_value(world) * (seen.mass @ b)
        return new

    mean = mean_over(world, batch, tile)
    slopes, V = dict(mean), world.shape.V
    if "answers" in mean and not mlp:
        slopes["V_mat"] = (mean["answers"] @ e.Z_out).T
    if with_Z:
        by_answers = mean["answers"].T
        if not mlp:
            by_answers = by_answers @ V_mat.T
        slopes |= {"Z_out": by_answers, "Z_in": mean["Z_in"][:V]}
    if "w" not in wanted:
        return slopes
    return through_keys(world, state, mean["S"][:V], mean["trigger"], slopes)


WIDE_V = 512
"""The largest V for which the table of b^T z fits in the cache of a CPU. The table
contains all tokens and a tile of samples.
"""


def by_attention(
    world: World,
    blocks: keys.Addresses,
    x0: Array,
    scores: Scores | None,
    seen: Attended,
    b: Array,
) -> Parameters:
    """A dict of the slopes of the loss by attention logits. "S" (V + 1,) contains the
    slope of each token, and "trigger" that of the trigger.

    The argument b (n, d) contains the slopes of the loss by h.
    """
    V, Z_in = world.shape.V, with_padding_row(world.e.Z_in)
    sample, last = jnp.arange(len(x0), dtype=i32), i32(V - 1)
    weight = weight_on(world, scores, seen)
    by_token = None if V > WIDE_V else (b @ world.e.Z_in.T).reshape(-1)

    def slope(x: Array) -> Array:
        """The products b^T z for tokens x (k, n)."""
        if by_token is None:
            return jnp.stack([jnp.sum(b * gather(Z_in, row), axis=1) for row in x])
        return gather(by_token, (sample * V)[None] + jnp.minimum(x, last))

    of_own = slope(x0[None])[0] + in_value(world) * (b @ world.e.z_trig)

    def add_mean(x: Array, times: Array, c: Array) -> Array:
        return c + jnp.sum(times * weight(x) * (slope(x) - of_own[None]), axis=0)

    if scores is None:
        mean = jnp.sum(b * seen.h, axis=1) - of_own
    else:
        # computed from the same slopes, so that attention on one token alone has a
        # slope of exactly zero: trained keys multiply it by w
        mean = over_positions(world, blocks, add_mean, jnp.zeros_like(of_own))

    def add_slopes(x: Array, times: Array, S: Array) -> Array:
        slopes = weight(x) * (slope(x) - of_own[None] - mean[None])
        return scatter_add(S, x, times * slopes)

    of_x0 = seen.mass * -mean
    S = scatter_add(jnp.zeros(V + 1, f32), x0, of_x0)
    S = over_positions(world, blocks, add_slopes, S)
    return {"S": S, "trigger": jnp.sum(of_x0)}


def weight_on(
    world: World, scores: Scores | None, seen: Attended
) -> Callable[[Array], Array]:
    """Returns a function that computes the attention on noise tokens x (k, n) of the
    samples.
    """
    if scores is None:
        return lambda x: jnp.broadcast_to(seen.mass[None], x.shape)
    token = with_padding_row(scores.token, -jnp.inf)
    top, log_total = seen.top, seen.log_total
    assert top is not None
    assert log_total is not None
    # subtracted in this order, as logits of 1e5 are rounded to 0.01
    return lambda x: jnp.exp(gather(token, x) - top[None] - log_total[None])


def attention_on_noise(
    world: World, blocks: keys.Addresses, scores: Scores | None, seen: Attended
) -> Array:
    """The attention on each noise token of each sample, as an array (V + 1, n).

    The last row belongs to the empty token.
    """
    n, weight = len(seen.mass), weight_on(world, scores, seen)
    sample = jnp.arange(n, dtype=i32)[None]

    def add(x: Array, times: Array, A: Array) -> Array:
        return scatter_add(A, x * n + sample, times * weight(x))

    zero = jnp.zeros((world.shape.V + 1) * n, f32)
    return over_positions(world, blocks, add, zero).reshape(-1, n)


def through_keys(
    world: World, state: State, S: Array, trigger: Array, slopes: Parameters
) -> Parameters:
    """Returns `slopes` with the gradient by w added. For trained embeddings, it also
    adds the part of the gradient that comes from keys.

    S (V,) and `trigger` are the slopes of the loss by attention logits.
    """
    with_w = slopes | {"w": S @ world.e.Z_in + trigger * world.e.z_trig}
    if state.w is not None:
        as_keys = {"Z_in": S[:, None] * state.w[None], "z_trig": trigger * state.w}
        for name, slope in as_keys.items():
            if name in slopes:
                with_w[name] = slopes[name] + slope
    return with_w
