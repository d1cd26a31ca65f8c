"""One figure: layers over panels.

A chart says what a figure shows: its layers, the column along x, and the columns in
which lines and panels differ. A panel shows the rows with one combination of values,
and each of its lines those with one combination more:

    levels = [Polyline(means, "accuracy"), Points(stars, "theta", across=True)]
    Chart(levels, x="N", roles=roles, lines=["d"], panels=["L"]).figure()

`Chart.figure` draws everything in one pass: it makes the panels, draws each layer in
each panel, and adds ticks, titles and the legend above. matplotlib's constrained layout
gives them room. `figure` makes such a chart from any table.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fit.roles import Roles, Table
from .layers import (
    Axis,
    Layer,
    Panel,
    Pixels,
    Points,
    Selection,
    X,
    Y,
    entry,
    floats,
    ordered,
    values_of,
    where,
)
from .style import (
    LETTER,
    LINE,
    Size,
    Style,
    ink,
    keywords,
    label,
    line_styles,
    points,
    settings,
    text,
    usual_size,
)
from .table_of_runs import MAX_LINES, scale_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMN = "_column"
"""The column of a table in which several measured columns follow each other."""

MAX_PANELS, MAX_SIDE = 12, 8
"""The largest number of panels that follow each other, and of rows or of columns."""

MOST_TICKS = 9
"""The largest number of values for which the ticks of an axis are at the values."""

MAX_NAME = 24
"""The largest number of characters in the name of a tick."""

HIGHEST = 9.0
"""The largest height of a figure for which no size was asked, in inches."""

ROOM = 1.15
"""The length of a panel after the layout relative to that before."""

SMALL = 0.75
"""The size of the text of long titles relative to that of others."""

HANDLE = 8
"""The width of the mark and of the gaps of an entry of a legend, in letters."""

BELOW_ZERO = "0 or less, below the axis"
LEGEND_TITLE = "legend.title_fontsize"
BELOW: Style = {"marker": 7, "linestyle": "none", "size": 1.3}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Chart:
    """What a figure shows; the first layer determines the lines and the panels.

    Attributes:
        layers: what is drawn, from the bottom to the top.
        x: the column along x.
        roles: the roles of the columns, for their labels.
        y: the column along y of a map, otherwise empty.
        lines: the columns in which the lines differ.
        panels: the columns in which the panels differ, which follow each other.
        rows: the columns in which the rows of panels differ.
        columns: the columns in which the columns of panels differ.
        labels: what is shown in place of the names of columns.
        scale: the scale along y: "fraction", "log" or "linear". If empty, the values of
            the first layer determine it.
        size: the size of the figure. If None, the panels determine it.
        share_x: whether all panels have the same range along x.
    """

    layers: Sequence[Layer]
    x: str
    roles: Roles
    y: str = ""
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    scale: str = ""
    size: Size | None = None
    share_x: bool = True

    def plus(self, layers: Sequence[Layer]) -> Chart:
        """Returns the chart with more layers on top of its own."""
        return replace(self, layers=[*self.layers, *layers])

    @property
    def table(self) -> Table:
        """The table that determines the lines and the panels."""
        return self.layers[0].table

    @cached_property
    def groups(self) -> list[tuple[Selection, Style]]:
        """The values that select each line, and its style."""
        values = values_of(self.table, self.lines)
        return list(zip(values, line_styles(values), strict=True))

    @cached_property
    def sides(self) -> list[list[Selection]]:
        """The values that select each row, and those that select each column."""
        names = self.rows, self.columns
        return [spread(values_of(self.table, side), MAX_SIDE) for side in names]

    @cached_property
    def parts(self) -> list[Selection]:
        """The values that select each panel that is drawn, row by row."""
        if self.panels:
            return spread(values_of(self.table, self.panels), MAX_PANELS)
        down, across = self.sides
        return [row | column for row in down for column in across]

    @property
    def remark(self) -> str:
        """A text with the number of drawn panels; empty if all panels are drawn."""
        n = 1
        for names in (self.panels, self.rows, self.columns):
            n *= len(values_of(self.table, names))
        if len(self.parts) == n:
            return ""
        return f"{len(self.parts)} of {n} panels are drawn"

    def figure(
        self, title: str = "", on: FigureBase | None = None, make: Any = None
    ) -> Any:
        """Returns a figure with all panels below the legend.

        `on` is the figure, or part of a figure, to draw on. If None, `make` creates a
        figure; the default is matplotlib's Figure.
        """
        handles, (n_down, n_across) = [*self.entries()], self.shape
        if on is None:
            width, height = self.size or usual_size(n_across)
            if height is None:
                n_lines = len(handles) / _legend_columns(handles, width)
                n_lines += len(_wrapped(title, width, LEGEND_TITLE).splitlines())
                above = LINE * points("legend.fontsize") * n_lines + 0.4
                least = 2.0 if n_down == 1 else 1.6
                each = max(least, (0.7 if n_across == 1 else 0.8) * width / n_across)
                height = min(HIGHEST, n_down * each + above)
            on = (make or _figure)(figsize=(width, height), layout="constrained")
        drawn: Any = on
        share = {"sharex": self.share_x, "sharey": self._shared_y()}
        grid = drawn.subplots(n_down, n_across, squeeze=False, **share)
        self._draw_panels(grid)
        if grid.size > 1:
            size = points("axes.labelsize")
            drawn.supxlabel(self.named(self.x), fontsize=size)
            if self._shared_y() == "all":
                drawn.supylabel(self.named_y({}), fontsize=size)
        width = drawn.bbox.width / drawn.dpi
        handles += _told(grid.flat)
        title = _wrapped(title, width, LEGEND_TITLE)
        if handles:
            above = drawn.legend(
                handles=handles,
                title=title or None,
                loc="outside upper center",
                ncols=_legend_columns(handles, width),
            )
            above.get_title().set_multialignment("center")
        elif title:
            drawn.suptitle(title, fontsize=points(LEGEND_TITLE))
        self._add_colours(drawn, [ax for ax in grid.flat if ax.get_visible()])
        return drawn

    def on(self, ax: Axes) -> Axes:
        """Draws the only panel on a user's Axes, below its legend, and returns it.

        A figure without a layout engine gets matplotlib's constrained layout, so that
        there is room for the legend.
        """
        figure: Any = ax.figure.figure  # the whole figure, also for a subfigure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        self._draw_panels(np.array([[ax]]))
        self._add_colours(figure, [ax])
        if handles := [*self.entries(), *_told([ax])]:
            width = ax.get_window_extent().width / figure.dpi
            ax.legend(
                handles=handles,
                loc="lower left",
                bbox_to_anchor=(0, 1.01),
                borderaxespad=0,
                ncols=_legend_columns(handles, width),
            )
        return ax

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns of panels."""
        if not self.panels:
            return len(self.sides[0]), len(self.sides[1])
        n = len(self.parts)
        n_across = 2 if n in (2, 4) else min(n, 3)
        return math.ceil(n / n_across), n_across

    def _shared_y(self) -> Any:
        """Returns which panels share their range along y: those of one column."""
        for place, shared in (("rows", "row"), ("columns", "col"), ("panels", "none")):
            if COLUMN in getattr(self, place):
                return shared
        return "all"

    def named(self, name: str) -> str:
        """Returns the label of an axis."""
        return self.labels.get(name, label(name, self.roles))

    def named_y(self, values: Selection) -> str:
        """Returns the label along y of the panel that these values select."""
        return self.named(values.get(COLUMN, self.y or self.layers[0].y))

    def _draw_panels(self, grid: Any) -> None:
        """Draws all panels; those that nothing was run for are left empty."""
        n_across = grid.shape[1]
        panels = [*grid.flat]
        drawn = list(zip(panels, self.parts, strict=False))
        for ax, values in drawn:
            self._draw_panel(ax, values)
        for ax, values in drawn:
            self._mark(ax, values)
            self._title(ax, values, grid.size == 1)
            ax.set_visible(len(where(self.table, values)) > 0)
        for ax in panels[len(drawn) :]:
            ax.set_visible(False)
        if self.share_x:
            for upper, lower in zip(panels, panels[n_across:], strict=False):
                upper.tick_params(labelbottom=not lower.get_visible())

    def _axis(self, name: str, values: Selection) -> Axis:
        rows = self.table if self.share_x else where(self.table, values)
        return Axis(name, tuple(ordered(rows[name])))

    def _draw_panel(self, ax: Axes, values: Selection) -> None:
        x = self._axis(self.x, values)
        y = self._axis(self.y, values) if self.y else None
        x.scale(ax, "x")
        scale = self._scale(values)
        if y:
            y.scale(ax, "y")
        elif scale == "log":
            ax.set_yscale("log")
        panel = Panel(ax, x, y)
        for layer in self.layers:
            self._draw_layer(panel, layer, values)
        ax.grid(not y)
        if panel.has_names and not y:
            ax.set_xlim(-0.5, len(x.values) - 0.5)
        if scale == "fraction":
            ax.set_ylim(-0.02, 1.02)
        elif not y:
            _limit(ax, self._heights(values))

    def _scale(self, values: Selection) -> str:
        """Returns the scale along y of the panel that these values select."""
        if self.scale or self.y:
            return self.scale
        rows = _of_column(self.table, values)
        heights = rows[self.layers[0].y]
        if "lo" in rows and (heights.dropna() > 0).all():
            return "log"
        return scale_of(heights)

    def _heights(self, values: Selection) -> np.ndarray:
        """Returns what must be inside the limits of panels of one column."""
        parts = [np.zeros(0)]
        for layer in self.layers:
            rows = _of_column(layer.table, values)
            parts += [floats(rows[name]) for name in layer.heights()]
        return np.concatenate(parts)

    def _draw_layer(self, panel: Panel, layer: Layer, values: Selection) -> None:
        """Draws each line of a layer. Lines that share places are side by side."""
        ax, rows = panel.ax, where(layer.table, values)
        along_y = rows[layer.y] if panel.y is None else rows[panel.y.name]
        up = panel.y.place(along_y) if panel.y else floats(along_y)
        rows = rows.assign(**{X: panel.x.place(rows[self.x]), Y: up})
        rows = rows.sort_values(X, kind="stable")
        lines = self.groups
        if not {*self.lines} & {*rows} and (self.lines or layer is not self.layers[0]):
            lines = [({}, {"color": ink()})]
        is_aside = layer.is_aside(panel) and rows[X].nunique() <= len(rows) / 2
        for i, (selected, style) in enumerate(lines):
            aside = (i - (len(lines) - 1) / 2) * min(2.5, 4 / len(lines))
            if is_aside or isinstance(layer, Points):
                style = style | {"transform": _moved(ax, aside if is_aside else 0)}
            part = where(rows, selected)
            if panel.is_log:
                lost = part[Y] <= 0
                if lost.any():
                    shown: Style = keywords(style | layer.style | BELOW)
                    shown["clip_on"] = False
                    shown |= {
                        "transform": ax.get_xaxis_transform(),
                        "label": BELOW_ZERO,
                    }
                    ax.plot(part[X][lost], np.zeros(lost.sum()), **shown)
                part = part.assign(**{Y: part[Y].mask(lost)})
            layer.draw(panel, part, style)
            ax.update_datalim(part[[X, Y]])  # without the shift to a side

    def _title(self, ax: Axes, values: Selection, is_single: bool) -> None:
        """Sets the labels of a panel: the settings in which the panels differ."""
        if is_single:
            ax.set(xlabel=self.named(self.x), ylabel=self.named_y(values))
            return
        at: Any = ax.get_subplotspec()
        box = ax.get_window_extent()
        dpi = ax.figure.dpi
        if not self.rows or at.is_first_row():
            names = [*self.panels, *self.columns]
            shown = self._settings(values, names)
            title, size = _fitted(shown, ROOM * box.width / dpi, "axes.titlesize")
            ax.set_title(title, pad=3, fontsize=size)
        lines = []
        if at.is_first_col() and self.rows:
            lines.append(self._settings(values, self.rows))
        if COLUMN in values and (at.is_first_col() or self._shared_y() != "row"):
            lines.append(self.named_y(values))
        beside, size = _fitted(
            "\n".join(filter(None, lines)), box.height / dpi, "axes.labelsize"
        )
        ax.set_ylabel(beside, fontsize=size)

    def _settings(self, values: Selection, names: Sequence[str]) -> str:
        """Formats settings without those that all panels share."""
        names = [name for name in names if name != COLUMN]
        several = [
            name for name in names if len({str(part[name]) for part in self.parts}) > 1
        ]
        return settings({name: values[name] for name in several or names}, self.labels)

    def _mark(self, ax: Axes, values: Selection) -> None:
        """Sets the ticks, when the limits of all panels are known."""
        x = self._axis(self.x, values)
        _set_ticks(ax, "x", x, self.x != "N")
        if self.y:
            _set_ticks(ax, "y", self._axis(self.y, values), self.y != "N")
        elif ax.get_yscale() == "log":
            _set_log_ticks(ax.yaxis)

    def _add_colours(self, figure: Any, panels: Sequence[Axes]) -> None:
        for layer in self.layers:
            if isinstance(layer, Pixels) and not layer.names:
                shown = {
                    "label": layer.legend or layer.y,
                    "fraction": 0.05,
                    "pad": 0.02,
                }
                figure.colorbar(layer.colours, ax=panels, **shown)

    def entries(self) -> Iterator[Artist]:
        """Yields the entries of the legend, such as d = 64 for a line."""
        first = self.layers[0]
        bare: Style = {}
        if isinstance(first, Points) and not first.joined:
            bare["linestyle"] = "none"
        if self.lines:
            for values, style in spread(self.groups, MAX_LINES):
                yield entry(settings(values, self.labels), **style | bare)
        others: dict[Any, Artist] = {}
        for layer in self.layers:
            for artist in layer.entries():
                others[artist.get_label()] = artist
        yield from others.values()


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """Returns at most `most` of the items, evenly spaced from the first to the last."""
    kept = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[i] for i in kept]


