"""Two conditions compared seed by seed, and forms of a law compared along an axis."""

import importlib
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import t as student

import jaxrecall
from jaxrecall.analysis.fit import fit
from jaxrecall.errors import FitError
from results import coverage

cli = importlib.import_module("jaxrecall.fit")
SIZES = [16, 32, 64, 128, 256, 512, 1024]


def conditions(star, axes, n_seeds=12, luck=0.8, common=True):
    """Counts whose ln N* is shifted by a seed, alike in all cells if it is common."""
    rng = np.random.default_rng(2)
    shifts = luck * rng.normal(size=n_seeds)
    rows = []
    for values in itertools.product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        if not common:
            shifts = luck * rng.normal(size=n_seeds)
        for N, seed in itertools.product(2 ** np.arange(5, 16), range(n_seeds)):
            p = expit(1.5 * (np.log(N / star(cell)) - shifts[seed]))
            k = rng.binomial(2000, p)
            run = {"N": int(N), "seed": seed, "n_test": 2000, "n_correct": k}
            rows.append({"V": 64, "L": 4, "m": 0} | cell | run)
    return pd.DataFrame(rows)


def test_a_ratio_by_pairs_is_narrower_than_two_intervals():
    axes = {"d": [32], "optimizer": ["muon", "sgd"]}
    frame = conditions(lambda c: 800 if c["optimizer"] == "sgd" else 655, axes)
    found = fit(frame, compare="optimizer")
    pair, mean = found.comparison.to_dict("records")
    assert (pair["quantity"], mean["quantity"]) == ("ratio", "mean ratio")
    assert (mean["value"], mean["reference"]) == ("sgd", "muon")
    assert pair["estimate"] == mean["estimate"] == pytest.approx(1.22, rel=0.03)
    assert mean["lo"] < 800 / 655 < mean["hi"]
    two = found.thresholds
    assert np.log(mean["hi"] / mean["lo"]) < 0.2 * np.log(two["hi"] / two["lo"]).min()
    assert mean["correlation"] > 0.9
    assert two["N_star"][1] / two["N_star"][0] == pytest.approx(mean["estimate"])
    assert (
        "m = 0, theta = 0.5, optimizer = sgd against muon: mean ratio of N* 1.2"
        in repr(found)
    )
    assert found.remarks == [
        "no exponents of N*: what varies is optimizer, and only V, d, L, m get one; see"
        " N* in the thresholds, and compare for their ratios"
    ]
    unshared = conditions(lambda c: 800, axes, common=False)
    apart = jaxrecall.fit.compare(unshared, "optimizer").iloc[-1]
    assert np.log(apart["hi"] / apart["lo"]) > 5 * np.log(mean["hi"] / mean["lo"])


def test_ratios_and_exponents_of_losses_are_those_of_the_pairs_of_seeds():
    rng = np.random.default_rng(0)
    rows = []
    for d, way, seed in itertools.product(SIZES[:4], [0.1, 0.2, 0.3], range(9)):
        loss = d ** (-0.5 - way) * np.exp(0.3 * rng.normal())
        rows.append({"d": d, "rate": way, "seed": seed, "loss": loss})
    frame = pd.DataFrame(rows).query("d > 16 or rate < 0.3")
    found = jaxrecall.fit.compare(frame, "rate", law="loss", along="d")
    row = found.query("value == 0.3 and quantity == 'exponent of d'").iloc[0]
    assert row["n_cells"] == 3  # the first size has one rate less

    def slopes(seeds):
        mean = frame[frame["seed"].isin(seeds) & (frame["d"] > 16)]
        mean = mean.groupby(["rate", "d"])["loss"].mean().unstack("rate")
        x, y = np.log(mean.index), np.log(mean[[0.1, 0.3]])
        first, second = np.polyfit(x, y, 1)[0]
        return second - first

    seeds = set(range(9))
    without = np.array([slopes(seeds - {seed}) for seed in seeds])
    half = student.ppf(0.975, 8) * np.sqrt(
        8 / 9 * ((without - slopes(seeds)) ** 2).sum()
    )
    assert row["estimate"] == pytest.approx(slopes(seeds))
    assert (row["hi"] - row["lo"]) / 2 == pytest.approx(half, rel=1e-3)
    ratio = found.query("value == 0.2 and quantity == 'ratio' and d == 64").iloc[0]
    means = frame.query("d == 64").groupby("rate")["loss"].mean()
    assert ratio["estimate"] == pytest.approx(means[0.2] / means[0.1])


