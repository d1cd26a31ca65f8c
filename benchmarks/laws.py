"""What laws of tokens and embeddings cost: their runs over the same runs with uniform tokens and gaussian embeddings."""

from __future__ import annotations

from dataclasses import replace

from . import clock
from .bench import Bench, simulator
from .clock import Engine, medians
from .record import Measured
from .work import Sweep

EMBEDDINGS = ("equicorrelated(rho=0.3)", "power_law(alpha=0.5)", "clustered(clusters=8)", "low_rank(rank=16)")
SMALL_ETA = 1e-4
"""At which the recipe's predictions are near enough to uniform for any law."""


def figures(bench: Bench) -> dict[str, Measured]:
    """Zipf tokens on the large run and the small sweep, and four structured laws on both."""
    R1, S1 = bench.work.R1, bench.work.S1
    full = R1.replace(exact="full")
    runs: dict[str, Engine] = {"gaussian, uniform": simulator(R1), "uniform, full": simulator(full)}
    runs |= {"zipf": simulator(R1.replace(tokens="zipf")), "zipf, full": simulator(full.replace(tokens="zipf"))}
    runs |= {law: simulator(R1.replace(embedding=law)) for law in EMBEDDINGS}
    run_seconds = bench.interleaved(runs)
    sweeps = {
        name: sweep(bench, replace(S1, fixed={**S1.fixed, **fields, **eta}))
        for prefix, eta in (("", {}), (f"eta {SMALL_ETA:g}, ", {"eta": SMALL_ETA}))
        for name, fields in {
            f"{prefix}gaussian, uniform": {},
            f"{prefix}zipf": {"tokens": "zipf"},
            **{f"{prefix}{law}": {"embedding": law} for law in EMBEDDINGS},
        }.items()
    }
    for engine in sweeps.values():
        engine(0)  # compiles
    sweep_seconds = bench.interleaved(sweeps)
    run, small = medians(run_seconds), medians(sweep_seconds)
    plain, plain_eta = "gaussian, uniform", f"eta {SMALL_ETA:g}, gaussian, uniform"
    table = [
        {
            "law": law, "large run / gaussian": run[law] / run[plain], "small sweep / gaussian": small[law] / small[plain],
            f"small sweep at eta {SMALL_ETA:g} / gaussian": small[f"eta {SMALL_ETA:g}, {law}"] / small[plain_eta],
        }
        for law in EMBEDDINGS
    ]  # fmt: skip
    zipf = {name: run_seconds[name] for name in ("uniform, full", "zipf, full", "zipf")}
    zipf_sweeps = {name: sweep_seconds[name] for name in (plain, "zipf", plain_eta, f"eta {SMALL_ETA:g}, zipf")}
    worst = max(table, key=lambda entry: entry["large run / gaussian"])
    return {
        "zipf-full": Measured([run["zipf, full"] / run["uniform, full"]], seconds=zipf),
        "zipf-guarded": Measured([run["zipf"] / run["zipf, full"]], seconds=zipf),
        "zipf-S1": Measured([small["zipf"] / small[plain], small[f"eta {SMALL_ETA:g}, zipf"] / small[plain_eta]], seconds=zipf_sweeps),
        "structured": Measured([worst["large run / gaussian"]], note=f"worst: {worst['law']}", table=table),
    }


def sweep(bench: Bench, work: Sweep) -> Engine:
    """A sweep's time to its last row."""
    grid = work.grid()
    return lambda call: clock.sweep(grid, bench.new_folder())[0]
