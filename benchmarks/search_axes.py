"""python -m benchmarks.search_axes: compares searches along d, m, V and L with dense
grids.

The dense grids have the same cells and other seeds.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import pandas as pd
from scipy.stats import t as student

import jaxrecall
from jaxrecall.model.law_parameters import make_point
from jaxrecall.model.point import FIELDS
from jaxrecall.sweep.simulators import SimulatorLike, program_of
from jaxrecall.sweep.simulators.shipped import RECALL

BASE = {
    "pool": 64,
    "n_test": 512,
    "embedding": "sphere",
    "trigger_in_value": False,
    "streams": "independent",
}
LATER = {"steps": 10, "optimizer": "adam", "lr": 0.03, "gamma2": 64}
WIDTH, MAX_RUNS = 0.15, 1000
DENSE_SEEDS = 64
OURS: SimulatorLike = RECALL
STUDIES: dict[str, tuple[tuple[int, int], list[dict[str, Any]]]] = {
    "d": (
        (2, 128),
        [{"V": V, "L": 8, "N": 16 * V} for V in (16, 32, 64)]
        + [
            {"V": 32, "L": 64, "N": 4096},
            {"V": 64, "L": 4, "N": 512},
            {"V": 32, "L": 8, "N": 256, **LATER},
        ],
    ),
    "m": (
        (4, 256),
        [
            {
                "V": 64,
                "L": 8,
                "N": 4096,
                "kappa": 3000,
                "activation": "quadratic",
                "d": d,
            }
            for d in (16, 24, 32)
        ]
        + [
            {"V": 64, "L": 8, "N": 4096, "kappa": 3000, "activation": "tanh", "d": d}
            for d in (28, 32)
        ]
        + [
            {
                "V": 64,
                "L": 8,
                "N": 4096,
                "kappa": 3000,
                "activation": "quadratic",
                "d": 16,
                **LATER,
            }
        ],
    ),
    "V": (
        (8, 512),
        [
            {"d": d, "L": 8, "N": N}
            for d, N in ((16, 1024), (16, 4096), (24, 1024), (24, 4096), (32, 1024))
        ]
        + [{"d": 8, "L": 8, "N": 1024, **LATER}],
    ),
    "L": (
        (8, 512),
        [
            {"V": 32, "d": d, "N": N}
            for d, N in ((32, 1024), (48, 512), (48, 1024), (64, 512), (64, 1024))
        ]
        + [{"V": 32, "d": 48, "N": 512, **LATER}],
    ),
}
"""Axis -> its range, and its six cells, the last of which has further steps."""


def compared(axis: str, low: int, high: int, cell: dict[str, Any]) -> dict[str, Any]:
    """Compares the crossing of one cell by a search with that by a dense grid.

    The grid covers the same range as the search. Crossings are compared in ln of the
    axis. The result also contains the cost of both. `dense_flops` is the cost of a
    dense grid for an interval as wide as the search's. Its scaling assumes that a width
    is inverse to the square root of the number of seeds.
    """
    grid = {"base": BASE | cell}
    search = {
        "axis": axis,
        "from": low,
        "to": high,
        "width": WIDTH,
        "max_runs": MAX_RUNS,
    }
    found = jaxrecall.run(grid | {"seeds": 500, "search": search}, progress=False)
    one = jaxrecall.thresholds(found).iloc[0]
    dense = densely(grid, axis, low, high)
    last = dense[dense["step"] == dense["steps"]]
    other = jaxrecall.fit.fit(last, [0.5], along=axis).thresholds.iloc[0]
    halves = [math.log(row["hi"] / row["lo"]) / 2 for row in (one, other)]
    errors = [
        half / student.ppf(0.975, n - 1)
        for half, n in zip(halves, (one["seeds"], other["n_seeds"]), strict=True)
    ]
    off = math.log(one["critical"] / other["critical"])
    costs = [flops(frame) for frame in (found, dense)]
    trained = found["form"].str.split("[+,]").str[0]
    programs = found.assign(trained=trained)[["bucket", "trained"]].drop_duplicates()
    names = ("V", "d", "L", "N", "activation", "steps")
    return {
        "axis": axis,
        **{name: cell.get(name) for name in names},
        "search": one["critical"],
        "outcome": one["outcome"],
        "runs": one["runs"],
        "grid": other["critical"],
        "off": off,
        "standard_errors": off / math.hypot(*errors),
        "inside": abs(off) <= math.hypot(*halves),
        "flops": costs[0],
        "dense_flops": costs[1] * (halves[1] / halves[0]) ** 2,
        "programs": len(programs),
        **seconds(found),
    }


def densely(grid: dict[str, Any], axis: str, low: int, high: int) -> Any:
    """Runs the dense grid, with two levels per octave."""
    n_levels = int(2 * math.log2(high / low)) + 1
    levels = sorted({round(low * 2 ** (i / 2)) for i in range(n_levels)})
    seeds = {"start": 1000, "count": DENSE_SEEDS}
    blocks = [{"axes": {axis: levels}}]
    return jaxrecall.run(grid | {"seeds": seeds, "blocks": blocks}, progress=False)


def points(frame: Any) -> list[Any]:
    """Returns the point of each run."""
    last = frame[frame["step"] == frame["steps"]]
    names = [
        name
        for name in FIELDS
        if name in last and name not in ("kappa", "lr_attention")
    ]
    return [
        make_point({name: value for name, value in row.items() if not pd.isna(value)})
        for row in last[names].astype(object).to_dict("records")
    ]


def flops(frame: Any) -> float:
    """The estimated flops of the runs of a table, each at its own sizes."""
    return sum(
        OURS.cost(program_of(OURS, point), point).flops for point in points(frame)
    )


def seconds(frame: Any) -> dict[str, float]:
    """The estimated time of the runs in their programs, and at their own sizes.

    Neither includes compiling.
    """
    buckets = frame[frame["step"] == frame["steps"]]["bucket"]
    padded = exact = 0.0
    for point, bucket in zip(points(frame), buckets, strict=True):
        V, d, m = (*map(int, bucket.split("x")), 0)[:3]
        padded += OURS.cost(program_of(OURS, point, (V, d, m)), point).seconds
        exact += OURS.cost(program_of(OURS, point), point).seconds
    return {"seconds": padded, "exact_seconds": exact}


def main(axes: list[str]) -> None:
    rows = []
    for axis in axes or STUDIES:
        (low, high), cells = STUDIES[axis]
        for cell in cells:
            rows.append(compared(axis, low, high, cell))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.round(3).to_string())
    print(
        f"largest |search - grid|: {table['standard_errors'].abs().max():.2f} combined"
        " standard errors"
    )
    print(f"within the 95 % interval: {table['inside'].sum()} of {len(table)}")
    ratios = table["dense_flops"] / table["flops"]
    padding = table["seconds"] / table["exact_seconds"]
    in_all = table["dense_flops"].sum() / table["flops"].sum()
    print(
        f"flops, dense over search at equal width: {in_all:.1f} in all, median"
        f" {ratios.median():.1f}, least {ratios.min():.1f}"
    )
    total = table["seconds"].sum() / table["exact_seconds"].sum()
    worst = table.loc[padding.idxmax()]
    print(
        "programs of a search, those for runs that are rejected included: at most"
        f" {table['programs'].max()}"
    )
    print(
        f"computation over that at exact sizes: {total:.2f} in all,"
        f" {padding.median():.2f} in the median, {padding.max():.2f} at most"
    )
    print(
        f"the search with most padding: {worst['seconds']:.2f} s instead of"
        f" {worst['exact_seconds']:.2f} s, along {worst['axis']}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
