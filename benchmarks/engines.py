"""Measures what a second core and Ray gain and cost.

The work is S1 with so many seeds that it takes more than a minute of one core. The
engines run in turn, each in its own process. The timed part is the steady state, from
the first finished batch to the last. Programs come from the compile cache, which an
uncounted first sweep fills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .bench import Bench
from .clock import medians
from .record import Measured

SEEDS = 120
ONE = "one worker, one core"
TWO = "two workers, two cores"
RAY = "two Ray tasks, two cores"


def steady_seconds(
    grid: Path, out: Path, cache: Path, cores: list[int], *arguments: str
) -> tuple[float, int]:
    """Runs a sweep on these cores.

    Returns the seconds from its first finished batch to its last, and the number of
    runs.
    """
    environment = {**os.environ, "JAXRECALL_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    command = [
        sys.executable,
        "-m",
        "jaxrecall.sweep",
        "--grid",
        str(grid),
        "--out",
        str(out),
        "--json-log",
        *arguments,
    ]
    pin = (
        f"import os, sys; os.sched_setaffinity(0, {cores}); os.execv(sys.argv[1],"
        " sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", pin, *command],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with exit code {done.returncode}:"
            f" {done.stderr[-2000:]}"
        )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    times = [
        event["at"] for event in events if event["event"] == "batch" and event["rows"]
    ]
    return times[-1] - times[0], events[-1]["runs_executed"]


def side_by_side(bench: Bench) -> dict[str, Measured]:
    """Compares one worker with two, and two Ray tasks with two workers."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        return {
            key: Measured(
                note="not run: needs two cores that a process can be bound to"
            )
            for key in ("two-workers", "ray")
        }
    sweep = replace(bench.work.S1, seeds=SEEDS * bench.work.S1.seeds)
    grid = bench.folder / "engines.yaml"
    grid.write_text(sweep.grid())
    engines: dict[str, tuple[Any, ...]] = {
        ONE: (cores[:1], "--workers", "1"),
        TWO: (cores[:2], "--workers", "2"),
    }
    if find_spec("ray"):
        engines[RAY] = (cores[:2], "--engine", "ray", "--workers", "2")
    cache = bench.new_folder()

    def run(name: str) -> float:
        mine, *arguments = engines[name]
        seconds, n = steady_seconds(grid, bench.new_folder(), cache, mine, *arguments)
        bench.log(f"{name}: {n} runs, {seconds:.3g} s")
        return seconds

    run(TWO)
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(bench.rounds):
        for name in engines:
            seconds[name].append(run(name))
    at = medians(seconds)
    note = (
        f"{sweep.name} with {SEEDS} times the seeds, from the first finished batch to"
        " the last"
    )
    rows = {
        "two-workers": Measured(
            [at[ONE] / at[TWO]],
            note=note,
            seconds={name: seconds[name] for name in (ONE, TWO)},
        )
    }
    if RAY in at:
        both = {name: seconds[name] for name in (RAY, TWO)}
        return rows | {
            "ray": Measured([100 * (at[RAY] / at[TWO] - 1)], note=note, seconds=both)
        }
    return rows | {
        "ray": Measured(note="not run: ray is not installed: pip install '.[ray]'")
    }
