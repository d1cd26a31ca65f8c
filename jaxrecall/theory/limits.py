"""What bounds recall however long a model trains, or measures its memory. Ours, not the paper's: docs/theory.md, section 8."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from .model import Model, check_N, check_theta


def seen(model: Model, N: float) -> float:
    """Expected fraction of the labels that N samples hold, 1 - (1 - 1/V)^N; docs/theory.md, section 8.

    Raises TheoryError with fresh batches, of which each step has N samples more.
    """
    check_N(N)
    model.require("the fraction of labels seen", fresh_batches=False)
    return float(-np.expm1(N * np.log1p(-1 / model.V)))


def seen_N(model: Model, theta: float = 0.5) -> float:
    """The N at which `seen` is theta."""
    check_theta(theta)
    model.require("the fraction of labels seen", fresh_batches=False)
    return float(np.log1p(-theta) / np.log1p(-1 / model.V))


def parameters_per_bit(model: Model) -> float:
    """Parameters of V_mat, d^2 or d m with an MLP, over the log2 V! bits of the permutation; docs/theory.md, section 8."""
    return model.d * (model.m or model.d) / float(gammaln(model.V + 1) / np.log(2))
