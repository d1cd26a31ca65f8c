"""The text of every figure can be read: no raw markup, no two texts on each other, none outside of the figure."""

import itertools

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text
from test_fit import law, table
from test_report import drawn, simple_theory
from test_report_traces import traced

from jaxrecall.analysis.figures import plot

COUNTS = (2, 9, 10, 40)
TEXTS = ("gaussian", "sphere", "orthogonal", "hadamard")


def values(axis, n):
    """So many values of an axis: whole numbers close together, 0 and powers, or names."""
    if axis in ("m", "eta"):
        return [0, *(np.geomspace(16, 4096, n - 1).round().astype(int).tolist() if n > 2 else [16])]
    if axis == "embedding":
        return [f"{TEXTS[i % 4]}(rho={i / 100:g})" for i in range(n)]
    return (16 + 8 * np.arange(n)).tolist()


def faults(figure):
    """What a reader of a figure cannot read."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else figure._get_renderer()
    edge = figure.bbox.padded(1)
    shown = {}
    for ax in [*figure.axes, figure]:
        hidden = not ax.get_visible()
        for text in ax.findobj(Text, include_self=False):
            if text.get_text().strip() and text.get_visible() and not hidden and (ax is figure or text not in shown):
                shown[text] = text.get_window_extent(renderer)
    for ax in figure.axes:  # ticks outside of the limits are not drawn
        for axis in (ax.xaxis, ax.yaxis):
            drawn_ticks = {id(tick) for tick in axis._update_ticks()} if ax.get_visible() and axis.get_visible() else set()
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if id(tick) not in drawn_ticks:
                    shown.pop(tick.label1, None), shown.pop(tick.label2, None)
    found = [f"raw: {text.get_text()}" for text in shown if "$" in text.get_text()]
    found += [
        f"outside: {t.get_text()} {box}"
        for t, box in shown.items()
        if not (box.x0 >= edge.x0 and box.x1 <= edge.x1 and box.y0 >= edge.y0 and box.y1 <= edge.y1)
    ]
    boxes = [(text.get_text(), box.padded(-0.5)) for text, box in shown.items()]
    return found + [f"overlap: {a!r} {b!r}" for (a, x), (b, y) in itertools.combinations(boxes, 2) if x.overlaps(y)]


def check(figures):
    bad = {name: found[:3] for name, figure in figures.items() if (found := faults(figure))}
    plt.close("all")
    assert bad == {}


@pytest.fixture
def quick(monkeypatch):
    simple_theory(monkeypatch)


@pytest.mark.parametrize(("axis", "n"), [("d", 2), ("d", 10), ("d", 40), ("embedding", 9), ("embedding", 40), ("m", 10), ("N", 40)])
def test_the_text_of_every_figure_of_a_report(axis, n, quick):
    levels = tuple(2**i for i in range(6, 14, 2)) if axis != "N" else values("N", n)
    frame = table({"d": [32, 64]} | ({axis: values(axis, n)} if axis != "N" else {}), law, levels, seeds=2)
    frame["noise_leakage"], frame["noise_bias"], frame["attention_mass"] = 0.1, 100.0 / frame["N"], 0.97
    frame["accuracy"] = frame["n_correct"] / frame["n_test"]
    frame["matched_accuracy"] = frame["accuracy"] / 2
    pictures, _ = drawn(frame, phases=[(axis, "N" if axis != "N" else "d")], **({"x": axis} if axis != "N" else {}))
    assert {"accuracy"} < {*pictures}
    check({name: picture.figure for name, picture in pictures.items()})


@pytest.mark.parametrize("n", [2, 40])
def test_the_text_of_every_figure_against_the_step(n, quick):
    steps = tuple(dict.fromkeys(np.geomspace(1, 10_000, n).round().astype(int).tolist())) if n < 40 else tuple(range(0, 40))
    frame = traced({"d": [32, 64]}, steps, levels=(64, 512), trains="VWZ")
    pictures, _ = drawn(frame[frame["seed"] < 2], "traces", "critical N against the step")
    assert len(pictures) > 4
    check({name: picture.figure for name, picture in pictures.items()})


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("axis", ["d", "m", "embedding", "gamma2"])
def test_the_text_of_single_figures(axis, n):
    axes = {axis: [1e-3 * 1.37**i for i in range(n)] if axis == "gamma2" else values(axis, n)}
    frame = table(axes, lambda c: 1000.0, (64, 512, 4096), seeds=2)
    frame["loss"], frame["accuracy"] = 1e-3 * frame["N"], frame["n_correct"] / frame["n_test"]
    frame["cosine"] = frame["accuracy"] - 2
    figures = {
        "accuracy": plot.accuracy(frame, x=axis).figure,
        "critical": plot.critical_n(frame, x=axis, theory=False).figure,
        "across": plot.phase(frame, "N", axis, theory=False).figure,
        "panels": plot.figure(frame, "cosine", x=axis, panels="N", lines=[]),
        "colour": plot.figure(frame, "N", x=axis, colour="cosine"),
        "colour log": plot.figure(frame, axis, x="N", colour="loss"),
    }
    if n < 20:
        figures |= {"lines": plot.accuracy(frame).figure, "collapse": plot.collapse(frame).figure}
    check(figures)
