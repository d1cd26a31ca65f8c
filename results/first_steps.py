"""N* along L after several first steps of V_mat, beside the recipe of one small step.

The data is in the studies results/study/first-steps and first-steps-long. N* of the
recipe, eta -> 0, is that of the study law, or theory's where law has no such cell.
"""

from functools import cache

import numpy as np
import pandas as pd
from bound import HIDDEN, least
from law import (
    N_STAR,
    STUDY,
    TRIGGER,
    models_of,
    on_all_cores,
    searched,
    with_ends,
)
from table import CRITICAL, as_table, with_interval

import jaxrecall
from jaxrecall import load, plot
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N

RECIPE = "one step, eta -> 0"
ONE, MANY = "one step, eta = eta_c", "128 steps, eta = eta_c / 4"
SEVERAL = "L / 8 steps, eta = eta_c / 4"
ALSO_LAST = f"{SEVERAL}, 65 last steps"
WAYS = {
    ONE: "first_steps == 1",
    MANY: "first_steps == 128 and not trigger_in_value and V == d == 64",
    SEVERAL: "first_steps == L // 8 and steps == 3",
    ALSO_LAST: "first_steps == L // 8 and steps == 67",
}
BOUND = HIDDEN
RATE = "eta / eta_c"
"""eta over the rate at which one step cancels the mean bias."""

KEYS = ["trigger", "V", "d"]
TO_TEXT = with_interval("commas")
SHOWN = [*KEYS, "L", "way", *CRITICAL, "outcome"]


@cache
def ways():
    """Returns N* of every way and cell of the study along L."""
    found = searched("first-steps-long")
    parts = [found.query(part).assign(way=way) for way, part in WAYS.items()]
    measured = pd.concat(parts)[[*SHOWN, "N_above", "N_below"]]
    cells = measured[[*KEYS, "L"]].drop_duplicates()
    both = pd.concat([measured, recipes(cells), bounds(cells)])
    order = pd.Categorical(both["way"], [RECIPE, *WAYS, HIDDEN], ordered=True)
    return both.assign(way=order).sort_values([*KEYS, "way", "L"])


def recipes(cells):
    """Returns N* of the recipe in cells, measured where the study law has the cell."""
    law = searched("law").query("theta == 0.5")
    found = cells.merge(law[[*KEYS, "L", *CRITICAL]], how="left", on=[*KEYS, "L"])
    unknown = found["critical"].isna()
    by_theory = on_all_cores(critical_N, models_by_trigger(found[unknown]))
    found.loc[unknown, "critical"] = by_theory
    return found.assign(way=RECIPE, outcome="found")


def bounds(cells):
    """Returns the trigger-blind bound in cells."""
    least_N = [least(HIDDEN, model) for model in models_by_trigger(cells)]
    return cells.assign(way=HIDDEN, critical=least_N, outcome="found")


def models_by_trigger(cells):
    """Returns the theory's models of cells, whose trigger is in words."""
    inside = cells["trigger"] == TRIGGER[True]
    return models_of(cells.assign(trigger_in_value=inside), "trigger_in_value")


@cache
def rows_along_L():
    """Returns the rows of the study along L, with the trigger and the pair in words."""
    rows = load(STUDY / "first-steps-long")
    pair = rows["V"].astype(str) + ", " + rows["d"].astype(str)
    return rows.assign(trigger=rows["trigger_in_value"].map(TRIGGER), pair=pair)


def law_of_L(rows, *factors):
    """Returns the law of N* along L by `fit`, with a constant for each factor."""
    rows.attrs["axes"] = [*factors, "L", "N"]
    return fit(rows, [0.5]).exponents.query("axis == 'L'").iloc[0]


@cache
def exponents():
    """Returns the exponent of L of each way at each trigger, V and d."""
    found = []
    for way, part in WAYS.items():
        for key, line in rows_along_L().query(part).groupby(KEYS):
            if line["L"].nunique() >= 3:
                about = dict(zip(KEYS, key, strict=True), way=way)
                found.append(about | law_of_L(line).to_dict())
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


