"""Thresholds and exponents: known truths come back, another library agrees, and what
cannot be known is said, not made up.
"""

import importlib
import itertools
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import python
from scipy.special import expit, logit
from scipy.stats import t as student

from jaxrecall.analysis.fit import cells, fit, runs, table_axes
from jaxrecall.analysis.fit.estimate import FittedLaw, curve, interval
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.analysis.fit.write import default_folder, latex
from jaxrecall.errors import FitError
from jaxrecall.sweep.crossing import EDGE
from results import coverage

cli = importlib.import_module("jaxrecall.fit")
LEVELS = tuple(2**i for i in range(6, 15))


def families(frame, along="N"):
    return cells.families(frame, roles_of(frame), along)


def as_given(frame):
    return table_axes.as_given(frame, roles_of(frame))


def table(
    axes=None,
    star=lambda c: 1000.0,
    levels=LEVELS,
    seeds=8,
    slope=1.5,
    ceiling=lambda c: 1.0,
    noise=0.2,
    n_test=2000,
    theta=0.5,
):
    """Runs on a grid: logistic in ln N, crossing theta at `star(cell)`; a seed's N* is
    off by a factor exp(noise), alike in all cells.
    """
    axes = {"V": [64], "d": [32], "L": [8], "m": [0]} | (axes or {})
    shifts = noise * np.linspace(-1, 1, seeds) if seeds > 1 else [0.0]
    rows = []
    for values in itertools.product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        top = ceiling(cell)
        at_star = logit(theta / top) if top > theta else 0.0
        for N in levels:
            for seed, shift in enumerate(shifts):
                p = top * expit(slope * (np.log(N / star(cell)) - shift) + at_star)
                rows.append(
                    cell
                    | {
                        "N": N,
                        "seed": seed,
                        "n_test": n_test,
                        "n_correct": round(n_test * p),
                    }
                )
    return pd.DataFrame(rows)


def law(c):
    return 1000 * (c["V"] / 64) ** 2 * (c["d"] / 32) ** -1.3


def uncovered(frame):
    """The same runs with a setting that theory does not know, so that none is computed
    for a figure.
    """
    return frame.assign(s=1.0)


def ours(frame):
    """The same runs with the settings without which no theory is drawn."""
    return frame.assign(trigger_in_value=True, kappa=100.0, embedding="gaussian")


GRID = {"V": [64, 128, 256], "d": [32, 64, 128]}
WIDE = tuple(2**i for i in range(4, 19))


def test_a_known_law_comes_back():
    found = fit(table(GRID, law, WIDE, n_test=10**6), [0.5, 0.8])
    assert len(found.thresholds) == 9 * 2
    assert found.thresholds["record"].all()
    assert {*found.thresholds["method"], *found.exponents["method"]} == {"local"}
    half = found.thresholds[found.thresholds["theta"] == 0.5]
    truth = half.apply(law, axis=1)
    assert abs(np.log(half["N_star"] / truth)).max() < 0.01
    assert (half["censored"] == "no").all()
    assert (
        (half["N_below"] <= half["N_star"]) & (half["N_star"] <= half["N_above"])
    ).all()
    assert ((half["lo"] < half["N_star"]) & (half["N_star"] < half["hi"])).all()
    for theta in (0.5, 0.8):
        exponents = found.exponents[found.exponents["theta"] == theta].set_index(
            "axis"
        )["exponent"]
        for axis, value in (("V", 2.0), ("d", -1.3)):
            assert abs(exponents[axis] - value) < 0.01
    assert set(found.exponents["axis"]) == {"V", "d"}  # L and m are constant
    # the curve is logistic: theta = 0.8 lies this much further
    slope = logit(0.8) / 1.5
    low, high = (
        found.thresholds.query("theta == @theta")["N_star"].to_numpy()
        for theta in (0.5, 0.8)
    )
    ratio = high / low
    assert abs(np.log(ratio) - slope).max() < 0.02


def test_cells_whose_levels_differ_are_cells_where_the_grid_names_what_tells_them_apart():  # noqa: E501
    low, high = (
        table({"rate": [rate]}, lambda c, star=star: star, levels)
        for rate, star, levels in ((1, 200, LEVELS[:4]), (2, 6000, LEVELS[5:]))
    )
    both = pd.concat([low, high], ignore_index=True)
    both.attrs["axes"] = ["rate", "N"]
    assert fit(both, [0.5]).thresholds.set_index("rate")[
        "N_star"
    ].to_dict() == pytest.approx({1: 200, 2: 6000}, rel=0.05)


@pytest.mark.parametrize(
    "named",
    [{"axes": ["V", "L"], "kept": ["per"]}, {"axes": ["V", "L", "per"]}, {}],
    ids=["kept", "axes", "unnamed"],
)
def test_fields_that_follow_the_axis_make_no_cells(named):
    frames = [
        table({"V": LEVELS, "L": [4, 8]}, levels=[per], seeds=8).assign(per=per)
        for per in ((8, 64) if named else (8,))
    ]
    frame = pd.concat(frames, ignore_index=True).assign(
        N=lambda f: f["per"] * f["V"], d=lambda f: f["V"] // 2
    )
    frame["n_correct"] = (
        frame["n_test"]
        * expit(
            3 - np.log(frame["V"] / 64 / frame["per"] * 8) - 0.2 * frame["seed"] / 8
        )
    ).round()
    frame.attrs |= named
    found = fit(frame, [0.5], along="V").thresholds
    assert len(found) == 2 * len(frames)
    assert (found["critical"] > 0).all()


def test_plateaus_do_not_move_the_exponents():
    axes = {"V": [64, 128, 256], "d": [16, 32, 64, 128]}
    found = fit(table(axes, law, WIDE, ceiling=lambda c: 0.3 if c["d"] == 16 else 1.0))
    exponents = found.exponents.set_index("axis")["exponent"]
    assert abs(exponents["V"] - 2) < 0.05
    assert abs(exponents["d"] + 1.3) < 0.05
    flat = found.thresholds[found.thresholds["d"] == 16]
    assert (flat["censored"] == "right").all()
    assert flat["warning"].str.startswith("plateau").all()
    assert flat[["N_star", "lo", "hi", "N_above"]].isna().all(axis=None)
    assert (flat["N_below"] == WIDE[-1]).all()
    assert (found.exponents["left_out"] == "3 (theta not reached)").all()
    assert "  m = 0: law of 9 cells; misfit " in repr(found)
    assert "; left out: 3 (theta not reached)" in repr(found)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    checked = coverage.check(coverage.Setting(), 200)
    held, error = checked.filter(like="held"), checked.filter(like="error")
    assert 0.92 < held.mean().mean() < 0.98
    assert 0.91 < checked["thresholds"].mean() < 0.98
    assert error.mean().abs().max() < 0.02
    stepped = coverage.check(coverage.Setting(one_step=0.9), 100)
    assert 0.92 < stepped.filter(like="held").mean().mean()
    assert stepped.filter(like="error").mean().abs().max() < 0.02


