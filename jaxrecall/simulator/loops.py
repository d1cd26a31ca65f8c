"""Loops over the random draws of a run, a tile of samples at a time.

Samples are computed from their addresses whenever they are needed, so memory does not
grow with N or L.

Vmapped runs share their loops. Each loop ends where the longest run ends, and masks
keep the results of the other runs unchanged. If each run ended at a different step, the
loop would copy all its state at every step, including V x V tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys, task
from ..model.point import BLOCK
from .arrays import f32, gather, i32, scatter_add, whole
from .program_shape import STORED_TOKENS, Shape
from .world import StoredTokens, World, stream_of_step

POSITIONS = 4
"""The number of positions per iteration of a loop over a sequence.

Each pass over the sums of a tile then adds this number of rows.
"""

VMAPPED_POSITIONS, VMAPPED_SEQUENCES = 16, 2048
"""The number of positions per iteration of a loop over a sequence, and that of
sequences per iteration of a loop over measured sequences, for vmapped runs.

The numbers are larger than POSITIONS and BLOCK, because each iteration starts several
kernels, even if they compute little.
"""

LEAST_WIDTH = 64
"""The smallest d for which a program may read fewer columns. A matrix product with
fewer than 16 columns would not be faster.
"""

LARGEST_COUNT = 2**16 - 1
"""The largest number of equal tokens of a sample that can be stored."""

Carry = TypeVar("Carry")
"""The state of a loop: a pytree of arrays."""

Of = TypeVar("Of")

Body = Callable[[Of, Array, Carry], Carry]
"""A function (an item of the loop, an array that says more about it, carry) -> carry.
The array is a mask, unless the loop says otherwise.
"""

RUNS = "runs"
"""The name of the axis of vmapped runs."""


def repeat(
    world: World,
    n: Array,
    body: Callable[[Array, Carry], Carry],
    start: Carry,
    size: int = 1,
    first: int = 0,
) -> Carry:
    """Folds `body(i, carry)` over the parts of n items, from part `first` on. Each part
    has `size` items, and the last one may have fewer.

    Vmapped runs continue to the largest n among them.
    """
    if world.vmapped:
        n = lax.pmax(n, RUNS)

    def is_left(now: tuple[Array, Carry]) -> Array:
        # without a sign, because the start of the part after the last may exceed 2^31
        return now[0].astype(jnp.uint32) * size < n.astype(jnp.uint32)

    def step(now: tuple[Array, Carry]) -> tuple[Array, Carry]:
        i, carry = now
        return i + 1, body(i, carry)

    return lax.while_loop(is_left, step, (i32(first), start))[1]


def over_columns(world: World, compute: Callable[[int], Array]) -> Array:
    """Returns `compute(k)`, which reads only the first k columns of tables with d
    columns.

    All columns past the run's d are zero. So k is a quarter of the columns if the run's
    d is at most that, and otherwise k is d. Vmapped runs read all columns, because they
    would compute both results.
    """
    d = world.shape.d
    if world.vmapped or d < LEAST_WIDTH:
        return compute(d)
    is_narrow = world.run.d <= d // 4
    return lax.cond(is_narrow, lambda: compute(d // 4), lambda: compute(d))


def over_samples(
    world: World, key: Array, n: Array, body: Body[keys.Blocks, Carry], start: Carry
) -> Carry:
    """Folds `body(blocks, real, carry)` over the first n samples of a stream.

    The mask `real` (tile,) is false for samples past n.
    """
    return _over_tiles(world, n, partial(keys.blocks, key), body, start)


def over_step(
    world: World, step: Array, body: Body[keys.Addresses, Carry], start: Carry
) -> Carry:
    """Does the same as `over_samples`, for the samples of further step `step`.

    The samples of a batch are chosen from the N samples of the first step.
    """
    run = world.run
    if not world.shape.batched:
        return over_samples(world, stream_of_step(world, step), run.N, body, start)

    def items(first: Array, count: int) -> keys.Items:
        chosen = task.batch_items(run.streams, step, (first, count), run.N)
        return keys.Items(run.batches[0], chosen)

    return _over_tiles(world, run.batch, items, body, start)


def _over_tiles(
    world: World,
    n: Array,
    addresses: Callable[[Array, int], Of],
    body: Body[Of, Carry],
    start: Carry,
) -> Carry:
    """Folds `body(addresses, real, carry)` over n samples.

    `addresses(first, count)` returns the addresses in `count` blocks, starting with
    block `first`.
    """
    tile = world.shape.tile
    per_tile = tile // BLOCK

    def step(c: Array, carry: Carry) -> Carry:
        real = c * tile + jnp.arange(tile, dtype=i32) < n
        return body(addresses(c * per_tile, per_tile), real, carry)

    return repeat(world, n, step, start, tile)


def over_sequences(
    world: World,
    key: Array,
    n: Array,
    body: Body[keys.Blocks, Carry],
    start: Carry,
) -> Carry:
    """Folds `body(blocks, item, carry)` over the first n measured sequences of a
    stream.

    The indices `item` of the sequences of `blocks` may exceed n - 1.
    """
    size = min(VMAPPED_SEQUENCES, world.shape.tile) if world.vmapped else BLOCK
    per_block = size // BLOCK

    def step(c: Array, carry: Carry) -> Carry:
        item = c * size + jnp.arange(size, dtype=i32)
        return body(keys.blocks(key, c * per_block, per_block), item, carry)

    return repeat(world, n, step, start, size)


def over_positions(
    world: World,
    blocks: keys.Addresses,
    body: Body[Array, Carry],
    start: Carry,
) -> Carry:
    """Folds `body(x, times, carry)` over the noise tokens x (k, tile) of samples, k
    positions at a time. Each token occurs `times` (k, tile) times.

    Where there is no token, x contains the empty token V_pad (see `with_padding_row`).
    """
    stored, n_rows = _are_stored(world, blocks), world.run.L
    size = VMAPPED_POSITIONS if world.vmapped else POSITIONS
    if stored is not None:
        assert world.stored_tokens
        n_rows = jnp.where(stored, world.stored_tokens.n_rows, n_rows)

    def step(g: Array, carry: Carry) -> Carry:
        first = 1 + g * size

        def drawn() -> Array:
            return world.tokens(blocks, first + jnp.arange(size, dtype=i32))

        if stored is None:
            x = drawn()
        else:
            x = lax.cond(stored, lambda: _stored_group(world, blocks, first), drawn)
        row = first + jnp.arange(size, dtype=i32)[:, None]
        times = jnp.ones(x.shape, f32)
        is_token = row < n_rows
        if stored is not None:
            counted = n_rows < world.run.L
            times = jnp.where(counted, x.astype(f32), times)
            x = jnp.where(counted, row - 1, x)
            is_token &= times > 0
        return body(jnp.where(is_token, x, world.shape.V), times, carry)

    return repeat(world, n_rows - 1, step, start, size)


def _are_stored(world: World, blocks: keys.Addresses) -> Array | None:
    """Whether the tokens of `blocks` are stored. None if they never are."""
    stored, tile = world.stored_tokens, world.shape.tile
    is_tile = isinstance(blocks, keys.Items) or len(blocks.index) * BLOCK == tile
    if stored is None or not is_tile:
        return None
    return stored.complete & jnp.all(blocks.key == world.run.batches[0])


def _stored_group(world: World, blocks: keys.Addresses, first: Array) -> Array:
    """The stored rows from `first` on, as an int32 array (POSITIONS, n). Past the last
    row, the entries are arbitrary.
    """
    stored, tile = world.stored_tokens, world.shape.tile
    assert stored is not None
    if isinstance(blocks, keys.Items):
        index = blocks.index.astype(i32)[None]
        row = first + jnp.arange(POSITIONS, dtype=i32)[:, None]
        place = (index // tile * stored.n_rows + row) * tile + index % tile
        x = gather(stored.tokens, place)
    else:
        index = blocks.index[0].astype(i32) // (tile // BLOCK)
        start, size = (index * stored.n_rows + first) * tile, POSITIONS * tile
        x = lax.dynamic_slice(stored.tokens, (start,), (size,))
        x = x.reshape(POSITIONS, tile)
    return x.astype(i32)


def store_tokens(world: World, tokens: Array) -> StoredTokens:
    """Returns the tokens of the first batch, which many loops read. They overwrite the
    array `tokens`.

    If there are too many tokens, or if batches are fresh, none are drawn here.
    """
    run, tile, V = world.run, world.shape.tile, world.shape.V
    per_tile, sample = tile // BLOCK, jnp.arange(tile, dtype=i32)
    n_tiles = whole(run.N, tile)
    a_tile_fits = V * tile <= STORED_TOKENS
    counted = a_tile_fits & (V + 1 < run.L) & (run.L <= LARGEST_COUNT)
    n_rows = jnp.where(counted, V + 1, run.L)
    complete = ~run.fresh_batches & (n_rows <= STORED_TOKENS // tile // n_tiles)

    def draw(i: Array, tokens: Array) -> Array:
        blocks = keys.blocks(run.batches[0], i // run.L * per_tile, per_tile)
        x = world.tokens(blocks, i % run.L).astype(tokens.dtype)
        return lax.dynamic_update_slice(tokens, x, (i * tile,))

    def count(c: Array, tokens: Array) -> Array:
        blocks = keys.blocks(run.batches[0], c * per_tile, per_tile)
        one, zero = jnp.ones(tile, tokens.dtype), jnp.zeros(V * tile, tokens.dtype)
        counts = add_tokens(
            world, blocks, 1, run.L, lambda x: (x * tile + sample, one), zero
        )
        return lax.dynamic_update_slice(tokens, counts, ((c * n_rows + 1) * tile,))

    # one of two loops is empty
    n_drawn = jnp.where(complete & ~counted, n_tiles * run.L, 0)
    tokens = repeat(world, n_drawn, draw, tokens)
    if a_tile_fits:
        n_counted = jnp.where(complete & counted, n_tiles, 0)
        tokens = repeat(world, n_counted, count, tokens)
    return StoredTokens(tokens, n_rows, complete)


def no_tokens(shape: Shape) -> Array:
    """Returns an array in which a run can store its tokens.

    The array is longer by one group of positions. The last group may reach beyond the
    tokens.
    """
    return jnp.zeros(STORED_TOKENS + POSITIONS * shape.tile, jnp.uint16)


def add_tokens(
    world: World,
    blocks: keys.Blocks,
    first: int,
    end: Array,
    what: Callable[[Array], tuple[Array, Array]],
    table: Array,
) -> Array:
    """Returns `table` with amounts added for the tokens at positions `first` to `end` -
    1.

    For the tokens x (tile,) of a position, `what(x)` returns an index into the table
    and an amount for each token.
    """

    def add(x: Array, here: Array | None, table: Array) -> Array:
        if here is None:
            return scatter_add(table, *what(x))
        place, amount = jax.vmap(what)(x)
        amount = jnp.where(here, amount, jnp.zeros((), amount.dtype))
        return scatter_add(table, place.reshape(-1), amount.reshape(-1))

    return _over_tokens(world, blocks, first, end, add, table)


def sum_tokens(
    world: World,
    blocks: keys.Blocks,
    first: int,
    end: Array,
    what: Callable[[Array], Array],
    start: Array,
) -> Array:
    """Returns `start` (tile,) plus the sum of `what(x)` over positions `first` to `end`
    - 1.

    The argument x (tile,) contains the tokens of a position.
    """

    def add(x: Array, here: Array | None, total: Array) -> Array:
        if here is None:
            return total + what(x)
        return total + jnp.sum(jnp.where(here, jax.vmap(what)(x), f32(0)), axis=0)

    return _over_tokens(world, blocks, first, end, add, start)


def _over_tokens(
    world: World,
    blocks: keys.Blocks,
    first: int,
    end: Array,
    body: Callable[[Array, Array | None, Carry], Carry],
    start: Carry,
) -> Carry:
    """Folds `body(x, here, carry)` over the tokens x (tile,) of each position.

    For a single run, `here` is None. For vmapped runs, x has the shape (n, tile) with n
    = VMAPPED_POSITIONS. The mask `here` (n, 1) is then false at position `end` and
    after it.
    """

    def one(j: Array, carry: Carry) -> Carry:
        return body(world.tokens(blocks, j), None, carry)

    def group(g: Array, carry: Carry) -> Carry:
        x = _stored_group(world, blocks, first + g * POSITIONS)

        def one_of_group(i: Array, carry: Carry) -> Carry:
            return body(lax.dynamic_index_in_dim(x, i, keepdims=False), None, carry)

        n = jnp.minimum(end - first - g * POSITIONS, POSITIONS)
        return lax.fori_loop(0, n, one_of_group, carry)

    def vmapped_group(g: Array, carry: Carry) -> Carry:
        j = first + g * VMAPPED_POSITIONS + jnp.arange(VMAPPED_POSITIONS, dtype=i32)
        return body(world.tokens(blocks, j), (j < end)[:, None], carry)

    if world.vmapped:
        return repeat(world, end - first, vmapped_group, start, VMAPPED_POSITIONS)
    stored = _are_stored(world, blocks)
    if stored is None:
        return lax.fori_loop(first, end, one, start)
    assert world.stored_tokens
    stored &= world.stored_tokens.n_rows == world.run.L
    # one of two loops is empty: a branch in each group would take longer
    n_groups = jnp.where(stored, whole(end - first, POSITIONS), 0)
    carry = lax.fori_loop(0, n_groups, group, start)
    return lax.fori_loop(jnp.where(stored, end, first), end, one, carry)


def over_vocabulary(world: World, body: Body[Array, Carry], start: Carry) -> Carry:
    """Folds `body(v, real, carry)` over the vocabulary, a tile of tokens v at a time.

    The mask `real` is false for tokens past V.
    """
    size = min(world.shape.tile, world.shape.V)

    def step(c: Array, carry: Carry) -> Carry:
        v = c * size + jnp.arange(size, dtype=i32)
        return body(v, v < world.run.V, carry)

    return repeat(world, world.run.V, step, start, size)


def token_counts(
    world: World,
    key: Array,
    n: Array,
    informative: Callable[[keys.Blocks], Array] | None = None,
) -> Array:
    """For each token, the number of samples in which it is informative, among the first
    n samples of `key`. An int32 array (V,).

    `informative` returns the informative tokens of blocks. By default, they are the
    tokens at position 0.
    """

    def tile(blocks: keys.Blocks, real: Array, counts: Array) -> Array:
        x = informative(blocks) if informative else world.tokens(blocks, 0)
        return scatter_add(counts, x, real.astype(i32))

    return over_samples(world, key, n, tile, jnp.zeros(world.shape.V, i32))
