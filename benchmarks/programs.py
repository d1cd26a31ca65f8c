"""The programs whose times are compared: jaxrecall, the peers and the floor.

Each function of PROGRAMS prepares a program for a grid, and compiles what it needs. A
program that cannot run here raises NotHere with the reason.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

import jaxrecall
from jaxrecall import Point

from . import clock, floor, jax_loop
from .asked import BAG, BOTH_CORES, COLD, OURS, TORCH, TWO, VMAP
from .bench import Bench, NotHere, Ready
from .clock import timed
from .work import Document, points, runs, seeds

Grid = Document | Point
Preparation = Callable[[Bench, Any], Ready]


def ours(bench: Bench, grid: Grid) -> Ready:
    """Prepares a single run with another seed in each call, or else a sweep to its last
    row.
    """
    if len(runs(grid)) > 1:
        return swept(bench, {(): grid}, f"{len(runs(grid))} runs")
    (point,) = points(grid)
    row = jaxrecall.simulate(point, 0)
    engine = timed(lambda call: jaxrecall.simulate(point, call))
    return Ready(engine, note=f"form {row['form']}")


def swept(bench: Bench, grids: dict[tuple[str, ...], Any], note: str) -> Ready:
    """Prepares some sweeps, one after the other, by the arguments of each."""
    folders: list[Path] = []

    def sweep(call: int) -> float:
        seconds = 0.0
        for arguments, grid in grids.items():
            folders.append(bench.new_folder())
            seconds += clock.sweep(grid, folders[-1], *arguments)
        return seconds

    sweep(0)
    accuracy = jaxrecall.load(folders)["accuracy"].mean()
    return Ready(sweep, note=f"{note}; mean accuracy {accuracy:.4f}")


def in_programs_of_S2(bench: Bench, sample: Document) -> Ready:
    """Prepares the sample of S2, in the programs that are planned for all of S2."""
    plan = clock.dry_run(bench.work.grid("S2"), bench.folder)
    shapes = [entry["bucket"] for entry in plan["program_list"]]
    grids = {}
    for shape, some in by_program(points(sample), shapes).items():
        sizes = {name: [getattr(point, name) for point in some] for name in "VdLN"}
        grids["--bucket", shape] = sample | {"blocks": [{"axes": {"zip": sizes}}]}
    note = (
        f"{len(points(sample))} of {plan['points']} points; {len(grids)} of"
        f" {plan['programs']} programs"
    )
    return swept(bench, grids, note)


def by_program(some: Sequence[Point], shapes: Sequence[str]) -> dict[str, list[Point]]:
    """Assigns each point to the smallest program "VxD" that it fits."""
    sizes = {shape: tuple(map(int, shape.split("x")[:2])) for shape in shapes}
    smallest_first = sorted(shapes, key=lambda shape: sizes[shape][0] * sizes[shape][1])
    found: dict[str, list[Point]] = {}
    for point in some:
        for shape in smallest_first:
            V, d = sizes[shape]
            if point.V <= V and point.d <= d:
                found.setdefault(shape, []).append(point)
                break
    return found


def without_pool(bench: Bench, grid: Grid) -> Ready:
    """Prepares the exact run of the same point at a smaller N."""
    (point,) = points(grid)
    N = min(8192, point.N // 4)
    return ours(bench, point.replace(pool=None, N=N))._replace(share=N / point.N)


def torch(form: str, one_seed: bool = False) -> Preparation:
    """The torch loop in this process."""

    def ready(bench: Bench, grid: Grid) -> Ready:
        needs("torch", "bench")
        from . import torch_loop

        # starts the threads of torch
        torch_loop.run(Point(V=16, N=64, d=16, L=4, n_test=64), 0, form)
        every = runs(grid)
        todo = [run for run in every if run[1] == 0] if one_seed else every

        def work(call: int) -> None:
            for point, seed in todo:
                torch_loop.run(point, seed + call, form)

        return Ready(timed(work), len(todo) / len(every), once=one_seed)

    return ready


def some_of(grid: Grid) -> list[int]:
    """The numbers of an eighth of the runs, spread over points and seeds."""
    n_runs = len(runs(grid))
    n = max(2, n_runs // 8)
    return [n_runs * i // n for i in range(n)]


def torch_on_both_cores(form: str, processes: int) -> Preparation:
    """The torch loop on two cores, for some of the runs; the slowest process counts."""

    def ready(bench: Bench, grid: Grid) -> Ready:
        needs("torch", "bench")
        chosen = some_of(grid)

        def ask(i: int) -> float:
            answer = clock.fresh(
                "peer",
                loop="torch_loop",
                grid=grid,
                form=form,
                which=chosen[i::processes],
                threads=2 // processes,
            )
            return answer["seconds"]

        def engine(call: int) -> float:
            with ThreadPoolExecutor(processes) as pool:
                return max(pool.map(ask, range(processes)))

        return Ready(engine, len(chosen) / len(runs(grid)))

    return ready


def jax_on_some(bench: Bench, grid: Grid) -> Ready:
    """Prepares the jax loop, for some of the runs."""
    chosen = [runs(grid)[i] for i in some_of(grid)]
    jax_loop.run(*chosen[0])

    def work(call: int) -> None:
        for point, seed in chosen:
            jax_loop.run(point, seed)

    return Ready(timed(work), len(chosen) / len(runs(grid)))


def jax_vmap(bench: Bench, grid: Grid) -> Ready:
    """Prepares JAX's vmap over the seeds of each point, one point after the other."""

    def all_runs(call: int) -> list[float]:
        accuracies: list[float] = []
        for point in points(grid):
            shifted = [seed + call for seed in seeds(grid)]
            accuracies += jax_loop.run_seeds(point, shifted)
        return accuracies

    accuracy = mean(all_runs(0))
    return Ready(timed(all_runs), note=f"mean accuracy {accuracy:.4f}")


