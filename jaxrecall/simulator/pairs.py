"""The sums of the recipe over pairs of a token and a noise sequence, with a pool.

Predictions are uniform, and a sample is a token x and a noise sequence k.

All pairs are summed over with their weights, the part of the samples that is such a
pair, 1 / (V K) + E[x, k]: cost and memory depend on neither N nor L. What does not
depend on x cancels against centred tables, so products take the deviation E from the
mean alone where they can: its rounding is relative to what the samples fluctuate by, at
any N. Laws and sums are ours.

Where the activation is a polynomial, `Polynomials` has the sums as matrix products,
instead of an activation for each pair and unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from ..model.values import Numbers
from .forward import (
    Scores,
    attend_to_counts,
    attention_gradient,
    features_of,
    shares_of,
    unit_scale,
    unlearned_scores,
)
from .loops import gather, masked, transposed_product
from .pool_draws import mean_weight, pool_of_step, weights_of
from .world import World, centred, f32, values


class Attended(NamedTuple):
    """Attention of all pairs: h of (x, k) is own[x, k] v_x + other[x, k] noise[k]."""

    own: Array  # (V, K) weight on the informative token
    other: Array  # (V, K) weight on all others
    noise: Array  # (K, d) mean value of the others
    total: Array  # (K,) their number, under uniform attention


def step1(world: World) -> tuple[Array, Array]:
    """G1, and a bound on the mean of |phi|^2."""
    return gradient(world, 0, unlearned_scores(world), centred(world, world.e.Z_out))


def step2(world: World, A: Array, phi2: Array) -> tuple[Array, Array]:
    """w_hat, with A (V, p) the centred answers Z_out G1; and phi2."""
    b = gather(A, world.perm)
    return (
        step2_of_values(world, b)
        if world.e.W_in is None
        else step2_of_features(world, b)
    ), phi2


def step3(world: World, scores: Scores, T: Array, n: Array) -> tuple[Array, Array]:
    """G2 with learned attention, T (V, d) Z_out centred, and a bound on the mean of
    |phi|^2.
    """
    return gradient(world, 2, scores, T)


def shares(world: World) -> Array:
    """(V,): the part of the samples of step 3 that has each informative token."""
    return jnp.where(
        world.no_label == 0,
        1 / world.run.V.astype(f32) + jnp.sum(pool_of_step(world, 2)[1], axis=1),
        f32(0),
    )


def attended(world: World, counts: Array, scores: Scores) -> Attended:
    """Attention of all pairs of a token and a row of the counts (K, V)."""
    noise = attend_to_counts(world, counts, scores)
    own, other = shares_of(
        (scores.token + scores.trigger)[:, None], noise.total[None], noise.top[None]
    )
    return Attended(own, other, noise.value, noise.total)


def gradient(world: World, step: int, scores: Scores, T: Array) -> tuple[Array, Array]:
    """G = sum over pairs of weight (z_out(pi x) - mean z_out) phi(h)^T, and a bound on
    |phi|^2.

    The bound is on its mean.

    T is Z_out, centred. Without an MLP |h|^2 is at most the mean of |v|^2 under the
    attention, by convexity.
    """
    counts, E = pool_of_step(world, step)
    a, mean, weights = (
        attended(world, counts, scores),
        mean_weight(world),
        weights_of(world, E),
    )
    table, real = gather(T, world.perm), world.no_label == 0
    if world.e.W_in is not None:
        coefficients = (
            world.law("activation").coefficients(jnp) if step == 0 else None
        )  # later attention is learned
        phi, phi2 = (
            mean_polynomials(world, a, weights, coefficients)
            if coefficients
            else mean_features(world, a, weights)
        )
        return transposed_product(table, phi), phi2
    v = values(world)
    own = jnp.sum(weights * a.own, axis=1)
    centre = jnp.sum(masked(real, a.own), axis=0) / world.run.V.astype(f32)
    fluctuation = E * a.other - mean * (a.own - centre[None])
    rows = own[:, None] * v + fluctuation @ a.noise
    v2, noise2 = jnp.sum(v * v, axis=1), jnp.sum(a.noise * a.noise, axis=1)
    h2 = jnp.sum(weights * (a.own * v2[:, None] + a.other * noise2[None]))
    return transposed_product(table, rows), h2


def step2_of_values(world: World, b: Array) -> Array:
    """w_hat without an MLP, from b (V, d) by informative token, of sum zero over the
    tokens.
    """
    counts, E = pool_of_step(world, 1)
    run, mean = world.run, mean_weight(world)
    noise = attended(world, counts, unlearned_scores(world))
    g = noise.noise * noise.total[:, None]  # sum of the values of a noise sequence
    v = values(world)
    own = jnp.sum(b * v, axis=1)  # b^T v_x
    share = 1 / run.V.astype(f32) + jnp.sum(E, axis=1)
    B = E.T @ b
    # b^T h L, summed over the noise sequences of a token, and over the tokens of a
    # noise sequence
    of_token = share * own + jnp.sum(
        b * (E @ g + jnp.sum(g, axis=0)[None] * mean), axis=1
    )
    of_noise = jnp.sum(own) * mean + own @ E + jnp.sum(B * g, axis=1)
    return keys_gradient(
        world,
        counts,
        B,
        share * own,
        of_token / run.L.astype(f32),
        of_noise / run.L.astype(f32),
        g,
    )


def keys_gradient(
    world: World,
    counts: Array,
    B: Array,
    own: Array,
    of_token: Array,
    of_noise: Array,
    g: Array,
) -> Array:
    """w_hat from sums over pairs of b, of b^T v_x and of b^T h.

    B (K, d) is of b itself, `own` (V,) of b^T v_x, and of b^T h are those by token (V,)
    and sequence (K,).

    A key is weighted by b^T (v - h): noise token u of sequence k by B_k^T z_u as often
    as it occurs, less of_noise_k.
    """
    e = world.e
    along = jnp.sum(counts * (B @ e.Z_in.T), axis=0) + own - of_token
    return attention_gradient(
        world,
        along @ e.Z_in - of_noise @ g + jnp.sum(own - of_token) * e.z_trig,
        f32(1),
    )


class Token(NamedTuple):
    """All pairs of one token."""

    u: Array  # (K, p) what their features are made of: h, or W_in h
    own: Array  # (p,) that of the value of the token alone
    weight: Array  # (K,)
    label: Array


def over_tokens(
    world: World,
    a: Attended,
    weights: Array,
    body: Callable[..., PyTree],
    start: PyTree,
    *more: Array,
) -> PyTree:
    """Scans `body(carry, token, ...)` over the vocabulary, with rows of further tables
    (V, ...).

    u of (x, k) is own[x, k] u(v_x) + other[x, k] u(noise_k): a pair costs p, not d p.
    Memory: a few (K, p).
    """
    own, of_noise = hidden_tables(world, a)

    def step(carry: PyTree, rows: PyTree) -> PyTree:
        own, weight, label, *others = rows
        return body(carry, Token(hidden(own, of_noise), own.u, weight, label), *others)

    return lax.scan(step, start, (own, weights, world.perm, *more))


class Own(NamedTuple):
    """What the pairs of a token do not share with others: rows of tables over the
    vocabulary.
    """

    mine: Array  # (K,) weight on the token
    other: Array  # (K,) weight on the noise sequence
    u: Array  # (p,) what the value of the token is in h, or in W_in h


def hidden_tables(world: World, a: Attended) -> tuple[Own, Array]:
    """Tables over the vocabulary, and (K, p) what the noise sequences are in h, or in
    W_in h.
    """
    W_in, v = world.e.W_in, values(world)
    of_token, of_noise = (
        (v, a.noise) if W_in is None else (v @ W_in.T, a.noise @ W_in.T)
    )
    return Own(a.own, a.other, of_token), of_noise


def hidden(own: Own, of_noise: Array) -> Array:
    """(K, p): h, or W_in h, of all pairs of a token."""
    return own.mine[:, None] * own.u[None] + own.other[:, None] * of_noise


def mean_features(world: World, a: Attended, weights: Array) -> tuple[Array, Array]:
    """(V, p): sum over the pairs of each token of weight phi, and the mean of |phi|^2
    over all.
    """

    def token(phi2: Array, x: Token) -> tuple[Array, Array]:
        phi, _ = features_of(world, x.u)
        return phi2 + x.weight @ jnp.sum(phi * phi, axis=1), x.weight @ phi

    phi2, rows = over_tokens(world, a, weights, token, f32(0))
    return rows, phi2


def mean_polynomials(
    world: World, a: Attended, weights: Array, coefficients: Coefficients
) -> tuple[Array, Array]:
    """`mean_features` under uniform attention, of an activation that is a
    polynomial.
    """
    all_pairs, scale = evenly_attended(world, a, weights), unit_scale(world)
    return all_pairs.means(coefficients) * scale, jnp.sum(
        all_pairs.over_units(square(coefficients), scale * scale)
    )


def evenly_attended(world: World, a: Attended, weights: Array) -> Polynomials:
    """All pairs under uniform attention, which is the same for all tokens."""
    own, of_noise = hidden_tables(world, a)
    return Polynomials(
        own.mine[0][:, None], own.other[0][:, None], weights, own.u, of_noise
    )


def step2_of_features(world: World, b: Array) -> Array:
    """w_hat with an MLP, from b (V, p) by informative token, wanted of the features."""
    counts, E = pool_of_step(world, 1)
    a, W_in = attended(world, counts, unlearned_scores(world)), world.e.W_in
    assert W_in is not None

    def token(
        carry: tuple[Array, Array], x: Token, wanted: Array
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        R, of_noise = carry
        _, slope = features_of(world, x.u)
        b = (
            slope * wanted[None] * x.weight[:, None]
        )  # by feature: W_in^T b is what is wanted of h
        along_h = jnp.sum(b * x.u, axis=1)
        return (R + b, of_noise + along_h), (
            jnp.sum(b, axis=0) @ x.own,
            jnp.sum(along_h),
        )

    weights = weights_of(world, E)
    if coefficients := world.law("activation").coefficients(jnp):
        all_pairs, wanted, of_slope = (
            evenly_attended(world, a, weights),
            b * unit_scale(world),
            slope_of(coefficients),
        )
        R, along = (
            all_pairs.over_tokens(of_slope, wanted),
            all_pairs.over_units([0, *of_slope], wanted),
        )
        own = jnp.sum(all_pairs.means(of_slope) * wanted * all_pairs.u, axis=1)
        of_token, of_noise = jnp.sum(along, axis=1), jnp.sum(along, axis=0)
    else:
        start = (
            jnp.zeros((world.shape.pool, world.shape.m), f32),
            jnp.zeros(world.shape.pool, f32),
        )
        (R, of_noise), (own, of_token) = over_tokens(world, a, weights, token, start, b)
    return keys_gradient(
        world, counts, R @ W_in, own, of_token, of_noise, a.noise * a.total[:, None]
    )


Coefficients = Sequence[Numbers]
"""c of sum_n c[n] u^n; a power that is absent has the number 0."""


class Polynomials(NamedTuple):
    """All pairs of a token and a noise sequence, under uniform attention."""

    own: Array  # (K, 1) attention on the token
    other: Array  # (K, 1) attention on the noise sequence
    weights: Array  # (V, K) part of the samples
    u: Array  # (V, m) hidden units of the tokens' values
    n: Array  # (K, m) hidden units of the noise sequences' mean values

    def tables(self, c: Coefficients) -> list[Array]:
        """(K, m) each, the last (K, 1): coefficients by u of a polynomial of own u +
        other n.
        """
        y, degree = self.other * self.n, len(c) - 1
        found = [c[degree] * self.own**degree]
        for a in reversed(range(degree)):
            terms = [
                comb(n, a) * c[n] * y ** (n - a)
                for n in range(a, degree + 1)
                if not _absent(c[n])
            ]
            found.insert(0, self.own**a * sum(terms, start=jnp.zeros_like(y)))
        return found

    def means(self, c: Coefficients) -> Array:
        """(V, m): for each token, the sum over noise sequences of weight and
        polynomial.
        """
        return sum(
            self.u**a * (self.weights @ table) for a, table in enumerate(self.tables(c))
        )  # type: ignore[return-value]

    def over_tokens(self, c: Coefficients, wanted: Array) -> Array:
        """(K, m): for each noise sequence, the sum over tokens of weight and
        polynomial.

        Each is times `wanted` (V, m).
        """
        tables = enumerate(self.tables(c))
        return sum(
            table * (self.weights.T @ (wanted * self.u**a)) for a, table in tables
        )  # type: ignore[return-value]

    def over_units(self, c: Coefficients, wanted: Array) -> Array:
        """(V, K): for each pair, weight times a sum over hidden units.

        The sum is of `wanted` (V or 1, m) and polynomial.
        """
        *tables, last = self.tables(c)
        total = jnp.sum(wanted * self.u ** len(tables), axis=1)[:, None] * last.T
        for a, table in enumerate(tables):
            total = total + (wanted * self.u**a if a else wanted) @ table.T
        return self.weights * total


def square(c: Coefficients) -> list[Numbers]:
    """The coefficients of the polynomial squared."""
    found: list[Numbers] = [0] * (2 * len(c) - 1)
    for i, a in enumerate(c):
        for j, b in enumerate(c):
            if not (_absent(a) or _absent(b)):
                found[i + j] = found[i + j] + a * b
    return found


def slope_of(c: Coefficients) -> list[Numbers]:
    """The coefficients of the derivative."""
    return [n * each for n, each in enumerate(c)][1:]


def _absent(coefficient: Numbers) -> bool:
    return isinstance(coefficient, int | float) and coefficient == 0
