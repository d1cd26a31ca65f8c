"""The floor: the least time of a run, at the rates that this machine reaches.

Rates are measured in this process. Each primitive is timed as a program would use it,
in a jitted loop over chunks. Of several chunk sizes, the fastest counts. The rate of
one call is used, because a run is one call. The rate of simultaneous calls on all cores
is recorded beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrecall import Point
from jaxrecall.model import keys
from jaxrecall.model.point import in_the_limit
from jaxrecall.simulator.arrays import gather as rows_of
from jaxrecall.simulator.loops import scatter_add

CHUNKS = (512, 1024, 2048, 4096, 16384, 65536)
BLOCK = 512
TRIES = 4


class Rate(NamedTuple):
    """Operations per second, of one call and of simultaneous calls on all cores."""

    one_call: float
    all_cores: float


class Work(NamedTuple):
    """A call of a primitive, and the number of its operations."""

    call: Callable[[], Any]
    operations: float


UNITS = {
    "flops": "matmul operations",
    "words": "random words",
    "rows": "rows of d floats gathered and added",
    "lookups": "scalars looked up among V^2",
    "scatters": "scalars scattered among V^2",
    "sums": "scalars scattered among V",
    "exps": "exponentials",
}


def counts(point: Point) -> dict[str, dict[str, float]]:
    """Form -> the number of operations of each kind that an attention-only run needs.

    In the guarded form, each token is drawn once, and its pair with the label is
    counted once (step 1). For that pair, one number is looked up and one is added to
    the token's sum (step 2).

    In the full form, each step has one pass over the rows for h, and step 2 has another
    for the key sums. Steps 2 and 3 compute logits and propagate their softmax back,
    with two outer products. The test sequences follow.
    """
    V, N, d, L, n = point.V, point.N, point.d, point.L, point.n_test
    return {
        "guarded": {"words": N * L, "lookups": N * L, "scatters": N * L, "sums": N * L},
        "full": {
            "flops": 8 * N * V * d + 4 * N * d * d + 2 * n * (V * d + d * d),
            "words": (N + n) * L,
            "rows": (4 * N + n) * L,
            "sums": N * L,
            "exps": 2 * N * V + (N + n) * L,
        },
    }


def of_pool(point: Point, tiny: bool) -> dict[str, float]:
    """Operations of a run with a pool -> their least seconds on all cores.

    The run has open attention and m = 0. Steps 1 to 3 need seven products of V x K by
    d. Test sequences need their mean values, answers and logits.
    """
    V, N, d, L, K, n = point.V, point.N, point.d, point.L, point.pool, point.n_test
    assert K
    drawn = [(N, V * K), (K * (L - 1), K * V), (n * (L - 1), n * V)]
    one_by_one = [draws for draws, cells in drawn if not in_the_limit(draws, cells)]
    gaussian = sum(cells for draws, cells in drawn if in_the_limit(draws, cells))
    least = {
        "words": sum(one_by_one) + 2 * n + (N if N in one_by_one else 0),
        "sums": sum(one_by_one),
        "normals": 2 * (V + 1) * d + gaussian,
        "exps": 2 * K * V + n * V,
        "flops": 2 * d * (7 * V * K + n * V + 2 * n * V + 4 * V * d),
    }
    rate = rates(point.replace(L=min(L, 64), pool=None, N=2), tiny)
    rate["normals"] = best(normals(rows, V) for rows in (128, 512, 2048))
    return {name: count / rate[name].all_cores for name, count in least.items()}


def seconds(count: dict[str, float], rates: dict[str, Rate]) -> float:
    """The total time of the counted terms, at the rates of one call."""
    return sum(n / rates[name].one_call for name, n in count.items())


def rates(point: Point, tiny: bool = False) -> dict[str, Rate]:
    """Measures the rates of the primitives at the sizes V, d, L of a point.

    With `tiny`, only one form of each primitive is measured.
    """
    total, few = (2**18, 1) if tiny else (2**23, None)
    V, d = point.V, point.d
    chunks = CHUNKS[:few]
    products = [(2048, d, V), (8192, d, V), (2048, V, d), (8192, V, d)]
    products += [(size, size, size) for size in (1024, 2048, 4096)]
    sizes = (2**14, 2**16, 2**18, 2**20)
    return {
        "words": best(words(point, chunk, 2 * total) for chunk in chunks),
        "rows": best(rows(point, chunk, total) for chunk in chunks),
        "lookups": best(lookups(point, chunk, total) for chunk in chunks),
        "scatters": best(scatters(point, chunk, total, V) for chunk in chunks),
        "sums": best(scatters(point, chunk, total, 1) for chunk in chunks),
        "exps": best(exponentials(size, 8 * total) for size in sizes[:few]),
        "flops": best(matmul(*shape) for shape in products[:few]),
    }


def best(works: Iterable[Work]) -> Rate:
    """Measures some forms of a primitive, and returns the fastest rates."""
    found = [rate(*work) for work in works]
    return Rate(max(r.one_call for r in found), max(r.all_cores for r in found))


def rate(call: Callable[[], Any], count: float) -> Rate:
    """Measures a call of `count` operations; the fastest of several calls counts."""
    cores = os.cpu_count() or 1

    def finish(_: int = 0) -> None:
        jax.block_until_ready(call())

    with ThreadPoolExecutor(cores) as threads:

        def side_by_side() -> None:
            list(threads.map(finish, range(cores)))

        finish()
        alone = count / fastest(finish)
        return Rate(alone, max(alone, cores * count / fastest(side_by_side)))


def fastest(call: Callable[[], None]) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(TRIES))


def over_positions(
    point: Point,
    chunk: int,
    total: int,
    start: Array,
    of_chunk: Callable[..., Callable[[Array, Array], Array]],
    *arrays: Array,
) -> Work:
    """A jitted loop over the positions of samples, in a loop over chunks of samples.

    `of_chunk` returns the body of the inner loop, from the number of the chunk and the
    arrays.
    """
    loops = max(1, total // (chunk * point.L))

    @jax.jit
    def call(*arrays: Array) -> Array:
        def one(c: Array, carry: Array) -> Array:
            return lax.fori_loop(0, point.L, of_chunk(c, *arrays), carry)

        return lax.fori_loop(0, loops, one, start)

    return Work(lambda: call(*arrays), loops * chunk * point.L)


def words(point: Point, chunk: int, total: int) -> Work:
    """Draws jaxrecall's own random words, with both outputs of the cipher used."""

    def of_chunk(c: Array, key: Array) -> Any:
        blocks = keys.blocks(key, c * (chunk // BLOCK), chunk // BLOCK)
        return lambda j, total: total ^ keys.words(blocks, j.astype(jnp.uint32))

    zeros, key = jnp.zeros(chunk, jnp.uint32), jax.random.key_data(jax.random.key(0))
    return over_positions(point, chunk, total, zeros, of_chunk, key)


def rows(point: Point, chunk: int, total: int) -> Work:
    """Adds one gathered row per sample in a loop over positions."""
    table = jax.random.normal(jax.random.key(1), (point.V, point.d), jnp.float32)
    zeros = jnp.zeros((chunk, point.d), jnp.float32)

    def of_chunk(c: Array, table: Array, x: Array) -> Any:
        return lambda j, h: h + rows_of(table, x[j])

    return over_positions(
        point, chunk, total, zeros, of_chunk, table, tokens(point, chunk)
    )


def lookups(point: Point, chunk: int, total: int) -> Work:
    """Looks up a number in a V x V table for each (label, token) pair."""
    table = jax.random.normal(jax.random.key(1), (point.V**2,), jnp.float32)
    zeros = jnp.zeros(chunk, jnp.float32)

    def of_chunk(c: Array, table: Array, x: Array) -> Any:
        row = (x[0] + c) % point.V * point.V  # other rows of the table in every chunk
        return lambda j, sums: sums + rows_of(table, row + x[j])

    return over_positions(
        point, chunk, total, zeros, of_chunk, table, tokens(point, chunk)
    )


def scatters(point: Point, chunk: int, total: int, rows: int) -> Work:
    """Counts (label, token) pairs: one int32 scatter-add per token into a table of
    `rows` x V.
    """
    zeros = jnp.zeros(rows * point.V, jnp.int32)

    def of_chunk(c: Array, x: Array) -> Any:
        row = (x[0] + c) % rows * point.V  # other rows of the table in every chunk
        return lambda j, C: scatter_add(C, row + x[j], jnp.int32(1))

    return over_positions(point, chunk, total, zeros, of_chunk, tokens(point, chunk))


def exponentials(size: int, total: int) -> Work:
    """Computes exp of an array repeatedly."""
    loops = max(1, total // size)
    u = jax.random.normal(jax.random.key(2), (size,), jnp.float32)
    again = jax.jit(lambda u: lax.fori_loop(0, loops, lambda _, u: jnp.exp(-u), u))
    return Work(lambda: again(u), loops * size)


def matmul(n: int, k: int, m: int) -> Work:
    """Multiplies float32 matrices at precision "highest": (n, k) by (k, m)."""
    a = jax.random.normal(jax.random.key(0), (n, k), jnp.float32)
    b = jax.random.normal(jax.random.key(1), (k, m), jnp.float32)
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return Work(lambda: multiply(a, b), 2 * n * k * m)


def normals(rows: int, width: int) -> Work:
    """Draws jaxrecall's own normal numbers in a loop, with a row per key."""
    loops = max(1, 2**21 // (rows * width))

    @jax.jit
    def draw(key: Array) -> Array:
        def again(i: Array, total: Array) -> Array:
            return total + keys.normals(keys.rows(keys.further(key, i), rows), width)

        return lax.fori_loop(1, loops, again, keys.normals(keys.rows(key, rows), width))

    key = jax.random.key_data(jax.random.key(0))
    return Work(lambda: draw(key), loops * rows * width)


def tokens(point: Point, chunk: int) -> Array:
    """Draws random tokens, (L, chunk) int32."""
    return jax.random.randint(
        jax.random.key(3), (point.L, chunk), 0, point.V, jnp.int32
    )