def test_coverage_prints_its_figures(capsys, monkeypatch):
    monkeypatch.setattr(
        coverage, "SETTINGS", {"few": coverage.Setting(seeds=(8,), levels=(6,))}
    )
    coverage.main(["laws", "ratios", "--replicates", "3"])
    printed = capsys.readouterr().out
    assert "3 replicates: exponents" in printed
    assert "shift both by 0.8: by pairs" in printed


def test_the_drawn_truth_is_where_the_mean_of_very_many_seeds_crosses():
    setting = coverage.Setting(
        seeds=(20000,),
        levels=(8,),
        plateau=0.0,
        one_step=0.0,
        censored=0.0,
        n_test=10**6,
    )
    truth = coverage.draw(np.random.default_rng(3), setting)
    (family,) = [truth.family]
    for cell, star in zip(family.cells[:6], truth.N_star[:6], strict=True):
        found = curve(cell, truth.family, EDGE).crossing(0.5)
        assert abs(found.log_x - np.log(star)) < 3 * found.shape_error + 0.02


def measured(
    means, levels=(64, 90, 128, 181, 256, 362, 512, 724), seeds=8, along="N", **options
):
    """The only threshold of a table of these mean accuracies, each seed's a little
    off.
    """
    at = {"V": 64, "d": 32, "L": 8, "m": 0, "N": 4096, "n_test": 10**5}
    rows = [
        at | {along: level, "seed": seed, "n_correct": round(10**5 * (mean + by))}
        for level, mean in zip(levels, means, strict=False)
        for seed, by in enumerate(np.linspace(-0.01, 0.01, seeds))
    ]
    (found,) = fit(pd.DataFrame(rows), along=along, **options).thresholds.to_dict(
        "records"
    )
    return found


