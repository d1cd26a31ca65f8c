"""Represents samples by co-occurrence counts of tokens, without an MLP and with even
predictions.

The formulas of the sums are ours. The module `error_bounds` computes bounds on the
error of the predictions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
from jax import Array

from ...model.keys import Blocks
from ..arrays import (
    f32,
    gather,
    i32,
    scatter_add,
    transposed_product,
    with_padding_row,
)
from ..forward import Scores
from ..gradient import Gradient, State
from ..loops import add_tokens, over_positions, over_samples, repeat, sum_tokens
from ..world import (
    StepCounts,
    World,
    batch_of_step,
    centred,
    in_value,
    token_shares,
    values,
    zeros_dp,
)
from .stream import Stream


class Counts(Stream):
    """The source that uses counts instead of samples in the recipe.

    Metrics and further steps read the samples as they are drawn.
    """

    def prepare(self, world: World) -> World:
        """Returns the world with the gradient of step 1 and the co-occurrences of step
        2.

        The gradient of step 1 is computed first, so only one table of co-occurrences is
        stored at a time.
        """

        def batch(k: Array, known: StepCounts) -> StepCounts:
            C = co_occurrences(world, batch_of_step(world, k))
            return StepCounts(jnp.where(k == 0, step1(world, C), known.step1), C)

        V = world.shape.V
        nothing = StepCounts(zeros_dp(world), jnp.zeros((V, V), i32))
        n_batches = 1 + world.run.fresh_batches.astype(i32)
        return replace(world, counts=repeat(world, n_batches, batch, nothing))

    def gradient(self, world: World, state: State, name: str, step: int) -> Gradient:
        if state.scores is not None:
            return step3(world, state.scores)
        assert world.counts is not None
        if name == "V_mat":
            return Gradient(world.counts.step1)
        A = centred(world, world.e.Z_out @ state.V_mat)
        return step2(world, A, world.counts.step2)


SOURCE = Counts()


def co_occurrences(world: World, key: Array) -> Array:
    """The number of times that token u occurs in samples with the informative token x,
    as an int32 array (V, V) with index [x, u].

    Occurrences of the informative token itself are included.
    """
    run, V = world.run, world.shape.V

    def tile(blocks: Blocks, real: Array, C: Array) -> Array:
        row = world.tokens(blocks, 0) * V

        return add_tokens(
            world, blocks, 0, run.L, lambda x: (row + x, real.astype(i32)), C
        )

    return over_samples(world, key, run.N, tile, jnp.zeros(V * V, i32)).reshape(V, V)


def informative(world: World, C: Array) -> Array:
    """The number of samples with each informative token, computed from co-occurrences,
    as a float32 array (V,).
    """
    return jnp.sum(C, axis=1, dtype=i32).astype(f32) / world.run.L.astype(f32)


def step1(world: World, C: Array) -> Array:
    """The gradient by V_mat under uniform attention.

        G1 = 1/(N L) sum_x zc(pi x) (sum_u C[x, u] z_in(u) + n_x z_trig)^T

    Here zc is z_out minus the mean row of Z_out. The result is exact. Only the order of
    summation differs from a sum over samples.
    """
    run, e = world.run, world.e
    table = gather(centred(world, e.Z_out), world.perm)
    triggers = in_value(world) * informative(world, C)
    sums = C.astype(f32) @ e.Z_in + triggers[:, None] * e.z_trig[None]
    G1 = transposed_product(table, sums) / run.N.astype(f32) / run.L.astype(f32)
    return -G1


def step2(world: World, A: Array, C: Array) -> Gradient:
    """The gradient by w under uniform attention. A (V, d) is the centred matrix Z_out
    V_mat.

    Let b be the negative slope of a sample's loss by h. This slope depends only on the
    informative token, so most sums over keys can be computed from counts. Only sum_i
    (b_i^T h_i) sum_j k_ij needs the samples. The sum of B[x, u] = b_x^T z_in(u) over
    the tokens of a sample is L b_i^T h_i. For each token of the sample, this number is
    added to the token's entry of S, the weights of keys. So every sample is read twice,
    with one number per token.
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
        start = t * gather(to_trigger, x0)

        along = sum_tokens(
            world, blocks, 0, run.L, lambda x: gather(table, x0 * V + x), start
        )
        along = jnp.where(real, along, f32(0))
        zero = jnp.zeros(V, f32)
        return S + add_tokens(world, blocks, 0, run.L, lambda x: (x, along), zero)

    L = run.L.astype(f32)
    S = over_samples(world, batch_of_step(world, 1), run.N, tile, jnp.zeros(V, f32)) / L
    # the key of every sample contains z_trig once, whether or not the values contain it
    of_trigger = trigger - jnp.sum(S) / L
    keys_sum = (weight - S) @ e.Z_in + of_trigger * e.z_trig
    return Gradient(-keys_sum / run.N.astype(f32) / L, mean_square_bound(world))


