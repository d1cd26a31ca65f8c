"""The figures of runs that train on, against the step: they show what the rows hold, and every number of a caption can be recomputed."""

import importlib
import math
import re

import numpy as np
import pandas as pd
import pytest
from test_fit import LEVELS, law, table
from test_report import drawn, labels, studied

import jaxrecall
from jaxrecall import theory
from jaxrecall.analysis.figures import critical, curves, predict
from jaxrecall.analysis.figures.axis import Axis
from jaxrecall.analysis.fit import fit
from jaxrecall.analysis.fit.runs import LAST
from jaxrecall.analysis.report import PICTURES, summary

cli = importlib.import_module("jaxrecall.report")
NEEDED = LEVELS[3:5]


def traced(axes, steps=(3, 10, 100), levels=NEEDED, **columns):
    """Rows of runs that train on: N* falls as 1 / sqrt(step), the loss too, and test loss rises again at the last step."""
    frames = []
    for step in steps:
        less = max(step, 1) ** -0.5
        frame = table(axes, lambda c, less=less: 4 * law(c) * less, levels)
        loss = (1 + 0.05 * frame["seed"]) * less
        frame = frame.assign(
            step=step, steps=steps[-1], start="zero" if steps[0] == 0 else "three_step", trains="VW", loss=loss,
            test_loss=loss * 2 + (step == steps[-1]), attention_mass=0.9 + 0.02 * steps.index(step) + 0.001 * frame["seed"],
            Z_in_overlap=frame["d"] ** -0.5 * (1 + 0.1 * steps.index(step)), Z_out_overlap=frame["d"] ** -0.5, Z_in_norm=1.0 + step,
            Z_out_norm=1.0,
        )  # fmt: skip
        frames.append(frame.assign(**columns))
    return pd.concat(frames, ignore_index=True)


def traced_lines(ax, style="-"):
    """The lines of a panel that follow the step, as (n, 2)."""
    return [np.array(line.get_xydata()) for line in ax.lines if line.get_linestyle() == style and len(line.get_xdata()) > 2]


def heights(ax):
    """The dashed lines across a panel."""
    return [float(line.get_ydata()[0]) for line in ax.lines if line.get_linestyle() == "--" and len(set(line.get_ydata())) == 1]


def means(frame, column, *by):
    return frame.groupby([*by, "step"])[column].mean()


def test_a_line_is_the_mean_over_seeds_and_its_band_one_standard_deviation():
    frame = traced({"d": [32, 64]})
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    pictures, _ = drawn(frame, "traces", render=True)
    assert [*pictures] == ["trace-accuracy", "trace-attention", "trace-loss"]
    for name, column, style in (
        ("accuracy", "accuracy", "-"),
        ("attention", "attention_mass", "-"),
        ("loss", "test_loss", "-"),
        ("loss", "loss", ":"),
    ):
        panels = pictures[f"trace-{name}"].figure.axes
        assert [ax.get_title() for ax in panels] == [f"N = {N}" for N in NEEDED]
        for ax, N in zip(panels, NEEDED, strict=True):
            found = traced_lines(ax, style)
            expected = means(frame[frame["N"] == N], column, "d")
            assert len(found) == 2
            for line, d in zip(found, (32, 64), strict=True):
                np.testing.assert_allclose(line, np.column_stack([[3, 10, 100], expected[d]]), rtol=1e-12)
    ax = pictures["trace-loss"].figure.axes[0]
    mine = frame[(frame["step"] == 10) & (frame["d"] == 32) & (frame["N"] == NEEDED[0])]["loss"]
    ends = {round(float(y), 9) for band in ax.collections for path in band.get_paths() for x, y in path.vertices if x == 10}
    assert {round(mine.mean() + sign * mine.std(ddof=0), 9) for sign in (-1, 1)} <= ends


