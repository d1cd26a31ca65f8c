"""The three steps of one run, sample by sample with the exact softmax: float32, a tile of samples at a time.

`model/reference/steps.py` has the same steps to read. Rates are factored out: V1 = eta G1, w = gamma eta w_hat, V2 = eta G1 + gamma2 G2.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model import keys, task
from ..model.laws import find_law
from .attention import Scores, attend, attention_scores, mean_value
from .tiles import add_at, and_empty, at, only, outer, over_positions, over_samples
from .world import Trained, World, batch_of_step, centred, f32, i32, in_value, trained, zeros_dp

Residual = Callable[[Array, Array], Array]
"""(phi, y) -> table^T (e_y - p), one row a sample: what the loss wants added to the outputs."""


def train(world: World) -> Trained:
    """The three gradient steps, exact softmax everywhere."""
    G1, w_hat = first_steps(world)
    G2, _ = step3(world, attention_scores(world, w_hat, world.run.gamma_eta), residuals(world, G1)[1])
    return trained(world, G1, w_hat, G2)


def first_steps(world: World) -> tuple[Array, Array]:
    """Steps 1 and 2: G1 and w_hat."""
    G1 = step1(world)
    w_hat, _ = step2(world, residuals(world, G1)[0])
    return G1, w_hat


def residuals(world: World, G1: Array) -> tuple[Residual, Residual]:
    """G1^T Z_out^T (e_y - p) and Z_out^T (e_y - p), p the prediction of V1 = eta G1."""
    Z_out = world.e.Z_out
    if world.e.W_in is None:
        answers = Z_out @ G1
        return lambda phi, y: residual(world, phi, y, answers, answers), lambda phi, y: residual(world, phi, y, answers, Z_out)

    def by_d(phi: Array, y: Array) -> Array:  # the d dimensions are fewer than the m
        return residual(world, phi @ G1.T, y, Z_out, Z_out)

    return lambda phi, y: by_d(phi, y) @ G1, by_d


def step1(world: World) -> Array:
    """G1 = 1/N sum_i (z_out(y_i) - mean z_out) phi(h_i)^T: predictions and attention are uniform at the start."""
    run, e = world.run, world.e
    table = centred(world, e.Z_out)

    def tile(blocks: keys.Blocks, real: Array, G: Array) -> Array:
        x0 = task.tokens(blocks, 0, run.V)
        phi, _ = features(world, mean_value(world, blocks))
        return G + outer(only(real, at(table, at(world.perm, x0))), phi)

    return over_samples(world, batch_of_step(world, 0), run.N, tile, zeros_dp(world)) / run.N.astype(f32)


def step2(world: World, residual_of: Residual) -> tuple[Array, Array]:
    """w_hat = |z_eos|^2 / (N L) sum_i sum_j b_i^T (v_ij - h_i) k_ij, with b_i = J_phi^T G1^T Z_out^T (e_y - p_i); mean |phi|^2.

    `residual_of` gives G1^T Z_out^T (e_y - p_i). The sum over keys needs one scalar per token, scattered into S: it is Z_in^T S and
    the trigger's share.
    """
    run, e, shape = world.run, world.e, world.shape

    def tile(blocks: keys.Blocks, real: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        S, trigger, phi2 = carry
        x0 = task.tokens(blocks, 0, run.V)
        h = mean_value(world, blocks)
        phi, slope = features(world, h)
        b = residual_of(phi, at(world.perm, x0))
        b = only(real, b if e.W_in is None else (b * slope) @ e.W_in)
        along_h = jnp.sum(b * h, axis=1)

        def along(x: Array) -> Array:
            return jnp.sum(b * at(Z_in, x), axis=1) - along_h

        c0 = along(x0) + in_value(world) * (b @ e.z_trig)

        def positions(x: Array, S: Array) -> Array:
            return add_at(S, x, jnp.stack([along(row) for row in x]))

        S = over_positions(world, blocks, 1, positions, add_at(S, x0, c0))
        return S, trigger + jnp.sum(c0), phi2 + jnp.sum(only(real, phi * phi))

    Z_in = and_empty(e.Z_in)
    start = jnp.zeros(shape.V + 1, f32), f32(0), f32(0)
    S, trigger, phi2 = over_samples(world, batch_of_step(world, 1), run.N, tile, start)
    return attention_gradient(world, S @ Z_in + trigger * e.z_trig), phi2 / run.N.astype(f32)


def attention_gradient(world: World, keys_sum: Array, total: Array | None = None) -> Array:
    """w_hat from the sum over samples and positions of b^T (v - h) k; samples have weights that sum to `total`, N unless given."""
    run, e = world.run, world.e
    mean = keys_sum / (run.N.astype(f32) if total is None else total)
    w_hat = jnp.sum(e.z_eos * e.z_eos) * (mean / run.L.astype(f32))
    return jnp.where(run.L > 1, w_hat, f32(0))  # a lone token has all the attention: zero, not rounding


def step3(world: World, scores: Scores, residual_of: Residual, n: Array | None = None) -> tuple[Array, Array]:
    """G2 = 1/N sum_i Z_out^T (e_y - p_i) phi(h_i)^T, with the attention of w and the predictions of V1; mean |phi|^2.

    `residual_of` gives Z_out^T (e_y - p_i). With n, the first n samples alone are read.
    """
    run = world.run

    def tile(blocks: keys.Blocks, real: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        G, phi2 = carry
        x0 = task.tokens(blocks, 0, run.V)
        phi, _ = features(world, attend(world, blocks, x0, scores).h)
        return G + outer(only(real, residual_of(phi, at(world.perm, x0))), phi), phi2 + jnp.sum(only(real, phi * phi))

    G, phi2 = over_samples(world, batch_of_step(world, 2), run.N if n is None else n, tile, (zeros_dp(world), f32(0)))
    return G / run.N.astype(f32), phi2 / run.N.astype(f32)


def features(world: World, h: Array) -> tuple[Array, Array]:
    """phi (n, p), what V_mat reads, and act'(W_in h) / sqrt(m); zero on padded units."""
    return (h, h) if world.e.W_in is None else activations(world, h @ world.e.W_in.T)


def activations(world: World, u: Array) -> tuple[Array, Array]:
    """phi (n, m) and its slope from the hidden units u = W_in h (n, m); zero on padded units."""
    real = (jnp.arange(world.shape.m, dtype=i32) < world.run.m)[None]
    scale = jnp.where(real, lax.rsqrt(world.run.m.astype(f32)), f32(0))
    act = find_law("activation", world.shape.activation).with_traced(world.run.numbers)
    phi, slope = act.value_and_slope(u, jnp, jax.scipy.special.erf)
    return phi * scale, slope * scale


def residual(world: World, phi: Array, y: Array, answers: Array, table: Array) -> Array:
    """table^T (e_y - p), one row a sample: p the softmax of eta answers phi, with phi (n, k), answers (V, k), table (V, l)."""
    p = jax.nn.softmax(world.run.eta * (phi @ answers.T) + world.no_label[None], axis=1)
    return at(table, y) - p @ table