def cold(task: str, **arguments: str) -> Preparation:
    """A task of child.py in a fresh process with an empty compile cache."""

    def ready(bench: Bench, grid: Grid) -> Ready:
        if arguments.get("loop") == "torch_loop":
            needs("torch", "bench")

        def engine(call: int) -> float:
            cache = tempfile.mkdtemp(dir=bench.folder)
            return clock.fresh(task, cache, grid=grid, **arguments)["seconds"]

        return Ready(engine, once=task != "sweep")

    return ready


def workers(n_cores: int, *arguments: str) -> Preparation:
    """A sweep in its own process on some cores, in its steady state.

    The steady state is the time from the first finished batch to the last. Programs
    come from a cache, which an uncounted first sweep fills.
    """

    def ready(bench: Bench, grid: Grid) -> Ready:
        cores = sorted(getattr(os, "sched_getaffinity", lambda _: ())(0))
        if len(cores) < 2:
            raise NotHere("needs two cores that a process can be bound to")
        if "ray" in arguments:
            needs("ray", "ray")
        cache = bench.folder / "cache"

        def engine(call: int) -> float:
            mine = cores[:n_cores]
            return steady_seconds(grid, bench.new_folder(), cache, mine, *arguments)

        if not cache.exists():
            engine(0)
        return Ready(engine, note=f"{len(runs(grid))} runs")

    return ready


def steady_seconds(
    grid: Grid, out: Path, cache: Path, cores: Sequence[int], *arguments: str
) -> float:
    file = clock.written(grid, out)
    command = [sys.executable, "-m", "jaxrecall.sweep", "--grid", str(file)]
    command += ["--out", str(out), "--json-log", *arguments]
    pin = (
        f"import os, sys; os.sched_setaffinity(0, {cores}); os.execv(sys.argv[1],"
        " sys.argv[1:])"
    )
    environment = {**os.environ, "JAXRECALL_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    output = clock.output_of([sys.executable, "-c", pin, *command], env=environment)
    events = [json.loads(line) for line in output.splitlines()]
    batches = [event for event in events if event["event"] == "batch" and event["rows"]]
    return batches[-1]["at"] - batches[0]["at"]


def floor_of_run(bench: Bench, grid: Grid) -> Ready:
    """The least time of a run at the rates of the primitives, as if it were timed."""
    (point,) = points(grid)
    rates = floor.rates(point, bench.work.tiny)
    least = {}
    terms = []
    for form, counts in floor.counts(point).items():
        least[form] = floor.seconds(counts, rates)
        for name, count in counts.items():
            one_call, all_cores = rates[name]
            terms.append(
                {
                    "form": form,
                    "term": floor.UNITS[name],
                    "count": count,
                    "rate": one_call,
                    "seconds": count / one_call,
                    "rate_all_cores": all_cores,
                }
            )
    note = ", ".join(f"{form} form {seconds:.3g} s" for form, seconds in least.items())
    return Ready(lambda call: least["guarded"], note=note, terms=terms)


def floor_of_pools(bench: Bench, grid: Grid) -> Ready:
    """The least time of runs with a pool on all cores."""
    every = runs(grid)
    of_run = floor.of_pool(every[0][0], bench.work.tiny)
    terms = ", ".join(f"{name} {1e3 * s:.2g}" for name, s in of_run.items())
    total = len(every) * sum(of_run.values())
    return Ready(lambda call: total, note=f"on all cores, ms a run: {terms}")


def needs(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise NotHere(f"{module} is not installed: pip install '.[{extra}]'")


PROGRAMS: dict[str, Preparation] = {
    OURS.name: ours,
    "jaxrecall, in the programs of S2": in_programs_of_S2,
    "jaxrecall, without a pool": without_pool,
    COLD.name: cold("sweep"),
    "jax loop, cold": cold("peer", loop="jax_loop"),
    "jax loop, some runs": jax_on_some,
    VMAP.name: jax_vmap,
    f"{VMAP}, cold": cold("vmapped"),
    "one worker, one core": workers(1, "--workers", "1"),
    TWO.name: workers(2, "--workers", "2"),
    "two Ray tasks, two cores": workers(2, "--engine", "ray", "--workers", "2"),
    "floor": floor_of_run,
    "floor of pools": floor_of_pools,
}
for loop, form in ((TORCH.name, "keys"), (BAG.name, "bag")):
    PROGRAMS[loop] = torch(form)
    PROGRAMS[f"{loop}, one seed"] = torch(form, one_seed=True)
    PROGRAMS[f"{loop}, cold"] = cold("peer", loop="torch_loop", form=form)
    for i, way in enumerate(BOTH_CORES):
        PROGRAMS[f"{loop}, {way}"] = torch_on_both_cores(form, i + 1)
