"""Computes the metrics of one trained run in padded float32, a block of items at a
time.

`model/reference/metrics.py` computes the same metrics in readable code.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from .arrays import f32, gather, i32, masked, unless_zero, whole
from .forward import attention_scores, features, probabilities, unlearned_scores
from .gradient import mapped, output_maps
from .loops import over_columns, over_sequences, repeat, token_counts
from .program_shape import LABELS
from .sources.source import TEST, TRAIN, Reader, find_source, labels
from .world import Trained, World, batch_of_step, centred, in_value

MEMORY, STEP1 = 2, 3
"""Two sets of items in addition to the sequences TEST and TRAIN. MEMORY is every token
through V2, and STEP1 is every token through V1 without the trigger.
"""

EVENLY, BY_TEST, BY_TRAIN = range(3)
"""The first rows of the weights of tokens: 1, and the numbers of test and of train
sequences in which each token is informative. If tokens are not uniform, two rows
follow: the masks of rare and of frequent tokens.
"""


class Comparison(NamedTuple):
    """Comparisons of predictions with labels: one entry per item, or sums of
    entries.
    """

    correct: Array  # bool
    tied: Array  # bool: several logits are the largest
    # float32: (logit of the label - best other) / standard deviation of the logits
    margin: Array


class Sums(NamedTuple):
    """The sums over the items of a set."""

    compared: Comparison  # int32, int32, float32, each with an axis of weights
    top1: Array  # int32
    mass: Array  # float32
    most: Array  # int32: the largest k such that 90 % of the first k items are correct


def measure(world: World, trained: Trained) -> dict[str, Array]:
    """Returns a dict of counts (int32) and sums (float32), from which `rows.finish`
    computes columns.

    An entry with the name of a column is the value of that column.

    If attention is locked, or if L = 1, a sequence is recalled if and only if its
    informative token is recalled. In that case no sequence is read. Instead, each token
    is weighted by the number of times that it is informative.
    """
    run = world.run
    by_token = trained.locked
    if by_token is None:
        by_token = jnp.bool_(find_source(world).weighted_tokens)
    sums = over_sets(world, trained, by_token)
    correct, tied, margins = sums.compared  # (sets, weights) each

    def of_test(sums: Array) -> Array:
        return jnp.where(by_token, sums[MEMORY, BY_TEST], sums[TEST, EVENLY])

    margin = of_test(margins)
    of_train = jnp.where(by_token, correct[MEMORY, BY_TRAIN], correct[TRAIN, EVENLY])
    finite_V2 = jnp.all(jnp.isfinite(trained.V2))
    finite_w = jnp.all(jnp.isfinite(trained.w))
    of_first_steps = {}
    if world.shape.repeats:
        of_first_steps["largest_prediction"] = largest_prediction(world, trained)
    return {
        **of_first_steps,
        "n_correct": of_test(correct),
        "n_train_correct": of_train,
        "n_tied": of_test(tied),
        "n_top1": jnp.where(by_token, run.n_test, sums.top1[TEST]),
        "mass": jnp.where(by_token, run.n_test.astype(f32), sums.mass[TEST]),
        "margin": margin,
        "recalled": correct[MEMORY, EVENLY],
        "n_step1": correct[STEP1, EVENLY],
        "n_by_frequency": correct[MEMORY, BY_TRAIN + 1 :],
        "recalled_top": sums.most[MEMORY],
        **measure_scores(world, trained.w),
        "finite": finite_V2 & finite_w & jnp.isfinite(margin),
        "draw_check": draw_check(world),
    }


def largest_prediction(world: World, trained: Trained) -> Array:
    """V times the largest predicted probability after the first steps.

    The maximum is over the first samples of step 3, of which at most n_test are read.
    """
    run = world.run
    read = find_source(world).reader(world, unlearned_scores(world), jnp.bool_(False))
    maps, key = output_maps(world, trained.V1), batch_of_step(world, 2)
    n = jnp.minimum(run.N, run.n_test)

    def maximum(blocks: keys.Blocks, item: Array, largest: Array) -> Array:
        _, attended = read.attended(i32(TRAIN), blocks)
        phi, _ = features(world, attended.h)
        p = probabilities(world, trained.V1_scale * mapped(maps, phi))
        return jnp.maximum(largest, jnp.max(masked(item < n, p)))

    return run.V.astype(f32) * over_sequences(world, key, n, maximum, f32(0))


def over_sets(world: World, trained: Trained, by_token: Array) -> Sums:
    """The sums over each of the four sets of items. Each array has a leading axis of 4.

    If `by_token`, no sequence is read.
    """
    run, V2 = world.run, trained.V2
    # no metric depends on the scale of the answers or on their mean
    maps = jnp.stack([V2 / unless_zero(jnp.max(jnp.abs(V2))), trained.V1])
    test, train = keys.stream(run.streams, "test"), batch_of_step(world, 2)
    streams = jnp.stack([test, train])
    n = jnp.stack([run.n_test, jnp.minimum(run.N, run.n_test)])
    counted = jnp.where(by_token, n, 0)
    scores = attention_scores(world, trained.w, trained.w_scale)
    read = find_source(world).reader(world, scores, by_token)

    def times(stream: tuple[Array, Array, Array]) -> Array:
        which, key, n = stream
        return token_counts(world, key, n, lambda at: read.informative(which, at))

    informative = lax.map(times, (jnp.arange(2), streams, counted))
    often = jnp.concatenate([jnp.ones((1, world.shape.V), i32), informative])
    if run.token_laws:
        often = jnp.concatenate([often, run.token_laws.groups])
    n_step1 = run.V if world.shape.start == "three_step" else i32(0)
    n_items = jnp.concatenate([n - counted, jnp.stack([run.V, n_step1])])
    sets = jnp.arange(4), jnp.stack([test, train, test, test]), n_items
    answers = compute_answers(world, maps)
    # mapped over the sets, so that the function compiles only once
    return lax.map(
        lambda one: measure_set(world, read, maps, answers, often, *one), sets
    )


def compute_answers(world: World, maps: Array) -> Array:
    """The centred tables (2, V, k), one for each map, whose products with the outputs
    of items are the logits.

    With an MLP, logits are computed through the d dimensions, which are fewer than the
    m units. So both tables are then Z_out.
    """
    Z_out = world.e.Z_out
    if world.e.W_in is not None:
        table = centred(world, Z_out)
        return jnp.stack([table, table])
    return lax.map(lambda V_mat: centred(world, Z_out @ V_mat), maps)


def measure_scores(world: World, w: Array) -> dict[str, Array]:
    """A dict of numbers that describe the attention scores of the trigger and of the
    tokens under w / w_scale.

    `w_scale` is the largest absolute entry of w.
    """
    e, scale = world.e, jnp.max(jnp.abs(w))
    unit = w / unless_zero(scale)
    scores = centred(world, (e.Z_in @ unit)[:, None])
    lengths2 = jnp.sum(e.z_trig * e.z_trig) * jnp.sum(unit * unit)
    return {
        "w_scale": scale,
        "trigger": e.z_trig @ unit,
        "score_std": jnp.sqrt(jnp.sum(scores * scores) / world.run.V.astype(f32)),
        "trigger_cosine": e.z_trig @ unit / jnp.sqrt(lengths2),
    }


def measure_set(
    world: World,
    read: Reader,
    maps: Array,
    answers: Array,
    often: Array,
    which: Array,
    key: Array,
    n: Array,
) -> Sums:
    """The sums over the n items of set `which`, some blocks of items at a time.

    The items are sequences of the stream `key`, or tokens in order of frequency. Tokens
    have the weights `often` (3 or 5, V). `maps` (2, d, p) contains V2 and V1, up to
    scale factors, and `answers` is `compute_answers(world, maps)`.
    """
    laws, is_sequence, is_step1 = world.run.token_laws, which < MEMORY, which == STEP1
    matrix = maps[is_step1.astype(i32)]
    table = answers[is_step1.astype(i32)]
    trigger = jnp.where(is_step1, f32(0), in_value(world)) * world.e.z_trig
    value = world.e.Z_in + trigger[None]

    def add(blocks: keys.Blocks, item: Array, sums: Sums) -> Sums:
        def sequences() -> tuple[Array, Array, Array, Array]:
            v, attended = read.attended(which, blocks)
            return v, attended.h, attended.mass, attended.is_top

        def tokens() -> tuple[Array, Array, Array, Array]:
            v = jnp.minimum(item, world.run.V - 1)
            if laws:
                v = gather(laws.by_frequency, v)
            size = len(item)
            return v, gather(value, v), jnp.ones(size, f32), jnp.ones(size, bool)

        v, h, mass, is_top = lax.cond(is_sequence, sequences, tokens)
        phi, _ = features(world, h)
        out = phi if world.e.W_in is None else phi @ matrix.T
        y = labels(world, which, blocks, v)
        compared = compare_rows(world, out, table, y)
        real = item < n
        times = jnp.where(real[None], jnp.where(is_sequence, i32(1), often[:, v]), 0)
        new = Sums(
            compared=weighted(compared, times),
            top1=jnp.sum((real & is_top).astype(i32), dtype=i32),
            mass=jnp.sum(jnp.where(real, mass, f32(0))),
            most=i32(0),
        )
        correct = (real & compared.correct).astype(i32)
        so_far = sums.compared.correct[0] + jnp.cumsum(correct, dtype=i32)
        enough = real & (10 * so_far >= 9 * (item + 1))
        most = jnp.max(jnp.where(enough, item + 1, sums.most))
        return jax.tree.map(jnp.add, sums, new)._replace(most=most)

    none = jnp.zeros(len(often), i32)
    zero = Sums(Comparison(none, none, none.astype(f32)), i32(0), f32(0), i32(0))
    return over_sequences(world, key, n, add, zero)


def weighted(compared: Comparison, times: Array) -> Comparison:
    """The sums over the n items of a block, with the weights `times` (weights, n)."""

    def count(of: Array) -> Array:
        return jnp.sum(times * of[None].astype(i32), axis=1, dtype=i32)

    margin = jnp.sum(times.astype(f32) * compared.margin[None], axis=1)
    return Comparison(count(compared.correct), count(compared.tied), margin)


def compare_rows(world: World, out: Array, answers: Array, y: Array) -> Comparison:
    """Compares the labels y (n,) with the logits out @ answers^T, whose mean is zero.

    Only a few columns of logits are computed at a time, and no column past V. Vmapped
    runs compute all columns at once.
    """
    width, n_parts = world.shape.V, i32(1)
    if not world.vmapped:
        width = min(width, LABELS)
        n_parts = whole(world.run.V, width)

    class Seen(NamedTuple):
        of_label: Array
        other: Array
        top: Array
        # column of the first largest logit: argmax is four times slower on a CPU
        first: Array
        n_top: Array
        square: Array

    def some_labels(c: Array, seen: Seen) -> Seen:
        start = jnp.minimum(c * width, world.shape.V - width)
        item = start + jnp.arange(width, dtype=i32)[None]
        new = (item >= c * width) & (item < world.run.V)
        rows = lax.dynamic_slice_in_dim(answers, start, width)
        logits = over_columns(world, lambda k: out[:, :k] @ rows[:, :k].T)
        masked = jnp.where(new, logits, f32(-jnp.inf))
        is_label = y[:, None] == item
        others = jnp.where(is_label, f32(-jnp.inf), masked)
        top = jnp.maximum(seen.top, jnp.max(masked, axis=1))
        is_top, grown = masked == top[:, None], top > seen.top
        first = jnp.min(jnp.where(is_top, item, world.shape.V), axis=1)
        n_top = jnp.sum(is_top.astype(i32), axis=1, dtype=i32)
        of_label = jnp.sum(jnp.where(is_label & new, logits, f32(0)), axis=1)
        square = jnp.sum(jnp.where(new, logits * logits, f32(0)), axis=1)
        return Seen(
            of_label=seen.of_label + of_label,
            other=jnp.maximum(seen.other, jnp.max(others, axis=1)),
            top=top,
            first=jnp.where(grown, first, seen.first),
            n_top=jnp.where(grown, 0, seen.n_top) + n_top,
            square=seen.square + square,
        )

    zero, index = jnp.zeros(len(y), f32), jnp.zeros(len(y), i32)
    none = jnp.full(len(y), -jnp.inf, f32)
    start = Seen(zero, none, none, index, index, zero)
    seen = repeat(world, n_parts, some_labels, start)
    std = jnp.sqrt(seen.square / world.run.V.astype(f32))
    lead = seen.of_label - seen.other
    margin = jnp.where(std > 0, lead / unless_zero(std), f32(0))
    return Comparison(seen.first == y, seen.n_top > 1, margin)


def draw_check(world: World) -> Array:
    """A uint32 hash of the permutation, of some tokens of each batch, and of all keys.

    The tokens are those at two positions of the first block. The hash does not depend
    on N, shape, tile or the number of devices.
    """
    run = world.run
    batches = jnp.concatenate([run.batches, keys.stream(run.streams, "test")[None]])
    first_blocks = keys.Blocks(batches, jnp.zeros(len(batches), jnp.uint32))
    positions = jnp.stack([i32(0), find_source(world).last_position(world)])
    tokens = world.tokens(first_blocks, positions)

    def hashed(draws: Array, label: int) -> Array:
        labels = jnp.uint32(label) + jnp.arange(len(draws), dtype=jnp.uint32)
        factors = labels * jnp.uint32(0x9E3779B1) | 1
        return jnp.sum(draws.astype(jnp.uint32) * factors, dtype=jnp.uint32)

    perm = jnp.where(world.no_label == 0, world.perm, 0)
    of_tokens = hashed(tokens.reshape(-1), 2**20)
    return hashed(perm, 0) + of_tokens + jnp.sum(run.streams, dtype=jnp.uint32)
