"""Small operations on arrays in float32: rows at drawn tokens, products, norms."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

f32, i32 = jnp.float32, jnp.int32


def with_padding_row(table: Array, fill: float = 0.0) -> Array:
    """`table` (V, ...) with one more row, that of the empty token."""
    return jnp.concatenate([table, jnp.full((1, *table.shape[1:]), fill, table.dtype)])


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
    # XLA's own product with a transposed left side is two times slower on a CPU
    return lax.optimization_barrier(a.T) @ b


def whole(n: Array, size: int) -> Array:
    """How many times `size` covers n >= 0.

    Unsigned, because a division that looks at signs compiles to several kernels.
    """
    last = n.astype(jnp.uint32) + jnp.uint32(size - 1)
    return (last // jnp.uint32(size)).astype(i32)


def unless_zero(x: Array) -> Array:
    return jnp.where(x == 0, f32(1), x)


def norm(a: Array) -> Array:
    return jnp.sqrt(jnp.sum(a * a))


def longest(rows: Array) -> Array:
    """The largest norm of a row."""
    return jnp.sqrt(jnp.max(jnp.sum(rows * rows, axis=1)))
