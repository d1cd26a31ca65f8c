"""Compiled programs: the only place with vmap over runs, and devices.

One program serves every point that fits its shape.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Compiled, Lowered, Wrapped
from jaxtyping import PyTree

from ..cli.command import cache_folder
from ..errors import OutOfMemory, UsageError, in_one_line
from ..model.columns import CODE_VERSION, COLUMNS, DTYPE, Row, in_order
from ..model.keys import check_partitionable
from ..model.law_parameters import law_parameters
from ..model.point import Run
from .loops import RUNS
from .record import Raw, finish
from .shape import Shape
from .training import run as train_and_measure
from .world import IDLE, Arguments, arguments, draw

LOOPED = 16
"""Runs a call on a CPU. They are looped over, as many
as there are, so that one program serves every batch.
"""

OUT_OF_MEMORY = (
    "RESOURCE_EXHAUSTED",
    "YNNPACK operation failed",
)  # the second is how matrix products say it on a CPU

MAX_PROGRAMS = 24
"""How many compiled programs a process keeps: those that it used last. On a CPU, a
program takes up to 1,300 memory maps. Linux allows a process 65,530, and LLVM aborts it
when they run out.
"""

LIGHT = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
"""Options of XLA for light programs on a CPU. Kernels come straight from HLO, not by
way of MLIR, which compiles in two thirds of the time. A sum is one kernel instead of a
tree of two. The tree is more exact, which matters for sums of millions of terms alone.
"""

MAX_GIVEN = 2**15
"""Numbers of a table, at most, of which a batch on a CPU takes one for each run: 128
KiB.
"""


class Program(NamedTuple):
    """A compiled program: `run` maps a batch of runs, some of them active, to raw
    metrics.

    The leading axis is `batch`.
    """

    shape: Shape
    run: Compiled
    batch: int
    sharding: NamedSharding


def reserved_bytes(executable: Compiled) -> int:
    """Memory on each device that the compiler reserves for a call; 0 where it does not
    say.
    """
    memory = executable.memory_analysis()
    return (
        memory.temp_size_in_bytes
        + memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        if memory
        else 0
    )


def on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def memory_of_device() -> int | None:
    """The bytes of memory that JAX has on a local device; None where it does not
    say.
    """
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def start() -> None:
    """Starts JAX on the local devices; compiled programs are kept in `cache_folder()`.

    So a second process compiles nothing.

    A folder that JAX already has (JAX_COMPILATION_CACHE_DIR) stays. Raises UsageError
    for settings of JAX under which no run can succeed.
    """
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        raise UsageError(
            "JAX_DISABLE_JIT: got True (jax_disable_jit); allowed: False, as runs are"
            " compiled"
        )
    check_partitionable()
    if (folder := cache_folder()) and not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    try:
        # a device that does not start is found out before there is anything to lose
        jax.local_devices()
    except Exception as error:  # of whatever class the plugin of a device raises
        given = jax.config.jax_platforms  # type: ignore[attr-defined]
        allowed = "unset, or a platform that starts here, such as cpu"
        raise UsageError(
            f"JAX_PLATFORMS: got {given}, which does not start here"
            f" ({in_one_line(error)}); allowed: {allowed}"
        ) from error
    if isinstance(jax.device_put(0), Tracer):
        raise UsageError(
            "jaxrecall: got a call inside jax.jit; allowed: outside of it, as runs are"
            " compiled by themselves"
        )


def compiled(
    shape: Shape, per_device: int = LOOPED, precision: str = "highest"
) -> Program:
    """The program of a shape for up to `per_device` runs on each device, compiled once.

    On a CPU a program with decoders, or with large tables for arguments, takes one run
    a call: batches would add the tables up. On an accelerator it takes fewer runs where
    the compiler reserves more than half of the memory, of which the batch that waits
    takes as much.
    """
    if on_cpu():
        large = shape.given_tables and shape.V * shape.d > MAX_GIVEN
        per_device = 1 if shape.decoders or large else LOOPED
    with memory_errors():
        program = _compiled(
            shape,
            per_device,
            precision,
            Mesh(np.array(jax.local_devices()), ("run",)),
        )
    memory = None if on_cpu() else memory_of_device()
    if per_device > 1 and memory and 2 * reserved_bytes(program.run) > memory:
        return compiled(shape, per_device // 2, precision)
    return program


@functools.lru_cache(MAX_PROGRAMS)
def _compiled(
    shape: Shape,
    per_device: int,
    precision: str,
    mesh: Mesh,
) -> Program:
    batched, shapes = unlowered(shape, per_device, mesh, vmapped=not on_cpu())
    with (
        jax.default_matmul_precision(precision),
        jax.set_mesh(mesh),
    ):  # a caller may have set another
        with without_garbage_collection():
            lowered = batched.lower(*shapes)
        run = compile(lowered, light=shape.light and on_cpu())
    return Program(shape, run, per_device * mesh.size, NamedSharding(mesh, P("run")))


def compile(lowered: Lowered, light: bool) -> Compiled:
    """A lowered program compiled, a light one with the options LIGHT if this version of
    XLA has them.
    """
    if light:
        with suppress(jax.errors.JaxRuntimeError):
            return lowered.compile(compiler_options=LIGHT)
    return lowered.compile()


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns JAX's error into OutOfMemory where that is what it means."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfMemory(str(error)) from error
        raise


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """For tracing, of which looking for cycles takes a fifth and finds none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def unlowered(
    shape: Shape, per_device: int, mesh: Mesh, vmapped: bool
) -> tuple[Wrapped, tuple[PyTree, jax.ShapeDtypeStruct]]:
    """The jitted function of a program and its arguments, for devices that need not be
    here.

    Of the arguments it has the shapes.

    A CPU is fastest on one run at a time, each with its own number of tiles; an
    accelerator needs them vmapped.
    """
    if vmapped:
        one = functools.partial(
            simulate_run, shape=shape.vmapped(per_device), vmapped=True
        )
        many = lambda runs, active: jax.vmap(one, axis_name=RUNS)(runs)  # noqa: E731
    else:
        one = jax.jit(
            functools.partial(simulate_run, shape=shape), inline=True
        )  # traced once, if used twice
        many = functools.partial(looped, one)
    spread = jax.shard_map(
        many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False
    )
    batch, sharding = per_device * mesh.size, NamedSharding(mesh, P("run"))
    idle = arguments([IDLE] * batch, shape), np.zeros(batch, bool)
    return jax.jit(spread), jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), idle
    )


