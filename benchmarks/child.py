"""Tasks that run in fresh processes.

`python -m benchmarks.child TASK JSON` prints one JSON object. Timing starts after the
imports.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from statistics import mean
from typing import Any

from jaxrecall import Point

from . import clock
from .work import FULL, TINY

SLOW_COMPILE_SECONDS = 0.3
"""The compile time in seconds that separates programs of the simulator from helpers.

A program takes seconds to compile, and a helper hundredths of a second. The compile
cache uses the same limit.
"""


def cold_jaxrecall(
    tiny: bool, threshold: float = SLOW_COMPILE_SECONDS
) -> dict[str, Any]:
    """Runs S1 with `jaxrecall.sweep`.

    Returns the seconds to the last row, and the programs that were compiled and not
    found in the cache.
    """
    import jaxrecall

    import_all()
    programs = compiled_programs(threshold)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "S1"
        seconds, whole = clock.sweep((TINY if tiny else FULL).S1.grid(), out)
        rows: Any = jaxrecall.load(out)
    return {
        "seconds": seconds,
        "whole": whole,
        "rows": len(rows),
        "accuracy": float(rows["accuracy"].mean()),
        "programs": programs,
    }


def import_all() -> None:
    """Imports all that a sweep may need, as its command does.

    The time of imports is thus not measured.
    """
    import jaxrecall
    from jaxrecall.cli.process import collect_rarely

    collect_rarely()
    ours = [module.name for module in walk_packages(jaxrecall.__path__, "jaxrecall.")]
    # Ray and Slurm are not used
    needed = [
        name for name in ours if not name.endswith((".__main__", ".slurm", ".ray"))
    ]
    for name in ("matplotlib.pyplot", "pyarrow.parquet", *needed):
        import_module(name)


def estimated(grid: str, arguments: list[str]) -> dict[str, Any]:
    """Returns the estimate of a dry run for a grid, and the measured time of its sweep.

    Both are in seconds; the measured time ends at the last row.
    """
    import_all()
    from jaxrecall.sweep.grid import read_grid
    from jaxrecall.sweep.running.job import prepare
    from jaxrecall.sweep.store.load import load

    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "grid.yaml", Path(folder) / "out"
        file.write_text(grid)
        job = prepare(read_grid(file), out)
        estimate = job.search.likely_seconds() if job.search else job.plan.seconds
        seconds, _ = clock.sweep(grid, out, *arguments)
        return {"estimate": estimate, "seconds": seconds, "rows": len(load(out))}


def compiled_programs(threshold: float) -> list[str]:
    """Returns a list that grows with each compiled program.

    It contains the names of programs that take at least `threshold` seconds to compile.
    """
    import jax

    names: list[str] = []
    here = threading.local()

    def happened(event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            here.hit = True

    def lasted(event: str, duration_secs: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            if duration_secs >= threshold and not getattr(here, "hit", False):
                names.append(str(about.get("fun_name", "?")))
            here.hit = False

    jax.monitoring.register_event_listener(happened)
    jax.monitoring.register_event_duration_secs_listener(lasted)
    return names


def compiling(tiny: bool, light: bool) -> dict[str, Any]:
    """Measures the processor seconds, of all threads, to trace and compile the program
    of S1.
    """
    from jaxrecall.simulator import program
    from jaxrecall.simulator.program_shape import Shape

    points = (TINY if tiny else FULL).S1.points()
    shape = Shape.sized(
        points[0], max(p.V for p in points), max(p.d for p in points), 0
    )
    program.start()
    start = time.process_time()
    program.compiled(replace(shape, light=light))
    return {"seconds": time.process_time() - start}


def cold_torch(tiny: bool, form: str) -> dict[str, Any]:
    """Runs S1 with the torch loop."""
    from . import torch_loop

    start = time.perf_counter()
    accuracies = [
        torch_loop.run(point, seed, form)
        for point, seed in (TINY if tiny else FULL).S1.runs()
    ]
    return {
        "seconds": time.perf_counter() - start,
        "rows": len(accuracies),
        "accuracy": mean(accuracies),
    }


def later_torch(
    tiny: bool, form: str, threads: int, which: Sequence[int]
) -> dict[str, Any]:
    """Runs some of the runs beyond the recipe with the torch loop on `threads` threads.

    A short run comes first and is not timed.
    """
    import torch  # pyright: ignore[reportMissingImports]

    from . import torch_loop

    torch.set_num_threads(threads)
    runs = list((TINY if tiny else FULL).later.runs())
    torch_loop.run_on(runs[0][0].replace(steps=20), 0, form)
    start = time.perf_counter()
    accuracies = [torch_loop.run_on(*runs[i], form) for i in which]
    return {"seconds": time.perf_counter() - start, "accuracy": mean(accuracies)}


def cold_jax(tiny: bool) -> dict[str, Any]:
    """Runs S1 with the jax loop."""
    from . import jax_loop

    start = time.perf_counter()
    accuracies = [
        jax_loop.run(point, seed) for point, seed in (TINY if tiny else FULL).S1.runs()
    ]
    return {
        "seconds": time.perf_counter() - start,
        "rows": len(accuracies),
        "accuracy": mean(accuracies),
    }


def size(tiny: bool, N: int, cache: str) -> dict[str, Any]:
    """Measures the peak memory of a process with two runs of N samples, in bytes.

    Programs are loaded from `cache` or saved there.
    """
    return _size((TINY if tiny else FULL).memory.replace(N=N), cache)


def _size(point: Point, cache: str) -> dict[str, Any]:
    import jax

    from jaxrecall import simulate

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", SLOW_COMPILE_SECONDS
    )
    for seed in range(2):
        simulate(point, seed)
    return {"peak_bytes": peak_bytes()}


def pool_size(tiny: bool, N: int, L: int, cache: str) -> dict[str, Any]:
    """Measures the peak memory of a process with two pool runs, in bytes.

    Programs are loaded from `cache` or saved there.
    """
    return _size((TINY if tiny else FULL).pool.replace(N=N, L=L), cache)


def fit(seeds: int) -> dict[str, Any]:
    """Measures `jaxrecall.fit.fit` on a table that follows a law.

    The table has 120 cells, 16 levels and `seeds` seeds.
    """
    import numpy as np
    import pandas as pd

    from jaxrecall.analysis.fit import fit

    rng = np.random.default_rng(0)
    axes = {
        "V": [64, 91, 128, 181, 256],
        "d": [32, 64, 91, 128, 181, 256, 362, 512],
        "L": [8, 64, 512],
    }
    levels = np.round(2 ** (8 + np.arange(16) / 2)).astype(int)
    frame = pd.MultiIndex.from_product(
        [*axes.values(), levels, range(seeds)], names=[*axes, "N", "seed"]
    ).to_frame(index=False)
    star = (
        np.log(2 * frame["V"] ** 2 / frame["d"] * frame["L"] ** 0.5)
        + rng.normal(0, 0.2, seeds)[frame["seed"]]
    )
    right = rng.binomial(2048, 1 / (1 + np.exp(-1.5 * (np.log(frame["N"]) - star))))
    frame = frame.assign(m=0, n_test=2048, n_correct=right)
    start = time.perf_counter()
    fit(frame, [0.5])
    return {
        "rows": len(frame),
        "seconds": time.perf_counter() - start,
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    """The largest resident size of this process, in bytes.

    Linux's getrusage would include the memory of the parent at the time of the fork.
    """
    try:
        line = next(
            line
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return math.ceil(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * (1 if sys.platform == "darwin" else 1024)
        )


TASKS = {
    task.__name__: task
    for task in (
        cold_jaxrecall,
        compiling,
        cold_torch,
        later_torch,
        cold_jax,
        estimated,
        size,
        pool_size,
        fit,
    )
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
