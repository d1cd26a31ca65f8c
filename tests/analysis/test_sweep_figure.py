"""The figure that a sweep ends with: what its heading says, and what its lines join."""

from unittest import mock

import matplotlib

matplotlib.use("Agg")

import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.text import Text
from test_fit import law, table

from jaxrecall.analysis.figures import charts
from jaxrecall.analysis.figures.grammar import Chart
from jaxrecall.analysis.figures.style import label, settings, symbol
from jaxrecall.analysis.fit.roles import OURS


def heading_of(frame, axes, tmp_path, thresholds=None):
    """The heading that a sweep gives its figure, and the figure."""
    found, drawn_figure = [], Chart.figure
    with mock.patch.object(
        Chart,
        "figure",
        lambda self, title, **options: (
            found.append((title, drawn_figure(self, title, **options))) or found[-1][1]
        ),
    ):
        charts.draw_sweep(
            frame,
            axes,
            "mine",
            tmp_path / "accuracy.png",
            thresholds,
            "N" if thresholds else "",
        )
    return found[0]


def test_the_heading_of_a_sweep_names_the_pool_and_the_laws_that_are_not_the_usual_ones(
    tmp_path,
):
    frame = table({"d": [32, 64]}, law).assign(
        pool=512,
        trigger_in_value=False,
        tokens="uniform",
        noise_tokens="uniform",
        activation="none",
    )
    frame = frame.assign(
        accuracy=frame["n_correct"] / frame["n_test"],
        embedding="equicorrelated(rho=0.1)",
    )
    heading, figure = heading_of(frame, ["d", "N"], tmp_path)
    sizes, laws = "mine: V = 64, L = 8, m = 0", "embedding = equicorrelated(rho=0.1)"
    assert heading.startswith(
        f"{sizes}, pool = 512, {laws}, trigger_in_value = false\nmean over 8 seeds"
    )
    figure.draw_without_rendering()
    (shown,) = [
        text for text in figure.findobj(Text) if text.get_text().startswith("mine: ")
    ]
    box = shown.get_window_extent()
    assert 0 <= box.x0
    assert box.x1 <= figure.bbox.x1
    usual = frame.assign(pool=None, trigger_in_value=True, embedding="gaussian")
    assert heading_of(usual, ["d", "N"], tmp_path)[0].startswith(f"{sizes}\n")
    rho = [0.1, 0.3]
    varied = pd.concat(
        [
            frame.assign(
                embedding=f"equicorrelated(rho={one})", **{"embedding.rho": one}
            )
            for one in rho
        ],
        ignore_index=True,
    )
    assert (
        "embedding = equicorrelated, trigger_in_value = false\n"
        in heading_of(varied, ["embedding.rho", "d", "N"], tmp_path)[0]
    )
    long = frame.assign(
        embedding='array(path="a-table-with-a-long-name.npy", hash="0123456789abcdef")'
    )
    assert (
        "embedding = array, trigger_in_value = false\n"
        in heading_of(long, ["d", "N"], tmp_path)[0]
    )
    two = pd.concat([frame, frame.assign(embedding="sphere")], ignore_index=True)
    assert (
        "embedding"
        not in heading_of(two, ["embedding", "d", "N"], tmp_path)[0].partition("\n")[0]
    )


def test_a_search_marks_its_thresholds_in_the_colour_of_their_line(tmp_path):
    frame = table({"d": [32, 64]}, law)
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    at = [
        {"d": 32, "critical": 1000.0, "lo": 800.0, "hi": 1300.0},
        {"d": 64, "critical": None, "lo": None, "hi": None},
    ]
    _, figure = heading_of(
        frame, ["d", "N"], tmp_path, [{"theta": 0.5, "axis": "N", **one} for one in at]
    )
    (ax,) = figure.axes
    (mark,) = [
        line for line in ax.lines if line.get_marker() == "d" and len(line.get_xdata())
    ]
    assert mark.get_xydata().tolist() == [[1000.0, 0.5]]
    line = next(line for line in ax.lines if line.get_linestyle() == "-")
    assert to_hex(mark.get_markerfacecolor()) == to_hex(line.get_color())
    bars = [
        path.vertices.tolist()
        for bars in ax.collections
        for path in bars.get_paths()
        if len(path.vertices) == 2
    ]
    assert bars == [[[800.0, 0.5], [1300.0, 0.5]]]
    assert "N* and 95 % interval" in [
        text.get_text() for text in figure.legends[0].get_texts()
    ]


def test_a_parameter_of_a_law_goes_by_its_letter_where_the_font_has_it():
    names = ("embedding.rho", "embedding_out.rho", "embedding.rank", "kappa", "d")
    assert [symbol(name) for name in names] == ["ρ", *names[1:]]
    assert settings({"embedding.rho": 0.1, "d": 16}) == "ρ = 0.1, d = 16"
    assert label("embedding.rho", OURS) == "ρ"


def test_levels_with_few_seeds_are_hollow_and_not_joined(tmp_path):
    frame = table(levels=[1, 2, 4, 8])
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    _, figure = heading_of(
        frame[(frame["seed"] == 0) | (frame["N"] != 4)], ["N"], tmp_path
    )
    found = [
        (line.get_xdata().tolist(), line.get_markerfacecolor() == "white")
        for line in figure.axes[0].lines
    ]
    assert found == [([1, 2, 8], False), ([4], True)]


def test_panels_of_one_line_each_become_the_lines_of_one_panel(tmp_path):
    pairs = [
        {"kappa": kappa, "gamma2": gamma2}
        for kappa, gamma2 in (
            (1.0, 0.1),
            (2.0, 0.2),
            (5.0, 0.5),
            (10.0, 1.0),
            (10.0, 9.0),
        )
    ]
    frame = pd.concat(
        [table({name: [value] for name, value in pair.items()}) for pair in pairs],
        ignore_index=True,
    )
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    _, figure = heading_of(frame, ["kappa", "gamma2", "N"], tmp_path)
    assert len(figure.axes) == 1
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == [
        f"kappa = {pair['kappa']:g}, gamma2 = {pair['gamma2']:g}" for pair in pairs
    ]
