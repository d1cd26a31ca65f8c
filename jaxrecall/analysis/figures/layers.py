"""Layers: what a panel of a figure is made of.

A layer is a table that is drawn in one way. Its columns place it: x and y, the columns
in which lines differ, and those in which panels differ. If the table lacks the columns
of the panels, the layer is drawn in every panel. If it lacks those of the lines, it is
drawn once, in the colour of the text.

- `Polyline` joins values, which may have a band.
- `Points` are estimates with bars, and open marks for cells without an estimate.
- `Pixels` are colours over two axes, and a `Contour` is a line over two axes.

The rows that a layer draws have the columns X and Y, their places along both axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from ...model.values import is_missing
from ..fit.columns import Table, common, groups
from ..fit.tables import LOST, PLATEAU
from .style import DASH, Style, ink, keywords, line_styles, paper

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

Selection = dict[str, Any]
"""A dict from column to value, which selects the rows that have these values."""

X, Y = "_x", "_y"
"""The columns of numbers with the places of rows along both axes."""

HOLLOW: Style = {"linestyle": "none", "size": 1.3, "open": True}
THEORY: Style = {"linestyle": DASH, "marker": "none", "width": 0.75}


@dataclass(frozen=True)
class Axis:
    """A column along x or y, with its sorted values.

    If no value is negative, the axis is logarithmic, and linear near 0 if 0 is a value.
    Names are spaced evenly.
    """

    name: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, rows: Table, name: str) -> Axis:
        """Returns the axis of a column."""
        return cls(name, tuple(ordered(rows[name])))

    @cached_property
    def kind(self) -> str:
        """The scale that suits the values: "log", "symlog", "linear" or "names"."""
        are_names = any(isinstance(value, (str, bool)) for value in self.values)
        sizes = [abs(value) for value in self.values if not are_names and value]
        if not sizes or min(sizes) < 1e-100 or max(sizes) > 1e100:
            return "names"  # matplotlib cannot draw such numbers
        if min(self.values) < 0:
            return "linear"
        return "symlog" if 0 in self.values else "log"

    def place(self, values: Iterable[Any]) -> np.ndarray:
        """Returns the place of each value: the number itself, or the rank of a name."""
        if self.kind != "names":
            return np.array([*values], dtype=float)
        rank = {value: float(i) for i, value in enumerate(self.values)}
        return np.array([rank.get(value, np.nan) for value in values])

    def scale(self, ax: Axes, which: Literal["x", "y"]) -> Transform:
        """Sets the scale of `ax`; returns the transform that makes it linear."""
        options = {}
        if self.kind == "symlog":
            options = {"linthresh": self.values[1], "linscale": 0.6}
        scale = "linear" if self.kind == "names" else self.kind
        getattr(ax, f"set_{which}scale")(scale, **options)
        return getattr(ax, f"{which}axis").get_transform()

    def edges(self, ax: Axes, which: Literal["x", "y"]) -> np.ndarray:
        """Returns the edges of pixels: in the middle between two places, and half a
        step beyond the first and the last.
        """
        transform = self.scale(ax, which)
        spots = transform.transform(self.place(self.values))
        step = np.diff(spots) if len(spots) > 1 else np.array([0.3])
        before = spots[:1] - step[0] / 2
        after = spots[-1:] + step[-1] / 2
        between = (spots[:-1] + spots[1:]) / 2
        return transform.inverted().transform(np.concatenate([before, between, after]))


@dataclass(frozen=True)
class Panel:
    """The Axes of a panel, and the axes of the figure; `y` is None but in a map."""

    ax: Axes
    x: Axis
    y: Axis | None

    @property
    def has_names(self) -> bool:
        return self.x.kind == "names"

    @property
    def is_log(self) -> bool:
        return self.ax.get_yscale() == "log"

    def over(self, rows: Table, name: str) -> np.ma.MaskedArray:
        """Returns a column over the places of both axes, masked where it is missing."""
        x, y = self.x, self.y or self.x
        z = rows.pivot(index=Y, columns=X, values=name)
        z = z.reindex(index=y.place(y.values), columns=x.place(x.values))
        return np.ma.masked_invalid(floats(z))


Hollow = tuple[str, Style, Table]
"""A kind of hollow marks: the name in the legend, the style, and the marked rows."""


@dataclass(frozen=True)
class Layer:
    """The base class of layers.

    Attributes:
        table: the rows that are drawn, with the column of the figure's x.
        y: the name of the column along y, or of the colours.
        legend: the entry of the layer in the legend. If empty, there is none.
        style: keyword arguments of matplotlib, which override the style of the lines.
            See `Style` for the arguments that are not matplotlib's.
    """

    table: Table
    y: str
    legend: str = ""
    style: Style = field(default_factory=dict)

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        """Draws the rows of a line, from left to right, in a panel."""
        raise NotImplementedError

    def heights(self, panel: Panel) -> Sequence[str]:
        """Returns the columns whose values must be inside the limits of y."""
        return ()

    def is_aside(self, panel: Panel) -> bool:
        """Whether marks of several lines at one place stand side by side."""
        return panel.has_names

    @property
    def usual(self) -> Style:
        """The style of the entry in the legend, which `style` overrides."""
        return {}

    def entries(self) -> Iterator[Artist]:
        """Yields the entries of the layer in the legend."""
        if self.legend and len(self.table):
            yield entry(self.legend, **self.usual | self.style)
        for name, style, rows in self.hollow(self.table):
            if len(rows):
                yield entry(name, **HOLLOW | {"marker": "o"} | style)

    def hollow(self, rows: Table) -> Iterator[Hollow]:
        """Yields each kind of hollow marks among rows."""
        return iter(())

    def draw_hollow(self, panel: Panel, rows: Table, style: Style) -> None:
        """Draws the hollow marks of a line over its other marks."""
        for _, mark, marked in self.hollow(rows):
            if len(marked):
                panel.ax.plot(marked[X], marked[Y], **style | mark | keywords(HOLLOW))


@dataclass(frozen=True)
class Polyline(Layer):
    """Values that lines join along x, with a band between columns `low` and `high`.

    Values with few seeds, according to the column n_seeds, are hollow and not joined.
    Those of places where some seeds have no value, according to n_lost, are hollow.
    Along an axis of names nothing is joined, and bars replace the band. `each` is a
    column that divides a line into several lines.
    """

    each: str = ""

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        style = keywords(style | self.style)
        if panel.has_names:
            style["linestyle"] = "none"
        for _, part in groups(rows, filter(None, [self.each])):
            joined = part[~few_seeds(part)]
            panel.ax.plot(joined[X], joined[Y], **style)
            if "low" in part:
                _draw_band(panel, joined, style)
            self.draw_hollow(panel, part, style)

    def heights(self, panel: Panel) -> Sequence[str]:
        if not panel.is_log:
            return [Y, *common(("low", "high"), self.table)]
        # on a log axis, predictions and bands may lie beyond the limits
        return [Y] if "n_seeds" in self.table else []

    def hollow(self, rows: Table) -> Iterator[Hollow]:
        if "n_lost" in rows:
            known = rows[rows[self.y].notna()]
            yield LOST, {"linestyle": "-"}, known[known["n_lost"] > 0]
        yield "few seeds", {}, rows[few_seeds(rows)]


def _draw_band(panel: Panel, rows: Table, style: Style) -> None:
    ends, color = (rows[X], rows["low"], rows["high"]), style["color"]
    if panel.has_names:
        moved = style.get("transform", panel.ax.transData)
        panel.ax.vlines(*ends, linewidth=0.8, color=color, transform=moved)
    else:
        panel.ax.fill_between(*ends, color=color, alpha=0.2, linewidth=0)


@dataclass(frozen=True)
class Points(Layer):
    """Estimates with bars from `lo` to `hi`, and open marks.

    If the table has the columns `state`, `censored` and `tried`, cells with a value of
    `tried` have an open mark at this value. `joined` is whether a line joins the
    estimates, and `across` whether bars are along x.
    """

    joined: bool = False
    across: bool = False

    @property
    def usual(self) -> Style:
        return {"marker": "o", "linestyle": "-" if self.joined else "none"}

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        known = rows[rows[Y].notna()]
        shown = self.usual | keywords(style | self.style)
        if panel.has_names or not self.joined:
            shown["linestyle"] = "none"
        if self.across:
            shown |= {"elinewidth": 2.2, "zorder": 5, "xerr": _bars(known, X)}
        else:
            shown |= {"elinewidth": 0.8, "zorder": 3, "yerr": _bars(known, Y)}
            shown["capsize"] = 1.5
        panel.ax.errorbar(known[X], known[Y], **shown)
        self.draw_hollow(panel, rows, style | {"zorder": 4})

    def heights(self, panel: Panel) -> Sequence[str]:
        bars = () if self.across else ("lo", "hi")
        return [Y, *common(("tried", *bars), self.table)]

    def is_aside(self, panel: Panel) -> bool:
        return not (panel.y or self.across or self.joined)

    def hollow(self, rows: Table) -> Iterator[Hollow]:
        if "tried" not in rows:
            return
        is_open = rows["tried"].notna()
        yield LOST, {"linestyle": "-"}, rows[~is_open & (rows["state"] == LOST)]
        rows = rows.assign(**{Y: rows["tried"]})[is_open]
        is_above, levels_off = rows["censored"] == "left", rows["state"] == PLATEAU
        yield "levels off before", {"marker": "X"}, rows[levels_off]
        beyond = rows[~is_above & ~levels_off]
        yield "not reached, crosses above", {"marker": "^"}, beyond
        yield "crosses below", {"marker": "v"}, rows[is_above]


def _bars(rows: Table, name: str) -> np.ndarray | None:
    """(2, n): the lengths of the bars below and above the values of a column, or None.

    The bar of an open interval ends beyond the limits of the figure.
    """
    if not {"lo", "hi"} <= {*rows}:
        return None
    values = floats(rows[[name, "lo", "hi"]]).T
    beyond = 1e3 * np.abs(values[np.isfinite(values)]).max(initial=0.0)
    value, low, high = values.clip(-beyond, beyond)
    return np.nan_to_num(np.stack([value - low, high - value])).clip(0)


@dataclass(frozen=True)
class Pixels(Layer):
    """A coloured pixel for each place over the two axes of the figure.

    Places that were not tested are hatched. The colours of fractions are those of 0 to
    1. Names have a colour each, and the legend lists them.
    """

    @cached_property
    def names(self) -> list[Any]:
        """The names that the column may contain; empty if it contains numbers."""
        values = categories(self.table[self.y])
        return values if any(isinstance(value, str) for value in values) else []

    @cached_property
    def colours(self) -> Any:
        """The norm and the colours of matplotlib, from which a colour bar is made."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import ListedColormap, Normalize

        if self.names:
            styles = line_styles([{self.y: name} for name in self.names])
            listed = ListedColormap([style["color"] for style in styles])
            return ScalarMappable(Normalize(-0.5, len(styles) - 0.5), listed)
        if scale_of(self.table[self.y]) == "fraction":
            return ScalarMappable(Normalize(0.0, 1.0))
        values = floats(self.table[self.y])
        known = values[np.isfinite(values)]
        return ScalarMappable(Normalize(known.min(), known.max()))

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        hatched = {"facecolor": paper(), "edgecolor": "0.8", "hatch": "////"}
        panel.ax.patch.set(**hatched)
        if self.names:
            number = {name: float(i) for i, name in enumerate(self.names)}
            rows = rows.assign(**{self.y: rows[self.y].astype(object).map(number)})
        along_x = panel.x.edges(panel.ax, "x")
        along_y = (panel.y or panel.x).edges(panel.ax, "y")
        shown: Style = {"norm": self.colours.norm, "cmap": self.colours.cmap}
        shown |= {"linewidth": 0.2, "edgecolors": "face", "zorder": 1}
        z = panel.over(rows, self.y)
        panel.ax.pcolormesh(along_x, along_y, z, **shown)
        if np.ma.is_masked(z):
            why = "no values" if rows[self.y].isna().any() else "not tested"
            panel.ax.fill([], [], **hatched, linewidth=0, label=why)
        panel.ax.set(xlim=along_x[[0, -1]], ylim=along_y[[0, -1]])

    def entries(self) -> Iterator[Artist]:
        from matplotlib.patches import Patch

        there = {*self.table[self.y]}
        for i, name in enumerate(self.names):
            if name in there:
                yield Patch(facecolor=self.colours.to_rgba(i), label=name)


