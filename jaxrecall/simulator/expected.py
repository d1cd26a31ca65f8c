"""The error that a shortcut is expected to show, from the fields of a point alone (ours).

Most runs of a point whose expected error is beyond the tolerance would be rejected by its bound, after a guarded attempt that costs as much
as the full form where V is small. Such points run in the full form at once. It depends on nothing but the point, so the same run
has the same form in every sweep.
"""

from __future__ import annotations

from math import inf, sqrt

from ..model.point import Point

GAIN = {"none": 0.64, "relu": 0.4, "tanh": 0.55, "gelu": 0.25}
"""Measured error over the leading order, by activation. No others are foreseen."""

LAWS = ("gaussian", "sphere")


def step2_error(point: Point) -> float:
    """The expected bound of `shortcut.softmax_errors` on step 2; 0 where nothing is known.

    With c = V/d and q = 1 + sqrt(c), the centred answers A = Z_out G1 have three parts: of the permutation, of the counts of noise
    tokens, and of the counts of labels. Their largest singular values are q^3 s, 2 q^3 sqrt(V) sigma and q^2 sqrt(V) rho, and a row
    has the mean square (1 + c) (s^2 + V sigma^2 + rho^2), to leading order. q^-2.2 and GAIN were fitted to 450 points with V
    from 12 to 128. In the studies in results/, up to 1.5 times the tolerance about two thirds of the runs were rejected, from twice
    on 97 % or more, and at half of it under 1 %.
    """
    if point.activation not in GAIN or not {point.embedding, point.embedding_out} <= {*LAWS}:
        return 0.0
    try:
        return _leading_order(point)
    except OverflowError:
        return inf


def _leading_order(point: Point) -> float:
    V, N, L, c = float(point.V), float(point.N), float(point.L), point.V / point.d
    q, others, trigger = 1 + sqrt(c), 1 - 1 / L, point.trigger_in_value / L**2
    phi2 = 1 / L + others / V + trigger
    s = 1 / (L * V)
    sigma = s * sqrt((L - 1) / N)
    rho = sqrt((others**2 / V + trigger) / (N * V))
    largest2 = (q**3 * s) ** 2 + 4 * q**6 * V * sigma**2 + q**4 * V * rho**2
    row2 = (1 + c) * (s**2 + V * sigma**2 + rho**2)
    linear = point.eta / V * largest2 / sqrt(row2) * sqrt(phi2) * q**-2.2
    return GAIN[point.activation] * linear + 4 * point.eta**2 * phi2 * row2
