"""Computes the metrics of one trained run in padded float32, a block of items at a
time.

`model/reference/metrics.py` computes the same metrics in readable code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from .arrays import f32, gather, i32, masked, unless_zero
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
    """Comparisons of predictions with labels: one entry per item."""

    correct: Array  # bool
    tied: Array  # bool: several logits are the largest
    # float32: (logit of the label - best other) / standard deviation of the logits
    margin: Array


class Sums(NamedTuple):
    """The weighted sums over the items of a set. Each column belongs to a row of the
    weights.
    """

    counts: Array  # (3, weights) int32: correct, tied, and most attentive
    # (2, weights) float32: margins, and attention on the informative token
    amounts: Array
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
    # (sets, weights) each
    correct, tied, top1 = sums.counts.swapaxes(0, 1)
    margins, mass = sums.amounts.swapaxes(0, 1)

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
        "n_top1": jnp.where(by_token, run.n_test, top1[TEST, EVENLY]),
        "mass": jnp.where(by_token, run.n_test.astype(f32), mass[TEST, EVENLY]),
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
    maps = V2 / unless_zero(jnp.max(jnp.abs(V2))), trained.V1
    test, train = keys.stream(run.streams, "test"), batch_of_step(world, 2)
    streams = jnp.stack([test, train, test, test])
    n = jnp.stack([run.n_test, jnp.minimum(run.N, run.n_test)])
    counted = jnp.where(by_token, n, 0)
    scores = attention_scores(world, trained.w, trained.w_scale)
    read = find_source(world).reader(world, scores, by_token)

    def add_counts(which: Array, often: Array) -> Array:
        counts = token_counts(
            world,
            gather(streams, which),
            gather(counted, which),
            lambda at: read.informative(which, at),
        )
        row = jnp.arange(len(often))[:, None]
        return jnp.where(row == which + BY_TEST, counts[None], often)

    often = jnp.ones((3, world.shape.V), i32)
    often = lax.fori_loop(TEST, TRAIN + 1, add_counts, often)
    if run.token_laws:
        often = jnp.concatenate([often, run.token_laws.groups])
    n_step1 = run.V if world.shape.start == "three_step" else i32(0)
    n_items = jnp.concatenate([n - counted, jnp.stack([run.V, n_step1])])
    sets = jnp.arange(4), streams, n_items
    answers = [compute_answers(world, V_mat) for V_mat in maps]
    # mapped over the sets, so that the function compiles only once
    return lax.map(
        lambda one: measure_set(world, read, maps, answers, often, *one), sets
    )


def compute_answers(world: World, V_mat: Array) -> Array:
    """The centred table (V, k) whose products with the outputs of items are the logits.

    With an MLP, logits are computed through the d dimensions, which are fewer than the
    m units. So the table is then Z_out.
    """
    mlp = world.e.W_in is not None
    return centred(world, world.e.Z_out if mlp else world.e.Z_out @ V_mat)


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
    maps: Sequence[Array],
    answers: Sequence[Array],
    often: Array,
    which: Array,
    key: Array,
    n: Array,
) -> Sums:
    """The sums over the n items of set `which`, some blocks of items at a time.

    The items are sequences of the stream `key`, or tokens in order of frequency. Tokens
    have the weights `often` (3 or 5, V). `maps` (d, p) are V2 and V1, up to scale
    factors, and `answers` are their `compute_answers`.
    """
    laws, is_sequence, is_step1 = world.run.token_laws, which < MEMORY, which == STEP1
    matrix, table = (
        jnp.where(is_step1, of_V1, of_V2) for of_V2, of_V1 in (maps, answers)
    )
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
        correct, tied, margin = compare_rows(world, out, table, y)
        real = item < n
        times = jnp.where(real[None], jnp.where(is_sequence, i32(1), often[:, v]), 0)
        is_counted = jnp.stack([correct, tied, is_top]).astype(i32)
        counts = jnp.sum(is_counted[:, None] * times[None], axis=2, dtype=i32)
        amounts = jnp.stack([margin, jnp.where(real, mass, f32(0))])
        before = correct[None] & (item[None] <= item[:, None])
        so_far = sums.counts[0, EVENLY] + jnp.sum(before.astype(i32), axis=1, dtype=i32)
        enough = real & (10 * so_far >= 9 * (item + 1))
        return Sums(
            sums.counts + counts,
            sums.amounts + amounts @ times.astype(f32).T,
            jnp.max(jnp.where(enough, item + 1, sums.most)),
        )

    none = jnp.zeros((3, len(often)), i32)
    return over_sequences(world, key, n, add, Sums(none, none[:2].astype(f32), i32(0)))


def compare_rows(world: World, out: Array, answers: Array, y: Array) -> Comparison:
    """Compares the labels y (n,) with the logits out @ answers^T, whose mean is zero.

    Only a few columns of logits are computed at a time, and no column past V. Vmapped
    runs compute all columns at once.
    """
    width, n_labels = world.shape.V, i32(1)
    if not world.vmapped:
        width = min(width, LABELS)
        n_labels = world.run.V

    class Seen(NamedTuple):
        of_label: Array
        # the largest logit of another label
        other: Array
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
        own = jnp.max(jnp.where(is_label, masked, f32(-jnp.inf)), axis=1)
        others = jnp.max(jnp.where(is_label, f32(-jnp.inf), masked), axis=1)
        of_label = jnp.maximum(seen.of_label, own)
        other = jnp.maximum(seen.other, others)
        top = jnp.maximum(of_label, other)
        is_top = masked == top[:, None]
        grown = top > jnp.maximum(seen.of_label, seen.other)
        first = jnp.min(jnp.where(is_top, item, world.shape.V), axis=1)
        n_top = jnp.sum(is_top.astype(i32), axis=1, dtype=i32)
        shown = jnp.where(new, logits, f32(0))
        return Seen(
            of_label=of_label,
            other=other,
            first=jnp.where(grown, first, seen.first),
            n_top=jnp.where(grown, 0, seen.n_top) + n_top,
            square=seen.square + jnp.sum(shown * shown, axis=1),
        )

    zero, index = jnp.zeros(len(y), f32), jnp.zeros(len(y), i32)
    none = jnp.full(len(y), -jnp.inf, f32)
    start = Seen(none, none, index, index, zero)
    seen = repeat(world, n_labels, some_labels, start, width)
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