@dataclass(frozen=True)
class Contour(Layer):
    """The line over two axes along which a column of numbers equals `level`."""

    level: float = 0.5

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        ax, x, y = panel.ax, panel.x, panel.y or panel.x
        z = panel.over(rows, self.y)
        if min(z.shape) < 2:
            return
        shown = keywords({"linestyle": "-", "width": 1.0} | style | self.style)
        ax.contour(
            x.scale(ax, "x").transform(x.place(x.values)),
            y.scale(ax, "y").transform(y.place(y.values)),
            z,
            levels=[self.level],
            colors=shown["color"],
            linestyles=[shown["linestyle"]],
            linewidths=shown["linewidth"],
            zorder=3,
            corner_mask=False,
            # interpolation is linear along the drawn axes
            transform=ax.transLimits + ax.transAxes,
        )


def entry(named: str, **style: Any) -> Artist:
    """Returns an entry of a legend with this name and style."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=named, **keywords({"color": ink()} | style))


def floats(table: Table) -> np.ndarray:
    """Returns the numbers of a column or of a table, with nan for missing values."""
    return table.to_numpy(float, na_value=np.nan)


def where(table: Table, values: Selection) -> Table:
    """Returns the rows with these values; ignores columns that the table lacks."""
    for name, value in values.items():
        if name in table:
            column = table[name]
            table = table[column.isna() if is_missing(value) else column == value]
    return table


def ordered(column: Table) -> list[Any]:
    """Returns the sorted distinct values of a column; numbers come before names.

    Categories have the order that their owner gave them.
    """
    there = {*column.dropna().tolist()}
    return [value for value in categories(column) if value in there]


def categories(column: Table) -> list[Any]:
    """Returns the values that a column may have: its categories, or its own values."""
    if hasattr(column, "cat"):
        return column.cat.categories.tolist()
    distinct = {*column.dropna().tolist()}
    return sorted(distinct, key=lambda value: (isinstance(value, str), value))


def values_of(table: Table, by: Sequence[str]) -> list[Selection]:
    """Returns a sorted list of the distinct combinations of values in the columns `by`.

    Missing values come last. If `by` is empty, the result is [{}].
    """
    if not by:
        return [{}]
    rows = table[[*by]].drop_duplicates()
    for name in by:
        if rows[name].dtype == object:
            ranked = pd.Categorical(rows[name], categories(rows[name]), ordered=True)
            rows = rows.assign(**{name: ranked})
    return rows.sort_values([*by]).to_dict("records")


def few_seeds(rows: Table) -> Table:
    """Returns a mask of the rows with less than half as many runs as another.

    Runs without a value count.
    """
    counts = rows.reindex(columns=["n_seeds", "n_lost"], fill_value=0)
    n_runs = counts.sum(axis=1)
    return n_runs < 0.5 * n_runs.max()


def scale_of(column: Table) -> str:
    """The axis scale that suits the values of a column.

    The scale is "fraction" if all values are between 0 and 1. It is "log" if they are
    positive and span more than a factor of 20, and otherwise "linear".
    """
    values = floats(column)
    known = values[np.isfinite(values)]
    if not len(known) or (known.min() >= 0 and known.max() <= 1):
        return "fraction"
    if known.min() > 0 and known.max() > 20 * known.min():
        return "log"
    return "linear"