SHAPES = {
    "falls": (
        (0.9, 0.8, 0.6, 0.3, 0.1, 0.04),
        (
            "falls: accuracy 0.9 at N = 64, the smallest, accuracy 0.04 at N = 362, the"
            " largest"
        ),
    ),
    "rises and falls again": (
        (0.1, 0.3, 0.62, 0.3, 0.1, 0.04),
        (
            "rises above theta and falls again: accuracy 0.62 at N = 128, accuracy 0.04"
            " at N = 362, the largest"
        ),
    ),
    "plateau": (
        (0.02, 0.1, 0.3, 0.36, 0.37, 0.37, 0.37, 0.37),
        "plateau: accuracy 0.37 at N = 724, the largest; it levels off",
    ),
    "still rises": (
        (0.02, 0.04, 0.08, 0.14, 0.24, 0.38),
        "not reached: accuracy 0.38 at N = 362, the largest; it still rises",
    ),
    "flat": (
        (0.43, 0.43, 0.44, 0.43, 0.44, 0.44),
        "not reached: accuracy 0.44 at N = 362, the largest; it hardly rises with N",
    ),
    "above": (
        (0.7, 0.8, 0.9, 0.95, 0.96, 0.97),
        "above theta from the smallest on: accuracy 0.7 at N = 64",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_curve_that_does_not_cross_is_told_by_its_shape_and_what_was_measured(shape):
    means, warning = SHAPES[shape]
    found = measured(means)
    assert np.isnan(found["critical"])
    assert found["warning"] == warning
    # along a falling axis, the same of 1 - accuracy
    mirrored = measured([1 - mean for mean in means], along="V")
    assert mirrored["censored"] == found["censored"]
    for word, other in (("rises", "falls"), ("above", "below")):
        assert (word in warning, other in warning) == (
            other in mirrored["warning"],
            word in mirrored["warning"],
        )
    assert (
        f"accuracy {1 - means[-1 if 'largest' in warning else 0]:.2g} at V = "
        in mirrored["warning"]
    )


def test_a_value_of_one_level_between_others_is_named_as_it_was_measured():
    """Pooled with its neighbour, the last level would have accuracy 0.43; 0.04 was
    measured.
    """
    found = measured((0.02, 0.1, 0.3, 0.42, 0.82, 0.04))
    assert (
        "accuracy 0.82 at N = 256, accuracy 0.04 at N = 362, the largest"
        in found["warning"]
    )


def test_seeds_may_differ_between_levels():
    frame = table(
        {"d": [32, 64, 128]}, lambda c: 1000 * 32 / c["d"], seeds=8, noise=0.02
    )
    found = fit(frame[~((frame["N"] == 1024) & (frame["seed"] > 1))])
    assert (found.thresholds["warning"] == "").all()
    assert np.isclose(found.exponents["exponent"][0], -1, atol=0.05)


def test_seeds_spread_over_neighbouring_levels_are_used_together():
    levels = tuple(round(100 * 2 ** (i / 8)) for i in range(49))
    frame = table(
        {"d": [32, 64, 128]}, lambda c: 1000 * 32 / c["d"], levels, seeds=16, noise=0.0
    )
    place = frame["N"].map(levels.index)
    # a quarter of the seeds at each of four levels
    spread = frame[(place % 4 == frame["seed"] % 4) & (place % 8 < 4) & (place < 48)]
    found = fit(spread).thresholds
    assert np.allclose(np.log(found["N_star"]), np.log([1000, 500, 250]), atol=0.03)
    assert (found["n_levels"] == 24).all()
    assert (found["n_seeds"] == 16).all()
    assert (found["warning"] == "").all()


def test_resamples_are_accepted_and_have_no_effect(tmp_path):
    frame = table({"d": [32, 64]}, law)
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(
        fit(frame, [0.5], 5).thresholds, fit(frame).thresholds
    )
    assert cli.main([str(tmp_path / "t.parquet"), "--resamples", "5"]) == 0


def test_a_rise_within_one_step_is_bounded_by_its_levels():
    frame = table({"d": [32, 64, 128]}, lambda c: 90.0 * 128 / c["d"], slope=200.0)
    found = fit(frame)
    record = found.thresholds
    assert record["warning"].str.startswith("rises within one step").all()
    assert (
        (record["lo"] < 1.02 * record["N_below"])
        & (record["hi"] > 0.98 * record["N_above"])
    ).all()
    law = found.exponents
    assert law["lo"][0] < -1 < law["hi"][0]
    assert (
        law["hi"][0] - law["lo"][0]
        > 2 * 1.96 * np.log(2) / np.sqrt(12) / (np.log(4) * np.sqrt(0.5)) * 0.99
    )


@pytest.mark.slow
def test_a_threshold_agrees_with_psignifit():
    psignifit = pytest.importorskip("psignifit")
    frame = table(levels=LEVELS[1:8], slope=1.2, noise=0.0, seeds=6, n_test=200)
    mine = fit(frame).thresholds["N_star"][0]
    points = frame.groupby("N")[["n_correct", "n_test"]].sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = psignifit.psignifit(
            np.c_[np.log(points.index), points["n_correct"], points["n_test"]],
            experiment_type="yes/no",
            sigmoid="logistic",
        )
    assert np.isclose(np.log(mine), theirs.parameter_estimate["threshold"], atol=0.05)


def censored(frame, **options):
    found = fit(frame, **options)
    record = found.thresholds
    assert record[["N_star", "lo", "hi"]].isna().all(axis=None)
    assert found.exponents["exponent"].isna().all()
    return record


def test_what_cannot_be_known_is_censored_not_made_up():
    axes = {"d": [32, 64]}
    assert (censored(table(axes, lambda c: 1e12))["censored"] == "right").all()
    zero = table(axes).assign(n_correct=0)
    assert censored(zero)["warning"].str.contains("it hardly rises with N").all()
    assert (
        censored(table(axes).assign(n_test=1, n_correct=0), thetas=[0.01])["censored"]
        == "right"
    ).all()
    everything = table(axes)
    assert (
        censored(everything.assign(n_correct=everything["n_test"]))["censored"]
        == "left"
    ).all()
    assert (
        censored(table(axes, levels=(1024,)))["warning"]
        .str.startswith("one N level")
        .all()
    )
    climbing = censored(table(axes, lambda c: 40000.0))
    assert climbing["warning"].str.endswith("it still rises").all()
    single = table(seeds=1)
    assert len(fit(single).thresholds) == 1


def test_an_interval_is_that_of_the_jackknife():
    sample = np.random.default_rng(1).normal(size=9)
    without = (sample.sum() - sample) / 8
    half = student.ppf(0.975, 8) * sample.std(ddof=1) / 3
    y = np.append(sample.mean(), without)
    assert np.allclose(interval(y, 9), (sample.mean() - half, sample.mean() + half))
    wide = interval(y, 9, shape=1.0)
    assert np.isclose((wide[1] - wide[0]) / 2, np.hypot(half, 1.96), rtol=1e-4)
    assert np.isnan(interval(y, 5)).all()


def test_the_shape_that_all_curves_share_cancels_in_a_difference():
    (family,), _ = families(table(GRID, law, noise=0.0))
    e = coverage.estimates(family, 0.5)
    shapes = [one.shapes for one in e.found]
    assert np.allclose(
        e.shape_deviation(np.eye(9)), [np.ptp(one) / np.sqrt(12) for one in shapes]
    )
    both = np.array([1.0, -1.0] + [0.0] * 7)
    assert np.isclose(
        e.shape_deviation(both), np.ptp(shapes[0] - shapes[1]) / np.sqrt(12)
    )


def test_few_seeds_give_no_interval():
    found = fit(table(GRID, law, WIDE, seeds=5))
    for frame in (found.thresholds, found.exponents):
        assert frame[["lo", "hi"]].isna().all(axis=None)
        assert frame["warning"].str.contains("no interval: 5 seeds, 6 are needed").all()
    assert np.isfinite(found.exponents["exponent"]).all()


def test_a_crossing_that_no_level_vouches_for_has_an_open_end_and_no_part_in_the_law():
    frame = table({"d": [32, 64, 128, 256]}, lambda c: 1000 * 32 / c["d"], noise=0.5)
    tops = frame[(frame["d"] == 32)].groupby("seed")["n_correct"].max()
    # ceilings of the seeds around theta
    scale = 2000 * np.linspace(0.3, 0.75, 8) / tops
    at = frame["d"] == 32
    frame.loc[at, "n_correct"] = (
        (frame[at]["n_correct"] * frame[at]["seed"].map(scale)).round().astype(int)
    )
    found = fit(frame)
    record = found.thresholds.set_index("d")
    assert np.isinf(record["hi"][32])
    assert 0 < record["lo"][32] < record["N_star"][32]
    assert "crossing not sure" in record["warning"][32]
    assert found.exponents["n_cells"][0] == 3


def test_m_is_fitted_apart_and_factors_have_constants_of_their_own():
    axes = {"d": [32, 64, 128], "m": [0, 64, 256]}
    frame = table(
        axes,
        lambda c: (
            1000
            * (c["d"] / 32) ** (-1 if c["m"] == 0 else -0.5)
            * max(c["m"], 1) ** -0.25
        ),
        WIDE,
    )
    exponents = fit(frame).exponents.set_index(["part", "axis"])["exponent"]
    assert np.allclose(exponents, [-1, -0.5, -0.25], atol=0.02)
    assert list(exponents.index) == [("m = 0", "d"), ("m > 0", "d"), ("m > 0", "m")]
    gaussian = table({"d": [32, 64, 128]}, lambda c: 1000 * 32 / c["d"], WIDE).assign(
        embedding="gaussian"
    )
    sphere = table({"d": [64, 128, 256]}, lambda c: 9000 * 32 / c["d"], WIDE).assign(
        embedding="sphere"
    )
    both = pd.concat([gaussian, sphere])
    found = fit(both)
    assert np.isclose(found.exponents["exponent"][0], -1, atol=0.02)
    assert list(found.thresholds.columns[:5]) == ["V", "d", "L", "m", "embedding"]


def test_axes_that_move_together_get_no_exponent():
    frame = table({"d": [32, 64, 128]}, lambda c: 1000 * 32 / c["d"], WIDE)
    frame["L"] = frame["d"] // 4
    found = fit(frame).exponents
    assert list(found["axis"]) == ["d", "L"]
    assert found["exponent"].isna().all()
    assert found["warning"].str.contains("moves together with other axes").all()


def test_what_is_an_axis():
    frame = table({"d": [32, 64]}, lambda c: 1000.0)
    frame = frame.assign(
        gamma=frame["d"] * 3.0,
        kappa=100.0,
        accuracy=0.1,
        loss=np.arange(len(frame)) / 7,
        optimizer="sgd",
    )
    (family,), remarks = families(frame)
    assert list(family.cells[0].at) == ["V", "d", "L", "m"]
    assert remarks == []  # gamma follows from V wherever kappa is given
    (family,), _ = families(pd.concat([frame, frame.assign(optimizer="adam")]))
    assert family.factors == ("optimizer",)
    assert len(family.cells) == 4
    (family,), _ = families(
        pd.concat([frame.assign(root_seed=0), frame.assign(root_seed=1)])
    )
    assert family.cells[0].n_seeds == 16


def test_diagnostics_show_where_no_single_power_law_holds():
    frame = table(
        {"d": [32, 64, 128, 256]},
        lambda c: 1000 * np.exp(-0.5 * np.log(c["d"] / 32) ** 2),
        WIDE,
        noise=0.02,
    )
    found = fit(frame).diagnostics.set_index("diagnostic")
    assert any("no single power law" in text for text in found.loc[["warning"], "text"])


REFUSED = {
    "missing column": (
        lambda f: f.drop(columns=["seed", "L"]),
        "columns: no seed; needed",
    ),
    "text": (lambda f: f.assign(N=f["N"].astype(str)), "N: holds '64'"),
    "not whole": (
        lambda f: f.assign(d=f["d"] + 0.5),
        "d: 32.5 in 72 rows; allowed: whole numbers from 1",
    ),
    "bool": (
        lambda f: f.assign(m=False),
        "m: holds False (bool); allowed: whole numbers from 0",
    ),
    "null": (
        lambda f: f.assign(V=f["V"].astype(float).where(f["seed"] > 0)),
        "V: nan in 9 rows",
    ),
    "empty": (lambda f: f.iloc[:0], "rows: the table is empty"),
    "too many right": (
        lambda f: f.assign(n_correct=f["n_test"] + 1),
        "n_correct: more than n_test in 72 rows",
    ),
    "nothing counted": (
        lambda f: f.assign(n_correct=np.nan),
        "n_correct: null in all rows",
    ),
    "a column of the thresholds": (
        lambda f: pd.concat([f.assign(method="a"), f.assign(method="b")]),
        "columns: method is an axis here and a column of the thresholds; rename it",
    ),
    "twice": (
        lambda f: pd.concat([f, f.iloc[:3]]),
        (
            "rows: 3 runs come more than once, the first at V = 64, d = 32, L = 8, m ="
            " 0, N = 64, seed = 0"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_cannot_be_fitted_is_refused_in_a_line(case, tmp_path, capsys):
    spoil, line = REFUSED[case]
    spoil(table()).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet")]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(line)
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_table_may_keep_its_axes_in_an_index_or_as_categories(tmp_path):
    frame = table({"d": [32, 64]}, lambda c: 1000.0)
    both = pd.concat([frame.assign(optimizer="sgd"), frame.assign(optimizer="adam")])
    both["optimizer"] = pd.Categorical(both["optimizer"], ["sgd", "adam", "never run"])
    both.set_index(["V", "N", "optimizer"]).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet")]) == 0
    thresholds = pd.read_parquet(tmp_path / "t-fit/thresholds.parquet")
    assert len(thresholds) == 4
    pd.testing.assert_frame_equal(thresholds, fit(both).thresholds, check_dtype=False)
    one = frame.assign(optimizer="sgd", remark="none").astype(
        {"optimizer": "category", "remark": "category"}
    )
    assert len(fit(one).thresholds) == 2
    with pytest.raises(FitError, match="columns: d more than once"):
        fit(pd.concat([frame, frame[["d"]]], axis=1))


def test_a_use_that_makes_no_sense_is_refused_in_a_line(tmp_path, capsys):
    table().to_parquet(tmp_path / "t.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "file").write_text("")
    good = str(tmp_path / "t.parquet")
    for argv, line in (
        ([str(tmp_path / "none.parquet")], "there is no such file or folder"),
        ([str(tmp_path / "broken.parquet")], "cannot be read ("),
        ([str(tmp_path / "empty.parquet")], "cannot be read ("),
        ([str(tmp_path)], "no rows in"),
        (
            [good, "--theta", "0.5", "1.5"],
            "theta: got 1.5; allowed: fractions between 0 and 1",
        ),
        ([good, "--theta", "nan"], "theta: got nan; allowed"),
        ([good, "--out", str(tmp_path / "file")], "cannot be written"),
    ):
        assert cli.main(argv) == 2
        told = capsys.readouterr()
        assert line in told.err
        assert told.err.count("\n") == 1
        assert told.out == ""  # refused before anything was fitted


def test_a_fit_needs_no_jax(tmp_path):
    table().to_parquet(tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    imported = "import sys; from jaxrecall.fit import main"
    told = python(
        f"{imported}; code = main([{path!r}]); assert 'jax' not in sys.modules;"
        " sys.exit(code)"
    )
    assert told.returncode == 0, told.stderr
    assert sorted(path.name for path in (tmp_path / "t-fit").iterdir()) == [
        "diagnostics.parquet",
        "exponents.parquet",
        "thresholds.parquet",
    ]


def test_rows_without_a_count_are_left_out_and_counted(tmp_path, capsys):
    frame = table()
    gone = frame["N"] == 128
    frame = frame.assign(
        status=np.where(gone, "nonfinite", "ok"),
        n_correct=frame["n_correct"].astype("Int64").mask(gone),
    )
    frame.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--out", str(tmp_path / "out")]) == 0
    assert (
        "8 of 72 rows have no n_correct (status nonfinite) and were left out"
        in capsys.readouterr().out
    )
    assert (
        pd.read_parquet(tmp_path / "out/thresholds.parquet")["n_levels"]
        == len(LEVELS) - 1
    ).all()
    assert (
        "8 of 72 rows"
        in pd.read_parquet(tmp_path / "out/diagnostics.parquet").iloc[-1]["text"]
    )


def test_missing_values_of_any_kind_are_one_cell():
    one = table()
    frame = pd.concat([one, one], ignore_index=True).assign(
        kappa=pd.array([1.0] * len(one) + [None] * len(one), dtype="Float64")
    )
    found = fit(frame).thresholds
    assert found["N_star"].notna().sum() == 2
    assert found["kappa"].isna().sum() == 1


def test_a_long_fit_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "PLAIN_EVERY_SECONDS", 0.0)
    table({"d": [32, 64]}).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--theta", "0.5", "0.9"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "curves: 50 % done",
        "curves: 100 % done",
    ]


def test_a_column_without_values_has_its_type(tmp_path):
    table({"d": [32, 64]}).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet")]) == 0
    # not null
    assert pq.read_schema(tmp_path / "t-fit/thresholds.parquet").field(
        "copy_of"
    ).type in (
        "string",
        "large_string",
    )


def bent(c):
    """N* ~ L^0 up to L = 32, L^2 from there on, with V^2 throughout."""
    return 1000 * (c["V"] / 64) ** 2 * max(c["L"] / 32, 1) ** 2


BENT = {"V": [64, 128, 256], "L": [8, 32, 128, 512]}


def test_copies_count_once():
    once = table({"V": [64, 128, 256]}, law, WIDE)
    # d and L have no effect on these runs
    both = pd.concat([once, once.assign(d=64, L=16)])
    found, alone = fit(both), fit(once)
    record = found.thresholds
    assert record["copy_of"].isna().tolist() == [True, False] * 3
    assert set(record["copy_of"].dropna()) == {"d = 32, L = 8"}
    assert (
        "theta = 0.5: 6 cells, of which 3 repeat the counts of another: 6 cross"
        in repr(found)
    )
    mine, theirs = (one.exponents.set_index("axis").loc["V"] for one in (found, alone))
    assert mine["n_cells"] == theirs["n_cells"] == 3
    assert mine[["exponent", "lo", "hi"]].tolist() == pytest.approx(
        theirs[["exponent", "lo", "hi"]].tolist()
    )
    wider = fit(pd.concat([once, once[once["V"] == 256].assign(d=64)])).exponents
    assert (wider["n_cells"] == 3).all()
    assert (
        wider["warning"].tolist()
        == ["as many unknowns as cells: nothing checks the law"] * 2
    )


def test_a_cell_and_its_copy_have_the_weight_of_one_cell():
    (family,), _ = families(
        pd.concat(
            [
                once := table({"V": [64, 128, 256]}, law),
                once[once["V"] == 256].assign(L=16),
            ]
        )
    )
    y = np.array([[0.0, 1.0, 3.0, 3.0]])
    assert [cell.copy_of is not None for cell in family.cells] == [
        False,
        False,
        False,
        True,
    ]
    assert np.isclose(
        FittedLaw(family.cells, ("V",), ()).exponents(y),
        FittedLaw(family.cells[:3], ("V",), ()).exponents(y[:, :3]),
    )


def test_a_copy_names_the_first_cell_of_its_counts():
    once = table({"L": [8, 12]}, lambda c: 100.0 * c["L"])
    (family,), _ = families(pd.concat([once, once[once["L"] == 8].assign(L=16)]))
    first, second, third = family.cells
    assert (first.copy_of, second.copy_of) == (None, None)
    assert third.copy_of == first.at


def copied(frame, **changed):
    """Whether a second cell that differs in `changed` copies the only cell of the
    frame.
    """
    (family,), _ = families(pd.concat([frame, frame.assign(**changed)]))
    return family.cells[1].copy_of is not None


def test_the_last_step_is_that_of_each_point():
    ends = {32: [3, 10], 64: [3, 100]}
    rows = [
        {"d": d, "N": 64, "seed": 0, "steps": steps[-1], "step": step}
        for d, steps in ends.items()
        for step in steps
    ]
    assert runs.at_steps(pd.DataFrame(rows), "last")["d"].tolist() == [32, 64]


def test_what_is_a_copy():
    frame = table().assign(draw_check=lambda f: f["seed"])
    assert copied(frame, d=64)
    # their draws are not the same
    assert not copied(frame, d=64, draw_check=frame["seed"] + 100)
    assert copied(frame, L=64, draw_check=frame["seed"] + 100)  # the check depends on L
    one_more = frame["n_correct"] + ((frame["N"] == 1024) & (frame["seed"] == 3))
    assert not copied(frame, d=64, n_correct=one_more)
    assert not copied(frame, d=64, N=frame["N"] + 1)  # no run in common
    elsewhere = frame["N"].where(frame["N"] < 256, frame["N"] + 1)
    assert not copied(frame, d=64, N=elsewhere)  # two levels of nine in common
    # nothing learnt yet
    assert not copied(frame[(frame["N"] == 64)].assign(n_correct=0), d=64)
    # may be chance
    assert not copied(table(seeds=1, levels=(64, 512, 8192), n_test=3), d=64)


def frame_of(family):
    """The runs of a family."""
    rows = []
    for cell in family.cells:
        for (level, seed), k in np.ndenumerate(cell.k):
            run = {"N": cell.N[level], "seed": seed}
            counts = {"n_test": int(cell.n[level, seed]), "n_correct": int(k)}
            rows.append(cell.at | run | counts)
    return pd.DataFrame(rows)


def test_the_copies_of_a_drawn_table_are_found():
    truth = coverage.draw(np.random.default_rng(1), coverage.Setting(copies=0.5))
    assert truth.exponents[2] == 0
    (family,), _ = families(frame_of(truth.family))
    drawn = {tuple(cell.at.items()): cell.copy_of for cell in truth.family.cells}
    assert {tuple(cell.at.items()): cell.copy_of for cell in family.cells} == drawn
    assert 0 < sum(original is not None for original in drawn.values()) < 12


def test_a_law_within_a_regime():
    frame = table(BENT, bent, WIDE)
    found = fit(frame, [0.5], where=["L <= 32", "L >= sqrt(1000)"])
    law_ = found.exponents.set_index(["regime", "axis"])
    assert np.allclose(law_["exponent"], [2, 0, 2, 2], atol=0.02)
    assert list(law_.index) == [
        (regime, axis) for regime in ("L <= 32", "L >= sqrt(1000)") for axis in "VL"
    ]
    assert not law_["rejected"].any()
    assert len(found.thresholds) == 12  # of every cell
    assert "residual" in set(
        found.diagnostics.query("regime == 'L >= sqrt(1000)'")["diagnostic"]
    )
    whole = fit(frame).exponents
    assert whole["rejected"].all()
    assert (whole["regime"] == "").all()
    assert "(law rejected)" in repr(fit(frame))
    one = fit(frame, [0.5], where="L <= 32").exponents
    pd.testing.assert_frame_equal(one, found.exponents[:2])


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("L > 1e6", "where: 'L > 1e6' holds for no cell"),
        ("N > 5", "where: 'N > 5': N is no axis; allowed: V, d, L, m"),
        ("L", "where: 'L': gives 8; allowed: true or false"),
        ("L = 8", "where: 'L = 8': is no expression"),
    ],
)
def test_a_regime_that_makes_no_sense_is_refused_in_a_line(
    where, line, tmp_path, capsys
):
    table(BENT, bent).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--where", where]) == 2
    message = capsys.readouterr().err
    assert message.startswith(line)
    assert message.count("\n") == 1


def rates(frame, **given):
    rates = {"kappa": 100.0, "eta": 1e-3} | given
    frame = frame.assign(**rates)
    frame["gamma"] = frame["kappa"] * frame["L"] ** 2 * frame["V"] / frame["eta"]
    return frame.assign(gamma2=frame["gamma"])


def test_a_rate_that_follows_from_others_is_no_factor():
    for axes in ({}, {"V": [64, 128], "L": [8, 32]}):
        frame = table(axes)
        both = pd.concat([rates(frame), rates(frame, kappa=2.0)])
        assert families(both)[0][0].factors == ("kappa",)
        assert families(pd.concat([both, rates(frame, eta=1e-2)]))[0][0].factors == (
            "eta",
            "kappa",
        )
    assert families(both.assign(gamma2=both["gamma"] / 10))[0][0].factors == ("kappa",)
    (family,), _ = families(pd.concat([rates(frame), rates(frame).assign(gamma2=5.0)]))
    assert family.factors == ("gamma2",)
    assert len(family.cells) == 8
    law_ = FittedLaw(family.cells, family.law, family.factors)
    # two constants: gamma2 = 5, and gamma2 = gamma in every cell
    assert law_.design.shape == (
        8,
        2 + 2,
    )
    assert as_given(
        given := as_given(pd.concat([rates(frame), rates(frame).assign(gamma2=5.0)]))
    ).equals(given)


def test_cells_that_do_not_cross_surely_are_counted_apart():
    frame = table({"d": [32, 64, 128, 256]}, lambda c: 1000 * 32 / c["d"], noise=0.5)
    tops = frame[(frame["d"] == 32)].groupby("seed")["n_correct"].max()
    scale = 2000 * np.linspace(0.3, 0.75, 8) / tops
    at = frame["d"] == 32
    frame.loc[at, "n_correct"] = (
        (frame[at]["n_correct"] * frame[at]["seed"].map(scale)).round().astype(int)
    )
    shown = repr(fit(frame))
    assert (
        "theta = 0.5: 4 cells: 4 cross, 1 of them not surely enough for the law"
        in shown
    )
    assert "law of 3 cells; misfit" in shown
    assert "left out: 1 (crossing not sure)" in shown


def test_a_fit_unpacks_and_prints():
    found = fit(table(GRID, law, WIDE))
    thresholds, exponents, diagnostics = found
    assert (
        thresholds is found.thresholds,
        exponents is found.exponents,
        diagnostics is found.diagnostics,
    ) == (True,) * 3
    assert repr(found).splitlines()[:2] == [
        "theta = 0.5: 9 cells: 9 cross",
        "  m = 0: N* ~ V^2.00  95 % interval 2.00 to 2.00, by seeds",
    ]
    assert "1 cell: 1 cross" in repr(fit(table(seeds=1)))


def along_m():
    """Runs with levels of m, of two recorded steps: the required width halves from the
    first to the second. m = 0 has accuracy 0.2.
    """
    steps = [
        table({"d": [32, 64]}, lambda c, at=at: at * law(c), n_test=10**5).assign(
            step=step
        )
        for step, at in ((10, 1.0), (100, 0.5))
    ]
    frame = (
        pd.concat(steps, ignore_index=True)
        .rename(columns={"N": "m", "m": "N"})
        .assign(N=4096, steps=100, start="recipe")
    )
    without = frame[frame["m"] == LEVELS[0]].assign(m=0, n_correct=20_000)
    return pd.concat([without, frame], ignore_index=True)


def test_the_required_width_has_no_level_at_0():
    frame = along_m()
    last = frame[frame["step"] == 100]
    found = fit(last, [0.5], along="m")
    rows = found.thresholds.set_index("d")
    assert (rows["axis"] == "m").all()
    assert rows["N_star"].isna().all()
    assert rows["critical"].to_numpy() == pytest.approx(
        [0.5 * law({"V": 64, "d": d}) for d in (32, 64)], rel=0.02
    )
    assert ((rows["lo"] < rows["critical"]) & (rows["critical"] < rows["hi"])).all()
    assert (rows["n_levels"] == len(LEVELS)).all()
    (exponent,) = found.exponents.itertuples()
    assert (exponent.axis, exponent.along) == ("d", "m")
    assert exponent.exponent == pytest.approx(-1.3, abs=0.02)
    with pytest.raises(FitError, match="along: m is 0 in all rows"):
        fit(last[last["m"] == 0], along="m")
    with pytest.raises(
        FitError, match="along: got 'start'; allowed: a column of numbers"
    ):
        fit(last, along="start")


# along V accuracy is known to fall, along eta it is seen to
@pytest.mark.parametrize("axis", ["V", "eta"])
def test_what_falls_along_an_axis_crosses_where_what_rises_would(axis):
    rising = table({"d": [32, 64]}, law, n_test=10**5)
    falling = rising.assign(n_correct=rising["n_test"] - rising["n_correct"])
    frame = (
        falling.drop(columns=axis, errors="ignore")
        .rename(columns={"N": axis})
        .assign(N=4096)
    )
    for theta in (0.5, 0.8):
        (found, _, _), (other, _, _) = (
            fit(frame, [theta], along=axis),
            fit(rising, [1 - theta]),
        )
        assert found[["critical", "lo", "hi"]].to_numpy(float) == pytest.approx(
            other[["critical", "lo", "hi"]].to_numpy(float)
        )
        assert (found["theta"] == theta).all()
    below = fit(frame[frame[axis] > 4000], along=axis).thresholds["warning"]
    assert below.str.startswith("below theta from the smallest on: accuracy ").all()


def test_the_command_reads_one_trace_along_an_axis_and_knows_what_a_search_varied(
    tmp_path, capsys
):
    path = tmp_path / "t.parquet"
    along_m().to_parquet(path)
    assert cli.main([str(path), "--along", "m", "--step", "10", "100"]) == 0
    assert "m > 0: m* ~ d^-1.30" in capsys.readouterr().out
    found = pd.read_parquet(tmp_path / "t-fit" / "along-m" / "thresholds.parquet")
    at = found.set_index(["d", "step"])["critical"].unstack()
    assert (at[10] / at[100]).tolist() == pytest.approx([2, 2], rel=0.02)
    frame = along_m()
    meta = {b"jaxrecall": json.dumps({"axes": ["d", "m"], "searched": "m"}).encode()}
    pq.write_table(
        pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(meta),
        path,
    )
    assert cli.main([str(path)]) == 0
    assert (
        pd.read_parquet(tmp_path / "t-fit" / "thresholds.parquet")["axis"] == "m"
    ).all()


def test_files_of_the_user_are_not_replaced_and_links_lead_nowhere(tmp_path, capsys):
    path, out = tmp_path / "t.parquet", tmp_path / "t-fit"
    rows = table({"d": [32, 64]}, law)
    rows.to_parquet(path)
    out.mkdir()
    (out / "exponents.parquet").symlink_to(tmp_path / "new.parquet")
    for name in ("thresholds.parquet", "thresholds.tex"):
        (out / name).write_text("mine")
    assert cli.main([str(path), "--latex"]) == 2
    assert f"{out / 'thresholds.parquet'}: would be" in capsys.readouterr().err
    assert (out / "thresholds.parquet").read_text() == "mine"
    (out / "thresholds.parquet").unlink()
    assert cli.main([str(path)]) == 0
    assert (out / "thresholds.tex").read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == {"t.parquet", "t-fit"}
    out.rename(tmp_path / "elsewhere")
    out.symlink_to(tmp_path / "elsewhere")
    assert cli.main([str(path)]) == 2
    assert f"{out}: is a link to" in capsys.readouterr().err


def test_the_usual_folder_is_inside_whatever_a_column_is_called(tmp_path):
    path = tmp_path / "t.parquet"
    path.touch()
    for name in ("../x", "..", "/etc", "a/b"):
        assert default_folder([path], name).parent == tmp_path / "t-fit"
        inner = default_folder([path], along=name)
        assert inner.parent == tmp_path / "t-fit"
    assert default_folder([path], "a.b", "m").parts[-2:] == ("a.b", "along-m")


def test_another_accuracy_can_cross(tmp_path, capsys):
    frame = table({"V": [64, 128]}, law, n_test=10**6)
    share = frame["n_correct"] / frame["n_test"]
    decoded = frame.assign(
        n_correct=0,
        matched_accuracy=(share * frame["V"]).round() / frame["V"],
        whitened_accuracy=np.nan,
    )
    decoded.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--of", "matched_accuracy"]) == 0
    found = pd.read_parquet(
        tmp_path / "t-fit" / "matched_accuracy" / "thresholds.parquet"
    )
    assert found["N_star"].to_numpy() == pytest.approx(
        [law(cell) for cell in found.to_dict("records")], rel=0.03
    )
    for of, told in (
        ("whitened_accuracy", "decoders: true"),
        ("assignment_accuracy", "no column"),
        ("snr", "allowed: accuracy, "),
    ):
        assert cli.main([str(tmp_path / "t.parquet"), "--of", of]) == 2
        assert told in capsys.readouterr().err


def test_any_fraction_can_cross(tmp_path, capsys):
    frame = table({"V": [64, 128]}, law, n_test=10**6)
    mass = frame.assign(
        n_correct=0,
        attention_mass=frame["n_correct"] / frame["n_test"],
        snr=2.0,
        eta=0.5,
        note="x",
    )
    found = fit(mass, of="attention_mass")
    assert found.thresholds["N_star"].to_numpy() == pytest.approx(
        [law(cell) for cell in found.thresholds.to_dict("records")], rel=0.03
    )
    as_counted = fit(frame)
    assert np.allclose(
        found.thresholds[["lo", "hi"]], as_counted.thresholds[["lo", "hi"]], rtol=1e-4
    )
    assert found.thresholds.attrs["of"] == "attention_mass"
    assert as_counted.thresholds.attrs["of"] == "accuracy"
    assert "attention\\_mass crosses 0.5" in latex(found.thresholds)
    mass.to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--of", "attention_mass"]) == 0
    kept = pd.read_parquet(tmp_path / "t-fit" / "attention_mass" / "thresholds.parquet")
    assert np.allclose(kept["N_star"], found.thresholds["N_star"])
    told = {
        "eta": "'eta', which was not measured",
        "note": "note: holds 'x'",
        "seed": "not measured",
    }
    for of, line in told.items():
        capsys.readouterr()
        assert cli.main([str(tmp_path / "t.parquet"), "--of", of]) == 2
        assert line in capsys.readouterr().err
    unknown = fit(own().assign(width_share=lambda f: f["overlap"]), of="width_share")
    assert np.allclose(unknown.thresholds["N_star"], fit(own()).thresholds["N_star"])


def with_attrs(frame, **attrs):
    frame = frame.copy()
    frame.attrs |= attrs
    return frame


def test_the_axes_are_those_that_the_table_names():
    frame = table({"d": [32, 64]}, law).assign(note=lambda f: f["seed"] % 2, eta=0.1)
    assert families(frame)[0][0].factors == ("note",)  # searched for
    (family,), remarks = families(with_attrs(frame, axes=["d", "N"]))
    assert (family.law, family.factors, remarks) == (("d",), (), [])
    assert family.cells[0].n_seeds == 8
    follows = with_attrs(frame.assign(gamma=frame["d"] * 3.0), axes=["gamma", "d", "N"])
    assert families(follows)[0][0].factors == ()
    more = pd.concat([frame, frame.assign(eta=0.2)])
    # rows of another grid too
    (family,), _ = families(with_attrs(more, axes=["d", "N"]))
    assert "eta" in family.factors
    (family,), _ = families(
        with_attrs(more[more["eta"] == 0.2], axes=["eta", "d", "N"])
    )
    assert family.factors == ()
    with pytest.raises(
        FitError, match="144 runs come more than once, the first at V = 64, d = 32"
    ):
        families(with_attrs(pd.concat([frame, frame]), axes=["d", "N"]))


def test_no_law_of_sizes_holds_across_the_values_of_an_axis_of_text():
    """Seen before: an exponent of V that compared the embeddings of one V with those of
    the other.
    """
    blocks = [
        table({"V": [V], "d": GRID["d"]}, law).assign(embedding=name)
        for V, name in ((64, "gaussian"), (128, "sphere"))
    ]
    frame = with_attrs(
        pd.concat(blocks, ignore_index=True), axes=["embedding", "V", "d", "N"]
    )
    (family,), remarks = families(frame)
    assert (family.factors, remarks) == (("embedding",), [])
    named = with_attrs(
        frame.assign(case=lambda f: "V" + f["V"].astype(str)),
        axes=["embedding", "V", "d", "N"],
        kept=["case"],
    )
    # a helper that the grid keeps is a name for the cells
    assert families(named)[0][0].factors == ("embedding",)
    found = fit(frame)
    assert found.exponents.set_index("axis")["exponent"].dropna().round(
        1
    ).to_dict() == {"d": -1.3}
    assert "the cells do not determine how N* depends on V" in str(found)


def test_a_table_in_which_no_axis_of_a_law_varies_says_so():
    frame = pd.concat(
        [
            table().assign(embedding="equicorrelated", **{"embedding.rho": rho})
            for rho in (0.1, 0.3)
        ],
        ignore_index=True,
    )
    line = (
        "no exponents of N*: what varies is embedding.rho, and only V, d, L, m get one;"
        " see N* in the thresholds, and compare for their ratios"
    )
    found = fit(frame)
    assert found.remarks == [line]
    assert f"note: {line}" in str(found)
    assert found.exponents.empty
    own = (
        table()
        .drop(columns=["V", "L", "m", "d"])
        .assign(accuracy=lambda t: t["n_correct"] / t["n_test"])
    )
    named = with_attrs(
        pd.concat([own.assign(kind=kind) for kind in ("a", "b")], ignore_index=True),
        accuracy="accuracy",
        axes=["kind", "N"],
    )
    assert fit(named).remarks == [
        line.replace("embedding.rho", "kind").replace(
            "V, d, L, m", "axes of numbers greater than 0"
        )
    ]
    for varies in (frame.assign(d=32), pd.concat([frame, frame.assign(d=64)])):
        assert bool(fit(varies).remarks) == (varies["d"].nunique() == 1)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"axes": ["embedding", "embedding.rho", "d", "N"]},
        {"axes": ["embedding", "d", "N"]},
    ],
)
def test_laws_with_parameters_go_by_their_bare_name(attrs):
    laws = {
        "gaussian": None,
        "equicorrelated(rho=0.1)": 0.1,
        "equicorrelated(rho=0.3)": 0.3,
    }
    tables = [
        table({"d": [32, 64]}, law).assign(embedding=text, **{"embedding.rho": rho})
        for text, rho in laws.items()
    ]
    frame = with_attrs(
        pd.concat(tables, ignore_index=True).astype({"embedding.rho": float}), **attrs
    )
    (family,), _ = families(frame)
    assert family.factors == ("embedding", "embedding.rho")
    found = fit(frame)
    assert found.thresholds["embedding"].value_counts().to_dict() == {
        "gaussian": 2,
        "equicorrelated": 4,
    }
    assert sorted(found.thresholds["embedding.rho"].dropna()) == [0.1, 0.1, 0.3, 0.3]
    assert len(found.exponents) == 1
    # a parameter without a column: the text says it
    unlike = frame.assign(**{"embedding.rho": np.nan})
    assert set(as_given(unlike)["embedding"]) == set(laws)


