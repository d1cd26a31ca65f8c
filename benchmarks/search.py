"""Threshold search against a dense grid: samples simulated for the same width of the same estimator's interval."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy import optimize, stats

import jaxrecall

from . import clock
from .report import Measured
from .work import Work

if TYPE_CHECKING:
    from .figures import Bench

THETA = 0.5
WINDOW = np.log(2.0)


def grids(work: Work) -> tuple[str, str]:
    """The dense grid, and the same cell as a search over the same range of N: the one place that knows how a grid asks for it."""
    dense = yaml.safe_load(work.search.grid())
    search = yaml.safe_load(work.search.grid())
    N = search["blocks"][0]["axes"].pop("N")
    search["search"] = {"axis": "N", "theta": THETA, "from": min(N), "to": max(N)}
    return yaml.safe_dump(dense), yaml.safe_dump(search)


def against_dense(bench: Bench) -> dict[str, Measured]:
    """Both designs on one cell, by the sweep."""
    schema = subprocess.run([sys.executable, "-m", "jaxrecall.sweep", "--print-schema"], check=True, capture_output=True, text=True)
    if "search" not in json.loads(schema.stdout)["properties"]:
        return {"search": Measured(note="not run: this version's grids know no search")}
    frames, seconds = [], {}
    for name, grid in zip(("dense grid", "search"), grids(bench.work), strict=True):
        folder = bench.new_folder()
        seconds[name] = [clock.sweep(grid, folder)[0]]
        frames.append(jaxrecall.load(folder))
        bench.tell(f"{name}: {len(frames[-1])} runs, {frames[-1]['N'].sum():.3g} samples, {seconds[name][0]:.3g} s")
    dense, search = (interval(frame, THETA) for frame in frames)
    samples = [float(frame["N"].sum()) for frame in frames]
    cost = [n * found.width**2 for n, found in zip(samples, (dense, search), strict=True)]
    note = ", ".join(
        f"{name}: {n:.3g} samples, {found.seeds} seeds, N* {np.exp(found.ln_N):.0f}, width {found.width:.3f} in ln N"
        for name, n, found in zip(seconds, samples, (dense, search), strict=True)
    )
    return {"search": Measured([cost[0] / cost[1]], note=f"samples x width^2; accuracy {THETA}; {note}", seconds=seconds)}


class Interval(NamedTuple):
    """ln N at which accuracy crosses theta: the mean over seeds and its 95 % t interval."""

    ln_N: float
    lo: float
    hi: float
    seeds: int

    @property
    def width(self) -> float:
        """More seeds narrow it as their number's root: samples times squared width compares designs at equal width."""
        return self.hi - self.lo


def interval(frame: pd.DataFrame, theta: float) -> Interval:
    """Where accuracy crosses theta, in ln N, from the rows of one cell; seeds are the independent units.

    The mean curve over seeds, made monotone, says about where. From the rows within an octave of it, each seed gets its own
    crossing by a line in ln N; the slope is shared (within seeds), since a search need not bracket theta in every seed.
    Raises ValueError when theta is not crossed, or by fewer than two seeds.
    """
    curve = frame.groupby("N")["accuracy"].agg(["mean", "size"]).sort_index()
    x, y = np.log(curve.index.to_numpy(float)), optimize.isotonic_regression(curve["mean"], weights=curve["size"]).x
    above = int(np.searchsorted(y, theta))
    if not 0 < above < len(y):
        raise ValueError(f"theta: the mean accuracy goes from {y[0]:.3f} to {y[-1]:.3f} and does not cross {theta}")
    centre = x[above - 1] + (theta - y[above - 1]) / (y[above] - y[above - 1]) * (x[above] - x[above - 1])

    near = pd.DataFrame({"seed": frame["seed"], "x": np.log(frame["N"].astype(float)) - centre, "y": frame["accuracy"] - theta})
    near = near[near["x"].abs() <= WINDOW]
    of_seed: Any = near.groupby("seed")[["x", "y"]]
    within, means = near[["x", "y"]] - of_seed.transform("mean"), of_seed.mean()
    slope = (within["x"] * within["y"]).sum() / (within["x"] ** 2).sum()
    crossings = centre + means["x"] - means["y"] / slope
    if len(crossings) < 2 or not slope > 0:
        raise ValueError(f"theta: {len(crossings)} seeds and slope {slope:.3g} near {theta}; allowed: two seeds or more, a rising curve")
    mean, half = float(crossings.mean()), float(stats.sem(crossings) * stats.t.ppf(0.975, len(crossings) - 1))
    return Interval(mean, mean - half, mean + half, len(crossings))
