"""The three steps and the metrics of one run, streamed: float32, padded to a bucket, memory independent of N, L, n_test.

Samples come in chunks of whole blocks, drawn from their addresses whenever they are needed; a loop over positions adds one
gathered embedding row per sample at a time. Rates are factored out, so nothing here is as small as eta or as large as
gamma: V1 = eta G1, w = gamma eta w_hat, V2 = eta G1 + gamma2 G2. `steps.py` and `metrics.py` say the same to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from . import embed, keys, task
from .embed import Embeddings
from .model import value_and_slope
from .point import BLOCK

f32, i32 = jnp.float32, jnp.int32


class Run(NamedTuple):
    """One run as a program's argument: scalars only, every one traced."""

    root_seed: Any  # uint32
    seed: Any  # uint32
    tag: Any  # (2,) uint32, halves of the point id
    independent: Any  # bool
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
    """What is static: padded sizes, the activation, samples per chunk (a multiple of the block)."""

    V: int
    d: int
    m: int
    activation: str
    chunk: int


class World(eqx.Module):
    """The drawn but untrained part of a run: embeddings, permutation, keys of its streams, and the mask of the padding."""

    run: Run
    e: Embeddings
    perm: Array  # (V,) int32
    streams: Array  # (10, 2) uint32
    no_label: Array  # (V,) float32: 0 on labels, -inf on padding
    shape: Shape = eqx.field(static=True)


class Learned(NamedTuple):
    """What the three steps learn, with the rates factored out. float32."""

    G1: Array  # (d, p): V1 = eta G1
    w_hat: Array  # (d,): w = gamma eta w_hat
    G2: Array  # (d, p): V2 = eta G1 + gamma2 G2


def draw(run: Run, shape: Shape) -> World:
    """The frozen part of the run."""
    streams = keys.run_streams(run.root_seed, run.seed, run.tag, run.independent)
    e = embed.draw(streams, run.law, run.V, run.d, run.m, (shape.V, shape.d, shape.m))
    no_label = jnp.where(jnp.arange(shape.V, dtype=i32) < run.V, f32(0), f32(-jnp.inf))
    return World(run, e, task.permutation(streams, run.V, shape.V), streams, no_label, shape)


def train(world: World) -> Learned:
    """The three gradient steps."""
    G1 = step1(world)
    w_hat = step2(world, G1)
    return Learned(G1, w_hat, step3(world, G1, w_hat))


def step1(world: World) -> Array:
    """G1 = 1/N sum_i (z_out(y_i) - mean z_out) phi(h_i)^T: predictions and attention are uniform at the start."""
    run, e = world.run, world.e
    centred = e.Z_out - jnp.sum(e.Z_out, axis=0)[None] / run.V.astype(f32)

    def chunk(blocks: Array, real: Array, G: Array) -> Array:
        x0 = task.tokens(blocks, 0, run.V)
        phi, _ = features(world, mean_value(world, blocks))
        return G + _only(real, _at(centred, _at(world.perm, x0))).T @ phi

    return _over_samples(world, task.batch_key(world.streams, 0), run.N, chunk, _zeros_dp(world)) / run.N.astype(f32)


