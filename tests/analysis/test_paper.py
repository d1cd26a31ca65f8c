"""Figures and numbers for a paper: the size, the format and the fonts that were asked
for, and legends off the data.
"""

import importlib
import re
import shutil
import subprocess

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from test_fit import law, table, uncovered

from jaxrecall.analysis.figures import plot
from jaxrecall.analysis.figures.style import grouped, interval, rounded
from jaxrecall.errors import UsageError

cli = importlib.import_module("jaxrecall.report")
SIZES = {"column": 3.4, "text": 5.5, "4.2x3.1": 4.2}


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def fonts(path):
    """The fonts of a PDF, (name, type), by pdffonts or else by its own dictionaries."""
    if shutil.which("pdffonts"):
        rows = subprocess.run(
            ["pdffonts", str(path)], capture_output=True, text=True, check=True
        ).stdout.splitlines()[2:]
        return {
            (
                row.split()[0].partition("+")[2],
                "TrueType" if " TrueType " in row else row[37:54].strip(),
            )
            for row in rows
        }
    found = re.findall(
        rb"/BaseFont /\w+\+([\w-]+).{0,300}?/Subtype /(\w+)|/Subtype /(Type3)",
        path.read_bytes(),
        re.S,
    )
    return {
        (
            name.decode(),
            (
                "TrueType"
                if kind in (b"Type0", b"CIDFontType2")
                else (kind or other).decode()
            ),
        )
        for name, kind, other in found
    }


@pytest.mark.parametrize(
    ("family", "name"), [(None, "DejaVuSans"), ("STIXGeneral", "STIXGeneral-Regular")]
)
def test_a_pdf_has_the_font_that_was_asked_for_as_true_type(family, name, tmp_path):
    file = tmp_path / "mine.mplstyle"
    file.write_text(
        f"font.family: {family}\ntext.usetex: True\nsavefig.bbox:"
        " tight\npdf.fonttype: 3\n"
    )
    uncovered(table({"d": [32, 64, 16384]}, law)).to_parquet(tmp_path / "t.parquet")
    assert (
        cli.main(
            [
                str(tmp_path / "t.parquet"),
                "--format",
                "pdf",
                *(["--style", str(file)] if family else []),
            ]
        )
        == 0
    )
    paths = sorted(tmp_path.glob("*/*.pdf"))
    assert len(paths) == 4
    found = {found for path in paths for found in fonts(path)}
    assert (name, "TrueType") in found
    # for letters that the other lacks
    assert found <= {
        (name, "TrueType"),
        ("DejaVuSans", "TrueType"),
    }


@pytest.mark.parametrize(
    "size",
    [
        "4.2x3.1",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("column", "text")),
    ],
)
def test_every_figure_has_the_size_and_the_formats_that_were_asked_for(size, tmp_path):
    uncovered(table({"d": [32, 64], "L": [8, 16, 32]}, law)).to_parquet(
        tmp_path / "t.parquet"
    )
    assert (
        cli.main(
            [str(tmp_path / "t.parquet"), "--format", "svg", "png", "--size", size]
        )
        == 0
    )
    files = [*(tmp_path / "t-report-figures").iterdir()]
    assert len(files) == 8
    for path in (path for path in files if path.suffix == ".png"):
        width, height = plt.imread(path).shape[1::-1]
        assert width == round(200 * SIZES[size])
        assert height == 620 or size != "4.2x3.1"
    assert {path.suffix for path in files} == {".svg", ".png"}


@pytest.mark.parametrize(
    "make",
    [plot.accuracy, plot.critical_n, plot.collapse, lambda df: plot.phase(df, "d")],
)
def test_single_figures_follow_the_settings_of_matplotlib(make):
    with plt.rc_context({"figure.figsize": (5.5, 4), "axes.labelsize": 5}):
        figure = make(table({"d": [32, 64]}, law)).figure
    assert figure.get_figwidth() == 5.5
    assert figure.axes[0].xaxis.label.get_fontsize() == 5


def test_a_figure_of_any_column_takes_a_size_and_a_style():
    figure = plot.figure(
        table({"d": [32, 64]}, law),
        size="text",
        style={"font.size": 5, "axes.labelsize": 5},
    )
    assert figure.get_figwidth() == 5.5
    assert figure.axes[0].xaxis.label.get_fontsize() == 5
    assert matplotlib.rcParams["axes.labelsize"] != 5
    with pytest.raises(UsageError, match="size: got 'huge'; allowed: column, text"):
        plot.figure(table({"d": [32, 64]}, law), size="huge")


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("n", [2, pytest.param(9, marks=pytest.mark.slow), 18])
def test_the_legend_of_a_single_figure_stands_off_the_data_and_inside_the_figure(
    n, layout
):
    frame = table({"d": [16 * (1 + i) for i in range(n)]}, law)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout=layout)
    for ax, call in zip(axes, (plot.accuracy, plot.collapse), strict=True):
        call(frame, ax=ax)
    figure.draw_without_rendering()
    boxes = [ax.get_legend().get_window_extent() for ax in axes]
    assert not any(box.overlaps(ax.get_window_extent()) for box in boxes for ax in axes)
    assert all(
        figure.bbox.x0 <= box.x0
        and box.x1 <= figure.bbox.x1
        and figure.bbox.y0 <= box.y0
        for box in boxes
    )


def test_a_format_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(SystemExit):
        cli.main([str(tmp_path), "--format", "eps"])


def test_numbers_are_as_in_print():
    assert interval(17432.1, 8495.2, 35600.0) == "17\u202f400 [8500, 35\u202f600]"
    assert [
        rounded(x) for x in (0.01234, 1.0, 104.6, 9996.0, 1234567.0, 3e12, np.inf)
    ] == [
        "0.0123",
        "1",
        "105",
        "10\u202f000",
        "1\u202f230\u202f000",
        "3e+12",
        "inf",
    ]
    assert interval(np.nan, np.nan, np.nan) == ""
    assert [grouped(n) for n in (8192, 65536, -10000)] == [
        "8192",
        "65\u202f536",
        "-10\u202f000",
    ]