def test_step_0_stands_apart_and_is_not_joined():
    ax = drawn(traced({"d": [32, 64]}, steps=(0, 1, 10, 100)), "traces", render=True)[0]["trace-accuracy"].figure.axes[0]
    axis = Axis.make("step", pd.DataFrame({"step": [0, 1, 10, 100]}))
    assert axis.spots([0])[0] < axis.spots([1])[0] - 5
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1", "10", "100"]
    assert [line[0, 0] for line in traced_lines(ax)] == [1, 1]
    assert [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1] == [0, 0]


def test_the_chance_that_a_label_was_seen_limits_accuracy():
    frame = traced({"d": [32, 64]}, levels=(16, 64))
    picture = drawn(frame, "traces")[0]["trace-accuracy"]
    for ax, N in zip(picture.figure.axes, (16, 64), strict=True):
        assert heights(ax) == [pytest.approx(1 - (1 - 1 / 64) ** N)]
    assert "label seen in training, 1 - (1 - 1/V)^N" in labels(picture)
    last = means(frame.assign(p=frame["n_correct"] / frame["n_test"]), "p", "d", "N").unstack("step")[100]
    ratio = last / [1 - (1 - 1 / 64) ** N for _, N in last.index]
    d, N = ratio.idxmax()
    assert f"accuracy over the dashed line (label seen in training, 1 - (1 - 1/V)^N) is {ratio.median():.3g}" in picture.caption
    assert f"in the median of 4, at most {ratio.max():.3g} (d = {d}, N = {N})" in picture.caption
    fresh = drawn(traced({"d": [32, 64]}, fresh_batches=True), "traces")[0]["trace-accuracy"]
    assert heights(fresh.figure.axes[0]) == []
    assert "label" not in fresh.caption


@pytest.mark.parametrize(("name", "columns"), [("attention", ["attention_mass"]), ("loss", ["test_loss", "loss"])])
def test_the_sentences_have_the_numbers_of_the_rows(name, columns):
    frame = traced({"d": [32, 64]})
    frame.loc[(frame["d"] == 64) & (frame["N"] == NEEDED[1]) & (frame["step"] == 100), ["attention_mass", "test_loss"]] = 0.99, 7.0
    caption = drawn(frame, "traces")[0][f"trace-{name}"].caption
    for column in columns:
        mean = means(frame, column, "d", "N").unstack("step")
        d, N = abs(mean[100] - mean[3]).idxmax()
        said = f"{column} goes from {mean[3].mean():.3g} to {mean[100].mean():.3g} in the mean of 4 curves"
        assert f"{said}, most from {mean[3][d, N]:.3g} to {mean[100][d, N]:.3g} (d = {d}, N = {N})." in caption
    if name == "loss":
        ratio = means(frame, "test_loss", "d", "N").unstack("step")[100] / np.log(64)
        assert f"test_loss over the dashed line (a guess, ln V) is {ratio.median():.3g} in the median" in caption


def test_embeddings_are_shown_where_they_are_trained():
    frame = pd.concat([traced({"d": [32, 64]}, trains=trains, lr=0.1) for trains in ("VW", "VWZ")], ignore_index=True)
    pictures, _ = drawn(frame, "traces")
    assert {"trace-overlap", "trace-norm"} <= set(pictures)
    assert not {"trace-overlap", "trace-norm"} & set(drawn(traced({"d": [32, 64]}), "traces")[0])
    overlap = pictures["trace-overlap"]
    ax = overlap.figure.axes[0]
    assert len(overlap.figure.axes) == len(NEEDED)  # of the trained alone
    assert heights(ax) == [32**-0.5, 64**-0.5]
    assert [line[-1, 1] for line in traced_lines(ax)] == pytest.approx([1.2 * 32**-0.5, 1.2 * 64**-0.5])
    assert "Z_in_overlap over the dashed line (random directions, 1 / sqrt(d)) is 1.2 in the median of 4" in overlap.caption
    assert labels(overlap)[2:] == ["Z_in", "Z_out", "random directions, 1 / sqrt(d)"]
    assert "Z_in_norm goes from 4 to 101 in the mean of 4 curves" in pictures["trace-norm"].caption


