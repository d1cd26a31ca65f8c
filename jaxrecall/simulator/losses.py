"""The loss of samples and of test sequences, which is the mean cross-entropy in
nats.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..model import keys
from .arrays import f32
from .forward import features, is_label
from .gradient import mapped, output_maps
from .loops import over_sequences, over_vocabulary
from .sources.source import Reader, labels
from .world import World, values


def mean_loss(
    world: World, read: Reader, V_mat: Array, which: Array, key: Array, n: Array
) -> Array:
    """The mean loss of the first n sequences of set `which` in the stream `key`."""

    def add(blocks: keys.Blocks, item: Array, total: Array) -> Array:
        x, seen = read.attended(which, blocks)
        y = labels(world, which, blocks, x)
        losses = cross_entropy(world, V_mat, features(world, seen.h)[0], y)
        return total + jnp.sum(jnp.where(item < n, losses, f32(0)))

    return over_sequences(world, key, n, add, f32(0)) / n.astype(f32)


def losses_of_tokens(world: World, V_mat: Array, weights: Array) -> Array:
    """The losses (n,) of weighted tokens, where each token has all the attention.

    Each row of the weights (n, V) gives one loss.
    """

    def rows(v: Array, real: Array, total: Array) -> Array:
        phi, _ = features(world, values(world).at[v].get(mode="clip"))
        losses = cross_entropy(world, V_mat, phi, world.perm.at[v].get(mode="clip"))
        weighted = weights.at[:, v].get(mode="clip") * losses[None]
        return total + jnp.sum(jnp.where(real, weighted, f32(0)), axis=1)

    return over_vocabulary(world, rows, jnp.zeros(len(weights), f32))


def cross_entropy(world: World, V_mat: Array, phi: Array, y: Array) -> Array:
    """Returns -log p_y as an array (n,), for features phi (n, p) and labels y (n,)."""
    logits = mapped(output_maps(world, V_mat), phi)
    of_label = jnp.sum(jnp.where(is_label(world, y), logits, f32(0)), axis=1)
    return jax.nn.logsumexp(logits + world.no_label[None], axis=1) - of_label
