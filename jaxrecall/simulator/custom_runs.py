"""Runs a user's simulator, which is a function of a point and a key.

A compiled function computes a batch of runs on all local devices. The runs are vmapped,
or the program loops over them. A function that is not compiled is called for one run
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ..errors import OutOfMemory
from ..model import keys
from ..model.columns import Row
from ..model.point import Run
from .device import (
    MAX_PROGRAMS,
    compile,
    looped,
    memory_errors,
    memory_of_device,
    on_cpu,
    place,
    reserved_bytes,
    width_for,
)

LARGE = 1024
"""The mean size of an operation's array from which a CPU loops over runs.

For smaller arrays, a vmapped program takes up to 2.8 times less time for a full batch.
For larger ones it takes 5 to 16 times as long for one run, and saves at most a sixth.
"""

REPEATS = 100
"""The number of repetitions that is assumed for a loop with an unknown number."""

CPU_WIDTH = 8
"""The number of runs per call and device on a CPU. Vmapped batches are filled up to
this number, so the numbers of a run do not depend on how many others there are.
"""

MAX_VMAPPED = 256
"""The largest number of runs that are vmapped on an accelerator by default."""

Columns = dict[str, Any]
"""A dict from columns to arrays, which JAX traces."""

Inputs = tuple[dict[str, Any], Any]
"""The traced fields of a run, and the data of its key; or those of a batch."""


def key_data(run: Run) -> np.ndarray:
    """Returns (1, 2) uint32: the data of the key of a run.

    If streams are common, the key equals that of this package's own runs with the same
    root seed and seed. Otherwise a number of the point also enters the key.
    """
    point = run.point
    common = _common_key(point.root_seed, run.seed)
    if point.streams == "common":
        return common
    return keys.fold_on_host(common, np.array([int(point.point_id[:8], 16)], np.uint32))


@lru_cache(2**12)
def _common_key(root_seed: int, seed: int) -> np.ndarray:
    root = np.array([[0, root_seed]], np.uint32)  # jax.random.key
    return keys.fold_on_host(root, np.array([seed], np.uint32))


def wrapped(data: Any) -> jax.Array:
    """Returns the key of a run, or the keys of a batch, from the data (..., 2)."""
    return jax.random.wrap_key_data(data, impl="threefry2x32")


_wrapped_fast = jax.jit(wrapped)  # for calls outside of compiled code


class Traced(NamedTuple):
    """The function of one run as JAX traced it, which happens only once."""

    one: Callable[[Inputs], Columns]
    has_effects: bool
    """Whether the function prints or calls back, which should happen once per run."""

    in_turn: bool
    """Whether a program loops over its runs, instead of vmapping them. The number of
    runs has no influence, so the numbers of a run do not change when others are added.
    """

    columns: Columns
    """The shapes and types of the columns, in the order of the function."""


@lru_cache(MAX_PROGRAMS)
def traced(simulator: Any, program: Any, precision: str, x64: bool) -> Traced:
    """Returns the function that computes the columns of a run from its traced fields
    and the data of its key.
    """

    names: list[str] = []

    def one(run: Inputs) -> Columns:
        values, data = run
        point = SimpleNamespace(**(values | dict(program.static)))
        columns = _checked(simulator, simulator.call(point, wrapped(data)))
        names[:] = columns
        for name, value in columns.items():
            columns[name] = jnp.asarray(jnp.nan if value is None else value)
        return columns

    jitted = jax.jit(one, inline=True)
    with jax.default_matmul_precision(precision):
        inputs = _inputs(simulator, [Run(program.point, 0)])
        trace = jitted.trace(jax.tree.map(lambda a: a[0], inputs))
    has_effects = bool(trace.jaxpr.effects)
    operations, entries = _work(trace.jaxpr)
    is_large = on_cpu() and entries >= LARGE * operations
    columns = {name: trace.out_info[name] for name in names}
    return Traced(jitted, has_effects, has_effects or is_large, columns)


def _inputs(simulator: Any, runs: Sequence[Run]) -> Inputs:
    """Returns the traced fields of a batch, and the data of its keys."""
    values = {}
    for name, kind in simulator.traced.items():
        of_runs = [getattr(run.point, name) for run in runs]
        # 32 bits unless jax_enable_x64 is on
        values[name] = np.array(of_runs, jax.dtypes.canonicalize_dtype(kind))
    return values, np.concatenate([*map(key_data, runs)])


def _work(jaxpr: Any) -> np.ndarray:
    """Returns the number of operations in a jaxpr, and the sum of the sizes of their
    largest arrays.

    Only a product counts its operands. An operation that reads a part of an array does
    not take longer if the array is large.
    """
    work = np.zeros(2)
    for equation in jaxpr.eqns:
        kind, parameters = equation.primitive.name, equation.params
        leaves = jax.tree.leaves(list(parameters.values()))
        called = [each for each in leaves if hasattr(each, "eqns")]
        repeats = REPEATS if kind == "while" else parameters.get("length", 1)
        work += repeats * sum(map(_work, called))
        if not called:
            arrays = equation.outvars
            if kind == "dot_general":
                arrays = arrays + equation.invars
            work += 1, max((each.aval.size for each in arrays), default=0)
    return work


def vmapped_width(n_runs: int, batch: int | None) -> int:
    """Returns the number of runs that each device vmaps.

    On an accelerator it is a power of two that fits `n_runs` runs, and at most `batch`.
    """
    if on_cpu():
        return CPU_WIDTH
    return width_for(n_runs, batch or MAX_VMAPPED)


@lru_cache(MAX_PROGRAMS)
def compile_simulator(
    simulator: Any,
    program: Any,
    width: int,
    precision: str,
    limit: int,
    x64: bool,
) -> tuple[Callable[[Sequence[Run]], list[Row]], int]:
    """Returns a function that computes the columns of runs, and the largest number of
    runs. The function is compiled once per process.

    Args:
        simulator: the simulator of a user.
        program: the `StaticProgram` of the runs, whose static fields are Python values.
        width: the number of runs that each device vmaps; 1 if the program loops.
        precision: JAX's name for the precision of matrix products.
        limit: the largest number of bytes that the program may use.
        x64: whether jax_enable_x64 is on.

    Raises:
        OutOfMemory: if the program needs more than `limit` bytes, or more than the
            memory of a device.
    """
    one, has_effects, in_turn, _ = traced(simulator, program, precision, x64)

    def many(runs: Inputs, active: jax.Array) -> Columns:
        if in_turn:
            return looped(lambda run, _: (one(run), None), None, runs, active)
        return jax.vmap(one)(runs)

    # JAX keeps the order of prints on one device only
    devices = jax.local_devices()[: 1 if has_effects else None]
    mesh = Mesh(np.array(devices), ("run",))
    most = mesh.size * (CPU_WIDTH if in_turn else width)
    if mesh.size > 1:
        many = jax.shard_map(
            many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False
        )
    on_devices = jax.jit(many, in_shardings=NamedSharding(mesh, P("run")))
    with jax.default_matmul_precision(precision), memory_errors():
        inputs = _inputs(simulator, [Run(program.point, 0)] * most)
        lowered = on_devices.lower(inputs, np.zeros(most, bool))
        executable = compile(lowered, {})
    need, allowed = reserved_bytes(executable), min(limit, memory_of_device() or limit)
    if need > allowed:
        raise OutOfMemory(
            f"{width} at a time need {need / 2**20:.3g} MiB of memory; allowed:"
            f" {allowed / 2**20:.3g} MiB (limits.max_bytes, or that of the device)"
        )

    def columns_of(runs: Sequence[Run]) -> list[Row]:
        # idle slots contain the last run
        used, batch, active = place(runs, runs[-1], most, mesh.size)
        with memory_errors():
            columns = jax.device_get(executable(_inputs(simulator, batch), active))
        return [{name: of_runs[i] for name, of_runs in columns.items()} for i in used]

    return columns_of, most


def call_plain(simulator: Any, precision: str, runs: Sequence[Run]) -> list[Row]:
    """Returns the columns of the runs, with one plain Python call of the function per
    run. If the simulator is batched, there is one call for all runs, whose static
    fields are equal.
    """
    with jax.default_matmul_precision(precision):
        if simulator.batched:
            return _called_together(simulator, runs)
        rows = []
        for run in runs:
            key = _wrapped_fast(key_data(run)[0])
            rows.append(_checked(simulator, simulator.call(run.point, key)))
        return rows


def _called_together(simulator: Any, runs: Sequence[Run]) -> list[Row]:
    fields = runs[0].point.as_given()
    for name in simulator.traced:
        fields[name] = np.array([getattr(run.point, name) for run in runs])
    of_runs = wrapped(np.concatenate([*map(key_data, runs)]))
    returned = _checked(simulator, simulator.call(SimpleNamespace(**fields), of_runs))
    shared = {"step": returned.pop("step")} if "step" in returned else {}
    columns = list(map(np.asarray, returned.values()))
    for name, column in zip(returned, columns, strict=True):
        if column.shape[:1] != (len(runs),):
            raise ValueError(
                f"the simulator returned {name} of shape {column.shape}; allowed:"
                f" arrays whose first axis has the length {len(runs)}, that of the keys"
            )
    rows = zip(*columns, strict=True)
    return [shared | dict(zip(returned, row, strict=True)) for row in rows]


def _checked(simulator: Any, returned: object) -> Row:
    """Returns the columns that a user's function returned. Raises ValueError if they
    are not the declared columns.
    """
    got = type(returned).__name__
    if isinstance(returned, Mapping):
        names = set(returned) - {"step"}
        if names == set(simulator.own_columns) or not simulator.has_columns:
            return dict(returned)
        got = f"the columns {', '.join(map(str, returned))}"
    allowed = ", ".join(simulator.own_columns)
    raise ValueError(
        f"the simulator returned {got}; allowed: a dict with the columns {allowed}"
    )
