"""Thresholds and exponents: known truths come back, another library agrees, and what
cannot be known is said, not made up.
"""

import importlib
import itertools
import json
import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from scipy.special import expit, logit
from tolerances import assert_close

from jaxrecall.fit import fit
from results import coverage

cli = importlib.import_module("jaxrecall.fit")
LEVELS = tuple(2**i for i in range(6, 15))
WIDE = tuple(2**i for i in range(4, 19))
GRID = {"V": [64, 128, 256], "d": [32, 64, 128]}


def crossed(**axes):
    """A row for each combination of values of the axes."""
    return pd.DataFrame(itertools.product(*axes.values()), columns=[*axes])


def table(
    axes=None,
    star=lambda c: 1000.0,
    levels=LEVELS,
    seeds=8,
    slope=1.5,
    ceiling=lambda c: 1.0,
    noise=0.2,
    n_test=2000,
):
    """Runs on a grid: logistic in ln N, crossing one half at `star(cell)`; a seed's N*
    is off by a factor exp(noise), alike in all cells.
    """
    axes = {"V": [64], "d": [32], "L": [8], "m": [0]} | (axes or {})
    frame = crossed(**axes, N=levels, seed=range(seeds))
    cells = frame.to_dict("records")
    stars, tops = np.array([(star(cell), ceiling(cell)) for cell in cells]).T
    shifts = noise * (2 * frame["seed"] - seeds + 1) / max(seeds - 1, 1)
    at_star = logit(np.where(tops > 0.5, 0.5 / tops, 0.5))
    p = tops * expit(slope * (np.log(frame["N"] / stars) - shifts) + at_star)
    return frame.assign(n_test=n_test, n_correct=(n_test * p).round().astype(int))


ENDS = ["critical", "lo", "hi"]
LAW = {"V": 2.0, "d": -1.3}


def law(c):
    return 1000 * (c["V"] / 64) ** 2 * (c["d"] / 32) ** -1.3


def falling_in_d(c):
    return 32000 / c["d"]


def uncovered(frame):
    """The same runs with a setting that theory does not know, so that none is computed
    for a figure.
    """
    return frame.assign(s=1.0)


def ours(frame):
    """The same runs with the settings without which no theory is drawn."""
    return frame.assign(trigger_in_value=True, kappa=100.0, embedding="gaussian")


def with_attrs(frame, **attrs):
    frame = frame.copy()
    frame.attrs |= attrs
    return frame


def command(folder, frame, *words):
    """Fits the table t.parquet of a folder."""
    if frame is not None:
        frame.to_parquet(folder / "t.parquet")
    return cli.main([str(folder / "t.parquet"), *words])


def written(folder, name):
    return pd.read_parquet(folder / f"t-fit/{name}.parquet")


def exponents(found, *by):
    return found.exponents.set_index([*by, "axis"])["exponent"].dropna().to_dict()


def assert_crosses(cells, truth, within=0.05):
    """The critical values are the truth up to a factor exp(within)."""
    assert_close(np.log(cells["critical"]), np.log(truth), within)


def factors(frame):
    """The settings that vary and are no sizes: each of their values has a constant of
    its own.
    """
    cells = fit(frame).thresholds.loc[:, :"theta"].drop(columns=[*"VdLm", "theta"])
    return [name for name in cells if cells[name].nunique(dropna=False) > 1]


def test_a_known_law_comes_back():
    found = fit(table(GRID, law, WIDE, n_test=10**6), [0.5, 0.8])
    thresholds, laws, _ = found
    assert thresholds["record"].all()
    assert {*thresholds["method"], *laws["method"]} == {"local"}
    half, high = (part for _, part in thresholds.groupby("theta"))
    assert len(half) == len(high) == 9
    assert_crosses(half, law(half), 0.01)
    # the curve is logistic: theta = 0.8 lies this much further
    assert_crosses(high, law(high) * np.exp(logit(0.8) / 1.5), 0.03)
    assert (half["censored"] == "no").all()
    assert half["N_star"].between(half["N_below"], half["N_above"]).all()
    assert half["N_star"].between(half["lo"], half["hi"]).all()
    # L and m are constant
    truth = {(theta, axis): x for theta in (0.5, 0.8) for axis, x in LAW.items()}
    assert_close(exponents(found, "theta"), truth, 0.01)
    first, second, _, row, *_ = repr(found).splitlines()
    assert first == "theta = 0.5: 9 configurations: 9 crosses"
    assert second == "exponents of N*:"
    assert re.match(r" +V +2 \[2, 2\] ", row)


