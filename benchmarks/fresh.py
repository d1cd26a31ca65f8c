"""Measures what fresh processes compile, and a fit in a process of its own."""

from __future__ import annotations

import tempfile
from typing import Any

from . import clock
from .bench import Bench
from .record import Measured


def compiled(bench: Bench) -> dict[str, Measured]:
    """Measures the small sweep in two fresh processes with one compile cache, and the
    time to compile its program.
    """
    grid = bench.work.grid("S1")
    cache = tempfile.mkdtemp(dir=bench.folder)
    first = clock.fresh("sweep", cache, grid=grid)["programs"]
    again = clock.fresh("sweep", cache, grid=grid)
    planned = [
        clock.dry_run(bench.work.grid(name), bench.new_folder())["programs"]
        for name in ("S1", "S2")
    ]
    note = (
        f"planned {planned[0]}, {planned[1]}; compiled by S1 in a fresh process:"
        f" {len(first)} ({', '.join(first)})"
    )

    def compiling(light: bool) -> Any:
        return lambda call: clock.fresh("compiling", grid=grid, light=light)["seconds"]

    seconds = bench.interleaved(
        {"light": compiling(True), "thorough": compiling(False)}
    )
    return {
        "compiling": Measured(list(clock.medians(seconds).values()), seconds=seconds),
        "programs": Measured([max(len(first), planned[0]), planned[1]], note=note),
        "second": Measured(
            [len(again["programs"])], note=f"S1, {again['seconds']:.3g} s"
        ),
    }


def fitted(bench: Bench) -> dict[str, Measured]:
    """Measures the fit of a large table, or of a small one with --tiny."""
    done = clock.fresh("fit", seeds=8 if bench.work.tiny else 521)
    bench.log(f"{done['rows']} rows in {done['seconds']:.1f} s")
    values = [done["seconds"], done["peak_bytes"] / 2**30]
    return {"fit": Measured(values, note=f"{done['rows']} rows, 120 cells, 16 levels")}
