"""The grammar of figures: where panels, lines and marks stand, and which settings of
matplotlib they have.
"""

import io
import itertools

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from helpers import python

from jaxrecall import plot
from jaxrecall.errors import UsageError


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def runs(seeds=3, **axes):
    """Runs whose error falls as 1 / N, at every combination of the axes."""
    index = pd.MultiIndex.from_product([*axes.values(), range(seeds)])
    frame = index.to_frame(index=False)
    frame.columns = [*axes, "seed"]
    level = frame.drop(columns="seed").apply(
        lambda row: sum(map(len, map(str, row))), axis=1
    )
    frame["error"] = (1 + frame["seed"]) * level / frame["N"]
    frame.attrs["axes"] = [*axes]
    return frame


LAWS = ["gaussian", "equicorrelated(rho=0.2)"]
FRAME = runs(N=[10, 100, 1000], law=LAWS, width=[8, 16])


def labels_of(drawn):
    return [text.get_text() for text in drawn.legends[0].get_texts()]


def xy(line):
    return np.asarray(line.get_xydata())


def test_rows_and_columns_of_panels_show_one_combination_each():
    drawn = plot.figure(
        FRAME, "error", x="N", rows="law", columns="width", labels={"law": ""}
    )
    assert [ax.get_title() for ax in drawn.axes] == ["width = 8", "width = 16", "", ""]
    assert [ax.get_ylabel() for ax in drawn.axes[::2]] == [*sorted(LAWS)]
    for ax, (law, width) in zip(
        drawn.axes,
        [(law, width) for law in sorted(LAWS) for width in (8, 16)],
        strict=True,
    ):
        mine = FRAME[(FRAME["law"] == law) & (FRAME["width"] == width)]
        (line,) = ax.lines
        means = mine.groupby("N")["error"].mean()
        np.testing.assert_allclose(xy(line), [*means.items()])
    with pytest.raises(UsageError, match="panels: got law beside rows or columns"):
        plot.figure(FRAME, "error", x="N", panels="law", columns="width")
    with pytest.raises(UsageError, match="law more than once; a column has one place"):
        plot.figure(FRAME, "error", x="N", rows="law", columns=["law", "width"])


def test_a_combination_that_was_not_run_leaves_an_empty_place():
    some = FRAME[(FRAME["law"] == "gaussian") | (FRAME["width"] == 8)]
    drawn = plot.figure(some, "error", x="N", rows="law", columns="width")
    assert [ax.get_visible() for ax in drawn.axes] == [True, False, True, True]


def test_names_along_x_are_points_with_bars_and_no_line():
    drawn = plot.figure(FRAME[FRAME["N"] == 10], "error", x="law", lines="width")
    (ax,) = drawn.axes
    assert {line.get_linestyle() for line in ax.lines} == {"None"}
    assert all(line.get_marker() not in ("", "None") for line in ax.lines)
    assert len(ax.collections) == 2, "a bar for each line"
    low, high = ax.get_xlim()
    assert low < -0.2, "marks are not on the frame"
    assert high > 1.2


@pytest.mark.parametrize("kind", ["runs", "marks"])
def test_categories_keep_the_order_of_their_owner_in_every_place(kind):
    names = ["middle", "last", "first"]
    table = runs(N=[10, 100], law=sorted(names), seeds=2)
    if kind == "marks":
        table = table[table["seed"] == 0].drop(columns="seed")
    table = table.assign(law=pd.Categorical(table["law"], names))
    places = {"x": "N", "labels": {"law": ""}}
    (ax,) = plot.figure(table[table["N"] == 10], "error", x="law", lines="N").axes
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    assert [text.get_text() for _, text in sorted(ticks, key=lambda t: t[0])] == names
    drawn = plot.figure(table, "error", lines="law", **places)
    assert labels_of(drawn) == names
    for place in ("panels", "columns"):
        drawn = plot.figure(table, "error", lines=[], **{place: "law"}, **places)
        assert [ax.get_title() for ax in drawn.axes] == names
    drawn = plot.figure(table, "error", lines=[], rows="law", **places)
    assert [ax.get_ylabel() for ax in drawn.axes] == names
    drawn = plot.figure(
        table, "N", x="law", colour="error", panels="law", labels={"law": ""}
    )
    assert [ax.get_title() for ax in drawn.axes[:3]] == names


