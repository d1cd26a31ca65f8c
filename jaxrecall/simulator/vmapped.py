"""A function of a point and a key over several runs, vmapped or one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled

from ..errors import OutOfMemory
from ..model.columns import Row
from .program import (
    MAX_PROGRAMS,
    compile,
    memory_errors,
    provenance,
    reserved_bytes,
    start,
)

__all__ = ["called", "compiled", "provenance", "start"]

DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}
"""Of 32 bits unless jax_enable_x64 is on."""

Words = Sequence[tuple[int, int, int]]
"""Root seed, seed and stream of each run, below 2^32."""

Given = tuple[dict[str, np.ndarray], np.ndarray]
"""The traced fields and the words of runs, leading axis n."""


def run_key(words: jax.Array) -> jax.Array:
    """The key of a run from its three words.

    Where streams are common it is that of our own runs with this root seed and seed.
    """
    root, seed, stream = words
    common = jax.random.fold_in(jax.random.key(root, impl="threefry2x32"), seed)
    return jnp.where(stream == 0, common, jax.random.fold_in(common, stream))


def arguments(traced: Mapping[str, tuple[str, Sequence[float]]], words: Words) -> Given:
    """The traced fields of runs and their words as arrays, leading axis n.

    `traced` has the type and the values of each field.
    """
    types = {
        kind: jax.dtypes.canonicalize_dtype(dtype) for kind, dtype in DTYPES.items()
    }
    return {
        name: np.array(values, types[kind]) for name, (kind, values) in traced.items()
    }, np.array(words, np.uint32)


class Simulator(Protocol):
    """What is asked of a simulator of a user: its function, its traced fields with
    their types, and its columns.
    """

    fn: Callable[..., object]
    traced: dict[str, str]
    own_columns: dict[str, tuple[str, str]]


@functools.lru_cache(MAX_PROGRAMS)
def compiled(
    simulator: Simulator,
    static: tuple[tuple[str, object], ...],
    width: int,
    precision: str,
    limit: int,
    x64: bool,
) -> Callable[..., dict[str, np.ndarray]]:
    """The compiled function of a simulator for `width` runs, compiled once a process.

    Args:
        simulator: one of a user.
        static: the static fields, which are Python values in the program.
        width: how many runs are vmapped.
        precision: of matrix products, as JAX names it.
        limit: bytes that the program may take.
        x64: whether jax_enable_x64 is on.

    Returns:
        A function of what `arguments` returns for so many runs. It returns the columns
            by
        name, each (width,) or (width, steps).

    Raises:
        OutOfMemory: if it takes more.
    """
    given = arguments(
        {name: (kind, [0] * width) for name, kind in simulator.traced.items()},
        [(0, 0, 0)] * width,
    )

    def one(traced: dict[str, jax.Array], words: jax.Array) -> dict[str, jax.Array]:
        found = checked(
            simulator.fn(SimpleNamespace(**dict(static), **traced), run_key(words)),
            list(simulator.own_columns),
        )
        return {
            name: jnp.asarray(jnp.nan if value is None else value)
            for name, value in found.items()
        }

    with jax.default_matmul_precision(precision), memory_errors():
        program = compile(jax.jit(jax.vmap(one)).lower(*given), light=False)
    if (need := reserved_bytes(program)) > limit:
        needs, allowed = (f"{size / 2**20:.3g} MiB" for size in (need, limit))
        raise OutOfMemory(
            f"{width} vmapped at a time need {needs} of memory; allowed: {allowed}"
            " (limits.max_bytes)"
        )
    return functools.partial(_fetched, program)


def _fetched(program: Compiled, *given: Given) -> dict[str, np.ndarray]:
    with memory_errors():
        return jax.device_get(program(*given))


def called(
    fn: Callable[..., object],
    point: object,
    columns: Sequence[str],
    words: tuple[int, int, int],
    precision: str,
) -> Row:
    """The columns of one run, by a function that is plain Python."""
    with jax.default_matmul_precision(precision):
        return checked(fn(point, run_key(jnp.array(words, jnp.uint32))), columns)


def checked(found: object, columns: Sequence[str]) -> Row:
    """What a function returned, if it has the columns; raises ValueError."""
    if not isinstance(found, Mapping) or set(found) != set(columns):
        got = (
            f"the columns {', '.join(map(str, found))}"
            if isinstance(found, Mapping)
            else type(found).__name__
        )
        raise ValueError(
            f"the simulator returned {got}; allowed: a dict with the columns"
            f" {', '.join(columns)}"
        )
    return dict(found)
