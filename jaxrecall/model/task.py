"""The functions that draw the permutation, the samples, the embeddings, and the MLP's
first layer.

The model has no positional encoding, so the simulator leaves the informative token at
position 0. Only `realize` moves this token to position ell. Embeddings are drawn with
padding, and the padding is then set to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import register_dataclass
from jaxtyping import Float

from . import keys
from .laws import Draws, EmbeddingLaw


def permutation(streams: Array, V: Array | int, V_pad: int) -> Array:
    """Returns (V_pad,) int32: a uniform permutation pi of 0..V-1. Entry v is the label
    of token v.

    Entries from V on are padding.

    The permutation sorts tokens by their row keys, two random words each. Two tokens
    have equal keys with probability V^2 / 2^65, so ties do not distort the
    distribution.
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
    """Returns (512 * count,) uint32: the numbers of the samples in a step's batch,
    drawn with replacement.

    Each of the N samples is equally likely. `blocks` is (first, count), and selects
    blocks of 512 places in the batch.
    """
    key = keys.further(keys.stream(streams, "train"), step)
    return keys.below_many(keys.words(keys.blocks(key, *blocks), 0), N).astype(
        jnp.uint32
    )


def tokens(
    blocks: keys.Addresses,
    position: Array | int,
    V: Array | int,
    tables: Array | None,
) -> Array:
    """Returns (..., 512 * count) int32: the tokens at each `position` (...,) of the
    samples of `blocks`.

    Position 0 contains the informative token. Tokens are uniform, or drawn by alias
    tables (1 or 2, 2, V). The last table draws the noise tokens. See `laws.tokens`.
    """
    word = keys.words(blocks, position)
    cell = keys.below(word, V)
    if tables is None:
        return cell
    n, _, V_pad = tables.shape
    entry = cell.astype(jnp.uint32)
    if n > 1:
        is_noise = (jnp.asarray(position) > 0).astype(jnp.uint32)
        entry = entry + jnp.uint32(V_pad) * is_noise[..., None]
    first, other = (
        tables[:, i].reshape(-1).at[entry].get(mode="promise_in_bounds")
        for i in range(2)
    )
    return jnp.where(word < first, cell, other.astype(jnp.int32))


def noisy_labels(
    blocks: keys.Addresses, labels: Array, V: Array | int, label_noise: Array | float
) -> Array:
    """Returns the `labels` (n,) of samples, each replaced with probability
    `label_noise`.

    The new label is uniform. Label noise has a stream of its own, so it changes no
    other draw. A sample that is noisy at one `label_noise` is also noisy at every
    larger one.
    """
    chosen, drawn = keys.words(
        blocks._replace(key=keys.further(blocks.key, keys.LABELS)),
        jnp.arange(2, dtype=jnp.uint32),
    )
    uniform = (chosen >> jnp.uint32(8)).astype(jnp.float32) * jnp.float32(2**-24)
    return jnp.where(uniform < jnp.float32(label_noise), keys.below(drawn, V), labels)


@register_dataclass
@dataclass(frozen=True)
class Embeddings:
    """The frozen parameters of the model. Rows and columns beyond V, d and m are
    zero.
    """

    Z_in: Float[Array, "V d"]
    Z_out: Float[Array, "V d"]
    z_trig: Float[Array, " d"]
    z_eos: Float[Array, " d"]
    W_in: Float[Array, "m d"] | None
    """The first layer of the MLP, or None for attention-only."""


def redrawn_first_layer(
    streams: Array, r: Array | int, d: Array | int, m: Array | int, pad: tuple[int, int]
) -> Array:
    """Returns the r-th independent redraw of W_in, padded to `pad` = (m_pad, d_pad).

    A copy with smaller m or d is a prefix of a copy with larger ones, as for W_in.
    """
    m_pad, d_pad = pad
    real = (jnp.arange(m_pad, dtype=jnp.int32)[:, None] < m) & (
        jnp.arange(d_pad, dtype=jnp.int32)[None] < d
    )
    key = keys.further(keys.stream(streams, "w_in"), r)
    return jnp.where(real, keys.normals(keys.rows(key, m_pad), d_pad), jnp.float32(0))


