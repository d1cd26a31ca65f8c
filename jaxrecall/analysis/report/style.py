"""How every picture looks: its size, panels and their headings, colours that read in grey and to colour-blind eyes, labels, files.

Brightness, marker and dash carry what colour carries. matplotlib is imported when something is drawn. The same picture gives
the same bytes: no dates, no random ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...model.point import FIELDS

COLUMN, PAGE = 3.4, 5.5
"""Widths of a picture, inches. On a screen that is 400 px wide a letter of a page-wide picture has 8 px."""

MARKERS = "osD^vP*Xd<>"
MAX_PANELS = 12
MAX_TEXT = 60
"""Characters of a value in a picture, at most."""

MAX_NAMED = 3
"""A heading names more axes than this only where fewer do not distinguish the panels."""

GREY = "0.35"
DASH = (0, (3, 1.5))
"""Linestyle of theory."""

ACCURACY = "test accuracy (fraction)"
"""Label of an axis."""

UNTESTED: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.8", "hatch": "////", "linewidth": 0.0}
_LOOK: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7.5,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "hatch.linewidth": 0.5,
    "hatch.color": "0.8",
    "text.parse_math": False,  # a column or a value may hold a $
    "svg.hashsalt": "jaxrecall",
    "svg.fonttype": "path",  # the same everywhere, whatever fonts there are
    "pdf.fonttype": 42,
}


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class NotDrawn(Exception):
    """The reason why a picture cannot be drawn of this table."""


@dataclass(frozen=True)
class Picture:
    """A drawn figure, its file name, its heading, and one sentence, made from the data, that says what to see in it."""

    name: str
    title: str
    caption: str
    figure: Any


@contextmanager
def look() -> Iterator[None]:
    """The settings of matplotlib, for drawing and for saving."""
    import matplotlib

    with matplotlib.rc_context(_LOOK):
        yield


def shades(n: int) -> list[Any]:
    """`n` colours in even steps of lightness, dark to light: they read in grey and colour-blind."""
    import matplotlib

    return [matplotlib.colormaps["viridis"](0.85 * i / max(1, n - 1)) for i in range(n)]


def canvas(n: int, same_x: bool = True) -> tuple[Any, list[Any]]:
    """A figure of `n` panels, at column width for one and at page width for more, and the axes of its panels."""
    from matplotlib.figure import Figure

    columns = 1 if n == 1 else 2 if n in (2, 4) else 3
    rows = -(-n // columns)
    size = (COLUMN, 2.7) if n == 1 else (PAGE, (2.2 if columns == 2 else 1.6) * rows + 0.8)
    figure = Figure(figsize=size, dpi=200, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=same_x, sharey=True).flat)
    for ax in panels[n:]:
        ax.set_visible(False)
    for above, below in zip(panels, panels[columns:], strict=False):
        above.tick_params(labelbottom=not (same_x and below.get_visible()))
    return figure, panels[:n]


def grouped(table: Any, by: Sequence[str], most: int | None = None) -> list[tuple[str, Any]]:
    """The table's groups by some of its columns, each with its heading, sorted; all of it without columns.

    At most `most` of them, evenly from the first to the last.
    """
    if not by:
        return [("", table)]
    groups = [(dict(zip(by, key, strict=True)), rows) for key, rows in table.groupby(list(by), sort=True, dropna=False)]
    groups = spread(groups, most or len(groups))
    names = distinguishing([values for values, _ in groups], by)
    return [(settings(values, names), rows) for values, rows in groups]


def distinguishing(groups: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[str]:
    """The columns that name the groups: those that vary, and no more than needed where they are more than MAX_NAMED."""
    names = [name for name in by if len({str(values[name]) for values in groups}) > 1] or list(by)
    for name in reversed(names):
        fewer = [other for other in names if other != name]
        if len(names) > MAX_NAMED and len({settings(values, fewer) for values in groups}) == len(groups):
            names = fewer
    return names


def head(figure: Any, panels: Sequence[Any], headings: Sequence[str]) -> None:
    """Headings of panels, broken between settings where they are wider than a panel; the figure grows with their lines."""
    lines = [_broken(heading, 19 * width_of(ax)) for ax, heading in zip(panels, headings, strict=True)]
    for ax, mine in zip(panels, lines, strict=True):
        ax.set_title(",\n".join(mine), pad=3)
    rows = panels[0].get_gridspec().nrows
    figure.set_figheight(figure.get_figheight() + 0.13 * rows * max(0, max(map(len, lines)) - 2))


def _broken(heading: str, most: float) -> list[str]:
    """Lines of at most `most` letters, if one setting is not longer."""
    lines: list[str] = []
    for part in filter(None, heading.split(", ")):
        if lines and len(lines[-1]) + len(part) + 2 <= most:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines


def spread(items: list[Any], most: int) -> list[Any]:
    """At most `most` of the items, evenly from the first to the last."""
    return items if len(items) <= most else [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def label(name: str) -> str:
    """An axis's symbol and what it counts, in few words."""
    legend = "gradient steps made" if name == "step" else re.split(";| that ", FIELDS[name].metadata["legend"])[0] if name in FIELDS else ""
    return f"{name}: {legend}" if legend else name


