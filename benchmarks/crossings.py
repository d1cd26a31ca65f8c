"""python -m benchmarks.crossings: tests crossings and their intervals on known truths.

Each replicate draws a new cell of a family. A seed shifts the curve of the cell, and in
some cells its ceiling. Answers are overdispersed besides. The truth is the level at
which the mean over all seeds crosses theta.

The curves of some families have a kink or a jump at theta, and the seeds of others
differ in more than a shift. Their cells have 24 seeds and at most 120 runs.

A search runs as it does in the package. A table has levels around the truth, often with
the crossing near the first or the last level. The same estimator is used for both.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from jaxrecall.analysis.fit.cells import Cell as Runs
from jaxrecall.analysis.fit.cells import Family
from jaxrecall.analysis.fit.estimate import of_best
from jaxrecall.sweep.crossing import EDGE, OCTAVE, Crossing, Curve
from jaxrecall.sweep.grid.axes import Names
from jaxrecall.sweep.grid.file import Search
from jaxrecall.sweep.search import CellSearch, Target, farthest

from .fit_coverage import SHAPES, STEP

FAMILIES = {
    "steep": "logit accuracy rises by 5 to 20 where N grows by e",
    "slow": "by 0.4 to 0.9; seeds differ by up to a factor e",
    "ceiling": "accuracy levels off at 0.55 to 1, theta 0.5",
    "few seeds": "6 to 8",
    "integer": "the crossing lies at 4 to 24, so levels are neighbouring whole numbers",
    "falling": "accuracy falls",
}
BENT = {
    "steep, then slow": "logit accuracy rises by 3 where N grows by e, above theta 0.3",
    "slow, then steep": "by 0.3, and above theta by 3",
    "jump": "accuracy jumps from 0.2 to 0.8 where N grows by 5 %",
    "short rise": "accuracy rises from 0.3 to 0.7 within a third of an octave",
    "low ceiling": "accuracy rises slowly to 0.6",
    "plateau": "accuracy rises to a plateau at 0.53 to 0.55",
    "dead seeds": "a fifth of the seeds stays at 0.02",
    "locked or not": "seeds are at 0.1 or 0.9, and more are at 0.9 where N is larger",
    "growing spread": "seeds differ more where N is larger",
}
"""The families whose cells have a kink, a jump or unusual seeds."""

WIDTH, MAX_RUNS, MANY_SEEDS = 0.3, 400, 200
BENT_RUNS, BENT_SEEDS = 120, 24


@dataclass(frozen=True)
class Cell:
    """Accuracy as a function of ln of the level.

    The fields are all that a run depends on, except level and seed.
    """

    key: int
    theta: float
    shape: str
    slope: float
    middle: float
    spread: float  # standard deviation of the seeds' shifts, in ln of the level
    ceiling: float = 1.0
    ceiling_spread: float = 0.0
    correlation: float = 0.0  # between the answers of one run, beta-binomial
    n_test: int = 2048
    falls: bool = False

    def accuracy(self, x: float, of_seed: np.ndarray) -> np.ndarray:
        """The expected accuracy of seeds, given two normal numbers for each, (2, ...)
        -> (...).
        """
        top = (self.ceiling + self.ceiling_spread * of_seed[1]).clip(0.02, 1)
        rising = 0.01 + (top - 0.01) * SHAPES[self.shape][0](
            self.slope * (x - self.middle - self.spread * of_seed[0])
        )
        return 1 - rising if self.falls else rising

    def run(self, level: float, seed: int) -> float:
        p = float(
            self.accuracy(
                math.log(level), np.random.default_rng((self.key, seed)).normal(size=2)
            )
        )
        rng = np.random.default_rng((self.key, seed, round(1e4 * math.log(level))))
        if self.correlation:
            one = 1 / self.correlation - 1
            p = rng.beta(max(p * one, 1e-3), max((1 - p) * one, 1e-3))
        return rng.binomial(self.n_test, p) / self.n_test

    def all_seeds(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the normal numbers of many seeds, (2, ...), and their weights."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(41)
        of_seed = np.array(np.meshgrid(nodes, nodes))
        return of_seed, np.outer(weights, weights) / weights.sum() ** 2

    def truth(self) -> float:
        """ln of the level at which the mean over all seeds crosses theta.

        The method is bisection.
        """
        of_seed, weight = self.all_seeds()
        low, high = self.middle - 30, self.middle + 30
        for _ in range(50):
            x = (low + high) / 2
            beyond = (
                (self.accuracy(x, of_seed) * weight).sum() >= self.theta
            ) != self.falls
            low, high = (low, x) if beyond else (x, high)
        return x


class BentCell(Cell):
    """A cell of a family in `BENT`.

    Its spread is the standard deviation of the seeds' shifts in logit accuracy.
    """

    def all_seeds(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns quantiles, because accuracy may jump from one seed to the next."""
        nodes = ndtri((np.arange(100) + 0.5) / 100)
        return np.array(np.meshgrid(nodes, nodes)), np.full((100, 100), 1e-4)

    def accuracy(self, x: float, of_seed: np.ndarray) -> np.ndarray:
        beyond = x - self.middle
        shift, quantile = self.spread * of_seed[0], ndtr(of_seed[1])
        match self.shape:
            case "steep, then slow":
                return expit(min(3 * beyond, 0.3 * beyond) + shift)
            case "slow, then steep":
                return expit(max(3 * beyond, 0.3 * beyond) + shift)
            case "jump":
                rise = np.interp(beyond, [-0.025, 0.025], [0.2, 0.8])
                return expit(logit(rise) + shift)
            case "short rise":
                rise = np.interp(beyond, [-OCTAVE / 6, OCTAVE / 6], [0.3, 0.7])
                return expit(logit(rise) + shift)
            case "low ceiling" | "plateau":
                return self.ceiling * expit(self.slope * beyond + shift)
            case "dead seeds":
                alive = expit(self.slope * beyond + shift)
                return np.where(quantile < 0.2, 0.02, alive)
            case "locked or not":
                locked = quantile < expit(self.slope * beyond)
                return expit(np.where(locked, 2.2, -2.2) + shift)
            case _:
                return expit(self.slope * beyond + shift * math.exp(beyond / 2))


