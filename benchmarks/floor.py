"""The floor: the least time of a run, at the rates that this machine reaches.

Rates are measured in this process. Each primitive is timed as a program would use it,
in a jitted loop over chunks. Of several chunk sizes, the fastest counts. The rate of
one call is used, because a run is one call. The rate of simultaneous calls on all cores
is recorded beside it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrecall import Point
from jaxrecall.model import keys
from jaxrecall.simulator.arrays import gather as rows_of
from jaxrecall.simulator.loops import scatter_add

CHUNKS = (512, 1024, 2048, 4096, 16384, 65536)
BLOCK = 512
TRIES = 4


class Rate(NamedTuple):
    """Operations per second, of one call and of simultaneous calls on all cores."""

    one_call: float
    all_cores: float


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


def seconds(count: dict[str, float], rates: dict[str, Rate]) -> tuple[float, float]:
    """The total time of the counted terms, at each of the two rates."""
    return tuple(
        sum(n / rates[name][which] for name, n in count.items()) for which in (0, 1)
    )  # type: ignore[return-value]


def rates(point: Point, tiny: bool = False) -> dict[str, Rate]:
    """Measures the rates of the primitives at the sizes V, d, L of a point.

    With `tiny`, only one form of each primitive is measured.
    """
    total, few = (2**18, 1) if tiny else (2**23, None)
    forms: dict[str, Iterator[tuple[Callable[[], Any], float]]] = {
        "words": (words(point, chunk, 2 * total) for chunk in CHUNKS[:few]),
        "rows": (rows(point, chunk, total) for chunk in CHUNKS[:few]),
        "lookups": (lookups(point, chunk, total) for chunk in CHUNKS[:few]),
        "scatters": (scatters(point, chunk, total, point.V) for chunk in CHUNKS[:few]),
        "sums": (scatters(point, chunk, total, 1) for chunk in CHUNKS[:few]),
        "exps": (
            exponentials(size, 8 * total) for size in (2**14, 2**16, 2**18, 2**20)[:few]
        ),
        "flops": (matmul(*shape) for shape in matmul_shapes(point)[:few]),
    }
    return {
        name: best([rate(call, count) for call, count in some])
        for name, some in forms.items()
    }


def best(found: list[Rate]) -> Rate:
    return Rate(max(r.one_call for r in found), max(r.all_cores for r in found))


def rate(call: Callable[[], Any], count: float) -> Rate:
    """Measures a call of `count` operations; the fastest of several calls counts."""

    def finish() -> None:
        jax.block_until_ready(call())

    def side_by_side() -> None:
        threads = [threading.Thread(target=finish) for _ in range(os.cpu_count() or 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    finish()
    alone = count / fastest(finish)
    return Rate(
        alone, max(alone, (os.cpu_count() or 1) * count / fastest(side_by_side))
    )


def fastest(call: Callable[[], None]) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(TRIES))


def words(point: Point, chunk: int, total: int) -> tuple[Callable[[], Any], float]:
    """Draws jaxrecall's own random words, with both outputs of the cipher used.

    The loop over positions is inside a loop over chunks of samples.
    """
    loops = max(1, total // (chunk * point.L))

    @jax.jit
    def draw(key: Array) -> Array:
        def of_chunk(c: Array, total: Array) -> Array:
            blocks = keys.blocks(key, c * (chunk // BLOCK), chunk // BLOCK)
            return lax.fori_loop(
                0,
                point.L,
                lambda j, total: total ^ keys.words(blocks, j.astype(jnp.uint32)),
                total,
            )

        return lax.fori_loop(0, loops, of_chunk, jnp.zeros(chunk, jnp.uint32))

    key = jax.random.key_data(jax.random.key(0))
    return lambda: draw(key), loops * chunk * point.L


def rows(point: Point, chunk: int, total: int) -> tuple[Callable[[], Any], float]:
    """Adds one gathered row per sample in a loop over positions."""
    loops = max(1, total // (chunk * point.L))
    table = jax.random.normal(jax.random.key(1), (point.V, point.d), jnp.float32)
    x = tokens(point, chunk)

    @jax.jit
    def gather(table: Array, x: Array) -> Array:
        def of_chunk(_: Array, h: Array) -> Array:
            return lax.fori_loop(0, point.L, lambda j, h: h + rows_of(table, x[j]), h)

        return lax.fori_loop(
            0, loops, of_chunk, jnp.zeros((chunk, point.d), jnp.float32)
        )

    return lambda: gather(table, x), loops * chunk * point.L


def lookups(point: Point, chunk: int, total: int) -> tuple[Callable[[], Any], float]:
    """Looks up a number in a V x V table for each (label, token) pair."""
    loops = max(1, total // (chunk * point.L))
    table = jax.random.normal(jax.random.key(1), (point.V**2,), jnp.float32)
    x = tokens(point, chunk)

    @jax.jit
    def look_up(table: Array, x: Array) -> Array:
        def of_chunk(c: Array, sums: Array) -> Array:
            # other rows of the table in every chunk
            row = (x[0] + c) % point.V * point.V
            return lax.fori_loop(
                0, point.L, lambda j, s: s + rows_of(table, row + x[j]), sums
            )

        return lax.fori_loop(0, loops, of_chunk, jnp.zeros(chunk, jnp.float32))

    return lambda: look_up(table, x), loops * chunk * point.L


def scatters(
    point: Point, chunk: int, total: int, rows: int
) -> tuple[Callable[[], Any], float]:
    """Counts (label, token) pairs: one int32 scatter-add per token into a table of
    `rows` x V.
    """
    loops = max(1, total // (chunk * point.L))
    x = tokens(point, chunk)

    @jax.jit
    def count(x: Array) -> Array:
        def of_chunk(c: Array, C: Array) -> Array:
            row = (x[0] + c) % rows * point.V  # other rows of the table in every chunk
            return lax.fori_loop(
                0, point.L, lambda j, C: scatter_add(C, row + x[j], jnp.int32(1)), C
            )

        return lax.fori_loop(0, loops, of_chunk, jnp.zeros(rows * point.V, jnp.int32))

    return lambda: count(x), loops * chunk * point.L


def exponentials(size: int, total: int) -> tuple[Callable[[], Any], float]:
    """Computes exp of an array repeatedly."""
    loops = max(1, total // size)
    u = jax.random.normal(jax.random.key(2), (size,), jnp.float32)
    again = jax.jit(lambda u: lax.fori_loop(0, loops, lambda _, u: jnp.exp(-u), u))
    return lambda: again(u), loops * size


def matmul(n: int, k: int, m: int) -> tuple[Callable[[], Any], float]:
    """Multiplies float32 matrices at precision "highest": (n, k) by (k, m)."""
    a, b = (
        jax.random.normal(jax.random.key(i), shape, jnp.float32)
        for i, shape in enumerate([(n, k), (k, m)])
    )
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return lambda: multiply(a, b), 2 * n * k * m


def matmul_shapes(point: Point) -> list[tuple[int, int, int]]:
    """Shapes of the products for logits of a chunk, for their gradients, and of
    squares.
    """
    squares = [(size, size, size) for size in (1024, 2048, 4096)]
    return [
        (2048, point.d, point.V),
        (8192, point.d, point.V),
        (2048, point.V, point.d),
        (8192, point.V, point.d),
        *squares,
    ]


def tokens(point: Point, chunk: int) -> Array:
    """Draws random tokens, (L, chunk) int32."""
    return jax.random.randint(
        jax.random.key(3), (point.L, chunk), 0, point.V, jnp.int32
    )
