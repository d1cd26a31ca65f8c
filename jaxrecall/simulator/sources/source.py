"""The interface by which training and metrics use a source of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from importlib import import_module
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ...model import keys
from ..arrays import f32, gather, i32, scatter_add
from ..forward import Attended, Scores, attend, label_of
from ..gradient import Gradient, Parameters, State
from ..loops import over_step
from ..world import World, n_of_step

TEST, TRAIN = range(2)
"""The two streams of sequences that are measured."""


class Reader(NamedTuple):
    """Two traced functions. Their arguments are a stream (TEST or TRAIN) and blocks of
    it.
    """

    informative: Callable[[Array, keys.Blocks], Array]
    """Returns the informative tokens (n,) int32."""
    attended: Callable[[Array, keys.Blocks], tuple[Array, Attended]]
    """Returns the informative tokens and the attention. The blocks must be
    successive.
    """


class Source(ABC):
    """A way of providing the samples of a run."""

    weighted_tokens = False
    """Whether samples are represented by weighted tokens, so that no step reads a
    sequence.
    """

    def prepare(self, world: World) -> World:
        """Returns the world with data that several steps of the recipe use."""
        return world

    @abstractmethod
    def gradient(self, world: World, state: State, name: str, step: int) -> Gradient:
        """The gradient by `name`, V_mat or w, over the samples of step 0, 1 or 2 of the
        recipe.
        """

    @abstractmethod
    def parts(self, world: World) -> Array:
        """For each token, the fraction of the samples of step 3 in which it is
        informative. Shape (V,).
        """

    @abstractmethod
    def gradient_of_step(
        self, world: World, state: State, wanted: Collection[str], step: Array
    ) -> Parameters:
        """The gradients by the parameters `wanted` over the samples of a further
        step.
        """

    @abstractmethod
    def parts_of_step(self, world: World, step: Array) -> Array:
        """Returns the same as `parts`, for the samples of a further step."""

    def work_of_step(self, world: World) -> Array:
        """The number of items that a further step reads. `may_group` compares it with
        V.
        """
        return n_of_step(world)

    @abstractmethod
    def reader(self, world: World, scores: Scores, unread: Array) -> Reader:
        """Returns a reader of sequences under the attention `scores`.

        If `unread` is true, no sequence will be read, so preparation is skipped.
        """

    @abstractmethod
    def losses(self, world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
        """Returns the mean loss of the samples, and that of the test sequences."""

    def last_position(self, world: World) -> Array:
        """The last position at which a token is drawn in every sample."""
        return world.run.L - 1


def find_source(world: World) -> Source:
    """Returns the source of samples of a run, which is the `SOURCE` of a module."""
    name = world.shape.trained_by.source
    return import_module(f"{__package__}.{name}").SOURCE


def make_reader(
    world: World,
    scores: Scores,
    informative: Callable[[Array, keys.Blocks], Array],
) -> Reader:
    """Returns a reader that computes attention from the tokens of each sequence."""

    def attended(which: Array, blocks: keys.Blocks) -> tuple[Array, Attended]:
        x0 = informative(which, blocks)
        return x0, attend(world, blocks, x0, scores)

    return Reader(informative, attended)


def labels(world: World, which: Array, blocks: keys.Blocks, x: Array) -> Array:
    """The labels (n,) of items x of set `which`. Labels of TRAIN may be noisy."""
    clean = gather(world.perm, x)
    if not world.shape.noisy:
        return clean
    return jnp.where(which == TRAIN, label_of(world, x, blocks), clean)


def counted_parts(
    world: World, step: Array, informative: Callable[[keys.Addresses], Array]
) -> Array:
    """For each token, the fraction of the samples of a further step in which it is
    informative. Shape (V,).

    `informative` returns the informative tokens of samples, which are counted one by
    one.
    """

    def tile(blocks: keys.Addresses, real: Array, counts: Array) -> Array:
        return scatter_add(counts, informative(blocks), real.astype(i32))

    counts = over_step(world, step, tile, jnp.zeros(world.shape.V, i32))
    return counts.astype(f32) / n_of_step(world).astype(f32)
