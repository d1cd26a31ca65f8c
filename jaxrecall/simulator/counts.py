"""The sums of the recipe from counts of tokens, with uniform predictions and no MLP.

How often tokens meet is enough.

The sums are ours; the bounds on their error are those of `shortcut`.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array, lax

from ..model.keys import Blocks
from .forward import Scores, attention_gradient
from .loops import (
    add_tokens,
    gather,
    over_positions,
    over_samples,
    repeat,
    scatter_add,
    sum_tokens,
    transposed_product,
    with_padding_row,
)
from .world import (
    World,
    batch_of_step,
    centred,
    f32,
    i32,
    in_value,
    token_shares,
    values,
    zeros_dp,
)


def step1(world: World) -> tuple[Array, Array]:
    """G1, and the co-occurrences in the samples of step 2."""

    def batch(k: Array, known: tuple[Array, Array]) -> tuple[Array, Array]:
        C = co_occurrences(world, batch_of_step(world, k))
        return C, jnp.where(k == 0, step1_from_counts(world, C), known[1])

    nothing = jnp.zeros((world.shape.V, world.shape.V), i32), zeros_dp(world)
    C, G1 = repeat(world, 0, 1 + world.run.fresh_batches.astype(i32), batch, nothing)
    return G1, C


def co_occurrences(world: World, key: Array) -> Array:
    """(V, V) int32: how often token u occurs in samples whose informative token is x.

    The informative one is itself counted.
    """
    run, V = world.run, world.shape.V

    def tile(blocks: Blocks, real: Array, C: Array) -> Array:
        row = world.tokens(blocks, 0) * V
        return add_tokens(
            world, blocks, 0, run.L, lambda x: (row + x, real.astype(i32)), C
        )

    return over_samples(world, key, run.N, tile, jnp.zeros(V * V, i32)).reshape(V, V)


def informative(world: World, C: Array) -> Array:
    """(V,) float32: samples of each informative token, from the co-occurrences."""
    return lax.div(jnp.sum(C, axis=1, dtype=i32), world.run.L).astype(f32)


def step1_from_counts(world: World, C: Array) -> Array:
    """G1 = 1/(N L) sum_x (z_out(pi x) - mean z_out) (sum_u C[x, u] z_in(u) + n_x
    z_trig)^T.

    Exact, in another order.
    """
    run, e = world.run, world.e
    table = gather(centred(world, e.Z_out), world.perm)
    sums = (
        C.astype(f32) @ e.Z_in
        + (in_value(world) * informative(world, C))[:, None] * e.z_trig[None]
    )
    return transposed_product(table, sums) / run.N.astype(f32) / run.L.astype(f32)


def step2(world: World, A: Array, C: Array) -> tuple[Array, Array]:
    """w_hat and a bound on mean |h|^2, with A the centred answers, from counts of keys.

    b depends on the informative token alone, so sums over keys are sums over counts.

    What is left for the samples is sum_i (b_i^T h_i) sum_j k_ij: B[x, u] = b_x^T
    z_in(u) added up over a sample is L b_i^T h_i, and a token's key then enters as
    often as S says. A sample is read twice, a number at a time.
    """
    run, e, t, V = world.run, world.e, in_value(world), world.shape.V
    b = gather(A, world.perm)  # by informative token
    B, to_trigger = b @ e.Z_in.T, b @ e.z_trig
    n = informative(world, C)
    weight = jnp.sum(C.astype(f32) * B, axis=0) + t * n * to_trigger
    trigger = jnp.sum(n * (jnp.diagonal(B) + t * to_trigger))
    table = B.reshape(-1)

    def tile(blocks: Blocks, real: Array, S: Array) -> Array:
        x0 = world.tokens(blocks, 0)
        along = sum_tokens(
            world,
            blocks,
            0,
            run.L,
            lambda x: gather(table, x0 * V + x),
            t * gather(to_trigger, x0),
        )
        along = jnp.where(real, along, f32(0))
        return S + add_tokens(
            world, blocks, 0, run.L, lambda x: (x, along), jnp.zeros(V, f32)
        )

    S = over_samples(
        world, batch_of_step(world, 1), run.N, tile, jnp.zeros(V, f32)
    ) / run.L.astype(f32)
    # z_trig is in the key sum of every sample once, wherever it is in the values
    keys_sum = (weight - S) @ e.Z_in + (
        trigger - jnp.sum(S) / run.L.astype(f32)
    ) * e.z_trig
    return attention_gradient(world, keys_sum), mean_square_bound(world)


def mean_square_bound(world: World) -> Array:
    """What the mean of |h|^2 over N samples stays below under uniform attention.

    It is its expectation and six standard deviations.

    h is a constant and the sum of L independent rows of Z_in over L, the informative
    one and L - 1 of noise, each less its mean. So |h|^2 is a sum of a linear and a
    quadratic part: with cov the sum of the rows' covariances, they have variances of 4
    mean^T cov mean, and of 2 |cov|^2 and the sum of the rows' mean |row|^4 at most.
    """
    e, L, N = world.e, world.run.L.astype(f32), world.run.N.astype(f32)
    mean, cov, fourth = in_value(world) / L * e.z_trig, f32(0), f32(0)
    for p, times in zip(token_shares(world), (1 / L, 1 - 1 / L), strict=True):
        mean_row = p @ e.Z_in
        rows = e.Z_in - mean_row[None]
        mean = mean + times * mean_row
        cov = cov + times / L * transposed_product(rows, p[:, None] * rows)
        fourth = fourth + times / L**3 * (p @ jnp.sum(rows * rows, axis=1) ** 2)
    linear = jnp.maximum(
        4 * mean @ cov @ mean, f32(0)
    )  # with orthogonal rows it is zero, and rounding may be negative
    quadratic = 2 * jnp.sum(cov * cov) + fourth
    return (
        mean @ mean
        + jnp.trace(cov)
        + 6 * (jnp.sqrt(linear) + jnp.sqrt(quadratic)) / jnp.sqrt(N)
    )


def step3(world: World, scores: Scores, T: Array, n: Array) -> tuple[Array, Array]:
    """G2 from the attention that informative tokens pay to others, and a bound on mean
    |h|^2.

    G2 = 1/N sum_x (z_out(pi x) - mean z_out) (sum_u W[x, u] z_in(u) + W_x z_trig)^T.

    W[x, u] adds up the attention that samples with the informative token x pay to
    tokens u, W_x to the informative one. By convexity |h|^2 is at most the mean of
    |v|^2 under the attention. The first n samples alone are read.
    """
    run, e, V = world.run, world.e, world.shape.V
    token = with_padding_row(scores.token, -math.inf)

    def tile(
        blocks: Blocks, real: Array, carry: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        W, own = carry
        x0 = world.tokens(blocks, 0)
        first = gather(token, x0) + scores.trigger

        def normaliser(x: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            top, total = sums
            score = gather(token, x)
            new = jnp.maximum(top, jnp.max(score, axis=0))
            return new, total * jnp.exp(top - new) + jnp.sum(
                jnp.exp(score - new[None]), axis=0
            )

        top, total = over_positions(
            world, blocks, 1, normaliser, (first, jnp.ones_like(first))
        )
        scale = jnp.where(real, 1 / total, f32(0))
        W = add_tokens(
            world,
            blocks,
            1,
            run.L,
            lambda x: (x0 * V + x, jnp.exp(gather(token, x) - top) * scale),
            W,
        )
        return W, scatter_add(own, x0, jnp.exp(first - top) * scale)

    W, own = over_samples(
        world,
        batch_of_step(world, 2),
        n,
        tile,
        (jnp.zeros(V * V, f32), jnp.zeros(V, f32)),
    )
    W = W.reshape(V, V)
    sums = W @ e.Z_in + own[:, None] * values(world)
    h2 = jnp.sum(W @ jnp.sum(e.Z_in * e.Z_in, axis=1)) + own @ jnp.sum(
        values(world) ** 2, axis=1
    )
    return transposed_product(gather(T, world.perm), sums) / run.N.astype(
        f32
    ), h2 / run.N.astype(f32)
