"""Recall by a model whose attention is locked on the informative token.

Ours, not the paper's: docs/theory.md, section 3.

Step 3 then sees the samples through their label counts alone. An *attention key* is
what attention reads for a token, z_in(v), with z_trig where the trigger is in the value
path; features phi of it are what V_mat reads.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erf, gammaincinv, ndtr, ndtri, stdtr, stdtrit
from scipy.stats import poisson, qmc

from ..errors import TheoryError
from ..model.activations import Activation
from ..model.laws import Moments
from .model import Model, check_N

NODES = 1024
"""Quasi-random nodes of the average over embeddings, W_in, the own label's count and
logit.
"""

NEURONS = 256
"""Neurons of an MLP that are drawn at each node."""

LEVELS = 40
"""Counts of a wrong label that are summed over; neighbours are lumped where there are
more.
"""


class Nodes(NamedTuple):
    """What is averaged over, (NODES,) each: quasi-random uniforms, or the quantiles
    that they are.
    """

    key_length: np.ndarray  # |z_in(v)|^2
    trigger_length: np.ndarray  # |z_trig|^2
    cosine: np.ndarray  # between z_in(v) and z_trig
    label_length: np.ndarray  # |z_out(v)|^2
    rest_length: np.ndarray  # |Q|^2 but for the own label
    own_logit: np.ndarray
    own_count: np.ndarray
    noise_cosine: np.ndarray  # between z_in(v) and the noise tokens of a sequence


class KeyOverlaps(NamedTuple):
    """Overlaps omega(w, v) = phi(key w)^T phi(key v) of attention keys, (NODES,) each.

    They are those at the nodes.
    """

    own: np.ndarray  # omega(v, v) less the mean of omega(w, v) over w
    shared: np.ndarray  # that mean: the part that all keys share
    spread: np.ndarray  # variance of omega(w, v) over w
    third: np.ndarray | float = 0.0  # third central moment of omega(w, v) over w


class Reading(NamedTuple):
    """Where attention is, in training and at the test, of some tokens of some seeds.

    The default is attention locked on the informative token.
    """

    stored: float = 1.0  # part of the vocabulary whose samples reach V_mat in step 3
    weight: float = 1.0  # attention on the informative token, over its mean
    uneven: float = 0.0  # variance of that over the vocabulary
    aligned: float = 0.0  # how that changes with the overlap of token and trigger
    rival: float = 0.0  # attention on all noise tokens over that on the informative one
    spread: float = 0.0  # standard deviation of the scores of noise tokens, nats
    stray: float = (
        0.0  # summed square weight of noise tokens over that of the informative one
    )


LOCKED = Reading()


def locked_accuracy(model: Model, N: float, at: Reading = LOCKED) -> float:
    """Test accuracy (fraction) with locked attention; docs/theory.md, section 3.

    `stray` and `stored` tell of samples whose attention is elsewhere, as in `recall`;
    orthogonal attention-only models ignore both. Raises TheoryError.
    """
    check_N(model, N, infinite=True)
    if model.m:
        model.require_law("recall by an MLP", lambda moments: not moments.common)
    if not model.moments.overlap and not model.m:
        return orthogonal_accuracy(model, N)
    return recall(model, N, key_overlaps(model, at), at)


def recall(model: Model, N: float, k: KeyOverlaps, at: Reading) -> float:
    """Fraction of the stored vocabulary that a model recalls whose key overlaps are
    `k`.

    Label counts and random embeddings let it.

    `stray` is the summed square weight, per sample, of tokens that occur with a label
    where they do not belong, over N times the square weight of the right token.
    `stored` is the part of the vocabulary whose samples reach V_mat in step 3; the
    others count as labels without samples. Raises TheoryError where d is so small that
    the variance of a logit comes out negative.
    """
    V, d, moments = model.V, model.d, model.moments
    q = quantiles(d, moments)
    r, p = counts(N / V)
    r_v = r[np.minimum(np.searchsorted(np.cumsum(p), q.own_count), len(r) - 1)]
    of, stored = lengths(model, at), at.stored
    phi = (
        1 - of.trigger / of.shared if of.shared else 0.0
    )  # of what is shared, the part that every sample writes
    marked = k.shared * (1 - phi)
    spread = (
        k.spread * (1 + at.uneven)
        + marked**2 * at.uneven
        + 2 * marked * at.aligned * model.trigger_in_value / d
    )
    k, kept = k._replace(spread=spread), phi + (1 - phi) * stored
    a_v = at.weight * r_v * k.own + k.shared * (
        ((1 - phi) * at.weight + phi) * r_v - kept
    )
    lost = at.stray / N * (1 + V / d * moments.overlap) * (k.own**2 + V * k.spread)
    if moments.overlap:
        o, xi = q.label_length, q.own_logit
        counted = k.shared**2 * (
            stored * (V / N + (1 - kept) ** 2)
            + (1 - stored) * (phi**2 * V / N + (phi - kept) ** 2)
        )
        rest = (
            (V - 2) * (counted + k.spread * stored * (1 + V / N))
            + d * lost
            + of.noise * k.own**2
        )
        R2 = q.rest_length * rest / d
        noise = np.sqrt(o * R2) * xi
        own, variance = o * a_v + noise, (o * a_v**2 + 2 * a_v * noise) / d + R2
        Q2 = (
            a_v**2 + rest
        )  # 0 for a label without samples, if no other label has any part in Q
        b = np.divide(variance * d, Q2, out=np.zeros(NODES), where=Q2 > 0)
    else:
        own, variance, b = (
            a_v + np.sqrt(lost) * q.own_logit,
            lost + 1e-30,
            np.ones(NODES),
        )
    total = variance[:, None] + (b**2 * k.spread)[:, None] * r**2
    if not (total >= 0).all():
        raise TheoryError(
            f"d: got {d} with V={V} and N={N:g}; allowed: larger d or V, the variance"
            " of a wrong logit is not positive here"
        )
    total = np.maximum(total, 1e-30)  # all neurons of a narrow layer may be silent
    skewness = (b**3 * k.third)[:, None] * r**3 / total**1.5
    mean = (b * k.shared)[:, None] * (r - kept) / np.sqrt(total)
    z = normal_from_skewed(own[:, None] / np.sqrt(total) - mean, skewness)

    def log_not_above(z: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Log of the chance that a wrong logit does not exceed its mean by z."""
        return np.log1p(-np.minimum(upper_tail(z, mean, d, moments) @ p, 1 - 1e-15))

    log_right = (stored * V - 1) * log_not_above(z, mean)
    if stored < 1:
        deviation = np.sqrt(np.maximum(variance, 1e-30))
        mean = (b * k.shared)[:, None] * (phi * r - kept) / deviation[:, None]
        log_right += (
            (1 - stored) * V * log_not_above((own / deviation)[:, None] - mean, mean)
        )
    if at.rival:  # the labels of the noise tokens of a test sequence
        distinct = -V * np.expm1((model.L - 1) * np.log1p(-1 / V))
        for z in ndtri((np.arange(8) + 0.5) / 8):
            above = at.rival * (
                math.exp(at.spread * z - at.spread**2 / 2) / distinct - 1 / V
            )
            theirs = mean + above * b[:, None] * r / np.sqrt(total)
            log_right += (
                distinct
                / 8
                * log_not_above(own[:, None] / np.sqrt(total) - theirs, mean)
            )
    return float(np.exp(np.minimum(log_right, 0)).mean())


