"""Predictions of a law at new sizes, and its prefactor."""

import numpy as np
import pandas as pd
import pytest
from tolerances import assert_close

from jaxrecall.errors import FitError
from jaxrecall.fit import fit, main


def losses(noise=0.0, seeds=8):
    """Runs whose loss is A N^-0.5 d^-0.25, where A is 6 or 2 by the optimizer."""
    rng, rows = np.random.default_rng(0), []
    for optimizer, A in (("sgd", 6.0), ("muon", 2.0)):
        for N in (100, 1000, 10000):
            for d in (16, 64, 256):
                for seed in range(seeds):
                    loss = A * N**-0.5 * d**-0.25 * np.exp(noise * rng.normal())
                    rows.append((optimizer, N, d, seed, loss))
    return pd.DataFrame(rows, columns=["optimizer", "N", "d", "seed", "loss"])


CORNERS = {"sgd": "slow", "muon": "fast"}
LAW = {"axes": ["optimizer", "d"], "law": "loss"}


def test_a_law_is_predicted_at_new_sizes_for_each_of_its_constants():
    found = fit(losses(), **LAW, predict=["N=1e6,d=4096", {"N": 100, "d": 16}])
    table = found.predictions.set_index(["optimizer", "N"])["predicted"]
    assert_close(table["sgd", 1e6], 6 * 1e-3 / 8)
    assert_close(table["muon", 100.0], 2 / 10 / 2)
    told = found.predictions["warning"].tolist()
    beyond = [
        "d = 4096 lies beyond the cells, 16 to 256",
        "N = 1e+06 lies beyond the cells, 100 to 10000",
    ]
    assert told == ["; ".join(beyond)] * 2 + [""] * 2
    assert repr(found).count(beyond[0]) == 1


def test_intervals_of_predictions_and_prefactors_hold_the_truth():
    found = fit(losses(0.1), **LAW, by="optimizer", predict="N=1e5,d=1024")
    table = found.predictions.set_index("regime")
    for name, A in (("sgd", 6.0), ("muon", 2.0)):
        row = table.loc[f"optimizer == '{name}'"]
        truth = A * 1e5**-0.5 * 1024**-0.25
        assert row["predicted_lo"] < truth < row["predicted_hi"]
        assert row["prefactor_lo"] < A < row["prefactor_hi"]
        assert row["predicted_hi"] < 1.5 * row["predicted_lo"]
    # the table of exponents has the prefactor of a law with one constant
    assert_close(found.exponents["prefactor"].unique(), table["prefactor"])
    assert fit(losses(), **LAW).exponents["prefactor"].isna().all()
    assert (
        fit(losses(seeds=2), **LAW, predict="N=9,d=9")
        .predictions["predicted_lo"]
        .isna()
        .all()
    )


def test_the_command_writes_predictions(tmp_path, capsys):
    frame = losses().query("optimizer == 'sgd'")
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["--law", "loss", "--axes", "d", "--predict", "N=1e6,d=4096"]
    assert main([str(tmp_path / "t.csv"), *options]) == 0
    assert "prefactor" in capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "t-fit/loss/predictions.parquet")
    assert_close(table.loc[0, ["N", "d"]].astype(float), [1e6, 4096])


def test_a_helper_of_the_grid_divides_a_law_and_the_farthest_cell_is_named():
    frame = losses(0.02).assign(corner=lambda f: f["optimizer"].map(CORNERS))
    frame.attrs = {"axes": ["optimizer", "d", "N"], "kept": ["corner"]}
    found = fit(frame, law="loss", along="N", by="corner")
    assert found.exponents["regime"].nunique() == 2
    is_wild = (frame["d"] == 64) & (frame["N"] == 1000) & (frame["optimizer"] == "sgd")
    wild = frame.assign(loss=frame["loss"].mask(is_wild, 2 * frame["loss"]))
    assert "farthest at N = 1000, d = 64" in repr(
        fit(wild, law="loss", along="N", where="corner == 'slow'")
    ).replace("d = 64, N = 1000", "N = 1000, d = 64")


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ("N=1e6", "d is None"),
        ("N=1e6,d", "'N=1e6,d'"),
        ("N=1e6,d=0", "d is 0"),
        ("N=1e6,d=8,width=3", "width"),
        ("N=1e6,d=8,optimizer=adam", "no law"),
        (3, "3"),
    ],
)
def test_sizes_that_no_law_has_are_refused(sizes, named):
    with pytest.raises(FitError, match=f"predict: .*{named}"):
        fit(losses(), **LAW, predict=sizes)
