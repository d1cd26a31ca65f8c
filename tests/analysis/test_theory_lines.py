"""Theory in figures: drawn lines pass through the formulas between tested values, and
end where these do.
"""

import numpy as np
import pytest
from panels import close, lines, marks  # noqa: F401
from test_fit import ours, table
from tolerances import assert_close

from jaxrecall import plot, theory
from jaxrecall.errors import TheoryError, TheoryWarning
from jaxrecall.theory import Model

LEVELS = (256, 1024, 4096, 16384)


def runs(**axes):
    return ours(table({"d": [64]} | axes, levels=LEVELS, seeds=6))


def drawn(ax):
    """The x and y of the line of theory where it is known."""
    (line,) = lines(ax, "--")
    return line[np.isfinite(line[:, 1])].T


def at(line, x):
    return np.exp(np.interp(np.log(x), *np.log(line)))


def test_a_line_bends_between_the_tested_values_as_theory_does():
    line = drawn(plot.critical_n(runs(L=[8, 512]), x="L"))
    for L in (30, 200):
        assert_close(at(line, L) / theory.critical_N(Model(V=64, d=64, L=L)), 1, 0.02)


@pytest.mark.filterwarnings("ignore:theta")
def test_a_line_ends_where_theory_is_infinite():
    line = drawn(plot.critical_n(runs(d=[16, 64]), x="d"))
    first = Model(V=64, d=round(line[0, 0]), L=8)
    assert theory.critical_N(first) < np.inf
    assert theory.critical_N(first.replace(d=round(0.85 * first.d))) == np.inf
    assert_close(at(line, 53) / theory.critical_N(first.replace(d=53)), 1, 0.02)


def test_a_line_ends_where_theory_covers_no_more():
    last = drawn(plot.critical_n(runs(eta=[0.01, 1000.0]), x="eta"))[0, -1]
    assert theory.critical_N(Model(V=64, d=64, L=8, eta=last)) > 1
    with pytest.raises(TheoryError, match=r"^eta: got"):
        theory.critical_N(Model(V=64, d=64, L=8, eta=2.6 * last))


@pytest.mark.slow
def test_a_critical_size_has_theory():
    frame = runs(V=[32, 64]).rename(columns={"N": "d", "d": "N"}).assign(N=4096)
    frame["d"] = frame["d"].map(dict(zip(LEVELS, (16, 32, 64, 128), strict=True)))
    line = drawn(plot.critical_n(frame, x="V", along="d"))
    assert_close(at(line, 48) / theory.critical(Model(V=48, L=8), "d", N=4096), 1, 0.02)


def test_where_another_setting_follows_x_theory_is_known_at_tested_values_alone():
    frame = runs(d=[32, 64, 128])
    ax = plot.critical_n(frame.assign(V=frame["d"]), x="d")
    assert not lines(ax, "--")
    known = {x for x, _ in marks(ax, "_")} & {32, 64, 128}
    expected = [theory.critical_N(Model(V=d, d=d, L=8)) for d in (32, 64, 128)]
    assert len(known) == np.isfinite(expected).sum()


def test_what_theory_warns_of_is_told_once_in_a_figure():
    frame = runs(d=[64, 72])
    frame["kappa"] = frame["d"].map({64: 2.0, 72: 3.0})
    with pytest.warns(TheoryWarning, match="kappa: got 2; theory holds") as told:
        plot.accuracy(frame, x="d", lines="N", theory=True)
    assert len(told) == 1
