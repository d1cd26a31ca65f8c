"""What compiled programs need of XLA: options, and errors of memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.stages import Compiled, Lowered

from ..errors import OutOfMemory

ExecutionError = jax.errors.JaxRuntimeError


OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "YNNPACK operation failed")  # the second is how matrix products say it on a CPU

MAX_PROGRAMS = 24
"""How many compiled programs a process keeps: those that it used last. On a CPU, a program takes up
to 1,300 memory maps. Linux allows a process 65,530, and LLVM aborts it when they run out."""

LIGHT = {"xla_cpu_use_fusion_emitters": False, "xla_disable_hlo_passes": "tree_reduction_rewriter"}
"""Options of XLA for light programs on a CPU. Kernels come straight from HLO, not by
way of MLIR, which compiles in two thirds of the time. A sum is one kernel instead of a
tree of two. The tree is more exact, which matters for sums of millions of terms alone."""


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns JAX's error into OutOfMemory where that is what it means."""
    try:
        yield
    except ExecutionError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfMemory(str(error)) from error
        raise


def compile(lowered: Lowered, light: bool) -> Compiled:
    """A lowered program compiled, with those of the options LIGHT that this version of XLA has."""
    options: dict[str, bool | str] = dict(LIGHT) if light else {}
    while True:
        try:
            return lowered.compile(compiler_options=options)
        except ExecutionError as error:
            lacking = [name for name in options if f"No such compile option: '{name}'" in str(error)]
            if not lacking:
                raise
            del options[lacking[0]]


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