@as_table([*KEYS, "training"], {"L = {L}": TO_TEXT, "exponent of L": slope})
def along_L():
    """N* along L by training, and the exponent of L over all lengths of the line.

    Exponents of measured lines are those of `fit`. Those of theory and bounds, and of
    the recipe, are between the ends of the line.
    """
    return ways().assign(training=ways()["way"])


@as_table(["label counts"], {"L = {L}": TO_TEXT}, missing="not run")
def equal_counts():
    """N* after one small first step, when labels occur by chance and equally often."""
    cells = fit(load(STUDY / "equal_counts"), [0.5]).thresholds.sort_values("L")
    counts = cells["counts_are_equal"].map({False: "by chance", True: "equal"})
    return cells.assign(**{"label counts": counts})


@cache
def common_exponents():
    """Returns the exponent of L of the cells of a way.

    Each V and d has its own constant.
    """
    found = []
    for way in (ONE, SEVERAL, ALSO_LAST):
        for trigger, mine in rows_along_L().query(WAYS[way]).groupby("trigger"):
            law = law_of_L(mine, "pair")
            cells = {"trigger": trigger, "training": way, "cells": law["n_cells"]}
            found.append(cells | law[["exponent", "lo", "hi", "misfit"]].to_dict())
    return pd.DataFrame(found)


@as_table(
    ["trigger", "training", "cells"],
    {
        "exponent of L [95 %]": lambda cells: with_ends(cells.iloc[0]),
        "misfit over noise": "{misfit:.1f}",
    },
)
def exponents_of_L():
    """The exponent of L over all V and d, each with its own constant."""
    return common_exponents()


def with_slopes(cells, line, axis):
    """Returns sorted cells, but for the first of each line, with the value before along
    an axis, and the slope of ln N* from there.
    """
    before = cells.groupby(line)[["N_star", axis]].shift()
    slope = np.log(cells["N_star"] / before["N_star"])
    slope /= np.log(cells[axis] / before[axis])
    return cells.assign(slope=slope, before=before[axis]).dropna(subset="slope")


@as_table(["trigger", "training"], {"{lengths}": "{slope:.2f} ({pairs:.0f})"})
def slopes_of_L():
    """Mean slope of ln N* between neighbouring L, and how many pairs V, d it is of."""
    cells = ways().query("way in @WAYS.keys()").dropna(subset="critical")
    cells = cells.assign(
        training=cells["way"].astype(str), N_star=cells["critical"].astype(float)
    )
    cells = with_slopes(cells, [*KEYS, "training"], "L")
    ends = cells["before"].map("{:.0f}".format) + " to " + cells["L"].astype(str)
    cells = cells.assign(lengths="L " + ends).sort_values(["before", "trigger"])
    means = cells.groupby(["trigger", "training", "lengths"], sort=False)["slope"]
    return means.agg(slope="mean", pairs="size").reset_index()


@as_table(
    ["trigger", "cells"],
    {
        f"{axis} [95 %]": lambda laws, axis=axis: with_ends(
            laws.set_index("axis").loc[axis]
        )
        for axis in ("V", "d", "L")
    }
    | {"misfit over noise": "{misfit:.1f}"},
)
def exponents_after_many_steps():
    """Exponents of N* after L / 8 first steps, from L = 256 on.

    With the trigger in the value and key, 65 last steps follow.
    """
    laws = []
    for way in (SEVERAL, ALSO_LAST):
        rows = rows_along_L().query(f"L >= 256 and {WAYS[way]}")
        rows.attrs["axes"] = ["V", "d", "L", "N"]
        law = fit(rows, [0.5]).exponents
        trigger = rows["trigger"].iloc[0]
        laws.append(law.assign(trigger=trigger, cells=law["n_cells"]))
    return pd.concat(laws)


def cells_of(condition):
    """Returns N* of the cells of the study of rates that fulfil a condition."""
    found = searched("first-steps")
    mean = 1 / found["V"] + found["trigger_in_value"] / found["L"] ** 2
    rate = found["V"] / (mean * (1 + found["V"] / found["d"]))
    relative = (found["eta"] / rate).map(lambda ratio: float(f"{ratio:.3g}"))
    return found.assign(**{RATE: relative}).query(condition)


