"""The three steps with p = 1/V instead of the softmax over labels, and a bound on the
error.

In step 1 p = 1/V exactly, as V_mat is 0. In step 2, and in step 3 where attention is
open, it is an approximation: the logits of V1, of order eta / (L V), are small. So no
sample needs V logits. Attention is *locked* if all other tokens have weight below
rounding: a sample is then its informative token, and step 3 is a sum over the
vocabulary with the softmax of each token. How sums over samples are formed is a choice
of its own (`Samples`). Sums and bounds are ours.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp
from jax import Array, lax

from . import pairs
from .forward import Scores, attention_scores, features
from .loops import gather, masked, over_vocabulary, token_counts, transposed_product
from .world import (
    Trained,
    World,
    batch_of_step,
    centred,
    f32,
    token_shares,
    trained,
    values,
    zeros_dp,
)

LOCKED_NATS = 17.0
"""Required lead in attention logit, beyond ln L: all other
weights together are then under 2^-24 of the informative one's.
"""


Known: TypeAlias = Any
"""What step 2 can reuse of step 1, each kind of sums its own."""


class Samples(Protocol):
    """How sums over samples are formed, with p = 1/V in all steps: `stream`, `counts`
    or `pairs`.

    A (V, p) is Z_out G1 and T (V, d) is Z_out, both centred; phi2 is the mean of
    |phi|^2, or a bound on it.
    """

    def step1(self, world: World, /) -> tuple[Array, Known]:
        """G1, and what step 2 can reuse."""
        ...

    def step2(self, world: World, A: Array, known: Known, /) -> tuple[Array, Array]:
        """w_hat and phi2."""
        ...

    def step3(
        self, world: World, scores: Scores, T: Array, n: Array, /
    ) -> tuple[Array, Array]:
        """G2 from the first n samples under open attention, with p = 1/V, and phi2."""
        ...


class FirstSteps(NamedTuple):
    """What steps 1 and 2 give, in any form."""

    G1: Array
    A: Array
    """(V, p) Z_out G1, centred."""
    w_hat: Array
    phi2: Array | None
    """The mean of |phi|^2 in step 2, or a bound on it; None with exact predictions."""


def step3(world: World, samples: Samples, first: FirstSteps) -> Trained:
    """Step 3 with bounds on the error of steps 2 and 3.

    It is from the vocabulary alone where attention is locked.
    """
    (G1, A, w_hat, phi2_step2), T = first, centred(world, world.e.Z_out)
    assert phi2_step2 is not None
    locked = is_locked(world, w_hat)
    shares = pairs.shares(world) if samples is pairs else None

    def open_attention() -> tuple[Array, Array]:
        scores = attention_scores(world, w_hat, world.run.attention_rate)
        n = jnp.where(
            locked, 0, world.run.N
        )  # an accelerator runs both branches for all runs of a batch
        return samples.step3(world, scores, T, n)

    G2, phi2_step3 = lax.cond(
        locked, lambda: (step3_locked(world, A, T, shares), f32(0)), open_attention
    )
    return trained(
        world,
        G1,
        w_hat,
        G2,
        softmax_errors(world, G1, A, T, phi2_step2, phi2_step3),
        locked,
    )


def softmax_errors(
    world: World, G1: Array, A: Array, T: Array, phi2_step2: Array, phi2_step3: Array
) -> tuple[Array, Array]:
    """Bounds on |A^T (p - 1/V)| in step 2 and |T^T (p - 1/V)| in step 3, relative
    means.

    They are means over samples, relative to the r.m.s. norm of A[y], of T[y].

    A is Z_out G1, T is Z_out, both centred; phi2 is the mean of |phi|^2 over samples.
    The r.m.s. is that of labels y with the probabilities of their tokens. With x the
    centred logits eta A phi, |x| <= B = eta max|A_u| |phi|: each p_u is within B^2 / V
    of (1 + x_u) / V, and the linear part moves A^T p by eta / V A^T A phi, T^T p by eta
    / V T^T A phi. By Cauchy and Schwarz, the rest moves A^T p by at most B^2 times the
    r.m.s. norm over equally likely labels; the factor 2 allows for unequal ones.
    """
    V, eta = world.run.V.astype(f32), world.run.eta
    if (
        world.shape.V < world.shape.d
    ):  # the same eigenvalues but for zeros, from the smaller side
        AA = A @ A.T
        op_AA, op_TA = radius_bound(AA), jnp.sqrt(radius_bound(T @ T.T @ AA))
    else:
        gram, GG = T.T @ T, G1 @ G1.T
        op_AA = radius_bound(
            GG @ gram
        )  # GG gram has the eigenvalues of A^T A, and gram GG gram is T^T A (T^T A)^T
        op_TA = jnp.sqrt(radius_bound(gram @ GG @ gram))
    largest_A2 = jnp.max(jnp.sum(A * A, axis=1))

    def error(op: Array, table: Array, phi2: Array) -> Array:
        rms = jnp.sqrt(
            gather(jnp.sum(table * table, axis=1), world.perm) @ token_shares(world)[0]
        )
        return eta / V * op * jnp.sqrt(phi2) / rms + 2 * eta**2 * largest_A2 * phi2

    return error(op_AA, A, phi2_step2), error(op_TA, T, phi2_step3)


def radius_bound(M: Array) -> Array:
    """An upper bound, |M^16|_F^(1/16), on the largest absolute eigenvalue of M (n, n).

    |A^T A phi| is at most |phi| times the largest eigenvalue of A^T A, and |T^T A phi|
    at most |phi| times the root of that of T^T A (T^T A)^T. X Y and Y X have the same
    eigenvalues but for zeros, so products of the smaller matrices serve, though they
    are not symmetric. No eigenvalue of M^16 is above its Frobenius norm.
    """
    scale = jnp.sqrt(jnp.sum(M * M))
    # written out, all products but the first take ten times as long on a CPU (jax
    # 0.10.2)
    P = lax.fori_loop(0, 4, lambda _, P: P @ P, M / scale)
    return scale * jnp.sum(P * P) ** f32(1 / 32)


def is_locked(world: World, w_hat: Array) -> Array:
    """Whether the informative token is ahead by LOCKED_NATS + ln L, whatever the tokens
    are.
    """
    scores = attention_scores(world, w_hat, world.run.attention_rate)
    return nats_ahead(world, scores) >= LOCKED_NATS + jnp.log(world.run.L.astype(f32))


def nats_ahead(world: World, scores: Scores) -> Array:
    """The least lead (nats) of an informative token's logit over any other, for all
    tokens.
    """
    real = world.no_label == 0
    lowest = jnp.min(jnp.where(real, scores.token, f32(math.inf)))
    highest = jnp.max(jnp.where(real, scores.token, f32(-math.inf)))
    return scores.trigger + lowest - highest


def step3_locked(world: World, A: Array, T: Array, shares: Array | None) -> Array:
    """G2 = 1/N sum_x n_x T^T (e_{pi x} - p_x) phi(v_x)^T, p_x the softmax.

    With locked attention a sample is its informative token.

    A is Z_out G1, T is Z_out. Centring them changes neither the softmax nor T^T (e -
    p). Where the bound on step 2 holds, logits are too small for exp to overflow, so
    their largest is not taken off.
    """
    run, perm = world.run, world.perm
    n = (
        token_counts(world, batch_of_step(world, 2), run.N).astype(f32)
        if shares is None
        else shares
    )

    def rows(v: Array, real: Array, G: Array) -> Array:
        phi, _ = features(world, values(world).at[v].get(mode="clip"))
        p = jnp.exp(run.eta * (phi @ A.T) + world.no_label[None])
        toward = T.at[perm.at[v].get(mode="clip")].get(mode="clip") - p @ T / jnp.sum(
            p, axis=1, keepdims=True
        )
        return G + transposed_product(
            masked(real, toward) * n.at[v].get(mode="clip")[:, None], phi
        )

    return over_vocabulary(world, rows, zeros_dp(world)) / (
        run.N.astype(f32) if shares is None else f32(1)
    )
