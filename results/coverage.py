"""How often intervals contain a truth that is known, in searches and in fits.

The command is `python results/coverage.py searches tables laws ratios predictions
sums`, or some of these. Every replicate draws new curves of accuracy with a known
crossing. A seed shifts its curves, and answers are overdispersed besides.

searches  The crossings that searches find.
tables    The crossings in dense grids, often near the first or the last level.
laws      Exponents and thresholds of up to 24 cells. Some cells level off below theta,
          some have too small or too large N, some rise within one step, and in some
          settings some are copies of others. In the last settings N* obeys no power
          law: the distance from the best law is five times the noise.
ratios    The ratio of N* of two conditions with common seeds.
predictions  The value of a power law of two sizes beyond the tested sizes.
sums      The law E + A N^p + B D^q, and its minimum at a fixed product of N and D.

Searches and tables have the same families of cells and the same estimator, and end with
the best of five rates.
"""

import argparse
import math
import warnings
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtr, ndtri

from jaxrecall.analysis.fit.cells import Cell, Family
from jaxrecall.analysis.fit.compare import compare_values
from jaxrecall.analysis.fit.estimate import estimate
from jaxrecall.analysis.fit.tables import exponents, thresholds
from jaxrecall.fit import fit
from jaxrecall.sweep.crossing import OCTAVE, Curve, cloglog, loglog
from jaxrecall.sweep.grid.axes import Names
from jaxrecall.sweep.grid.file import Search
from jaxrecall.sweep.search import CellSearch, farthest

SHAPES = {
    "logit": (expit, logit),
    "cloglog": (lambda z: -np.expm1(-np.exp(np.minimum(z, 30))), cloglog),
    "loglog": (lambda z: np.exp(-np.exp(np.minimum(-z, 30))), loglog),
}
"""The smooth curves -> each curve and its inverse."""

BENT = {
    "steep, then slow": lambda c, x, z, q: expit(min(3 * x, 0.3 * x) + z),
    "slow, then steep": lambda c, x, z, q: expit(max(3 * x, 0.3 * x) + z),
    "jump": lambda c, x, z, q: line_in_logit(x, 0.025, 0.2, z),
    "short rise": lambda c, x, z, q: line_in_logit(x, OCTAVE / 6, 0.3, z),
    "low ceiling": lambda c, x, z, q: c.ceiling * expit(c.slope * x + z),
    "plateau": lambda c, x, z, q: c.ceiling * expit(c.slope * x + z),
    "dead seeds": lambda c, x, z, q: np.where(q < 0.2, 0.02, expit(c.slope * x + z)),
    "locked or not": lambda c, x, z, q: expit(
        np.where(q < expit(c.slope * x), 2.2, -2.2) + z
    ),
    "growing spread": lambda c, x, z, q: expit(c.slope * x + z * math.exp(x / 2)),
}
"""The curves with a kink, a jump or unusual seeds.

Each is a function of the cell, of x, which is ln of the level less the cell's middle,
and of two numbers of each seed: its shift in logit accuracy, and a quantile.
"""


def line_in_logit(x, half, low, shift):
    """Accuracy rises from `low` to 1 - `low` on a line between x = -half and half."""
    return expit(logit(np.interp(x, [-half, half], [low, 1 - low])) + shift)


SMOOTH = {
    "theta": [0.25, 0.5, 0.5, 0.8],
    "shape": [*SHAPES],
    "slope": (1, 3),
    "middle": (6.5, 10),
    "spread": (0.1, 0.5),
    "ceiling": 1.0,
    "ceiling_spread": 0.0,
    "correlation": [0, 0.02, 0.1],
    "n_test": [256, 2048],
}
"""Field of a cell -> the range or the list from which it is drawn, or its value."""

UNUSUAL = SMOOTH | {
    "theta": 0.5,
    "spread": (0.2, 0.6),
    "ceiling": (1, 1),
    "correlation": [0, 0.02],
}
"""The same for a cell with a curve in `BENT`."""

