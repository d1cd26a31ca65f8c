"""The floor: the least time of a run, at the rates that this machine reaches.

Rates are measured in this process. Each primitive is timed as a program would use it,
in a jitted loop over chunks. Of several chunk sizes, the fastest counts. For a run, the
rate of one call is used, because a run is one call; for many runs with a pool, that of
simultaneous calls on all cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrecall import Point
from jaxrecall.model import keys
from jaxrecall.model.point import in_the_limit
from jaxrecall.simulator.arrays import gather as rows_of
from jaxrecall.simulator.loops import scatter_add

from .clock import timed

CHUNKS = (512, 1024, 2048, 4096, 16384, 65536)
BLOCK = 512
TRIES = 4


class Primitive(NamedTuple):
    """A call, and the number of its operations."""

    call: Callable[[], Any]
    operations: float


UNITS = {
    "words": "random words",
    "lookups": "scalars looked up among V^2",
    "scatters": "scalars scattered among V^2",
    "sums": "scalars scattered among V",
}


def of_run(point: Point, tiny: bool) -> list[dict[str, Any]]:
    """The operations that an attention-only run needs in its guarded form, with their
    least seconds.

    Each token is drawn once, and its pair with the label is counted once (step 1). For
    that pair, one number is looked up and one is added to the token's sum (step 2).
    """
    count = float(point.N * point.L)
    needed = rates(point, tiny, 1, UNITS)
    return [
        {
            "term": UNITS[name],
            "count": count,
            "per second": rate,
            "seconds": count / rate,
        }
        for name, rate in needed.items()
    ]


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
        "flops": 2 * d * (7 * V * K + n * V + 2 * n * V + 4 * V * d),
    }
    without_pool = point.replace(L=min(L, 64), pool=None, N=2)
    measured = rates(without_pool, tiny, os.cpu_count() or 1, least)
    return {name: count / measured[name] for name, count in least.items()}


def rates(
    point: Point, tiny: bool, calls: int, names: Iterable[str]
) -> dict[str, float]:
    """Measures the rates of some primitives at the sizes V, d, L of a point, in
    simultaneous calls.

    The fastest form of a primitive counts; with `tiny`, it has only one.
    """
    total = 2**18 if tiny else 2**23
    V, d = point.V, point.d
    products = [(2048, d, V), (8192, d, V), (2048, V, d), (8192, V, d)]
    products += [(size, size, size) for size in (1024, 2048, 4096)]
    chunks = {chunk: loops(point, chunk) for chunk in CHUNKS}
    forms = {
        "normals": [partial(normals, rows, V) for rows in (128, 512, 2048)],
        "flops": [partial(product, *shape) for shape in products],
    }
    for name in chunks[CHUNKS[0]]:
        forms[name] = [
            partial(over_positions, point, chunk, total, *bodies[name])
            for chunk, bodies in chunks.items()
        ]
    few = 1 if tiny else None
    return {
        name: max(rate(form(), calls) for form in forms[name][:few]) for name in names
    }


def rate(primitive: Primitive, calls: int) -> float:
    """Measures operations per second; the fastest of several tries counts."""

    def finish(_: int) -> None:
        jax.block_until_ready(primitive.call())

    with ThreadPoolExecutor(calls) as threads:
        at_once = timed(lambda _: list(threads.map(finish, range(calls))))
        finish(0)
        return calls * primitive.operations / min(map(at_once, range(TRIES)))


Body = Callable[[Array, Array], Callable[[Array, Array], Array]]
"""A function from the number of a chunk and its tokens x (L, chunk) to the body of a
loop over positions.
"""


def loops(point: Point, chunk: int) -> dict[str, tuple[Array, Body]]:
    """Returns the loops over positions, with what each starts from."""
    V = point.V
    key, none = jax.random.key_data(jax.random.key(0)), jnp.zeros(chunk)
    pairs = jax.random.normal(jax.random.key(1), (V * V,), jnp.float32)

    def words(c: Array, x: Array) -> Any:
        """Draws jaxrecall's own random words, with both outputs of the cipher used."""
        blocks = keys.blocks(key, c * (chunk // BLOCK), chunk // BLOCK)
        return lambda j, drawn: drawn ^ keys.words(blocks, j.astype(jnp.uint32))

    def lookups(c: Array, x: Array) -> Any:
        """Looks up a number in a V x V table for each (label, token) pair."""
        row = (x[0] + c) % V * V  # other rows of the table in every chunk
        return lambda j, sums: sums + rows_of(pairs, row + x[j])

    def scatters(c: Array, x: Array) -> Any:
        """Counts (label, token) pairs: one int32 scatter-add per token into V x V."""
        row = (x[0] + c) % V * V
        return lambda j, C: scatter_add(C, row + x[j], jnp.int32(1))

    def sums(c: Array, x: Array) -> Any:
        """Counts tokens: one int32 scatter-add per token into V."""
        return lambda j, C: scatter_add(C, x[j], jnp.int32(1))

    return {
        "words": (none.astype(jnp.uint32), words),
        "lookups": (none, lookups),
        "scatters": (jnp.zeros(V * V, jnp.int32), scatters),
        "sums": (jnp.zeros(V, jnp.int32), sums),
    }


def over_positions(
    point: Point, chunk: int, total: int, start: Array, body: Body
) -> Primitive:
    """A jitted loop over the positions of samples, in a loop over chunks of samples."""
    shape, n = (point.L, chunk), max(1, total // (chunk * point.L))
    x = jax.random.randint(jax.random.key(3), shape, 0, point.V, jnp.int32)

    @jax.jit
    def call(x: Array) -> Array:
        def one(c: Array, carry: Array) -> Array:
            return lax.fori_loop(0, point.L, body(c, x), carry)

        return lax.fori_loop(0, n, one, start)

    return Primitive(lambda: call(x), n * chunk * point.L)


def product(n: int, k: int, m: int) -> Primitive:
    """Multiplies float32 matrices at precision "highest": (n, k) by (k, m)."""
    a = jax.random.normal(jax.random.key(0), (n, k), jnp.float32)
    b = jax.random.normal(jax.random.key(1), (k, m), jnp.float32)
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return Primitive(lambda: multiply(a, b), 2 * n * k * m)


def normals(n_rows: int, width: int) -> Primitive:
    """Draws jaxrecall's own normal numbers in a loop, with a row per key."""
    loops = max(1, 2**21 // (n_rows * width))

    @jax.jit
    def draw(key: Array) -> Array:
        def again(i: Array, total: Array) -> Array:
            return total + keys.normals(keys.rows(keys.further(key, i), n_rows), width)

        return lax.fori_loop(0, loops, again, jnp.zeros((n_rows, width)))

    key = jax.random.key_data(jax.random.key(0))
    return Primitive(lambda: draw(key), loops * n_rows * width)
