"""One axis of a figure: the values that were tested, where they stand on paper, and its ticks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...sweep.grid.expr import Expression, parse
from .paper import drawable, inches
from .style import has_letters, label, text

Table = Any  # pandas.DataFrame, whose own types say less than Any
Array = np.ndarray
APART = 1.75
"""How many steps 0 stands below the least positive value of a log axis."""

MOST_TICKS = 9
"""With more values than this an axis has round numbers as ticks, not its values."""

UPRIGHT = 24
"""Names have room along x, upright, up to this many letters."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A column, or arithmetic on columns such as m * d. Numbers stand on a log axis, the rest evenly.

    0 stands apart, below a break of the log axis. `values` are those tested, sorted;
    `used` the columns it is made of. `ticks` says whether the values are ticks; round
    numbers are where they are many or were measured, not chosen.
    """

    name: str
    values: tuple[Any, ...]
    used: frozenset[str]
    label: str = ""
    ticks: bool = True

    @classmethod
    def make(cls, name: str, table: Table, named: str = "", ticks: bool = True) -> Axis:
        """The axis of a column of the table, or of an expression over its columns."""
        found = {value for value in column(name, table) if value == value}
        used = frozenset([name]) if name in table else expression(name).names
        values = sorted(found, key=lambda v: (isinstance(v, str), v))
        return cls(name, tuple(values), used, named or label(name), ticks and name != "N" and columns_in(name) == {name})

    @cached_property
    def numeric(self) -> bool:
        numbers = all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in self.values)
        return numbers and any(self.values) and min(self.values) >= 0

    @property
    def broken(self) -> bool:
        """Whether 0 is on an axis that is logarithmic."""
        return self.numeric and 0 in self.values

    @cached_property
    def _zero(self) -> tuple[float, float]:
        """Of a broken axis: the octave of the least positive value, and how far 0 is below it."""
        least, *more = np.log2([float(v) for v in self.values if v > 0])
        return float(least), float(APART * (more[0] - least if more else 1.0))

    def spots(self, values: Any) -> Array:
        """Where values stand on paper: in octaves, or their ranks if they are no numbers."""
        if not self.numeric:
            rank = {value: float(i) for i, value in enumerate(self.values)}
            return np.array([rank.get(value, np.nan) for value in values])
        values = np.asarray(values, dtype=float)
        if not self.broken:
            return np.log2(values)
        least, below = self._zero
        return np.log2(np.maximum(values, 2**least)) + below * np.minimum(values / 2**least - 1, 0)

    def place(self, values: Any) -> Array:
        """Where values stand for matplotlib: themselves, or their ranks."""
        return np.array(values, dtype=float) if self.numeric else self.spots(values)

    def data(self, spots: Any) -> Array:
        """What matplotlib has at these spots: values, or ranks."""
        if not self.broken:
            return 2**spots if self.numeric else spots
        least, below = self._zero
        return 2 ** np.maximum(spots, least) * (1 + np.minimum(spots - least, 0) / below)

    def ends(self) -> tuple[float, float]:
        """The spots where the axis ends if values have room on all sides."""
        edges = borders(self.spots(self.values))
        return float(edges[0]), float(edges[-1])

    @property
    def step(self) -> float:
        """The least distance of two neighbours on paper."""
        return float(np.diff(self.spots(self.values)).min()) if len(self.values) > 1 else 1.0

    @cached_property
    def upright(self) -> list[str]:
        """The names along x, if they have room only upright; else none."""
        names = [text(value) for value in self.values]
        longest = max(map(len, names), default=0)
        return names if not self.numeric and len(names) * longest > UPRIGHT >= longest else []

    def scale(self, ax: Any, which: str, fill: bool = False) -> None:
        """Scale, limits and ticks of `ax` along "x" or "y";
        `fill` ends the axis where the last values end.
        """
        from matplotlib.ticker import FuncFormatter, NullLocator

        axis = ax.xaxis if which == "x" else ax.yaxis
        if self.broken:
            getattr(ax, f"set_{which}scale")("function", functions=(self.spots, self.data))
        elif self.numeric:
            getattr(ax, f"set_{which}scale")("log")
        if fill or self.name == "N":
            getattr(ax, f"set_{which}lim")(*self.data(np.array(self.ends())))
        else:
            ax.margins(**{which: 0.06})
        if self.broken:
            self._break(ax, which)
        elif self.numeric and (len(self.values) > MOST_TICKS or not self.ticks):
            log_axis(axis)
            return
        places, names = self.place(self.values), [drawable(text(v)) for v in self.values]
        axis.set_tick_params(rotation=90 if which == "x" and self.upright else 0)
        axis.set_major_locator(_where_there_is_room(places, names, which == "y" or bool(self.upright)))
        axis.set_major_formatter(FuncFormatter(lambda at, _: names[int(np.abs(places - at).argmin())]))
        axis.set_minor_locator(NullLocator())

    def _break(self, ax: Any, which: str) -> None:
        """Two strokes across the axis between 0 and the least positive value."""
        least, below = self._zero
        places = [self.data(least - below * np.array([0.58, 0.42])), [0, 0]]
        stroke = {"marker": [(-0.5, -1), (0.5, 1)], "markersize": 7, "markeredgewidth": 0.8}
        blend = ax.get_xaxis_transform() if which == "x" else ax.get_yaxis_transform()
        ax.plot(*places[:: 1 if which == "x" else -1], transform=blend, clip_on=False, zorder=5, linestyle="none", color="black", **stroke)


def expression(axis: str) -> Expression:
    """An axis that is arithmetic on others; raises ValueError."""
    return parse(axis, calls=False)


def columns_in(name: str) -> frozenset[str]:
    """The columns that an axis is made of: itself, or those that it is arithmetic on."""
    try:
        return expression(name).names
    except ValueError:
        return frozenset([name])


def column(name: str, table: Table) -> list[Any]:
    """The values of an axis, row by row, as plain Python."""
    if name in table:
        return table[name].tolist()
    found = expression(name)
    return [found.evaluate(row) for row in table[sorted(found.names)].to_dict("records")]


def borders(spots: Array, alone: float = 1.0) -> Array:
    """Middles between neighbouring spots and the same step
    beyond the ends; `alone` is the step of a single one.
    """
    step = np.diff(spots) if len(spots) > 1 else np.array([alone])
    return np.concatenate([spots[:1] - step[0] / 2, (spots[:-1] + spots[1:]) / 2, spots[-1:] + step[-1] / 2])


def _where_there_is_room(places: Array, names: list[str], upright: bool) -> Any:
    """A locator of matplotlib: the last place, and all others
    whose names do not touch in the present size of the figure.
    """
    from matplotlib.ticker import FixedLocator

    widths = [inches(name, "xtick.labelsize") for name in names]

    class Locator(FixedLocator):
        def __call__(self) -> Array:
            axis: Any = self.axis
            ax, dpi = axis.axes, axis.figure.dpi
            along = 0 if axis is ax.xaxis else 1
            at = ax.transData.transform(np.stack([places] * 2, axis=1))[:, along]
            size = axis.get_major_ticks(1)[0].label1.get_fontsize() / 72 * dpi
            sizes = [1.3 * size if upright else width * dpi + 0.6 * size for width in widths]
            shown: list[int] = []
            for i in reversed(range(len(at))):
                if not shown or at[shown[-1]] - at[i] > (sizes[i] + sizes[shown[-1]]) / 2:
                    shown.append(i)
            return places[shown[::-1]]

    return Locator(places.tolist())


def log_axis(axis: Any) -> None:
    """Log scale with numbered ticks: powers of ten, and numbers
    between them where there are few. After the limits are set.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    few = decades < 1.7
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if decades < 0.9 else (1, 3) if few else (1,)))
    axis.set_minor_locator(LogLocator(10, subs=range(2, 10), numticks=99) if few else NullLocator())
    axis.set_major_formatter((lambda value, _: _number(value)) if few else _power_of_ten)
    axis.set_minor_formatter(NullFormatter())


def _number(value: float) -> str:
    return drawable(text(value)) if 1e-4 < value < 1e6 else f"{value:.0e}"


def _power_of_ten(value: float, _: object) -> str:
    power = str(round(np.log10(value)))
    return f"10{power.translate(SUPERSCRIPTS)}" if has_letters(SUPERSCRIPTS.values()) else f"1e{power}"
