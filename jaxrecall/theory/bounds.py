"""A bound on recall after any training; docs/theory-derivations.md, section 8.

The formulas are ours, not the paper's.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, lambertw

from ..errors import TheoryError
from .model import Model, check_N


def fraction_known(model: Model, nats: float) -> float:
    """The largest expected fraction of pi that can be recovered from `nats` of
    information about pi; docs/theory-derivations.md, section 7.2.
    """
    if nats <= 1e-12:
        return 1 / model.V
    tokens = np.exp(1 + lambertw((nats - 1) / np.e).real)
    return min(1.0, float(tokens) / model.V)


def sample_information(model: Model) -> float:
    """The information (nats) that a sample contains about pi if its informative
    position is unknown; docs/theory-derivations.md, section 8.

    The value is log V - E[entropy of the L tokens of the sample] = E log((1 + n) V /
    L), with n ~ binomial(L - 1, 1/V).
    """
    from scipy.stats import binom  # slow to import

    V, L = model.V, model.L
    low, high = binom.interval(1 - 1e-15, L - 1, 1 / V)
    n = np.arange(low, high + 1)
    return float(binom.pmf(n, L - 1, 1 / V) @ np.log((1 + n) * V / L))


def recall_ceiling(model: Model, N: float, *, sees_position: bool = True) -> float:
    """The largest expected fraction of pi that any method learns from N samples;
    docs/theory-derivations.md, section 8.

    If the informative position is known, the token of every label that occurs is known.
    The ceiling is then the expected fraction of these labels, 1 - (1 - 1/V)^N, plus one
    guess. The trigger shows the position to the three steps. The position is unknown to
    any decoder of the initial gradient. In this case, a label that occurs n times
    reveals at most n `sample_information` nats, and at most log V nats. Raises
    TheoryError with fresh batches.
    """
    check_N(model, N)
    if model.fresh_batches:
        raise TheoryError("fresh_batches: got True; covered by recall_ceiling: False")
    V = model.V
    labels_seen = float(-np.expm1(N * np.log1p(-1 / V)))
    ceiling = min(1.0, labels_seen + 1 / V)
    if sees_position:
        return ceiling
    each = sample_information(model)
    enough = float(np.ceil(np.log(V) / each))  # occurrences that can reveal a label
    scarce = each * N * (1 - _occurs(V, enough - 1, N - 1))
    nats = scarce + V * np.log(V) * _occurs(V, enough, N)
    return min(ceiling, fraction_known(model, nats))


def _occurs(V: int, n: float, N: float) -> float:
    """The probability that a label occurs at least n times in N samples."""
    if n <= 0:
        return 1.0
    if n > N:
        return 0.0
    return float(betainc(n, N - n + 1, 1 / V))
