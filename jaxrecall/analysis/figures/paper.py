"""The paper that a figure is for: its size, the look of its
text, and where panels, headings and legends stand on it.

matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import UsageError, in_one_line
from .style import GREY, THIN, font_of, has_letters, spread

COLUMN, PAGE = 3.4, 5.5
"""Widths of a figure, inches. On a screen that is 400 px wide a letter of a page-wide figure has 8 px."""

HIGHEST = 9.0
"""Of a figure whose height was not asked for."""

LEAST, MOST = 1.5, 20.0
"""Sides of a figure, inches."""

NARROW, LOW = 1.6, 1.3
"""Inches that a panel needs."""

BESIDE = 0.3
"""A legend that is wider than this part of the figure stands above it."""

OURS, FIXED = (Path(__file__).with_name(f"{name}.mplstyle") for name in ("report", "fixed"))
"""The look of a report, and what no style changes."""

Size = tuple[float, float | None]
"""Width and height, inches; a height of None leaves it to the panels."""

SIZES: dict[str, Size] = {"column": (COLUMN, None), "text": (PAGE, None)}
_size: ContextVar[Size | None] = ContextVar("size", default=None)


def sized(asked: str | None) -> Size | None:
    """The size that a text stands for: column, text, or inches as in 3.4x2.6; raises UsageError."""
    if asked is None or asked in SIZES:
        return SIZES[asked] if asked else None
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) *x *([0-9]*\.?[0-9]+)", str(asked))
    sides = [float(side) for side in found.groups()] if found else []
    if not sides or not all(LEAST <= side <= MOST for side in sides):
        allowed = f"{', '.join(SIZES)}, or inches as in 3.4x2.6, each {LEAST:g} to {MOST:g}"
        raise UsageError(f"size: got {asked!r}; allowed: {allowed}")
    return sides[0], sides[1]


def paper() -> Size | None:
    """The size that was asked for."""
    return _size.get()


@contextmanager
def look(size: str | None = None, style: Any = None, ours: bool = True) -> Iterator[None]:
    """The settings of a report for drawing and for saving, with those of a style over them, and a size.

    Args:
        size: as for `sized`.
        style: a style file of matplotlib, or the name of one of its styles.
        ours: whether the look of a report stands beneath, instead of the user's
            settings.

    Raises UsageError for a size or a style that there is not, and for settings that
    matplotlib cannot use.
    """
    try:
        from matplotlib import style as styles
    except Exception as error:  # it reads its settings as it is imported
        allowed = "an MPLBACKEND and a matplotlibrc that it can use"
        raise UsageError(f"matplotlib: cannot be imported ({in_one_line(error)}); allowed: {allowed}") from error
    found, given = sized(size), [style] if style else []
    with ExitStack() as stack:
        try:
            stack.enter_context(styles.context([OURS, *given, FIXED] if ours else given))
        except (OSError, ValueError, TypeError) as error:
            known = isinstance(error, ValueError)
            why = str(error).partition("\n")[0] if known else "no such file, nor a style of matplotlib"
            allowed = "a .mplstyle file, or a name such as ggplot"
            raise UsageError(f"style: got {str(style)!r}; {why}; allowed: {allowed}") from error
        token = _size.set(found)
        try:
            yield
        finally:
            _size.reset(token)


def points(name: str) -> float:
    """The size of letters that a setting of matplotlib means, such as "legend.fontsize"."""
    import matplotlib
    from matplotlib.font_manager import FontProperties

    settings: Any = matplotlib.rcParams
    return FontProperties(size=settings[name]).get_size_in_points()


def inches(shown: str, name: str = "font.size") -> float:
    """How wide a text is at such a size."""
    import matplotlib

    return _inches(shown, round(points(name), 2), tuple(matplotlib.rcParams["font.family"]))


@lru_cache(maxsize=20_000)
def _inches(shown: str, size: float, family: tuple[str, ...]) -> float:
    font = font_of(family)
    font.set_size(size, 72)
    font.set_text(shown)
    return font.get_width_height()[0] / 64 / 72


def drawable(shown: str) -> str:
    """A text with plain spaces in its numbers where the font in use has no thin ones."""
    plain = THIN in shown and not has_letters([ord(THIN)])
    return shown.replace(THIN, " ") if plain else shown


def _across(width: float) -> int:
    """How many panels stand side by side."""
    return max(1, int((width + 0.3) / (NARROW + 0.2)))


def room() -> int:
    """How many panels have room on the paper."""
    width, height = paper() or (PAGE, None)
    return _across(width) * max(1, int((height or HIGHEST) / LOW))


def canvas(n: int, make: Callable[..., Any] | None = None) -> tuple[Any, list[Any]]:
    """A figure of `n` panels and their axes: of the size asked for,
    else as wide as a column for one panel, and as a page for more.
    """
    from matplotlib.figure import Figure

    width, height = paper() or (COLUMN if n == 1 else PAGE, None)
    most = _across(width)
    columns = 2 if n in (2, 4) and most > 1 else min(n, most)
    rows = -(-n // columns)
    each = min(2.2, max(1.6, 0.8 * width / columns))
    height = height or (max(2.7, 0.62 * width) if n == 1 else each * rows + 0.8)
    figure = (make or Figure)(figsize=(width, height), dpi=200, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for ax in panels[n:]:
        ax.set_visible(False)
    for upper, lower in zip(panels, panels[columns:], strict=False):
        upper.tick_params(labelbottom=not lower.get_visible())
    return figure, panels[:n]


def grow(figure: Any, height: float) -> None:
    """Makes a figure higher, unless its height was asked for."""
    if (paper() or (None, None))[1] is None:
        figure.set_figheight(figure.get_figheight() + height)


def headings(figure: Any, panels: Sequence[Any], names: Sequence[str]) -> None:
    """Headings of panels, broken between settings where they
    are wider than a panel; the figure grows with their lines.
    """
    room = panels[0].bbox.width / figure.dpi
    broken = [wrapped(drawable(name), room) for name in names]
    for ax, lines in zip(panels, broken, strict=True):
        ax.set_title("\n".join(lines), pad=3)
    rows = panels[0].get_gridspec().nrows
    grow(figure, 0.13 * rows * max(0, max(map(len, broken)) - 2))


def titled(figure: Any, title: str, size: str) -> str:
    """The title of a figure in lines that it has room for; the figure grows with those that are added."""
    given = title.split("\n")
    lines = [line for text in given for line in wrapped(drawable(text), figure.get_figwidth() - 0.1, size)]
    grow(figure, entry_height(size) * (len(lines) - len(given)))
    return "\n".join(lines)


def wrapped(heading: str, room: float, size: str = "axes.titlesize") -> list[str]:
    """A heading in lines of so many inches, broken after
    a comma, else after =; what is longer still is cut.
    """

    def wide(line: str) -> bool:
        return inches(line, size) > room

    def cut(line: str) -> str:
        kept = len(line)
        while kept and wide(shown := line if kept == len(line) else f"{line[:kept].strip()}..."):
            kept -= 1
        return shown if kept else line[:1]

    lines = [""]
    for part in re.split(r"(?<=,) ", heading):
        for piece in re.split(r"(?<==) ", part, maxsplit=1) if wide(part) else [part]:
            joined = f"{lines[-1]} {piece}".strip()
            lines[-1:] = [joined] if not wide(joined) or not lines[-1] else [lines[-1], piece]
    return [cut(line) for line in lines]


def line(named: str, **style: Any) -> Any:
    """An entry of a legend."""
    from matplotlib.lines import Line2D

    shown: dict[str, Any] = {"color": GREY} | style
    return Line2D([], [], label=drawable(named), **shown)


def entry_height(name: str = "legend.fontsize") -> float:
    """Height of an entry of a legend, inches."""
    return 1.55 * points(name) / 72


def entry_width(handles: Sequence[Any]) -> float:
    """Width of a column of these entries, inches."""
    letters = max(inches(handle.get_label(), "legend.fontsize") for handle in handles)
    return letters + 4.4 * points("legend.fontsize") / 72


def _fitting(handles: Sequence[Any], room: int, title: str | None) -> tuple[list[Any], str | None]:
    """As many entries as have room, evenly from the first
    to the last, and a title that says how many these are.
    """
    if len(handles) > room:
        title = f"{title or ''}, {room} of {len(handles)}".lstrip(", ")
    return spread(list(handles), room), title


def key(figure: Any, handles: Sequence[Any], title: str | None = None, where: str = "outside right center", ncols: int = 1) -> None:
    """A legend outside of the panels."""
    room = ncols * max(1, int((figure.get_figheight() - 0.6) / entry_height()))
    entries, title = _fitting(handles, room, title)
    if entries:
        figure.legend(handles=entries, title=title, loc=where, ncols=ncols, frameon=False, handlelength=2.2, columnspacing=1.2)


def above(figure: Any, handles: Sequence[Any], title: str | None = None) -> None:
    """A legend over the panels, in as few lines as fit, under the title of the figure."""
    widths = {n: sum(entry_width(handles[i::n]) for i in range(n)) for n in range(1, len(handles) + 1)}
    fitting = [n for n, width in widths.items() if width < figure.get_figwidth()]
    key(figure, handles, title, "outside upper center", max(fitting, default=1))


def outside(ax: Any, handles: Sequence[Any], title: str | None, above: bool) -> None:
    """A legend beside an Axes of the user, or above a map, which
    has its colours beside it; as many entries as have room.

    Where matplotlib does not lay the figure out, the Axes gives room to it.
    """
    box = ax.get_position()
    width, height = ax.figure.get_size_inches() * (box.width, box.height)
    ncols = max(1, int(width / entry_width(handles))) if above else 1
    room = len(handles) if above else max(2, int(height / entry_height()) - bool(title))
    entries, title = _fitting(handles, room, title)
    place: Any = ("lower left", (0, 1.01)) if above else ("upper left", (1.01, 1))
    ax.legend(
        handles=entries, title=title, loc=place[0], bbox_to_anchor=place[1], ncols=ncols,
        frameon=False, borderaxespad=0, handlelength=2.2,
    )  # fmt: skip
    if ax.figure.get_layout_engine() is None:
        whole = ax.figure.get_size_inches()
        right = 0 if above else min(entry_width(entries) / whole[0], box.width / 2)
        top = min(len(entries) / ncols * entry_height() / whole[1], box.height / 2) if above else 0
        ax.set_position([box.x0, box.y0, box.width - right, box.height - top])


def name_axes(figure: Any, panels: Sequence[Any], x: str, y: str) -> None:
    """What is along x and y, once for all panels."""
    if len(panels) == 1:
        panels[0].set(xlabel=x, ylabel=y)
    else:
        figure.supxlabel(x, fontsize=points("axes.labelsize"))
        figure.supylabel(y, fontsize=points("axes.labelsize"))
