"""Bounds on the error of even predictions, which are p = 1/V instead of the softmax.

In step 1, p = 1/V is exact, because V_mat is 0. In step 2, and in step 3 if attention
is not locked, it is an approximation. It is accurate because the logits of V1 are
small, of order eta / (L V). With this approximation, no sample needs V logits. The
bounds are ours.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from .arrays import f32, gather, norm
from .forms import within_tolerance
from .world import World, centred, token_shares


def softmax_errors(
    world: World, G1: Array, A: Array, phi2_step2: Array, phi2_step3: Array
) -> tuple[Array, Array]:
    """Bounds on the relative error of even predictions in steps 2 and 3.

    The errors are |A^T (p - 1/V)| in step 2 and |T^T (p - 1/V)| in step 3. Here A (V,
    p) is Z_out G1 and T (V, d) is Z_out, both centred. Each bound applies to the mean
    error over samples, divided by the r.m.s. norm of A[y] or T[y]. In the r.m.s., each
    label y has the probability of its token. The arguments `phi2_*` are the means of
    |phi|^2 over samples.

    Let x be the centred logits eta A phi. Then |x| <= B = eta max|A_u| |phi|, and each
    p_u is within B^2 / V of (1 + x_u) / V. The linear part x_u / V changes A^T p by eta
    / V A^T A phi, and T^T p by eta / V T^T A phi. By the Cauchy-Schwarz inequality, the
    remaining part changes A^T p by at most B^2 times the r.m.s. norm of A[y] over
    equally likely labels y. The factor 2 in the code allows for labels that are not
    equally likely.

    A Frobenius norm bounds an eigenvalue more loosely than `radius_bound` at a
    fraction of the cost. If the errors are within the tolerance by this norm, they are
    returned as they are.
    """
    V, eta, T = world.run.V.astype(f32), world.run.eta, centred(world, world.e.Z_out)
    # the smaller matrix has the same eigenvalues, except for zeros
    if world.shape.V < world.shape.d:
        AA = A @ A.T
        TA = T @ T.T @ AA
    else:
        # GG gram has the eigenvalues of A^T A, and gram GG gram is T^T A (T^T A)^T
        gram, GG = T.T @ T, G1 @ G1.T
        AA = GG @ gram
        TA = gram @ AA
    largest_A2 = jnp.max(jnp.sum(A * A, axis=1))

    def rates(table: Array, phi2: Array) -> tuple[Array, Array]:
        norms2 = gather(jnp.sum(table * table, axis=1), world.perm)
        rms = jnp.sqrt(norms2 @ token_shares(world)[0])
        return eta / V * jnp.sqrt(phi2) / rms, 2 * eta**2 * largest_A2 * phi2

    (by_AA, rest_AA), (by_TA, rest_TA) = rates(A, phi2_step2), rates(T, phi2_step3)

    def errors(of_AA: Array, of_TA: Array) -> tuple[Array, Array]:
        return by_AA * of_AA + rest_AA, by_TA * jnp.sqrt(of_TA) + rest_TA

    if world.vmapped:  # both branches would be computed
        return errors(*jax.vmap(radius_bound)(jnp.stack([AA, TA])))
    norms = norm(AA), norm(TA)
    radii = lax.cond(
        within_tolerance(errors(*norms)),
        lambda: norms,
        lambda: (radius_bound(AA), radius_bound(TA)),
    )
    return errors(*radii)


def radius_bound(M: Array) -> Array:
    """The upper bound |M^16|_F^(1/16) on the largest absolute eigenvalue of M (n, n).

    No eigenvalue of M^16 exceeds its Frobenius norm.

    The bounds above use two facts. |A^T A phi| is at most |phi| times the largest
    eigenvalue of A^T A. |T^T A phi| is at most |phi| times the square root of the
    largest eigenvalue of T^T A (T^T A)^T. X Y and Y X have the same eigenvalues except
    for zeros. So M may be the smaller of the two products, although it is not
    symmetric.
    """
    scale = norm(M)
    # without the loop, all products but the first take ten times as long on a CPU (jax
    # 0.10.2)
    P = lax.fori_loop(0, 4, lambda _, P: P @ P, M / scale)
    return scale * jnp.sum(P * P) ** f32(1 / 32)
