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
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fit.columns import common, without
from ..fit.roles import Roles, Table
from ..fit.tables import NO_VALUES
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
    scale_of,
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

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

COLUMN = "_column"
"""The column of a table in which several measured columns follow each other."""

MAX_LINES = 20
"""The largest number of lines, or of their entries in the legend."""

MAX_PANELS, MAX_SIDE = 12, 8
"""The largest number of panels that follow each other, and of rows or of columns."""

MOST_TICKS = 9
"""The largest number of values for which the ticks of an axis are at the values."""

MAX_NAME = 24
"""The largest number of characters in the name of a tick."""

HIGHEST = 9.0
"""The largest height of a figure for which no size was asked, in inches."""

ROOM = 0.8
"""The width of a panel relative to that of its part of the figure."""

HANDLE = 8
"""The width of the mark and of the gaps of an entry of a legend, in letters."""

WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}
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
        """The values that select each row of panels, and those that select each column
        or each of the panels that follow each other.
        """
        names = self.rows, [*self.columns, *self.panels]
        return [values_of(self.table, side) for side in names]

    @cached_property
    def parts(self) -> list[Selection]:
        """The values that select each panel that is drawn, row by row."""
        most = MAX_PANELS if self.panels else MAX_SIDE
        down, across = (spread(side, most) for side in self.sides)
        return [row | column for row in down for column in across]

    @property
    def remark(self) -> str:
        """A text with the number of drawn panels; empty if all panels are drawn."""
        down, across = map(len, self.sides)
        if len(self.parts) == down * across:
            return ""
        return f"{len(self.parts)} of {down * across} panels are drawn"

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns of panels."""
        n = len(self.parts)
        n_across = min(len(self.sides[1]), MAX_SIDE)
        if self.panels:
            n_across = 2 if n in (2, 4) else min(n, 3)
        return math.ceil(n / n_across), n_across

    def figure(
        self, title: str = "", on: FigureBase | None = None, make: Any = None
    ) -> Any:
        """Returns a figure with all panels below the legend.

        `on` is the figure, or part of a figure, to draw on. If None, `make` creates a
        figure; the default is matplotlib's Figure.
        """
        from matplotlib.figure import Figure

        options = {"figsize": self._inches(title), "layout": "constrained"}
        drawn: Any = on or (make or Figure)(**options)
        # panels of one measured column share their range along y
        share_y: Any = "row" if COLUMN in self.rows else COLUMN not in self.panels
        shared = {"sharex": self.share_x, "sharey": share_y}
        grid = drawn.subplots(*self.shape, squeeze=False, **shared)
        self._draw_panels(grid)
        if grid.size > 1:
            size = points("axes.labelsize")
            drawn.supxlabel(self.named(self.x), fontsize=size)
            if COLUMN not in self.parts[0]:
                drawn.supylabel(self.named_y({}), fontsize=size)
        width = drawn.bbox.width / drawn.dpi
        title = _wrapped(title, width, LEGEND_TITLE)
        self._add_keys(drawn, grid, width, title=title, loc="outside upper center")
        return drawn

    def on(self, ax: Axes) -> Axes:
        """Draws the only panel on a user's Axes, below its legend, and returns it.

        A figure without a layout engine gets matplotlib's constrained layout, so that
        there is room for the legend.
        """
        figure: Any = ax.figure.figure  # the whole figure, also for a subfigure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        grid = np.array([[ax]])
        self._draw_panels(grid)
        width = ax.get_window_extent().width / figure.dpi
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0}
        self._add_keys(ax, grid, width, **above)
        return ax

    def _inches(self, title: str) -> tuple[float, float]:
        """Returns the width and the height of the figure."""
        n_down, n_across = self.shape
        width, height = self.size or usual_size(n_across)
        if height is None:
            handles = [*self.entries()]
            n_lines = len(handles) / _legend_columns(handles, width)
            n_lines += len(_wrapped(title, width, LEGEND_TITLE).splitlines())
            above = LINE * points("legend.fontsize") * n_lines + 0.4
            least = 2.0 if n_down == 1 else 1.6
            each = max(least, (0.7 if n_across == 1 else 0.8) * width / n_across)
            height = min(HIGHEST, n_down * each + above)
        return width, height

    def _add_keys(self, drawn: Any, grid: Any, width: float, **options: Any) -> None:
        """Adds the legend, whose entries include the marks that panels name, and the
        scale of the colours.
        """
        handles = {artist.get_label(): artist for artist in self.entries()}
        for ax in grid.flat:
            for artist, name in zip(*ax.get_legend_handles_labels(), strict=True):
                handles[name] = artist
        if handles or options.get("title"):
            every = [*handles.values()]
            n_columns = _legend_columns(every, width)
            legend = drawn.legend(handles=every, ncols=n_columns, **options)
            legend.get_title().set_multialignment("center")
        first = self.layers[0]
        if isinstance(first, Pixels) and not first.names:
            panels = [ax for ax in grid.flat if ax.get_visible()]
            shown = {"label": first.legend or first.y, "fraction": 0.05, "pad": 0.02}
            panels[0].figure.colorbar(first.colours, ax=panels, **shown)

    def named(self, name: str) -> str:
        """Returns the label of an axis."""
        return self.labels.get(name, label(name, self.roles))

    def named_y(self, values: Selection) -> str:
        """Returns the label along y of the panel that these values select."""
        return self.named(values.get(COLUMN, self.y or self.layers[0].y))

    def _draw_panels(self, grid: Any) -> None:
        """Draws all panels; those that nothing was run for are left empty."""
        axes = [*grid.flat]
        for ax in axes[len(self.parts) :]:
            ax.set_visible(False)
        panels = []
        for ax, values in zip(axes, self.parts, strict=False):
            panels.append(self._draw_panel(ax, values))
        for panel, values in zip(panels, self.parts, strict=True):
            ax = panel.ax
            _set_ticks(ax, "x", panel.x)  # ticks need the limits of all panels
            if panel.y:
                _set_ticks(ax, "y", panel.y)
            elif panel.is_log:
                _set_log_ticks(ax.yaxis)
            if grid.size == 1:
                ax.set(xlabel=self.named(self.x), ylabel=self.named_y(values))
            else:
                self._title(ax, values)
            ax.set_visible(len(where(self.table, values)) > 0)
        if self.share_x:
            for upper, lower in zip(axes, axes[grid.shape[1] :], strict=False):
                upper.tick_params(labelbottom=not lower.get_visible())

    def _draw_panel(self, ax: Axes, values: Selection) -> Panel:
        """Draws the layers of a panel, and returns the panel."""
        rows = self.table if self.share_x else where(self.table, values)
        x, y = Axis.of(rows, self.x), Axis.of(rows, self.y) if self.y else None
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
        return panel

    def _scale(self, values: Selection) -> str:
        """Returns the scale along y of the panel that these values select."""
        if self.scale or self.y:
            return self.scale
        rows = self.table
        if COLUMN in values:
            rows = where(rows, {COLUMN: values[COLUMN]})
        heights = rows[self.layers[0].y]
        if "lo" in rows and (heights.dropna() > 0).all():
            return "log"
        return scale_of(heights)

    def _draw_layer(self, panel: Panel, layer: Layer, values: Selection) -> None:
        """Draws each line of a layer. Lines that share places are side by side."""
        ax, rows = panel.ax, where(layer.table, values)
        up = panel.y.place(rows[panel.y.name]) if panel.y else floats(rows[layer.y])
        rows = rows.assign(**{X: panel.x.place(rows[self.x]), Y: up})
        rows = rows.sort_values(X, kind="stable")
        lines = self.groups
        if not {*self.lines} & {*rows} and (self.lines or layer is not self.layers[0]):
            lines = [({}, {"color": ink()})]
        is_aside = layer.is_aside(panel) and rows[X].nunique() <= len(rows) / 2
        limits = ax.dataLim.frozen().intervaly
        for i, (selected, style) in enumerate(lines):
            if is_aside:
                aside = (i - (len(lines) - 1) / 2) * min(2.5, 4 / len(lines))
                style = style | {"transform": _moved(ax, aside)}
            part = where(rows, selected)
            if panel.is_log:
                part = _mark_below(ax, part, style | layer.style)
            layer.draw(panel, part, style)
        # without the shift to a side, and what may lie beyond the limits of y
        ax.dataLim.intervaly = limits  # pyright: ignore[reportAttributeAccessIssue]
        for name in layer.heights(panel):
            ends = floats(rows[[X, name]])
            if panel.is_log:
                ends = ends[ends[:, 1] > 0]
            ax.update_datalim(ends[np.isfinite(ends).all(axis=1)])

    def _title(self, ax: Axes, values: Selection) -> None:
        """Sets the labels of a panel: the settings in which the panels differ."""
        at: Any = ax.get_subplotspec()
        inches = np.divide(ax.figure.bbox.size, ax.figure.dpi)
        height, width = ROOM * inches[::-1] / self.shape
        if not self.rows or at.is_first_row():
            title = self._settings(values, [*self.panels, *self.columns])
            ax.set_title(_wrapped(title, width, "axes.titlesize"), pad=3)
        lines = []
        if at.is_first_col():
            lines.append(self._settings(values, self.rows))
        if COLUMN in self.panels or (at.is_first_col() and COLUMN in values):
            lines.append(self.named_y(values))
        beside = "\n".join(filter(None, lines))
        ax.set_ylabel(_wrapped(beside, height, "axes.labelsize"))

    def _settings(self, values: Selection, names: Sequence[str]) -> str:
        """Formats the settings of a panel."""
        shown = without(names, [COLUMN])
        return settings({name: values[name] for name in shown}, self.labels)

    def entries(self) -> Iterator[Artist]:
        """Yields the entries of the legend, such as d = 64 for a line."""
        first = self.layers[0]
        bare: Style = {}
        if isinstance(first, Points) and not first.joined:
            bare["linestyle"] = "none"
        for values, style in spread(self.groups, MAX_LINES):
            names = [settings(values, self.labels)] if self.lines else []
            rows = where(self.table, values)
            if not len(rows[common((first.y, "tried"), rows)].dropna(how="all")):
                names.append(NO_VALUES)
            if names:
                yield entry(": ".join(names), **style | bare)
        for layer in self.layers:
            yield from layer.entries()


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """Returns at most `most` of the items, evenly spaced from the first to the last."""
    kept = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[i] for i in kept]


def _moved(ax: Axes, aside: float) -> Any:
    """Returns the transform of marks that are moved by `aside` points to the right."""
    from matplotlib.transforms import ScaledTranslation

    inches: Any = ax.figure.dpi_scale_trans
    return ax.transData + ScaledTranslation(aside / 72, 0, inches)


def _mark_below(ax: Axes, rows: Table, style: Style) -> Table:
    """Marks values that have no place on a log axis; returns the rows without them."""
    lost = rows[Y] <= 0
    if lost.any():
        shown: Style = keywords(style | BELOW)
        shown |= {"transform": ax.get_xaxis_transform(), "clip_on": False}
        shown["label"] = "0 or less, below the axis"
        ax.plot(rows[X][lost], np.zeros(lost.sum()), **shown)
    return rows.assign(**{Y: rows[Y].mask(lost)})


def _set_ticks(ax: Axes, which: Any, axis: Axis) -> None:
    """Sets the ticks of an axis at its values, as far as they have room, or else at
    round numbers. The limits must be set before.
    """
    ruler: Any = getattr(ax, f"{which}axis")
    has_names = axis.kind == "names"
    if not has_names and (axis.name == "N" or len(axis.values) > MOST_TICKS):
        if axis.kind != "linear":
            _set_log_ticks(ruler)
        return
    names = [text(value, MAX_NAME) for value in axis.values]
    box = ax.get_window_extent()
    inches = (box.width if which == "x" else box.height) / ax.figure.dpi
    size = points(f"{which}tick.labelsize")
    room = [LETTER * size * (len(name) + 1) for name in names]
    rotation = 0
    if which == "x" and has_names and len(room) * max(room) > inches:
        rotation = 90
    if rotation or which == "y":
        room = [LINE * size] * len(names)
    transform = ruler.get_transform().transform
    low, high = transform(np.array(ruler.get_view_interval()))
    places = axis.place(axis.values)
    spots = (transform(places) - low) * inches / (high - low)
    # a label may reach a little beyond the axis, but not into the next panel
    kept, free = [], inches + 0.12
    for i in reversed(range(len(names))):
        if spots[i] + room[i] / 2 < free:
            kept.append(i)
            free = spots[i] - room[i] / 2
    ruler.set_ticks(places[kept], [names[i] for i in kept], rotation=rotation)
    ruler.set_ticks([], minor=True)


def _set_log_ticks(ruler: Any) -> None:
    """Sets the ticks of a log axis: at powers of ten, and between them if it has few
    decades.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = ruler.get_view_interval()
    decades = np.log10(high / low) if low > 0 else np.inf
    if decades < 0.9:
        ruler.set_major_locator(MaxNLocator(4))
    elif decades < np.inf:
        ruler.set_major_locator(LogLocator(subs=(1, 3) if decades < 2 else (1,)))
    ruler.set_major_formatter(_power_of_ten if decades >= 2 else _number)
    ruler.set_ticks([], minor=True)


def _number(value: float, _: object = None) -> str:
    return text(value)


def _power_of_ten(value: float, _: object = None) -> str:
    if value <= 0:
        return "0"
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)


def _wrapped(shown: str, inches: float, setting: str) -> str:
    """Returns a text in lines of a length, unless a single word is longer. A setting
    such as d = 64 is one word. `setting` is that of the size of the text.
    """
    letters = max(8, int(inches / (LETTER * points(setting))))
    lines = []
    for line in shown.replace(" = ", "\xa0=\xa0").splitlines():
        lines.append(textwrap.fill(line, letters, **WHOLE_WORDS))
    return "\n".join(lines).replace("\xa0", " ")


def _legend_columns(handles: Sequence[Artist], width: float) -> int:
    """Returns the number of columns of a legend that fit into `width` inches."""
    longest = max([0, *(len(str(handle.get_label())) for handle in handles)])
    letter = LETTER * points("legend.fontsize")
    return max(1, int(width / (letter * (HANDLE + longest))))
