"""Defines the form of a run: the source of its samples, and the kind of its
predictions.

All forms give the same results, at different costs.

    name       source   predictions
    counts     counts   even    attention-only: how often tokens meet in a sample
    uniform    stream   even    samples as they are drawn; none needs V logits
    full       stream   exact   every sample with its softmax
    pool       pool     even    with a pool: pairs of a token and a noise sequence
    pool-full  pool     exact   every pair with its softmax, weighted
    memory     memory   exact   L = 1: every token with its softmax, weighted

Even predictions are p = 1/V in all three steps, except that step 3 uses the softmax if
attention is locked. Forms with even predictions are called shortcuts. They compute a
bound on their own error. If the bound exceeds TOLERANCE, the run is repeated in the
exact form.

A shortcut is used for points that it covers and whose expected error (`step2_error`) is
within TOLERANCE. Most runs of other points would be rejected. If V is small, a rejected
attempt costs as much as the full form. The choice depends only on the point, so a run
has the same form in every sweep. The forms, the bounds and the formula of the expected
error are ours.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from ..model.laws import TokenLaw
from ..model.laws.tokens import token_probabilities
from ..model.point import EVALUATION, Point
from ..model.values import Numbers

MAX_COUNTED_V = 2048
"""The largest padded V for which a program stores a V x V table of token counts (16
MiB).
"""

TOLERANCE = (2.0**-20, 2.0**-19)
"""The largest relative errors that even predictions may cause: in step 2, and in step
3.

Each number limits the error of the residuals, averaged over samples. Errors of this
size change V1 and w by under 1e-6 of their norms, and V2 by up to 1e-5 of its norm
(attention not locked, V = 30). Rounding alone changes them by 1e-7 to 8e-7. A float32
run must agree with the float64 reference to 2e-5. In tests, no metric changed.
"""

KNOWN = EVALUATION | {
    # shortcuts and their bounds depend on these
    *("V", "N", "d", "L", "m", "tokens", "noise_tokens", "pool", "fresh_batches"),
    *("eta", "gamma", "gamma2", "kappa"),
    # these may have any value, because bounds are computed from the drawn values
    *("embedding", "embedding_out", "activation", "trigger_in_value"),
    # the shortcut for further steps bounds its own error (`locked_attention`)
    *("steps", "start", "optimizer", "lr", "lr_attention", "trains", "batch"),
}
"""The fields that a shortcut allows. If any other field of a point differs from its
default, the point runs in the exact form.

