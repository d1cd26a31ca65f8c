"""From attention outputs to predictions: the MLP, and the slope of the loss by the logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..model.activations import Activation
from ..model.laws import find_law
from .loops import gather
from .world import World, f32, i32


def features(world: World, h: Array) -> tuple[Array, Array]:
    """phi (n, p), what V_mat reads, and act'(W_in h) / sqrt(m); zero on padded units. Without an MLP it is h, and one."""
    return (h, jnp.ones_like(h)) if world.e.W_in is None else activations(world, h @ world.e.W_in.T)


def activations(world: World, u: Array) -> tuple[Array, Array]:
    """phi (n, m) and its slope from the hidden units u = W_in h (n, m); zero on padded units."""
    phi, slope = activation(world).value_and_slope(u, jnp, jax.scipy.special.erf)
    scale = unit_scale(world)
    return phi * scale, slope * scale


def activation(world: World) -> Activation:
    """The activation of the MLP, with its parameters."""
    return find_law("activation", world.shape.activation).with_traced(world.run.numbers)


def unit_scale(world: World) -> Array:
    """(1, m): 1 / sqrt(m), zero on padded units."""
    real = (jnp.arange(world.shape.m, dtype=i32) < world.run.m)[None]
    return jnp.where(real, lax.rsqrt(world.run.m.astype(f32)), f32(0))


def probabilities(world: World, logits: Array) -> Array:
    """p (n, V), the softmax of logits (n, V) over the real labels."""
    return jax.nn.softmax(logits + world.no_label[None], axis=1)


def is_label(world: World, y: Array) -> Array:
    """(n, V) bool: where a label is y (n,)."""
    return y[:, None] == jnp.arange(world.shape.V, dtype=i32)[None]


def label_of(world: World, x: Array) -> Array:
    """(n,) int32: the label pi(x) of informative tokens x (n,)."""
    return gather(world.perm, x)
