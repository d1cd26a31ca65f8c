"""Cheaper forms of the three steps, each taken only where a computed bound says that float32 cannot tell the difference.

    softmax   the logits of V1 are of order eta / (L V): its predictions are uniform, or linear in the logits, to rounding
    counts    attention-only: step 1, and step 2 where predictions are uniform, need how often tokens meet, not the samples
    locked    attention that rests on the informative token to rounding makes a sample its token: step 3 is a sum over V

`stream.train` is the full form, which these are tested against on both sides of their guards. The bounds are ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from . import task
from .bucket import MAX_COUNTED_V
from .stream import (
    Learned,
    Residual,
    World,
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

TOLERANCE = 2.0**-20
"""Largest relative error of a sample's residual that a form may cause: 1e-6, where rounding alone moves V1, w and V2 by 1e-7
to 8e-7 in any form. The bounds are worst cases; measured errors are ten times smaller and more."""

LOCKED_NATS = 17.0
"""Attention logits ahead, ln L on top: all other weights together are then under 2^-24 of the informative one's."""

UNIFORM, LINEAR, EXACT, COUNTS, LOCKED = range(5)
NAMES = ("uniform", "linear", "exact", "counts", "locked")


class Taken(NamedTuple):
    """The forms that steps 2 and 3 took, int32 indices into NAMES."""

    step2: Array
    step3: Array

    @property
    def locked(self) -> Array:
        return self.step3 == LOCKED


def train(world: World) -> tuple[Learned, Taken]:
    """The three gradient steps by the cheapest forms that their bounds allow."""
    counted = world.e.W_in is None and world.shape.V <= MAX_COUNTED_V
    counts = co_occurrence(world, 0) if counted else None
    G1 = step1(world) if counts is None else step1_from_counts(world, counts)
    answers = world.e.Z_out @ G1
    size = Sizes.of(world, G1, answers)

    form2 = softmax_form(world, size, answers, size.op_answers)
    push2 = pusher(world, answers, answers, form2)
    if counts is None:
        w_hat = step2(world, push2)
    else:
        form2 = jnp.where(form2 == UNIFORM, COUNTS, form2)
        w_hat = lax.cond(form2 == COUNTS, lambda: step2_from_counts(world, counts, answers), lambda: step2(world, push2))

    form3 = jnp.where(is_locked(world, w_hat), LOCKED, softmax_form(world, size, world.e.Z_out, size.op_out))
    push3 = pusher(world, answers, world.e.Z_out, form3)
    G2 = lax.cond(form3 == LOCKED, lambda: step3_locked(world, answers), lambda: step3(world, w_hat, push3))
    return Learned(G1, w_hat, G2), Taken(form2, form3)


class Sizes(NamedTuple):
    """Upper bounds behind the softmax guards."""

    op_out: Array  # operator norm of the centred Z_out
    op_answers: Array  # of the centred answers
    answer: Array  # largest norm of a centred answer
    phi: Array  # largest norm of what V_mat can be made to read

    @staticmethod
    def of(world: World, G1: Array, answers: Array) -> Sizes:
        Z = centred(world, world.e.Z_out)
        op_out = jnp.sqrt(largest_eigenvalue(Z.T @ Z))
        op_answers = op_out * jnp.sqrt(largest_eigenvalue(G1 @ G1.T))
        return Sizes(op_out, op_answers, largest_norm(centred(world, answers)), largest_feature(world))


def largest_eigenvalue(M: Array) -> Array:
    """An upper bound, at most n^(1/8) too large, for a symmetric positive semidefinite M (n, n): |M^8|_F^(1/8)."""
    scale = jnp.sqrt(jnp.sum(M * M))
    P = M / scale
    for _ in range(3):
        P = P @ P
    return scale * jnp.sum(P * P) ** f32(1 / 16)


def largest_norm(rows: Array) -> Array:
    return jnp.sqrt(jnp.max(jnp.sum(rows * rows, axis=1)))


def largest_feature(world: World) -> Array:
    """Bound on |phi(h)|: h is a convex combination of values, |act(u)| <= |u| for all activations but the quadratic."""
    e = world.e
    h = largest_norm(e.Z_in) + in_value(world) * jnp.sqrt(jnp.sum(e.z_trig * e.z_trig))
    if e.W_in is None:
        return h
    root_m = jnp.sqrt(world.run.m.astype(f32))
    u = jnp.sqrt(largest_eigenvalue(e.W_in.T @ e.W_in)) * h
    return (u * u + root_m) * f32(0.5**0.5) / root_m if world.shape.activation == "quadratic" else u / root_m


