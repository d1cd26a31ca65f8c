"""One axis of a figure: the values that were tested, where they stand on paper, and its ticks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ...sweep.grid.expr import Expression, parse
from .style import label, text

Table = Any  # pandas.DataFrame, whose own types say less than Any
APART = 1.75
"""How many steps 0 stands below the least positive value of a log axis."""

MOST_TICKS = 9
"""With more values than this an axis has round numbers as ticks, not its values."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A column, or arithmetic on columns such as m * d. Numbers stand on a log axis, the rest evenly.

    0 stands apart, below a break of the log axis. `values` are those tested, sorted; `used` the columns it is made of. `ticks` says
    whether the values are ticks; round numbers are where they are many or were measured, not chosen.
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
        return cls(name, tuple(sorted(found, key=lambda v: (isinstance(v, str), v))), used, named or label(name), ticks and name != "N")

    @cached_property
    def numeric(self) -> bool:
        return all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) and v >= 0 for v in self.values) and any(self.values)

    @property
    def broken(self) -> bool:
        """Whether 0 is on an axis that is logarithmic."""
        return self.numeric and 0 in self.values

    @cached_property
    def positive(self) -> np.ndarray:
        """The values above 0."""
        return np.array([float(v) for v in self.values if v > 0])

    @property
    def zero(self) -> float:
        """Where 0 stands: APART steps below the least positive value."""
        least, *more = self.positive
        return float(least * (least / (more[0] if more else 2 * least)) ** APART)

    def place(self, values: Any) -> np.ndarray:
        """Where values stand: themselves, or their rank if they are no numbers."""
        if self.numeric:
            return np.array([float(v) or self.zero for v in values])
        rank = {value: float(i) for i, value in enumerate(self.values)}
        return np.array([rank.get(value, np.nan) for value in values])

    def spans(self) -> list[tuple[float, float]]:
        """The stretch of paper that each value has; between those of 0 and of the least positive value there is the break."""
        if not self.broken:
            return list(pairwise(borders(self.place(self.values), self.numeric)))
        edges = borders(self.positive, True) if len(self.positive) > 1 else self.positive[0] * np.array([2**-0.5, 2**0.5])
        half = self.positive[0] / edges[0]
        return [(self.zero / half, self.zero * half), *pairwise(edges)]

    def ends(self) -> tuple[float, float]:
        """The first and the last end of the spans."""
        spans = self.spans()
        return spans[0][0], spans[-1][1]

    @property
    def step(self) -> float:
        """The least distance of two neighbours: in octaves, or in ranks."""
        steps = np.diff(np.log2(self.place(self.values)) if self.numeric else np.arange(len(self.values)))
        return float(steps.min()) if len(steps) else 1.0

    def scale(self, ax: Any, which: str, fill: bool = False) -> None:
        """Scale, limits and ticks of `ax` along "x" or "y"; `fill` ends the axis where the last values end."""
        axis = ax.xaxis if which == "x" else ax.yaxis
        round_numbers = self.numeric and not self.broken and (len(self.values) > MOST_TICKS or not self.ticks)
        if self.numeric:
            getattr(ax, f"set_{which}scale")("log")
        if fill or self.name == "N":
            getattr(ax, f"set_{which}lim")(*self.ends())
        else:
            ax.margins(**{which: 0.06})
        if self.broken:
            self._break(ax, which)
        if round_numbers:
            log_axis(axis)
        else:
            self._ticks(ax, axis)

    def _ticks(self, ax: Any, axis: Any) -> None:
        """A tick at each value whose label has room."""
        from matplotlib.ticker import NullLocator

        at, labels = self.place(self.values), [text(v) for v in self.values]
        box, size = ax.get_window_extent(), axis.get_major_ticks()[0].label1.get_fontsize() / 72
        along_x = axis is ax.xaxis
        sizes = [0.63 * size * (len(shown) + 1) if along_x else 1.3 * size for shown in labels]
        room = (box.width if along_x else box.height) / ax.figure.dpi
        shown = apart(np.log(at) if self.numeric else at, sizes, room)
        axis.set_ticks([at[i] for i in shown], labels=[labels[i] for i in shown])
        axis.set_minor_locator(NullLocator())

    def _break(self, ax: Any, which: str) -> None:
        """Two strokes across the axis, and a blank strip, between 0 and the least positive value."""
        (_, low), (high, _) = self.spans()[:2]
        strip, blend = (ax.axvspan, ax.get_xaxis_transform()) if which == "x" else (ax.axhspan, ax.get_yaxis_transform())
        strip(low, high, facecolor="white", edgecolor="none", zorder=0.5)
        at = [low * (high / low) ** part for part in (0.35, 0.65)]
        places = (at, [0, 0]) if which == "x" else ([0, 0], at)
        stroke = {"marker": [(-0.5, -1), (0.5, 1)], "markersize": 7, "markeredgewidth": 0.8}
        ax.plot(*places, transform=blend, clip_on=False, zorder=5, linestyle="none", color="black", **stroke)


def expression(axis: str) -> Expression:
    """An axis that is arithmetic on others; raises ValueError."""
    return parse(axis, calls=False)


def column(name: str, table: Table) -> list[Any]:
    """The values of an axis, row by row, as plain Python."""
    if name in table:
        return table[name].tolist()
    found = expression(name)
    return [found.evaluate(row) for row in table[sorted(found.names)].to_dict("records")]


def borders(at: np.ndarray, log: bool, most: float = np.inf) -> np.ndarray:
    """Middles between neighbouring places and the same step beyond the ends."""
    at = np.log(at) if log else at
    step = np.diff(at) if len(at) > 1 else np.array([min(1.0, most)])
    out = np.concatenate([[at[0] - step[0] / 2], at[:-1] + np.diff(at) / 2 if len(at) > 1 else [], [at[-1] + step[-1] / 2]])
    return np.exp(out) if log else out


def apart(at: np.ndarray, sizes: list[float], room: float) -> list[int]:
    """Which labels of these sizes stand without touching at places in ascending order along `room`: the last and all that fit (inches)."""
    shown: list[int] = []
    for i in reversed(range(len(at))):
        if not shown or (at[shown[-1]] - at[i]) * room / (at[-1] - at[0]) > (sizes[i] + sizes[shown[-1]]) / 2:
            shown.append(i)
    return shown[::-1]


def log_axis(axis: Any) -> None:
    """Log scale with numbered ticks: powers of ten, and numbers between them where there are few. After the limits are set."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    few = decades < 1.7
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if decades < 0.9 else (1, 3) if few else (1,)))
    axis.set_minor_locator(LogLocator(10, subs=range(2, 10), numticks=99) if few else NullLocator())
    axis.set_major_formatter((lambda value, _: f"{value:g}" if value < 1e6 else f"{value:.0e}") if few else _power_of_ten)
    axis.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float, _: object) -> str:
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)
