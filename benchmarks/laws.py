"""Measures the cost of laws of tokens and embeddings.

Runs with a law are compared with the same runs with uniform tokens and gaussian
embeddings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import clock
from .bench import Bench, simulator
from .clock import Engine, medians
from .record import Measured
from .work import Sweep

EMBEDDINGS = (
    "equicorrelated(rho=0.3)",
    "power_law(alpha=0.5)",
    "clustered(clusters=8)",
    "low_rank(rank=16)",
)
WHERE: dict[str, dict[str, float]] = {
    "": {},
    " at eta 1e-4": {"eta": 1e-4},
    " at eta 1e-4, kappa 1": {"eta": 1e-4, "kappa": 1},
}
"""Settings of the small sweep.

The first is the sweep as it is. In the second, predictions before step 3 are close
enough to uniform for any law. In the third, attention is also open.
"""


def figures(bench: Bench) -> dict[str, Measured]:
    """Measures zipf tokens and four structured laws, on the large run and the small
    sweep.
    """
    run_seconds = bench.interleaved(run_engines(bench))
    sweeps = sweep_engines(bench)
    for engine in sweeps.values():
        engine(0)  # compiles
    sweep_seconds = bench.interleaved(sweeps)
    run, small = medians(run_seconds), medians(sweep_seconds)
    table = []
    for law in EMBEDDINGS:
        row = {"law": law, "large run / gaussian": run[law] / run["gaussian, uniform"]}
        for where in WHERE:
            ratio = small[f"{law}{where}"] / small[f"gaussian, uniform{where}"]
            row[f"small sweep{where} / gaussian"] = ratio
        table.append(row)
    worst = max(table, key=lambda entry: entry["large run / gaussian"])
    zipf = {name: run_seconds[name] for name in ("uniform, full", "zipf, full", "zipf")}
    tokens = {
        f"{name}{where}": sweep_seconds[f"{name}{where}"]
        for where in WHERE
        for name in ("gaussian, uniform", "zipf")
    }
    return {
        "zipf-full": Measured([run["zipf, full"] / run["uniform, full"]], seconds=zipf),
        "zipf-guarded": Measured([run["zipf"] / run["zipf, full"]], seconds=zipf),
        "zipf-S1": Measured(
            [
                small[f"zipf{where}"] / small[f"gaussian, uniform{where}"]
                for where in WHERE
            ],
            seconds=tokens,
        ),
        "structured": Measured(
            [worst["large run / gaussian"]], note=f"worst: {worst['law']}", table=table
        ),
    }


def run_engines(bench: Bench) -> dict[str, Engine]:
    """Returns the large run with each law."""
    R1 = bench.work.R1
    full = R1.replace(exact="full")
    runs: dict[str, Engine] = {
        "gaussian, uniform": simulator(R1),
        "uniform, full": simulator(full),
        "zipf": simulator(R1.replace(tokens="zipf")),
        "zipf, full": simulator(full.replace(tokens="zipf")),
    }
    return runs | {law: simulator(R1.replace(embedding=law)) for law in EMBEDDINGS}


def sweep_engines(bench: Bench) -> dict[str, Engine]:
    """Returns the small sweep with each law, at each setting of WHERE."""
    laws: dict[str, dict[str, Any]] = {
        "gaussian, uniform": {},
        "zipf": {"tokens": "zipf"},
    }
    laws |= {law: {"embedding": law} for law in EMBEDDINGS}
    S1, engines = bench.work.S1, {}
    for where, also in WHERE.items():
        for name, fields in laws.items():
            work = replace(S1, fixed={**S1.fixed, **fields, **also})
            engines[f"{name}{where}"] = sweep(bench, work)
    return engines


def sweep(bench: Bench, work: Sweep) -> Engine:
    """Returns an engine that measures the time of a sweep to its last row."""
    grid = work.grid()
    return lambda call: clock.sweep(grid, bench.new_folder())[0]
