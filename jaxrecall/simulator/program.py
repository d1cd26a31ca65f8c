"""Compiles and runs the programs that simulate batches of runs in this package's
simulator.

One program runs every point that fits its shape. An accelerator computes the runs of a
batch together, by vmap. A CPU computes them one after the other. The runs of a batch
are distributed over all local devices.
"""

from __future__ import annotations

import functools
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Compiled, Lowered, Wrapped
from jaxtyping import PyTree

from ..cli.program_cache import program_cache
from ..errors import OutOfMemory, UsageError, in_one_line
from ..model.columns import CODE_VERSION, COLUMNS, DTYPE, Row, in_order
from ..model.keys import check_partitionable
from ..model.law_parameters import law_parameters
from ..model.point import Run
from .arguments import IDLE, Arguments, arguments
from .descent import descend
from .loops import RUNS, no_tokens, store_tokens
from .measurements import Raw, after_recipe
from .program_shape import Shape
from .recipe import recipe, untrained
from .rows import finish
from .sources.source import find_source
from .stored_programs import (
    changing_cache,
    load_or_compile,
    processor,
    set_cache_of_jax,
)
from .world import Trained, World, draw

LOOPED = 16
"""The number of runs per call on a CPU.

The program loops over the active runs only, so it can run batches of any smaller size.
"""

OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "YNNPACK operation failed")
"""Texts that occur in the messages of JAX's memory errors.

The second one is that of a matrix product on a CPU.
"""

MAX_PROGRAMS = 24
"""The number of compiled programs that a process keeps. It keeps the most recently used
ones.

On a CPU a program uses up to 1,300 memory maps. Linux allows a process 65,530 memory
maps, and LLVM aborts the process when none is left.
"""

LIGHT = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
"""The compiler options of XLA for light programs on a CPU.

Kernels are compiled directly from HLO instead of through MLIR, in two thirds of the
time. A sum is one kernel instead of a tree of two kernels. The tree is more accurate,
but only sums of millions of terms need this accuracy.
"""

QUICK = {"xla_backend_optimization_level": 0}
"""The further option for quick programs: LLVM does not optimise the machine code."""

UNDIVIDED = "cpu-parallel-task-assigner"
"""The pass of XLA that divides kernels between cores. Programs with small kernels leave
it out, because dividing them takes longer than it saves.
"""

NOT_WRITTEN = "Error writing persistent compilation cache entry"
"""The start of JAX's warning that it cannot write a file of a compiled program."""

MAX_GIVEN = 2**15
"""The largest size of an embedding table from the host for which a batch on a CPU
contains several runs. It is the number of entries, which occupy 128 KiB. Each run has
its own table.
"""


Tokens = jax.Array | None
"""An array for the tokens of a run, or None if the program stores none."""


class Executable(NamedTuple):
    """The compiled program of a shape, which computes raw metrics of runs."""

    shape: Shape
    run: Compiled
    """A function with two arguments: the arguments of the runs, and a mask of active
    runs.

    The leading axis of both has the length `batch`.
    """

    batch: int
    sharding: NamedSharding


def reserved_bytes(run: Compiled) -> int:
    """The number of bytes that the compiler reserves on each device for a call. 0 if
    unknown.
    """
    memory = run.memory_analysis()
    if not memory:
        return 0
    return (
        memory.temp_size_in_bytes
        + memory.argument_size_in_bytes
        + memory.output_size_in_bytes
    )


def on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def memory_of_device() -> int | None:
    """The number of bytes of memory that JAX can use on a local device. None if
    unknown.
    """
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit")


def start() -> str:
    """Starts JAX on the local devices.

    Compiled programs are stored in a folder, so that a second process compiles nothing.
    Returns a line that states why they are not, or an empty text; see `program_cache`.
    Raises UsageError for settings of JAX under which no run can succeed.
    """
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        raise UsageError(
            "JAX_DISABLE_JIT: got True (jax_disable_jit); allowed: False, as runs are"
            " compiled"
        )
    check_partitionable()
    with changing_cache:
        of_jax = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        folder, remark = program_cache(of_jax)
        if folder != of_jax:
            set_cache_of_jax(folder)
    if folder and not of_jax:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    try:
        # detects a device that does not start, before there is anything to lose
        jax.local_devices()
    except Exception as error:  # the plugin of a device may raise any class
        given = {}
        for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
            if value := jax.config.values[name.lower()]:
                given[name] = value
        values = " and ".join(given.values()) or "nothing"
        why = "JAX has no plugin for it, or the plugin finds no device"
        if str(error):
            why = in_one_line(error)
        allowed = "unset, or a platform that starts here, such as cpu"
        raise UsageError(
            f"{' and '.join(given) or 'JAX_PLATFORMS'}: got {values}, which does not"
            f" start here ({why}); allowed: {allowed}"
        ) from error
    if isinstance(jax.device_put(0), Tracer):
        raise UsageError(
            "jaxrecall: got a call inside jax.jit; allowed: outside of it, as runs are"
            " compiled by themselves"
        )
    return remark


