"""Compiles and runs the programs that simulate batches of runs in this package's
simulator.

One program runs every point that fits its shape. An accelerator computes the runs of a
batch together, by vmap. A CPU computes them one after the other. The runs of a batch
are distributed over all local devices.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Compiled, Wrapped

from ..model.columns import CODE_VERSION, DTYPE, Row
from ..model.law_parameters import law_parameters
from ..model.point import Run
from .arguments import IDLE, Arguments, arguments
from .descent import descend
from .device import (
    LOOPED,
    MAX_PROGRAMS,
    compile,
    looped,
    memory_errors,
    memory_of_device,
    on_cpu,
    place,
    provenance,
    reserved_bytes,
)
from .loops import RUNS, no_tokens, store_tokens
from .measurements import Raw, after_recipe
from .program_shape import Shape
from .recipe import recipe, untrained
from .rows import finish
from .sources.source import find_source
from .stored_programs import load_or_compile
from .world import Trained, World, draw

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

UNTUNED = {"xla_gpu_autotune_level": 0}
"""The compiler option of XLA for programs on a GPU whose runs take a moment.

XLA does not try several kernels for each product. On an H200, a program of small runs
then compiled in 10 instead of 33 s, and took a third more time.
"""

UNDIVIDED = "cpu-parallel-task-assigner"
"""The pass of XLA that divides kernels between cores. Programs with small kernels leave
it out, because dividing them takes longer than it saves.
"""

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
    n_devices: int


def compiled(
    shape: Shape,
    per_device: int = LOOPED,
    precision: str = "highest",
    vmapped: bool | None = None,
    tuned: bool = False,
) -> Executable:
    """Returns the program of a shape for up to `per_device` runs on each device. The
    program is compiled only once. On a GPU, its kernels are tuned only if `tuned`.

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
        executable = _compiled(shape, per_device, precision, mesh, vmapped, tuned)
    if not vmapped or per_device == 1:
        return executable
    memory = memory_of_device()
    if memory and 2 * reserved_bytes(executable.run) > memory:
        return compiled(shape, per_device // 2, precision, vmapped, tuned)
    return executable


@functools.lru_cache(MAX_PROGRAMS)
def _compiled(
    shape: Shape,
    per_device: int,
    precision: str,
    mesh: Mesh,
    vmapped: bool,
    tuned: bool,
) -> Executable:
    batched, idle = batch_function(shape, per_device, mesh, vmapped)
    devices = [*mesh.devices.flat]
    options = options_for(shape, devices[0].platform, tuned)

    def new() -> Compiled:
        return compile(batched.lower(*idle), options)

    # a caller may have set another precision and another mesh
    with jax.default_matmul_precision(precision), jax.set_mesh(mesh):
        run = load_or_compile((shape, per_device, vmapped, options), idle, devices, new)
    return Executable(shape, run, per_device * mesh.size, mesh.size)


def options_for(shape: Shape, platform: str, tuned: bool) -> dict[str, Any]:
    """The compiler options of XLA for the program of a shape on a platform of JAX."""
    if platform != "cpu":
        return UNTUNED if platform == "gpu" and not tuned else {}
    options = dict[str, Any](LIGHT if shape.light else {})
    if shape.quick:
        options |= QUICK
    if shape.has_small_kernels:
        passes = options.get("xla_disable_hlo_passes")
        options["xla_disable_hlo_passes"] = (
            f"{passes},{UNDIVIDED}" if passes else UNDIVIDED
        )
    return options


def batch_function(
    shape: Shape, per_device: int, mesh: Mesh, vmapped: bool
) -> tuple[Wrapped, tuple[Arguments, np.ndarray]]:
    """Returns the jitted function of a program, and arguments of idle runs.

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
    idle = arguments([IDLE] * batch, shape), np.zeros(batch, bool)
    return jax.jit(spread, in_shardings=NamedSharding(mesh, P("run"))), idle


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
    used, batch, active = place(runs, IDLE, program.batch, program.n_devices)
    with memory_errors():
        # `jax.device_put` takes several times as long as a call with NumPy's arrays
        raw = jax.device_get(program.run(arguments(batch, program.shape), active))
    rows_of_runs = []
    for slot, (point, _) in zip(used, runs, strict=True):
        of_run = jax.tree.map(lambda a, slot=slot: a[slot], raw)
        rows_of_runs.append(finish(of_run, point, program.shape.trained_by))
    return rows_of_runs, time.perf_counter() - start


def full_rows(
    run: Run,
    metrics: Sequence[Row],
    shape: Shape,
    precision: str,
    seconds: float | None,
) -> list[Row]:
    """Returns the complete rows of a run, whose columns are in any order.

    `seconds` is the time that the run took.
    """
    about = run.id._asdict() | run.point.values() | law_parameters(run.point)
    how = {
        "seconds": seconds,
        "code_version": CODE_VERSION,
        "dtype": DTYPE,
        "precision": precision,
        "bucket": str(shape),
        **provenance(),
    }
    return [about | of_row | how for of_row in metrics]