def test_pairs_cover_the_truth_and_are_narrower():
    found = coverage.compared(0.8, 60).mean()
    assert found["pairs"] > 0.87
    assert found["apart"] > 0.97
    assert found["pairs width"] < 0.3 * found["apart width"]


def test_shared_draws_are_told_at_the_law():
    axes = {"d": [32, 64, 128]}

    def star(c):
        return 32000 / c["d"]

    shared = fit(conditions(star, axes))
    assert shared.exponents["correlation"][0] > 0.9
    assert "cells share draws: their errors correlate by " in repr(shared)
    apart = fit(conditions(star, axes, common=False))
    assert apart.exponents["correlation"][0] == 0
    assert "share draws" not in repr(apart)


def losses(value, noise=0.01, n_seeds=8, sizes=SIZES):
    rng = np.random.default_rng(1)
    rows = []
    for d, seed in itertools.product(sizes, range(n_seeds)):
        loss = value(d) * np.exp(noise * rng.normal())
        rows.append({"d": d, "seed": seed, "loss": loss})
    return pd.DataFrame(rows)


def test_a_floor_is_found_and_predicts_the_largest_sizes():
    found = fit(
        losses(lambda d: 1 + 4 * d**-0.5), law="loss", along="d", floor=""
    ).forms.set_index("form")
    row = found.loc["floor"]
    for name, truth in (("exponent", -0.5), ("floor", 1), ("factor", 4)):
        assert row[f"{name}_lo"] < truth < row[f"{name}_hi"]
        assert row[f"{name}_hi"] - row[f"{name}_lo"] < 0.2 * abs(truth) + 0.5
    assert row["n_out"] == 2
    assert 4 * row["error"] < found["error"]["power"] < found["error"]["logarithm"]
    assert found["noise"].between(0.001, 0.01).all()
    assert np.isnan(found["floor"]["power"])
    assert np.isnan(found["exponent"]["logarithm"])


def test_without_a_floor_the_floor_is_0_and_a_logarithm_is_known_too():
    def forms(value):
        frame = losses(value)
        return fit(frame, law="loss", along="d", floor="d").forms.set_index("form")

    row = forms(lambda d: 3 * d**0.7).loc["floor"]
    assert row["floor_lo"] < 0 < row["floor_hi"]
    assert row["exponent_lo"] < 0.7 < row["exponent_hi"]
    found = forms(lambda d: 1 + 2 * np.log(d))
    assert found.loc["logarithm", ["floor", "factor"]].tolist() == pytest.approx(
        [1, 2], rel=0.05
    )
    assert found["error"]["logarithm"] < 0.3 * found["error"]["power"]
    assert abs(found["exponent"]["floor"]) < 0.1  # the limit of a power


def test_the_command_compares_and_fits_a_floor(tmp_path, capsys):
    axes = {"d": [32, 64, 128, 256, 512], "optimizer": ["muon", "sgd"]}

    def star(c):
        return 100 * (1 + 12 / c["d"]) * (2 if c["optimizer"] == "sgd" else 1)

    conditions(star, axes, n_seeds=8, luck=0.1).to_parquet(tmp_path / "runs.parquet")
    asked = ["--compare", "optimizer", "--floor", "d", "--latex"]
    assert cli.main([str(tmp_path / "runs.parquet"), *asked]) == 0
    shown = capsys.readouterr().out
    assert "optimizer = sgd against muon: mean ratio of N* 2" in shown
    assert "sgd against muon: difference of the exponent of d " in shown
    assert "optimizer = muon: N* = E + A d^p: p = -" in shown
    assert "comparison:  " in shown
    out = tmp_path / "runs-fit"
    compared = pd.read_parquet(out / "comparison.parquet")
    assert len(compared) == 5 + 1 + 1
    forms = pd.read_parquet(out / "forms.parquet")
    assert list(forms["form"]) == ["power", "floor", "logarithm"] * 2


def test_what_cannot_be_compared_is_refused():
    frame = losses(lambda d: 1 / d)
    with pytest.raises(FitError, match="compare: got 'width'; allowed: an axis"):
        fit(frame, law="loss", along="d", compare="width")
    with pytest.raises(FitError, match="floor: got width; allowed: d"):
        fit(frame, law="loss", along="d", floor="width")
    two = conditions(lambda c: 1000, {"d": [32], "V": [64, 128], "L": [4, 8]}, 6)
    with pytest.raises(FitError, match="floor: got no axis; allowed: V, L"):
        fit(two, floor="")
