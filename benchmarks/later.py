"""Measures runs beyond the recipe, with many rates and seeds.

The peers are the torch loop on two cores and the jax loop. Steps from tokens are also
compared with steps from samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import mean, median
from typing import Any

import jaxrecall
from jaxrecall import Point

from . import clock, jax_loop
from .bench import BAG, NO_TORCH, OURS, TORCH, Bench, simulator, torch_engines
from .clock import Engine, medians, timed
from .record import Measured

JAX = "jax loop"
WAYS = {"one process, 2 threads": 1, "two processes, 1 thread each": 2}
"""Ways of the torch loop to use two cores -> the number of processes."""

LOCKED: tuple[dict[str, Any], ...] = (
    {"V": 64, "d": 64, "L": 8, "kappa": 1e3, "optimizer": "sgd", "lr": 4},
    {"V": 64, "d": 64, "L": 8, "kappa": 1e3, "optimizer": "adam", "lr": 0.03},
    {"V": 128, "d": 128, "L": 8, "kappa": 1e3, "optimizer": "sgd", "lr": 4},
    {"V": 128, "d": 128, "L": 32, "kappa": 1e4, "optimizer": "sgd", "lr": 4},
    {"V": 256, "d": 128, "L": 16, "kappa": 1e3, "optimizer": "sgd", "lr": 4},
    {
        "V": 128,
        "d": 64,
        "L": 8,
        "kappa": 1e6,
        "optimizer": "sgd",
        "lr": 4,
        "m": 256,
        "activation": "quadratic",
        "trigger_in_value": False,
    },
)
"""Runs with locked attention and N = 16 V samples.

A further step of these runs may read V tokens instead of the N samples.
"""


def from_tokens(bench: Bench) -> dict[str, Measured]:
    """Compares the times of long runs that read samples and of the same runs from
    tokens.

    The figures are the smallest and the median ratio of these times.
    """
    table, times = [], []
    for sizes in LOCKED[: 1 if bench.tiny else None]:
        point = Point(
            **sizes,
            N=16 * sizes["V"],
            eta=1e-6,
            gamma2=64,
            steps=20 if bench.tiny else 500,
        )
        forms = {
            row["form"]
            for row in jaxrecall.simulate(
                point, range(bench.rounds * clock.ROUND_CALLS + 1)
            )
        }
        assert all(form.endswith("locked descent") for form in forms), (
            f"{point}: ran as {forms}"
        )
        engines = {
            "tokens": simulator(point),
            "samples": simulator(point.replace(exact="full")),
        }
        at = medians(bench.interleaved(engines))
        times.append(at["samples"] / at["tokens"])
        about = {
            name: getattr(point, name) for name in ("V", "d", "L", "m", "optimizer")
        }
        table.append(
            {
                **about,
                "tokens, us a step": 1e6 * at["tokens"] / point.steps,
                "samples / tokens": times[-1],
            }
        )
    return {"from-tokens": Measured([min(times), median(times)], table=table)}


def against_peers(bench: Bench) -> dict[str, Measured]:
    """Measures a sweep of all runs against a few runs of each peer.

    The seconds of a peer are scaled to all runs. For the torch loop, its faster way
    counts.
    """
    sweep = bench.work.later
    runs = list(sweep.runs())
    n = bench.work.later_peers
    chosen = [len(runs) * i // n for i in range(n)]  # spread over rates and seeds
    folder = bench.folder

    def ours(call: int) -> float:
        nonlocal folder
        folder = bench.new_folder()
        return clock.sweep(sweep.grid(), folder)[0]

    def by_jax(which: Sequence[int]) -> None:
        for i in which:
            jax_loop.run_on(*runs[i])

    cold = ours(0), timed(lambda call: by_jax(chosen[:1]))(0)
    engines = {OURS: ours, JAX: timed(lambda call: by_jax(chosen))}
    if torch_engines(lambda call: []):
        forms = {TORCH: "keys", BAG: "bag"}
        engines |= {
            f"{name}, {way}": by_torch(bench, form, chosen, of)
            for name, form in forms.items()
            for way, of in WAYS.items()
        }
    seconds = bench.interleaved(engines)
    scale = len(runs) / n
    at = {
        name: median * (1 if name == OURS else scale)
        for name, median in medians(seconds).items()
    }
    rows = jaxrecall.load(folder, last=True)
    note = (
        f"{len(runs)} runs; the peers made {n} of them a call, spread over rates and"
        f" seeds, and their medians count {scale:.3g} times; {JAX} / jaxrecall"
        f" {at[JAX] / at[OURS]:.3g}; first time, compilation included: jaxrecall"
        f" {cold[0]:.3g} s, {JAX} {cold[1]:.3g} s for one run; accuracy"
        f" {mean(rows['accuracy']):.3g}"
    )
    if not any(name.startswith(TORCH) for name in at):
        return {"later": Measured(note=f"not run: {NO_TORCH}; {note}", seconds=seconds)}
    times = {
        form: min(at[f"{form}, {way}"] for way in WAYS) / at[OURS]
        for form in (TORCH, BAG)
    }
    return {"later": Measured([times[TORCH]], f"{times[BAG]:.3g}x", note, seconds)}


def by_torch(bench: Bench, form: str, chosen: Sequence[int], processes: int) -> Engine:
    """Returns an engine that runs the torch loop on two cores, in `processes`
    processes.

    It returns the seconds of the slowest process, without the imports.
    """
    shares = [chosen[i::processes] for i in range(processes)]

    def engine(call: int) -> float:
        def ask(share: Sequence[int]) -> float:
            return clock.fresh(
                "later_torch",
                tiny=bench.tiny,
                form=form,
                threads=2 // processes,
                which=list(share),
            )["seconds"]

        with ThreadPoolExecutor(processes) as pool:
            return max(pool.map(ask, shares))

    return engine
