"""Tables state the roles of their columns: any table, any names, any measure."""

import importlib
import json
import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from test_fit import law, ours, table

import jaxrecall
from jaxrecall import plot
from jaxrecall.analysis.fit import fit, runs
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.errors import FitError, UsageError

mpl.use("Agg")
cli = importlib.import_module("jaxrecall.fit")
report = importlib.import_module("jaxrecall.report")


def foreign(seeds=8, noise=0.2):
    """Accuracies and losses of another program, which cross one half at
    300 (width / 64)^-0.5 ctx / 16.
    """
    rng, rows = np.random.default_rng(1), []
    for width in (32, 64, 128):
        for ctx in (16, 64):
            for n_train in np.geomspace(64, 16384, 13).astype(int):
                for seed in range(seeds):
                    star = 300 * (width / 64) ** -0.5 * ctx / 16
                    x = np.log(n_train / star) + noise * rng.normal()
                    rows.append(
                        {
                            "width": width,
                            "ctx": ctx,
                            "n_train": n_train,
                            "run": seed,
                            "test_acc": expit(2 * x),
                            "test_loss": 10 * np.exp(-0.3 * x),
                            "model": "mine",
                        }
                    )
    return pd.DataFrame(rows)


NAMED = ["--columns", "N=n_train", "seed=run", "accuracy=test_acc"]


def exponents(found):
    return dict(zip(found.exponents["axis"], found.exponents["exponent"], strict=True))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_another_program_is_fitted_as_it_is(tmp_path, suffix, capsys):
    path = tmp_path / f"foreign.{suffix}"
    if suffix == "csv":
        foreign().to_csv(path, index=False)
    else:
        foreign().to_parquet(path)
    assert cli.main([str(path), *NAMED]) == 0
    said = capsys.readouterr().out
    assert "6 cells: 6 cross" in said
    found = pd.read_parquet(tmp_path / "foreign-fit/exponents.parquet")
    by_axis = dict(zip(found["axis"], found["exponent"], strict=True))
    assert by_axis == pytest.approx({"width": -0.5, "ctx": 1.0}, abs=0.1)
    assert cli.main([str(path), "--columns", "seed=run", "--of", "test_acc"]) == 2
    assert "along: not given" in capsys.readouterr().err


def test_theory_of_this_package_is_not_drawn_beside_another_table(tmp_path):
    foreign().to_csv(tmp_path / "foreign.csv", index=False)
    assert report.main([str(tmp_path / "foreign.csv"), *NAMED, "--format", "svg"]) == 0
    page = (tmp_path / "foreign-report.html").read_text()
    assert "Theory" not in page
    assert "attention" not in page
    assert "samples" not in page


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["N"], "--columns: got N; allowed: NAME=COLUMN"),
        (["N=a", "N=b"], "--columns: got N=b"),
        (["N=absent"], "columns: N = absent: no such column; it has width"),
        (["ctx=width"], "columns: ctx = width: ctx is a column, too"),
    ],
)
def test_a_wrong_mapping_of_columns_is_refused(tmp_path, capsys, words, line):
    foreign().to_csv(tmp_path / "foreign.csv", index=False)
    assert cli.main([str(tmp_path / "foreign.csv"), "--columns", *words]) == 2
    assert line in capsys.readouterr().err


def test_columns_may_exchange_their_names():
    frame = runs.renamed(foreign(), {"ctx": "width", "width": "ctx"})
    assert (frame["ctx"] == foreign()["width"]).all()


@pytest.mark.parametrize("falls", [False, True])
def test_a_loss_crosses_theta_in_its_units(falls):
    frame = foreign().rename(columns={"run": "seed"})
    if not falls:
        frame["test_loss"] = -frame["test_loss"]
    theta = 10.0 if falls else -10.0
    found = fit(frame, theta, along="n_train", of="test_loss")
    stars = [
        300 * (row.width / 64) ** -0.5 * row.ctx / 16
        for row in found.thresholds.itertuples()
    ]
    assert found.thresholds["critical"].to_numpy() == pytest.approx(stars, rel=0.1)
    inside = (found.thresholds["lo"] < stars) & (stars < found.thresholds["hi"])
    assert inside.sum() >= 5
    assert (found.thresholds["theta"] == theta).all()
    assert exponents(found) == pytest.approx({"width": -0.5, "ctx": 1.0}, abs=0.1)


