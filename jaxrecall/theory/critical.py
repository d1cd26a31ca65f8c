"""Sizes at which the accuracy of theory crosses a value, and what limits it.

Ours, not the paper's: docs/theory.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import logit

from ..errors import TheoryError, shown
from .locked import locked_accuracy
from .model import Model, check_N, check_theta
from .noise import has_score_noise, score_noise
from .open_attention import accuracy, locked_fraction

RANGES = {
    "N": (1, 2**50),
    "d": (2, 2**14),
    "m": (1, 2**16),
    "V": (2, 2**14),
    "L": (2, 2**24),
}
"""Smallest and largest size that `critical` looks at."""

FALLING = ("V", "L")
"""Axes along which accuracy falls."""


def critical_N(model: Model, theta: float = 0.5) -> float:
    """Smallest N (samples) at which `accuracy` reaches theta (fraction), or inf if it
    never does; docs/theory.md, section 5.1.

    Derived, with no fitted constant. Its error against simulations is in the same
    section. Raises TheoryError.
    """
    check_theta(model, theta)

    def excess(log_N: float) -> float:
        return accuracy(model, math.exp(log_N)) - theta

    largest = math.log(RANGES["N"][1])
    if excess(largest) < 0:
        return math.inf
    if excess(0) >= 0:
        return 1.0
    return math.exp(brentq(excess, 0, largest, xtol=1e-3))  # type: ignore[arg-type]


def critical(
    model: Model, axis: str, theta: float = 0.5, N: float | None = None
) -> float:
    """The size along `axis` at which `accuracy` crosses theta, all else equal;
    docs/theory.md, section 5.2.

    Args:
        model: its own size along the axis does not matter. With axis m, an activation
            of "none" becomes the default.
        axis: N, d or m, of which it is the smallest size that is enough; V or L, of
            which it is the largest that is not too much.
        theta: accuracy (fraction).
        N: samples; needed unless the axis is N.

    Returns:
        The size, between whole numbers by a straight line in logit accuracy against its
        logarithm. Where no size in RANGES is enough: inf, or 0 for V and L. Where every
        size is, or every one that the formulas cover: the smallest, or inf for V and L.

    Raises:
        TheoryError: axis, theta or N is out of range, or a formula does not cover the
            model.
    """
    check_theta(model, theta)
    if not isinstance(axis, str) or axis not in RANGES:
        raise TheoryError(f"axis: got {shown(axis)}; allowed: {', '.join(RANGES)}")
    if axis == "N":
        return critical_N(model, theta)
    if N is None:
        raise TheoryError(f"N: not given; critical along {axis} needs it")
    check_N(model, N)
    if axis in ("d", "V"):
        model.require_law(f"critical along {axis}", lambda moments: moments.overlap)
    return _crossing(partial(_excess, model, axis, theta, N), axis)


def _crossing(excess: Callable[[int], float], axis: str) -> float:
    """The size along an axis at which `excess` crosses 0, by bisection."""
    low, high = RANGES[axis]
    at_low, at_high = excess(low), excess(high)
    if (at_low < 0) == (at_high < 0):
        return _without_crossing(axis, enough=at_low >= 0)
    while high - low > 1 and high / low > 1.02:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        at_middle = excess(middle)
        if (at_middle < 0) == (at_low < 0):
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    return low * (high / low) ** (at_low / (at_low - at_high))


def _without_crossing(axis: str, enough: bool) -> float:
    """What `critical` returns where every size is enough, or none."""
    if axis in FALLING:
        return math.inf if enough else 0.0
    return float(RANGES[axis][0]) if enough else math.inf


def _excess(model: Model, axis: str, theta: float, N: float, size: int) -> float:
    """By how much the logit of accuracy at a size is above that of theta."""
    try:
        reached = accuracy(model.replace(**{axis: size}), N)
    except TheoryError:
        if axis != "d":
            raise
        reached = 0.0  # the formula does not cover so small a width
    return float(logit(np.clip(reached, 1e-12, 1 - 1e-12)) - logit(theta))


def limiting_noise(model: Model, N: float, locks: float = 0.9) -> str:
    """What limits accuracy with N samples; docs/theory.md, section 5.3.

    Args:
        model: for instance at its critical m.
        N: samples.
        locks: attention fails where fewer tokens (fraction) than this get more than
            half of the attention.

    Returns:
        Where attention fails, the largest part of `score_noise`: mean_bias, gradient,
        leakage or mlp. Elsewhere recall noise, named after what would raise recall
        most: width (m to infinity), counts (of labels; N to infinity) or overlaps (d to
        infinity). Without an MLP, width is not among them.

    Raises:
        TheoryError: a formula does not cover the model.
    """
    check_N(model, N)
    if model.L > 1 and has_score_noise(model) and locked_fraction(model, N) < locks:
        return score_noise(model, N).leading
    without = {"counts": locked_accuracy(model, math.inf)}
    if model.m:
        without["width"] = locked_accuracy(model.replace(m=2**30), N)
    if model.moments.overlap:
        without["overlaps"] = locked_accuracy(model.replace(d=2**30), N)
    return max(without, key=without.__getitem__)
