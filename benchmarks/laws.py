"""What laws of tokens and embeddings cost: their runs over the same runs with uniform
tokens and gaussian embeddings.
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
"""The small sweep as it is; with predictions before step 3 that are near enough to
uniform for any law; and with open attention too.
"""


def figures(bench: Bench) -> dict[str, Measured]:
    """Zipf tokens on the large run and the small sweep, and four structured laws on
    both.
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
    """The large run with each law."""
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
    """The small sweep with each law, at each setting of WHERE."""
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
    """A sweep's time to its last row."""
    grid = work.grid()
    return lambda call: clock.sweep(grid, bench.new_folder())[0]
