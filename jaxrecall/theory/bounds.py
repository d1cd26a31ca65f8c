"""Bounds on recall after any training, and the information that the initial gradient
contains about pi.

The formulas are ours, not the paper's: docs/theory-derivations.md, sections 7 and 8.
`information` and `fano_ceiling` are benchmarks that assume a Gaussian channel.
`recall_ceiling` is a bound.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, gammaln, lambertw

from .distributions import quantiles
from .locked import recall
from .model import Model, check_model, check_N, check_theta
from .overlaps import KeyOverlaps, Reading


def information(model: Model, N: float) -> float:
    """The information (nats) that a Gaussian channel like the initial gradient carries;
    docs/theory-derivations.md, section 7.1.

    The value is a benchmark and not a bound. Embeddings are real numbers, so the
    gradient reveals the token counts, and these can contain more information. Raises
    TheoryError unless embeddings are gaussian, m = 0, all steps have the same batch,
    and the trigger is in the value path.
    """
    check_N(model, N)
    formula = "the information formula"
    model.require(formula, m=0, trigger_in_value=True, fresh_batches=False)
    model.require_law(
        formula, lambda moments: moments.overlap and moments.random_length
    )
    return model.d * model.d / 2 * float(np.log1p(N / (model.L * model.V)))


def fano_ceiling(model: Model, N: float) -> float:
    """The fraction of pi that a decoder of the Gaussian channel can recover;
    docs/theory-derivations.md, section 7.2.

    The value is a benchmark and not a bound, because a decoder of the gradient may
    recover more. Raises TheoryError as `information` does.
    """
    return fraction_known(model, information(model, N))


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

    check_model(model)
    V, L = model.V, model.L
    low, high = binom.interval(1 - 1e-15, L - 1, 1 / V)
    n = np.arange(low, high + 1)
    return float(binom.pmf(n, L - 1, 1 / V) @ np.log((1 + n) * V / L))


def recall_ceiling(model: Model, N: float, *, sees_position: bool = True) -> float:
    """The largest expected fraction of pi that any method learns from N samples;
    docs/theory-derivations.md, section 8.

    If the informative position is known, the token of every label that occurs is known.
    The ceiling is then `seen` plus one guess. The trigger shows the position to the
    three steps. The position is unknown to any decoder of the initial gradient. In this
    case, a label that occurs n times reveals at most n `sample_information` nats, and
    at most log V nats. Raises TheoryError with fresh batches.
    """
    ceiling = min(1.0, seen(model, N) + 1 / model.V)
    if sees_position:
        return ceiling
    V, each = model.V, sample_information(model)
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


def matched_filter_accuracy(model: Model, N: float) -> float:
    """The fraction of pi that the matched filter argmax_u z_out(u)^T G z_in(v)
    recovers; docs/theory-derivations.md, section 7.3.

    The column `step1_memory_accuracy` measures this fraction. Raises TheoryError unless
    m = 0 and embeddings overlap.
    """
    check_N(model, N)
    formula = "the matched filter's formula"
    model.require(formula, m=0)
    model.require_law(formula, lambda moments: moments.overlap)
    V, d, L = model.V, model.d, model.L
    q = quantiles(d, model.moments)
    A = q.key_length
    tokens = (L - 1) ** 2 / V  # mean squared length of L - 1 times the mean embedding
    common = np.sqrt(A * (tokens + model.trigger_in_value)) * q.cosine
    shared = A * (L - 1) / V + common
    return recall(model, N, KeyOverlaps(A, shared, A / d), Reading(stray=L - 1))


def seen(model: Model, N: float) -> float:
    """The expected fraction of all labels that occur in N samples, 1 - (1 - 1/V)^N;
    docs/theory-derivations.md, section 8.

    Raises TheoryError with fresh batches, because each step then reads N new samples.
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
    """The number of parameters of V_mat per bit of pi; docs/theory-derivations.md,
    section 8.

    V_mat has d^2 parameters, or d m with an MLP. pi has log2 V! bits.
    """
    check_model(model)
    return model.d * (model.m or model.d) / float(gammaln(model.V + 1) / np.log(2))