def test_a_title_never_breaks_inside_a_word():
    drawn = plot.figure(
        FRAME, "error", x="N", columns=["law", "width"], size="3.25x2.6"
    )
    drawn.draw_without_rendering()
    for ax in drawn.axes:
        words = ax.get_title().replace(",", "").split()
        assert {*words} <= {"law", "=", *LAWS, "width", "8", "16"}
        across = ax.title.get_window_extent().width
        assert across <= 1.25 * ax.get_window_extent().width


def test_a_title_breaks_between_settings():
    table = runs(N=[10, 100], L=[8, 256], trigger=["trigger in", "trigger out"])
    drawn = plot.figure(
        table, "error", x="N", columns=["L", "trigger"], labels={"trigger": ""}
    )
    drawn.draw_without_rendering()
    assert drawn.axes[-1].get_title() == "L = 256,\ntrigger out"


def test_only_marks_that_share_a_place_stand_side_by_side():
    both = [
        pd.DataFrame({"kind": kind, "x": [1.0, 2.0], "y": [1.0, 2.0]}) for kind in "ab"
    ]
    for apart, is_moved in ((0.0, True), (0.1, False)):
        shifted = both[1].assign(x=both[1]["x"] + apart)
        table = pd.concat([both[0], shifted])
        (ax,) = plot.figure(table, "y", x="x", lines="kind").axes
        at = ax.transData.transform((1.0, 1.0))
        shown = ax.lines[0].get_transform().transform((1.0, 1.0))
        assert (at[0] != shown[0]) == is_moved


@pytest.mark.parametrize("ends", [(1.4, 75.0), (1.5, 9.0), (11.0, 900.0), (1, 1000)])
def test_a_log_axis_has_two_ticks_or_more(ends):
    x = np.geomspace(*ends, 12)
    (ax,) = plot.figure(pd.DataFrame({"x": x, "y": x}), "y", x="x").axes
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    named = [at for at, text in ticks if low <= at <= high and text.get_text()]
    assert len(named) >= 2


@pytest.mark.parametrize("size", ["3.25x2.6", "4.5x3"])
def test_names_of_rows_do_not_overlap(size):
    places = {"rows": "law", "columns": "width"}
    drawn = plot.figure(FRAME, "error", x="N", size=size, **places)
    drawn.draw_without_rendering()
    upper, lower = (ax.yaxis.label.get_window_extent() for ax in drawn.axes[::2])
    assert lower.y1 < upper.y0
    assert upper.y1 <= drawn.bbox.y1
    assert lower.y0 >= 0


def test_values_without_a_place_on_a_log_axis_are_marked():
    some = FRAME.assign(error=FRAME["error"].where(FRAME["N"] < 1000, 0.0))
    drawn = plot.figure(some, "error", x="N", lines=["law", "width"], scale="log")
    (ax,) = drawn.axes
    below = [line for line in ax.lines if line.get_transform() != ax.transData]
    assert [xy(line).tolist() for line in below] == [[[1000.0, 0.0]]] * 4
    assert labels_of(drawn)[-1] == "0 or less, below the axis"
    plain = plot.figure(FRAME, "error", x="N", lines=["law", "width"], scale="log")
    assert "0 or less, below the axis" not in labels_of(plain)
    marks = pd.DataFrame({"d": [1, 2], "critical": [10.0, -1.0]})
    drawn = plot.figure(marks, "critical", x="d", scale="log")
    assert labels_of(drawn) == ["0 or less, below the axis"]


def test_bars_without_an_end_leave_the_other_marks_visible():
    marks = pd.DataFrame(
        {"d": [1, 2], "z": [-1.0, 1.0], "lo": [-2.0, -np.inf], "hi": [0.0, 3.0]}
    )
    (ax,) = plot.figure(marks, "z", x="d").axes
    low, high = ax.get_ylim()
    assert low < -2
    assert high > 3
    assert high - low < 10