def name_axes(figure: Any, panels: Sequence[Any], x: str, y: str) -> None:
    """What is along x and y, once for all panels."""
    if len(panels) == 1:
        panels[0].set(xlabel=x, ylabel=y)
    else:
        figure.supxlabel(x, fontsize=8)
        figure.supylabel(y, fontsize=8)


def log_axis(axis: Any) -> None:
    """Log scale with numbered ticks: powers of ten, and numbers between them where there are few. After the limits are set."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    few = decades < 1.7
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if decades < 0.9 else (1, 3) if few else (1,)))
    axis.set_minor_locator(LogLocator(10, subs=range(2, 10), numticks=99) if few else NullLocator())
    axis.set_major_formatter((lambda value, _: f"{value:g}" if value < 1e6 else f"{value:.0e}") if few else _power_of_ten)
    axis.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float, _: object) -> str:
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)


def width_of(ax: Any) -> float:
    """Width of a panel, inches."""
    return ax.bbox.width / ax.figure.dpi


def apart(at: Sequence[float], labels: Sequence[str], width: float) -> list[int]:
    """Which labels can stand at these places, in ascending order, along `width` inches without touching: the last and all that fit."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    letter = 0.0088 * FontProperties(size=rcParams["xtick.labelsize"]).get_size_in_points()  # inches
    shown: list[int] = []
    for i in reversed(range(len(at))):
        if not shown or (at[shown[-1]] - at[i]) * width / (at[-1] - at[0]) > letter * (len(labels[i]) + len(labels[shown[-1]]) + 2) / 2:
            shown.append(i)
    return shown[::-1]


def settings(values: Mapping[str, Any], names: Iterable[str] | None = None) -> str:
    """d = 64, L = 8"""
    return ", ".join(f"{name} = {text(values[name])}" for name in (values if names is None else names))


def text(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    shown = str(value).lower() if str(value) in ("True", "False") else str(value)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."


def dashed_levels(ax: Any, colours: Mapping[float, Sequence[Any]]) -> None:
    """A dashed line at each height, in black if there is one, else in the first of its colours."""
    for height, own in colours.items():
        ax.axhline(height, color="black" if len(colours) == 1 else own[0], linestyle=DASH, linewidth=0.9)


def above(figure: Any, handles: Sequence[Any], title: str | None = None) -> None:
    """A legend over the panels, in as few lines as fit, under the title of the figure."""
    letter, handle = 0.056, 0.5  # inches, at the size of a legend

    def width(ncols: int) -> float:
        return sum(max(len(h.get_label()) for h in handles[i::ncols]) * letter + handle for i in range(ncols))

    fitting = [n for n in range(1, len(handles) + 1) if width(n) < figure.get_figwidth()]
    ncols = max(fitting, default=1)
    key(figure, handles, title, "outside upper center", ncols)


def key(figure: Any, handles: Sequence[Any], title: str | None = None, where: str = "outside right center", ncols: int = 1) -> None:
    """A legend outside of the panels."""
    if handles:
        figure.legend(handles=handles, title=title, loc=where, ncols=ncols, frameon=False, handlelength=2.2, columnspacing=1.2)


def line(named: str, **style: Any) -> Any:
    """An entry of a legend."""
    from matplotlib.lines import Line2D

    shown: dict[str, Any] = {"color": GREY} | style
    return Line2D([], [], label=named, **shown)


def untested() -> Any:
    from matplotlib.patches import Patch

    return Patch(label="not tested", **UNTESTED)


def save(picture: Picture, folder: Path) -> str:
    """Writes `<name>.pdf` and `<name>.png`; returns the picture as SVG to stand in a page, its ids its own."""
    figure = picture.figure
    with look():
        figure.get_layout_engine().execute(figure)
        figure.set_layout_engine("none")  # laid out once, for all three
        figure.savefig(folder / f"{picture.name}.pdf", metadata={"CreationDate": None})
        figure.savefig(folder / f"{picture.name}.png")
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture.name}-", svg)
    return re.sub(r' width="[^"]*" height="[^"]*"| height="[^"]*" width="[^"]*"', "", svg, count=1)
