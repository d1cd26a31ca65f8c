"""The search for the critical N of one cell: from the results so far to the runs it requests next.

A cell is a point without its N. First one run a level, N doubling from below, finds roughly where accuracy crosses; then every
seed runs at two levels close to the crossing, one on either side, until the interval over seeds is narrow enough. The next
request is a deterministic function of the results so far, so a search repeats and resumes by the same requests.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..grid.file import SEARCH_MIN_SEEDS
from .threshold import Threshold, distance, line, threshold

PER_OCTAVE = 8
"""Levels of N are round(2^(k / 8)), so that searches of other width, theta or range meet on the same rows."""

FIRST_SEEDS = 4  # in a round; later a sixth of those there are
HALF = PER_OCTAVE // 2  # half an octave: how far beyond what has been tried a round reaches
END_SEEDS = 4  # at an end of the range, before a crossing is said to lie beyond it
END_STEPS = 2 * PER_OCTAVE  # how far below the end the curve is compared, to decide whether it still rises
FAR_OFF = 64  # times the last N: a crossing further away counts as none, the curve levels off

Request = tuple[float, int]
"""N and seed."""

Step = tuple[int, int]
"""k of a level, and seed."""

OUTCOMES = {
    "found": "the interval is as narrow as `width` requires",
    "budget": "`max_runs` were used before the interval was narrow enough",
    "seeds": "all seeds were used before the interval was narrow enough",
    "left": "accuracy is above theta from the smallest N on",
    "right": "accuracy is below theta up to the largest N, and still rising",
    "plateau": "accuracy levels off below theta",
    "nonfinite": "a run overflowed, so its accuracy is unknown",
    "unfinished": "the search of this cell was interrupted or a run of it failed; the same command resumes it",
}
"""How the search of a cell ended."""


@dataclass(frozen=True)
class Target:
    """The goal of the search in one cell: theta (fraction), N from `low` to `high`, interval width in ln N, runs, seeds in order."""

    theta: float
    low: int
    high: int
    width: float
    max_runs: int
    seeds: Sequence[int]
    whole: bool = True
    """Whether N is a whole number; a simulator of one's own may search over another field."""


class Result(NamedTuple):
    outcome: str  # one of OUTCOMES
    threshold: Threshold | None  # None where there is no interval to report


def level(k: int, whole: bool = True) -> float:
    """N of the lattice: 2^(k / 8), rounded where N is whole."""
    N = 2 ** (k / PER_OCTAVE)
    return round(N) if whole else N


class CellSearch:
    """The search of one cell: `pending` are the runs it waits for, `update` takes their accuracies, `result` is set when it ends."""

    def __init__(self, target: Target):
        self.target = target
        self.first = math.ceil(PER_OCTAVE * math.log2(target.low) - 1e-9)
        self.last = math.floor(PER_OCTAVE * math.log2(target.high) + 1e-9)
        self.accuracy: dict[Step, float | None] = {}
        self.result: Result | None = None
        self._steps = self._climb_and_close_in()
        self._advance()

    @property
    def pending(self) -> list[Request]:
        return [(self._level(k), seed) for k, seed in self._new] if self.result is None else []

    @property
    def completed(self) -> list[Request]:
        """The runs whose accuracy it has received, in order."""
        return [(self._level(k), seed) for k, seed in self.accuracy]

    def update(self, accuracies: Sequence[float | None]) -> None:
        """Takes the accuracies (fraction; None: nonfinite) of the pending runs, in their order."""
        self.accuracy |= dict(zip(self._new, accuracies, strict=True))
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
        self.result = Result(outcome, found if found and math.isfinite(found.width) else None)

    def _estimate(self) -> Threshold:
        k, seed = zip(*self.accuracy, strict=True)
        return threshold(np.log([self._level(i) for i in k]), seed, list(self.accuracy.values()), self.target.theta)

    def _climb_and_close_in(self) -> Generator[list[Step], None, str]:
        """Yields the steps whose accuracy it needs to continue; returns the outcome."""
        target, first, last = self.target, self.first, self.last
        for i, k in enumerate([*range(first, last, PER_OCTAVE), last]):
            step = (k, target.seeds[i % len(target.seeds)])  # each level its own seed: one that never crosses must not lead the climb
            yield [step]
            if self._mean([step]) >= target.theta:
                break
        used = 0
        while True:
            now = self._estimate()
            lowest, highest = (end(k for k, _ in self.accuracy) for end in (min, max))
            centre = min(max(now.log_N / math.log(2) * PER_OCTAVE, lowest - HALF), highest + HALF)
            sure = now.n_seeds >= SEARCH_MIN_SEEDS
            if sure and now.width <= target.width and first <= centre <= last:
                return "found"
            if centre < first and (sure or lowest == first) and (yield from self._mean_at(first)) >= target.theta:
                return "left"
            if centre > last and (sure or highest == last) and (yield from self._mean_at(last)) < target.theta:
                return "right" if (yield from self._rises()) else "plateau"
            if used == len(target.seeds):
                return "seeds"
            used = min(used + max(FIRST_SEEDS, used // 6), len(target.seeds))
            yield self._lacking(min(max(centre, first), last), now.slope, target.seeds[:used])

    def _level(self, k: int) -> float:
        return level(k, self.target.whole)

    def _mean(self, steps: Sequence[Step]) -> float:
        return float(np.mean([self.accuracy[step] for step in steps]))  # type: ignore[arg-type]

    def _mean_at(self, k: int) -> Generator[list[Step], None, float]:
        """Mean accuracy at a level, over as many seeds as are needed to distinguish it from theta, at most SEARCH_MIN_SEEDS."""
        mean = math.nan
        for n in (END_SEEDS, SEARCH_MIN_SEEDS):
            yield [(k, seed) for seed in self.target.seeds[:n]]
            there = [accuracy for (level, _), accuracy in self.accuracy.items() if level == k]
            mean = float(np.mean(there))  # type: ignore[arg-type]
            if abs(mean - self.target.theta) > 3 * np.std(there, ddof=1) / math.sqrt(len(there)):  # type: ignore[arg-type]
                break
        return mean

    def _rises(self) -> Generator[list[Step], None, bool]:
        """Whether accuracy at the end, if it continues as it did over END_STEPS, would cross within a factor of FAR_OFF."""
        k, seeds = (max(self.first, self.last - END_STEPS), self.last), self.target.seeds[:END_SEEDS]
        before, at_end = ([(i, seed) for seed in seeds] for i in k)
        yield before + at_end
        x, end = (math.log(self._level(i)) for i in k)
        crossing, slope = line((x, self._mean(before), end, self._mean(at_end)), self.target.theta)
        return bool(slope > 0 and crossing - end < math.log(FAR_OFF))

    def _lacking(self, centre: float, slope: float | None, seeds: Sequence[int]) -> list[Step]:
        """The steps that the seeds lack: one level on either side of the centre, near the most informative distance."""
        away = max(round(distance(slope) / math.log(2) * PER_OCTAVE), 1)
        above = min(math.ceil(centre + away - 0.5), self.last)
        below = max(min(math.floor(centre - away + 0.5), above - 1), self.first)
        above = max(above, below + 1)
        far = 2 * away + 1  # what is near enough stays near enough when the centre moves a little
        has: dict[int, list[int]] = {}
        for k, seed in self.accuracy:
            has.setdefault(seed, []).append(k)
        lacking = []
        for seed in seeds:
            lacking += [(below, seed)] * (not any(centre - far <= k < centre for k in has.get(seed, ())))
            lacking += [(above, seed)] * (not any(centre <= k <= centre + far for k in has.get(seed, ())))
        return lacking
