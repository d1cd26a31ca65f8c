"""Loops over what a run draws, a tile of samples at a time, and the gathers and sums inside them.

Samples are drawn from their addresses whenever they are needed, so memory does not grow with N or L.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ..point import BLOCK
from ..science import keys, task
from .world import World, f32, i32

POSITIONS = 4
"""Positions per iteration of a loop over a sequence: each pass over the sums of a tile then adds this many rows."""


def over_samples(world: World, key: Array, n: Array, body: Callable[[keys.Blocks, Array, Any], Any], start: Any) -> Any:
    """Folds `body(blocks, real, carry)` over the first n samples of a stream; `real` (tile,) masks those past n."""
    tile = world.shape.tile
    per_tile = tile // BLOCK

    def step(c: Array, carry: Any) -> Any:
        real = c * tile + jnp.arange(tile, dtype=i32) < n
        return body(keys.blocks(key, c * per_tile, per_tile), real, carry)

    return lax.fori_loop(0, (n + (tile - 1)) // tile, step, start)


def over_positions(world: World, blocks: keys.Blocks, first: int, body: Callable[[Array, Any], Any], start: Any) -> Any:
    """Folds `body(x, carry)` over the tokens x (POSITIONS, tile) of a few positions at a time, from `first` on.

    Past L a token is the empty one, V_pad: see `and_empty`.
    """
    run, group = world.run, jnp.arange(POSITIONS, dtype=i32)

    def step(g: Array, carry: Any) -> Any:
        j = first + g * POSITIONS + group
        return body(jnp.where((j < run.L)[:, None], task.tokens(blocks, j, run.V), world.shape.V), carry)

    return lax.fori_loop(0, (run.L + (POSITIONS - 1 - first)) // POSITIONS, step, start)


def over_tokens(world: World, blocks: keys.Blocks, first: int, body: Callable[[Array, Any], Any], start: Any) -> Any:
    """Folds `body(x, carry)` over the tokens x (tile,) of a position at a time, from `first` on: for numbers, not for rows."""
    run = world.run
    return lax.fori_loop(first, run.L, lambda j, carry: body(task.tokens(blocks, j, run.V), carry), start)


def over_vocabulary(world: World, body: Callable[[Array, Array, Any], Any], start: Any) -> Any:
    """Folds `body(v, real, carry)` over the vocabulary, a tile of tokens v at a time; `real` masks those past V."""
    size = min(world.shape.tile, world.shape.V)

    def step(c: Array, carry: Any) -> Any:
        v = c * size + jnp.arange(size, dtype=i32)
        return body(v, v < world.run.V, carry)

    return lax.fori_loop(0, (world.run.V + (size - 1)) // size, step, start)


def and_empty(table: Array, fill: float = 0.0) -> Array:
    """`table` (V, ...) with one more row, that of the empty token."""
    return jnp.concatenate([table, jnp.full((1, *table.shape[1:]), fill, table.dtype)])


def token_counts(world: World, key: Array, n: Array, informative: Callable[[keys.Blocks], Array] | None = None) -> Array:
    """(V,) int32: how often each token is the informative one in the first n samples of a stream.

    `informative` gives those of blocks; it is token 0 unless given.
    """

    def tile(blocks: keys.Blocks, real: Array, counts: Array) -> Array:
        x = informative(blocks) if informative else task.tokens(blocks, 0, world.run.V)
        return add_at(counts, x, real.astype(i32))

    return over_samples(world, key, n, tile, jnp.zeros(world.shape.V, i32))


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
