"""What there is without an MLP, m = 0, as a reference in the panels of those that have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .axis import columns_in
from .grammar import Layer, Line, Panel, Rule

Table = Any  # pandas.DataFrame, whose own types say less than Any
NAME = "m = 0"
STYLE = {"linestyle": "-.", "marker": "none", "linewidth": 0.9}


@dataclass(frozen=True)
class Baseline(Line):
    """A line that is black where the lines of the chart differ in what m = 0 does not have."""

    def draw(self, panel: Panel) -> None:
        if any({*values} & {*self.table} for values, _ in panel.groups):
            return super().draw(panel)
        return self._line(panel, panel.rows(self.table), {"color": "black"} | dict(self.style))


def split(table: Table, x: str, lines: Sequence[str], panels: Sequence[str]) -> tuple[Table, Table | None]:
    """The rows with an MLP, and those without as a reference, without the columns that say nothing of them.

    All rows and None where m = 0 has a place of its own: along x, or as a line.
    """
    none = table["m"] == 0 if "m" in table else None
    if none is None or none.all() or not none.any():
        return table, None
    by = [name for name in (*lines, *panels) if name in table]
    foreign = [name for name in by if name != "m" and not {*table[name][none]} & {*table[name][~none]}]
    if not (foreign or "m" in panels or (x != "m" and "m" in columns_in(x))):
        return table, None
    return table[~none], table[none].drop(columns=foreign + ["m"] * ("m" in by))


def baseline(table: Table, y: str, x: str) -> Layer:
    """The layer of such a reference: a level where x is made of m, else a line along x."""
    return Rule(table, y, NAME, STYLE) if "m" in columns_in(x) else Baseline(table, y, NAME, STYLE)
