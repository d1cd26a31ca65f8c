"""A smooth curve through few evaluations of a slow function.

The function is evaluated at some of the tested places first, and then where a smooth
curve through the known values misses the value in the middle between two of them. The
ends of the curve, where the function has no finite value, are found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import expit, logit

from .style import spread

FIRST, MOST = 5, 32
"""The number of tested places that are evaluated first, and the largest number of
evaluations that may follow them to refine a curve.
"""

WIDEST, NARROW, NARROWEST = 6.0, 1.08, 1.02
"""Ratios of neighbouring places: above the first, a curve does not count as smooth;
below the second, small differences are rounding; below the third, there is no place
between them.
"""

SHOWN = 200
"""The number of points of a curve that is drawn."""


class Scale(NamedTuple):
    """The scale of values on which a curve is smooth.

    `off` is the difference between two values on this scale, and `most` the largest
    difference that counts as none.
    """

    to: Callable[[float], float]
    back: Callable[[Any], Any]
    off: Callable[[float, float], float]
    most: float


def _logit(fraction: float) -> float:
    return float(logit(np.clip(fraction, 1e-4, 1 - 1e-4)))


LOG = Scale(np.log, np.exp, lambda a, b: abs(a - b), 0.008)
FRACTION = Scale(_logit, expit, lambda a, b: abs(expit(a) - expit(b)), 0.006)


class End(NamedTuple):
    """The end of a curve: its last point, and the value of the function beyond it.

    The value is inf or -inf, or nan where the function has none.
    """

    x: float
    y: float
    beyond: float


@dataclass
class Curve:
    """The values of a function on an axis of positive numbers.

    `evaluate` is the function of a place and of a guess of its value, which may be
    None. `whole` is whether places are whole numbers. `like` is the curve of a similar
    function, whose shape gives the first guesses.
    """

    evaluate: Callable[[float, float | None], float]
    scale: Scale
    whole: bool
    like: Curve | None = None
    values: dict[float, float] = field(default_factory=dict)

    def trace(self, tested: Sequence[float]) -> Curve:
        """Evaluates the function between the first and the last tested place."""
        for place in spread(sorted(tested), FIRST):
            self._add(place)
        for a, b in [*pairwise(sorted(self.values))]:
            self._find_end(a, b)
        self._refine()
        return self

    def _add(self, place: float) -> bool:
        """Evaluates the function at a place; returns whether its value is finite."""
        if place not in self.values:
            self.values[place] = self.evaluate(place, self.guess(place))
        return math.isfinite(self.values[place])

    def guess(self, place: float) -> float | None:
        """Returns the value that the known values suggest, or None."""
        x, y = self._known()
        at = math.log(place)
        if len(x) > 1:
            return float(self.scale.back(_through(x, y, at)))
        if self.like is None:
            return float(self.scale.back(y[0])) if len(x) else None
        x_like, y_like = self.like._known()
        if len(x_like) < 2:
            return None
        shift = 0.0
        if len(x):
            shift = y[0] - _through(x_like, y_like, x[0])
        return float(self.scale.back(_through(x_like, y_like, at) + shift))

    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logarithms of places, and their finite values on the scale."""
        places = sorted(x for x, y in self.values.items() if math.isfinite(y))
        found = [self.scale.to(self.values[x]) for x in places]
        return np.log(places), np.array(found, dtype=float)

    def _between(self, a: float, b: float) -> float | None:
        """Returns the place in the middle between two places, or None."""
        if b / a < NARROWEST or (self.whole and b - a <= 1):
            return None
        middle = math.sqrt(a * b)
        if not self.whole:
            return middle
        return min(max(round(middle), math.floor(a) + 1), math.ceil(b) - 1)

    def _find_end(self, a: float, b: float) -> None:
        """Halves an interval in which the curve ends."""
        at_a, at_b = self._add(a), self._add(b)
        while at_a != at_b:
            middle = self._between(a, b)
            if middle is None:
                return
            if self._add(middle) == at_a:
                a = middle
            else:
                b = middle

    def _refine(self) -> None:
        """Halves the intervals whose middle is not where the curve is, the widest
        first.
        """
        open_ = [*pairwise(sorted(self.values))]
        most = len(self.values) + MOST
        while open_ and len(self.values) < most:
            widest = max(open_, key=lambda ends: ends[1] / ends[0])
            open_.remove(widest)
            a, b = widest
            middle = self._between(a, b)
            if middle is None or not (self._add(a) and self._add(b)):
                continue
            guess = self.guess(middle)
            if not self._add(middle):
                self._find_end(a, middle)
                self._find_end(middle, b)
            elif b / a > WIDEST or self._is_off(guess, self.values[middle], b / a):
                open_ += [(a, middle), (middle, b)]

    def _is_off(self, guess: float | None, value: float, ratio: float) -> bool:
        """Whether a guess is off in the middle of an interval with this ratio."""
        if guess is None:
            return True
        off = self.scale.off(self.scale.to(guess), self.scale.to(value))
        return off > self.scale.most * (4 if ratio < NARROW else 1)

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the x and y of each piece of the curve to draw."""
        x_known, y_known = self._known()
        for places in self._pieces():
            if len(places) == 1:
                yield np.array(places), np.array([self.values[places[0]]])
                continue
            inside = np.log(places)
            x = np.union1d(np.linspace(inside[0], inside[-1], SHOWN), inside)
            mine = np.isin(x_known, inside)
            y = _through(x_known[mine], y_known[mine], x)
            yield np.exp(x), self.scale.back(y)

    def _pieces(self) -> Iterator[list[float]]:
        """Yields the neighbouring places with finite values."""
        piece = []
        for place in sorted(self.values):
            if math.isfinite(self.values[place]):
                piece.append(place)
            elif piece:
                yield piece
                piece = []
        if piece:
            yield piece

    def ends(self) -> list[End]:
        """Returns the ends of the pieces between the first and the last place."""
        found = []
        for a, b in pairwise(sorted(self.values)):
            at_a, at_b = self.values[a], self.values[b]
            if math.isfinite(at_a) and not math.isfinite(at_b):
                found.append(End(a, at_a, at_b))
            elif math.isfinite(at_b) and not math.isfinite(at_a):
                found.append(End(b, at_b, at_a))
        return found


def _through(x: np.ndarray, y: np.ndarray, at: np.ndarray | float) -> Any:
    """Returns the values at `at` of a smooth curve through points.

    Beyond the points the curve is straight.
    """
    inside = np.clip(at, x[0], x[-1])
    first = (y[1] - y[0]) / (x[1] - x[0])
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    before = np.minimum(at - x[0], 0) * first
    after = np.maximum(at - x[-1], 0) * last
    return PchipInterpolator(x, y)(inside) + before + after