WITHOUT = "pool.isna() and not fresh_batches and m == 0 and tokens == 'uniform'"


@as_table(["L", RATE], {"k = {first_steps}": TO_TEXT})
def rates_and_numbers():
    """N* by the rate and the number of first steps, V = d = 64, key only."""
    return cells_of(f"{WITHOUT} and not trigger_in_value").sort_values(["L", RATE])


@as_table(["L", "first_steps"], {"pool {pool}": TO_TEXT})
def first_steps_pool():
    """N* with noise from a pool of K sequences, and of independent samples (pool 0)."""
    found = cells_of("m == 0 and tokens == 'uniform' and not fresh_batches")
    found = found.query(
        f"not trigger_in_value and `{RATE}` == 0.25 and first_steps >= 32"
    )
    found = found.assign(pool=found["pool"].fillna(0).astype(int))
    return found.sort_values(["L", "first_steps", "pool"])


OTHERS = {
    "fresh batches": "fresh_batches",
    "MLP, relu, m 256, kappa 1000": "m > 0",
    "Zipf tokens, s = 1, d 128": "tokens != 'uniform'",
}


@as_table(["setting", "L", RATE, "first_steps"], {"N* [95 %]": TO_TEXT})
def first_steps_elsewhere():
    """N* in other settings: fresh batches, an MLP, and Zipf tokens. V = 64."""
    parts = [cells_of(part).assign(setting=name) for name, part in OTHERS.items()]
    found = pd.concat(parts)
    order = pd.Categorical(found["setting"], OTHERS)
    keys = ["setting", "L", "first_steps", RATE]
    return found.assign(setting=order).sort_values(keys)


@as_table(
    ["V", "d", RATE, "first_steps"],
    {
        "{steps} steps": TO_TEXT,
        "V ln 2": lambda cells: f"{cells['V'].iloc[0] * np.log(2):.0f}",
    },
)
def last_steps():
    """N* in short sequences, L = 8, value and key, by the number of gradient steps.

    The first three are the recipe. Further ones are plain steps of V_mat.
    """
    found = cells_of("trigger_in_value")
    return found.sort_values(["V", RATE, "first_steps", "steps"])


LAST = {3: "one", 67: "65 small"}


@as_table(
    ["trigger", "first steps", "last steps"], {"L = {L}": TO_TEXT}, missing="not run"
)
def steps():
    """N* at V = d = 64 by the number of first steps and of last steps, all with
    eta = eta_c / 4 and independent samples.
    """
    return by_first_and_last("steps")


@as_table(
    ["trigger", "first steps", "last steps"], {"L = {L}": TO_TEXT}, missing="not run"
)
def steps_wide():
    """N* at V = 64 and d = 256 by the number of first steps and of last steps."""
    return by_first_and_last("steps-wide")


@as_table(
    ["trigger", "first steps", "last steps"], {"L = {L}": TO_TEXT}, missing="not run"
)
def steps_long():
    """N* at V = d = 64 by the number of first steps and of last steps, all with
    eta = eta_c / 4 and noise tokens from a pool of 512 sequences.
    """
    return by_first_and_last("steps-long").query("`first steps` in ['1', 'L / 8']")


def slopes_of_arm(cell):
    """Formats the slopes of ln N* and of ln(N* - V ln 2) from the length before."""
    line = cell.iloc[0]
    return f"{line['slope']:.2f}, {line['slope_above']:.2f}"


@as_table(
    ["trigger", "first steps", "last steps"],
    {"{lengths}": slopes_of_arm},
    missing="not known",
)
def steps_slopes():
    """Slopes in L of ln N*, and of ln(N* - V ln 2), by the numbers of first and of last
    steps, at V = d = 64.
    """
    keys = ["trigger", "first steps", "last steps"]
    cells = arms_along_L().sort_values([*keys, "L"])
    above = cells.assign(N_star=cells["N_star"] - cells["V"] * np.log(2))
    above = with_slopes(above, keys, "L")["slope"]
    cells = with_slopes(cells, keys, "L").assign(slope_above=above)
    lengths = cells["before"].map("{:.0f}".format) + " to " + cells["L"].astype(str)
    return cells.assign(lengths="L = " + lengths).sort_values(["before", *keys])


