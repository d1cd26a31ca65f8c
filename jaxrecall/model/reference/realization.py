"""Everything random of one run as plain arrays: what other code needs to check a
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer, eval_context
from jaxtyping import Float, Int

from ...errors import PointError, Problem, expect, shown
from .. import keys, task
from ..laws import TOGETHER, EmbeddingLaw, Gaussian
from ..laws.tokens import tables
from ..point import BLOCK, MAX_DRAWS, MIN_MEAN, Point, Run, checked_seed, first_step
from ..task import Embeddings
from ..values import padded

if TYPE_CHECKING:
    Drawn = np.ndarray  # so that what `realize` gives can be used as such
else:
    Drawn = np.ndarray | Array


class Realization(NamedTuple):
    """Draws of one (point, seed), float32 and int32.

    With fresh_batches train_* has a leading axis, a batch a step.
    """

    Z_in: Float[Drawn, "V d"]  # input embeddings
    Z_out: Float[Drawn, "V d"]  # output embeddings
    z_trig: Float[Drawn, " d"]
    z_eos: Float[Drawn, " d"]
    W_in: Float[Drawn, "m d"] | None  # None without an MLP
    perm: Int[Drawn, " V"]  # label of each token
    train_tokens: Int[Drawn, "*steps N L"]
    train_positions: Int[Drawn, "*steps N"]  # where the informative token stands
    train_labels: Int[Drawn, "*steps N"]
    test_tokens: Int[Drawn, "n_test L"]
    test_positions: Int[Drawn, " n_test"]
    test_labels: Int[Drawn, " n_test"]
    pool: Int[Drawn, "*steps K noise"] | None = (
        None  # the L - 1 noise tokens of each sequence; None without a pool
    )
    train_rows: Int[Drawn, "*steps N"] | None = (
        None  # which sequence of the pool each sample has
    )
    train_items: Int[Drawn, "further batch"] | None = (
        None  # which samples each further step reads; None: all
    )

    @property
    def embeddings(self) -> Embeddings:
        """The same embeddings and W_in as `jaxrecall.model` takes them."""
        return Embeddings(
            *(None if array is None else jnp.asarray(array) for array in self[:5])  # type: ignore
        )

    @property
    def batches(self) -> tuple[Any, ...]:
        """What each of the three steps reads: tokens, positions and labels.

        The samples are the same unless batches are fresh.
        """
        return tuple(self.samples(step) for step in range(3))

    def samples(self, step: Any) -> tuple[Any, Any, Any]:
        """Tokens, positions and labels of the samples of a gradient step, counted from
        0.

        JAX may trace it.
        """
        train = self.train_tokens, self.train_positions, self.train_labels
        return (
            train
            if self.train_labels.ndim == 1
            else (train[0][step], train[1][step], train[2][step])
        )

    @property
    def test(self) -> tuple[Any, Any, Any]:
        """Tokens, positions and labels of the test sequences."""
        return self.test_tokens, self.test_positions, self.test_labels

    def astype(self, dtype: Any) -> Realization:
        """The same draws with embeddings and W_in of another dtype, in which all is
        computed.
        """
        return self._replace(
            **{
                name: None if a is None else a.astype(dtype)
                for name, a in zip(self._fields, self[:5], strict=False)
            }
        )


def realize(point: Point, seed: int) -> Realization:
    """Every random draw of the run (point, seed): what `simulate` streams, as NumPy
    arrays.

    Memory: about 4 N L bytes, with fresh batches that for each step. The dtypes do not
    depend on JAX_ENABLE_X64. Raises ValueError for a point with a pool, or with batches
    for further steps, whose samples are more than MAX_TOKENS numbers, and for a pool
    that is known only as Gaussian counts.

        >>> from jaxrecall import Point, realize
        >>> draws = realize(Point(V=64, N=1024, d=32, L=8), seed=0)
        >>> draws.Z_in.shape, draws.train_tokens.shape
    """
    expect("point", point, Point, "a jaxrecall.Point", PointError)
    streams = run_keys([Run(point, checked_seed(seed))])[0][0]
    with (
        eval_context()
    ):  # numbers also where another function is being traced, and the same ones
        return Realization(
            *(  # type: ignore
                None if array is None else np.array(array, order="C")
                for array in _drawn(point, streams)
            )
        )


def draws(
    point: Point, key: Array, parameters: Mapping[str, Any] = MappingProxyType({})
) -> Realization:
    """What `realize` gives, as JAX arrays and in functions that are compiled or
    vmapped.

    A simulator of one's own has the draws of `simulate(point, seed)` in a row with this
    seed, from the key that it is called with.

    Args:
        point: its fields are Python values, for they decide the shapes.
        key: a `jax.random` key; that of a seed is fold_in(key(root_seed), seed). The
            point's own
            root_seed is not read.
        parameters: float parameters of the laws of the embeddings by dotted name, in
            place of the
            point's own. JAX may trace them; they are not checked. Those of `embedding`
                are of both
            sides where these have the same law. An array of float64 makes such
                embeddings in
            float64.

    Returns:
        The draws, float32 and int32: the integers of `realize` exactly, the embeddings
            to rounding.

    Raises:
        ValueError: as `realize`, and in a compiled function for embeddings from a file.
        PointError: a parameter that the laws lack, or that is a size.

    Examples:
        >>> import jax
        >>> from jaxrecall import Point, draws
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> draws(point, jax.random.fold_in(jax.random.key(0), 5)).Z_in  #
            realize(point, seed=5).Z_in
        >>> jax.vmap(lambda key: draws(point,
            key).perm)(jax.random.split(jax.random.key(0), 8))  # (8, 64)
        >>> draws(point.replace(embedding="equicorrelated"), jax.random.key(0),
            {"embedding.rho": jax.numpy.float32(0.3)})
    """
    expect("point", point, Point, "a jaxrecall.Point", PointError)
    run = jax.random.key_data(expect("key", key, Array, "a key of jax.random"))
    if point.streams == "independent":
        for half in halves_of_id(point):
            run = keys.fold(run, jnp.uint32(half))
    drawn = _drawn(point, keys.streams(run), _all_parameters(point, parameters))
    return Realization(
        *(None if array is None else jnp.asarray(array) for array in drawn)  # type: ignore
    )


def _all_parameters(point: Point, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those given and all other float parameters of embedding laws, if any; raises
    PointError.
    """
    Z_in, Z_out = (
        law.traced(name)
        for name, law in zip(
            ("embedding", "embedding_out"), point.embedding_laws, strict=True
        )
    )
    known = Z_in | Z_out
    allowed = (
        "float parameters of the laws of embeddings, here"
        f" {', '.join(known) or 'none'}; all else, such as sizes, is the point's"
    )
    if problems := [
        Problem(name, f"got {shown(value)}; allowed: {allowed}")
        for name, value in given.items()
        if name not in known
    ]:
        raise PointError(problems)
    both = given if point.embedding_laws[0] == point.embedding_laws[1] else {}
    return (
        known
        | {
            name.replace("embedding.", "embedding_out."): value
            for name, value in both.items()
        }
        | dict(given)
        if given
        else {}
    )


