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
from typing import Any

from . import clock
from .work import points, runs, seeds

SLOW_COMPILE_SECONDS = 0.3
"""The compile time in seconds that separates programs of the simulator from helpers.

A program takes seconds to compile, and a helper hundredths of a second. The compile
cache uses the same limit.
"""


def sweep(
    grid: dict[str, Any], arguments: Sequence[str] = (), estimated: bool = False
) -> dict[str, Any]:
    """Runs a grid with `jaxrecall.sweep`.

    Returns the seconds to the last row, the number of rows, and the programs that were
    compiled and not found in the cache. With `estimated`, the result also has the
    seconds that a dry run estimates.
    """
    import_all()
    from jaxrecall.sweep.grid import as_grid
    from jaxrecall.sweep.running.job import prepare
    from jaxrecall.sweep.store.load import load

    programs = compiled_programs()
    answer: dict[str, Any] = {"programs": programs}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        if estimated:
            job = prepare(as_grid(grid), out)
            likely = job.search.likely_seconds() if job.search else job.plan.seconds
            answer["estimate"] = likely
        answer["seconds"] = clock.sweep(grid, out, *arguments)
        answer["rows"] = len(load(out))
    return answer


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


def compiled_programs() -> list[str]:
    """Returns a list that grows with the name of each compiled program."""
    import jax

    names: list[str] = []
    here = threading.local()

    def happened(event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            here.hit = True

    def lasted(event: str, duration_secs: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            if duration_secs >= SLOW_COMPILE_SECONDS and not getattr(
                here, "hit", False
            ):
                names.append(str(about.get("fun_name", "?")))
            here.hit = False

    jax.monitoring.register_event_listener(happened)
    jax.monitoring.register_event_duration_secs_listener(lasted)
    return names


def compiling(grid: dict[str, Any], light: bool) -> dict[str, Any]:
    """Measures the processor seconds, of all threads, to trace and compile the program
    of a grid.
    """
    from jaxrecall.simulator import program
    from jaxrecall.simulator.program_shape import Shape

    some = points(grid)
    V, d = max(point.V for point in some), max(point.d for point in some)
    shape = Shape.sized(some[0], V, d, 0)
    program.start()
    start = time.process_time()
    program.compiled(replace(shape, light=light))
    return {"seconds": time.process_time() - start}


def peer(
    loop: str,
    grid: dict[str, Any],
    which: Sequence[int] | None = None,
    threads: int = 0,
    **form: str,
) -> dict[str, Any]:
    """Runs a grid, or some of its runs, with the torch loop or the jax loop.

    If the number of threads of torch is given, a short run comes first and is not
    timed.
    """
    run = import_module(f"benchmarks.{loop}").run
    todo = runs(grid)
    if threads:
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(threads)
        run(todo[0][0].replace(steps=20), 0, **form)
    if which is not None:
        todo = [todo[i] for i in which]
    start = time.perf_counter()
    for point, seed in todo:
        run(point, seed, **form)
    return {"seconds": time.perf_counter() - start}


def vmapped(grid: dict[str, Any]) -> dict[str, Any]:
    """Runs a grid with JAX's vmap over the seeds of each point."""
    from . import jax_loop

    start = time.perf_counter()
    for point in points(grid):
        jax_loop.run_seeds(point, seeds(grid))
    return {"seconds": time.perf_counter() - start}


def size(grid: dict[str, Any], i: int, cache: str) -> dict[str, Any]:
    """Measures the peak memory of a process with two runs of a point, in bytes.

    Programs are loaded from `cache` or saved there.
    """
    import jax

    from jaxrecall import simulate

    limit = "jax_persistent_cache_min_compile_time_secs"
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update(limit, SLOW_COMPILE_SECONDS)
    for seed in range(2):
        simulate(points(grid)[i], seed)
    return {"peak_bytes": peak_bytes()}


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


TASKS = {task.__name__: task for task in (sweep, compiling, peer, vmapped, size, fit)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
