"""The loops that a user writes in JAX.

A function is compiled with `jax.jit` for each shape (V, N, d, L, m), in a Python loop.
Nothing is padded, so every new shape compiles. The three steps use `jax.grad` of the
plain loss, scanned over chunks of 4096 samples. Random numbers are from `jax.random`.
The loops support only the defaults of a point, as `torch_loop.py` does.

`run` is the code of a careful user, with one run per call and the attention as in the
formula. `run_seeds` is what a skilled user makes of it within an hour: `jax.vmap` over
the seeds of a point, and an attention that forms no keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrecall import Point
from jaxrecall.model.point import RECIPE_STEPS

CHUNK = 4096


class Draws(NamedTuple):
    """The random arrays of a run, under their names in `jaxrecall.realize`."""

    Z_in: Array  # (V, d)
    Z_out: Array  # (V, d)
    z_trig: Array  # (d,)
    z_eos: Array  # (d,)
    W_in: Array | None  # (m, d)
    perm: Array  # (V,)
    train_tokens: Array  # (N, L)
    train_positions: Array  # (N,)
    train_labels: Array  # (N,)
    test_tokens: Array  # (n_test, L)
    test_positions: Array
    test_labels: Array


class Learned(NamedTuple):
    V1: Array  # (d, p)
    W1: Array  # (d, d)
    V2: Array  # (d, p)


class Sizes(NamedTuple):
    V: int
    N: int
    d: int
    L: int
    m: int
    n_test: int


def sizes(point: Point) -> Sizes:
    return Sizes(point.V, point.N, point.d, point.L, point.m, point.n_test)


def draw(key: Array, s: Sizes) -> Draws:
    """Draws the random arrays of one run."""
    of = jax.random.split(key, 7)
    normal = jax.random.normal(of[0], (2 * s.V + 2, s.d), jnp.float32) * s.d**-0.5
    perm = jax.random.permutation(of[1], jnp.arange(s.V, dtype=jnp.int32))

    def samples(tokens: Array, positions: Array, n: int) -> tuple[Array, Array, Array]:
        x = jax.random.randint(tokens, (n, s.L), 0, s.V, jnp.int32)
        ell = jax.random.randint(positions, (n,), 0, s.L, jnp.int32)
        return x, ell, perm[x[jnp.arange(n), ell]]

    W_in = jax.random.normal(of[2], (s.m, s.d), jnp.float32) if s.m else None
    train, test = samples(of[3], of[4], s.N), samples(of[5], of[6], s.n_test)
    return Draws(
        normal[: s.V],
        normal[s.V : 2 * s.V],
        normal[-2],
        normal[-1],
        W_in,
        perm,
        *train,
        *test,
    )


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


FORMS: dict[str, Callable[[Draws, Array, Array, Array], Array]] = {
    "keys": attend_keys,
    "table": attend_table,
}


def logits(
    r: Draws, V_mat: Array, W_KQ: Array, x: Array, ell: Array, form: str
) -> Array:
    """The logits of the samples, (n, V)."""
    h = FORMS[form](r, W_KQ @ r.z_eos, x, ell)
    phi = h if r.W_in is None else jax.nn.relu(h @ r.W_in.T) * r.W_in.shape[0] ** -0.5
    return phi @ V_mat.T @ r.Z_out.T


def learn(r: Draws, rates: tuple[Any, Any, Any], form: str = "keys") -> Learned:
    """Performs the three gradient steps.

    The first parameters are hidden from the compiler. If it knows that they are zeros,
    XLA on a CPU (jaxlib 0.10.2) returns wrong gradients from a scan over chunks.
    """
    eta, gamma, gamma2 = rates
    N, d = len(r.train_labels), r.Z_in.shape[1]
    p = d if r.W_in is None else r.W_in.shape[0]

    def loss(V_mat: Array, W_KQ: Array, x: Array, ell: Array, y: Array) -> Array:
        log_p = jax.nn.log_softmax(logits(r, V_mat, W_KQ, x, ell, form))
        return -jnp.sum(jnp.take_along_axis(log_p, y[:, None], axis=1)) / N

    def gradient(of: int, V_mat: Array, W_KQ: Array) -> Array:
        def add(total: Array, chunk: Any) -> tuple[Array, None]:
            return total + jax.grad(loss, of)(V_mat, W_KQ, *chunk), None

        arrays = (r.train_tokens, r.train_positions, r.train_labels)
        size = min(CHUNK, N)
        whole = N // size * size
        stacked: Any = tuple(a[:whole].reshape(-1, size, *a.shape[1:]) for a in arrays)
        total, _ = lax.scan(add, jnp.zeros_like((V_mat, W_KQ)[of]), stacked)
        return add(total, tuple(a[whole:] for a in arrays))[0] if whole < N else total

    zeros = jnp.zeros((d, p), jnp.float32), jnp.zeros((d, d), jnp.float32)
    V0, W0 = lax.optimization_barrier(zeros)
    V1 = V0 - eta * gradient(0, V0, W0)
    W1 = W0 - gamma * gradient(1, V1, W0)
    V2 = V1 - gamma2 * gradient(0, V1, W1)
    return Learned(V1, W1, V2)


def accuracy(r: Draws, learned: Learned, form: str = "keys") -> Array:
    """The fraction of the test sequences whose label has the largest logit."""
    answers = logits(r, learned.V2, learned.W1, r.test_tokens, r.test_positions, form)
    return jnp.mean((jnp.argmax(answers, axis=1) == r.test_labels).astype(jnp.float32))


def descend(
    r: Draws, rates: tuple[Any, Any, Any], lr: Array, recorded: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Continues with gradient descent after the recipe.

    Returns V_mat and W_KQ after all steps, and (loss, test loss, accuracy) at each
    recorded step.
    """

    def loss(
        theta: tuple[Array, Array], x: Array, ell: Array, y: Array
    ) -> tuple[Array, Array]:
        answers = logits(r, *theta, x, ell, "keys")
        own = jnp.take_along_axis(jax.nn.log_softmax(answers), y[:, None], axis=1)
        return -jnp.mean(own), jnp.mean(
            (jnp.argmax(answers, axis=1) == y).astype(jnp.float32)
        )

    train = r.train_tokens, r.train_positions, r.train_labels

    def step(theta: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        slopes = jax.grad(loss, has_aux=True)(theta, *train)[0]
        return (theta[0] - lr * slopes[0], theta[1] - lr * slopes[1]), None

    def record(theta: tuple[Array, Array]) -> Array:
        return jnp.stack(
            [
                loss(theta, *train)[0],
                *loss(theta, r.test_tokens, r.test_positions, r.test_labels),
            ]
        )

    learned = learn(r, rates)
    theta = learned.V2, learned.W1
    records = [record(theta)]
    for before, after in itertools.pairwise(recorded):
        theta = lax.scan(step, theta, None, length=after - before)[0]
        records.append(record(theta))
    return *theta, jnp.stack(records)


@partial(jax.jit, static_argnames=("s", "recorded"))
def _descend(
    seed: Array,
    rates: tuple[Array, Array, Array],
    lr: Array,
    s: Sizes,
    recorded: tuple[int, ...],
) -> Array:
    return descend(draw(jax.random.key(seed), s), rates, lr, recorded)[2]


@partial(jax.jit, static_argnames=("s", "form"))
def _run(seed: Array, rates: tuple[Array, Array, Array], s: Sizes, form: str) -> Array:
    r = draw(jax.random.key(seed), s)
    return accuracy(r, learn(r, rates, form), form)


@partial(jax.jit, static_argnames="s")
def _runs(seeds: Array, rates: tuple[Array, Array, Array], s: Sizes) -> Array:
    return jax.vmap(lambda seed: _run(seed, rates, s, "table"))(seeds)


def run(point: Point, seed: int) -> float:
    """Draws, trains and tests one run; returns its accuracy at the last step.

    The function compiles if the shape or the number of steps is new.
    """
    of, rates, s = jnp.uint32(seed), rates_of(point), sizes(point)
    if point.steps == RECIPE_STEPS:
        return float(_run(of, rates, s, "keys"))
    lr = jnp.float32(point.lr)
    return float(_descend(of, rates, lr, s, point.recorded_steps)[-1, 2])


def run_seeds(point: Point, seeds: Sequence[int]) -> list[float]:
    """Draws, trains and tests the seeds of a point together; returns their accuracies
    after the three steps.

    The function compiles if the shape or the number of seeds is new.
    """
    of = jnp.array(seeds, jnp.uint32)
    return _runs(of, rates_of(point), sizes(point)).tolist()


def rates_of(point: Point) -> tuple[Array, Array, Array]:
    return jnp.float32(point.eta), jnp.float32(point.gamma), jnp.float32(point.gamma2)
