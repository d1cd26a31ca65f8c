"""The grammar of figures: a chart is a stack of layers, each a table whose columns say
where its marks stand.

    layers = [Line(levels, "accuracy"), Points(thresholds, "critical")]
    Chart(layers, x=Axis.make("N", levels), lines=["d"], panels=["L"]).figure()

A `Line` joins means and has a band, `Points` have bars and open marks for censored
cells, `Pixels` are colours over two axes and a `Contour` is a line over these. All
layers of a chart share its x, its lines (one colour and marker each) and its panels. A
layer that lacks a column of the lines or of the panels is in all of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .axis import Axis, Table, log_axis
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

Values = dict[str, Any]
"""Columns and their values, which select rows."""

Style = dict[str, Any]
"""Keywords of matplotlib."""

MAX_PANELS, MAX_NAMED = 12, 14
"""Most panels that are drawn, and most lines that a legend names."""

NARROW, LOW = 1.7, 1.3
"""Inches that a panel needs."""

OPEN = {
    "levels off": ("X", "levels off before"),
    "not reached": ("^", "not reached, crosses above"),
    "above": ("v", "crosses below"),
}
"""What a censored cell comes to: its open mark and its entry in the legend."""

HOLLOW: Style = {"linestyle": "none", "markerfacecolor": "white", "markersize": 4.5}
THEORY: Style = {"linestyle": DASH, "marker": "none", "linewidth": 0.9}


@dataclass(frozen=True)
class Panel:
    """One panel while it is drawn: its Axes, the axes on paper, what selects its rows,
    and its lines.
    """

    ax: Axes
    x: Axis
    y: Axis | None
    values: Values
    groups: list[tuple[Values, Style]]

    def rows(self, table: Table) -> Table:
        """The rows of a table that are in this panel."""
        return where(table, self.values)

    def lines(self, table: Table) -> Iterator[tuple[Table, Style, float]]:
        """The rows of each line from left to right, how it looks, and how far it stands
        aside, in points.
        """
        rows, n = self.rows(table), len(self.groups)
        rows = rows.iloc[np.argsort(self.at(rows), kind="stable")]
        if n > 1 and not {*self.groups[0][0]} & {*table}:
            yield rows, {"color": "black"}, 0.0
            return
        for i, (values, looks) in enumerate(self.groups):
            yield where(rows, values), looks, (i - (n - 1) / 2) * min(2.5, 8 / n)

    def at(self, rows: Table) -> np.ndarray:
        """Where rows stand along x."""
        return self.x.place(rows[self.x.name].tolist())

    def up(self, rows: Table, y: str) -> np.ndarray:
        """Where rows stand along y."""
        values = rows[y].tolist()
        return self.y.place(values) if self.y else np.array(values, dtype=float)

    def over(self, rows: Table, name: str) -> np.ma.MaskedArray:
        """A column of rows over all places of both axes; masked where there is none."""
        x, y = self.x, self.y or self.x
        z = rows.assign(_x=self.at(rows), _y=self.up(rows, y.name)).pivot(
            index="_y", columns="_x", values=name
        )
        return np.ma.masked_invalid(
            z.reindex(index=y.place(y.values), columns=x.place(x.values)).to_numpy(
                float, na_value=np.nan
            )
        )


@dataclass(frozen=True)
class Layer:
    """Marks of one kind: a table, its column `y`, an entry of the legend, and a style
    over that of the lines.
    """

    table: Table
    y: str
    legend: str = ""
    style: Style = field(default_factory=dict)

    def draw(self, panel: Panel) -> None:
        """Draws the marks that are in a panel."""
        raise NotImplementedError

    def finish(self, figure: Figure, axes: Axes | Sequence[Axes]) -> None:
        """Draws what stands beside the panels, such as the scale of the colours."""

    def heights(self) -> np.ndarray:
        """Values that the axis y has to hold."""
        return np.zeros(0)

    def entries(self, chart: Chart) -> list[Artist]:
        """The legend."""
        return (
            [entry(self.legend, **self.style)]
            if self.legend and len(self.table)
            else []
        )


@dataclass(frozen=True)
class Line(Layer):
    """Values joined along x, with a band between the columns `low` and `high`, if the
    table has them.

    Values with few seeds, by the column n_seeds, are hollow and not joined, as a
    threshold search leaves them far from the crossing. `each` names a column that
    breaks a line into several.
    """

    each: str = ""

    def draw(self, panel: Panel) -> None:
        for rows, looks, _ in panel.lines(self.table):
            looks = looks | dict(self.style)
            for _, mine in rows.groupby(self.each) if self.each else [(None, rows)]:
                few = few_seeds(mine)
                joined = mine[~few]
                panel.ax.plot(panel.at(joined), panel.up(joined, self.y), **looks)
                if "low" in mine:
                    ends = joined["low"].astype(float), joined["high"].astype(float)
                    panel.ax.fill_between(
                        panel.at(joined),
                        *ends,
                        color=looks["color"],
                        alpha=0.2,
                        linewidth=0,
                    )
                if few.any():
                    panel.ax.plot(
                        panel.at(mine[few]),
                        panel.up(mine[few], self.y),
                        **looks | HOLLOW,
                    )

    def heights(self) -> np.ndarray:
        """Those that were measured; a prediction may leave the figure."""
        return (
            self.table[self.y].to_numpy(float, na_value=np.nan)
            if "n_seeds" in self.table
            else np.zeros(0)
        )

    def entries(self, chart: Chart) -> list[Artist]:
        few = [entry("few seeds", marker="o", **HOLLOW)]
        return super().entries(chart) + few * bool(few_seeds(self.table).any())


@dataclass(frozen=True)
class Points(Layer):
    """Estimates with bars from `lo` to `hi`, and open marks where a cell is censored.

    A column `state`, if there is one, says which cells have an estimate ("crosses");
    the others stand where they were tried, in the column `tried`. Lines stand side by
    side. `joined` joins the estimates; the bars lie along x where `across`.
    """

    joined: bool = False
    across: bool = False

    def draw(self, panel: Panel) -> None:
        from matplotlib.transforms import ScaledTranslation

        ax = panel.ax
        for rows, looks, aside in panel.lines(self.table):
            known = rows[rows[self.y].notna()] if self.y in rows else rows
            move = ScaledTranslation(
                0 if panel.y or self.across else aside / 72,
                0,
                ax.figure.dpi_scale_trans,
            )
            bars = (
                {"elinewidth": 2.2, "capsize": 0, "zorder": 5}
                if self.across
                else {"elinewidth": 0.8, "capsize": 1.5, "zorder": 3}
            )
            shown = bars | looks | dict(self.style)
            shown |= {
                "linestyle": "-" if self.joined and panel.x.kind != "names" else "none",
                "transform": ax.transData + move,
            }
            at, up = panel.at(known), panel.up(known, self.y)
            ax.errorbar(
                at,
                up,
                **{
                    "xerr" if self.across else "yerr": _bars(
                        at if self.across else up, known
                    )
                },
                **shown,
            )
            for state, (marker, _) in OPEN.items() if "state" in rows else ():
                mine = rows[rows["state"] == state]
                ax.plot(
                    panel.at(mine),
                    mine["tried"],
                    marker=marker,
                    color=looks["color"],
                    transform=ax.transData + move,
                    **HOLLOW,
                )
            tried = (
                rows["tried"].to_numpy(float)
                if "state" in rows
                else np.full(len(rows), np.nan)
            )
            ax.update_datalim(
                [*zip(at, up, strict=True), *zip(panel.at(rows), tried, strict=True)]
            )  # marks aside do not count

    def heights(self) -> np.ndarray:
        names = [name for name in (self.y, "tried") if name in self.table]
        return self.table[names].to_numpy(float, na_value=np.nan).ravel()

    def entries(self, chart: Chart) -> list[Artist]:
        states = {*self.table["state"]} if "state" in self.table else set()
        return super().entries(chart) + [
            entry(name, marker=OPEN[s][0], **HOLLOW)
            for s, (_, name) in OPEN.items()
            if s in states
        ]


def _bars(values: np.ndarray, rows: Table) -> np.ndarray | None:
    """How far the bars of some values reach down and up; an open end leaves the
    figure.
    """
    if not {"lo", "hi"} <= {*rows}:
        return None
    low, high = (rows[end].to_numpy(float, na_value=np.nan) for end in ("lo", "hi"))
    low, high = np.where(low <= 0, values / 1e3, low), np.minimum(high, 1e3 * values)
    return np.nan_to_num(np.stack([values - low, high - values])).clip(0)


@dataclass(frozen=True)
class Pixels(Layer):
    """A coloured pixel for each place over the two axes of the chart; what was not
    tested is hatched.

    The scale of the colours lies between `ends`, those of the values if None.
    """

    ends: tuple[float, float] | None = None

    @cached_property
    def norm(self) -> Normalize:
        from matplotlib.colors import Normalize

        values = self.table[self.y].to_numpy(float, na_value=np.nan)
        known = values[np.isfinite(values)]
        return Normalize(
            *(self.ends or ((known.min(), known.max()) if len(known) else (0.0, 1.0)))
        )

    def draw(self, panel: Panel) -> None:
        ax, rows, x, y = panel.ax, panel.rows(self.table), panel.x, panel.y or panel.x
        ax.patch.set(facecolor="white", hatch="////", edgecolor="0.8")
        edges = x.edges(ax, "x"), y.edges(ax, "y")
        ax.pcolormesh(
            *edges,
            panel.over(rows, self.y),
            norm=self.norm,
            cmap="viridis",
            linewidth=0.2,
            edgecolors="face",
            zorder=1,
        )
        for name, ends in zip("xy", edges, strict=True):
            getattr(ax, f"set_{name}lim")(ends[0], ends[-1])

    def finish(self, figure: Figure, axes: Axes | Sequence[Axes]) -> None:
        """The scale of the colours."""
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

        y = chart.y or chart.x
        n_places = (
            len(chart.x.values)
            * len(y.values)
            * len(values_of(self.table, chart.panels))
        )
        hatched = Patch(
            facecolor="white",
            edgecolor="0.7",
            hatch="////",
            linewidth=0,
            label="not tested",
        )
        return [hatched] if self.table[self.y].notna().sum() < n_places else []


@dataclass(frozen=True)
class Contour(Layer):
    """A line over the two axes of the chart where a column of numbers crosses a
    level.
    """

    level: float = 0.5

    def draw(self, panel: Panel) -> None:
        rows, x, y = panel.rows(self.table), panel.x, panel.y or panel.x
        z, style = (
            panel.over(rows, self.y),
            {"color": "black", "linestyle": "-", "linewidth": 1.2} | self.style,
        )
        if min(z.shape) > 1 and z.min() < self.level < z.max():
            lines: Style = {
                "colors": style["color"],
                "linestyles": [style["linestyle"]],
                "linewidths": style["linewidth"],
            }
            panel.ax.contour(
                x.place(x.values),
                y.place(y.values),
                z,
                levels=[self.level],
                zorder=3,
                **lines,
            )


@dataclass(frozen=True)
class Chart:
    """Layers over one x. The first layer says which lines and panels there are.

    `y` is an Axis (a map), or None: then `scale` is "fraction", "log" or "linear".
    `size` is that of the figure; what suits the panels if None.
    """

    layers: Sequence[Layer]
    x: Axis
    label: str = ""
    y: Axis | None = None
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    scale: str = "fraction"
    size: Size | None = None

    @property
    def table(self) -> Table:
        """The table that says which lines and panels there are."""
        return self.layers[0].table

    @cached_property
    def groups(self) -> list[tuple[Values, Style]]:
        """The lines: the values of each, and its colour and marker."""
        groups = values_of(self.table, self.lines)
        colours = ["black"] if self.y else shades(len(groups))
        return [
            (values, {"color": colours[i], "marker": MARKERS[i % len(MARKERS)]})
            for i, values in enumerate(groups)
        ]

    @cached_property
    def parts(self) -> list[Values]:
        """The values that select each panel that is drawn, as many as have room, evenly
        from the first to the last.
        """
        width, height = self.size or (PAGE, None)
        room = _across(width) * max(1, int((height or HIGHEST) / LOW))
        return spread(values_of(self.table, self.panels), min(MAX_PANELS, room))

    @property
    def remark(self) -> str:
        """How many panels are drawn, if not all."""
        n = len(values_of(self.table, self.panels))
        return (
            f"{len(self.parts)} of {n} panels are drawn" if len(self.parts) < n else ""
        )

    def figure(
        self, title: str = "", make: Callable[..., Figure] | None = None
    ) -> Figure:
        """A figure of its own, by `make` if not matplotlib's Figure, with all panels
        under the legend.
        """
        from matplotlib.figure import Figure

        n = len(self.parts)
        width, height = self.size or (COLUMN if n == 1 else PAGE, None)
        columns = 2 if n in (2, 4) and _across(width) > 1 else min(n, _across(width))
        rows = -(-n // columns)
        handles, heading = (
            self.entries(named=True),
            "\n".join(
                textwrap.fill(line, int(width / LETTER)) for line in title.split("\n")
            ),
        )
        ncols = max(
            1,
            int(
                width
                / (
                    LETTER
                    * (
                        6
                        + max(
                            (len(str(handle.get_label())) for handle in handles),
                            default=0,
                        )
                    )
                )
            ),
        )
        above = -(-len(handles) // ncols) + heading.count("\n") + bool(heading)
        height = height or min(
            HIGHEST,
            (
                0.7 * width
                if n == 1
                else rows * max(2.0 if rows == 1 else 1.6, 0.8 * width / columns)
            )
            + 0.16 * above
            + 0.3,
        )
        figure = (make or Figure)(
            figsize=(width, height), dpi=200, layout="constrained"
        )
        panels = [
            *figure.subplots(
                rows, columns, squeeze=False, sharex=True, sharey=True
            ).flat
        ]
        names = [
            name
            for name in self.panels
            if len({str(values[name]) for values in self.parts}) > 1
        ] or self.panels
        for ax, values in zip(panels, self.parts, strict=False):
            joined = settings(values, names).replace(
                " = ", "\xa0=\xa0"
            )  # lines break between settings
            ax.set_title(
                (
                    textwrap.fill(joined, int(0.8 * width / columns / LETTER)).replace(
                        "\xa0", " "
                    )
                    if values
                    else ""
                ),
                pad=3,
            )
            self.draw(ax, values)
        for ax in panels[n:]:
            ax.set_visible(False)
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
            panels[0].set(
                xlabel=self.x.label, ylabel=self.y.label if self.y else self.label
            )
        else:
            figure.supxlabel(self.x.label, fontsize="medium")
            figure.supylabel(self.y.label if self.y else self.label, fontsize="medium")
        return figure

    def on(self, ax: Axes) -> Axes:
        """The only panel on a user's Axes, with its legend beside it, or above a map;
        returns the Axes.

        A figure that matplotlib does not lay out gets its constrained layout, so that
        the legend has room.
        """
        figure: Any = ax.figure.figure  # the whole one, where the panel is in a part
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        self.draw(ax, {})
        ax.set(xlabel=self.x.label, ylabel=self.y.label if self.y else self.label)
        for layer in self.layers:
            layer.finish(figure, ax)
        place: Any = ("lower left", (0, 1.01)) if self.y else ("upper left", (1.01, 1))
        if handles := self.entries():
            title = symbol(self.lines[0]) if len(self.lines) == 1 else None
            ax.legend(
                handles=handles,
                title=title,
                loc=place[0],
                bbox_to_anchor=place[1],
                frameon=False,
                borderaxespad=0,
            )
        return ax

    def draw(self, ax: Axes, values: Values) -> None:
        """The panel of these values."""
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
            if len(ends := self._ends()):
                ax.set_ylim(*ends)  # first: no limits suit equal values by themselves
            ax.set_yscale("log")
            log_axis(ax.yaxis)
        ax.grid(not self.y)
        self.x.mark(ax, "x")

    def _ends(self) -> tuple[float, ...]:
        """What holds every mark on a log axis."""
        heights = np.concatenate([layer.heights() for layer in self.layers])
        heights = heights[np.isfinite(heights) & (heights > 0)]
        return (
            (float(heights.min() / 2), float(heights.max() * 2)) if len(heights) else ()
        )

    def entries(self, named: bool = False) -> list[Artist]:
        """The legend; with `named` each line says what its value is of."""
        found = {
            entry.get_label(): entry
            for layer in self.layers
            for entry in layer.entries(self)
        }
        if not self.lines:
            return [*found.values()]
        short = len(self.lines) == 1 and not named
        bare = {"linestyle": "none"} if isinstance(self.layers[0], Points) else {}
        each = [
            (text(*values.values()) if short else settings(values), looks)
            for values, looks in self.groups
        ]
        return [
            entry(name, **bare | looks) for name, looks in spread(each, MAX_NAMED)
        ] + [*found.values()]


def entry(named: str, **style: Any) -> Artist:
    """An entry of a legend."""
    from matplotlib.lines import Line2D

    shown: Style = {"color": GREY} | style
    return Line2D([], [], label=named, **shown)


def _across(width: float) -> int:
    """How many panels stand side by side."""
    return max(1, int((width + 0.3) / NARROW))


def where(table: Table, values: Values) -> Table:
    """The rows that have these values, in columns that the table has."""
    for name, value in values.items():
        if name in table:
            table = table[
                (
                    table[name].isna()
                    if value != value or value is None
                    else table[name] == value
                )
            ]
    return table


def values_of(table: Table, by: Sequence[str]) -> list[Values]:
    """The combinations of values of some columns, sorted: numbers first, missing values
    last; {} of no columns.
    """
    if not by:
        return [{}]
    rows = table[list(by)].drop_duplicates().itertuples(index=False, name=None)
    order = sorted(
        rows,
        key=lambda row: [
            (v != v or v is None, isinstance(v, str), 0 if v != v or v is None else v)
            for v in row
        ],
    )
    return [dict(zip(by, row, strict=True)) for row in order]


def few_seeds(rows: Table) -> np.ndarray:
    """Which rows have under half as many seeds as the best of these rows; none without
    the column n_seeds.
    """
    if "n_seeds" not in rows:
        return np.zeros(len(rows), bool)
    return (rows["n_seeds"] < 0.5 * rows["n_seeds"].max()).to_numpy()