Tokens may have any law. Predictions are even for every label, whatever its frequency,
and bounds are means over samples that are drawn by the law.
"""


def within_tolerance(errors: tuple[Numbers, Numbers]) -> Numbers:
    """Whether both error bounds, of step 2 and of step 3, are within TOLERANCE."""
    return (errors[0] <= TOLERANCE[0]) & (errors[1] <= TOLERANCE[1])


class Form(NamedTuple):
    """A way of training a run."""

    name: str
    source: str
    """The module of `sources` that provides the samples."""
    fallback: str | None = None
    """The form for runs that the error bound rejects; None if predictions are exact."""

    @property
    def exact(self) -> bool:
        """Whether predictions are exact. If so, there is no error bound, and no run is
        rejected.
        """
        return self.fallback is None

    def accepts(self, errors: tuple[Numbers, Numbers] | None) -> bool:
        """Whether the error bounds are within TOLERANCE. A bound of nan is not."""
        if errors is None:
            return True
        return bool(within_tolerance(errors))

    def label(self, point: Point, locked: Numbers | None) -> str:
        """The value of the column `form`: the name of the form, and the list of counts
        that are Gaussian.

        `locked` is true if attention was locked in step 3, or None if this was not
        determined.
        """
        label = self.name
        if locked is not None:
            label += "+locked" if locked else f"+{self.name}"
        if point.in_the_limit:
            label += f", gaussian {' '.join(point.in_the_limit)}"
        return label


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form("pool", "pool", fallback="pool-full"),
        Form("pool-full", "pool"),
        Form("counts", "counts", fallback="full"),
        Form("uniform", "stream", fallback="full"),
        Form("full", "stream"),
        Form("memory", "memory"),
    )
}


def form_for(point: Point, V: int) -> Form:
    """The cheapest form that covers the point, in a program with V padded tokens."""
    if point.is_memory:
        return FORMS["memory"]
    shortcut = _shortcut_may_pay(point)
    if point.pool is not None:
        return FORMS["pool" if shortcut else "pool-full"]
    fits_counts = point.N * point.L < 2**31  # counts of tokens are 32-bit
    if not shortcut or not fits_counts:
        return FORMS["full"]
    return FORMS["counts" if point.m == 0 and V <= MAX_COUNTED_V else "uniform"]


def _shortcut_may_pay(point: Point) -> bool:
    """Whether a shortcut is allowed, covers the point, and is likely to be accepted."""
    if point.start == "zero" or not _is_covered(point, KNOWN):
        return False
    return step2_error(point) <= TOLERANCE[0]


def _is_covered(point: Point, known: frozenset[str]) -> bool:
    return point.exact == "guarded" and known.issuperset(point.unusual_fields)


def may_group_steps(point: Point) -> bool:
    """Whether further steps may group all samples that have the same informative token.

    A step groups samples if attention is locked. If L = 1, attention is always locked.
    """
    if point.optimizer is None:
        return False
    if point.is_memory:
        return True
    return _is_covered(point, KNOWN | {"first_steps"}) and point.optimizer.gain < inf


GAIN = {"none": 0.64, "relu": 0.4, "tanh": 0.55, "gelu": 0.25}
"""For each activation, the ratio of the measured error to its leading order. No error
is predicted for other activations.
"""

ISOTROPIC = ("gaussian", "sphere")


def step2_error(point: Point) -> float:
    """The expected error bound of step 2 (see `softmax_errors`), or 0 if it is unknown.

    Let c = V/d and q = 1 + sqrt(c), the largest singular value of a V x d matrix with
    entries N(0, 1/d) (Marchenko and Pastur). The centred matrix A = Z_out G1 is a sum
    of three parts: from the permutation, from the counts of noise tokens, and from the
    counts of labels. Each of the first two parts is Z_out Z_out^T X Z_in, where Z_out,
    Z_out^T and Z_in have norm q. In the first part, X is a permutation times s. In the
    second, X is noise of variance sigma^2, whose largest singular value is 2 sqrt(V)
    sigma. The third part is Z_out Z_out^T times a vector of label fluctuations, of size
    rho. So the norms of the parts are at most q^3 s, 2 q^3 sqrt(V) sigma and q^2
    sqrt(V) rho. To leading order, a row of A has the mean square (1 + c) (s^2 + V
    sigma^2 + rho^2), where s = 1/(L V). The largest singular directions of the factors
    do not align, so the norm of the product is smaller. It is multiplied by q^-2.2 and
    GAIN, which were fitted to 450 points with V from 12 to 128.

    If tokens have probabilities p, V is replaced by 1 / sum p^2. Two tokens drawn
    uniformly from that number of tokens are equal with the same probability. For labels
    V is not replaced. Their counts then differ even without fluctuations. The studies
    in results/ show how often runs were rejected. About two thirds were rejected if the
    expected error was up to 1.5 times the tolerance. If the expected error was twice
    the tolerance or more, at least 97 % were rejected. If the expected error was half
    the tolerance, under 1 % were rejected.
    """
    gain = GAIN.get(str(point.activation))
    isotropic = point.embedding in ISOTROPIC and point.embedding_out in ISOTROPIC
    if gain is None or not isotropic:
        return 0.0
    N, L, d, eta = float(point.N), float(point.L), float(point.d), point.eta
    alike, of_noise = map(_chance_of_equal_tokens, point.token_laws, (point.V, point.V))
    q, q_labels = 1 + sqrt(1 / alike / d), 1 + sqrt(point.V / d)
    trigger = point.trigger_in_value / L**2
    mean2 = (1 - 1 / L) ** 2 * of_noise + trigger  # mean square of the mean value
    phi2 = 1 / L + (1 - 1 / L) * of_noise + trigger
    of_tokens, of_noise_counts = (alike / L) ** 2, (L - 1) * alike / (N * L**2)
    of_labels = mean2 * (alike - 1 / point.V + 1 / N)
    largest2 = q**6 * (of_tokens + 4 * of_noise_counts) + q_labels**4 * of_labels
    row2 = (1 + 1 / (alike * d)) * (of_tokens + of_noise_counts + of_labels * alike)
    linear = eta / point.V * largest2 / sqrt(row2) * sqrt(phi2) * q_labels**-2.2
    return gain * linear + 4 * eta * eta * phi2 * row2


def _chance_of_equal_tokens(law: TokenLaw, V: int) -> float:
    """The number sum p^2, which is the probability that two tokens of a law are
    equal.
    """
    if law == "uniform":
        return 1 / V
    return float(np.sum(token_probabilities(law, V) ** 2))
