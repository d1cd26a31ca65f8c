"""The model, written plainly: one layer, one head, one sequence, and its loss.

    k_j = z_in(x_j) + 1{j = ell} z_trig,   v_j = k_j or z_in(x_j)
    a = softmax_j(k_j^T W_KQ z_eos),       h = sum_j a_j v_j
    f = V_mat h   or   f = V_mat act(W_in h) / sqrt(m)
    logits = Z_out f,                      loss = mean cross-entropy (nats)

Sums over the tokens of a sequence are taken over the vocabulary, so that no key or
value is formed: a batch takes memory for N (V + L) numbers, not for N L d. Faster code
is tested against this model; `functional.py` and `reference/` descend its loss. JAX
transforms it like any function.

    >>> import jax, jax.numpy as jnp
    >>> from jaxrecall import Point, model, realize
    >>> point = Point(V=64, N=1024, d=32, L=8)
    >>> draws = realize(point, seed=0)
    >>> V_mat, W_KQ = jnp.zeros((point.d, point.p)), jnp.zeros((point.d, point.d))
    >>> recall = model.Recall(
    ...     V_mat, W_KQ, draws.embeddings, point.activation, point.trigger_in_value
    ... )
    >>> model.loss(
    ...     recall, draws.train_tokens, draws.train_positions, draws.train_labels
    ... )  # ln 64
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .activations import Activation
from .laws.law import find_law
from .task import Embeddings


class Recall(eqx.Module):
    """The one-layer transformer.

    The three steps train V_mat (d, p) and W_KQ (d, d), with p = d or m.
    """

    V_mat: Array
    W_KQ: Array
    embeddings: Embeddings
    activation: Activation = eqx.field(
        static=True, converter=partial(find_law, Activation)
    )
    trigger_in_value: bool = eqx.field(static=True)

    def __call__(self, tokens: Array, position: Array) -> Array:
        """Logits (V,) of one sequence: tokens (L,) with the informative one at
        `position`.
        """
        e, a = self.embeddings, self.attention(tokens, position)
        by_token = jnp.zeros(e.Z_in.shape[0], a.dtype).at[tokens].add(a)
        phi = h = by_token @ e.Z_in
        if self.trigger_in_value:
            phi = h = h + a[position] * e.z_trig
        if e.W_in is not None:
            erf = jax.scipy.special.erf
            value, _ = self.activation.value_and_slope(e.W_in @ h, jnp, erf)
            phi = value * e.W_in.shape[0] ** -0.5
        return e.Z_out @ (self.V_mat @ phi)

    def attention(self, tokens: Array, position: Array) -> Array:
        """Softmax weights (L,) of the tokens of one sequence."""
        e, w = self.embeddings, self.W_KQ @ self.embeddings.z_eos
        is_ell = jnp.arange(tokens.shape[0], dtype=position.dtype) == position
        return jax.nn.softmax((e.Z_in @ w)[tokens] + jnp.where(is_ell, e.z_trig @ w, 0))


def loss(model: Recall, tokens: Array, positions: Array, labels: Array) -> Array:
    """Mean cross-entropy (nats) over samples: tokens (N, L), positions (N,), labels
    (N,).
    """
    log_p = jax.nn.log_softmax(jax.vmap(model)(tokens, positions))
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))
