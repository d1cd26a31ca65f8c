"""Reads samples as they are drawn, a tile at a time, so memory does not grow with N or
L.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from ...model import keys
from ..arrays import f32, i32
from ..forward import Scores, scores_under, with_mean_values
from ..gradient import (
    Gradient,
    Parameters,
    State,
    StepSamples,
    through_labels,
    through_outputs,
)
from ..loops import over_samples, over_step, token_counts
from ..losses import mean_loss
from ..world import World, batch_of_step, n_of_step
from .source import TEST, TRAIN, Reader, Source, counted_parts, make_reader


class Stream(Source):
    """The source that reads every sample as it is drawn."""

    def gradient(self, world: World, state: State, name: str, step: int) -> Gradient:
        n = world.run.N
        fold = partial(over_samples, world, batch_of_step(world, step), n)
        samples = StepSamples(n, fold)
        if state.even:
            return through_labels(world, state, name, samples)
        return Gradient(through_outputs(world, state, [name], samples)[name])

    def prepare(self, world: World) -> World:
        return with_mean_values(world)

    def parts(self, world: World) -> Array:
        counts = token_counts(world, batch_of_step(world, 2), world.run.N)
        return counts.astype(f32) / world.run.N.astype(f32)

    def gradient_of_step(
        self, world: World, state: State, wanted: Collection[str], step: Array
    ) -> Parameters:
        batch = StepSamples(n_of_step(world), partial(over_step, world, step))
        return through_outputs(world, state, wanted, batch)

    def parts_of_step(self, world: World, step: Array) -> Array:
        return counted_parts(world, step, lambda blocks: world.tokens(blocks, 0))

    def reader(self, world: World, scores: Scores, unread: Array) -> Reader:
        return make_reader(world, scores, lambda _, blocks: world.tokens(blocks, 0))

    def losses(self, world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
        run = world.run
        read = self.reader(world, scores_under(world, w), jnp.bool_(False))
        test, train = keys.stream(run.streams, "test"), batch_of_step(world, 2)
        which = jnp.array([TRAIN, TEST], i32)
        sets = which, jnp.stack([train, test]), jnp.stack([run.N, run.n_test])
        # mapped over both sets, so that the function compiles only once
        of_both = lax.map(lambda one: mean_loss(world, read, V_mat, *one), sets)
        return of_both[0], of_both[1]


SOURCE = Stream()
