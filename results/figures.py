"""Draws the figure of the scaling law from the tables of results/study/long and long-exact: python results/figures.py"""

import numpy as np
from matplotlib.figure import Figure
from tables import STUDY, searched

from jaxrecall.report.style import DASH, MARKERS, PAGE, Picture, above, line, log_axis, look, save, shades
from jaxrecall.theory import Model, critical_N


def critical():
    """N* against L: both regimes, theory as lines, exact cells."""
    found, exact = searched("long"), searched("long-exact")
    d_values, V_values = sorted(found["d"].unique()), sorted(found["V"].unique())
    colours = dict(zip(d_values, shades(len(d_values)), strict=True))
    figure = Figure(figsize=(PAGE, 3.4), dpi=200, layout="constrained")
    panels = figure.subplots(1, len(V_values), sharex=True, sharey=True)
    lengths = np.geomspace(found["L"].min(), found["L"].max(), 18).round().astype(int)
    for ax, V in zip(panels, V_values, strict=False):
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
    panels[0].set(xlim=(found["L"].min() / 1.6, found["L"].max() * 1.6), ylim=(found["N_star"].min() / 3, found["N_star"].max() * 3))
    for ax in panels:
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
    figure.supxlabel("L: sequence length, tokens", fontsize=8)
    figure.supylabel("N*: samples for a test accuracy of 1/2", fontsize=8)
    entries = [line(f"d = {d}", color=colours[d], marker=m, linestyle="none") for d, m in zip(d_values, MARKERS, strict=False)]
    entries += [line("theory, nothing fitted", linestyle=DASH)]
    entries += [line("exact run, no pool", marker="o", markersize=7, linestyle="none", markerfacecolor="none", color="#D55E00")]
    above(figure, entries)
    return Picture("critical-n", "Critical N against sequence length", "", figure)


if __name__ == "__main__":
    folder = STUDY / "long" / "figures"
    folder.mkdir(exist_ok=True)
    with look():
        picture = critical()
    save(picture, folder)
    print(folder / f"{picture.name}.png")
