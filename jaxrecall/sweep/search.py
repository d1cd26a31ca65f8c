"""The search for the crossing in one cell: from the results so far to the runs it requests next.

A cell is a point without its value of the searched axis. First one run a level, the
value doubling from below, finds roughly where accuracy crosses; then every seed runs at
two levels close to the crossing, one on either side, until the interval over seeds is
narrow enough. The next request is a deterministic function of the results so far, so a
search repeats and resumes by the same requests.

What is estimated is where the mean accuracy over seeds crosses. One seed's accuracy
goes up and down with the level, so the first time that it crosses comes too early, and
a seed that levels off below never does; the mean has neither fault.

The fit of a whole table (`analysis/fit/curve.py`) has an estimator of its own, and each
is kept for what the other cannot do. This one decides which runs come next, so another
would send finished searches after new runs: the fit's does so in 586 of the 607 shipped
ones, and takes three times as long in every round. The fit's interpolates between
levels however far apart, where this one has no pair of levels within an octave to go
by: so in 60 of the 62 crossings of the two shipped grids whose levels lie a factor of 4
or more apart.

Along an axis on which accuracy falls, everything here is about 1 - accuracy and
1 - theta, which rise.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import logit, stdtrit

from .grid.file import PER_OCTAVE, SEARCH_MIN_SEEDS

FIRST_SEEDS = 4  # in a round; later a sixth of those there are
HALF = PER_OCTAVE // 2  # half an octave: how far beyond what has been tried a round reaches
END_SEEDS = 4  # at an end of the range, before a crossing is said to lie beyond it
END_STEPS = 2 * PER_OCTAVE  # how far from an end the curve is compared, to decide whether it still rises
FAR_OFF = 64  # times the last level: a crossing further away counts as none, the curve levels off

REACH = np.log(2) + 1e-9
"""How far from the crossing a level may lie and still be informative, in ln of the level: an octave."""

HALF_OCTAVE = float(np.log(2) / 2)
STRAIGHT = 0.25
"""Width of an interval beside which a straight line over an
octave is good enough: along d, m, V and L it is off by 2 to 5 %.
"""

MIN_SLOPE = 0.1  # of logit accuracy in x: a flatter curve crosses anywhere
MIN_INTERVAL_SEEDS = 4  # for an interval at all
EDGE = 1e-4  # accuracies nearer to 0 or 1 have no logit to speak of
STEPS = 5

Request = tuple[float, int]
"""Level and seed."""

Step = tuple[int, int]
"""k of a level, and seed."""

OUTCOMES = {
    "found": "the interval is as narrow as `width` requires, or lies between neighbouring whole numbers",
    "budget": "`max_runs` were used before the interval was narrow enough",
    "seeds": "all seeds were used before the interval was narrow enough",
    "left": "the crossing lies below the smallest level",
    "right": "the crossing lies beyond the largest level: accuracy has not reached theta there, and still moves towards it",
    "plateau": "accuracy levels off before theta",
    "nonfinite": "a run overflowed, so its accuracy is unknown",
    "unfinished": "the search of this cell was interrupted or a run of it failed; the same command resumes it",
}
"""How the search of a cell ended."""


@dataclass(frozen=True)
class Target:
    """The goal of the search in one cell."""

    theta: float  # accuracy to cross, a fraction
    levels: Mapping[int, float]  # k -> level, near 2^(k / PER_OCTAVE)
    width: float  # of the interval, in ln of the level
    max_runs: int
    seeds: Sequence[int]  # in the order in which they are used
    rises: bool = True
    checks: bool = False
    """Whether a cell without a crossing also compares
    its ends, to notice that accuracy runs the other way.
    """

    farthest: float = HALF_OCTAVE
    """How far from the crossing levels are tried, in ln of the level."""


class Result(NamedTuple):
    outcome: str  # one of OUTCOMES
    threshold: Threshold | None  # None where there is no interval to report
    against: bool = False
    """Whether accuracy ran against the direction that was expected."""


class CellSearch:
    """The search of one cell: `pending` are the runs it waits for, `update` takes their
    accuracies, `result` is set when it ends.

    `closing_in` says whether they are near the crossing.
    """

    def __init__(self, target: Target):
        self.target = target
        self.ks = sorted(target.levels)
        self.first, self.last = self.ks[0], self.ks[-1]
        self.theta = target.theta if target.rises else 1 - target.theta
        self.accuracy: dict[Step, float | None] = {}  # 1 - accuracy along a falling axis
        self.result: Result | None = None
        self.closing_in = self.against = False
        self._steps = self._climb_and_close_in()
        self._advance()

    @property
    def pending(self) -> list[Request]:
        return [(self.target.levels[k], seed) for k, seed in self._new] if self.result is None else []

    @property
    def completed(self) -> list[Request]:
        """The runs whose accuracy it has received, in order."""
        return [(self.target.levels[k], seed) for k, seed in self.accuracy]

    def update(self, accuracies: Sequence[float | None]) -> None:
        """Takes the accuracies (fraction; None: nonfinite) of the pending runs, in their order."""
        rising = [accuracy if accuracy is None or self.target.rises else 1 - accuracy for accuracy in accuracies]
        self.accuracy |= dict(zip(self._new, rising, strict=True))
        if any(accuracy is None for accuracy in accuracies):
            self._end("nonfinite")
        else:
            self._advance()

    def _advance(self) -> None:
        try:
            while not (new := [step for step in dict.fromkeys(next(self._steps)) if step not in self.accuracy]):
                pass
        except StopIteration as stop:
            return self._end(stop.value)
        self._new = new
        if len(self.accuracy) + len(new) > self.target.max_runs:
            self._end("budget")

    def _end(self, outcome: str) -> None:
        found = self._estimate() if outcome in ("found", "budget", "seeds") else None
        self.result = Result(outcome, found if found and math.isfinite(found.width) else None, self.against)

    def _estimate(self) -> Threshold:
        k, seed = zip(*self.accuracy, strict=True)
        return threshold([self._log(i) for i in k], seed, list(self.accuracy.values()), self.theta, self.target.farthest)

    def _climb_and_close_in(self) -> Generator[list[Step], None, str]:
        """Yields the steps whose accuracy it needs to continue; returns the outcome."""
        target, first, last = self.target, self.first, self.last
        octaves = dict.fromkeys(self._nearest(k) for k in [*range(first, last, PER_OCTAVE), last])
        for i, k in enumerate(octaves):
            step = (k, target.seeds[i % len(target.seeds)])  # each level its own seed: one that never crosses must not lead the climb
            yield [step]
            if self._mean([step]) >= self.theta:
                break
        used = 0
        while True:
            now = self._estimate()
            lowest, highest = (end(k for k, _ in self.accuracy) for end in (min, max))
            centre = min(max(now.log_x / math.log(2) * PER_OCTAVE, lowest - HALF), highest + HALF)
            sure = now.n_seeds >= SEARCH_MIN_SEEDS
            if sure and (now.width <= target.width or self._between_neighbours(now)) and first <= centre <= last:
                return "found"
            if centre < first and (sure or lowest == first) and (yield from self._mean_at(first)) >= self.theta:
                if target.checks:
                    yield from self._slope(first, self._nearest(first + END_STEPS))
                return "left"
            if centre > last and (sure or highest == last) and (yield from self._mean_at(last)) < self.theta:
                crossing, slope = yield from self._slope(self._nearest(max(first, last - END_STEPS)), last)
                if slope > 0 and crossing - self._log(last) < math.log(FAR_OFF):
                    return "right"
                if target.checks and not self.against:
                    yield from self._slope(first, last)
                return "plateau"
            if used == len(target.seeds):
                return "seeds"
            used = min(used + max(FIRST_SEEDS, used // 6), len(target.seeds))
            self.closing_in = True
            yield self._lacking(min(max(centre, first), last), now.slope, target.seeds[:used])

    def _log(self, k: int) -> float:
        return math.log(self.target.levels[k])

    def _nearest(self, k: int) -> int:
        return k if k in self.target.levels else min(self.ks, key=lambda other: abs(other - k))

    def _between_neighbours(self, now: Threshold) -> bool:
        """Whether the interval lies between neighbouring whole numbers, both of which are levels."""
        if not math.isfinite(now.width):
            return False
        below, above = math.floor(math.exp(now.lo) + 1e-9), math.ceil(math.exp(now.hi) - 1e-9)
        return above - below == 1 and {below, above} <= {*self.target.levels.values()}

    def _mean(self, steps: Sequence[Step]) -> float:
        return float(np.mean([self.accuracy[step] for step in steps]))  # type: ignore[arg-type]

    def _mean_at(self, k: int) -> Generator[list[Step], None, float]:
        """Mean accuracy at a level, over as many seeds as are needed
        to distinguish it from theta, at most SEARCH_MIN_SEEDS.
        """
        mean = math.nan
        for n in (END_SEEDS, SEARCH_MIN_SEEDS):
            yield [(k, seed) for seed in self.target.seeds[:n]]
            there = [accuracy for (level, _), accuracy in self.accuracy.items() if level == k]
            mean = float(np.mean(there))  # type: ignore[arg-type]
            if abs(mean - self.theta) > 3 * np.std(there, ddof=1) / math.sqrt(len(there)):  # type: ignore[arg-type]
                break
        return mean

    def _slope(self, k: int, other: int) -> Generator[list[Step], None, tuple[float, float]]:
        """Where the line through the mean accuracies at two levels
        crosses theta, and its slope. Notes where it falls for sure.
        """
        if k == other:
            return self._log(k), 1.0  # nothing tells whether it rises
        before, after = ([(i, seed) for seed in self.target.seeds[:END_SEEDS]] for i in (k, other))
        yield before + after
        gains = [self.accuracy[b] - self.accuracy[a] for a, b in zip(before, after, strict=True)]  # type: ignore[operator]
        self.against = bool(np.mean(gains) < -max(0.02, 3 * np.std(gains, ddof=1) / math.sqrt(len(gains))))
        return line((self._log(k), self._mean(before), self._log(other), self._mean(after)), self.theta)

    def _lacking(self, centre: float, slope: float | None, seeds: Sequence[int]) -> list[Step]:
        """The steps that the seeds lack: one level on either
        side of the centre, near the most informative distance.
        """
        away = max(round(distance(slope, self.target.farthest) / math.log(2) * PER_OCTAVE), 1)
        above = min([k for k in self.ks[1:] if k >= centre] or self.ks[-1:], key=lambda k: (abs(k - centre - away), k))
        below = min([k for k in self.ks[:-1] if k < min(centre, above)] or self.ks[:1], key=lambda k: (abs(k - centre + away), -k))
        far = max(2 * away + 1, above - below)  # what is near enough stays near enough when the centre moves a little
        has: dict[int, list[int]] = {}
        for k, seed in self.accuracy:
            has.setdefault(seed, []).append(k)
        lacking = []
        for seed in seeds:
            lacking += [(below, seed)] * (not any(centre - far <= k < centre for k in has.get(seed, ())))
            lacking += [(above, seed)] * (not any(centre <= k <= centre + far for k in has.get(seed, ())))
        return lacking


class Threshold(NamedTuple):
    """ln of the level x where mean accuracy crosses theta, -inf or inf
    where all of it lies above or below; 95 % interval; seeds used.
    """

    log_x: float
    lo: float = -np.inf
    hi: float = np.inf
    n_seeds: int = 0
    slope: float | None = None  # of logit accuracy in x

    @property
    def width(self) -> float:
        return self.hi - self.lo


def threshold(log_x: Any, seed: Any, accuracy: Any, theta: float, farthest: float = HALF_OCTAVE) -> Threshold:
    """The crossing of theta (fraction), given ln of the level, seed and accuracy
    (fraction) of each run, any number of levels for a seed.

    Every seed with a level on either side of the crossing, within an octave, counts
    with one of each: those nearest to where accuracy is a logit from theta, or to
    `farthest` away (half an octave) if that is nearer. x_-, a_- and x_+, a_+ are the
    means over seeds of their x and accuracy:

        x* = x_- + (x_+ - x_-) (logit theta - logit a_-) / (logit a_+ - logit a_-)

    The interval is Student's t with S - 1 degrees of freedom on the delete-one-seed
    jackknife: the seed is the independent unit.
    """
    x, at = np.unique(np.asarray(log_x, float), return_inverse=True)
    seeds, of = np.unique(seed, return_inverse=True)
    table = np.full((len(seeds), len(x)), np.nan)
    table[of, at] = accuracy
    crossing, seen = _rough_crossing(x, table, theta), []
    if not math.isfinite(crossing):
        return Threshold(crossing)
    pairs, slope = np.empty((4, 0)), None
    for _ in range(STEPS):  # the crossing decides which levels count, and they decide where it is
        pairs = _pairs(x, table, min(max(crossing, x[0] + REACH * 1e-6), x[-1]), distance(slope, farthest))
        if pairs.shape[1] < 2:
            return Threshold(crossing)
        if any(np.array_equal(pairs, before) for before in seen):
            break
        seen.append(pairs)
        estimate, slope = line(pairs.mean(1), theta)
        if not slope > MIN_SLOPE:
            return Threshold(crossing, n_seeds=pairs.shape[1])
        crossing += float(np.clip(estimate - crossing, -REACH, REACH))
    S = pairs.shape[1]
    without, slopes = line((pairs.sum(1, keepdims=True) - pairs) / (S - 1), theta)
    if S < MIN_INTERVAL_SEEDS or not (slopes > MIN_SLOPE).all():
        return Threshold(crossing, n_seeds=S, slope=slope)
    error = stdtrit(S - 1, 0.975) * np.sqrt((S - 1) / S * ((without - without.mean()) ** 2).sum())
    return Threshold(crossing, crossing - error, crossing + error, S, slope)


def _rough_crossing(x: Any, table: Any, theta: float) -> float:
    """Where the mean accuracy of a level, made to rise, crosses, by
    interpolation; -inf or inf where all of it lies above or below.
    """
    count = (~np.isnan(table)).sum(0)
    mean = isotonic_regression(np.nansum(table, 0) / count, weights=count).x
    if mean[-1] < theta or mean[0] >= theta:
        return np.inf if mean[-1] < theta else -np.inf
    above = int(np.argmax(mean >= theta))
    return float(np.interp(theta, mean[above - 1 : above + 1], x[above - 1 : above + 1]))


def line(points: Any, theta: float) -> tuple[Any, Any]:
    """Where the line through (x_-, a_-) and (x_+, a_+)
    crosses, and its slope, in logit accuracy against x.
    """
    x_below, a_below, x_above, a_above = points
    low, high = (logit(np.clip(a, EDGE, 1 - EDGE)) for a in (a_below, a_above))
    slope = (high - low) / (x_above - x_below)
    with np.errstate(divide="ignore", invalid="ignore"):
        return x_below + (logit(theta) - low) / slope, slope


def distance(slope: float | None, most: float) -> float:
    """How far from the crossing, in x, a level is most
    informative: a logit of accuracy, but not farther than `most`.
    """
    return min(1 / slope, most) if slope else most


def farthest(axis: str, width: float) -> float:
    """How far from the crossing, in ln of the level, the levels of a search lie: half
    an octave, or nearer where so narrow an interval is asked for that the bend of the
    curve would show. Along N it is always half an octave: the bend is slight."""
    return HALF_OCTAVE if axis == "N" else HALF_OCTAVE * min(1.0, width / STRAIGHT)


def _pairs(x: Any, table: Any, crossing: float, away: float) -> Any:
    """x_-, a_-, x_+, a_+ of each seed that has both, shape (4, seeds)."""
    near = ~np.isnan(table) & (np.abs(x - crossing) <= REACH)
    below, above = near & (x < crossing), near & (x >= crossing)
    both = np.flatnonzero(below.any(1) & above.any(1))
    left, right = (
        np.argmin(np.where(side[both], np.abs(x - wanted), np.inf), axis=1)
        for side, wanted in ((below, crossing - away), (above, crossing + away))
    )
    return np.stack([x[left], table[both, left], x[right], table[both, right]])
