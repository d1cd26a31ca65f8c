"""Single figures from Python: they show what the table holds, on the user's Axes or on
one of pyplot.
"""

import matplotlib

matplotlib.use("Agg")

import doctest
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from helpers import python
from matplotlib.contour import QuadContourSet
from test_fit import LEVELS, law, ours, table, with_attrs

import jaxrecall
from jaxrecall.analysis.figures import plot
from jaxrecall.analysis.fit import fit
from jaxrecall.errors import FitError, UsageError


@pytest.fixture
def frame():
    return table({"d": [32, 64, 128]}, law)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def xy(line):
    """The points of a line, (n, 2)."""
    return np.asarray(line.get_xydata())


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


CALLS = {
    "accuracy": plot.accuracy,
    "critical_n": plot.critical_n,
    "phase": lambda df, ax=None: plot.phase(df, "d", "N", ax),
    "collapse": plot.collapse,
}


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_figure_stands_on_the_axes_given_or_on_a_new_one_of_pyplot(
    name, parts, frame
):
    figure = plt.figure()
    left, right = (
        [part.subplots() for part in figure.subfigures(1, 2)]
        if parts
        else figure.subplots(1, 2)
    )
    assert CALLS[name](frame, ax=left) is left
    assert left.has_data()
    assert not right.has_data()
    ax = CALLS[name](frame)
    assert ax.figure is plt.gcf()
    assert ax.figure is not figure
    assert ax.get_xlabel()
    ax.figure.draw_without_rendering()


def test_accuracy_shows_means_and_thresholds(frame):
    ax = plot.accuracy(frame, theta=0.5)
    mean = (
        frame.assign(p=frame["n_correct"] / frame["n_test"])
        .groupby(["d", "N"])["p"]
        .mean()
    )
    lines = [xy(line) for line in ax.lines if len(xy(line)) == len(LEVELS)]
    np.testing.assert_allclose(
        [line[:, 1] for line in lines], mean.unstack("N").to_numpy()
    )
    stars = fit(frame, [0.5], 100).thresholds.query("record")["N_star"]
    marks = [
        xy(line)[0, 0]
        for line in ax.lines
        if line.get_marker() == "d" and len(xy(line)) == 1
    ]
    np.testing.assert_allclose(marks, stars)
    lines = ["d = 32", "d = 64", "d = 128"]
    assert legend(ax) == [*lines, "N* and 95 % interval"]


def test_two_axes_make_lines_of_their_own():
    ax = plot.accuracy(table({"d": [32, 64], "L": [8, 16]}, law))
    assert legend(ax) == [
        "d = 32, L = 8",
        "d = 32, L = 16",
        "d = 64, L = 8",
        "d = 64, L = 16",
    ]


def test_accuracy_against_another_axis(frame):
    ax = plot.accuracy(frame[frame["N"].isin([512, 2048])], x="d")
    assert legend(ax) == ["N = 512", "N = 2048"]
    assert ax.get_xlabel().startswith("d: ")


def test_critical_n_shows_the_thresholds_of_the_fit(frame):
    ax = plot.critical_n(frame, theory=False)
    stars = fit(frame, [0.5], 100).thresholds.query("record")["N_star"]
    marks = next(
        xy(line) for line in ax.lines if line.get_marker() == "o" and len(xy(line)) == 3
    )
    np.testing.assert_allclose(marks[:, 1], stars)
    assert legend(ax) == ["law, fitted"]


def test_figures_along_another_axis_show_the_fit_along_it():
    """A dense table asked for by `along`, and one of a search that says by itself what
    it searched.
    """
    frame = (
        table({"d": [32, 64, 128]}, law)
        .rename(columns={"N": "m", "m": "N"})
        .assign(N=4096)
    )
    stars = fit(frame, [0.5], 100, along="m").thresholds.set_index("d")["critical"]
    assert stars.notna().all()
    found = with_attrs(frame, axes=["d", "m"], searched="m")
    for ax in (plot.critical_n(frame, along="m"), plot.critical_n(found)):
        marks = next(
            xy(line)
            for line in ax.lines
            if line.get_marker() == "o" and len(xy(line)) == 3
        )
        np.testing.assert_allclose(marks, np.stack([stars.index, stars], axis=1))
        assert ax.get_ylabel() == "m* at accuracy 0.5"
        assert legend(ax) == ["law, fitted"]
    ax = plot.accuracy(found, theta=0.5)
    marks = [
        xy(line)[0, 0]
        for line in ax.lines
        if line.get_marker() == "d" and len(xy(line)) == 1
    ]
    np.testing.assert_allclose(marks, stars)
    assert ax.get_xlabel().startswith("m: ")
    assert "m* and 95 % interval" in legend(ax)
    assert plot.collapse(found).get_xlabel() == "m / m*"
    ax = plot.phase(found, "d")
    assert ax.get_ylabel().startswith("m: ")
    assert "m* at 0.5, fitted" in legend(ax)


