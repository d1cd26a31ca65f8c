"""The grammar of figures: a chart is a stack of layers, each a table whose columns say where its marks stand.

    layers = [Line(levels), Points(thresholds)]
    Chart(layers, x=Axis.make("N", levels), lines=["d"], panels=["L"]).figure()

A `Line` joins means and has a band, `Points` have bars and open marks for censored
cells, a `Rule` lies across a panel; a layer of one's own is a class with `draw`. All
layers of a chart share its x, its lines (one colour and marker each) and its panels. A
layer that lacks a column of the lines or of the panels is in all of them; one without
any column of the lines is drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from . import paper
from .axis import Axis, column, columns_in, log_axis
from .paper import line
from .style import DASH, MARKERS, Picture, distinguishing, outline, settings, shades, spread, symbol, text

Table = Any  # pandas.DataFrame, whose own types say less than Any
ASIDE = 0.1
"""Marks of the outermost lines stand this far from their place, in steps of the axis."""

MAX_PANELS = 12
MAX_LINES = 14
"""Most lines of one panel that more than one axis makes."""

OPEN = {
    "plateau": ("X", "levels off before"),
    "not reached": ("^", "not reached, crosses above"),
    "above": ("v", "crosses below"),
}
"""What a censored cell comes to: its open mark and its entry in the legend."""

OPEN_MARK: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white", "markersize": 5}
HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white"}
FAINT: dict[str, Any] = {"marker": "none", "linewidth": 0.6, "alpha": 0.4}
"""How a line looks past values with few seeds."""

NO_MLP = {"linestyle": "-.", "marker": "none", "linewidth": 0.9}
"""How m = 0 looks beside an MLP."""

Group = tuple[dict[str, Any], dict[str, Any]]
"""The values that select one line, and how it looks."""


@dataclass(frozen=True)
class Panel:
    """One panel while it is drawn: its Axes, the axes on paper, what selects its rows, and its lines."""

    ax: Any
    x: Axis
    y: Axis | None
    values: dict[str, Any]
    groups: list[Group]

    def rows(self, table: Table) -> Table:
        """The rows of a table that are in this panel."""
        return where(table, self.values)

    def lines(self, table: Table) -> Iterator[tuple[Table, dict[str, Any], float]]:
        """The rows of each line, how it looks, and how far it moves aside, -1/2 to 1/2."""
        rows, n = self.rows(table), len(self.groups)
        if n > 1 and not {*self.groups[0][0]} & {*table}:
            yield rows, {"color": "black"}, 0.0
            return
        for i, (values, looks) in enumerate(self.groups):
            yield where(rows, values), dict(looks), (i - (n - 1) / 2) / n

    def places(self, rows: Table, aside: float = 0.0) -> np.ndarray:
        """Where rows stand along x, or so far aside on paper."""
        values = column(self.x.name, rows)
        return self.x.data(self.x.spots(values) + aside) if aside else self.x.place(values)

    def zero(self, rows: Table) -> np.ndarray:
        """Which rows are at 0 of a log axis, and so apart from all others."""
        return (self.places(rows) == 0) & self.x.broken


@dataclass(frozen=True)
class Layer:
    """Marks of one kind: a table, its column `y`, an entry of
    the legend, and a style that goes over that of the lines.
    """

    table: Table
    y: str = "accuracy"
    legend: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)
    limits: bool = True
    """Whether the axis y has to hold these marks."""

    def draw(self, panel: Panel) -> None:
        """Draws the marks that are in a panel."""
        raise NotImplementedError

    def finish(self, figure: Any, axes: Any) -> None:
        """Draws what stands beside the panels, such as the scale of the colours."""

    def heights(self) -> np.ndarray:
        """Where the marks stand along y."""
        return self.table[self.y].to_numpy(float, na_value=np.nan) if len(self.table) else np.zeros(0)

    def entries(self, chart: Chart) -> list[Any]:
        """The legend."""
        return [line(self.legend, **self.style)] if self.legend and np.isfinite(self.heights()).any() else []


@dataclass(frozen=True)
class Line(Layer):
    """Values joined along x, with a band between the columns `low` and `high`.

    Values with few seeds, by the column n_seeds, are hollow and not joined, as a
    threshold search leaves them far from the crossing; past them the line is faint. Nor
    is 0 on a log axis joined. `each` names a column that breaks a line into several.
    """

    low: str = ""
    high: str = ""
    each: str = ""

    def draw(self, panel: Panel) -> None:
        for rows, looks, _ in panel.lines(self.table):
            for _, mine in rows.groupby(self.each) if self.each else [(None, rows)]:
                self._line(panel, mine, looks | dict(self.style))

    def _line(self, panel: Panel, rows: Table, looks: dict[str, Any]) -> None:
        rows = rows.iloc[np.argsort(panel.places(rows), kind="stable")]
        few, zero = few_seeds(rows), panel.zero(rows)
        joined, pieces = ~few & ~zero, np.cumsum(few)  # a value with few seeds ends a piece
        if len({*pieces[joined]}) > 1:
            panel.ax.plot(panel.places(rows[joined]), rows[self.y][joined], **looks | FAINT)
        parts = [~few & zero, *(joined & (pieces == piece) for piece in np.unique(pieces[joined]))]
        for mine in (rows[part] for part in parts if part.any()):
            at = panel.places(mine)
            panel.ax.plot(at, mine[self.y], **looks)
            if self.low:
                panel.ax.fill_between(at, mine[self.low], mine[self.high], color=looks["color"], alpha=0.2, linewidth=0)
        if few.any():
            panel.ax.plot(panel.places(rows[few]), rows[self.y][few], **looks | HOLLOW)

    def entries(self, chart: Chart) -> list[Any]:
        few = [line("few seeds", marker="o", linestyle="none", markerfacecolor="white")]
        return super().entries(chart) + few * bool(few_seeds(self.table).any())


@dataclass(frozen=True)
class Points(Layer):
    """Estimates with bars between the columns `low` and `high`, and open marks where a cell is censored.

    A column `state`, if there is one, says which cells have an estimate ("crosses");
    the others stand where they were tried, in the column `tried`. Lines stand side by
    side where `aside`. `joined` joins the estimates.
    """

    low: str = "lo"
    high: str = "hi"
    aside: bool = True
    joined: bool = False

    def draw(self, panel: Panel) -> None:
        for rows, looks, side in panel.lines(self.table):
            looks |= dict(self.style)
            step = panel.x.step * self.aside
            at = panel.places(rows, side * 2 * ASIDE * min(1.0, step))
            self._bars(panel.ax, at, rows, looks)
            if self.joined and panel.x.numeric:
                self._join(panel, rows.iloc[np.argsort(panel.places(rows), kind="stable")], looks)
            for state, (marker, _) in OPEN.items() if "state" in rows else ():
                mine = (rows["state"] == state).to_numpy()
                panel.ax.plot(at[mine], rows["tried"][mine], marker=marker, color=looks["color"], zorder=3, **OPEN_MARK)

    def _bars(self, ax: Any, at: np.ndarray, rows: Table, looks: dict[str, Any]) -> None:
        known = rows[self.y].notna().to_numpy()
        rows, y = rows[known], rows[self.y][known].to_numpy(float)
        low, high = (rows[end].fillna(rows[self.y]).to_numpy(float) for end in (self.low, self.high))
        top = 1e3 * np.nanmax(y, initial=0)  # an open end leaves the figure
        bars = np.stack([y - low, np.minimum(high, top) - y]).clip(0)
        bars[0] = np.where(y > 0, np.minimum(bars[0], 0.999 * y), bars[0])  # nor does a log axis hold 0
        ax.errorbar(at[known], y, bars, **{"linestyle": "none", "elinewidth": 0.8, "capsize": 1.5, "zorder": 3} | looks)

    def _join(self, panel: Panel, rows: Table, looks: dict[str, Any]) -> None:
        """A line through the estimates, which none, or a 0 on a log axis, breaks."""
        at = panel.places(rows)
        if len(set(at)) == len(at):
            shown = {name: looks[name] for name in ("color", "path_effects") if name in looks}
            panel.ax.plot(at, rows[self.y].mask(panel.zero(rows)), **shown)

    def heights(self) -> np.ndarray:
        tried = self.table["tried"].to_numpy(float, na_value=np.nan) if "tried" in self.table else []
        return np.concatenate([super().heights(), tried])

    def entries(self, chart: Chart) -> list[Any]:
        states = {*self.table["state"]} if "state" in self.table else set()
        marks = [OPEN[state] for state in OPEN if state in states]
        return super().entries(chart) + [line(name, marker=marker, **OPEN_MARK) for marker, name in marks]


@dataclass(frozen=True)
class Rule(Layer):
    """Dashed lines across a panel, or down it, each once:
    black if there is one, else in the colour of its line.
    """

    style: Mapping[str, Any] = field(default_factory=lambda: {"linestyle": DASH})
    vertical: bool = False

    def draw(self, panel: Panel) -> None:
        colours: dict[float, Any] = {}
        for rows, looks, _ in panel.lines(self.table):
            for height in rows[self.y].dropna().unique():
                colours.setdefault(float(height), looks["color"])
        draw = panel.ax.axvline if self.vertical else panel.ax.axhline
        for height, colour in colours.items():
            draw(height, **{"linewidth": 0.9, "color": "black" if len(colours) == 1 else colour} | dict(self.style))


@dataclass(frozen=True)
class Chart:
    """Layers over one x. The first layer says which lines and panels there are.

    `y` is an Axis (a map), or None: then `scale` is "fraction", "log" or "linear".
    `looks` gives values of a single column of lines a style of their own; otherwise
    colours go from dark to light. `most` panels are drawn, evenly from the first to the
    last.
    """

    layers: Sequence[Layer]
    x: Axis
    label: str = ""
    y: Axis | None = None
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    scale: str = "fraction"
    looks: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)
    most: int = MAX_PANELS

    @property
    def table(self) -> Table:
        """The table that says which lines and panels there are."""
        return self.layers[0].table

    @cached_property
    def groups(self) -> list[Group]:
        """The lines: the values of each, and its colour and marker."""
        if not self.lines:
            looks = {"color": "black", "path_effects": outline()} if self.y else {"color": shades(1)[0]}
            return [({}, {"marker": MARKERS[0]} | looks)]
        if self.looks:
            name = self.lines[0]
            there = {value for layer in self.layers if name in layer.table for value in layer.table[name]}
            return [({name: value}, dict(looks)) for value, looks in self.looks.items() if value in there]
        groups = values_of(self.table, self.lines)
        colours = shades(len(groups))
        return [(values, {"color": colours[i], "marker": MARKERS[i % len(MARKERS)]}) for i, values in enumerate(groups)]

    @cached_property
    def parts(self) -> list[dict[str, Any]]:
        """The values that select each panel that is drawn."""
        return fewer(values_of(self.table, self.panels), min(self.most, paper.room()))

    @property
    def remark(self) -> str:
        """How many panels are drawn, if not all."""
        n = len(values_of(self.table, self.panels))
        return f"{len(self.parts)} of {n} panels are drawn" if len(self.parts) < n else ""

    def picture(self, name: str, title: str, caption: str) -> Picture:
        """The figure with its file name, its heading, and its
        caption, which says how many panels are drawn, if not all.
        """
        remark = f" {title}: {self.remark}." if self.remark else ""
        return Picture(name, title, f"{caption}{remark}".strip(), self.figure())

    def figure(self, title: str = "", make: Callable[..., Any] | None = None) -> Any:
        """A figure of its own, by `make` if not matplotlib's
        Figure, with all panels and legends outside of them.
        """
        figure, axes = paper.canvas(len(self.parts), make)
        names = distinguishing(values_of(self.table, self.panels), self.panels)
        paper.headings(figure, axes, [settings(values, names) for values in self.parts])
        for ax, values in zip(axes, self.parts, strict=True):
            self.draw(ax, values)
        paper.grow(figure, max(map(paper.inches, self.x.upright), default=0.0))
        self._legends(figure, title)
        for layer in self.layers:
            layer.finish(figure, axes)
        paper.name_axes(figure, axes, self.x.label, self.y.label if self.y else self.label)
        return figure

    def _legends(self, figure: Any, title: str) -> None:
        """The lines beside the panels, or above them where their names are long; all else above."""
        beside = [] if self.looks else self.entries()
        over = (self.entries() if self.looks else []) + self.signs()
        if beside and paper.entry_width(beside) > paper.BESIDE * figure.get_figwidth():
            over = self._all_above(figure, over)
        else:
            paper.key(figure, beside, self._title)
        title = paper.titled(figure, title, "legend.title_fontsize" if over else "axes.titlesize")
        if over:
            paper.above(figure, over, title or None)
        elif title:
            figure.suptitle(title, fontsize=paper.points("axes.titlesize"))

    def _all_above(self, figure: Any, signs: list[Any]) -> list[Any]:
        """Entries of the lines, of which some are left out where
        there are many, before the others; the figure grows with them.
        """
        named, height = self.entries(named=True), paper.entry_height()
        across = max(1, int(figure.get_figwidth() / paper.entry_width(named)))
        paper.grow(figure, -(-min(len(named), MAX_LINES) // across) * height)
        rows = max(2, int(0.4 * figure.get_figheight() / height) - len(signs))
        return spread(named, across * rows) + signs

    @property
    def _title(self) -> str | None:
        """What the values in the legend are of."""
        return symbol(self.lines[0]) if len(self.lines) == 1 else None

    def on(self, ax: Any) -> Any:
        """The only panel on a user's Axes, with its legend; returns the Axes."""
        self.draw(ax, {})
        ax.set(xlabel=self.x.label, ylabel=self.y.label if self.y else self.label)
        for layer in self.layers:
            layer.finish(ax.figure, ax)
        if handles := self.entries() + self.signs():
            paper.outside(ax, handles, self._title, above=bool(self.y))
        return ax

    def draw(self, ax: Any, values: dict[str, Any]) -> None:
        """The panel of these values."""
        panel = Panel(ax, self.x, self.y, values, self.groups)
        for layer in self.layers:
            layer.draw(panel)
        self.x.scale(ax, "x", fill=bool(self.y))
        if self.y:
            self.y.scale(ax, "y", fill=True)
            return
        if self.scale == "fraction":
            ax.set_ylim(-0.02, 1.02)
        elif self.scale == "log":
            ax.set_ylim(self.ends())  # first: no limits suit equal values by themselves
            ax.set_yscale("log")
            log_axis(ax.yaxis)
        ax.grid(True)

    def ends(self) -> tuple[float, float]:
        """What holds every mark on a log axis."""
        heights = np.concatenate([layer.heights() for layer in self.layers if layer.limits] or [np.zeros(0)])
        heights = heights[np.isfinite(heights) & (heights > 0)]
        return (float(heights.min() / 2), float(heights.max() * 2)) if len(heights) else (0.5, 2.0)

    def entries(self, named: bool = False) -> list[Any]:
        """The legend of the lines; with `named` each says what its value is of."""
        if not self.lines:
            return []
        groups = [values for values, _ in self.groups]
        names, first = distinguishing(groups, self.lines), self.layers[0]
        short = len(self.lines) == 1 and not named
        shown = [text(*values.values()) if short else settings(values, names) for values in groups]
        bare = {"linestyle": "none"} if isinstance(first, Points) and not first.joined else {}
        return [line(name, **bare | looks) for name, (_, looks) in zip(shown, self.groups, strict=True)]

    def signs(self) -> list[Any]:
        """The legend of what is not a line."""
        found = {entry.get_label(): entry for layer in self.layers for entry in layer.entries(self)}
        return list(found.values())


