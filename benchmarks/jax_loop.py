"""The loops that a user writes in JAX.

A function is compiled with `jax.jit` for each shape (V, N, d, L, m), in a Python loop.
Nothing is padded, so every new shape compiles. The three steps use `jax.grad` of the
plain loss, scanned over chunks of 4096 samples. Random numbers are from `jax.random`.
The loops support only the defaults of a point, as `torch_loop.py` does.

The form `keys` is the code of a careful user, with one run per call and the attention
as in the formula. The form `table` is what a skilled user makes of it within an hour:
`jax.vmap` over the seeds of a point, and an attention that forms no keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrecall import Point

from .peer import CHUNK, Draws, Learned

Theta = tuple[Array, Array]
"""V_mat and W_KQ."""

Rates = tuple[Any, ...]
"""eta, gamma, gamma2 and lr, which are traced."""


class Sizes(NamedTuple):
    V: int
    N: int
    d: int
    L: int
    m: int
    n_test: int


def sizes(point: Point) -> Sizes:
    return Sizes(*(getattr(point, name) for name in Sizes._fields))


def draw(key: Array, s: Sizes) -> Draws:
    """Draws the random arrays of one run."""
    of = jax.random.split(key, 7)
    normal = jax.random.normal(of[0], (2 * s.V + 2, s.d), jnp.float32) * s.d**-0.5
    embeddings = normal[: s.V], normal[s.V : 2 * s.V], normal[-2], normal[-1]
    perm = jax.random.permutation(of[1], jnp.arange(s.V, dtype=jnp.int32))

    def samples(tokens: Array, positions: Array, n: int) -> tuple[Array, Array, Array]:
        x = jax.random.randint(tokens, (n, s.L), 0, s.V, jnp.int32)
        ell = jax.random.randint(positions, (n,), 0, s.L, jnp.int32)
        return x, ell, perm[x[jnp.arange(n), ell]]

    W_in = jax.random.normal(of[2], (s.m, s.d), jnp.float32) if s.m else None
    train, test = samples(of[3], of[4], s.N), samples(of[5], of[6], s.n_test)
    return Draws(*embeddings, W_in, perm, *train, *test)


def attend_keys(r: Draws, w: Array, x: Array, ell: Array) -> Array:
    """Attention outputs h (n, d), computed from all keys of the chunk."""
    is_trigger = jax.nn.one_hot(ell, x.shape[1], dtype=jnp.float32)
    k = r.Z_in[x] + is_trigger[:, :, None] * r.z_trig[None, None]
    a = jax.nn.softmax(k @ w, axis=1)
    return jnp.einsum("nl,nld->nd", a, k)


def attend_table(r: Draws, w: Array, x: Array, ell: Array) -> Array:
    """Attention outputs h (n, d), computed without forming a key.

    The weights of a sample are added up by token, which makes the sum over positions a
    matrix product. On a CPU this is 2 to 4 times faster than gathering embeddings.
    """
    is_trigger = jax.nn.one_hot(ell, x.shape[1], dtype=jnp.float32)
    a = jax.nn.softmax((r.Z_in @ w)[x] + is_trigger * (r.z_trig @ w), axis=1)
    sample = jnp.arange(len(x))[:, None]
    by_token = jnp.zeros((len(x), len(r.Z_in)), jnp.float32).at[sample, x].add(a)
    at_trigger = jnp.sum(is_trigger * a, axis=1)
    return by_token @ r.Z_in + at_trigger[:, None] * r.z_trig[None]


FORMS = {"keys": attend_keys, "table": attend_table}


def logits(
    r: Draws, V_mat: Array, W_KQ: Array, x: Array, ell: Array, form: str
) -> Array:
    """The logits of the samples, (n, V)."""
    h = FORMS[form](r, W_KQ @ r.z_eos, x, ell)
    phi = h if r.W_in is None else jax.nn.relu(h @ r.W_in.T) * r.W_in.shape[0] ** -0.5
    return phi @ V_mat.T @ r.Z_out.T


def losses(answers: Array, y: Array) -> Array:
    own = jnp.take_along_axis(jax.nn.log_softmax(answers), y[:, None], axis=1)
    return -own[:, 0]


def learn(r: Draws, rates: Rates, form: str = "keys") -> Learned:
    """Performs the three gradient steps.

    The first parameters are hidden from the compiler. If it knows that they are zeros,
    XLA on a CPU (jaxlib 0.10.2) returns wrong gradients from a scan over chunks.
    """
    eta, gamma, gamma2, _ = rates
    N, d = len(r.train_labels), r.Z_in.shape[1]
    p = d if r.W_in is None else r.W_in.shape[0]

    def loss(V_mat: Array, W_KQ: Array, x: Array, ell: Array, y: Array) -> Array:
        return jnp.sum(losses(logits(r, V_mat, W_KQ, x, ell, form), y)) / N

    def gradient(of: int, V_mat: Array, W_KQ: Array) -> Array:
        def add(total: Array, chunk: Any) -> tuple[Array, None]:
            return total + jax.grad(loss, of)(V_mat, W_KQ, *chunk), None

        size = min(CHUNK, N)
        whole = N // size * size
        stacked: Any = tuple(a[:whole].reshape(-1, size, *a.shape[1:]) for a in r.train)
        total, _ = lax.scan(add, jnp.zeros_like((V_mat, W_KQ)[of]), stacked)
        return add(total, tuple(a[whole:] for a in r.train))[0] if whole < N else total

    zeros = jnp.zeros((d, p), jnp.float32), jnp.zeros((d, d), jnp.float32)
    V0, W0 = lax.optimization_barrier(zeros)
    V1 = V0 - eta * gradient(0, V0, W0)
    W1 = W0 - gamma * gradient(1, V1, W0)
    V2 = V1 - gamma2 * gradient(0, V1, W1)
    return Learned(V1, W1, V2)


def tested(r: Draws, V_mat: Array, W_KQ: Array, form: str) -> tuple[Array, Array]:
    """The loss and the accuracy over the test sequences."""
    x, ell, y = r.test
    answers = logits(r, V_mat, W_KQ, x, ell, form)
    correct = (jnp.argmax(answers, axis=1) == y).astype(jnp.float32)
    return jnp.mean(losses(answers, y)), jnp.mean(correct)


def descend(
    r: Draws,
    rates: Rates,
    recorded: tuple[int, ...],
    form: str = "keys",
) -> tuple[Array, Array, Array]:
    """Continues with gradient descent after the recipe.

    Returns V_mat and W_KQ after all steps, and (loss, test loss, accuracy) at each
    recorded step.
    """
    x, ell, y = r.train
    lr = rates[-1]

    def loss(theta: Theta) -> Array:
        return jnp.mean(losses(logits(r, *theta, x, ell, form), y))

    def step(theta: Theta, _: None) -> tuple[Theta, None]:
        slopes = jax.grad(loss)(theta)
        return (theta[0] - lr * slopes[0], theta[1] - lr * slopes[1]), None

    learned = learn(r, rates, form)
    theta = learned.V2, learned.W1
    records = [(loss(theta), *tested(r, *theta, form))]
    for before, after in itertools.pairwise(recorded):
        theta = lax.scan(step, theta, None, length=after - before)[0]
        records.append((loss(theta), *tested(r, *theta, form)))
    return theta[0], theta[1], jnp.array(records)


@partial(jax.jit, static_argnames=("s", "recorded", "form"))
def accuracies(
    seeds: Array,
    rates: Rates,
    s: Sizes,
    recorded: tuple[int, ...],
    form: str,
) -> Array:
    """Draws, trains and tests a run, or several at once for an array of seeds."""

    def accuracy(seed: Array) -> Array:
        r = draw(jax.random.key(seed), s)
        if len(recorded) > 1:
            return descend(r, rates, recorded, form)[2][-1, 2]
        learned = learn(r, rates, form)
        return tested(r, learned.V2, learned.W1, form)[1]

    return jax.vmap(accuracy)(seeds) if seeds.ndim else accuracy(seeds)


def run(point: Point, seeds: Iterable[int], form: str) -> list[float]:
    """Draws, trains and tests the seeds of a point; returns their accuracies at the
    last step.

    The function compiles if the shape or the number of steps is new. In the form
    `table`, it also compiles if the number of seeds is new.
    """
    last = rates_of(point), sizes(point), point.recorded_steps
    if form == "table":
        return accuracies(jnp.array(list(seeds), jnp.uint32), *last, form).tolist()
    return [float(accuracies(jnp.uint32(seed), *last, form)) for seed in seeds]


def rates_of(point: Point) -> Rates:
    rates = point.eta, point.gamma, point.gamma2, point.lr or 0.0
    return tuple(map(jnp.float32, rates))
