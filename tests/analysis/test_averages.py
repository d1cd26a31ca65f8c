"""Means over seeds alone: figures of tables with axes that nobody named are right, or
are refused with advice that selects rows.
"""

import re
from argparse import Namespace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.special import expit
from test_fit import crossed, with_attrs

from jaxrecall import plot
from jaxrecall.analysis import report
from jaxrecall.analysis.figures.figure import Chart
from jaxrecall.analysis.figures.table_of_runs import MEASURE, Runs
from jaxrecall.analysis.figures.theory_lines import Theory
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.errors import FitError, UsageError
from jaxrecall.fit import fit

SIZES = {"V": [64], "L": [8], "m": [0], "d": [32, 64]}
N_TEST = 10**6


def counted(table, n_correct):
    return table.assign(n_correct=n_correct, n_test=N_TEST, accuracy=n_correct / N_TEST)


def runs(axes, /, seeds=3, **attrs):
    """Runs at all combinations of the axes. The mean accuracy over seeds is different
    at each, so a mean over more than seeds is the mean at none.
    """
    levels = {"N": (64, 512, 4096), "seed": range(seeds)} | axes
    table = crossed(**axes | {name: levels[name] for name in ("N", "seed")})
    others = [name for name in axes if name != "N"]
    i = table.groupby(others, sort=False, dropna=False).ngroup()
    x = np.log(table["N"] / 500) + 0.1 * (table["seed"] - 1) - 0.173 * i
    return with_attrs(counted(table, (N_TEST * expit(x)).round().astype(int)), **attrs)


def with_rho(table):
    rho = table["embedding"].str.extract(r"rho=([\d.]+)")[0]
    return table.assign(**{"embedding.rho": rho.astype(float)})


def with_gamma(table):
    gamma = table["kappa"] * table["L"] ** 2 * table["V"] / 0.1
    return table.assign(eta=0.1, gamma=gamma)


def merged():
    first = runs(SIZES | {"eta": [0.1]})
    second = runs(SIZES | {"eta": [0.2], "N": (128, 512, 2048)})
    second = counted(second, second["n_correct"] - 12_345)
    return with_attrs(pd.concat([first, second], ignore_index=True), axes=["d", "N"])


def searched():
    """A search: its cells have few levels in common, or none."""
    table = runs(SIZES | {"L": [8, 16], "N": (64, 256, 1024, 4096)})
    table["N"] *= 1 + (table["L"] == 16) + 2 * (table["d"] == 64)
    return with_attrs(table, axes=["d", "L", "N"], searched="N")


def own():
    """Runs of a user's simulator."""
    table = runs({"width": [1.0, 2.0], "kind": ["a", "b"], "depth": [1, 2]})
    table = table.drop(columns=["n_test", "n_correct"])
    fields = ["width", "kind", "depth", "N"]
    table["loss"] = 1 - table["accuracy"]
    return with_attrs(table, accuracy="accuracy", fields=fields)


def foreign(**columns):
    table = runs({"width": [32, 64], "ctx": [4, 8]} | columns)
    return table.assign(loss=1 - table["accuracy"], epoch=7 + table["seed"])


