"""The grammar of figures: where panels, lines and marks stand, and which settings of
matplotlib they have.
"""

import io
import itertools

import matplotlib
import numpy as np
import pandas as pd
import pytest
from helpers import python
from panels import close, legend, lines, titles, xy  # noqa: F401
from tolerances import assert_close

from jaxrecall import plot


def runs(seeds=3, **axes):
    """Runs whose error falls as 1 / N, at every combination of the axes."""
    cells = [*itertools.product(*axes.values(), range(seeds))]
    frame = pd.DataFrame(cells, columns=[*axes, "seed"])
    letters = [len("".join(map(str, cell[:-1]))) for cell in cells]
    frame["error"] = (1 + frame["seed"]) * letters / frame["N"]
    frame.attrs["axes"] = [*axes]
    return frame


LAWS = ["gaussian", "equicorrelated(rho=0.2)"]
WORDS = ["law", "=", "width", "8", "16"]
FRAME = runs(N=[10, 100, 1000], law=LAWS, width=[8, 16])


def test_rows_and_columns_of_panels_show_one_combination_each():
    places = {"rows": "law", "columns": "width", "labels": {"law": ""}}
    drawn = plot.figure(FRAME, "error", x="N", **places)
    assert titles(drawn) == ["width = 8", "width = 16", "", ""]
    assert [ax.get_ylabel() for ax in drawn.axes[::2]] == sorted(LAWS)
    cells = FRAME.groupby(["law", "width", "N"])["error"].mean().unstack("N")
    for ax, (_, means) in zip(drawn.axes, cells.iterrows(), strict=True):
        (line,) = ax.lines
        assert_close(xy(line), np.array([*means.items()]))


def test_names_along_x_are_points_with_bars_and_no_line():
    drawn = plot.figure(FRAME[FRAME["N"] == 10], "error", x="law", lines="width")
    (ax,) = drawn.axes
    assert {line.get_linestyle() for line in ax.lines} == {"None"}
    assert all(line.get_marker() not in ("", "None") for line in ax.lines)
    assert len(ax.collections) == 2, "a bar for each line"
    assert ax.get_xlim() == (-0.5, 1.5)


@pytest.mark.parametrize("kind", ["runs", "marks"])
def test_categories_keep_the_order_of_their_owner_in_every_place(kind):
    names = ["middle", "last", "first"]
    table = runs(N=[10, 100], law=sorted(names), seeds=2)
    if kind == "marks":
        table = table[table["seed"] == 0].drop(columns="seed")
    table = table.assign(law=pd.Categorical(table["law"], names))
    (ax,) = plot.figure(table[table["N"] == 10], "error", x="law", lines="N").axes
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    assert [text.get_text() for _, text in sorted(ticks, key=lambda t: t[0])] == names

    def drawn(**places):
        places = {"x": "N", "lines": [], "labels": {"law": ""}} | places
        return plot.figure(table, "error", **places)

    assert legend(drawn(lines="law")) == names
    assert titles(drawn(panels="law")) == titles(drawn(columns="law")) == names
    assert [ax.get_ylabel() for ax in drawn(rows="law").axes] == names


@pytest.mark.parametrize("ends", [(1.4, 75.0), (1100.0, 1200.0), (3.0, 25.0)])
def test_a_log_axis_has_two_ticks_or_more(ends):
    x = np.geomspace(*ends, 12)
    (ax,) = plot.figure(pd.DataFrame({"x": x, "y": x}), "y", x="x").axes
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    assert sum(low <= at <= high and text.get_text() != "" for at, text in ticks) >= 2


BELOW = "0 or less, below the axis"


def test_values_without_a_place_on_a_log_axis_are_marked():
    some = FRAME.assign(error=FRAME["error"].where(FRAME["N"] < 1000, 0.0))
    whole, cut = (
        plot.figure(frame, "error", x="N", lines=["law", "width"], scale="log")
        for frame in (FRAME, some)
    )
    (ax,) = cut.axes
    below = [xy(line) for line in ax.lines if line.get_transform() != ax.transData]
    assert [line.tolist() for line in below] == [[[1000.0, 0.0]]] * 4
    assert legend(cut)[-1] == BELOW
    assert BELOW not in legend(whole)
    marks = pd.DataFrame({"d": [1, 2], "critical": [10.0, -1.0]})
    assert legend(plot.figure(marks, "critical", x="d", scale="log")) == [BELOW]


def test_bars_without_an_end_leave_the_other_marks_visible():
    marks = pd.DataFrame(
        {"d": [1, 2], "z": [-1.0, 1.0], "lo": [-2.0, -np.inf], "hi": [0.0, 3.0]}
    )
    (ax,) = plot.figure(marks, "z", x="d").axes
    low, high = ax.get_ylim()
    assert high - 10 < low < -2
    assert high > 3


