"""Leading-order theory of what the three steps learn. Ours, not the paper's; derived and checked numerically. No JAX here.

Assumptions of every formula: eta -> 0, large kappa. c = V/d (0 if the embeddings are orthogonal), lambda = N/V. A case
that is not covered raises TheoryError. `locked.py` derives accuracy once attention is right.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import erf, expit, ndtri

from ..errors import TheoryError
from ..laws.activation import value_and_slope
from .locked import check, locked_accuracy

__all__ = ["ScoreNoise", "accuracy", "critical_N", "locked_accuracy", "score_noise"]

LARGEST_N = 2.0**40


class ScoreNoise(NamedTuple):
    """Standard deviations over the vocabulary of z_in(v)^T w after step 2, in units of the trigger's score z_trig^T w."""

    mean_bias: float
    gradient: float
    leakage: float
    mlp: float

    @property
    def snr(self) -> float:
        """trigger_score / score_std, the column `snr`."""
        return 1 / float(np.sqrt(sum(term**2 for term in self)))

    @property
    def leading(self) -> str:
        """Name of the largest term."""
        return max(self._fields, key=lambda name: getattr(self, name))


def score_noise(
    V: int,
    N: float,
    d: int,
    L: int,
    m: int = 0,
    embedding: str = "gaussian",
    trigger_in_value: bool = True,
    activation: str = "none",
    fresh_batches: bool = False,
) -> ScoreNoise:
    """Noise of the attention scores. Write w = T z_trig + a Sigma_c z_trig + sum_u S_u z_u, in units of a trigger without noise;
    M_k = tr Sigma_c^k / d, Sigma_c = Z_in^T Z_in / V; t = 1 with the trigger in the value path, k = 1 - 1/L, R = (L - 1) lambda / V:

        trigger      T + a M_1,   T = 1 + t V/N,   a = t (1 + (L + 1) V/N)
        leakage      sqrt(T^2 M_1 + 2 a T M_2 + a^2 M_3),   near 1/sqrt(d)
        mean bias    L (L - 1) V/N sqrt(M_3 / V),   along Sigma_c times the mean embedding
        gradient     sqrt((1 + c) Var S) / (k lambda^2 V),   Var S = counts of labels, and of the tokens that occur with them,
                     k^2 [t lambda + (2 + 12 t) lambda^2 + (4 + 5 t) lambda^3 + t c lambda^2 (1 + lambda) + lambda^4 (c + 4)/d]
                     + 2 V R^2 (1 + c) + (2 + c) L^2 lambda / V + 4 (1 + c) lambda^2 R + c (1 + c) (2 lambda^2 R + V R^2)
                     + (L - 1) lambda^3 / L^2
        mlp          sqrt(d M_3 / m [(L V/N)^2 (h^2 + L^2/V) + a^2] + (1 + c) Var S' / (k lambda^2 V)^2),
                     h = L (E act + E act'' (1/L + lambda/L^2)) / E act',   Var S' = q [(1 + c)(2 lambda^2 R + V R^2) V
                     + L^2 lambda (1 + 2 lambda) + (2 + c) k^2 lambda^4],   q = L E act'^2 Var act / (m (E act')^4),   at u ~ N(0, 1/L)

    and these over the trigger. The term (c + 4)/d is not there for orthogonal embeddings. With fresh batches T, a and h lose their
    V/N and noise of a sample with itself, mean bias shrinks by sqrt((1 + c)/V) and lambda^2, lambda^3 count two samples.

    Ours. Measured / predicted snr, medians over random points: 0.97-1.01 without an MLP (N >= V/2, N >= 2 L^2/d, L < V), 0.89-1.00 with one
    (N >= 2 V, N >= 8 L^2/d); of `mlp` alone 1.2 (relu, tanh) to 1.6 (gelu). Printed by tests/test_physics.py. Raises TheoryError.
    """
    check(V, N, d, m, embedding, activation)
    if L < 2:
        raise TheoryError(f"L: got {L}; allowed: from 2, a single token has no rival")
    if not has_score_noise(m, embedding, activation):
        covered = "m = 0, or gaussian and sphere embeddings with relu, gelu, tanh or identity"
        raise TheoryError(f"m: got {m} with {embedding} embeddings and {activation}; covered: {covered}")
    c = 0.0 if embedding == "orthogonal" else V / d
    t, k, rate = int(trigger_in_value), 1 - 1 / L, N / V
    R = (L - 1) * rate / V
    M1, M2, M3 = c / V, (c + c * c) / V**2, (c + 3 * c * c + c**3) / V**3
    unit = k * rate**2 * V

    again = 0 if fresh_batches else 1
    T, a = trigger(V, N, L, embedding, trigger_in_value, fresh_batches)
    if fresh_batches:
        counts = (1 + 3 * t) * rate**2 + (2 + 3 * t) * rate**3
        tokens = V * R**2 * (1 + c) + 2 * (1 + c) * rate**2 * R
    else:
        counts = t * rate + (2 + 12 * t) * rate**2 + (4 + 5 * t) * rate**3
        tokens = 2 * V * R**2 * (1 + c) + 4 * (1 + c) * rate**2 * R + (2 + c) * L**2 * rate / V
    counts += t * c * rate**2 * (1 + rate)

    def overlaps(c_in: float) -> float:
        return (1 + c) * c_in * (2 * rate**2 * R + V * R**2)

    spread = k**2 * counts + tokens + overlaps(c) + rate**3 * (L - 1) / L**2
    if c:
        spread += k**2 * rate**4 * (c + 4) / d
    mlp = 0.0
    if m:
        mean, square, slope, slope_square, bend = moments(activation, L**-0.5)
        pair = slope_square * (square - mean**2) * L / (m * slope**4)
        shared = L * (again * (mean + bend / L) + bend * rate / L**2) / slope
        along = (L * V / N) ** 2 * (shared**2 + again * L**2 / V) + a * a
        apart = overlaps(V * pair) + pair * (again * L**2 * rate * (1 + 2 * rate) + k**2 * rate**4 * (2 + c))
        mlp = np.sqrt(along * d / m * M3 + (1 + c) * apart / unit**2)
    bias = L * (L - 1) * V / N * np.sqrt(M3 / V) * (1 if again else np.sqrt((1 + c) / V))
    leakage = np.sqrt(T * T * M1 + 2 * a * T * M2 + a * a * M3)
    terms = bias, np.sqrt((1 + c) * spread) / unit, leakage, mlp
    return ScoreNoise(*(float(term / (T + a * M1)) for term in terms))


