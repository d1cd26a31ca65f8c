"""Compares a threshold search with a dense grid.

The figure is the number of simulated samples for the same width of the interval. Both
use the same estimator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, stats

import jaxrecall

from . import clock
from .bench import Bench
from .record import Measured
from .work import Document, points

THETA = 0.5
SEEDS = 400  # the most seeds that the search may use
CELL = ["V", "d", "L"]
WINDOW = np.log(2.0)


def search_grid(dense: Document, width: float) -> Document:
    """Returns the cells of a dense grid as the grid of a search over the same N."""
    N = [point.N for point in points(dense)]
    cells = dense["blocks"][0]["axes"]["zip"]
    return {
        **dense,
        "seeds": SEEDS,
        "blocks": [{"axes": {"zip": cells}}],
        "search": {
            "axis": "N",
            "theta": THETA,
            "from": min(N),
            "to": max(N),
            "width": min(round(width, 3), 5.0),
        },
    }


def against_dense(bench: Bench) -> dict[str, Measured]:
    """Runs both designs on the same cells with the sweep.

    The requested width of the search is the median width that the dense grid reached.
    """

    def rows(name: str, grid: Document) -> pd.DataFrame:
        folder = bench.new_folder()
        took = clock.sweep(grid, folder)
        frame: Any = jaxrecall.load(folder)
        bench.log(
            f"{name}: {len(frame)} runs, {frame['N'].sum():.3g} samples, {took:.3g} s"
            " with compilation"
        )
        return frame

    grid = bench.work.grid("dense")
    dense = rows("dense grid", grid)
    widths = [interval(cell, THETA).width for _, cell in dense.groupby(CELL)]
    search = rows("search", search_grid(grid, float(np.median(widths))))
    ratio, remarks = samples_ratio(dense, search, THETA)
    note = (
        f"N for accuracy {THETA} in {', '.join(remarks)}; {grid['seeds']} seeds and"
        f" {dense['N'].nunique()} N a dense cell"
    )
    return {"search": Measured([ratio], note=note)}


def samples_ratio(dense: Any, search: Any, theta: float) -> tuple[float, list[str]]:
    """Returns the ratio of samples, dense design over search, and a remark for each
    cell.

    The samples of the dense design are scaled to the widths of the search. The width of
    an interval is inverse to the square root of the number of seeds, so the samples of
    a design are proportional to width^-2.
    """
    needed, remarks = 0.0, []
    for (V, d, L), cell in search.groupby(CELL):
        there = dense[(dense["V"] == V) & (dense["d"] == d) & (dense["L"] == L)]
        wide, narrow = interval(there, theta), interval(cell, theta)
        needed += float(there["N"].sum()) * (wide.width / narrow.width) ** 2
        remarks.append(
            f"V {V} d {d} L {L}: {np.exp(wide.ln_N):.0f} dense ({there['N'].sum():.3g}"
            f" samples, width {wide.width:.2f}), {np.exp(narrow.ln_N):.0f} search"
            f" ({cell['N'].sum():.3g}, {narrow.width:.2f})"
        )
    return needed / float(search["N"].sum()), remarks


class Interval(NamedTuple):
    """ln N at which accuracy crosses theta: the mean over seeds, and its 95 % t
    interval.
    """

    ln_N: float
    lo: float
    hi: float
    seeds: int

    @property
    def width(self) -> float:
        return self.hi - self.lo


def interval(frame: pd.DataFrame, theta: float) -> Interval:
    """Estimates ln N at which accuracy crosses theta from the rows of one cell.

    Seeds are the independent units. The mean curve over seeds, made monotone, gives a
    first estimate. Each seed then gets its own crossing, from a line in ln N through
    its rows within an octave of that estimate. All seeds share the slope of this line
    (within seeds), since a search need not bracket theta in every seed. Raises
    ValueError if the mean does not cross theta, or if there are fewer than two seeds.
    """
    curve = frame.groupby("N")["accuracy"].agg(["mean", "size"]).sort_index()
    x = np.log(curve.index.to_numpy(float))
    y = optimize.isotonic_regression(curve["mean"], weights=curve["size"]).x
    above = int(np.searchsorted(y, theta))
    if not 0 < above < len(y):
        raise ValueError(
            f"theta: the mean accuracy goes from {y[0]:.3f} to {y[-1]:.3f} and does not"
            f" cross {theta}"
        )
    centre = x[above - 1] + (theta - y[above - 1]) / (y[above] - y[above - 1]) * (
        x[above] - x[above - 1]
    )

    near = pd.DataFrame(
        {
            "seed": frame["seed"],
            "x": np.log(frame["N"].astype(float)) - centre,
            "y": frame["accuracy"] - theta,
        }
    )
    near = near[near["x"].abs() <= WINDOW]
    of_seed: Any = near.groupby("seed")[["x", "y"]]
    within, means = near[["x", "y"]] - of_seed.transform("mean"), of_seed.mean()
    slope = (within["x"] * within["y"]).sum() / (within["x"] ** 2).sum()
    crossings = centre + means["x"] - means["y"] / slope
    if len(crossings) < 2 or not slope > 0:
        raise ValueError(
            f"theta: {len(crossings)} seeds and slope {slope:.3g} near {theta};"
            " allowed: two seeds or more, a rising curve"
        )
    mean = float(crossings.mean())
    half = float(stats.sem(crossings) * stats.t.ppf(0.975, len(crossings) - 1))
    return Interval(mean, mean - half, mean + half, len(crossings))
