"""The fixed random embeddings and the MLP's fixed first layer, drawn padded and masked."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from . import keys
from .point import Embedding

LAWS: tuple[Embedding, ...] = ("gaussian", "sphere", "orthogonal")
"""The law enters a program as its index here, so one program serves all three."""


class Embeddings(eqx.Module):
    """Frozen parameters of the model; rows and columns beyond V, d, m are zero. float32."""

    Z_in: Array  # (V, d)
    Z_out: Array  # (V, d)
    z_trig: Array  # (d,)
    z_eos: Array  # (d,)
    W_in: Array | None  # (m, d); None is attention-only


def draw(streams: Array, law: Array | int, V: Array | int, d: Array | int, m: Array | int, pad: tuple[int, int, int]) -> Embeddings:
    """Embeddings of one run, padded to `pad` = (V_pad, d_pad, m_pad); `law` is an index into LAWS.

    gaussian: entries N(0, 1/d). sphere: the same normals, rows normalised. orthogonal: unit vectors, because every metric
    is rotation invariant; needs d >= V + 2. W_in: entries N(0, 1). With the same streams, embeddings of a smaller d are a
    prefix of those of a larger one up to scale, and W_in is a prefix in m and d.
    """
    V_pad, d_pad, m_pad = pad
    counts = {"z_in": V_pad, "z_out": V_pad, "z_trig": 1, "z_eos": 1, "w_in": m_pad}
    # all rows in one call, which compiles faster than five
    stream_of_row = jnp.concatenate([jnp.broadcast_to(keys.stream(streams, name), (count, 2)) for name, count in counts.items()])
    row = jnp.concatenate([jnp.arange(count, dtype=jnp.uint32) for count in counts.values()])
    everything = keys.normals(keys.fold(stream_of_row, row), d_pad)
    bounds = list(itertools.accumulate(counts.values()))[:-1]
    normal_of = dict(zip(counts, jnp.split(everything, bounds), strict=True))
    column = jnp.arange(d_pad, dtype=jnp.int32)[None, :]

    def rows(name: str, first_unit: Array | int) -> Array:
        index = jnp.arange(counts[name], dtype=jnp.int32)[:, None]
        normal = jnp.where(column < d, normal_of[name], jnp.float32(0))
        gaussian = normal / jnp.sqrt(jnp.float32(d))
        sphere = normal / jnp.sqrt(jnp.sum(normal * normal, axis=1, keepdims=True))
        unit = (column == index + first_unit).astype(jnp.float32)
        return jnp.where(law == 0, gaussian, jnp.where(law == 1, sphere, unit))

    real = (jnp.arange(V_pad, dtype=jnp.int32) < V)[:, None]
    W_in = None
    if m_pad:
        real_unit = (jnp.arange(m_pad, dtype=jnp.int32) < m)[:, None]
        W_in = jnp.where(real_unit & (column < d), normal_of["w_in"], jnp.float32(0))
    return Embeddings(
        Z_in=jnp.where(real, rows("z_in", 0), jnp.float32(0)),
        Z_out=jnp.where(real, rows("z_out", 0), jnp.float32(0)),
        z_trig=rows("z_trig", V)[0],
        z_eos=rows("z_eos", V + 1)[0],
        W_in=W_in,
    )
