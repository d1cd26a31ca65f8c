"""What the loops of the peers share: the arrays of a run, and the size of a chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

CHUNK = 4096
"""The number of samples whose gradient is computed at a time."""


class Draws(NamedTuple):
    """The random arrays of a run, under their names in `jaxrecall.realize`."""

    Z_in: Any  # (V, d)
    Z_out: Any  # (V, d)
    z_trig: Any  # (d,)
    z_eos: Any  # (d,)
    W_in: Any  # (m, d), or None
    perm: Any  # (V,)
    train_tokens: Any  # (N, L)
    train_positions: Any  # (N,)
    train_labels: Any  # (N,)
    test_tokens: Any  # (n_test, L)
    test_positions: Any
    test_labels: Any

    @property
    def train(self) -> tuple[Any, Any, Any]:
        return self[6:9]

    @property
    def test(self) -> tuple[Any, Any, Any]:
        return self[9:12]


class Learned(NamedTuple):
    V1: Any  # (d, p)
    W1: Any  # (d, d)
    V2: Any  # (d, p)
