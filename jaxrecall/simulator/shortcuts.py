"""A cheap form of the three steps, and a computed bound on how far it is from the full form.

    softmax   the logits of V1 are of order eta / (L V): predictions are uniform to rounding, so no sample needs V logits
    counts    attention-only: with uniform predictions a step needs how often tokens meet, not the samples themselves
    locked    attention that rests on the informative token to rounding makes a sample its token: step 3 is a sum over V

A run whose bounds turn out above TOLERANCE is run again in the full form, `stream.train`; the host decides, so that no
program holds both. The tests hold the one to the other on both sides of the guards. Forms and bounds are ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..science import task
from ..science.keys import Blocks
from .shape import is_counted
from .steps import (
    Learned,
    Scores,
    World,
    add_at,
    and_empty,
    at,
    attention_gradient,
    attention_scores,
    batch_of_step,
    centred,
    f32,
    features,
    i32,
    in_value,
    only,
    outer,
    over_positions,
    over_samples,
    over_tokens,
    over_vocabulary,
    step1,
    step2,
    step3,
    token_counts,
    values,
    zeros_dp,
)

TOLERANCE = (2.0**-20, 2.0**-19)
"""Largest relative error of the samples' residuals, averaged over samples, that uniform predictions may cause in steps 2 and
3. At the guards V1 and w then move by under 1e-6 of their norms, V2 by up to 1e-5 (open attention, V = 30), where rounding alone
moves them by 1e-7 to 8e-7 and a float32 run is held to 2e-5 of the float64 reference. No metric was seen to move."""

LOCKED_NATS = 17.0
"""Attention logits ahead, ln L on top: all other weights together are then under 2^-24 of the informative one's."""


class Guard(NamedTuple):
    """What the cheap form did, and bounds on the relative error of the residuals that it made of steps 2 and 3."""

    error2: Array  # float32
    error3: Array  # float32
    counted: Array  # bool: tokens were counted rather than samples read
    locked: Array  # bool: attention was

    @property
    def holds(self) -> bool:
        """Whether the run may stand for one in the full form; a bound that is not a number allows nothing."""
        return bool(self.error2 <= TOLERANCE[0] and self.error3 <= TOLERANCE[1])

    @property
    def form(self) -> str:
        """How predictions were had in steps 2 and 3, as the column `form` says it."""
        uniform = "counts" if self.counted else "uniform"
        return f"{uniform}+{'locked' if self.locked else uniform}"


def train(world: World) -> tuple[Learned, Guard]:
    """The three gradient steps with uniform predictions, and the bounds on what that leaves out."""
    counted = is_counted(world.shape.V, world.shape.m)
    G1, answers, w_hat, phi2_step2 = first_steps(world)
    A, T = centred(world, answers), centred(world, world.e.Z_out)
    locked = is_locked(world, w_hat)

    def open_attention() -> tuple[Array, Array]:
        scores = attention_scores(world, w_hat)
        n = jnp.where(locked, 0, world.run.N)  # an accelerator runs both branches for all runs of a batch
        return step3_from_counts(world, scores, T, n) if counted else step3(world, scores, lambda phi, y: at(T, y), n)

    G2, phi2_step3 = lax.cond(locked, lambda: (step3_locked(world, A, T), f32(0)), open_attention)
    errors = softmax_errors(world, G1, A, T, phi2_step2, phi2_step3)
    return Learned(G1, w_hat, G2), Guard(*errors, jnp.bool_(counted), locked)


def first_steps(world: World) -> tuple[Array, Array, Array, Array]:
    """Steps 1 and 2: G1, its answers Z_out G1 (V, p), w_hat, and mean |phi|^2 or a bound on it."""
    counted = is_counted(world.shape.V, world.shape.m)
    C, G1 = counts_and_step1(world) if counted else (None, step1(world))
    answers = world.e.Z_out @ G1
    A = centred(world, answers)
    w_hat, phi2 = step2(world, lambda phi, y: at(A, y)) if C is None else step2_from_counts(world, C, A)
    return G1, answers, w_hat, phi2


