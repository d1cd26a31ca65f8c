"""The retrieval task: a permutation of the vocabulary, and samples of L tokens of which token 0 of a stream is informative.

The model has no positions, so the simulator never moves the informative token; only `realize` swaps it to position ell.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from . import keys


def permutation(streams: Array, V: Array | int, V_pad: int) -> Array:
    """(V_pad,) int32: a uniform permutation pi of 0..V-1, label of token v at index v; entries from V on are padding.

    Items are sorted by two random words each (their row keys), so that equal keys (chance V^2 / 2^65) do not bend the law.
    """
    items = jnp.arange(V_pad, dtype=jnp.int32)
    key = keys.stream(streams, "permutation")
    words = keys.threefry2x32(key[0], key[1], jnp.zeros(V_pad, jnp.uint32), items.astype(jnp.uint32))
    padding = (items >= V).astype(jnp.int32)
    return lax.sort((padding, *words, items), num_keys=3)[3]


def batch_items(streams: Array, step: Array | int, blocks: tuple[Array | int, int], N: Array | int) -> Array:
    """(512 * count,) uint32: which of N samples the batch of gradient step `step` holds, drawn evenly with replacement.

    `blocks` is (first, count): the places of the batch, 512 a block.
    """
    key = keys.further(keys.stream(streams, "train"), step)
    return keys.below_many(keys.words(keys.blocks(key, *blocks), 0), N).astype(jnp.uint32)


def tokens(blocks: keys.Addresses, position: Array | int, V: Array | int, tables: Array | None = None) -> Array:
    """(..., 512 * count) int32: tokens at each `position` (...,) of the samples of `blocks`; 0 is informative.

    Tokens are uniform, or drawn by alias tables (1 or 2, 2, V), the last one for noise: see `laws.tokens`.
    """
    word = keys.words(blocks, position)
    cell = keys.below(word, V)
    if tables is None:
        return cell
    n, _, V_pad = tables.shape
    place = cell.astype(jnp.uint32)
    if n > 1:
        place = place + jnp.uint32(V_pad) * (jnp.asarray(position) > 0).astype(jnp.uint32)[..., None]
    first, other = (tables[:, i].reshape(-1).at[place].get(mode="promise_in_bounds") for i in range(2))
    return jnp.where(word < first, cell, other.astype(jnp.int32))
