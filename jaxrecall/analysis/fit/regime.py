"""Laws within a regime: the cells of a family for which an expression holds, such as "L**2 > 10 * V**1.5 * d**0.5"."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import FitError
from ...sweep.grid.expr import parse
from .cells import Cell, Family

ALL = ""
"""The regime of a law through all cells."""


def regimes(families: Sequence[Family], where: Sequence[str]) -> list[dict[str, Family]]:
    """For each family the regimes, by expression, each as a family of its cells; all its cells if there is no expression.

    An expression uses the axes of the cells and the arithmetic of a grid file. Raises FitError if it cannot be read, or holds for
    no cell at all; a regime without cells in one of the families is left out there.
    """
    if not where:
        return [{ALL: family} for family in families]
    found = [{text: [cell for cell in family.cells if holds(text, cell)] for text in where} for family in families]
    if empty := [text for text in where if not any(cells[text] for cells in found)]:
        raise FitError([f"where: {text!r} holds for no cell" for text in empty])
    return [
        {text: Family.of(family.name, cells) for text, cells in by_text.items() if cells}
        for family, by_text in zip(families, found, strict=True)
    ]


def holds(text: str, cell: Cell) -> bool:
    """Whether the cell is in the regime; raises FitError."""
    try:
        expression = parse(text, calls=True)
        if unknown := sorted(expression.names - {*cell.at}):
            raise ValueError(f"{text!r}: {', '.join(unknown)} is no axis; allowed: {', '.join(cell.at)}")
        value = expression.evaluate(cell.at)
        if not isinstance(value, bool):
            raise ValueError(f"{text!r}: gives {value!r}; allowed: true or false")
    except ValueError as error:
        raise FitError(f"where: {error}") from None
    return value
