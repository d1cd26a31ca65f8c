"""What a finite rate and several steps of V_mat before the attention step change;
docs/theory-derivations.md, section 2.7.

The formulas are ours, not the paper's.

To first order in the logits, each step multiplies the part of the residuals y - p along
an eigenvector of the mean values by a factor. The mean value of all samples has a large
eigenvalue, so label counts along it are learned and leave the residuals first.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from ..errors import TheoryError
from ..model.point import RECIPE_STEPS
from .distributions import normal_quadrature
from .model import Model

SMALL_ETA = 0.1
"""The largest eta times first_steps at which a formula without a filter still holds, as
a fraction of the eta at which one step takes the mean bias away.
"""

MOST_LEARNED = {False: 0.5, True: 0.3}
"""The largest fraction of the signal that the first steps may take from the residuals,
by whether counts are drawn.
"""

MOST_SHIFTED = {False: 0.5, True: 3.0}
"""The largest logit (nats) in the first steps, of noise or of a sample's own label, at
which predictions count as nearly uniform. Of drawn models, critical N was measured to
be up to 1.4 times too low between 0.5 and 3.
"""

MOST_RECALLED = {True: 0.3, False: 1.2}
"""The same in step 3, where attention is locked, with the trigger in the value path or
out of it. All memory keys share a trigger in the value path, and predictions with it.
"""


MOST_DRAWN = 1024
"""The largest V of drawn counts, which take V^2 numbers and V^3 operations a seed."""


class Filter(NamedTuple):
    """Factors of the parts of step 2 and step 3 that label counts contribute, relative
    to eta -> 0, whose factors are the defaults. Means are over the eigenvalues of Z_out
    Z_out^T.
    """

    bias: float = 1.0  # of the coupling of a sample with itself through the mean value
    bias_size: float = 1.0  # root mean square over seeds of the same
    # of label counts along the trigger in V_mat, for the own label
    trigger: float = 1.0
    of_overlaps: float = 1.0  # of the variance of the same through overlaps of labels
    residual: float = 1.0  # of the variance of label counts in the residuals of step 2
    counts: float = 1.0  # of label counts along the shared part of keys in step 3
    # of the variance of the same through overlaps of labels
    counts_of_overlaps: float = 1.0
    # variance that noise of the predictions of step 3 adds, times N
    predicted: float = 0.0
    overlaps: float = 1.0  # of overlaps of tokens with the trigger in step 3
    overlaps_square: float = 1.0  # of their variance


def why_unfiltered(model: Model) -> str:
    """Returns the setting for which no filter is derived, or an empty text."""
    if model.m:
        return f"m={model.m}"
    if not model.moments.overlap or model.moments.common:
        return f"embedding='{model.embedding}'"
    if model.fresh_batches:
        return "fresh_batches=True"
    return ""


def are_drawn(model: Model) -> bool:
    """Whether accuracy is that of drawn embeddings and counts; `several_steps`."""
    has_one_step = model.first_steps == 1 and model.steps == RECIPE_STEPS
    if model.missing or not model.eta or has_one_step:
        return False
    has_size = model.V <= min(2 * model.L, MOST_DRAWN)
    return has_size and not model.trigger_in_value and not why_unfiltered(model)


class Quadrature(NamedTuple):
    """Quadrature over the eigenvalues of Z_out Z_out^T, weighted by themselves, and
    over the squared length of the mean embedding.

    By the law of Marchenko and Pastur, the weighted eigenvalues are distributed as a
    semicircle around 1 + c.
    """

    eigenvalue: ndarray  # (64,)
    of_eigenvalues: ndarray  # weights, (64,)
    length: ndarray  # squared length of the mean embedding times V, (9,)
    of_lengths: ndarray  # weights, (9,)

    def over_eigenvalues(self, values: ndarray) -> ndarray:
        """Returns the mean at each length, (9,), of values (9, 64)."""
        return values @ self.of_eigenvalues

    def over_all(self, values: ndarray) -> float:
        """Returns the mean of values (9, 64)."""
        return float(self.of_lengths @ self.over_eigenvalues(values))


def quadrature(c: float, d: int) -> Quadrature:
    """Returns the quadrature for V / d = c."""
    angle = np.arange(1, 65) * np.pi / 65
    normal, weight = normal_quadrature(9)
    length = np.maximum(1 + math.sqrt(2 / d) * normal, 0.05)
    length /= weight @ length
    eigenvalue = 1 + c + 2 * math.sqrt(c) * np.cos(angle)
    return Quadrature(eigenvalue, 2 / 65 * np.sin(angle) ** 2, length, weight)


@lru_cache(maxsize=1024)
def find_filter(model: Model) -> Filter:
    """Returns the filter of a model, which is that of eta -> 0 where no other is
    derived.
    """
    if not model.eta or why_unfiltered(model):
        return Filter()
    V, d, L, c, t = model.V, model.d, model.L, model.c, model.trigger_in_value
    eta, steps = model.eta, model.first_steps
    over = quadrature(c, d)
    mean_value = over.length / V + t / L**2
    depth = eta / V * np.outer(mean_value, over.eigenvalue)
    left, average = after_steps(depth, steps)
    pull = left * average
    square = over.over_eigenvalues(over.eigenvalue * pull**2)
    of_seeds = (1 - 2 * (1 + c) / V) * over.over_eigenvalues(pull) ** 2 + 2 / V * square
    bias_size = math.sqrt(max(over.of_lengths @ (over.length * of_seeds), 0.0))

    trigger = over.over_all(average)
    of_overlaps = over.over_all(over.eigenvalue * average**2) - trigger**2
    residual = over.over_all(over.eigenvalue * left**2) / (1 + c)
    filtered = Filter(
        bias=float(over.of_lengths @ (over.length * over.over_eigenvalues(pull))),
        bias_size=bias_size,
        trigger=trigger,
        of_overlaps=of_overlaps / c,
        residual=residual,
    )
    if not t:
        return filtered

    # the logits of step 3 of what all memory keys share
    rate = eta * steps / V
    learned = over.eigenvalue * average
    counts = 1 - rate * (over.length / V + 1 / L)[:, None] * learned
    # the trigger's overlap with the mean embedding
    by_chance = rate**2 / (V * d) * over.over_all(over.eigenvalue * learned**2)
    kept = over.over_all(counts)
    square = over.over_all(over.eigenvalue * counts**2) + by_chance
    second, third = 1 + 3 * c + c**2, fourth_moment(c)
    signal = rate / L
    return filtered._replace(
        counts=kept,
        counts_of_overlaps=(square - kept**2) / c,
        predicted=rate**2 * third * V / (L * d),
        overlaps=1 - signal * second / (1 + c),
        overlaps_square=1 + (signal**2 * third - 2 * signal * second) / (1 + c),
    )


def fourth_moment(c: float) -> float:
    """tr K^4 / V of K = Z_in Z_in^T.

    The value is the factor by which noise along Sigma_c z_u, summed over tokens u,
    enters the variance of the scores.
    """
    return 1 + c * (6 + c * (6 + c))


def after_steps(depth: ndarray, steps: int) -> tuple[ndarray, ndarray]:
    """Returns (1 - depth)^steps, and its mean over 0 to steps - 1 instead of steps.

    A depth above 2 counts as 2 if there are several steps, since they diverge.
    """
    if steps == 1:
        return 1 - depth, np.ones_like(depth)
    depth = np.maximum(depth, 1e-30)
    left = np.maximum(1 - depth, -1) ** steps
    exactly = -np.expm1(steps * np.log1p(-np.minimum(depth, 0.5)))
    gone = np.where(depth < 0.5, exactly, 1 - left)
    return left, gone / (depth * steps)


def check_first_steps(
    model: Model, N: float, recall: bool = True, drawn: bool = False
) -> None:
    """Raises TheoryError if eta and first_steps are so large that the formulas do not
    hold with N samples.

    With `recall`, predictions must be nearly uniform in step 3 also. With `drawn`, the
    formula draws counts and computes these predictions.
    """
    if recall and not drawn and model.steps > RECIPE_STEPS:
        raise TheoryError(
            f"steps: got {model.steps}; covered by accuracy and critical sizes with eta"
            f" above 0, the trigger in the key only, isotropic embeddings that overlap,"
            f" no MLP and V up to 2 L and {MOST_DRAWN}; else: {RECIPE_STEPS}"
        )
    V, L, c, k = model.V, model.L, model.V / model.d, model.first_steps
    setting = f"eta: got {model.eta:g} with first_steps={k}"
    mean_value = 1 / V + model.trigger_in_value / L**2
    if why := why_unfiltered(model):
        # of the eta at which one step takes the mean bias away, to first order
        most = SMALL_ETA * V / (mean_value * (1 + c))
        if model.eta * k > most:
            raise TheoryError(
                f"{setting} and {why}; allowed: eta first_steps below about"
                f" {most:.2g} there, in which predictions stay uniform"
            )
        return
    # the largest factor of the mean value's part per step
    depth = model.eta / V * (1 + math.sqrt(c)) ** 2 * mean_value
    if k > 1 and depth > 2:
        most = model.eta * 2 / depth
        raise TheoryError(
            f"{setting}; allowed: eta up to {most:.3g}, else steps diverge"
        )
    # the fraction of the signal that has left the residuals
    learned = (3 * k - 1) / 2 * model.eta * (1 + c) ** 2 / (V * V * L)
    # standard deviations of logits, nats: in the first steps, and in step 3 with locked
    # attention
    rate = model.eta * k
    noise = rate * (1 + c) / (V * math.sqrt(N))
    shifted = max(noise / L, rate / (N * L))
    recalled = max(noise / math.sqrt(L), rate / (V * L))
    limits = [
        (learned / MOST_LEARNED[drawn], "the signal leaves the residuals"),
        (shifted / MOST_SHIFTED[drawn], "predictions are not uniform in step 2"),
    ]
    if recall and not drawn:
        most = MOST_RECALLED[model.trigger_in_value]
        limits.append((recalled / most, "predictions are not uniform in step 3"))
    off, why = max(limits)
    if off > 1:
        raise TheoryError(
            f"{setting} and N={N:.4g}; allowed: eta first_steps up to"
            f" {rate / off:.3g}. Above, {why}"
        )
