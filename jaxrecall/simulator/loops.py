"""Loops over what a run draws, a tile of samples at a time, and the gathers and sums
inside them.

Samples are drawn from their addresses whenever they are needed, so memory does not grow
with N or L.

Vmapped runs share their loops: each goes as far as the longest of them needs, and masks
keep the others as they are. A loop that ended at a different step for each run would
copy all that it carries, tables of V x V numbers too, at every step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys, task
from ..model.point import BLOCK
from .shape import STORED_TOKENS
from .world import NoiseTokens, World, f32, i32, stream_of_step

POSITIONS = 4
"""Positions per iteration of a loop over a sequence: each
pass over the sums of a tile then adds this many rows.
"""

VMAPPED_POSITIONS = 16
"""Positions whose numbers vmapped runs read at a time: each
iteration starts a handful of kernels, however little they do.
"""

Carry = TypeVar("Carry")
"""What a loop carries: a pytree of arrays."""

Of = TypeVar("Of")

Add = Callable[[Array, Array | None, Carry], Carry]
"""(tokens, a mask or None, carry) -> carry."""

Body = Callable[[Of, Array, Carry], Carry]
"""(what the loop goes over, a mask, carry) -> carry."""

RUNS = "runs"
"""Name of the axis of vmapped runs."""


def repeat(
    world: World,
    first: int,
    end: Array,
    body: Callable[[Array, Carry], Carry],
    start: Carry,
) -> Carry:
    """Folds `body(i, carry)` over i from `first` to `end` - 1.

    Of vmapped runs, to the largest `end` of all.
    """
    return lax.fori_loop(
        first, lax.pmax(end, RUNS) if world.vmapped else end, body, start
    )


def over_samples(
    world: World, key: Array, n: Array, body: Body[keys.Blocks, Carry], start: Carry
) -> Carry:
    """Folds `body(blocks, real, carry)` over the first n samples of a stream.

    `real` (tile,) masks those past n.
    """
    return _over_tiles(
        world, n, lambda first, count: keys.blocks(key, first, count), body, start
    )


def over_step(
    world: World, step: Array, body: Body[keys.Addresses, Carry], start: Carry
) -> Carry:
    """`over_samples` of the samples of further step `step`: those of its batch, or all
    N.

    Those of a batch are chosen among the N of the first step.
    """
    if not world.shape.batched:
        return over_samples(
            world, stream_of_step(world, step), world.run.N, body, start
        )

    def items(first: Array, count: int) -> keys.Items:
        return keys.Items(
            world.run.batches[0],
            task.batch_items(world.run.streams, step, (first, count), world.run.N),
        )

    return _over_tiles(world, world.run.batch, items, body, start)


def n_of_step(world: World) -> Array:
    """How many samples a further step reads."""
    return world.run.batch if world.shape.batched else world.run.N


def _over_tiles(
    world: World,
    n: Array,
    addresses: Callable[[Array, int], Of],
    body: Body[Of, Carry],
    start: Carry,
) -> Carry:
    """Folds `body(addresses, real, carry)` over n samples.

    `addresses(first, count)` gives those of some blocks of samples.
    """
    tile = world.shape.tile
    per_tile = tile // BLOCK

    def step(c: Array, carry: Carry) -> Carry:
        real = c * tile + jnp.arange(tile, dtype=i32) < n
        return body(addresses(c * per_tile, per_tile), real, carry)

    return repeat(world, 0, whole(n, tile), step, start)


def over_positions(
    world: World,
    blocks: keys.Addresses,
    first: int,
    body: Callable[[Array, Carry], Carry],
    start: Carry,
) -> Carry:
    """Folds `body(x, carry)` over the tokens x (POSITIONS, tile) of a few positions at
    a time.

    It starts from `first`.

    Past L a token is the empty one, V_pad: see `with_padding_row`.
    """

    def step(g: Array, carry: Carry) -> Carry:
        stored, drawn = (
            world.noise_tokens,
            functools.partial(_tokens, world, blocks, first + g * POSITIONS),
        )
        if stored is None or first == 0 or isinstance(blocks, keys.Items):
            return body(drawn(), carry)
        return body(
            lax.cond(
                stored.complete,
                functools.partial(_stored_tokens, world, stored, blocks, g),
                drawn,
            ),
            carry,
        )

    return repeat(world, 0, whole(world.run.L - first, POSITIONS), step, start)


def _tokens(world: World, blocks: keys.Addresses, first: Array) -> Array:
    """(POSITIONS, tile) int32: tokens from position `first` on, the padding row
    past L.
    """
    j = first + jnp.arange(POSITIONS, dtype=i32)
    return jnp.where((j < world.run.L)[:, None], world.tokens(blocks, j), world.shape.V)


def with_noise_tokens(world: World) -> World:
    """The world with the noise tokens of the first batch, for loops that read them many
    times.

    None if they are too many.

    Vmapped runs draw them instead: a tile of theirs is large.
    """
    if world.vmapped:
        return world
    run, size = world.run, POSITIONS * world.shape.tile
    n_groups, n_tiles = whole(run.L - 1, POSITIONS), whole(run.N, world.shape.tile)
    complete = ~run.fresh_batches & (n_groups <= STORED_TOKENS // size // n_tiles)

    def draw(i: Array, tokens: Array) -> Array:
        per_tile = world.shape.tile // BLOCK
        x = _tokens(
            world,
            keys.blocks(run.batches[0], i // n_groups * per_tile, per_tile),
            1 + i % n_groups * POSITIONS,
        )
        return lax.dynamic_update_slice(tokens, x.reshape(-1), (i * size,))

    n = jnp.where(complete, n_tiles * n_groups, 0)
    return replace(
        world,
        noise_tokens=NoiseTokens(
            repeat(world, 0, n, draw, jnp.zeros(STORED_TOKENS, i32)), complete
        ),
    )


def _stored_tokens(
    world: World, stored: NoiseTokens, blocks: keys.Blocks, g: Array
) -> Array:
    """`_tokens` of the g-th group of noise positions, where `with_noise_tokens` put
    them.
    """
    size = POSITIONS * world.shape.tile
    tile = blocks.index[0].astype(i32) // (world.shape.tile // BLOCK)
    start = (tile * whole(world.run.L - 1, POSITIONS) + g) * size
    return lax.dynamic_slice(stored.tokens, (start,), (size,)).reshape(POSITIONS, -1)


def add_tokens(
    world: World,
    blocks: keys.Blocks,
    first: int,
    end: Array,
    what: Callable[[Array], tuple[Array, Array]],
    table: Array,
) -> Array:
    """`table` with the amounts that `what` gives for tokens x (tile,) of each position.

    Positions are `first` to `end` - 1.

    `what` gives places in the table, and an amount for each.
    """

    def add(x: Array, here: Array | None, table: Array) -> Array:
        if here is None:
            return scatter_add(table, *what(x))
        place, amount = jax.vmap(what)(x)
        return scatter_add(
            table,
            place.reshape(-1),
            jnp.where(here, amount, jnp.zeros((), amount.dtype)).reshape(-1),
        )

    return _over_tokens(world, blocks, first, end, add, table)


def sum_tokens(
    world: World,
    blocks: keys.Blocks,
    first: int,
    end: Array,
    what: Callable[[Array], Array],
    start: Array,
) -> Array:
    """`start` (tile,) and the sum of what `what` gives for tokens x (tile,) of each
    position.

    Positions are `first` to `end` - 1.
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
    body: Add[Carry],
    start: Carry,
) -> Carry:
    """Folds `body(x, here, carry)` over the tokens x (tile,) of a position; `here` is
    None.

    Of vmapped runs x is (n, tile), n = VMAPPED_POSITIONS, and `here` (n, 1) masks
    positions from `end` on.
    """
    size = VMAPPED_POSITIONS
    if not world.vmapped:
        return lax.fori_loop(
            first,
            end,
            lambda j, carry: body(world.tokens(blocks, j), None, carry),
            start,
        )

    def step(g: Array, carry: Carry) -> Carry:
        j = first + g * size + jnp.arange(size, dtype=i32)
        return body(world.tokens(blocks, j), (j < end)[:, None], carry)

    return repeat(world, 0, (end + (size - 1 - first)) // size, step, start)


def over_vocabulary(world: World, body: Body[Array, Carry], start: Carry) -> Carry:
    """Folds `body(v, real, carry)` over the vocabulary, a tile of tokens v at a time.

    `real` masks those past V.
    """
    size = min(world.shape.tile, world.shape.V)

    def step(c: Array, carry: Carry) -> Carry:
        v = c * size + jnp.arange(size, dtype=i32)
        return body(v, v < world.run.V, carry)

    return repeat(world, 0, whole(world.run.V, size), step, start)


def with_padding_row(table: Array, fill: float = 0.0) -> Array:
    """`table` (V, ...) with one more row, that of the empty token."""
    return jnp.concatenate([table, jnp.full((1, *table.shape[1:]), fill, table.dtype)])


def token_counts(
    world: World,
    key: Array,
    n: Array,
    informative: Callable[[keys.Blocks], Array] | None = None,
) -> Array:
    """(V,) int32: how often each token is the informative one in the first n samples of
    a stream.

    `informative` gives those of blocks; it is token 0 unless given.
    """

    def tile(blocks: keys.Blocks, real: Array, counts: Array) -> Array:
        x = informative(blocks) if informative else world.tokens(blocks, 0)
        return scatter_add(counts, x, real.astype(i32))

    return over_samples(world, key, n, tile, jnp.zeros(world.shape.V, i32))


def gather(table: Array, index: Array) -> Array:
    """Rows of `table` at drawn tokens or their labels.

    Unsigned, because JAX looks for negative indices among others.
    """
    return table.at[index.astype(jnp.uint32)].get(mode="promise_in_bounds")


def scatter_add(table: Array, index: Array, amount: Array) -> Array:
    """`table` with the amounts added at drawn tokens."""
    return table.at[index.astype(jnp.uint32)].add(amount, mode="promise_in_bounds")


def masked(real: Array, rows: Array) -> Array:
    """`rows` (n, k), zero where not `real` (n,)."""
    return jnp.where(real[:, None], rows, f32(0))


def transposed_product(a: Array, b: Array) -> Array:
    """a^T b, summed over samples."""
    return (
        lax.optimization_barrier(a.T) @ b
    )  # XLA's own product with a transposed left side is two times slower on a CPU


def whole(n: Array, size: int) -> Array:
    """How many times `size` covers n >= 0.

    Unsigned, because a division that looks at signs compiles to several kernels.
    """
    return ((n.astype(jnp.uint32) + jnp.uint32(size - 1)) // jnp.uint32(size)).astype(
        i32
    )


def unless_zero(x: Array) -> Array:
    return jnp.where(x == 0, f32(1), x)


def norm(a: Array) -> Array:
    return jnp.sqrt(jnp.sum(a * a))


def longest(rows: Array) -> Array:
    """The largest norm of a row."""
    return jnp.sqrt(jnp.max(jnp.sum(rows * rows, axis=1)))
