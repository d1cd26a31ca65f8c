"""Recall by a model whose attention is locked on the informative token.

The formulas are ours, not the paper's: docs/theory-derivations.md, section 3.

With locked attention, step 3 depends on the samples only through their label counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from ..errors import TheoryError
from .distributions import (
    NODES,
    normal_from_skewed,
    normal_levels,
    poisson_counts,
    quantiles,
    upper_tail,
)
from .first_steps import Filter, check_first_steps, find_filter
from .model import Model, check_N
from .overlaps import (
    LOCKED,
    ByNode,
    KeyOverlaps,
    Reading,
    ValueLengths,
    key_overlaps,
    value_lengths,
)


def locked_accuracy(model: Model, N: float) -> float:
    """Test accuracy (fraction) with locked attention; docs/theory-derivations.md,
    section 3. Raises TheoryError.
    """
    check_N(model, N, infinite=True)
    check_first_steps(model, N)
    return float(np.mean(recalled_by_node(model, N)))


def recalled_by_node(model: Model, N: float, at: Reading = LOCKED) -> ByNode:
    """Returns the fractions of which accuracy is the mean, (NODES,) or one for all,
    also where the first steps are too large or attention is not locked.

    `at` is passed to `recall` as its `reading`. It has no effect on attention-only
    models with orthogonal embeddings.
    """
    if model.m and model.moments.common:
        raise TheoryError(
            f"embedding: got '{model.embedding}'; covered by recall by an MLP:"
            " gaussian, sphere, orthogonal"
        )
    if not model.moments.overlap and not model.m:
        return orthogonal_accuracy(model, N)
    return recall(model, N, key_overlaps(model, at), at)


class StoredKeys(NamedTuple):
    """The key overlaps, the attention and the value lengths that determine the result
    of step 3.
    """

    model: Model
    N: float
    overlaps: KeyOverlaps  # including the spread from uneven attention
    reading: Reading
    lengths: ValueLengths

    @property
    def first(self) -> Filter:
        """How the first steps filter label counts."""
        return find_filter(self.model)

    @property
    def kept(self) -> ndarray:
        """The average over the vocabulary of the fraction of the shared part of keys
        that is written to V_mat.
        """
        common = self.lengths.common
        return common + (1 - common) * self.reading.stored


def recall(model: Model, N: float, overlaps: KeyOverlaps, reading: Reading) -> ndarray:
    """The fraction of the stored vocabulary that a model with these key overlaps
    recalls, at each node, (NODES,). An entry of `reading` is a number or (NODES,).

    Label counts and random embeddings limit this fraction. `reading.stray` measures the
    attention on tokens that do not belong to a sample's label. It is their summed
    square weight relative to the square weight of the right token. `reading.stored` is
    the fraction of the vocabulary whose samples reach V_mat in step 3. The labels of
    the other tokens count as labels without samples. Raises TheoryError if d is so
    small that the variance of a logit is negative.
    """
    V, L = model.V, model.L
    counts = poisson_counts(N / V)
    r, stored = counts.relative, reading.stored
    memory = store_keys(model, N, overlaps, reading)
    own_count = quantiles(model.d, model.moments).own_count
    own_logit, variance, scale = compute_logits(memory, counts.quantiles(own_count))

    def log_below(z: ndarray, mean: ndarray) -> ndarray:
        """The logarithm of the probability that a wrong logit does not exceed its mean
        by z.

        `z` and `mean` are in standard deviations of the logit.
        """
        tail = upper_tail(z, mean, model.d, model.moments)
        return np.log1p(-np.minimum((tail * counts.chance).sum(1), 1 - 1e-15))

    # arrays (NODES, counts): by node and by count of the wrong label
    deviation = wrong_deviation(memory, variance, scale, r)
    own = own_logit[:, None] / deviation
    shared = scale * overlaps.shared
    unlearned = r + (memory.first.counts - 1) * (r - 1)
    mean = shared[:, None] * (unlearned - column(memory.kept)) / deviation
    z = own - mean
    if np.any(overlaps.third):
        skewness = np.outer(scale**3 * overlaps.third, r**3) / deviation**3
        z = normal_from_skewed(z, skewness)
    log_right = (stored * V - 1) * log_below(z, mean)
    if np.any(reading.rival):  # the labels of the noise tokens of a test sequence
        distinct = distinct_tokens(V, L)
        own_part = np.outer(scale, r) / deviation
        for level in normal_levels(8):
            attention = np.exp(reading.spread * level - reading.spread**2 / 2)
            attention = reading.rival * (attention / distinct - 1 / V)
            z = own - (mean + column(attention) * own_part)
            log_right += distinct / 8 * log_below(z, mean)
    if np.any(stored < 1):
        deviation = np.sqrt(np.maximum(variance, 1e-30))[:, None]
        if not memory.lengths.common.any():
            r = r[:1]  # all counts are alike
        unstored = column(memory.lengths.common) * r - column(memory.kept)
        mean = shared[:, None] * unstored / deviation
        z = own_logit[:, None] / deviation - mean
        log_right += (1 - stored) * V * log_below(z, mean)
    return np.exp(np.minimum(log_right, 0))


def store_keys(
    model: Model, N: float, overlaps: KeyOverlaps, reading: Reading
) -> StoredKeys:
    """Returns the memory that is stored if attention is uneven.

    In this case, the trigger's part of the keys does not cancel.
    """
    lengths = value_lengths(model, reading)
    marked = overlaps.shared * (1 - lengths.common)
    aligned = reading.aligned * model.trigger_in_value / model.d
    spread = overlaps.spread * (1 + reading.uneven) + marked**2 * reading.uneven
    overlaps = overlaps._replace(spread=spread + 2 * marked * aligned)
    return StoredKeys(model, N, overlaps, reading, lengths)


def compute_logits(
    memory: StoredKeys, r_v: ndarray
) -> tuple[ndarray, ndarray, ndarray]:
    """Returns the logits of tokens whose own labels have the relative counts r_v;
    docs/theory-derivations.md, section 3.1.

    These are the logit of the own label, the variance of that of a wrong label without
    its part in Q, and b, which multiplies this part, (NODES,) each.
    """
    model, N, overlaps, reading, lengths = memory
    weight, common = reading.weight, lengths.common
    shared = ((1 - common) * weight + common) * r_v - memory.kept
    shared += (memory.first.counts - 1) * (r_v - 1)
    f_v = weight * r_v * overlaps.own + overlaps.shared * shared
    square = overlaps.own**2 + model.V * overlaps.spread
    lost = reading.stray / N * (1 + model.c) * square
    q = quantiles(model.d, model.moments)
    if not model.moments.overlap:
        own = f_v + np.sqrt(lost) * q.own_logit
        return own, lost + 1e-30, np.ones(NODES)

    rest = rest_length(memory, lost)
    o, beta_square = q.label_length, q.rest_length * rest / model.d
    noise = np.sqrt(o * beta_square) * q.own_logit
    variance = (o * f_v**2 + 2 * f_v * noise) / model.d + beta_square
    # 0 for a label without samples, if no other label has any part in Q
    length = f_v**2 + rest
    scale = np.divide(variance * model.d, length, out=np.zeros(NODES), where=length > 0)
    return o * f_v + noise, variance, scale


def rest_length(memory: StoredKeys, lost: ndarray) -> ndarray:
    """Returns the mean squared length of Q without the own label, an array (NODES,)."""
    model, N, overlaps, reading, lengths = memory
    V, kept = model.V, memory.kept
    stored, common = reading.stored, lengths.common
    of_counts = V / N * memory.first.counts_of_overlaps
    if model.c:
        of_counts += memory.first.predicted / (model.c * N)
    of_stored = stored * (of_counts + (1 - kept) ** 2)
    of_unstored = (1 - stored) * (common**2 * V / N + (common - kept) ** 2)
    of_a_label = overlaps.shared**2 * (of_stored + of_unstored)
    of_a_label += overlaps.spread * stored * (1 + V / N)
    return (V - 2) * of_a_label + model.d * lost + lengths.noise * overlaps.own**2


def wrong_deviation(
    memory: StoredKeys, variance: ndarray, scale: ndarray, r: ndarray
) -> ndarray:
    """Returns an array (NODES, counts) of the standard deviation of a wrong logit, or
    raises TheoryError.
    """
    model, N = memory.model, memory.N
    own_part = np.outer(scale**2 * memory.overlaps.spread, r**2)
    variance = variance[:, None] + own_part
    if not variance.min() >= 0:
        raise TheoryError(
            f"d: got {model.d} with V={model.V} and N={N:g}; allowed: larger d or V,"
            " the variance of a wrong logit is not positive here"
        )
    # the variance is 0 if all neurons of a narrow layer are silent
    return np.sqrt(np.maximum(variance, 1e-30))


def column(values: ByNode) -> ndarray:
    return np.reshape(values, (-1, 1))


def distinct_tokens(V: int, L: int) -> float:
    """The expected number of distinct noise tokens in a sequence."""
    return -V * math.expm1((L - 1) * math.log1p(-1 / V))


def orthogonal_accuracy(model: Model, N: float) -> float:
    """The accuracy of attention-only models with orthogonal embeddings.

    The logits for a token are the label counts. The trigger in the value path doubles
    the count of the token's own label.
    """
    from scipy.stats import poisson  # slow to import

    V = model.V
    if not model.trigger_in_value:
        return -float(np.expm1((N + 1) * np.log1p(-1 / V)))
    # at a mean of 1000, twice the count of one label already exceeds all other counts
    mean = min(N / V, 1000)
    n = np.arange(np.ceil(mean + 7 * mean**0.5 + 15))
    below = poisson.cdf(2 * n - 1, mean)
    up_to = poisson.cdf(2 * n, mean)
    tie = poisson.pmf(2 * n, mean)
    with_ties = (up_to**V - below**V) / (V * np.maximum(tie, 1e-9))
    won = np.where(tie > 1e-9, with_ties, below ** (V - 1))
    return float(poisson.pmf(n, mean) @ won)
