"""The sizes at which the theoretical accuracy crosses a value, and the noise that
limits the accuracy.

The formulas are ours, not the paper's: docs/theory-derivations.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import logit

from ..errors import TheoryError, shown
from .first_steps import are_drawn, check_first_steps
from .limits import FLAT, warn_of_limits
from .locked import locked_accuracy
from .model import Model, check_N, check_theta, warn
from .noise import has_score_noise, score_noise
from .open_attention import locked_fraction, predicted_accuracy

RANGES = {
    "N": (1, 2**50),
    "d": (2, 2**14),
    "m": (1, 2**16),
    "V": (2, 2**14),
    "L": (2, 2**24),
}
"""The smallest and the largest size that `critical` considers on each axis."""

FALLING = ("V", "L")
"""The axes along which accuracy falls as the size grows."""

NEAR = (1.06, 1.2, 1.7, 4.0, 16.0)
"""The factors by which a search looks beyond a guess, one after the other. If the
crossing is farther away, the search looks everywhere.
"""


def critical_N(model: Model, theta: float = 0.5) -> float:
    """The smallest N (samples) at which `accuracy` reaches theta (fraction);
    docs/theory-derivations.md, section 5.1.

    The value is inf if `accuracy` never reaches theta. The formula is derived and has
    no fitted constant. Section 5.4 compares it with simulations. Raises TheoryError.
    Warns with TheoryWarning if kappa is small, and if accuracy levels off near theta.
    """
    check_theta(model, theta)
    warn_of_limits(model)
    N = critical_size(model, "N", theta)
    warn_of_plateau(model, theta, N)
    return N


def warn_of_plateau(model: Model, theta: float, N: float) -> None:
    """Warns with TheoryWarning if accuracy levels off near theta at the critical N."""
    rise = predicted_accuracy(model, min(2 * N, RANGES["N"][1])) - theta
    if abs(rise) < FLAT:
        warn(
            f"theta: got {theta:g}; predicted accuracy levels off near it at"
            f" V={model.V}, d={model.d}, L={model.L}. There, critical N was measured to"
            " be up to 3 times larger than theory's, or finite where that is infinite"
        )


def _crossing_N(model: Model, theta: float, guess: float | None = None) -> float:
    """Returns the N at which accuracy crosses theta, or inf."""

    @cache
    def excess(log_N: float) -> float:
        return predicted_accuracy(model, math.exp(log_N)) - theta

    low, high = map(math.log, _bracket(lambda N: excess(math.log(N)), "N", guess))
    if excess(low) >= 0:
        return 1.0
    if excess(high) < 0:
        return math.inf
    if high - low < 1.1 * math.log(NEAR[0]):
        fraction = excess(low) / (excess(low) - excess(high))
        return math.exp(low + fraction * (high - low))
    return math.exp(brentq(excess, low, high, xtol=1e-3))  # type: ignore[arg-type]


def _bracket(
    excess: Callable[[float], float], axis: str, guess: float | None
) -> tuple[float, float]:
    """Returns two sizes around the size at which `excess` crosses 0: close to a guess
    if the crossing is, else the ends of the range.
    """
    least, most = RANGES[axis]
    if guess is None or not least <= guess <= most:
        return least, most
    at_guess = excess(guess if axis == "N" else round(guess))
    is_above = (at_guess < 0) != (axis in FALLING)
    near = guess
    for factor in NEAR:
        far = guess * factor if is_above else guess / factor
        if not least <= far <= most:
            break
        low, high = sorted([near, far])
        if axis != "N":
            low, high = math.floor(low), math.ceil(high)
        if (excess(low) < 0) != (excess(high) < 0):
            return low, high
        near = far
    return least, most


def critical(
    model: Model, axis: str, theta: float = 0.5, N: float | None = None
) -> float:
    """The size along `axis` at which `accuracy` crosses theta while all other sizes are
    fixed; docs/theory-derivations.md, section 5.2.

    Args:
        model: the model. Its own size along the axis does not matter and need not be
            given. If the axis is m, the activation "none" is replaced by the default
            activation.
        axis: N, d, m, V or L. The result is the smallest size that reaches theta for N,
            d and m, and the largest for V and L.
        theta: the accuracy (fraction).
        N: the number of samples, needed unless the axis is N.

    Returns:
        The size. Between whole numbers, the logit of accuracy is interpolated linearly
        in the logarithm of the size. If no size in RANGES reaches theta, the result is
        inf for N, d and m, and 0 for V and L. If every size that the formulas cover
        reaches theta, the result is the smallest size for N, d and m, and inf for V and
        L.

    Raises:
        TheoryError: axis, theta or N is out of range, or a formula does not cover the
            model.

    Warns with TheoryWarning if kappa is small.
    """
    if not isinstance(axis, str) or axis not in RANGES:
        raise TheoryError(f"axis: got {shown(axis)}; allowed: {', '.join(RANGES)}")
    if axis == "N":
        return critical_N(model, theta)
    size = critical_size(model, axis, theta, N)
    warn_of_limits(_with_size(model, axis))
    return size


def critical_size(
    model: Model,
    axis: str,
    theta: float,
    N: float | None = None,
    guess: float | None = None,
) -> float:
    """Returns what `critical` returns, without a warning.

    The search starts at a guess, if there is one. A good guess needs a fraction of the
    time. Raises TheoryError as `critical` does.
    """
    model = _with_size(model, axis)
    check_theta(model, theta)
    if axis == "N":
        size = N = _crossing_N(model, theta, guess)
    else:
        if N is None:
            raise TheoryError(f"N: not given; critical along {axis} needs it")
        check_N(model, N)
        if axis in ("d", "V"):
            model.require_law(f"critical along {axis}", lambda moments: moments.overlap)
        size = _crossing(cache(partial(_excess, model, axis, theta, N)), axis, guess)
        nearest = np.clip(size, *RANGES[axis])
        model = model.replace(**{axis: round(nearest)})
    check_first_steps(model, N, drawn=are_drawn(model))
    return size


def _with_size(model: Model, axis: str) -> Model:
    """Returns a model that has a size along the axis.

    If the size was not given, it is the end of the range that suits every law.
    """
    if axis == "N" or not isinstance(model, Model) or getattr(model, axis):
        return model
    low, high = RANGES[axis]
    return model.replace(**{axis: low if axis in FALLING else high})


def _crossing(
    excess: Callable[[float], float], axis: str, guess: float | None = None
) -> float:
    """Returns the size along an axis at which `excess` crosses 0, by bisection."""
    low, high = _bracket(excess, axis, guess)
    at_low, at_high = excess(low), excess(high)
    if (at_low < 0) == (at_high < 0):
        every_size_reaches = at_low >= 0
        if axis in FALLING:
            return math.inf if every_size_reaches else 0.0
        return float(low) if every_size_reaches else math.inf
    while high - low > 1 and high / low > 1.02:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        at_middle = excess(middle)
        if (at_middle < 0) == (at_low < 0):
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    return low * (high / low) ** (at_low / (at_low - at_high))


def _excess(model: Model, axis: str, theta: float, N: float, size: int) -> float:
    """The difference between the logit of accuracy at a size and that of theta."""
    try:
        reached = predicted_accuracy(model.replace(**{axis: size}), N)
    except TheoryError:
        if axis != "d":
            raise
        reached = 0.0  # the formula does not cover so small a width
    return float(logit(np.clip(reached, 1e-12, 1 - 1e-12)) - logit(theta))


def limiting_noise(model: Model, N: float, locks: float = 0.9) -> str:
    """Returns the name of the cause that limits accuracy with N samples;
    docs/theory-derivations.md, section 5.3.

    Args:
        model: the model, for instance at its critical m.
        N: the number of samples.
        locks: attention counts as failing if a smaller fraction of tokens gets more
            than half of the attention.

    Returns:
        If attention fails, the largest part of `score_noise`: mean_bias, gradient,
        leakage or mlp. Otherwise the cause whose removal would raise recall most: width
        (m to infinity), counts of labels (N to infinity) or overlaps (d to infinity).
        Without an MLP, width is not considered.

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