def test_layers_over_a_figure_stand_in_their_panels_and_lines():
    theory = FRAME.groupby(["N", "law"], as_index=False)["error"].mean()
    exact = pd.DataFrame({"N": [100], "error": [1.0]})
    style = {"linestyle": "--", "width": 0.5}
    over = [plot.Polyline(theory, "error", "theory", style)]
    over += [plot.Points(exact, "error", "exact", {"open": True})]
    drawn = plot.figure(FRAME, "error", x="N", lines="law", columns="width", over=over)
    for ax in drawn.axes:
        # a figure without lines has its marks once
        measured, dashed = ax.lines[:2], ax.lines[2:4]
        (mark,) = ax.lines[4:]
        for line, other, (_, mine) in zip(
            dashed, measured, theory.groupby("law")["error"], strict=True
        ):
            assert_close(line.get_ydata(), mine)
            assert line.get_linestyle() == "--"
            assert_close(line.get_linewidth(), 0.6)
            assert line.get_color() == other.get_color()
        assert xy(mark).tolist() == [[100.0, 1.0]]
        assert mark.get_marker() == "o", "points without lines are visible"
    assert legend(drawn)[-2:] == ["theory", "exact"]
    entry = drawn.legends[0].legend_handles[-1]
    assert (entry.get_marker(), entry.get_linestyle()) == ("o", "None")


def test_names_over_two_axes_have_a_colour_each():
    table = pd.DataFrame(itertools.product((1, 2, 3), repeat=2), columns=["a", "b"])
    table["what"] = np.where(table["a"] < table["b"], "works", "fails")
    drawn = plot.figure(table, "b", x="a", colour="what")
    assert legend(drawn) == ["fails", "works"]
    (pixels,) = drawn.axes[0].collections
    assert pixels.get_array().tolist() == [0, 0, 0, 1, 0, 0, 1, 1, 0]
    assert len(drawn.axes) == 1, "names need no colour bar"
    states = pd.Categorical(table["what"], ["never", "fails", "works"])
    drawn = plot.figure(table.assign(what=states), "b", x="a", colour="what")
    assert legend(drawn) == ["fails", "works"], "only what is there is listed"
    (pixels,) = drawn.axes[0].collections
    assert pixels.get_array().max() == 2, "a name keeps its colour in every figure"


def test_a_contour_is_interpolated_along_the_drawn_axes():
    table = pd.DataFrame(itertools.product((1, 1e3), repeat=2), columns=["a", "b"])
    table["z"] = np.log10(table["a"] * table["b"]) / 6
    contour = plot.Contour(table, "z", level=0.5)
    drawn = plot.figure(table, "b", x="a", colour="z", over=[contour])
    over = drawn.axes[0].collections
    (line,) = [each for each in over if hasattr(each, "levels")]
    to_data = line.get_transform() - drawn.axes[0].transData
    paths = map(to_data.transform_path, line.get_paths())
    points = np.concatenate([path.vertices for path in paths])
    assert_close(np.log10(points).sum(axis=1), np.full(len(points), 3.0), 0.05)


def sizes(drawn):
    ax = drawn.axes[0]
    return {
        "font.size": ax.xaxis.label.get_size(),
        "lines.linewidth": ax.lines[0].get_linewidth(),
        "lines.markersize": ax.lines[0].get_markersize(),
        "xtick.labelsize": ax.get_xticklabels()[0].get_size(),
    }


def test_the_users_settings_apply_and_ours_only_where_there_are_none():
    own = {"font.size": 14, "lines.linewidth": 0.5, "lines.markersize": 2}
    own["xtick.labelsize"] = 11

    def sizes_with(settings):
        with matplotlib.rc_context(settings):
            return sizes(plot.figure(FRAME, "error", x="N", columns="law"))

    ours = sizes_with({})
    assert all(ours[name] != value for name, value in own.items())
    assert sizes_with(own) == own
    assert sizes_with({"lines.linewidth": 3}) == ours | {"lines.linewidth": 3}


def test_a_style_file_gives_colours_sizes_and_fonts(tmp_path):
    style = tmp_path / "mine.mplstyle"
    style.write_text(
        "axes.prop_cycle: cycler('color', ['ff0000', '00ff00'])\n"
        "figure.figsize: 4, 2\npdf.fonttype: 3\nfont.size: 6\n"
    )
    narrow = FRAME[FRAME["width"] == 8]
    drawn = plot.figure(narrow, "error", x="N", style=style)
    assert drawn.get_size_inches().tolist() == [4, 2]
    colours = [line.get_color() for line in drawn.axes[0].lines]
    assert colours == ["#ff0000", "#00ff00"]
    file = io.BytesIO()
    drawn.savefig(file, format="pdf")
    assert b"/Type3" in file.getvalue()
    default = matplotlib.rcParamsDefault["pdf.fonttype"]
    assert matplotlib.rcParams["pdf.fonttype"] == default


@pytest.mark.parametrize(("size", "font"), [("3.25x2.4", None), ("10x5.6", 16)])
def test_ticks_and_legends_do_not_overlap(size, font):
    wide = runs(N=[8], L=[8, 512, 1024, 2**20], law=LAWS, width=[8, 16])
    with matplotlib.rc_context({"font.size": font} if font else {}):
        drawn = plot.figure(wide, "error", x="L", columns="width", size=size)
        drawn.draw_without_rendering()
    ax = drawn.axes[0]
    ticks = ax.get_xticklabels()
    boxes = [tick.get_window_extent() for tick in ticks if tick.get_text()]
    assert boxes[0].x1 < ax.bbox.x1 + 30
    assert all(left.x1 < right.x0 for right, left in itertools.pairwise(boxes))
    box = drawn.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= drawn.bbox.x1
    assert box.y0 >= ax.get_window_extent().y1


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
