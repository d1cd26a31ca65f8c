"""Searches one cell: determines from the results so far which runs are needed next.

A cell is a point without a value on the searched axis. The first run is at the lowest
level, and each further run doubles the level. These runs show roughly where accuracy
crosses theta. Then seeds run at two levels close to the crossing, one on either side.
After the first seeds, every second seed runs at the estimate alone. Seeds are added
until the confidence interval is narrow enough. Before the search ends, some seeds run
at a third level, at the estimate. If the three levels disagree with a straight line in
logit, more seeds run there, and the search goes on. The next request is a deterministic
function of the results so far. So a repeated or resumed search makes the same requests.

The estimate is the level at which the mean accuracy over seeds crosses theta
(`crossing.py`). The accuracy of a single seed fluctuates with the level. So a single
seed first crosses theta at too low a level. If a seed levels off below theta, it never
crosses. The mean has neither fault.

If accuracy falls along the axis, the search uses 1 - accuracy and 1 - theta instead.
These quantities are also called accuracy and theta here, so that accuracy always rises.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from .crossing import OCTAVE, AnyCurve, Crossing, of_measure
from .grid.file import PER_OCTAVE, SEARCH_MIN_SEEDS
from .summary import MEAN, Summary

FIRST_SEEDS = 4
"""The least number of new seeds in a round. If a sixth of the seeds so far is more, a
round adds that many.
"""

HALF = PER_OCTAVE // 2
"""The number of steps in half an octave. A round reaches at most this far beyond the
levels that have been tried.
"""

QUARTER = PER_OCTAVE // 4
"""The number of steps in a quarter of an octave. If all seeds are used up, they also
run at levels that are this far on either side of the estimate.
"""

BEND_TAIL = 0.9
"""The quantile of Student's distribution above which levels disagree with a line."""

END_SEEDS = (4, 12, 36)
"""The numbers of seeds that are tried at an end of the range, one after another. The
search stops at the first number that shows whether a crossing lies beyond that end.
"""

END_STEPS = 2 * PER_OCTAVE
"""The distance between an end of the range and the level that is compared with it. The
comparison shows whether the curve still rises.
"""

FAR_OFF = 64
"""The largest possible ratio of a crossing to the last level. If the ratio would be
larger, the curve counts as levelling off.
"""

HALF_OCTAVE = OCTAVE / 2
STRAIGHT = 0.25
"""The least interval width for which levels may be half an octave from the crossing.
Along d, m, V and L, such levels shift the crossing by 2 to 5 %.
"""

Request = tuple[float, int]
"""A level and a seed."""

Step = tuple[int, int]
"""The index k of a level, and a seed."""

Asking = Generator[list[Step], None, Any]
"""Yields lists of steps whose accuracy is needed next."""

OUTCOMES = {
    "found": (
        "the interval is as narrow as `width` requires, or lies between neighbouring"
        " whole numbers"
    ),
    "budget": "`max_runs` were used before the interval was narrow enough",
    "seeds": "all seeds were used before the interval was narrow enough",
    "undecided": (
        "`max_runs` or all seeds were used, and it is not certain that the curve"
        " crosses theta"
    ),
    "left": "the crossing lies below the smallest level",
    "right": (
        "the crossing lies beyond the largest level: the measure has not reached theta"
        " there, and still moves towards it"
    ),
    "plateau": "the measure levels off before theta",
    "nonfinite": "a measure is not finite; in a share of seeds it counts as below",
    "unfinished": (
        "the search was interrupted or a run of it failed; the same command resumes it"
    ),
}
"""A dict from each possible outcome of a cell's search to its description."""


class Result(NamedTuple):
    outcome: str  # one of OUTCOMES
    threshold: Crossing | None  # for the outcomes found, budget and seeds


