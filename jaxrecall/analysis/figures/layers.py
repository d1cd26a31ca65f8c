"""The layers of a chart: lines, points, colours and contours that draw a table.

The columns of a layer's table determine the places of its marks. If the table lacks the
columns of the panels, the layer is drawn in all panels. If it lacks the columns of the
lines, the layer is drawn once, in the colour of the text.

- `Polyline` joins means and may have a band.
- `Points` have bars, and open marks for censored cells.
- `Pixels` are colours over two axes.
- `Contour` is a line over two axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...model.values import is_missing
from ..fit.columns import Table
from .axis import Axis, Side, categories, ordered
from .style import DASH, Style, ink, keywords, line_styles, paper

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import FigureBase

Selection = dict[str, Any]
"""A dict from column to value, which selects the rows that have these values."""

OPEN = {
    "levels off": ("X", "levels off before"),
    "not reached": ("^", "not reached, crosses above"),
    "above": ("v", "crosses below"),
}
"""A dict from the state of a censored cell to its open mark and its legend entry."""

HOLLOW: Style = {"linestyle": "none", "size": 1.3, "open": True}
"""The style of open marks."""

BELOW: Style = {"marker": 7, "linestyle": "none", "size": 1.3}
"""The style of marks at the lower end of a log axis, for values that have no place."""

FINER = 8
"""The number of parts into which a contour divides the distance of two places."""

BELOW_LEGEND = "0 or less, below the axis"
THEORY: Style = {"linestyle": DASH, "marker": "none", "width": 0.75}


class Group(NamedTuple):
    """A line of a chart: the values that select its rows, and its colour and marker."""

    values: Selection
    style: Style


@dataclass(frozen=True)
class Panel:
    """The data that layers need to draw in one panel.

    `ax` is the Axes of matplotlib, `x` and `y` are the axes of the panel, `values`
    selects the rows of the panel, and `groups` are the lines. `is_log` is whether the
    axis along y is logarithmic. `is_first` is whether the layer is the first of the
    chart, whose table determines the lines.
    """

    ax: Axes
    x: Axis
    y: Axis | None
    values: Selection
    groups: list[Group]
    is_log: bool
    is_first: bool

    def lines(self, table: Table) -> Iterator[tuple[Table, Style, float]]:
        """Yields the rows of each line from left to right, its style, and its shift.

        The shift is the distance in points by which the line's marks are moved to the
        right.
        """
        rows = where(table, self.values)
        rows = rows.iloc[np.argsort(self.at(rows), kind="stable")]
        n = len(self.groups)
        names = {*self.groups[0].values}
        if not names & {*table} and not (self.is_first and not names):
            yield rows, {"color": ink()}, 0.0
            return
        for i, (values, style) in enumerate(self.groups):
            aside = (i - (n - 1) / 2) * min(2.5, 4 / n)
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

    def is_shared(self, table: Table) -> bool:
        """Whether most marks of a table share their place along x with another mark."""
        at = self.at(where(table, self.values))
        return len(np.unique(at)) <= len(at) / 2

    def moved(self, aside: float) -> Style:
        """Returns the style of marks that are moved by `aside` points to the right."""
        from matplotlib.transforms import ScaledTranslation

        inches: Any = self.ax.figure.dpi_scale_trans
        move = ScaledTranslation(aside / 72, 0, inches)
        return {"transform": self.ax.transData + move}

    def inside(self, up: np.ndarray) -> np.ndarray:
        """Returns values along y, with nan where they have no place on a log axis."""
        return np.where(up > 0, up, np.nan) if self.is_log else up

    def below(self, at: np.ndarray, up: np.ndarray, style: Style) -> None:
        """Marks the values that have no place on a log axis, at its lower end."""
        if not self.is_log:
            return
        lost = at[up <= 0]
        if len(lost):
            shown = style | keywords(BELOW)
            shown["transform"] = self.ax.get_xaxis_transform()
            self.ax.plot(lost, np.zeros(len(lost)), clip_on=False, **shown)


@dataclass(frozen=True)
class Layer:
    """The base class of layers, which draw marks of one kind.

    Attributes:
        table: the rows that are drawn. Its columns include that of the chart's x.
        y: the name of the column along y.
        legend: the entry of the layer in the legend. If empty, there is none.
        style: keyword arguments of matplotlib, which override the style of the lines.
            See `Style` for the arguments that are not matplotlib's.
    """

    table: Table
    y: str
    legend: str = ""
    style: Style = field(default_factory=dict)

    def draw(self, panel: Panel) -> None:
        """Draws the marks that belong to a panel."""
        raise NotImplementedError

    def finish(self, figure: FigureBase, axes: Axes | Sequence[Axes]) -> None:
        """Draws the parts that are beside the panels, such as a colour bar."""

    def heights(self) -> np.ndarray:
        """Returns an array of the values that the limits of y must include."""
        return np.zeros(0)

    def entries(self, n_places: int) -> list[Artist]:
        """Returns the entries of the layer in the legend.

        `n_places` is the number of places over the two axes of a map.
        """
        if self.legend and len(self.table):
            return [entry(self.legend, **self.style)]
        return []


@dataclass(frozen=True)
class Polyline(Layer):
    """A layer of values that lines join along x.

    If the table has the columns `low` and `high`, there is a band between them. Values
    with few seeds, according to the column n_seeds, are hollow and not joined. A
    threshold search produces such values far from the crossing. Along an axis of names
    nothing is joined, and bars replace the band. `each` is a column that divides a line
    into several lines.
    """

    each: str = ""

    def draw(self, panel: Panel) -> None:
        for rows, style, aside in panel.lines(self.table):
            style = keywords(style | self.style)
            parts = [rows]
            if self.each:
                parts = [part for _, part in rows.groupby(self.each)]
            if panel.x.kind == "names":
                style |= {"linestyle": "none"} | panel.moved(aside)
            for part in parts:
                self._draw_part(panel, part, style)

    def _draw_part(self, panel: Panel, rows: Table, style: Style) -> None:
        few = few_seeds(rows)
        joined = rows[~few]
        at, up = panel.at(joined), panel.up(joined, self.y)
        panel.below(at, up, style)
        panel.ax.plot(at, panel.inside(up), **style)
        if "low" in rows:
            self._draw_band(panel, at, joined, style)
        if few.any():
            alone = rows[few]
            at, up = panel.at(alone), panel.up(alone, self.y)
            panel.below(at, up, style)
            panel.ax.plot(at, up, **style | keywords(HOLLOW))

    def _draw_band(
        self, panel: Panel, at: np.ndarray, rows: Table, style: Style
    ) -> None:
        low, high = floats(rows["low"]), floats(rows["high"])
        if panel.x.kind == "names":
            moved = {name: style[name] for name in ("color", "transform")}
            panel.ax.vlines(at, low, high, linewidth=0.8, **moved)
            return
        panel.ax.fill_between(
            at, low, high, color=style["color"], alpha=0.2, linewidth=0
        )

    def heights(self) -> np.ndarray:
        """Returns the measured values; predictions may lie beyond the limits of y."""
        if "n_seeds" in self.table:
            return floats(self.table[self.y])
        return super().heights()

    def entries(self, n_places: int) -> list[Artist]:
        found = super().entries(n_places)
        if few_seeds(self.table).any():
            found.append(entry("few seeds", marker="o", **HOLLOW))
        return found


@dataclass(frozen=True)
class Points(Layer):
    """A layer of estimates with bars from `lo` to `hi`, and open marks.

    If the table has a column `state`, its value is "crosses" for cells with an
    estimate. All other cells are censored, and their open marks are at the values of
    the column `tried`. Marks of several lines at one place are side by side.
    `joined` is whether a line joins the estimates, and `across` is whether bars are
    along x.
    """

    joined: bool = False
    across: bool = False

    def draw(self, panel: Panel) -> None:
        for rows, style, aside in panel.lines(self.table):
            if panel.y or self.across or self.joined or not panel.is_shared(self.table):
                aside = 0
            moved = panel.moved(aside)
            shown = keywords({"marker": "o"} | style | self.style) | moved
            self._draw_estimates(panel, rows, shown)
            if {"state", "tried"} <= {*rows}:
                _draw_open(panel, rows, {"color": style["color"]} | moved)

    def _draw_estimates(self, panel: Panel, rows: Table, style: Style) -> None:
        rows = rows[rows[self.y].notna()]
        at, up = panel.at(rows), panel.up(rows, self.y)
        panel.below(at, up, style)
        if self.across:
            bars: Style = {"elinewidth": 2.2, "capsize": 0, "zorder": 5}
            bars["xerr"] = bars_of(at, rows, is_log=True)
        else:
            bars = {"elinewidth": 0.8, "capsize": 1.5, "zorder": 3}
            bars["yerr"] = bars_of(up, rows, panel.is_log or panel.y is not None)
        shown: Style = bars | style | {"linestyle": "none"}
        if self.joined and panel.x.kind != "names":
            shown["linestyle"] = style.get("linestyle", "-")
        panel.ax.errorbar(at, up, **shown)
        panel.ax.update_datalim(np.column_stack([at, up]))  # without the shift

    def heights(self) -> np.ndarray:
        found = [floats(self.table[self.y])]
        for name in {"tried", "lo", "hi"} & {*self.table}:
            if name == "tried" or not self.across:
                found.append(floats(self.table[name]))
        return np.concatenate(found)

    def entries(self, n_places: int) -> list[Artist]:
        found = []
        if self.legend and len(self.table):
            usual: Style = {"marker": "o", "linestyle": "-" if self.joined else "none"}
            found.append(entry(self.legend, **usual | self.style))
        has_states = {"state", "tried"} <= {*self.table}
        states = {*self.table["state"]} if has_states else set()
        for state, (marker, name) in OPEN.items():
            if state in states:
                found.append(entry(name, marker=marker, **HOLLOW))
        return found


def _draw_open(panel: Panel, rows: Table, style: Style) -> None:
    """Draws the open marks of censored cells."""
    for state, (marker, _) in OPEN.items():
        mine = rows[rows["state"] == state]
        shown: Style = style | keywords(HOLLOW) | {"marker": marker}
        panel.ax.plot(panel.at(mine), mine["tried"], **shown)
    places = np.column_stack([panel.at(rows), floats(rows["tried"])])
    panel.ax.update_datalim(places)


def bars_of(values: np.ndarray, rows: Table, is_log: bool) -> np.ndarray | None:
    """(2, n): the lengths of the bars below and above each value.

    The bar of an open interval ends beyond the limits of the figure. Returns None if
    the rows have no intervals.
    """
    if not {"lo", "hi"} <= {*rows}:
        return None
    low, high = floats(rows["lo"]), floats(rows["hi"])
    known = np.concatenate([values, low, high])
    beyond = 1e3 * np.abs(known[np.isfinite(known)]).max(initial=0.0)
    low = np.where(low <= 0, values / 1e3, low) if is_log else low.clip(-beyond)
    high = high.clip(None, beyond)
    return np.nan_to_num(np.stack([values - low, high - values])).clip(0)


@dataclass(frozen=True)
class Pixels(Layer):
    """A layer with a coloured pixel for each place over the two axes of the chart.

    Places that were not tested are hatched. `ends` are the two ends of the colour
    scale. If `ends` is None, these are the smallest and the largest value. Names have a
    colour each, and the legend lists them.
    """

    ends: tuple[float, float] | None = None

    @cached_property
    def names(self) -> list[str]:
        """The names that the column may contain; empty if it contains numbers."""
        values = categories(self.table[self.y])
        return values if any(isinstance(value, str) for value in values) else []

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

    def _shown(self) -> Style:
        """Returns the colours of the pixels."""
        from matplotlib import rcParams
        from matplotlib.colors import ListedColormap

        if not self.names:
            return {"norm": self.norm, "cmap": rcParams["image.cmap"]}
        colours = [style["color"] for style in self._named()]
        return {
            "cmap": ListedColormap(colours),
            "vmin": -0.5,
            "vmax": len(colours) - 0.5,
        }

    def _named(self) -> list[Style]:
        return line_styles([{self.y: name} for name in self.names])

    def draw(self, panel: Panel) -> None:
        ax = panel.ax
        ax.patch.set(facecolor=paper(), hatch="////", edgecolor="0.8")
        along_x = panel.x.edges(ax, "x")
        along_y = (panel.y or panel.x).edges(ax, "y")
        table = self.table
        if self.names:
            number = {name: i for i, name in enumerate(self.names)}
            table = table.assign(**{self.y: table[self.y].map(number).astype(float)})
        pixels = {"linewidth": 0.2, "edgecolors": "face", "zorder": 1}
        z = panel.over(table, self.y)
        ax.pcolormesh(along_x, along_y, z, **pixels, **self._shown())
        ax.set_xlim(along_x[0], along_x[-1])
        ax.set_ylim(along_y[0], along_y[-1])

    def finish(self, figure: FigureBase, axes: Axes | Sequence[Axes]) -> None:
        """Draws the colour bar."""
        from matplotlib.cm import ScalarMappable

        if self.names:
            return
        shown = ScalarMappable(self.norm, self._shown()["cmap"])
        named = self.legend or self.y
        figure.colorbar(shown, ax=axes, label=named, fraction=0.05, pad=0.02)

    def entries(self, n_places: int) -> list[Artist]:
        from matplotlib.patches import Patch

        found: list[Artist] = []
        there = {*self.table[self.y]}
        for name, style in zip(self.names, self._named(), strict=True):
            if name in there:
                found.append(Patch(facecolor=style["color"], label=name))
        if self.table[self.y].notna().sum() < n_places:
            hatched = {"facecolor": paper(), "edgecolor": "0.7", "hatch": "////"}
            found.append(Patch(**hatched, linewidth=0, label="not tested"))
        return found


@dataclass(frozen=True)
class Contour(Layer):
    """A layer with the contour along which a column of numbers equals `level`.

    The line is drawn over the two axes of the chart.
    """

    level: float = 0.5

    def draw(self, panel: Panel) -> None:
        z = panel.over(self.table, self.y)
        if min(z.shape) < 2 or not z.min() < self.level < z.max():
            return
        x, across = _finer(panel.x, panel.ax, "x")
        y, up = _finer(panel.y or panel.x, panel.ax, "y")
        known = up @ ~np.ma.getmaskarray(z) @ across.T
        z = np.ma.masked_where(known < 1 - 1e-9, up @ z.filled(0.0) @ across.T)
        usual: Style = {"color": ink(), "linestyle": "-", "width": 1.0}
        style = keywords(usual | self.style)
        panel.ax.contour(
            x,
            y,
            z,
            levels=[self.level],
            zorder=3,
            colors=style["color"],
            linestyles=[style["linestyle"]],
            linewidths=style["linewidth"],
        )


def _finer(axis: Axis, ax: Axes, which: Side) -> tuple[np.ndarray, np.ndarray]:
    """Returns places between those of an axis, and the weights of linear interpolation
    there, one row for each place. Interpolation is linear along the drawn axis.
    """
    transform = axis.scale(ax, which)
    spots = transform.transform(axis.place(axis.values))
    n = len(spots)
    between = np.linspace(0, n - 1, FINER * (n - 1) + 1)
    weights = np.clip(1 - np.abs(between[:, None] - np.arange(n)), 0, 1)
    return transform.inverted().transform(weights @ spots), weights


def entry(named: str, **style: Any) -> Artist:
    """Returns an entry of a legend with this name and style."""
    from matplotlib.lines import Line2D

    shown = keywords({"color": ink()} | style)
    return Line2D([], [], label=named, **shown)


def floats(table: Table) -> np.ndarray:
    """Returns the numbers of a column or of a table, with nan for missing values."""
    return table.to_numpy(float, na_value=np.nan)


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
    ranks = []
    for name in by:
        ranks.append({value: i for i, value in enumerate(ordered(table[name]))})

    def rank(row: tuple[Any, ...]) -> list[float]:
        return [at.get(value, np.inf) for at, value in zip(ranks, row, strict=True)]

    return [dict(zip(by, row, strict=True)) for row in sorted(rows, key=rank)]


def few_seeds(rows: Table) -> np.ndarray:
    """Returns a mask of the rows that average few seeds.

    A row has few seeds if its n_seeds is less than half of the largest n_seeds. If
    there is no column n_seeds, the mask is false for all rows.
    """
    if "n_seeds" not in rows:
        return np.zeros(len(rows), bool)
    return (rows["n_seeds"] < 0.5 * rows["n_seeds"].max()).to_numpy()
