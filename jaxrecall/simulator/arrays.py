"""Small operations on float32 arrays: gathers and scatters of rows, products, and
norms.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

f32, i32 = jnp.float32, jnp.int32


def with_padding_row(table: Array, fill: float = 0.0) -> Array:
    """Returns `table` (V, ...) with one more row, which belongs to the empty token."""
    return jnp.concatenate([table, jnp.full((1, *table.shape[1:]), fill, table.dtype)])


def gather(table: Array, index: Array) -> Array:
    """The rows of `table` at drawn tokens or their labels.

    The index is cast to unsigned integers, because JAX would test whether signed
    integers are negative.
    """
    return table.at[index.astype(jnp.uint32)].get(mode="promise_in_bounds")


def scatter_add(table: Array, index: Array, amount: Array) -> Array:
    """Returns `table` with `amount` added to the rows of drawn tokens."""
    return table.at[index.astype(jnp.uint32)].add(amount, mode="promise_in_bounds")


def masked(real: Array, rows: Array) -> Array:
    """Returns `rows` (n, k), set to zero where `real` (n,) is false."""
    return jnp.where(real[:, None], rows, f32(0))


def transposed_product(a: Array, b: Array) -> Array:
    """The product a^T b, which is a sum over samples."""
    # on a CPU, XLA's own product with a transposed left side takes twice as long
    return lax.optimization_barrier(a.T) @ b


def whole(n: Array, size: int) -> Array:
    """Returns n / size rounded up, for n >= 0.

    The division is unsigned, because a signed one compiles to several kernels.
    """
    last = n.astype(jnp.uint32) + jnp.uint32(size - 1)
    return (last // jnp.uint32(size)).astype(i32)


def unless_zero(x: Array) -> Array:
    return jnp.where(x == 0, f32(1), x)


def norm(a: Array) -> Array:
    return jnp.sqrt(jnp.sum(a * a))


def longest(rows: Array) -> Array:
    """The largest norm of the rows."""
    return jnp.sqrt(jnp.max(jnp.sum(rows * rows, axis=1)))
