"""The figure of a search: fitted curves, levels whose marks show their seeds, and what
a report leaves out because the levels of a search are no grid.
"""

import numpy as np
import pandas as pd
import pytest
from panels import close, legend, lines  # noqa: F401
from test_fit import WIDE, law, ours, table, uncovered
from test_report import drawn
from tolerances import assert_close

from jaxrecall import plot
from jaxrecall.analysis.figures import charts, searches
from jaxrecall.analysis.figures.table_of_runs import Runs
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.fit import fit

SEEDS = 12


def search(axes=None, star=law):
    """Rows as a search leaves them: all seeds at the two levels around the crossing,
    and the first seed alone at all other levels.
    """
    axes = axes or {"d": [32, 64]}
    frame = uncovered(table(axes, star, WIDE, seeds=SEEDS))
    stars = frame.apply(star, axis=1)
    is_near = (frame["N"] / stars).between(0.5, 2)
    return frame[is_near | (frame["seed"] == 0)].reset_index(drop=True)


def is_search(frame):
    return searches.is_search(Runs.of(frame, roles_of(frame), "N"))


def test_rows_tell_whether_a_table_is_that_of_a_search():
    assert is_search(search())
    grid = uncovered(table({"d": [32, 64]}, law, WIDE, seeds=SEEDS))
    assert not is_search(grid)
    assert not is_search(grid[(grid["seed"] <= 3) | (grid["N"] != WIDE[3])])
    # each cell has levels with equal seeds, but the cells differ
    assert not is_search(grid[(grid["d"] == 32) | (grid["seed"] < 3)])


def test_the_curve_of_a_search_is_the_fitted_one_and_joins_no_single_seeds():
    frame = search()
    (ax,) = drawn(frame, "accuracy")["accuracy"].axes
    stars = fit(frame, [0.5]).thresholds["critical"]
    for (x, y), star in zip((line.T for line in lines(ax, "-")), stars, strict=True):
        assert len(x) > 5 * len(WIDE)
        assert_close(np.interp(star, x, y), 0.5, 2e-3)


def test_the_area_of_a_mark_is_proportional_to_its_seeds():
    frame = search({"d": [32]})
    figure = drawn(frame, "accuracy")["accuracy"]
    dots = figure.axes[0].collections[0]
    by_level = frame.groupby("N")["n_correct"].agg(["mean", "count"])
    places = np.column_stack([by_level.index, by_level["mean"] / 2000])
    assert_close(np.asarray(dots.get_offsets()), places)
    sizes = dots.get_sizes()
    assert_close(sizes / sizes.max(), by_level["count"] / SEEDS)
    assert {"1 seed", "12 seeds", "curve, fitted"} <= {*legend(figure)}


@pytest.mark.slow
def test_neither_a_search_nor_stripes_have_a_map_unless_it_is_asked_for():
    frame = uncovered(table({"d": [16, 32, 64, 128]}, lambda c: 1000.0, WIDE))
    places = [
        (frame["d"] == d) & frame["N"].isin(WIDE[i::4])
        for i, d in enumerate((16, 32, 64, 128))
    ]
    assert [*drawn(search())] == ["critical-n", "accuracy", "collapse"]
    assert "phase" in drawn(search(), options="--phase d N")
    assert "phase" in drawn(frame)
    assert "phase" not in drawn(frame[np.any(places, axis=0)])


def test_the_collapse_of_a_search_is_of_fitted_curves_near_the_crossing():
    (ax,) = drawn(search(), "collapse")["collapse"].axes
    curves = lines(ax, "-")
    assert curves
    for x, y in (curve.T for curve in curves):
        assert 1 / searches.REACH <= x.min() < 1 < x.max() <= searches.REACH
        assert_close(np.interp(1.0, x, y), 0.5, 2e-3)


def test_bars_of_open_intervals_end_at_the_estimate_and_marks_are_open():
    ends = {"critical": [10.0, 20.0], "lo": [0.0, 15.0], "hi": [12.0, np.inf]}
    stars = pd.DataFrame({"theta": 0.5} | ends)
    filled, unsure = charts.crossings(stars, "N")
    assert filled.table["lo"].isna().tolist() == [True, False]
    assert filled.table["hi"].isna().tolist() == [False, True]
    assert unsure.legend == "crossing not sure"
    assert unsure.table["N"].tolist() == [10.0, 20.0]
    assert len(charts.crossings(stars.assign(lo=5.0, hi=30.0), "N")) == 1


@pytest.mark.parametrize(("axis", "n_lines"), [("pool", 1), ("L", 2)])
def test_theory_that_is_the_same_for_all_lines_is_one_line_of_its_own(axis, n_lines):
    frame = ours(table({"d": [64], axis: [8, 16]}, law, WIDE[4::4], seeds=2))
    ax = plot.accuracy(frame, lines=axis, theory=True)
    assert {f"{axis} = 8", f"{axis} = 16", "theory"} <= {*legend(ax)}
    assert len(lines(ax, "--")) == n_lines
