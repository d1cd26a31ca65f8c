"""The model as functions, to be composed, differentiated and vmapped.

    V1 = V_mat - eta    grad_V loss(V_mat, W_KQ, batch 1)
    W1 = W_KQ  - gamma  grad_W loss(V1,    W_KQ, batch 2)
    V2 = V1    - gamma2 grad_V loss(V1,    W1,   batch 3)

Everything here is pure, and nothing is compiled: jit, vmap and grad are the caller's. A
`Point` is static; rates, draws and what is learned are arrays, in whose dtype all is
computed. `reference/steps.py` is an independent judge in NumPy, and `simulator/` takes
the same steps streamed and faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import PyTree

from ..errors import PointError, Problem, expect
from . import recall as model
from .point import Point, gamma_per_kappa
from .reference import steps
from .reference.realization import Realization, expect_both
from .reference.steps import ThreeStep
from .values import Numbers

if TYPE_CHECKING:
    import optax


Rate = float | Array
"""A number, or an array that JAX may trace."""


class Rates(NamedTuple):
    """The rates of the three steps: numbers, or arrays that JAX traces."""

    eta: Rate
    gamma: Rate
    gamma2: Rate


def rates(
    point: Point,
    *,
    eta: Rate | None = None,
    gamma: Rate | None = None,
    gamma2: Rate | None = None,
    kappa: Rate | None = None,
) -> Rates:
    """The rates of a point, or those that follow from others, which JAX may trace.

    They follow as in `Point.replace`: gamma = kappa L^2 V / eta unless gamma was given,
    here, or to the point while kappa is not given here. gamma2 = gamma unless gamma2
    was given. Numbers are not checked, as those of a point are.

        >>> jax.grad(lambda kappa: rates(point, kappa=kappa).gamma)(100.0)
        # L^2 V / eta
    """
    expect("point", point, Point, "a jaxrecall.Point", PointError)
    if not (kappa is None or gamma is None):
        raise PointError(
            [Problem("kappa", "got both kappa and gamma; give one, the other follows")]
        )
    given = point.given
    eta = point.eta if eta is None else eta
    if gamma is None and kappa is None:
        gamma = given.gamma
    if gamma is None:
        kappa = point.kappa if kappa is None else kappa
        scale: Rate = gamma_per_kappa(point.L, point.V, eta)
        gamma = kappa * scale
    if gamma2 is None:
        gamma2 = gamma if given.gamma2 is None else given.gamma2
    return Rates(eta, gamma, gamma2)


Loss = Callable[..., Array]


def recipe(
    loss: Loss,
    V_mat: PyTree,
    W_KQ: PyTree,
    batches: Sequence[PyTree],
    rates: Rates,
    chunk: int | None = None,
) -> tuple[PyTree, ...]:
    """The three steps over any loss of any parameters: V1, W1 and V2.

    Args:
        loss: a scalar function loss(V_mat, W_KQ, batch).
        V_mat, W_KQ: pytrees of arrays, where the steps start.
        batches: the data of each of the three steps, as `Realization.batches`: pytrees
            of arrays, samples first.
        rates: of the steps; cast to the dtype of what they scale.
        chunk: samples whose gradient is taken at a time, where the loss is a mean over
            samples. Memory, also that of a derivative of the whole, is then that of one
            chunk. None takes the batch at once, and allows any loss.

        >>> V1, W1, V2 = recipe(loss, V_mat, W_KQ, r.batches, rates(point))
    """

    def step(params: PyTree, rate: Rate, loss: Loss, batch: PyTree) -> PyTree:
        slopes = gradient(loss, params, batch, chunk)
        return jax.tree.map(
            lambda p, slope: p - jnp.asarray(rate, p.dtype) * slope, params, slopes
        )

    first, second, third = batches
    V1 = step(V_mat, rates.eta, lambda V, batch: loss(V, W_KQ, batch), first)
    W1 = step(W_KQ, rates.gamma, lambda W, batch: loss(V1, W, batch), second)
    V2 = step(V1, rates.gamma2, lambda V, batch: loss(V, W1, batch), third)
    return V1, W1, V2


def gradient(
    loss: Loss, params: PyTree, batch: PyTree, chunk: int | None = None
) -> PyTree:
    """The gradient of loss(params, batch) by `params`.

    With a chunk it is the sum over chunks, weighted by their numbers of samples.
    """
    n = len(jax.tree.leaves(batch)[0])
    if chunk is None or chunk >= n:
        return jax.grad(loss)(params, batch)

    # in a derivative, a chunk is computed again
    @partial(jax.checkpoint, static_argnums=2, prevent_cse=False)
    def add(total: PyTree, first: Array | int, size: int) -> PyTree:
        samples = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, first, size), batch
        )
        slopes = jax.grad(loss)(params, samples)
        return jax.tree.map(lambda sum, slope: sum + size / n * slope, total, slopes)

    starts = jnp.arange(n // chunk, dtype=jnp.int32) * chunk
    zeros, left = jax.tree.map(jnp.zeros_like, params), n % chunk
    total, _ = lax.scan(lambda sum, i: (add(sum, i, chunk), None), zeros, starts)
    return add(total, n - left, left) if left else total


def three_step(
    realization: Realization,
    point: Point,
    rates: Rates | None = None,
    chunk: int | None = 1024,
) -> ThreeStep:
    """What the three steps of the recipe learn from V_mat = 0, W_KQ = 0.

    Where draws or rates are arrays of JAX, `recipe` descends `jaxrecall.model.loss` in
    the dtype of the embeddings. Else the closed form of `reference/steps.py` is
    computed in NumPy and float64.

    Args:
        realization: the draws of `realize` or `draws`, or your own.
        rates: in place of the point's, as from `jaxrecall.rates`.
        chunk: samples that JAX takes at a time; None takes all at once.

    Examples:
        >>> from jaxrecall import Point, draws, rates, realize, three_step
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> V1, w, V2 = three_step(realize(point, seed=0), point)
        >>> key = jax.random.key(0)
        >>> def learned(kappa):
        ...     return three_step(draws(point, key), point, rates(point, kappa=kappa))
        >>> jax.vmap(learned)(jnp.array([20.0, 50.0])).V2
    """
    expect_both(realization, point)
    rates = Rates(point.eta, point.gamma, point.gamma2) if rates is None else rates
    expect("rates", rates, Rates, "what jaxrecall.rates returns", PointError)
    if not in_jax(realization, rates):
        return steps.three_step(realization, point, rates)
    e = realization.embeddings

    def loss(V_mat: Array, W_KQ: Array, batch: Sequence[Array]) -> Array:
        recall = model.Recall(V_mat, W_KQ, e, point.activation, point.trigger_in_value)
        return model.loss(recall, *batch)

    V0 = jnp.zeros((point.d, point.p), e.Z_in.dtype)
    W0 = jnp.zeros((point.d, point.d), e.Z_in.dtype)
    with jax.default_matmul_precision("highest"):
        V1, W1, V2 = recipe(loss, V0, W0, realization.batches, rates, chunk)
        return ThreeStep(V1, W1 @ e.z_eos, V2)


def in_jax(*trees: PyTree) -> bool:
    """Whether any leaf is an array of JAX, traced or not."""
    return any(isinstance(leaf, Array) for leaf in jax.tree.leaves(trees))


def predict(
    realization: Realization,
    point: Point,
    V_mat: Numbers,
    w: Numbers,
    tokens: Numbers,
    positions: Numbers,
) -> tuple[Numbers, Numbers]:
    """Logits (n, V) and attention (n, L) of a model on sequences.

    JAX computes them where draws or a model are its arrays, else NumPy in float64.

    Args:
        realization: the draws, of which the embeddings are used.
        V_mat, w: as in what `three_step` returns.
        tokens, positions: (n, L), and (n,) the places of the informative ones.

        >>> logits, attention = predict(r, point, learned.V2, learned.w, *r.test[:2])
    """
    expect_both(realization, point)
    if not in_jax(realization, V_mat, w):
        r = realization.astype(np.float64)
        h, attention = steps.attend(r, point, tokens, positions, w)
        return steps.features(r, point, h)[0] @ (r.Z_out @ V_mat).T, attention
    e = realization.embeddings
    with jax.default_matmul_precision("highest"):
        W_KQ = jnp.outer(w, e.z_eos) / (e.z_eos @ e.z_eos)
        recall = model.Recall(V_mat, W_KQ, e, point.activation, point.trigger_in_value)
        logits = jax.vmap(recall)(tokens, positions)
        return logits, jax.vmap(recall.attention)(tokens, positions)


def soft_accuracy(
    realization: Realization, point: Point, learned: ThreeStep, temperature: Rate = 0.1
) -> Array:
    """Test accuracy with a gradient, always in JAX.

    It is the mean over test sequences of softmax(logits / (temperature s)) at the
    label, with s the standard deviation of the logits of a sequence, so the scale of
    V_mat does not matter. It goes to `accuracy` as the temperature goes to 0.

        >>> def score(kappa):
        ...     learned = three_step(r, point, rates(point, kappa=kappa))
        ...     return soft_accuracy(r, point, learned)
        >>> jax.grad(score)(50.0)
    """
    expect_both(realization, point)
    tokens, positions, labels = realization.test
    V2 = learned.V2 / jnp.max(jnp.abs(learned.V2))
    logits, _ = predict(realization, point, V2, learned.w, tokens, positions)
    variance = jnp.var(logits, axis=1, keepdims=True)
    scale = temperature * jnp.sqrt(jnp.where(variance > 0, variance, 1))
    p = jax.nn.softmax(logits / scale)
    return jnp.mean(jnp.take_along_axis(p, labels[:, None], axis=1))


def train(
    loss: Loss,
    params: PyTree,
    batch_of: Callable[[Array], PyTree],
    optimizer: optax.GradientTransformation,
    steps: int | Array,
    record: Sequence[int] | Array = (),
) -> tuple[PyTree, PyTree]:
    """Descends any loss by any optimiser of optax.

    Args:
        loss: a scalar function loss(params, batch).
        params: a pytree of arrays, where it starts.
        batch_of: the batch of step t = 0, 1, ... is batch_of(t); t is traced.
        optimizer: an `optax.GradientTransformation`.
        steps: how many. JAX may trace it; then there are no derivatives of the whole.
        record: numbers of steps made, from 0 on, after which the parameters are kept.

    Returns:
        The parameters at the end, and the kept ones: the same pytree with a leading
        axis, one entry for each of `record`.

        >>> params, kept = train(loss, params, lambda t: batch, optax.adam(0.01),
            steps=100, record=[0, 100])
    """
    import optax

    marks = jnp.asarray(record, jnp.int32)

    def keep(kept: PyTree, params: PyTree, made: Array | int) -> PyTree:
        if not len(marks):
            return kept
        place = jnp.where(jnp.any(marks == made), jnp.argmax(marks == made), len(marks))
        return jax.tree.map(
            lambda all, one: all.at[place].set(one, mode="drop"), kept, params
        )

    @jax.checkpoint
    def step(t: Array, state: PyTree) -> PyTree:
        params, memory, kept = state
        slopes = jax.grad(loss)(params, batch_of(t))
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            updates, memory = optimizer.update(slopes, memory, params)
            params = optax.apply_updates(params, updates)
        return params, memory, keep(kept, params, t + 1)

    def space(p: Array) -> Array:
        return jnp.zeros((len(marks), *p.shape), p.dtype)

    kept = keep(jax.tree.map(space, params), params, 0)
    state = params, optimizer.init(params), kept
    params, _, kept = lax.fori_loop(0, steps, step, state)
    return params, kept
