"""Represents samples at L = 1 by weighted tokens, as each sample is a single
informative token.
"""

from __future__ import annotations

from collections.abc import Collection

import jax.numpy as jnp
from jax import Array, lax

from ...model import keys
from ..arrays import f32
from ..forward import Scores
from ..gradient import Gradient, Parameters, State, over_tokens
from ..loops import token_counts
from ..losses import losses_of_tokens
from ..world import World, batch_of_step, stream_of_step, token_shares
from .gaussian_counts import first_above, shares_of_draws
from .source import TRAIN, Reader, Source, counted_parts, make_reader


class Memory(Source):
    """The source that weights each token by the fraction of samples that equal it."""

    weighted_tokens = True

    def gradient(self, world: World, state: State, name: str, step: int) -> Gradient:
        weights = token_parts(world, batch_of_step(world, step))
        return Gradient(over_tokens(world, state, [name], weights)[name])

    def parts(self, world: World) -> Array:
        return token_parts(world, batch_of_step(world, 2))

    def gradient_of_step(
        self, world: World, state: State, wanted: Collection[str], step: Array
    ) -> Parameters:
        return over_tokens(world, state, wanted, self.parts_of_step(world, step))

    def parts_of_step(self, world: World, step: Array) -> Array:
        stream = stream_of_step(world, step)
        if not world.shape.batched:
            return token_parts(world, stream)

        return counted_parts(
            world, step, lambda blocks: drawn_tokens(world, stream, blocks)
        )

    def reader(self, world: World, scores: Scores, unread: Array) -> Reader:
        of_step = batch_of_step(world, 2)

        def informative(which: Array, blocks: keys.Blocks) -> Array:
            return lax.cond(
                which == TRAIN,
                lambda: drawn_tokens(world, of_step, blocks),
                lambda: world.tokens(blocks, 0),
            )

        return make_reader(world, scores, informative)

    def losses(self, world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
        n_test = world.run.n_test
        test = token_counts(world, keys.stream(world.run.streams, "test"), n_test)
        test_parts = test.astype(f32) / n_test.astype(f32)
        weights = jnp.stack([self.parts(world), test_parts])
        of_both = losses_of_tokens(world, V_mat, weights)
        return of_both[0], of_both[1]


SOURCE = Memory()


def token_parts(world: World, key: Array) -> Array:
    """For N samples of one token each, the fraction of samples that equal each token.
    Shape (V,).
    """
    run = world.run

    drawn = run.drawn_samples
    return drawn.choose(
        lambda: parts_in_the_limit(world, key),
        lambda: token_counts(world, key, drawn.n).astype(f32) / run.samples,
    )


def parts_in_the_limit(world: World, key: Array) -> Array:
    """Returns the same as `token_parts`, computed from Gaussian counts."""
    g = keys.normals(keys.further(key, keys.PAIR_COUNTS)[None], world.shape.V)[0]
    return shares_of_draws(g, token_shares(world)[0], world.run.samples, (0,))


def drawn_tokens(world: World, key: Array, blocks: keys.Addresses) -> Array:
    """The tokens at the addresses `blocks` in a stream of samples of one token each.

    If counts are Gaussian, tokens are drawn with probabilities proportional to the
    counts.
    """

    def by_counts() -> Array:
        cumulated = jnp.cumsum(parts_in_the_limit(world, key))
        u = keys.words(blocks, 0).astype(f32) * f32(2**-32)
        return first_above(cumulated[None], u)

    return world.run.drawn_samples.choose(by_counts, lambda: world.tokens(blocks, 0))