FAMILIES = {
    "steep": (
        "logit accuracy rises by 5 to 20 where N grows by e",
        {"slope": (5, 20), "spread": (0.02, 0.3)},
    ),
    "slow": (
        "by 0.4 to 0.9; seeds differ by up to a factor e",
        {"slope": (0.4, 0.9), "spread": (0.2, 1.0)},
    ),
    "ceiling": (
        "accuracy levels off at 0.55 to 1, theta 0.5",
        {
            "theta": 0.5,
            "slope": (1, 4),
            "ceiling": (0.55, 1),
            "ceiling_spread": [0, 0.03],
        },
    ),
    "few seeds": ("6 to 8", {}),
    "integer": (
        "the crossing lies at 4 to 24, so levels are neighbouring whole numbers",
        {
            "slope": (3, 12),
            "middle": (math.log(4), math.log(24)),
            "spread": (0.02, 0.15),
        },
    ),
    "falling": ("accuracy falls", {"falls": True}),
    "steep, then slow": (
        "logit accuracy rises by 3 where N grows by e, above theta 0.3",
        {},
    ),
    "slow, then steep": ("by 0.3, and above theta by 3", {}),
    "jump": ("accuracy jumps from 0.2 to 0.8 where N grows by 5 %", {}),
    "short rise": (
        "accuracy rises from 0.3 to 0.7 within a third of an octave",
        {},
    ),
    "low ceiling": (
        "accuracy rises slowly to 0.6",
        {"slope": (0.4, 0.9), "spread": 1.0, "ceiling": (0.6, 0.6)},
    ),
    "plateau": (
        "accuracy rises to a plateau at 0.53 to 0.55",
        {"ceiling": (0.53, 0.55)},
    ),
    "dead seeds": ("a fifth of the seeds stays at 0.02", {}),
    "locked or not": (
        "seeds are at 0.1 or 0.9, and more are at 0.9 where N is larger",
        {},
    ),
    "growing spread": ("seeds differ more where N is larger", {}),
}
"""Family -> what is special about it, in words and in fields of its cells."""

WIDTH, MAX_RUNS, MANY_SEEDS = 0.3, 400, 200
BENT_RUNS, BENT_SEEDS = 120, 24
STEP = {4: 3.0, 6: 2.5, 8: 2.0, 12: 1.6}
"""The number of levels of a dense grid -> the factor from one N to the next."""

RATES = np.array([0.01, 0.03, 0.1, 0.3, 1.0])
DIFFERING = {"hardly differ": (0.005, 0.04), "differ": (0.05, 0.4)}
"""How much rates differ -> the range of the curvature of ln N* in ln of the rate."""


