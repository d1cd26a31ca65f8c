"""Theory in figures: drawn lines pass through the formulas between tested values, and
end where these do.
"""

import re

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from test_fit import ours, table

from jaxrecall import theory
from jaxrecall.analysis.figures import plot
from jaxrecall.analysis.figures.curve import FRACTION, LOG, Curve
from jaxrecall.errors import TheoryWarning
from jaxrecall.theory import Model
from jaxrecall.theory.critical import critical_near

LEVELS = (256, 1024, 4096, 16384)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def runs(**axes):
    return ours(table({"d": [64]} | axes, levels=LEVELS, seeds=6))


def drawn(ax):
    """The x and y of the line of theory."""
    (line,) = [line for line in ax.lines if line.is_dashed()]
    return np.asarray(line.get_xydata(), dtype=float).T


def at(line, x):
    return np.exp(np.interp(np.log(x), *np.log(line)))


def marks(ax, marker):
    found = [line for line in ax.lines if line.get_marker() == marker]
    return [xy.tolist() for line in found for xy in np.asarray(line.get_xydata())]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_line_bends_between_the_tested_values_as_theory_does():
    line = drawn(plot.critical_n(runs(L=[8, 512]), x="L"))
    for L in (30, 64, 200):
        expected = theory.critical_N(Model(V=64, d=64, L=L))
        assert at(line, L) == pytest.approx(expected, rel=0.02)


def test_a_line_ends_with_a_mark_where_theory_is_infinite():
    ax = plot.critical_n(runs(d=[16, 64]), x="d")
    x, y = drawn(ax)
    last = Model(V=64, d=round(x[0]), L=8)
    assert np.isfinite(critical_near(last, "N", 0.5))
    assert critical_near(last.replace(d=last.d - 1), "N", 0.5) == np.inf
    ((place, height),) = marks(ax, "^")
    assert place == pytest.approx(x[0])
    low, high = ax.get_ylim()
    assert low < height < high, "the mark is inside"
    assert "theory is infinite beyond" in legend(ax)
    assert at((x, y), 53) == pytest.approx(
        theory.critical_N(Model(V=64, d=53, L=8)), rel=0.02
    )


@pytest.mark.slow
def test_a_critical_size_and_accuracy_against_it_have_theory():
    swapped = {"N": "d", "d": "N"}
    frame = runs(V=[32, 64]).rename(columns=swapped).assign(N=4096)
    frame["d"] = frame["d"].map(dict(zip(LEVELS, (16, 32, 64, 128), strict=True)))
    line = drawn(plot.critical_n(frame, x="V", along="d"))
    expected = theory.critical(Model(V=48, L=8), "d", N=4096)
    assert at(line, 48) == pytest.approx(expected, rel=0.02)
    x, y = drawn(plot.accuracy(frame[frame["V"] == 64], x="d", theory=True))
    expected = theory.accuracy(Model(V=64, d=90, L=8), 4096)
    assert np.interp(90, x, y) == pytest.approx(expected, abs=0.02)


def test_where_another_setting_follows_x_theory_is_known_at_tested_values_alone():
    frame = runs(d=[32, 64, 128])
    frame["V"] = frame["d"]
    ax = plot.critical_n(frame, x="d")
    assert not [line for line in ax.lines if line.is_dashed()]
    known = [xy[0] for xy in marks(ax, "_") if xy[0] in (32, 64, 128)]
    expected = [theory.critical_N(Model(V=d, d=d, L=8)) for d in (32, 64, 128)]
    assert len({*known}) == np.isfinite(expected).sum()


def test_what_theory_warns_of_is_told_once_in_a_figure():
    frame = runs(d=[64, 72])
    frame["kappa"] = frame["d"].map({64: 2.0, 72: 3.0})
    with pytest.warns(TheoryWarning, match="kappa: got 2; theory holds") as told:
        plot.accuracy(frame, x="d", lines="N", theory=True)
    assert len(told) == 1
    assert re.search(
        r"\(\d+ predictions of theory are affected\)", str(told[0].message)
    )


@pytest.mark.parametrize("guess", [1640.0, 5000.0])
def test_a_search_near_a_guess_finds_the_same(guess):
    model = Model(V=64, d=64, L=64)
    expected = theory.critical_N(model)
    assert critical_near(model, "N", 0.5, guess=guess) == pytest.approx(
        expected, rel=0.005
    )
    none = Model(V=64, d=32, L=8)
    assert critical_near(none, "N", 0.5, guess=guess) == np.inf


def bent(x):
    return x**-0.5 + (x / 100) ** 2


def test_a_curve_needs_few_evaluations_and_ends_where_the_function_does():
    asked = []

    def function(x, guess):
        asked.append(x)
        if x < 10:
            return np.inf
        return np.nan if x > 5000 else bent(x)

    curve = Curve(function, LOG, whole=False).trace([1.0, 100.0, 10000.0])
    assert len(asked) == len({*asked}) < 45
    ((x, y),) = curve.pieces()
    np.testing.assert_allclose(y, bent(x), rtol=0.02)
    first, last = curve.ends()
    assert 10 <= first.x < 10.3
    assert first.beyond == np.inf
    assert 4850 < last.x <= 5000
    assert np.isnan(last.beyond)


def test_a_curve_of_fractions_on_whole_numbers():
    def function(x, guess):
        assert isinstance(x, int)
        return x**2 / (x**2 + 400)

    curve = Curve(function, FRACTION, whole=True).trace([1, 200])
    ((x, y),) = curve.pieces()
    np.testing.assert_allclose(y, x**2 / (x**2 + 400), atol=0.01)
    assert not curve.ends()
