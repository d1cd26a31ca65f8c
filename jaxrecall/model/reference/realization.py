"""All random draws of one run as plain arrays. With them, other code can check a
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer, eval_context
from jaxtyping import Float, Int
from numpy import ndarray

from ...errors import PointError, Problem, expect, shown
from .. import keys, task
from ..laws import EmbeddingLaw, Gaussian
from ..laws.tokens import tables
from ..point import (
    BLOCK,
    MAX_DRAWS,
    MAX_STEPS,
    MIN_MEAN,
    RECIPE_STEPS,
    Point,
    Run,
    checked_seed,
    first_step,
)
from ..task import Embeddings
from ..values import Numbers, padded_size

if TYPE_CHECKING:
    DrawnArray = ndarray  # the type of what `realize` returns
else:
    DrawnArray = ndarray | Array


class Realization(NamedTuple):
    """The draws of one (point, seed), as arrays of float32 and int32.

    With fresh_batches the train_* arrays have a leading axis with one batch per step.
    """

    Z_in: Float[DrawnArray, "V d"]  # input embeddings
    Z_out: Float[DrawnArray, "V d"]  # output embeddings
    z_trig: Float[DrawnArray, " d"]
    z_eos: Float[DrawnArray, " d"]
    W_in: Float[DrawnArray, "m d"] | None  # None without an MLP
    perm: Int[DrawnArray, " V"]  # label of each token
    train_tokens: Int[DrawnArray, "*steps N L"]
    train_positions: Int[DrawnArray, "*steps N"]  # of the informative tokens
    train_labels: Int[DrawnArray, "*steps N"]
    test_tokens: Int[DrawnArray, "n_test L"]
    test_positions: Int[DrawnArray, " n_test"]
    test_labels: Int[DrawnArray, " n_test"]
    # the L - 1 noise tokens of each sequence; None without a pool
    pool: Int[DrawnArray, "*steps K noise"] | None = None
    # the number of the pool sequence of each sample
    train_rows: Int[DrawnArray, "*steps N"] | None = None
    # the numbers of the samples that each further step reads; None if it reads all
    train_items: Int[DrawnArray, "further batch"] | None = None

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings and W_in in the form that `jaxrecall.model` uses."""
        return Embeddings(*jax.tree.map(jnp.asarray, self[: len(EMBEDDINGS)]))

    @property
    def batches(self) -> tuple[Any, ...]:
        """The tokens, positions and labels of each of the three steps.

        The samples are the same in all steps unless batches are fresh.
        """
        return tuple(map(self.samples, range(3)))

    def samples(self, step: Any) -> tuple[Any, Any, Any]:
        """Returns the tokens, positions and labels of a gradient step, counted from 0.

        JAX may trace the step.
        """
        train = self.train_tokens, self.train_positions, self.train_labels
        if self.train_labels.ndim == 1:
            return train
        tokens, positions, labels = train
        return tokens[step], positions[step], labels[step]

    def samples_of_first(self, step: Any, first_steps: int) -> tuple[Any, Any, Any]:
        """Returns the samples of one of several first steps, counted from 0. JAX may
        trace the step.

        With fresh batches, the batches of first steps 1, 2, ... are the last ones.
        """
        further = len(self.train_labels) - first_steps + step
        return self.samples(jnp.where(step > 0, further, 0))

    @property
    def test(self) -> tuple[Any, Any, Any]:
        """The tokens, positions and labels of the test sequences."""
        return self.test_tokens, self.test_positions, self.test_labels

    def astype(self, dtype: Any) -> Realization:
        """Returns the same draws, with embeddings and W_in converted to another dtype.

        Computations with the draws then use this dtype.
        """
        frozen = jax.tree.map(lambda a: a.astype(dtype), self[: len(EMBEDDINGS)])
        return self._replace(**dict(zip(EMBEDDINGS, frozen, strict=True)))


EMBEDDINGS = Realization._fields[:5]
"""The names of the frozen parameters of the model, which are the first fields of a
realization.
"""


def realize(point: Point, seed: int) -> Realization:
    """Returns every random draw of the run (point, seed) as NumPy arrays.

    `simulate` streams the same draws. The arrays need about 4 N L bytes of memory, and
    three times as much while they are drawn. With fresh batches, they need this for
    each step. The dtypes do not depend on
    JAX_ENABLE_X64. Raises ValueError if the samples of a point with a pool, or with
    batches for further steps, contain more than MAX_TOKENS numbers. Also raises
    ValueError if some counts are drawn only from their Gaussian limit.

        >>> from jaxrecall import Point, realize
        >>> draws = realize(Point(V=64, N=1024, d=32, L=8), seed=0)
        >>> draws.Z_in.shape, draws.train_tokens.shape
    """
    expect_point(point)
    streams, _ = run_keys([Run(point, checked_seed(seed))])
    # the arrays are then concrete and the same also while another function is traced
    with eval_context():
        return jax.tree.map(partial(np.array, order="C"), _drawn(point, streams[0], {}))


