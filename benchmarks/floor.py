"""The floor: the least time of a run, at the rates that this machine reaches.

Rates are measured in this process. Each primitive is timed as a program would use it,
in a jitted loop over chunks. Of several chunk sizes, the fastest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrecall import Point
from jaxrecall.model import keys
from jaxrecall.simulator.arrays import gather as rows_of
from jaxrecall.simulator.loops import scatter_add

from .clock import timed

CHUNKS = (512, 1024, 2048, 4096, 16384, 65536)
BLOCK = 512
TRIES = 4


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
    that pair, one number is looked up and one is added to the token's sum (step 2). The
    fastest chunk size of a primitive counts; with `tiny`, there is only one.
    """
    chunks, total = (CHUNKS[:1], 2**18) if tiny else (CHUNKS, 2**23)
    bodies = {chunk: loops(point, chunk) for chunk in chunks}
    count = float(point.N * point.L)
    terms = []
    for name, term in UNITS.items():
        fastest = max(
            rate(point, chunk, total, *bodies[chunk][name]) for chunk in chunks
        )
        seconds = count / fastest
        terms.append(
            {"term": term, "count": count, "per second": fastest, "seconds": seconds}
        )
    return terms


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


def rate(point: Point, chunk: int, total: int, start: Array, body: Body) -> float:
    """Operations per second in a jitted loop over the positions of samples, in a loop
    over chunks of samples. The fastest of several tries counts.
    """
    shape, n = (point.L, chunk), max(1, total // (chunk * point.L))
    x = jax.random.randint(jax.random.key(3), shape, 0, point.V, jnp.int32)

    @jax.jit
    def loop(x: Array) -> Array:
        def one(c: Array, carry: Array) -> Array:
            return lax.fori_loop(0, point.L, body(c, x), carry)

        return lax.fori_loop(0, n, one, start)

    call = timed(lambda _: jax.block_until_ready(loop(x)))
    call(0)  # compiles
    return n * chunk * point.L / min(map(call, range(TRIES)))
