"""The grammar of figures: a chart is a stack of layers, and each layer draws a table.

    layers = [Polyline(levels, "accuracy"), Points(thresholds, "critical")]
    Chart(layers, x=Axis.make("N", levels, roles), lines=["d"], panels=["L"]).figure()

All layers of a chart share its x, its lines and its panels. Each line has one colour
and marker.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..fit.columns import Table
from .axis import Axis, log_axis, ordered
from .layers import (
    BELOW,
    BELOW_LEGEND,
    Group,
    Layer,
    Panel,
    Points,
    Polyline,
    Selection,
    entry,
    floats,
    values_of,
    where,
)
from .style import (
    HIGHEST,
    LETTER,
    LINE,
    PAGE,
    USUAL,
    Size,
    Style,
    ink,
    known,
    line_styles,
    points,
    settings,
    spread,
    usual_size,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

MEASURES = "_column"
"""The column of a table in which several measured columns follow each other."""

MAX_PANELS, MAX_SIDE = 12, 8
"""The largest number of panels that follow each other, and of rows or of columns."""

MAX_LINES = 20
"""The largest number of lines, or of their entries in the legend."""

LONG_TITLE, SMALL = 3, 0.75
"""The number of line breaks from which a title of a panel has smaller text, and the
size of that text relative to other titles.
"""

HANDLE = 8
"""The width of the mark and of the gaps of an entry of a legend, in letters."""

NARROW, LOW = 1.7, 1.3
"""The width and the height that a panel needs, in inches, for the usual text."""

Share = Literal["none", "all", "row", "col"]


class Measure(NamedTuple):
    """What is along y: its label, and its scale "fraction", "log" or "linear"."""

    label: str
    scale: str


@dataclass(frozen=True)
class Chart:
    """A stack of layers; the first layer determines the lines and the panels.

    Attributes:
        layers: what is drawn, from the bottom to the top.
        x: the axis along x.
        label: the label along y.
        y: the axis along y of a map, otherwise None.
        lines: the columns in which the lines differ.
        panels: the columns in which the panels differ, which follow each other.
        rows: the columns in which the rows of panels differ.
        columns: the columns in which the columns of panels differ.
        scale: the scale along y: "fraction", "log" or "linear".
        size: the size of the figure. If None, the panels determine it.
        titles: what is shown in place of the names of columns.
        measures: if several columns are drawn, what each name in MEASURES means.
        is_free: whether each panel has its own range along x.
    """

    layers: Sequence[Layer]
    x: Axis
    label: str = ""
    y: Axis | None = None
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    scale: str = "fraction"
    size: Size | None = None
    titles: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, Measure] = field(default_factory=dict)
    is_free: bool = False

    def plus(self, layers: Sequence[Layer]) -> Chart:
        """Returns the chart with more layers on top of its own."""
        return replace(self, layers=[*self.layers, *layers])

    @property
    def table(self) -> Table:
        """The table that determines the lines and the panels."""
        return self.layers[0].table

    @cached_property
    def groups(self) -> list[Group]:
        """The lines of the chart."""
        values = values_of(self.table, self.lines)
        styles = line_styles(values)
        if self.y:
            styles = [style | {"color": ink()} for style in styles]
        return list(map(Group, values, styles))

    @cached_property
    def down(self) -> list[Selection]:
        """The values that select each row of panels."""
        return spread(values_of(self.table, self.rows), MAX_SIDE)

    @cached_property
    def across(self) -> list[Selection]:
        """The values that select each column of panels."""
        return spread(values_of(self.table, self.columns), MAX_SIDE)

    @cached_property
    def parts(self) -> list[Selection]:
        """The values that select each panel to draw, row by row.

        If there is not enough room for all panels that follow each other, the list
        contains evenly spaced panels from the first to the last.
        """
        if self.rows or self.columns:
            return [row | column for row in self.down for column in self.across]
        width, height = self.size or (PAGE, None)
        room = _side_by_side(width) * max(1, int((height or HIGHEST) / LOW))
        return spread(values_of(self.table, self.panels), min(MAX_PANELS, room))

    @property
    def remark(self) -> str:
        """A text with the number of drawn panels; empty if all panels are drawn."""
        n = len(values_of(self.table, self.panels))
        for names in (self.rows, self.columns):
            n *= len(values_of(self.table, names))
        if len(self.parts) == n:
            return ""
        return f"{len(self.parts)} of {n} panels are drawn"

    def measure(self, values: Selection) -> Measure:
        """Returns what is along y in the panel that these values select."""
        if MEASURES in values:
            return self.measures[values[MEASURES]]
        label = self.y.label if self.y else self.label
        return Measure(label, self.scale)

    @property
    def shares(self) -> Share:
        """Which panels share their range along y: those of one measure."""
        if not self.measures:
            return "all"
        if MEASURES in self.rows:
            return "row"
        return "col" if MEASURES in self.columns else "none"

    def figure(
        self,
        title: str = "",
        on: FigureBase | None = None,
        make: Callable[..., Figure] | None = None,
        is_complete: bool = False,
    ) -> Any:
        """Returns a figure with all panels below the legend.

        `on` is the figure, or part of a figure, to draw on. If None, `make` creates a
        figure; the default is matplotlib's Figure. `is_complete` is whether nothing is
        added to the figure later. Its layout, which takes half of the time of a small
        figure, is then not repeated when the figure is saved.
        """
        handles = self.entries()
        shape = self._shape(on)
        heading = _wrapped(title.split("\n"), shape.width, "legend.title_fontsize")
        figure: Any = on
        if figure is None:
            from matplotlib.figure import Figure

            size = shape.width, self._height(shape, handles, heading)
            figure = (make or Figure)(figsize=size, layout="constrained")
        sharex: Share = "none" if self.is_free else "all"
        grid = figure.subplots(
            shape.n_rows,
            shape.n_columns,
            squeeze=False,
            sharex=sharex,
            sharey=self.shares,
        )
        panels = [*grid.flat]
        for ax, values in zip(panels, self.parts, strict=False):
            self.draw(ax, values)
        self._name_panels(figure, grid)
        drawn = self._hide_empty(panels, shape.n_columns)
        self._add_legend(figure, handles, heading, shape.width)
        for layer in self.layers:
            layer.finish(figure, drawn)
        is_final = self._mark(figure, panels)
        if is_complete and is_final:
            figure.set_layout_engine("none")
        return figure

    def _shape(self, on: FigureBase | None) -> Shape:
        """Returns the numbers of rows and columns of panels, and the size."""
        n = len(self.parts)
        is_grid = bool(self.rows or self.columns)
        if on is not None:
            part: Any = on
            dpi = part.dpi_scale_trans.get_matrix()[0, 0]
            width, height = part.bbox.width / dpi, part.bbox.height / dpi
        elif self.size:
            width, height = self.size
        else:
            width, height = usual_size(len(self.across) if is_grid else n)
            width = max(width, 1.2 * len(self.across))
        if is_grid:
            return Shape(width, height, len(self.down), len(self.across))
        across = min(n, _side_by_side(width))
        if n == 4:
            across = min(across, 2)
        return Shape(width, height, math.ceil(n / across), across)

    def _height(self, shape: Shape, handles: Sequence[Artist], heading: str) -> float:
        """Returns the height of a new figure in inches."""
        if self.size and shape.height is not None:
            return shape.height
        width, n_rows, n_columns = shape.width, shape.n_rows, shape.n_columns
        panels = 0.7 * width * n_rows
        if n_columns > 1:
            least = 2.0 if n_rows == 1 else 1.6
            panels = n_rows * max(least, 0.8 * width / n_columns)
        if shape.height is not None:
            panels = LOW * n_rows  # the user's height, unless panels would be too low
        above = math.ceil(len(handles) / _legend_columns(handles, width))
        line = LINE * points("legend.fontsize") * 1.15
        lines = heading.count("\n") + 1 if heading else 0
        needed = min(HIGHEST, panels + line * (above + lines) + 0.3)
        return max(needed, shape.height or 0.0)

    def _name_panels(self, figure: FigureBase, grid: np.ndarray) -> None:
        """Adds titles to panels, and labels along both axes."""
        for ax, values in zip(grid.flat, self.parts, strict=False):
            self._title(ax, values)
            self._label_y(ax, values)
        if grid.size == 1:
            return
        size = points("axes.labelsize")
        figure.supxlabel(self.x.label, fontsize=size)
        if not self.measures:
            figure.supylabel(self.measure({}).label, fontsize=size)

    def _label_y(self, ax: Axes, values: Selection) -> None:
        """Sets the label along y of a panel: what its row of panels differs in, and the
        measure. In a single panel, also the label along x is set.
        """
        measure = self.measure(values).label
        if len(self.parts) == 1:
            ax.set(xlabel=self.x.label, ylabel=measure)
            return
        at: Any = ax.get_subplotspec()
        is_first = at.is_first_col()
        whole: Any = ax.figure
        height = ax.get_window_extent().height / whole.dpi
        each = self._settings(values, self.rows) if is_first else []
        beside, size = _fitted(each, height, "axes.labelsize")
        lines = [beside] if beside else []
        if self.measures and (is_first or self.shares != "row"):
            lines.append(measure)
        ax.set_ylabel("\n".join(lines), fontsize=size)

    def _settings(self, values: Selection, names: Sequence[str]) -> list[str]:
        """Returns a text for each setting, without those that all panels share."""
        names = [name for name in names if name != MEASURES]
        differ = [name for name in names if _varies(self.parts, name)]
        shown = known(values, differ or names)
        return [settings(values, [name], self.titles) for name in shown]

    def _title(self, ax: Axes, values: Selection) -> None:
        """Sets the title of a panel: the settings in which the panels differ."""
        at: Any = ax.get_subplotspec()
        if self.rows and not at.is_first_row():
            return
        names = self.columns if self.rows or self.columns else self.panels
        whole: Any = ax.figure
        width = 1.1 * ax.get_window_extent().width / whole.dpi
        title, size = _fitted(self._settings(values, names), width, "axes.titlesize")
        ax.set_title(title, pad=3, fontsize=size)

    def _hide_empty(self, panels: Sequence[Axes], n_columns: int) -> list[Axes]:
        """Hides the panels without rows, and returns the others."""
        drawn = []
        for i, ax in enumerate(panels):
            if i < len(self.parts) and len(where(self.table, self.parts[i])):
                drawn.append(ax)
            else:
                ax.set_visible(False)
        if not self.is_free:
            for upper, lower in zip(panels, panels[n_columns:], strict=False):
                upper.tick_params(labelbottom=not lower.get_visible())
        return drawn

    def _add_legend(
        self, figure: FigureBase, handles: Sequence[Artist], heading: str, width: float
    ) -> None:
        if handles:
            legend = figure.legend(
                handles=handles,
                title=heading or None,
                loc="outside upper center",
                ncols=_legend_columns(handles, width),
            )
            legend.get_title().set_multialignment("center")
        elif heading:
            figure.suptitle(heading, fontsize=points("legend.title_fontsize"))

    def _mark(self, figure: FigureBase, panels: Sequence[Axes]) -> bool:
        """Sets the ticks where there is room for them, and breaks titles.

        The room is known only after the layout, which needs the ticks and the titles,
        so they are set twice. Returns whether they are the same both times.
        """
        whole: Any = figure.figure  # also for a part of a figure
        engine = whole.get_layout_engine()
        marks = []
        for is_placed in (False, True):
            if is_placed and engine is not None:
                engine.execute(whole)
            for ax, values in zip(panels, self.parts, strict=False):
                self._mark_panel(ax, values)
                if ax.get_title():
                    self._title(ax, values)
                if ax.get_ylabel():
                    self._label_y(ax, values)
            marks.append([*map(_marks, panels)])
        return marks[0] == marks[1]

    def _mark_panel(self, ax: Axes, values: Selection) -> None:
        self._x_of(values).mark(ax, "x")
        if self.y:
            self.y.mark(ax, "y")
        elif self.measure(values).scale == "log":
            log_axis(ax.yaxis)

    def _x_of(self, values: Selection) -> Axis:
        if not self.is_free:
            return self.x
        mine = ordered(where(self.table, values)[self.x.name])
        return replace(self.x, values=tuple(mine))

    def on(self, ax: Axes) -> Axes:
        """Draws the only panel on a user's Axes, and returns the Axes.

        The legend is above the panel. A figure without a layout engine gets
        matplotlib's constrained layout, so that there is room for the legend.
        """
        figure: Any = ax.figure.figure  # the whole figure, also for a subfigure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        values = self.parts[0]
        self.draw(ax, values)
        ax.set(xlabel=self.x.label, ylabel=self.measure(values).label)
        for layer in self.layers:
            layer.finish(figure, ax)
        handles = self.entries()
        if handles:
            width = ax.get_window_extent().width / figure.dpi
            ax.legend(
                handles=handles,
                loc="lower left",
                bbox_to_anchor=(0, 1.01),
                borderaxespad=0,
                ncols=_legend_columns(handles, width),
            )
        self._mark(figure, [ax])
        return ax

    def draw(self, ax: Axes, values: Selection) -> None:
        """Draws the panel that these values select."""
        x = self._x_of(values)
        x.scale(ax, "x")
        scale = self.measure(values).scale
        if self.y:
            self.y.scale(ax, "y")
        is_log = not self.y and scale == "log"
        for i, layer in enumerate(self.layers):
            is_first = i == 0
            layer.draw(Panel(ax, x, self.y, values, self.groups, is_log, is_first))
        ax.grid(not self.y)
        if self.y:
            return
        if x.kind == "names":
            ax.set_xlim(-0.5, len(x.values) - 0.5)
        if scale == "fraction":
            ax.set_ylim(-0.02, 1.02)
        else:
            self._limit(ax, values, scale)

    def _limit(self, ax: Axes, values: Selection, scale: str) -> None:
        """Sets the limits along y, so that all measured values are inside."""
        heights = self._heights(values)
        finite = heights[np.isfinite(heights)]
        if scale == "linear":
            if len(finite) < len(heights) and len(finite):  # an open bar has no end
                margin = 0.05 * (np.ptp(finite) or 1.0)
                ax.set_ylim(finite.min() - margin, finite.max() + margin)
            return
        finite = finite[finite > 0]
        if not len(finite):
            finite = np.array([1.0])  # matplotlib sets no limits without a value
        margin = max(1.2, (finite.max() / finite.min()) ** 0.05)
        ax.set_ylim(finite.min() / margin, finite.max() * margin)
        ax.set_yscale("log")

    def _heights(self, values: Selection) -> np.ndarray:
        """Returns the values of all layers that belong to the measure of a panel."""
        found = []
        for layer in self.layers:
            table = _of_measure(layer.table, values)
            found.append(replace(layer, table=table).heights())
        return np.concatenate(found)

    def entries(self) -> list[Artist]:
        """Returns the entries of the legend, such as d = 64 for a line."""
        n_panels = len(values_of(self.table, [*self.panels, *self.rows, *self.columns]))
        n_places = len(self.x.values) * len((self.y or self.x).values) * n_panels
        found = {}
        for layer in self.layers:
            for artist in layer.entries(n_places):
                found[artist.get_label()] = artist
        if self._has_values_below():
            found[BELOW_LEGEND] = entry(BELOW_LEGEND, **BELOW)
        bare: Style = {}
        if isinstance(self.layers[0], Points) and not self.layers[0].joined:
            bare = {"linestyle": "none"}
        lines = []
        if self.lines:
            for values, style in spread(self.groups, MAX_LINES):
                name = settings(values, titles=self.titles)
                lines.append(entry(name, **style | bare))
        return [*lines, *found.values()]

    def _has_values_below(self) -> bool:
        """Whether any value has no place on a log axis along y."""
        if self.y:
            return False
        for values in self.parts:
            if self.measure(values).scale == "log":
                for layer in self.layers:
                    shown = floats(_of_measure(layer.table, values)[layer.y])
                    if isinstance(layer, (Polyline, Points)) and (shown <= 0).any():
                        return True
        return False


def _of_measure(table: Table, values: Selection) -> Table:
    """Returns the rows of the measure of the panel that these values select."""
    return where(table, {name: values[name] for name in {MEASURES} & {*values}})


class Shape(NamedTuple):
    """The size of a figure in inches, and its numbers of rows and columns of panels."""

    width: float
    height: float | None
    n_rows: int
    n_columns: int


def _marks(ax: Axes) -> list[object]:
    """Returns the ticks, the title and the label along y of a panel."""
    marks: list[object] = [ax.get_xticks().tolist(), ax.get_yticks().tolist()]
    for written in (ax.title, ax.yaxis.label):
        marks += [written.get_text(), written.get_fontsize()]
    return marks


def _fitted(each: Sequence[str], width: float, setting: str) -> tuple[str, float]:
    """Returns a text of settings in lines of a width in inches, and its size in points.

    `setting` is the setting of the usual size. Text of many lines is smaller, and so is
    text with a word that is too long.
    """
    size = points(setting)
    shown = _broken(each, width, setting)
    if shown.count("\n") >= LONG_TITLE:  # small text leaves room for the panel
        size *= SMALL
        shown = _broken(each, width / SMALL, setting)
    return shown, size * min(1.0, width / max(_inches(shown, size), 1e-9))


def _broken(each: Sequence[str], width: float, setting: str) -> str:
    """Returns a text of settings in lines of a width in inches.

    A line break between two settings is better than one inside a setting.
    """
    for gap in (" ", " = "):
        bound = ", ".join(one.replace(gap, gap.replace(" ", "\xa0")) for one in each)
        shown = _wrapped([bound], width, setting).replace("\xa0", " ")
        if _inches(shown, points(setting)) <= width:
            return shown
    bound = ", ".join(one.replace(" = ", "\xa0= ") for one in each)
    return _wrapped([bound], width, setting).replace("\xa0", " ")


def _wrapped(lines: Sequence[str], width: float, setting: str) -> str:
    """Returns lines of text that are at most `width` inches long, unless a single word
    is longer. `setting` is the setting of the size of the text.
    """
    letters = max(8, int(width / (LETTER * points(setting))))
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(textwrap.fill(line, letters, **options) for line in lines)


def _inches(text: str, size: float) -> float:
    """Returns the width of the longest line of a text of `size` points, in inches."""
    return max(map(len, text.split("\n"))) * LETTER * size


def _legend_columns(handles: Sequence[Artist], width: float) -> int:
    """Returns the number of columns of a legend that fit into `width` inches."""
    longest = max([0, *(len(str(handle.get_label())) for handle in handles)])
    letter = LETTER * points("legend.fontsize")
    return max(1, int(width / (letter * (HANDLE + longest))))


def _side_by_side(width: float) -> int:
    """The number of panels that fit side by side."""
    narrow = NARROW * max(1.0, points("font.size") / USUAL)
    return max(1, int((width + 0.3) / narrow))


def _varies(parts: Sequence[Selection], name: str) -> bool:
    return len({str(values[name]) for values in parts}) > 1
