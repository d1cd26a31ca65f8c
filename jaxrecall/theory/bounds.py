"""What the gradient at initialization tells about pi, and what bounds recall at any time.

Ours, not the paper's: docs/theory.md, sections 7 and 8.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, lambertw

from .locked import KeyOverlaps, Reading, cosine, nodes, recall, squared_length
from .model import Model, check_model, check_N, check_theta


def information(model: Model, N: float) -> float:
    """Information (nats) of the initial gradient on pi; docs/theory.md, section 7.1.

    It is that of a Gaussian channel.

    Raises TheoryError but for gaussian embeddings, m = 0, one batch and the trigger in
    the value path.
    """
    check_N(model, N)
    formula = "the information formula"
    model.require(formula, m=0, trigger_in_value=True, fresh_batches=False)
    model.require_law(formula, lambda moments: moments.overlap and moments.random_length)
    return model.d * model.d / 2 * float(np.log1p(N / (model.L * model.V)))


def fano_ceiling(model: Model, N: float) -> float:
    """Largest fraction of pi that any decoder recovers; docs/theory.md, section 7.2.

    It is expected, from that `information`.

    Raises TheoryError as `information` does.
    """
    nats = information(model, N)
    K = np.exp(1 + lambertw((nats - 1) / np.e).real) if nats > 1e-12 else 1.0
    return min(1.0, float(K) / model.V)


def matched_filter_accuracy(model: Model, N: float) -> float:
    """Fraction of pi that a matched filter recovers; docs/theory.md, section 7.3.

    It takes argmax_u z_out(u)^T G z_in(v): the column `step1_memory_accuracy`.

    Raises TheoryError but for m = 0 and embeddings that overlap.
    """
    check_N(model, N)
    formula = "the matched filter's formula"
    model.require(formula, m=0)
    model.require_law(formula, lambda moments: moments.overlap)
    V, d, L, u = model.V, model.d, model.L, nodes()
    A = squared_length(u.key_length, d, model.moments)
    tokens = (L - 1) ** 2 / V  # mean squared length of L - 1 times the mean embedding
    shared = A * (L - 1) / V + np.sqrt(A * (tokens + model.trigger_in_value)) * cosine(u.cosine, d)
    return recall(model, N, KeyOverlaps(A, shared, A / d), Reading(stray=L - 1))


def seen(model: Model, N: float) -> float:
    """Expected fraction of the labels that N samples hold; docs/theory.md, section 8.

    It is 1 - (1 - 1/V)^N.

    Raises TheoryError with fresh batches, of which each step has N samples more.
    """
    check_N(model, N)
    model.require("the fraction of labels seen", fresh_batches=False)
    return float(-np.expm1(N * np.log1p(-1 / model.V)))


def seen_N(model: Model, theta: float = 0.5) -> float:
    """The N at which `seen` is theta."""
    check_theta(model, theta)
    model.require("the fraction of labels seen", fresh_batches=False)
    return float(np.log1p(-theta) / np.log1p(-1 / model.V))


def parameters_per_bit(model: Model) -> float:
    """Parameters of V_mat over the log2 V! bits of pi; docs/theory.md, section 8.

    They are d^2, or d m with an MLP.
    """
    check_model(model)
    return model.d * (model.m or model.d) / float(gammaln(model.V + 1) / np.log(2))
