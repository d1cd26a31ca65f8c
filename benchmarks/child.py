"""Tasks that run in fresh processes.

`python -m benchmarks.child TASK JSON` prints one JSON object. Timing starts after the
imports.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from jaxrecall import Point

from . import clock
from .work import points, runs, seeds


def sweep(
    grid: dict[str, Any], workers: int = 1, estimated: bool = False
) -> dict[str, Any]:
    """Runs a grid with `jaxrecall.run` and a results folder.

    Returns the seconds and the number of rows. With `estimated`, the result also has
    the seconds that a dry run estimates.
    """
    import_all()
    from jaxrecall import run
    from jaxrecall.sweep.grid import as_grid
    from jaxrecall.sweep.running.job import prepare

    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        if estimated:
            job = prepare(as_grid(grid), out)
            answer["estimate"] = job.plan.seconds
            if job.search:
                *_, answer["estimate"] = job.search.cost(in_the_middle=True)
        start = time.perf_counter()
        answer["rows"] = len(run(grid, out=out, workers=workers, progress=False))
        answer["seconds"] = time.perf_counter() - start
    return answer


def import_all() -> None:
    """Imports all that a sweep may need, as its command does.

    The time of imports is thus not measured. Ray and Slurm are not used.
    """
    import jaxrecall
    from jaxrecall.cli.process import collect_rarely

    collect_rarely()
    ours = [module.name for module in walk_packages(jaxrecall.__path__, "jaxrecall.")]
    for name in ("matplotlib.pyplot", "pyarrow.parquet", *ours):
        if not name.endswith((".__main__", ".slurm", ".ray")):
            import_module(name)


def peer(
    loop: str,
    form: str,
    grid: dict[str, Any],
    which: Sequence[int] = (),
    threads: int = 0,
) -> dict[str, Any]:
    """Runs a grid with the loop of a peer.

    If the number of threads of torch is given, only some runs are timed, after a short
    one.
    """
    run = import_module(f"benchmarks.{loop}").run
    todo = [(point, seeds(grid)) for point in points(grid)]
    if threads:
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(threads)
        every = runs(grid)
        run(every[0][0].replace(steps=20), [0], form)
        todo = [(every[i][0], [every[i][1]]) for i in which]
    start = time.perf_counter()
    for point, some in todo:
        run(point, some, form)
    return {"seconds": time.perf_counter() - start}


def size(fields: dict[str, Any]) -> dict[str, Any]:
    """Measures the peak memory of a process with two runs of a point, in bytes."""
    from jaxrecall import simulate

    for seed in range(2):
        simulate(Point(**fields), seed)
    return {"peak_bytes": peak_bytes()}


def fit(seeds: int) -> dict[str, Any]:
    """Measures `jaxrecall.fit.fit` on a table that follows a law.

    The table has 120 cells, 16 levels and `seeds` seeds.
    """
    import numpy as np
    import pandas as pd

    from jaxrecall.fit import fit

    V, d, L, level, seed = np.indices((5, 8, 3, 16, seeds)).reshape(5, -1)
    N = np.round(2 ** (8 + level / 2))
    rng = np.random.default_rng(0)
    star = 7 + 0.2 * V - 0.1 * d + 0.3 * L + rng.normal(0, 0.2, seeds)[seed]
    right = rng.binomial(2048, 1 / (1 + np.exp(1.5 * (star - np.log(N)))))
    axes = {"V": 64 << V, "d": 32 << d, "L": 8 << L, "m": 0, "N": N.astype(int)}
    table = pd.DataFrame({**axes, "seed": seed, "n_test": 2048, "n_correct": right})
    seconds = clock.timed(lambda call: fit(table, [0.5]))(0)
    return {"rows": len(table), "seconds": seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """The largest resident size of this process, in bytes, as Linux tells it.

    getrusage would include the memory of the parent at the time of the fork.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


TASKS = {task.__name__: task for task in (sweep, peer, size, fit)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
