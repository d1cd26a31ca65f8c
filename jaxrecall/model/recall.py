"""The plain model of one sequence, with one layer and one head, and its loss.

    k_j = z_in(x_j) + 1{j = ell} z_trig,   v_j = k_j or z_in(x_j)
    a = softmax_j(k_j^T W_KQ z_eos),       h = sum_j a_j v_j
    f = V_mat h   or   f = V_mat act(W_in h) / sqrt(m)
    logits = Z_out f,                      loss = mean cross-entropy (nats)

A sum over the tokens of a sequence is computed as a sum over the vocabulary, so no key
or value is formed. A batch therefore needs memory for N (V + L) numbers instead of N L
d. Tests compare faster code with this model. `functional.py` and `reference/` compute
gradients of its loss. JAX can transform the model like any function.

    >>> import jax, jax.numpy as jnp
    >>> from jaxrecall import Point, model, realize
    >>> point = Point(V=64, N=1024, d=32, L=8)
    >>> draws = realize(point, seed=0)
    >>> V_mat, W_KQ = jnp.zeros((point.d, point.p)), jnp.zeros((point.d, point.d))
    >>> recall = model.Recall(
    ...     V_mat, W_KQ, draws.embeddings, point.activation, point.trigger_in_value
    ... )
    >>> model.loss(recall, *draws.batches[0])  # ln 64
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from .activations import Activation
from .laws.law import find_law
from .task import Embeddings


def softmax_attention(recall: Recall, tokens: Array, position: Array) -> Array:
    """Returns the attention weights (L,) of one sequence: the softmax of the scores."""
    return jax.nn.softmax(recall.scores(tokens, position))


def plain_readout(recall: Recall, h: Array) -> Array:
    """Returns the logits (V,) for h (d,), the output of the attention.

    The logits are Z_out V_mat h, or with an MLP Z_out V_mat act(W_in h) / sqrt(m).
    """
    e, phi = recall.embeddings, h
    if e.W_in is not None:
        u = e.W_in @ h
        act, _ = recall.activation.value_and_slope(u, jnp, jax.scipy.special.erf)
        phi = act * e.W_in.shape[0] ** -0.5
    return e.Z_out @ (recall.V_mat @ phi)


Attend = Callable[["Recall", Array, Array], Array]
"""A pure function like `softmax_attention`. Its arguments are the model, the tokens
(L,) of a sequence, and the position () of the informative token. It returns the weights
(L,).
"""

Readout = Callable[["Recall", Array], Array]
"""A pure function like `plain_readout`. Its arguments are the model and h (d,). It
returns logits (V,).
"""


def traceable(fn: Any) -> Any:
    """Returns a function as a pytree: a module of equinox as it is, and any other
    function without leaves.
    """
    return fn if isinstance(fn, eqx.Module) else Partial(fn)


class Recall(eqx.Module):
    """The one-layer transformer.

    The three steps train V_mat (d, p) and W_KQ (d, d), with p = d or m.

    `attend` and `readout` may be replaced by another attention or readout. Both are JAX
    functions of a single sequence. They may close over other parameters, or be modules
    of equinox: such parameters are leaves of the model.
    """

    V_mat: Array
    W_KQ: Array
    embeddings: Embeddings
    activation: Activation = eqx.field(
        static=True, converter=partial(find_law, Activation)
    )
    trigger_in_value: bool = eqx.field(static=True)
    attend: Attend = eqx.field(converter=traceable, default=softmax_attention)
    readout: Readout = eqx.field(converter=traceable, default=plain_readout)

    def __call__(self, tokens: Array, position: Array) -> Array:
        """Returns the logits (V,) of one sequence of tokens (L,).

        The informative token is at `position`.
        """
        weights = self.attention(tokens, position)
        return self.readout(self, self.attended(weights, tokens, position))

    def attention(self, tokens: Array, position: Array) -> Array:
        """Returns the attention weights (L,) of one sequence."""
        return self.attend(self, tokens, position)

    def scores(self, tokens: Array, position: Array, w: Array | None = None) -> Array:
        """Returns the attention scores k_j^T w (L,) of one sequence.

        w = W_KQ z_eos unless another w (d,) is given.
        """
        e = self.embeddings
        if w is None:
            w = self.W_KQ @ e.z_eos
        is_ell = jnp.arange(tokens.shape[0], dtype=position.dtype) == position
        return (e.Z_in @ w)[tokens] + jnp.where(is_ell, e.z_trig @ w, 0)

    def attended(self, weights: Array, tokens: Array, position: Array) -> Array:
        """Returns h (d,), the sum of the values of one sequence with these weights
        (L,).
        """
        e = self.embeddings
        by_token = jnp.zeros(e.Z_in.shape[0], weights.dtype).at[tokens].add(weights)
        h = by_token @ e.Z_in
        if self.trigger_in_value:
            h = h + weights[position] * e.z_trig
        return h


def loss(model: Recall, tokens: Array, positions: Array, labels: Array) -> Array:
    """Returns the mean cross-entropy (nats) over samples.

    The samples are tokens (N, L), positions (N,) and labels (N,).
    """
    log_p = jax.nn.log_softmax(jax.vmap(model)(tokens, positions))
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))
