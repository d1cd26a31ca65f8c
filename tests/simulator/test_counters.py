"""Counts past 2^24, where float32 stops counting."""

import numpy as np
import pytest

from jaxrecall import simulate
from jaxrecall.model.point import Point
from jaxrecall.model.reference.realization import realize
from jaxrecall.simulator.program_shape import Shape

from helpers import relative, streamed  # isort: skip


@pytest.mark.slow
def test_a_hundred_million_token_occurrences():
    """V1 from exact integer counts C[y, u] and n_y of 2^26.6 tokens: eta / (N L) Zc^T
    (C Z_in + n z_trig^T).
    """
    point = Point(V=2, N=2**20 + 3, d=3, L=96, n_test=8)
    r = realize(point, 0).astype(np.float64)
    u = np.stack([(r.train_tokens == token).sum(1) for token in range(2)], axis=1)
    C = np.stack([u[r.train_labels == y].sum(0) for y in range(2)])
    n = np.bincount(r.train_labels, minlength=2)
    assert C.max() > 2**24
    V1 = (
        point.eta
        / (point.N * point.L)
        * (r.Z_out - r.Z_out.mean(0)).T
        @ (C @ r.Z_in + np.outer(n, r.z_trig))
    )
    assert (
        relative(
            streamed(point, 0, Shape(16, 16, 0, "none", "counts"), tile=8192)[0].V1, V1
        )
        < 2e-5
    )


@pytest.mark.slow  # reads 17 million sequences
def test_more_test_sequences_than_float32_can_count():
    """Orthogonal embeddings and many samples recall every sequence: the count is n_test
    itself, an odd number past 2^24.
    """
    n_test = 2**24 + 2**12 + 1
    row = simulate(
        Point(V=4, N=4096, d=6, L=2, embedding="orthogonal", n_test=n_test), 0
    )
    assert row["n_correct"] == n_test
    assert row["accuracy"] == 1
    assert row["attention_top1"] == 1