def accuracy(
    V: int,
    N: float,
    d: int,
    L: int,
    kappa: float = 100.0,
    m: int = 0,
    embedding: str = "gaussian",
    trigger_in_value: bool = True,
    activation: str = "none",
    fresh_batches: bool = False,
) -> float:
    """Test accuracy, attention locked or not: P(mass > 1/2) times `locked_accuracy` with what strays into V2.

    The mass on the informative token is 1 / (1 + Z exp(-S - s_v)): S = kappa (1 - 1/L) g^2 (trigger of `score_noise`) nats,
    s_v and the L - 1 scores in Z normal with s.d. sigma = S / snr; log Z is the largest of the distinct ones once sigma^2 >
    2 log(L - 1), else log(L - 1) + sigma^2 / 2 (random energy model). Tokens that win attention stray into V2 with weight
    E[(1 - mass)^2] (E[mass] / E[mass^2])^2 / N beside the tokens that are recalled.
    Ours. Where score noise is not covered (orthogonal embeddings or the quadratic activation with an MLP): the locked value.
    Mean |error| 0.05 where attention is not locked, up to 0.3.
    """
    law = m, embedding, trigger_in_value, activation
    if L == 1 or not has_score_noise(m, embedding, activation):
        return locked_accuracy(V, N, d, *law)
    T, a = trigger(V, N, L, embedding, trigger_in_value, fresh_batches)
    gain = moments(activation, L**-0.5)[2] ** 2 if m else 1
    mass, rivals = attention(kappa * (1 - 1 / L) * gain * (T + a / d), score_noise(V, N, d, L, *law, fresh_batches).snr, V, L)
    stray = float(((1 - mass) ** 2).mean() / rivals * (mass.mean() / (mass**2).mean()) ** 2 / N)
    return float((mass > 0.5).mean()) * locked_accuracy(V, N, d, *law, stray=stray)