def test_collapse_divides_by_each_cells_own_threshold(frame):
    ax = plot.collapse(frame)
    curves = [xy(line) for line in ax.lines if len(xy(line)) == len(LEVELS)]
    assert len(curves) == 3
    for curve in curves:
        assert np.interp(0.0, np.log(curve[:, 0]), curve[:, 1]) == pytest.approx(
            0.5, abs=0.05
        )


@pytest.mark.filterwarnings("ignore:theory is not drawn")
def test_the_example_of_each_function_runs(frame, tmp_path, monkeypatch):
    frame = frame.assign(accuracy=frame["n_correct"] / frame["n_test"])
    frame.to_parquet(tmp_path / "quickstart.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxrecall, "plot", plot, raising=False)
    monkeypatch.setattr(jaxrecall, "load", lambda path: frame)
    for name in filter(str.islower, plot.__all__):
        (example,) = doctest.DocTestFinder(recurse=False).find(
            getattr(plot, name), name, globs={}
        )
        assert example.examples
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0
    assert os.path.getsize("accuracy.pdf") > 1000


def test_a_cell_that_does_not_cross_has_no_place_along_arithmetic_on_n(frame):
    censored = frame[(frame["d"] < 128) | (frame["N"] < 256)]
    ax = plot.phase(censored, "N / d", "d", theory=False)
    (stars,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert {*xy(stars)[:, 1].tolist()} == {32, 64}


REFUSED = {
    "an axis has no place": (
        lambda df: plot.critical_n(df),
        r"df: several values of V \(64, 128\) at one place of the figure; choose one,"
        r" as in df\[df\[\"V\"\] == 64\]",
    ),
    "a pixel would hold two cells": (
        lambda df: plot.phase(df, "m * d", "N", theory=False),
        r"df: several values of L \(8, 16\), V \(64, 128\), d \(32, 64\) at one place"
        r" of the figure; choose one, as in .* \(df\[\"d\"\] == 32\)\]",
    ),
    "it does not vary": (
        lambda df: plot.critical_n(df, x="m"),
        "x: got 'm'; allowed: an axis that varies, of d, L, V",
    ),
    "twice": (lambda df: plot.critical_n(df, x="d", lines="d"), "d more than once"),
    "too many lines": (
        lambda df: plot.accuracy(df, x="d"),
        "lines: 36 lines of one L, V, N each are too many; choose at most 20",
    ),
    "nothing crosses": (
        lambda df: plot.collapse(df, theta=0.9999),
        "theta: 0 of 8 cells cross accuracy 0.9999, and the figure needs 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_one_figure_cannot_show_is_refused(case):
    call, said = REFUSED[case]
    with pytest.raises(UsageError, match=said):
        call(table({"d": [32, 64], "L": [8, 16], "V": [64, 128]}, law))
    assert plt.get_fignums() == []


def test_a_table_without_counts_is_refused(frame):
    with pytest.raises(FitError, match="no n_test"):
        plot.accuracy(frame.drop(columns="n_test"))


def test_matplotlib_and_jax_are_imported_only_when_they_are_needed():
    ran = python(
        "import sys, jaxrecall.analysis.figures.plot; sys.exit(any(name in sys.modules"
        " for name in ('jax', 'matplotlib')))"
    )
    assert ran.returncode == 0, ran.stderr


def test_the_last_step_is_drawn_unless_the_step_is_asked_for():
    steps = {
        step: (
            table({"d": [32, 64]}, lambda c, less=step**-0.5: law(c) * less).assign(
                step=step, steps=30
            )
        )
        for step in (3, 10, 30)
    }
    every = pd.concat(steps.values(), ignore_index=True)
    last = steps[30].drop(columns="step")
    for draw in (plot.accuracy, plot.critical_n, CALLS["phase"], plot.collapse):
        drawn, expected = (
            [xy(line) for line in draw(df).lines] for df in (every, last)
        )
        assert len(drawn) == len(expected)
        for mine, theirs in zip(drawn, expected, strict=True):
            np.testing.assert_allclose(mine, theirs)
    ax = plot.accuracy(every[every["N"] == 512], x="step")
    mean = (
        every[every["N"] == 512]
        .assign(p=lambda f: f["n_correct"] / f["n_test"])
        .groupby(["d", "step"])["p"]
        .mean()
    )
    lines = [xy(line) for line in ax.lines if len(xy(line)) == 3]
    np.testing.assert_allclose(lines, [[*mean[d].items()] for d in (32, 64)])
    stars = (
        fit(every, [0.5], 100, step="all")
        .thresholds.query("record and d == 32")
        .set_index("step")["N_star"]
    )
    marks = next(
        xy(line)
        for line in plot.critical_n(every[every["d"] == 32], x="step").lines
        if len(xy(line)) == 3
    )
    np.testing.assert_allclose(marks, np.column_stack([stars.index, stars]))


def test_axes_without_a_place_make_the_lines_of_a_figure_with_panels():
    runs = table({"d": [32, 64], "L": [8, 16]}, law)
    drawn = plot.figure(runs, panels="L")
    assert [ax.get_title() for ax in drawn.axes] == ["L = 8", "L = 16"]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        "d = 32",
        "d = 64",
    ]


def test_a_figure_of_any_column_has_means_bands_and_panels(frame):
    both = pd.concat(
        [
            frame.assign(
                L=L, trigger_cosine=frame["N"] / 2e4 + 0.1 * frame["seed"] - L / 100
            )
            for L in (8, 16)
        ]
    )
    drawn = plot.figure(both, "trigger_cosine", lines="d", panels="L")
    assert [ax.get_title() for ax in drawn.axes] == ["L = 8", "L = 16"]
    mine = both[(both["L"] == 16) & (both["d"] == 32)].groupby("N")["trigger_cosine"]
    line = xy(drawn.axes[1].lines[0])
    np.testing.assert_allclose(line, np.column_stack([LEVELS, mine.mean()]))
    band = drawn.axes[1].collections[0].get_paths()[0].vertices
    for N, mean, sd in zip(LEVELS, mine.mean(), mine.std(ddof=0), strict=True):
        assert {round(mean - sd, 9), round(mean + sd, 9)} <= {
            round(float(y), 9) for x, y in band if x == N
        }
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        "d = 32",
        "d = 64",
        "d = 128",
    ]
    assert drawn is plt.gcf()


@pytest.mark.parametrize("name", CALLS)
def test_a_figure_takes_any_column_of_fractions(name, frame):
    """Lines and pixels are those of a table whose accuracy it is; theory, which is of
    accuracy, is left out.
    """
    draw = {**CALLS, "phase": lambda df, **kw: plot.phase(df, "d", "N", **kw)}[name]
    counts = (frame["n_correct"] / frame["n_test"] * frame["V"]).round()
    of = draw(
        frame.assign(n_correct=0, memory_accuracy=counts / frame["V"]),
        of="memory_accuracy",
    )
    expected = draw(
        frame.assign(n_correct=counts, n_test=frame["V"]),
        **({"theory": False} if name in ("critical_n", "phase") else {}),
    )
    assert (
        [xy(line).tolist() for line in of.lines]
        == [xy(line).tolist() for line in expected.lines]
        != []
    )
    if name in ("accuracy", "collapse"):
        assert (of.get_ylabel(), expected.get_ylabel()) == (
            "memory_accuracy (fraction)",
            "test accuracy (fraction)",
        )
    if name == "phase":
        assert "mean memory_accuracy (fraction)" in [
            ax.get_ylabel() for ax in of.figure.axes
        ]
    with pytest.raises(FitError, match="score: holds 'a'"):
        draw(frame.assign(score="a"), of="score")


def test_colours_over_two_axes_are_means_and_what_was_not_tested_is_hatched(frame):
    frame = frame[(frame["d"] > 32) | (frame["N"] > 100)].assign(
        snr=lambda f: f["N"] * (1 + f["seed"])
    )
    drawn = plot.figure(frame, "N / d", x="d", colour="snr")
    pixels = drawn.axes[0].collections[0]
    np.testing.assert_allclose(
        sorted(pixels.get_array().compressed()),
        sorted(frame.groupby(["d", "N"])["snr"].mean()),
    )
    assert "not tested" in [text.get_text() for text in drawn.legends[0].get_texts()]
    assert drawn.axes[0].get_ylabel() == "N / d"


def test_thresholds_have_bars_and_censored_cells_open_marks():
    found = fit(
        table({"d": [16, 32, 64]}, lambda c: 1e7 if c["d"] == 16 else 1000.0),
        [0.5],
        100,
    ).thresholds
    ax = plot.figure(found, "N_star", x="d").axes[0]
    reported = found[found["record"]]
    crosses = next(
        xy(line) for line in ax.lines if line.get_marker() == "o" and len(xy(line))
    )
    np.testing.assert_allclose(crosses, reported[["d", "N_star"]][1:])
    assert [
        xy(line).tolist()
        for line in ax.lines
        if line.get_marker() == "^" and len(xy(line))
    ] == [[[16, LEVELS[-1]]]]
    ends = {
        tuple(path.vertices[:, 1])
        for bars in ax.collections
        for path in bars.get_paths()
    }
    assert {(row.lo, row.hi) for row in reported[1:].itertuples()} == ends


def contours(ax):
    """The points of every line over a map."""
    return [
        path.vertices
        for drawn in ax.collections
        if isinstance(drawn, QuadContourSet)
        for path in drawn.get_paths()
        if len(path)
    ]


def test_a_heat_map_of_accuracy_has_a_line_where_theory_is_one_half(frame):
    counted = ours(frame).assign(accuracy=frame["n_correct"] / frame["n_test"])
    drawn = plot.figure(counted, "d", x="N", colour="accuracy", contour="theory")
    (line,) = [xy(line) for line in drawn.axes[0].lines if line.is_dashed()]
    line = line[np.argsort(line[:, 1])]
    for d in (50, 64, 100):
        expected = jaxrecall.theory.critical_N(jaxrecall.theory.Model(V=64, d=d, L=8))
        assert np.interp(d, line[:, 1], line[:, 0]) == pytest.approx(expected, rel=0.02)
    assert "theory" in [text.get_text() for text in drawn.legends[0].get_texts()]
    panels = plot.figure(
        counted, "d", x="L * V", panels="N", colour="accuracy", contour="theory"
    ).axes
    assert not any(contours(ax) for ax in panels), "one place along x has no line"
    assert not contours(plot.figure(counted, "d", x="N", colour="accuracy").axes[0])
    unknown = plot.figure(
        counted.assign(embedding="own:Law"),
        "d",
        x="N",
        colour="accuracy",
        contour="theory",
    )
    assert not contours(unknown.axes[0])
    with pytest.raises(
        UsageError,
        match="contour: it needs a map; give `colour` the name of a column",
    ):
        plot.figure(frame, contour="theory")
    with pytest.raises(UsageError, match="contour: got line; allowed: None, theory"):
        plot.figure(frame, "d", colour="n_correct", contour="line")
    with pytest.raises(
        UsageError,
        match="contour: it needs a table of runs, with a column seed",
    ):
        plot.figure(
            frame.drop(columns="seed"), "d", x="N", colour="n_correct", contour="theory"
        )
    with pytest.raises(
        UsageError,
        match=r"several values of d .*; choose one, as in .*, or name d in rows,",
    ):
        plot.figure(frame, "N", x="L", colour="n_correct", contour="theory")


def test_several_columns_are_panels_with_their_own_scales(frame):
    two = frame.assign(a=0.1 * frame["seed"], b=10.0 ** frame["d"] * 2)
    drawn = plot.figure(two, ["a", "b"], panels="d", lines=[], band="quartiles")
    upper, lower = drawn.axes[:3], drawn.axes[3:]
    assert [ax.get_title() for ax in upper] == ["d = 32", "d = 64", "d = 128"]
    for ax in upper:  # medians
        assert [{*np.round(line.get_ydata(), 9)} for line in ax.lines] == [{0.35}]
    assert [{*ax.lines[0].get_ydata()} for ax in lower] == [
        {2e32},
        {2e64},
        {2e128},
    ]
    assert [ax.get_ylabel() for ax in drawn.axes] == ["a", "", "", "b", "", ""]
    assert {ax.get_yscale() for ax in upper} == {"linear"}
    assert {ax.get_yscale() for ax in lower} == {"log"}
    with pytest.raises(
        UsageError, match="band: got iqr; allowed: sd, se, 95 %, quartiles"
    ):
        plot.figure(frame, band="iqr")


def test_axes_and_accuracy_come_from_the_metadata_of_the_table():
    rows = [
        {"a": a, "kind": kind, "score": a * (1 + seed), "seed": seed}
        for a in (1.0, 2.0)
        for kind in "xy"
        for seed in (0, 1)
    ]
    frame = pd.DataFrame(rows)
    frame.attrs = {"axes": ["a", "kind"], "accuracy": "score"}
    for ax in (plot.accuracy(frame, x="a"), plot.figure(frame, x="a").axes[0]):
        assert [xy(line).tolist() for line in ax.lines] == [
            [[1.0, 1.5], [2.0, 3.0]]
        ] * 2
    assert legend(plot.accuracy(frame, x="a")) == ["kind = x", "kind = y"]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"y": "snr"}, "df: no column snr; it has V, d"),
        (
            {"x": "width * 2"},
            r"df: no column 'width \* 2', nor arithmetic on its columns; it has V, d",
        ),
        ({"panels": "colour"}, "df: no column colour"),
        ({"y": "kind"}, r"df: kind holds 'a' \(str\); allowed: numbers"),
        ({"y": "d", "colour": "kind"}, r"df: kind holds 'a' \(str\); allowed: numbers"),
    ],
)
def test_a_figure_of_a_column_that_is_not_there_or_holds_no_numbers_is_refused(
    choice, said, frame
):
    with pytest.raises(UsageError, match=said):
        plot.figure(frame.assign(kind="a"), **choice)