def step2(world: World, G1: Array) -> Array:
    """w_hat = |z_eos|^2 / (N L) sum_i sum_j b_i^T (v_ij - h_i) k_ij, with b_i = J_phi^T G1^T Z_out^T (e_y - p_i).

    The sum over keys needs one scalar per token, scattered into S: it is Z_in^T S and the trigger's share.
    """
    run, e, shape = world.run, world.e, world.shape
    answers = e.Z_out @ G1

    def chunk(blocks: Array, real: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        S, trigger = carry
        x0 = task.tokens(blocks, 0, run.V)
        h = mean_value(world, blocks)
        phi, slope = features(world, h)
        b = _at(answers, _at(world.perm, x0)) - predict(world, phi, answers) @ answers
        b = _only(real, b if e.W_in is None else (b * slope) @ e.W_in)

        def toward(v: Array) -> Array:
            return jnp.sum(b * (v - h), axis=1)

        c0 = toward(_at(e.Z_in, x0) + _in_value(world) * e.z_trig[None])
        S = S.at[x0].add(c0, mode="promise_in_bounds")

        def position(j: Array, S: Array) -> Array:
            x = task.tokens(blocks, j, run.V)
            return S.at[x].add(toward(_at(e.Z_in, x)), mode="promise_in_bounds")

        return lax.fori_loop(1, run.L, position, S), trigger + jnp.sum(c0)

    batch = task.batch_key(world.streams, jnp.where(run.fresh_batches, 1, 0))
    S, trigger = _over_samples(world, batch, run.N, chunk, (jnp.zeros(shape.V, f32), f32(0)))
    keys_sum = S @ e.Z_in + trigger * e.z_trig
    w_hat = jnp.sum(e.z_eos * e.z_eos) * (keys_sum / run.N.astype(f32) / run.L.astype(f32))
    return jnp.where(run.L > 1, w_hat, f32(0))  # a lone token has all the attention: zero, not rounding


def step3(world: World, G1: Array, w_hat: Array) -> Array:
    """G2 = 1/N sum_i Z_out^T (e_y - p_i) phi(h_i)^T, with the attention of w and the predictions of V1."""
    run, e = world.run, world.e
    answers = e.Z_out @ G1
    scores = attention_scores(world, w_hat)

    def chunk(blocks: Array, real: Array, G: Array) -> Array:
        x0 = task.tokens(blocks, 0, run.V)
        phi, _ = features(world, attend(world, blocks, scores).h)
        residual = _at(e.Z_out, _at(world.perm, x0)) - predict(world, phi, answers) @ e.Z_out
        return G + _only(real, residual).T @ phi

    batch = task.batch_key(world.streams, jnp.where(run.fresh_batches, 2, 0))
    return _over_samples(world, batch, run.N, chunk, _zeros_dp(world)) / run.N.astype(f32)


def mean_value(world: World, blocks: Array) -> Array:
    """h (chunk, d) under uniform attention: the mean of the values."""
    run, e = world.run, world.e
    zero = jnp.zeros((world.shape.chunk, world.shape.d), f32)
    total = lax.fori_loop(0, run.L, lambda j, h: h + _at(e.Z_in, task.tokens(blocks, j, run.V)), zero)
    return (total + _in_value(world) * e.z_trig[None]) / run.L.astype(f32)


def features(world: World, h: Array) -> tuple[Array, Array]:
    """phi (n, p), what V_mat reads, and act'(W_in h) / sqrt(m); zero on padded units."""
    if world.e.W_in is None:
        return h, h
    real = (jnp.arange(world.shape.m, dtype=i32) < world.run.m)[None]
    scale = jnp.where(real, lax.rsqrt(world.run.m.astype(f32)), f32(0))
    phi, slope = value_and_slope(world.shape.activation, h @ world.e.W_in.T, jnp, jax.scipy.special.erf)
    return phi * scale, slope * scale


def predict(world: World, phi: Array, answers: Array) -> Array:
    """Softmax predictions (n, V) of V1 = eta G1, answers = Z_out G1."""
    return jax.nn.softmax(world.run.eta * (phi @ answers.T) + world.no_label[None], axis=1)


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
    largest = _unless_zero(jnp.maximum(jnp.max(jnp.abs(token)), jnp.abs(trigger)))
    nats = jnp.minimum(world.run.gamma_eta * largest, f32(1e30))
    return Scores(token / largest * nats, trigger / largest * nats)


class Attended(NamedTuple):
    h: Array  # (chunk, d) attention output
    mass: Array  # (chunk,) softmax weight on the informative token
    is_top: Array  # (chunk,) that weight is strictly the largest


def attend(world: World, blocks: Array, scores: Scores) -> Attended:
    """Softmax attention in one pass over positions: a running maximum, every sum rescaled when it grows."""
    run, Z_in = world.run, world.e.Z_in
    x0 = task.tokens(blocks, 0, run.V)
    own = _at(scores.token, x0) + scores.trigger
    start = (own, jnp.ones_like(own), _at(Z_in, x0), jnp.full_like(own, -jnp.inf))

    def position(j: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        top, total, h, rest = carry
        x = task.tokens(blocks, j, run.V)
        score = _at(scores.token, x)
        new = jnp.maximum(top, score)
        keep, weight = jnp.exp(top - new), jnp.exp(score - new)
        return new, total * keep + weight, h * keep[:, None] + weight[:, None] * _at(Z_in, x), jnp.maximum(rest, score)

    top, total, h, rest = lax.fori_loop(1, run.L, position, start)
    mass = jnp.exp(own - top) / total
    return Attended(h / total[:, None] + _in_value(world) * mass[:, None] * world.e.z_trig[None], mass, own > rest)


def measure(world: World, learned: Learned) -> dict[str, Array]:
    """Counts (int32) and sums (float32) behind the metric columns; `program.finish` makes the row of them."""
    run, e, shape = world.run, world.e, world.shape
    V2 = run.mix1 * learned.G1 + run.mix2 * learned.G2
    answers = e.Z_out @ (V2 / _unless_zero(jnp.max(jnp.abs(V2))))
    scores = attention_scores(world, learned.w_hat)

    def recall(blocks: Array) -> tuple[Array, Array, Attended]:
        attended = attend(world, blocks, scores)
        phi, _ = features(world, attended.h)
        return phi @ answers.T, _at(world.perm, task.tokens(blocks, 0, run.V)), attended

    def chunk(blocks: Array, real: Array, sums: dict[str, Array]) -> dict[str, Array]:
        logits, y, attended = recall(blocks)
        masked = logits + world.no_label[None]
        top = jnp.max(masked, axis=1)
        is_label = y[:, None] == jnp.arange(shape.V, dtype=i32)[None]
        other = jnp.max(jnp.where(is_label, f32(-jnp.inf), masked), axis=1)
        n = run.V.astype(f32)
        centred = jnp.where((world.no_label == 0)[None], logits - jnp.sum(logits, axis=1, keepdims=True) / n, f32(0))
        std = jnp.sqrt(jnp.sum(centred * centred, axis=1) / n)
        own = jnp.sum(jnp.where(is_label, logits, f32(0)), axis=1)
        new = {
            "n_correct": _count(real & (jnp.argmax(masked, axis=1).astype(i32) == y)),
            "n_tied": _count(real & (jnp.sum((masked == top[:, None]).astype(i32), axis=1, dtype=i32) > 1)),
            "n_top1": _count(real & attended.is_top),
            "mass": jnp.sum(jnp.where(real, attended.mass, f32(0))),
            "margin": jnp.sum(jnp.where(real & (std > 0), (own - other) / _unless_zero(std), f32(0))),
        }
        return {name: sums[name] + value for name, value in new.items()}

    zero = {"n_correct": i32(0), "n_tied": i32(0), "n_top1": i32(0), "mass": f32(0), "margin": f32(0)}
    last_batch = task.batch_key(world.streams, jnp.where(run.fresh_batches, 2, 0))
    sets = jnp.stack([keys.stream(world.streams, "test"), last_batch]), jnp.stack([run.n_test, jnp.minimum(run.N, run.n_test)])
    both = lax.map(lambda of: _over_samples(world, of[0], of[1], chunk, zero), sets)  # mapped, so that it compiles once
    sums = {name: value[0] for name, value in both.items()}
    recalled = lax.map(
        lambda of: _recalled(world, of[0], of[1]),
        (
            jnp.stack([answers, e.Z_out @ learned.G1]),
            jnp.stack([e.Z_in + _in_value(world) * e.z_trig[None], e.Z_in]),
        ),
    )
    scale = jnp.max(jnp.abs(learned.w_hat))
    unit = learned.w_hat / _unless_zero(scale)
    token = e.Z_in @ unit
    real = world.no_label == 0
    centred = jnp.where(real, token - jnp.sum(token) / run.V.astype(f32), f32(0))
    return {
        **sums,
        "n_train_correct": both["n_correct"][1],
        "n_memory": recalled[0],
        "n_step1": recalled[1],
        "w_scale": scale,
        "trigger": e.z_trig @ unit,
        "score_std": jnp.sqrt(jnp.sum(centred * centred) / run.V.astype(f32)),
        "cosine": e.z_trig @ unit / jnp.sqrt(jnp.sum(e.z_trig * e.z_trig) * jnp.sum(unit * unit)),
        "finite": jnp.all(jnp.isfinite(V2)) & jnp.all(jnp.isfinite(learned.w_hat)) & jnp.isfinite(sums["margin"]),
        "draw_check": draw_check(world),
    }


def draw_check(world: World) -> Array:
    """uint32 hash of first draws: the permutation, two tokens of the first block of each batch, the keys of all streams.

    Equal for every N, bucket, chunk and device count.
    """
    run = world.run
    train = [task.batch_key(world.streams, jnp.where(run.fresh_batches, step, 0)) for step in range(3)]
    batches = jnp.stack([*train, keys.stream(world.streams, "test")])
    blocks = jax.vmap(lambda key: keys.block_keys(key, 0, 1)[0])(batches)
    first = [task.tokens(blocks, position, run.V) for position in (0, run.L - 1)]
    draws = jnp.concatenate([jnp.where(world.no_label == 0, world.perm, 0), *first]).astype(jnp.uint32)
    label = jnp.concatenate([jnp.arange(world.shape.V), jnp.arange(len(draws) - world.shape.V) + 2**20]).astype(jnp.uint32)
    return jnp.sum(draws * (label * jnp.uint32(0x9E3779B1) | 1), dtype=jnp.uint32) + jnp.sum(world.streams, dtype=jnp.uint32)


def simulate(run: Run, shape: Shape) -> dict[str, Array]:
    """The whole run: draw, three steps, metrics."""
    world = draw(run, shape)
    return measure(world, train(world))


def _recalled(world: World, answers: Array, values: Array) -> Array:
    """int32: tokens of the vocabulary whose value (V, d), fed past the attention, is mapped to their label."""
    shape, run = world.shape, world.run
    size = min(shape.chunk, shape.V)

    def rows(i: Array, count: Array) -> Array:
        v = i * size + jnp.arange(size, dtype=i32)
        phi, _ = features(world, values.at[v].get(mode="clip"))
        named = jnp.argmax(phi @ answers.T + world.no_label[None], axis=1).astype(i32)
        return count + _count((v < run.V) & (named == world.perm.at[v].get(mode="clip")))

    return lax.fori_loop(0, (run.V + (size - 1)) // size, rows, i32(0))


def _over_samples(world: World, key: Array, n: Array, body: Callable[[Array, Array, Any], Any], start: Any) -> Any:
    """Folds `body(blocks, real, carry)` over the first n samples of a stream; `real` (chunk,) masks those past n."""
    chunk = world.shape.chunk
    per_chunk = chunk // BLOCK

    def step(c: Array, carry: Any) -> Any:
        real = c * chunk + jnp.arange(chunk, dtype=i32) < n
        return body(keys.block_keys(key, c * per_chunk, per_chunk), real, carry)

    return lax.fori_loop(0, (n + (chunk - 1)) // chunk, step, start)


def _zeros_dp(world: World) -> Array:
    return jnp.zeros((world.shape.d, world.shape.m or world.shape.d), f32)


def _in_value(world: World) -> Array:
    return world.run.trigger_in_value.astype(f32)


def _at(table: Array, index: Array) -> Array:
    return table.at[index].get(mode="promise_in_bounds")  # every index is a drawn token or its label


def _only(real: Array, rows: Array) -> Array:
    return jnp.where(real[:, None], rows, f32(0))


def _count(where: Array) -> Array:
    return jnp.sum(where.astype(i32), dtype=i32)


def _unless_zero(x: Array) -> Array:
    return jnp.where(x == 0, f32(1), x)
