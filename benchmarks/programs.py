"""The programs whose times are compared: jaxrecall, the peers and the floor.

Each function of PROGRAMS prepares a program for a grid, and compiles what it needs. A
program that cannot run here raises NotHere with the reason.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import mean
from typing import Any, NamedTuple

import yaml

import jaxrecall
from jaxrecall import Point

from . import clock, floor
from .clock import Engine, timed
from .work import Bench, Document, points, runs, seeds

Grid = Document | Point


class Ready(NamedTuple):
    """A program that is compiled and ready to be timed."""

    engine: Engine
    share: float = 1.0  # of the work that a call does
    note: str = ""
    terms: Sequence[dict[str, Any]] = ()  # of a floor


class NotHere(Exception):
    """The reason why a program cannot run on this machine."""


def parsed(name: str) -> tuple[str, dict[str, Any]]:
    """Returns the program and the changed fields of "jaxrecall {exact: full}"."""
    program, brace, fields = name.partition(" {")
    return program, yaml.safe_load(brace + fields) or {}


def prepared(bench: Bench, name: str, grid: Callable[..., Grid]) -> Ready:
    """Prepares a program; `grid` returns the work with some fields changed."""
    program, fields = parsed(name)
    return PROGRAMS[program](bench, grid(**fields))


def ours(bench: Bench, grid: Any) -> Ready:
    """Prepares a single run with another seed in each call, or else a sweep with a
    results folder.
    """
    n_runs = len(runs(grid))
    if n_runs == 1:
        (point,) = points(grid)
        form = jaxrecall.simulate(point, 0)["form"]
        engine = timed(lambda call: jaxrecall.simulate(point, call))
        return Ready(engine, note=f"form {form}")

    def sweep(call: int) -> Any:
        return jaxrecall.run(grid, out=bench.new_folder() / "out", progress=False)

    accuracy = sweep(0)["accuracy"].mean()
    return Ready(timed(sweep), note=f"{n_runs} runs; mean accuracy {accuracy:.4f}")


def without_pool(bench: Bench, grid: Grid) -> Ready:
    """Prepares the exact run of the same point at a smaller N."""
    (point,) = points(grid)
    N = min(8192, point.N // 4)
    return ours(bench, point.replace(pool=None, N=N))._replace(share=N / point.N)


def cold(bench: Bench, grid: Document) -> Ready:
    """A sweep in a fresh process, with an empty cache of programs."""

    def engine(call: int) -> float:
        return clock.fresh("sweep", bench.new_folder(), grid=grid)["seconds"]

    return Ready(engine)


def peak(bench: Bench, point: Point) -> Ready:
    """The peak memory of a process with two runs of a point, in MiB in place of
    seconds.

    The process loads its program from a cache, which an uncounted first one fills.
    Compiling needs more memory than running, and its use varies by 10 %, which would
    hide any growth.
    """
    cache, fields = bench.folder / "programs", point.values()
    del fields["gamma"]  # follows from kappa

    def engine(call: int) -> float:
        return clock.fresh("size", cache, fields=fields)["peak_bytes"] / 2**20

    engine(0)
    return Ready(engine)


def some_of(grid: Grid) -> list[int]:
    """The numbers of an eighth of the runs, spread over points and seeds."""
    n_runs = len(runs(grid))
    n = max(2, n_runs // 8)
    return [n_runs * i // n for i in range(n)]


def peer(loop: str, form: str, some: bool, bench: Bench, grid: Grid) -> Ready:
    """The loop of a peer in this process, for all runs or some of them."""
    needs(loop.partition("_")[0], "bench")
    run = import_module(f"benchmarks.{loop}").run
    todo = [(point, seeds(grid)) for point in points(grid)]
    every = runs(grid)
    if some:
        todo = [(point, [seed]) for point, seed in (every[i] for i in some_of(grid))]

    def work(call: int) -> list[float]:
        accuracies: list[float] = []
        for point, of_point in todo:
            accuracies += run(point, [seed + call for seed in of_point], form)
        return accuracies

    first = work(0)
    note = f"mean accuracy {mean(first):.4f}"
    return Ready(timed(work), len(first) / len(every), note)


def peer_in_processes(
    loop: str, form: str, processes: int, threads: int, bench: Bench, grid: Grid
) -> Ready:
    """The loop of a peer in fresh processes; the slowest of them counts.

    With a number of threads, only some of the runs are timed.
    """
    needs(loop.partition("_")[0], "bench")
    chosen = some_of(grid)
    about = {"loop": loop, "form": form, "grid": grid, "threads": threads}

    def ask(i: int) -> float:
        return clock.fresh("peer", which=chosen[i::processes], **about)["seconds"]

    def engine(call: int) -> float:
        with ThreadPoolExecutor(processes) as pool:
            return max(pool.map(ask, range(processes)))

    return Ready(engine, len(chosen) / len(runs(grid)) if threads else 1.0)


def workers(n_cores: int, engine: str, bench: Bench, grid: Grid) -> Ready:
    """A sweep in its own process on some cores, in its steady state.

    The steady state is the time from the first finished batch to the last. Programs
    come from a cache, which an uncounted first sweep fills.
    """
    cores = sorted(getattr(os, "sched_getaffinity", lambda _: ())(0))
    if len(cores) < 2:
        raise NotHere("needs two cores that a process can be bound to")
    if engine == "ray":
        needs("ray", "ray")
    cache = bench.folder / "cache"
    environment = {**os.environ, "JAXRECALL_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    bind = partial(os.sched_setaffinity, 0, cores[:n_cores])
    command = [sys.executable, "-m", "jaxrecall.sweep", "--json-log"]
    command += ["--engine", engine, "--workers", str(n_cores)]

    def sweep(call: int) -> float:
        out = bench.new_folder() / "out"
        told = ["--grid", str(clock.written(grid, out)), "--out", str(out)]
        output = clock.output_of([*command, *told], env=environment, preexec_fn=bind)
        events = [json.loads(line) for line in output.splitlines()]
        batches = [each for each in events if each["event"] == "batch" and each["rows"]]
        return batches[-1]["at"] - batches[0]["at"]

    if not cache.exists():
        sweep(0)
    return Ready(sweep, note=f"{len(runs(grid))} runs")


def floor_of_run(bench: Bench, grid: Grid) -> Ready:
    """The least time of a run at the rates of the primitives, as if it were timed."""
    (point,) = points(grid)
    terms = floor.of_run(point, bench.work.tiny)
    least = sum(term["seconds"] for term in terms)
    return Ready(lambda call: least, terms=terms)


def needs(module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise NotHere(f"{module} is not installed: pip install '.[{extra}]'")


PROGRAMS: dict[str, Callable[[Bench, Any], Ready]] = {
    "jaxrecall": ours,
    "jaxrecall, without a pool": without_pool,
    "jaxrecall, cold": cold,
    "one worker, one core": partial(workers, 1, "local"),
    "two workers, two cores": partial(workers, 2, "local"),
    "two Ray actors, two cores": partial(workers, 2, "ray"),
    "peak MiB": peak,
    "floor": floor_of_run,
}
PEERS = {
    "torch loop": ("torch_loop", "keys"),
    "torch loop, embedding_bag": ("torch_loop", "bag"),
    "jax loop": ("jax_loop", "keys"),
    "jit and vmap over seeds": ("jax_loop", "table"),
}
for name, of in PEERS.items():
    PROGRAMS |= {
        name: partial(peer, *of, False),
        f"{name}, some runs": partial(peer, *of, True),
        f"{name}, cold": partial(peer_in_processes, *of, 1, 0),
        f"{name}, one process, 2 threads": partial(peer_in_processes, *of, 1, 2),
        f"{name}, two processes, 1 thread each": partial(peer_in_processes, *of, 2, 1),
    }
