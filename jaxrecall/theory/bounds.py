"""A bound on recall after any training; docs/theory-derivations.md, section 8.

The formula is ours, not the paper's.
"""

from __future__ import annotations

import numpy as np

from ..errors import TheoryError
from .model import Model, check_N


def recall_ceiling(model: Model, N: float) -> float:
    """The largest expected fraction of pi that any method learns from N samples;
    docs/theory-derivations.md, section 8.

    A method that knows the informative position, which the trigger shows to the three
    steps, knows the token of every label that occurs. The ceiling is the expected
    fraction of these labels, 1 - (1 - 1/V)^N, plus one guess. Raises TheoryError with
    fresh batches.
    """
    check_N(model, N)
    if model.fresh_batches:
        raise TheoryError("fresh_batches: got True; covered by recall_ceiling: False")
    labels_seen = -np.expm1(N * np.log1p(-1 / model.V))
    return min(1.0, float(labels_seen) + 1 / model.V)
