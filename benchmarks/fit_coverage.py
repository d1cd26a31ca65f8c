"""python -m benchmarks.fit_coverage: measures how often 95 % intervals contain the
truth.

The intervals are fitted to tables with known N* and exponents. Each replicate draws new
exponents, levels, slopes, ceilings and seeds, and then counts of right answers. A seed
shifts all curves together, and also each curve by itself. Answers are overdispersed
besides.

Some cells level off below theta, some have too small or too large N, and some rise
within one step. In some settings, some cells are copies of others. Curves of a table
differ in slope and ceiling but share one of three shapes.

The last settings have N* that obeys no power law. The distance from the best law is
five times the noise. Each line also has the share of laws that are rejected.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, logit

from jaxrecall.analysis.fit.cells import Cell, Family
from jaxrecall.analysis.fit.compare import comparison
from jaxrecall.analysis.fit.estimate import Estimates, curve
from jaxrecall.analysis.fit.tables import exponents, thresholds
from jaxrecall.sweep.crossing import EDGE, cloglog, loglog

SHAPES = {
    "logit": (expit, logit),
    "cloglog": (lambda z: -np.expm1(-np.exp(np.minimum(z, 30))), cloglog),
    "loglog": (lambda z: np.exp(-np.exp(np.minimum(-z, 30))), loglog),
}
MISFITS = {
    "floor": lambda x: np.logaddexp(0, 2 * x),
    "bend": np.square,
    "kink": lambda x: np.maximum(0, x),
    "one size off": lambda x: np.where(x == x.max(), 1.0, 0.0),
}
"""The kinds of misfit -> ln N* less a power law of d, up to a factor, as a function of
ln d - mean(ln d).
"""
AXES = {"V": (64, 128, 256), "d": (32, 64, 128, 256), "L": (8, 32)}
STEP = {4: 3.0, 6: 2.5, 8: 2.0, 12: 1.6}
"""The number of levels per cell -> the factor from one N to the next."""


@dataclass(frozen=True)
class Setting:
    """How tables are drawn: seeds, levels, slopes, and the shares of unusual cells.

    Seeds and levels are drawn from the given values. Slopes are those of logit p in ln
    N.
    """

    seeds: tuple[int, ...] = (8, 16)
    levels: tuple[int, ...] = tuple(STEP)
    theta: float = 0.5
    slope: tuple[float, float] = (1.0, 3.0)
    one_step: float = 0.1  # share of the cells that rise within one step
    plateau: float = (
        0.7  # the share that levels off below theta, among cells at the smallest d
    )
    ceiling: float = (
        0.75  # the smallest ceiling of the other cells; half of them have the ceiling 1
    )
    censored: float = (
        0.25  # spread of the levels around N*, as a share of half their range
    )
    seed_shift: float = (
        0.2  # standard deviation of a seed's shift of ln N*, common to all curves
    )
    own_shift: float = 0.15  # the same, for each curve by itself
    correlation: float = 0.01  # between the answers of one seed, beta-binomial
    n_test: int = 2048
    # the share of copies among the cells at the larger L; above 0, L has exponent 0
    copies: float = 0.0
    axes: tuple[str, ...] = tuple(AXES)  # those that vary
    misfit: str = ""
    times: float = 5.0  # the misfit over the noise, if there is a misfit


@dataclass(frozen=True)
class Truth:
    family: Family
    exponents: np.ndarray
    # N at which the mean over seeds crosses theta; infinite if it never does
    N_star: np.ndarray

    def frame(self) -> Any:
        """Returns the same table as a DataFrame of runs."""
        import pandas as pd

        rows = []
        for cell in self.family.cells:
            for (level, seed), k in np.ndenumerate(cell.k):
                rows.append(
                    cell.at
                    | {
                        "N": cell.N[level],
                        "seed": seed,
                        "n_test": int(cell.n[level, seed]),
                        "n_correct": int(k),
                    }
                )
        return pd.DataFrame(rows)


def sizes(setting: Setting) -> list[dict[str, int]]:
    """Returns the axes of each cell."""
    V, d, L = (
        values if axis in setting.axes else values[:1] for axis, values in AXES.items()
    )
    return [dict(zip("VdLm", at, strict=True)) for at in product(V, d, L, [0])]


def draw(rng: np.random.Generator, setting: Setting, off: Any = 0.0) -> Truth:
    """Draws a table with its truth; `off` is ln N* of each cell less the power law."""
    S, T = int(rng.choice(setting.seeds)), int(rng.choice(setting.levels))
    at = sizes(setting)
    logs = np.log([[cell[axis] for axis in AXES] for cell in at])
    law = np.array([rng.uniform(1.5, 2.5), rng.uniform(-2, -0.5), rng.uniform(0, 1)])
    if setting.copies:
        law[2] = 0.0
    middle = 9 + (logs - logs.mean(axis=0)) @ law + off
    C, theta = len(at), setting.theta
    levels = _levels(rng, setting, middle, T)
    flat, ceiling = _ceilings(rng, setting, logs)
    slope = (
        rng.uniform(*setting.slope)
        * np.exp(rng.normal(0, 0.2, C))
        * np.where(rng.random(C) < setting.one_step, 20.0, 1.0)
    )
    up, link = SHAPES[str(rng.choice(list(SHAPES)))]
    at_middle = link(np.where(flat, 0.5, np.minimum(theta / ceiling, 0.999)))[:, None]

    def accuracy(beyond: np.ndarray) -> np.ndarray:
        """The fraction of right answers for ln N - ln N_star of a seed, (C, ...)."""
        z = slope[:, None] * beyond.reshape(C, -1) + at_middle
        return (ceiling[:, None] * up(z)).clip(1e-12, 1 - 1e-12).reshape(beyond.shape)

    # with larger shifts, seeds would smear the step
    smaller = np.where(slope > 10, 0.1, 1.0)
    spread = np.hypot(setting.seed_shift, setting.own_shift) * smaller
    shift = spread[:, None] / np.hypot(setting.seed_shift, setting.own_shift)
    shared, own = rng.normal(size=S), rng.normal(size=(C, S))
    shift = shift * (setting.seed_shift * shared + setting.own_shift * own)
    p = accuracy(np.log(levels)[:, :, None] - middle[:, None, None] - shift[:, None, :])
    one = 1 / setting.correlation - 1
    k = rng.binomial(setting.n_test, rng.beta(p * one, (1 - p) * one)).astype(float)
    crossing = np.exp(middle + _mean_crossing(accuracy, spread, theta))
    star = np.where(flat, np.inf, crossing)
    # the cell whose runs each cell has; L is the last axis, so even cells have the
    # smaller L
    of = np.arange(C)
    if setting.copies:
        of = np.where((of % 2 == 1) & (rng.random(C) < setting.copies), of - 1, of)
    cells = []
    for i, j in enumerate(of):
        n = np.full_like(k[j], setting.n_test)
        cells.append(Cell(at[i], levels[j], k[j], n, at[j] if j < i else None))
    law = law[[axis in setting.axes for axis in AXES]]
    return Truth(Family("m = 0", cells), law, star[of])


def with_misfit(seed: tuple[int, int], setting: Setting) -> Truth:
    """Draws a table whose misfit is a multiple of its noise.

    The noise is that of the same draws without misfit.
    """
    e = estimates(draw(np.random.default_rng(seed), setting).family, setting.theta)
    if e.misfit is None:
        raise ValueError(f"draw {seed}: nothing checks the law")
    x = np.log([cell["d"] for cell in sizes(setting)])
    off = MISFITS[setting.misfit](x - x.mean())
    left = e.law.residuals(off[None, e.inside])[0]
    rms = np.sqrt((left**2).sum() / (e.law.n_distinct - e.law.rank))
    scale = setting.times * e.misfit.noise / rms
    return draw(np.random.default_rng(seed), setting, scale * off)


def _levels(
    rng: np.random.Generator, setting: Setting, middle: np.ndarray, T: int
) -> np.ndarray:
    """Draws the levels of N of each cell, (C, T)."""
    step = np.log(STEP[T])
    off = rng.normal(0, setting.censored * step * T / 2, len(middle))
    # one grid of N for all cells; each cell starts at its own level
    start = np.round((middle + off) / step) + rng.uniform()
    x = (start[:, None] + np.arange(T) - (T - 1) / 2) * step
    return np.round(np.exp(x)).astype(np.int64)


def _ceilings(
    rng: np.random.Generator, setting: Setting, logs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draws which cells level off below theta, and the level of each ceiling, both
    (C,).
    """
    C = len(logs)
    ceiling = np.where(rng.random(C) < 0.5, 1.0, rng.uniform(setting.ceiling, 1, C))
    flat = (logs[:, 1] == logs[:, 1].min()) & (rng.random(C) < setting.plateau)
    low = rng.uniform(0.2, 0.8, C) * setting.theta
    return flat, np.where(flat, low, ceiling)


