"""The grammar of figures: a chart is a stack of layers, and each layer draws a table.

    layers = [Polyline(levels, "accuracy"), Points(thresholds, "critical")]
    Chart(layers, x=Axis.make("N", levels, labels), lines=["d"], panels=["L"]).figure()

The columns of a layer's table determine the places of its marks. There are four kinds
of layers:

- `Polyline` joins means and may have a band.
- `Points` have bars, and open marks for censored cells.
- `Pixels` are colours over two axes.
- `Contour` is a line over two axes.

All layers of a chart share its x, its lines and its panels. Each line has one colour
and marker. If the table of a layer lacks the columns of the panels, the layer is drawn
in all panels. If the table lacks the columns of the lines, the layer is drawn once, in
black.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...model.values import is_missing
from ..fit.runs import Table
from .axis import Axis, log_axis
from .style import (
    COLUMN,
    DASH,
    GREY,
    HIGHEST,
    LETTER,
    MARKERS,
    PAGE,
    Size,
    settings,
    shades,
    spread,
    symbol,
    text,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

Selection = dict[str, Any]
"""A dict from column to value, which selects the rows that have these values."""

Style = dict[str, Any]
"""Keyword arguments of matplotlib."""

MAX_PANELS, MAX_NAMED = 12, 14
"""The largest number of panels in a figure, and of lines in a legend."""

NARROW, LOW = 1.7, 1.3
"""The width and the height that a panel needs, in inches."""

OPEN = {
    "levels off": ("X", "levels off before"),
    "not reached": ("^", "not reached, crosses above"),
    "above": ("v", "crosses below"),
}
"""A dict from the state of a censored cell to its open mark and its legend entry."""

HOLLOW: Style = {"linestyle": "none", "markerfacecolor": "white", "markersize": 4.5}
THEORY: Style = {"linestyle": DASH, "marker": "none", "linewidth": 0.9}


class Group(NamedTuple):
    """A line of a chart: the values that select its rows, and its colour and marker."""

    values: Selection
    style: Style


@dataclass(frozen=True)
class Panel:
    """The data that layers need to draw in one panel.

    `ax` is the Axes of matplotlib, `x` and `y` are the axes of the chart, `values`
    selects the rows of the panel, and `groups` are the lines.
    """

    ax: Axes
    x: Axis
    y: Axis | None
    values: Selection
    groups: list[Group]

    def lines(self, table: Table) -> Iterator[tuple[Table, Style, float]]:
        """Yields the rows of each line from left to right, its style, and its shift.

        The shift is the distance in points by which the line's marks are moved to the
        right.
        """
        rows = where(table, self.values)
        rows = rows.iloc[np.argsort(self.at(rows), kind="stable")]
        n = len(self.groups)
        if n > 1 and not {*self.groups[0].values} & {*table}:
            yield rows, {"color": "black"}, 0.0
            return
        for i, (values, style) in enumerate(self.groups):
            aside = (i - (n - 1) / 2) * min(2.5, 8 / n)
            yield where(rows, values), style, aside

    def at(self, rows: Table) -> np.ndarray:
        """Returns an array of the places of rows along x."""
        return self.x.place(rows[self.x.name].tolist())

    def up(self, rows: Table, y: str) -> np.ndarray:
        """Returns an array of the places of rows along y."""
        values = rows[y].tolist()
        if self.y:
            return self.y.place(values)
        return np.array(values, dtype=float)

    def over(self, table: Table, name: str) -> np.ma.MaskedArray:
        """Returns a column as a 2D array over the places of both axes.

        The array is masked where there is no value.
        """
        x, y = self.x, self.y or self.x
        rows = where(table, self.values)
        placed = rows.assign(_x=self.at(rows), _y=self.up(rows, y.name))
        z = placed.pivot(index="_y", columns="_x", values=name)
        z = z.reindex(index=y.place(y.values), columns=x.place(x.values))
        return np.ma.masked_invalid(floats(z))


@dataclass(frozen=True)
class Layer:
    """The base class of layers, which draw marks of one kind.

    A layer contains a table and the name of the column along y. It also contains an
    entry for the legend, and a style that overrides the style of the lines.
    """

    table: Table
    y: str
    legend: str = ""
    style: Style = field(default_factory=dict)

    def draw(self, panel: Panel) -> None:
        """Draws the marks that belong to a panel."""
        raise NotImplementedError

    def finish(self, figure: Figure, axes: Axes | Sequence[Axes]) -> None:
        """Draws the parts that are beside the panels, such as a colour bar."""

    def heights(self) -> np.ndarray:
        """Returns an array of the values that the limits of y must include."""
        return np.zeros(0)

    def entries(self, chart: Chart) -> list[Artist]:
        """Returns the entries of the layer in the legend."""
        if self.legend and len(self.table):
            return [entry(self.legend, **self.style)]
        return []


@dataclass(frozen=True)
class Polyline(Layer):
    """A layer of values that lines join along x.

    If the table has the columns `low` and `high`, there is a band between them. Values
    with few seeds, according to the column n_seeds, are hollow and not joined. A
    threshold search produces such values far from the crossing. `each` is a column that
    divides a line into several lines.
    """

    each: str = ""

    def draw(self, panel: Panel) -> None:
        for rows, style, _ in panel.lines(self.table):
            parts = [rows]
            if self.each:
                parts = [part for _, part in rows.groupby(self.each)]
            for part in parts:
                self._draw_part(panel, part, style | self.style)

    def _draw_part(self, panel: Panel, rows: Table, style: Style) -> None:
        few = few_seeds(rows)
        joined = rows[~few]
        at = panel.at(joined)
        panel.ax.plot(at, panel.up(joined, self.y), **style)
        if "low" in rows:
            low = joined["low"].astype(float)
            high = joined["high"].astype(float)
            panel.ax.fill_between(
                at, low, high, color=style["color"], alpha=0.2, linewidth=0
            )
        if few.any():
            alone = rows[few]
            places = panel.at(alone), panel.up(alone, self.y)
            panel.ax.plot(*places, **style | HOLLOW)

    def heights(self) -> np.ndarray:
        """Returns the measured values; predictions may lie beyond the limits of y."""
        if "n_seeds" in self.table:
            return floats(self.table[self.y])
        return super().heights()

    def entries(self, chart: Chart) -> list[Artist]:
        found = super().entries(chart)
        if few_seeds(self.table).any():
            found.append(entry("few seeds", marker="o", **HOLLOW))
        return found


@dataclass(frozen=True)
class Points(Layer):
    """A layer of estimates with bars from `lo` to `hi`, and open marks.

    If the table has a column `state`, its value is "crosses" for cells with an
    estimate. All other cells are censored, and their open marks are at the values of
    the column `tried`. Marks of several lines are drawn side by side. `joined` is
    whether a line joins the estimates, and `across` is whether bars are along x.
    """

    joined: bool = False
    across: bool = False

    def draw(self, panel: Panel) -> None:
        from matplotlib.transforms import ScaledTranslation

        inches: Any = panel.ax.figure.dpi_scale_trans
        for rows, style, aside in panel.lines(self.table):
            if panel.y or self.across:
                aside = 0
            move = ScaledTranslation(aside / 72, 0, inches)
            moved = {"transform": panel.ax.transData + move}
            self._draw_estimates(panel, rows, style | self.style | moved)
            if "state" in rows:
                _draw_open(panel, rows, {"color": style["color"]} | moved)

    def _draw_estimates(self, panel: Panel, rows: Table, style: Style) -> None:
        rows = rows[rows[self.y].notna()]
        at, up = panel.at(rows), panel.up(rows, self.y)
        if self.across:
            bars: Style = {"elinewidth": 2.2, "capsize": 0, "zorder": 5}
            bars["xerr"] = _bars(at, rows)
        else:
            bars = {"elinewidth": 0.8, "capsize": 1.5, "zorder": 3}
            bars["yerr"] = _bars(up, rows)
        shown: Style = bars | style | {"linestyle": "none"}
        if self.joined and panel.x.kind != "names":
            shown["linestyle"] = "-"
        panel.ax.errorbar(at, up, **shown)
        panel.ax.update_datalim(np.column_stack([at, up]))  # without the shift

    def heights(self) -> np.ndarray:
        found = floats(self.table[self.y])
        if "tried" not in self.table:
            return found
        return np.append(found, floats(self.table["tried"]))

    def entries(self, chart: Chart) -> list[Artist]:
        found = super().entries(chart)
        states = {*self.table.get("state", ())}
        for state, (marker, name) in OPEN.items():
            if state in states:
                found.append(entry(name, marker=marker, **HOLLOW))
        return found


def _draw_open(panel: Panel, rows: Table, style: Style) -> None:
    """Draws the open marks of censored cells."""
    for state, (marker, _) in OPEN.items():
        mine = rows[rows["state"] == state]
        panel.ax.plot(panel.at(mine), mine["tried"], marker=marker, **style | HOLLOW)
    places = np.column_stack([panel.at(rows), floats(rows["tried"])])
    panel.ax.update_datalim(places)


def _bars(values: np.ndarray, rows: Table) -> np.ndarray | None:
    """(2, n): the lengths of the bars below and above each value.

    The bar of an open interval ends beyond the limits of the figure. Returns None if
    the rows have no intervals.
    """
    if not {"lo", "hi"} <= {*rows}:
        return None
    low, high = floats(rows["lo"]), floats(rows["hi"])
    low = np.where(low <= 0, values / 1e3, low)
    high = np.minimum(high, 1e3 * values)
    return np.nan_to_num(np.stack([values - low, high - values])).clip(0)


@dataclass(frozen=True)
class Pixels(Layer):
    """A layer with a coloured pixel for each place over the two axes of the chart.

    Places that were not tested are hatched. `ends` are the two ends of the colour
    scale. If `ends` is None, these are the smallest and the largest value.
    """

    ends: tuple[float, float] | None = None

    @cached_property
    def norm(self) -> Normalize:
        from matplotlib.colors import Normalize

        if self.ends:
            return Normalize(*self.ends)
        values = floats(self.table[self.y])
        known = values[np.isfinite(values)]
        if not len(known):
            return Normalize(0.0, 1.0)
        return Normalize(known.min(), known.max())

    def draw(self, panel: Panel) -> None:
        ax = panel.ax
        ax.patch.set(facecolor="white", hatch="////", edgecolor="0.8")
        along_x = panel.x.edges(ax, "x")
        along_y = (panel.y or panel.x).edges(ax, "y")
        ax.pcolormesh(
            along_x,
            along_y,
            panel.over(self.table, self.y),
            norm=self.norm,
            cmap="viridis",
            linewidth=0.2,
            edgecolors="face",
            zorder=1,
        )
        ax.set_xlim(along_x[0], along_x[-1])
        ax.set_ylim(along_y[0], along_y[-1])

    def finish(self, figure: Figure, axes: Axes | Sequence[Axes]) -> None:
        """Draws the colour bar."""
        from matplotlib.cm import ScalarMappable

        figure.colorbar(
            ScalarMappable(self.norm, "viridis"),
            ax=axes,
            label=self.legend or self.y,
            fraction=0.05,
            pad=0.02,
        )

    def entries(self, chart: Chart) -> list[Artist]:
        from matplotlib.patches import Patch

        n_pixels = len(chart.x.values) * len((chart.y or chart.x).values)
        n_places = n_pixels * len(values_of(self.table, chart.panels))
        if self.table[self.y].notna().sum() >= n_places:
            return []
        hatched = Patch(
            facecolor="white",
            edgecolor="0.7",
            hatch="////",
            linewidth=0,
            label="not tested",
        )
        return [hatched]


@dataclass(frozen=True)
class Contour(Layer):
    """A layer with the contour along which a column of numbers equals `level`.

    The line is drawn over the two axes of the chart.
    """

    level: float = 0.5

    def draw(self, panel: Panel) -> None:
        x, y = panel.x, panel.y or panel.x
        z = panel.over(self.table, self.y)
        if min(z.shape) < 2 or not z.min() < self.level < z.max():
            return
        style = {"color": "black", "linestyle": "-", "linewidth": 1.2} | self.style
        panel.ax.contour(
            x.place(x.values),
            y.place(y.values),
            z,
            levels=[self.level],
            zorder=3,
            colors=style["color"],
            linestyles=[style["linestyle"]],
            linewidths=style["linewidth"],
        )


@dataclass(frozen=True)
class Chart:
    """A stack of layers; the first layer determines the lines and the panels.

    In a map, `y` is an Axis. Otherwise `y` is None, and `scale` is the scale along y:
    "fraction", "log" or "linear". If `size` is None, the panels determine the size.
    """

    layers: Sequence[Layer]
    x: Axis
    label: str = ""
    y: Axis | None = None
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    scale: str = "fraction"
    size: Size | None = None

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
        colours = shades(len(values))
        if self.y:
            colours = ["black"] * len(values)
        styles = [
            {"color": colour, "marker": MARKERS[i % len(MARKERS)]}
            for i, colour in enumerate(colours)
        ]
        return list(map(Group, values, styles))

    @cached_property
    def parts(self) -> list[Selection]:
        """The list of the values that select each panel to draw.

        If there is not enough room for all panels, the list contains evenly spaced
        panels from the first to the last.
        """
        width, height = self.size or (PAGE, None)
        room = _across(width) * max(1, int((height or HIGHEST) / LOW))
        return spread(values_of(self.table, self.panels), min(MAX_PANELS, room))

    @property
    def remark(self) -> str:
        """A text with the number of drawn panels; empty if all panels are drawn."""
        n = len(values_of(self.table, self.panels))
        if len(self.parts) == n:
            return ""
        return f"{len(self.parts)} of {n} panels are drawn"

    @property
    def y_label(self) -> str:
        return self.y.label if self.y else self.label

    def figure(
        self, title: str = "", make: Callable[..., Figure] | None = None
    ) -> Figure:
        """Returns a new figure with all panels below the legend.

        `make` creates the figure; the default is matplotlib's Figure.
        """
        from matplotlib.figure import Figure

        n = len(self.parts)
        width, height = self.size or (COLUMN if n == 1 else PAGE, None)
        columns = min(n, _across(width))
        if n == 4:
            columns = min(columns, 2)
        rows = math.ceil(n / columns)

        handles = self.entries(named=True)
        longest = max([0, *(len(str(handle.get_label())) for handle in handles)])
        ncols = max(1, int(width / (LETTER * (6 + longest))))
        lines = [textwrap.fill(line, int(width / LETTER)) for line in title.split("\n")]
        heading = "\n".join(lines)
        if height is None:
            above = math.ceil(len(handles) / ncols)
            if heading:
                above += heading.count("\n") + 1
            height = _height(width, rows, columns, above)

        figure = (make or Figure)(
            figsize=(width, height), dpi=200, layout="constrained"
        )
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        panels = [*grid.flat]
        self._draw_panels(panels, 0.8 * width / columns)
        for upper, lower in zip(panels, panels[columns:], strict=False):
            upper.tick_params(labelbottom=not lower.get_visible())
        if handles:
            legend = figure.legend(
                handles=handles,
                title=heading or None,
                loc="outside upper center",
                ncols=ncols,
                frameon=False,
            )
            legend.get_title().set_multialignment("center")
        elif heading:
            figure.suptitle(heading, fontsize="medium")
        for layer in self.layers:
            layer.finish(figure, panels[:n])
        if n == 1:
            panels[0].set(xlabel=self.x.label, ylabel=self.y_label)
        else:
            figure.supxlabel(self.x.label, fontsize="medium")
            figure.supylabel(self.y_label, fontsize="medium")
        return figure

    def _draw_panels(self, axes: Sequence[Axes], width: float) -> None:
        """Draws each panel with a title.

        The title lists the settings in which the panels differ. `width` is the largest
        width of a title in inches.
        """
        names = [name for name in self.panels if _varies(self.parts, name)]
        for ax, values in zip(axes, self.parts, strict=False):
            # line breaks are only between settings
            joined = settings(values, names or self.panels).replace(" = ", "\xa0=\xa0")
            title = textwrap.fill(joined, int(width / LETTER)).replace("\xa0", " ")
            ax.set_title(title, pad=3)
            self.draw(ax, values)
        for ax in axes[len(self.parts) :]:
            ax.set_visible(False)

    def on(self, ax: Axes) -> Axes:
        """Draws the only panel on a user's Axes, and returns the Axes.

        The legend is beside the panel. In a map it is above the panel. A figure without
        a layout engine gets matplotlib's constrained layout, so that there is room for
        the legend.
        """
        figure: Any = ax.figure.figure  # the whole figure, also for a subfigure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        self.draw(ax, {})
        ax.set(xlabel=self.x.label, ylabel=self.y_label)
        for layer in self.layers:
            layer.finish(figure, ax)
        handles = self.entries()
        if not handles:
            return ax
        place: Style = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
        if self.y:
            place = {"loc": "lower left", "bbox_to_anchor": (0, 1.01)}
        if len(self.lines) == 1:
            place["title"] = symbol(self.lines[0])
        ax.legend(handles=handles, frameon=False, borderaxespad=0, **place)
        return ax

    def draw(self, ax: Axes, values: Selection) -> None:
        """Draws the panel that these values select."""
        self.x.scale(ax, "x")
        if self.y:
            self.y.scale(ax, "y")
        panel = Panel(ax, self.x, self.y, values, self.groups)
        for layer in self.layers:
            layer.draw(panel)
        if self.y:
            self.y.mark(ax, "y")
        elif self.scale == "fraction":
            ax.set_ylim(-0.02, 1.02)
        elif self.scale == "log":
            self._scale_log(ax)
        ax.grid(not self.y)
        self.x.mark(ax, "x")

    def _scale_log(self, ax: Axes) -> None:
        heights = np.concatenate([layer.heights() for layer in self.layers])
        heights = heights[np.isfinite(heights) & (heights > 0)]
        if len(heights):  # matplotlib sets no limits for equal values
            ax.set_ylim(heights.min() / 2, heights.max() * 2)
        ax.set_yscale("log")
        log_axis(ax.yaxis)

    def entries(self, named: bool = False) -> list[Artist]:
        """Returns the entries of the legend.

        If `named` is true, the entry of each line includes the name of the column, as
        in d = 64.
        """
        found = {}
        for layer in self.layers:
            for artist in layer.entries(self):
                found[artist.get_label()] = artist
        if not self.lines:
            return [*found.values()]
        bare = {"linestyle": "none"} if isinstance(self.layers[0], Points) else {}
        lines = []
        for values, style in spread(self.groups, MAX_NAMED):
            name = settings(values)
            if len(values) == 1 and not named:
                name = text(*values.values())
            lines.append(entry(name, **bare | style))
        return [*lines, *found.values()]


def entry(named: str, **style: Any) -> Artist:
    """Returns an entry of a legend with this name and style."""
    from matplotlib.lines import Line2D

    shown: Style = {"color": GREY} | style
    return Line2D([], [], label=named, **shown)


def floats(table: Table) -> np.ndarray:
    """Returns the numbers of a column or of a table, with nan for missing values."""
    return table.to_numpy(float, na_value=np.nan)


def _across(width: float) -> int:
    """The number of panels that fit side by side."""
    return max(1, int((width + 0.3) / NARROW))


def _height(width: float, rows: int, columns: int, above: int) -> float:
    """Returns the height of a figure in inches.

    `above` is the number of lines of the legend and the heading above the panels.
    """
    if rows == columns == 1:
        panels = 0.7 * width
    else:
        least = 2.0 if rows == 1 else 1.6
        panels = rows * max(least, 0.8 * width / columns)
    return min(HIGHEST, panels + 0.16 * above + 0.3)


def _varies(parts: Sequence[Selection], name: str) -> bool:
    return len({str(values[name]) for values in parts}) > 1


def where(table: Table, values: Selection) -> Table:
    """Returns the rows with these values; ignores columns that the table lacks."""
    for name, value in values.items():
        if name in table:
            column = table[name]
            same = column.isna() if is_missing(value) else column == value
            table = table[same]
    return table


def values_of(table: Table, by: Sequence[str]) -> list[Selection]:
    """Returns a sorted list of the distinct combinations of values in the columns `by`.

    Numbers come first and missing values last. If `by` is empty, the result is [{}].
    """
    if not by:
        return [{}]
    rows = table[list(by)].drop_duplicates().itertuples(index=False, name=None)
    ordered = sorted(rows, key=lambda row: [*map(_order, row)])
    return [dict(zip(by, row, strict=True)) for row in ordered]


def _order(value: Any) -> tuple[bool, bool, Any]:
    if is_missing(value):
        return True, False, 0
    return False, isinstance(value, str), value


def few_seeds(rows: Table) -> np.ndarray:
    """Returns a mask of the rows that average few seeds.

    A row has few seeds if its n_seeds is less than half of the largest n_seeds. If
    there is no column n_seeds, the mask is false for all rows.
    """
    if "n_seeds" not in rows:
        return np.zeros(len(rows), bool)
    return (rows["n_seeds"] < 0.5 * rows["n_seeds"].max()).to_numpy()
