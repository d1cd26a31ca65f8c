"""The columns that `diagnose` adds, to read: float64, in NumPy. It splits the noise of the scores.

The score of token v is s(v) = z_in(v)^T w, w = W_KQ z_eos; what it varies over the
vocabulary competes with the trigger's score z_trig^T w. By Gram-Schmidt, w is the sum
of four vectors, so s is the sum of four noises:

    leakage    along z_trig, which the token embeddings are not orthogonal to
    bias       of the rest, along Sigma_c zbar: the mean embedding zbar as the covariance Sigma_c of the rows of Z_in passes it on
    mlp        of the rest, what differs from its mean over redraws of W_in with data and embeddings held; 0 without an MLP
    gradient   what is left: that mean

`simulator/record.py` splits the same, streamed. The split is ours.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ..columns import NOISES
from ..point import Point
from .realization import Realization
from .steps import ThreeStep, in_float64, three_step


def diagnose(realization: Realization, point: Point, learned: ThreeStep, redraws: np.ndarray) -> dict[str, float | None]:
    """The noise columns of the run's row, from `three_step` and redraws of W_in (n, m, d)."""
    r, mean_w = in_float64(realization), learned.w
    if point.m:
        mean_w = np.mean([three_step(realization._replace(W_in=W_in), point).w for W_in in redraws], axis=0)
    scale = np.abs(learned.w).max() or 1.0
    scores = r.Z_in @ split(r, learned.w / scale, mean_w / scale).T
    return noise_columns(np.cov(scores, rowvar=False, ddof=0), float(r.z_trig @ learned.w / scale))


def split(r: Realization, w: np.ndarray, mean_w: np.ndarray) -> np.ndarray:
    """(4, d): w as the sum of its parts, in the order of NOISES.

    `mean_w` is its mean over redraws of W_in.
    """
    zbar = r.Z_in.mean(0)
    Sigma_c = np.cov(r.Z_in, rowvar=False, ddof=0).reshape(len(zbar), -1)
    drift = Sigma_c @ zbar
    trigger = r.z_trig / np.linalg.norm(r.z_trig)
    own = drift - (drift @ trigger) * trigger
    rounding = np.linalg.norm(drift) + np.trace(Sigma_c) * np.linalg.norm(zbar) / len(r.Z_in)
    bias = own / np.linalg.norm(own) if np.linalg.norm(own) > 1e-5 * rounding else np.zeros_like(own)

    def rest(x: np.ndarray) -> np.ndarray:
        return x - (x @ trigger) * trigger - (x @ bias) * bias

    return np.stack([(w @ trigger) * trigger, (w @ bias) * bias, rest(w) - rest(mean_w), rest(mean_w)])


def noise_columns(covariances: np.ndarray, trigger: float) -> dict[str, float | None]:
    """The noise columns from the covariances (4, 4) of the parts' scores and the trigger's score.

    Null where that is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.asarray(covariances, np.float64) / np.float64(trigger) ** 2
    std = {f"noise_{name}": relative[i, i] ** 0.5 for i, name in enumerate(NOISES)}
    both = {f"cov_{NOISES[i]}_{NOISES[j]}": relative[i, j] for i, j in combinations(range(4), 2)}
    return {name: float(value) if np.isfinite(relative).all() else None for name, value in (std | both).items()}
