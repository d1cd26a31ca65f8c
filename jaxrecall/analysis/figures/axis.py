"""One axis of a figure: the values that were tested, where they stand, and its
ticks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...sweep.grid.expr import parse
from .style import LETTER, label, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Ruler
    from matplotlib.transforms import Transform

Table = Any  # pandas.DataFrame, whose own types say less than Any
Side = Literal["x", "y"]
MOST_TICKS = 9
"""With more values than this an axis has round numbers as ticks, not its values."""

MAX_NAME = 24
"""Letters of the name of a tick."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A column, which may be arithmetic such as m * d, with the values that were
    tested, sorted.

    Positive numbers stand on a log axis, on whose linear end 0 stands if it is among
    them; others on a linear axis, and names evenly. `ticks` says whether the values are
    ticks; round numbers are where they were measured, not chosen.
    """

    name: str
    values: tuple[Any, ...]
    label: str
    ticks: bool

    @classmethod
    def make(cls, name: str, table: Table, ticks: bool = True) -> Axis:
        """The axis of a column of the table."""
        found = {
            value
            for value in table[name].tolist()
            if value == value and value is not None
        }
        values = sorted(found, key=lambda v: (isinstance(v, str), v))
        return cls(name, tuple(values), label(name), ticks and name != "N")

    @cached_property
    def kind(self) -> str:
        """The scale that suits the values."""
        if not all(
            isinstance(v, (int, float, np.number)) and not isinstance(v, bool)
            for v in self.values
        ):
            return "names"
        sizes = [abs(v) for v in self.values if v]
        if not sizes or min(sizes) < 1e-100 or max(sizes) > 1e100:
            return "names"  # matplotlib draws no such numbers
        return (
            "linear"
            if min(self.values) < 0
            else "symlog"
            if 0 in self.values
            else "log"
        )

    def place(self, values: Iterable[Any]) -> np.ndarray:
        """Where values stand: themselves, or their ranks."""
        if self.kind != "names":
            return np.array(
                [np.nan if value is None else value for value in values], dtype=float
            )
        rank = {value: float(i) for i, value in enumerate(self.values)}
        return np.array([rank.get(value, np.nan) for value in values])

    def scale(self, ax: Axes, which: Side) -> Transform:
        """Sets the scale of `ax` along "x" or "y"; returns the transform of its values
        to even steps.
        """
        if self.kind == "symlog":
            getattr(ax, f"set_{which}scale")(
                "symlog", linthresh=min(v for v in self.values if v > 0), linscale=0.6
            )
        else:
            getattr(ax, f"set_{which}scale")("log" if self.kind == "log" else "linear")
        return getattr(ax, f"{which}axis").get_transform()

    def edges(self, ax: Axes, which: Side) -> np.ndarray:
        """The middles between neighbouring places, and as far beyond the ends."""
        transform = self.scale(ax, which)
        spots = transform.transform(self.place(self.values))
        step = np.diff(spots) if len(spots) > 1 else np.array([0.3])
        between = np.concatenate(
            [
                spots[:1] - step[0] / 2,
                (spots[:-1] + spots[1:]) / 2,
                spots[-1:] + step[-1] / 2,
            ]
        )
        return transform.inverted().transform(between)

    def mark(self, ax: Axes, which: Side) -> None:
        """The ticks, after the limits are set; as many of the values as have room."""
        from matplotlib.ticker import NullLocator

        axis = ax.xaxis if which == "x" else ax.yaxis
        if self.kind != "names" and not (self.ticks and len(self.values) <= MOST_TICKS):
            if self.kind == "log":
                log_axis(axis)
            elif self.kind == "symlog":
                decades = 10.0 ** np.arange(
                    *np.ceil(np.log10([self.values[1], 1.001 * self.values[-1]]))
                )
                axis.set_ticks([0, *decades], ["0", *map(_power_of_ten, decades)])
            return
        names = [
            (
                shown
                if len(shown := text(v)) <= MAX_NAME
                else f"{shown[: MAX_NAME - 3]}..."
            )
            for v in self.values
        ]
        box, places = ax.get_window_extent(), self.place(self.values)
        low, high = axis.get_transform().transform(
            np.array(axis.get_view_interval(), dtype=float)
        )
        inches = (box.width if which == "x" else box.height) / ax.figure.dpi
        spots = axis.get_transform().transform(places) * inches / (high - low)
        upright = (
            which == "x"
            and self.kind == "names"
            and sum(map(len, names)) * LETTER > 0.8 * inches
        )
        sizes = [
            0.15 if upright or which == "y" else LETTER * (len(name) + 1)
            for name in names
        ]
        kept: list[int] = []
        for i in reversed(range(len(names))):
            if (
                not kept
                or spots[kept[-1]] - spots[i] > (sizes[i] + sizes[kept[-1]]) / 2
            ):
                kept.append(i)
        axis.set_ticks(
            places[kept], [names[i] for i in kept], rotation=90 if upright else 0
        )
        axis.set_minor_locator(NullLocator())


def columns_in(name: str) -> frozenset[str]:
    """The columns that an axis is made of: itself, or those that it is arithmetic
    on.
    """
    try:
        return parse(name, calls=False).names
    except ValueError:
        return frozenset([name])


def with_columns(table: Table, *axes: str) -> Table:
    """The table with a column for each axis that is arithmetic."""
    for axis in (axis for axis in axes if axis not in table):
        found = parse(axis, calls=False)
        table = table.assign(
            **{
                axis: [
                    found.evaluate(row)
                    for row in table[sorted(found.names)].to_dict("records")
                ]
            }
        )
    return table


def log_axis(axis: Ruler) -> None:
    """Numbered ticks on a log axis: powers of ten, and numbers between them where there
    are few.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    few = decades < 1.7
    axis.set_major_locator(
        LogLocator(10, subs=(1, 2, 5) if decades < 0.9 else (1, 3) if few else (1,))
    )
    axis.set_minor_locator(
        LogLocator(10, subs=range(2, 10), numticks=99) if few else NullLocator()
    )
    axis.set_major_formatter((lambda value, _: text(value)) if few else _power_of_ten)
    axis.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float, _: object = None) -> str:
    return (
        f"10{str(round(np.log10(value))).translate(SUPERSCRIPTS)}" if value > 0 else "0"
    )
