"""What a run draws: the permutation, samples, the embeddings, and the MLP's first
layer.

The model has no positions, so token 0 of a stream is the informative one and the
simulator never moves it; only `realize` swaps it to position ell. Embeddings are drawn
padded and masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from . import keys
from .laws import TOGETHER, Draws, EmbeddingLaw, Rescaled


def permutation(streams: Array, V: Array | int, V_pad: int) -> Array:
    """(V_pad,) int32: a uniform permutation pi of 0..V-1, label of token v at index v.

    Entries from V on are padding.

    Items are sorted by two random words each (their row keys), so that equal keys
    (chance V^2 / 2^65) do not bend the law.
    """
    items = jnp.arange(V_pad, dtype=jnp.int32)
    key = keys.stream(streams, "permutation")
    words = keys.threefry2x32(
        key[0], key[1], jnp.zeros(V_pad, jnp.uint32), items.astype(jnp.uint32)
    )
    padding = (items >= V).astype(jnp.int32)
    return lax.sort((padding, *words, items), num_keys=3)[3]


def batch_items(
    streams: Array, step: Array | int, blocks: tuple[Array | int, int], N: Array | int
) -> Array:
    """(512 * count,) uint32: the samples of a step's batch, drawn with replacement.

    Each of the N is as likely. `blocks` is (first, count): the places of
    the batch, 512 a block.
    """
    key = keys.further(keys.stream(streams, "train"), step)
    return keys.below_many(keys.words(keys.blocks(key, *blocks), 0), N).astype(
        jnp.uint32
    )


def tokens(
    blocks: keys.Addresses,
    position: Array | int,
    V: Array | int,
    tables: Array | None = None,
) -> Array:
    """(..., 512 * count) int32: tokens at each `position` (...,) of the samples of
    `blocks`; 0 is informative.

    Tokens are uniform, or drawn by alias tables (1 or 2, 2, V), the last one for noise:
    see `laws.tokens`.
    """
    word = keys.words(blocks, position)
    cell = keys.below(word, V)
    if tables is None:
        return cell
    n, _, V_pad = tables.shape
    place = cell.astype(jnp.uint32)
    if n > 1:
        is_noise = (jnp.asarray(position) > 0).astype(jnp.uint32)
        place = place + jnp.uint32(V_pad) * is_noise[..., None]
    first, other = (
        tables[:, i].reshape(-1).at[place].get(mode="promise_in_bounds")
        for i in range(2)
    )
    return jnp.where(word < first, cell, other.astype(jnp.int32))


def noisy_labels(
    blocks: keys.Addresses, labels: Array, V: Array | int, label_noise: Array | float
) -> Array:
    """`labels` (n,) of samples, each replaced with probability `label_noise`.

    The new label is uniform. Noise has a stream of its own, so it moves no other draw,
    and samples that are noisy stay so where there is more of it.
    """
    chosen, drawn = keys.words(
        blocks._replace(key=keys.further(blocks.key, keys.LABELS)),
        jnp.arange(2, dtype=jnp.uint32),
    )
    uniform = (chosen >> jnp.uint32(8)).astype(jnp.float32) * jnp.float32(2**-24)
    return jnp.where(uniform < jnp.float32(label_noise), keys.below(drawn, V), labels)


class Embeddings(eqx.Module):
    """Frozen parameters of the model; rows and columns beyond V, d, m are zero."""

    Z_in: Float[Array, "V d"]
    Z_out: Float[Array, "V d"]
    z_trig: Float[Array, " d"]
    z_eos: Float[Array, " d"]
    W_in: Float[Array, "m d"] | None
    """None is attention-only."""


def redrawn_first_layer(
    streams: Array, r: Array | int, d: Array | int, m: Array | int, pad: tuple[int, int]
) -> Array:
    """The r-th independent copy of W_in, padded to `pad` = (m_pad, d_pad).

    With smaller m or d it is a prefix of a larger one, as W_in is.
    """
    m_pad, d_pad = pad
    real = (jnp.arange(m_pad, dtype=jnp.int32)[:, None] < m) & (
        jnp.arange(d_pad, dtype=jnp.int32)[None] < d
    )
    key = keys.further(keys.stream(streams, "w_in"), r)
    return jnp.where(real, keys.normals(keys.rows(key, m_pad), d_pad), jnp.float32(0))


def draw_embeddings(
    streams: Array,
    law: Array | int,
    V: Array | int,
    d: Array | int,
    m: Array | int,
    pad: tuple[int, int, int],
    own: tuple[EmbeddingLaw, EmbeddingLaw] | None = None,
    given: Mapping[str, Array] = MappingProxyType({}),
) -> Embeddings:
    """Embeddings of one run, padded to `pad` = (V_pad, d_pad, m_pad).

    The first law of `own` makes Z_in, z_trig and z_eos, the second Z_out; without them
    the law at the place `law` of TOGETHER makes all. `given` is what `on_host` made,
    padded.

    Every law makes its rows of the same normals, and one program serves all of
    TOGETHER. W_in has entries N(0, 1). With the same streams, gaussian and sphere
    embeddings of a smaller d are a prefix of those of a larger one up to scale, and
    W_in is a prefix in m and d.
    """
    V_pad, d_pad, m_pad = pad
    counts = V_pad, V_pad, 1, 1, m_pad
    table = np.repeat(np.arange(len(TABLES)), counts)
    row = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    true = jnp.array([V, V, 1, 1, m], jnp.int32)
    first_unit = jnp.array([0, 0, V, V + 1, 0], jnp.int32)
    key = streams[np.array([keys.STREAMS[name] for name in TABLES])]

    real = (row < true[table])[:, None] & (jnp.arange(d_pad, dtype=jnp.int32)[None] < d)
    # all tables are drawn together, which compiles faster than table by table
    row_keys = keys.fold(key[table], jnp.asarray(row, jnp.uint32))
    normal = jnp.where(real, keys.normals(row_keys, d_pad), jnp.float32(0))
    unit = (row + first_unit[table])[:, None]
    places = np.cumsum(counts)[:-1]
    if own is None:
        z = _together(law, Draws("Z_in", unit, normal, None, V, d), real)
        tables = jnp.split(z, places)[:-1]
    else:
        laws = (own[0], own[1], own[0], own[0])
        parts = jnp.split(normal, places), jnp.split(real, places)
        tables = []
        for name, of, rows, mask in zip(TABLES, laws, *parts, strict=False):
            made = _table(of, name, streams, rows, mask, (V, d), given.get(name))
            tables.append(made)
    Z_in, Z_out, z_trig, z_eos = tables
    W_in = normal[-m_pad:] if m_pad else None
    return Embeddings(Z_in, Z_out, z_trig[0], z_eos[0], W_in)


def on_host(
    laws: tuple[EmbeddingLaw, EmbeddingLaw], streams: np.ndarray, V: int, d: int
) -> dict[str, np.ndarray]:
    """(V, d) float32 rows of Z_in and Z_out that laws make on the host, by stream.

    A law that makes its rows in the program has none.
    """
    found = {}
    for name, law in zip(TABLES, laws, strict=False):
        if law.on_host:
            order = partial(_order, tuple(map(int, keys.stream(streams, name))))
            found[name] = law.from_host(order, V, d)
    return found


@lru_cache(64)
def _order(stream: tuple[int, int], r: int, n: int) -> np.ndarray:
    """(n,) a random order of 0..n-1, by a random word of 64 bits each.

    The words are those of Philox, whose stream NumPy keeps the same, under the key of
    the stream and r. They are kept, since points of a sweep share those of their seeds.
    """
    words = np.random.Philox(key=stream[0] << 96 | stream[1] << 64 | r).random_raw(n)
    return np.argsort(words).astype(np.int32)


def _together(law: Array | int, draws: Draws, real: Array | np.ndarray) -> Array:
    """The rows of all tables by the law at this place of TOGETHER.

    A row's number is that of its unit vector.
    """

    def rescaled() -> Array:
        length = jnp.float32(1)
        for place, one in enumerate(TOGETHER):
            if isinstance(one, Rescaled):
                length = jnp.where(
                    real[:, :1] & (law == place), one.length(draws, jnp), length
                )
        return draws.normals / length

    def by(other: EmbeddingLaw) -> Callable[[], Array]:
        return lambda: jnp.where(real, other.rows(draws, jnp), jnp.float32(0))

    branches, index = [rescaled], 0
    for place, one in enumerate(TOGETHER):
        if not isinstance(one, Rescaled):
            index = index + jnp.where(law == place, len(branches), 0)
            branches.append(by(one))
    # branches rather than a select: XLA would compute a select again inside everything
    # that reads the rows
    return lax.switch(index, branches)


def _table(
    law: EmbeddingLaw,
    stream: str,
    streams: Array,
    normals: Array,
    real: Array,
    sizes: tuple[Array | int, Array | int],
    given: Array | None,
) -> Array:
    """(n, d_pad) rows of one table by a law of its own program; `sizes` are V and d."""
    name = {"z_in": "Z_in", "z_out": "Z_out"}.get(stream, stream)
    n, width = normals.shape
    key = keys.stream(streams, stream)
    shared = keys.normals(keys.rows(keys.further(key, SHARED), law.n_shared), width)
    own = keys.normals(keys.rows(keys.further(key, OWN), n), law.n_own)
    if any(map(_is_float64, vars(law).values())):
        normals, shared, own = (a.astype(jnp.float64) for a in (normals, shared, own))
    row = jnp.arange(n, dtype=jnp.int32)[:, None]
    draws = Draws(name, row, normals, shared, *sizes, own, given)
    with jax.default_matmul_precision("highest"):  # draws depend on no setting
        rows = law.make(draws, jnp)
    return jnp.where(real, rows, 0)


def _is_float64(value: object) -> bool:
    """Whether a parameter of a law is a float64 array, which sets the type of rows."""
    if not isinstance(value, Array) or value.weak_type:
        return False
    return value.dtype == jnp.float64


SHARED, OWN = range(2)
"""Further streams of a table: normals that all its rows share, and further ones of each
row.
"""


TABLES = "z_in", "z_out", "z_trig", "z_eos", "w_in"
"""Streams of the rows that a run draws."""
