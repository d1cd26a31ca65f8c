"""The fixed random embeddings and the MLP's fixed first layer, drawn padded and masked."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..laws.embedding import EMBEDDING_LAWS, Rescaled
from . import keys


class Embeddings(eqx.Module):
    """Frozen parameters of the model; rows and columns beyond V, d, m are zero."""

    Z_in: Float[Array, "V d"]
    Z_out: Float[Array, "V d"]
    z_trig: Float[Array, " d"]
    z_eos: Float[Array, " d"]
    W_in: Float[Array, "m d"] | None
    """None is attention-only."""


def redrawn_first_layer(streams: Array, r: Array | int, d: Array | int, m: Array | int, pad: tuple[int, int]) -> Array:
    """The r-th independent copy of W_in, padded to `pad` = (m_pad, d_pad); a prefix in m and in d, as W_in is."""
    m_pad, d_pad = pad
    real = (jnp.arange(m_pad, dtype=jnp.int32)[:, None] < m) & (jnp.arange(d_pad, dtype=jnp.int32)[None] < d)
    key = keys.further(keys.stream(streams, "w_in"), r)
    return jnp.where(real, keys.normals(keys.rows(key, m_pad), d_pad), jnp.float32(0))


def draw(streams: Array, law: Array | int, V: Array | int, d: Array | int, m: Array | int, pad: tuple[int, int, int]) -> Embeddings:
    """Embeddings of one run, padded to `pad` = (V_pad, d_pad, m_pad); `law` is the place of a law in EMBEDDING_LAWS.

    Every law makes its rows of the same normals, and one program serves all laws. W_in has entries N(0, 1). With the same
    streams, gaussian and sphere embeddings of a smaller d are a prefix of those of a larger one up to scale, and W_in is a
    prefix in m and d.
    """
    V_pad, d_pad, m_pad = pad
    counts = {"z_in": V_pad, "z_out": V_pad, "z_trig": 1, "z_eos": 1, "w_in": m_pad}
    true = {"z_in": V, "z_out": V, "z_trig": 1, "z_eos": 1, "w_in": m}
    first_unit = {"z_in": 0, "z_out": 0, "z_trig": V, "z_eos": V + 1, "w_in": 0}

    def of_rows(value: Callable[[str, Array], Array]) -> Array:
        """One entry for each row of all tables: they are drawn together, which compiles faster than table by table."""
        return jnp.concatenate([value(name, jnp.arange(count, dtype=jnp.int32)) for name, count in counts.items()])

    key = of_rows(lambda name, row: jnp.broadcast_to(keys.stream(streams, name), (len(row), 2)))
    row = of_rows(lambda name, row: row)
    real = of_rows(lambda name, row: row < true[name])[:, None]
    unit = of_rows(lambda name, row: row + first_unit[name])[:, None]
    column = jnp.arange(d_pad, dtype=jnp.int32)[None, :]
    normal = jnp.where(real & (column < d), keys.normals(keys.fold(key, row.astype(jnp.uint32)), d_pad), jnp.float32(0))
    length = jnp.float32(1)
    for place, one in enumerate(EMBEDDING_LAWS.values()):
        if isinstance(one, Rescaled):
            length = jnp.where(real & (law == place), one.length(normal, d, jnp), length)
    z = normal / length
    for place, one in enumerate(EMBEDDING_LAWS.values()):
        if not isinstance(one, Rescaled):
            z = jnp.where(law == place, jnp.where(real & (column < d), one.rows(normal, unit, d, jnp), jnp.float32(0)), z)
    Z_in, Z_out, z_trig, z_eos, _ = jnp.split(z, list(itertools.accumulate(counts.values()))[:-1])
    return Embeddings(Z_in, Z_out, z_trig[0], z_eos[0], normal[-m_pad:] if m_pad else None)
