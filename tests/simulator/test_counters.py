"""Counts past 2^24, where float32 stops counting."""

import numpy as np
import pytest
from helpers import streamed
from tolerances import assert_close

from jaxrecall import Point, realize, simulate
from jaxrecall.simulator.program_shape import Shape


@pytest.mark.slow
def test_a_hundred_million_token_occurrences():
    """V1 from exact integer counts C[y, u] and n_y of 2^26.6 tokens: eta / (N L) Zc^T
    (C Z_in + n z_trig^T).
    """
    point = Point(V=2, N=2**20 + 3, d=3, L=96, n_test=8)
    r = realize(point, 0).astype(np.float64)
    has_label = np.arange(2)[:, None] == r.train_labels
    of_tokens = np.arange(2) == r.train_tokens[:, :, None]
    C, n = has_label @ of_tokens.sum(1), has_label.sum(1)
    assert C.max() > 2**24
    centred = r.Z_out - r.Z_out.mean(0)
    V1 = centred.T @ (C @ r.Z_in + np.outer(n, r.z_trig)) / (point.N * point.L)
    shape = Shape(16, 16, 0, "none", "counts")
    learned, _ = streamed(point, 0, shape, tile=8192)
    assert_close(learned.V1, point.eta * V1, "float32")


@pytest.mark.slow  # reads 17 million sequences
def test_more_test_sequences_than_float32_can_count():
    """Orthogonal embeddings and many samples recall every sequence: the count is n_test
    itself, an odd number past 2^24.
    """
    n_test = 2**24 + 2**12 + 1
    point = Point(V=4, N=4096, d=6, L=2, embedding="orthogonal", n_test=n_test)
    row = simulate(point, 0)
    assert row["n_correct"] == n_test
    assert row["accuracy"] == row["attention_top1"] == 1