def looped(one: Callable[[Arguments], Raw], runs: Arguments, active: jax.Array) -> Raw:
    """`one` for each of the runs, one after the other.

    The active ones come first, and zeros stand for the others.
    """

    def body(i: jax.Array, out: Raw) -> Raw:
        run = jax.tree.map(
            lambda a: lax.dynamic_index_in_dim(a, i, keepdims=False), runs
        )
        return jax.tree.map(
            lambda all, this: lax.dynamic_update_index_in_dim(all, this, i, 0),
            out,
            one(run),
        )

    first = jax.tree.map(lambda a: a[0], runs)
    out = jax.tree.map(
        lambda a: jnp.zeros((len(active), *a.shape), a.dtype),
        jax.eval_shape(one, first),
    )
    return lax.fori_loop(
        0, jnp.sum(active.astype(jnp.int32), dtype=jnp.int32), body, out
    )


def simulate_run(run: Arguments, shape: Shape, vmapped: bool = False) -> Raw:
    """The raw metrics of one run. Traced; `record.finish` makes columns of them."""
    return train_and_measure(draw(run, shape, vmapped))[1]


def execute(
    program: Program, runs: Sequence[Run]
) -> tuple[list[list[Row] | None], float]:
    """Metric columns of the rows of up to `program.batch` runs, in order, and the
    seconds taken.

    None stands for a run that the error bound of the form rejects: it is for
    `shape.fallback`. Raises OutOfMemory.
    """
    start = time.perf_counter()
    n_devices = program.sharding.num_devices
    share, per_device = -(-len(runs) // n_devices), program.batch // n_devices
    slots = [i // share * per_device + i % share for i in range(len(runs))]
    batch: list[Run] = [IDLE] * program.batch
    active = np.zeros(program.batch, bool)
    for slot, run in zip(slots, runs, strict=True):
        batch[slot], active[slot] = run, True
    with memory_errors():
        raw = jax.device_get(
            program.run(
                *jax.device_put(
                    (arguments(batch, program.shape), active), program.sharding
                )
            )
        )
    form = program.shape.trained_by
    found = [
        finish(jax.tree.map(lambda a, slot=slot: a[slot], raw), point, form)
        for slot, (point, _) in zip(slots, runs, strict=True)
    ]
    return found, time.perf_counter() - start


def rows(
    run: Run,
    metrics: Sequence[Row],
    shape: Shape,
    precision: str,
    seconds: float | None,
) -> list[Row]:
    """The whole rows of a run, columns in table order; each has the seconds of the
    run.
    """
    fields = run.point.values() | law_parameters(run.point)
    how = {
        "seconds": seconds,
        "code_version": CODE_VERSION,
        "dtype": DTYPE,
        "precision": precision,
        "bucket": str(shape),
    }
    columns = COLUMNS | dict.fromkeys(column.name for column in shape.columns)
    return [
        in_order(
            {**run.id._asdict(), **fields, **of_row, **how, **provenance()}, columns
        )
        for of_row in metrics
    ]


def provenance() -> dict[str, str]:
    """The version of JAX and the device, as columns."""
    return {
        "jax_version": jax.__version__,
        "device_kind": jax.local_devices()[0].device_kind,
    }
