"""Where things stand in a figure: panels, their headings, the names of axes, and legends off the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .paper import COLUMN, HIGHEST, PAGE, Size, drawable, inches, paper, points
from .style import spread

NARROW, LOW = 1.6, 1.3
"""Inches that a panel needs."""

BESIDE = 0.3
"""A legend that is wider than this part of the figure stands above it."""


def _across(width: float) -> int:
    """How many panels stand side by side."""
    return max(1, int((width + 0.3) / (NARROW + 0.2)))


def room() -> int:
    """How many panels have room on the paper."""
    chosen = paper() or Size(PAGE)
    return _across(chosen.width) * max(1, int((chosen.height or HIGHEST) / LOW))


def canvas(n: int, make: Callable[..., Any] | None = None) -> tuple[Any, list[Any]]:
    """A figure of `n` panels and their axes: of the size asked for, else as wide as a column for one panel, and as a page for more."""
    from matplotlib.figure import Figure

    chosen = paper() or Size(COLUMN if n == 1 else PAGE)
    most = _across(chosen.width)
    columns = 2 if n in (2, 4) and most > 1 else min(n, most)
    rows = -(-n // columns)
    each = min(2.2, max(1.6, 0.8 * chosen.width / columns))
    height = chosen.height or (max(2.7, 0.62 * chosen.width) if n == 1 else each * rows + 0.8)
    figure = (make or Figure)(figsize=(chosen.width, height), dpi=200, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for ax in panels[n:]:
        ax.set_visible(False)
    for upper, lower in zip(panels, panels[columns:], strict=False):
        upper.tick_params(labelbottom=not lower.get_visible())
    return figure, panels[:n]


def outside(ax: Any, handles: Sequence[Any], title: str | None, above: bool) -> None:
    """A legend beside an Axes of the user, or above a map, which has its colours beside it; as many entries as have room.

    Where matplotlib does not lay the figure out, the Axes gives room to it.
    """
    box = ax.get_position()
    size = ax.figure.get_size_inches() * (box.width, box.height)
    ncols = max(1, int(size[0] / entry_width(handles))) if above else 1
    entries = handles if above else spread(list(handles), max(2, int(size[1] / entry_height()) - bool(title)))
    shown = title if len(entries) == len(handles) else f"{title or ''}, {len(entries)} of {len(handles)}".lstrip(", ")
    where = {"loc": "lower left", "bbox_to_anchor": (0, 1.01)} if above else {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
    ax.legend(handles=entries, title=shown, frameon=False, ncols=ncols, borderaxespad=0, handlelength=2.2, **where)
    if ax.figure.get_layout_engine() is None:
        share = (entry_width(entries), len(entries) / ncols * entry_height()) / ax.figure.get_size_inches()
        less = (0, min(share[1], box.height / 2)) if above else (min(share[0], box.width / 2), 0)
        ax.set_position([box.x0, box.y0, box.width - less[0], box.height - less[1]])


def headings(figure: Any, panels: Sequence[Any], names: Sequence[str]) -> None:
    """Headings of panels, broken between settings where they are wider than a panel; the figure grows with their lines."""
    room = panels[0].bbox.width / figure.dpi
    broken = [wrapped(drawable(name), room) for name in names]
    for ax, lines in zip(panels, broken, strict=True):
        ax.set_title("\n".join(lines), pad=3)
    rows = panels[0].get_gridspec().nrows
    grow(figure, 0.13 * rows * max(0, max(map(len, broken)) - 2))


def wrapped(heading: str, room: float) -> list[str]:
    """A heading in lines of so many inches, broken after a comma, else after =; what is longer still is cut."""

    def wide(line: str) -> bool:
        return inches(line, "axes.titlesize") > room

    lines = [""]
    for part in re.split(r"(?<=,) ", heading):
        for piece in re.split(r"(?<==) ", part, maxsplit=1) if wide(part) else [part]:
            joined = f"{lines[-1]} {piece}".strip()
            lines[-1:] = [joined] if not wide(joined) or not lines[-1] else [lines[-1], piece]
    return [cut(line, room) for line in lines]


def cut(line: str, room: float) -> str:
    """A line that is no wider than so many inches."""
    kept = line
    while kept and inches(shown := kept if kept == line else f"{kept.strip()}...", "axes.titlesize") > room:
        kept = kept[:-1]
    return shown if kept else line[:1]


def name_axes(figure: Any, panels: Sequence[Any], x: str, y: str) -> None:
    """What is along x and y, once for all panels."""
    if len(panels) == 1:
        panels[0].set(xlabel=x, ylabel=y)
    else:
        figure.supxlabel(x, fontsize=points("axes.labelsize"))
        figure.supylabel(y, fontsize=points("axes.labelsize"))


def key(figure: Any, handles: Sequence[Any], title: str | None = None, where: str = "outside right center", ncols: int = 1) -> None:
    """A legend outside of the panels: as many entries as have room, evenly from the first to the last."""
    room = ncols * max(1, int((figure.get_figheight() - 0.6) / entry_height()))
    if len(handles) > room:
        title = f"{title or ''}, {room} of {len(handles)}".lstrip(", ")
    if handles:
        entries = spread(list(handles), room)
        figure.legend(handles=entries, title=title, loc=where, ncols=ncols, frameon=False, handlelength=2.2, columnspacing=1.2)


def entry_height(name: str = "legend.fontsize") -> float:
    """Height of an entry of a legend, inches."""
    return 1.55 * points(name) / 72


def entry_width(handles: Sequence[Any]) -> float:
    """Width of a column of these entries, inches."""
    return max(inches(handle.get_label(), "legend.fontsize") for handle in handles) + 4.4 * points("legend.fontsize") / 72


def above(figure: Any, handles: Sequence[Any], title: str | None = None) -> None:
    """A legend over the panels, in as few lines as fit, under the title of the figure."""
    widths = {n: sum(entry_width(handles[i::n]) for i in range(n)) for n in range(1, len(handles) + 1)}
    fitting = [n for n, width in widths.items() if width < figure.get_figwidth()]
    key(figure, handles, title, "outside upper center", max(fitting, default=1))


def grow(figure: Any, height: float) -> None:
    """Makes a figure higher, unless its height was asked for."""
    chosen = paper()
    if chosen is None or chosen.height is None:
        figure.set_figheight(figure.get_figheight() + height)
