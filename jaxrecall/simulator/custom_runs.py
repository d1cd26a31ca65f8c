"""Runs a user's simulator, which is a function of a point and a key.

A compiled function computes a batch of runs on all local devices. The runs are vmapped,
or the program loops over them. A function that is not compiled is called for one run
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Wrapped

from ..errors import OutOfMemory
from ..model.columns import Row
from ..model.point import Run
from .program import (
    MAX_PROGRAMS,
    compile,
    looped,
    memory_errors,
    memory_of_device,
    on_cpu,
    reserved_bytes,
    slots,
)

DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}
"""The NumPy type of each kind of field. JAX makes the types 32-bit unless
jax_enable_x64 is on.
"""

LARGE = 1024
"""The mean size of an operation's array from which a CPU loops over runs.

For smaller arrays, a vmapped program takes up to 2.8 times less time for a full batch.
For larger ones it takes up to 8 times as long for one run, and saves at most a sixth.
"""

REPEATS = 100
"""The number of repetitions that is assumed for a loop with an unknown number."""

CPU_WIDTH = 8
"""The number of runs per call and device on a CPU. Vmapped batches are filled up to
this number, so the numbers of a run do not depend on how many others there are.
"""

MAX_VMAPPED = 256
"""The largest number of runs that are vmapped on an accelerator by default."""

Static = tuple[tuple[str, object], ...]
"""The static fields of runs, which are Python values in a program."""


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
def _one(simulator: UserSimulator, static: Static) -> Wrapped:
    """Returns the traced function of one run, which computes its columns from the
    traced fields and the integers of `words_of`.
    """

    def one(run: tuple[dict[str, jax.Array], jax.Array]) -> dict[str, jax.Array]:
        traced, words = run
        point = SimpleNamespace(**dict(static), **traced)
        found = _checked(simulator, simulator.fn(point, run_key(words)))
        for name, value in found.items():
            found[name] = jnp.asarray(jnp.nan if value is None else value)
        return found

    return jax.jit(one, inline=True)


def _arguments(
    simulator: UserSimulator, sharding: NamedSharding | None, *batch: int
) -> Any:
    """Returns the shapes of the arguments of a batch; those of one run by default."""

    def shape(dtype: Any, *of_run: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*batch, *of_run), dtype, sharding=sharding)

    traced = {name: shape(_dtype(kind)) for name, kind in simulator.traced.items()}
    return traced, shape(np.uint32, 3)


def _jaxpr(simulator: UserSimulator, static: Static, precision: str) -> Any:
    """Returns what JAX traces of the function of one run, which is traced only once."""
    with jax.default_matmul_precision(precision):
        return _one(simulator, static).trace(_arguments(simulator, None)).jaxpr


def _is_looped(jaxpr: Any) -> bool:
    """Whether a program loops over its runs, instead of vmapping them.

    It does if the function prints or calls back, which should happen once per run. On a
    CPU it also does if the arrays are large. The number of runs has no influence, so
    the numbers of a run do not change when others are added.
    """
    if jaxpr.effects:
        return True
    operations, entries = _work(jaxpr)
    return on_cpu() and entries >= LARGE * operations


def _work(jaxpr: Any) -> tuple[int, int]:
    """Returns the number of operations in a jaxpr, and the sum of the sizes of their
    largest arrays.

    Only a product counts its operands. An operation that reads a part of an array does
    not take longer if the array is large.
    """
    operations, entries = 0, 0
    for equation in jaxpr.eqns:
        parameters = jax.tree.leaves(list(equation.params.values()))
        called = [each for each in parameters if hasattr(each, "eqns")]
        repeats = equation.params.get("length", 1)
        if equation.primitive.name == "while":
            repeats = REPEATS
        for inner in called:
            of_inner = _work(inner)
            operations += repeats * of_inner[0]
            entries += repeats * of_inner[1]
        if called:
            continue
        arrays = list(equation.outvars)
        if equation.primitive.name == "dot_general":
            arrays += equation.invars
        operations += 1
        entries += max((np.prod(each.aval.shape) for each in arrays), default=0)
    return operations, entries


def width_for(
    simulator: UserSimulator,
    static: Static,
    precision: str,
    n_runs: int,
    batch: int | None,
) -> int:
    """Returns the number of runs that share the memory of each device.

    On an accelerator it is a power of two that fits `n_runs` runs, and at most `batch`.
    """
    if _is_looped(_jaxpr(simulator, static, precision)):
        return 1
    if on_cpu():
        return CPU_WIDTH
    share = -(-n_runs // jax.local_device_count())
    return min(1 << (share - 1).bit_length(), batch or MAX_VMAPPED)


class Batches(NamedTuple):
    """A compiled simulator, which computes up to `most` runs at a time."""

    columns_of: Callable[[Sequence[Run]], list[Row]]
    most: int


@lru_cache(MAX_PROGRAMS)
def compiled(
    simulator: UserSimulator,
    static: Static,
    width: int,
    precision: str,
    limit: int,
    x64: bool,
) -> Batches:
    """Returns the program of a simulator. It is compiled once per process.

    Args:
        simulator: the simulator of a user.
        static: the static fields of the runs, which are Python values in the program.
        width: the number of runs that share the memory of a device; see `width_for`.
        precision: JAX's name for the precision of matrix products.
        limit: the largest number of bytes that the program may use.
        x64: whether jax_enable_x64 is on.

    Raises:
        OutOfMemory: if the program needs more than `limit` bytes, or more than the
            memory of a device.
    """
    one = _one(simulator, static)

    def many(runs: Any, active: jax.Array) -> dict[str, jax.Array]:
        if in_turn:
            return looped(one, runs, active)
        return jax.vmap(one)(runs)

    jaxpr = _jaxpr(simulator, static, precision)
    in_turn = _is_looped(jaxpr)
    devices = jax.local_devices()
    if jaxpr.effects:
        devices = devices[:1]  # JAX keeps the order of prints on one device only
    mesh = Mesh(np.array(devices), ("run",))
    sharding = NamedSharding(mesh, P("run"))
    most = (CPU_WIDTH if in_turn else width) * mesh.size
    runs = _arguments(simulator, sharding, most)
    active = jax.ShapeDtypeStruct((most,), bool, sharding=sharding)
    if mesh.size > 1:
        many = jax.shard_map(
            many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False
        )
    with jax.default_matmul_precision(precision), memory_errors():
        program = compile(jax.jit(many).lower(runs, active), light=False)
    _check_memory(reserved_bytes(program), limit, width)
    return Batches(partial(_together, simulator, program, sharding, most), most)


def _check_memory(need: int, limit: int, width: int) -> None:
    """Raises OutOfMemory if a device needs more than `limit` bytes or than it has."""
    allowed, source = limit, "limits.max_bytes"
    memory = memory_of_device()
    if memory and memory < limit:
        allowed, source = memory, "the memory of the device"
    if need > allowed:
        needs = f"{width} vmapped at a time need" if width > 1 else "one run needs"
        raise OutOfMemory(
            f"{needs} {need / 2**20:.3g} MiB of memory; allowed:"
            f" {allowed / 2**20:.3g} MiB ({source})"
        )


def _dtype(kind: str) -> np.dtype:
    return jax.dtypes.canonicalize_dtype(DTYPES[kind])


def _together(
    simulator: UserSimulator,
    program: Callable[..., dict[str, jax.Array]],
    sharding: NamedSharding,
    most: int,
    runs: Sequence[Run],
) -> list[Row]:
    """Returns the columns of the runs. Idle slots contain the last run."""
    used = slots(len(runs), most, sharding.num_devices)
    batch = [runs[-1]] * most
    for slot, run in zip(used, runs, strict=True):
        batch[slot] = run
    active = np.zeros(most, bool)
    active[used] = True
    traced = {}
    for name, kind in simulator.traced.items():
        values = [getattr(run.point, name) for run in batch]
        traced[name] = np.array(values, _dtype(kind))
    words = np.array(list(map(words_of, batch)), np.uint32)
    with memory_errors():
        found = jax.device_get(program((traced, words), active))
    return [{name: of_runs[i] for name, of_runs in found.items()} for i in used]


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
