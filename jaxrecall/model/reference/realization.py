"""Everything random of one run as plain arrays: what other code needs to check a row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .. import embeddings as embed
from .. import keys, task
from ..laws import TOGETHER, EmbeddingLaw
from ..laws.tokens import largest_words
from ..point import BLOCK, REDRAWS, Point, Run, checked_seed
from ..pool import MAX_DRAWS, MIN_MEAN
from ..training import first_step


class Realization(NamedTuple):
    """Draws of one (point, seed) as NumPy arrays, float32 and int32; with fresh_batches train_* has a leading axis, a batch a step."""

    Z_in: Float[np.ndarray, "V d"]  # input embeddings
    Z_out: Float[np.ndarray, "V d"]  # output embeddings
    z_trig: Float[np.ndarray, " d"]
    z_eos: Float[np.ndarray, " d"]
    W_in: Float[np.ndarray, "m d"] | None  # None without an MLP
    perm: Int[np.ndarray, " V"]  # label of each token
    train_tokens: Int[np.ndarray, "*steps N L"]
    train_positions: Int[np.ndarray, "*steps N"]  # where the informative token stands
    train_labels: Int[np.ndarray, "*steps N"]
    test_tokens: Int[np.ndarray, "n_test L"]
    test_positions: Int[np.ndarray, " n_test"]
    test_labels: Int[np.ndarray, " n_test"]
    pool: Int[np.ndarray, "*steps K noise"] | None = None  # the L - 1 noise tokens of each sequence; None without a pool
    train_rows: Int[np.ndarray, "*steps N"] | None = None  # which sequence of the pool each sample has
    train_items: Int[np.ndarray, "further batch"] | None = None  # which samples each further step reads; None: all

    @property
    def embeddings(self) -> embed.Embeddings:
        """The same embeddings and W_in as `jaxrecall.model` takes them."""
        return embed.Embeddings(*(None if array is None else jnp.asarray(array) for array in self[:5]))  # type: ignore[arg-type]


def realize(point: Point, seed: int) -> Realization:
    """Every random draw of the run (point, seed): the numbers that `simulate` streams, held in memory.

    Memory: about 4 N L bytes, with fresh batches that for each step. The dtypes do not depend on JAX_ENABLE_X64. Raises ValueError
    for a point with a pool, or with batches for further steps, whose samples are more than MAX_TOKENS numbers, and for a pool that is
    known only as Gaussian counts.

        >>> from jaxrecall import Point, realize
        >>> draws = realize(Point(V=64, N=1024, d=32, L=8), seed=0)
        >>> draws.Z_in.shape, draws.train_tokens.shape
    """
    seed = checked_seed(seed)
    _check_writable(point)
    streams = run_keys([Run(point, seed)])[0][0]
    laws = point.embedding_laws
    e = _embeddings(streams, embed.on_host(laws, streams, point.V, point.d), laws, V=point.V, d=point.d, m=point.m)
    perm = np.asarray(jax.jit(task.permutation, static_argnums=(1, 2))(streams, point.V, point.V))

    law = None if point.tokens == "uniform" else largest_words(point.token_law, point.V)

    def drawn(key: np.ndarray, below: int, length: int, n: int, law: np.ndarray | None = None) -> np.ndarray:
        return np.asarray(_tokens(key, law, V=below, L=length, n_blocks=-(-n // BLOCK)))[:n]

    def samples(
        tokens_key: np.ndarray, positions_key: np.ndarray, n: int, noise: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if noise is None:
            tokens = drawn(tokens_key, point.V, point.L, n, law).copy()
        else:
            tokens = np.concatenate([drawn(tokens_key, point.V, 1, n), noise], axis=1)
        positions = drawn(positions_key, point.L, 1, n)[:, 0]
        labels = perm[tokens[:, 0]]
        row = np.arange(n)
        informative = tokens[:, 0].copy()
        tokens[:, 0] = tokens[row, positions]
        tokens[row, positions] = informative
        return tokens, positions.copy(), labels

    def batch(step: int) -> tuple[np.ndarray, ...]:
        at = np.array([step], np.uint32)
        tokens_key, positions_key = (keys.fold_on_host(keys.stream(streams, name), at)[0] for name in ("train", "train_position"))
        if point.pool is None:
            return samples(tokens_key, positions_key, point.N)
        pool = drawn(np.asarray(keys.further(tokens_key, keys.POOL)), point.V, point.L, point.pool)[:, 1:]
        rows = drawn(tokens_key, point.pool, 2, point.N)[:, 1].copy()
        return *samples(tokens_key, positions_key, point.N, pool[rows]), pool.copy(), rows

    train = batch(0)
    if point.fresh_batches:
        train = tuple(np.stack(parts) for parts in zip(*map(batch, range(batches(point))), strict=True))
    test = samples(keys.stream(streams, "test"), keys.stream(streams, "test_position"), point.n_test)
    arrays = [None if a is None else np.array(a) for a in (e.Z_in, e.Z_out, e.z_trig, e.z_eos, e.W_in)]
    items = None
    if point.batch:
        steps = np.arange(first_step(point.start), point.steps, dtype=np.uint32)
        items = np.asarray(_items(streams, steps, point.N, n_blocks=-(-point.batch // BLOCK)))[:, : point.batch].astype(np.int32)
    return Realization(*arrays, perm, *train[:3], *test, *train[3:])._replace(train_items=items)  # type: ignore[arg-type]


def batches(point: Point) -> int:
    """Batches of N samples that a run draws."""
    return max(3, point.steps) if point.fresh_batches else 1


MAX_TOKENS = 2**26
"""Tokens that `realize` writes out for a point with a pool, or with a batch for each of many steps: 256 MB."""


def _check_writable(point: Point) -> None:
    """Raises ValueError unless the samples of a point with a pool, or of many fresh batches, can be written out."""
    tokens = (point.N * batches(point) + point.n_test) * point.L
    if tokens > MAX_TOKENS and (point.pool or batches(point) > 3):
        sizes = f"N={point.N}, L={point.L}" + (f", steps={point.steps} with fresh_batches" if batches(point) > 3 else "")
        raise ValueError(f"N, L: got {sizes}, {tokens} tokens to write out; allowed: up to {MAX_TOKENS}, 256 MB")
    if point.batch and (items := point.batch * point.further_steps) > MAX_TOKENS:
        sizes = f"batch={point.batch}, steps={point.steps}"
        raise ValueError(f"batch, steps: got {sizes}, {items} samples to write out; allowed: up to {MAX_TOKENS}, 256 MB")
    if point.in_the_limit:
        raise ValueError(
            f"N, L: got N={point.N}, L={point.L} with V={point.V}, pool={point.pool}, so that the {', '.join(point.in_the_limit)} are "
            f"drawn as Gaussian counts and cannot be written out; allowed: up to {MAX_DRAWS} draws, or under {MIN_MEAN} a count"
        )


def redraws(point: Point, seed: int) -> np.ndarray:
    """(REDRAWS, m, d) float32: the independent copies of W_in that `diagnose` puts in its place."""
    streams, _ = run_keys([Run(point, checked_seed(seed))])
    return np.stack([embed.redrawn_first_layer(streams[0], r, point.d, point.m, (point.m, point.d)) for r in range(REDRAWS)])


def run_keys(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """(n, 10, 2), (n, 3, 2) uint32: keys of the named streams of n runs, and of the samples of their gradient steps.

    Streams are those of root_seed and seed, and of the point id too where they are independent. Without fresh batches every
    step reads batch 0.
    """
    points = [point for point, _ in runs]
    halves = [[int(point.draws_id[:8], 16), int(point.draws_id[8:], 16)] for point in points]
    independent = [point.streams == "independent" for point in points]
    streams = keys.run_streams([point.root_seed for point in points], [seed for _, seed in runs], halves, independent)
    batch = np.array([[step * point.fresh_batches for step in range(3)] for point in points], np.uint32)
    return streams, keys.fold_on_host(keys.stream(streams, "train")[:, None], batch)


@partial(jax.jit, static_argnames=("laws", "V", "d", "m"))
def _embeddings(
    streams: Array, given: dict[str, Array], laws: tuple[EmbeddingLaw, EmbeddingLaw], V: int, d: int, m: int
) -> embed.Embeddings:
    together = laws[0] in TOGETHER and laws[1] == laws[0]
    place = TOGETHER.index(laws[0]) if together else 0
    return embed.draw(streams, place, V, d, m, (V, d, m), None if together else laws, given)


@partial(jax.jit, static_argnames="n_blocks")
def _items(streams: Array, steps: Array, N: int, n_blocks: int) -> Array:
    return jax.vmap(lambda step: task.batch_items(streams, step, (0, n_blocks), N))(steps)


@partial(jax.jit, static_argnames=("V", "L", "n_blocks"))
def _tokens(key: Array, law: Array | None, V: int, L: int, n_blocks: int) -> Array:
    blocks = keys.blocks(key, 0, n_blocks)
    return jax.vmap(lambda j: task.tokens(blocks, j, V, law), out_axes=1)(jnp.arange(L, dtype=jnp.uint32))
