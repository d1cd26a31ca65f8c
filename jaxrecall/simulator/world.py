"""What one run has on the device: what it draws, and what training makes of it.

All is float32, padded to the shape of the program.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Int32

from ..model import keys, task
from ..model.columns import Learned
from ..model.task import Embeddings
from .arguments import Arguments
from .arrays import f32, i32
from .program_shape import Shape


class Pools(eqx.Module):
    """The samples of the three gradient steps of a point with a pool.

    Those of later steps are unused unless batches are fresh.
    """

    noise: Float32[Array, "3 K V"]
    """How often each token occurs in each sequence of the pool."""
    deviations: Float32[Array, "3 V K"]
    """The part of the samples that have informative token x and noise sequence k, less
    its mean 1 / (V K).
    """


class NoiseTokens(eqx.Module):
    """Noise tokens of the samples of a run, drawn once and read in many steps."""

    tokens: Int32[Array, " STORED_TOKENS"]
    """In the order in which `loops.over_positions` reads them."""
    complete: Bool[Array, ""]
    """Whether all are here; else they are drawn whenever they are needed."""


class World(eqx.Module):
    """The drawn but untrained part of a run."""

    run: Arguments
    e: Embeddings
    perm: Int32[Array, " V"]
    no_label: Float32[Array, " V"]
    """0 on labels, -inf on padding."""
    shape: Shape = eqx.field(static=True)
    pools: Pools | None = None
    counts: Int32[Array, "2 V V"] | None = None
    """How often tokens meet in the samples of steps 1 and 2: `sources.counts`."""
    noise_tokens: NoiseTokens | None = None
    vmapped: bool = eqx.field(static=True, default=False)
    """Whether runs are mapped along the axis `loops.RUNS`,
    as on an accelerator, and not one after the other.
    """

    def law(self, name: str) -> Any:
        """The activation or the optimizer, with the parameters of the run."""
        return self.shape.laws[name].with_traced(self.run.parameters)

    def tokens(self, blocks: keys.Addresses, position: Array | int) -> Array:
        """(..., 512 * count) int32: tokens at each `position` of samples.

        Position 0 has the informative token. They are drawn by the law of the run.
        """
        laws = self.run.token_laws
        return task.tokens(blocks, position, self.run.V, laws and laws.tables)


class Trained(eqx.Module):
    """A trained model: V_mat and w = W_KQ z_eos, float32, each over a positive factor.

    The rates are in the factors, so nothing else is as small as eta or as large as
    gamma. Metrics do not depend on them but for the size of attention logits.
    """

    V1: Float32[Array, "d p"]
    """V_mat after step 1, over `V1_scale`."""
    w: Float32[Array, " d"]
    """Over `w_scale`."""
    V2: Float32[Array, "d p"]
    """V_mat at the end, over `V2_scale`."""
    V1_scale: Float32[Array, ""]
    w_scale: Float32[Array, ""]
    V2_scale: Float32[Array, ""]
    errors: tuple[Float32[Array, ""], Float32[Array, ""]] | None = None
    """Bounds on the relative error of the residuals of steps 2 and 3; None if the form
    is exact.
    """
    locked: Bool[Array, ""] | None = None
    """Whether attention rests on the informative token to rounding; None if that was
    not asked.
    """

    def learned(self) -> Learned:
        """The model at its true scale."""
        return Learned(
            self.V1_scale * self.V1, self.w_scale * self.w, self.V2_scale * self.V2
        )


def draw(run: Arguments, shape: Shape, vmapped: bool = False) -> World:
    """The frozen part of the run."""
    laws = []
    for name, law in shape.laws.items():
        if name.startswith("embedding"):
            laws.append(law.with_traced(run.parameters, name))
    e = task.draw_embeddings(
        run.streams,
        run.embedding,
        run.V,
        run.d,
        run.m,
        (shape.V, shape.d, shape.m),
        (laws[0], laws[-1]) if laws else None,
        run.given,
    )
    perm = task.permutation(run.streams, run.V, shape.V)
    no_label = jnp.where(jnp.arange(shape.V, dtype=i32) < run.V, f32(0), f32(-jnp.inf))
    return World(run, e, perm, no_label, shape, vmapped=vmapped)


def batch_of_step(world: World, step: int | Array) -> Array:
    """Stream of the samples of gradient step 0, 1 or 2."""
    return world.run.batches[step]


def stream_of_step(world: World, step: Array) -> Array:
    """Stream of the samples that further step `step` reads, or draws its batch from."""
    stream = keys.fold(keys.stream(world.run.streams, "train"), step.astype(jnp.uint32))
    return jnp.where(world.run.fresh_batches, stream, world.run.batches[0])


def n_of_step(world: World) -> Array:
    """How many samples a further step reads."""
    return world.run.batch if world.shape.batched else world.run.N


def centred(world: World, table: Array) -> Array:
    """`table` (V, n) less its mean row; padded rows stay zero."""
    mean = jnp.sum(table, axis=0) / world.run.V.astype(f32)
    return jnp.where((world.no_label == 0)[:, None], table - mean[None], f32(0))


def token_shares(world: World) -> tuple[Array, Array]:
    """(V,) each: the probabilities of informative tokens, and of noise tokens."""
    if laws := world.run.token_laws:
        return laws.shares[0], laws.shares[-1]
    even = jnp.where(world.no_label == 0, 1 / world.run.V.astype(f32), f32(0))
    return even, even


def values(world: World) -> Array:
    """(V, d): the value of each token as the informative one."""
    return world.e.Z_in + in_value(world) * world.e.z_trig[None]


def zeros_dp(world: World) -> Array:
    return jnp.zeros((world.shape.d, world.shape.m or world.shape.d), f32)


def in_value(world: World) -> Array:
    return world.run.trigger_in_value.astype(f32)
