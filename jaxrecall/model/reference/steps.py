"""The three gradient steps, written readably in closed form for the full batch in NumPy
float64.

`simulator/recipe.py` computes the same steps in float32. Tests compare the two files.
They also compare this file with the gradient of `loss` in `model/recall.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy import ndarray

from ..point import Point
from ..values import Numbers
from .realization import DrawnArray, Realization, expect_both


class ThreeStep(NamedTuple):
    """The parameters after the three steps. They are float64 in NumPy, and have the
    dtype of the embeddings in JAX.
    """

    V1: DrawnArray  # (d, p) V_mat after step 1, p = d or m
    w: DrawnArray  # (d,) W_KQ z_eos after step 2
    V2: DrawnArray  # (d, p) V_mat after step 3


def three_step(
    realization: Realization, point: Point, rates: tuple[Numbers, ...] | None = None
) -> ThreeStep:
    """Returns the parameters after the paper's recipe, which starts from V_mat = 0 and
    W_KQ = 0.

        V1 = V0 - eta grad_V loss(V0, W0)     (first_steps times)
        W1 = W0 - gamma  grad_W loss(V1, W0)
        V2 = V1 - gamma2 grad_V loss(V1, W1)

    The gradients are full-batch gradients of the cross-entropy. `rates` are eta, gamma
    and gamma2, by default those of the point. W_KQ enters only through w = W_KQ z_eos.
    Since grad_W = grad_w z_eos^T, w1 = -gamma |z_eos|^2 grad_w. Memory: 8 N (V + d + m
    + L) bytes. The recipe is from arXiv:2603.15923, and the closed forms are ours.

        >>> from jaxrecall import Point, realize
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> V1, w, V2 = three_step(realize(point, seed=0), point)
    """
    expect_both(realization, point)
    eta, gamma, gamma2 = rates or (point.eta, point.gamma, point.gamma2)
    r = realization.astype(np.float64)
    _, second, third = r.batches

    # Step 1: attention is uniform at w = 0, and predictions are uniform at V_mat = 0.
    V1 = np.zeros((point.d, point.p))
    for s in range(point.first_steps):
        x, ell, y = r.samples_of_first(s, point.first_steps)
        h, _ = attend(r, point, x, ell, np.zeros(point.d))
        phi, _ = features(r, point, h)
        V1 = V1 + eta / point.N * pull_on_outputs(r, V1, phi, y).T @ phi

    # Step 2: W_KQ moves by g z_eos^T, and so w = W_KQ z_eos by |z_eos|^2 g.
    rate = gamma * (r.z_eos @ r.z_eos) / (point.N * point.L)
    w = rate * pull_on_w(r, point, V1, *second)

    # Step 3: the gradient by V_mat again, with the attention and the predictions
    # learned since.
    x, ell, y = third
    h, _ = attend(r, point, x, ell, w)
    phi, _ = features(r, point, h)
    V2 = V1 + gamma2 / point.N * pull_on_outputs(r, V1, phi, y).T @ phi
    return ThreeStep(V1, w, V2)


def pull_on_outputs(
    r: Realization, V_mat: ndarray, phi: ndarray, y: ndarray
) -> ndarray:
    """Returns z_out(y_i) - sum_u p_i(u) z_out(u) for each sample i, an array (N, d).

    Row i is minus the gradient of the loss of sample i by V_mat phi_i.
    """
    p = scipy.special.softmax(phi @ V_mat.T @ r.Z_out.T, axis=1)
    return r.Z_out[y] - p @ r.Z_out


def pull_on_w(
    r: Realization,
    point: Point,
    V1: ndarray,
    x: ndarray,
    ell: ndarray,
    y: ndarray,
) -> ndarray:
    """Returns sum_ij b_i^T (v_ij - h_i) k_ij, an array (d,): minus N L times the
    gradient by w at w = 0.

    Here b_i is minus the gradient of the loss of sample i by h_i.
    """
    h, _ = attend(r, point, x, ell, np.zeros(point.d))
    phi, slope = features(r, point, h)
    b = pull_on_outputs(r, V1, phi, y) @ V1
    if r.W_in is not None:
        b = (b * slope) @ r.W_in
    S, trigger = np.zeros(point.V), 0.0
    for j in range(point.L):
        is_ell = ell == j
        c = (b * (r.Z_in[x[:, j]] - h)).sum(1)
        c += point.trigger_in_value * is_ell * (b @ r.z_trig)
        np.add.at(S, x[:, j], c)
        trigger += c[is_ell].sum()
    return S @ r.Z_in + trigger * r.z_trig


def attend(
    r: Realization, point: Point, x: ndarray, ell: ndarray, w: ndarray
) -> tuple[ndarray, ndarray]:
    """Returns the attention outputs h (N, d) and weights (N, L) of tokens x (N, L).

    The informative tokens are at the positions ell (N,).
    """
    is_ell = ell[:, None] == np.arange(x.shape[1])
    a = scipy.special.softmax((r.Z_in @ w)[x] + is_ell * (r.z_trig @ w), axis=1)
    h = np.zeros((len(x), point.d))
    for j in range(x.shape[1]):
        h += a[:, j, None] * r.Z_in[x[:, j]]
    if point.trigger_in_value:
        h += (a * is_ell).sum(1, keepdims=True) * r.z_trig
    return h, a


def features(r: Realization, point: Point, h: ndarray) -> tuple[ndarray, ndarray]:
    """Returns the input phi (N, p) of V_mat, and the slopes act'(W_in h) / sqrt(m).

    Without an MLP, the input is h and the slopes are ones.
    """
    if r.W_in is None:
        return h, np.ones_like(h)
    phi, slope = point.activation.value_and_slope(h @ r.W_in.T, np, scipy.special.erf)
    scale = len(r.W_in) ** -0.5
    return phi * scale, slope * scale
