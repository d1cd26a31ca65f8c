"""What a source of samples does for training and metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from importlib import import_module
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ...model import keys
from ..arrays import f32, i32, scatter_add
from ..forward import Attended, Scores, label_of
from ..gradient import Gradient, Parameters, State
from ..loops import over_step
from ..world import Trained, World, n_of_step

TEST, TRAIN = range(2)
"""The two streams of sequences that are measured."""


class Reader(NamedTuple):
    """Two functions of TEST or TRAIN, traced, and blocks of its stream."""

    informative: Callable[[Array, keys.Blocks], Array]
    """Informative tokens (n,) int32."""
    attended: Callable[[Array, keys.Blocks], tuple[Array, Attended]]
    """The same, with attention; of a single block."""


class Source(ABC):
    """A way of having the samples of a run."""

    weighted_tokens = False
    """Whether samples are tokens with weights, so that no step reads a sequence."""

    def prepare(self, world: World) -> World:
        """The world with what several steps read."""
        return world

    @abstractmethod
    def gradient(self, world: World, state: State, name: str, step: int) -> Gradient:
        """The gradient by V_mat or w of the samples of step 0, 1 or 2 of the recipe."""

    @abstractmethod
    def parts(self, world: World) -> Array:
        """(V,): the part of the samples of step 3 that has each informative token."""

    def prepare_descent(self, world: World) -> World:
        """The world with what many further steps read."""
        return world

    @abstractmethod
    def gradient_of_step(
        self, world: World, state: State, wanted: Collection[str], step: Array
    ) -> Parameters:
        """The gradient by `wanted` of the samples of a further step."""

    @abstractmethod
    def parts_of_step(self, world: World, step: Array) -> Array:
        """(V,): the same as `parts`, of the samples of a further step."""

    def work_of_step(self, world: World) -> Array:
        """How many items a further step goes through, to be compared with V tokens."""
        return n_of_step(world)

    def without_sequences(self, trained: Trained) -> Array:
        """Whether metrics follow from informative tokens, and no sequence is read."""
        if trained.locked is None:
            return jnp.bool_(self.weighted_tokens)
        return trained.locked

    @abstractmethod
    def reader(self, world: World, scores: Scores, unread: Array) -> Reader:
        """Of the sequences of a run under learned attention.

        Where none is to be read, `unread` saves what prepares it.
        """

    @abstractmethod
    def losses(self, world: World, V_mat: Array, w: Array) -> tuple[Array, Array]:
        """The loss of the samples, and that of the test sequences."""

    def last_position(self, world: World) -> Array:
        """A position whose token is drawn in every sample, as far back as there is."""
        return world.run.L - 1


def source_of(world: World) -> Source:
    """The source of the samples of a run: `SOURCE` of the module of that name."""
    name = world.shape.trained_by.source
    return import_module(f"{__package__}.{name}").SOURCE


def labels(world: World, which: Array, blocks: keys.Blocks, x: Array) -> Array:
    """(n,): the labels of items x of set `which`; those of TRAIN may be noisy."""
    clean = label_of(world, x)
    if not world.shape.noisy:
        return clean
    return jnp.where(which == TRAIN, label_of(world, x, blocks), clean)


def counted_parts(
    world: World, step: Array, informative: Callable[[keys.Addresses], Array]
) -> Array:
    """(V,): the part of the samples of a further step with each informative token.

    `informative` gives the tokens of samples, which are counted one by one.
    """

    def tile(blocks: keys.Addresses, real: Array, counts: Array) -> Array:
        return scatter_add(counts, informative(blocks), real.astype(i32))

    counts = over_step(world, step, tile, jnp.zeros(world.shape.V, i32))
    return counts.astype(f32) / n_of_step(world).astype(f32)
