"""The phase planes of an MLP over (m d, N) and (m d, L), from results/study/phase-mlp.

They show what keeps accuracy below one half.
"""

from functools import cache

import numpy as np
from drawing import DASH, above, canvas, line
from law import STUDY, TRIGGER, on_all_cores
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from scipy.special import stdtrit
from table import as_table
from width import REQUIRED, in_thousands

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, accuracy

V, D, L, N = 96, 64, 64, 65536
"""The sizes of both planes; L is that of the first plane, and N that of the second."""

SETTINGS = (("relu", "gaussian"), ("quadratic", "sphere"), ("cubic", "sphere"))
ROWS = tuple(
    (*plane, inside)
    for plane in (("N", f"L == {L}"), ("L", f"N == {N}"))
    for inside in (False, True)
)
"""The rows of panels: the upward axis, the condition on cells, and the path of the
trigger.
"""

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
    "mlp": ("attention fails: MLP noise", "#D55E00"),
    "bias": ("attention fails: mean bias", "#0072B2"),
    "gradient": ("attention fails: gradient noise", "#009E73"),
    "leakage": ("attention fails: leakage", "#CC79A7"),
    "memory": ("attention works, recall < 1/2", "0.8"),
    "recall": ("recall > 1/2", "#FBF4C9"),
}
UNDECIDED = {
    "marker": "x",
    "color": "black",
    "linestyle": "none",
    "markersize": 2.4,
    "markeredgewidth": 0.6,
}
"""The marker of cells in which the 95 % interval of the mean accuracy contains one
half.
"""

KEY = ["activation", "embedding", "trigger_in_value", "L", "N", "m"]
ORDER = ["activation", "trigger_in_value"]


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
    settings = [
        dict(zip(KEY, at, strict=True))
        for at in cells()[KEY].itertuples(index=False, name=None)
    ]
    models = [
        Model(
            V=V,
            d=D,
            kappa=1e6,
            **{name: value for name, value in at.items() if name != "N"},
        )
        for at in settings
    ]
    return cells()[KEY].assign(
        theory=on_all_cores(accuracy, models, [at["N"] for at in settings])
    )


def planes():
    """Draws both planes, with a row for each path of the trigger.

    There is a column for each activation.
    """
    figure, panels = canvas(4, 3, 6.6, sharex=True, sharey="row")
    table = cells().merge(predicted(), on=KEY)
    for across, (up, condition, inside) in zip(panels, ROWS, strict=True):
        for ax, (activation, _) in zip(across, SETTINGS, strict=True):
            draw(
                ax,
                table.query(
                    f"{condition} and activation == '{activation}' and trigger_in_value"
                    f" == {inside}"
                ),
                up,
            )
        across[0].set(
            ylabel=(
                f"trigger {'in' if inside else 'out'}\n{up}:"
                f" {'samples' if up == 'N' else 'tokens'}"
            )
        )
    for ax, setting in zip(panels[0], SETTINGS, strict=True):
        ax.set_title("{}, {} rows".format(*setting))
    figure.supxlabel(f"m d: entries of V_mat, d = {D}", fontsize=8)
    named = [
        (colour, label)
        for state, (label, colour) in STATES.items()
        if (table["state"] == state).any()
    ]
    entries = [
        Patch(facecolor=colour, label=label, edgecolor="0.6", linewidth=0.4)
        for colour, label in named
    ]
    entries += [
        line("accuracy 1/2", color="black"),
        line("theory", color="black", linestyle=DASH),
        line("undecided", **UNDECIDED),
    ]
    above(figure, entries)
    return "planes", figure


def draw(ax, mine, up):
    """Draws one panel: the state of every cell, and the lines of accuracy one half.

    Crosses mark the undecided cells.
    """

    def grid(column):
        return mine.pivot(index=up, columns="m", values=column)

    states = grid("state").map([*STATES].index)
    x = np.log2(states.columns.to_numpy(float) * D)
    y = np.log2(states.index.to_numpy(float))
    colours = ListedColormap([colour for _, colour in STATES.values()])
    ax.pcolormesh(
        x,
        y,
        states,
        cmap=colours,
        vmin=-0.5,
        vmax=colours.N - 0.5,
        shading="nearest",
        edgecolors="white",
        linewidth=0.3,
    )
    for column, style in (("accuracy", "solid"), ("theory", DASH)):
        if grid(column).min(axis=None) < 0.5 < grid(column).max(axis=None):
            ax.contour(
                x,
                y,
                grid(column),
                levels=[0.5],
                colors="black",
                linewidths=1.1,
                linestyles=[style],
            )
    unsure = mine[mine["undecided"]]
    ax.plot(np.log2(unsure["m"] * D), np.log2(unsure[up]), **UNDECIDED)
    ax.set_xticks(
        x[1::2], [f"{2**v:.0f}" if v < 10 else f"{2 ** (v - 10):.0f}k" for v in x[1::2]]
    )
    shown = y[1::4] if up == "N" else y[::3]
    ax.set_yticks(
        shown,
        [
            (
                f"{2**v:.0f}"
                if v < 10
                else f"{2 ** (v - 10):.0f}k"
                if v < 20
                else f"{2 ** (v - 20):.0f}M"
            )
            for v in shown
        ],
    )


def widths(condition):
    """Returns m* d in thousands at accuracy one half, with its 95 % interval.

    There is a row for each cell that fulfils a condition.
    """
    rows = load(STUDY / "phase-mlp").query(condition)
    found = fit(rows, [0.5], along="m").thresholds.query("record")
    levels_off = found["warning"].str.contains("plateau|hardly")
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


@as_table(
    ["activation", "trigger"],
    {label: number_of(state) for state, (label, _) in STATES.items()},
)
def leading():
    """The number of cells of both planes, by what keeps accuracy below one half."""
    return cells()


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
