"""What the gradient at initialization tells about pi, and what bounds recall at any
time.

Ours, not the paper's: docs/theory.md, sections 7 and 8. `information` and
`fano_ceiling` are a benchmark, those of a Gaussian channel; `recall_ceiling` is a
bound.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, gammaln, lambertw
from scipy.stats import binom

from .locked import KeyOverlaps, Reading, quantiles, recall
from .model import Model, check_model, check_N, check_theta


def information(model: Model, N: float) -> float:
    """Information (nats) of a Gaussian channel like the initial gradient;
    docs/theory.md, section 7.1.

    It is no bound: embeddings are real numbers, so the gradient tells the counts of
    tokens, which can hold more.

    Raises TheoryError but for gaussian embeddings, m = 0, one batch and the trigger in
    the value path.
    """
    check_N(model, N)
    formula = "the information formula"
    model.require(formula, m=0, trigger_in_value=True, fresh_batches=False)
    model.require_law(
        formula, lambda moments: moments.overlap and moments.random_length
    )
    return model.d * model.d / 2 * float(np.log1p(N / (model.L * model.V)))


def fano_ceiling(model: Model, N: float) -> float:
    """Fraction of pi that the nats of the Gaussian channel allow; docs/theory.md,
    section 7.2.

    A benchmark, and no ceiling: a decoder of the gradient may recover more.
    `recall_ceiling` is one. Raises TheoryError as `information` does.
    """
    return fraction_known(model, information(model, N))


def fraction_known(model: Model, nats: float) -> float:
    """The largest expected fraction of pi that so many nats about it allow;
    docs/theory.md, section 7.2.
    """
    E = np.exp(1 + lambertw((nats - 1) / np.e).real) if nats > 1e-12 else 1.0
    return min(1.0, float(E) / model.V)


def sample_information(model: Model) -> float:
    """Nats that a sample tells about pi to who is not shown the informative position;
    docs/theory.md, section 8.

    log V - E[entropy of the L tokens of the sample] = E log((1 + n) V / L), n ~
    binomial(L - 1, 1/V).
    """
    check_model(model)
    low, high = binom.interval(1 - 1e-15, model.L - 1, 1 / model.V)
    n = np.arange(low, high + 1)
    return float(
        binom.pmf(n, model.L - 1, 1 / model.V) @ np.log((1 + n) * model.V / model.L)
    )


def recall_ceiling(model: Model, N: float, *, sees_position: bool = True) -> float:
    """Largest expected fraction of pi that anything learns from N samples;
    docs/theory.md, section 8.

    To who sees which position is informative, as the three steps do by the trigger, a
    label that occurs tells all: `seen`, and one guess. To who does not, as any decoder
    of the initial gradient, a label that occurs n times tells at most n
    `sample_information` nats and at most log V. Raises TheoryError with fresh batches.
    """
    ceiling = min(1.0, seen(model, N) + 1 / model.V)
    if sees_position:
        return ceiling
    V, each = model.V, sample_information(model)
    full = float(np.ceil(np.log(V) / each))  # so many occurrences may tell a label

    def at_least(n: float, N: float) -> float:
        """The chance that a label occurs n times in N samples."""
        return float(betainc(n, N - n + 1, 1 / V)) if 0 < n <= N else float(n <= 0)

    nats = each * N * (1 - at_least(full - 1, N - 1)) + V * np.log(V) * at_least(
        full, N
    )
    return min(ceiling, fraction_known(model, nats))


def matched_filter_accuracy(model: Model, N: float) -> float:
    """Fraction of pi that a matched filter recovers; docs/theory.md, section 7.3.

    It takes argmax_u z_out(u)^T G z_in(v): the column `step1_memory_accuracy`.

    Raises TheoryError but for m = 0 and embeddings that overlap.
    """
    check_N(model, N)
    formula = "the matched filter's formula"
    model.require(formula, m=0)
    model.require_law(formula, lambda moments: moments.overlap)
    V, d, L, q = model.V, model.d, model.L, quantiles(model.d, model.moments)
    A = q.key_length
    tokens = (L - 1) ** 2 / V  # mean squared length of L - 1 times the mean embedding
    shared = A * (L - 1) / V + np.sqrt(A * (tokens + model.trigger_in_value)) * q.cosine
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