def test_cells_whose_levels_differ_are_cells_where_the_grid_names_what_tells_them_apart():  # noqa: E501
    low = table({"rate": [1]}, lambda c: 200, LEVELS[:4])
    high = table({"rate": [2]}, lambda c: 6000, LEVELS[5:])
    both = with_attrs(pd.concat([low, high], ignore_index=True), axes=["rate", "N"])
    found = fit(both).thresholds
    assert list(found["rate"]) == [1, 2]
    assert_crosses(found, [200, 6000])


@pytest.mark.parametrize(
    "named", [{"axes": ["V", "L"], "kept": ["per"]}, {"axes": ["V", "L", "per"]}, {}]
)
def test_fields_that_follow_the_axis_make_no_cells(named):
    multiples = [8, 64] if named else [8]
    frame = crossed(V=LEVELS, L=[4, 8], m=[0], per=multiples, seed=range(8))
    x = np.log(frame["V"] / 8 / frame["per"])
    frame["n_correct"] = (2000 * expit(3 - x - frame["seed"] / 40)).round()
    frame = frame.assign(N=frame["per"] * frame["V"], d=frame["V"] // 2, n_test=2000)
    found = fit(with_attrs(frame, **named), along="V").thresholds
    assert len(found) == 2 * len(multiples)
    assert (found["critical"] > 0).all()


def test_of_two_fields_whose_product_is_the_axis_the_grid_axis_makes_cells():
    frame = table({"d": [16, 64]}, lambda c: 50 * c["d"])
    frame = frame.assign(load=frame["N"] / frame["d"])
    named = with_attrs(frame, axes=["d", "N"], kept=["load"])
    assert_crosses(fit(named).thresholds, [800, 3200])


def test_plateaus_do_not_move_the_exponents():
    axes = {"V": [64, 128, 256], "d": [16, 32, 64, 128]}
    found = fit(table(axes, law, WIDE, ceiling=lambda c: 0.3 if c["d"] == 16 else 1.0))
    assert_close(exponents(found), LAW, 0.05)
    flat = found.thresholds[found.thresholds["d"] == 16]
    assert (flat["censored"] == "right").all()
    assert flat["warning"].str.startswith("plateau").all()
    assert flat[[*ENDS, "N_star", "N_above"]].isna().all(axis=None)
    assert (flat["N_below"] == WIDE[-1]).all()
    assert (found.exponents["left_out"] == "3 plateau").all()
    assert repr(found).count(" 3 plateau ") == 2


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    # an error within a step is bounded rather than known
    for one_step, replicates, most in ((0.1, 200, 0.995), (0.9, 100, 1)):
        checked = coverage.check(coverage.Setting(one_step=one_step), replicates)
        held, error = checked.filter(like="held"), checked.filter(like="error")
        assert 0.92 < held.mean().mean() <= most
        assert 0.91 < checked["thresholds"].mean() <= most
        assert error.mean().abs().max() < 0.02


def measured(means, along="N"):
    """The only threshold of a table of these mean accuracies, each seed's a little
    off.
    """
    levels = [64, 90, 128, 181, 256, 362, 512, 724][: len(means)]
    axes = {"V": [64], "d": [32], "L": [8], "m": [0], "N": [4096]}
    frame = crossed(**axes | {along: levels}, seed=range(8)).assign(n_test=10**5)
    off = np.linspace(-0.01, 0.01, 8)
    frame["n_correct"] = (10**5 * np.add.outer(means, off).ravel()).round()
    (found,) = fit(frame, along=along).thresholds.to_dict("records")
    return found


SHAPES = """
- means: [0.9, 0.8, 0.6, 0.3, 0.1, 0.04]
  warning: "not reached: accuracy 0.04 at N = 362, the largest; not monotone: accuracy
    turns back by 0.86 as N grows"
- means: [0.02, 0.1, 0.3, 0.42, 0.82, 0.04]  # 0.43, pooled with its neighbour
  warning: "not reached: accuracy 0.04 at N = 362, the largest; not monotone: accuracy
    turns back by 0.78 as N grows"
- means: [0.02, 0.1, 0.3, 0.36, 0.37, 0.37, 0.37, 0.37]
  warning: "plateau: accuracy 0.37 at N = 724, the largest; it levels off"
- means: [0.02, 0.04, 0.08, 0.14, 0.24, 0.38]
  warning: "not reached: accuracy 0.38 at N = 362, the largest"
- means: [0.43, 0.43, 0.44, 0.43, 0.44, 0.44]
  warning: "not reached: accuracy 0.44 at N = 362, the largest"
- means: [0.7, 0.8, 0.9, 0.95, 0.96, 0.97]
  warning: "beyond theta from the smallest on: accuracy 0.7 at N = 64"
"""


@pytest.mark.parametrize("shape", yaml.safe_load(SHAPES))
def test_a_curve_that_does_not_cross_is_told_by_its_shape_and_what_was_measured(shape):
    means, warning = np.array(shape["means"]), shape["warning"]
    found = measured(means)
    assert np.isnan(found["critical"])
    assert found["warning"] == warning
    # along a falling axis, the same of 1 - accuracy
    mirrored = measured(1 - means, along="V")
    assert mirrored["censored"] == found["censored"]
    assert mirrored["state"] == found["state"]
    assert mirrored["warning"][:20] == warning[:20]
    last = 1 - means[-1 if "largest" in warning else 0]
    assert f"accuracy {last:.2g} at V = " in mirrored["warning"]


def test_seeds_may_differ_between_levels():
    """Those of neighbouring levels are used together."""
    levels = tuple(round(100 * 2 ** (i / 8)) for i in range(49))
    axes = {"d": [32, 64, 128]}
    fine = table(axes, falling_in_d, levels, seeds=16, noise=0.0)
    i = fine["N"].map(levels.index)
    # a quarter of the seeds at each of four levels
    spread = fine[(i % 4 == fine["seed"] % 4) & (i % 8 < 4) & (i < 48)]
    plain = table(axes, falling_in_d, noise=0.02)
    fewer = plain[(plain["N"] != 1024) | (plain["seed"] < 2)]
    for frame, n_levels, n_seeds in ((spread, 24, 16), (fewer, 9, 8)):
        found = fit(frame).thresholds
        assert_crosses(found, [1000, 500, 250])
        assert (found["n_levels"] == n_levels).all()
        assert (found["n_seeds"] == n_seeds).all()
        assert (found["warning"] == "").all()


def test_a_rise_within_one_step_is_bounded_by_its_levels():
    found = fit(table({"d": [32, 64, 128]}, lambda c: 11520 / c["d"], slope=200.0))
    record = found.thresholds
    assert record["warning"].str.startswith("crosses within one step").all()
    assert (record["lo"] < 1.02 * record["N_below"]).all()
    assert (record["hi"] > 0.98 * record["N_above"]).all()
    (row,) = found.exponents.itertuples()
    assert row.lo < -1 < row.hi
    # of a uniform error within each step of ln 2
    error = np.log(2) / np.sqrt(12) / (np.log(4) * np.sqrt(0.5))
    assert row.hi - row.lo > 0.99 * 2 * 1.96 * error


@pytest.mark.slow
def test_a_threshold_agrees_with_psignifit():
    psignifit = pytest.importorskip("psignifit")
    frame = table(levels=LEVELS[1:8], slope=1.2, noise=0.0, seeds=6, n_test=200)
    mine = fit(frame).thresholds["N_star"][0]
    points = frame.groupby("N")[["n_correct", "n_test"]].sum().reset_index()
    points["N"] = np.log(points["N"])
    with warnings.catch_warnings(action="ignore"):
        theirs = psignifit.psignifit(
            points.to_numpy(), experiment_type="yes/no", sigmoid="logistic"
        )
    assert_close(np.log(mine), theirs.parameter_estimate["threshold"], 0.05)


def test_what_cannot_be_known_is_censored_not_made_up():
    plain = table({"d": [32, 64]})
    for frame, theta, censored, state in (
        (table({"d": [32, 64]}, lambda c: 1e12), 0.5, "right", "not reached"),
        (plain.assign(n_correct=0, n_test=1), 0.01, "right", "not reached"),
        (plain.assign(n_correct=plain["n_test"]), 0.5, "left", "above"),
        (plain[plain["N"] == 64], 0.5, "right", "one level"),
    ):
        found = fit(frame, theta)
        assert found.thresholds[ENDS].isna().all(axis=None)
        assert found.exponents["exponent"].isna().all()
        assert (found.thresholds["censored"] == censored).all()
        assert (found.thresholds["state"] == state).all()


@pytest.mark.parametrize("seeds", [1, 5])
def test_few_seeds_give_no_interval(seeds):
    found = fit(table(GRID, law, WIDE, seeds=seeds))
    n_known = found.thresholds["N_star"].notna().sum()
    assert f"9 configurations: {n_known} few seeds" in repr(found)
    for frame in (found.thresholds, found.exponents):
        assert frame[["lo", "hi"]].isna().all(axis=None)
        assert frame["warning"].str.contains(f"no interval: {seeds} seed").all()
    assert np.isfinite(found.exponents["exponent"]).all()
    assert (found.exponents["interval_by"] == "").all()


def test_a_crossing_that_no_level_vouches_for_has_an_open_end_and_no_part_in_the_law():
    frame = table({"d": [32, 64, 128, 256]}, falling_in_d, noise=0.5)
    unsure = frame["d"] == 32
    # ceilings of the seeds around theta
    tops = frame[unsure].groupby("seed")["n_correct"].max()
    scale = frame["seed"].map(2000 * np.linspace(0.3, 0.75, 8) / tops)
    scaled = (frame["n_correct"] * scale).round().astype(int)
    frame["n_correct"] = frame["n_correct"].mask(unsure, scaled)
    found = fit(frame)
    record = found.thresholds.set_index("d").loc[32]
    assert 0 < record["lo"] < record["N_star"] < record["hi"] == np.inf
    assert "crossing not sure" in record["warning"]
    assert found.exponents["n_cells"][0] == 3
    assert found.exponents["left_out"][0] == "1 undecided"
    assert "theta = 0.5: 4 configurations: 1 undecided, 3 crosses" in repr(found)


def test_m_is_fitted_apart_and_factors_have_constants_of_their_own():
    def star(c):
        slope = -0.5 if c["m"] else -1
        return 1000 * (c["d"] / 32) ** slope * max(c["m"], 1) ** -0.25

    found = fit(table({"d": [32, 64, 128], "m": [0, 64, 256]}, star, WIDE))
    truth = {("m = 0", "d"): -1, ("m > 0", "d"): -0.5, ("m > 0", "m"): -0.25}
    assert_close(exponents(found, "part"), truth, 0.02)
    both = table(
        {"d": [32, 64, 128], "embedding": ["gaussian", "sphere"]},
        lambda c: 32e3 / c["d"] * (9 if c["embedding"] == "sphere" else 1),
        WIDE,
    )
    found = fit(both[(both["d"] > 32) | (both["embedding"] == "gaussian")])
    assert_close(exponents(found), {"d": -1}, 0.02)
    assert list(found.thresholds.columns[:5]) == [*"VdLm", "embedding"]


def test_axes_that_move_together_get_no_exponent():
    frame = table({"d": [32, 64, 128]}, falling_in_d, WIDE)
    found = fit(frame.assign(L=frame["d"] // 4)).exponents
    assert list(found["axis"]) == ["d", "L"]
    assert found["exponent"].isna().all()
    assert found["warning"].str.contains("moves together with other axes").all()


def test_what_is_an_axis():
    frame = table({"d": [32, 64]}).assign(
        gamma=lambda f: f["d"] * 3.0,
        kappa=100.0,
        accuracy=0.1,
        loss=lambda f: f.index / 7,
        optimizer="sgd",
    )
    found = fit(frame)
    assert list(found.thresholds.loc[:, :"theta"]) == [*"VdLm", "theta"]
    assert found.remarks == []  # gamma follows from V wherever kappa is given
    both = pd.concat([frame, frame.assign(optimizer="adam")])
    assert factors(both) == ["optimizer"]
    assert len(fit(both).thresholds) == 4
    roots = pd.concat([frame.assign(root_seed=0), frame.assign(root_seed=1)])
    assert (fit(roots).thresholds["n_seeds"] == 16).all()


def test_a_refused_table_is_told_in_a_line_before_anything_is_fitted(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for frame, words in (
        (table().assign(d=0.5), ()),
        (table(), ("--theta", "nan")),
        (table(), ("--out", str(tmp_path / "file"))),
    ):
        assert command(tmp_path, frame, *words) == 2
        told = capsys.readouterr()
        assert told.err.count("\n") == 1
        assert told.out == ""
    assert {path.name for path in tmp_path.iterdir()} == {"t.parquet", "file"}


def test_a_fit_writes_three_tables(tmp_path):
    assert command(tmp_path, table()) == 0
    names = {path.stem for path in (tmp_path / "t-fit").iterdir()}
    assert names == {"diagnostics", "exponents", "thresholds"}
    # a column without values has its type
    schema = pq.read_schema(tmp_path / "t-fit/thresholds.parquet")
    assert schema.field("copy_of").type in ("string", "large_string")


def test_rows_without_a_count_are_left_out_and_counted(tmp_path, capsys):
    frame = table()
    gone = frame["N"] == 128
    frame["status"] = np.where(gone, "nonfinite", "ok")
    frame["n_correct"] = frame["n_correct"].astype("Int64").mask(gone)
    assert command(tmp_path, frame) == 0
    line = "8 of 72 rows have no n_correct (status nonfinite) and were left out"
    assert line in capsys.readouterr().out
    assert (written(tmp_path, "thresholds")["n_levels"] == len(LEVELS) - 1).all()
    assert written(tmp_path, "diagnostics").iloc[-1]["text"] == line


def test_missing_values_of_any_kind_are_one_cell():
    kappa = pd.array([1.0, None], dtype="Float64").repeat(72)
    found = fit(pd.concat([table()] * 2, ignore_index=True).assign(kappa=kappa))
    assert found.thresholds["N_star"].notna().sum() == 2
    assert found.thresholds["kappa"].isna().sum() == 1


def test_a_long_fit_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "PLAIN_EVERY_SECONDS", 0.0)
    assert command(tmp_path, table({"d": [32, 64]}), "--theta", "0.5", "0.9") == 0
    told = capsys.readouterr().err.splitlines()
    assert told == ["curves: 50 % done", "curves: 100 % done"]


def test_copies_count_once():
    once = table({"V": [64, 128, 256]}, law, WIDE)
    # d and L have no effect on these runs
    found, alone = fit(pd.concat([once, once.assign(d=64, L=16)])), fit(once)
    copy_of = found.thresholds["copy_of"].fillna("")
    assert copy_of.tolist() == ["", "d = 32, L = 8"] * 3
    line = "6 configurations, of which 3 repeat the counts of another: 6 crosses"
    assert line in repr(found)
    for name in ("n_cells", "exponent", "lo", "hi"):
        mine, theirs = (one.exponents[name][0] for one in (found, alone))
        assert_close(mine, theirs, "roots")
    wider = fit(pd.concat([once, once[once["V"] == 256].assign(d=64)])).exponents
    assert (wider["n_cells"] == 3).all()
    assert wider["warning"].str.startswith("as many unknowns as configurations").all()


def test_a_cell_and_its_copy_have_the_weight_of_one_cell():
    stars = {64: 100, 128: 800, 256: 3200, 512: 6400}
    once = table({"V": [*stars]}, lambda c: stars[c["V"]], WIDE)
    # on both sides of the law, so that L has no exponent
    found = fit(pd.concat([once, once[once["V"] < 200].assign(L=16)]))
    assert found.thresholds["copy_of"].notna().sum() == 2
    assert_close(exponents(found)["V"], exponents(fit(once))["V"], 0.01)


def test_a_copy_names_the_first_cell_of_its_counts():
    once = table({"L": [8, 12]}, lambda c: 100.0 * c["L"])
    found = fit(pd.concat([once, once[once["L"] == 8].assign(L=16)])).thresholds
    assert found["copy_of"].fillna("").tolist() == ["", "", "L = 8"]


def copied(frame, **changed):
    """Whether a second cell that differs in `changed` copies the only cell of the
    frame.
    """
    both = fit(pd.concat([frame, frame.assign(**changed)])).thresholds
    return both["copy_of"].notna().tolist() == [False, True]


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


def test_a_law_within_a_regime():
    """N* ~ L^0 up to L = 32, L^2 from there on, with V^2 throughout."""
    frame = table(
        {"V": [64, 128, 256], "L": [8, 32, 128, 512]},
        lambda c: 1000 * (c["V"] / 64) ** 2 * max(c["L"] / 32, 1) ** 2,
        WIDE,
    )
    regimes = ["L <= 32", "L >= sqrt(1000)"]
    found = fit(frame, where=regimes)
    truth = dict(zip(itertools.product(regimes, "VL"), [2, 0, 2, 2], strict=True))
    assert_close(exponents(found, "regime"), truth, 0.02)
    assert not found.exponents["rejected"].any()
    assert len(found.thresholds) == 12  # of every cell
    last = found.diagnostics[found.diagnostics["regime"] == regimes[1]]
    assert "residual" in set(last["diagnostic"])
    whole = fit(frame)
    assert whole.exponents["rejected"].all()
    assert (whole.exponents["regime"] == "").all()
    assert re.search(r"rejected.*\n.* True ", repr(whole))
    one = fit(frame, where="L <= 32").exponents
    pd.testing.assert_frame_equal(one, found.exponents[:2])


def rates(frame, **given):
    rates = {"kappa": 100.0, "eta": 1e-3} | given
    frame = frame.assign(**rates)
    frame["gamma"] = frame["kappa"] * frame["L"] ** 2 * frame["V"] / frame["eta"]
    return frame.assign(gamma2=frame["gamma"])


def test_a_rate_that_follows_from_others_is_no_factor():
    for axes in ({}, {"V": [64, 128], "L": [8, 32]}):
        frame = table(axes)
        both = pd.concat([rates(frame), rates(frame, kappa=2.0)])
        assert factors(both) == ["kappa"]
        assert factors(pd.concat([both, rates(frame, eta=1e-2)])) == ["eta", "kappa"]
    assert factors(both.assign(gamma2=both["gamma"] / 10)) == ["kappa"]
    assert factors(pd.concat([both, rates(frame).assign(gamma2=5.0)])) == [
        "kappa",
        "gamma2",
    ]


# along V accuracy is known to fall, along eta it is seen to
@pytest.mark.parametrize("axis", ["V", "eta"])
def test_what_falls_along_an_axis_crosses_where_what_rises_would(axis):
    rising = table({"d": [32, 64]}, law, n_test=10**5)
    falling = rising.assign(n_correct=rising["n_test"] - rising["n_correct"])
    frame = falling.assign(**{axis: falling["N"]}).assign(N=4096)
    for theta in (0.5, 0.8):
        found = fit(frame, theta, along=axis).thresholds
        other = fit(rising, 1 - theta).thresholds
        assert (found["theta"] == theta).all()
        for end in ENDS:
            assert_close(np.log(found[end]), np.log(other[end]), "roots")
    below = fit(frame[frame[axis] > 4000], along=axis).thresholds["warning"]
    assert below.str.startswith("beyond theta from the smallest on: accuracy ").all()


def test_the_last_step_is_that_of_each_point():
    frame = table({"d": [32, 64], "step": [3, 32, 64]})
    frame["steps"] = frame["d"]
    found = fit(frame.query("step == 3 or step == steps")).thresholds
    assert found["d"].tolist() == [32, 64]


def test_the_required_width_has_no_level_at_0(tmp_path, capsys):
    """It halves from the first recorded step to the second. At m = 0 accuracy is
    0.2.
    """
    frame = table(
        {"d": [32, 64], "step": [10, 100]},
        lambda c: law(c) * (1 if c["step"] == 10 else 0.5),
        n_test=10**5,
    )
    frame = frame.drop(columns="m").rename(columns={"N": "m"})
    frame = frame.assign(N=4096, steps=100, start="recipe")
    without = frame[frame["m"] == LEVELS[0]].assign(m=0, n_correct=20_000)
    frame = pd.concat([without, frame], ignore_index=True)
    assert command(tmp_path, frame, "--along", "m", "--step", "all") == 0
    assert re.search(r"exponents of m.:\n.*\n +d +-1.3 ", capsys.readouterr().out)
    rows = written(tmp_path, "along-m/thresholds")
    assert_crosses(rows, law(rows) * np.where(rows["step"] == 10, 1, 0.5), 0.02)
    assert rows["critical"].between(rows["lo"], rows["hi"]).all()
    assert rows["N_star"].isna().all()
    assert (rows["axis"] == "m").all()
    assert (rows["n_levels"] == len(LEVELS)).all()
    (exponent,) = fit(frame, along="m").exponents.itertuples()
    assert (exponent.axis, exponent.along) == ("d", "m")
    # a table knows what a search varied
    stated(frame, {"axes": ["d", "m"], "searched": "m"}, tmp_path)
    assert command(tmp_path, None) == 0
    assert (written(tmp_path, "thresholds")["axis"] == "m").all()


def stated(frame, facts, folder):
    """Stores a table with what it says of itself."""
    text = facts if isinstance(facts, bytes) else json.dumps(facts)
    stored = pa.Table.from_pandas(frame, preserve_index=False)
    stored = stored.replace_schema_metadata({b"jaxrecall": text})
    pq.write_table(stored, folder / "t.parquet")


DAMAGED = [b"no json", b"[1]", b'{"axes": 3, "accuracy": ["a"]}', b'{"axes": [["d"]]}']


@pytest.mark.parametrize("text", [*DAMAGED, b"\xff", b"[" * 100_000])
def test_what_a_file_says_of_itself_may_be_damaged(tmp_path, text):
    stated(table(), text, tmp_path)
    assert command(tmp_path, None) == 0
    assert len(written(tmp_path, "thresholds")) == 1


def test_files_of_the_user_are_not_replaced_and_links_lead_nowhere(tmp_path, capsys):
    out, frame = tmp_path / "t-fit", table({"d": [32, 64]}, law)
    out.mkdir()
    (out / "exponents.parquet").symlink_to(tmp_path / "new.parquet")
    for name in ("thresholds.parquet", "thresholds.tex"):
        (out / name).write_text("mine")
    assert command(tmp_path, frame, "--latex") == 2
    assert f"{out / 'thresholds.parquet'}: would be" in capsys.readouterr().err
    assert (out / "thresholds.parquet").read_text() == "mine"
    (out / "thresholds.parquet").unlink()
    assert command(tmp_path, None) == 0
    assert (out / "thresholds.tex").read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == {"t.parquet", "t-fit"}
    out.rename(tmp_path / "elsewhere")
    out.symlink_to(tmp_path / "elsewhere")
    assert command(tmp_path, None) == 2
    assert f"{out}: is a link to" in capsys.readouterr().err


def test_any_fraction_can_cross_and_its_folder_is_inside_whatever_it_is_called(
    tmp_path, capsys
):
    counted = table({"V": [64, 128]}, law, n_test=10**6)
    share = counted["n_correct"] / counted["n_test"]
    names = ["attention_mass", "matched_accuracy", "a.b", "../x", "..", "a/b"]
    frame = counted.assign(n_correct=0, **dict.fromkeys(names, share))
    frame["../y"] = frame["N"]
    expected = fit(counted).thresholds
    assert expected.attrs["of"] == "accuracy"
    for name in names:
        assert command(tmp_path, frame, "--of", name) == 0
        found = fit(frame, of=name).thresholds
        assert found.attrs["of"] == name
        for end in ENDS:
            assert_close(np.log(found[end]), np.log(expected[end]), 1e-3)
    inside = [path.parent.parent for path in tmp_path.rglob("thresholds.*")]
    assert inside == [tmp_path / "t-fit"] * len(names)
    kept = written(tmp_path, "attention_mass/thresholds")
    pd.testing.assert_frame_equal(kept, found, check_dtype=False)
    along = frame.drop(columns="N")
    assert command(tmp_path, along, "--along", "../y", "--of", "a.b") == 0
    (folder,) = (tmp_path / "t-fit/a.b").glob("along-*")
    assert (folder / "thresholds.parquet").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"t.parquet", "t-fit"}


def test_the_axes_are_those_that_the_table_names():
    frame = table({"d": [32, 64]}, law).assign(note=lambda f: f["seed"] % 2, eta=0.1)
    assert factors(frame) == ["note"]  # searched for
    named = with_attrs(frame, axes=["d", "N"])
    assert factors(named) == []
    found = fit(named)
    assert found.remarks == []
    assert [*exponents(found)] == ["d"]
    assert (found.thresholds["n_seeds"] == 8).all()
    follows = frame.assign(gamma=frame["d"] * 3.0)
    assert factors(with_attrs(follows, axes=["gamma", "d", "N"])) == []
    other = frame.assign(eta=0.2)
    # rows of another grid too
    more = with_attrs(pd.concat([frame, other]), axes=["d", "N"])
    assert "eta" in factors(more)
    assert factors(with_attrs(other, axes=["eta", "d", "N"])) == []


def test_no_law_of_sizes_holds_across_the_values_of_an_axis_of_text():
    """Seen before: an exponent of V that compared the embeddings of one V with those of
    the other.
    """
    blocks = [
        table({"V": [V], "d": GRID["d"], "embedding": [name]}, law)
        for V, name in ((64, "gaussian"), (128, "sphere"))
    ]
    frame = pd.concat(blocks, ignore_index=True)
    # a helper that the grid keeps is a name for the cells
    frame["case"] = "V" + frame["V"].astype(str)
    for kept in ([], ["case"]):
        named = with_attrs(frame, axes=["embedding", "V", "d", "N"], kept=kept)
        found = fit(named)
        assert len(found.remarks) == len(kept)
        assert_close(exponents(found), {"d": -1.3}, 0.05)
        assert "V moves together with other axes" in str(found)


def test_a_table_in_which_no_axis_of_a_law_varies_says_so():
    frame = table({"embedding": ["equicorrelated"], "embedding.rho": [0.1, 0.3]})
    found = fit(frame)
    (line,) = found.remarks
    assert "what varies is embedding.rho, and only V, d, L, m get one" in line
    assert f"note: {line}" in str(found)
    assert found.exponents.empty
    theirs = table({"kind": ["a", "b"]}).drop(columns=[*"VLmd"])
    theirs["accuracy"] = theirs["n_correct"] / theirs["n_test"]
    named = with_attrs(theirs, accuracy="accuracy", axes=["kind", "N"])
    (line,) = fit(named).remarks
    assert "is kind, and only axes of numbers greater than 0 get one" in line
    assert fit(pd.concat([frame, frame.assign(d=64)])).remarks == []


@pytest.mark.parametrize(
    "axes", [None, ["embedding", "embedding.rho", "d", "N"], ["embedding", "d", "N"]]
)
def test_laws_with_parameters_go_by_their_bare_name(axes):
    texts = ["gaussian", "equicorrelated(rho=0.1)", "equicorrelated(rho=0.3)"]
    frame = table({"d": [32, 64], "embedding": texts}, law)
    rho = frame["embedding"].map(dict(zip(texts, [np.nan, 0.1, 0.3], strict=True)))
    frame = with_attrs(frame.assign(**{"embedding.rho": rho}), axes=axes)
    found = fit(frame)
    cells = found.thresholds[["embedding", "embedding.rho"]].fillna(0)
    bare = {("gaussian", 0), ("equicorrelated", 0.1), ("equicorrelated", 0.3)}
    assert {*cells.itertuples(index=False, name=None)} == bare
    assert len(found.exponents) == 1
    # a parameter without a column: the text says it
    unlike = fit(frame.assign(**{"embedding.rho": np.nan})).thresholds
    assert set(unlike["embedding"]) == set(texts)


def own(counted=False):
    """Runs of some other simulator: overlap = logistic in ln N, crossing 0.5 at 1000
    (width / 0.5)^1.5, or twice that.
    """
    frame = table(
        {"width": [0.5, 1.0, 2.0], "kind": ["a", "b"]},
        lambda c: 1000 * (2 * c["width"]) ** 1.5 * "-ab".index(c["kind"]),
        WIDE,
    ).drop(columns=[*"VdLm"])
    frame = frame.assign(depth=3, steps=7.5, embedding=1)
    measure = "n_correct" if counted else "overlap"
    if not counted:
        frame["overlap"] = frame.pop("n_correct") / frame.pop("n_test")
    stated = {"axes": ["width", "kind", "N"], "simulator": "mine:sim"}
    return with_attrs(frame, accuracy=measure, **stated)


def test_a_simulator_of_ones_own_needs_none_of_our_columns(tmp_path):
    found, counted = fit(own()), fit(own(counted=True))
    assert list(found.thresholds.columns[:3]) == ["width", "kind", "theta"]
    stars = [np.log(one.thresholds["N_star"]) for one in (found, counted)]
    assert_close(*stars, "roots")
    assert set(found.exponents["part"]) == {"all"}
    assert_close(exponents(found), {"width": 1.5}, 0.01)
    assert found.exponents["lo"].notna().all()
    assert len(fit(own(), where="width > 0.5").exponents) == 1
    another = own().assign(width_share=lambda f: f["overlap"])
    another = fit(another, of="width_share").thresholds
    assert_close(another["N_star"], found.thresholds["N_star"])
    stated(own(), own().attrs, tmp_path)
    assert command(tmp_path, None) == 0
    kept = written(tmp_path, "exponents")
    pd.testing.assert_frame_equal(kept, found.exponents, check_dtype=False)
