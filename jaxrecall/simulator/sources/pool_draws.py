"""Draws three kinds of counts for a point with a pool: pairs, tokens in noise
sequences, and tokens in test noise.

The pool and the pairs of each batch of samples are drawn with the key of the batch. The
informative token of a sample is the same as without a pool. If there are many draws,
the module `gaussian_counts` computes their counts.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from ...model import keys
from ...model.point import BLOCK
from ..arrays import f32, gather, i32, masked, scatter_add
from ..loops import add_tokens, over_samples, repeat
from ..world import Pools, World, batch_of_step, token_shares
from .gaussian_counts import first_above, fluctuation, shares_of_draws


def with_pools(world: World) -> World:
    """Returns the world with the pool and the pairs of each batch."""
    V, K = world.shape.V, world.shape.pool

    def batch(step: Array, pools: Pools) -> Pools:
        key = batch_of_step(world, step)
        noise = pools.noise.at[step].set(noise_counts(world, key))
        return Pools(noise, pools.deviations.at[step].set(deviations(world, key)))

    nothing = Pools(jnp.zeros((3, K, V), f32), jnp.zeros((3, V, K), f32))
    n_batches = 1 + 2 * world.run.fresh_batches.astype(i32)
    return replace(world, pools=repeat(world, n_batches, batch, nothing))


def pool_of_step(world: World, step: int) -> tuple[Array, Array]:
    """Returns the token counts (K, V) and the pair deviations E (V, K) of the pool in
    gradient step 0, 1 or 2.
    """
    assert world.pools
    which = step * world.run.fresh_batches.astype(i32)
    return world.pools.noise[which], world.pools.deviations[which]


def mean_weight(world: World) -> Array:
    """The number 1 / (V K), which is the mean fraction of samples per pair."""
    return 1 / (world.run.V.astype(f32) * f32(world.shape.pool))


def pair_weights(world: World, E: Array) -> Array:
    """The fraction of samples that equal each pair, as an array (V, K), from the
    deviations E.
    """
    return masked(world.no_label == 0, mean_weight(world) + E)


def noise_counts(world: World, key: Array) -> Array:
    """The number of times that each token occurs in each sequence of the pool, as a
    float32 array (K, V).
    """
    run, K = world.run, world.shape.pool
    blocks = keys.blocks(keys.further(key, keys.POOL), 0, -(-K // BLOCK))

    def gaussian() -> Array:
        rows = keys.rows(keys.further(key, keys.POOL_COUNTS), K)
        return noise_in_the_limit(world, keys.normals(rows, world.shape.V))

    return run.drawn_noise.choose(
        gaussian, lambda: counted(world, blocks, K, run.drawn_noise.n)
    )


def deviations(world: World, key: Array) -> Array:
    """The fraction of samples that equal each pair, minus 1 / (V K), as a float32 array
    (V, K).

    A pair is an informative token x and a noise sequence k.
    """
    run, shape, real = world.run, world.shape, (world.no_label == 0)[:, None]
    V, K, mean = shape.V, shape.pool, mean_weight(world)

    def gaussian() -> Array:
        g = keys.normals(keys.rows(keys.further(key, keys.PAIR_COUNTS), V), K)
        if run.token_laws:
            chances = token_shares(world)[0][:, None] / K
            return shares_of_draws(g, chances, run.samples, (0, 1)) - mean
        x = jnp.where(real, fluctuation(g, jnp.sqrt(run.samples * mean)), f32(0))
        return (x - jnp.sum(x) * mean) * jnp.sqrt(mean) * lax.rsqrt(run.samples)

    def one_by_one() -> Array:
        def tile(blocks: keys.Blocks, is_sample: Array, A: Array) -> Array:
            x, k = drawn_pairs(world, blocks)
            return scatter_add(A, x * K + k, is_sample.astype(i32))

        n = run.drawn_samples.n
        A = over_samples(world, key, n, tile, jnp.zeros(V * K, i32))
        return A.astype(f32).reshape(V, K) / run.samples - mean

    return jnp.where(real, run.drawn_samples.choose(gaussian, one_by_one), f32(0))


def drawn_pairs(world: World, blocks: keys.Blocks) -> tuple[Array, Array]:
    """For the samples of `blocks`, returns the informative tokens and the indices of
    their noise sequences in the pool.
    """
    return world.tokens(blocks, 0), keys.below(keys.words(blocks, 1), world.shape.pool)


def cumulated_pairs(world: World) -> tuple[Array, Array]:
    """Cumulative fractions of samples, from which `last_pairs` draws if counts are
    Gaussian.

    The fractions are those of the last step. The first array (V,) is cumulative over
    tokens. The second array (V, K) is cumulative over the sequences of the pool, for
    each token.
    """
    shares = jnp.maximum(pair_weights(world, pool_of_step(world, 2)[1]), f32(0))

    return world.run.drawn_samples.choose(
        lambda: (jnp.cumsum(jnp.sum(shares, axis=1)), jnp.cumsum(shares, axis=1)),
        lambda: (shares[:, 0], shares),  # not used
    )


def last_pairs(
    world: World, blocks: keys.Blocks, cumulated: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Returns the samples of `blocks` in the last step, as tokens and indices of
    sequences of the pool.

    If counts are Gaussian, new samples are drawn with probabilities proportional to the
    counts. First a token is drawn, and then a sequence of the pool given the token.
    """

    def from_counts() -> tuple[Array, Array]:
        words = keys.words(blocks, jnp.arange(2, dtype=jnp.uint32))
        u = words.astype(f32) * f32(2**-32)
        of_tokens, of_sequences = cumulated
        x = first_above(of_tokens[None], u[0])
        return x, first_above(gather(of_sequences, x), u[1])

    return world.run.drawn_samples.choose(
        from_counts, lambda: drawn_pairs(world, blocks)
    )


