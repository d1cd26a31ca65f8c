"""Measures runs and sweeps against the peers and the floor; each function returns its
rows.

The groups are R1, R2, S1 warm and cold, S2, memory, and the fit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

import jaxrecall

from . import clock, floor
from .bench import (
    BAG,
    FULL,
    OURS,
    TORCH,
    Bench,
    against_torch,
    simulator,
    torch_engines,
)
from .clock import Engine, medians
from .record import Measured
from .work import Sweep


def r1(bench: Bench) -> dict[str, Measured]:
    """Measures one run, guarded and in full, against the torch loop and the floor."""
    point = bench.work.R1
    bench.log("rates of the primitives")
    rates = floor.rates(point, bench.tiny)
    engines = torch_engines(lambda call: [(point, call)])
    engines |= {OURS: simulator(point), FULL: simulator(point.replace(exact="full"))}
    seconds = bench.interleaved(engines)
    terms = [
        {
            "form": form,
            "term": floor.UNITS[name],
            "count": count,
            "rate": rates[name].one_call,
            "seconds": count / rates[name].one_call,
            "rate_all_cores": rates[name].all_cores,
        }
        for form, counts in floor.counts(point).items()
        for name, count in counts.items()
    ]
    least = {
        form: floor.seconds(counts, rates)
        for form, counts in floor.counts(point).items()
    }
    at = medians(seconds)
    form = jaxrecall.simulate(point, 0)["form"]
    one, every = least["guarded"]
    note = (
        f"floor {one:.3g} s, {every:.3g} s at the rates of one call a core (then"
        f" {at[OURS] / every:.2f})"
    )
    full_note = (
        f"floor of the full form {least['full'][0]:.3g} s: jaxrecall / floor"
        f" {at[FULL] / least['full'][0]:.2f}"
    )
    return {
        "R1": against_torch(seconds, note=f"form {form}"),
        "R1-full": against_torch(seconds, FULL, note=full_note),
        "R1-floor": Measured(
            [at[OURS] / one], note=note, seconds={OURS: seconds[OURS]}, floor=terms
        ),
    }


def r2(bench: Bench) -> dict[str, Measured]:
    """Measures one run with an MLP."""
    point = bench.work.R2
    engines = torch_engines(lambda call: [(point, call)]) | {OURS: simulator(point)}
    seconds = bench.interleaved(engines)
    return {
        "R2": against_torch(
            seconds, note=f"form {jaxrecall.simulate(point, 0)['form']}"
        )
    }


def s1(bench: Bench) -> dict[str, Measured]:
    """Measures the small sweep, warm: the time to its last row once compiled."""
    grid = bench.work.S1.grid()
    whole: list[float] = []

    def sweep(call: int) -> float:
        seconds, all_of_it = clock.sweep(grid, bench.new_folder())
        whole.append(all_of_it)
        return seconds

    sweep(0)
    runs = list(bench.work.S1.runs())
    seconds = bench.interleaved(torch_engines(lambda call: runs) | {OURS: sweep})
    note = (
        f"{len(runs)} runs; to the last row, with the picture"
        f" {np.median(whole[1:]):.3g} s"
    )
    return {"S1-warm": against_torch(seconds, note=note)}


def cold(bench: Bench) -> dict[str, Measured]:
    """Measures the small sweep in fresh processes, and the programs that they compile.

    Each process has an empty compile cache, except the second process of jaxrecall,
    which uses the cache of the first.
    """
    answers: dict[str, list[dict[str, Any]]] = {}
    cache, again = "", "jaxrecall, second process"

    def ask(name: str, task: str, **arguments: Any) -> Engine:
        def engine(call: int) -> float:
            nonlocal cache
            if name != again:
                cache = tempfile.mkdtemp(dir=bench.folder)
            answer = clock.fresh(task, cache, tiny=bench.tiny, **arguments)
            answers.setdefault(name, []).append(answer)
            return answer["seconds"]

        return engine

    seconds = bench.interleaved({OURS: ask(OURS, "cold_jaxrecall")})
    seconds |= bench.interleaved(
        {again: ask(again, "cold_jaxrecall"), "jax loop": ask("jax loop", "cold_jax")},
        1,
    )
    if torch_engines(lambda call: []):
        forms = {
            TORCH: ask(TORCH, "cold_torch", form="keys"),
            BAG: ask(BAG, "cold_torch", form="bag"),
        }
        seconds |= bench.interleaved(forms, 1)
    modes = {"light": True, "thorough": False}
    compiling = bench.interleaved(
        {name: ask(name, "compiling", light=light) for name, light in modes.items()}
    )
    accuracy = ", ".join(
        f"{name} {mean(a['accuracy'] for a in some):.4f}"
        for name, some in answers.items()
        if name not in modes
    )
    at = medians(seconds)
    return {
        "S1-cold-torch": against_torch(seconds, note=f"mean accuracy: {accuracy}"),
        "S1-cold-jax": Measured(
            [at["jax loop"] / at[OURS]],
            seconds={name: seconds[name] for name in ("jax loop", OURS)},
        ),
        "compiling": Measured(list(medians(compiling).values()), seconds=compiling),
        "programs": planned_programs(bench, answers[OURS]),
        "second": Measured(
            [max(len(a["programs"]) for a in answers[again])],
            note="S1",
            seconds={again: seconds[again]},
        ),
    }


def planned_programs(bench: Bench, answers: list[dict[str, Any]]) -> Measured:
    """The number of programs that are planned for the two sweeps, and compiled for the
    first.
    """
    works = (bench.work.S1, bench.work.S2)
    small, large = (
        clock.dry_run(work.grid(), bench.folder)["programs"] for work in works
    )
    names = [answer["programs"] for answer in answers]
    compiled = max(map(len, names))
    note = (
        f"planned {small}, {large}; compiled by S1 in a fresh process: {compiled}"
        f" ({', '.join(names[-1])})"
    )
    return Measured([max(compiled, small), large], note=note)


def s2(bench: Bench) -> dict[str, Measured]:
    """Measures a sample of the lab's sweep, in the programs planned for the whole
    sweep.
    """
    S2 = bench.work.S2
    bench.log("planning all of S2")
    plan = clock.dry_run(S2.grid(), bench.folder)
    samples = by_program(
        S2, bench.work.S2_cells, [entry["bucket"] for entry in plan["program_list"]]
    )
    points = [point for sample in samples.values() for point in sample.points()]

    def sweep(call: int) -> float:
        return sum(
            clock.sweep(sample.grid(), bench.new_folder(), "--bucket", shape)[0]
            for shape, sample in samples.items()
        )

    sweep(0)
    runs = [(point, 0) for point in points]
    seconds = bench.interleaved(
        torch_engines(lambda call: runs), 1
    ) | bench.interleaved({OURS: sweep})
    planned = [
        clock.dry_run(sample.grid(), bench.folder, "--bucket", shape)
        for shape, sample in samples.items()
    ]
    of_sample = sum(
        entry["est_seconds"] for part in planned for entry in part["program_list"]
    )
    of_all = sum(entry["est_seconds"] for entry in plan["program_list"])
    n, all_runs = len(points) * S2.seeds, plan["runs"]
    note = (
        f"{len(points)} of {plan['points']} points: every N of"
        f" {len(bench.work.S2_cells)} (V, d, L), each d once, each V twice, every L;"
        f" {S2.seeds} seeds each, the torch loop one; {n / all_runs:.1%} of the runs,"
        f" {of_sample / of_all:.1%} of the estimated cost;"
        f" {n / medians(seconds)[OURS]:.3g} runs a second in {len(samples)} of"
        f" {plan['programs']} programs"
    )
    return {"S2-warm": against_torch(seconds, scale=S2.seeds, note=note)}


def by_program(
    sweep: Sweep, cells: Sequence[tuple[int, int, int]], shapes: Sequence[str]
) -> dict[str, Sweep]:
    """Assigns each cell to the smallest program "VxD" that it fits."""
    sizes = {shape: tuple(map(int, shape.split("x")[:2])) for shape in shapes}
    groups: dict[str, list[tuple[int, int, int]]] = {}
    for V, d, L in cells:
        fitting = [
            shape
            for shape, (wide_V, wide_d) in sizes.items()
            if V <= wide_V and d <= wide_d
        ]
        smallest = min(fitting, key=lambda shape: sizes[shape][0] * sizes[shape][1])
        groups.setdefault(smallest, []).append((V, d, L))
    return {shape: sweep.sample(group) for shape, group in groups.items()}


def fit(bench: Bench) -> dict[str, Measured]:
    """Measures the fit of a large table in its own process; with --tiny, of a small
    one.
    """
    done = clock.fresh("fit", seeds=8 if bench.tiny else 521)
    bench.log(f"{done['rows']} rows in {done['seconds']:.1f} s")
    return {
        "fit": Measured(
            [done["seconds"], done["peak_bytes"] / 2**30],
            note=f"{done['rows']} rows, 120 cells, 16 levels",
        )
    }


def memory(bench: Bench) -> dict[str, Measured]:
    """Measures peak memory and time against N, with a fresh process for each N.

    The processes load their program from a cache. Compiling needs more memory than
    running, and its use varies by 10 %, which would hide the growth with N.
    """
    point, N = bench.work.memory, bench.work.memory_N
    cache = tempfile.mkdtemp(dir=bench.folder)
    clock.fresh("size", tiny=bench.tiny, N=N[0], cache=cache)
    peaks = [
        clock.fresh("size", tiny=bench.tiny, N=n, cache=cache)["peak_bytes"] / 2**20
        for n in N
    ]
    bench.log(f"peaks {', '.join(f'{peak:.1f}' for peak in peaks)} MiB")
    seconds = bench.interleaved(
        {f"N = {n:.0e}": simulator(point.replace(N=n)) for n in N}
    )
    slope = float(np.polyfit(np.log(N), np.log(list(medians(seconds).values())), 1)[0])
    note = (
        f"{', '.join(f'{peak:.1f}' for peak in peaks)} MiB for N ="
        f" {', '.join(f'{n:.0e}' for n in N)}, programs from the compile cache"
    )
    return {
        "memory": Measured([peaks[-1] / peaks[0]], note=note),
        "slope": Measured([slope], seconds=seconds),
    }