def attention(trigger: float, snr: float, V: int, L: int, nodes: int = 4096) -> tuple[np.ndarray, float]:
    """Softmax weight of the informative token at quasi-random nodes, and how many rivals share the rest."""
    u = (np.arange(nodes) + 0.5) / nodes
    other = (np.arange(nodes) * (math.sqrt(5) - 1) / 2 + 0.5) % 1  # golden ratio: the second coordinate of a lattice
    sigma = trigger / snr
    own = trigger + sigma * ndtri(u)
    if L > 2 and sigma**2 < 2 * math.log(L - 1):
        return expit(own - math.log(L - 1) - sigma**2 / 2), L - 1.0
    distinct = -V * math.expm1((L - 1) * math.log1p(-1 / V))
    return expit(own - sigma * ndtri(other ** (1 / distinct))), 1.0


def critical_N(
    V: int,
    d: int,
    L: int,
    theta: float = 0.5,
    kappa: float = 100.0,
    m: int = 0,
    embedding: str = "gaussian",
    trigger_in_value: bool = True,
    activation: str = "none",
    fresh_batches: bool = False,
) -> float:
    """Smallest N at which `accuracy` reaches theta; inf where it levels off below (plateau).

    Ours. No power law: d must exceed an edge near 2 sqrt(V log V) (sqrt(2 V log V) with the trigger out of the value path), and
    only well above it N is about V^2 log V / d. Against N* of cells with locked attention: median |ln ratio| 0.06 at theta 0.5 and 0.9.
    """
    if not 0 < theta < 1:
        raise TheoryError(f"theta: got {theta!r}; allowed: fractions between 0 and 1")

    def excess(log_N: float) -> float:
        return accuracy(V, math.exp(log_N), d, L, kappa, m, embedding, trigger_in_value, activation, fresh_batches) - theta

    if excess(math.log(LARGEST_N)) < 0:
        return math.inf
    return math.exp(brentq(excess, 0, math.log(LARGEST_N), xtol=1e-3)) if excess(0) < 0 else 1.0  # type: ignore[arg-type]


def trigger(V: int, N: float, L: int, embedding: str, trigger_in_value: bool, fresh_batches: bool) -> tuple[float, float]:
    """T and a of w = T z_trig + a Sigma_c z_trig + ..., in units of a trigger without noise."""
    t, per_N = int(trigger_in_value), 0 if fresh_batches else V / N
    return 1 + t * per_N, t * (1 + (L + 1) * per_N) * (embedding != "orthogonal")


def has_score_noise(m: int, embedding: str, activation: str) -> bool:
    """Whether `score_noise` covers the model."""
    return m == 0 or (embedding != "orthogonal" and activation != "quadratic")


def moments(activation: str, s: float) -> tuple[float, float, float, float, float]:
    """E act, E act^2, E act', E act'^2, E act'' at u ~ N(0, s^2)."""
    u, weight = np.polynomial.hermite_e.hermegauss(100)
    value, slope = value_and_slope(activation, s * u, np, erf)
    mean, square, first, second, bend = (float(weight @ x / weight.sum()) for x in (value, value**2, slope, slope**2, slope * u / s))
    return mean, square, first, second, bend
