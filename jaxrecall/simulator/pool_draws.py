"""What is drawn of a point with a pool, as counts: pairs, tokens of the pool, test
sequences.

n draws that fall evenly on cells are made one by one while they are few, or few for
each cell. Beyond, their counts are had from standard normals g, by the expansion of
Cornish and Fisher: mean, variance and skewness of a Poisson count, the sum held to n,

    count = mean + x - (mean of x over the cells),     x = sqrt(mean) g + (g^2 - 1) / 6,
        mean = n / cells

`shares_of_draws` has the counts of cells that are not equally likely, and those of
samples at L = 1, which are their informative tokens.

`in_the_limit` in `model/point.py` says where. A batch of samples has its pool and its
pairs from its own key; the informative token of a sample is that of the same sample
without a pool.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import jax.numpy as jnp
from jax import Array, lax

from ..model import keys
from ..model.point import BLOCK, MIN_MEAN
from .loops import (
    add_tokens,
    gather,
    masked,
    over_samples,
    repeat,
    scatter_add,
    token_counts,
)
from .world import Pools, World, batch_of_step, f32, i32, token_shares


def with_pools(world: World) -> World:
    """The world with the pool and the pairs of every batch that it has."""
    V, K = world.shape.V, world.shape.pool

    def batch(step: Array, pools: Pools) -> Pools:
        key = batch_of_step(world, step)
        return Pools(
            pools.noise.at[step].set(noise_counts(world, key)),
            pools.deviations.at[step].set(deviations(world, key)),
        )

    nothing = Pools(jnp.zeros((3, K, V), f32), jnp.zeros((3, V, K), f32))
    pools = repeat(
        world, 0, 1 + 2 * world.run.fresh_batches.astype(i32), batch, nothing
    )
    return replace(world, pools=pools)


def pool_of_step(world: World, step: int) -> tuple[Array, Array]:
    """Token counts of the pool (K, V) and deviations E of the pairs (V, K) of a
    gradient step.

    Steps are 0, 1 or 2.
    """
    assert world.pools
    which = step * world.run.fresh_batches.astype(i32)
    return world.pools.noise[which], world.pools.deviations[which]


def mean_weight(world: World) -> Array:
    """1 / (V K), the mean part of the samples that is a certain pair."""
    return 1 / (world.run.V.astype(f32) * f32(world.shape.pool))


def weights_of(world: World, E: Array) -> Array:
    """(V, K): the part of the samples that is each pair, from its deviation E."""
    return masked(world.no_label == 0, mean_weight(world) + E)


def noise_counts(world: World, key: Array) -> Array:
    """(K, V) float32: how often each token occurs in each sequence of the pool."""
    run, K = world.run, world.shape.pool
    blocks = keys.blocks(keys.further(key, keys.POOL), 0, -(-K // BLOCK))

    def gaussian() -> Array:
        return gaussian_counts(
            world,
            keys.normals(
                keys.rows(keys.further(key, keys.POOL_COUNTS), K), world.shape.V
            ),
        )

    return lax.cond(
        run.drawn_noise < 0,
        gaussian,
        lambda: counted(world, blocks, K, run.drawn_noise),
    )


def deviations(world: World, key: Array) -> Array:
    """(V, K) float32: the part of the samples that is each pair, less 1 / (V K).

    A pair is an informative token x and a noise sequence k.
    """
    run, shape, real = world.run, world.shape, (world.no_label == 0)[:, None]
    V, K, mean = shape.V, shape.pool, mean_weight(world)

    def gaussian() -> Array:
        g = keys.normals(keys.rows(keys.further(key, keys.PAIR_COUNTS), V), K)
        if run.token_laws:
            return (
                shares_of_draws(
                    g, token_shares(world)[0][:, None] / K, run.samples, (0, 1)
                )
                - mean
            )
        x = jnp.where(real, fluctuation(g, jnp.sqrt(run.samples * mean)), f32(0))
        return (x - jnp.sum(x) * mean) * jnp.sqrt(mean) * lax.rsqrt(run.samples)

    def one_by_one() -> Array:
        def tile(blocks: keys.Blocks, is_sample: Array, A: Array) -> Array:
            x, k = drawn_pairs(world, blocks)
            return scatter_add(A, x * K + k, is_sample.astype(i32))

        A = over_samples(world, key, run.drawn_samples, tile, jnp.zeros(V * K, i32))
        return A.astype(f32).reshape(V, K) / run.samples - mean

    return jnp.where(
        real, lax.cond(run.drawn_samples < 0, gaussian, one_by_one), f32(0)
    )


def drawn_pairs(world: World, blocks: keys.Blocks) -> tuple[Array, Array]:
    """Informative tokens and rows of the pool of the samples of `blocks`, one by
    one.
    """
    return world.tokens(blocks, 0), keys.below(keys.words(blocks, 1), world.shape.pool)


def cumulated_pairs(world: World) -> tuple[Array, Array]:
    """What `pairs` draws by where counts are Gaussian: cumulated shares of the samples.

    Those of the last step are cumulated over tokens (V,), and for each token over the
    sequences of the pool (V, K).
    """
    shares = jnp.maximum(weights_of(world, pool_of_step(world, 2)[1]), f32(0))

    def cumulated() -> tuple[Array, Array]:
        return jnp.cumsum(jnp.sum(shares, axis=1)), jnp.cumsum(shares, axis=1)

    return lax.cond(
        world.run.drawn_samples < 0, cumulated, lambda: (shares[:, 0], shares)
    )


def pairs(
    world: World, blocks: keys.Blocks, cumulated: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The samples of `blocks` of the last step, or as many drawn from their Gaussian
    counts.
    """

    def from_counts() -> tuple[Array, Array]:
        """A token by its share of the samples, then a sequence of the pool among its
        samples.
        """
        u = keys.words(blocks, jnp.arange(2, dtype=jnp.uint32)).astype(f32) * f32(
            2**-32
        )
        of_tokens, of_sequences = cumulated
        x = inverse(of_tokens[None], u[0])
        return x, inverse(gather(of_sequences, x), u[1])

    return lax.cond(
        world.run.drawn_samples < 0, from_counts, lambda: drawn_pairs(world, blocks)
    )