def test_an_entry_more_is_a_figure_more(monkeypatch):
    cosine = curves.Quantity("cosine", "Trigger cosine", "cosine", {"trigger_cosine": ""}, lambda cell, N: 0.5, "a half")
    monkeypatch.setattr(curves, "QUANTITIES", (cosine,))
    frame = traced({"d": [32, 64]})
    pictures, _ = drawn(frame.assign(trigger_cosine=frame["d"] / 100), "traces")
    assert [*pictures] == ["trace-cosine"]
    assert [line[-1, 1] for line in traced_lines(pictures["trace-cosine"].figure.axes[0])] == [0.32, 0.64]
    assert heights(pictures["trace-cosine"].figure.axes[0]) == [0.5]
    assert "trigger_cosine over the dashed line (a half) is 0.96 in the median" in pictures["trace-cosine"].caption


def test_critical_N_against_the_step_is_what_a_fit_of_each_step_gives():
    frame = traced({"d": [32, 64]}, levels=LEVELS)
    picture = drawn(frame, "critical N against the step", render=True)[0]["trace-critical-n"]
    thresholds = fit(frame, [0.5], 100, step="all").thresholds.query("record").set_index(["d", "step"])
    found = critical.thresholds(studied(frame)[0].traces, 0.5).set_index(["d", "step"]).loc[thresholds.index]
    columns = ["N_star", "lo", "hi"]
    pd.testing.assert_frame_equal(found[columns], thresholds[columns])
    (ax,) = picture.figure.axes
    for line, d in zip(traced_lines(ax), (32, 64), strict=True):
        np.testing.assert_allclose(line, np.column_stack([[3, 10, 100], thresholds["N_star"][d]]))
    star = thresholds["N_star"].unstack("step")
    fall = star[100] / star[3]
    d = fall.idxmin()
    assert f"N* over that of the first step is {fall.median():.3g} in the median of 2, at least {fall[d]:.3g} (d = {d})" in picture.caption
    assert "Of 2 curves at the first recorded step 2 cross, at the last 2 cross" in picture.caption


def test_critical_N_stands_beside_the_labels_seen_and_the_parameters():
    frame = traced({"d": [32, 64]}, levels=LEVELS)
    pictures, _ = drawn(frame, "critical N against the step", thetas=(0.5, 0.9))
    for name, theta in (("trace-critical-n", 0.5), ("trace-critical-n-0.9", 0.9)):
        N = math.log(1 - theta) / math.log(1 - 1 / 64)
        assert heights(pictures[name].figure.axes[0]) == [pytest.approx(N)]
        low, high = pictures[name].figure.axes[0].get_ylim()
        assert low < N < high
    bits = math.log2(math.factorial(64))
    assert f"V_mat has {32**2 / bits:.2g} to {64**2 / bits:.2g} parameters for each" in pictures["trace-critical-n"].caption
    star = fit(frame[frame["step"] == 100].drop(columns="step"), [0.5], 100).thresholds.query("record").set_index("d")["N_star"]
    ratio = star / (math.log(0.5) / math.log(1 - 1 / 64))
    said = f"N* over that of the dashed line is {ratio.median():.3g} in the median of 2, at least {ratio.min():.3g} (d = 64)"
    assert said in pictures["trace-critical-n"].caption


