"""The figure of a search: fitted curves, levels whose marks show their seeds, and what
a report leaves out because the levels of a search are no grid.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_fit import WIDE, law, ours, table, uncovered
from test_report import drawn, labels

from jaxrecall.analysis.figures import charts, searches
from jaxrecall.analysis.figures.table_of_runs import Runs
from jaxrecall.analysis.figures.theory_lines import Quantity, Theory
from jaxrecall.analysis.fit.roles import roles_of

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


def runs_of(frame):
    return Runs.of(frame, roles_of(frame), "N")


def test_rows_tell_whether_a_table_is_that_of_a_search():
    assert searches.is_search(runs_of(search()))
    grid = uncovered(table({"d": [32, 64]}, law, WIDE, seeds=SEEDS))
    assert not searches.is_search(runs_of(grid))
    holes = grid[~((grid["seed"] > 3) & (grid["N"] == WIDE[3]))]
    assert not searches.is_search(runs_of(holes))
    # each cell has levels with equal seeds, but the cells differ
    fewer = grid[(grid["d"] == 32) | (grid["seed"] < 3)]
    assert not searches.is_search(runs_of(fewer))


def test_the_curve_of_a_search_is_the_fitted_one_and_joins_no_single_seeds():
    frame = search()
    runs = runs_of(frame)
    stars = runs.fitted([0.5]).thresholds
    (ax,) = drawn(frame, "accuracy")["accuracy"].axes
    curves = [line for line in ax.lines if line.get_linestyle() == "-"]
    assert len(curves) == 2
    for line, star in zip(curves, stars["critical"], strict=True):
        x, y = line.get_data()
        assert len(x) > 5 * len(WIDE)
        assert np.interp(star, x, y) == pytest.approx(0.5, abs=2e-3)


def test_the_area_of_a_mark_is_proportional_to_its_seeds():
    frame = search({"d": [32]})
    figure = drawn(frame, "accuracy")["accuracy"]
    marks = figure.axes[0].collections[0]
    means = frame.groupby("N")["n_correct"].agg(["mean", "count"])
    np.testing.assert_allclose(
        np.asarray(marks.get_offsets()),
        np.column_stack([means.index, means["mean"] / 2000]),
    )
    np.testing.assert_allclose(
        marks.get_sizes() / marks.get_sizes().max(), means["count"] / SEEDS
    )
    assert {"1 seed", "12 seeds", "curve, fitted"} <= {*labels(figure)}


@pytest.mark.slow
def test_a_search_has_no_map_unless_it_is_asked_for():
    frame = search()
    assert [*drawn(frame)] == ["critical-n", "accuracy", "collapse"]
    assert "phase" in drawn(frame, phase=[("d", "N")])


@pytest.mark.slow
def test_a_map_of_stripes_is_not_drawn():
    frame = table({"d": [16, 32, 64, 128]}, lambda c: 1000.0, WIDE)
    levels = {d: WIDE[i::4] for i, d in enumerate((16, 32, 64, 128))}
    apart = [frame[(frame["d"] == d) & frame["N"].isin(levels[d])] for d in levels]
    assert "phase" in drawn(uncovered(frame))
    assert "phase" not in drawn(uncovered(pd.concat(apart, ignore_index=True)))


def test_the_collapse_of_a_search_is_of_fitted_curves_near_the_crossing():
    ax = drawn(search(), "collapse")["collapse"].axes[0]
    curves = [line for line in ax.lines if line.get_linestyle() == "-"]
    for line in curves:
        x, y = line.get_data()
        assert 1 / searches.REACH <= x.min() < 1 < x.max() <= searches.REACH
        assert np.interp(1.0, x, y) == pytest.approx(0.5, abs=2e-3)


def test_bars_of_open_intervals_end_at_the_estimate_and_marks_are_open():
    stars = pd.DataFrame(
        {
            "theta": 0.5,
            "critical": [10.0, 20.0],
            "lo": [0.0, 15.0],
            "hi": [12.0, np.inf],
        }
    )
    filled, unsure = charts.crossings(stars, "N")
    assert filled.table["lo"].isna().tolist() == [True, False]
    assert filled.table["hi"].isna().tolist() == [False, True]
    assert unsure.legend == "crossing not sure"
    assert unsure.table["N"].tolist() == [10.0, 20.0]
    sure = stars.assign(lo=5.0, hi=30.0)
    assert len(charts.crossings(sure, "N")) == 1


def test_theory_that_is_the_same_for_all_lines_is_one_line_of_its_own():
    rows = pd.DataFrame({"d": [1, 1, 2, 2], "eta": [0.1, 0.2] * 2, "critical": 1.0})
    same = rows.assign(theory=[3.0, 3.0, 4.0, 4.0])
    differ = rows.assign(theory=[3.0, 5.0, 4.0, 6.0])
    axis = charts.Axis.make("d", rows, roles_of(rows))
    for frame, has_lines in ((same, False), (differ, True)):
        chart = charts.Chart([charts.Points(frame, "critical")], axis, lines=["eta"])
        lines = [charts.Polyline(frame, "theory", "theory")]
        layer = charts.with_theory(chart, lines).layers[-1]
        assert ("eta" in layer.table) == has_lines
        assert len(layer.table) == (4 if has_lines else 2)


def test_theory_is_computed_for_the_panels_that_are_drawn():
    frame = search({"d": [32, 64]}).drop(columns="s")
    runs = runs_of(ours(frame))
    whole = Theory(runs)
    part = whole.within(replace(runs, rows=runs.rows[runs.rows["d"] == 64]))
    axis = charts.Axis.make("N", runs.levels, runs.roles)
    (line, *_) = part.accuracy(axis, ["d"])
    assert {*line.table["d"]} == {64}
    settings = {**runs.settings(["d", "N"]).iloc[0].to_dict(), "kappa": 1.0}
    part._assumes(settings)
    part._value(Quantity("N", 0.5), {**settings, "d": 64}, None)
    assert "kappa: got 1" in whole.messages[0]