def softmax_errors(world: World, G1: Array, A: Array, T: Array, phi2_step2: Array, phi2_step3: Array) -> tuple[Array, Array]:
    """Bounds on |A^T (p - 1/V)| in step 2 and |T^T (p - 1/V)| in step 3, relative to the r.m.s. norm of a row of A, of T.

    With x the centred logits eta A phi, |x| <= B = eta max|A_u| |phi|: p = (1 + x) / V up to B^2 / V each, and the linear
    part moves A^T p by eta / V A^T A phi, T^T p by eta / V T^T A phi. A is Z_out G1, T is Z_out, both centred; means over
    samples, phi2 that of |phi|^2.
    """
    V, eta = world.run.V.astype(f32), world.run.eta
    gram, GG = T.T @ T, G1 @ G1.T
    op_AA = spectral_radius(GG @ gram)  # GG gram has the eigenvalues of A^T A, and gram GG gram is T^T A (T^T A)^T
    op_TA = jnp.sqrt(spectral_radius(gram @ GG @ gram))
    largest_A2 = jnp.max(jnp.sum(A * A, axis=1))

    def error(op: Array, table: Array, phi2: Array) -> Array:
        rms = jnp.sqrt(jnp.sum(table * table) / V)
        return eta / V * op * jnp.sqrt(phi2) / rms + 2 * eta**2 * largest_A2 * phi2

    return error(op_AA, A, phi2_step2), error(op_TA, T, phi2_step3)


def spectral_radius(M: Array) -> Array:
    """An upper bound, |M^16|_F^(1/16), on the largest absolute eigenvalue of M (n, n)."""
    scale = jnp.sqrt(jnp.sum(M * M))
    P = M / scale
    for _ in range(4):
        P = P @ P
    return scale * jnp.sum(P * P) ** f32(1 / 32)


def counts_and_step1(world: World) -> tuple[Array, Array]:
    """Co-occurrences in the samples of step 2, and G1, which is had from those of step 1."""

    def batch(k: Array, known: tuple[Array, Array]) -> tuple[Array, Array]:
        C = co_occurrences(world, batch_of_step(world, k))
        return C, jnp.where(k == 0, step1_from_counts(world, C), known[1])

    nothing = jnp.zeros((world.shape.V, world.shape.V), i32), zeros_dp(world)
    return lax.fori_loop(0, 1 + world.run.fresh_batches.astype(i32), batch, nothing)


def co_occurrences(world: World, key: Array) -> Array:
    """(V, V) int32: how often token u occurs in the samples of a stream whose informative token is x, itself counted."""
    run, V = world.run, world.shape.V

    def chunk(blocks: Blocks, real: Array, C: Array) -> Array:
        row = task.tokens(blocks, 0, run.V) * V
        return over_tokens(world, blocks, 0, lambda x, C: add_at(C, row + x, real.astype(i32)), C)

    return over_samples(world, key, run.N, chunk, jnp.zeros(V * V, i32)).reshape(V, V)