def with_reference(layer: Layer, x: str, lines: Sequence[str], panels: Sequence[str], without: Any = None) -> list[Layer]:
    """The layer, and what there is without an MLP, m = 0,
    as a reference in the panels of those that have one.

    It is a level where x is made of m, else a line along x. There is none where m = 0
    has a place of its own, along x or as a line; `without` has the rows of m = 0 if the
    layer lacks them.
    """
    table = layer.table
    none = table["m"] == 0 if "m" in table else None
    if none is not None and none.any() and not none.all():
        by = [name for name in (*lines, *panels) if name in table]
        foreign = [name for name in by if name != "m" and not {*table[name][none]} & {*table[name][~none]}]
        if foreign or "m" in panels or (x != "m" and "m" in columns_in(x)):
            apart = table[none].drop(columns=foreign + ["m"] * ("m" in by))
            layer, without = replace(layer, table=table[~none]), apart if without is None else without
    if without is None:
        return [layer]
    style: dict[str, Any] = NO_MLP if {*lines} & {*without} else NO_MLP | {"color": "black"}
    kind = Rule if "m" in columns_in(x) else Line
    return [layer, kind(without, layer.y, "m = 0", style)]


def where(table: Table, values: Mapping[str, Any]) -> Table:
    """The rows that have these values, in columns that the table has."""
    for name, value in values.items():
        if name in table:
            table = table[table[name].isna() if value != value or value is None else table[name] == value]
    return table