def softmax_form(world: World, size: Sizes, table: Array, op_table: Array) -> Array:
    """UNIFORM, LINEAR or EXACT for table^T (e_y - p), by bounds relative to the r.m.s. norm of a centred table row.

    With x the centred logits, |x| <= B = eta max|answer| max|phi|: p = (1 + x) / V up to B^2 / V each, and the linear part
    moves table^T p by at most eta / V |answers|_op |table|_op |phi|. A bound that is not a number allows nothing. LINEAR is
    for where its one p x n matrix is less work than the V logits.
    """
    run = world.run
    B = run.eta * size.answer * size.phi
    T = centred(world, table)
    rms = jnp.sqrt(jnp.sum(T * T) / run.V.astype(f32))
    linear = run.eta * size.op_answers * op_table * size.phi / run.V.astype(f32) / rms
    rest = 2 * B * B
    V, p, n = world.shape.V, world.shape.m or world.shape.d, table.shape[1]
    small = LINEAR if p * n < V * (p + n) else EXACT
    return jnp.where(linear + rest <= TOLERANCE, UNIFORM, jnp.where(rest <= TOLERANCE, small, EXACT)).astype(i32)


def pusher(world: World, answers: Array, table: Array, form: Array) -> Residual:
    """table^T (e_y - p) by `form`; a uniform p needs the centred table alone, a linear one folds into one matrix."""
    T = centred(world, table)
    p, n = answers.shape[1], table.shape[1]

    def slope() -> Array:
        return world.run.eta / world.run.V.astype(f32) * (centred(world, answers).T @ T)

    matrix = lax.cond(form == LINEAR, slope, lambda: jnp.zeros((p, n), f32))
    branches = (
        lambda phi, y: at(T, y),
        lambda phi, y: at(T, y) - phi @ matrix,
        lambda phi, y: residual(world, phi, y, answers, table),
    )
    return lambda phi, y: lax.switch(jnp.minimum(form, EXACT), branches, phi, y)


def co_occurrence(world: World, step: int) -> Array:
    """(V, V) int32: how often token u occurs in samples of that step whose informative token is x, itself counted."""
    V = world.shape.V

    def chunk(blocks: Array, real: Array, C: Array) -> Array:
        row = task.tokens(blocks, 0, world.run.V) * V
        one = real.astype(i32)

        def position(j: Array, C: Array) -> Array:
            return C.at[row + task.tokens(blocks, j, world.run.V)].add(one, mode="promise_in_bounds")

        return lax.fori_loop(0, world.run.L, position, C)

    return over_samples(world, batch_of_step(world, step), world.run.N, chunk, jnp.zeros(V * V, i32)).reshape(V, V)


def informative(world: World, C: Array) -> Array:
    """(V,) float32: samples of each informative token, from the co-occurrences."""
    return (jnp.sum(C, axis=1, dtype=i32) // world.run.L).astype(f32)


def step1_from_counts(world: World, C: Array) -> Array:
    """G1 = 1/(N L) sum_x (z_out(pi x) - mean z_out) (sum_u C[x, u] z_in(u) + n_x z_trig)^T; exact, in another order."""
    run, e = world.run, world.e
    table = at(centred(world, e.Z_out), world.perm)
    sums = C.astype(f32) @ e.Z_in + (in_value(world) * informative(world, C))[:, None] * e.z_trig[None]
    return table.T @ sums / run.N.astype(f32) / run.L.astype(f32)


def step2_from_counts(world: World, counts: Array, answers: Array) -> Array:
    """Step 2 with uniform predictions: b depends on the informative token alone, so sums over keys are sums over counts.

    What is left for the samples is sum_i (b_i^T h_i) sum_j k_ij, which needs h_i and one pass.
    """
    run, e, t = world.run, world.e, in_value(world)
    C = lax.cond(run.fresh_batches, lambda: co_occurrence(world, 1), lambda: counts)
    b = at(centred(world, answers), world.perm)  # by informative token
    n, to_trigger = informative(world, C), b @ e.z_trig
    weight = jnp.sum(C.astype(f32) * (b @ e.Z_in.T), axis=0) + t * n * to_trigger
    trigger = jnp.sum(n * (jnp.sum(b * e.Z_in, axis=1) + t * to_trigger))

    def chunk(blocks: Array, real: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        along_h, along_trigger = carry
        h = mean_value(world, blocks)
        c = jnp.sum(only(real, at(b, task.tokens(blocks, 0, run.V))) * h, axis=1)
        return along_h + c @ h, along_trigger + jnp.sum(c)

    start = jnp.zeros(world.shape.d, f32), f32(0)
    along_h, along_trigger = over_samples(world, batch_of_step(world, 1), run.N, chunk, start)
    # the keys of a sample add up to L h_i, and z_trig more where the trigger is out of the value path
    mean_part = run.L.astype(f32) * along_h + (1 - t) * along_trigger * e.z_trig
    return attention_gradient(world, weight @ e.Z_in + trigger * e.z_trig - mean_part)


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
        return G + (only(real, push) * n.at[v].get(mode="clip")[:, None]).T @ phi

    return over_vocabulary(world, rows, zeros_dp(world)) / run.N.astype(f32)
