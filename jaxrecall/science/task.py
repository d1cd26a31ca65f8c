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
    bits = keys.rows(keys.stream(streams, "permutation"), V_pad)
    padding = (items >= V).astype(jnp.int32)
    return lax.sort((padding, bits[:, 0], bits[:, 1], items), num_keys=3)[3]


def tokens(blocks: keys.Blocks, position: Array | int, V: Array | int) -> Array:
    """(..., 512 * count) int32: tokens at each `position` (...,) of the samples of `blocks`; 0 is informative."""
    return keys.below(keys.words(blocks, position), V)