def test_counts(world: World, blocks: keys.Blocks) -> Array:
    """The number of times that each noise token occurs in the test sequences of
    successive blocks, as a float32 array (n, V).
    """
    n = len(blocks.index) * BLOCK

    def gaussian() -> Array:
        row = blocks.index[0] * jnp.uint32(BLOCK) + jnp.arange(n, dtype=jnp.uint32)
        key = keys.fold(keys.further(blocks.key, keys.POOL_COUNTS), row)
        return noise_in_the_limit(world, keys.normals(key, world.shape.V))

    drawn = world.run.drawn_test
    return drawn.choose(gaussian, lambda: counted(world, blocks, n, drawn.n))


def counted(world: World, blocks: keys.Blocks, n: int, length: Array) -> Array:
    """The number of times that each token occurs at positions 1 to `length`, as a
    float32 array (n, V).

    Only the first n sequences of `blocks` are counted.
    """
    V = world.shape.V
    row = jnp.arange(n, dtype=i32) * V

    one, zero = jnp.ones(n, i32), jnp.zeros(n * V, i32)
    counts = add_tokens(
        world, blocks, 1, length + 1, lambda x: (row + x[:n], one), zero
    )
    return counts.astype(f32).reshape(n, V)


def noise_in_the_limit(world: World, normals: Array) -> Array:
    """The counts (n, V) of L - 1 tokens in the Gaussian limit, from normals (n, V).

    No count is negative.
    """
    real = (world.no_label == 0)[None]
    V, n = world.run.V.astype(f32), (world.run.L - 1).astype(f32)
    if world.run.token_laws:
        return n * shares_of_draws(normals, token_shares(world)[1][None], n, (1,))
    mean = n / V
    x = jnp.where(real, fluctuation(normals, jnp.sqrt(mean)), f32(0))
    counts = mean + jnp.sqrt(mean) * (x - jnp.sum(x, axis=1, keepdims=True) / V)
    return jnp.where(real, jnp.maximum(counts, f32(0)), f32(0))