def _of_column(table: Table, values: Selection) -> Table:
    """Returns the rows of the measured column of the panel with these values."""
    return where(table, {name: values[name] for name in {COLUMN} & {*values}})


def _moved(ax: Axes, aside: float) -> Any:
    """Returns the transform of marks that are moved by `aside` points to the right."""
    from matplotlib.transforms import ScaledTranslation

    inches: Any = ax.figure.dpi_scale_trans
    return ax.transData + ScaledTranslation(aside / 72, 0, inches)


def _limit(ax: Axes, heights: np.ndarray) -> None:
    """Sets the limits along y, so that all measured values are inside."""
    finite = heights[np.isfinite(heights)]
    if ax.get_yscale() == "log":
        finite = finite[finite > 0] if (finite > 0).any() else np.ones(1)
        margin = max(1.2, (finite.max() / finite.min()) ** 0.05)
        ax.set_ylim(finite.min() / margin, finite.max() * margin)
    elif 0 < len(finite) < len(heights):  # an open bar has no end
        margin = 0.05 * (np.ptp(finite) or 1.0)
        ax.set_ylim(finite.min() - margin, finite.max() + margin)


def _set_ticks(ax: Axes, which: Any, axis: Axis, at_values: bool) -> None:
    """Sets the ticks of an axis at its values, as far as they have room, or else at
    round numbers. The limits must be set before.
    """
    from matplotlib.ticker import NullLocator

    ruler: Any = getattr(ax, f"{which}axis")
    if axis.kind != "names" and not (at_values and len(axis.values) <= MOST_TICKS):
        if axis.kind == "log":
            _set_log_ticks(ruler)
        elif axis.kind == "symlog":
            ends = np.log10([axis.values[1], 1.001 * axis.values[-1]])
            decades = 10.0 ** np.arange(*np.ceil(ends))
            ruler.set_ticks([0, *decades], ["0", *map(_power_of_ten, decades)])
        return
    names = [text(value, MAX_NAME) for value in axis.values]
    places = axis.place(axis.values)
    box = ax.get_window_extent()
    inches = ROOM * (box.width if which == "x" else box.height) / ax.figure.dpi
    low, high = ruler.get_transform().transform(np.array(ruler.get_view_interval()))
    spots = ruler.get_transform().transform(places) * inches / (high - low)
    size = points(f"{which}tick.labelsize")
    room = [LETTER * size * (len(name) + 1) for name in names]
    rotation = 0
    if which == "x" and axis.kind == "names" and len(room) * max(room) > inches:
        rotation = 90
    if rotation or which == "y":
        room = [LINE * size] * len(names)
    kept, free = [], np.inf
    for i in reversed(range(len(names))):
        if spots[i] + room[i] / 2 < free:
            kept.append(i)
            free = spots[i] - room[i] / 2
    ruler.set_ticks(places[kept], [names[i] for i in kept], rotation=rotation)
    ruler.set_minor_locator(NullLocator())


