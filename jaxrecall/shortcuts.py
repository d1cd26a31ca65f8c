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

from . import task
from .bucket import is_counted
from .keys import Blocks
from .stream import (
    Learned,
    Scores,
    World,
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
    mean_value,
    only,
    outer,
    over_positions,
    over_samples,
    over_vocabulary,
    residual,
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

    def open_attention() -> tuple[Array, Array]:
        scores = attention_scores(world, w_hat)
        return step3_from_counts(world, scores, T) if counted else step3(world, scores, lambda phi, y: at(T, y))

    locked = is_locked(world, w_hat)
    G2, phi2_step3 = lax.cond(locked, lambda: (step3_locked(world, answers), f32(0)), open_attention)
    errors = softmax_errors(world, G1, A, T, phi2_step2, phi2_step3)
    return Learned(G1, w_hat, G2), Guard(*errors, jnp.bool_(counted), locked)


def first_steps(world: World) -> tuple[Array, Array, Array, Array]:
    """Steps 1 and 2: G1, its answers Z_out G1 (V, p), w_hat, and mean |phi|^2."""
    counts = co_occurrences(world) if is_counted(world.shape.V, world.shape.m) else None
    G1 = step1(world) if counts is None else step1_from_counts(world, counts[0])
    answers = world.e.Z_out @ G1
    A = centred(world, answers)
    w_hat, phi2 = step2(world, lambda phi, y: at(A, y)) if counts is None else step2_from_counts(world, counts[1], A)
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


def co_occurrences(world: World) -> Array:
    """(2, V, V) int32: how often token u occurs in the samples of step 1, step 2 whose informative token is x, itself counted."""
    run, V, columns = world.run, world.shape.V, world.shape.V + 1

    def table(of: tuple[Array, Array]) -> Array:
        def chunk(blocks: Blocks, real: Array, C: Array) -> Array:
            row = task.tokens(blocks, 0, run.V) * columns

            def positions(x: Array, C: Array) -> Array:
                return C.at[row[None] + x].add(jnp.broadcast_to(real.astype(i32), x.shape), mode="promise_in_bounds")

            return over_positions(world, blocks, 0, positions, C)

        return over_samples(world, *of, chunk, jnp.zeros(V * columns, i32)).reshape(V, columns)[:, :V]

    fresh = run.fresh_batches
    first, second = lax.map(
        table, (jnp.stack([batch_of_step(world, 0), batch_of_step(world, 1)]), jnp.stack([run.N, jnp.where(fresh, run.N, 0)]))
    )
    return jnp.stack([first, jnp.where(fresh, second, first)])


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
    """w_hat and mean |h|^2, with A the centred answers: b depends on the informative token alone, so sums over keys are sums
    over counts.

    What is left for the samples is sum_i (b_i^T h_i) sum_j k_ij, which needs h_i and one pass.
    """
    run, e, t = world.run, world.e, in_value(world)
    b = at(A, world.perm)  # by informative token
    n, to_trigger = informative(world, C), b @ e.z_trig
    weight = jnp.sum(C.astype(f32) * (b @ e.Z_in.T), axis=0) + t * n * to_trigger
    trigger = jnp.sum(n * (jnp.sum(b * e.Z_in, axis=1) + t * to_trigger))

    def chunk(blocks: Blocks, real: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        along_h, along_trigger, h2 = carry
        h = only(real, mean_value(world, blocks))
        c = jnp.sum(at(b, task.tokens(blocks, 0, run.V)) * h, axis=1)
        return along_h + c @ h, along_trigger + jnp.sum(c), h2 + jnp.sum(h * h)

    start = jnp.zeros(world.shape.d, f32), f32(0), f32(0)
    along_h, along_trigger, h2 = over_samples(world, batch_of_step(world, 1), run.N, chunk, start)
    # the keys of a sample add up to L h_i, and z_trig more where the trigger is out of the value path
    mean_part = run.L.astype(f32) * along_h + (1 - t) * along_trigger * e.z_trig
    return attention_gradient(world, weight @ e.Z_in + trigger * e.z_trig - mean_part), h2 / run.N.astype(f32)


def step3_from_counts(world: World, scores: Scores, T: Array) -> tuple[Array, Array]:
    """G2 = 1/N sum_x (z_out(pi x) - mean z_out) (sum_u W[x, u] z_in(u) + W_x z_trig)^T, and a bound on mean |h|^2.

    W[x, u] adds up the attention that samples with the informative token x pay to tokens u, W_x to the informative one. By
    convexity |h|^2 is at most the mean of |v|^2 under the attention.
    """
    run, e = world.run, world.e
    V, columns = world.shape.V, world.shape.V + 1
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
        mass = jnp.exp(first - top) * scale

        def weigh(x: Array, W: Array) -> Array:
            weight = jnp.exp(at(token, x) - top[None]) * scale[None]
            return W.at[(x0 * columns)[None] + x].add(weight, mode="promise_in_bounds")

        W = over_positions(world, blocks, 1, weigh, W)
        return W, own.at[x0].add(mass, mode="promise_in_bounds")

    W, own = over_samples(world, batch_of_step(world, 2), run.N, chunk, (jnp.zeros(V * columns, f32), jnp.zeros(V, f32)))
    W = W.reshape(V, columns)[:, :V]
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


def step3_locked(world: World, answers: Array) -> Array:
    """G2 = 1/N sum_x n_x Z_out^T (e_{pi x} - p_x) phi(v_x)^T: with locked attention a sample is its informative token."""
    run, e = world.run, world.e
    n = token_counts(world, batch_of_step(world, 2), run.N).astype(f32)

    def rows(v: Array, real: Array, G: Array) -> Array:
        phi, _ = features(world, values(world).at[v].get(mode="clip"))
        push = residual(world, phi, world.perm.at[v].get(mode="clip"), answers, e.Z_out)
        return G + outer(only(real, push) * n.at[v].get(mode="clip")[:, None], phi)

    return over_vocabulary(world, rows, zeros_dp(world)) / run.N.astype(f32)
