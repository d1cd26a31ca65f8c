"""The text of every figure can be read: no raw markup, no two texts on each other, none outside of the figure.

Tables are made up, of 2 to 40 values on each axis in turn; every figure of a report and of `jaxrecall.plot` is laid out at its size.
"""

import io
import itertools
from collections import Counter

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from jaxrecall.analysis.figures.paper import look
from matplotlib.text import Text
from test_fit import law, table
from test_report import drawn, simple_theory
from test_report_traces import traced

from jaxrecall.analysis.figures import plot

COUNTS = (2, 9, 10, 40)
TEXTS = ("gaussian", "sphere", "orthogonal", "hadamard")
AXES = ("d", "L", "V", "m", "embedding", "embedding.rho", "gamma2", "kappa", "batch")
ALONG = ("d", "L", "V", "m", "embedding.rho")
QUICK = {
    ("d", 10),
    ("m", 2),
    ("along L", 9),
    ("single embedding", 9),
    ("single m", 40),
    ("single embedding.rho", 10),
    ("single kappa", 9),
    ("single batch", 2),
}
CHECKED: Counter[str] = Counter()


def values(axis, n):
    """So many values of an axis: whole numbers close together, 0 and powers, shares, or names."""
    if axis in ("m", "eta"):
        return [0, *(np.geomspace(16, 4096, n - 1).round().astype(int).tolist() if n > 2 else [16])]
    if axis == "embedding":
        return [f"{TEXTS[i % 4]}(rho={i / 100:g})" for i in range(n)]
    if axis == "gamma2":
        return [1e-3 * 1.37**i for i in range(n)]
    if axis == "embedding.rho":
        return np.round(np.linspace(0.01, 0.9, n), 4).tolist()
    return (16 + 8 * np.arange(n)).tolist()


def each(*kinds):
    """Every axis with every count of values; those that take long are slow."""
    cases = [(kind, n) for kind in kinds for n in COUNTS]
    return [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow, id=f"{case[0]}-{case[1]}") for case in cases]


def texts(figure):
    """Every text that is drawn, with its box."""
    layout = figure.get_layout_engine()
    layout.execute(figure)
    figure.set_layout_engine("none")  # laid out once
    figure.draw_without_rendering()
    hidden = {text for ax in figure.axes if not ax.get_visible() for text in ax.findobj(Text)}
    for ax in (ax for ax in figure.axes if ax.get_visible()):  # ticks outside of the limits are not drawn
        for axis in (ax.xaxis, ax.yaxis):
            shown = {*axis._update_ticks()} if axis.get_visible() else set()
            away = [tick for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()] if tick not in shown]
            hidden |= {label for tick in away for label in (tick.label1, tick.label2)}
    every = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible() and text not in hidden]
    return [(text.get_text(), text.get_window_extent()) for text in every]


def faults(figure):
    """What a reader of a figure cannot read."""
    shown, edge, svg = texts(figure), figure.bbox.padded(1), io.StringIO()
    CHECKED.update(figures=1, texts=len(shown))
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(svg, format="svg")
    found = [f"raw: {text}" for text, _ in shown if "$" in text]
    found += ["raw: $\\math in the SVG"] * ("$\\math" in svg.getvalue() or "mathdefault" in svg.getvalue())
    found += [f"outside: {text} {box}" for text, box in shown if not (edge.contains(box.x0, box.y0) and edge.contains(box.x1, box.y1))]
    boxes = [(text, box.padded(-0.5)) for text, box in shown]
    found += [f"overlap: {a!r} {b!r}" for (a, x), (b, y) in itertools.combinations(boxes, 2) if x.overlaps(y)]
    return found + ["no text"] * (len(shown) < 4)


def check(figures):
    bad = {name: found[:3] for name, figure in figures.items() if (found := faults(figure))}
    plt.close("all")
    assert bad == {}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    simple_theory(monkeypatch)


def measured(frame):
    """The table with columns that every figure of a report needs."""
    accuracy = frame["n_correct"] / frame["n_test"]
    noise = {"noise_leakage": 0.1, "noise_bias": 100.0 / frame["N"].clip(1), "attention_mass": 0.97}
    return frame.assign(accuracy=accuracy, matched_accuracy=accuracy / 2, **noise)


