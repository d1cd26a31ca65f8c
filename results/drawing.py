"""Functions and settings that the figures of the studies share.

These are the look, legends above the panels, ticks, and files.
"""

from contextlib import contextmanager

import matplotlib
import numpy as np
from law import STUDY
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

WIDTH = 5.5
"""The width of a figure, in inches."""

LETTER = 0.067
"""The width of a letter in a legend, in inches."""

ACCURACY = "test accuracy (fraction)"
MARKERS = "osD^vP*Xd<>"
GREY, DASH = "0.35", (0, (3, 1.5))
LOOK = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "pdf.fonttype": 42,
}


@contextmanager
def look():
    with matplotlib.rc_context(LOOK):
        yield


def canvas(rows, columns, height, **shared):
    figure = Figure(figsize=(WIDTH, height), dpi=200, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def shades(n):
    """Returns `n` colours in even steps of lightness, from dark to light."""
    return [matplotlib.colormaps["viridis"](0.85 * i / max(1, n - 1)) for i in range(n)]


def line(named, **style):
    """Returns an entry of a legend."""
    return Line2D([], [], label=named, **{"color": GREY} | style)


def above(figure, handles):
    """Adds a legend above the panels, in as few lines as fit."""
    names = [handle.get_label() for handle in handles]
    widths = {
        n: sum(LETTER * (max(map(len, names[i::n])) + 5.5) for i in range(n))
        for n in range(1, len(names) + 1)
    }
    ncols = max((n for n, width in widths.items() if width < WIDTH), default=1)
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=ncols,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
    )


def log_axis(axis):
    """Sets powers of ten as ticks, and numbers between them if there are few.

    The limits of the axis must be set before.
    """
    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    few = decades < 1.7
    axis.set_major_locator(
        LogLocator(10, subs=(1, 2, 5) if decades < 0.9 else (1, 3) if few else (1,))
    )
    axis.set_minor_locator(
        LogLocator(10, subs=range(2, 10), numticks=99) if few else NullLocator()
    )
    if few:
        axis.set_major_formatter(lambda value, _: f"{value:.4g}")
    axis.set_minor_formatter(NullFormatter())


def bars(ax, mine, **how):
    """Draws N* with its interval against L."""
    mine = mine[mine["N_star"].notna()].sort_values("L")
    error = [mine["N_star"] - mine["lo"], mine["hi"] - mine["N_star"]]
    ax.errorbar(mine["L"], mine["N_star"], yerr=error, elinewidth=0.7, **how)


def save(study, name, figure):
    """Writes a figure of a study as PNG and PDF."""
    folder = STUDY / study / "figures"
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.png")
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
    print(folder / f"{name}.png")
