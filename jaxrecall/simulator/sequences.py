"""The test and train sequences that metrics read, a block at a time: their informative tokens, and attention to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from . import pool_draws
from .attention import Attended, NoiseAttention, Scores, attend, attend_to_counts, shares_of
from .loops import gather
from .world import World, f32, values

TEST, TRAIN = range(2)


class Reader(NamedTuple):
    """Two functions of TEST or TRAIN, traced, and blocks of its stream."""

    informative: Callable[[Array, keys.Blocks], Array]
    """Informative tokens (n,) int32."""
    attended: Callable[[Array, keys.Blocks], tuple[Array, Attended]]
    """The same, with attention; of a single block."""


def reader(world: World, scores: Scores, unread: Array) -> Reader:
    """Of the sequences of a run under learned attention; where none is to be read, `unread` saves what prepares it."""
    if world.shape.pool:
        return _with_pool(world, scores, unread)

    def informative(which: Array, blocks: keys.Blocks) -> Array:
        return world.tokens(blocks, 0)

    def attended(which: Array, blocks: keys.Blocks) -> tuple[Array, Attended]:
        x0 = informative(which, blocks)
        return x0, attend(world, blocks, x0, scores)

    return Reader(informative, attended)


def _with_pool(world: World, scores: Scores, unread: Array) -> Reader:
    """Test sequences draw fresh noise; train sequences are pairs of the last step."""
    K, d = world.shape.pool, world.shape.d
    nothing = NoiseAttention(jnp.zeros((K, d), f32), jnp.zeros(K, f32), jnp.zeros(K, f32))
    counts, _ = pool_draws.pool_of_step(world, 2)
    cumulated = pool_draws.cumulated_pairs(world)
    pooled = lax.cond(unread, lambda: nothing, lambda: attend_to_counts(world, counts, scores))

    def read(x: Array, noise: NoiseAttention) -> tuple[Array, Attended]:
        own = gather(scores.token, x) + scores.trigger
        mass, others = shares_of(own, noise.total, noise.top)
        h = mass[:, None] * gather(values(world), x) + others[:, None] * noise.value
        return x, Attended(h, mass, own > noise.top)

    def informative(which: Array, blocks: keys.Blocks) -> Array:
        return lax.cond(which == TRAIN, lambda: pool_draws.pairs(world, blocks, cumulated)[0], lambda: world.tokens(blocks, 0))

    def attended(which: Array, blocks: keys.Blocks) -> tuple[Array, Attended]:
        def train() -> tuple[Array, Attended]:
            x, k = pool_draws.pairs(world, blocks, cumulated)
            return read(x, jax.tree.map(lambda a: gather(a, k), pooled))

        def test() -> tuple[Array, Attended]:
            fresh = attend_to_counts(world, pool_draws.test_counts(world, blocks), scores)
            return read(world.tokens(blocks, 0), fresh)

        return lax.cond(which == TRAIN, train, test)

    return Reader(informative, attended)