LAWS = {"embedding": ["gaussian", "equicorrelated(rho=0.2)"]}
TABLES = {
    "ours with two laws": with_rho(runs(SIZES | LAWS, axes=["embedding", "d", "N"])),
    "two laws with parameters": with_rho(
        runs(SIZES | {"embedding": [*LAWS["embedding"], "equicorrelated(rho=0.4)"]})
    ),
    "laws without columns of parameters": runs(
        SIZES | {"embedding": ["equicorrelated(rho=0.1)", "equicorrelated(rho=0.2)"]}
    ),
    "two steps": runs(SIZES | {"L": [8, 16], "steps": [30], "step": [3, 30]}),
    "pool": runs(SIZES | {"pool": [None, 64]}, axes=["pool", "d", "N"]),
    "kappa given": with_gamma(runs(SIZES | {"L": [8, 16], "kappa": [1.0, 100.0]})),
    "eta": runs(SIZES | {"eta": [0.1, 1e-4]}),
    "fresh batches": runs(SIZES | {"fresh_batches": [True, False]}),
    "merged of two sweeps": merged(),
    "a search": searched(),
    "a float32 axis": runs(SIZES | {"eta": [0.1, 0.3]}).astype({"eta": np.float32}),
    "a user's simulator": own(),
    "a foreign table with counts": foreign().drop(columns="accuracy"),
    "a foreign table without counts": foreign(
        model=['O\'Neill "s"', "mine", None]
    ).drop(columns=["n_test", "n_correct"]),
    "a foreign table with a column unlike an axis": foreign()
    .assign(run=lambda t: "x" + (t["seed"] + 3 * (t["ctx"] // 8)).astype(str))
    .drop(columns=["ctx"]),
    "categories": runs(SIZES | {"L": [8, 16], "activation": ["relu", "gelu"]}).astype(
        {"activation": "category"}
    ),
    "an axis listed in attrs": runs(SIZES | {"note": [1, 2]}, axes=["note", "d", "N"]),
}
"""Tables of runs with two or more axes besides N."""

AX = Figure().subplots()
"""Axes on which nothing is drawn; new ones would take longer than all else."""

NO_AXES = {"N", "seed", "n_correct", "n_test", "accuracy", "loss", "epoch"}


def reported(df, x):
    """All charts of a report with --x."""
    roles = roles_of(df)
    made = Runs.of(df, roles, "N")
    found = made.fitted([0.5])
    asked = Namespace(theta=[0.5], x=x, lines=None, panels=())
    for _, _, chart in report.figures(made, found, asked, Theory(made)):
        chart.figure()


def figures(df, a, y):
    """Calls that draw a table; a is an axis and y the measure."""
    figure = partial(plot.figure, df, y)
    return [
        partial(figure, x="N"),
        partial(figure, x="N", lines=a),
        partial(figure, x="N", lines=[]),
        partial(figure, lines=[], panels=[a]),
        partial(figure, x=a, lines="N"),
        partial(plot.figure, df, a, x="N", colour=y),
        partial(plot.accuracy, df, AX),
        partial(plot.accuracy, df, AX, lines=a),
        partial(plot.critical_n, df, AX, theory=False),
        partial(plot.critical_n, df, AX, x=a, theory=False),
        partial(plot.phase, df, a, "N", AX, theory=False),
        partial(plot.collapse, df, AX),
        partial(reported, df, a),
    ]


@pytest.fixture
def drawn(monkeypatch):
    """The charts that are made. Nothing is drawn, which would take minutes."""
    charts = []
    monkeypatch.setattr(Chart, "figure", lambda chart, **_: charts.append(chart))
    monkeypatch.setattr(Chart, "on", lambda chart, ax: charts.append(chart))
    return charts


def n_wrong(chart, df, axes):
    """How many values of a chart are the value at no setting."""
    table, y = chart.layers[0].table, chart.layers[0].y
    if y == "critical":
        place = table.duplicated([chart.x, *chart.lines, *chart.panels])
        return int(place.sum())
    share = df["accuracy"] if "accuracy" in df else df["n_correct"] / N_TEST
    settings = df.assign(**{MEASURE: share}).groupby(
        [*axes, "N"], dropna=False, observed=True
    )
    right = settings[y].mean()
    near = np.abs(table[y].to_numpy()[:, None] - right.to_numpy())
    return int((near.min(axis=1) > 1e-9 * right.max()).sum())


def followed(error, df):
    """The rows that the advice of a message selects."""
    message = str(error)
    assert "\n" not in message
    code = re.search(r"as in (df\.drop_duplicates\(.*?\))", message)
    if code:
        return eval(code[1], {"df": df})
    named = re.search(r"(?:several values of|mixes|lines of one) (.*)[;:]", message)
    assert named, message
    for name in df:
        if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", named[1]):
            first = df[name].iloc[0]
            df = df[df[name].isna() if pd.isna(first) else df[name] == first]
    return df


def misleading(kind, chosen, drawn):
    """Draws some figures of a table, and returns the numbers of those that mislead."""
    df = TABLES[kind]
    axes = [name for name in df if name not in NO_AXES]
    first = "width" if "width" in df else "d"
    calls = figures(df, first, "accuracy" if "accuracy" in df else "n_correct")
    wrong = []
    for i in chosen:
        drawn.clear()
        try:
            calls[i % len(calls)]()
            is_right = drawn and not any(n_wrong(chart, df, axes) for chart in drawn)
        except (UsageError, FitError) as error:
            is_right = 0 < len(followed(error, df)) < len(df)
        if not is_right:
            wrong.append(i)
    return wrong


@pytest.mark.parametrize(("i", "kind"), [*enumerate(TABLES)][::3])
def test_no_figure_is_a_mean_over_more_than_seeds(i, kind, drawn):
    """Here some tables make two of the figures."""
    assert misleading(kind, [i, i + 5], drawn) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_no_figure_of_any_kind_is_a_mean_over_more_than_seeds(kind, drawn):
    assert misleading(kind, range(13), drawn) == []


def advised(draws, df, words):
    """The rows that each refusal of a figure advises to take."""
    for draw in draws:
        with pytest.raises((UsageError, FitError), match=words) as got:
            draw(df)
        yield followed(got.value, df)


def test_seeds_of_their_own_do_not_hide_a_setting():
    """No seed comes twice, and the table lists no axis eta."""
    table = merged()
    first, second = table[table["eta"] == 0.1], table[table["eta"] == 0.2]
    second = second.assign(seed=second["seed"] + 3, N=first["N"].tolist())
    both = pd.concat([first, second], ignore_index=True)
    both.attrs = {"axes": ["d", "N"]}
    draws = (plot.accuracy, plot.critical_n, plot.collapse)
    for rows in advised(draws, both, "several values of eta"):
        assert set(rows["eta"]) == {0.1}


def test_what_follows_from_a_place_needs_none(drawn):
    """N = 8 V, and gamma from kappa, V and L."""
    table = runs(SIZES | {"V": [16, 32, 64], "N": (64,)}).assign(kappa=100.0)
    table["N"] = 8 * table["V"]
    table = with_gamma(table).assign(n_test=N_TEST + 2 * table["seed"])
    plot.phase(table, "d", "V", AX, theory=False)
    plot.figure(table, "accuracy", x="V", lines="d")
    plot.figure(table, "d", x="V", colour="accuracy")
    places = [[*chart.lines, *chart.panels] for chart in drawn]
    assert places == [[], ["d"], []]


def test_cells_of_a_search_without_a_common_level_have_a_line_each(drawn):
    table = searched()
    apart = table.assign(N=table["N"] + table["d"] + table["L"])
    plot.figure(with_attrs(apart, **table.attrs), "accuracy", x="N")
    assert sorted(drawn[0].lines) == ["L", "d"]


def test_a_law_with_parameters_has_a_place_by_its_text():
    laws = ["gaussian", "equicorrelated(rho=0.2)", "equicorrelated(rho=0.5)"]
    df = with_rho(runs(SIZES | {"embedding": laws}))
    (ax,) = plot.figure(df[(df["d"] == 32) & (df["N"] == 64)], x="embedding").axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == sorted(laws)[::-1]
    assert len(ax.lines) == 1
    assert len(plot.figure(df[df["d"] == 32], lines="embedding").axes[0].lines) == 3


def test_repeated_runs_are_no_seeds(drawn):
    once = runs(SIZES)
    twice = pd.concat([once, once.assign(seconds=2.0)], ignore_index=True)
    mixed = twice.assign(code_version=[1] * len(once) + [2] * len(once))
    draws = (partial(plot.figure, lines="d"), plot.accuracy)
    for table, words in ((twice, "drop_duplicates"), (mixed, "code_version")):
        for rows in advised(draws, table, words):
            assert len(rows) == len(once)
    other = pd.concat([once, once.assign(n_correct=0)], ignore_index=True)
    for draw in draws:
        with pytest.raises((UsageError, FitError), match="add the column that does"):
            draw(other)
    assert not drawn


def test_thresholds_name_laws_as_the_table_does():
    two, three = TABLES["ours with two laws"], TABLES["two laws with parameters"]
    plain = two.copy()
    plain.attrs = {}
    for table, name in (
        (two, "embedding"),
        (plain, "embedding"),
        (three, "embedding.rho"),
    ):
        found = fit(table).thresholds
        assert len(found.merge(table, on=[name, "d"])) == len(table)


def test_marks_of_two_laws_at_one_place_are_two_lines(drawn):
    found = fit(TABLES["ours with two laws"], [0.4, 0.5]).thresholds
    figure = partial(plot.figure, y="N_star", x="d")
    figure(found)
    figure(found[found["theta"] == 0.5], panels="embedding")
    plot.figure(found, "embedding", x="theta", panels="d", colour="N_star")
    assert [chart.lines for chart in drawn] == [["embedding", "theta"], [], []]
    draws = (
        partial(figure, lines=["theta"]),
        partial(figure, lines=[]),
        partial(plot.figure, y="theta", x="d", colour="N_star"),
    )
    for rows in advised(draws, found, r"several values of .*embedding"):
        assert 0 < len(rows) < len(found)
