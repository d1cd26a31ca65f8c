"""The figure that a sweep ends with: what its heading says, and what its lines join."""

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text
from panels import close, legend, xy  # noqa: F401
from test_fit import law, table

from jaxrecall.analysis.figures import charts
from jaxrecall.analysis.figures.figure import Chart


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Draws the figure that a sweep ends with, and returns it."""
    made, figure = [], Chart.figure

    def kept(chart, *arguments, **options):
        made.append(figure(chart, *arguments, **options))
        return made[-1]

    monkeypatch.setattr(Chart, "figure", kept)

    def drawn(frame, axes, thresholds=()):
        frame = frame.assign(accuracy=frame["n_correct"] / frame["n_test"])
        out, along = tmp_path / "accuracy.png", "N" if thresholds else ""
        charts.draw_sweep(frame, axes, "mine", out, thresholds or None, along)
        return made[-1]

    return drawn


def heading(figure):
    (text,) = [
        text for text in figure.findobj(Text) if text.get_text().startswith("mine: ")
    ]
    return text


USUAL = table({"d": [32, 64]}, law).assign(
    pool=None,
    trigger_in_value=True,
    tokens="uniform",
    noise_tokens="uniform",
    activation="none",
    embedding="gaussian",
)
SIZES = "mine: V = 64, L = 8, m = 0"
EQUAL, LONG = "equicorrelated(rho=0.1)", "array(path='a-table-with-a-long-name.npy')"
OTHER = {"pool": 512, "embedding": EQUAL, "trigger_in_value": False}
HEADINGS = [
    ({}, ""),
    (OTHER, f", pool = 512, embedding = {EQUAL}, trigger_in_value = false"),
    ({"embedding": LONG}, f", embedding = {LONG}"),
]


@pytest.mark.parametrize(("changes", "told"), HEADINGS)
def test_the_heading_of_a_sweep_names_the_pool_and_the_laws_that_are_not_the_usual_ones(
    changes, told, sweep
):
    figure = sweep(USUAL.assign(**changes), ["d", "N"])
    figure.draw_without_rendering()
    shown = heading(figure)
    words = shown.get_text().replace("\n", " ")
    assert words.startswith(f"{SIZES}{told} mean over 8 seeds")
    box = shown.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


@pytest.mark.parametrize("axis", ["embedding", "embedding.rho"])
def test_the_heading_of_a_sweep_has_no_law_or_number_that_varies(axis, sweep):
    each = [
        USUAL.assign(embedding=f"equicorrelated(rho={rho})", **{"embedding.rho": rho})
        for rho in (0.1, 0.3)
    ]
    if axis == "embedding":
        each = [USUAL, USUAL.assign(embedding="sphere")]
    figure = sweep(pd.concat(each, ignore_index=True), [axis, "d", "N"])
    first = heading(figure).get_text().partition("\n")[0]
    family = ", embedding = equicorrelated" if axis == "embedding.rho" else ""
    assert first == SIZES + family


def test_a_search_marks_its_thresholds_in_the_colour_of_their_line(sweep):
    ends = {"theta": 0.5, "axis": "N", "critical": None, "lo": None, "hi": None}
    star = {"d": 32, "critical": 1000.0, "lo": 800.0, "hi": 1300.0}
    figure = sweep(USUAL, ["d", "N"], [ends | star, ends | {"d": 64}])
    (ax,) = figure.axes
    (mark,) = [line for line in ax.lines if line.get_marker() == "d" and len(xy(line))]
    assert xy(mark).tolist() == [[1000.0, 0.5]]
    line = next(line for line in ax.lines if line.get_linestyle() == "-")
    assert to_hex(mark.get_markerfacecolor()) == to_hex(line.get_color())
    paths = [path for bars in ax.collections for path in bars.get_paths()]
    assert [800.0, 1300.0] in [path.vertices[:, 0].tolist() for path in paths]
    assert "N* and 95 % interval" in legend(figure)
    unmarked = sweep(USUAL, ["d", "N"], [ends | star | {"axis": "load"}])
    assert "N* and 95 % interval" not in legend(unmarked)


def test_levels_with_few_seeds_are_hollow_and_not_joined(sweep):
    frame = table(levels=[1, 2, 4, 8]).query("seed == 0 or N != 4")
    joined, hollow = sweep(frame, ["N"]).axes[0].lines
    assert joined.get_xdata().tolist() == [1, 2, 8]
    assert hollow.get_xdata().tolist() == [4]
    is_hollow = [line.get_markerfacecolor() == "white" for line in (joined, hollow)]
    assert is_hollow == [False, True]
