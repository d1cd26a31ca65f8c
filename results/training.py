"""Training of V_mat and W_KQ from zero, compared with the three steps and the bound.

The data is in the study results/study/first-steps-training-long. The trigger is in
the key only, and V = d = 64.
"""

from functools import cache

import numpy as np
import pandas as pd
from bound import HIDDEN, LINES, WORDS, least
from first_steps import SEVERAL, ways
from law import DASHED, N_STAR, searched
from table import as_table, with_interval

from jaxrecall import plot
from jaxrecall.theory import Model, critical_N

STEPS = "three steps, eta -> 0 (theory)"
ABOVE = {"marker": "o", "color": "0.4"}


@cache
def trained():
    """Returns N* of every cell, with the name of its optimiser."""
    found = searched("first-steps-training-long")
    name = found["optimizer"].str.partition("(")[0]
    return found.assign(optimizer=name).sort_values(["optimizer", "L"])


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
    first = ways().query(
        "V == d == 64 and trigger == 'key only' and L <= @lengths.max()"
    )
    first = first[first["way"] == SEVERAL].rename(columns={"critical": "N_star"})
    over = [
        plot.Points(
            first[["L", "N_star"]],
            "N_star",
            "three steps after L / 8 first steps, eta_c / 4",
            ABOVE,
            joined=True,
        ),
        plot.Polyline(steps, "N_star", "three steps, eta -> 0, theory", DASHED),
        plot.Points(bound, "N_star", WORDS[HIDDEN], LINES[HIDDEN], joined=True),
    ]
    drawn = plot.figure(
        found.assign(training="from zero, " + found["optimizer"]),
        "N_star",
        x="L",
        lines="training",
        joined=True,
        over=over,
        labels=N_STAR | {"training": ""},
        size="4.6x4.2",
    )
    ax = drawn.axes[0]
    ax.set_ylim(top=2e5)
    pool, longest = found[["pool", "L"]].max()
    samples = f"pool of {pool:g} at L = {longest:g}, else independent samples"
    ax.set_title(f"V = d = 64, key only; {samples}", fontsize=7)
    return drawn
