"""Predicted and observed N* at accuracy 1/2.

The tables are by width and length, and for cells that were predicted before they were
run.
"""

import numpy as np
import pandas as pd
from law import SIZES, STUDY, crossed, searched, with_ends, with_theory
from table import CRITICAL, as_table, with_interval

from jaxrecall import load
from jaxrecall.fit import fit

FACTOR = 1.25


def matched(cells):
    """Returns cells with the columns `near`, `inside` and `match`.

    The predicted N* is near if it is within a factor of 1.25 of N*, inside if it is
    within the interval, and a match if it is either.
    """
    near = cells["off"].abs() <= np.log(FACTOR)
    inside = cells["predicted"].between(cells["lo"], cells["hi"])
    return cells.assign(near=near, inside=inside, match=near | inside)


@as_table(
    ["d", "L"],
    {
        "{trigger}: predicted": "{predicted:commas}",
        "{trigger}: observed [95 %]": with_interval("commas"),
        "{trigger}: match": "{match}",
    },
    missing="not run",
)
def dimension_by_length():
    """N* by width and length at V = 256: predicted and observed.

    A prediction matches if it is within the interval, or within a factor of 1.25.
    """
    sizes = "V == 256 and d in (128, 256, 512) and L in (4, 256, 16384)"
    cells = searched("law").query(f"theta == 0.5 and {sizes}").sort_values(["d", "L"])
    cells = matched(with_theory(cells, "embedding", "trigger_in_value"))
    return cells.assign(L=cells["L"].map("{:,}".format))


def sizes_of_others(cells):
    """The V, d and L of cells that do not match."""
    others = cells.loc[~cells["match"], SIZES].to_dict("records")
    return "; ".join("{V}, {d}, {L}".format(**cell) for cell in others)


@as_table(
    ["trigger"],
    {
        "cells": len,
        "match": lambda cells: cells["match"].sum(),
        "within the interval": lambda cells: cells["inside"].sum(),
        "V, d, L of the others": sizes_of_others,
    },
)
def matching():
    """The same comparison for all cells of the law.

    The columns are the number of cells that match, the number within the interval, and
    the cells that do not match.
    """
    return matched(crossed("theta == 0.5"))


@as_table(
    cells={
        "V, d, L": "{V}, {d}, {L}",
        "embedding": "{embedding}",
        "trigger": "{trigger}",
        "theory": "{predicted:commas}",
        "search [95 %]": with_interval("commas"),
        "fixed N [95 %]": with_interval(
            "commas", names=[f"{name}_fixed" for name in CRITICAL]
        ),
        "ln(theory / search)": "{off:+.2f}",
        "within a factor of 1.25": "{near}",
        "intervals overlap": "{overlap}",
    }
)
def twelve_cells():
    """Cells that were predicted before they were run, without a pool.

    The columns are theory, a search, and a fit to other seeds at fixed N.
    """
    levels = [
        fit(rows, [0.5]).thresholds.assign(trigger_in_value=inside)
        for inside, rows in load(STUDY / "held-out-levels").groupby("trigger_in_value")
    ]
    fixed = pd.concat(levels).query("record")
    cells = with_theory(searched("held-out"), "embedding", "trigger_in_value")
    on = [*SIZES, "trigger_in_value"]
    cells = matched(cells).merge(fixed, on=on, suffixes=("", "_fixed"))
    overlap = (cells["lo"] <= cells["hi_fixed"]) & (cells["lo_fixed"] <= cells["hi"])
    return cells.assign(overlap=overlap)


@as_table(
    ["trigger"],
    {
        "V = {V}": "{N_star:commas} [{lo:commas}, {hi:commas}], {times:.1f}",
        "exponent of V [95 %]": lambda cells: cells["exponent"].iloc[0],
    },
)
def label_counts():
    """N* of orthogonal rows at L = 8, its ratio to V ln 2, and its exponent of V."""
    rows = load(STUDY / "orthogonal").drop(columns="d")  # d follows from V
    laws = fit(rows, [0.5], by="trigger_in_value").exponents
    exponents = {
        law["regime"] == "trigger_in_value == true": with_ends(law)
        for law in laws.to_dict("records")
    }
    cells = searched("orthogonal")
    return cells.assign(
        times=cells["N_star"] / (cells["V"] * np.log(2)),
        exponent=cells["trigger_in_value"].map(exponents),
    )


@as_table(
    ["activation", "V", "d"],
    {
        "Gaussian rows [95 %]": with_interval(".2f"),
        "unit length": "{sphere:.2f}",
        "times": "{times:.2f}",
    },
)
def gaussian_widths():
    """Required m d over V ln V, with Gaussian rows and with rows of unit length.

    The trigger is in the key only. The last column is the ratio of the two.
    """
    sphere = searched("width").query("not diagnose and not trigger_in_value")
    cells = searched("width-gaussian").merge(
        sphere, on=["activation", "V", "d"], suffixes=("", "_sphere")
    )
    unit = cells["V"] * np.log(cells["V"]) / cells["d"]
    return cells.assign(
        **cells[["critical", "lo", "hi"]].div(unit, axis=0),
        sphere=cells["critical_sphere"] / unit,
        times=cells["critical"] / cells["critical_sphere"],
    )
