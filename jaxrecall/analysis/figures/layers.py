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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy import ndarray

from ...model.values import is_missing
from ..fit.columns import ColumnNames, Table, floats
from ..fit.tables import LOST, PLATEAU
from .style import DASH, Style, ink, keywords, line_styles, paper

if TYPE_CHECKING:
    from matplotlib.artist import Artist

Selection = dict[str, Any]
"""A dict from column to value, which selects the rows that have these values."""

X, Y = "_x", "_y"
"""The columns of numbers with the places of rows along both axes."""

HOLLOW: Style = {"linestyle": "none", "size": 1.3, "open": True, "zorder": 4}
THEORY: Style = {"linestyle": DASH, "marker": "none", "width": 0.75}


@dataclass(frozen=True)
class Axis:
    """A column along x or y, with its sorted values.

    If no value is negative, the axis is logarithmic, and linear near 0 if 0 is a value.
    Names are spaced evenly.
    """

    name: str
    values: Sequence[Any]

    @cached_property
    def kind(self) -> str:
        """The scale that suits the values: "log", "symlog", "linear" or "names"."""
        if any(isinstance(value, (str, bool)) for value in self.values):
            return "names"
        if not any(self.values) or min(self.values) < 0:
            return "linear"
        return "symlog" if 0 in self.values else "log"

    @property
    def places(self) -> ndarray:
        """The places of the values."""
        return self.place(pd.Series(self.values, dtype=object))

    def place(self, column: Table) -> ndarray:
        """Returns the place of each value: the number itself, or the rank of a name."""
        if self.kind != "names":
            return floats(column)
        ranks = pd.Index(self.values, dtype=object).get_indexer([*column])
        return np.where(ranks < 0, np.nan, ranks)

    def scale(self, ax: Any, which: str) -> None:
        """Sets the scale of `ax` along "x" or "y"."""
        if self.kind == "names":
            return
        options = {}
        if self.kind == "symlog":
            options = {"linthresh": self.values[1], "linscale": 0.6}
        getattr(ax, f"set_{which}scale")(self.kind, **options)


class Panel(NamedTuple):
    """The Axes of a panel, the axes of the figure, and the entries of its legend by
    their names. `y` is None but in a map.
    """

    ax: Any
    x: Axis
    y: Any
    keys: dict[str, Artist]

    def add_key(self, name: str, style: Style) -> None:
        """Adds an entry to the legend."""
        from matplotlib.lines import Line2D

        style = keywords({"color": ink()} | style)
        self.keys.setdefault(name, Line2D([], [], label=name, **style))

    def over(self, rows: Table, name: str) -> np.ma.MaskedArray:
        """Returns a column over the places of both axes, masked where it is missing."""
        z = rows.pivot(index=Y, columns=X, values=name)
        z = z.reindex(index=self.y.places, columns=self.x.places)
        return np.ma.masked_invalid(floats(z))


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

    @property
    def usual(self) -> Style:
        """The style that those of the lines and of the layer override."""
        return {}

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        """Draws the rows of a line, from left to right, in a panel."""
        raise NotImplementedError


@dataclass(frozen=True)
class Polyline(Layer):
    """Values that lines join along x, with a band between columns `low` and `high`.

    Values with few seeds, according to the columns n_seeds and n_lost, are hollow and
    not joined. Those of places where some seeds have no value are hollow. Along an axis
    of names nothing is joined, and bars replace the band. `each` is a column that
    divides a line into several lines.
    """

    each: str = ""

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        style = keywords(style)
        joined = rows[~few_seeds(rows, self.each)]
        if self.each:  # a row without values ends each line
            ends = joined[[self.each]].drop_duplicates()
            joined = pd.concat([joined, ends]).sort_values(self.each, kind="stable")
        if panel.x.kind == "names":
            bars = _bars(joined, Y, "low", "high")
            unjoined = style | {"linestyle": "none", "elinewidth": 0.8}
            panel.ax.errorbar(joined[X], joined[Y], bars, **unjoined)
            return
        panel.ax.plot(joined[X], joined[Y], **style)
        if "low" in rows:
            band = joined[X], joined["low"], joined["high"]
            shade = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
            panel.ax.fill_between(*band, **shade)


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
        style = keywords(style)
        if panel.x.kind == "names" or not self.joined:
            style["linestyle"] = "none"
        if self.across:
            style |= {"elinewidth": 2.2, "zorder": 5}
            style["xerr"] = _bars(known, X, "lo", "hi")
        else:
            style |= {"elinewidth": 0.8, "zorder": 3, "capsize": 1.5}
            style["yerr"] = _bars(known, Y, "lo", "hi")
        panel.ax.errorbar(known[X], known[Y], **style)


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
        values = self.table[self.y]
        ends = values.min(), values.max()
        if scale_of(values) == "fraction":
            ends = 0.0, 1.0
        return ScalarMappable(Normalize(*ends))

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        from matplotlib.collections import PolyCollection
        from matplotlib.patches import Patch

        ax, colours = panel.ax, self.colours
        for i, name in enumerate(self.names):
            if name in {*self.table[self.y]}:
                panel.keys[name] = Patch(facecolor=colours.to_rgba(i), label=name)
        hatched = {"facecolor": paper(), "edgecolor": "0.8", "hatch": "////"}
        ax.patch.set(**hatched)
        if self.names:
            rows = rows.assign(**{self.y: Axis("", self.names).place(rows[self.y])})
        across = _edges(ax.xaxis, panel.x.places)
        up = _edges(ax.yaxis, panel.y.places)
        z = panel.over(rows, self.y)
        # matplotlib's mesh would write a path for each place that was not tested, too
        i, j = np.nonzero(~np.ma.getmaskarray(z))
        left, right, low, high = across[j], across[j + 1], up[i], up[i + 1]
        pixels = PolyCollection(
            [*np.transpose([[left, right, right, left], [low, low, high, high]])],
            array=z.compressed(),
            norm=colours.norm,
            cmap=colours.cmap,
            edgecolors="face",
            linewidth=0.2,
            antialiased=False,
            zorder=1,
        )
        ax.add_collection(pixels)
        if np.ma.is_masked(z):
            why = "no values" if rows[self.y].isna().any() else "not tested"
            panel.keys[why] = Patch(**hatched, linewidth=0, label=why)
        ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]])


