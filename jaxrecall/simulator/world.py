"""The data of one run on the device: the random draws, and the trained model.

All arrays are float32, 32-bit integers or bool, and are padded to the shape of the
program.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.tree_util import register_dataclass
from jaxtyping import Bool, Float32, Int32, UInt16

from ..model import keys, task
from ..model.columns import Learned
from ..model.task import Embeddings
from .arguments import Arguments
from .arrays import f32, i32
from .program_shape import Shape

STATIC = {"static": True}
"""The metadata of a field that is no array, but determines the code of a program."""


class Pools(NamedTuple):
    """The samples of the three gradient steps of a point with a pool.

    If batches are not fresh, only the entries of the first step are used.
    """

    noise: Float32[Array, "3 K V"]
    """The number of times that each token occurs in each sequence of the pool."""
    deviations: Float32[Array, "3 V K"]
    """The fraction of samples with the informative token x and the noise sequence k,
    minus the mean fraction 1 / (V K).
    """


class StepCounts(NamedTuple):
    """The quantities that steps 1 and 2 need from their samples when the samples are
    represented by counts.
    """

    step1: Float32[Array, "d d"]
    """The gradient by V_mat in step 1."""
    step2: Int32[Array, "V V"]
    """The number of times that token u occurs in samples with the informative token x,
    at index [x, u]. The samples are those of step 2.
    """


class StoredTokens(NamedTuple):
    """The tokens of the first batch of samples. They are drawn once and read in many
    loops.

    Each tile of samples has `n_rows` rows. Row 0 belongs to the informative tokens. If
    sequences are longer than the vocabulary, row v + 1 contains the number of noise
    tokens of each sample that equal v. Otherwise row j contains the tokens at position
    j.
    """

    tokens: UInt16[Array, " tokens"]
    """The rows, sorted by tile of samples, then by row, then by sample."""
    n_rows: Int32[Array, ""]
    complete: Bool[Array, ""]
    """Whether all samples are stored. If not, tokens are drawn whenever they are
    needed.
    """


class MeanValues(NamedTuple):
    """The attention outputs of a run's samples under uniform attention. They are
    computed once and read in many first steps.
    """

    h: Float32[Array, "rows d"]
    complete: Bool[Array, ""]
    """Whether all samples are stored. If not, h is computed whenever it is needed."""


@register_dataclass
@dataclass(frozen=True)
class World:
    """A run before training: its arguments and its random draws."""

    run: Arguments
    e: Embeddings
    perm: Int32[Array, " V"]
    no_label: Float32[Array, " V"]
    """0 for each label, and -inf for padding."""
    shape: Shape = field(metadata=STATIC)
    pools: Pools | None = None
    counts: StepCounts | None = None
    stored_tokens: StoredTokens | None = None
    mean_values: MeanValues | None = None
    vmapped: bool = field(default=False, metadata=STATIC)
    """Whether runs are vmapped along the axis `loops.RUNS`, as on an accelerator."""

    def law(self, name: str) -> Any:
        """The law of the field `name`, activation or optimizer, with the parameters of
        the run.
        """
        return self.shape.laws[name].with_traced(self.run.parameters)

    def tokens(self, blocks: keys.Addresses, position: Array | int) -> Array:
        """The tokens of samples at each `position`, as an int32 array (..., 512 *
        count).

        The informative token is at position 0. The tokens follow the laws of the run.
        """
        laws = self.run.token_laws
        return task.tokens(blocks, position, self.run.V, laws and laws.tables)


@register_dataclass
@dataclass(frozen=True)
class Trained:
    """A trained model: V_mat and w = W_KQ z_eos in float32, each divided by a positive
    scale factor.

    The factors contain the learning rates, so no other number is as small as eta or as
    large as gamma. Of all metrics, only the size of attention logits depends on the
    factors.
    """

    V1: Float32[Array, "d p"]
    """V_mat after step 1, divided by `V1_scale`."""
    w: Float32[Array, " d"]
    """w at the end, divided by `w_scale`."""
    V2: Float32[Array, "d p"]
    """V_mat at the end, divided by `V2_scale`."""
    V1_scale: Float32[Array, ""]
    w_scale: Float32[Array, ""]
    V2_scale: Float32[Array, ""]
    errors: tuple[Float32[Array, ""], Float32[Array, ""]] | None = None
    """Bounds on the relative errors of the residuals in step 2 and in step 3. None if
    the form is exact.
    """
    locked: Bool[Array, ""] | None = None
    """Whether attention to all tokens but the informative one is below rounding. None
    if this was not determined.
    """

    def learned(self) -> Learned:
        """Returns the model multiplied by its scale factors."""
        return Learned(
            self.V1_scale * self.V1, self.w_scale * self.w, self.V2_scale * self.V2
        )


def draw(run: Arguments, shape: Shape, vmapped: bool = False) -> World:
    """Draws the embeddings and the permutation of a run, and returns its untrained
    world.
    """
    laws = []
    for name, law in shape.laws.items():
        if name.startswith("embedding"):
            laws.append(law.with_traced(run.parameters, name))
    e = task.draw_embeddings(
        run.streams,
        (laws[0], laws[-1]),
        run.V,
        run.d,
        run.m,
        (shape.V, shape.d, shape.m),
        run.given,
    )
    perm = task.permutation(run.streams, run.V, shape.V)
    no_label = jnp.where(jnp.arange(shape.V, dtype=i32) < run.V, f32(0), f32(-jnp.inf))
    return World(run, e, perm, no_label, shape, vmapped=vmapped)


def batch_of_step(world: World, step: int | Array) -> Array:
    """The key of the stream of samples that gradient step 0, 1 or 2 reads."""
    return world.run.batches[step]


def reading(world: World, stream: Array) -> World:
    """Returns the world whose three steps read the samples of the key `stream`."""
    batches = jnp.broadcast_to(stream, (3, 2))
    return replace(world, run=replace(world.run, batches=batches))


def stream_of_step(world: World, step: Array) -> Array:
    """The key of the stream of samples that further step `step` reads, or from which it
    draws a batch.
    """
    stream = keys.fold(keys.stream(world.run.streams, "train"), step.astype(jnp.uint32))
    return jnp.where(world.run.fresh_batches, stream, world.run.batches[0])


def n_of_step(world: World) -> Array:
    """The number of samples that a further step reads."""
    return world.run.batch if world.shape.batched else world.run.N


def centred(world: World, table: Array) -> Array:
    """`table` (V, n) minus its mean row; padded rows stay zero."""
    mean = jnp.sum(table, axis=0) / world.run.V.astype(f32)
    return jnp.where((world.no_label == 0)[:, None], table - mean[None], f32(0))


def token_shares(world: World) -> tuple[Array, Array]:
    """Returns two arrays (V,): the probability that each token is drawn as informative
    token, and as noise token.
    """
    if laws := world.run.token_laws:
        return laws.shares[0], laws.shares[-1]
    even = jnp.where(world.no_label == 0, 1 / world.run.V.astype(f32), f32(0))
    return even, even


def values(world: World) -> Array:
    """The value vector of each token when it is the informative one, as an array (V,
    d).
    """
    return world.e.Z_in + in_value(world) * world.e.z_trig[None]


def zeros_dp(world: World) -> Array:
    return jnp.zeros((world.shape.d, world.shape.m or world.shape.d), f32)


def in_value(world: World) -> Array:
    return world.run.trigger_in_value.astype(f32)
