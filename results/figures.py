"""Draws the figures of the scaling law from the tables of results/study/law: python results/figures.py"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from jaxrecall import load
from jaxrecall.report.style import DASH, GREY, MARKERS, PAGE, Picture, above, line, log_axis, look, save, shades
from jaxrecall.theory import Model, accuracy, critical_N

STUDY = Path(__file__).parent / "study"
CELL = ["V", "d", "L"]
SHORT, LONG = 0.1, 10.0
"""Cells with L^2 / (V^(3/2) d^(1/2)) below and above these are of the regime of short and of long sequences."""


def thresholds(study="law", theta=0.5):
    """What the search of a study found, a row for each cell: N_star (nan where there is none), lo, hi, crossover, predicted."""
    found = pd.DataFrame(json.loads((STUDY / study / "search.json").read_text())["cells"])
    found = found[found["theta"] == theta].reset_index(drop=True).astype({"N_star": float, "lo": float, "hi": float})
    found["crossover"] = found["L"] ** 2 / found["V"] ** 1.5 / found["d"] ** 0.5
    found["predicted"] = [critical_N(Model(V=V, d=d, L=L), theta) for V, d, L in found[CELL].itertuples(index=False)]
    return found


def levels(study="law", seeds=8):
    """Means over seeds at every N of a cell that at least so many seeds ran at."""
    rows = load(STUDY / study)
    means = rows.groupby([*CELL, "N"])[["accuracy", "trigger_cosine", "attention_mass"]].agg(["mean", "count"])
    means = means[means["accuracy"]["count"] >= seeds]
    return means.xs("mean", axis=1, level=1).reset_index()


def canvas(rows, columns, height, **shared):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE, height), dpi=200, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def critical():
    """N* against L: both regimes, theory as lines, exact cells."""
    found, exact = thresholds(), thresholds("law-exact")
    d_values, V_values = sorted(found["d"].unique()), sorted(found["V"].unique())
    colours = dict(zip(d_values, shades(len(d_values)), strict=True))
    figure, panels = canvas(-(-len(V_values) // 3), 3, 4.6, sharex=True, sharey=True)
    lengths = np.geomspace(found["L"].min(), found["L"].max(), 18).round().astype(int)
    for ax, V in zip(panels.flat, V_values, strict=False):
        for d, marker in zip(d_values, MARKERS, strict=False):
            mine = found[(found["V"] == V) & (found["d"] == d)]
            if mine.empty:
                continue
            ax.plot(lengths, [critical_N(Model(V=V, d=d, L=int(L))) for L in lengths], color=colours[d], linestyle=DASH, linewidth=0.9)
            error = [mine["N_star"] - mine["lo"], mine["hi"] - mine["N_star"]]
            ax.errorbar(mine["L"], mine["N_star"], yerr=error, color=colours[d], marker=marker, linestyle="none", elinewidth=0.7)
            check = exact[(exact["V"] == V) & (exact["d"] == d)]
            ax.plot(check["L"], check["N_star"], marker="o", markersize=8, linestyle="none", markerfacecolor="none", color="#D55E00")
        ax.set(xscale="log", yscale="log", title=f"V = {V}")
        ax.grid(True)
    panels[0, 0].set(xlim=(found["L"].min() / 1.6, found["L"].max() * 1.6), ylim=(found["N_star"].min() / 3, found["N_star"].max() * 3))
    for ax in panels.flat:
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
    figure.supxlabel("L: sequence length, tokens", fontsize=8)
    figure.supylabel("N*: samples for a test accuracy of 1/2", fontsize=8)
    entries = [line(f"d = {d}", color=colours[d], marker=m, linestyle="none") for d, m in zip(d_values, MARKERS, strict=False)]
    entries += [line("theory, nothing fitted", linestyle=DASH)]
    entries += [line("exact run, no pool", marker="o", markersize=7, linestyle="none", markerfacecolor="none", color="#D55E00")]
    above(figure, entries)
    return Picture("critical-n", "Critical N against sequence length", "", figure)


def by_regime(table):
    """Its rows of short, middle and long sequences."""
    x = table["L"] ** 2 / table["V"] ** 1.5 / table["d"] ** 0.5
    names = ["short sequences", "crossover", "long sequences"]
    return [(name, table[where]) for name, where in zip(names, (x < SHORT, (x >= SHORT) & (x <= LONG), x > LONG), strict=True)]


REGIMES = dict(zip(("short sequences", "crossover", "long sequences"), ("#0072B2", "0.6", "#D55E00"), strict=True))


def regimes():
    """Entries of a legend."""
    return [line(name, marker=shape, linestyle="none", color=colour) for shape, (name, colour) in zip(SHAPES, REGIMES.items(), strict=True)]


def dots(regime):
    return {"color": REGIMES[regime], "linestyle": "none", "markersize": 2.5, "alpha": 0.7}


SHAPES = "oxs"


def with_predictions(table):
    found = thresholds().set_index(CELL)["predicted"]
    table = table.join(found, on=CELL)
    table = table[np.isfinite(table["predicted"])]
    predicted = [accuracy(Model(V=int(V), d=int(d), L=int(L)), N) for V, d, L, N in table[[*CELL, "N"]].itertuples(index=False)]
    return table.assign(x=table["N"] / table["predicted"], theory=predicted)


def collapse():
    """Accuracy against N over the predicted N*, and what theory leaves."""
    table = with_predictions(levels())
    figure, panels = canvas(1, 2, 3.0)
    curve, rest = panels[0]
    for marker, (name, rows) in zip(SHAPES, by_regime(table), strict=True):
        curve.plot(rows["x"], rows["accuracy"], marker=marker, **dots(name))
        rest.plot(rows["x"], rows["accuracy"] - rows["theory"], marker=marker, **dots(name))
    for ax in (curve, rest):
        ax.set(xscale="log", xlim=(0.1, 30), xlabel="N / predicted N* (no fitted constant)")
        ax.axvline(1, color=GREY, linewidth=0.6)
        ax.grid(True)
        log_axis(ax.xaxis)
    curve.set(ylabel="test accuracy (fraction)", ylim=(0, 1))
    rest.set(ylabel="accuracy less theory's", ylim=(-0.5, 0.5))
    rest.axhline(0, color=GREY, linewidth=0.6)
    above(
        figure,
        [line(name, marker=marker, linestyle="none", color=colour) for marker, (name, colour) in zip(SHAPES, REGIMES.items(), strict=True)],
    )
    return Picture("collapse", "Accuracy against N in units of the predicted N*", "", figure)


def order_parameters():
    """Trigger cosine and attention mass against N over the predicted N*."""
    table = with_predictions(levels())
    figure, panels = canvas(1, 2, 3.0, sharex=True)
    for ax, (column, name) in zip(
        panels[0],
        (("trigger_cosine", "cosine between W_KQ z_eos and z_trig"), ("attention_mass", "attention on the informative token")),
        strict=True,
    ):
        for marker, (regime, rows) in zip(SHAPES, by_regime(table), strict=True):
            ax.plot(rows["x"], rows[column], marker=marker, **dots(regime))
        ax.set(xscale="log", xlim=(0.1, 30), ylim=(0, 1.02), xlabel="N / predicted N*", ylabel=name)
        ax.axvline(1, color=GREY, linewidth=0.6)
        ax.grid(True)
        log_axis(ax.xaxis)
    above(
        figure,
        [line(name, marker=marker, linestyle="none", color=colour) for marker, (name, colour) in zip(SHAPES, REGIMES.items(), strict=True)],
    )
    return Picture("order", "Order parameters", "", figure)


if __name__ == "__main__":
    folder = STUDY / "law" / "figures"
    folder.mkdir(exist_ok=True)
    for draw in (critical, collapse, order_parameters):
        with look():
            picture = draw()
        save(picture, folder)
        print(folder / f"{picture.name}.png")
