"""The mean cross-entropy of a model (nats): of sequences, streamed, and of all pairs of a pool, weighted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from ..model.point import BLOCK
from . import pairs
from .attention import scores_under
from .features import features, is_label, label_of
from .gradient import mapped, output_maps
from .loops import repeat, whole
from .pool_draws import pool_of_step, weights_of
from .sequences import TEST, TRAIN, reader
from .world import World, batch_of_step, f32, i32


def train_and_test(world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
    """The loss of the N samples, and that of the test sequences."""
    run = world.run
    read = reader(world, scores_under(world, w), jnp.bool_(False))

    def mean_loss(which: Array, key: Array, n: Array) -> Array:
        def block(c: Array, total: Array) -> Array:
            v, seen = read.attended(which, keys.blocks(key, c, 1))
            losses = cross_entropy(world, V_mat, features(world, seen.h)[0], label_of(world, v))
            real = c * BLOCK + jnp.arange(BLOCK, dtype=i32) < n
            return total + jnp.sum(jnp.where(real, losses, f32(0)))

        return repeat(world, 0, whole(n, BLOCK), block, f32(0)) / n.astype(f32)

    test_key, train_key = keys.stream(run.streams, "test"), batch_of_step(world, 2)
    if world.shape.pool:
        return over_pairs(world, V_mat, w), mean_loss(i32(TEST), test_key, run.n_test)
    sets = jnp.array([TRAIN, TEST], i32), jnp.stack([train_key, test_key]), jnp.stack([run.N, run.n_test])
    train, test = lax.map(lambda of: mean_loss(*of), sets)
    return train, test


def over_pairs(world: World, V_mat: Array, w: Array) -> Array:
    """The loss of all pairs of a token and a noise sequence of the pool, weighted."""
    counts, E = pool_of_step(world, 0)
    seen = pairs.attended(world, counts, scores_under(world, w))

    def token(total: Array, x: pairs.Token) -> tuple[Array, None]:
        phi, _ = pairs.features_of(world, x.u)
        return total + x.weight @ cross_entropy(world, V_mat, phi, jnp.full(len(phi), x.label)), None

    return pairs.over_tokens(world, seen, weights_of(world, E), token, f32(0))[0]


def cross_entropy(world: World, V_mat: Array, phi: Array, y: Array) -> Array:
    """(n,): -log p_y of features phi (n, p) with labels y (n,)."""
    logits = mapped(output_maps(world, V_mat), phi)
    own = jnp.sum(jnp.where(is_label(world, y), logits, f32(0)), axis=1)
    return jax.nn.logsumexp(logits + world.no_label[None], axis=1) - own
