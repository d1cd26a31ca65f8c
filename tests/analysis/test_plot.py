"""Single figures from Python: they show what the table holds, on the user's Axes or on
one of pyplot.
"""

import doctest
import os
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import QuadContourSet
from matplotlib.text import Text
from panels import bars, close, legend, lines, marks, means, titles, xy  # noqa: F401
from test_fit import LEVELS, law, ours, table, with_attrs
from tolerances import assert_close

import jaxrecall
from jaxrecall import plot, theory
from jaxrecall.errors import printable
from jaxrecall.fit import fit

FRAME = table({"d": [32, 64, 128]}, law)
STARS = fit(FRAME, [0.5]).thresholds.set_index("d")["N_star"]
CALLS = {
    "accuracy": plot.accuracy,
    "critical_n": plot.critical_n,
    "phase": partial(plot.phase, x="d", y="N"),
    "collapse": plot.collapse,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_figure_stands_on_the_axes_given_or_on_a_new_one_of_pyplot(name):
    figure = plt.figure()
    left, right = (part.subplots() for part in figure.subfigures(1, 2))
    assert CALLS[name](FRAME, ax=left) is left
    assert left.has_data()
    assert not right.has_data()
    ax = CALLS[name](FRAME)
    assert ax.figure is plt.gcf()
    assert ax.figure is not figure
    assert ax.get_xlabel()
    ax.figure.draw_without_rendering()


def test_accuracy_shows_means_and_thresholds():
    ax = plot.accuracy(FRAME, theta=0.5)
    curves = [line for line in lines(ax, "-") if len(line) == len(LEVELS)]
    shown = np.array([line[:, 1] for line in curves])
    assert_close(shown, means(FRAME, "d", "N").unstack("N"))
    assert_close([x for x, _ in marks(ax, "d")], STARS)
    assert legend(ax) == ["d = 32", "d = 64", "d = 128", "N* and 95 % interval"]


def test_axes_without_a_place_make_lines_of_their_own():
    ax = plot.accuracy(table({"d": [32, 64], "L": [8, 16]}, law), x="d")
    assert "L = 8, N = 64" in legend(ax)
    assert ax.get_xlabel().startswith("d: ")


def test_figures_along_another_axis_show_the_fit_along_it():
    """A dense table asked for by `along`, and one of a search that says by itself what
    it searched.
    """
    frame = FRAME.rename(columns={"N": "m", "m": "N"}).assign(N=4096)
    searched = with_attrs(frame, axes=["d", "m"], searched="m")
    assert legend(plot.critical_n(FRAME, theory=False)) == ["law, fitted"]
    for ax, name in (
        (plot.critical_n(FRAME, theory=False), "N* at accuracy 0.5 (samples)"),
        (plot.critical_n(frame, along="m"), "m* at accuracy 0.5"),
        (plot.critical_n(searched), "m* at accuracy 0.5"),
    ):
        assert_close(np.array(marks(ax, "o")), np.array([*STARS.items()]))
        assert ax.get_ylabel() == name
    ax = plot.accuracy(searched, theta=0.5)
    assert_close([x for x, _ in marks(ax, "d")], STARS)
    assert "m* and 95 % interval" in legend(ax)
    assert plot.collapse(searched).get_xlabel() == "m / m*"
    ax = plot.phase(searched, "d")
    assert ax.get_ylabel().startswith("m: ")
    assert "m* at 0.5, fitted" in legend(ax)


def test_collapse_divides_by_each_cells_own_threshold():
    """A gap ends the curve of each cell."""
    curves = [
        line for line in lines(plot.collapse(FRAME), "-") if np.isnan(line[-1, 1])
    ]
    assert len(curves) == 3
    for curve in curves:
        assert_close(np.interp(0.0, np.log(curve[:, 0]), curve[:, 1]), 0.5, 0.05)


@pytest.mark.filterwarnings("ignore:theory is not drawn")
def test_the_example_of_each_function_runs(tmp_path, monkeypatch):
    frame = FRAME.assign(accuracy=FRAME["n_correct"] / FRAME["n_test"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxrecall, "load", lambda path: frame)
    for name in filter(str.islower, plot.__all__):
        finder = doctest.DocTestFinder(recurse=False)
        (example,) = finder.find(getattr(plot, name), name, globs={})
        assert example.examples
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0
    assert os.path.getsize("accuracy.pdf") > 1000


def test_a_cell_that_does_not_cross_has_no_place_along_n():
    censored = FRAME[(FRAME["d"] < 128) | (FRAME["N"] < 256)]
    ax = plot.phase(censored, "N", "d", theory=False)
    assert {d for _, d in marks(ax, "o")} == {32, 64}


@pytest.fixture(scope="module")
def at_steps():
    """Runs at three steps, and those at the last one."""
    steps = {
        step: table({"d": [32, 64]}, lambda c, less=step**-0.5: law(c) * less)
        for step in (3, 10, 30)
    }
    each = [frame.assign(step=step, steps=30) for step, frame in steps.items()]
    return pd.concat(each, ignore_index=True), steps[30].assign(steps=30)


@pytest.mark.parametrize("name", CALLS)
def test_the_last_step_is_drawn_unless_the_step_is_asked_for(name, at_steps):
    every, last = ([xy(line) for line in CALLS[name](df).lines] for df in at_steps)
    assert len(every) == len(last)
    for mine, theirs in zip(every, last, strict=True):
        assert_close(mine, theirs)


def test_the_step_may_stand_along_x(at_steps):
    every, _ = at_steps
    some = every[every["N"] == 512]
    shown = lines(plot.accuracy(some, x="step"), "-")
    assert_close(np.array(shown)[:, :, 1], means(some, "d", "step").unstack())
    one = every[every["d"] == 32]
    thresholds = fit(one, [0.5], step="all").thresholds.query("record")
    ax = plot.critical_n(one, x="step")
    assert_close(np.array(marks(ax, "o")), thresholds[["step", "N_star"]])


def test_a_figure_of_any_column_has_means_bands_and_panels():
    """The axes without a place make its lines."""
    cosine = FRAME["N"] / 2e4 + 0.1 * FRAME["seed"]
    both = [FRAME.assign(L=L, trigger_cosine=cosine - L / 100) for L in (8, 16)]
    drawn = plot.figure(pd.concat(both), "trigger_cosine", panels="L")
    assert titles(drawn) == ["L = 8", "L = 16"]
    mine = both[1][both[1]["d"] == 32].groupby("N")["trigger_cosine"]
    mean, sd = mine.mean(), mine.std(ddof=0)
    panel = drawn.axes[1]
    assert_close(xy(panel.lines[0]), np.array([*mean.items()]))
    band = panel.collections[0].get_paths()[0].vertices
    ends = band[band[:, 0] == LEVELS[3], 1]
    expected = (mean - sd)[LEVELS[3]], (mean + sd)[LEVELS[3]]
    assert_close([ends.min(), ends.max()], [*expected])
    assert legend(drawn) == ["d = 32", "d = 64", "d = 128"]
    assert drawn is plt.gcf()


def test_no_text_of_a_figure_has_control_characters():
    few = FRAME[FRAME["d"] == 32]
    parts = [few.assign(**{"a\x1b": text}) for text in ("\x07", "\x9b")]
    for place in ("x", "lines", "panels"):
        drawn = plot.figure(pd.concat(parts), "accuracy", **{place: "a\x1b"})
        drawn.draw_without_rendering()
        shown = "".join(text.get_text() for text in drawn.findobj(Text))
        assert shown == printable(shown)
        assert r"a\x1b" in shown
    frame = FRAME.rename(columns={"N": "a\x1b"}).assign(N=4096)
    for call in (partial(plot.accuracy, x="a\x1b", theta=0.5), plot.critical_n):
        ax = call(frame, along="a\x1b", theory=False)
        shown = "".join(text.get_text() for text in ax.figure.findobj(Text))
        assert r"a\x1b*" in shown
        assert "\x1b" not in shown


@pytest.mark.parametrize("name", CALLS)
def test_a_figure_takes_any_column_of_fractions(name):
    """Lines and pixels are those of a table whose accuracy it is; theory, which is of
    accuracy, is left out.
    """
    draw = CALLS[name]
    counts = (FRAME["n_correct"] / FRAME["n_test"] * FRAME["V"]).round()
    fractions = FRAME.assign(n_correct=0, memory_accuracy=counts / FRAME["V"])
    of = draw(fractions, of="memory_accuracy")
    options = {"theory": False} if name in ("critical_n", "phase") else {}
    expected = draw(FRAME.assign(n_correct=counts, n_test=FRAME["V"]), **options)
    shown = [[xy(line).tobytes() for line in ax.lines] for ax in (of, expected)]
    assert shown[0] == shown[1] != []
    labels = [ax.get_ylabel() for ax in of.figure.axes]
    assert any("memory_accuracy" in label for label in labels)


@pytest.mark.parametrize("draw", [plot.phase, partial(plot.figure, colour="p")])
def test_colours_over_two_axes_are_means_and_what_was_not_tested_is_hatched(draw):
    frame = FRAME.assign(p=FRAME["n_correct"] / FRAME["n_test"])
    some = frame.query("d > 32 or N > 100")
    for runs in (frame, some):
        drawn = draw(runs, x="d", y="N")
        ax = drawn.figure.axes[0]
        pixels, expected = ax.collections[0], means(runs, "N", "d")
        assert_close(pixels.get_array(), expected)
        for path, at in zip(pixels.get_paths(), expected.index, strict=True):
            assert path.contains_point(at[::-1])
        assert ax.patch.get_hatch()
        assert ("not tested" in legend(drawn)) == (runs is some)


def test_thresholds_have_bars_and_censored_cells_open_marks():
    frame = table({"d": [16, 32, 64]}, lambda c: 1e7 if c["d"] == 16 else 1000.0)
    thresholds = fit(frame, [0.5]).thresholds
    ax = plot.figure(thresholds, "N_star", x="d").axes[0]
    crossing = thresholds.query("record").iloc[1:]
    assert_close(np.array(marks(ax, "o")), crossing[["d", "N_star"]])
    assert marks(ax, "^") == [[16, LEVELS[-1]]]
    assert {*crossing[["lo", "hi"]].itertuples(index=False, name=None)} == bars(ax)


def contours(drawn):
    """The points of every line over a map."""
    found = []
    for ax in drawn.axes:
        for each in ax.collections:
            if isinstance(each, QuadContourSet):
                to_data = each.get_transform() - ax.transData
                found += [to_data.transform_path(path) for path in each.get_paths()]
    return [path.vertices for path in found if len(path)]


def test_a_heat_map_of_accuracy_has_a_line_where_theory_is_one_half():
    counted = ours(FRAME).assign(accuracy=FRAME["n_correct"] / FRAME["n_test"])
    heat_map = partial(plot.figure, colour="accuracy", contour="theory")
    drawn = heat_map(counted, "d", x="N")
    (line,) = contours(drawn)
    N, d = line[np.argsort(line[:, 1])].T
    for width in (64, 128):
        expected = theory.critical_N(theory.Model(V=64, d=width, L=8))
        assert_close(np.interp(width, d, N) / expected, 1, 0.2)
    assert "theory" in legend(drawn)
    one_place = heat_map(counted, "d", x="L", panels="N")
    assert not contours(one_place), "one place along x has no line"
    assert not contours(heat_map(counted, "d", x="N", contour=None))
    assert not contours(heat_map(counted.assign(embedding="own:Law"), "d", x="N"))


def test_several_columns_are_panels_with_their_own_scales():
    two = FRAME.assign(a=0.1 * FRAME["seed"], b=10.0 ** FRAME["d"] * 2)
    drawn = plot.figure(two, ["a", "b"], panels="d", lines=[], band="quartiles")
    assert titles(drawn)[:3] == ["d = 32", "d = 64", "d = 128"]
    for i, value in enumerate([0.35] * 3 + [2e32, 2e64, 2e128]):
        (median,) = lines(drawn.axes[i], "-")
        assert_close(median[:, 1], np.full(len(LEVELS), value))
    assert [ax.get_ylabel() for ax in drawn.axes] == ["a", "", "", "b", "", ""]
    assert [ax.get_yscale() for ax in drawn.axes] == ["linear"] * 3 + ["log"] * 3
