"""The phase planes of an MLP over (m d, N) and (m d, L), from results/study/phase-mlp.

They show what keeps accuracy below one half.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from law import DASHED, STUDY, TRIGGER, on_all_cores, with_trigger
from scipy.special import stdtrit
from table import as_table
from width import REQUIRED, in_thousands

from jaxrecall import load, plot
from jaxrecall.fit import fit
from jaxrecall.theory import Model, accuracy

V, D, L, N = 96, 64, 64, 65536
"""The sizes of both planes; L is that of the first plane, and N that of the second."""

WORKS = 0.9
"""The share of test sequences above which attention works.

Counted are the sequences in which the informative token has the largest score.
"""

PARTS = {
    "mlp": "noise_mlp",
    "bias": "noise_bias",
    "gradient": "noise_gradient",
    "leakage": "noise_leakage",
}
STATES = {
    "mlp": "attention fails: MLP noise",
    "bias": "attention fails: mean bias",
    "gradient": "attention fails: gradient noise",
    "memory": "attention works, recall < 1/2",
    "recall": "recall > 1/2",
    "leakage": "attention fails: leakage",
}
"""What each state means, in the order of the colours in planes.mplstyle."""

ORDER = ["activation", "trigger_in_value"]
CELL = ["activation", "embedding", "trigger_in_value", "L", "N"]
KEY = [*CELL, "m"]


@cache
def cells():
    """Returns every cell with its mean accuracy and its state.

    The state is what keeps accuracy below one half. `undecided` is whether the 95 %
    interval of the mean accuracy contains one half.
    """
    rows = load(STUDY / "phase-mlp")
    found = rows.groupby(KEY).agg(
        accuracy=("accuracy", "mean"),
        error=("accuracy", "sem"),
        seeds=("seed", "count"),
        top1=("attention_top1", "mean"),
        **{name: (column, "median") for name, column in PARTS.items()},
    )
    leads = found[[*PARTS]].idxmax(axis=1)
    fails, above_half = found["top1"] < WORKS, found["accuracy"] > 0.5
    undecided = (found["accuracy"] - 0.5).abs() < found["error"] * stdtrit(
        found["seeds"] - 1, 0.975
    )
    state = leads.where(fails, "memory").where(~above_half, "recall")
    found = found.assign(leads=leads, fails=fails, undecided=undecided, state=state)
    found = found.reset_index()
    return found.assign(trigger=found["trigger_in_value"].map(TRIGGER))


@cache
def predicted():
    """Returns the predicted accuracy of every cell."""
    fields = cells()[KEY].drop(columns="N").to_dict("records")
    models = [Model(V=V, d=D, kappa=1e6, **values) for values in fields]
    theory = on_all_cores(accuracy, models, cells()["N"])
    return cells()[KEY].assign(theory=theory)


def by_samples():
    """What keeps accuracy below one half, over m d and N."""
    return plane("N", f"L == {L}")


def by_lengths():
    """What keeps accuracy below one half, over m d and L."""
    return plane("L", f"N == {N}")


def plane(up, condition):
    """Draws the state of every cell over m d and N or L.

    Lines are at an accuracy of one half, and crosses mark undecided cells.
    """
    table = with_trigger(cells()).merge(predicted(), on=KEY).query(condition)
    states = pd.Categorical(table["state"].map(STATES), STATES.values())
    table = table.assign(state=states, width=D * table["m"])
    undecided = table[table["undecided"]].drop(columns="state")
    cross = {"marker": "x", "size": 0.7, "linestyle": "none"}
    over = [
        plot.Contour(table, "accuracy", "accuracy 1/2"),
        plot.Contour(table, "theory", "theory", DASHED),
        plot.Points(undecided, up, "undecided", cross),
    ]
    return plot.figure(
        table,
        up,
        x="width",
        colour="state",
        rows="trigger",
        columns=["activation", "embedding"],
        over=over,
        labels={
            "width": f"m d: entries of V_mat, d = {D}",
            "N": "N: samples",
            "L": "L: tokens in a sequence",
            "activation": "",
            "embedding": "",
            "trigger": "",
        },
        style=Path(__file__).with_name("planes.mplstyle"),
    )


def hardly_changes(rows, thresholds):
    """Whether accuracy changes by less than 0.02 from the smallest m to the largest.

    There is an answer for each threshold.
    """
    means = rows[rows["m"] > 0].groupby([*CELL, "m"])["accuracy"].mean()
    ends = means.groupby(CELL).agg(["first", "last"])
    change = ends["last"] - ends["first"]
    is_flat = change[change < 0.02].index
    cells = rows[CELL].drop_duplicates()
    names = [name for name in CELL if name in thresholds]
    fixed = {name: cells[name].iloc[0] for name in CELL if name not in thresholds}
    keys = thresholds[names].assign(**fixed)[CELL]
    never = thresholds["censored"] == "right"
    return never & pd.MultiIndex.from_frame(keys).isin(is_flat)


def widths(condition):
    """Returns m* d in thousands at accuracy one half, with its 95 % interval.

    There is a row for each cell that fulfils a condition.
    """
    rows = load(STUDY / "phase-mlp").query(condition)
    found = fit(rows, [0.5], along="m").thresholds.query("record")
    levels_off = (found["state"] == "plateau") | hardly_changes(rows, found)
    found = found.assign(
        outcome=found["censored"].mask(levels_off, "plateau"),
        trigger=found["trigger_in_value"].map(TRIGGER),
    )
    return in_thousands(found.sort_values(ORDER, ascending=[False, True]))


@as_table(["activation", "trigger"], {"N = {N}": REQUIRED})
def widths_by_samples():
    """m* d in thousands by N, at L = 64 (V = 96, d = 64).

    "none": accuracy levels off below one half as m grows.
    """
    thinned = "512 <= N <= 65536 or N in (262144, 1048576)"
    return widths(f"L == {L}").query(thinned)


@as_table(["activation", "trigger"], {"L = {L}": REQUIRED})
def widths_by_lengths():
    """m* d in thousands by L, at N = 65536 (V = 96, d = 64).

    "none": accuracy levels off below one half as m grows.
    """
    return widths(f"N == {N}").query("L in (8, 32, 64, 128, 256, 512, 1024, 4096)")


def number_of(state):
    """Makes a cell of the number of cells in a state."""
    return lambda cells: (cells["state"] == state).sum()


def number_of_others(cells):
    """The number of cells above one half although attention fails."""
    return (cells["fails"] & (cells["state"] == "recall")).sum()


@as_table(
    ["activation", "trigger"],
    {label: number_of(state) for state, label in STATES.items()}
    | {"attention fails, recall > 1/2": number_of_others},
)
def leading():
    """The number of cells of both planes, by what keeps accuracy below one half.

    The cells of the last column are also in the column recall > 1/2.
    """
    return pd.concat([cells(), cells().assign(activation="all", trigger="both")])


def borders(mine):
    """Formats the border at which attention begins to work in both planes."""
    samples = border(mine.query(f"L == {L}"), "N") / 1000
    length = border(mine.query(f"N == {N}"), "L")
    text = f"{float(f'{samples:.2g}'):g} ({length:.0f})"
    return text.replace("nan", "none")


@as_table(["activation", "trigger"], {"m = {m}": borders})
def attention_borders():
    """The border at which attention begins to work, for each m.

    The number is the smallest N at L = 64, in thousands. The number in brackets is the
    largest L at N = 65536.
    """
    return cells().sort_values(ORDER, ascending=[False, True])


def border(mine, axis):
    """Where the share of sequences crosses WORKS, between neighbouring values of an
    axis.

    The result is nan if it does not cross.
    """
    mine = mine.sort_values(axis)
    above = (mine["top1"] - WORKS).to_numpy()
    crossed = np.flatnonzero(above[:-1] * above[1:] <= 0)
    if not len(crossed):
        return np.nan
    k = crossed[-1] if axis == "N" else crossed[0]
    part = above[k] / (above[k] - above[k + 1])
    low, high = mine[axis].iloc[k], mine[axis].iloc[k + 1]
    return low * (high / low) ** part