def draw_bent(family: str, rng: np.random.Generator, key: int) -> BentCell:
    slope = {"low ceiling": (0.4, 0.9)}.get(family, (1, 3))
    ceiling = {"low ceiling": (0.6, 0.6), "plateau": (0.53, 0.55)}.get(family, (1, 1))
    return BentCell(
        key=key,
        theta=0.5,
        shape=family,
        slope=rng.uniform(*slope),
        middle=rng.uniform(6.5, 10),
        spread=1.0 if family == "low ceiling" else rng.uniform(0.2, 0.6),
        ceiling=rng.uniform(*ceiling),
        correlation=float(rng.choice([0, 0.02])),
        n_test=int(rng.choice([256, 2048])),
    )


def draw(family: str, rng: np.random.Generator, key: int) -> Cell:
    if family in BENT:
        return draw_bent(family, rng, key)
    slope = {
        "steep": (5, 20),
        "slow": (0.4, 0.9),
        "ceiling": (1, 4),
        "integer": (3, 12),
    }.get(family, (1, 3))
    spread = {"steep": (0.02, 0.3), "slow": (0.2, 1.0), "integer": (0.02, 0.15)}.get(
        family, (0.1, 0.5)
    )
    flat = family == "ceiling"
    return Cell(
        key=key,
        theta=0.5 if flat else float(rng.choice([0.25, 0.5, 0.5, 0.8])),
        shape=str(rng.choice(list(SHAPES))),
        slope=rng.uniform(*slope),
        middle=(
            rng.uniform(math.log(4), math.log(24))
            if family == "integer"
            else rng.uniform(6.5, 10)
        ),
        spread=rng.uniform(*spread),
        ceiling=rng.uniform(0.55, 1) if flat else 1.0,
        ceiling_spread=float(rng.choice([0, 0.03])) if flat else 0.0,
        correlation=float(rng.choice([0, 0.02, 0.1])),
        n_test=int(rng.choice([256, 2048])),
        falls=family == "falling",
    )


class Read(NamedTuple):
    """The crossing that was found in one search or table, and the truth.

    `found` is None if nothing crosses.
    """

    truth: float
    found: Crossing | None
    runs: int
    gap: float = math.inf  # the widest distance of neighbouring levels


def searched(family: str, replicates: int) -> Iterator[Read]:
    """Yields the results of searches as the package runs them."""
    rng = np.random.default_rng(sum(map(ord, family)))
    axis, low, high = ("d", 2, 256) if family == "integer" else ("N", 64, 2**20)
    for key in range(replicates):
        cell = draw(family, rng, key)
        max_runs, n_seeds = MAX_RUNS, MANY_SEEDS
        if family in BENT:
            max_runs, n_seeds = BENT_RUNS, BENT_SEEDS
        elif family == "few seeds":
            n_seeds = int(rng.integers(6, 9))
        levels = Search(axis, (cell.theta,), low, high, WIDTH, max_runs).lattice(
            Names()
        )
        search = CellSearch(
            Target(
                cell.theta,
                levels,
                WIDTH,
                max_runs,
                range(n_seeds),
                not cell.falls,
                farthest=farthest(axis, WIDTH),
            )
        )
        while search.result is None:
            search.update([cell.run(level, seed) for level, seed in search.pending])
        yield Read(cell.truth(), search.result.threshold, len(search.accuracy))