def values_of(table: Table, by: Sequence[str]) -> list[dict[str, Any]]:
    """The combinations of values of some columns, sorted:
    numbers first, missing values last; {} of no columns.
    """
    if not by:
        return [{}]
    rows = table[list(by)].drop_duplicates().itertuples(index=False, name=None)
    order = sorted(rows, key=lambda row: [(v != v or v is None, isinstance(v, str), 0 if v != v or v is None else v) for v in row])
    return [dict(zip(by, row, strict=True)) for row in order]


def fewer(groups: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most `most` panels, evenly from the first to the last; of
    a last column of numbers each other setting has equally many.
    """
    others: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for values in groups:
        others.setdefault(tuple(map(str, values.values()))[:-1], []).append(values)
    each = most // len(others)
    if len(groups) <= most or each < 1 or isinstance([*groups[-1].values()][-1], str):
        return spread(groups, most)
    return [values for mine in others.values() for values in spread(mine, each)]


def few_seeds(rows: Table) -> Any:
    """Which rows have under half as many seeds as the best of these rows; none without the column n_seeds."""
    if "n_seeds" not in rows:
        return np.zeros(len(rows), bool)
    return (rows["n_seeds"] < 0.5 * rows["n_seeds"].max()).to_numpy()


def averaged(frame: Table, by: Sequence[str], y: str) -> Table:
    """Means of the column `y` over rows alike in `by`, with n_seeds,
    and the columns low and high, one standard deviation off.
    """
    seeds = frame.groupby(list(dict.fromkeys(by)), dropna=False, observed=True)[y]
    within = (0.0, 1.0) if scale_of(frame[y].to_numpy(float, na_value=np.nan)) == "fraction" else (-np.inf, np.inf)
    return banded(seeds.agg(**{y: "mean", "n_seeds": "count", "sd": lambda p: p.std(ddof=0)}).reset_index(), y, within)


def banded(means: Table, y: str, within: tuple[float, float] = (0.0, 1.0)) -> Table:
    """The table with the columns low and high: `y` less
    and more its standard deviation `sd`, within some ends.
    """
    low, high = ((means[y] + sign * means["sd"]).clip(*within) for sign in (-1, 1))
    return means.assign(low=low, high=high)


def scale_of(values: np.ndarray) -> str:
    """The scale that suits some values: "fraction" within 0 and
    1, "log" for positive ones over a factor of 20, else "linear".
    """
    known = values[np.isfinite(values)]
    if not len(known) or (known.min() >= 0 and known.max() <= 1):
        return "fraction"
    return "log" if known.min() > 0 and known.max() > 20 * known.min() else "linear"


def arranged(levels: Table, lines: str | None, panels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which axes make the lines and which the panels: where most
    panels would hold a single line, all make lines, in one panel.
    """
    if not lines or not panels:
        return [lines] if lines else [], list(panels)
    n_lines, n_panels = len(values_of(levels, [lines, *panels])), len(values_of(levels, panels))
    if n_panels > 2 and n_lines < 1.5 * n_panels and n_lines <= MAX_LINES:
        return [lines, *(axis for axis in panels if levels[axis].nunique(dropna=False) > 1)], []
    return [lines], list(panels)