def mean_square_bound(world: World) -> Array:
    """An upper bound on the mean of |h|^2 over N samples under uniform attention. It is
    the expectation plus six standard deviations.

    The difference between h and its mean is a sum of L independent vectors. Each vector
    is a row of Z_in minus the mean row, divided by L. One row belongs to the
    informative token, and L - 1 rows to noise tokens. So |h|^2 is a constant plus a
    linear and a quadratic part in these vectors. Let cov be the sum of their covariance
    matrices. The variance of the linear part is 4 mean^T cov mean. The variance of the
    quadratic part is at most 2 |cov|^2 plus the sum of the mean fourth powers of the
    vectors' norms.
    """
    e, L, N = world.e, world.run.L.astype(f32), world.run.N.astype(f32)
    mean, cov = in_value(world) / L * e.z_trig, f32(0)
    spread = fourth = f32(0)  # the trace of cov, and the sum of the fourth powers
    informative, noise = token_shares(world)
    laws = [(informative, 1 / L), (noise, 1 - 1 / L)]
    if noise is informative:
        laws = [(informative, f32(1))]
    for p, times in laws:
        mean_row = p @ e.Z_in
        rows = e.Z_in - mean_row[None]
        mean = mean + times * mean_row
        cov = cov + times / L * transposed_product(rows, p[:, None] * rows)
        lengths2 = jnp.sum(rows * rows, axis=1)
        spread = spread + times / L * (p @ lengths2)
        fourth = fourth + times / L**3 * (p @ lengths2**2)
    # zero for orthogonal rows, where rounding may make it negative
    linear = jnp.maximum(4 * mean @ cov @ mean, f32(0))
    quadratic = 2 * jnp.sum(cov * cov) + fourth
    deviation = (jnp.sqrt(linear) + jnp.sqrt(quadratic)) / jnp.sqrt(N)
    return mean @ mean + spread + 6 * deviation


def step3(world: World, scores: Scores) -> Gradient:
    """The gradient by V_mat under learned attention, computed from the attention
    between tokens.

        G2 = 1/N sum_x zc(pi x) (sum_u W[x, u] z_in(u) + W_x z_trig)^T

    W[x, u] is the sum of the attention on tokens u over samples with the informative
    token x. W_x is the sum of the attention on the informative token itself. By
    convexity, |h|^2 is at most the mean of |v|^2 under the attention.
    """
    run, e, V = world.run, world.e, world.shape.V
    token = with_padding_row(scores.token, -math.inf)

    def tile(
        blocks: Blocks, real: Array, carry: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        W, on_x0 = carry
        x0 = world.tokens(blocks, 0)
        first = gather(token, x0) + scores.trigger

        def normaliser(
            x: Array, times: Array, sums: tuple[Array, Array]
        ) -> tuple[Array, Array]:
            top, total = sums
            score = gather(token, x)
            new = jnp.maximum(top, jnp.max(score, axis=0))
            weights = jnp.sum(times * jnp.exp(score - new[None]), axis=0)
            return new, total * jnp.exp(top - new) + weights

        start = first, jnp.ones_like(first)
        top, total = over_positions(world, blocks, normaliser, start)
        scale = jnp.where(real, 1 / total, f32(0))

        def attention(x: Array) -> tuple[Array, Array]:
            return x0 * V + x, jnp.exp(gather(token, x) - top) * scale

        W = add_tokens(world, blocks, 1, run.L, attention, W)
        return W, scatter_add(on_x0, x0, jnp.exp(first - top) * scale)

    zero = jnp.zeros(V * V, f32), jnp.zeros(V, f32)
    W, on_x0 = over_samples(world, batch_of_step(world, 2), run.N, tile, zero)
    W, N = W.reshape(V, V), run.N.astype(f32)
    v = values(world)
    sums = W @ e.Z_in + on_x0[:, None] * v
    of_noise = jnp.sum(W @ jnp.sum(e.Z_in * e.Z_in, axis=1))
    h2 = of_noise + on_x0 @ jnp.sum(v * v, axis=1)
    table = gather(centred(world, e.Z_out), world.perm)
    return Gradient(-transposed_product(table, sums) / N, h2 / N)