def inverse(cumulated: Array, u: Array) -> Array:
    """(n,) int32: the places where cumulated weights pass the parts u (n,) of their
    sum.

    Weights are (n or 1, places). A place has positive weight.
    """
    part = jnp.minimum(u, f32(1 - 2**-23))[:, None] * cumulated[:, -1:]
    return jnp.sum((cumulated <= part).astype(i32), axis=1, dtype=i32)


def test_counts(world: World, blocks: keys.Blocks) -> Array:
    """(512, V) float32: how often each token occurs as noise in the test sequences of a
    block.
    """

    def gaussian() -> Array:
        row = blocks.index[0] * jnp.uint32(BLOCK) + jnp.arange(BLOCK, dtype=jnp.uint32)
        key = keys.fold(keys.further(blocks.key, keys.POOL_COUNTS), row)
        return gaussian_counts(world, keys.normals(key, world.shape.V))

    return lax.cond(
        world.run.drawn_test < 0,
        gaussian,
        lambda: counted(world, blocks, BLOCK, world.run.drawn_test),
    )


def counted(world: World, blocks: keys.Blocks, n: int, length: Array) -> Array:
    """(n, V) float32: how often each token occurs at positions 1 to `length`.

    They are those of the first n sequences of `blocks`.
    """
    V = world.shape.V
    row = jnp.arange(n, dtype=i32) * V
    counts = add_tokens(
        world,
        blocks,
        1,
        length + 1,
        lambda x: (row + x[:n], jnp.ones(n, i32)),
        jnp.zeros(n * V, i32),
    )
    return counts.astype(f32).reshape(n, V)


