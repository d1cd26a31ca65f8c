"""The search in one cell: from the results so far to the runs that it needs next.

A cell is a point without its value of the searched axis. First one run a level, the
value doubling from below, finds roughly where accuracy crosses; then every seed runs at
two levels close to the crossing, one on either side, until the interval over seeds is
narrow enough. The next request is a deterministic function of the results so far, so a
search repeats and resumes by the same requests.

What is estimated is where the mean accuracy over seeds crosses (`crossing.py`). One
seed's accuracy goes up and down with the level, so the first time that it crosses comes
too early, and a seed that levels off below never does; the mean has neither fault.

Along an axis on which accuracy falls, everything here is about 1 - accuracy and
1 - theta, which rise.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .crossing import OCTAVE, Crossing, Curve, edge_of, of_runs
from .grid.file import PER_OCTAVE, SEARCH_MIN_SEEDS

FIRST_SEEDS = 4
"""New seeds of a round; later a sixth of those there are."""

HALF = PER_OCTAVE // 2
"""Half an octave: how far a round reaches beyond what has been tried."""

END_SEEDS = (4, 12, 36)
"""Seeds at an end of the range, as many as are needed to decide that a crossing lies
beyond it.
"""

END_STEPS = 2 * PER_OCTAVE
"""How far from an end the curve is compared, to decide whether it still rises."""

FAR_OFF = 64
"""A crossing beyond so many times the last level is none: the curve levels off."""

HALF_OCTAVE = OCTAVE / 2
STRAIGHT = 0.25
"""With an interval of this width, levels half an octave away are near enough: along d,
m, V and L they are off by 2 to 5 %.
"""

Request = tuple[float, int]
"""Level and seed."""

Step = tuple[int, int]
"""k of a level, and seed."""

OUTCOMES = {
    "found": (
        "the interval is as narrow as `width` requires, or lies between neighbouring"
        " whole numbers"
    ),
    "budget": "`max_runs` were used before the interval was narrow enough",
    "seeds": "all seeds were used before the interval was narrow enough",
    "undecided": (
        "`max_runs` or all seeds were used, and accuracy does not cross theta in the"
        " runs so far"
    ),
    "left": "the crossing lies below the smallest level",
    "right": (
        "the crossing lies beyond the largest level: accuracy has not reached theta"
        " there, and still moves towards it"
    ),
    "plateau": "accuracy levels off before theta",
    "nonfinite": "a run overflowed, so its accuracy is unknown",
    "unfinished": (
        "the search of this cell was interrupted or a run of it failed; the same"
        " command resumes it"
    ),
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
    """Whether a cell without a crossing also compares its ends, to notice that accuracy
    runs the other way.
    """

    farthest: float = HALF_OCTAVE
    """How far from the crossing levels are tried, in ln of the level."""


class Result(NamedTuple):
    outcome: str  # one of OUTCOMES
    threshold: Crossing | None  # of found, budget and seeds


class CellSearch:
    """The search of one cell.

    `pending` lists the runs that it waits for, `update` takes their accuracies,
    `result` is set when it ends.
    """

    def __init__(self, target: Target):
        self.target = target
        self.ks = sorted(target.levels)
        self.theta = target.theta if target.rises else 1 - target.theta
        self.accuracy: dict[Step, Any] = {}
        """1 - accuracy along a falling axis; None, which ends the search: nonfinite."""

        self.result: Result | None = None
        self.against = False
        """Whether accuracy ran against the direction that was expected."""

        self._steps = self._climb_and_close_in()
        self._advance()

    @property
    def pending(self) -> list[Request]:
        return [] if self.result else self._requests(self._new)

    @property
    def completed(self) -> list[Request]:
        """The runs whose accuracy it has received, in order."""
        return self._requests(self.accuracy)

    def _requests(self, steps: Iterable[Step]) -> list[Request]:
        return [(self.target.levels[k], seed) for k, seed in steps]

    def update(self, accuracies: Sequence[float | None]) -> None:
        """Takes the accuracies of the pending runs, in their order.

        An accuracy is a fraction; None is one that is nonfinite.
        """
        for step, accuracy in zip(self._new, accuracies, strict=True):
            if accuracy is not None and not self.target.rises:
                accuracy = 1 - accuracy
            self.accuracy[step] = accuracy
        if None in accuracies:
            self._end("nonfinite")
        else:
            self._advance()

    def _advance(self) -> None:
        """Goes on to the next steps whose accuracy is not known, or to the end."""
        self._new: list[Step] = []
        while not self._new:
            try:
                steps = dict.fromkeys(next(self._steps))
            except StopIteration as stop:
                self._end(stop.value)
                return
            self._new = [step for step in steps if step not in self.accuracy]
        if len(self.accuracy) + len(self._new) > self.target.max_runs:
            self._end("budget")

    def _end(self, outcome: str) -> None:
        found = self._estimate() if outcome in ("found", "budget", "seeds") else None
        if found and found.side:
            outcome, found = "undecided", None
        self.result = Result(outcome, found)

    def _estimate(self) -> Crossing:
        return self._curve().crossing(self.theta)

    def _curve(self) -> Curve:
        levels, seeds = zip(*self.completed, strict=True)
        return of_runs(
            list(map(math.log, levels)),
            seeds,
            list(self.accuracy.values()),
            edge_of(self.theta),
        )

    def _climb_and_close_in(self) -> Generator[list[Step], None, str]:
        """Yields the steps whose accuracy it needs to continue; returns the outcome."""
        target, first, last = self.target, self.ks[0], self.ks[-1]
        octaves = dict.fromkeys(
            map(self._nearest, [*range(first, last, PER_OCTAVE), last])
        )
        for i, k in enumerate(octaves):
            # each level its own seed: one that never crosses must not lead the climb
            step = k, target.seeds[i % len(target.seeds)]
            yield [step]
            if self.accuracy[step] >= self.theta:
                break
        used = 0
        while True:
            now = self._estimate()
            tried, _ = zip(*self.accuracy, strict=True)
            lowest, highest = min(tried), max(tried)
            centre = now.log_x / OCTAVE * PER_OCTAVE
            centre = min(max(centre, lowest - HALF), highest + HALF)
            sure = used >= SEARCH_MIN_SEEDS
            if sure and first <= centre <= last and self._is_narrow(now):
                return "found"
            if centre < first and (sure or lowest == first):
                side = yield from self._side_at(first)
                if side < 0:
                    if target.checks:
                        near = self._nearest(first + END_STEPS)
                        yield from self._compare(first, near)
                    return "left"
            if centre > last and (sure or highest == last):
                side = yield from self._side_at(last)
                if side > 0:
                    near = self._nearest(max(first, last - END_STEPS))
                    yield from self._compare(near, last)
                    if self._curve().reach(self.theta) < math.log(FAR_OFF):
                        return "right"
                    if target.checks and not self.against:
                        yield from self._compare(first, last)
                    return "plateau"
            if used == len(target.seeds):
                return "seeds"
            used = min(used + max(FIRST_SEEDS, used // 6), len(target.seeds))
            centre = min(max(centre, first), last)
            yield self._lacking(centre, now.slope, target.seeds[:used])

    def _nearest(self, k: int) -> int:
        return min(self.ks, key=lambda other: abs(other - k))

    def _is_narrow(self, now: Crossing) -> bool:
        """Whether the interval is as narrow as required, or as the levels allow.

        The latter is an interval between neighbouring whole numbers, both of them
        levels.
        """
        if now.width <= self.target.width:
            return True
        if not math.isfinite(now.width):
            return False
        below = math.floor(math.exp(now.lo) + 1e-9)
        above = math.ceil(math.exp(now.hi) - 1e-9)
        return above - below == 1 and {below, above} <= {*self.target.levels.values()}

    def _side_at(self, k: int) -> Generator[list[Step], None, int]:
        """The side of theta on which all of the curve lies, 0 if it crosses.

        Runs as many seeds at a level as are needed to distinguish the mean there from
        theta.
        """
        for n in END_SEEDS:
            yield [(k, seed) for seed in self.target.seeds[:n]]
            there = []
            for (level, _), accuracy in self.accuracy.items():
                if level == k:
                    there.append(accuracy)
            if abs(np.mean(there) - self.theta) > _three_errors(there):
                break
        return self._estimate().side

    def _compare(self, k: int, other: int) -> Generator[list[Step], None, None]:
        """Runs a few seeds at two levels, and notes whether accuracy surely falls."""
        if k == other:
            return
        seeds = self.target.seeds[:FIRST_SEEDS]
        yield [(level, seed) for level in (k, other) for seed in seeds]
        gains = [self.accuracy[other, seed] - self.accuracy[k, seed] for seed in seeds]
        self.against = bool(np.mean(gains) < -max(0.02, _three_errors(gains)))

    def _lacking(
        self, centre: float, slope: float | None, seeds: Sequence[int]
    ) -> list[Step]:
        """The steps that the seeds lack.

        Each seed needs one level on either side of the centre, near the most
        informative distance.
        """
        # a logit of accuracy away a level is most informative
        distance = self.target.farthest
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
        # what is near enough stays near enough when the centre moves a little
        far = max(2 * away + 1, above - below)
        has_below: set[int] = set()
        has_above: set[int] = set()
        for k, seed in self.accuracy:
            if centre - far <= k < centre:
                has_below.add(seed)
            elif centre <= k <= centre + far:
                has_above.add(seed)
        lacking = []
        for seed in seeds:
            if seed not in has_below:
                lacking.append((below, seed))
            if seed not in has_above:
                lacking.append((above, seed))
        return lacking


def _three_errors(values: Sequence[float]) -> float:
    """Three standard errors of the mean."""
    return 3 * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def farthest(axis: str, width: float) -> float:
    """How far from the crossing, in ln of the level, the levels of a search lie.

    It is half an octave, or less where the interval is to be so narrow that the bend of
    the curve would show. Along N it is always half an octave: the bend is slight.
    """
    if axis == "N":
        return HALF_OCTAVE
    return HALF_OCTAVE * min(1.0, width / STRAIGHT)