def with_slope(to_text):
    """Makes a cell of N* and of the slope from the length before it."""

    def cell(rows):
        text, slope = to_text(rows), rows["slope"].iloc[0]
        return text if np.isnan(slope) else f"{text}, {slope:.2f}"

    return cell


@as_table(["k"], {"L = {L}": with_slope(TO_TEXT)}, "not run")
def fixed_first_steps_measured():
    """N* with a fixed number k of first steps and 65 last steps, key only, and its
    slope in L from the length before.
    """
    cells = searched("steps-long").query("steps == 67 and not trigger_in_value")
    cells = cells[cells["first_steps"].isin([1, 8, 32, 128])]
    cells = cells.assign(k=cells["first_steps"]).sort_values(["k", "L"])
    slopes = with_slopes(cells, ["k"], "L")["slope"]
    return cells.assign(slope=slopes)


PREDICTED_LONG = {
    (1024, 1, 67): 68068,
    (4096, 1, 67): 1100946,
    (4096, 512, 67): 6420,
    (256, 8, 67): 904,
    (256, 128, 67): 419,
    (1024, 8, 67): 12296,
    (1024, 32, 67): 2475,
    (4096, 8, 67): 188400,
    (4096, 32, 67): 29246,
    (4096, 128, 67): 7553,
    (16384, 128, 67): 64480,
    (1024, 1, 3): 71082,
    (4096, 1, 3): 1149689,
    (4096, 512, 3): 8060,
}
"""Theory's N* by L, first steps and steps: those in the grid of steps-long, which was
committed before its runs.
"""


@as_table(
    ["L", "first_steps", "steps"],
    {"predicted": "{predicted:,.0f}", "N* [95 %]": TO_TEXT, "ratio": "{ratio:.2f}"},
)
def steps_long_predicted():
    """N* of theory, and N* measured after the prediction was committed, key only."""
    sizes = pd.DataFrame([*PREDICTED_LONG], columns=["L", "first_steps", "steps"])
    sizes["predicted"] = [*PREDICTED_LONG.values()]
    cells = sizes.merge(searched("steps-long").query("not trigger_in_value"))
    return cells.assign(ratio=cells["predicted"] / cells["N_star"])


def by_first_and_last(study):
    """Returns N* of a study, with the numbers of first and of last steps in words."""
    found = searched(study)
    grows = found["first_steps"] == found["L"] // 8
    found["first steps"] = found["first_steps"].astype(str).mask(grows, "L / 8")
    found["last steps"] = found["steps"].map(LAST)
    keys = ["trigger", "first steps", "last steps", "L"]
    return found.sort_values(keys, key=lambda column: column.replace("one", "1"))


@as_table(["L", "V"], {"d = {d}": TO_TEXT}, missing="not run")
def many_steps():
    """N* by V and d after L / 8 first steps and 65 last steps, key only."""
    return searched("many-steps").sort_values(["L", "V", "d"])


def power_law(cells):
    """Returns the N* that was predicted for cells before they were run.

    It is the law of `exponents_after_many_steps` as it was measured then, with 0.75 for
    the last steps.
    """
    sizes = (cells["V"] / 64) ** 0.31 * (cells["d"] / 64) ** -0.62
    return 0.75 * 2100 * (cells["L"] / 1024) ** 0.95 * sizes


HELD_OUT = [
    (32, 32, 1024),
    (128, 512, 1024),
    (64, 256, 1024),
    (128, 64, 1024),
    (256, 256, 1024),
    (512, 128, 256),
    (512, 256, 256),
    (16, 256, 256),
]
"""V, d and L of the configurations of many-steps whose predictions are in its grid."""


