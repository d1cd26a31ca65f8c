"""The sizes at which the theoretical accuracy crosses a value, and the noise that
limits the accuracy.

The formulas are ours, not the paper's: docs/theory-derivations.md, section 5.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ..errors import TheoryError, shown
from .first_steps import are_drawn, check_first_steps
from .limits import FLAT, warn_of_limits
from .locked import locked_accuracy
from .model import Model, check_N, check_theta, warn
from .noise import has_score_noise, score_noise
from .open_attention import attention, locked_fraction, predicted_accuracy

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


def critical_N(model: Model, theta: float = 0.5) -> float:
    """The smallest N (samples) at which `accuracy` reaches theta (fraction);
    docs/theory-derivations.md, section 5.1.

    The value is inf if `accuracy` never reaches theta. The formula is derived and has
    no fitted constant. Section 5.4 compares it with simulations. Raises TheoryError.
    Warns with TheoryWarning if kappa is small, and if accuracy levels off near theta.
    """
    check_theta(model, theta)
    warn_of_limits(model)
    N, most = _crossing(model, "N", theta, math.nan), RANGES["N"][1]
    # accuracy rises up to 2 N, and is known already at the power of 2 before
    at_power = 2.0 ** math.ceil(math.log2(min(N, most)))
    sizes = at_power, min(2 * N, most)
    if all(abs(predicted_accuracy(model, size) - theta) < FLAT for size in sizes):
        warn(
            f"theta: got {theta:g}; predicted accuracy levels off near it at"
            f" V={model.V}, d={model.d}, L={model.L}. There, critical N was measured to"
            " be up to 3 times larger than theory's, or finite where that is infinite"
        )
    return N


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
        The size. Between whole numbers, accuracy is interpolated linearly in the
        logarithm of the size. If no size in RANGES reaches theta, the result is
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
    if isinstance(model, Model) and not getattr(model, axis):
        low, high = RANGES[axis]
        suits_every_law = low if axis in FALLING else high
        model = model.replace(**{axis: suits_every_law})
    check_theta(model, theta)
    if N is None:
        raise TheoryError(f"N: not given; critical along {axis} needs it")
    check_N(model, N)
    warn_of_limits(model)
    return _crossing(model, axis, theta, N)


@lru_cache(maxsize=2**12)
def _crossing(model: Model, axis: str, theta: float, N: float) -> float:
    """Returns what `critical` returns, without a warning, of arguments that are
    checked. Along N, the argument N is not used.
    """
    if axis in ("d", "V") and not model.moments.overlap:
        raise TheoryError(
            f"embedding: got '{model.embedding}'; covered by critical along {axis}:"
            " gaussian, sphere, equicorrelated"
        )

    def excess(power: float) -> float:
        size = 2.0**power
        if axis == "N":
            return predicted_accuracy(model, size) - theta
        below, above = max(low, math.floor(size)), min(high, math.ceil(size))
        ends = [_accuracy(model, axis, end, N) - theta for end in (below, above)]
        return float(np.interp(power, np.log2([below, above]), ends))

    low, high = RANGES[axis]
    first, last = low.bit_length() - 1, high.bit_length() - 1
    falls = axis in FALLING

    def crosses(power: int) -> bool:
        return (excess(power) < 0) == falls

    # accuracies at powers of 2 are needed by other callers as well
    least, above, pivots = first, last + 1, ()
    if axis == "N":
        near = _likely_power(model, theta)
        # the last two show that theta is never reached
        pivots = near, near - 1, near + 1, near + 2, above // 2, last
    for power in pivots:
        if least <= power < above:
            if crosses(power):
                above = power
            else:
                least = power + 1
    above = bisect_left(range(above), True, least, key=crosses)
    if above > last:
        size = math.inf
    elif above == first:
        size = 0.0 if falls else float(low)
    else:
        # closer than 1 %, accuracy is not smooth
        power: Any = brentq(excess, above - 1, above, xtol=1e-2)
        size = 2.0**power
    if axis == "N":
        N = size
    else:
        model = model.replace(**{axis: round(np.clip(size, low, high))})
    check_first_steps(model, N, drawn=are_drawn(model))
    return size


def _likely_power(model: Model, theta: float) -> int:
    """Returns the power of 2 near which critical N is likely: where attention locks for
    a fraction theta of the tokens, but not below some samples for each label.
    """
    power = math.ceil(math.log2(model.V)) + 4 * model.trigger_in_value
    if model.L == 1 or not has_score_noise(model):
        return power
    powers = range(RANGES["N"][1].bit_length())
    locks = bisect_left(
        powers, theta, key=lambda power: attention(model, 2.0**power)[0].mean()
    )
    return max(power, locks)


def _accuracy(model: Model, axis: str, size: int, N: float) -> float:
    """Returns the accuracy at a size along an axis other than N."""
    try:
        return predicted_accuracy(model.replace(**{axis: size}), N)
    except TheoryError:
        if axis != "d":
            raise
        return 0.0  # the formula does not cover so small a width


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
