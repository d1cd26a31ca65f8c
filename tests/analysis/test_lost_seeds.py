"""Seeds without a number, as of runs that diverged: they are named and counted."""

import numpy as np
import pandas as pd
import pytest
from panels import close, legend, marks  # noqa: F401

from jaxrecall import plot
from jaxrecall.fit import fit
from jaxrecall.sweep.search import CellSearch
from jaxrecall.sweep.summary import parsed

LEVELS = [32, 64, 128, 256, 512, 1024]


def runs(lost, value=np.nan):
    """Runs of some rates; the first `lost[rate]` of 12 seeds have no number."""
    rng, rows = np.random.default_rng(0), []
    for rate, n_lost in lost.items():
        for N in LEVELS:
            for seed in range(12):
                reached = 1 / (1 + (128 / N) ** 1.5) + 0.02 * rng.normal()
                accuracy = value if seed < n_lost else np.clip(reached, 0, 1)
                rows.append((rate, N, seed, accuracy))
    return pd.DataFrame(rows, columns=["rate", "N", "seed", "accuracy"])


FRAME = runs({0.1: 0, 1.0: 6, 10.0: 12})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_cell_says_how_many_of_its_seeds_have_no_number(value):
    found = fit(runs({0.1: 0, 1.0: 6, 10.0: 12}, value), axes=["rate"])
    cells = found.thresholds.set_index("rate")
    assert [*cells["state"]] == ["crosses", "seeds without values", "no values"]
    assert cells.loc[1.0, "warning"] == "6 of 12 seeds have no accuracy"
    assert cells.loc[10.0, "warning"] == "12 of 12 seeds have no accuracy"
    assert [*cells["n_seeds"]] == [12, 6, 0]
    assert cells["critical"].notna().tolist() == [True, True, False]
    counts = "3 configurations: 1 crosses, 1 seeds without values, 1 no values"
    assert counts in repr(found)
    assert "2 of 3 cells have seeds without accuracy" in repr(found)


def test_the_law_of_a_mean_leaves_out_points_without_a_number():
    found = fit(FRAME, axes=["rate"], law="accuracy")
    assert found.exponents["n_cells"].eq(12).all()
    assert found.exponents["left_out"].eq("6 no values").all()


@pytest.mark.parametrize("falls", [False, True])
def test_a_share_of_seeds_counts_them_as_not_reached(falls):
    frame = FRAME[FRAME["rate"] < 10]
    along = "N"
    if falls:
        frame = frame.assign(n=lambda f: 16384 / f["N"]).drop(columns="N")
        along = "n"
    found = fit(
        frame, [0.25, 0.75], axes=["rate"], along=along, summary="above 0.4"
    ).thresholds
    sides = found.set_index(["rate", "theta"])["censored"]
    assert sides[0.1].tolist() == ["no", "no"]
    # half of the seeds have no number, so that the share never exceeds one half
    assert sides[1.0].tolist() == ["no", "left" if falls else "right"]
    assert (found["n_seeds"] == 12).all()


def test_a_search_of_a_share_goes_on_without_a_number():
    levels = {k: 2.0 ** (k / 4) for k in range(20, 41)}
    search = CellSearch(0.5, levels, 0.3, 400, range(32), summary=parsed("above 0.4"))
    while search.pending:
        values = [1 / (1 + (128 / N) ** 1.5) for N, _ in search.pending]
        seeds = [seed for _, seed in search.pending]
        told = []
        for seed, value in zip(seeds, values, strict=True):
            told.append(None if seed % 8 == 0 else value)
        search.update(told)
    assert search.result.outcome in ("found", "seeds")
    assert 80 < np.exp(search.result.threshold.log_x) < 128


def test_lines_have_open_marks_and_say_that_they_have_no_values():
    frame = FRAME.copy()
    frame.attrs["axes"] = ["rate", "N"]
    drawn = plot.figure(frame, "accuracy", x="N", lines="rate")
    names = ["rate = 0.1", "rate = 1", "rate = 10: no values", "seeds without values"]
    assert legend(drawn) == names
    paper = drawn.axes[0].get_facecolor()
    is_open = []
    for line in drawn.axes[0].lines:
        if len(line.get_xdata()) and np.isfinite(line.get_ydata()).any():
            is_open.append(line.get_markerfacecolor() in ("white", paper))
    assert is_open == [False, False, True]

    cells = fit(frame).thresholds
    drawn = plot.figure(cells, "critical", x="rate")
    assert "seeds without values" in legend(drawn)
    assert len(marks(drawn.axes[0], "o")) == 3, "the open mark covers the filled one"
    assert legend(plot.figure(frame[frame["rate"] == 10], "accuracy", x="N")) == [
        "no values"
    ]
    map_of_all = plot.figure(frame, y="rate", x="N", colour="accuracy")
    assert legend(map_of_all) == ["no values"]
