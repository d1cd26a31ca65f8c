"""The three steps of one run, streamed: float32, padded to a bucket, memory independent of N and L.

Samples come in chunks of whole blocks, drawn from their addresses whenever they are needed; a loop over positions adds a few
gathered embedding rows per sample at a time. Rates are factored out, so nothing here is as small as eta or as large as
gamma: V1 = eta G1, w = gamma eta w_hat, V2 = eta G1 + gamma2 G2. `steps.py` says the same to read; `shortcuts.py` holds the
cheaper forms that a guarded run may take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from ..laws.activation import value_and_slope
from ..point import BLOCK
from ..science import embeddings as embed
from ..science import keys, task
from ..science.embeddings import Embeddings

f32, i32 = jnp.float32, jnp.int32

GROUP = 4
"""Positions that a loop over a sequence reads at once: each pass over the sums of a chunk then adds this many rows."""


class Run(NamedTuple):
    """One run as a program's argument: keys and scalars, every one traced."""

    streams: Any  # (10, 2) uint32, keys of the named streams
    batches: Any  # (3, 2) uint32, keys of the samples of the three gradient steps
    V: Any  # int32, as are N, d, L, m, n_test
    N: Any
    d: Any
    L: Any
    m: Any
    n_test: Any
    law: Any  # int32, index into embed.LAWS
    trigger_in_value: Any  # bool
    fresh_batches: Any  # bool
    eta: Any  # float32
    gamma_eta: Any  # float32: gamma * eta
    mix1: Any  # float32: eta / max(eta, gamma2)
    mix2: Any  # float32: gamma2 / max(eta, gamma2)


class Shape(NamedTuple):
    """What is static: padded sizes, the activation, samples per chunk (a multiple of the block), whether shortcuts are barred,
    and what is asked for besides the metrics."""

    V: int
    d: int
    m: int
    activation: str
    chunk: int
    full: bool
    diagnose: bool = False
    decoders: bool = False


class World(eqx.Module):
    """The drawn but untrained part of a run: embeddings, permutation, and the mask of the padding."""

    run: Run
    e: Embeddings
    perm: Array  # (V,) int32
    no_label: Array  # (V,) float32: 0 on labels, -inf on padding
    shape: Shape = eqx.field(static=True)


class Learned(NamedTuple):
    """What the three steps learn, with the rates factored out. float32."""

    G1: Array  # (d, p): V1 = eta G1
    w_hat: Array  # (d,): w = gamma eta w_hat
    G2: Array  # (d, p): V2 = eta G1 + gamma2 G2


def draw(run: Run, shape: Shape) -> World:
    """The frozen part of the run."""
    e = embed.draw(run.streams, run.law, run.V, run.d, run.m, (shape.V, shape.d, shape.m))
    no_label = jnp.where(jnp.arange(shape.V, dtype=i32) < run.V, f32(0), f32(-jnp.inf))
    return World(run, e, task.permutation(run.streams, run.V, shape.V), no_label, shape)


Residual = Callable[[Array, Array], Array]
"""(phi, y) -> table^T (e_y - p): how a step gets what its samples push on."""


def train(world: World) -> Learned:
    """The three gradient steps, exact softmax everywhere."""
    G1, w_hat = first_steps(world)
    G2, _ = step3(world, attention_scores(world, w_hat), residuals(world, G1)[1])
    return Learned(G1, w_hat, G2)


def first_steps(world: World) -> tuple[Array, Array]:
    """Steps 1 and 2: G1 and w_hat."""
    G1 = step1(world)
    w_hat, _ = step2(world, residuals(world, G1)[0])
    return G1, w_hat


def residuals(world: World, G1: Array) -> tuple[Residual, Residual]:
    """G1^T Z_out^T (e_y - p) and Z_out^T (e_y - p), p the prediction of V1 = eta G1."""
    Z_out = world.e.Z_out
    if world.e.W_in is None:
        answers = Z_out @ G1
        return lambda phi, y: residual(world, phi, y, answers, answers), lambda phi, y: residual(world, phi, y, answers, Z_out)

    def push(phi: Array, y: Array) -> Array:  # by way of the d dimensions, which are fewer than the m
        return residual(world, phi @ G1.T, y, Z_out, Z_out)

    return lambda phi, y: push(phi, y) @ G1, push


