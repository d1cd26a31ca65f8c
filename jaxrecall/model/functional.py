"""Functions of the model that can be composed, differentiated and vmapped.

    V1 = V_mat - eta    grad_V loss(V_mat, W_KQ, batch 1)
    W1 = W_KQ  - gamma  grad_W loss(V1,    W_KQ, batch 2)
    V2 = V1    - gamma2 grad_V loss(V1,    W1,   batch 3)

The first line may be repeated. Rates and seeds vary by vmap, and shapes by
`jaxrecall.run`. All functions here are pure. A `Point` is a static argument. Rates,
draws and learned parameters are arrays, and their dtype determines that of the
computation. `reference/steps.py` is an independent NumPy implementation for comparison.
`simulator/` computes the same steps faster, with streamed samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import PyTree

from ..errors import PointError, Problem, expect
from . import recall as model
from .point import Point, gamma_per_kappa
from .recall import Attend, Readout, plain_readout, softmax_attention
from .reference import steps
from .reference.realization import Realization, expect_both, expect_point
from .reference.steps import ThreeStep
from .source import by_source
from .values import Numbers

if TYPE_CHECKING:
    import optax


Rate = float | Array
"""A number, or an array that JAX may trace."""


class Rates(NamedTuple):
    """The rates of the three steps: numbers, or arrays that JAX may trace."""

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
    """Returns the rates of a point. Rates that are given here replace those of the
    point, and JAX may trace them.

    Rates that are not given are derived as in `Point.replace`. If gamma is given here,
    it is used. If kappa is given here, gamma = kappa L^2 V / (eta first_steps).
    Otherwise, if gamma was given to the point, it is used. If not, gamma follows from
    the point's kappa by the same formula. gamma2 = gamma unless gamma2 was given.
    Numbers are checked like the fields of a point. Arrays are not, since JAX may trace
    them.

    Raises PointError if a number is not allowed, or if kappa and gamma are given.

        >>> jax.grad(lambda kappa: rates(point, kappa=kappa).gamma)(100.0)  # L^2 V/eta
    """
    expect_point(point)
    if not (kappa is None or gamma is None):
        raise PointError(
            [Problem("kappa", "got both kappa and gamma; give one, the other follows")]
        )
    numbers = {}
    every = {"eta": eta, "gamma": gamma, "gamma2": gamma2, "kappa": kappa}
    for name, rate in every.items():
        if not (rate is None or isinstance(rate, Array | np.ndarray)):
            numbers[name] = rate
    point.replace(**numbers)  # checks them
    eta = point.eta if eta is None else eta
    if gamma is None and kappa is None:
        gamma = point.gamma if "gamma" in point.given else None
    if gamma is None:
        kappa = point.kappa if kappa is None else kappa
        scale: Rate = gamma_per_kappa(point.L, point.V, eta, point.first_steps)
        gamma = kappa * scale
    if gamma2 is None:
        gamma2 = point.gamma2 if "gamma2" in point.given else gamma
    return Rates(eta, gamma, gamma2)


Loss = Callable[..., Array]


def recipe(
    loss: Loss,
    V_mat: PyTree,
    W_KQ: PyTree,
    batches: Sequence[PyTree],
    rates: Rates,
    first_steps: int = 1,
) -> tuple[PyTree, ...]:
    """Returns V1, W1 and V2 of the recipe for any loss function and any parameters.

    Args:
        loss: a scalar function loss(V_mat, W_KQ, batch).
        V_mat, W_KQ: the parameters at the start, pytrees of arrays.
        batches: one batch for each of the three steps, as in `Realization.batches`.
            Each is a pytree of arrays whose first axis is that of the samples. Instead
            of the first batch, a function may be given that returns the batch of first
            step 0, 1, ... for a traced number.
        rates: the rates of the steps. They are cast to the dtype of the parameters.
        first_steps: the number of steps of V_mat before the step of W_KQ.

        >>> V1, W1, V2 = recipe(loss, V_mat, W_KQ, r.batches, rates(point))
    """

    def step(params: PyTree, rate: Rate, loss: Loss, batch: PyTree) -> PyTree:
        slopes = jax.grad(loss)(params, batch)
        return jax.tree.map(
            lambda p, slope: p - jnp.asarray(rate, p.dtype) * slope, params, slopes
        )

    first, second, third = batches

    def first_step(s: Array | int, V: PyTree) -> PyTree:
        batch = first(s) if callable(first) else first
        return step(V, rates.eta, lambda V, batch: loss(V, W_KQ, batch), batch)

    if first_steps == 1:
        V1 = first_step(0, V_mat)
    else:
        # a derivative of the whole repeats each step instead of storing its logits
        one_of_several = jax.checkpoint(first_step)
        V1 = lax.fori_loop(0, first_steps, one_of_several, V_mat)
    W1 = step(W_KQ, rates.gamma, lambda W, batch: loss(V1, W, batch), second)
    V2 = step(V1, rates.gamma2, lambda V, batch: loss(V, W1, batch), third)
    return V1, W1, V2


def three_step(
    realization: Realization,
    point: Point,
    rates: Rates | None = None,
    *,
    attend: Attend = softmax_attention,
    readout: Readout = plain_readout,
) -> ThreeStep:
    """Returns the parameters after the three steps of the recipe, which start from
    V_mat = 0 and W_KQ = 0.

    The steps are those of `recipe` with the gradient of `jaxrecall.model.loss`, in the
    dtype of the embeddings. They are compiled once for equal shapes, points and
    functions. Functions are equal if their source and the values that they use are
    equal, so a closure may be made anew for each call. Put parameters that change
    into an equinox module. Nothing is compiled for a function that uses traced arrays.
    `jaxrecall.reference.three_step` takes the same steps in closed form, in NumPy and
    float64.

    Args:
        realization: the draws returned by `realize` or `draws`, or your own.
        rates: rates to use instead of the point's, as returned by `jaxrecall.rates`.
        attend: the attention, as in `predict`.
        readout: the readout, as in `predict`. JAX may differentiate the result by the
            parameters of both.

    Examples:
        >>> from jaxrecall import Point, draws, rates, realize, three_step
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> V1, w, V2 = three_step(realize(point, seed=0), point)
        >>> r = draws(point, jax.random.key(0))
        >>> jax.vmap(lambda kappa: three_step(r, point, rates(point, kappa=kappa)).V2)(
        ...     jnp.array([20.0, 50.0])
        ... )
    """
    expect_both(realization, point)
    if rates is None:
        rates = Rates(point.eta, point.gamma, point.gamma2)
    expect("rates", rates, Rates, "what jaxrecall.rates returns", PointError)
    drawn = jax.tree.map(jnp.asarray, realization)
    take = _compiled_steps
    if not is_plain(attend, readout):
        attend, readout = _comparable(attend), _comparable(readout)
        if not all(getattr(fn, "has_digest", True) for fn in (attend, readout)):
            take = _three_step
    return take(
        drawn,
        Rates(*(jnp.asarray(rate, drawn.Z_in.dtype) for rate in rates)),
        attend,
        readout,
        point,
    )


def _comparable(fn: Any) -> Any:
    """Returns a function in a form in which JAX recognises it: a module of equinox as
    it is, and any other function by its source.
    """
    return fn if isinstance(fn, eqx.Module) else by_source(fn)


def _three_step(
    realization: Realization,
    rates: Rates,
    attend: Attend,
    readout: Readout,
    point: Point,
) -> ThreeStep:
    e, settings = realization.embeddings, (point.activation, point.trigger_in_value)

    def loss(V_mat: Array, W_KQ: Array, batch: Sequence[Array]) -> Array:
        recall = model.Recall(V_mat, W_KQ, e, *settings, attend, readout)
        return model.loss(recall, *batch)

    V0 = jnp.zeros((point.d, point.p), e.Z_in.dtype)
    W0 = jnp.zeros((point.d, point.d), e.Z_in.dtype)
    with jax.default_matmul_precision("highest"):
        batches, several = realization.batches, point.first_steps
        if several > 1:
            first = partial(realization.samples_of_first, first_steps=several)
            batches = first, *batches[1:]
        V1, W1, V2 = recipe(loss, V0, W0, batches, rates, several)
        return ThreeStep(V1, W1 @ e.z_eos, V2)


_compiled_steps = eqx.filter_jit(_three_step)


def in_jax(*trees: PyTree) -> bool:
    """Whether any leaf is a JAX array, traced or not."""
    return any(isinstance(leaf, Array) for leaf in jax.tree.leaves(trees))


def is_plain(attend: Attend, readout: Readout) -> bool:
    """Whether attention and readout are those of the paper. Only these have NumPy
    code.
    """
    return attend is softmax_attention and readout is plain_readout


def predict(
    realization: Realization,
    point: Point,
    V_mat: Numbers,
    w: Numbers,
    tokens: Numbers,
    positions: Numbers,
    *,
    attend: Attend = softmax_attention,
    readout: Readout = plain_readout,
) -> tuple[Numbers, Numbers]:
    """Returns the logits (n, V) and the attention (n, L) of a model for n sequences.

    If draws or parameters are JAX arrays, or the attention or readout is another one,
    the computation is in JAX, and otherwise in NumPy and float64.

    Args:
        realization: the draws. Only the embeddings are used.
        V_mat, w: parameters, as returned by `three_step`.
        tokens: tokens (n, L).
        positions: positions (n,) of the informative tokens.
        attend: the attention, `attend(recall, tokens, position)`: a pure JAX function
            that returns the weights (L,) of one sequence. `recall` is a
            `jaxrecall.model.Recall` with W_KQ = w z_eos^T / |z_eos|^2. Its methods
            `scores` and `attended` may be useful.
        readout: the readout, `readout(recall, h)`: a pure JAX function that returns the
            logits (V,) for the output h (d,) of the attention.

    Examples:
        >>> logits, attention = predict(r, point, learned.V2, learned.w, *r.test[:2])
    """
    expect_both(realization, point)
    if is_plain(attend, readout) and not in_jax(realization, V_mat, w):
        r = realization.astype(np.float64)
        h, attention = steps.attend(r, point, tokens, positions, w)
        phi, _ = steps.features(r, point, h)
        return phi @ (r.Z_out @ V_mat).T, attention
    e, settings = realization.embeddings, (point.activation, point.trigger_in_value)
    with jax.default_matmul_precision("highest"):
        W_KQ = jnp.outer(w, e.z_eos) / (e.z_eos @ e.z_eos)
        recall = model.Recall(V_mat, W_KQ, e, *settings, attend, readout)
        logits = jax.vmap(recall)(tokens, positions)
        return logits, jax.vmap(recall.attention)(tokens, positions)


def soft_accuracy(
    realization: Realization,
    point: Point,
    learned: ThreeStep,
    temperature: Rate = 0.1,
    *,
    attend: Attend = softmax_attention,
    readout: Readout = plain_readout,
) -> Array:
    """Returns a differentiable test accuracy. For each test sequence, the label has an
    entry in softmax(logits / (temperature s)), and the result is the mean of these
    entries.

    s is the standard deviation of the logits of a sequence, so their scale does not
    matter. In the limit of temperature 0 the result is `accuracy`. The computation is
    always in JAX. `attend` and `readout` are as in `predict`.

        >>> def score(kappa):
        ...     learned = three_step(r, point, rates(point, kappa=kappa))
        ...     return soft_accuracy(r, point, learned)
        >>> jax.grad(score)(50.0)
    """
    expect_both(realization, point)
    tokens, positions, labels = realization.test
    V_mat = learned.V2
    if readout is plain_readout:
        V_mat = V_mat / jnp.max(jnp.abs(V_mat))
    logits, _ = predict(
        realization,
        point,
        V_mat,
        learned.w,
        tokens,
        positions,
        attend=attend,
        readout=readout,
    )
    variance = jnp.var(logits, axis=1, keepdims=True)
    scale = temperature * jnp.sqrt(jnp.where(variance > 0, variance, 1))
    weights = jax.nn.softmax(logits / scale)
    return jnp.mean(jnp.take_along_axis(weights, labels[:, None], axis=1))


def train(
    loss: Loss,
    params: PyTree,
    batch_of: Callable[[Array], PyTree],
    optimizer: optax.GradientTransformation,
    steps: int | Array,
    record: Sequence[int] | Array = (),
) -> tuple[PyTree, PyTree]:
    """Minimises any loss with any optax optimiser.

    Args:
        loss: a scalar function loss(params, batch).
        params: the parameters at the start, a pytree of arrays.
        batch_of: a function that returns the batch of step t = 0, 1, ... for a traced
            t.
        optimizer: an `optax.GradientTransformation`.
        steps: the number of steps. JAX may trace it, but then the result cannot be
            differentiated in reverse mode.
        record: the numbers of completed steps after which the parameters are recorded.
            The number 0 records the start.

    Returns:
        The final parameters, and the recorded parameters. The latter are the same
        pytree with a leading axis that has one entry for each number in `record`.

    Examples:
        >>> params, kept = train(
        ...     loss, params, lambda t: batch, optax.adam(0.01), 100, record=[0, 100]
        ... )
    """
    import optax

    marks = jnp.asarray(record, jnp.int32)

    def keep(kept: PyTree, params: PyTree, n_made: Array | int) -> PyTree:
        if not len(marks):
            return kept
        entry = jnp.where(
            jnp.any(marks == n_made), jnp.argmax(marks == n_made), len(marks)
        )
        return jax.tree.map(
            lambda all, one: all.at[entry].set(one, mode="drop"), kept, params
        )

    @jax.checkpoint
    def step(t: Array, state: PyTree) -> PyTree:
        params, memory, kept = state
        slopes = jax.grad(loss)(params, batch_of(t))
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
            updates, memory = optimizer.update(slopes, memory, params)
            params = optax.apply_updates(params, updates)
        return params, memory, keep(kept, params, t + 1)

    def room(param: Array) -> Array:
        return jnp.zeros((len(marks), *param.shape), param.dtype)

    kept = keep(jax.tree.map(room, params), params, 0)
    start = params, optimizer.init(params), kept
    params, _, kept = lax.fori_loop(0, steps, step, start)
    return params, kept