@as_table(
    ["V", "d", "L"],
    {"predicted": "{predicted:,.0f}", "N* [95 %]": TO_TEXT, "ratio": "{ratio:.2f}"},
)
def many_steps_predicted():
    """N* of the power law, and N* measured after the prediction was committed."""
    sizes = pd.DataFrame(HELD_OUT, columns=["V", "d", "L"])
    cells = sizes.merge(searched("many-steps"))
    predicted = power_law(cells)
    ratio = predicted / cells["N_star"]
    return cells.assign(predicted=predicted, ratio=ratio)


@as_table(["V"], {"{widths}": "{slope:.2f}"}, missing="")
def many_steps_slopes():
    """Slope of ln N* in ln d between neighbouring d, at L = 256."""
    cells = searched("many-steps").query("L == 256").sort_values(["V", "d"])
    cells = with_slopes(cells, ["V"], "d")
    cells = cells.assign(ratio=np.sqrt(cells["d"] * cells["before"]) / cells["V"])
    widths = "d / V near " + cells["ratio"].map("{:.2g}".format)
    return cells.assign(widths=widths).sort_values("ratio")


NUMBERS = [(1, 1e-6), (1, 1), (4, 0.25), (4, 1), (32, 0.25), (128, 0.25)]
"""Number of first steps, and eta over eta_c."""

LENGTHS = [1024, 4096, 16384, 65536]


@as_table(
    ["k", RATE],
    {"L = {L}": with_slope(lambda rows: f"{rows['N_star'].iloc[0]:.3g}")},
    missing="out of range",
)
def fixed_first_steps():
    """N* by theory with a fixed number k of first steps (V = d = 64, key only), and
    its local slope in L from the length before.
    """
    found = []
    V = d = 64
    out = Model(V=V, d=d, L=64, trigger_in_value=False)
    for k, relative in NUMBERS:
        eta = relative * V**2 / (1 + V / d)
        before = np.nan
        for L in LENGTHS:
            try:
                N_star = critical_N(out.replace(L=L, eta=eta, first_steps=k))
            except jaxrecall.errors.TheoryError:
                continue
            slope = np.log(N_star / before) / np.log(4)
            about = {"k": k, RATE: relative, "L": L}
            found.append(about | {"N_star": N_star, "slope": slope})
            before = N_star
    return pd.DataFrame(found)


LEAST = "V ln 2: half of the labels occur"
DOTTED = {"linestyle": ":", "marker": "none"}


def cells_of_headline():
    """Returns N* at V = d = 64, key only, with 65 last steps, by the number of first
    steps. Samples are independent where L <= 256 and first steps are 1 or L / 8.
    """
    cells = pd.concat([by_first_and_last("steps"), by_first_and_last("steps-long")])
    cells = cells.query("steps == 67 and not trigger_in_value")
    cells = cells.drop_duplicates(["L", "first_steps"])
    grows = cells.query("`first steps` == 'L / 8'").assign(line="L / 8 first steps")
    fixed = cells[cells["first_steps"].isin([1, 8, 32, 128])]
    number = fixed["first_steps"].astype(str)
    plural = fixed["first_steps"].map(lambda k: "step" if k == 1 else "steps")
    fixed = fixed.assign(line=number + " first " + plural)
    return pd.concat([fixed, grows]).dropna(subset="N_star").sort_values("L")