def gaussian_counts(world: World, normals: Array) -> Array:
    """(n, V) float32: counts of L - 1 tokens in the limit of many, from normals (n, V).

    None is negative.
    """
    real, V, n = (
        (world.no_label == 0)[None],
        world.run.V.astype(f32),
        (world.run.L - 1).astype(f32),
    )
    if world.run.token_laws:
        return n * shares_of_draws(normals, token_shares(world)[1][None], n, (1,))
    mean = n / V
    x = jnp.where(real, fluctuation(normals, jnp.sqrt(mean)), f32(0))
    counts = mean + jnp.sqrt(mean) * (x - jnp.sum(x, axis=1, keepdims=True) / V)
    return jnp.where(real, jnp.maximum(counts, f32(0)), f32(0))


def fluctuation(g: Array, root_mean: Array) -> Array:
    """x / sqrt(mean) of counts, from standard normals g and sqrt(mean)."""
    return g + (g * g - 1) / (6 * root_mean)


def shares_of_draws(g: Array, p: Array, n: Array, axes: tuple[int, ...]) -> Array:
    """The parts of n draws that fall on each cell, of probabilities p, from normals g.

    Each row of g along `axes` is one table of counts.

    A count of mean n p from MIN_MEAN on is that of the limit, and the smaller ones are
    quantiles of their exact law; the larger ones are scaled so that all add up to n. So
    the smaller ones, which are a small part of all, differ independently.
    """
    mean = n * p
    few = mean < MIN_MEAN
    small = lax.cond(
        jnp.any(few & (p > 0)),
        lambda: jnp.where(few, poisson_quantile(g, mean) / n, f32(0)),
        lambda: jnp.zeros_like(g),
    )
    large = jnp.where(
        few,
        f32(0),
        jnp.maximum(p + jnp.sqrt(p / n) * fluctuation(g, jnp.sqrt(mean)), f32(0)),
    )

    def total(part: Array) -> Array:
        return jnp.sum(jnp.sum(part, axes[-1], keepdims=True), axes[0], keepdims=True)

    return small + large * ((1 - total(small)) / total(large))


MOST = 32
"""A count of mean up to MIN_MEAN is below it, but for a chance of 2e-10, less than the
normals resolve.
"""


def poisson_quantile(g: Array, mean: Array) -> Array:
    """The Poisson count whose place in its law is that of a standard normal g in its
    own.

    Its mean is up to MIN_MEAN. That of n draws on a cell of probability p is another
    one with a chance of at most p.
    """
    mean = jnp.minimum(mean, f32(MIN_MEAN))
    chances = jnp.stack(
        list(
            accumulate(
                range(1, MOST), lambda p, k: p * mean / k, initial=jnp.exp(-mean)
            )
        )
    )
    at_least = jnp.cumsum(chances[::-1], axis=0)[::-1]  # the smallest first
    above = lax.erfc(g * f32(0.5**0.5)) / 2
    return sum(
        ((above < at_least[k]).astype(f32) for k in range(1, MOST)),
        start=jnp.zeros_like(g),
    )


def token_parts(world: World, key: Array) -> Array:
    """(V,): the part of the N samples of a stream, of one token each, that is each
    token.
    """

    def counted() -> Array:
        return (
            token_counts(world, key, world.run.drawn_samples).astype(f32)
            / world.run.samples
        )

    return lax.cond(
        world.run.drawn_samples < 0, lambda: parts_of_the_limit(world, key), counted
    )


def parts_of_the_limit(world: World, key: Array) -> Array:
    """The same from Gaussian counts."""
    g = keys.normals(keys.further(key, keys.PAIR_COUNTS)[None], world.shape.V)[0]
    return shares_of_draws(g, token_shares(world)[0], world.run.samples, (0,))


def drawn_tokens(world: World, key: Array, blocks: keys.Addresses) -> Array:
    """The tokens at addresses in a stream of samples of one token each.

    They are those that were drawn, or as many drawn from their Gaussian counts.
    """

    def from_counts() -> Array:
        return inverse(
            jnp.cumsum(parts_of_the_limit(world, key))[None],
            keys.words(blocks, 0).astype(f32) * f32(2**-32),
        )

    return lax.cond(
        world.run.drawn_samples < 0, from_counts, lambda: world.tokens(blocks, 0)
    )
