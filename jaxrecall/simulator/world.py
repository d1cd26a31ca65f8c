"""The frozen part of one run, and what training makes of it: float32, padded to a shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Int32, Shaped, UInt32

from ..model import embeddings, task
from ..model.embeddings import Embeddings
from ..model.keys import Addresses
from ..model.laws import find_law
from .shape import Shape

f32, i32 = jnp.float32, jnp.int32


class TokenLaws(eqx.Module):
    """The laws of the tokens of a run: of the informative ones and, where it is another one, of the noise."""

    tables: UInt32[Any, "*runs laws 2 V"]
    """`laws.tokens.alias_table` of each."""
    shares: Float32[Any, "*runs laws V"]
    """Probabilities."""
    groups: Int32[Any, "*runs 2 V"]
    """1 for informative tokens of the rarer half, and of the most frequent tenth: `laws.tokens.rare_and_frequent`."""


class Arguments(eqx.Module):
    """One run as the arguments of a program, every one traced: keys, and numbers by name.

    The numbers are the fields of the point that are sizes or traced (int32 and bool; a name as its place among the choices of
    its field), and products and ratios of the rates (float32):

        eta,   gamma_eta = gamma eta,   mix1 = eta / max(eta, gamma2),   mix2 = gamma2 / max(eta, gamma2),   samples = N,
        scale = max(eta, gamma2),   lr,   lr_attention

    and, for a point with a pool, how many pairs of a token and a noise sequence, tokens of a noise sequence and noise tokens of a
    test sequence are drawn one by one (int32; -1: their counts are from the Gaussian limit): drawn_samples, drawn_noise,
    drawn_test. N is at most 2^31 - 1 among the integers.
    """

    streams: UInt32[Any, "*runs 10 2"]
    """Keys of the named streams."""
    batches: UInt32[Any, "*runs 3 2"]
    """Keys of the samples of the three gradient steps."""
    numbers: dict[str, Shaped[Any, "*runs"]]
    token_laws: TokenLaws | None = None
    """None if all tokens are uniform."""

    given: dict[str, Float32[Any, "*runs V d"]] = eqx.field(default_factory=dict)
    """Tables of embeddings that were made on the host, by stream: `embeddings.on_host`."""

    def __getattr__(self, name: str) -> Any:
        if name in _RECORDED or name not in self.numbers:
            raise AttributeError(f"{name}: is no argument of a program")
        return self.numbers[name]

    def replace(self, **numbers: Any) -> Arguments:
        """A copy with other numbers."""
        return replace(self, numbers={**self.numbers, **numbers})


_RECORDED = frozenset({"streams", "batches", "numbers", "token_laws", "given"})  # missing while JAX puts one together


class Pools(eqx.Module):
    """The samples of the three gradient steps of a point with a pool; those of later steps are unused unless batches are fresh."""

    noise: Float32[Array, "3 K V"]
    """How often each token occurs in each sequence of the pool."""
    excess: Float32[Array, "3 V K"]
    """The part of the samples that have informative token x and noise sequence k, less its mean 1 / (V K)."""


class NoiseTokens(eqx.Module):
    """Noise tokens of the samples of a run, drawn once and read in many steps."""

    tokens: Int32[Array, " STORED_TOKENS"]
    """In the order in which `loops.over_positions` reads them."""
    complete: Bool[Array, ""]
    """Whether all are here; else they are drawn whenever they are needed."""


class World(eqx.Module):
    """The drawn but untrained part of a run: embeddings, permutation, and the mask of the padding."""

    run: Arguments
    e: Embeddings
    perm: Int32[Array, " V"]
    no_label: Float32[Array, " V"]
    """0 on labels, -inf on padding."""
    shape: Shape = eqx.field(static=True)
    pools: Pools | None = None
    noise_tokens: NoiseTokens | None = None
    vmapped: bool = eqx.field(static=True, default=False)
    """Whether runs are mapped along the axis `loops.RUNS`, as on an accelerator, and not one after the other."""

    def tokens(self, blocks: Addresses, position: Array | int) -> Array:
        """(..., 512 * count) int32: tokens at each `position` of the samples of `blocks`, by the law of the run; 0 is informative."""
        return task.tokens(blocks, position, self.run.V, self.run.token_laws and self.run.token_laws.tables)


class Trained(eqx.Module):
    """A trained model, which is what metrics read: V_mat and w = W_KQ z_eos, float32.

    Rates are factored out, so nothing here is as small as eta or as large as gamma.
    """

    V1: Float32[Array, "d p"]
    """V_mat after step 1, up to a positive factor."""
    w: Float32[Array, " d"]
    """Up to the factor `rate`."""
    rate: Float32[Array, ""]
    V2: Float32[Array, "d p"]
    """V_mat at the end, up to a positive factor."""
    errors: tuple[Float32[Array, ""], Float32[Array, ""]] | None = None
    """Bounds on the relative error of the residuals of steps 2 and 3; None if the form is exact."""
    locked: Bool[Array, ""] | None = None
    """Whether attention rests on the informative token to rounding; None if that was not asked."""


def draw(run: Arguments, shape: Shape, vmapped: bool = False) -> World:
    """The frozen part of the run."""
    laws = [find_law("embedding", text).with_traced(run.numbers, name) for name, text in shape.embedding_laws.items()]
    own = (laws[0], laws[-1]) if laws else None
    e = embeddings.draw(run.streams, run.embedding, run.V, run.d, run.m, (shape.V, shape.d, shape.m), own, run.given)
    no_label = jnp.where(jnp.arange(shape.V, dtype=i32) < run.V, f32(0), f32(-jnp.inf))
    return World(run, e, task.permutation(run.streams, run.V, shape.V), no_label, shape, vmapped=vmapped)


def trained(world: World, G1: Array, w_hat: Array, G2: Array, errors: Any = None, locked: Any = None) -> Trained:
    """The model after three steps, V1 = eta G1, w = gamma eta w_hat, V2 = eta G1 + gamma2 G2.

    V2 is kept up to a positive factor, which changes no prediction.
    """
    run = world.run
    return Trained(G1, w_hat, run.gamma_eta, run.mix1 * G1 + run.mix2 * G2, errors, locked)


def batch_of_step(world: World, step: int | Array) -> Array:
    """Stream of the samples of gradient step 0, 1 or 2."""
    return world.run.batches[step]


def centred(world: World, table: Array) -> Array:
    """`table` (V, n) less its mean row; padded rows stay zero."""
    mean = jnp.sum(table, axis=0) / world.run.V.astype(f32)
    return jnp.where((world.no_label == 0)[:, None], table - mean[None], f32(0))


def token_shares(world: World) -> tuple[Array, Array]:
    """(V,) each: the probability of every informative token, and of every noise token."""
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
