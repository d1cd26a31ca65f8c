"""Two conditions compared seed by seed, and forms of a law compared along an axis."""

import re

import numpy as np
import pandas as pd
from test_fit import command, table, written
from test_misfit import SIZES, jackknife, losses
from tolerances import assert_close

from jaxrecall.fit import fit
from results import coverage

OPTIMIZERS = {"d": [32], "optimizer": ["muon", "sgd"]}


def conditions(star, axes, seeds=12, noise=1.2, shared=True):
    """Counts whose ln N* is shifted by a seed, alike in all cells if it is shared."""
    frame = table(axes, star, 2 ** np.arange(5, 16), seeds, noise=noise)
    if not shared:
        cell = frame.groupby([*axes]).ngroup()
        frame["seed"] = frame["seed"] * np.array([1, 5, 7])[cell] % seeds
    return frame


def slower(c):
    """Twice the number for SGD."""
    return 2 if c["optimizer"] == "sgd" else 1


def width(row):
    return np.log(row["hi"] / row["lo"])


def test_a_ratio_by_pairs_is_narrower_than_two_intervals():
    frame = conditions(lambda c: 655 * slower(c) ** 0.288, OPTIMIZERS)
    found = fit(frame, compare="optimizer")
    pair, mean = found.comparison.to_dict("records")
    assert (pair["quantity"], mean["quantity"]) == ("ratio", "mean ratio")
    assert (mean["value"], mean["reference"]) == ("sgd", "muon")
    assert pair["estimate"] == mean["estimate"]
    assert_close(mean["estimate"], 2**0.288, 0.04)
    assert mean["lo"] < 2**0.288 < mean["hi"]
    two = found.thresholds
    assert width(mean) < 0.2 * width(two).min()
    assert mean["correlation"] > 0.9
    assert_close(two["N_star"][1] / two["N_star"][0], mean["estimate"])
    assert re.search(r"sgd +muon +mean ratio 1\.22 \[1\.2", repr(found))
    (remark,) = found.remarks
    assert "what varies is optimizer" in remark
    unshared = conditions(lambda c: 800.0, OPTIMIZERS, shared=False)
    apart = fit(unshared, compare="optimizer").comparison.iloc[-1]
    assert width(apart) > 5 * width(mean)


def test_ratios_and_exponents_of_losses_are_those_of_the_pairs_of_seeds():
    frame = losses(
        lambda c: c["d"] ** (-0.5 - c["rate"]),
        {"d": SIZES[:4], "rate": [0.1, 0.2, 0.3]},
        seeds=9,
        noise=0.3,
    ).query("d > 16 or rate < 0.3")
    found = fit(frame, compare="rate", law="loss", along="d").comparison
    row = found.query("value == 0.3 and quantity == 'exponent of d'").iloc[0]
    assert row["n_cells"] == 3  # the first size has one rate less

    def slopes(rows):
        mean = rows.pivot_table(index="d", columns="rate", values="loss").dropna()
        first, _, last = np.polyfit(np.log(mean.index), np.log(mean), 1)[0]
        return last - first

    assert_close(row["estimate"], slopes(frame))
    half = jackknife(slopes, frame)
    assert_close((row["hi"] - row["lo"]) / 2, half, "roots")
    ratio = found.query("value == 0.2 and quantity == 'ratio' and d == 64").iloc[0]
    means = frame.query("d == 64").groupby("rate")["loss"].mean()
    assert_close(ratio["estimate"], means[0.2] / means[0.1])


def test_pairs_cover_the_truth_and_are_narrower():
    found = coverage.compared(0.8, 60).mean()
    assert found["pairs"] > 0.87
    assert found["apart"] > 0.97
    assert found["pairs width"] < 0.3 * found["apart width"]


def test_shared_draws_are_told_at_the_law():
    for shared in (True, False):
        axes = {"d": [32, 64, 128]}
        found = fit(conditions(lambda c: 32000 / c["d"], axes, shared=shared))
        correlation = found.exponents["correlation"][0]
        assert correlation > 0.9 if shared else correlation == 0
        assert ("correlation" in repr(found)) == shared


def forms(value):
    frame = losses(lambda c: value(c["d"]), {"d": SIZES}, noise=0.01, stream=1)
    by_default, named = (
        fit(frame, law="loss", along="d", floor=axis).forms for axis in ("", "d")
    )
    pd.testing.assert_frame_equal(by_default, named)
    return named.set_index("form")


def test_a_floor_is_found_and_predicts_the_largest_sizes():
    found = forms(lambda d: 1 + 4 * d**-0.5)
    row = found.loc["floor"]
    for name, truth in (("exponent", -0.5), ("floor", 1), ("factor", 4)):
        assert row[f"{name}_lo"] < truth < row[f"{name}_hi"]
        assert row[f"{name}_hi"] - row[f"{name}_lo"] < 0.2 * abs(truth) + 0.5
    assert row["n_out"] == 2
    assert 4 * row["error"] < found["error"]["power"]
    assert found["noise"].between(0.001, 0.01).all()
    assert np.isnan(found["floor"]["power"])
    assert found["rejected"].to_dict() == {"power": True, "floor": False}


def test_without_a_floor_the_floor_is_0_and_a_logarithm_has_the_exponent_0():
    row = forms(lambda d: 3 * d**0.7).loc["floor"]
    assert row["floor_lo"] < 0 < row["floor_hi"]
    assert row["exponent_lo"] < 0.7 < row["exponent_hi"]
    found = forms(lambda d: 1 + 2 * np.log(d))
    assert found["error"]["floor"] < found["error"]["power"]
    assert abs(found["exponent"]["floor"]) < 0.1  # the limit of a power


def test_the_command_compares_and_fits_a_floor(tmp_path, capsys):
    axes = OPTIMIZERS | {"d": [32, 64, 128, 256, 512]}
    frame = conditions(
        lambda c: 100 * (1 + 12 / c["d"]) * slower(c), axes, seeds=8, noise=0.1
    )
    words = ["--compare", "optimizer", "--floor", "d", "--latex"]
    assert command(tmp_path, frame, *words) == 0
    shown = capsys.readouterr().out
    for line in (
        "sgd +muon +mean ratio +2 ",
        "sgd +muon +exponent of d ",
        "muon +d +floor +-",
        "comparison:  ",
    ):
        assert re.search(line, shown)
    assert len(written(tmp_path, "comparison")) == 5 + 1 + 1
    kept = written(tmp_path, "forms")
    assert list(kept["form"]) == ["power", "floor"] * 2