def _set_log_ticks(ruler: Any) -> None:
    """Sets the ticks of a log axis: at powers of ten, and between them if it has few
    decades.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low, high = ruler.get_view_interval()
    decades = np.log10(high / low)
    powers = np.floor(np.log10(high)) - np.ceil(np.log10(low)) + 1
    if decades < 1.7 or powers < 2:
        subs = (1, 2, 5) if decades < 0.9 else (1, 3)
        ruler.set_major_locator(LogLocator(10, subs=subs))
        ruler.set_minor_locator(LogLocator(10, subs=range(2, 10), numticks=99))
        ruler.set_major_formatter(lambda value, _: text(value))
    else:
        ruler.set_major_locator(LogLocator(10, subs=(1,)))
        ruler.set_minor_locator(NullLocator())
        ruler.set_major_formatter(_power_of_ten)
    ruler.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float, _: object = None) -> str:
    if value <= 0:
        return "0"
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)


def _fitted(shown: str, inches: float, setting: str) -> tuple[str, float]:
    """Returns a text in lines of a length, and its size in points: smaller if there are
    many lines, or if a word is too long. Lines break between settings if possible.
    """
    size = points(setting)
    lines = _wrapped(re.sub("(?<!,) ", "\xa0", shown), inches, setting)
    longest = max(map(len, lines.splitlines()), default=0)
    if lines.count("\n") > 2 or longest * LETTER * size > 1.1 * inches:
        size *= SMALL
        lines = _wrapped(shown, inches / SMALL, setting)
    return lines.replace("\xa0", " "), size


def _wrapped(shown: str, inches: float, setting: str) -> str:
    """Returns a text in lines of a length, unless a single word is longer. `setting` is
    the setting of the size of the text.
    """
    letters = max(8, int(inches / (LETTER * points(setting))))
    options: Any = {"break_long_words": False, "break_on_hyphens": False}
    lines = shown.splitlines()
    return "\n".join(textwrap.fill(line, letters, **options) for line in lines)


def _legend_columns(handles: Sequence[Artist], width: float) -> int:
    """Returns the number of columns of a legend that fit into `width` inches."""
    longest = max([0, *(len(str(handle.get_label())) for handle in handles)])
    letter = LETTER * points("legend.fontsize")
    return max(1, int(width / (letter * (HANDLE + longest))))


def _told(panels: Iterable[Axes]) -> list[Artist]:
    """Returns the marks that panels themselves name, each once."""
    told = {}
    for ax in panels:
        for artist, name in zip(*ax.get_legend_handles_labels(), strict=True):
            told[name] = artist
    return [*told.values()]


def _figure(**options: Any) -> Any:
    from matplotlib.figure import Figure

    return Figure(**options)
