"""Tables state the roles of their columns: any table, any names, any measure."""

import importlib

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from test_fit import assert_crosses, command, crossed, exponents, law, ours, table
from tolerances import assert_close

import jaxrecall
from jaxrecall import plot
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.errors import FitError, UsageError
from jaxrecall.fit import fit

mpl.use("Agg")
cli = importlib.import_module("jaxrecall.fit")
report = importlib.import_module("jaxrecall.report")
NAMED = ["--columns", "N=n_train", "seed=run", "accuracy=test_acc"]
LAW = {"width": -0.5, "ctx": 1.0}


def star(c):
    return 300 * (c["width"] / 64) ** -0.5 * c["ctx"] / 16


def foreign():
    """Accuracies and losses of another program, which cross one half at
    300 (width / 64)^-0.5 ctx / 16.
    """
    levels = np.geomspace(64, 16384, 13).astype(int)
    frame = crossed(width=[32, 64, 128], ctx=[16, 64], n_train=levels, run=range(8))
    x = np.log(frame["n_train"] / star(frame))
    x += 0.2 * np.random.default_rng(1).normal(size=len(frame))
    return frame.assign(
        test_acc=expit(2 * x), test_loss=10 * np.exp(-0.3 * x), model="m"
    )


def test_a_table_of_another_program_is_fitted_as_it_is(tmp_path, capsys):
    """Columns may exchange their names."""
    foreign().to_csv(tmp_path / "foreign.csv", index=False)
    assert cli.main([str(tmp_path / "foreign.csv"), *NAMED]) == 0
    of_csv = capsys.readouterr().out.splitlines()
    assert of_csv[0].startswith("note: settings: ctx, width; leave one out with --axes")
    assert of_csv[1].endswith("6 configurations: 6 crosses")
    found = pd.read_parquet(tmp_path / "foreign-fit/exponents.parquet")
    assert_close(found.set_index("axis")["exponent"].to_dict(), LAW, 0.1)
    swapped = foreign().rename(columns={"ctx": "width", "width": "ctx"})
    assert command(tmp_path, swapped, *NAMED, "ctx=width", "width=ctx") == 0
    assert capsys.readouterr().out.splitlines()[:4] == of_csv[:4]


def test_theory_of_this_package_is_not_drawn_beside_another_table(tmp_path):
    foreign().to_csv(tmp_path / "foreign.csv", index=False)
    assert report.main([str(tmp_path / "foreign.csv"), *NAMED, "--format", "svg"]) == 0
    page = (tmp_path / "foreign-report.html").read_text()
    assert [word for word in ("Theory", "attention", "samples") if word in page] == []


@pytest.mark.parametrize("sign", [1, -1])
def test_a_loss_crosses_theta_in_its_units(sign):
    frame = foreign().rename(columns={"run": "seed"})
    frame["test_loss"] *= sign
    found = fit(frame, 10.0 * sign, along="n_train", of="test_loss")
    cells = found.thresholds
    truth = star(cells)
    assert_crosses(cells, truth, 0.2)
    assert truth.between(cells["lo"], cells["hi"]).sum() >= 5
    assert (cells["theta"] == 10.0 * sign).all()
    assert_close(exponents(found), LAW, 0.1)