def informative(world: World, C: Array) -> Array:
    """(V,) float32: samples of each informative token, from the co-occurrences."""
    return (jnp.sum(C, axis=1, dtype=i32) // world.run.L).astype(f32)


def step1_from_counts(world: World, C: Array) -> Array:
    """G1 = 1/(N L) sum_x (z_out(pi x) - mean z_out) (sum_u C[x, u] z_in(u) + n_x z_trig)^T; exact, in another order."""
    run, e = world.run, world.e
    table = at(centred(world, e.Z_out), world.perm)
    sums = C.astype(f32) @ e.Z_in + (in_value(world) * informative(world, C))[:, None] * e.z_trig[None]
    return outer(table, sums) / run.N.astype(f32) / run.L.astype(f32)


def step2_from_counts(world: World, C: Array, A: Array) -> tuple[Array, Array]:
    """w_hat and a bound on mean |h|^2, with A the centred answers: b depends on the informative token alone, so sums over keys
    are sums over counts.

    What is left for the samples is sum_i (b_i^T h_i) sum_j k_ij: B[x, u] = b_x^T z_in(u) added up over a sample is L b_i^T h_i,
    and a token's key then enters as often as S says. A sample is read twice, a number at a time.
    """
    run, e, t, V = world.run, world.e, in_value(world), world.shape.V
    b = at(A, world.perm)  # by informative token
    B, to_trigger = b @ e.Z_in.T, b @ e.z_trig
    n = informative(world, C)
    weight = jnp.sum(C.astype(f32) * B, axis=0) + t * n * to_trigger
    trigger = jnp.sum(n * (jnp.diagonal(B) + t * to_trigger))
    table = B.reshape(-1)

    def chunk(blocks: Blocks, real: Array, S: Array) -> Array:
        x0 = task.tokens(blocks, 0, run.V)
        along = over_tokens(world, blocks, 0, lambda x, sums: sums + at(table, x0 * V + x), t * at(to_trigger, x0))
        along = jnp.where(real, along, f32(0))
        return S + over_tokens(world, blocks, 0, lambda x, S: add_at(S, x, along), jnp.zeros(V, f32))

    S = over_samples(world, batch_of_step(world, 1), run.N, chunk, jnp.zeros(V, f32)) / run.L.astype(f32)
    # z_trig is in the key sum of every sample once, wherever it is in the values
    keys_sum = (weight - S) @ e.Z_in + (trigger - jnp.sum(S) / run.L.astype(f32)) * e.z_trig
    return attention_gradient(world, keys_sum), mean_square_bound(world)


def mean_square_bound(world: World) -> Array:
    """What the mean of |h|^2 over the N samples of a batch under uniform attention stays below: its expectation and six
    standard deviations.

    h is a constant and the mean of L independent rows of Z_in, so |h|^2 is a sum of a linear and a quadratic part whose
    variances are known.
    """
    e, V, L, N = world.e, world.run.V.astype(f32), world.run.L.astype(f32), world.run.N.astype(f32)
    rows = centred(world, e.Z_in)
    mean = jnp.sum(e.Z_in, axis=0) / V + in_value(world) / L * e.z_trig
    cov, square = rows.T @ rows / V, jnp.sum(rows * rows, axis=1)
    linear = 4 * jnp.sum((rows @ mean) ** 2) / V / L
    quadratic = 2 * jnp.sum(cov * cov) / L**2 + jnp.sum(square * square) / V / L**3
    return mean @ mean + jnp.sum(square) / V / L + 6 * (jnp.sqrt(linear) + jnp.sqrt(quadratic)) / jnp.sqrt(N)


def step3_from_counts(world: World, scores: Scores, T: Array, n: Array) -> tuple[Array, Array]:
    """G2 = 1/N sum_x (z_out(pi x) - mean z_out) (sum_u W[x, u] z_in(u) + W_x z_trig)^T, and a bound on mean |h|^2.

    W[x, u] adds up the attention that samples with the informative token x pay to tokens u, W_x to the informative one. By
    convexity |h|^2 is at most the mean of |v|^2 under the attention. The first n samples alone are read.
    """
    run, e, V = world.run, world.e, world.shape.V
    token = and_empty(scores.token, -math.inf)

    def chunk(blocks: Blocks, real: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        W, own = carry
        x0 = task.tokens(blocks, 0, run.V)
        first = at(token, x0) + scores.trigger

        def normaliser(x: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            top, total = sums
            score = at(token, x)
            new = jnp.maximum(top, jnp.max(score, axis=0))
            return new, total * jnp.exp(top - new) + jnp.sum(jnp.exp(score - new[None]), axis=0)

        top, total = over_positions(world, blocks, 1, normaliser, (first, jnp.ones_like(first)))
        scale = jnp.where(real, 1 / total, f32(0))
        W = over_tokens(world, blocks, 1, lambda x, W: add_at(W, x0 * V + x, jnp.exp(at(token, x) - top) * scale), W)
        return W, add_at(own, x0, jnp.exp(first - top) * scale)

    W, own = over_samples(world, batch_of_step(world, 2), n, chunk, (jnp.zeros(V * V, f32), jnp.zeros(V, f32)))
    W = W.reshape(V, V)
    sums = W @ e.Z_in + own[:, None] * values(world)
    h2 = jnp.sum(W @ jnp.sum(e.Z_in * e.Z_in, axis=1)) + own @ jnp.sum(values(world) ** 2, axis=1)
    return outer(at(T, world.perm), sums) / run.N.astype(f32), h2 / run.N.astype(f32)


def is_locked(world: World, w_hat: Array) -> Array:
    """Whether the informative token is ahead of any other by LOCKED_NATS + ln L, whatever the tokens are."""
    scores = attention_scores(world, w_hat)
    real = world.no_label == 0
    lowest = jnp.min(jnp.where(real, scores.token, f32(math.inf)))
    highest = jnp.max(jnp.where(real, scores.token, f32(-math.inf)))
    return scores.trigger + lowest - highest >= LOCKED_NATS + jnp.log(world.run.L.astype(f32))


def step3_locked(world: World, A: Array, T: Array) -> Array:
    """G2 = 1/N sum_x n_x T^T (e_{pi x} - p_x) phi(v_x)^T: with locked attention a sample is its informative token.

    A and T are the centred answers and Z_out: the softmax and T^T (e - p) do not see the mean. Where the guard holds, logits are
    so small that their largest need not be taken off.
    """
    run, perm = world.run, world.perm
    n = token_counts(world, batch_of_step(world, 2), run.N).astype(f32)

    def rows(v: Array, real: Array, G: Array) -> Array:
        phi, _ = features(world, values(world).at[v].get(mode="clip"))
        p = jnp.exp(run.eta * (phi @ A.T) + world.no_label[None])
        push = T.at[perm.at[v].get(mode="clip")].get(mode="clip") - p @ T / jnp.sum(p, axis=1, keepdims=True)
        return G + outer(only(real, push) * n.at[v].get(mode="clip")[:, None], phi)

    return over_vocabulary(world, rows, zeros_dp(world)) / run.N.astype(f32)
