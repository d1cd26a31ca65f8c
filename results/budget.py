"""What V facts cost by theory: the least width, the d of least cost, and the constant
in front of the law of long sequences.

The searches of the study budget check five of the costs. The command
`python results/budget.py` computes the rows of the first table again.
"""

from itertools import product

import numpy as np
import pandas as pd
from law import (
    LONG,
    SIZES,
    STUDY,
    TRIGGER,
    regime,
    searched,
    with_theory,
    without_warnings,
)
from scipy.special import gammaln, ndtri
from table import as_table, with_interval

from jaxrecall.theory import Model, critical, critical_N

COSTS = {
    "N d^2": lambda N, V, d, L: N * d**2,
    "operations": lambda N, V, d, L: N * (2 * L * d + d**2 + V * d),
}
"""A dict from the name of each cost to its function.

N d^2 is samples times entries of V_mat. The operations are the multiplications of one
forward pass over N samples: scores and mean value (L d each), V_mat (d^2) and logits
(V d).
"""

THEORY = STUDY / "budget/theory.parquet"
PLENTY = 2**50
"""So many samples that more of them do not help."""

WIDTHS = np.geomspace(1.02, 16, 28)
"""The widths where the least cost is looked for, in units of the least d."""


def budget_of(V, L, inside):
    """Returns the least d for half of V facts, and d and N* of the least costs."""
    model = Model(V=V, L=L, trigger_in_value=inside)
    least = critical(model, "d", N=PLENTY)
    widths = np.unique(np.round(least * WIDTHS).astype(int))
    needed = np.array([critical_N(model.replace(d=int(d))) for d in widths])
    found = {"V": V, "L": L, "trigger": TRIGGER[inside], "least": least}
    found["bits"] = gammaln(V + 1) / np.log(2) / np.ceil(least) ** 2
    for name, cost in COSTS.items():
        at = np.argmin(cost(needed, V, widths, L))
        found |= {f"d, {name}": widths[at], f"N, {name}": needed[at]}
    return found


@as_table(
    ["V", "trigger", "L"],
    {"least d": "{least:.0f}", "bits per entry of V_mat": "{bits:.2f}"}
    | {
        f"least {name}: d, N*": f"{{d, {name}}}, {{N, {name}:commas}}" for name in COSTS
    },
)
def budget():
    """Theory: the least d that recalls half of V facts with any N, and d and N* where
    a cost is least.

    The costs are N d^2, and the multiplications of a forward pass over all samples,
    N (2 L d + d^2 + V d).
    """
    return pd.read_parquet(THEORY)


def write_budget():
    """Saves the rows of `budget`, which take minutes to compute."""
    cells = product([64, 256], [False, True], [8, 256, 4096])
    rows = [budget_of(V, L, inside) for V, inside, L in cells]
    pd.DataFrame(rows).to_parquet(THEORY)


@as_table(
    ["trigger", *SIZES],
    {
        "theory": "{predicted:commas}",
        "observed N* [95 %]": with_interval("commas"),
        "ln(theory / observed)": "{off:+.2f}",
    },
)
def budget_checked():
    """N* at the d of least N d^2 (d 60, 69 and 43) and of least operations (76 and
    126): theory, which was committed before the runs, and observed.
    """
    return with_theory(searched("budget"), "trigger_in_value")


@as_table(
    ["trigger", "V / d"],
    {
        "cells": len,
        "constant, observed": lambda cells: ends(cells["constant"]),
        "closed form": lambda cells: ends(cells["form"]),
        "median abs ln ratio": lambda cells: f"{cells['off'].abs().median():.2f}",
        "mean ln ratio": "{off:+.2f}",
    },
)
def constants():
    """The constant s of long sequences, N* = s (L^2 / V) sqrt(c + 3 c^2 + c^3) with
    c = V / d, from its closed form and in the cells of the study of the law.
    """
    cells = searched("law").query("theta == 0.5").dropna(subset="N_star")
    cells = cells[regime(cells) == LONG]
    c = cells["V"] / cells["d"]
    of_size = cells["L"] ** 2 / cells["V"] * np.sqrt(c + 3 * c**2 + c**3)
    cells = cells.assign(constant=cells["N_star"] / of_size, form=closed_form(cells))
    groups = np.select([c < 1, c == 1], ["below 1", "1"], "above 1")
    cells = cells.assign(
        **{"V / d": groups}, off=np.log(cells["form"] / cells["constant"])
    )
    return cells.sort_values(["trigger", "V", "d"], ascending=[False, True, False])


def closed_form(cells, kappa=100):
    """Returns s: the snr at which half of the tokens are locked, without leakage.

    The median of the largest of V normal scores is r. The other tokens of a sequence
    add up to ln(L / V) nats.
    """
    r = ndtri(0.5 ** (1 / cells["V"]))
    snr = r / (1 - np.log(np.maximum(1, cells["L"] / cells["V"])) / kappa)
    return snr / np.sqrt(1 - snr**2 / cells["d"])


def ends(values):
    """Formats the smallest and the largest of some numbers."""
    return f"{values.min():.2f} to {values.max():.2f}"


if __name__ == "__main__":
    without_warnings()
    write_budget()
