"""The required width m*, from results/study/width and results/study/mlp.

m* is shown against V and d, and against N and L. Accuracy is shown against m d.
"""

from functools import cache

import numpy as np
import pandas as pd
from law import (
    DASHED,
    STUDY,
    TRIGGER,
    beside_theory,
    models_of,
    on_all_cores,
    searched,
    with_trigger,
)
from table import ERRORS, TOLD, as_table, each, with_interval

from jaxrecall import load, plot
from jaxrecall.fit import fit
from jaxrecall.theory import critical


def edge(V):
    """The width d below which interference ends the collapse of a quadratic layer."""
    return (4 * V * np.log(V)) ** (1 / 3)


@cache
def widths():
    """Returns the searched and the predicted m* of all cells at large N and L = 8."""
    found = searched("width").query("not diagnose").reset_index(drop=True)
    fields = ["embedding", "activation", "trigger_in_value", "kappa", "m"]
    models = models_of(found.assign(m=found["N_below"]), *fields)
    n = len(found)
    predicted = on_all_cores(critical, models, ["m"] * n, [0.5] * n, found["N"])
    return found.assign(
        predicted=predicted, trigger=found["trigger_in_value"].map(TRIGGER)
    )


def compared():
    """Returns the cells whose m* was found, with ln(predicted / measured)."""
    found = widths()
    found = found[found["critical"].notna()]
    return found.assign(
        off=np.log(found["predicted"] / found["critical"].astype(float))
    )


@as_table(
    ["trigger", "activation", "V", "d"],
    {
        "d / (4 V ln V)^(1/3)": "{over_edge:.1f}",
        "m* [95 %]": with_interval(".0f", TOLD | {"right": "beyond {N_below}"}),
        "m* d / (V ln V)": "{x:.2f}",
        "theory": "{predicted:.0f}",
    },
)
def required_width():
    """m* at theta 0.5, N = 16777216, L = 8.

    The columns are m* measured [95 %], the same in units of V ln V / d, and m* by
    theory.
    """
    cells = widths().sort_values(["trigger_in_value", "activation", "V", "d"])
    return cells.assign(
        over_edge=cells["d"] / edge(cells["V"]),
        x=cells["critical"] * cells["d"] / (cells["V"] * np.log(cells["V"])),
    )


@as_table(["trigger", "activation"], ERRORS)
def width_errors():
    """Errors of theory for m*, with nothing fitted: |ln(predicted / measured)|."""
    cells = compared().sort_values(["trigger_in_value", "activation"])
    out = cells.query("not trigger_in_value")
    return pd.concat([cells, out.assign(activation="both")])


@as_table()
def width_exponents():
    """Exponents of m*, measured and by theory in the same cells.

    The trigger is in the key only, and d is from 2 (4 V ln V)^(1/3) to V.
    """
    cells = compared().query("not trigger_in_value")
    cells = cells[(cells["d"] >= 2 * edge(cells["V"])) & (cells["d"] <= cells["V"])]
    rows = load(STUDY / "width").query("not diagnose and not trigger_in_value")
    condition = "d >= 2 * (4 * V * log(V))**(1/3) and d <= V"
    laws = fit(rows, [0.5], along="m", where=condition, by="activation").exponents
    by_activation = laws.groupby("regime", sort=False), cells.groupby("activation")
    for (_, law), (name, mine) in zip(*by_activation, strict=True):
        line = {"activation": name, "cells": law["n_cells"].iloc[0]}
        yield line | beside_theory(law.set_index("axis"), mine, axes=["V", "d"])


def accuracies(select):
    """Returns rows of the study of the MLP, with x = m d / (V ln V)."""
    rows = load(STUDY / "mlp").query(select)
    return rows.assign(
        x=rows["m"] * rows["d"] / (rows["V"] * np.log(rows["V"])),
        activation=rows["activation"].str.partition("(")[0],
        trigger=rows["trigger_in_value"].map(TRIGGER),
    )


@as_table(
    ["trigger", "d"],
    {"{kind}": each("m", "{accuracy:.2f}")},
    missing="not run",
)
def activations():
    """Accuracy of each activation at V = 256, N = 16777216.

    The column m = 0 is without an MLP. The values in each other cell are in the order
    of x = m d / (V ln V).
    """
    rows = accuracies("V == 256").sort_values(["trigger_in_value", "d"])
    kinds = pd.Categorical(rows["activation"], ["none", *ORDER])
    return rows.assign(
        trigger=rows["trigger_in_value"].map(TRIGGER),
        kind=kinds.rename_categories({"none": "m = 0"}),
    )


ORDER = ("quadratic", "cubic", "mixed", "relu", "gelu", "tanh")
LABELS = {
    "x": "x = m d / (V ln V)",
    "accuracy": "test accuracy, N = 16777216",
    "activation": "",
    "kind": "",
    "trigger": "",
}


def by_size():
    """Accuracy against x for both activations without a linear part, by V and d.

    The trigger is in the key only.
    """
    rows = accuracies("activation in ('quadratic', 'cubic') and not trigger_in_value")
    wide = (rows["d"] >= 2 * edge(rows["V"])) & (rows["d"] <= rows["V"] / 2)
    others = rows[~wide].groupby(["activation", "V", "d", "m"])[["x", "accuracy"]]
    others = others.mean().reset_index()
    others["cell"] = others.groupby(["V", "d"]).ngroup()
    style = {"color": "0.6", "linestyle": ":", "marker": "x"}
    others = others.drop(columns=["V", "d"])
    return plot.figure(
        rows[wide],
        "accuracy",
        x="x",
        lines=["V", "d"],
        columns="activation",
        band="95 %",
        over=[plot.Polyline(others, "accuracy", "other d", style, each="cell")],
        labels=LABELS,
    )


def by_activation():
    """Accuracy against x for all activations at V = 256, with that at m = 0."""
    rows = with_trigger(accuracies("V == 256 and d in (36, 96)"))
    places = ["trigger", "d"]
    without = rows[rows["m"] == 0].groupby(places, as_index=False)["accuracy"].mean()
    rows = rows[rows["m"] > 0]
    ends = pd.DataFrame({"x": [rows["x"].min(), rows["x"].max()]})
    flat = without.merge(ends, how="cross")
    return plot.figure(
        rows.assign(kind=pd.Categorical(rows["activation"], ORDER)),
        "accuracy",
        x="x",
        lines="kind",
        rows="trigger",
        columns="d",
        band="95 %",
        over=[plot.Polyline(flat, "accuracy", "m = 0", DASHED)],
        labels=LABELS,
    )


def in_thousands(cells):
    """Returns cells with m* d in thousands in the place of m*."""
    numbers = cells[["critical", "lo", "hi", "N_below"]].astype(float)
    return cells.assign(**numbers.mul(cells["d"] / 1000, axis=0))


REQUIRED = with_interval(
    ".1f",
    {
        "plateau": "none",
        "right": "beyond {N_below:.0f}",
        "nonfinite": "overflow",
    },
)
"""The cell of m* d in thousands."""


@as_table(["activation", "L"], {"N = {N}": REQUIRED})
def required_plane():
    """m* d in thousands over N and L, at V = 256, d = 64, key only.

    "none": accuracy levels off below one half as m grows.
    """
    return in_thousands(searched("width").query("diagnose")).sort_values(
        ["activation", "L"]
    )


@as_table(["activation", "L"], {"N = {N}": REQUIRED})
def undecided_plane():
    """The same for three cells again, with more seeds and m up to 4096."""
    return in_thousands(searched("width-undecided"))
