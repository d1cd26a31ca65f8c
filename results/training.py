"""Training of all parameters from zero, compared with the three steps and the bound.

The data is in the study results/study/first-steps-training-long. The trigger is out of
the value path, and V = d = 64.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
from bound import HIDDEN, LINES, least
from law import DASHED, searched, with_ends
from scipy.special import stdtrit
from table import as_table, with_interval

from jaxrecall import plot
from jaxrecall.theory import Model, critical_N

STEPS = "three steps, eta to 0 (theory)"
BATCH = "full batch", "mini-batch", "pool"
"""What a step reads: all samples, some of them, or all with noise from a pool."""


def trained():
    """Returns N* of every cell, with the name of its training and what a step reads."""
    found = searched("first-steps-training-long")
    of_cells = [found["batch"].notna(), found["pool"].notna()]
    reads = np.select(of_cells, BATCH[1:], BATCH[0])
    optimizer = found["optimizer"].str.partition("(")[0]
    return found.assign(optimizer=optimizer, reads=reads)


def expected(lengths):
    """Returns N* of the three steps by theory, and the N of the bound, at each L."""
    rows = []
    for L in lengths:
        model = Model(V=64, d=64, L=int(L), trigger_in_value=False)
        rows.append({"L": L, STEPS: critical_N(model), HIDDEN: least(HIDDEN, model)})
    return pd.DataFrame(rows)


@as_table(["optimizer", "a step reads"], {"L = {L}": "{text}"}, missing="not run")
def training():
    """N* at accuracy 1/2 [95 %] of training from zero, by L.

    The last lines are the three steps by theory, and the bound.
    """
    found = trained().sort_values(["optimizer", "reads", "L"])
    text = [with_interval()(found.iloc[[row]]) for row in range(len(found))]
    found = found.assign(text=text)
    others = expected(sorted(found["L"].unique())).melt("L", var_name="optimizer")
    others = others.assign(text=others["value"].map("{:,.0f}".format), reads="")
    return pd.concat([found, others]).rename(columns={"reads": "a step reads"})


@as_table()
def training_exponents():
    """Exponents of L [95 %] between neighbouring lengths, of training from zero."""
    found = trained().dropna(subset="N_star").sort_values("L")
    for (optimizer, reads), cells in found.groupby(["optimizer", "reads"], sort=False):
        for low, high in pairwise(cells.itertuples()):
            about = {"optimizer": optimizer, "a step reads": reads}
            ends = f"{low.L} to {high.L}"
            yield about | {"L": ends, "exponent [95 %]": exponent(low, high)}


def exponent(low, high):
    """Formats the exponent of L between two independent cells, with its interval."""
    octaves = np.log(high.L / low.L)
    slope = np.log(high.N_star / low.N_star) / octaves
    error = np.hypot(low.error, high.error) / octaves
    reach = stdtrit(min(low.seeds, high.seeds) - 1, 0.975) * error
    return with_ends({"exponent": slope, "lo": slope - reach, "hi": slope + reach})


def along_L():
    """N* of training from zero along L, with the three steps and the bound."""
    found = trained()
    found = found.assign(line=found["optimizer"] + ", " + found["reads"])
    lengths = np.geomspace(found["L"].min(), found["L"].max(), 13)
    lines = expected(lengths.round().astype(int))
    steps = lines.assign(N_star=lines[STEPS])
    bound = lines.assign(N_star=lines[HIDDEN])
    over = [
        plot.Polyline(steps, "N_star", STEPS, DASHED),
        plot.Points(bound, "N_star", HIDDEN, LINES[HIDDEN], joined=True),
    ]
    return plot.figure(
        found,
        "N_star",
        x="L",
        lines="line",
        joined=True,
        over=over,
        labels={
            "N_star": "N*: samples for a test accuracy of 1/2",
            "L": "L: sequence length, tokens",
            "line": "",
        },
    )
