"""Noise of the attention scores after step 2, term by term; docs/theory-derivations.md,
section 2.

The formulas are ours, not the paper's.

The symbols c, lambda (here `rate`), k, t, rho (here `R`), M_1 to M_3, T and a are
defined in section 2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erf

from ..errors import TheoryError
from .distributions import normal_quadrature
from .first_steps import check_first_steps, find_filter, fourth_moment
from .model import Model, check_N


class ScoreNoise(NamedTuple):
    """The standard deviation over the vocabulary of the score z_in(v)^T w after step 2.
    Each field is the part that one source of noise contributes.

    The unit is the trigger's score z_trig^T w.
    """

    mean_bias: float
    gradient: float
    leakage: float
    mlp: float

    @property
    def snr(self) -> float:
        """The signal-to-noise ratio trigger_score / score_std, which is also the column
        `snr`.
        """
        return 1 / float(np.sqrt(sum(term**2 for term in self)))

    @property
    def leading(self) -> str:
        """The name of the largest term."""
        return max(self._fields, key=lambda name: getattr(self, name))


class Terms(NamedTuple):
    """The quantities that several terms of the noise use."""

    c: float  # V / d, or 0 if embeddings do not overlap
    rate: float  # lambda = N / V: samples per label
    k: float  # 1 - 1/L
    # (L - 1) lambda / V: the expected count of a token as noise with a label
    R: float
    M1: float  # M_j = tr Sigma_c^j / d, with Sigma_c = Z_in^T Z_in / V
    M2: float
    M3: float
    T: float  # w = T z_trig + a Sigma_c z_trig + noise
    a: float

    @property
    def signal(self) -> float:
        """The trigger's score without noise, in the units of the variances that the
        counts contribute.
        """
        return self.k * self.rate**2


def score_noise(model: Model, N: float) -> ScoreNoise:
    """Returns the noise of the attention scores with N samples, by source;
    docs/theory-derivations.md, section 2.

    Raises TheoryError for L = 1, for an MLP that the formula does not cover, and for
    first steps after which predictions are not uniform.
    """
    check_N(model, N)
    check_first_steps(model, N, recall=False)
    return parts_of_noise(model, N)


def parts_of_noise(model: Model, N: float) -> ScoreNoise:
    """Returns what `score_noise` returns, also where the first steps are too large."""
    if model.L < 2:
        raise TheoryError(
            f"L: got {model.L}; allowed: from 2, a single token has no rival"
        )
    if not has_score_noise(model):
        raise TheoryError(
            f"m: got {model.m} with {model.embedding} embeddings and"
            f" {model.activation}; covered: m = 0, or embeddings that overlap"
        )
    s = shared_terms(model, N)
    unit = (s.T + s.a * s.M1) * model.trigger_length
    leaking = leakage(s) * model.trigger_length**0.5
    terms = (mean_bias(model, s), gradient_noise(model, s), leaking, mlp(model, s))
    return ScoreNoise(*(float(term / unit) for term in terms))


def has_score_noise(model: Model) -> bool:
    """Whether `score_noise` covers the model.

    The formula covers models without an MLP, and models whose embeddings overlap and
    have no common direction.
    """
    return not model.m or (model.moments.overlap and not model.moments.common)


def trigger(model: Model, N: float) -> tuple[float, float]:
    """Returns T and a of w = T z_trig + a Sigma_c z_trig + noise, in units of the
    trigger's score without noise.
    """
    if not model.trigger_in_value:
        return 1.0, 0.0
    itself = 0.0 if model.fresh_batches else model.V / N * gains(model).itself
    itself *= find_filter(model).bias
    T = 1 + model.trigger_length * itself
    a = (1 + (model.L + 1) * itself) * model.moments.overlap
    return T, a


def shared_terms(model: Model, N: float) -> Terms:
    """Returns the quantities that several terms of the noise use."""
    V, L, c = model.V, model.L, model.c
    rate = N / V
    third = c + 3 * c * c + c**3
    if c and not model.moments.random_length:
        third = max(third - 2 * (1 + 6 * c + 4 * c * c) / model.d, 0.0)
    T, a = trigger(model, N)
    return Terms(
        c=c,
        rate=rate,
        k=1 - 1 / L,
        R=(L - 1) * rate / V,
        M1=c / V,
        M2=(c + c * c) / V**2,
        M3=third / V**3,
        T=T,
        a=a,
    )


def mean_bias(model: Model, s: Terms) -> float:
    """The noise along Sigma_c times the mean embedding. The mean value of every sample
    contains the mean embedding.
    """
    V, L, gain = model.V, model.L, gains(model)
    itself = gain.itself * L * (L - 1) / s.rate
    if model.fresh_batches:
        pull = np.hypot(itself * np.sqrt((1 + s.c) / V), gain.bend)
    else:
        pull = abs(itself * find_filter(model).bias_size + gain.bend)
    return pull * np.sqrt(s.M3 * (1 / V + model.common_length))


def leakage(s: Terms) -> float:
    """The noise that arises because tokens overlap with the trigger. It is near
    1/sqrt(d).
    """
    return np.sqrt(s.T**2 * s.M1 + 2 * s.a * s.T * s.M2 + s.a**2 * s.M3)


def gradient_noise(model: Model, s: Terms) -> float:
    """The noise that the counts of labels and the counts of (token, label) pairs
    contribute.
    """
    V, d, L = model.V, model.d, model.L
    k, rate = s.k, s.rate
    of_labels = k**2 * variance_of_label_counts(model, s) + rate**3 * (L - 1) / L**2
    of_both = fourth_moment(s.c) * V * s.R**3 / rate * find_filter(model).residual
    once = variance_of_token_counts(model, s)
    batches = 1 if model.fresh_batches else 2
    of_tokens = once * batches + s.c * once + of_both
    variance = of_labels + gains(model).linear ** 2 * of_tokens
    variance += through_the_mean(model, s)
    along_common = (1 + s.c) * L**2 * rate * (k**2 * rate**2 + V * s.R)
    variance += model.common_length / d * along_common
    if s.c:
        variance += k**2 * rate**4 * (s.c + 4) / d
    return np.sqrt((1 + s.c) * variance) / (s.signal * V)


def variance_of_label_counts(model: Model, s: Terms) -> float:
    """The variance that the label counts contribute to a token's part in w, divided by
    k^2.
    """
    t, rate = model.trigger_in_value * model.trigger_length, s.rate
    first = find_filter(model)
    once, twice = t * first.trigger, t * first.trigger**2
    if model.fresh_batches:
        of_own = (1 + 3 * t) * rate**2 + (2 + 3 * t) * rate**3
    else:
        of_own = (2 + 8 * once + 4 * twice) * rate**2 + (4 + 4 * once + twice) * rate**3
        of_own += twice * rate
    return of_own + t * first.of_overlaps * s.c * rate**2 * (1 + rate)


def variance_of_token_counts(model: Model, s: Terms) -> float:
    """The variance that the counts of (token, label) pairs contribute to a token's part
    in w if the batches differ.

    Overlaps, whose variance sums to 1, transmit the same variance again. If all steps
    use the same batch, the variance is twice as large.
    """
    return (1 + s.c) * (2 * s.rate**2 * s.R + model.V * s.R**2)


def through_the_mean(model: Model, s: Terms) -> float:
    """The variance contributed by the coupling of a sample with itself, and by label
    counts.

    The label counts contribute through the mean of the activation, which is common to
    all samples.
    """
    if model.fresh_batches:
        return 0.0
    V, L, rate, gain = model.V, model.L, s.rate, gains(model)
    of_noise = (2 + s.c) * L**2 * rate / V
    of_lengths = 2 * model.moments.random_length / model.d
    of_tokens = L**2 / V**2 * fourth_moment(s.c) / (1 + s.c)
    of_labels = rate**2 * (model.trigger_in_value + of_lengths + of_tokens)
    through = (1 + s.c) * rate * (of_noise + of_labels)
    return gain.itself**2 * of_noise + gain.mean**2 * through


def mlp(model: Model, s: Terms) -> float:
    """The noise that the random W_in contributes. It is 0 without an MLP."""
    if not model.m:
        return 0.0
    V, L, rate = model.V, model.L, s.rate
    act, gain = compute_moments(model), gains(model)
    again = 0 if model.fresh_batches else 1

    slopes = again * (act.mean + act.bend / L) + act.bend * rate / L**2
    h = L * act.slope * slopes / gain.total
    of_bias = (again * gain.itself * L**2 / rate + gain.bend) ** 2 / V
    along = (L / rate * h) ** 2 + of_bias + s.a**2

    unit = L * act.slope_square / (model.m * gain.total**2)
    of_labels = again * L**2 * rate * (1 + 2 * rate) + s.k**2 * rate**4 * (2 + s.c)
    counts = V * variance_of_token_counts(model, s) + of_labels
    of_mean = again * rate * (1 + rate * (1 + s.c)) * (L**2 + 2 * rate)
    squared_mean = act.mean**2
    variance = unit * (act.square - squared_mean) * counts
    variance += unit * squared_mean * of_mean
    across = (1 + s.c) * variance / (s.signal * V) ** 2
    return np.sqrt(along * model.d / model.m * s.M3 + across)


class Gains(NamedTuple):
    """The strengths with which pairs of samples couple in step 2, relative to the
    coupling that carries the signal.
    """

    # of two samples with the same label; the trigger's score is kappa (1 - 1/L) total
    total: float
    linear: float  # of any two samples, for all labels
    bend: float  # of any two samples, through the mean embedding alone
    itself: float  # of a sample with itself
    # of label counts, through the part of the activation that all samples share
    mean: float


def gains(model: Model) -> Gains:
    """Returns the couplings of two samples through the MLP; docs/theory-derivations.md,
    section 2.3.
    """
    if not model.m:
        return Gains(total=1.0, linear=1.0, bend=0.0, itself=1.0, mean=0.0)
    act, V = compute_moments(model), model.V
    linear, bend = act.slope**2, act.bend**2
    total = linear + bend * (1 / V + (1 + 3 * model.trigger_in_value) / model.L**2)
    return Gains(
        total=total,
        linear=(linear + bend / V) / total,
        bend=bend / total,
        itself=act.itself / total,
        mean=act.mean * act.bend / total,
    )


class ActivationMoments(NamedTuple):
    """The moments of the activation for a neuron's input u ~ N(0, s^2) under uniform
    attention.
    """

    mean: float  # E act
    square: float  # E act^2
    slope: float  # E act'
    slope_square: float  # E act'^2
    bend: float  # E act''
    itself: float  # E (act act')'


@lru_cache(maxsize=256)
def compute_moments(model: Model) -> ActivationMoments:
    """Returns the moments of the activation at s^2 = 1/L + (1 - 1/L)/V + t/L^2, by
    quadrature.

    s^2 is the mean squared length of a mean value.
    """
    L = model.L
    s = (1 / L + (1 - 1 / L) / model.V + model.trigger_in_value / L**2) ** 0.5
    u, weight = normal_quadrature(100)
    value, slope = model.activation.value_and_slope(s * u, np, erf)

    means = value, value**2, slope, slope**2, slope * u / s, value * slope * u / s
    return ActivationMoments(*(float(weight @ x) for x in means))