def bisected(is_above, low, high):
    """Where `is_above` becomes true between `low` and `high`, entry by entry."""
    for _ in range(50):
        middle = (low + high) / 2
        above = is_above(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return middle


def normal_nodes():
    """Values of a normal number and their weights, to compute means."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    return nodes, weights / weights.sum()


@dataclass(frozen=True)
class Known:
    """A cell whose accuracy is known as a function of ln of the level.

    The fields are all that a run depends on, except level and seed.
    """

    key: int
    theta: float
    shape: str
    slope: float
    middle: float
    spread: float  # of the seeds' shifts, in ln of the level, or in logit accuracy
    ceiling: float
    ceiling_spread: float
    correlation: float  # between the answers of one run, beta-binomial
    n_test: int
    falls: bool = False

    def accuracy(self, x, of_seed):
        """Accuracy of seeds, from two normal numbers each, (2, ...) -> (...)."""
        beyond, shift = x - self.middle, self.spread * of_seed[0]
        if self.shape in BENT:
            return BENT[self.shape](self, beyond, shift, ndtr(of_seed[1]))
        top = (self.ceiling + self.ceiling_spread * of_seed[1]).clip(0.02, 1)
        curve_of_shape, _ = SHAPES[self.shape]
        rising = 0.01 + (top - 0.01) * curve_of_shape(self.slope * (beyond - shift))
        return 1 - rising if self.falls else rising

    def run(self, level, seed):
        """Accuracy of a run on its test sequences."""
        of_seed = np.random.default_rng((self.key, seed)).normal(size=2)
        p = float(self.accuracy(math.log(level), of_seed))
        rng = np.random.default_rng((self.key, seed, round(1e4 * math.log(level))))
        if self.correlation:
            one = 1 / self.correlation - 1
            p = rng.beta(max(p * one, 1e-3), max((1 - p) * one, 1e-3))
        return rng.binomial(self.n_test, p) / self.n_test

    def runs(self, levels, n_seeds):
        return np.array(
            [[self.run(level, s) for level in levels] for s in range(n_seeds)]
        )

    def truth(self):
        """ln of the level at which the mean over all seeds crosses theta."""
        nodes, weights = normal_nodes()
        if self.shape in BENT:  # accuracy may jump from one seed to the next
            nodes, weights = ndtri((np.arange(100) + 0.5) / 100), np.full(100, 0.01)
        of_seed, weight = (
            np.array(np.meshgrid(nodes, nodes)),
            np.outer(weights, weights),
        )

        def is_beyond(x):
            mean = (self.accuracy(x, of_seed) * weight).sum()
            return (mean >= self.theta) != self.falls

        return float(bisected(is_beyond, self.middle - 30, self.middle + 30))


def drawn(rng, possible):
    """A number in a range, an entry of a list, or the given value itself."""
    if isinstance(possible, tuple):
        return rng.uniform(*possible)
    return rng.choice(possible) if isinstance(possible, list) else possible


def draw_cell(family, rng, key):
    usual = UNUSUAL | {"shape": family} if family in BENT else SMOOTH
    _, special = FAMILIES.get(family, ("", {}))
    fields = {name: drawn(rng, one) for name, one in (usual | special).items()}
    return Known(key, **fields)


def read(truth, found, runs, gap=math.inf):
    """A line of a table of crossings; it has no interval unless both ends are known."""
    known = found is not None and math.isfinite(found.width)
    x, lo, hi = (found.log_x, found.lo, found.hi) if known else (math.nan,) * 3
    return {"truth": truth, "x": x, "lo": lo, "hi": hi, "runs": runs, "gap": gap}


def sure(found):
    """The crossing, or None if it, or an end of its interval, is beyond the levels."""
    return found if found.side == 0 and not any(found.is_open) else None


def searched(family, replicates):
    """Yields the results of searches as the package runs them."""
    rng = np.random.default_rng(sum(map(ord, family)))
    axis, low, high = ("d", 2, 256) if family == "integer" else ("N", 64, 2**20)
    max_runs = BENT_RUNS if family in BENT else MAX_RUNS
    for key in range(replicates):
        cell = draw_cell(family, rng, key)
        n_seeds = BENT_SEEDS if family in BENT else MANY_SEEDS
        if family == "few seeds":
            n_seeds = int(rng.integers(6, 9))
        asked = Search(axis, (cell.theta,), low, high, WIDTH, max_runs)
        search = CellSearch(
            cell.theta,
            asked.lattice(Names()),
            WIDTH,
            max_runs,
            range(n_seeds),
            not cell.falls,
            farthest=farthest(axis, WIDTH),
        )
        while search.result is None:
            search.update([cell.run(level, seed) for level, seed in search.pending])
        yield read(cell.truth(), search.result.threshold, len(search.accuracy))


def tabled(family, replicates):
    """Yields the results of tables of a dense grid, with every seed at every level."""
    rng = np.random.default_rng(sum(map(ord, family)) + 1)
    for key in range(replicates):
        cell = draw_cell(family, rng, 10**6 + key)
        truth = cell.truth()
        n = int(rng.choice(list(STEP)))
        seeds = 6 if family == "few seeds" else int(rng.choice([8, 12, 16, 24]))
        if family in BENT:
            seeds = BENT_SEEDS
        off = rng.normal(0, 0.18) * n + np.arange(n) - (n - 1) / 2
        levels = np.unique(np.exp(truth + off * math.log(STEP[n])).round().clip(2))
        accuracy = cell.runs(levels, seeds)
        theta = cell.theta
        if cell.falls:
            accuracy, theta = 1 - accuracy, 1 - theta
        found = Curve(np.log(levels), accuracy).crossing(theta)
        yield read(truth, sure(found), accuracy.size, np.diff(np.log(levels)).max())


def best_rates(curvature, replicates, of_search):
    """Yields the results of `fit --best` for the best of five rates, with 8 seeds.

    N* is smallest at a rate between the five, and rises with the square of ln of the
    rate.
    """
    rng = np.random.default_rng(1)
    for key in range(replicates):
        cell = replace(draw_cell("", rng, 2 * 10**6 + key), theta=0.5)
        bend, best = rng.uniform(*curvature), rng.uniform(-1.5, 1.5)
        off = bend * (np.log(RATES / 0.1) / 1.15 - best) ** 2
        around_middle = rng.uniform(-0.35, 0.35) + np.arange(-4, 5) * math.log(2)
        truths, made = [], []
        for i in range(len(RATES)):
            one = replace(cell, key=10 * cell.key + i, middle=cell.middle + off[i])
            truths.append(one.truth())
            x = cell.middle + around_middle
            if of_search:
                x = truths[i] + np.array([-1.5, -0.35, 0.35, 1.0])
            levels = np.unique(np.exp(x).round())
            k = one.n_test * one.runs(levels, 8).T
            made.append(Cell(levels, k, np.full_like(k, one.n_test)))
        family = family_of("", [{"lr": float(rate)} for rate in RATES], made)
        (found,) = next(estimate(family, [0.5], "lr")).crossings
        yield read(min(truths), sure(found), 0)


def agreement(rows):
    """Returns how well crossings with an interval, and the intervals, agree with the
    truth.
    """
    rows = pd.DataFrame(rows)
    known = rows.dropna()
    if known.empty:
        return f"{len(rows):5} replicates, none with an interval"
    width, error = known["hi"] - known["lo"], known["x"] - known["truth"]
    held = known["truth"].between(known["lo"], known["hi"])
    wide = width > 3 * known["gap"]
    shares = {
        "truth in": held,
        "point in": known["x"].between(known["lo"], known["hi"]),
        "off by 3 half widths": error.abs() > 1.5 * width,
    }
    if wide.any():
        shares[f"of {wide.sum()} wider than 3 steps"] = held[wide]
    listed = [f"{name} {100 * share.mean():.1f} %" for name, share in shares.items()]
    bias_error = error.std(ddof=0) / math.sqrt(len(error))
    return (
        f"{len(rows):5} replicates, {100 * len(known) / len(rows):.0f} % with an"
        f" interval: {', '.join(listed)}, bias {error.mean():+.3f} ({bias_error:.3f}),"
        f" median width {width.median():.2f}, {rows['runs'].median():.0f} runs"
    )


def crossings(kind, replicates):
    """Prints how good crossings and intervals are, of "searches" or of "tables"."""
    of_family = searched if kind == "searches" else tabled
    print(f"{kind}, bias of ln N* with its standard error")
    for family, (meaning, _) in FAMILIES.items():
        print(f"{family}: {meaning}")
        print(" ", agreement(of_family(family, replicates)), flush=True)
    for what, curvature in DIFFERING.items():
        print(f"best of 5 rates that {what}, 8 seeds")
        found = best_rates(curvature, replicates, kind == "searches")
        print(" ", agreement(found), flush=True)


AXES = {"V": (64, 128, 256), "d": (32, 64, 128, 256), "L": (8, 32)}
MISFITS = {
    "floor": lambda x: np.logaddexp(0, 2 * x),
    "bend": np.square,
    "kink": lambda x: np.maximum(0, x),
    "one size off": lambda x: np.where(x == x.max(), 1.0, 0.0),
}
"""The kinds of misfit -> ln N* less a power law of d, up to a factor, as a function of
ln d - mean(ln d).
"""


@dataclass(frozen=True)
class Setting:
    """How tables are drawn: seeds, levels, slopes, and the shares of unusual cells.

    Seeds and levels are drawn from the given values. Slopes are those of logit p in ln
    N.
    """

    seeds: tuple = (8, 16)
    levels: tuple = tuple(STEP)
    theta: float = 0.5
    slope: tuple = (1.0, 3.0)
    one_step: float = 0.1  # share of the cells that rise within one step
    plateau: float = 0.7  # share of those at the smallest d that level off below theta
    ceiling: float = 0.75  # smallest ceiling of the others; half of them have 1
    censored: float = 0.25  # spread of levels around N*, over half their range
    seed_shift: float = 0.2  # standard deviation of a seed's shift of all ln N*
    own_shift: float = 0.15  # the same, for each curve by itself
    correlation: float = 0.01  # between the answers of one seed, beta-binomial
    n_test: int = 2048
    copies: float = 0.0  # share of copies at the larger L; above 0, L has exponent 0
    axes: tuple = tuple(AXES)  # those that vary
    misfit: str = ""
    times: float = 5.0  # the misfit over the noise, if there is a misfit


ALONE = Setting(axes=("d",), levels=(8, 12), plateau=0.0, censored=0.0)
"""Four cells, which differ in d alone."""

QUIET = replace(ALONE, one_step=0.0, seed_shift=0.01, own_shift=0.01, correlation=1e-4)
"""The same four cells with little noise."""

HIGH = Setting(theta=0.9, ceiling=0.95)
SETTINGS = {
    "everything at once, theta = 0.5": Setting(),
    "theta = 0.9": HIGH,
    "nearly all cells rise within one step": Setting(one_step=0.9),
    "half of the cells at the larger L are copies, theta = 0.5": Setting(copies=0.5),
    "half of the cells at the larger L are copies, theta = 0.9": replace(
        HIGH, copies=0.5
    ),
    "one logistic slope, no ceilings": Setting(
        one_step=0.0, plateau=0.0, ceiling=1.0, censored=0.0
    ),
    "four sizes d alone": ALONE,
}
for kind in MISFITS:
    SETTINGS[f"no power law: {kind}"] = Setting(misfit=kind)
    SETTINGS[f"no power law of d alone: {kind}"] = replace(ALONE, misfit=kind)
    SETTINGS[f"no power law, little noise: {kind}"] = replace(QUIET, misfit=kind)


@dataclass(frozen=True)
class Truth:
    family: Family
    exponents: np.ndarray
    N_star: np.ndarray  # where the mean over seeds crosses theta; infinite if nowhere


def sizes(setting):
    """Returns the axes of each cell."""
    values = [
        of_axis if axis in setting.axes else of_axis[:1]
        for axis, of_axis in AXES.items()
    ]
    return [{"V": V, "d": d, "L": L, "m": 0} for V, d, L in product(*values)]


def draw(rng, setting, off=0.0):
    """Draws a table with its truth; `off` is ln N* of each cell less the power law."""
    S, T = int(rng.choice(setting.seeds)), int(rng.choice(setting.levels))
    at = sizes(setting)
    C, theta = len(at), setting.theta
    logs = np.log([[cell[axis] for axis in AXES] for cell in at])
    law = np.array([rng.uniform(1.5, 2.5), rng.uniform(-2, -0.5), rng.uniform(0, 1)])
    if setting.copies:
        law[2] = 0.0
    middle = 9 + (logs - logs.mean(axis=0)) @ law + off
    levels = _levels(rng, setting, middle, T)
    flat, ceiling = _ceilings(rng, setting, logs)
    slope = rng.uniform(*setting.slope) * np.exp(rng.normal(0, 0.2, C))
    slope *= np.where(rng.random(C) < setting.one_step, 20.0, 1.0)
    up, link = SHAPES[str(rng.choice(list(SHAPES)))]
    at_middle = link(np.where(flat, 0.5, np.minimum(theta / ceiling, 0.999)))

    def accuracy(beyond):
        """The fraction of right answers at ln N - ln N* of a seed, (C, n)."""
        p = ceiling[:, None] * up(slope[:, None] * beyond + at_middle[:, None])
        return p.clip(1e-12, 1 - 1e-12)

    smaller = np.where(slope > 10, 0.1, 1.0)  # larger shifts would smear the step
    shared, own = rng.normal(size=S), rng.normal(size=(C, S))
    shift = smaller[:, None] * (setting.seed_shift * shared + setting.own_shift * own)
    beyond = np.log(levels)[:, :, None] - middle[:, None, None] - shift[:, None, :]
    p = accuracy(beyond.reshape(C, -1)).reshape(C, T, S)
    one = 1 / setting.correlation - 1
    k = rng.binomial(setting.n_test, rng.beta(p * one, (1 - p) * one)).astype(float)
    spread = np.hypot(setting.seed_shift, setting.own_shift) * smaller
    nodes, weights = normal_nodes()
    crossing = bisected(
        lambda x: accuracy(x[:, None] - spread[:, None] * nodes) @ weights >= theta,
        np.full(C, -5.0),
        np.full(C, 5.0),
    )
    star = np.where(flat, np.inf, np.exp(middle + crossing))
    # the cell whose runs each cell has; L is the last axis, so even cells have the
    # smaller L
    of = np.arange(C)
    if setting.copies:
        of = np.where((of % 2 == 1) & (rng.random(C) < setting.copies), of - 1, of)
    cells = [Cell(levels[j], k[j], np.full_like(k[j], setting.n_test)) for j in of]
    family = family_of("m = 0", at, cells)
    family = replace(family, origin=family.at.iloc[of].reset_index(drop=True))
    varying = [axis in setting.axes for axis in AXES]
    return Truth(family, law[varying], star[of])


def _levels(rng, setting, middle, T):
    """Draws the levels of N of each cell, (C, T)."""
    step = np.log(STEP[T])
    off = rng.normal(0, setting.censored * step * T / 2, len(middle))
    # one grid of N for all cells; each cell starts at its own level
    start = np.round((middle + off) / step) + rng.uniform()
    x = (start[:, None] + np.arange(T) - (T - 1) / 2) * step
    return np.round(np.exp(x)).astype(np.int64)


def _ceilings(rng, setting, logs):
    """Draws which cells level off below theta, and each ceiling, both (C,)."""
    C = len(logs)
    ceiling = np.where(rng.random(C) < 0.5, 1.0, rng.uniform(setting.ceiling, 1, C))
    flat = (logs[:, 1] == logs[:, 1].min()) & (rng.random(C) < setting.plateau)
    low = rng.uniform(0.2, 0.8, C) * setting.theta
    return flat, np.where(flat, low, ceiling)


def with_misfit(seed, setting):
    """Draws a table whose misfit is a multiple of the noise of the same draws without
    misfit.
    """
    e = estimates(draw(np.random.default_rng(seed), setting).family, setting.theta)
    if e.law.misfit is None:
        raise ValueError(f"draw {seed}: nothing checks the law")
    x = np.log([cell["d"] for cell in sizes(setting)])
    off = MISFITS[setting.misfit](x - x.mean())
    left = e.law.residuals_of(off[None, e.inside])[0]
    rms = np.sqrt((left**2).sum() / e.law.n_free)
    scale = setting.times * e.law.misfit.noise / rms
    return draw(np.random.default_rng(seed), setting, scale * off)


def estimates(family, theta):
    """Returns where the curves of a family cross theta (fraction)."""
    return next(estimate(family, [theta]))


def family_of(name, at, cells, **fields):
    """Returns a family of cells with these axes, none of which copies another."""
    at = pd.DataFrame(at)
    return Family(name, at, cells, at, at[[]], **fields)


def check(setting, replicates):
    """Draws and fits tables; returns a row for each.

    A row has the numbers of seeds and levels; for each axis whether the interval
    contains the truth, the error and the width; the share of thresholds whose interval
    contains the truth; and whether the law is rejected. Every table must determine the
    law; a missing interval raises ValueError.
    """
    rows = []
    for replicate in range(replicates):
        seed = (0, replicate)
        if setting.misfit:
            truth = with_misfit(seed, setting)
        else:
            truth = draw(np.random.default_rng(seed), setting)
        e = estimates(truth.family, setting.theta)
        stars = pd.DataFrame(thresholds(e)).assign(truth=truth.N_star)
        stars = stars[stars["censored"] == "no"]
        n_levels, n_seeds = truth.family.cells[0].k.shape
        row = {
            "seeds": n_seeds,
            "levels": n_levels,
            "thresholds": stars["truth"].between(stars["lo"], stars["hi"]).mean(),
            "rejected": e.law.rejected,
        }
        for axis, found, exact in zip(
            setting.axes, exponents(e), truth.exponents, strict=True
        ):
            lo, hi = found["lo"], found["hi"]
            if np.isnan(lo):
                raise ValueError(
                    f"replicate {replicate}: no interval ({found['warning']})"
                )
            row[f"held {axis}"] = lo <= exact <= hi
            row[f"error {axis}"] = found["exponent"] - exact
            row[f"width {axis}"] = hi - lo
        rows.append(row)
    return pd.DataFrame(rows)


def of_setting(checked, axes):
    """Summarises rows of `check`: coverage, and for each axis bias and mean width."""
    mean = checked.mean()
    percent = 100 * mean
    by_axis = [
        f"{axis} {percent[f'held {axis}']:.1f} %"
        f" ({mean[f'error {axis}']:+.3f}, {mean[f'width {axis}']:.2f})"
        for axis in axes
    ]
    exponents_held = percent.filter(like="held").mean()
    return (
        f"{len(checked):5} replicates: exponents {exponents_held:.1f} %"
        f" [{', '.join(by_axis)}], thresholds {percent['thresholds']:.1f} %, rejected"
        f" {percent['rejected']:.1f} %"
    )


def laws(replicates):
    print("coverage of 95 % intervals; in brackets: coverage (bias, width) per axis")
    for name, setting in SETTINGS.items():
        checked = check(setting, replicates)
        print(f"{name}\n  all       {of_setting(checked, setting.axes)}", flush=True)
        for what in ("seeds", "levels"):
            for n, part in checked.groupby(what):
                print(f"  {n:2} {what:6} {of_setting(part, setting.axes)}", flush=True)


def compared(shared, replicates, own=0.15):
    """Draws tables of two conditions with common seeds, and compares their N*.

    A seed shifts ln N* of both conditions by a normal number with the standard
    deviation `shared`, and of each by another one with the deviation `own`. A row says
    whether an interval of the ratio contains the truth and how wide it is in ln: an
    interval by pairs of seeds, and one from those of the two N* as if these were
    independent.
    """
    rows = []
    levels = np.round(1.6 ** np.arange(10, 25))
    for replicate in range(replicates):
        rng = np.random.default_rng((1, replicate))
        n_seeds, truth = int(rng.choice([8, 16])), rng.uniform(-0.5, 0.5)
        luck = shared * rng.normal(size=n_seeds)
        slope = rng.uniform(1, 3)
        cells = []
        for off in (0.0, truth):
            middle = np.log(3000) + off + luck + own * rng.normal(size=n_seeds)
            p = expit(slope * (np.log(levels)[:, None] - middle))
            k = rng.binomial(2048, p).astype(float)
            cells.append(Cell(levels, k, np.full_like(k, 2048)))
        at = {"optimizer": ["a", "b"]}
        e = estimates(family_of("all", at, cells, powers=()), 0.5)
        *_, row = compare_values(e, "optimizer")
        first, second = e.crossings
        off = second.log_x - first.log_x
        half = np.hypot(second.width, first.width) / 2
        lo, hi = np.log([row["lo"], row["hi"]])
        rows.append(
            {
                "pairs": lo <= truth <= hi,
                "pairs width": hi - lo,
                "apart": abs(off - truth) <= half,
                "apart width": 2 * half,
            }
        )
    return pd.DataFrame(rows)


def ratios(replicates):
    print("ratio of N* of two conditions with common seeds: coverage (width in ln)")
    for shared in (0.0, 0.2, 0.8):
        mean = compared(shared, replicates).mean()
        print(
            f"  seeds shift both by {shared}: by pairs {100 * mean['pairs']:.1f} %"
            f" ({mean['pairs width']:.3f}), from two intervals"
            f" {100 * mean['apart']:.1f} % ({mean['apart width']:.3f})",
            flush=True,
        )


NOISE = {
    "seeds are independent": {"seed": 0.02},
    "seeds shift all configurations": {"seed": 0.005, "common": 0.02},
    "configurations lie off the law": {"seed": 0.01, "off": 0.01},
    "some runs are far off": {"seed": 0.01, "heavy": True},
}
"""The kinds of tables of losses -> the standard deviations of ln loss."""


def losses(law, rng, seed, common=0.0, off=0.0, heavy=False, n_seeds=8):
    """Returns a table of 25 configurations, and the loss of one beyond them.

    `law` is a function of N and D. With heavy tails, noise has Student's t with 3
    degrees of freedom.
    """
    N, D = (1e7 * 4.0 ** np.arange(5), 2e8 * 4.0 ** np.arange(5))
    at = pd.DataFrame(product(N, D), columns=["N", "D"])
    at.loc[len(at)] = BEYOND
    log_loss = np.log(law(at["N"], at["D"])) + off * rng.normal(size=len(at))
    shift = common * rng.normal(size=n_seeds)
    tables = []
    for s in range(n_seeds):
        own = rng.standard_t(3, len(at)) if heavy else rng.normal(size=len(at))
        loss = np.exp(log_loss + shift[s] + seed * own)
        tables.append(at.assign(seed=s, loss=loss).iloc[:-1])
    return pd.concat(tables), float(np.exp(log_loss.iloc[-1]))


BEYOND = [1e7 * 4.0**6, 2e8 * 4.0**6]
LAW_OF_LOSS = {"law": "loss", "axes": ["N", "D"]}


def power_law(p, q):
    return lambda N, D: 30 * N**p * D**q


def predictions(replicates):
    print("predictions of a power law at 4 times the largest sizes: coverage (width)")
    for name, noise in NOISE.items():
        held, widths = [], []
        for replicate in range(replicates):
            rng = np.random.default_rng((2, replicate))
            rows, truth = losses(power_law(*rng.uniform(-0.5, -0.1, 2)), rng, **noise)
            sizes = dict(zip("ND", BEYOND, strict=True))
            row = fit(rows, **LAW_OF_LOSS, predict=sizes).predictions.iloc[0]
            held.append(row["predicted_lo"] <= truth <= row["predicted_hi"])
            widths.append(np.log(row["predicted_hi"] / row["predicted_lo"]))
        text = f"{100 * np.mean(held):.1f} % ({np.median(widths):.3f})"
        print(f"  {name}: {text}", flush=True)


PRODUCT = 1e18
ONE_RUN = {"some runs are far off": {"seed": 0.01, "heavy": True, "n_seeds": 1}}
"""The kind of tables with one run per configuration, in place of one with 8 seeds."""


def sum_law(rng):
    """Draws a law E + A N^p + B D^q, and returns it with a dict of its numbers."""
    p, q = rng.uniform(-0.6, -0.25, 2)
    E = rng.uniform(1, 2)
    A = rng.uniform(0.5, 1.5) * 1.6e8**-p
    B = rng.uniform(0.5, 1.5) * 3.2e9**-q

    def law(N, D):
        return E + A * N**p + B * D**q

    # A p N^p = B q D^q at the optimum
    N = (B * q * PRODUCT**q / (A * p)) ** (1 / (p + q))
    D = PRODUCT / N
    numbers = {
        "floor": {"": E},
        "factor": {"N": A, "D": B},
        "exponent": {"N": p, "D": q},
        "optimum": {"N": N, "D": D, "": law(N, D)},
        "growth of optimum": {"N": q / (p + q), "D": p / (p + q)},
    }
    return law, numbers


def sums(replicates):
    print("numbers of a sum of powers: coverage (median width); share rejected")
    for name, noise in (NOISE | ONE_RUN).items():
        tables = []
        for replicate in range(replicates):
            rng = np.random.default_rng((3, replicate))
            law, numbers = sum_law(rng)
            rows, _ = losses(law, rng, **noise)
            found = fit(rows, **LAW_OF_LOSS, additive=True, product=PRODUCT).additive
            truth = [
                numbers[row.quantity][row.axis] for row in found.itertuples(index=False)
            ]
            held = found["lo"].le(truth) & found["hi"].ge(truth)
            width = (found["hi"] - found["lo"]) / np.abs(truth)
            tables.append(found.assign(held=100 * held, width=width))
        rows = pd.concat(tables)
        means = rows.groupby("quantity").agg({"held": "mean", "width": "median"})
        listed = [
            f"{one.Index} {one.held:.1f} % ({one.width:.3f})"
            for one in means.itertuples()
        ]
        rejected = 100 * rows["rejected"].mean()
        text = f"{', '.join(listed)}; rejected {rejected:.1f} %"
        print(f"  {name}: {text}", flush=True)


STUDIES = {
    "searches": lambda replicates: crossings("searches", replicates),
    "tables": lambda replicates: crossings("tables", replicates),
    "laws": laws,
    "ratios": ratios,
    "predictions": predictions,
    "sums": sums,
}


def main(argv=None):
    parser = argparse.ArgumentParser(description="How often intervals hold the truth.")
    parser.add_argument("studies", nargs="+", choices=STUDIES, metavar="STUDY")
    parser.add_argument("--replicates", type=int, default=300, metavar="R")
    args = parser.parse_args(argv)
    # numpy warns of exp(nan) where a cell has no interval
    warnings.simplefilter("ignore", RuntimeWarning)
    for study in args.studies:
        STUDIES[study](args.replicates)


if __name__ == "__main__":
    main()