def draws(
    point: Point, key: Array, parameters: Mapping[str, Any] = MappingProxyType({})
) -> Realization:
    """Returns the draws of `realize` as JAX arrays. The function may be called in
    compiled or vmapped functions.

    A user's own simulator is called with a key. From this key, `draws` makes the same
    draws as `simulate(point, seed)` for the seed of the row.

    Args:
        point: the point. Its fields are Python values, because they determine the
            shapes.
        key: a `jax.random` key. The key of a seed is fold_in(key(root_seed), seed). The
            point's own root_seed is not used.
        parameters: a dict from dotted name to float parameter of an embedding.
            These values replace the point's own. JAX may trace them, and they are not
            checked. The parameters of `embedding` apply to input and output embeddings
            if their distributions are the same. A float64 array makes the embeddings
            float64.

    Returns:
        The draws, float32 and int32. The integers are exactly those of `realize`, and
        the embeddings are equal up to rounding.

    Raises:
        ValueError: as for `realize`, and in a compiled function for embeddings from a
            file.
        PointError: for a parameter that they lack, or for a parameter that is a
            size.

    Examples:
        >>> import jax
        >>> from jaxrecall import Point, draws
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> key = jax.random.key(0)
        >>> draws(point, jax.random.fold_in(key, 5)).Z_in  # that of realize(point, 5)
        >>> labels = jax.vmap(lambda key: draws(point, key).perm)
        >>> labels(jax.random.split(key, 8))  # (8, 64)
        >>> alike = point.replace(embedding="equicorrelated")
        >>> draws(alike, key, {"embedding.rho": jax.numpy.float32(0.3)})
    """
    expect_point(point)
    run = jax.random.key_data(expect("key", key, Array, "a key of jax.random"))
    if point.streams == "independent":
        for half in halves_of_id(point):
            run = keys.fold(run, jnp.uint32(half))
    parameters = _all_parameters(point, parameters)
    return jax.tree.map(jnp.asarray, _drawn(point, keys.streams(run), parameters))