@dataclass(frozen=True)
class Contour(Layer):
    """The line over two axes along which a column of numbers equals `level`."""

    level: float = 0.5

    def draw(self, panel: Panel, rows: Table, style: Style) -> None:
        ax, z = panel.ax, panel.over(rows, self.y)
        if min(z.shape) < 2:
            return
        style = keywords({"linestyle": "-", "width": 1.0} | style)
        ax.contour(
            ax.xaxis.get_transform().transform(panel.x.places),
            ax.yaxis.get_transform().transform(panel.y.places),
            z,
            levels=[self.level],
            colors=style["color"],
            linestyles=[style["linestyle"]],
            linewidths=style["linewidth"],
            zorder=3,
            corner_mask=False,
            # interpolation is linear along the drawn axes
            transform=ax.transLimits + ax.transAxes,
        )


def hollow(panel: Panel, rows: Table) -> Iterator[tuple[str, Style, Table, str]]:
    """Yields each kind of hollow marks among means over seeds, or among thresholds: the
    name in the legend, the style, a mask of the marked rows, and their column along y.
    """
    if "n_lost" in rows and not panel.y:
        yield LOST, {"linestyle": "-"}, (rows["n_lost"] > 0) & rows[Y].notna(), Y
        yield "few seeds", {}, few_seeds(rows), Y
    if "tried" in rows:
        is_open, is_above = rows["tried"].notna(), rows["censored"] == "left"
        yield LOST, {}, ~is_open & (rows["state"] == LOST), Y
        levels_off = rows["state"] == PLATEAU
        yield "levels off before", {"marker": "X"}, is_open & levels_off, "tried"
        beyond = is_open & ~is_above & ~levels_off
        yield "not reached, crosses above", {"marker": "^"}, beyond, "tried"
        yield "crosses below", {"marker": "v"}, is_open & is_above, "tried"


def _bars(rows: Table, middle: str, low: str, high: str) -> ndarray | None:
    """(2, n): the lengths of the bars below and above the values of a column, or None.

    The bar of an open interval ends beyond the limits of the figure.
    """
    if low not in rows:
        return None
    values = floats(rows[[middle, low, high]]).T
    beyond = 1e3 * np.abs(values[np.isfinite(values)]).max(initial=0.0)
    value, least, most = values.clip(-beyond, beyond)
    return np.nan_to_num(np.stack([value - least, most - value])).clip(0)


def _edges(ruler: Any, places: ndarray) -> ndarray:
    """Returns the edges of pixels: in the middle between two places, and half a step
    beyond the first and the last.
    """
    transform = ruler.get_transform()
    spots = transform.transform(places)
    steps = np.diff(spots) if len(spots) > 1 else np.array([0.3])
    lower = spots - np.append(steps[:1], steps[: len(spots) - 1]) / 2
    return transform.inverted().transform(np.append(lower, spots[-1] + steps[-1] / 2))


def where(table: Table, values: Selection) -> Table:
    """Returns the rows with these values; ignores columns that the table lacks."""
    masks = []
    for name, value in values.items():
        if name in table:
            column = table[name]
            same = column.isna() if is_missing(value) else column == value
            masks.append(same.to_numpy(bool, na_value=False))
    return table[np.logical_and.reduce(masks)] if masks else table


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


def values_of(table: Table, by: ColumnNames) -> list[Selection]:
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


def few_seeds(rows: Table, each: str = "") -> Table:
    """Returns a mask of the rows with less than half as many runs as another, which has
    the same value of the column `each` if there is one.

    Runs without a value count.
    """
    counts = rows.reindex(columns=["n_seeds", "n_lost"], fill_value=0)
    n_runs = counts.sum(axis=1)
    most = n_runs.groupby(rows[each]).transform("max") if each else n_runs.max()
    return n_runs < 0.5 * most


def scale_of(column: Table) -> str:
    """The axis scale that suits the values of a column.

    The scale is "fraction" if all values are between 0 and 1. It is "log" if they are
    positive and span more than a factor of 20, and otherwise "linear".
    """
    low, high = column.min(), column.max()
    if column.isna().all() or (low >= 0 and high <= 1):
        return "fraction"
    return "log" if 0 < 20 * low < high else "linear"