@dataclass(eq=False)
class CellSearch:
    """The search of one cell.

    `pending` lists the runs for which the search waits. `update` must be called with
    their accuracies. `result` is None until the search ends.
    """

    theta: float
    """The accuracy to cross: a fraction, or a number in units of a measure."""

    levels: Mapping[int, float]
    """A dict from k to a level near 2^(k / PER_OCTAVE)."""

    width: float
    """The largest width of the interval, in ln of the level."""

    max_runs: int
    seeds: Sequence[int]
    """The seeds in the order in which they are used."""

    rises: bool = True
    checks: bool = False
    """Whether the search also compares the two ends of a cell without a crossing. The
    comparison detects that accuracy changes in the unexpected direction.
    """

    assumed: bool = False
    """Whether the direction is only assumed. The two ends are then compared wherever
    there is no crossing.
    """

    summary: Summary = MEAN
    farthest: float = HALF_OCTAVE
    """The largest distance of levels from the crossing, in ln of the level."""

    def __post_init__(self) -> None:
        self.ks = sorted(self.levels)
        self._rising_theta = self.theta if self.rises else 1 - self.theta
        self._crossed = self.summary.crossed(self._rising_theta)
        self.accuracy: dict[Step, Any] = {}
        """A dict from each step to its accuracy, or to 1 - accuracy if accuracy falls
        along the axis. None means that the accuracy is nonfinite, which ends the
        search, except in a share of seeds: such a seed has not reached the level.
        """

        self.result: Result | None = None
        self.against = False
        """Whether accuracy was found to change in the unexpected direction."""

        self.beyond: float | None = None
        """A level above the crossing where accuracy is below theta again."""

        self._bent = False  # whether all seeds were needed at a third level
        self._looked = False  # whether a level far above the crossing was tried
        self._spread = False  # whether all seeds run at all levels near the crossing
        self._steps = self._climb_and_close_in()
        self._advance()

    @property
    def pending(self) -> list[Request]:
        return [] if self.result else self._requests(self._new)

    @property
    def completed(self) -> list[Request]:
        """The runs whose accuracy the search has received, in the order of arrival."""
        return self._requests(self.accuracy)

    def _requests(self, steps: Iterable[Step]) -> list[Request]:
        return [(self.levels[k], seed) for k, seed in steps]

    def update(self, accuracies: Sequence[float | None]) -> None:
        """Records the accuracies of the pending runs, in the order of `pending`, as
        numbers whose mean over seeds rises through theta.

        Each accuracy is a number, or None if it is nonfinite.
        """
        falls = not self.rises
        for step, accuracy in zip(self._new, accuracies, strict=True):
            if accuracy is None and self.summary.is_share:
                accuracy = -math.inf
            if accuracy is not None:
                value = 1 - accuracy if falls else accuracy
                accuracy = float(self.summary.values(value, self._rising_theta, falls))
            self.accuracy[step] = accuracy
        if any(self.accuracy[step] is None for step in self._new):
            self._end("nonfinite")
        else:
            self._advance()

    def _advance(self) -> None:
        """Advances the search until it needs an unknown accuracy or ends."""
        self._new: list[Step] = []
        while not self._new:
            try:
                steps = dict.fromkeys(next(self._steps))
            except StopIteration as stop:
                self._end(stop.value)
                return
            self._new = [step for step in steps if step not in self.accuracy]
        if len(self.accuracy) + len(self._new) > self.max_runs:
            self._end("budget")

    def _end(self, outcome: str) -> None:
        found = self._estimate() if outcome in ("found", "budget", "seeds") else None
        if found and found.side:
            outcome, found = "undecided", None
        elif found and found.n_seeds >= SEARCH_MIN_SEEDS and self._is_narrow(found):
            outcome = "found"
        self.result = Result(outcome, found)

    def _estimate(self) -> Crossing:
        return self._curve().crossing(self._crossed)

    def _curve(self) -> AnyCurve:
        levels, seeds = zip(*self.completed, strict=True)
        return of_measure(
            list(map(math.log, levels)),
            seeds,
            list(self.accuracy.values()),
            self._crossed,
            not self.rises,
        )

    def _climb_and_close_in(self) -> Asking:
        """Yields lists of steps whose accuracy is needed next. Returns the outcome."""
        first, last = self.ks[0], self.ks[-1]
        octaves = dict.fromkeys(
            map(self._nearest, [*range(first, last, PER_OCTAVE), last])
        )
        for i, k in enumerate(octaves):
            # each level has a new seed, as one seed alone might never cross theta
            step = k, self.seeds[i % len(self.seeds)]
            yield [step]
            if self.accuracy[step] >= self._crossed:
                break
        used = 0
        while True:
            now = self._estimate()
            tried, _ = zip(*self.accuracy, strict=True)
            lowest, highest = min(tried), max(tried)
            centre = now.log_x / OCTAVE * PER_OCTAVE
            centre = min(max(centre, lowest - HALF), highest + HALF)
            sure = used >= SEARCH_MIN_SEEDS
            inside = first <= centre <= last
            ended = ""
            if sure and inside and self._is_narrow(now):
                ended = "found"
            elif used == len(self.seeds):
                ended = "seeds"
            if ended and inside and now.side == 0:
                before = len(self.accuracy)
                yield from self._examine(now, centre, self.seeds[:used], ended)
                if len(self.accuracy) > before:
                    continue
            if ended == "found":
                return ended
            if centre < first and (sure or lowest == first):
                side = yield from self._side_at(first)
                if side < 0:
                    if self.checks:
                        near = self._nearest(first + END_STEPS)
                        yield from self._compare(first, near)
                    if self.assumed and not self.against:
                        yield from self._compare(first, last)
                    return "left"
            if centre > last and (sure or highest == last):
                side = yield from self._side_at(last)
                if side > 0:
                    near = self._nearest(max(first, last - END_STEPS))
                    yield from self._compare(near, last)
                    if self._curve().reach(self._crossed) < math.log(FAR_OFF):
                        return "right"
                    if self.checks and not self.against:
                        yield from self._compare(first, last)
                    return "plateau"
            if ended:
                return ended
            used = min(used + max(FIRST_SEEDS, used // 6), len(self.seeds))
            centre = min(max(centre, first), last)
            yield self._lacking(centre, now.slope, self.seeds[:used])

    def _nearest(self, k: float) -> int:
        return min(self.ks, key=lambda other: abs(other - k))

    def _examine(
        self, now: Crossing, centre: float, seeds: Sequence[int], ended: str
    ) -> Asking:
        """Runs what shows whether the curve has another shape than the estimate
        assumes.

        If all seeds are used up, only more levels can say more. So all seeds run at
        five levels around the estimate.
        """
        if not self._looked:
            self._looked = True
            yield from self._look_beyond(centre)
        if len(seeds) < SEARCH_MIN_SEEDS:
            return
        if ended == "found":
            yield from self._measure_at(now, centre, seeds, FIRST_SEEDS)
        elif not self._spread:
            self._spread = True
            yield self._lacking(centre, now.slope, seeds)
            now = self._estimate()
            if now.side == 0:
                centre = now.log_x / OCTAVE * PER_OCTAVE
                for k in (centre, centre - QUARTER, centre + QUARTER):
                    yield from self._measure_at(now, k, seeds, len(seeds))

    def _measure_at(
        self, now: Crossing, centre: float, seeds: Sequence[int], n: int
    ) -> Asking:
        """Runs n seeds at the level that is nearest to the centre.

        If their accuracy disagrees with a straight line, twice as many seeds run there,
        and so on. A run at a neighbouring level counts, too.
        """
        third = self._nearest(centre)
        near = 1 if self._bent or self._spread else 2
        while True:
            has = {seed for k, seed in self.accuracy if abs(k - third) <= near}
            lacking = [seed for seed in seeds if seed not in has]
            missing = n - (len(seeds) - len(lacking))
            if missing > 0:
                yield [(third, seed) for seed in lacking[:missing]]
            elif lacking and self._is_bent(now, third, near):
                n = min(2 * n, len(seeds))
                self._bent = self._bent or n == len(seeds)
            else:
                return

    def _is_bent(self, now: Crossing, third: int, near: int) -> bool:
        """Whether accuracy near a level is significantly off the straight line in logit
        through the levels on either side.

        Each seed is compared with its own runs on either side, so that the differences
        between seeds cancel.
        """
        runs: dict[int, dict[int, Any]] = {}
        for (k, seed), accuracy in self.accuracy.items():
            runs.setdefault(seed, {})[k] = accuracy
        offs, curve = [], self._curve()
        for of_seed in runs.values():
            at = [k for k in of_seed if abs(k - third) <= near]
            below = [k for k in of_seed if k < third - near]
            above = [k for k in of_seed if k > third + near]
            if at and below and above:
                middle = min(at, key=lambda k: abs(k - third))
                ks = (max(below), middle, min(above))
                x = np.log([self.levels[k] for k in ks])
                measured = np.array([of_seed[k] for k in ks])
                off = curve.off_line(x, measured, self._crossed, now)
                offs.append(off[1] - np.interp(x[1], x[[0, 2]], off[[0, 2]]))
        if len(offs) < FIRST_SEEDS:
            return False
        t = stdtrit(len(offs) - 1, BEND_TAIL)
        return bool(abs(np.mean(offs)) > t * _standard_error(offs))

    def _look_beyond(self, centre: float) -> Asking:
        """Runs a seed far above the crossing, and more seeds if its accuracy is below
        theta. Records whether accuracy is certainly below theta again.
        """
        k = self._nearest(centre + END_STEPS)
        step = k, self.seeds[0]
        yield [step]
        if self.accuracy[step] < self._crossed:
            off = yield from self._settle(k, END_SEEDS[:2])
            if off < 0:
                self.beyond = self.levels[k]

    def _is_narrow(self, now: Crossing) -> bool:
        """Whether the interval is as narrow as required, or as narrow as the levels
        allow.

        If the interval lies between two neighbouring whole numbers that are both
        levels, the levels allow no narrower one.
        """
        if now.width <= self.width:
            return True
        if not math.isfinite(now.width):
            return False
        below = math.floor(math.exp(now.lo) + 1e-9)
        above = math.ceil(math.exp(now.hi) - 1e-9)
        return above - below == 1 and {below, above} <= {*self.levels.values()}

    def _side_at(self, k: int) -> Asking:
        """Returns `Crossing.side`: the side of theta on which the curve lies, 0 if it
        crosses.

        First, seeds run at level k until the mean accuracy there can be distinguished
        from theta, or until `END_SEEDS` is exhausted.
        """
        yield from self._settle(k, END_SEEDS)
        return self._estimate().side

    def _settle(self, k: int, counts: Sequence[int]) -> Asking:
        """Returns the difference of the mean accuracy at level k from theta.

        The counts are numbers of seeds that are tried one after another, until the
        difference is certain. The result is 0 if it is never certain.
        """
        for n in counts:
            yield [(k, seed) for seed in self.seeds[:n]]
            there = []
            for (level, _), accuracy in self.accuracy.items():
                if level == k:
                    there.append(accuracy)
            off = float(np.mean(there)) - self._crossed
            if abs(off) > 3 * _standard_error(there):
                return off
        return 0.0

    def _compare(self, k: int, other: int) -> Asking:
        """Runs a few seeds at two levels, and records whether accuracy falls
        significantly.
        """
        if k == other:
            return
        seeds = self.seeds[:FIRST_SEEDS]
        yield [(level, seed) for level in (k, other) for seed in seeds]
        gains = [self.accuracy[other, seed] - self.accuracy[k, seed] for seed in seeds]
        least = 0.02 * self._curve().scale
        self.against = bool(np.mean(gains) < -max(least, 3 * _standard_error(gains)))

    def _lacking(
        self, centre: float, slope: float | None, seeds: Sequence[int]
    ) -> list[Step]:
        """Returns the steps that must still run for the given seeds.

        Each seed needs one level on either side of the centre. The best distance from
        the centre is the most informative one. After the first seeds, every second seed
        needs only one level, at the centre, until all seeds are used up. This costs
        half as much and says as much about what differs between seeds.
        """
        # a level is most informative where accuracy is one logit away from theta
        distance = self.farthest
        if slope:
            distance = min(1 / slope, distance)
        away = max(round(distance / OCTAVE * PER_OCTAVE), 1)
        above = min(
            [k for k in self.ks[1:] if k >= centre] or self.ks[-1:],
            key=lambda k: (abs(k - centre - away), k),
        )
        below = min(
            [k for k in self.ks[:-1] if k < min(centre, above)] or self.ks[:1],
            key=lambda k: (abs(k - centre + away), -k),
        )
        # levels near the centre stay near enough if the centre moves a little
        far = max(2 * away + 1, above - below)
        has_below: set[int] = set()
        has_above: set[int] = set()
        for k, seed in self.accuracy:
            if centre - far <= k < centre:
                has_below.add(seed)
            elif centre <= k <= centre + far:
                has_above.add(seed)
        lacking = []
        middle = self._nearest(centre)
        for i, seed in enumerate(seeds):
            if i >= SEARCH_MIN_SEEDS and i % 2 and not self._spread:
                if seed not in has_below | has_above:
                    lacking.append((middle, seed))
                continue
            if seed not in has_below:
                lacking.append((below, seed))
            if seed not in has_above:
                lacking.append((above, seed))
        return lacking


def _standard_error(values: Sequence[float]) -> float:
    """Returns the standard error of the mean."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def farthest(axis: str, width: float) -> float:
    """Returns the largest distance between levels and the crossing, in ln of the level.

    The distance is half an octave. It is smaller if the interval must be so narrow that
    the curvature of the curve would matter. Along N, the curvature is slight, so the
    distance is always half an octave.
    """
    if axis == "N":
        return HALF_OCTAVE
    return HALF_OCTAVE * min(1.0, width / STRAIGHT)
