"""Figures and numbers for a paper: the size, the format and the fonts that were asked
for, and legends off the data.
"""

import importlib
import re

import numpy as np
import pytest
from helpers import combinations
from matplotlib import pyplot as plt
from panels import close  # noqa: F401
from test_fit import law, table, uncovered

from jaxrecall import plot
from jaxrecall.analysis.figures.style import grouped, rounded

cli = importlib.import_module("jaxrecall.report")
FRAME = table({"d": [32, 64]}, law)


def fonts(path):
    """The fonts of a PDF, (name, type)."""
    pattern = rb"/BaseFont /\w+\+([\w-]+).{0,300}?/Subtype /(\w+)|/Subtype /(Type3)"
    found = re.findall(pattern, path.read_bytes(), re.S)
    return {(name.decode(), (kind or other).decode()) for name, kind, other in found}


STYLE = """font.family: STIXGeneral
text.usetex: True
savefig.bbox: tight
pdf.fonttype: 3
"""


FONTS = ["DejaVuSans", "STIXGeneral-Regular"]


@pytest.mark.parametrize("name", combinations(FONTS, often=FONTS[1:].__contains__))
def test_a_pdf_has_the_font_that_was_asked_for_as_true_type(name, tmp_path):
    style, rows = tmp_path / "mine.mplstyle", tmp_path / "t.parquet"
    style.write_text(STYLE)
    uncovered(FRAME).to_parquet(rows)
    words = ["--style", str(style)] if "STIX" in name else []
    assert cli.main([str(rows), "--format", "pdf", *words]) == 0
    found = set().union(*map(fonts, tmp_path.glob("*/*.pdf")))
    names, kinds = ({*each} for each in zip(*found, strict=True))
    assert kinds <= {"Type0", "CIDFontType2"}, "True Type"
    assert name in names
    assert names <= {name, "DejaVuSans"}, "for letters that the other lacks"


WIDTHS = {"4.2x3.1": 4.2, "column": 3.4, "text": 5.5}


@pytest.mark.parametrize("size", combinations(WIDTHS, often="4.2x3.1".__eq__))
def test_every_figure_has_the_size_and_the_formats_that_were_asked_for(size, tmp_path):
    rows = tmp_path / "t.parquet"
    uncovered(FRAME).to_parquet(rows)
    assert cli.main([str(rows), "--format", "svg", "png", "--size", size]) == 0
    files = [*(tmp_path / "t-report-figures").iterdir()]
    assert len(files) == 8
    assert {path.suffix for path in files} == {".svg", ".png"}
    for path in tmp_path.glob("*/*.png"):
        height, width = plt.imread(path).shape[:2]
        assert width == round(200 * WIDTHS[size])
        assert height == 620 or size != "4.2x3.1"


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("n", combinations([2, 9, 18], often=lambda n: n == 18))
def test_the_legend_of_a_single_figure_stands_off_the_data_and_inside_the_figure(
    n, layout
):
    frame = table({"d": [16 * (1 + i) for i in range(n)]}, law)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout=layout)
    plot.accuracy(frame, ax=axes[0])
    plot.collapse(frame, ax=axes[1])
    figure.draw_without_rendering()
    panels = [ax.get_window_extent() for ax in axes]
    for ax in axes:
        box = ax.get_legend().get_window_extent()
        assert not any(box.overlaps(panel) for panel in panels)
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0


def test_numbers_are_as_in_print():
    numbers = (0.01234, 1.0, 104.6, 9996.0, 1234567.0, 3e12, np.inf)
    shown = "0.0123;1;105;10\u202f000;1\u202f230\u202f000;3e+12;inf"
    assert ";".join(map(rounded, numbers)) == shown
    whole = "8192;65\u202f536;-10\u202f000"
    assert ";".join(map(grouped, (8192, 65536, -10000))) == whole