def compiled(
    shape: Shape,
    per_device: int = LOOPED,
    precision: str = "highest",
    vmapped: bool | None = None,
) -> Executable:
    """Returns the program of a shape for up to `per_device` runs on each device. The
    program is compiled only once.

    By default, runs are vmapped on an accelerator but not on a CPU. `vmapped` overrides
    this default. If runs are not vmapped, a program with decoders or with large
    embedding tables as arguments computes one run per call. A larger batch would keep
    the tables of all its runs in memory. A vmapped program computes fewer runs per call
    if the compiler reserves more than half of the memory, because the next batch needs
    the same amount while it waits.
    """
    mesh = Mesh(np.array(jax.local_devices()), ("run",))
    if vmapped is None:
        vmapped = not on_cpu()
    if not vmapped:
        with_large_tables = shape.given_tables and shape.V * shape.d > MAX_GIVEN
        per_device = 1 if shape.decoders or with_large_tables else LOOPED
    with memory_errors():
        executable = _compiled(shape, per_device, precision, mesh, vmapped)
    if not vmapped or per_device == 1:
        return executable
    memory = memory_of_device()
    if memory and 2 * reserved_bytes(executable.run) > memory:
        return compiled(shape, per_device // 2, precision, vmapped)
    return executable


def width_for(n_runs: int, most: int = LOOPED) -> int:
    """The number of vmapped runs per device of a program that computes `n_runs` runs:
    a power of two, or `most` if that is less.

    Every place of a vmapped program takes the time of a run, whether it is used or not.
    """
    share = -(-n_runs // jax.local_device_count())
    return min(most, 1 << (share - 1).bit_length())


@functools.lru_cache(MAX_PROGRAMS)
def _compiled(
    shape: Shape,
    per_device: int,
    precision: str,
    mesh: Mesh,
    vmapped: bool,
) -> Executable:
    batched, shapes = batch_function(shape, per_device, mesh, vmapped)

    def new() -> Compiled:
        options = {} if vmapped else options_for(shape)
        return compile(batched.lower(*shapes), options)

    # a caller may have set another precision and another mesh
    with jax.default_matmul_precision(precision), jax.set_mesh(mesh):
        devices = [*mesh.devices.flat]
        run = load_or_compile((shape, per_device, vmapped), shapes, devices, new)
    sharding = NamedSharding(mesh, P("run"))
    return Executable(shape, run, per_device * mesh.size, sharding)


def options_for(shape: Shape) -> dict[str, Any]:
    """The compiler options of XLA for the program of a shape on a CPU."""
    options = dict[str, Any](LIGHT if shape.light else {})
    if shape.quick:
        options |= QUICK
    if shape.has_small_kernels:
        passes = options.get("xla_disable_hlo_passes")
        options["xla_disable_hlo_passes"] = (
            f"{passes},{UNDIVIDED}" if passes else UNDIVIDED
        )
    return options


def compile(lowered: Lowered, options: dict[str, Any]) -> Compiled:
    """Compiles a lowered program, or loads it from the folder of compiled programs.

    If compiling fails, it is repeated with the options that this version of XLA
    supports.
    """
    with warnings.catch_warnings():
        # the disk may be full
        warnings.filterwarnings("ignore", NOT_WRITTEN)
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:
            return lowered.compile(compiler_options=supported(options))


def supported(options: Mapping[str, Any]) -> dict[str, Any]:
    """The compiler options that this version of XLA supports."""
    return {
        name: value for name, value in options.items() if _is_supported(name, value)
    }


@functools.cache
def _is_supported(name: str, value: Any) -> bool:
    with suppress(jax.errors.JaxRuntimeError):
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
        return True
    return False


@contextmanager
def memory_errors() -> Iterator[None]:
    """Converts JAX's memory errors to OutOfMemory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfMemory(str(error)) from error
        raise


def batch_function(
    shape: Shape, per_device: int, mesh: Mesh, vmapped: bool
) -> tuple[Wrapped, tuple[PyTree, jax.ShapeDtypeStruct]]:
    """Returns the jitted function of a program, and the shapes of its arguments.

    The devices of `mesh` need not be on this machine. A CPU is fastest if it computes
    one run at a time, each with its own number of tiles. An accelerator needs vmapped
    runs.
    """
    if vmapped:
        one = functools.partial(
            simulate_run, shape=shape.vmapped(per_device), vmapped=True
        )
        many = lambda runs, active: jax.vmap(one, axis_name=RUNS)(runs)[0]  # noqa: E731
    else:
        # the function is used twice but traced once
        one = jax.jit(functools.partial(simulate_run, shape=shape), inline=True)

        def many(runs: Arguments, active: jax.Array) -> Raw:
            tokens = no_tokens(shape) if shape.stores_tokens else None
            return looped(one, tokens, runs, active)

    spread = jax.shard_map(
        many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False
    )
    batch = per_device * mesh.size
    sharding = NamedSharding(mesh, P("run"))

    def spread_shape(array: np.ndarray) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    idle = arguments([IDLE] * batch, shape), np.zeros(batch, bool)
    return jax.jit(spread), jax.tree.map(spread_shape, idle)


def looped(
    one: Callable[[Any, Any], tuple[Any, Any]],
    tokens: Any,
    runs: Any,
    active: jax.Array,
) -> Any:
    """Calls `one` for each of the active runs, one after the other.

    The active runs are the first ones. The results of the others are zeros. Each run
    stores its tokens in the same array, `tokens`, because a new array would have to be
    set to zero.
    """

    def body(i: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        out, tokens = carry
        run = jax.tree.map(
            lambda a: lax.dynamic_index_in_dim(a, i, keepdims=False), runs
        )
        raw, tokens = one(run, tokens)
        out = jax.tree.map(
            lambda all, this: lax.dynamic_update_index_in_dim(all, this, i, 0),
            out,
            raw,
        )
        return out, tokens

    def zeros(a: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros((len(active), *a.shape), a.dtype)

    first = jax.tree.map(lambda a: a[0], runs)
    raw, _ = jax.eval_shape(one, first, tokens)
    n_active = jnp.sum(active.astype(jnp.int32), dtype=jnp.int32)
    start = jax.tree.map(zeros, raw), tokens
    return lax.fori_loop(0, n_active, body, start)[0]


def simulate_run(
    run: Arguments, tokens: Tokens = None, *, shape: Shape, vmapped: bool = False
) -> tuple[Raw, Tokens]:
    """Returns the raw metrics of one run, from which `rows.finish` computes columns,
    and the array `tokens` after the run has stored its tokens there. JAX traces this
    function.
    """
    world = draw(run, shape, vmapped)
    if tokens is not None:
        stored = store_tokens(world, tokens)
        world, tokens = replace(world, stored_tokens=stored), stored.tokens
    return train_and_measure(world)[1], tokens


def train_and_measure(world: World) -> tuple[Trained, Raw]:
    """Returns the model before any further steps, and the raw metrics of the run."""
    world = find_source(world).prepare(world)
    model = untrained(world) if world.shape.start == "zero" else recipe(world)
    if not world.shape.optimizer:
        return model, after_recipe(world, model)
    trace = descend(world, model)
    return model, {"trace": trace, "errors": model.errors, "locked": model.locked}


def execute(
    program: Executable, runs: Sequence[Run]
) -> tuple[list[list[Row] | None], float]:
    """Returns the metric columns of up to `program.batch` runs, and the seconds that
    the runs took.

    The first result is a list with one item per run. The item is a list with a dict for
    each row, or None if the error bound of the form rejects the run. A rejected run
    must be repeated with `shape.fallback`. Raises OutOfMemory.
    """
    start = time.perf_counter()
    n_devices = program.sharding.num_devices
    used, batch, active = place(runs, IDLE, program.batch, n_devices)
    given = arguments(batch, program.shape), active
    with memory_errors():
        raw = jax.device_get(program.run(*jax.device_put(given, program.sharding)))
    rows_of_runs = []
    for slot, (point, _) in zip(used, runs, strict=True):
        of_run = jax.tree.map(lambda a, slot=slot: a[slot], raw)
        rows_of_runs.append(finish(of_run, point, program.shape.trained_by))
    return rows_of_runs, time.perf_counter() - start


def place(
    runs: Sequence[Run], idle: Run, size: int, n_devices: int
) -> tuple[list[int], list[Run], np.ndarray]:
    """Returns the indices at which runs are placed in a batch of this size, the batch,
    whose other places contain `idle`, and a mask (size,) of the runs.

    The runs are divided equally among the devices, and fill the first places of each
    device.
    """
    share, per_device = -(-len(runs) // n_devices), size // n_devices
    batch, active = [idle] * size, np.zeros(size, bool)
    used = [i // share * per_device + i % share for i in range(len(runs))]
    active[used] = True
    for slot, run in zip(used, runs, strict=True):
        batch[slot] = run
    return used, batch, active


def full_rows(
    run: Run,
    metrics: Sequence[Row],
    shape: Shape,
    precision: str,
    seconds: float | None,
) -> list[Row]:
    """Returns the complete rows of a run, with columns in table order.

    `seconds` is the time that the run took.
    """
    about = run.id._asdict() | run.point.values() | law_parameters(run.point)
    how = {
        "seconds": seconds,
        "code_version": CODE_VERSION,
        "dtype": DTYPE,
        "precision": precision,
        "bucket": str(shape),
    }
    how |= provenance()
    columns = COLUMNS | dict.fromkeys(column.name for column in shape.columns)
    return [in_order(about | of_row | how, columns) for of_row in metrics]


def provenance() -> dict[str, str | None]:
    """A dict of the columns that contain the version of JAX, the kind of device and the
    model of the processor.
    """
    model = re.search(r"model name\s*: (.+)", processor())
    return {
        "cpu_model": model and model[1],
        "jax_version": jax.__version__,
        "device_kind": jax.local_devices()[0].device_kind,
    }