def test_layers_over_a_figure_stand_in_their_panels_and_lines():
    theory = FRAME.groupby(["N", "law"], as_index=False)["error"].mean()
    exact = pd.DataFrame({"N": [100], "error": [1.0]})
    layers = [
        plot.Polyline(theory, "error", "theory", {"linestyle": "--", "width": 0.5}),
        plot.Points(exact, "error", "exact", {"open": True}),
    ]
    drawn = plot.figure(
        FRAME, "error", x="N", lines="law", columns="width", over=layers
    )
    for ax in drawn.axes:
        dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
        for line, law in zip(dashed, sorted(LAWS), strict=True):
            mine = theory[theory["law"] == law]
            np.testing.assert_allclose(xy(line)[:, 1], mine["error"])
            assert line.get_linewidth() == pytest.approx(0.6)
        measured = [line for line in ax.lines if line.get_linestyle() == "-"]
        colours = [line.get_color() for line in dashed]
        assert colours == [line.get_color() for line in measured[:2]]
        (exact,) = [line for line in ax.lines if xy(line).tolist() == [[100.0, 1.0]]]
        assert exact.get_marker() == "o", "points without lines are visible"
    assert labels_of(drawn)[-2:] == ["theory", "exact"]
    exact = drawn.legends[0].legend_handles[-1]
    assert (exact.get_marker(), exact.get_linestyle()) == ("o", "None")
    with pytest.raises(UsageError, match="over: got"):
        plot.figure(FRAME, "error", x="N", over=[1])


def test_a_figure_may_be_a_part_of_another_one():
    whole = plt.figure(figsize=(7, 3), layout="constrained")
    left, right = whole.subfigures(1, 2)
    assert plot.figure(FRAME, "error", x="N", columns="law", on=left) is left
    assert [len(part.axes) for part in (left, right)] == [2, 0]
    assert left.legends
    assert plt.get_fignums() == [whole.number]
    with pytest.raises(UsageError, match="on: got 3"):
        plot.figure(FRAME, "error", x="N", on=3)


def test_panels_may_have_their_own_range_along_x():
    parts = [
        pd.DataFrame({"parameter": "rho", "value": [0.1, 0.3], "ratio": [1.0, 2.0]}),
        pd.DataFrame({"parameter": "rank", "value": [8, 64], "ratio": [3.0, 2.0]}),
    ]
    drawn = plot.figure(
        pd.concat(parts), "ratio", x="value", columns="parameter", share_x=False
    )
    rank, rho = drawn.axes
    assert rank.get_xlim()[0] > 1 > rho.get_xlim()[1]
    assert {t.get_text() for t in rank.get_xticklabels()} == {"8", "64"}


def test_names_over_two_axes_have_a_colour_each():
    table = pd.DataFrame(
        [
            {"a": a, "b": b, "what": "works" if a < b else "fails"}
            for a in (1, 2, 3)
            for b in (1, 2, 3)
        ]
    )
    drawn = plot.figure(table, "b", x="a", colour="what")
    assert labels_of(drawn) == ["fails", "works"]
    (pixels,) = drawn.axes[0].collections
    assert pixels.get_array().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert len(drawn.axes) == 1, "names need no colour bar"
    states = pd.Categorical(table["what"], ["never", "fails", "works"])
    drawn = plot.figure(table.assign(what=states), "b", x="a", colour="what")
    assert labels_of(drawn) == ["fails", "works"], "only what is there is listed"
    (pixels,) = drawn.axes[0].collections
    assert pixels.get_array().max() == 2, "a name keeps its colour in every figure"


def test_a_contour_is_interpolated_along_the_drawn_axes():
    table = pd.DataFrame(
        [
            {"a": a, "b": b, "z": np.log10(a * b) / 6}
            for a in (1, 1000)
            for b in (1, 1e3)
        ]
    )
    contour = plot.Contour(table, "z", level=0.5)
    drawn = plot.figure(table, "b", x="a", colour="z", over=[contour])
    (lines,) = [
        found for found in drawn.axes[0].collections if hasattr(found, "levels")
    ]
    points = np.concatenate([path.vertices for path in lines.get_paths()])
    np.testing.assert_allclose(np.log10(points).sum(axis=1), 3, atol=0.05)


def sizes(drawn):
    ax = drawn.axes[0]
    return {
        "font.size": ax.xaxis.label.get_size(),
        "lines.linewidth": ax.lines[0].get_linewidth(),
        "lines.markersize": ax.lines[0].get_markersize(),
        "xtick.labelsize": ax.get_xticklabels()[0].get_size(),
    }


