"""The axes of figures: the tested values, their places, and the ticks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...sweep.grid.expr import parse
from ..fit.columns import Table
from ..fit.roles import Roles
from .style import LETTER, LINE, label, points, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Ruler
    from matplotlib.transforms import Transform

Side = Literal["x", "y"]
MOST_TICKS = 9
"""The largest number of values for which the ticks of an axis are at the values.

If an axis has more values, its ticks are at round numbers.
"""

MAX_NAME = 24
"""The largest number of characters in the name of a tick."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A column, or arithmetic on columns such as m * d, with its sorted values.

    If no value is negative, the axis is logarithmic, and linear near 0 if 0 is a value.
    If a value is negative, the axis is linear. Names are spaced evenly. If `ticks` is
    true, the ticks are at the values. Otherwise the ticks are at round numbers, which
    suits measured values.
    """

    name: str
    values: tuple[Any, ...]
    label: str
    ticks: bool

    @classmethod
    def make(
        cls,
        name: str,
        table: Table,
        roles: Roles,
        ticks: bool = True,
    ) -> Axis:
        """Returns the axis of a column of the table.

        Names are in the order of their alphabet, or in that of their categories.
        """
        values = ordered(table[name])
        return cls(name, tuple(values), label(name, roles), ticks and name != "N")

    @cached_property
    def kind(self) -> str:
        """The scale that suits the values: "log", "symlog", "linear" or "names"."""
        if not all(map(_is_number, self.values)):
            return "names"
        sizes = [abs(v) for v in self.values if v]
        if not sizes or min(sizes) < 1e-100 or max(sizes) > 1e100:
            return "names"  # matplotlib cannot draw such numbers
        if min(self.values) < 0:
            return "linear"
        return "symlog" if 0 in self.values else "log"

    def place(self, values: Iterable[Any]) -> np.ndarray:
        """Returns an array with the place of each value on the axis.

        The place of a number is the number itself, and the place of a name is its rank.
        """
        if self.kind != "names":
            return np.array([*values], dtype=float)
        rank = {value: float(i) for i, value in enumerate(self.values)}
        return np.array([rank.get(value, np.nan) for value in values])

    def scale(self, ax: Axes, which: Side) -> Transform:
        """Sets the scale of `ax` along x or y.

        Returns the transform to coordinates in which the scale is linear.
        """
        options = {}
        if self.kind == "symlog":
            options = {"linthresh": self.values[1], "linscale": 0.6}
        scale = "linear" if self.kind == "names" else self.kind
        getattr(ax, f"set_{which}scale")(scale, **options)
        return getattr(ax, f"{which}axis").get_transform()

    def edges(self, ax: Axes, which: Side) -> np.ndarray:
        """Returns an array of the edges of the pixels along the axis.

        There is an edge in the middle between two neighbouring places. The first and
        the last edge are half a step beyond the first and the last place.
        """
        transform = self.scale(ax, which)
        spots = transform.transform(self.place(self.values))
        step = np.diff(spots) if len(spots) > 1 else np.array([0.3])
        before = spots[:1] - step[0] / 2
        between = (spots[:-1] + spots[1:]) / 2
        after = spots[-1:] + step[-1] / 2
        return transform.inverted().transform(np.concatenate([before, between, after]))

    def mark(self, ax: Axes, which: Side) -> None:
        """Sets the ticks at round numbers, or at as many values as fit.

        The limits of the axis must be set before this call.
        """
        from matplotlib.ticker import NullLocator

        ruler: Ruler = getattr(ax, f"{which}axis")
        has_values = self.ticks and len(self.values) <= MOST_TICKS
        if self.kind != "names" and not has_values:
            self._mark_round(ruler)
            return
        names = [text(value, MAX_NAME) for value in self.values]
        places = self.place(self.values)
        box = ax.get_window_extent()
        inches = {"x": box.width, "y": box.height}[which] / ax.figure.dpi
        transform = ruler.get_transform()
        ends = np.array(ruler.get_view_interval(), dtype=float)
        low, high = transform.transform(ends)
        spots = transform.transform(places) * inches / (high - low)
        size = points(f"{which}tick.labelsize")
        sizes = [LETTER * size * (len(name) + 1) for name in names]
        rotation = 0
        if which == "x" and self.kind == "names" and sum(sizes) > 0.9 * inches:
            rotation = 90
        if rotation or which == "y":
            sizes = [LINE * size] * len(names)
        kept = _with_room(spots, sizes)
        ruler.set_ticks(places[kept], [names[i] for i in kept], rotation=rotation)
        ruler.set_minor_locator(NullLocator())

    def _mark_round(self, ruler: Ruler) -> None:
        if self.kind == "log":
            log_axis(ruler)
        elif self.kind == "symlog":
            ends = np.log10([self.values[1], 1.001 * self.values[-1]])
            decades = 10.0 ** np.arange(*np.ceil(ends))
            ruler.set_ticks([0, *decades], ["0", *map(_power_of_ten, decades)])


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
    found = {*column.dropna().tolist()}
    return sorted(found, key=lambda value: (isinstance(value, str), value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _with_room(spots: np.ndarray, sizes: Sequence[float]) -> list[int]:
    """Returns the indices of labels that do not overlap, in descending order.

    The last label is always among them.
    """
    kept = []
    free = np.inf
    for i in reversed(range(len(sizes))):
        if spots[i] + sizes[i] / 2 < free:
            kept.append(i)
            free = spots[i] - sizes[i] / 2
    return kept


def columns_in(name: str) -> frozenset[str]:
    """Returns the columns that an axis uses: itself, or those in its arithmetic."""
    try:
        return parse(name, calls=False).names
    except ValueError:
        return frozenset([name])


def with_columns(table: Table, *axes: str) -> Table:
    """Returns the table with a column for each axis that is arithmetic."""
    for axis in axes:
        if axis not in table:
            expression = parse(axis, calls=False)
            rows = table[sorted(expression.names)].to_dict("records")
            table = table.assign(**{axis: list(map(expression.evaluate, rows))})
    return table


def log_axis(ruler: Ruler) -> None:
    """Sets the ticks of a log axis and their labels.

    The ticks are at powers of ten. If the axis has few decades, there are also ticks
    between powers of ten.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low, high = ruler.get_view_interval()
    decades = np.log10(high / low)
    powers = np.floor(np.log10(high)) - np.ceil(np.log10(low)) + 1
    if decades < 1.7 or powers < 2:
        subs = (1, 2, 5) if decades < 0.9 else (1, 3)
        ruler.set_major_locator(LogLocator(10, subs=subs))
        ruler.set_minor_locator(LogLocator(10, subs=range(2, 10), numticks=99))
        ruler.set_major_formatter(_as_text)
    else:
        ruler.set_major_locator(LogLocator(10, subs=(1,)))
        ruler.set_minor_locator(NullLocator())
        ruler.set_major_formatter(_power_of_ten)
    ruler.set_minor_formatter(NullFormatter())


def _as_text(value: float, _: object = None) -> str:
    return text(value)


def _power_of_ten(value: float, _: object = None) -> str:
    if value > 0:
        return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)
    return "0"