@pytest.mark.slow
def test_the_interval_of_a_mean_covers_the_crossing():
    """ln of a mean of 8 seeds is linear in ln of the level; 200 cells."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        middle = rng.uniform(6.0, 10.0)
        rows = crossed(size=2.0 ** np.arange(5, 18), seed=range(8))
        shifts = 0.3 * rng.normal(size=8)[rows["seed"]]
        x = np.log(rows["size"]) - middle + shifts
        rows["loss"] = 3 * np.exp(-0.4 * x + 0.05 * rng.normal(size=len(rows)))
        (one,) = fit(rows, 3.0, along="size", of="loss").thresholds.itertuples()
        truth = middle + 0.4 * 0.3**2 / 2
        hits += np.log(one.lo) < truth < np.log(one.hi)
    assert 0.9 <= hits / 200 <= 0.99


def test_along_step_the_level_is_reached_after_step_0():
    """Time to reach theta, of our rows and of rows of another program."""
    steps = [0, 1, 2, 4, 8, 16, 32, 64]
    frame = crossed(lr=[1.0, 2.0, 4.0], seed=range(8), step=steps)
    noise = 0.01 * np.random.default_rng(0).normal(size=len(frame))
    frame["loss"] = 3 * np.exp(noise - frame["step"] * frame["lr"] / 20)
    for step in ("last", "all"):
        found = fit(frame, 1.0, along="step", of="loss", step=step)
        assert_close(exponents(found), {"lr": -1.0}, 0.05)
    one = ours(table({"d": [32, 64]}, law, levels=[1024]))
    many = pd.concat([one.assign(step=step) for step in steps], ignore_index=True)
    many["n_correct"] = (2000 * (many["step"] + 0.01) / (many["step"] + 10.01)).round()
    assert_crosses(fit(many, along="step").thresholds, [10, 10])


@pytest.mark.parametrize(
    ("summary", "theta"), [("mean", 0.5), ("median", 0.3), ("above 0.9", 0.5)]
)
def test_other_summaries_over_seeds_cross_theta(summary, theta):
    """A seed is at 0.95 or at 0.05; the share at 0.95 is one half at 10."""
    frame = crossed(x=2.0 ** np.arange(9), seed=range(400))
    chance = np.random.default_rng(3).random(len(frame))
    is_high = chance < frame["x"] ** 2 / (frame["x"] ** 2 + 100)
    frame["accuracy"] = np.where(is_high, 0.95, 0.05)
    falling = frame.assign(x=1000 / frame["x"])
    found, other = (
        fit(each, theta, along="x", summary=summary).thresholds
        for each in (frame, falling)
    )
    assert_crosses(found, [10], 0.3)
    assert found["lo"][0] < 10 < found["hi"][0]
    assert_crosses(other, 1000 / found["critical"], 0.02)
    (line,) = plot.accuracy(frame, x="x", summary=summary).lines[:1]
    shown = np.interp(np.log(10), np.log(line.get_xdata()), line.get_ydata())
    if summary != "median":
        assert_close(shown, 0.5, 0.1)


def test_bands_are_of_the_mean_or_of_the_seeds():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    frame = crossed(x=[1.0, 2.0], seed=range(4)).assign(loss=np.tile(values, 2))
    error = values.std(ddof=1) / 2
    for band, half in (("se", error), ("95 %", 3.182446 * error), ("sd", values.std())):
        ax = plot.figure(frame, "loss", x="x", lines=[], band=band).axes[0]
        (drawn,) = ax.collections
        ends = drawn.get_paths()[0].get_extents().get_points()[:, 1]
        assert_close(ends, 4 + half * np.array([-1, 1]), "roots")


def test_roles_are_those_that_the_owner_stated(tmp_path):
    def stored(point, key):
        return {"acc": 1 / (1 + point.N / 10)}

    simulator = jaxrecall.Simulator(
        stored,
        {"N": (int, None, 1, 64, "traced", "stored patterns")},
        {"acc": (float, "share that is retrieved")},
        accuracy="acc",
        rises={"N": False},
    )
    grid = {"blocks": [{"axes": {"N": [1, 2, 4, 8, 16, 32, 64]}}]}
    rows = jaxrecall.run(
        grid, seeds=6, simulator=simulator, out=tmp_path / "o", progress=False
    )
    for frame in (rows, jaxrecall.load(tmp_path / "o")):
        roles = roles_of(frame)
        assert not roles.is_ours
        assert (roles.measure, roles.rises) == ("acc", {"N": False})
        assert roles.labels["N"] == "stored patterns"
    assert_crosses(fit(rows).thresholds, [10])
    melted = rows.melt(["N", "seed"], ["acc"], value_name="accuracy")
    assert roles_of(melted).measure == "accuracy"
    ax = plot.accuracy(rows)
    assert ax.get_xlabel() == "N: stored patterns"
    assert ax.get_ylabel() == "acc: share that is retrieved"


def test_axes_are_asked_for_where_several_could_be_meant():
    frame = foreign().rename(columns={"run": "seed", "test_acc": "accuracy"})
    with pytest.raises(FitError, match=r"^along: not given.* allowed: width, ctx, n_t"):
        fit(frame)
    with pytest.raises((FitError, UsageError), match=r"^along: not given"):
        plot.accuracy(frame)
    only = frame[(frame["width"] == 64) & (frame["ctx"] == 16)]
    (one,) = fit(only.drop(columns=["width", "ctx", "model"])).thresholds.itertuples()
    assert one.axis == "n_train"


def one_run_each():
    """Accuracies that cross one half at 4800 / d (lr / 0.1)^0.2; a run per setting."""
    frame = crossed(d=[16, 32, 64], lr=[0.1, 0.3], N=2.0 ** np.arange(5, 11), seed=[0])
    x = frame["N"] * frame["d"] / 4800 * (frame["lr"] / 0.1) ** -0.2
    return frame.assign(accuracy=1 / (1 + x**-2))


def test_one_run_per_setting_has_thresholds_without_intervals():
    found = fit(one_run_each())
    assert found.remarks[0].startswith("settings: lr, d; leave one out with --axes")
    cells = found.thresholds
    assert_crosses(cells, 4800 / cells["d"] * (cells["lr"] / 0.1) ** 0.2)
    assert (cells["state"] == "few seeds").all()
    assert cells[["lo", "hi"]].isna().all(axis=None)
    assert_close(exponents(found), {"d": -1.0, "lr": 0.2}, 0.01)
    assert "no interval: 1 seed, 6 are needed" in str(found)


def test_bookkeeping_splits_no_cell_if_the_axes_are_named(tmp_path, capsys):
    frame = foreign().rename(columns={"run": "seed", "test_acc": "accuracy"})
    frame = frame.assign(host=[f"node{i % 2}" for i in range(len(frame))])
    frame["created"] = np.arange(len(frame)) % 200
    with pytest.raises(FitError, match=r"^axes: not given.*host, .*created.*--axes "):
        fit(frame, along="n_train")
    words = ["--axes", "width", "ctx", "n_train", "--along", "n_train"]
    assert command(tmp_path, frame, *words) == 0
    assert "6 configurations: 6 crosses" in capsys.readouterr().out
    found = fit(frame, along="n_train", average=["host", "created"])
    assert found.remarks == [
        "settings: ctx, width; leave one out with --axes, average over one with"
        " --average",
        "host, created: averaged within each seed",
    ]
    assert len(found.thresholds) == 6


def test_further_seeds_are_averaged_within_a_seed_and_a_name_of_the_seed_is_none():
    frame = one_run_each().drop(columns="lr").query("N > 0").drop_duplicates(["d", "N"])
    many = [
        frame.assign(seed=s, run=7 + s, data_seed=t) for s in (0, 1) for t in (0, 1)
    ]
    rows = pd.concat(many, ignore_index=True)
    rows["accuracy"] *= 0.9 + 0.1 * rows["data_seed"]
    found = fit(rows)
    assert "data_seed: averaged within each seed" in found.remarks
    mean = rows.groupby(["d", "N", "seed"], as_index=False)["accuracy"].mean()
    expected = fit(mean).thresholds
    pd.testing.assert_frame_equal(found.thresholds, expected)
    named = fit(rows, axes=["d", "data_seed"]).thresholds
    assert len(named) == 2 * len(expected)
    counted = rows.assign(n_test=1000, n_correct=(1000 * rows["accuracy"]).round())
    stars = fit(counted.drop(columns="accuracy")).thresholds["critical"]
    assert_close(np.log(stars), np.log(expected["critical"]), 0.02)
