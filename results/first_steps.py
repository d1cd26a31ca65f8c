"""N* along L after several first steps of V_mat, beside the recipe of one small step.

The data is in the studies results/study/first-steps and first-steps-long. N* of the
recipe, eta -> 0, is that of the study law, or theory's where law has no such cell.
"""

from functools import cache

import numpy as np
import pandas as pd
from bound import HIDDEN, least
from law import DASHED, SIZES, STUDY, TRIGGER, searched, with_ends
from table import CRITICAL, as_table, with_interval

from jaxrecall import load, plot
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N

RECIPE = "one step, eta -> 0"
WAYS = {
    "one step, part 1": "first_steps == 1",
    "128 steps, part 1/4": "first_steps == 128 and trigger == 'out' and V == d == 64",
    "L / 8 steps, part 1/4": "first_steps > 1 and first_steps == L // 8",
}
BOUND = "bound, position hidden"
KEYS = ["trigger", "V", "d"]
SHOWN = [*KEYS, "L", "way", *CRITICAL, "outcome"]


@cache
def ways():
    """Returns N* of every way and cell of the study along L."""
    found = searched("first-steps-long").rename(columns={"N_star": "critical"})
    parts = [found.query(part).assign(way=way) for way, part in WAYS.items()]
    measured = pd.concat(parts)[[*SHOWN, "N_above", "N_below"]]
    cells = measured[[*KEYS, "L"]].drop_duplicates()
    both = pd.concat([measured, recipes(cells), bounds(cells)])
    order = pd.Categorical(both["way"], [RECIPE, *WAYS, BOUND], ordered=True)
    return both.assign(way=order).sort_values([*KEYS, "way", "L"])


def recipes(cells):
    """Returns N* of the recipe in cells, measured where the study law has the cell."""
    law = searched("law").query("theta == 0.5").rename(columns={"N_star": "critical"})
    found = cells.merge(law[[*KEYS, "L", *CRITICAL]], how="left", on=[*KEYS, "L"])
    for place in found.index[found["critical"].isna()]:
        model = model_of(found.loc[place])
        found.loc[place, "critical"] = critical_N(model)
    return found.assign(way=RECIPE, outcome="found")


def bounds(cells):
    """Returns the bound for whoever is not told the informative position, in cells."""
    least_N = [least(HIDDEN, model_of(cell)) for _, cell in cells.iterrows()]
    return cells.assign(way=BOUND, critical=least_N, outcome="found")


def model_of(cell):
    """Returns the theory's model of a cell."""
    sizes = {name: int(cell[name]) for name in SIZES}
    return Model(**sizes, trigger_in_value=cell["trigger"] == "in")


@cache
def exponents():
    """Returns the exponent of L of each way at each trigger, V and d, by `fit`."""
    rows = load(STUDY / "first-steps-long")
    rows["trigger"] = rows["trigger_in_value"].map(TRIGGER)
    found = []
    for way, part in WAYS.items():
        of_way = rows.query(part)
        for key, line in of_way.groupby(KEYS):
            if line["L"].nunique() < 3:
                continue
            line.attrs["axes"] = ["L", "N"]
            law = fit(line, [0.5]).exponents.query("axis == 'L'").iloc[0]
            found.append(dict(zip(KEYS, key, strict=True), way=way) | law.to_dict())
    return pd.DataFrame(found)


def slope(cells):
    """Formats the exponent of L: with its 95 % interval, or between the ends."""
    first = cells.iloc[0]
    law = exponents()
    for name in (*KEYS, "way"):
        law = law[law[name] == first[name]]
    if len(law):
        return with_ends(law.iloc[0])
    ends = np.log(cells.sort_values("L")[["critical", "L"]].iloc[[0, -1]].astype(float))
    steps = ends.diff().iloc[-1]
    return f"{steps['critical'] / steps['L']:.2f}"


@as_table([*KEYS, "way"], {"L = {L}": with_interval("commas"), "exponent of L": slope})
def along_L():
    """N* along L by way, and the exponent of L over all lengths of the line.

    Exponents of measured lines are those of `fit`. Those of theory and bounds, and of
    the recipe, are between the ends of the line.
    """
    return ways()
