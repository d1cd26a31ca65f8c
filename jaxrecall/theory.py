"""Leading-order theory of the attention-only model. Ours, not the paper's; derived and checked numerically. No JAX here.

Assumptions of every formula: gaussian embeddings, eta -> 0, large kappa, the same batch in the three steps, the trigger in
the value path. c = V / d.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr


class ScoreNoise(NamedTuple):
    """Standard deviations over the vocabulary of z_in(v)^T w after step 2, in units of the trigger's score z_trig^T w."""

    mean_bias: float
    gradient: float
    leakage: float

    @property
    def snr(self) -> float:
        """trigger_score / score_std, the column `snr`."""
        return 1 / float(np.sqrt(sum(term**2 for term in self)))


def score_noise(V: int, N: int, d: int, L: int) -> ScoreNoise:
    """Noise of the attention scores:

        mean bias       L^2 / (N V) sqrt(c + 3 c^2 + c^3)      along the vocabulary covariance times the mean embedding
        gradient noise  (L / N) V / d^{3/2}  and  sqrt(L V / (N d^3))
        leakage         1 / sqrt(d)                            along z_trig itself

    Ours. Valid for N >= V and N >= 2 L^2 / d; about N ~ V and L << d a further noise of order 0.1-0.3 is not in it.
    """
    c = V / d
    return ScoreNoise(
        mean_bias=L**2 / (N * V) * np.sqrt(c + 3 * c**2 + c**3),
        gradient=float(np.hypot(L / N * V / d**1.5, np.sqrt(L * V / (N * d**3)))),
        leakage=d**-0.5,
    )


def locked_accuracy(V: int, N: int, d: int) -> float:
    """Test accuracy when attention is locked on the informative token:

        E[Phi(own / s)^{V-1}],  own ~ N(1, 2 V/d^2 + 5/d + (V/N)(4 + V/d)),  s^2 = 2 V/d^2 + 3/d + (V/N)(1 + V/d)

    s^2 is the variance of a wrong label's logit in units of the mean of the right one's. Ours; labels are taken as independent.
    """
    s = np.sqrt(2 * V / d**2 + 3 / d + V / N * (1 + V / d))
    spread = np.sqrt(2 * V / d**2 + 5 / d + V / N * (4 + V / d))
    z, weight = np.polynomial.hermite_e.hermegauss(101)
    return float(weight @ np.exp((V - 1) * log_ndtr((1 + spread * z) / s)) / weight.sum())
