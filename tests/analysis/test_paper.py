"""Figures and numbers for a paper: the size, the format, the fonts and the panels that were asked for."""

import importlib
import re
import shutil
import subprocess

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from jaxrecall.analysis.figures.paper import look
from test_fit import LEVELS, law, table
from test_report import simple_theory, studied

from jaxrecall.analysis.figures import plot
from jaxrecall.analysis.figures.style import grouped, interval, rounded
from jaxrecall.analysis.fit import fit
from jaxrecall.analysis.report import PICTURES, draw
from jaxrecall.errors import UsageError

cli = importlib.import_module("jaxrecall.report")
SIZES = {"column": 3.4, "text": 5.5, "4.2x3.1": 4.2}


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture
def quick(monkeypatch):
    simple_theory(monkeypatch)


def with_mlp():
    """Runs without an MLP, which cross at 1000 d / 32, and with two activations, which cross in inverse proportion to m."""
    frame = table({"d": [32, 64], "m": [0, 16, 64]}, lambda c: 1000 * c["d"] / 32 / max(1, c["m"] / 8))
    both = [frame[frame["m"] > 0].assign(activation=name) for name in ("gelu", "relu")]
    return pd.concat([frame[frame["m"] == 0].assign(activation="none"), *both], ignore_index=True)


def fonts(path):
    """The fonts of a PDF, (name, type), by pdffonts or else by its own dictionaries."""
    if shutil.which("pdffonts"):
        rows = subprocess.run(["pdffonts", str(path)], capture_output=True, text=True, check=True).stdout.splitlines()[2:]
        return {(row.split()[0].partition("+")[2], "TrueType" if " TrueType " in row else row[37:54].strip()) for row in rows}
    found = re.findall(rb"/BaseFont /\w+\+([\w-]+).{0,300}?/Subtype /(\w+)|/Subtype /(Type3)", path.read_bytes(), re.S)
    return {(name.decode(), "TrueType" if kind in (b"Type0", b"CIDFontType2") else (kind or other).decode()) for name, kind, other in found}


@pytest.mark.parametrize(("family", "name"), [(None, "DejaVuSans"), ("STIXGeneral", "STIXGeneral-Regular")])
def test_a_pdf_has_one_font_which_is_true_type(family, name, tmp_path, quick):
    file = tmp_path / "mine.mplstyle"
    file.write_text(f"font.family: {family}\ntext.usetex: True\nsavefig.bbox: tight\npdf.fonttype: 3\n")
    with look(style=file if family else None):
        draw(*studied(table({"d": [32, 64, 16384]}, law)), tmp_path, formats=["pdf"])
    paths = sorted(tmp_path.glob("*.pdf"))
    assert len(paths) >= 5
    assert {found for path in paths for found in fonts(path)} == {(name, "TrueType")}


@pytest.mark.parametrize("size", SIZES)
def test_every_figure_has_the_size_and_the_formats_that_were_asked_for(size, tmp_path, quick):
    with look(size):
        drawn, _ = draw(*studied(with_mlp()), tmp_path, formats=["svg", "png"])
    assert len(drawn) >= 5
    assert {round(float(picture.figure.get_figwidth()), 3) for picture, _ in drawn} == {SIZES[size]}
    if size == "4.2x3.1":
        assert {round(float(picture.figure.get_figheight()), 3) for picture, _ in drawn} == {3.1}
    for picture, _ in drawn:
        assert 'width="' in (tmp_path / f"{picture.name}.svg").read_text()[:2000]
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png"}


@pytest.mark.parametrize("make", [plot.accuracy, plot.critical_n, plot.collapse, plot.figure, lambda df, **how: plot.phase(df, "d", **how)])
def test_single_figures_take_a_size_and_a_style(make):
    drawn = make(table({"d": [32, 64]}, law), size="text", style={"font.size": 5, "axes.labelsize": 5})
    figure = drawn if make is plot.figure else drawn.figure
    assert figure.get_figwidth() == 5.5
    labels = [ax.xaxis.label for ax in figure.axes]
    assert labels[0].get_fontsize() == 5
    assert matplotlib.rcParams["axes.labelsize"] != 5


def test_a_size_does_not_go_with_axes_of_ones_own():
    with pytest.raises(UsageError, match="size: got 'text' with ax, whose figure has a size"):
        plot.accuracy(table({"d": [32, 64]}, law), plt.subplots()[1], size="text")


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("n", [2, 9, 18])
def test_the_legend_of_a_single_figure_stands_off_the_data_and_inside_the_figure(n, layout):
    frame = table({"d": [16 * (1 + i) for i in range(n)]}, law)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout=layout)
    for ax, call in zip(axes, (plot.accuracy, plot.collapse), strict=True):
        call(frame, ax=ax)
    figure.draw_without_rendering()
    boxes = [ax.get_legend().get_window_extent() for ax in axes]
    assert not any(box.overlaps(ax.get_window_extent()) for box in boxes for ax in axes)
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0 for box in boxes)


