"""The sums of the recipe over samples as they are drawn, a tile at a time, in float32.

Predictions are uniform.

`model/reference/steps.py` has the same steps to read. Rates are factored out: V1 = eta
G1, w = gamma eta w_hat, V2 = eta G1 + gamma2 G2.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ..model import keys
from .forward import Scores, attend, attention_gradient, features, label_of, mean_value
from .loops import (
    gather,
    masked,
    over_positions,
    over_samples,
    scatter_add,
    transposed_product,
    with_padding_row,
)
from .world import World, batch_of_step, centred, f32, in_value, zeros_dp


def step1(world: World) -> tuple[Array, None]:
    """G1 = 1/N sum_i (z_out(y_i) - mean z_out) phi(h_i)^T, with uniform attention.

    Predictions are uniform at the start, too.
    """
    run, e = world.run, world.e
    table = centred(world, e.Z_out)

    def tile(blocks: keys.Blocks, real: Array, G: Array) -> Array:
        x0 = world.tokens(blocks, 0)
        phi, _ = features(world, mean_value(world, blocks))
        return G + transposed_product(
            masked(real, gather(table, label_of(world, x0, blocks))), phi
        )

    return over_samples(
        world, batch_of_step(world, 0), run.N, tile, zeros_dp(world)
    ) / run.N.astype(f32), None


def step2(world: World, A: Array, counts: None) -> tuple[Array, Array]:
    """w_hat = |z_eos|^2 / (N L) sum_ij b_i^T (v_ij - h_i) k_ij, and mean |phi|^2.

    b_i is J_phi^T A[y_i].

    A (V, p) is Z_out G1, centred. The sum over keys needs one scalar per token,
    scattered into S: it is Z_in^T S and the trigger's share.
    """
    run, e, shape = world.run, world.e, world.shape

    def tile(
        blocks: keys.Blocks, real: Array, carry: tuple[Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        S, trigger, phi2 = carry
        x0 = world.tokens(blocks, 0)
        h = mean_value(world, blocks)
        phi, slope = features(world, h)
        b = gather(A, label_of(world, x0, blocks))
        b = masked(real, b if e.W_in is None else (b * slope) @ e.W_in)
        along_h = jnp.sum(b * h, axis=1)

        def along(x: Array) -> Array:
            return jnp.sum(b * gather(Z_in, x), axis=1) - along_h

        c0 = along(x0) + in_value(world) * (b @ e.z_trig)

        def positions(x: Array, S: Array) -> Array:
            return scatter_add(S, x, jnp.stack([along(row) for row in x]))

        S = over_positions(world, blocks, 1, positions, scatter_add(S, x0, c0))
        return S, trigger + jnp.sum(c0), phi2 + jnp.sum(masked(real, phi * phi))

    Z_in = with_padding_row(e.Z_in)
    start = jnp.zeros(shape.V + 1, f32), f32(0), f32(0)
    S, trigger, phi2 = over_samples(world, batch_of_step(world, 1), run.N, tile, start)
    return attention_gradient(
        world, S @ Z_in + trigger * e.z_trig
    ), phi2 / run.N.astype(f32)


def step3(world: World, scores: Scores, T: Array, n: Array) -> tuple[Array, Array]:
    """G2 = 1/N sum_i T[y_i] phi(h_i)^T under learned attention, and mean |phi|^2.

    T (V, d) is Z_out, centred.

    The first n samples alone are read.
    """
    run = world.run

    def tile(
        blocks: keys.Blocks, real: Array, carry: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        G, phi2 = carry
        x0 = world.tokens(blocks, 0)
        phi, _ = features(world, attend(world, blocks, x0, scores).h)
        return G + transposed_product(
            masked(real, gather(T, label_of(world, x0, blocks))), phi
        ), phi2 + jnp.sum(masked(real, phi * phi))

    G, phi2 = over_samples(
        world, batch_of_step(world, 2), n, tile, (zeros_dp(world), f32(0))
    )
    return G / run.N.astype(f32), phi2 / run.N.astype(f32)