def orthogonal_accuracy(model: Model, N: float) -> float:
    """Attention-only with orthogonal embeddings: the logits of v are the counts.

    Its own is doubled by the trigger's share.
    """
    V = model.V
    if not model.trigger_in_value:
        return -float(np.expm1((N + 1) * np.log1p(-1 / V)))
    mean = min(
        N / V, 1000
    )  # there twice the count of one label is above all others already
    n = np.arange(np.ceil(mean + 7 * mean**0.5 + 15))
    below, upto, tie = (
        poisson.cdf(2 * n - 1, mean),
        poisson.cdf(2 * n, mean),
        poisson.pmf(2 * n, mean),
    )
    won = np.where(
        tie > 1e-9, (upto**V - below**V) / (V * np.maximum(tie, 1e-9)), below ** (V - 1)
    )
    return float(poisson.pmf(n, mean) @ won)


def key_overlaps(model: Model, at: Reading = LOCKED) -> KeyOverlaps:
    """Overlaps of attention keys over tokens and embeddings; docs/theory.md, section
    3.2.
    """
    if not model.m:
        return open_overlaps(model, at)
    return feature_overlaps(
        model.d, model.m, model.moments, model.trigger_in_value, model.activation
    )


class Lengths(NamedTuple):
    """Squared lengths in the value that attention hands on, over that of the
    informative token's row without what all share.
    """

    trigger: float
    shared: float  # trigger, what all rows share, and the mean of the noise tokens
    noise: float  # noise tokens of one sequence, less their mean


