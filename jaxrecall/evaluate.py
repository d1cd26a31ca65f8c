"""The metrics of one trained run, streamed: float32, padded, memory independent of n_test. `metrics.py` says the same to read."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import keys, task
from .stream import (
    Learned,
    World,
    at,
    attend,
    attention_scores,
    batch_of_step,
    centred,
    count,
    f32,
    features,
    i32,
    over_samples,
    over_vocabulary,
    token_counts,
    unless_zero,
    values,
)


class Judged(NamedTuple):
    """Predictions held against their labels, one entry each."""

    correct: Array  # bool
    tied: Array  # bool: the largest logit is shared
    margin: Array  # float32: (logit of the label - best other) / standard deviation of the logits


def measure(world: World, learned: Learned, locked: Array | None = None) -> dict[str, Array]:
    """Counts (int32) and sums (float32) behind the metric columns; `program.finish` makes the row of them.

    Where `locked`, attention rests wholly on the informative token, so a sequence is recalled as its token is: counts of the
    informative tokens then stand for the sequences. None never does that.
    """
    run, e = world.run, world.e
    V2 = run.mix1 * learned.G1 + run.mix2 * learned.G2
    answers = e.Z_out @ (V2 / unless_zero(jnp.max(jnp.abs(V2))))  # no metric sees the scale
    # mapped rather than written twice, here and below: it compiles once
    recalled = lax.map(lambda of: by_token(world, *of), (jnp.stack([answers, e.Z_out @ learned.G1]), jnp.stack([values(world), e.Z_in])))
    sets = jnp.stack([keys.stream(world.streams, "test"), batch_of_step(world, 2)]), jnp.stack([run.n_test, jnp.minimum(run.N, run.n_test)])

    def of_sequences() -> dict[str, Array]:
        return lax.map(lambda of: by_sequence(world, learned, answers, of[0], of[1]), sets)

    def of_tokens() -> dict[str, Array]:
        return lax.map(lambda of: from_tokens(world, Judged(*(part[0] for part in recalled)), of[0], of[1]), sets)

    sums = of_sequences() if locked is None else lax.cond(locked, of_tokens, of_sequences)
    scale = jnp.max(jnp.abs(learned.w_hat))
    unit = learned.w_hat / unless_zero(scale)
    scores = centred(world, (e.Z_in @ unit)[:, None])
    return {
        **{name: value[0] for name, value in sums.items()},
        "n_train_correct": sums["n_correct"][1],
        "n_memory": count(recalled.correct[0]),
        "n_step1": count(recalled.correct[1]),
        "w_scale": scale,
        "trigger": e.z_trig @ unit,
        "score_std": jnp.sqrt(jnp.sum(scores * scores) / run.V.astype(f32)),
        "cosine": e.z_trig @ unit / jnp.sqrt(jnp.sum(e.z_trig * e.z_trig) * jnp.sum(unit * unit)),
        "finite": jnp.all(jnp.isfinite(V2)) & jnp.all(jnp.isfinite(learned.w_hat)) & jnp.isfinite(sums["margin"][0]),
        "draw_check": draw_check(world),
    }


def judge(world: World, logits: Array, y: Array) -> Judged:
    """Logits (n, V) against labels y (n,)."""
    masked = logits + world.no_label[None]
    top = jnp.max(masked, axis=1)
    is_label = y[:, None] == jnp.arange(world.shape.V, dtype=i32)[None]
    other = jnp.max(jnp.where(is_label, f32(-jnp.inf), masked), axis=1)
    n = world.run.V.astype(f32)
    spread = jnp.where((world.no_label == 0)[None], logits - jnp.sum(logits, axis=1, keepdims=True) / n, f32(0))
    std = jnp.sqrt(jnp.sum(spread * spread, axis=1) / n)
    own = jnp.sum(jnp.where(is_label, logits, f32(0)), axis=1)
    return Judged(
        correct=jnp.argmax(masked, axis=1).astype(i32) == y,
        tied=jnp.sum((masked == top[:, None]).astype(i32), axis=1, dtype=i32) > 1,
        margin=jnp.where(std > 0, (own - other) / unless_zero(std), f32(0)),
    )


def by_token(world: World, answers: Array, values: Array) -> Judged:
    """(V,) each: every token's value (V, d), fed past the attention, against its label; False and 0 on padding."""

    def rows(v: Array, real: Array, judged: Judged) -> Judged:
        phi, _ = features(world, values.at[v].get(mode="clip"))
        new = judge(world, phi @ answers.T, world.perm.at[v].get(mode="clip"))
        where = jnp.where(real, v, world.shape.V)
        return Judged(*(old.at[where].set(part, mode="drop") for old, part in zip(judged, new, strict=True)))

    V = world.shape.V
    return over_vocabulary(world, rows, Judged(jnp.zeros(V, bool), jnp.zeros(V, bool), jnp.zeros(V, f32)))


def by_sequence(world: World, learned: Learned, answers: Array, key: Array, n: Array) -> dict[str, Array]:
    """Counts and sums over the first n sequences of a stream."""
    scores = attention_scores(world, learned.w_hat)

    def chunk(blocks: Array, real: Array, sums: dict[str, Array]) -> dict[str, Array]:
        attended = attend(world, blocks, scores)
        phi, _ = features(world, attended.h)
        judged = judge(world, phi @ answers.T, at(world.perm, task.tokens(blocks, 0, world.run.V)))
        new = {
            "n_correct": count(real & judged.correct),
            "n_tied": count(real & judged.tied),
            "n_top1": count(real & attended.is_top),
            "mass": jnp.sum(jnp.where(real, attended.mass, f32(0))),
            "margin": jnp.sum(jnp.where(real, judged.margin, f32(0))),
        }
        return {name: sums[name] + value for name, value in new.items()}

    zero = {"n_correct": i32(0), "n_tied": i32(0), "n_top1": i32(0), "mass": f32(0), "margin": f32(0)}
    return over_samples(world, key, n, chunk, zero)


def from_tokens(world: World, judged: Judged, key: Array, n: Array) -> dict[str, Array]:
    """The same from `judged` (V,) when attention is locked: only the informative tokens are drawn."""
    counts = token_counts(world, key, n)
    return {
        "n_correct": jnp.sum(counts * judged.correct.astype(i32), dtype=i32),
        "n_tied": jnp.sum(counts * judged.tied.astype(i32), dtype=i32),
        "n_top1": n,
        "mass": n.astype(f32),
        "margin": jnp.sum(counts.astype(f32) * judged.margin),
    }


def draw_check(world: World) -> Array:
    """uint32 hash of first draws: the permutation, two tokens of the first block of each batch, the keys of all streams.

    Equal for every N, bucket, chunk and device count.
    """
    run = world.run
    batches = jnp.stack([*(batch_of_step(world, step) for step in range(3)), keys.stream(world.streams, "test")])
    blocks = jax.vmap(lambda key: keys.block_keys(key, 0, 1)[0])(batches)
    first = [task.tokens(blocks, position, run.V) for position in (0, run.L - 1)]
    draws = jnp.concatenate([jnp.where(world.no_label == 0, world.perm, 0), *first]).astype(jnp.uint32)
    label = jnp.concatenate([jnp.arange(world.shape.V), jnp.arange(len(draws) - world.shape.V) + 2**20]).astype(jnp.uint32)
    return jnp.sum(draws * (label * jnp.uint32(0x9E3779B1) | 1), dtype=jnp.uint32) + jnp.sum(world.streams, dtype=jnp.uint32)