@pytest.mark.parametrize(("axis", "n"), [*each(*AXES, "N")])
def test_the_text_of_every_figure_of_a_report(axis, n):
    levels = tuple(2**i for i in range(6, 14, 2)) if axis != "N" else values("N", n)
    other = "d" if axis != "d" else "L"
    frame = measured(table({other: [32, 64]} | ({axis: values(axis, n)} if axis != "N" else {}), law, levels, seeds=2))
    pictures, _ = drawn(frame, phases=[(axis, "N" if axis != "N" else other)], **({"x": axis} if axis != "N" else {}))
    assert {"accuracy"} < {*pictures}
    check({name: picture.figure for name, picture in pictures.items()})


def along(axis, n):
    """Runs of a search along an axis other than N, on which accuracy rises or falls."""
    other = "L" if axis == "d" else "d"
    levels = [8, *values(axis, n)[1:]] if axis == "m" else values(axis, n)
    frame = table({other: [32, 64]}, lambda c: 100.0 * c[other] / 32, levels, seeds=2)
    if axis in ("L", "V"):
        frame["n_correct"] = frame["n_test"] - frame["n_correct"]
    frame = measured(frame).drop(columns=[axis] if axis in frame else []).rename(columns={"N": axis}).assign(N=4096)
    frame.attrs = {"axes": [other, axis], "searched": axis}
    return frame


@pytest.mark.parametrize(("name", "n"), each(*(f"along {axis}" for axis in ALONG)))
def test_the_text_of_every_figure_along_another_axis(name, n):
    axis = name.removeprefix("along ")
    frame = along(axis, n)
    pictures, _ = drawn(frame)
    figures = {key: picture.figure for key, picture in pictures.items()}
    if axis != "d":
        figures |= {"plot": plot.accuracy(frame).figure, "critical": plot.critical_n(frame).figure}
        figures |= {"map": plot.phase(frame, "d", axis).figure}
    assert len(figures) >= 3
    check(figures)


@pytest.mark.parametrize("n", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_the_text_of_every_figure_against_the_step(n):
    steps = (3, 100) if n == 2 else tuple(range(0, 40))
    frame = traced({"d": [32, 64]}, steps, levels=(64, 512), trains="VWZ")
    pictures, _ = drawn(frame[frame["seed"] < 2], "traces", "critical N against the step")
    assert len(pictures) > 4
    check({name: picture.figure for name, picture in pictures.items()})


@pytest.mark.parametrize("size", ["column", pytest.param("text", marks=pytest.mark.slow), pytest.param("4.2x3.1", marks=pytest.mark.slow)])
def test_the_text_of_figures_of_a_size_and_of_an_mlp(size):
    frame = table({"d": [32, 64], "m": [0, 16, 64]}, lambda c: 1000 * c["d"] / 32 / max(1, c["m"] / 8), seeds=2)
    both = [frame[frame["m"] > 0].assign(activation=name) for name in ("gelu", "mixed(linear=0.3)")]
    frame = measured(pd.concat([frame[frame["m"] == 0].assign(activation="none"), *both], ignore_index=True))
    with look(size):
        pictures, _ = drawn(frame, x="m * d", lines="d", panels=["activation"])
        check({name: picture.figure for name, picture in pictures.items()})
    check({"panels": plot.figure(frame, x="m * d", lines="d", panels=["activation", "N"], size=size)})


@pytest.mark.parametrize(("name", "n"), each(*(f"single {axis}" for axis in AXES)))
def test_the_text_of_single_figures(name, n):
    axis = name.removeprefix("single ")
    frame = table({axis: values(axis, n)}, lambda c: 1000.0, (64, 512, 4096), seeds=2)
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


def test_how_much_was_checked(capsys):
    with capsys.disabled():
        print(f" {CHECKED['figures']} figures with {CHECKED['texts']} texts", end="")
    assert CHECKED["texts"] >= 15 * CHECKED["figures"]
