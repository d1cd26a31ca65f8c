"""The metrics of one trained run: float32, padded, a block at a time.

`model/reference/metrics.py` has the same to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from ..model.point import BLOCK
from . import pool_draws
from .forward import (
    Attended,
    NoiseAttention,
    Scores,
    attend,
    attend_to_counts,
    attention_scores,
    features,
    label_of,
    shares_of,
)
from .loops import gather, repeat, token_counts, unless_zero, whole
from .shape import LABELS
from .world import Trained, World, batch_of_step, centred, f32, i32, in_value, values

TEST, TRAIN, MEMORY, STEP1 = range(4)
"""Sets of items that are recalled: test and train sequences,
every token through V2, and through V1 without the trigger.
"""


def labels(world: World, which: Array, blocks: keys.Blocks, x: Array) -> Array:
    """(n,): the labels of items x of set `which`; those of TRAIN may be noisy."""
    clean = label_of(world, x)
    return (
        jnp.where(which == TRAIN, label_of(world, x, blocks), clean)
        if world.shape.noisy
        else clean
    )


class Reader(NamedTuple):
    """Two functions of TEST or TRAIN, traced, and blocks of its stream."""

    informative: Callable[[Array, keys.Blocks], Array]
    """Informative tokens (n,) int32."""
    attended: Callable[[Array, keys.Blocks], tuple[Array, Attended]]
    """The same, with attention; of a single block."""


def reader(world: World, scores: Scores, unread: Array) -> Reader:
    """Of the sequences of a run under learned attention.

    Where none is to be read, `unread` saves what prepares it.
    """
    if world.shape.pool:
        return _with_pool(world, scores, unread)

    def informative(which: Array, blocks: keys.Blocks) -> Array:
        if not world.shape.memory:
            return world.tokens(blocks, 0)
        of_step = batch_of_step(world, 2)
        return lax.cond(
            which == TRAIN,
            lambda: pool_draws.drawn_tokens(world, of_step, blocks),
            lambda: world.tokens(blocks, 0),
        )

    def attended(which: Array, blocks: keys.Blocks) -> tuple[Array, Attended]:
        x0 = informative(which, blocks)
        return x0, attend(world, blocks, x0, scores)

    return Reader(informative, attended)


def _with_pool(world: World, scores: Scores, unread: Array) -> Reader:
    """Test sequences draw fresh noise; train sequences are pairs of the last step."""
    K, d = world.shape.pool, world.shape.d
    nothing = NoiseAttention(
        jnp.zeros((K, d), f32), jnp.zeros(K, f32), jnp.zeros(K, f32)
    )
    counts, _ = pool_draws.pool_of_step(world, 2)
    cumulated = pool_draws.cumulated_pairs(world)
    pooled = lax.cond(
        unread, lambda: nothing, lambda: attend_to_counts(world, counts, scores)
    )

    def read(x: Array, noise: NoiseAttention) -> tuple[Array, Attended]:
        own = gather(scores.token, x) + scores.trigger
        mass, others = shares_of(own, noise.total, noise.top)
        h = mass[:, None] * gather(values(world), x) + others[:, None] * noise.value
        return x, Attended(h, mass, own > noise.top)

    def informative(which: Array, blocks: keys.Blocks) -> Array:
        return lax.cond(
            which == TRAIN,
            lambda: pool_draws.pairs(world, blocks, cumulated)[0],
            lambda: world.tokens(blocks, 0),
        )

    def attended(which: Array, blocks: keys.Blocks) -> tuple[Array, Attended]:
        def train() -> tuple[Array, Attended]:
            x, k = pool_draws.pairs(world, blocks, cumulated)
            return read(x, jax.tree.map(lambda a: gather(a, k), pooled))

        def test() -> tuple[Array, Attended]:
            fresh = attend_to_counts(
                world, pool_draws.test_counts(world, blocks), scores
            )
            return read(world.tokens(blocks, 0), fresh)

        return lax.cond(which == TRAIN, train, test)

    return Reader(informative, attended)


LEAST_WIDTH = 16
"""Columns below which a product takes no less time."""


class Comparison(NamedTuple):
    """Predictions compared with their labels, one entry each, or sums of them."""

    correct: Array  # bool
    tied: Array  # bool: the largest logit is shared
    # float32: (logit of the label - best other) / standard deviation of the logits
    margin: Array


class Sums(NamedTuple):
    """Sums over the items of a set. Entry 0 of each `compared` weights items equally.

    Entries 1 and 2 weight tokens by how often the test and train sequences hold them.
    Where tokens are not uniform, entries 3 and 4 are of the rare and of the frequent
    ones.
    """

    compared: Comparison  # (3,) or (5,) each: int32, int32, float32
    top1: Array  # int32
    mass: Array  # float32
    most: Array  # int32: the largest k such that 90 % of the first k items are correct


def measure(world: World, trained: Trained) -> dict[str, Array]:
    """Counts (int32) and sums (float32) behind the metric columns, made by
    `record.finish`.

    A number under the name of a column goes to the row as it is. Where attention is
    locked, a sequence is recalled as its informative token is: tokens are then counted
    as often as sequences hold them, and no sequence is read. So it is at L = 1.
    """
    run = world.run
    by_token = (
        jnp.bool_(world.shape.memory) if trained.locked is None else trained.locked
    )
    sums = over_sets(world, trained, by_token)

    def over_sequences(part: Array) -> Array:
        """(test, train) sums of a part of `compared`."""
        return jnp.where(by_token, part[MEMORY, 1:3], part[:MEMORY, 0])

    n_correct, margin = (
        over_sequences(sums.compared.correct),
        over_sequences(sums.compared.margin),
    )
    finite = (
        jnp.all(jnp.isfinite(trained.V2))
        & jnp.all(jnp.isfinite(trained.w))
        & jnp.isfinite(margin[0])
    )
    return {
        "n_correct": n_correct[0],
        "n_train_correct": n_correct[1],
        "n_tied": over_sequences(sums.compared.tied)[0],
        "n_top1": jnp.where(by_token, run.n_test, sums.top1[TEST]),
        "mass": jnp.where(by_token, run.n_test.astype(f32), sums.mass[TEST]),
        "margin": margin[0],
        "recalled": sums.compared.correct[MEMORY, 0],
        "n_step1": sums.compared.correct[STEP1, 0],
        "n_by_frequency": sums.compared.correct[MEMORY, 3:],
        "recalled_top": sums.most[MEMORY],
        **of_scores(world, trained.w),
        "finite": finite,
        "draw_check": draw_check(world),
    }


def over_sets(world: World, trained: Trained, by_token: Array) -> Sums:
    """The sums over each set of items, leading axis 4: sequences are read unless
    `by_token`.
    """
    run, V2 = world.run, trained.V2
    # no metric sees the scale of the answers, nor their mean
    maps = jnp.stack([V2 / unless_zero(jnp.max(jnp.abs(V2))), trained.V1])
    batches = jnp.stack([keys.stream(run.streams, "test"), batch_of_step(world, 2)])
    n = jnp.stack([run.n_test, jnp.minimum(run.N, run.n_test)])
    counted = jnp.where(by_token, n, 0)
    read = reader(world, attention_scores(world, trained.w, trained.rate), by_token)

    def times(of: tuple[Array, Array, Array]) -> Array:
        which, key, n = of
        return token_counts(
            world, key, n, lambda blocks: read.informative(which, blocks)
        )

    groups = [run.token_laws.groups] if run.token_laws else []
    often = jnp.concatenate(
        [
            jnp.ones((1, world.shape.V), i32),
            lax.map(times, (jnp.arange(2), batches, counted)),
            *groups,
        ]
    )
    n_step1 = run.V if world.shape.start == "three_step" else i32(0)
    sets = (
        jnp.arange(4),
        batches[jnp.array([0, 1, 0, 0])],
        jnp.concatenate([n - counted, jnp.stack([run.V, n_step1])]),
    )
    # mapped rather than written out for each set: it compiles once
    return lax.map(lambda of: recall(world, read, maps, often, *of), sets)


def of_scores(world: World, w: Array) -> dict[str, Array]:
    """What the trigger and the tokens add to an attention logit, for w over its largest
    entry.

    That is `w_scale`.
    """
    e, scale = world.e, jnp.max(jnp.abs(w))
    unit = w / unless_zero(scale)
    scores = centred(world, (e.Z_in @ unit)[:, None])
    return {
        "w_scale": scale,
        "trigger": e.z_trig @ unit,
        "score_std": jnp.sqrt(jnp.sum(scores * scores) / world.run.V.astype(f32)),
        "trigger_cosine": (
            e.z_trig
            @ unit
            / jnp.sqrt(jnp.sum(e.z_trig * e.z_trig) * jnp.sum(unit * unit))
        ),
    }


def recall(
    world: World,
    read: Reader,
    maps: Array,
    often: Array,
    which: Array,
    key: Array,
    n: Array,
) -> Sums:
    """Sums over the n items of set `which`, counted as `often` (3 or 5, V) says.

    Items are sequences of the stream `key`, or tokens.

    Tokens come in the order of their frequency. `maps` (2, d, p) are V2 and V1, up to
    scale. A block of items at a time.
    """
    matrix = maps[(which == STEP1).astype(i32)]
    # an MLP's answers go by way of the d dimensions, which are fewer than the m
    answers = centred(
        world, world.e.Z_out @ matrix if world.e.W_in is None else world.e.Z_out
    )
    value = (
        world.e.Z_in
        + jnp.where(which == STEP1, f32(0), in_value(world)) * world.e.z_trig[None]
    )
    is_sequence = which < MEMORY

    def block(c: Array, sums: Sums) -> Sums:
        item = c * BLOCK + jnp.arange(BLOCK, dtype=i32)

        def sequences() -> tuple[Array, Array, Array, Array]:
            v, attended = read.attended(which, keys.blocks(key, c, 1))
            return v, attended.h, attended.mass, attended.is_top

        def tokens() -> tuple[Array, Array, Array, Array]:
            v = jnp.minimum(item, world.run.V - 1)
            v = gather(laws.by_frequency, v) if laws else v
            return v, gather(value, v), jnp.ones(BLOCK, f32), jnp.ones(BLOCK, bool)

        v, h, mass, is_top = lax.cond(is_sequence, sequences, tokens)
        phi, _ = features(world, h)
        compared = compare(
            world,
            phi if world.e.W_in is None else phi @ matrix.T,
            answers,
            labels(world, which, keys.blocks(key, c, 1), v),
        )
        real = item < n
        times = jnp.where(real[None], jnp.where(is_sequence, i32(1), often[:, v]), 0)
        new = Sums(
            Comparison(
                jnp.sum(times * compared.correct[None].astype(i32), axis=1, dtype=i32),
                jnp.sum(times * compared.tied[None].astype(i32), axis=1, dtype=i32),
                jnp.sum(times.astype(f32) * compared.margin[None], axis=1),
            ),
            jnp.sum((real & is_top).astype(i32), dtype=i32),
            jnp.sum(jnp.where(real, mass, f32(0))),
            i32(0),
        )
        so_far = sums.compared.correct[0] + jnp.cumsum(
            (real & compared.correct).astype(i32), dtype=i32
        )
        most = jnp.max(
            jnp.where(real & (10 * so_far >= 9 * (item + 1)), item + 1, sums.most)
        )
        return jax.tree.map(jnp.add, sums, new)._replace(most=most)

    none, laws = jnp.zeros(len(often), i32), world.run.token_laws
    zero = Sums(Comparison(none, none, none.astype(f32)), i32(0), f32(0), i32(0))
    return repeat(world, 0, whole(n, BLOCK), block, zero)


def compare(world: World, out: Array, answers: Array, y: Array) -> Comparison:
    """Logits out @ answers^T, of mean zero, against labels y (n,).

    A few labels are taken at a time, and none past V.
    """
    width = min(world.shape.V, LABELS)

    class Seen(NamedTuple):
        own: Array
        other: Array
        top: Array
        # label of the first largest logit: argmax is four times slower on a CPU
        first: Array
        n_top: Array
        square: Array

    def labels(c: Array, seen: Seen) -> Seen:
        start = jnp.minimum(c * width, world.shape.V - width)
        item = start + jnp.arange(width, dtype=i32)[None]
        new = (item >= c * width) & (item < world.run.V)
        logits = narrow_product(
            world, out, lax.dynamic_slice_in_dim(answers, start, width)
        )
        masked = jnp.where(new, logits, f32(-jnp.inf))
        is_label = y[:, None] == item
        top = jnp.maximum(seen.top, jnp.max(masked, axis=1))
        is_top = masked == top[:, None]
        grown = top > seen.top
        return Seen(
            own=seen.own + jnp.sum(jnp.where(is_label & new, logits, f32(0)), axis=1),
            other=jnp.maximum(
                seen.other, jnp.max(jnp.where(is_label, f32(-jnp.inf), masked), axis=1)
            ),
            top=top,
            first=jnp.where(
                grown,
                jnp.min(jnp.where(is_top, item, world.shape.V), axis=1),
                seen.first,
            ),
            n_top=jnp.where(grown, 0, seen.n_top)
            + jnp.sum(is_top.astype(i32), axis=1, dtype=i32),
            square=seen.square
            + jnp.sum(jnp.where(new, logits * logits, f32(0)), axis=1),
        )

    zero, none, index = (
        jnp.zeros(len(y), f32),
        jnp.full(len(y), -jnp.inf, f32),
        jnp.zeros(len(y), i32),
    )
    seen = repeat(
        world,
        0,
        whole(world.run.V, width),
        labels,
        Seen(zero, none, none, index, index, zero),
    )
    std = jnp.sqrt(seen.square / world.run.V.astype(f32))
    margin = jnp.where(std > 0, (seen.own - seen.other) / unless_zero(std), f32(0))
    return Comparison(seen.first == y, seen.n_top > 1, margin)


def narrow_product(world: World, a: Array, b: Array) -> Array:
    """a @ b^T of rows (n, d) and (k, d), over a quarter of the columns where the run
    has no more.

    A narrow run in a wide program would multiply padding most of the time. Vmapped runs
    would make both products.
    """
    narrow = world.shape.d // 4
    if world.vmapped or narrow < LEAST_WIDTH:
        return a @ b.T
    return lax.cond(
        world.run.d <= narrow, lambda: a[:, :narrow] @ b[:, :narrow].T, lambda: a @ b.T
    )


def draw_check(world: World) -> Array:
    """uint32 hash of first draws: the permutation, tokens of each batch, keys of all
    streams.

    The tokens are two of the first block.

    Equal for every N, shape, tile and device count.
    """
    run = world.run
    batches = jnp.concatenate([run.batches, keys.stream(run.streams, "test")[None]])
    last = (
        i32(1) if world.shape.pool else run.L - 1
    )  # with a pool, position 1 holds the noise sequence
    first = world.tokens(
        keys.Blocks(batches, jnp.zeros(len(batches), jnp.uint32)),
        jnp.stack([i32(0), last]),
    )

    def hashed(draws: Array, label: int) -> Array:
        labels = jnp.uint32(label) + jnp.arange(len(draws), dtype=jnp.uint32)
        return jnp.sum(
            draws.astype(jnp.uint32) * (labels * jnp.uint32(0x9E3779B1) | 1),
            dtype=jnp.uint32,
        )

    perm = jnp.where(world.no_label == 0, world.perm, 0)
    return (
        hashed(perm, 0)
        + hashed(first.reshape(-1), 2**20)
        + jnp.sum(run.streams, dtype=jnp.uint32)
    )
