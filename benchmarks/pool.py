"""Measures runs with a pool: against the exact run, against N and L, and against a
floor.

The floor is the time of the matrix products and draws of the runs.
"""

from __future__ import annotations

import tempfile
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from jaxrecall import Point
from jaxrecall.model import keys
from jaxrecall.model.point import in_the_limit

from . import clock, floor
from .bench import Bench, simulator
from .clock import medians
from .record import Measured
from .work import Sweep


def figures(bench: Bench) -> dict[str, Measured]:
    return against_exact(bench) | slopes(bench) | memory(bench) | against_floor(bench)


def against_exact(bench: Bench) -> dict[str, Measured]:
    """Measures the exact run of the same point at a smaller N, with its time scaled by
    N.
    """
    point, N = bench.work.pool, bench.work.pool_exact_N
    exact = point.replace(pool=None, N=N)
    seconds = bench.interleaved({"exact": simulator(exact), "pool": simulator(point)})
    at = medians(seconds)
    note = (
        f"the exact run measured at N = {N} and scaled by {point.N / N:.0f}:"
        f" {at['exact'] * point.N / N:.3g} s"
    )
    return {
        "pool": Measured(
            [at["exact"] * point.N / N / at["pool"]], note=note, seconds=seconds
        )
    }


def slopes(bench: Bench) -> dict[str, Measured]:
    """The log-log slopes of the time of a run against N and against L."""
    found = {}
    for key, name, values in (
        ("pool-N", "N", bench.work.pool_N),
        ("pool-L", "L", bench.work.pool_L),
    ):
        seconds = bench.interleaved(
            {
                f"{name} = {v:.0e}": simulator(bench.work.pool.replace(**{name: v}))
                for v in values
            }
        )
        times = list(medians(seconds).values())
        note = f"slowest over fastest {max(times) / min(times):.2g}"
        found[key] = Measured(
            [float(np.polyfit(np.log(values), np.log(times), 1)[0])],
            note=note,
            seconds=seconds,
        )
    return found


def memory(bench: Bench) -> dict[str, Measured]:
    """The ratio of peak memory at large N and L to that at small N and L.

    Each run is in a fresh process, with its program from the compile cache.
    """
    cache = tempfile.mkdtemp(dir=bench.folder)
    ends: list[dict[str, Any]] = [
        {"N": bench.work.pool_N[0], "L": bench.work.pool_L[0]},
        {"N": 10**15, "L": 10**9},
    ]
    clock.fresh("pool_size", tiny=bench.tiny, cache=cache, **ends[0])
    peaks = [
        clock.fresh("pool_size", tiny=bench.tiny, cache=cache, **end)["peak_bytes"]
        / 2**20
        for end in ends
    ]
    note = "; ".join(
        f"{peak:.1f} MiB at N = {end['N']:.0e}, L = {end['L']:.0e}"
        for peak, end in zip(peaks, ends, strict=True)
    )
    return {"pool-memory": Measured([peaks[1] / peaks[0]], note=note)}


def against_floor(bench: Bench) -> dict[str, Measured]:
    """Measures a sweep over many seeds of a point against its floor.

    The floor is the least time that its products and draws need on all cores.
    """
    point, n = bench.work.pool_many, bench.work.pool_seeds
    fixed = {"pool": point.pool, "n_test": point.n_test}
    grid = Sweep(
        "pool",
        n,
        {name: [getattr(point, name)] for name in ("V", "d", "L", "N")},
        fixed=fixed,
    ).grid()
    clock.sweep(grid, bench.new_folder())
    bench.log("rates of the primitives")
    rates = floor.rates(point.replace(L=min(point.L, 64), pool=None, N=2), bench.tiny)
    rates["normals"] = floor.best(
        [floor.rate(*normals(rows, point.V)) for rows in (128, 512, 2048)]
    )
    counts = least(point)
    seconds = bench.interleaved(
        {"sweep": clock.timed(lambda call: clock.sweep(grid, bench.new_folder()))}
    )
    of_run = {name: count / rates[name].all_cores for name, count in counts.items()}
    total = n * sum(of_run.values())
    terms = ", ".join(f"{name} {1e3 * s:.2g}" for name, s in of_run.items())
    note = (
        f"{n} runs of N = {point.N:.0e}, L = {point.L}; floor {total:.3g} s on all"
        f" cores, ms a run: {terms}"
    )
    return {
        "pool-floor": Measured(
            [medians(seconds)["sweep"] / total], note=note, seconds=seconds
        )
    }


def least(point: Point) -> dict[str, float]:
    """The smallest numbers of operations of a run with a pool, open attention and m =
    0.

    Steps 1 to 3 need seven products of V x K by d. Test sequences need their mean
    values, answers and logits.
    """
    V, N, d, L, K, n = point.V, point.N, point.d, point.L, point.pool, point.n_test
    assert K
    drawn = [(N, V * K), (K * (L - 1), K * V), (n * (L - 1), n * V)]
    one_by_one = [draws for draws, cells in drawn if not in_the_limit(draws, cells)]
    return {
        "words": sum(one_by_one) + 2 * n + (N if N in one_by_one else 0),
        "sums": sum(one_by_one),
        "normals": (
            2 * (V + 1) * d
            + sum(cells for draws, cells in drawn if in_the_limit(draws, cells))
        ),
        "exps": 2 * K * V + n * V,
        "flops": 2 * d * (7 * V * K + n * V + 2 * n * V + 4 * V * d),
    }


def normals(rows: int, width: int) -> tuple[Any, float]:
    """Draws jaxrecall's own normal numbers in a loop, with a row per key."""
    loops = max(1, 2**21 // (rows * width))

    @jax.jit
    def draw(key: Array) -> Array:
        def again(i: Array, total: Array) -> Array:
            return total + keys.normals(keys.rows(keys.further(key, i), rows), width)

        return lax.fori_loop(1, loops, again, keys.normals(keys.rows(key, rows), width))

    key = jax.random.key_data(jax.random.key(0))
    return lambda: draw(key), loops * rows * width