def draw_embeddings(
    streams: Array,
    laws: tuple[EmbeddingLaw, EmbeddingLaw],
    V: Array | int,
    d: Array | int,
    m: Array | int,
    pad: tuple[int, int, int],
    given: Mapping[str, Array],
) -> Embeddings:
    """Returns the embeddings of one run, padded to `pad` = (V_pad, d_pad, m_pad).

    The first of `laws` makes Z_in, z_trig and z_eos, and the second makes Z_out.
    `given` is the padded output of `on_host`.

    All laws make their rows from the same normals. W_in has entries N(0, 1). With the
    same streams, gaussian and sphere
    embeddings with a smaller d are, up to scale, a prefix of the embeddings with a
    larger d. The same holds for W_in in m and d, without the scale.
    """
    V_pad, d_pad, m_pad = pad
    counts = V_pad, V_pad, 1, 1, m_pad
    table = np.repeat(np.arange(len(TABLES)), counts)
    row = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    true = jnp.array([V, V, 1, 1, m], jnp.int32)
    key = streams[np.array([keys.STREAMS[name] for name in TABLES])]

    real = (row < true[table])[:, None] & (jnp.arange(d_pad, dtype=jnp.int32)[None] < d)
    # all tables are drawn together, which compiles faster than table by table
    row_keys = keys.fold(key[table], jnp.asarray(row, jnp.uint32))
    normal = jnp.where(real, keys.normals(row_keys, d_pad), jnp.float32(0))
    places = np.cumsum(counts)[:-1]
    law, law_out = laws
    parts = jnp.split(normal, places), jnp.split(real, places)
    tables = []
    for name, one, rows, mask in zip(
        TABLES, (law, law_out, law, law), *parts, strict=False
    ):
        tables.append(_table(one, name, streams, rows, mask, (V, d), given.get(name)))
    Z_in, Z_out, z_trig, z_eos = tables
    W_in = normal[-m_pad:] if m_pad else None
    return Embeddings(Z_in, Z_out, z_trig[0], z_eos[0], W_in)


def on_host(
    laws: tuple[EmbeddingLaw, EmbeddingLaw], streams: np.ndarray, V: int, d: int
) -> dict[str, np.ndarray]:
    """Returns a dict from stream name (`z_in`, `z_out`) to (V, d) float32 rows. It
    contains only the tables whose law makes its rows on the host.

    The other laws make their rows in the compiled program.
    """
    tables = {}
    for name, law in zip(TABLES, laws, strict=False):
        if law.on_host:
            order = partial(_order, tuple(map(int, keys.stream(streams, name))))
            tables[name] = law.from_host(order, V, d)
    return tables


@lru_cache(64)
def _order(stream: tuple[int, int], r: int, n: int) -> np.ndarray:
    """Returns a random order of 0..n-1, (n,) int32, sorted by one random word of 64
    bits per item.

    The words come from Philox, whose output NumPy keeps stable. The key consists of the
    stream and r. Orders are cached, because the points of a sweep use the same ones for
    the same seed.
    """
    words = np.random.Philox(key=stream[0] << 96 | stream[1] << 64 | r).random_raw(n)
    return np.argsort(words).astype(np.int32)


def _table(
    law: EmbeddingLaw,
    stream: str,
    streams: Array,
    normals: Array,
    real: Array,
    sizes: tuple[Array | int, Array | int],
    given: Array | None,
) -> Array:
    """Returns the rows (n, d_pad) of one table. `sizes` are V and d."""
    name = {"z_in": "Z_in", "z_out": "Z_out"}.get(stream, stream)
    n, width = normals.shape
    key = keys.stream(streams, stream)
    shared = keys.normals(keys.rows(keys.further(key, SHARED), law.n_shared), width)
    of_rows = keys.normals(keys.rows(keys.further(key, OWN), n), law.n_own)
    if any(map(_is_float64, vars(law).values())):
        normals, shared, of_rows = (
            a.astype(jnp.float64) for a in (normals, shared, of_rows)
        )
    row = jnp.arange(n, dtype=jnp.int32)[:, None]
    draws = Draws(name, row, normals, shared, *sizes, of_rows, given)
    with jax.default_matmul_precision("highest"):  # independent of the user's setting
        rows = law.make(draws, jnp)
    return jnp.where(real, rows, 0)


def _is_float64(value: object) -> bool:
    """Whether a parameter of a law is a float64 array, which makes its rows float64."""
    if not isinstance(value, Array) or value.weak_type:
        return False
    return value.dtype == jnp.float64


SHARED, OWN = range(2)
"""The numbers of a table's additional streams: one for the normals that all rows share,
and one for the additional normals of each row.
"""


TABLES = "z_in", "z_out", "z_trig", "z_eos", "w_in"
"""The names of the streams from which a run draws rows of normals."""
