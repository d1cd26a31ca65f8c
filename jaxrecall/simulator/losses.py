"""The mean cross-entropy of a model (nats): of sequences, streamed, and of all pairs of a pool, weighted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from ..model.point import BLOCK
from . import pool
from .attention import Scores
from .pool_draws import of_step, weights_of
from .sequences import TEST, TRAIN, reader
from .steps import features
from .tiles import at, repeat, whole
from .world import World, batch_of_step, f32, i32


def of_samples(world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
    """Of the N samples, and of the test sequences."""
    run = world.run
    read = reader(world, scores_of(world, w), jnp.bool_(False))

    def of_set(which: Array, key: Array, n: Array) -> Array:
        def block(c: Array, total: Array) -> Array:
            v, seen = read.attended(which, keys.blocks(key, c, 1))
            losses = cross_entropy(world, V_mat, features(world, seen.h)[0], at(world.perm, v))
            real = c * BLOCK + jnp.arange(BLOCK, dtype=i32) < n
            return total + jnp.sum(jnp.where(real, losses, f32(0)))

        return repeat(world, 0, whole(n, BLOCK), block, f32(0)) / n.astype(f32)

    test_key, train_key = keys.stream(run.streams, "test"), batch_of_step(world, 2)
    if world.shape.pool:
        return of_pairs(world, V_mat, w), of_set(i32(TEST), test_key, run.n_test)
    sets = jnp.array([TRAIN, TEST], i32), jnp.stack([train_key, test_key]), jnp.stack([run.N, run.n_test])
    train, test = lax.map(lambda of: of_set(*of), sets)
    return train, test


def of_pairs(world: World, V_mat: Array, w: Array) -> Array:
    """Of all pairs of a token and a noise sequence of the pool; differentiable in V_mat, w and the embeddings."""
    counts, E = of_step(world, 0)
    seen = pool.attended(world, counts, scores_of(world, w))

    @jax.checkpoint
    def token(total: Array, x: pool.Token) -> tuple[Array, None]:
        phi, _ = pool.features_of(world, x.u)
        return total + x.weight @ cross_entropy(world, V_mat, phi, jnp.full(len(phi), x.label)), None

    return pool.over_tokens(world, seen, weights_of(world, E), token, f32(0))[0]


def scores_of(world: World, w: Array) -> Scores:
    """Attention logits under w (nats)."""
    return Scores(world.e.Z_in @ w, world.e.z_trig @ w)


def cross_entropy(world: World, V_mat: Array, phi: Array, y: Array) -> Array:
    """(n,): -log p_y of features phi (n, p) with labels y (n,)."""
    Z_out = world.e.Z_out
    logits = phi @ (Z_out @ V_mat).T if world.e.W_in is None else (phi @ V_mat.T) @ Z_out.T
    own = jnp.sum(jnp.where(y[:, None] == jnp.arange(world.shape.V, dtype=i32)[None], logits, f32(0)), axis=1)
    return jax.nn.logsumexp(logits + world.no_label[None], axis=1) - own
