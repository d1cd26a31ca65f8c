"""The gradient of the mean loss under the exact softmax, summed over tiles of samples in one of two ways. Ours.

r = p - e_y (n, V) is the slope of the loss by the logits. Where attention puts weight a on a token, the slope by that token's
attention logit is a (g - c): g is the slope of the loss along the token's value, and c is the mean of g under attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..model import keys, task
from ..model.training import TRAINS
from .attention import Attended, Scores, Values, attend
from .steps import features
from .tiles import add_at, and_empty, at, only, outer, over_positions
from .world import World, f32, i32, in_value

Parameters = dict[str, Array]
"""What is trained, by name: V_mat (d, p); w = W_KQ z_eos (d,), or W_KQ (d, d) where an optimiser scales entries; and more of TRAINS."""


class Way(NamedTuple):
    """A way to the gradient by sums over samples."""

    sizes: dict[str, tuple[int, ...]]
    """The shape of each sum."""

    tile: Callable[[keys.Addresses, Array], Parameters]
    """(addresses, real) -> what a tile of samples adds to each sum."""

    gradient: Callable[[Parameters], Parameters]
    """The sums divided by the number of samples -> the gradient with respect to V_mat, w and all of TRAINS."""


def way_of(world: World, V_mat: Array, scores: Scores, w: Array) -> Way:
    """The faster of the two."""
    return (through_logits if world.shape.through_logits else through_outputs)(world, V_mat, scores, w)


def through_logits(world: World, V_mat: Array, scores: Scores, w: Array) -> Way:
    """Attention-only: each token of the vocabulary has logits of its own, and those of a sample are their mean under attention.

    No h is formed, so the cost of a sample does not depend on d. With A (V, n), the attention on each token of each sample, the
    gradient follows from A r (V, V), from its part on the informative tokens, and from A c.
    """
    e, V, with_w = world.e, world.shape.V, world.shape.trains != "V"
    answers = e.Z_out @ V_mat
    of_token, of_trigger = e.Z_in @ answers.T, answers @ e.z_trig

    def tile(blocks: keys.Addresses, real: Array) -> Parameters:
        x0 = task.tokens(blocks, 0, world.run.V)
        seen = attend(world, blocks, x0, scores, Values(of_token, of_trigger))
        r = residual(world, seen.h, x0, real)
        A = weights(world, blocks, x0, scores, seen)
        on_x0 = add_at(jnp.zeros((V, V), f32), x0, seen.mass[:, None] * r)
        c = jnp.sum(r * seen.h, axis=1)
        return {"r": A @ r, "r_of_x0": on_x0} | ({"c": A @ c, "c_of_x0": seen.mass @ c} if with_w else {})

    def gradient(mean: Parameters) -> Parameters:
        r, r_of_x0 = mean["r"][:V], mean["r_of_x0"]
        on_x0 = in_value(world) * jnp.sum(r_of_x0, axis=0)
        by_answers = r.T @ e.Z_in + on_x0[:, None] * e.z_trig[None]
        found = {"V_mat": e.Z_out.T @ by_answers, "Z_out": by_answers @ V_mat.T, "Z_in": r @ answers, "z_trig": on_x0 @ answers}
        if not with_w:
            return found
        along_trigger = in_value(world) * (r_of_x0 @ of_trigger)
        S = jnp.sum(r * of_token, axis=1) + along_trigger - mean["c"][:V]
        trigger = jnp.sum(r_of_x0 * of_token) + jnp.sum(along_trigger) - mean["c_of_x0"]
        return through_keys(world, w, S, trigger, found)

    sizes: dict[str, tuple[int, ...]] = {"r": (V + 1, V), "r_of_x0": (V, V)}
    return Way(sizes | ({"c": (V + 1,), "c_of_x0": ()} if with_w else {}), tile, gradient)


def through_outputs(world: World, V_mat: Array, scores: Scores, w: Array) -> Way:
    """With or without an MLP: through h and its slope b (n, d)."""
    e, shape = world.e, world.shape
    answers = e.Z_out @ V_mat if e.W_in is None else e.Z_out
    with_w, (with_Z, with_W_in) = shape.trains != "V", (name in TRAINS[shape.trains] for name in ("Z_in", "W_in"))

    def tile(blocks: keys.Addresses, real: Array) -> Parameters:
        x0 = task.tokens(blocks, 0, world.run.V)
        seen = attend(world, blocks, x0, scores)
        phi, slope = features(world, seen.h)
        out = phi if e.W_in is None else phi @ V_mat.T
        r = residual(world, out @ answers.T, x0, real)
        b = r @ answers
        new: Parameters = {}
        if e.W_in is None or with_Z:
            new["answers"] = outer(out, r)
        if e.W_in is not None:
            new["V_mat"] = outer(b, phi)
            u = (b @ V_mat) * slope
            if with_W_in:
                new["W_in"] = outer(u, seen.h)
            b = u @ e.W_in
        if with_w:
            new |= of_attention(blocks, x0, seen, b)
        if with_Z:
            new |= {"Z_in": weights(world, blocks, x0, scores, seen) @ b, "z_trig": in_value(world) * (seen.mass @ b)}
        return new

    def of_attention(blocks: keys.Addresses, x0: Array, seen: Attended, b: Array) -> Parameters:
        sample, last = jnp.arange(len(x0), dtype=i32), i32(shape.V - 1)
        weight, c = weight_on(scores, seen), jnp.sum(b * seen.h, axis=1)
        along_values = (b @ e.Z_in.T).reshape(-1)  # of all tokens: a product is faster than rows looked up for each position

        def along(x: Array) -> Array:
            return at(along_values, (sample * shape.V)[None] + jnp.minimum(x, last)) - c[None]

        c0 = seen.mass * (along(x0[None])[0] + in_value(world) * (b @ e.z_trig))
        S = add_at(jnp.zeros(shape.V + 1, f32), x0, c0)
        S = over_positions(world, blocks, 1, lambda x, S: add_at(S, x, weight(x) * along(x)), S)
        return {"S": S, "trigger": jnp.sum(c0)}

    def gradient(mean: Parameters) -> Parameters:
        found = {"V_mat": (mean["answers"] @ e.Z_out).T if e.W_in is None else mean["V_mat"]}
        if with_W_in:
            found["W_in"] = mean["W_in"]
        if with_Z:
            found["Z_out"] = mean["answers"].T @ V_mat.T if e.W_in is None else mean["answers"].T
            found |= {"Z_in": mean["Z_in"][:V], "z_trig": mean["z_trig"]}
        return through_keys(world, w, mean["S"][:V], mean["trigger"], found) if with_w else found

    V, d = shape.V, shape.d
    sizes: dict[str, tuple[int, ...]] = {} if e.W_in is None else {"V_mat": V_mat.shape}
    sizes |= {"answers": (d, V)} if e.W_in is None or with_Z else {}
    sizes |= {"W_in": (shape.m, d)} if with_W_in else {}
    sizes |= {"S": (V + 1,), "trigger": ()} if with_w else {}
    sizes |= {"Z_in": (V + 1, d), "z_trig": (d,)} if with_Z else {}
    return Way(sizes, tile, gradient)


def residual(world: World, logits: Array, x0: Array, real: Array) -> Array:
    """r (n, V), zero where a sample is not real."""
    label = jnp.arange(world.shape.V, dtype=i32)[None]
    p = jax.nn.softmax(logits + world.no_label[None], axis=1)
    return only(real, p - (at(world.perm, x0)[:, None] == label).astype(f32))


def weight_on(scores: Scores, seen: Attended) -> Callable[[Array], Array]:
    """x (k, n), a noise token of each sample -> the weight of attention on it."""
    token, log_total = and_empty(scores.token, -jnp.inf), seen.log_total
    assert log_total is not None
    return lambda x: jnp.exp(at(token, x) - log_total[None])


def weights(world: World, blocks: keys.Addresses, x0: Array, scores: Scores, seen: Attended) -> Array:
    """A (V + 1, n): the attention on each token, and on the empty one, of each sample."""
    n = len(x0)
    sample, weight = jnp.arange(n, dtype=i32), weight_on(scores, seen)
    A = add_at(jnp.zeros((world.shape.V + 1) * n, f32), x0 * n + sample, seen.mass)
    return over_positions(world, blocks, 1, lambda x, A: add_at(A, x * n + sample[None], weight(x)), A).reshape(-1, n)


def through_keys(world: World, w: Array, S: Array, trigger: Array, found: Parameters) -> Parameters:
    """`found` with the gradient of w, and with what embeddings get as keys: S (V,) and `trigger` are slopes by attention logits."""
    more = {"Z_in": S[:, None] * w[None], "z_trig": trigger * w}
    of_w = S @ world.e.Z_in + trigger * world.e.z_trig
    return {name: slope + more[name] if name in more else slope for name, slope in found.items()} | {"w": of_w}
