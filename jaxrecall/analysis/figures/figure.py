"""One figure: layers over panels.

A chart says what a figure shows: its layers, the column along x, and the columns in
which lines and panels differ. A panel shows the rows with one combination of values,
and each of its lines those with one combination more:

    levels = [Polyline(means, "accuracy"), Points(stars, "theta", across=True)]
    Chart(levels, x="N", roles=roles, lines=["d"], panels=["L"]).figure()

`Chart.figure` draws everything in one pass: it makes the panels, draws each layer in
each panel, and adds ticks, titles and the legend above. matplotlib's constrained layout
gives them room.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fit.columns import ColumnNames, common, floats, without
from ..fit.roles import Roles, Table
from ..fit.tables import NO_VALUES
from .layers import (
    HOLLOW,
    Axis,
    Layer,
    Panel,
    Pixels,
    Polyline,
    Selection,
    X,
    Y,
    hollow,
    ordered,
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
"""The largest number of lines of which the legend has entries."""

MAX_PANELS, MAX_SIDE = 12, 8
"""The largest number of panels that follow each other, and of rows or of columns."""

MOST_TICKS = 9
"""The largest number of values for which the ticks of an axis are at the values."""

MAX_NAME = 24
"""The largest number of characters in the name of a tick."""

HIGHEST = 9.0
"""The largest height of the panels if no size was asked, in inches."""

HANDLE = 8
"""The width of the mark and of the gaps of an entry of a legend, in letters."""

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
    lines: ColumnNames = ()
    panels: ColumnNames = ()
    rows: ColumnNames = ()
    columns: ColumnNames = ()
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
        down, across = (side[:most] for side in self.sides)
        return [row | column for row in down for column in across]

    @property
    def remark(self) -> str:
        """A text with the number of drawn panels; empty if all panels are drawn."""
        n_panels = math.prod(map(len, self.sides))
        if len(self.parts) == n_panels:
            return ""
        return f"{len(self.parts)} of {n_panels} panels are drawn"

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

        n_down, n_across = self.shape
        width, height = self.size or usual_size(n_across)
        of_panels = min(HIGHEST, n_down * max(1.8, 0.75 * width / n_across))
        options = {"figsize": (width, height or of_panels), "layout": "constrained"}
        drawn: Any = on or (make or Figure)(**options)
        # panels of one measured column share their range along y
        share_y: Any = "row" if COLUMN in self.rows else COLUMN not in self.panels
        shared = {"sharex": self.share_x, "sharey": share_y}
        grid = drawn.subplots(*self.shape, squeeze=False, **shared)
        keys = self._draw_panels(grid)
        if grid.size > 1:
            size = points("axes.labelsize")
            drawn.supxlabel(self.named(self.x), fontsize=size)
            if COLUMN not in self.parts[0]:
                drawn.supylabel(self.named_y({}), fontsize=size)
        title = _wrapped(title, drawn.bbox.width / drawn.dpi, "legend.title_fontsize")
        legend = _add_legend(drawn, keys, title=title, loc="outside upper center")
        if not (height or on):
            n_lines = math.ceil(len(keys) / legend._ncols) + len(title.splitlines())
            above = LINE * points("legend.fontsize") * n_lines + 0.3
            drawn.set_figheight(of_panels + above)
        return drawn

    def on(self, ax: Axes) -> Axes:
        """Draws the only panel on a user's Axes, below its legend, and returns it.

        A figure without a layout engine gets matplotlib's constrained layout, so that
        there is room for the legend.
        """
        figure: Any = ax.figure.figure  # the whole figure, also for a subfigure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        keys = self._draw_panels(np.array([[ax]]))
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0}
        _add_legend(ax, keys, **above)
        return ax

    def named(self, name: str) -> str:
        """Returns the label of an axis."""
        return self.labels.get(name, label(name, self.roles))

    def named_y(self, values: Selection) -> str:
        """Returns the label along y of the panel that these values select."""
        return self.named(values.get(COLUMN, self.y or self.layers[0].y))

    def _line_keys(self) -> dict[str, Artist]:
        """Returns the entries of the lines in the legend, such as d = 64."""
        panel, first = Panel(None, Axis("", ()), None, {}), self.layers[0]
        measured = common((first.y, "tried"), self.table)
        for values, style in self.groups[:MAX_LINES]:
            names = [settings(values, self.labels)] if self.lines else []
            if where(self.table, values)[measured].isna().all(axis=None):
                names.append(NO_VALUES)
            if names:
                panel.add_key(": ".join(names), first.usual | style)
        return panel.keys

    def _draw_panels(self, grid: Any) -> dict[str, Artist]:
        """Draws all panels, and returns the entries of the legend. Panels that nothing
        was run for are left empty.
        """
        axes = [*grid.flat]
        for ax in axes[len(self.parts) :]:
            ax.set_visible(False)
        keys = self._line_keys()
        panels = []
        for ax, values in zip(axes, self.parts, strict=False):
            panels.append(self._draw_panel(ax, values, keys))
        for panel, values in zip(panels, self.parts, strict=True):
            ax = panel.ax
            _set_ticks(ax, "x", panel.x)  # ticks need the limits of all panels
            if panel.y:
                _set_ticks(ax, "y", panel.y)
            elif ax.get_yscale() == "log":
                _set_log_ticks(ax.yaxis)
            if grid.size == 1:
                ax.set(xlabel=self.named(self.x), ylabel=self.named_y(values))
            else:
                ax.xaxis.set_label_coords(0.5, 0)  # it is empty; a place takes long
                self._title(ax, values)
            ax.set_visible(len(where(self.table, values)) > 0)
        if self.share_x:
            for upper, lower in zip(axes, axes[grid.shape[1] :], strict=False):
                upper.tick_params(labelbottom=not lower.get_visible())
        first = self.layers[0]
        if isinstance(first, Pixels) and not first.names:
            shown = {"label": first.legend or first.y, "fraction": 0.05, "pad": 0.02}
            visible = [ax for ax in axes if ax.get_visible()]
            visible[0].figure.colorbar(first.colours, ax=visible, **shown)
        return keys

    def _draw_panel(self, ax: Any, values: Selection, keys: Any) -> Panel:
        """Draws the layers of a panel, and returns the panel."""
        rows = self.table if self.share_x else where(self.table, values)
        x, y = Axis(self.x, ordered(rows[self.x])), None
        x.scale(ax, "x")
        scale = self._scale(values)
        if self.y:
            y = Axis(self.y, ordered(rows[self.y]))
            y.scale(ax, "y")
        elif scale == "log":
            ax.set_yscale("log")
        panel = Panel(ax, x, y, keys)
        for layer in self.layers:
            self._draw_layer(panel, layer, values)
        ax.grid(not y)
        if x.kind == "names" and not y:
            ax.set_xlim(-0.5, len(x.values) - 0.5)
        if scale == "fraction":
            ax.set_ylim(-0.02, 1.02)
        return panel

    def _scale(self, values: Selection) -> str:
        """Returns the scale along y of the panel that these values select."""
        if self.scale or self.y:
            return self.scale
        rows = where(self.table, {COLUMN: values.get(COLUMN)})
        heights = rows[self.layers[0].y]
        if "lo" in rows and (heights.dropna() > 0).all():
            return "log"
        return scale_of(heights)

    def _draw_layer(self, panel: Panel, layer: Layer, values: Selection) -> None:
        """Draws each line of a layer. Lines that share places are side by side."""
        from matplotlib.transforms import offset_copy

        ax, is_first = panel.ax, layer is self.layers[0]
        is_log = ax.get_yscale() == "log"
        rows = where(layer.table, values)
        heights = panel.y.place(rows[self.y]) if self.y else floats(rows[layer.y])
        rows = rows.assign(**{X: panel.x.place(rows[self.x]), Y: heights})
        rows = rows.sort_values(X, kind="stable")
        lines = self.groups
        if not {*self.lines} & {*rows} and (self.lines or not is_first):
            lines = [({}, {"color": ink()})]
        if layer.legend and len(layer.table) and not isinstance(layer, Pixels):
            panel.add_key(layer.legend, layer.usual | layer.style)
        is_aside = panel.x.kind == "names" or layer.usual.get("linestyle") == "none"
        is_aside = is_aside and not panel.y and rows[X].nunique() <= len(rows) / 2
        limits = ax.dataLim.frozen().intervaly
        for i, (selected, style) in enumerate(lines):
            part = where(rows, selected)
            if part.empty and not panel.y:
                continue
            style = layer.usual | style | layer.style
            if is_aside:
                aside = (i - (len(lines) - 1) / 2) * min(2.5, 4 / len(lines))
                style["transform"] = offset_copy(
                    ax.transData, ax.figure, aside, units="points"
                )
            if is_log:
                part = _mark_below(panel, part, style)
            layer.draw(panel, part, style)
            for name, mark, shown, along_y in hollow(panel, part):
                if shown.any():
                    panel.add_key(name, {"marker": "o"} | HOLLOW | mark)
                    marked = part[X][shown], part[along_y][shown]
                    ax.plot(*marked, **keywords(style | mark | HOLLOW))
        # the limits of y leave out the ends of open intervals and, on a log axis, bands
        # and predictions
        ax.dataLim.intervaly = limits
        names = [Y, "tried"]
        if not getattr(layer, "across", False):
            names += ["lo", "hi"]
        if not is_log:
            names += ["low", "high"]
        elif isinstance(layer, Polyline) and not is_first:
            names = []
        for name in common(names, rows):
            ends = floats(rows[[X, name]])
            if is_log:
                ends = ends[ends[:, 1] > 0]
            ax.update_datalim(ends[np.isfinite(ends).all(axis=1)])

    def _title(self, ax: Any, values: Selection) -> None:
        """Sets the labels of a panel: the settings in which the panels differ."""
        at = ax.get_subplotspec()
        # the layout makes panels larger than they are here
        width, height = 1.15 * ax.get_window_extent().size / ax.figure.dpi
        if not self.rows or at.is_first_row():
            title = self._settings(values, [*self.panels, *self.columns])
            # without y, matplotlib takes long
            ax.set_title(_wrapped(title, width, "axes.titlesize"), pad=3, y=1)
        lines = []
        if at.is_first_col():
            lines.append(self._settings(values, self.rows))
        if COLUMN in self.panels or (at.is_first_col() and COLUMN in values):
            lines.append(self.named_y(values))
        beside = "\n".join(filter(None, lines))
        if not beside:
            ax.yaxis.set_label_coords(0, 0.5)
        ax.set_ylabel(_wrapped(beside, height, "axes.labelsize"))

    def _settings(self, values: Selection, names: ColumnNames) -> str:
        """Formats the settings of a panel."""
        shown = without(names, [COLUMN])
        return settings({name: values[name] for name in shown}, self.labels)


def _mark_below(panel: Panel, rows: Table, style: Style) -> Table:
    """Marks values that have no place on a log axis; returns the rows without them."""
    lost = rows[Y] <= 0
    if not lost.any():
        return rows
    panel.add_key("0 or less, below the axis", BELOW)
    style = keywords(style | BELOW)
    style |= {"transform": panel.ax.get_xaxis_transform(), "clip_on": False}
    panel.ax.plot(rows[X][lost], np.zeros(lost.sum()), **style)
    return rows.assign(**{Y: rows[Y].mask(lost)})


def _set_ticks(ax: Any, which: str, axis: Axis) -> None:
    """Sets the ticks of an axis at its values, as far as they have room, or else at
    round numbers. The limits must be set before.
    """
    ruler = getattr(ax, f"{which}axis")
    has_names = axis.kind == "names"
    if not has_names and (axis.name == "N" or len(axis.values) > MOST_TICKS):
        if axis.kind != "linear":
            _set_log_ticks(ruler)
        return
    names = [text(value, MAX_NAME) for value in axis.values]
    inches = ax.get_window_extent().size["xy".index(which)] / ax.figure.dpi
    size = points(f"{which}tick.labelsize")
    room = LETTER * size * (np.array([*map(len, names)]) + 1)
    is_vertical = which == "x" and has_names and len(room) * max(room) > inches
    if is_vertical or which == "y":
        room[:] = LINE * size
    transform = ruler.get_transform().transform
    low, high = transform(np.array(ruler.get_view_interval()))
    spots = (transform(axis.places) - low) * inches / (high - low)
    # a label may reach a little beyond the axis, but not into the next panel
    kept, free = [], inches + 0.12
    for i in reversed(range(len(names))):
        if spots[i] + room[i] / 2 < free:
            kept.append(i)
            free = spots[i] - room[i] / 2
    shown = [names[i] for i in kept]
    ruler.set_ticks(axis.places[kept], shown, rotation=90 * is_vertical)
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
    number = _power_of_ten if decades >= 2 else lambda value, _: text(value)
    ruler.set_major_formatter(number)
    ruler.set_ticks([], minor=True)


def _power_of_ten(value: float, _: object = None) -> str:
    if value <= 0:
        return "0"
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)


def _wrapped(shown: str, inches: float, setting: str) -> str:
    """Returns a text in lines of a length, unless a single word is longer. A setting
    such as d = 64 is one word. `setting` is that of the size of the text.
    """
    letters = max(8, int(inches / (LETTER * points(setting))))
    whole_words: Any = {"break_long_words": False, "break_on_hyphens": False}
    lines = []
    for line in shown.replace(" = ", "\xa0=\xa0").splitlines():
        lines.append(textwrap.fill(line, letters, **whole_words))
    return "\n".join(lines).replace("\xa0", " ")


def _add_legend(drawn: Any, keys: dict[str, Artist], **options: Any) -> Any:
    """Adds a legend with as many columns as fit into the width of `drawn`."""
    inches = drawn.get_window_extent().width / drawn.figure.figure.dpi
    letters = inches / (LETTER * points("legend.fontsize"))
    longest = max(map(len, keys), default=0)
    n_columns = max(1, int(letters / (HANDLE + longest)))
    legend = drawn.legend(handles=[*keys.values()], ncols=n_columns, **options)
    legend.get_title().set_multialignment("center")
    return legend
