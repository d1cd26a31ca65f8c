"""The figure that a sweep ends with: what its heading says, and what its lines join."""

from unittest import mock

import matplotlib

matplotlib.use("Agg")

import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.text import Text
from test_fit import law, table

from jaxrecall.analysis.figures import curves
from jaxrecall.analysis.figures.grammar import Chart
from jaxrecall.analysis.figures.style import label, settings, symbol


def heading_of(frame, axes, tmp_path):
    """The heading that a sweep gives its figure, and the figure."""
    found, drawn_figure = [], Chart.figure
    with mock.patch.object(Chart, "figure", lambda self, title: found.append((title, drawn_figure(self, title))) or found[-1][1]):
        curves.draw_sweep(frame, axes, "mine", tmp_path / "accuracy.png")
    return found[0]


def test_the_heading_of_a_sweep_names_the_pool_and_the_laws_that_are_not_the_usual_ones(tmp_path):
    frame = table({"d": [32, 64]}, law).assign(
        pool=512, trigger_in_value=False, tokens="uniform", noise_tokens="uniform", activation="none"
    )
    frame = frame.assign(accuracy=frame["n_correct"] / frame["n_test"], embedding="equicorrelated(rho=0.1)")
    heading, figure = heading_of(frame, ["d", "N"], tmp_path)
    sizes, laws = "mine: V = 64, L = 8, m = 0", "embedding = equicorrelated(rho=0.1)"
    assert heading.startswith(f"{sizes}, pool = 512, {laws}, trigger_in_value = false\nmean over 8 seeds")
    figure.draw_without_rendering()
    (shown,) = [text for text in figure.findobj(Text) if text.get_text().startswith("mine: ")]
    box = shown.get_window_extent()
    assert 0 <= box.x0
    assert box.x1 <= figure.bbox.x1
    usual = frame.assign(pool=None, trigger_in_value=True, embedding="gaussian")
    assert heading_of(usual, ["d", "N"], tmp_path)[0].startswith(f"{sizes}\n")
    rho = [0.1, 0.3]
    varied = pd.concat([frame.assign(embedding=f"equicorrelated(rho={one})", **{"embedding.rho": one}) for one in rho], ignore_index=True)
    assert "embedding = equicorrelated, trigger_in_value = false\n" in heading_of(varied, ["embedding.rho", "d", "N"], tmp_path)[0]
    long = frame.assign(embedding='array(path="a-table-with-a-long-name.npy", hash="0123456789abcdef")')
    assert "embedding = array, trigger_in_value = false\n" in heading_of(long, ["d", "N"], tmp_path)[0]
    two = pd.concat([frame, frame.assign(embedding="sphere")], ignore_index=True)
    assert "embedding" not in heading_of(two, ["embedding", "d", "N"], tmp_path)[0].partition("\n")[0]


def test_a_mark_of_a_critical_value_has_the_colour_of_its_line():
    levels = pd.DataFrame({"d": [16, 16, 32, 32], "N": [10, 100] * 2, "accuracy": [0.1, 0.9, 0.2, 0.8], "low": 0.0, "high": 1.0})
    marks = pd.DataFrame({"d": [16, 32], "axis": "N", "critical": [30.0, 40.0], "lo": [25.0, 35.0], "hi": [35.0, 50.0], "theta": 0.5})
    shown = curves.chart(levels, "N", ["d"], thresholds=marks)
    lines = {len(line.get_xdata()) and tuple(line.get_xdata()): line for line in shown.figure().axes[0].lines}
    drawn = [line for line in shown.figure().axes[0].lines if len(line.get_xdata()) and line.get_marker() != "None"]
    of_lines = [to_hex(line.get_color()) for line in drawn if len(line.get_xdata()) == 2]
    of_marks = [to_hex(line.get_markerfacecolor()) for line in drawn if tuple(line.get_xdata()) in ((30.0,), (40.0,))]
    assert of_marks == of_lines == [to_hex(looks["color"]) for _, looks in shown.groups]
    assert to_hex(lines[25.0, 35.0].get_color()) == of_marks[0]


def test_a_parameter_of_a_law_goes_by_its_letter_where_the_font_has_it():
    names = ("embedding.rho", "embedding_out.rho", "embedding.rank", "kappa", "d")
    assert [symbol(name) for name in names] == ["ρ", *names[1:]]
    assert settings({"embedding.rho": 0.1, "d": 16}) == "ρ = 0.1, d = 16"
    assert label("embedding.rho") == "ρ"
    with matplotlib.rc_context({"font.family": "cmr10"}):
        assert symbol("embedding.rho") == "embedding.rho"


def test_a_line_is_faint_past_a_value_with_few_seeds():
    levels = pd.DataFrame({"N": [1, 2, 4, 8, 16, 32], "accuracy": [0.1, 0.2, 0.4, 0.6, 0.8, 0.9], "n_seeds": [8, 8, 1, 8, 8, 8]})
    lines = [line for line in curves.chart(levels.assign(low=0.0, high=1.0), "N", []).figure().axes[0].lines if len(line.get_xdata())]
    found = [(line.get_xdata().tolist(), line.get_marker(), line.get_alpha()) for line in lines]
    assert found == [([1, 2, 8, 16, 32], "none", 0.4), ([1, 2], "o", None), ([8, 16, 32], "o", None), ([4], "o", None)]
    ends = curves.chart(levels.assign(n_seeds=[1, 1, 8, 8, 8, 1], low=0.0, high=1.0), "N", []).figure().axes[0].lines
    assert [line.get_xdata().tolist() for line in ends if len(line.get_xdata())] == [[4, 8, 16], [1, 2, 32]]