def _all_parameters(point: Point, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the float parameters of both embedding laws if any are given, and
    otherwise an empty dict. Raises PointError.
    """
    if not given:
        return {}
    law, law_out = point.embedding_laws
    known = law.traced("embedding") | law_out.traced("embedding_out")
    allowed = (
        "float parameters of the distributions of embeddings, here"
        f" {', '.join(known) or 'none'}; all else, such as sizes, is the point's"
    )
    problems = [
        Problem(name, f"got {shown(given[name])}", allowed=allowed)
        for name in given
        if name not in known
    ]
    if problems:
        raise PointError(problems)
    if law == law_out:
        for name, value in given.items():
            known[name.replace("embedding.", "embedding_out.")] = value
    return known | dict(given)


def _drawn(
    point: Point,
    streams: ndarray | Array,
    parameters: Mapping[str, Any],
) -> Realization:
    """Returns the draws that follow from the keys (10, 2) of the named streams."""
    _check_writable(point)
    # NumPy arrays, unless JAX traces the function
    xp = jnp if isinstance(streams, Tracer) else np
    streams = xp.asarray(streams)
    embeddings = _embeddings(xp, streams, dict(parameters), point)
    V_pad = size_of_program(point.V)
    perm = xp.asarray(_permutation(streams, point.V, V_pad=V_pad))[: point.V]
    law = tables(point.token_laws, point.V)
    if law is not None:
        law = np.pad(law, ((0, 0), (0, 0), (0, V_pad - point.V)))
    sampler = Sampler(point, streams, xp, perm, law)
    train = sampler.train(0)
    if point.fresh_batches:
        later = map(sampler.train, addresses_of_batches(point)[1:])
        train = jax.tree.map(lambda *parts: xp.stack(parts), train, *later)
    test = sampler.test()
    fields = *embeddings, perm, *train[:3], *test[:3], train.pool, train.rows
    return Realization._make((*fields, _further_items(point, streams)))


def size_of_program(size: int) -> int:
    """Returns the padded size of a program, so that programs of a few sizes serve all
    points: a multiple of 64. For large sizes it is up to a quarter larger than the
    size.
    """
    return padded_size(size, 64)


class Samples(NamedTuple):
    """The samples of one batch. The fields are those of `Realization`, in the same
    order.
    """

    tokens: Numbers
    positions: Numbers
    labels: Numbers
    pool: Numbers = None
    rows: Numbers = None


@dataclass(frozen=True)
class Sampler:
    """Draws the samples of a run. The streams and the permutation of the run determine
    them.
    """

    point: Point
    streams: Numbers
    xp: ModuleType  # numpy or jax.numpy
    perm: Numbers
    law: ndarray | None  # padded alias tables; None if tokens are uniform

    def train(self, step: int) -> Samples:
        """Returns the samples that are drawn for this gradient step."""
        point, address = self.point, jnp.uint32(step)
        key = keys.fold(keys.stream(self.streams, "train"), address)
        positions = keys.fold(keys.stream(self.streams, "train_position"), address)
        if point.pool is None:
            tokens = self.tokens(key, point.L, point.N)
            samples = self.samples(tokens, positions)
            if point.label_noise:
                samples = samples._replace(labels=self.noisy(key, samples.labels))
            return samples
        noise = keys.further(key, keys.POOL)
        pool = self.tokens(noise, point.L, point.pool)[:, 1:]
        rows = self.numbers(key, point.pool, 2, point.N)[:, 1]
        informative = self.tokens(key, 1, point.N)
        tokens = self.xp.concatenate([informative, pool[rows]], axis=1)
        return self.samples(tokens, positions)._replace(pool=pool, rows=rows)

    def test(self) -> Samples:
        key = keys.stream(self.streams, "test")
        tokens = self.tokens(key, self.point.L, self.point.n_test)
        return self.samples(tokens, keys.stream(self.streams, "test_position"))

    def numbers(
        self, key: Numbers, V: int, L: int, n: int, law: ndarray | None = None
    ) -> Numbers:
        """Returns (n, L) int32 numbers below V. They are uniform, or drawn by alias
        tables.
        """
        # padded, so that programs of a few sizes serve all points
        blocks = keys.blocks(key, 0, padded_size(-(-n // BLOCK), 1))
        positions = jnp.arange(padded_size(L, 16), dtype=jnp.uint32)
        return self.xp.asarray(_tokens(blocks, positions, V, law))[:L, :n].T

    def tokens(self, key: Numbers, L: int, n: int) -> Numbers:
        """Returns (n, L) tokens drawn by the laws of the point."""
        return self.numbers(key, self.point.V, L, n, self.law)

    def samples(self, tokens: Numbers, position_key: Numbers) -> Samples:
        """Returns the samples after the informative token, token 0, is moved to its
        position.
        """
        (n, L), xp = tokens.shape, self.xp
        positions = self.numbers(position_key, L, 1, n)
        labels = self.perm[tokens[:, 0]]
        displaced = xp.take_along_axis(tokens, positions, axis=1)
        position = xp.arange(L, dtype=positions.dtype)[None]
        others = xp.where(position == 0, displaced, tokens)
        tokens = xp.where(position == positions, tokens[:, :1], others)
        return Samples(tokens, positions[:, 0], labels)

    def noisy(self, key: Numbers, labels: Numbers) -> Numbers:
        point, xp, n = self.point, self.xp, len(labels)
        count = padded_size(-(-n // BLOCK), 1)
        labels = xp.pad(labels, (0, count * BLOCK - n))
        blocks = keys.blocks(key, 0, count)
        noisy = _noisy_labels(blocks, labels, point.V, point.label_noise)
        return xp.asarray(noisy)[:n]


def _further_items(point: Point, streams: Numbers) -> Array | None:
    """Returns an array (further steps, batch) of the numbers of the samples that each
    step reads. It is None if every step reads all samples.
    """
    if not point.batch:
        return None
    steps = np.arange(first_step(point.start), point.steps, dtype=np.uint32)
    items = _items(streams, steps, point.N, n_blocks=-(-point.batch // BLOCK))
    return items[:, : point.batch].astype(jnp.int32)


def addresses_of_batches(point: Point) -> list[int]:
    """The addresses of the batches of N samples that a run draws, in the order of
    `Realization`.

    The batches of first steps 1, 2, ... come last, and their addresses follow those of
    all other steps. So their number changes no other batch.
    """
    if not point.fresh_batches:
        return [0]
    more = range(MAX_STEPS + 1, MAX_STEPS + point.first_steps)
    return [*range(max(RECIPE_STEPS, point.steps)), *more]


MAX_TOKENS = 2**26
"""The largest number of tokens (256 MB) that `realize` returns for a point with a pool,
or for a point with a batch for each of many steps.
"""


def _check_writable(point: Point) -> None:
    """Raises ValueError unless the samples can be returned as arrays."""
    batches = len(addresses_of_batches(point))
    many_batches = batches > RECIPE_STEPS
    tokens = (point.N * batches + point.n_test) * point.L
    if tokens > MAX_TOKENS and (point.pool or many_batches):
        sizes = f"N={point.N}, L={point.L}"
        if many_batches:
            sizes += f", {batches} fresh batches"
        raise ValueError(
            f"N, L: got {sizes}, {tokens} tokens to write out; allowed: up to"
            f" {MAX_TOKENS}, 256 MB"
        )
    items = (point.batch or 0) * point.further_steps
    if items > MAX_TOKENS:
        raise ValueError(
            f"batch, steps: got batch={point.batch}, steps={point.steps}, {items}"
            f" samples to write out; allowed: up to {MAX_TOKENS}, 256 MB"
        )
    if point.in_the_limit:
        sizes = f"N={point.N}, L={point.L} with V={point.V}"
        if point.pool:
            sizes += f", pool={point.pool}"
        raise ValueError(
            f"N, L: got {sizes}, so that the {', '.join(point.in_the_limit)} are drawn"
            " as Gaussian counts and cannot be written out; allowed: up to"
            f" {MAX_DRAWS} draws, or under {MIN_MEAN} a count"
        )


def run_keys(runs: Sequence[Run]) -> tuple[ndarray, ndarray]:
    """Returns two uint32 arrays for n runs: the keys (n, 10, 2) of the streams, and the
    keys (n, 3, 2) of the samples of the three steps.

    The keys of streams are computed from root_seed and seed, and also from the point id
    if the streams are independent. Without fresh batches, every step reads batch 0.
    """
    points, seeds = zip(*runs, strict=True)
    streams = keys.run_streams(
        [point.root_seed for point in points],
        seeds,
        list(map(halves_of_id, points)),
        [point.streams == "independent" for point in points],
    )
    fresh = np.array([point.fresh_batches for point in points])
    batch = np.outer(fresh, np.arange(3)).astype(np.uint32)
    return streams, keys.fold_on_host(keys.stream(streams, "train")[:, None], batch)


def expect_point(point: Any) -> None:
    """Raises PointError unless the argument is a point."""
    expect("point", point, Point, "a jaxrecall.Point", PointError)


def expect_both(realization: Any, point: Any) -> None:
    """Raises PointError unless the arguments are a realization and a point."""
    expect_point(point)
    expect(
        "realization",
        realization,
        Realization,
        "what jaxrecall.realize or jaxrecall.draws returns",
        PointError,
    )


def halves_of_id(point: Point) -> tuple[int, int]:
    """Returns the two 32-bit halves of `draws_id`, the id that enters the keys of
    independent streams.
    """
    return int(point.draws_id[:8], 16), int(point.draws_id[8:], 16)


_permutation = partial(jax.jit, static_argnames="V_pad")(task.permutation)
_tokens, _noisy_labels = jax.jit(task.tokens), jax.jit(task.noisy_labels)


def _embeddings(
    xp: ModuleType, streams: Numbers, parameters: dict[str, Any], point: Point
) -> tuple[Any, ...]:
    """Returns the frozen parameters, in the order of EMBEDDINGS."""
    V, d, m = pad = point.V, point.d, point.m
    laws = point.embedding_laws
    given = {}
    if any(law.on_host for law in laws):
        if xp is jnp:
            raise ValueError(
                f"embedding: got {point.embedding}, which the host makes;"
                " allowed in compiled functions: other distributions"
            )
        given = task.on_host(laws, streams, V, d)
    # other laws sum over a row, and the rounding may depend on its padded width
    if set(laws) == {Gaussian()}:
        pad = size_of_program(V), size_of_program(d), size_of_program(m)
    drawn = _padded(streams, given, parameters, V, d, m, laws=laws, pad=pad)
    padded = jax.tree.map(xp.asarray, drawn)
    W_in = padded.W_in[:m, :d] if m else None
    Z_in, Z_out = padded.Z_in[:V, :d], padded.Z_out[:V, :d]
    return Z_in, Z_out, padded.z_trig[:d], padded.z_eos[:d], W_in


@partial(jax.jit, static_argnames=("laws", "pad"))
def _padded(
    streams: Array,
    given: dict[str, Array],
    parameters: dict[str, Any],
    V: Array | int,
    d: Array | int,
    m: Array | int,
    laws: tuple[EmbeddingLaw, EmbeddingLaw],
    pad: tuple[int, int, int],
) -> Embeddings:
    law, law_out = laws
    if parameters:
        law = law.with_traced(parameters)
        law_out = law_out.with_traced(parameters, "embedding_out")
    return task.draw_embeddings(streams, (law, law_out), V, d, m, pad, given)


@partial(jax.jit, static_argnames="n_blocks")
def _items(streams: Array, steps: Array, N: Array | int, n_blocks: int) -> Array:
    return jax.vmap(lambda step: task.batch_items(streams, step, (0, n_blocks), N))(
        steps
    )
