"""Random numbers by address: root seed -> seed -> stream -> (block of 512 samples,
position).

For rows of tables, the address ends with the row's index instead of a block and a
position.

Keys are never chained, so a number depends on its address alone. Padding, batching,
sharding and the order of work therefore change no draw. Keys and normals are those of
`jax.random`. A run needs N L random words for its tokens. Threefry is implemented here
because both output words of the cipher are then used, and positions need no keys. The
keys of streams are computed on the host, and compiled programs start from these keys.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import ArrayLike

from ..errors import UsageError
from .point import BLOCK
from .values import Numbers

STREAMS = {
    "permutation": 0,
    "z_in": 1,
    "z_out": 2,
    "z_trig": 3,
    "z_eos": 4,
    "w_in": 5,
    "train": 6,
    "train_position": 7,
    "test": 8,
    "test_position": 9,
}
"""The addresses of the named streams. They must never change, because they determine
the draws.
"""


def run_streams(
    root_seed: ArrayLike, seed: ArrayLike, tag: ArrayLike, independent: ArrayLike
) -> np.ndarray:
    """Returns (n, 10, 2) uint32: the key data of the named streams for n runs, in the
    order of their addresses.

    `root_seed` and `seed` are (n,) uint32, and `independent` is (n,) bool. `tag` is (n,
    2), the two 32-bit halves of the point id. The halves enter the key after the seed
    if streams are `independent`.
    """
    check_partitionable()
    tag = np.asarray(tag, np.uint32)
    high = np.zeros(len(tag), np.uint32)
    root = np.stack([high, np.asarray(root_seed, np.uint32)], -1)  # jax.random.key
    common = fold_on_host(root, np.asarray(seed, np.uint32))
    of_point = fold_on_host(fold_on_host(common, tag[:, 0]), tag[:, 1])
    run = np.where(np.asarray(independent)[:, None], of_point, common)
    return fold_on_host(run[:, None], np.arange(len(STREAMS), dtype=np.uint32)[None])


def streams(run: Array) -> Array:
    """Returns (10, 2) uint32: the key data of the named streams of a run. `run` (2,) is
    the key data of the run.

    Unlike `run_streams`, this function may be called in a compiled function.
    """
    check_partitionable()
    return fold(run, jnp.arange(len(STREAMS), dtype=jnp.uint32))


def check_partitionable() -> None:
    """Raises UsageError if JAX would draw numbers that depend on array sizes."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        why = (
            "Without it a draw would depend on array sizes. To set it, unset"
            " JAX_THREEFRY_PARTITIONABLE or update jax.config"
        )
        raise UsageError(f"jax_threefry_partitionable: got False; allowed: True. {why}")


def stream(streams: Numbers, name: str) -> Numbers:
    """Returns (..., 2) uint32: the key data of the named stream of a run."""
    return streams[..., STREAMS[name], :]


def further(stream: Array, r: Array | int) -> Array:
    """Returns (2,) uint32: the key data of the r-th additional stream that belongs to a
    stream.

    The addresses of these streams are larger than those of all rows and blocks, so no
    two keys coincide.
    """
    return fold(stream, jnp.uint32(2**31) + jnp.asarray(r, jnp.uint32))


POOL, POOL_COUNTS, PAIR_COUNTS, LABELS = range(4)
"""The numbers of a batch's additional streams. They contain the tokens of its pool, the
normals for Gaussian counts of tokens, the normals for Gaussian counts of pairs, and the
label noise. Test sequences use the second stream.
"""


def fold_on_host(key: np.ndarray, address: np.ndarray) -> np.ndarray:
    """Returns the same keys as `fold`, computed in NumPy."""
    words = threefry2x32(key[..., 0], key[..., 1], np.zeros_like(address), address)
    return np.stack(np.broadcast_arrays(*words), axis=-1)


def fold(key: Array, address: Array) -> Array:
    """Returns (..., 2) uint32: the output of `jax.random.fold_in` for every address
    (...,) uint32.

    The key data are (2,) or (..., 2).
    """
    words = threefry2x32(key[..., 0], key[..., 1], jnp.zeros_like(address), address)
    # without the barrier XLA derives the keys again inside everything that uses them
    return lax.optimization_barrier(jnp.stack(words, axis=-1))


def normals(key: Array, width: int) -> Array:
    """Returns (rows, width) float32 standard normals for the row keys (rows, 2).

    A number does not change if there are more rows or columns.
    """
    lane = jnp.arange(width, dtype=jnp.uint32)[None]
    x0, x1 = threefry2x32(key[:, :1], key[:, 1:], jnp.zeros_like(lane), lane)
    word = (x0 ^ x1) >> jnp.uint32(9) | jnp.uint32(0x3F800000)
    parts = lax.bitcast_convert_type(word, jnp.float32) - 1
    uniform = jnp.maximum(LOWEST, parts * (np.float32(1) - LOWEST) + LOWEST)
    return np.float32(np.sqrt(2)) * lax.erf_inv(uniform)


