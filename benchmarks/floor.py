"""The floor: what a run must at least do, at the rates that this machine reaches in
this process.

Each primitive is timed as a program would use it, in a jitted loop over chunks, at
several chunk sizes; the fastest counts. A rate is that of one call, as a run is one
call; that of one call a core at the same time is kept beside it.
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
    """Operations per second."""

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
    """What an attention-only run needs, by form.

    guarded: each token drawn once, its pair with the label counted once (step 1), a
    number looked up for that pair and one added to the token's sum (step 2). full: one
    pass over the rows for h in each step and one for the key sums of step 2; logits in
    steps 2 and 3 and what their softmax pushes on, two outer products; test sequences.
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
    """The sum of the counted terms, at the rates of one call and of one call a core."""
    return tuple(
        sum(n / rates[name][which] for name, n in count.items()) for which in (0, 1)
    )  # type: ignore[return-value]


def rates(point: Point, tiny: bool = False) -> dict[str, Rate]:
    """Rates of the primitives at the sizes V, d, L of a point; tiny tries one form of
    each.
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
    """`count` operations a call, the fastest of some calls."""

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
    """jaxrecall's own words, both outputs of the cipher used: a loop over positions in
    a loop over chunks of samples.
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
    """A loop over positions that adds one gathered row per sample."""
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
    """A number of a V x V table for each (label, token) pair."""
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
    """Counting (label, token) pairs: one int32 scatter-add a token into a table of
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
    """exp of an array, again and again."""
    loops = max(1, total // size)
    u = jax.random.normal(jax.random.key(2), (size,), jnp.float32)
    again = jax.jit(lambda u: lax.fori_loop(0, loops, lambda _, u: jnp.exp(-u), u))
    return lambda: again(u), loops * size


def matmul(n: int, k: int, m: int) -> tuple[Callable[[], Any], float]:
    """float32 at precision "highest": (n, k) by (k, m)."""
    a, b = (
        jax.random.normal(jax.random.key(i), shape, jnp.float32)
        for i, shape in enumerate([(n, k), (k, m)])
    )
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return lambda: multiply(a, b), 2 * n * k * m


def matmul_shapes(point: Point) -> list[tuple[int, int, int]]:
    """Logits of a chunk, their way back, and squares."""
    squares = [(size, size, size) for size in (1024, 2048, 4096)]
    return [
        (2048, point.d, point.V),
        (8192, point.d, point.V),
        (2048, point.V, point.d),
        (8192, point.V, point.d),
        *squares,
    ]


def tokens(point: Point, chunk: int) -> Array:
    """(L, chunk) int32"""
    return jax.random.randint(
        jax.random.key(3), (point.L, chunk), 0, point.V, jnp.int32
    )
