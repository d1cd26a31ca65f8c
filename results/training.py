"""Training of V_mat and W_KQ from zero: N* by the number of steps.

The data is in the studies results/study/steps-training and steps-training-rates, which
shows how the rates were chosen.
"""

from functools import cache

import numpy as np
import pandas as pd
from bound import HIDDEN, least
from first_steps import with_slopes
from law import DASHED, N_STAR, STUDY, searched
from table import as_table, with_interval

from jaxrecall import load, plot
from jaxrecall.theory import Model

MAIN = "V == d == 64 and not trigger_in_value"
"""The configurations in the figure. The others check single findings."""


def named(rows):
    """Returns rows in which `optimizer` is a name without parameters, which also says
    whether steps read batches.
    """
    name = rows["optimizer"].str.partition("(")[0]
    batch = rows["batch"].map(lambda n: "" if pd.isna(n) else f", batches of {n:.0f}")
    return rows.assign(optimizer=name + batch)


@cache
def by_steps():
    """Returns N* of every cell of the study of the number of steps."""
    return named(searched("steps-training"))


def of_each_length(query):
    """Returns N* of the cells of a query, sorted by optimiser and L."""
    return by_steps().query(query).sort_values(["optimizer", "L", "steps"])


TO_TEXT = {"T = {steps}": with_interval("commas")}


@as_table(["optimizer", "L"], TO_TEXT, missing="not run")
def training_steps():
    """N* at accuracy 1/2 [95 %] of training from zero, by the number T of steps
    (V = d = 64, key only).
    """
    return of_each_length(f"{MAIN} and steps > 8")


@as_table(["optimizer", "trigger", "L"], TO_TEXT, missing="not run")
def training_checks():
    """The same with eight steps, and with the trigger in the value and key."""
    return of_each_length("trigger_in_value or steps == 8")


@as_table(
    ["optimizer", "between"],
    {"T = {steps}": lambda cells: f"{cells['slope'].iloc[0]:.2f}"},
    missing="not known",
)
def training_slopes():
    """Slope of ln N* in ln L between neighbouring L, by the number T of steps
    (V = d = 64, key only).
    """
    keys = ["optimizer", "steps"]
    cells = by_steps().query(MAIN).dropna(subset="N_star").sort_values([*keys, "L"])
    cells = with_slopes(cells, keys, "L").sort_values(["optimizer", "before", "steps"])
    between = "L = " + cells["before"].map("{:.0f}".format) + " and "
    return cells.assign(between=between + cells["L"].astype(str))


@as_table(
    ["optimizer", "L", "steps", "rate of V_mat"],
    {"rate of W_KQ times {scale_attention}": "{accuracy:.2f}"},
    missing="not run",
)
def training_rates():
    """Mean accuracy over N and 8 seeds at V = d = 64, with the rates of a formula times
    powers of 4.

    N is 64, 128 and 256 at L = 256, and one number at larger L.
    """
    rows = named(load(STUDY / "steps-training-rates", last=True))
    rows["rate of V_mat"] = "times " + rows["scale"].map("{:g}".format)
    return rows.sort_values(["L", "steps", "optimizer", "scale", "scale_attention"])


def against_steps():
    """N* against the number of steps, a line for each L, with V ln 2 and the bound for
    trigger-blind learners.
    """
    cells = by_steps().query(MAIN)
    ticks = cells[["steps"]].agg(["min", "max"])
    hidden = [
        {"L": L, "N_star": least(HIDDEN, Model(V=64, d=64, L=int(L)))}
        for L in sorted(cells["L"].unique())
    ]
    bound = pd.DataFrame(hidden).merge(ticks, how="cross")
    labels_seen = ticks.assign(N_star=64 * np.log(2))
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
