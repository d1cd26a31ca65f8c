"""Runs a user's simulator, which is a function of a point and a key.

The function is either compiled and vmapped, or called for one run after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled

from ..errors import OutOfMemory
from ..model.columns import Row
from ..model.point import Run
from .program import MAX_PROGRAMS, compile, memory_errors, reserved_bytes

DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}
"""The NumPy type of each kind of field. JAX makes the types 32-bit unless
jax_enable_x64 is on.
"""


class UserSimulator(Protocol):
    """A user's simulator: the function, the columns, and the traced fields with their
    types.
    """

    @property
    def fn(self) -> Callable[..., object]: ...
    @property
    def traced(self) -> Mapping[str, str]: ...
    @property
    def own_columns(self) -> Mapping[str, tuple[str, str]]: ...


def words_of(run: Run) -> tuple[int, int, int]:
    """Returns the three integers from which the key of a run is computed: the root
    seed, the seed, and a number of the point. The third integer is 0 if streams are
    common.
    """
    point, stream = run.point, 0
    if point.streams == "independent":
        stream = int(point.point_id[:8], 16)
    return point.root_seed, run.seed, stream


def run_key(words: jax.Array) -> jax.Array:
    """Returns the key of a run, computed from the three integers of `words_of`.

    If streams are common, the key equals that of this package's own runs with the same
    root seed and seed.
    """
    root, seed, stream = words
    common = jax.random.fold_in(jax.random.key(root, impl="threefry2x32"), seed)
    return jnp.where(stream == 0, common, jax.random.fold_in(common, stream))


@lru_cache(MAX_PROGRAMS)
def compiled(
    simulator: UserSimulator,
    static: tuple[tuple[str, object], ...],
    width: int,
    precision: str,
    limit: int,
    x64: bool,
) -> Callable[[Sequence[Run]], list[Row]]:
    """Returns a function that computes the columns of up to `width` runs. The function
    is compiled once per process.

    Args:
        simulator: the simulator of a user.
        static: the static fields of the runs, which are Python values in the program.
        width: the number of runs that are vmapped.
        precision: JAX's name for the precision of matrix products.
        limit: the largest number of bytes that the program may use.
        x64: whether jax_enable_x64 is on.

    Raises:
        OutOfMemory: if the program needs more than `limit` bytes.
    """

    def one(traced: dict[str, jax.Array], words: jax.Array) -> dict[str, jax.Array]:
        point = SimpleNamespace(**dict(static), **traced)
        found = _checked(simulator, simulator.fn(point, run_key(words)))
        for name, value in found.items():
            found[name] = jnp.asarray(jnp.nan if value is None else value)
        return found

    traced = {}
    for name, kind in simulator.traced.items():
        traced[name] = jax.ShapeDtypeStruct((width,), _dtype(kind))
    words = jax.ShapeDtypeStruct((width, 3), np.uint32)
    with jax.default_matmul_precision(precision), memory_errors():
        program = compile(jax.jit(jax.vmap(one)).lower(traced, words), light=False)
    need = reserved_bytes(program)
    if need > limit:
        raise OutOfMemory(
            f"{width} vmapped at a time need {need / 2**20:.3g} MiB of memory;"
            f" allowed: {limit / 2**20:.3g} MiB (limits.max_bytes)"
        )
    return partial(_together, simulator, program, width)


def _dtype(kind: str) -> np.dtype:
    return jax.dtypes.canonicalize_dtype(DTYPES[kind])


def _together(
    simulator: UserSimulator, program: Compiled, width: int, runs: Sequence[Run]
) -> list[Row]:
    """Returns the columns of the runs. If there are fewer than `width` runs, the last
    one is repeated as padding.
    """
    padded = [*runs, *[runs[-1]] * (width - len(runs))]
    traced = {}
    for name, kind in simulator.traced.items():
        values = [getattr(run.point, name) for run in padded]
        traced[name] = np.array(values, _dtype(kind))
    words = np.array(list(map(words_of, padded)), np.uint32)
    with memory_errors():
        found = jax.device_get(program(traced, words))
    rows = []
    for i in range(len(runs)):
        rows.append({name: of_runs[i] for name, of_runs in found.items()})
    return rows


def called(simulator: UserSimulator, precision: str, runs: Sequence[Run]) -> list[Row]:
    """Returns the columns of the runs, with one plain Python call of the function per
    run.
    """
    rows = []
    for run in runs:
        key = run_key(jnp.array(words_of(run), jnp.uint32))
        with jax.default_matmul_precision(precision):
            rows.append(_checked(simulator, simulator.fn(run.point, key)))
    return rows


def _checked(simulator: UserSimulator, found: object) -> Row:
    """Returns the columns that a user's function returned. Raises ValueError if they
    are not the declared columns.
    """
    got = type(found).__name__
    if isinstance(found, Mapping):
        if set(found) - {"step"} == set(simulator.own_columns):
            return dict(found)
        got = f"the columns {', '.join(map(str, found))}"
    allowed = ", ".join(simulator.own_columns)
    raise ValueError(
        f"the simulator returned {got}; allowed: a dict with the columns {allowed}"
    )
