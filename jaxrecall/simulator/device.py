"""Starts JAX on the devices of this machine, and compiles programs for batches of runs.

Nothing here depends on what a run computes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.stages import Compiled, Lowered

from ..cli.program_cache import program_cache
from ..errors import OutOfMemory, UsageError, in_one_line
from ..model.keys import check_partitionable
from ..model.point import Run
from .stored_programs import (
    cache_of_jax,
    changing_cache,
    processor,
    set_cache_of_jax,
)

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
        of_jax = cache_of_jax()
        folder, remark = program_cache(of_jax)
        if folder != of_jax:
            set_cache_of_jax(folder)
    if folder and not of_jax:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    try:
        # detects a device that does not start, before there is anything to lose
        jax.local_devices()
    except Exception as error:  # the plugin of a device may raise any class
        why = "JAX has no plugin for it, or the plugin finds no device"
        if str(error):
            why = in_one_line(error)
        allowed = "unset, or a platform that starts here, such as cpu"
        raise UsageError(
            "JAX_PLATFORMS and JAX_PLATFORM_NAME: got"
            f" {jax.config.values['jax_platforms']!r} and"
            f" {jax.config.values['jax_platform_name']!r}, which does not start here"
            f" ({why}); allowed: {allowed}"
        ) from error
    if isinstance(jax.device_put(0), Tracer):
        raise UsageError(
            "jaxrecall: got a call inside jax.jit; allowed: outside of it, as runs are"
            " compiled by themselves"
        )
    return remark


def width_for(n_runs: int, most: int = LOOPED) -> int:
    """The number of vmapped runs per device of a program that computes `n_runs` runs:
    a power of two, or `most` if that is less.

    Every place of a vmapped program takes the time of a run, whether it is used or not.
    """
    share = -(-n_runs // jax.local_device_count())
    return min(most, 1 << (share - 1).bit_length())


def compile(lowered: Lowered, options: dict[str, Any]) -> Compiled:
    """Compiles a lowered program, or loads it from the folder of compiled programs.

    The names of functions and lines of code are removed first: a compiled program that
    lists them for each instruction takes a quarter longer to load. If compiling fails,
    it is repeated with the options that this version of XLA supports.
    """
    # this import takes 40 ms, and a process that compiles nothing needs none of it
    from jax.extend.mlir.passmanager import PassManager

    module: Any = lowered.compiler_ir()
    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
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
