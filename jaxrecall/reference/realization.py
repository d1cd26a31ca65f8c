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

from ..laws.embedding import law_index
from ..point import BLOCK, REDRAWS, Point, Run, checked_seed
from ..science import embeddings as embed
from ..science import keys, task


class Realization(NamedTuple):
    """Draws of one (point, seed) as NumPy arrays, float32 and int32; a fresh_batches point has a leading axis 3 on train_*."""

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


def realize(point: Point, seed: int) -> Realization:
    """Every random draw of the run (point, seed): the numbers that `simulate` streams, held in memory.

    Memory: about 4 N L bytes (12 N L with fresh batches). The dtypes do not depend on JAX_ENABLE_X64.
    """
    seed = checked_seed(seed)
    streams, batches = run_keys([Run(point, seed)])
    streams, batches = streams[0], batches[0]
    e = _embeddings(streams, law_index(point.embedding), V=point.V, d=point.d, m=point.m)
    perm = np.asarray(jax.jit(task.permutation, static_argnums=(1, 2))(streams, point.V, point.V))

    def samples(tokens_key: np.ndarray, positions_key: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tokens = np.asarray(_tokens(tokens_key, V=point.V, L=point.L, n_blocks=-(-n // BLOCK)))[:n].copy()
        positions = np.asarray(_tokens(positions_key, V=point.L, L=1, n_blocks=-(-n // BLOCK)))[:n, 0]
        labels = perm[tokens[:, 0]]
        row = np.arange(n)
        informative = tokens[:, 0].copy()
        tokens[:, 0] = tokens[row, positions]
        tokens[row, positions] = informative
        return tokens, positions.copy(), labels

    def batch(step: int) -> tuple[np.ndarray, ...]:
        positions_key = keys.fold_on_host(keys.stream(streams, "train_position"), np.array([step], np.uint32))[0]
        return samples(batches[step], positions_key, point.N)

    train = batch(0)
    if point.fresh_batches:
        train = tuple(np.stack(parts) for parts in zip(train, batch(1), batch(2), strict=True))
    test = samples(keys.stream(streams, "test"), keys.stream(streams, "test_position"), point.n_test)
    arrays = [None if a is None else np.array(a) for a in (e.Z_in, e.Z_out, e.z_trig, e.z_eos, e.W_in)]
    return Realization(*arrays, perm, *train, *test)  # type: ignore[arg-type]


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


@partial(jax.jit, static_argnames=("V", "d", "m"))
def _embeddings(streams: Array, law: Array | int, V: int, d: int, m: int) -> embed.Embeddings:
    return embed.draw(streams, law, V, d, m, (V, d, m))


@partial(jax.jit, static_argnames=("V", "L", "n_blocks"))
def _tokens(key: Array, V: int, L: int, n_blocks: int) -> Array:
    blocks = keys.blocks(key, 0, n_blocks)
    return jax.vmap(lambda j: task.tokens(blocks, j, V), out_axes=1)(jnp.arange(L, dtype=jnp.uint32))
