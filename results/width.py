"""The required width m*, from results/study/width and results/study/mlp.

m* is shown against V and d, and against N and L. Accuracy is shown against m d.
"""

from functools import cache

import numpy as np
import pandas as pd
from drawing import DASH, MARKERS, above, canvas, line, log_axis, shades
from law import STUDY, beside_theory, models_of, on_all_cores, searched
from table import ERRORS, TOLD, as_table, each, with_interval

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import critical

WAYS = {True: "in the value", False: "out of it"}


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
        predicted=predicted, trigger=found["trigger_in_value"].map(WAYS)
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

    The trigger is out of the value path, and d is from 2 (4 V ln V)^(1/3) to V.
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


def means(select, by):
    """Returns the mean accuracy of rows of the study of the MLP."""
    rows = load(STUDY / "mlp").query(select)
    rows = rows.assign(
        x=rows["m"] * rows["d"] / (rows["V"] * np.log(rows["V"])),
        activation=rows["activation"].str.partition("(")[0],
    )
    return (
        rows.groupby([*by, "m"])
        .agg(x=("x", "mean"), accuracy=("accuracy", "mean"), sem=("accuracy", "sem"))
        .reset_index()
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
    rows = means("V == 256", ["trigger_in_value", "d", "activation"])
    kinds = pd.Categorical(rows["activation"], ["none", *ORDER])
    rows = rows.assign(
        trigger=rows["trigger_in_value"].map(WAYS),
        kind=kinds.rename_categories({"none": "m = 0"}),
    )
    return rows


ORDER = ("quadratic", "cubic", "mixed", "relu", "gelu", "tanh")
LOOKS = dict(
    zip(
        ORDER,
        zip(
            MARKERS,
            ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#56B4E9", "0.45"),
            strict=False,
        ),
        strict=True,
    )
)


def mlp():
    """Draws accuracy against x = m d / (V ln V).

    The left panels show both activations without a linear part, over V and d. The other
    panels show all activations at V = 256, with the trigger out and in.
    """
    figure, panels = canvas(2, 3, 5.2, sharex=True, sharey=True)
    for ax, name in zip(panels[:, 0], ("quadratic", "cubic"), strict=True):
        table = means(f"activation == '{name}' and not trigger_in_value", ["V", "d"])
        sizes = sorted(table["V"].unique())
        for V, colour in zip(sizes, shades(len(sizes)), strict=True):
            for d, mine in table[table["V"] == V].groupby("d"):
                wide = d >= 2 * edge(V) and d <= V / 2
                ax.plot(
                    mine["x"],
                    mine["accuracy"],
                    color=colour,
                    marker="o" if wide else "x",
                    markersize=3,
                    linestyle="-" if wide else ":",
                    linewidth=0.8,
                )
        ax.set(
            title=f"{name}, V = {sizes[0]} to {sizes[-1]}", xscale="log", ylim=(0, 1.03)
        )
    for row, inside in zip(panels, (False, True), strict=True):
        table = means(f"V == 256 and trigger_in_value == {inside}", ["d", "activation"])
        for ax, d in zip(row[1:], (36, 96), strict=True):
            mine = table[table["d"] == d]
            none = mine[mine["activation"] == "none"]["accuracy"].iloc[0]
            ax.axhline(none, color="black", linestyle=DASH)
            for name, (marker, colour) in LOOKS.items():
                one = mine[mine["activation"] == name]
                ax.errorbar(
                    one["x"],
                    one["accuracy"],
                    yerr=2 * one["sem"],
                    color=colour,
                    marker=marker,
                    markersize=3,
                    linewidth=0.8,
                    elinewidth=0.7,
                )
            ax.set(
                title=f"V = 256, d = {d}, trigger {'in' if inside else 'out'}",
                xscale="log",
                ylim=(0, 1.03),
            )
    for ax in panels.flat:
        ax.grid(True)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("x = m d / (V ln V)", fontsize=8)
    figure.supylabel("test accuracy, N = 16777216", fontsize=8)
    V_values = sorted(
        means("activation == 'quadratic' and not trigger_in_value", ["V"])["V"].unique()
    )
    entries = [
        line(f"V = {V}", color=colour)
        for V, colour in zip(V_values, shades(len(V_values)), strict=True)
    ]
    entries += [
        line("d from 2 (4 V ln V)^(1/3) to V/2", marker="o", color="0.4"),
        line("other d", marker="x", linestyle=":", color="0.4"),
    ]
    entries += [
        line(name, marker=marker, color=colour)
        for name, (marker, colour) in LOOKS.items()
    ]
    above(figure, [*entries, line("m = 0", color="black", linestyle=DASH)])
    return "activations", figure


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
    """m* d in thousands over N and L, at V = 256, d = 64, trigger out.

    "none": accuracy levels off below one half as m grows.
    """
    return in_thousands(searched("width").query("diagnose")).sort_values(
        ["activation", "L"]
    )
