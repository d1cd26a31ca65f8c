"""The overlaps between the features of memory keys that V_mat reads;
docs/theory-derivations.md, section 3.2.

The *memory key* of a token is the output of attention on this token: z_in(v), plus
z_trig if the trigger is in the value path.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy.special import erf, ndtri

from ..model.activations import Activation
from ..model.laws import Moments
from .distributions import NODES, normal_quadrature, quantiles
from .first_steps import find_filter
from .model import Model

NEURONS = 256
"""The number of neurons of an MLP that are drawn at each node."""


class KeyOverlaps(NamedTuple):
    """Overlaps omega(w, v) = phi(key w)^T phi(key v) of memory keys at the nodes,
    (NODES,) each.
    """

    own: ndarray  # omega(v, v) minus the mean of omega(w, v) over w
    shared: ndarray  # this mean, which is the part that all keys share
    spread: ndarray  # variance of omega(w, v) over w
    third: ndarray | float = 0.0  # third central moment of omega(w, v) over w


ByNode = ndarray | float


class Reading(NamedTuple):
    """Numbers that describe the attention in training and in the test. They apply to
    some tokens of some seeds. Each is a number, or one at each node, (NODES,).

    The default is attention locked on the informative token.
    """

    # fraction of the vocabulary whose samples reach V_mat in step 3
    stored: ByNode = 1.0
    weight: ByNode = 1.0  # attention on the informative token, divided by its mean
    uneven: ByNode = 0.0  # variance of `weight` over the vocabulary
    aligned: ByNode = 0.0  # slope of `weight` in the overlap of token and trigger
    rival: ByNode = 0.0  # attention on all noise tokens relative to the informative one
    spread: ByNode = 0.0  # standard deviation of the scores of noise tokens, nats
    # summed square weight of noise tokens relative to that of the informative one
    stray: ByNode = 0.0


LOCKED = Reading()


class ValueLengths(NamedTuple):
    """The squared lengths of the parts of the value that attention outputs.

    The unit is the squared length of the informative token's row without the part that
    all rows share; docs/theory-derivations.md, section 3.5.
    """

    trigger: float
    shared: ByNode  # of the trigger, the part all rows share, and the noise mean
    noise: ByNode  # of the noise tokens of one sequence, minus their mean

    @property
    def common(self) -> ndarray:
        """The fraction of the squared length of the shared value that does not come
        from the trigger. All samples write this part to V_mat.
        """
        return (self.shared - self.trigger) / np.maximum(self.shared, 1e-99)


def value_lengths(model: Model, reading: Reading) -> ValueLengths:
    noise = reading.rival**2 * np.exp(reading.spread**2)
    trigger = model.trigger_in_value * model.trigger_length
    shared = trigger + model.common_length * (1 + reading.rival) ** 2 + noise / model.V
    return ValueLengths(trigger, shared, noise / max(model.L - 1, 1))


def key_overlaps(model: Model, reading: Reading = LOCKED) -> KeyOverlaps:
    """Returns the distribution of overlaps between memory keys, over tokens and
    embeddings.
    """
    if not model.m:
        return attention_overlaps(model, reading)
    return feature_overlaps(
        model.d, model.m, model.moments, model.trigger_in_value, model.activation
    )


def attention_overlaps(model: Model, reading: Reading) -> KeyOverlaps:
    """Returns the overlaps without an MLP.

    The value may contain noise tokens in addition to the informative token.
    """
    d, moments = model.d, model.moments
    lengths = value_lengths(model, reading)
    q = quantiles(d, moments)
    A = q.key_length
    B = q.trigger_length * lengths.shared
    X = np.sqrt(A * B) * q.cosine * moments.overlap + A * reading.rival / model.V
    noise = np.sqrt(A * lengths.noise) * q.noise_cosine * moments.overlap
    first = find_filter(model)
    of_trigger = first.overlaps_square * B + 2 * first.overlaps * X
    spread = moments.overlap * (A + of_trigger + lengths.noise) / d
    return KeyOverlaps(A + X + noise, B + X, spread)


ORDERS = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3))
"""The orders (j, k) of F_jk = mean over neurons of act(u_v) E[act^(j+k)(u_w)]
He_j(along) He_k(across). Token v has the input u_v, and another token w the input u_w.
"""


Inputs = list[ndarray]
"""The parts of a neuron's input from a memory key, (NODES, 1, 1) each: the input from
every key, along z_trig; that from the token, along z_trig; and that from the token,
across z_trig.
"""


@lru_cache(maxsize=64)
def feature_overlaps(
    d: int, m: int, moments: Moments, trigger_in_value: bool, activation: Activation
) -> KeyOverlaps:
    """Returns the overlaps behind an MLP.

    The notation is A = |z_in(v)|^2, B = |z_trig|^2 and X = z_in(v) . z_trig. B is 0 if
    the trigger is not in the value path.
    """
    q = quantiles(d, moments)
    A = q.key_length
    B = q.trigger_length * trigger_in_value
    X = np.sqrt(A * B) * q.cosine * moments.overlap
    tilt = np.divide(X, np.sqrt(B), out=np.zeros(NODES), where=B > 0)
    parts = np.sqrt(B), tilt, np.sqrt(np.maximum(A - tilt**2, 0))
    inputs = [part[:, None, None] for part in parts]
    own, shared, finite, third, trace, *F = layer_means(inputs, m, activation)
    mean = spread = 0.0
    if moments.overlap:
        mean, spread = projected(trace, F, d, moments)
    spread = np.maximum(spread, 0) + finite / m
    return KeyOverlaps(own - mean, shared + mean, spread, third / m**2)


def projected(
    trace: ndarray, F: list[ndarray], d: int, moments: Moments
) -> tuple[ndarray, ndarray]:
    """Returns the contributions of the other token's projections to the mean and to the
    spread.

    The layer has infinitely many neurons, and the expansion is to third order.
    """
    F10, F01, F20, F11, F02, F30, F21, F12, F03 = F
    spread = (F10**2 + F01**2) / d
    of_lengths = d * moments.random_length * trace**2
    spread += (F20**2 + 2 * F11**2 + F02**2 + of_lengths) / (2 * d * d)
    spread += (F10 * (F30 + F12) + F01 * (F03 + F21)) / (d * d)
    squares = 5 * (F30**2 + F03**2) + 9 * (F21**2 + F12**2)
    spread += (squares + 6 * (F30 * F12 + F21 * F03)) / (12 * d**3)
    return (F20 + F02) / (2 * d), spread


def layer_means(inputs: Inputs, m: int, activation: Activation) -> ndarray:
    """Returns the means over the m neurons of a layer, as `neuron_means` does.

    Few neurons are drawn one by one, because their sum is far from normal. For a layer
    wider than NEURONS, the deviation of NEURONS neurons from the mean over all neurons
    is scaled to the width.
    """
    n_drawn = min(m, NEURONS)
    along, across = drawn_neurons()[..., :n_drawn, None]
    weights = np.full(n_drawn, 1 / n_drawn), np.ones(1)
    means = neuron_means(inputs, along, across, weights, activation)
    if m > NEURONS:
        g, weight = normal_quadrature(24)
        weights = weight, weight
        along, across = g[None, :, None], g[None, None]
        limit = neuron_means(inputs, along, across, weights, activation)
        means = limit + (means - limit) * (NEURONS / m) ** 0.5
    return means


def neuron_means(
    inputs: Inputs,
    along: ndarray,
    across: ndarray,
    weights: tuple[ndarray, ndarray],
    activation: Activation,
) -> ndarray:
    """Returns an array (14, NODES) with means over neurons with these rows of W_in.

    The rows are the overlap of a key with itself, less its shared part; the shared
    part; the spread due to finitely many neurons, times their number; the third moment
    due to them, times the square of their number; the trace, which is the mean of
    act(u_v) E[act''(u_w)]; and F_jk for each of ORDERS.

    `along` broadcasts to (NODES, A, 1), and `across` to (NODES, A, C). The `weights` of
    their components are (A,) and (C,).
    """
    trigger, tilt, token = inputs
    x = [part[..., 0] * weights[0] for part in hermite(along)]
    y = [part * weights[1] for part in hermite(across)]
    if not trigger.any():  # neurons that differ along it alone have equal inputs
        along = np.zeros((1, 1, 1))
    u = (trigger + tilt) * along + token * across
    v, _ = activation.value_and_slope(u, np, erf)
    values, table = other_tokens(activation)
    shared_input = (trigger * along)[..., 0]
    *e, variance, third = (np.interp(shared_input, values, row) for row in table)
    # v times He_k(across), averaged over the components across
    by_order = [np.einsum("nac,nac->na", v, part) for part in y]
    first, second, cube = by_order[0], (v * v) @ weights[1], (v * v * v) @ weights[1]
    own, shared = second - first * e[0], first * e[0]
    terms = [own, shared, second * variance, cube * third, first * e[2]]
    pairs = [(term, x[0]) for term in terms]
    pairs += [(by_order[k] * e[j + k], x[j]) for j, k in ORDERS]
    return np.stack([np.einsum("na,na->n", *pair) for pair in pairs])


@cache
def drawn_neurons() -> ndarray:
    """Returns an array (2, NODES, NEURONS): the components of rows of W_in along
    z_trig, and along the rest of a key.

    The components of each neuron form a Latin hypercube over the nodes.
    """
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.tile(np.arange(NODES)[:, None], 2 * NEURONS), axis=0)
    normals = ndtri((strata + rng.random(strata.shape)) / NODES)
    return normals.reshape(NODES, 2, NEURONS).swapaxes(0, 1)


@cache
def other_tokens(activation: Activation) -> tuple[ndarray, ndarray]:
    """Returns an array of values y, and a table (6, values) of moments of the
    activation act(y + g) for other tokens.

    The moments are E He_k(g) act(y + g) for k = 0 to 3, and the second and third
    central moments of act(y + g), with g ~ N(0, 1).
    """
    g, weight = normal_quadrature(60)
    values = np.linspace(-12, 12, 4801)
    act, _ = activation.value_and_slope(values[:, None] + g, np, erf)
    e = [act @ (weight * polynomial) for polynomial in hermite(g)]
    deviation = act - e[0][:, None]
    return values, np.stack([*e, deviation**2 @ weight, deviation**3 @ weight])


def hermite(g: ndarray) -> tuple[ndarray, ...]:
    """Returns He_0 to He_3."""
    return np.ones_like(g), g, g * g - 1, g * (g * g - 3)
