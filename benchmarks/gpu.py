"""Measures what a GPU gains from running runs side by side, and its matmul rate.

The matmul rate of a full run is compared with the GPU's own float32 rate.
"""

from __future__ import annotations

import jax

import jaxrecall

from . import clock, floor
from .bench import Bench
from .clock import medians, timed
from .record import Measured


def batched_and_matmul(bench: Bench) -> dict[str, Measured]:
    """Compares S1 as a sweep with S1 as one `simulate` call per run, and matmul rates.

    The matmul rate of R1 in the full form is compared with that of a plain matmul.
    """
    if jax.default_backend() != "gpu":
        return {
            "gpu": Measured(
                note=f"not run: jax sees {jax.devices()[0].device_kind}, no GPU"
            )
        }
    grid, runs = bench.work.S1.grid(), list(bench.work.S1.runs())

    def sweep(call: int) -> float:
        return clock.sweep(grid, bench.new_folder())[0]

    def one_by_one(call: int) -> None:
        for point, seed in runs:
            jaxrecall.simulate(point, seed)

    sweep(0)
    one_by_one(0)
    full = bench.work.R1.replace(exact="full")
    jaxrecall.simulate(full, 0)
    engines = {
        "batched": sweep,
        "one run a call": timed(one_by_one),
        "R1 full": timed(lambda call: jaxrecall.simulate(full, call)),
    }
    seconds = bench.interleaved(engines)
    at = medians(seconds)
    shapes = [(size, size, size) for size in ((256,) if bench.tiny else (4096, 8192))]
    rate = floor.best([floor.rate(*floor.matmul(*shape)) for shape in shapes]).one_call
    reached = floor.counts(full)["full"]["flops"] / at["R1 full"]
    note = (
        f"{jax.devices()[0].device_kind}: matmul {rate / 1e12:.3g} TFLOP/s at precision"
        f" highest, R1 {reached / 1e12:.3g}"
    )
    return {
        "gpu": Measured(
            [at["one run a call"] / at["batched"], 100 * reached / rate],
            note=note,
            seconds=seconds,
        )
    }