def tabled(family: str, replicates: int) -> Iterator[Read]:
    """Yields the results of tables of a dense grid, with every seed at every level."""
    rng = np.random.default_rng(sum(map(ord, family)) + 1)
    for key in range(replicates):
        cell = draw(family, rng, 10**6 + key)
        truth = cell.truth()
        n = int(rng.choice(list(STEP)))
        seeds = 6 if family == "few seeds" else int(rng.choice([8, 12, 16, 24]))
        if family in BENT:
            seeds = BENT_SEEDS
        step = math.log(STEP[n])
        x = truth + (rng.normal(0, 0.18) * n + np.arange(n) - (n - 1) / 2) * step
        levels = np.unique(np.exp(x).round().clip(2))
        accuracy = np.array(
            [[cell.run(level, seed) for level in levels] for seed in range(seeds)]
        )
        found = Curve(
            np.log(levels), 1 - accuracy if cell.falls else accuracy
        ).crossing(1 - cell.theta if cell.falls else cell.theta)
        sure = found.side == 0 and not any(found.is_open)
        yield Read(
            truth, found if sure else None, accuracy.size, np.diff(np.log(levels)).max()
        )


def best_rates(
    curvature: tuple[float, float], replicates: int, of_search: bool
) -> Iterator[Read]:
    """Yields the results of `fit --best` for the best of 5 rates, with 8 seeds.

    N* is smallest at a rate between the five, and rises with the square of ln of the
    rate.
    """
    rng, rates, S = np.random.default_rng(1), np.array([0.01, 0.03, 0.1, 0.3, 1.0]), 8
    for key in range(replicates):
        cell = replace(draw("", rng, 2 * 10**6 + key), theta=0.5)
        off = (
            rng.uniform(*curvature)
            * (np.log(rates / 0.1) / 1.15 - rng.uniform(-1.5, 1.5)) ** 2
        )
        cells = [
            replace(cell, key=10 * cell.key + i, middle=cell.middle + one)
            for i, one in enumerate(off)
        ]
        shift = rng.uniform(-0.35, 0.35)
        steps = (
            np.array([-1.5, -0.35, 0.35, 1.0])
            if of_search
            else np.arange(-4, 5) * math.log(2)
        )
        made = []
        for rate, one in zip(rates, cells, strict=True):
            levels = np.unique(
                np.exp(
                    (one.truth() if of_search else cell.middle + shift) + steps
                ).round()
            )
            k = one.n_test * np.array(
                [[one.run(level, seed) for seed in range(S)] for level in levels]
            )
            made.append(
                Runs({"lr": float(rate)}, levels, k, np.full_like(k, one.n_test))
            )
        (found,) = of_best(Family("", made), 0.5, EDGE, "lr").found
        yield Read(
            min(one.truth() for one in cells),
            found if found.side == 0 and not any(found.is_open) else None,
            0,
        )


def line(read: Sequence[Read]) -> str:
    """Summarises how well crossings with an interval, and the intervals, agree with the
    truth.
    """
    known = [
        (one, one.found) for one in read if one.found and math.isfinite(one.found.width)
    ]
    if not known:
        return f"{len(read):5} replicates, none with an interval"
    held = np.array([found.lo <= one.truth <= found.hi for one, found in known])
    error = np.array([found.log_x - one.truth for one, found in known])
    width, gap = np.array([(found.width, one.gap) for one, found in known]).T
    inside = [found.lo <= found.log_x <= found.hi for _, found in known]
    wide = width > 3 * gap
    shares = {
        "truth in": held,
        "point in": inside,
        "off by 3 half widths": abs(error) > 1.5 * width,
    }
    shares |= {f"of {wide.sum()} wider than 3 steps": held[wide]} if wide.any() else {}
    listed = ", ".join(
        f"{name} {100 * np.mean(share):.1f} %" for name, share in shares.items()
    )
    bias = f"bias {error.mean():+.3f} ({error.std() / math.sqrt(len(error)):.3f})"
    runs = np.median([one.runs for one in read])
    share = f"{100 * len(known) / len(read):.0f} % with an interval"
    return (
        f"{len(read):5} replicates, {share}: {listed}, {bias}, median width"
        f" {np.median(width):.2f}, {runs:.0f} runs"
    )


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.crossings",
        description="How good crossings and their intervals are.",
    )
    p.add_argument(
        "--replicates",
        type=int,
        default=300,
        metavar="R",
        help="searches and tables per family (default: 300)",
    )
    args = p.parse_args(argv)
    print(
        f"crossings against known truths; searches for a width of {WIDTH}; bias of ln"
        " N* with its standard error"
    )
    for family, meaning in (FAMILIES | BENT).items():
        print(f"{family}: {meaning}")
        for kind, read in (("searches", searched), ("tables  ", tabled)):
            print(f"  {kind} {line([*read(family, args.replicates)])}", flush=True)
    for what, curvature in (("hardly differ", (0.005, 0.04)), ("differ", (0.05, 0.4))):
        print(f"best of 5 rates that {what}, 8 seeds")
        for of_search, kind in ((False, "tables  "), (True, "searches")):
            print(
                f"  {kind}"
                f" {line([*best_rates(curvature, args.replicates, of_search)])}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
