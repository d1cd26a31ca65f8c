"""Sums of powers above a floor, and what makes them smallest."""

import numpy as np
import pandas as pd
import pytest

from jaxrecall.analysis.fit import additive
from jaxrecall.errors import FitError
from jaxrecall.fit import fit, main

LAW = {"law": "loss", "axes": ["N", "D"], "additive": True}


def chinchilla(N, D):
    return 1.7 + 400 * N**-0.34 + 410 * D**-0.28


def product_law(N, D):
    return 1.7 + 1.5 * (N / 1e8) ** -0.3 * (D / 2e9) ** -0.3


def runs(law, seeds=1):
    """Runs at scattered sizes, so that no two have the same N or the same D."""
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(np.log([[5e6], [2e8]]), np.log([[2e9], [1e11]]), (2, 40)))
    noise = np.exp(0.003 * seeds**0.5 * rng.normal(size=(seeds, 40)))
    frame = pd.DataFrame({"N": np.tile(N, seeds), "D": np.tile(D, seeds)})
    frame["loss"] = np.ravel(law(N, D) * noise)
    return frame.assign(seed=np.repeat(range(seeds), 40))


def test_one_run_per_setting_gives_the_law_and_its_optimum():
    whole = 1e18
    frame = runs(chinchilla).drop(columns="seed")
    found = fit(frame, **LAW, product=whole).additive.set_index(["quantity", "axis"])
    N = np.geomspace(1e7, 1e9, 100_001)
    best = N[chinchilla(N, whole / N).argmin()]
    truth = {
        ("floor", ""): 1.7,
        ("factor", "N"): 400,
        ("exponent", "D"): -0.28,
        ("optimum", "N"): best,
        ("growth of optimum", "N"): 0.28 / 0.62,
    }
    for name, value in truth.items():
        row = found.loc[name]
        assert row["lo"] < value < row["hi"] < row["lo"] + 0.5 * abs(value)


@pytest.mark.parametrize("seeds", [1, 8])
def test_a_product_of_powers_is_rejected(seeds, monkeypatch):
    monkeypatch.setattr(additive, "DRAWS", 50)
    rejected = {
        law: fit(runs(law, seeds), **LAW).additive["rejected"].any()
        for law in (chinchilla, product_law)
    }
    assert rejected == {chinchilla: False, product_law: True}


def test_the_command_writes_a_sum(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(additive, "DRAWS", 50)
    runs(chinchilla).to_csv(tmp_path / "t.csv", index=False)
    options = ["--law", "loss", "--axes", "N", "D", "--additive", "--product", "1e18"]
    assert main([str(tmp_path / "t.csv"), *options]) == 0
    assert "few seeds" in capsys.readouterr().out
    assert len(pd.read_parquet(tmp_path / "t-fit/loss/additive.parquet")) == 9


def test_a_product_needs_a_sum():
    with pytest.raises(FitError, match="product: got 0"):
        fit(runs(chinchilla), **LAW, product=0)