def dash_dotted(ax):
    return [np.asarray(line.get_xydata(), dtype=float) for line in ax.lines if line.get_linestyle() == "-."]


def test_panels_of_an_mlp_show_what_there_is_without_one():
    frame = with_mlp()
    mean = frame.assign(p=frame["n_correct"] / frame["n_test"]).groupby(["m", "d", "N"])["p"].mean()
    figure = plot.figure(frame, x="N", lines="m", panels="activation")
    assert [ax.get_title() for ax in figure.axes] == ["activation = gelu", "activation = relu"]
    figure = plot.figure(frame[frame["N"] == 512], x="m * d", lines="d", panels="activation")
    for ax in figure.axes:
        assert sorted(line[0, 1] for line in dash_dotted(ax)) == pytest.approx(sorted([mean[0, 32, 512], mean[0, 64, 512]]))
        assert {tuple(line.get_xdata()) for line in ax.lines if line.get_linestyle() == "-"} == {(512, 2048), (1024, 4096)}
    ax = plot.accuracy(frame[(frame["d"] == 32) & (frame["N"] == 512)], x="m * d")
    assert [line[0, 1] for line in dash_dotted(ax)] == [pytest.approx(mean[0, 32, 512])]
    assert "m = 0" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_report_takes_panels_and_arithmetic_along_x():
    about = studied(with_mlp(), x="m * d", lines="d", panels=["activation"])
    with look():
        (shown,) = PICTURES["critical N"](*about)
        accuracy, against = PICTURES["accuracy against N"](*about)
    assert [ax.get_title() for ax in shown.figure.axes] == ["activation = gelu", "activation = relu"]
    stars = fit(with_mlp(), [0.5], 100).thresholds.query("m == 0")["N_star"]
    for ax in shown.figure.axes:
        assert sorted(line[0, 1] for line in dash_dotted(ax)) == pytest.approx(sorted(stars))
    assert shown.figure.get_supxlabel() == against.figure.get_supxlabel() == "m * d"
    assert against.name == "accuracy-against"
    assert len(accuracy.figure.axes) < 7


def test_along_m_the_accuracy_without_an_mlp_is_a_line():
    frame = with_mlp().query("N == 512")
    (drawn, against) = PICTURES["accuracy against N"](*studied(with_attrs_along_m(frame), x="m * d", lines="d"))
    mean = frame[frame["m"] == 0].assign(p=lambda f: f["n_correct"] / f["n_test"]).groupby("d")["p"].mean()
    for picture in (drawn, against):
        assert {round(line[0, 1], 9) for ax in picture.figure.axes for line in dash_dotted(ax)} == {round(p, 9) for p in mean}


def with_attrs_along_m(frame):
    frame = frame.reset_index(drop=True)
    frame.attrs = {"axes": ["d", "m", "activation"], "searched": "m"}
    return frame


REFUSED = {
    "size": (["--size", "3"], "size: got '3'; allowed: column, text, or inches as in 3.4x2.6, each 1.5 to 20"),
    "too large": (["--size", "900x2"], "size: got '900x2'"),
    "style": (["--style", "no.mplstyle"], "style: got 'no.mplstyle'; no such file, nor a style of matplotlib; allowed: a .mplstyle file"),
    "x": (["--x", "m * width"], "x: 'm * width' has no width; allowed: N, V, d, L, m and arithmetic, as in 'm * d'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_a_line(case, tmp_path, capsys):
    given, said = REFUSED[case]
    table({"d": [32, 64]}, law).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), *given]) == 2
    told = capsys.readouterr().err.strip()
    assert told.count("\n") == 0
    assert said in told
    assert not (tmp_path / "t-report.html").exists()


def test_a_format_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(SystemExit):
        cli.main([str(tmp_path), "--format", "eps"])


def test_numbers_are_as_in_print():
    assert interval(17432.1, 8495.2, 35600.0) == "17\u202f400 [8500, 35\u202f600]"
    assert [rounded(x) for x in (0.01234, 1.0, 104.6, 9996.0, 1234567.0, 3e12, np.inf)] == [
        "0.0123", "1", "105", "10\u202f000", "1\u202f230\u202f000", "3e+12", "inf",
    ]  # fmt: skip
    assert interval(0.5, 0.25, 1.0, ".2f") == "0.50 [0.25, 1.00]"
    assert interval(np.nan) == ""
    assert [grouped(n) for n in (8192, 65536, -10000)] == ["8192", "65\u202f536", "-10\u202f000"]


def test_the_sizes_of_a_table_are_grouped(tmp_path):
    frame = table({"d": [32, 16384]}, law, levels=LEVELS)
    (picture,) = PICTURES["critical N"](*studied(frame))
    picture.figure.draw_without_rendering()
    assert "16\u202f384" in [text.get_text() for text in picture.figure.axes[0].get_xticklabels()]