@pytest.mark.slow
def test_the_interval_of_a_mean_covers_the_crossing():
    """ln of a mean of 8 seeds is linear in ln of the level; 200 cells."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        star = rng.uniform(6.0, 10.0)
        x = np.log(2.0) * np.arange(5, 18)
        shifts = 0.3 * rng.normal(size=(8, 1))
        values = 3 * np.exp(-0.4 * (x - star + shifts))
        values *= np.exp(0.05 * rng.normal(size=values.shape))
        truth = star - np.log(np.exp(0.4**2 * 0.3**2 / 2)) / -0.4
        rows = pd.DataFrame(
            [
                {"size": math.exp(level), "seed": seed, "loss": values[seed, i]}
                for i, level in enumerate(x)
                for seed in range(8)
            ]
        )
        (one,) = fit(rows, 3.0, along="size", of="loss").thresholds.itertuples()
        hits += math.log(one.lo) < truth < math.log(one.hi)
    assert 0.9 <= hits / 200 <= 0.99


def test_theta_must_be_a_fraction_where_all_values_are():
    frame = foreign().rename(columns={"run": "seed"})
    with pytest.raises(FitError, match=r"^theta: got 1.5; allowed: fractions between"):
        fit(frame, 1.5, along="n_train", of="test_acc")
    percent = frame.assign(accuracy=100 * frame["test_acc"])
    with pytest.raises(FitError, match=r"accuracy: .* allowed: fractions from 0 to 1"):
        fit(percent, along="n_train")


def test_along_step_the_level_is_reached_after_step_0():
    """Time to reach theta, of our rows and of rows of another program."""
    steps = [0, 1, 2, 4, 8, 16, 32, 64]
    rows = [
        {"lr": lr, "seed": seed, "step": step, "loss": 3 * np.exp(-step * lr / 20)}
        for lr in (1.0, 2.0, 4.0)
        for seed in range(8)
        for step in steps
    ]
    frame = pd.DataFrame(rows)
    frame["loss"] *= np.exp(0.01 * np.random.default_rng(0).normal(size=len(frame)))
    for step in ("last", "all"):
        found = fit(frame, 1.0, along="step", of="loss", step=step)
        assert exponents(found) == pytest.approx({"lr": -1.0}, abs=0.05)
    frame = ours(table({"d": [32, 64]}, law, levels=[1024])).drop(
        columns="step", errors="ignore"
    )
    many = pd.concat(
        [
            frame.assign(
                step=step, n_correct=round(2000 * expit(np.log((step + 0.01) / 10)))
            )
            for step in steps
        ]
    )
    found = fit(many, along="step").thresholds
    assert found["critical"].to_numpy() == pytest.approx([10, 10], rel=0.05)


@pytest.mark.parametrize(
    ("summary", "theta", "star"),
    [("mean", 0.5, 10.0), ("median", 0.3, 10.0), ("above 0.9", 0.5, 10.0)],
)
def test_other_summaries_over_seeds_cross_theta(summary, theta, star):
    """A seed is at 0.95 or at 0.05; the share at 0.95 is one half at 10."""
    rng = np.random.default_rng(3)
    x = np.repeat(2.0 ** np.arange(0, 9), 400)
    high = rng.random(len(x)) < expit(2 * np.log(x / 10))
    frame = pd.DataFrame(
        {
            "x": x,
            "seed": np.tile(np.arange(400), 9),
            "accuracy": np.where(high, 0.95, 0.05),
        }
    )
    (one,) = fit(frame, theta, along="x", summary=summary).thresholds.itertuples()
    assert one.critical == pytest.approx(star, rel=0.15)
    assert one.lo < star < one.hi
    assert one.theta == theta
    falling = frame.assign(accuracy=1 - frame["accuracy"], x=1000 / frame["x"])
    falling["accuracy"] = 1 - falling["accuracy"]
    (other,) = fit(falling, theta, along="x", summary=summary).thresholds.itertuples()
    assert other.critical == pytest.approx(1000 / one.critical, rel=0.02)
    ax = plot.accuracy(frame, x="x", summary=summary)
    shown = np.interp(
        np.log(star), np.log(ax.lines[0].get_xdata()), ax.lines[0].get_ydata()
    )
    assert summary == "median" or shown == pytest.approx(0.5, abs=0.1)


def test_a_summary_that_is_none_is_refused():
    with pytest.raises(
        FitError, match=r"^summary: got 'best'; allowed: mean, median, or"
    ):
        fit(foreign(), summary="best")


def test_bands_are_of_the_mean_or_of_the_seeds():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    frame = pd.DataFrame({"x": 1.0, "seed": range(4), "loss": values})
    frame = pd.concat([frame, frame.assign(x=2.0)])
    error = values.std(ddof=1) / 2
    for band, half in (("se", error), ("95 %", 3.182446 * error), ("sd", values.std())):
        ax = plot.figure(frame, "loss", x="x", lines=[], band=band).axes[0]
        (drawn,) = ax.collections
        low, high = drawn.get_paths()[0].get_extents().get_points()[:, 1]
        assert (low, high) == pytest.approx((4 - half, 4 + half))


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
    (one,) = fit(rows).thresholds.itertuples()
    assert one.critical == pytest.approx(10, rel=0.05)
    ax = plot.accuracy(rows)
    assert ax.get_xlabel() == "N: stored patterns"
    assert ax.get_ylabel() == "acc: share that is retrieved (fraction)"


def test_without_a_direction_the_ends_decide():
    levels = np.array([2.0, 4, 8, 16, 32, 64])
    rows = [
        {"N": N, "seed": seed, "accuracy": 1 / (1 + N / (10 + seed / 10))}
        for N in levels
        for seed in range(8)
    ]
    (one,) = fit(pd.DataFrame(rows)).thresholds.itertuples()
    assert one.critical == pytest.approx(10.3, rel=0.05)
    assert one.censored == "no"


def test_axes_are_asked_for_where_several_could_be_meant():
    frame = foreign().rename(columns={"run": "seed", "test_acc": "accuracy"})
    with pytest.raises(FitError, match=r"^along: not given.* allowed: width, ctx, n_t"):
        fit(frame)
    with pytest.raises((FitError, UsageError), match=r"^x: not given"):
        plot.accuracy(frame)
    only = frame[(frame["width"] == 64) & (frame["ctx"] == 16)]
    (one,) = fit(only.drop(columns=["width", "ctx", "model"])).thresholds.itertuples()
    assert one.axis == "n_train"


def test_what_a_table_states_is_kept_in_its_files(tmp_path):
    made = fit(ours(table()))
    assert made.thresholds.attrs["of"] == "accuracy"
    assert json.loads(json.dumps(made.thresholds.attrs)) == made.thresholds.attrs