LOWEST = np.nextafter(np.float32(-1), np.float32(0))
"""The lower limit of the uniform numbers on (-1, 1) that are converted to normal
numbers.
"""


def rows(key: Array, count: int) -> Array:
    """Returns (count, 2) uint32: the key data of rows 0, 1, ... of a stream."""
    return fold(key, jnp.arange(count, dtype=jnp.uint32))


class Blocks(NamedTuple):
    """The addresses of blocks of 512 samples. All blocks belong to one stream, or each
    belongs to a stream of its own.
    """

    key: Array  # (2,) or (count, 2) uint32
    index: Array  # (count,) uint32


def blocks(key: Array, first: Array | int, count: int) -> Blocks:
    """Returns the blocks `first`, `first + 1`, ... of a stream."""
    return Blocks(key, jnp.uint32(first) + jnp.arange(count, dtype=jnp.uint32))


class Items(NamedTuple):
    """The addresses of single samples of a stream, in any order."""

    key: Array  # (2,) uint32
    index: Array  # (n,) uint32


Addresses = Blocks | Items


def words(blocks: Addresses, position: Array | int) -> Array:
    """Returns the random words of samples at each `position` below 2^24, uint32.

    The shape is (..., count * 512) for blocks, and (..., n) for single items. Single
    items cost twice as much per word.

    The counter of threefry-2x32 (Salmon et al., SC 2011) is (256 position + i, block)
    with i < 256, under the stream's key. Sample i of a block uses the first output
    word, and sample 256 + i the second.
    """
    # without the barrier XLA moves what does not depend on the position out of loops,
    # into a dozen small kernels
    at = jnp.asarray(position, jnp.uint32)
    key, index, at = lax.optimization_barrier((blocks.key, blocks.index, at))
    ones = (1,) * at.ndim
    half = jnp.uint32(BLOCK // 2)
    if isinstance(blocks, Items):
        index = index.reshape(*ones, -1)
        lane = at[..., None] * half + index % half
        block = jnp.broadcast_to(index // jnp.uint32(BLOCK), lane.shape)
        pair = threefry2x32(key[0], key[1], lane, block)
        return jnp.where(jnp.broadcast_to(index // half % 2 == 0, lane.shape), *pair)
    of_half = jnp.arange(BLOCK // 2, dtype=jnp.uint32).reshape(*ones, 1, -1)
    lane = at[..., None, None] * half + of_half
    k0, k1 = (
        jnp.broadcast_to(key[..., i], index.shape).reshape(*ones, -1, 1) for i in (0, 1)
    )
    pair = threefry2x32(k0, k1, lane, index.reshape(*ones, -1, 1))
    return jnp.stack(pair, axis=-2).reshape(*at.shape, -1)


def threefry2x32(
    k0: Numbers, k1: Numbers, x0: Numbers, x1: Numbers
) -> tuple[Numbers, Numbers]:
    """Returns the two output words of threefry-2x32 with 20 rounds.

    Arguments are uint32 arrays of NumPy or JAX, and broadcast.
    """
    if isinstance(x0, Array):
        return _traced_once(k0, k1, x0, x1)
    return _rounds(k0, k1, x0, x1)


def _rounds(
    k0: Numbers, k1: Numbers, x0: Numbers, x1: Numbers
) -> tuple[Numbers, Numbers]:
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


_traced_once = jax.jit(_rounds)
"""`_rounds` as a function that JAX traces only once. A program contains a dozen
ciphers, and tracing each of them would take a third of the program's tracing time.
"""


def below_many(word: Array, n: Array | int) -> Array:
    """Returns floor(word n / 2^32) as int32, for 1 <= n <= 2^31 - 1.

    The function is `below` for larger n. The relative bias of each value is at most n /
    2^32. The product is formed in 16-bit halves.
    """
    n = jnp.uint32(n)
    a1, a0 = word >> jnp.uint32(16), word & jnp.uint32(0xFFFF)
    b1, b0 = n >> jnp.uint32(16), n & jnp.uint32(0xFFFF)
    low, mid, other = a0 * b0, a1 * b0, a0 * b1
    carry = ((low >> 16) + (mid & 0xFFFF) + (other & 0xFFFF)) >> 16
    high = a1 * b1 + (mid >> 16) + (other >> 16) + carry
    return lax.convert_element_type(high, jnp.int32)


def below(word: Array, n: Array | int) -> Array:
    """Returns floor(word n / 2^32) as int32, for 1 <= n <= 65536: uniform on 0..n-1.

    The probability of each value is within 2^-32 of 1/n, a relative bias of at most n /
    2^32 < 1.6e-5. The product is formed in 16-bit halves, and no step of it overflows
    32 bits.
    """
    n = jnp.uint32(n)
    high, low = word >> jnp.uint32(16), word & jnp.uint32(0xFFFF)
    return lax.convert_element_type(
        (high * n + ((low * n) >> jnp.uint32(16))) >> jnp.uint32(16), jnp.int32
    )
