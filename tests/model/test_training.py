"""Optimisers of further steps: one more is one more entry."""

import pytest

from jaxrecall import Point, descend, measure, realize, simulate
from jaxrecall.model.training import OPTIMIZERS, Optimizer


def test_an_optimiser_is_one_entry(monkeypatch):
    """Without a statement on it, W_KQ is trained in full and every step reads its samples, locked attention or not."""
    monkeypatch.setitem(OPTIMIZERS, "rmsprop", Optimizer("rmsprop"))
    point = Point(V=8, N=40, d=12, L=3, n_test=50, gamma2=10.0, kappa=300.0, steps=5, lr=0.02, optimizer="rmsprop")
    row = simulate(point, 0)
    draws = realize(point, 0)
    judge = measure(draws, point, descend(draws, point)[-1])
    for name in ("loss", "test_loss", "V_norm", "W_norm", "trigger_score", "score_std"):
        assert row[name] == pytest.approx(judge[name], rel=1e-4), name
    assert "locked descent" not in row["form"]