def _drawn(
    point: Point,
    streams: np.ndarray | Array,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> Realization:
    """The draws from the keys of the named streams, (10, 2).

    In a traced function all of it is drawn by one program for the sizes of the point.
    Elsewhere programs of a few padded sizes serve all points, and give the same bits.
    """
    _check_writable(point)
    laws = point.embedding_laws
    xp: Any = jnp if isinstance(streams, Tracer) else np
    streams = xp.asarray(streams)
    if xp is jnp and any(law.on_host for law in laws):
        raise ValueError(
            f"embedding: got {point.embedding}, whose rows are made on the host;"
            " allowed in compiled functions: other laws"
        )
    embeddings = _embeddings(xp, streams, dict(parameters), point)
    perm = xp.asarray(_permutation(streams, point.V, V_pad=_padded(xp, point.V)))[
        : point.V
    ]
    law = tables(point.token_laws, point.V)

    def samples(name: str, n: int, step: int | None = None) -> tuple[Drawn, ...]:
        noise = None if step is None else point.label_noise or None
        of_tokens, of_positions = (
            keys.stream(streams, stream) for stream in (name, f"{name}_position")
        )
        if step is not None:
            of_tokens, of_positions = (
                keys.fold(key, jnp.uint32(step)) for key in (of_tokens, of_positions)
            )
        positions = _tokens(xp, of_positions, None, point.L, 1, n)
        if step is None or point.pool is None:
            return _samples(
                xp,
                _tokens(xp, of_tokens, law, point.V, point.L, n),
                positions,
                perm,
                of_tokens,
                noise,
            )
        pool = _tokens(
            xp, keys.further(of_tokens, keys.POOL), law, point.V, point.L, point.pool
        )[:, 1:]
        rows = _tokens(xp, of_tokens, None, point.pool, 2, n)[:, 1]
        tokens = xp.concatenate(
            [_tokens(xp, of_tokens, law, point.V, 1, n), pool[rows]], axis=1
        )
        return *_samples(xp, tokens, positions, perm, of_tokens, noise), pool, rows

    train = samples("train", point.N, 0)
    if point.fresh_batches:
        train = tuple(
            map(
                xp.stack,
                zip(
                    train,
                    *(
                        samples("train", point.N, step)
                        for step in range(1, batches(point))
                    ),
                    strict=True,
                ),
            )
        )
    items = None
    if point.batch:
        steps = np.arange(first_step(point.start), point.steps, dtype=np.uint32)
        items = _items(streams, steps, point.N, n_blocks=-(-point.batch // BLOCK))[
            :, : point.batch
        ].astype(jnp.int32)
    arrays = (*embeddings, perm, *train[:3], *samples("test", point.n_test), *train[3:])
    return Realization(*arrays)._replace(train_items=items)  # type: ignore[arg-type]


def batches(point: Point) -> int:
    """Batches of N samples that a run draws."""
    return max(3, point.steps) if point.fresh_batches else 1


MAX_TOKENS = 2**26
"""Tokens that `realize` writes out for a point with a
pool, or with a batch for each of many steps: 256 MB.
"""


def _check_writable(point: Point) -> None:
    """Raises ValueError unless the samples of a pool or of fresh batches can be written
    out.
    """
    tokens = (point.N * batches(point) + point.n_test) * point.L
    if tokens > MAX_TOKENS and (point.pool or batches(point) > 3):
        sizes = f"N={point.N}, L={point.L}" + (
            f", steps={point.steps} with fresh_batches" if batches(point) > 3 else ""
        )
        raise ValueError(
            f"N, L: got {sizes}, {tokens} tokens to write out; allowed: up to"
            f" {MAX_TOKENS}, 256 MB"
        )
    if point.batch and (items := point.batch * point.further_steps) > MAX_TOKENS:
        sizes = f"batch={point.batch}, steps={point.steps}"
        raise ValueError(
            f"batch, steps: got {sizes}, {items} samples to write out; allowed: up to"
            f" {MAX_TOKENS}, 256 MB"
        )
    if point.in_the_limit:
        raise ValueError(
            f"N, L: got N={point.N}, L={point.L} with"
            f" V={point.V}{f', pool={point.pool}' if point.pool else ''}, so that the"
            f" {', '.join(point.in_the_limit)} are drawn as Gaussian counts and cannot"
            f" be written out; allowed: up to {MAX_DRAWS} draws, or under {MIN_MEAN} a"
            " count"
        )


def run_keys(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """(n, 10, 2), (n, 3, 2) uint32: keys of the streams of n runs, and of the three
    steps.

    The second are of the samples of each step.

    Streams are those of root_seed and seed, and of the point id too where they are
    independent. Without fresh batches every step reads batch 0.
    """
    points = [point for point, _ in runs]
    halves = [halves_of_id(point) for point in points]
    independent = [point.streams == "independent" for point in points]
    streams = keys.run_streams(
        [point.root_seed for point in points],
        [seed for _, seed in runs],
        halves,
        independent,
    )
    batch = np.array(
        [[step * point.fresh_batches for step in range(3)] for point in points],
        np.uint32,
    )
    return streams, keys.fold_on_host(keys.stream(streams, "train")[:, None], batch)


def expect_both(realization: Any, point: Any) -> None:
    """Raises PointError unless these are a realization and a point."""
    expect("point", point, Point, "a jaxrecall.Point", PointError)
    expect(
        "realization",
        realization,
        Realization,
        "what jaxrecall.realize or jaxrecall.draws returns",
        PointError,
    )


def halves_of_id(point: Point) -> tuple[int, int]:
    """The two 32-bit halves of the id that independent streams are drawn by."""
    return int(point.draws_id[:8], 16), int(point.draws_id[8:], 16)


def _padded(xp: Any, size: int) -> int:
    """The size of a program for one of a point: up to 64, or a quarter larger; in a
    traced function no other.
    """
    return size if xp is jnp else padded(size, 64)


_permutation = partial(jax.jit, static_argnames="V_pad")(task.permutation)


def _embeddings(
    xp: Any, streams: Any, parameters: dict[str, Any], point: Point
) -> tuple[Drawn | None, ...]:
    """Z_in, Z_out, z_trig, z_eos and W_in."""
    V, d, m = sizes = point.V, point.d, point.m
    laws = point.embedding_laws
    # each of its numbers is made by itself; a sum over a row may be rounded by the
    # row's width
    if set(laws) != {Gaussian()}:
        given = (
            task.on_host(laws, streams, V, d)
            if any(law.on_host for law in laws)
            else {}
        )
        return tuple(
            vars(_of_laws(streams, given, parameters, laws, V=V, d=d, m=m)).values()
        )
    tables = _gaussian(
        streams, V, d, m, pad=tuple(_padded(xp, size) if size else 0 for size in sizes)
    )
    parts = zip(
        vars(tables).values(), ((V, d), (V, d), (d,), (d,), (m, d)), strict=True
    )
    return tuple(
        None if table is None else xp.asarray(table)[tuple(map(slice, sizes))]
        for table, sizes in parts
    )


@partial(jax.jit, static_argnames="pad")
def _gaussian(
    streams: Array,
    V: Array | int,
    d: Array | int,
    m: Array | int,
    pad: tuple[int, int, int],
) -> Embeddings:
    return task.draw_embeddings(streams, TOGETHER.index(Gaussian()), V, d, m, pad)


@partial(jax.jit, static_argnames=("laws", "V", "d", "m"))
def _of_laws(
    streams: Array,
    given: dict[str, Array],
    parameters: dict[str, Any],
    laws: tuple[EmbeddingLaw, EmbeddingLaw],
    V: int,
    d: int,
    m: int,
) -> Embeddings:
    together = laws[0] in TOGETHER and laws[1] == laws[0]
    place = TOGETHER.index(laws[0]) if together else 0
    if parameters:
        laws = (
            laws[0].with_traced(parameters),
            laws[1].with_traced(parameters, "embedding_out"),
        )
    return task.draw_embeddings(
        streams, place, V, d, m, (V, d, m), None if together else laws, given
    )


@partial(jax.jit, static_argnames="n_blocks")
def _items(streams: Array, steps: Array, N: Array | int, n_blocks: int) -> Array:
    return jax.vmap(lambda step: task.batch_items(streams, step, (0, n_blocks), N))(
        steps
    )


def _samples(
    xp: Any,
    tokens: Any,
    positions: Any,
    perm: Any,
    of_tokens: Array,
    label_noise: float | None,
) -> tuple[Any, Any, Any]:
    """Tokens (n, L), positions and labels (n,).

    Token 0 of a stream is informative, and changes places with that at its position.
    """
    n, L = tokens.shape
    informative, displaced = (
        xp.array(tokens[:, :1]),
        xp.take_along_axis(tokens, positions, axis=1),
    )
    if xp is jnp:
        place = jnp.arange(L, dtype=jnp.int32)[None]
        tokens = jnp.where(
            place == positions, informative, jnp.where(place == 0, displaced, tokens)
        )
    else:  # in place, which takes half of the memory
        tokens[:, :1] = displaced
        np.put_along_axis(tokens, positions, informative, axis=1)
    labels = perm[informative[:, 0]]
    if label_noise is not None:
        count = _padded(xp, -(-n // BLOCK))
        labels = xp.asarray(
            _noisy(
                of_tokens,
                xp.pad(labels, (0, count * BLOCK - n)),
                len(perm),
                label_noise,
                count,
            )
        )[:n]
    return tokens, positions[:, 0], labels


@partial(jax.jit, static_argnames="count")
def _noisy(
    of_tokens: Array,
    labels: Array,
    V: Array | int,
    label_noise: Array | float,
    count: int,
) -> Array:
    return task.noisy_labels(keys.blocks(of_tokens, 0, count), labels, V, label_noise)


WIDTH, COUNT = 16, 8
"""Positions, and blocks of 512 samples, that one call draws tokens of."""


def _tokens(xp: Any, key: Any, law: np.ndarray | None, V: int, L: int, n: int) -> Any:
    """(n, L) int32."""
    n_blocks = -(-n // BLOCK)
    if xp is jnp:
        return _some_tokens(key, law, V, 0, 0, L, n_blocks)[:, :n].T
    if law is not None:
        law = np.pad(law, ((0, 0), (0, 0), (0, _padded(np, V) - V)))
    tokens = np.empty((n, L), np.int32)
    for i, j in product(range(0, n_blocks, COUNT), range(0, L, WIDTH)):
        part = tokens[i * BLOCK :][: COUNT * BLOCK, j : j + WIDTH]
        part[:] = np.asarray(_some_tokens(key, law, V, j, i, WIDTH, COUNT)).T[
            : len(part), : part.shape[1]
        ]
    return tokens


@partial(jax.jit, static_argnames=("width", "count"))
def _some_tokens(
    key: Array,
    law: Array | None,
    V: Array | int,
    position: Array | int,
    block: Array | int,
    width: int,
    count: int,
) -> Array:
    return task.tokens(
        keys.blocks(key, block, count),
        jnp.uint32(position) + jnp.arange(width, dtype=jnp.uint32),
        V,
        law,
    )