def lengths(model: Model, at: Reading) -> Lengths:
    """docs/theory.md, section 3.5."""
    noise = at.rival**2 * math.exp(at.spread**2)
    trigger = model.trigger_in_value * model.trigger_length
    shared = trigger + model.common_length * (1 + at.rival) ** 2 + noise / model.V
    return Lengths(trigger, shared, noise / max(model.L - 1, 1))


def open_overlaps(model: Model, at: Reading) -> KeyOverlaps:
    """Overlaps without an MLP, of a value that holds more than the informative
    token.
    """
    d, moments, of = model.d, model.moments, lengths(model, at)
    q = quantiles(d, moments)
    A, B = q.key_length, q.trigger_length * of.shared
    X = np.sqrt(A * B) * q.cosine * moments.overlap + A * at.rival / model.V
    own = A + X + np.sqrt(A * of.noise) * q.noise_cosine * moments.overlap
    return KeyOverlaps(own, B + X, moments.overlap * (A + B + 2 * X + of.noise) / d)


@lru_cache(maxsize=64)
def feature_overlaps(
    d: int, m: int, moments: Moments, trigger_in_value: bool, activation: Activation
) -> KeyOverlaps:
    """The same behind an MLP, from A = |z_in(v)|^2, B = |z_trig|^2 and X = z_in(v) .
    z_trig.

    B is 0 with the trigger out of the value path.

    A few neurons are drawn one by one: their sum is far from normal. Of more than
    NEURONS, the deviation of those from the mean counts.
    """
    q = quantiles(d, moments)
    A, B = q.key_length, q.trigger_length * trigger_in_value
    X = np.sqrt(A * B) * q.cosine * moments.overlap
    tilt = np.divide(X, np.sqrt(B), out=np.zeros(NODES), where=B > 0)[:, None]
    at, of_others = other_tokens(activation)
    to_trigger, to_key = (
        np.sqrt(B)[:, None],
        np.sqrt(np.maximum(A[:, None] - tilt**2, 0)),
    )

    def means(along: np.ndarray, across: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Means over neurons: own, shared, finite-width spread, F_jk.

        W_in is given along z_trig and along the rest of the key.
        """
        v = activation.value_and_slope(
            (to_trigger + tilt) * along + to_key * across, np, erf
        )[0]
        *e, variance, third = (
            np.interp(to_trigger * along, at, moment) for moment in of_others
        )
        x, y = ([1, g, g * g - 1, g**3 - 3 * g] for g in (along, across))
        F = [v * e[j + k] * x[j] * y[k] for j, k in HERMITE]
        return np.stack(
            [
                (f * weight).sum(1)
                for f in (
                    v * (v - e[0]),
                    v * e[0],
                    v**2 * variance,
                    v**3 * third,
                    *F,
                    v * e[2],
                )
            ]
        )

    drawn = drawn_neurons()[..., : min(m, NEURONS)]
    found = means(drawn[0], drawn[1], np.asarray(1 / drawn.shape[-1]))
    if m > NEURONS:
        g, weight = np.polynomial.hermite_e.hermegauss(24)
        weight = np.multiply.outer(weight, weight).ravel() / weight.sum() ** 2
        limit = means(np.repeat(g, 24)[None], np.tile(g, 24)[None], weight)
        found = limit + (found - limit) * (NEURONS / m) ** 0.5
    own, shared, finite, third, a1, b1, a2, ab, b2, a3, a2b, ab2, b3, trace = found
    if not moments.overlap:
        return KeyOverlaps(own, shared, finite / m, third / m**2)
    spread = (a1**2 + b1**2) / d + (
        a2**2 + 2 * ab**2 + b2**2 + d * moments.random_length * trace**2
    ) / (2 * d * d)
    spread += (a1 * (a3 + ab2) + b1 * (b3 + a2b)) / (d * d)
    spread += (
        5 * (a3**2 + b3**2) + 9 * (a2b**2 + ab2**2) + 6 * (a3 * ab2 + a2b * b3)
    ) / (12 * d**3)
    mean = (a2 + b2) / (2 * d)
    return KeyOverlaps(
        own - mean, shared + mean, np.maximum(spread, 0) + finite / m, third / m**2
    )


HERMITE = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3))
"""Orders (j, k) of F_jk = mean over neurons of act(u_v) E[act^(j+k)(u_w)] He_j(along)
He_k(across).
"""


@cache
def drawn_neurons() -> np.ndarray:
    """(2, NODES, NEURONS) rows of W_in along z_trig and along the rest of a key.

    Of each neuron they are a Latin hypercube over the nodes.
    """
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.tile(np.arange(NODES)[:, None], 2 * NEURONS), axis=0)
    return (
        ndtri((strata + rng.random(strata.shape)) / NODES)
        .reshape(NODES, 2, NEURONS)
        .swapaxes(0, 1)
    )


@cache
def other_tokens(activation: Activation) -> tuple[np.ndarray, np.ndarray]:
    """Values of y, and a table (6, values) of what a neuron does on other tokens at
    each.

    It holds E He_k(g) act(y + g) for k = 0 to 3, and the second and the third central
    moment of act(y + g), with g ~ N(0, 1).
    """
    g, weight = np.polynomial.hermite_e.hermegauss(60)
    weight, at = weight / weight.sum(), np.linspace(-12, 12, 4801)
    act = activation.value_and_slope(at[:, None] + g, np, erf)[0]
    e = [act @ (weight * h) for h in (np.ones(60), g, g * g - 1, g**3 - 3 * g)]
    return at, np.stack([*e, *((act - e[0][:, None]) ** k @ weight for k in (2, 3))])


@cache
def nodes() -> Nodes:
    """The quasi-random nodes, as uniforms."""
    return Nodes(
        *(qmc.Sobol(len(Nodes._fields), scramble=False).random(NODES) + 0.5 / NODES).T
    )


@lru_cache(maxsize=64)
def quantiles(d: int, moments: Moments) -> Nodes:
    """The nodes in d dimensions: squared lengths, cosines, and the own logit less its
    mean over its standard deviation.

    `rest_length` is over its mean, and `own_count` stays uniform.
    """
    u = nodes()
    rows = u.key_length, u.trigger_length, u.label_length
    key, trigger, label = (
        chi_square(row, d) if moments.random_length else np.ones(NODES) for row in rows
    )
    own_logit = (
        ndtri(u.own_logit)
        if moments.random_length or not moments.overlap
        else np.sqrt(d) * cosine(u.own_logit, d)
    )
    rest, noise = chi_square(u.rest_length, d), cosine(u.noise_cosine, d)
    return Nodes(
        key, trigger, cosine(u.cosine, d), label, rest, own_logit, u.own_count, noise
    )


def chi_square(u: np.ndarray, d: int) -> np.ndarray:
    """Quantiles of a chi-square with d degrees of freedom, over d: mean 1."""
    return 2 / d * gammaincinv(d / 2, u)


def cosine(u: np.ndarray, d: int) -> np.ndarray:
    """Quantiles of the cosine between two independent directions in d dimensions."""
    t = stdtrit(d - 1, u)
    return t / np.sqrt(d - 1 + t * t)


def upper_tail(z: np.ndarray, mean: np.ndarray, d: int, moments: Moments) -> np.ndarray:
    """Probability that a wrong logit exceeds its mean by z; both are in its standard
    deviations.

    On the sphere a logit over sqrt(d) is a cosine, spread around a direction;
    docs/theory.md, section 3.1.
    """
    if not moments.overlap or moments.random_length:
        return ndtr(-z)
    reached, sine = (
        np.clip(logit / np.sqrt(d), -0.999, 0.999) for logit in (mean + z, mean)
    )
    tangents = reached / np.sqrt(1 - reached**2) - sine / np.sqrt(1 - sine**2)
    return np.interp(tangents * np.sqrt(d - 1), *student_tail(d))


@lru_cache(maxsize=64)
def student_tail(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Values, and the probability that a variable of Student's law with d - 1 degrees
    of freedom is above each.
    """
    at = np.linspace(-40, 40, 16001)
    return at, stdtr(d - 1, -at)


def normal_from_skewed(z: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """The standard normal value that is as rare as z of a shifted gamma variable.

    That has mean 0 and variance 1 (Wilson and Hilferty).
    """
    if not skewness.any():
        return z
    s = np.where(np.abs(skewness) < 1e-4, 1e-4, skewness)
    return 6 / s * (np.cbrt(s * z / 2 + 1) - 1) + s / 6


def counts(mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Poisson counts over their mean, and their probabilities.

    Where there are more than LEVELS, means of neighbours.
    """
    if mean == np.inf:
        return np.ones(1), np.ones(1)
    low, high = (
        np.floor(max(0, mean - 7 * mean**0.5)),
        np.ceil(mean + 7 * mean**0.5 + 15),
    )
    last = np.round(
        np.linspace(low - 1, high, min(int(high - low) + 1, LEVELS) + 1)
    )  # the last count of each level
    p, part_of_mean = (
        np.diff(poisson.cdf(last, mean)),
        np.diff(poisson.cdf(last - 1, mean)),
    )
    p, part_of_mean = p[p > 0], part_of_mean[p > 0]
    return part_of_mean / p, p / p.sum()