def own(counted=False):
    """Runs of some other simulator: overlap = logistic in ln N, crossing 0.5 at 1000
    (width / 0.5)^1.5.
    """
    axes = {"width": [0.5, 1.0, 2.0], "kind": ["a", "b"]}
    frame = table(
        axes,
        lambda c: 1000 * (c["width"] / 0.5) ** 1.5 * (2 if c["kind"] == "b" else 1),
        WIDE,
    )
    frame = frame.drop(columns=["V", "d", "L", "m"]).assign(
        depth=3, steps=7.5, embedding=1
    )
    frame = (
        frame
        if counted
        else frame.assign(overlap=frame["n_correct"] / frame["n_test"]).drop(
            columns=["n_correct", "n_test"]
        )
    )
    return with_attrs(
        frame,
        axes=["width", "kind", "N"],
        accuracy="n_correct" if counted else "overlap",
        simulator="mine:sim",
    )


def test_a_simulator_of_ones_own_needs_none_of_our_columns(tmp_path, capsys):
    found, counted = fit(own()), fit(own(counted=True))
    assert list(found.thresholds.columns[:3]) == ["width", "kind", "theta"]
    assert np.allclose(
        found.thresholds["N_star"], counted.thresholds["N_star"], rtol=1e-6
    )
    assert set(found.exponents["part"]) == {"all"}
    assert list(found.exponents["axis"]) == ["width"]
    assert found.exponents["exponent"].tolist() == pytest.approx([1.5], abs=0.01)
    assert found.exponents["lo"].notna().all()
    assert len(fit(own(), [0.5], where="width > 0.5").exponents) == 1
    made = pa.Table.from_pandas(own())
    pq.write_table(
        made.replace_schema_metadata({b"jaxrecall": json.dumps(own().attrs)}),
        tmp_path / "t.parquet",
    )
    assert cli.main([str(tmp_path / "t.parquet")]) == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "t-fit/exponents.parquet"),
        found.exponents,
        check_dtype=False,
    )


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (
            lambda f: f.drop(columns="overlap"),
            "columns: no overlap; needed: N, seed, overlap; a column with another name"
            " is given as in --columns overlap=COLUMN",
        ),
        (
            lambda f: f.assign(overlap=np.inf),
            "overlap: inf in 720 rows; allowed: finite numbers",
        ),
        (lambda f: f.assign(overlap="x"), "overlap: holds 'x' (str); allowed: numbers"),
        (
            lambda f: f.assign(overlap=np.nan),
            "overlap: null in all rows; there is nothing to fit",
        ),
    ],
)
def test_a_table_of_ones_own_simulator_that_cannot_be_fitted_is_refused(spoil, line):
    with pytest.raises(FitError) as refused:
        fit(spoil(own()))
    assert str(refused.value) == line


@pytest.mark.parametrize(
    "metadata",
    [
        b"no json",
        b"[1]",
        b'{"axes": 3, "accuracy": ["a"]}',
        b'{"axes": [["d"]]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_a_file_says_of_itself_may_be_damaged(tmp_path, metadata):
    made = pa.Table.from_pandas(table(), preserve_index=False).replace_schema_metadata(
        {b"jaxrecall": metadata}
    )
    pq.write_table(made, tmp_path / "t.parquet")
    assert runs.read(tmp_path / "t.parquet")[0].attrs == {}
