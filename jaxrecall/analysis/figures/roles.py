"""Which axis of a table goes where in the figures of a report: what was asked for, and good choices for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FitError
from ..fit import cells
from .axis import columns_in, expression
from .study import Names, varying

Table = Any  # pandas.DataFrame, whose own types say less than Any


@dataclass(frozen=True)
class Roles:
    """`x` of the figure of critical values, what makes `lines`, what makes `panels`, and the two axes of each phase diagram.

    `against` is arithmetic on axes that accuracy is drawn against. The first `n_chosen` panels were asked for.
    """

    x: str | None
    lines: str | None
    panels: tuple[str, ...]
    phases: tuple[tuple[str, str], ...]
    against: str | None = None
    n_chosen: int = 0

    def one_for_lines(self, table: Table, axes: Sequence[str]) -> tuple[str | None, list[str]]:
        """Where neither stands along x: of `lines` and `x` the one with more values makes the lines, and all other axes panels."""
        candidates = [axis for axis in (self.lines, self.x) if axis in axes]
        lines = max(candidates, key=lambda axis: table[axis].nunique()) if candidates else None
        return lines, [axis for axis in axes if axis != lines]


def roles(
    families: Sequence[cells.Family], x: str | None = None, lines: str | None = None, panels: Names = (), phases: Sequence[Names] = ()
) -> Roles:
    """The choices that were made, and good ones for the rest; raises FitError with everything that is wrong."""
    axes, along = varying(families), families[0].along
    at = [{along: 1} | cell.at for family in families for cell in family.cells]
    against = x if x is not None and x not in at[0] and columns_in(x) != {x} else None
    problems = misplaced(axes, x=[x] if x and not against else [], lines=[lines] if lines else [], panels=panels)
    problems += [problem for name in ([against] if against else []) for problem in _unknown("x", name, at)]
    new = dict.fromkeys(axis for pair in phases for axis in pair if axis not in at[0])
    problems += [problem for axis in new for problem in _unknown("phase", axis, at)]
    problems += [f"phase: {a!r} twice; allowed: two axes" for a, b in phases if a == b]
    if problems:
        raise FitError(problems)
    taken = {lines, *panels}
    if against:
        inside = [axis for axis in axes if axis in columns_in(against) and axis not in taken]
        x = None if along in columns_in(against) else against
        taken |= {max(inside, key=lambda axis: len({cell[axis] for cell in at}), default=None)} if x else set()
    rest = [axis for axis in axes if axis not in taken and axis != x]
    x = x or (rest.pop(0) if rest else None)
    lines = lines or (rest.pop(0) if rest else None)
    pairs = tuple((a, b) for a, b in phases) or (((x, along),) if x else ())
    return Roles(x, lines, (*panels, *rest), pairs, against, len(panels))


def _unknown(place: str, axis: str, at: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with an axis that is arithmetic on those of the cells `at`."""
    try:
        if unknown := sorted(expression(axis).names - {*at[0]}):
            return [f"{place}: {axis!r} has no {', '.join(unknown)}; allowed: {', '.join(at[0])} and arithmetic, as in 'm * d'"]
        for cell in at:
            expression(axis).evaluate(cell)
    except ValueError as error:
        return [f"{place}: {error}"]
    return []


def misplaced(axes: Sequence[str], **chosen: Sequence[str]) -> list[str]:
    """What is wrong with the axes that were chosen for each place: they do not vary, or have two places."""
    found = [
        f"{name}: {axis!r}; allowed, as these vary: {', '.join(axes) or 'none'}"
        for name, given in chosen.items()
        for axis in given
        if axis not in axes
    ]
    every = [axis for given in chosen.values() for axis in given]
    if twice := sorted({axis for axis in every if every.count(axis) > 1}):
        found.append(f"{', '.join(chosen)}: {', '.join(twice)} more than once; an axis has one place")
    return found