def _mean_crossing(accuracy: Any, spread: np.ndarray, theta: float) -> np.ndarray:
    """Where the mean over normal shifts of the seeds crosses theta, (C,).

    The method is bisection.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    low, high = np.full(len(spread), -5.0), np.full(len(spread), 5.0)
    for _ in range(45):
        middle = (low + high) / 2
        above = (
            accuracy(middle[:, None] - spread[:, None] * nodes)
            @ (weights / weights.sum())
            >= theta
        )
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return middle


@dataclass(frozen=True)
class Checked:
    """The results of each replicate.

    These are the numbers of seeds and levels; for each axis whether the interval
    contains the truth, the error and the width; the share of thresholds whose interval
    contains the truth; and whether the law is rejected.
    """

    seeds: np.ndarray
    levels: np.ndarray
    held: np.ndarray
    error: np.ndarray
    width: np.ndarray
    thresholds: np.ndarray
    rejected: np.ndarray

    def __getitem__(self, which: Any) -> Checked:
        return Checked(
            *(getattr(self, name)[which] for name in self.__dataclass_fields__)
        )

    def line(self, names: Sequence[str] = tuple(AXES)) -> str:
        cover = 100 * self.held.mean(axis=0)
        bias = self.error.mean(axis=0)
        width = self.width.mean(axis=0)
        axes = ", ".join(
            f"{axis} {c:.1f} % ({b:+.3f}, {w:.2f})"
            for axis, c, b, w in zip(names, cover, bias, width, strict=True)
        )
        thresholds = 100 * np.nanmean(self.thresholds)
        return (
            f"{len(self.held):5} replicates: exponents {cover.mean():.1f} % [{axes}],"
            f" thresholds {thresholds:.1f} %, rejected {100 * self.rejected.mean():.1f}"
            " %"
        )


def estimates(family: Family, theta: float) -> Estimates:
    """Returns where the curves of a family cross theta (fraction)."""
    curves = [curve(cell, family, EDGE) for cell in family.cells]
    return Estimates(family, theta, curves, [c.crossing(theta) for c in curves])


def check(setting: Setting, replicates: int, seed: int = 0) -> Checked:
    """Draws and fits `replicates` tables.

    Every table must determine the law; a missing interval raises ValueError.
    """
    found = []
    for replicate in range(replicates):
        if setting.misfit:
            truth = with_misfit((seed, replicate), setting)
        else:
            truth = draw(np.random.default_rng((seed, replicate)), setting)
        e = estimates(truth.family, setting.theta)
        rows = exponents(e)
        lo, hi, value = (
            np.array([row[name] for row in rows]) for name in ("lo", "hi", "exponent")
        )
        if np.isnan(lo).any():
            raise ValueError(
                f"replicate {replicate}: no interval ({rows[0]['warning']})"
            )
        crossed = [
            (row, star)
            for row, star in zip(thresholds(e), truth.N_star, strict=True)
            if row["censored"] == "no"
        ]
        held = [row["lo"] <= star <= row["hi"] for row, star in crossed]
        inside = (lo <= truth.exponents) & (truth.exponents <= hi)
        S, T = truth.family.cells[0].k.T.shape
        off = value - truth.exponents
        found.append((S, T, inside, off, hi - lo, np.mean(held), e.rejected))
    return Checked(
        *(np.array(column, dtype=float) for column in zip(*found, strict=True))
    )


@dataclass(frozen=True)
class Ratios:
    """Whether intervals of a ratio contain the truth, and their widths in ln.

    The arrays have shape (tables, 2): intervals by pairs of seeds, and intervals from
    those of the two N* as if these were independent.
    """

    held: np.ndarray
    width: np.ndarray

    def line(self) -> str:
        (pairs, apart), (narrow, wide) = self.held.mean(axis=0), self.width.mean(axis=0)
        return (
            f"{len(self.held):5} tables: by pairs {100 * pairs:.1f} % (width"
            f" {narrow:.3f}), from two intervals {100 * apart:.1f} % ({wide:.3f})"
        )


def ratios(shared: float, replicates: int, own: float = 0.15) -> Ratios:
    """Draws tables of two conditions with common seeds, and compares their N*.

    A seed shifts ln N* of both conditions by a normal number with the standard
    deviation `shared`, and of each by another one with the deviation `own`.
    """
    held, widths = [], []
    levels = np.round(1.6 ** np.arange(10, 25))
    for replicate in range(replicates):
        rng = np.random.default_rng((1, replicate))
        n_seeds, truth = int(rng.choice([8, 16])), rng.uniform(-0.5, 0.5)
        luck = shared * rng.normal(size=n_seeds)
        slope = rng.uniform(1, 3)
        cells = []
        for optimizer, log_star in (("a", np.log(3000)), ("b", np.log(3000) + truth)):
            middle = log_star + luck + own * rng.normal(size=n_seeds)
            p = expit(slope * (np.log(levels)[:, None] - middle))
            k = rng.binomial(2048, p).astype(float)
            at = {"optimizer": optimizer}
            cells.append(Cell(at, levels, k, np.full_like(k, 2048)))
        e = estimates(Family("all", cells, powers=()), 0.5)
        row = [*comparison(e, "optimizer")][-1]
        first, second = e.found
        off = second.log_x - first.log_x
        half = np.hypot(second.width, first.width) / 2
        paired = np.log([row["lo"], row["hi"]])
        ends = np.array([paired, [off - half, off + half]])
        held.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        widths.append(ends[:, 1] - ends[:, 0])
    return Ratios(np.array(held), np.array(widths))


ALONE = Setting(axes=("d",), levels=(8, 12), plateau=0.0, censored=0.0)
"""Four cells, which differ in d alone."""

SETTINGS = {
    "everything at once, theta = 0.5": Setting(),
    "theta = 0.9": Setting(theta=0.9, ceiling=0.95),
    "nearly all cells rise within one step": Setting(one_step=0.9),
    "half of the cells at the larger L are copies, theta = 0.5": Setting(copies=0.5),
    "half of the cells at the larger L are copies, theta = 0.9": Setting(
        copies=0.5, theta=0.9, ceiling=0.95
    ),
    "one logistic slope, no ceilings": replace(
        Setting(), one_step=0.0, plateau=0.0, ceiling=1.0, censored=0.0
    ),
    "four sizes d alone": Setting(
        axes=("d",), levels=(8, 12), plateau=0.0, censored=0.0
    ),
}
QUIET = replace(ALONE, one_step=0.0, seed_shift=0.01, own_shift=0.01, correlation=1e-4)
"""The same four cells with little noise."""

for kind in MISFITS:
    SETTINGS[f"no power law: {kind}"] = Setting(misfit=kind)
    SETTINGS[f"no power law of d alone: {kind}"] = replace(ALONE, misfit=kind)
    SETTINGS[f"no power law, little noise: {kind}"] = replace(QUIET, misfit=kind)


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.fit_coverage",
        description="How often 95 % intervals hold the truth.",
    )
    p.add_argument(
        "--replicates",
        type=int,
        default=1000,
        metavar="R",
        help="tables per setting (default: 1000)",
    )
    args = p.parse_args(argv)
    # numpy warns of exp(nan) where a cell has no interval
    warnings.simplefilter("ignore", RuntimeWarning)
    print(
        "coverage of 95 % intervals of the reported estimate; in brackets: coverage"
        " (bias, width) per axis"
    )
    for name, setting in SETTINGS.items():
        checked = check(setting, args.replicates)
        print(f"{name}\n  all       {checked.line(setting.axes)}", flush=True)
        for S in setting.seeds:
            part = checked[checked.seeds == S]
            print(f"  {S:2} seeds  {part.line(setting.axes)}")
        for T in setting.levels:
            part = checked[checked.levels == T]
            print(f"  {T:2} levels {part.line(setting.axes)}", flush=True)
    print("ratio of N* of two conditions with common seeds: coverage (width in ln)")
    for shared in (0.0, 0.2, 0.8):
        print(
            f"  seeds shift both by {shared}: {ratios(shared, args.replicates).line()}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
