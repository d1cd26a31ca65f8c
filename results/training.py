"""Training of V_mat and W_KQ from zero, compared with the three steps and the bound.

The data is in the studies results/study/first-steps-training-long (V = d = 64, 256
steps), steps-training (several numbers of steps) and steps-training-rates. The trigger
is in the key only.
"""

from functools import cache

import numpy as np
import pandas as pd
from bound import HIDDEN, LINES, WORDS, least
from first_steps import SEVERAL, ways
from law import DASHED, N_STAR, STUDY, searched
from table import as_table, with_interval

from jaxrecall import load, plot
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
            "three steps, L / 8 first steps at eta_c / 4",
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


@cache
def by_steps():
    """Returns N* of every cell of the study of the number of steps."""
    cells = searched("steps-training")
    samples = cells["pool"].isna().map({True: "independent", False: "pool"})
    name = cells["optimizer"].str.partition("(")[0]
    by_formula = 8 * cells["V"] ** 2 / ((1 + cells["V"] / cells["d"]) * cells["steps"])
    is_faster = (name == "sgd") & (cells["lr"] > 2 * by_formula)
    name = name.mask(is_faster, "sgd, V_mat x 4, W_KQ / 4")
    return cells.assign(optimizer=name, samples=samples)


@as_table(
    ["optimizer", "V", "L", "samples"],
    {"T = {steps}": with_interval("commas")},
    missing="not run",
)
def training_steps():
    """N* at accuracy 1/2 [95 %] of training from zero, by the number T of steps, V = d.

    The samples are independent, or their noise tokens come from a pool.
    """
    keys = ["optimizer", "V", "samples", "L", "steps"]
    return by_steps().sort_values(keys, ascending=[False, True, False, True, True])


def local_slope(cells):
    """Formats ln of the ratio of N* over ln of the ratio of L, for two lengths."""
    if cells["critical"].isna().any():
        return "not known"
    ends = np.log(cells.sort_values("L")[["critical", "L"]].astype(float))
    rise = ends.diff().iloc[-1]
    return f"{rise['critical'] / rise['L']:.2f}"


@as_table(
    ["optimizer", "V", "between"], {"T = {steps}": local_slope}, missing="not run"
)
def training_slopes():
    """Local slopes of N* in L of training from zero, with a pool, by the number T of
    steps.
    """
    cells = by_steps().query("samples == 'pool'")
    pairs = []
    for short, long in ((64, 256), (256, 1024)):
        pair = cells[cells["L"].isin([short, long])]
        pairs.append(pair.assign(between=f"L = {short} and {long}"))
    keys = ["optimizer", "V", "between", "steps"]
    rows = pd.concat(pairs).sort_values(keys, ascending=[False, True, False, True])
    both = rows.groupby(keys)["L"].transform("nunique") == 2
    return rows[both]


@as_table(
    ["optimizer", "L", "steps", "rate of V_mat"],
    {"rate of W_KQ times {scale_attention}": "{accuracy:.2f}"},
)
def training_rates():
    """Mean accuracy over N and 8 seeds, with the rates of a formula times 1/4, 1, 4.

    V = d = 32. N is 40, 80, 160 (128 steps), 200, 800, 3200 (32 steps), or 256.
    """
    rows = load(STUDY / "steps-training-rates", last=True)
    name = rows["optimizer"].str.partition("(")[0]
    factor = "times " + rows["scale"].map("{:g}".format)
    rows = rows.assign(optimizer=name, **{"rate of V_mat": factor})
    keys = ["optimizer", "L", "steps", "scale"]
    return rows.sort_values(keys, ascending=[False, True, True, True])


def against_steps():
    """N* against the number of steps, a line for each L, with V ln 2 and the bound for
    trigger-blind learners.
    """
    cells = by_steps().query("V == 32 and samples == 'pool'")
    ends = [cells["steps"].min(), cells["steps"].max()]
    ticks = pd.DataFrame({"steps": ends})
    hidden = [
        {"L": L, "N_star": least(HIDDEN, Model(V=32, d=32, L=int(L)))}
        for L in sorted(cells["L"].unique())
    ]
    bound = pd.DataFrame(hidden).merge(ticks, how="cross")
    labels_seen = ticks.assign(N_star=32 * np.log(2))
    dotted = {"linestyle": ":", "marker": "none", "color": "0"}
    return plot.figure(
        cells,
        "N_star",
        x="steps",
        lines="L",
        columns="optimizer",
        joined=True,
        over=[
            plot.Polyline(bound, "N_star", "bound, trigger-blind", DASHED),
            plot.Polyline(labels_seen, "N_star", "V ln 2", dotted),
        ],
        labels=N_STAR
        | {"steps": "T: number of steps of V_mat and W_KQ", "optimizer": ""},
    )
