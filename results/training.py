"""Training of all parameters from zero, compared with the three steps and the bound.

The data is in the study results/study/first-steps-training-long. The trigger is out of
the value path, and V = d = 64.
"""

import numpy as np
import pandas as pd
from bound import HIDDEN, LINES, least
from law import DASHED, STUDY
from table import CRITICAL, as_table, with_interval

from jaxrecall import load, plot
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N

STEPS = "three steps, eta to 0 (theory)"
CELL = ["optimizer", "L", "pool"]


def trained():
    """Returns N* of every cell by L, with the name of its optimiser, from its rows.

    Cells with fewer than 6 seeds are undecided, as the search is not finished.
    """
    rows = load(STUDY / "first-steps-training-long", last=True)
    rows = rows.assign(optimizer=rows["optimizer"].str.partition("(")[0])
    found = []
    for (optimizer, L, pool), cell in rows.groupby(CELL, dropna=False):
        crossing = fit(cell[["N", "seed", "accuracy"]], [0.5]).thresholds
        found.append(crossing.assign(optimizer=optimizer, L=L, pool=pool))
    found = pd.concat(found).sort_values("L", kind="stable").reset_index(drop=True)
    few = found["n_seeds"] < 6
    found.loc[few, [*CRITICAL, "N_star"]] = np.nan
    found.loc[few, "censored"] = "undecided"
    return found


def lines_along_L():
    """Returns one cell for each optimiser and L, with a pool at the largest L alone."""
    return trained().query("pool.isna() or L == L.max()")


def expected(lengths):
    """Returns N* of the three steps by theory, and the N of the bound, at each L."""
    rows = []
    for L in lengths:
        model = Model(V=64, d=64, L=int(L), trigger_in_value=False)
        rows.append({"L": L, STEPS: critical_N(model), HIDDEN: least(HIDDEN, model)})
    return pd.DataFrame(rows)


@as_table(["N*"], {"L = {L}": "{exact}", "L = {L}, pool": "{pooled}"}, "not run")
def training():
    """N* at accuracy 1/2 [95 %] of training from zero, by L.

    The last lines are the three steps by theory, and the bound.
    """
    lines = {}
    for _, cell in trained().iterrows():
        way = "exact" if pd.isna(cell["pool"]) else "pooled"
        line = lines.setdefault((cell["optimizer"], cell["L"]), {})
        line[way] = with_interval()(pd.DataFrame([cell]))
    for (optimizer, L), texts in lines.items():
        yield {"N*": optimizer, "L": L, "exact": None, "pooled": None} | texts
    others = expected(sorted({L for _, L in lines}))
    for name in (STEPS, HIDDEN):
        for L, number in zip(others["L"], others[name], strict=True):
            yield {"N*": name, "L": L, "exact": f"{number:,.0f}", "pooled": ""}


def along_L():
    """N* of training from zero along L, with the three steps and the bound."""
    found = lines_along_L()
    lengths = np.geomspace(found["L"].min(), found["L"].max(), 13)
    lines = expected(lengths.round().astype(int))
    steps = lines.assign(N_star=lines[STEPS])
    bound = lines.assign(N_star=lines[HIDDEN])
    over = [
        plot.Polyline(steps, "N_star", STEPS, DASHED),
        plot.Points(bound, "N_star", HIDDEN, LINES[HIDDEN], joined=True),
    ]
    return plot.figure(
        found.assign(training="from zero, " + found["optimizer"]),
        "N_star",
        x="L",
        lines="training",
        joined=True,
        over=over,
        labels={
            "N_star": "N*: samples for a test accuracy of 1/2",
            "L": "L: sequence length, tokens",
            "training": "",
        },
    )