def test_the_users_settings_apply_and_ours_only_where_there_are_none():
    own = {
        "font.size": 14,
        "lines.linewidth": 0.5,
        "lines.markersize": 2,
        "xtick.labelsize": 11,
    }
    ours = sizes(plot.figure(FRAME, "error", x="N", columns="law"))
    assert all(ours[name] != value for name, value in own.items())
    with matplotlib.rc_context(own):
        assert sizes(plot.figure(FRAME, "error", x="N", columns="law")) == own
    with matplotlib.rc_context({"lines.linewidth": 3}):
        mixed = sizes(plot.figure(FRAME, "error", x="N", columns="law"))
    assert mixed == ours | {"lines.linewidth": 3}


def test_a_style_file_gives_colours_sizes_and_fonts(tmp_path):
    style = tmp_path / "mine.mplstyle"
    style.write_text(
        "axes.prop_cycle: cycler('color', ['ff0000', '00ff00'])\n"
        "figure.figsize: 4, 2\npdf.fonttype: 3\nfont.size: 6\n"
    )
    drawn = plot.figure(FRAME[FRAME["width"] == 8], "error", x="N", style=style)
    assert drawn.get_size_inches().tolist() == [4, 2]
    lines = drawn.axes[0].lines
    assert [line.get_color() for line in lines] == ["#ff0000", "#00ff00"]
    usual = plot.figure(FRAME[FRAME["width"] == 8], "error", x="N")
    for figure, kind in ((drawn, b"/Type3"), (usual, b"/Type0")):
        file = io.BytesIO()
        figure.savefig(file, format="pdf", metadata={"CreationDate": None})
        fonts = {b"/Type3", b"/Type0"}
        assert {font for font in fonts if font in file.getvalue()} == {kind}
    assert (
        matplotlib.rcParams["pdf.fonttype"]
        == matplotlib.rcParamsDefault["pdf.fonttype"]
    )
    panels = plot.figure(FRAME, "error", x="N", columns="law", style=style)
    assert panels.get_size_inches().tolist() == [4, 2]
    places = {"rows": "width", "columns": "law"}
    panels = plot.figure(FRAME, "error", x="N", style=style, **places)
    assert panels.get_size_inches()[1] > 2, "panels are not lower than is readable"


@pytest.mark.parametrize("size", ["3.25x2.4", "10x5.6"])
def test_ticks_and_legends_do_not_overlap(size):
    wide = runs(N=[8, 512, 1024, 2048], law=LAWS, width=[8, 16])
    with matplotlib.rc_context({"font.size": 16} if size == "10x5.6" else {}):
        drawn = plot.figure(wide, "error", x="N", size=size)
        drawn.axes[0].xaxis.get_major_ticks()
        drawn.draw_without_rendering()
    (ax,) = drawn.axes
    shown = [tick for tick in ax.get_xticklabels() if tick.get_text()]
    boxes = [tick.get_window_extent() for tick in shown]
    assert boxes
    for left, right in itertools.pairwise(boxes):
        assert left.x1 < right.x0
    legend = drawn.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= drawn.bbox.x1
    assert legend.y0 >= ax.get_window_extent().y1


def test_panels_that_have_no_room_are_told():
    many = runs(N=[10, 100], law=[f"law {i}" for i in range(14)])
    with pytest.warns(UserWarning, match="12 of 14 panels are drawn"):
        plot.figure(many, "error", x="N", panels="law")


KERNEL = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
shown = []
def hear(message):
    if message["msg_type"] in ("display_data", "execute_result"):
        shown.append("image/png" in message["content"]["data"])
cells = [
    "import pandas, jaxrecall; df = pandas.DataFrame({'N': [1, 2], 'e': [1.0, 2.0]})",
    "drawn = jaxrecall.plot.figure(df, 'e', x='N')\\ndrawn",
    "jaxrecall.plot.figure(df, 'e', x='N')",
    "drawn",
    "another = jaxrecall.plot.figure(df, 'e', x='N')",
]
try:
    counts = []
    for cell in cells:
        shown.clear()
        client.execute_interactive(cell, timeout=60, output_hook=hear)
        counts.append(sum(shown))
    print(counts)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


@pytest.mark.slow
def test_a_notebook_shows_a_figure_once():
    ran = python(KERNEL)
    assert ran.stdout.split("\n")[-2] == "[0, 1, 1, 1, 1]", ran.stderr