def step1(world: World) -> Array:
    """G1 = 1/N sum_i (z_out(y_i) - mean z_out) phi(h_i)^T: predictions and attention are uniform at the start."""
    run, e = world.run, world.e
    table = centred(world, e.Z_out)

    def chunk(blocks: keys.Blocks, real: Array, G: Array) -> Array:
        x0 = task.tokens(blocks, 0, run.V)
        phi, _ = features(world, mean_value(world, blocks))
        return G + outer(only(real, at(table, at(world.perm, x0))), phi)

    return over_samples(world, batch_of_step(world, 0), run.N, chunk, zeros_dp(world)) / run.N.astype(f32)


def step2(world: World, push: Residual) -> tuple[Array, Array]:
    """w_hat = |z_eos|^2 / (N L) sum_i sum_j b_i^T (v_ij - h_i) k_ij, with b_i = J_phi^T G1^T Z_out^T (e_y - p_i); mean |phi|^2.

    `push` gives G1^T Z_out^T (e_y - p_i). The sum over keys needs one scalar per token, scattered into S: it is Z_in^T S and
    the trigger's share.
    """
    run, e, shape = world.run, world.e, world.shape

    def chunk(blocks: keys.Blocks, real: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        S, trigger, phi2 = carry
        x0 = task.tokens(blocks, 0, run.V)
        h = mean_value(world, blocks)
        phi, slope = features(world, h)
        b = push(phi, at(world.perm, x0))
        b = only(real, b if e.W_in is None else (b * slope) @ e.W_in)
        along_h = jnp.sum(b * h, axis=1)

        def toward(x: Array) -> Array:
            return jnp.sum(b * at(Z_in, x), axis=1) - along_h

        c0 = toward(x0) + in_value(world) * (b @ e.z_trig)

        def positions(x: Array, S: Array) -> Array:
            return add_at(S, x, jnp.stack([toward(row) for row in x]))

        S = over_positions(world, blocks, 1, positions, add_at(S, x0, c0))
        return S, trigger + jnp.sum(c0), phi2 + jnp.sum(only(real, phi * phi))

    Z_in = and_empty(e.Z_in)
    start = jnp.zeros(shape.V + 1, f32), f32(0), f32(0)
    S, trigger, phi2 = over_samples(world, batch_of_step(world, 1), run.N, chunk, start)
    return attention_gradient(world, S @ Z_in + trigger * e.z_trig), phi2 / run.N.astype(f32)


def attention_gradient(world: World, keys_sum: Array) -> Array:
    """w_hat from the sum over samples and positions of b^T (v - h) k."""
    run, e = world.run, world.e
    w_hat = jnp.sum(e.z_eos * e.z_eos) * (keys_sum / run.N.astype(f32) / run.L.astype(f32))
    return jnp.where(run.L > 1, w_hat, f32(0))  # a lone token has all the attention: zero, not rounding


def step3(world: World, scores: Scores, push: Residual, n: Array | None = None) -> tuple[Array, Array]:
    """G2 = 1/N sum_i Z_out^T (e_y - p_i) phi(h_i)^T, with the attention of w and the predictions of V1; mean |phi|^2.

    `push` gives Z_out^T (e_y - p_i). With n, the first n samples alone are read.
    """
    run = world.run

    def chunk(blocks: keys.Blocks, real: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        G, phi2 = carry
        x0 = task.tokens(blocks, 0, run.V)
        phi, _ = features(world, attend(world, blocks, scores).h)
        return G + outer(only(real, push(phi, at(world.perm, x0))), phi), phi2 + jnp.sum(only(real, phi * phi))

    G, phi2 = over_samples(world, batch_of_step(world, 2), run.N if n is None else n, chunk, (zeros_dp(world), f32(0)))
    return G / run.N.astype(f32), phi2 / run.N.astype(f32)


def batch_of_step(world: World, step: int | Array) -> Array:
    """Stream of the samples of gradient step 0, 1 or 2."""
    return world.run.batches[step]


def centred(world: World, table: Array) -> Array:
    """`table` (V, n) less its mean row; padded rows stay zero."""
    mean = jnp.sum(table, axis=0) / world.run.V.astype(f32)
    return jnp.where((world.no_label == 0)[:, None], table - mean[None], f32(0))


def mean_value(world: World, blocks: keys.Blocks) -> Array:
    """h (chunk, d) under uniform attention: the mean of the values."""
    run, e = world.run, world.e
    Z_in = and_empty(e.Z_in)
    zero = jnp.zeros((world.shape.chunk, world.shape.d), f32)
    total = over_positions(world, blocks, 0, lambda x, h: sum((at(Z_in, row) for row in x), h), zero)
    return (total + in_value(world) * e.z_trig[None]) / run.L.astype(f32)


def features(world: World, h: Array) -> tuple[Array, Array]:
    """phi (n, p), what V_mat reads, and act'(W_in h) / sqrt(m); zero on padded units."""
    if world.e.W_in is None:
        return h, h
    real = (jnp.arange(world.shape.m, dtype=i32) < world.run.m)[None]
    scale = jnp.where(real, lax.rsqrt(world.run.m.astype(f32)), f32(0))
    phi, slope = value_and_slope(world.shape.activation, h @ world.e.W_in.T, jnp, jax.scipy.special.erf)
    return phi * scale, slope * scale


def residual(world: World, phi: Array, y: Array, answers: Array, table: Array) -> Array:
    """table^T (e_y - p), one row a sample: p the softmax of eta answers phi, with phi (n, k), answers (V, k), table (V, l)."""
    p = jax.nn.softmax(world.run.eta * (phi @ answers.T) + world.no_label[None], axis=1)
    return at(table, y) - p @ table


class Scores(NamedTuple):
    """Attention logits: of every token, (V,), and what the trigger adds (nats)."""

    token: Array
    trigger: Array


def attention_scores(world: World, w_hat: Array) -> Scores:
    """Attention logits under w = gamma eta w_hat.

    Scaled by their largest before the rate comes in. Beyond 1e30 nats every softmax is an argmax to float32, so the
    rate is capped there and no gamma overflows.
    """
    token, trigger = world.e.Z_in @ w_hat, world.e.z_trig @ w_hat
    largest = unless_zero(jnp.maximum(jnp.max(jnp.abs(token)), jnp.abs(trigger)))
    nats = jnp.minimum(world.run.gamma_eta * largest, f32(1e30))
    return Scores(token / largest * nats, trigger / largest * nats)


class Attended(NamedTuple):
    h: Array  # (chunk, d) attention output
    mass: Array  # (chunk,) softmax weight on the informative token
    is_top: Array  # (chunk,) that weight is strictly the largest


def attend(world: World, blocks: keys.Blocks, scores: Scores) -> Attended:
    """Softmax attention in one pass over positions: a running maximum, every sum rescaled when it grows."""
    Z_in, token = and_empty(world.e.Z_in), and_empty(scores.token, -jnp.inf)
    x0 = task.tokens(blocks, 0, world.run.V)
    own = at(token, x0) + scores.trigger
    start = (own, jnp.ones_like(own), at(Z_in, x0), jnp.full_like(own, -jnp.inf))

    def positions(x: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        top, total, h, rest = carry
        score = at(token, x)
        highest = jnp.max(score, axis=0)
        new = jnp.maximum(top, highest)
        keep, weight = jnp.exp(top - new), jnp.exp(score - new[None])
        h = sum((w[:, None] * at(Z_in, row) for w, row in zip(weight, x, strict=True)), h * keep[:, None])
        return new, total * keep + jnp.sum(weight, axis=0), h, jnp.maximum(rest, highest)

    top, total, h, rest = over_positions(world, blocks, 1, positions, start)
    mass = jnp.exp(own - top) / total
    return Attended(h / total[:, None] + in_value(world) * mass[:, None] * world.e.z_trig[None], mass, own > rest)


def over_samples(world: World, key: Array, n: Array, body: Callable[[keys.Blocks, Array, Any], Any], start: Any) -> Any:
    """Folds `body(blocks, real, carry)` over the first n samples of a stream; `real` (chunk,) masks those past n."""
    chunk = world.shape.chunk
    per_chunk = chunk // BLOCK

    def step(c: Array, carry: Any) -> Any:
        real = c * chunk + jnp.arange(chunk, dtype=i32) < n
        return body(keys.blocks(key, c * per_chunk, per_chunk), real, carry)

    return lax.fori_loop(0, (n + (chunk - 1)) // chunk, step, start)


def over_positions(world: World, blocks: keys.Blocks, first: int, body: Callable[[Array, Any], Any], start: Any) -> Any:
    """Folds `body(x, carry)` over the tokens x (GROUP, chunk) of a few positions at a time, from `first` on.

    Past L a token is the empty one, V_pad: see `and_empty`.
    """
    run, group = world.run, jnp.arange(GROUP, dtype=i32)

    def step(g: Array, carry: Any) -> Any:
        j = first + g * GROUP + group
        return body(jnp.where((j < run.L)[:, None], task.tokens(blocks, j, run.V), world.shape.V), carry)

    return lax.fori_loop(0, (run.L + (GROUP - 1 - first)) // GROUP, step, start)


def over_tokens(world: World, blocks: keys.Blocks, first: int, body: Callable[[Array, Any], Any], start: Any) -> Any:
    """Folds `body(x, carry)` over the tokens x (chunk,) of a position at a time, from `first` on: for numbers, not for rows."""
    run = world.run
    return lax.fori_loop(first, run.L, lambda j, carry: body(task.tokens(blocks, j, run.V), carry), start)


def and_empty(table: Array, fill: float = 0.0) -> Array:
    """`table` (V, ...) with one more row, that of the empty token."""
    return jnp.concatenate([table, jnp.full((1, *table.shape[1:]), fill, table.dtype)])


def over_vocabulary(world: World, body: Callable[[Array, Array, Any], Any], start: Any) -> Any:
    """Folds `body(v, real, carry)` over the vocabulary, a chunk of tokens v at a time; `real` masks those past V."""
    size = min(world.shape.chunk, world.shape.V)

    def step(c: Array, carry: Any) -> Any:
        v = c * size + jnp.arange(size, dtype=i32)
        return body(v, v < world.run.V, carry)

    return lax.fori_loop(0, (world.run.V + (size - 1)) // size, step, start)


def token_counts(world: World, key: Array, n: Array) -> Array:
    """(V,) int32: how often each token is the informative one in the first n samples of a stream."""

    def chunk(blocks: keys.Blocks, real: Array, counts: Array) -> Array:
        return add_at(counts, task.tokens(blocks, 0, world.run.V), real.astype(i32))

    return over_samples(world, key, n, chunk, jnp.zeros(world.shape.V, i32))


def values(world: World) -> Array:
    """(V, d): the value of each token as the informative one."""
    return world.e.Z_in + in_value(world) * world.e.z_trig[None]


def zeros_dp(world: World) -> Array:
    return jnp.zeros((world.shape.d, world.shape.m or world.shape.d), f32)


def in_value(world: World) -> Array:
    return world.run.trigger_in_value.astype(f32)


def at(table: Array, index: Array) -> Array:
    """Rows of `table` at drawn tokens or their labels; unsigned, because JAX looks for negative indices among others."""
    return table.at[index.astype(jnp.uint32)].get(mode="promise_in_bounds")


def add_at(table: Array, index: Array, amount: Array) -> Array:
    """`table` with the amounts added at drawn tokens."""
    return table.at[index.astype(jnp.uint32)].add(amount, mode="promise_in_bounds")


def only(real: Array, rows: Array) -> Array:
    return jnp.where(real[:, None], rows, f32(0))


def outer(a: Array, b: Array) -> Array:
    """a^T b, summed over samples."""
    return lax.optimization_barrier(a.T) @ b  # XLA's own product with a transposed left side is two times slower on a CPU


def count(where: Array) -> Array:
    return jnp.sum(where.astype(i32), dtype=i32)


def unless_zero(x: Array) -> Array:
    return jnp.where(x == 0, f32(1), x)