def test_steps_without_a_crossing_have_open_marks():
    frame = traced({"d": [32, 64]}, levels=LEVELS[:3])  # up to 256; N* falls from 938 to 162 at d = 64
    picture = drawn(frame, "critical N against the step")[0]["trace-critical-n"]
    assert "not reached, crosses above" in labels(picture)
    none, one = "0 cross (not reached, crosses above: 2)", "1 cross (not reached, crosses above: 1)"
    assert f"at the first recorded step {none}, at the last {one}" in picture.caption
    marks = [line.get_xydata().tolist() for line in picture.figure.axes[0].lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert [len(line) for line in marks] == [3, 2]
    assert all(N == LEVELS[2] for line in marks for _, N in line)


def test_one_axis_makes_lines_and_the_others_panels():
    frame = traced({"d": [32, 64, 128], "L": [8, 16]})
    for choice, lines in (({}, ["32", "64", "128"]), ({"x": "L", "panels": ["d"]}, ["8", "16"])):
        pictures, _ = drawn(frame, "traces", **choice)
        assert labels(pictures["trace-attention"]) == lines
        other = "L" if lines[0] == "32" else "d"
        assert all(
            re.fullmatch(rf"{other} = \d+, N = \d+", ax.get_title()) for ax in pictures["trace-attention"].figure.axes if ax.get_title()
        )


def test_where_panels_are_too_many_each_setting_has_the_same_fewer_N():
    names = ("adam", "momentum", "sgd")
    frame = pd.concat([traced({"d": [32, 64, 96, 128]}, levels=LEVELS, optimizer=name, lr=0.1) for name in names], ignore_index=True)
    picture = drawn(frame, "traces")[0]["trace-attention"]
    assert picture.caption.endswith("12 of 27 panels are drawn.")
    found = [ax.get_title().replace("\n", " ") for ax in picture.figure.axes]
    assert found == [f"optimizer = {name}, N = {N}" for name in names for N in ("64", "512", "2048", "16\u202f384")]


def test_rows_without_a_number_are_counted():
    frame = traced({"d": [32, 64]})
    gone = (frame["seed"] == 3) & (frame["step"] > 3) & (frame["d"] == 32)
    frame = frame.astype({"n_correct": "float64"})
    frame.loc[gone, ["n_correct", "attention_mass", "loss", "test_loss"]] = np.nan
    assert f"{gone.sum()} rows without a number are left out." in summary(studied(frame)[0], LAST)


def test_theory_of_the_recipe_is_kept_from_runs_that_train_on():
    frame = traced({"d": [32, 64]}, levels=LEVELS[2:6])
    pictures, left_out = drawn(frame, "accuracy against N", "predicted against observed critical N")
    assert "theory does not cover these cells" in pictures["accuracy"].caption
    assert "predicted against observed critical N" in left_out
    at = {"V": 64, "d": 32, "L": 8, "m": 0, "embedding": "gaussian", "steps": 100, "start": "three_step"}
    assert predict.accuracy(at, 1024.0) is None
    assert predict.accuracy({**at, "step": 3}, 1024.0) == theory.accuracy(theory.Model(V=64, d=32, L=8), 1024.0)
    assert predict.accuracy({**at, "steps": 3, "start": "zero"}, 1024.0) is None


def test_a_table_of_the_recipe_has_no_traces():
    recipe = table({"d": [32, 64]}, law, NEEDED)
    for frame in (recipe, recipe.assign(step=3, steps=3)):
        assert drawn(frame, "traces", "critical N against the step")[1] == dict.fromkeys(
            ("traces", "critical N against the step"), critical.NO_TRACES
        )
    both = pd.concat([recipe.assign(step=3, steps=3), traced({"d": [32, 64]})], ignore_index=True)
    assert set(studied(both)[0].traces.runs["steps"]) == {100}


def test_a_report_of_a_real_sweep_shows_its_traces(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxrecall.analysis.report.PICTURES", {what: PICTURES[what] for what in ("traces", "critical N against the step")})
    base = {"V": 17, "L": 2, "n_test": 500, "gamma2": 17, "steps": 20, "optimizer": "sgd", "lr": 2}
    df = jaxrecall.run({"base": base, "seeds": 2, "blocks": [{"axes": {"d": [10, 16], "N": [8, 1000]}}]}, out=tmp_path)
    assert cli.main([str(tmp_path), "--resamples", "100", "--surrogate", "0"]) == 0
    text = (tmp_path / "report.html").read_text()
    names = {path.stem for path in (tmp_path / "report-figures").iterdir()}
    assert {"trace-accuracy", "trace-attention", "trace-loss", "trace-critical-n"} <= names
    assert "the figures and tables take their last step; those against the step show every one" in text
    first, last = (df[df["step"] == step]["accuracy"].mean() for step in (3, 20))
    assert f"accuracy goes from {first:.3g} to {last:.3g} in the mean of 4 curves" in text