def headline():
    """N* against L by the number of first steps, all else equal."""
    cells = cells_of_headline()
    names = [*cells.sort_values("first_steps")["line"].unique()]
    cells["line"] = pd.Categorical(cells["line"], names)
    least = pd.DataFrame({"L": [64, 16384], "N_star": 64 * np.log(2)})
    drawn = plot.figure(
        cells[["line", "L", "N_star", "lo", "hi"]],
        "N_star",
        x="L",
        lines="line",
        joined=True,
        over=[plot.Polyline(least, "N_star", style=DOTTED)],
        labels=N_STAR | {"line": ""},
        size="4.6x3.4",
    )
    drawn.legends[0].remove()
    ax = drawn.axes[0]
    ax.set_ylim(bottom=25)
    ax.set_xlim(50, 5e4)
    title = "Only the number of first steps differs: V = d = 64, trigger in the key"
    setting = "first steps at $\\eta_c / 4$, then one attention step and 65 last steps"
    ax.set_title(f"{title}\n{setting}", fontsize=7.5, parse_math=True)
    ends = cells.groupby("line", observed=True).last()
    for marks, (name, end) in zip(ax.containers, ends.iterrows(), strict=True):
        color = marks.lines[0].get_color()
        spot, sides = (end["L"] * 1.15, end["N_star"]), {"va": "center"}
        if name.startswith(("32", "128")):  # beside these marks is no room
            spot, sides = (end["L"], end["N_star"] * 1.6), {"ha": "center"}
        ax.text(*spot, name, color=color, fontsize=8, **sides)
    ax.text(900, 50, LEAST, fontsize=8)
    return drawn


@as_table(
    ["first steps"], {"exponent of L [95 %]": lambda cells: with_ends(cells.iloc[0])}
)
def headline_exponents():
    """The exponent of L at V = d = 64, key only, with 65 last steps, from L = 64 to
    4096.
    """
    rows = pd.concat(
        [
            load(STUDY / "steps").query("L <= 256"),
            load(STUDY / "steps-long").query("L > 256"),
        ]
    )
    rows = rows.query("steps == 67 and not trigger_in_value")
    found = []
    for number, part in {
        "1": "first_steps == 1",
        "L / 8": "first_steps == L // 8",
    }.items():
        found.append({"first steps": number} | law_of_L(rows.query(part)).to_dict())
    return pd.DataFrame(found)


def arms_along_L():
    """Returns N* by first and by last steps at V = d = 64, of independent samples up to
    L = 256, and with a pool in longer sequences.
    """
    short = by_first_and_last("steps").query("L <= 256")
    long = by_first_and_last("steps-long").query("L >= 1024")
    cells = pd.concat([short, long]).query("`first steps` in ['1', 'L / 8']")
    return cells.dropna(subset="N_star")


def arms():
    """N* against L with the trigger in the value, by first and by last steps; an open
    mark has no interval.
    """
    cells = arms_along_L().query("trigger_in_value")
    last = cells["steps"].map({3: "1", 67: "65"})
    cells = cells.assign(arm=cells["first steps"] + " first, " + last + " last")
    cells = cells[["arm", "L", "N_star", "lo", "hi"]].sort_values("L")
    without = cells[cells["lo"].isna()].drop(columns=["lo", "hi"])
    least = pd.DataFrame({"L": [64, 4096], "N_star": 64 * np.log(2)})
    drawn = plot.figure(
        cells,
        "N_star",
        x="L",
        lines="arm",
        joined=True,
        over=[
            plot.Points(without, "N_star", style={"open": True}),
            plot.Polyline(least, "N_star", style=DOTTED),
        ],
        labels=N_STAR | {"arm": ""},
        size="4.6x3.4",
    )
    drawn.legends[0].remove()
    ax = drawn.axes[0]
    ax.set_ylim(bottom=25)
    ax.set_xlim(50, 5 * cells["L"].max())
    title = "First and last steps of V_mat: V = d = 64, trigger in the value"
    setting = (
        "independent samples up to L = 256, then a pool of 512 noise sequences\n"
        "bars: 95 % interval, open: no interval"
    )
    ax.set_title(f"{title}\n{setting}", fontsize=7.5)
    ends = cells.groupby("arm").last()
    for marks, (arm, end) in zip(ax.containers, ends.iterrows(), strict=False):
        color = marks.lines[0].get_color()
        spot = end["L"] * 1.1, end["N_star"]
        sides = {"va": "center"}
        if end["L"] == 256:  # other lines go on
            spot = end["L"] * 0.9, end["N_star"] * 1.4
            sides = {"va": "bottom", "ha": "right"}
        ax.text(*spot, arm, color=color, fontsize=8, **sides)
    ax.text(120, 48, LEAST, fontsize=8)
    return drawn
