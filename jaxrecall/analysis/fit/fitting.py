"""A whole fit: every family, theta and regime of a table, as three tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from ...errors import FitError, as_list, expect, refusal, shown
from ...model.values import as_number, is_missing
from ...sweep.crossing import edge_of
from ...sweep.grid.expr import parse
from . import best as choice
from . import cells, means, tables
from .axes import along_of, fixed
from .cells import Cell, Family
from .estimate import Estimates, crossings, curve
from .runs import LAST, Steps, at_steps, crossing, measured, plain_table
from .write import html, summary

MAX_THETAS = 1000
FRACTIONS = f"fractions between 0 and 1, up to {MAX_THETAS} of them, as in 0.5 0.9"
TEXTS = "a text or a list of texts"
ALL = ""
"""The regime of a law through all cells."""

Rows = tuple[list[tables.Row], list[tables.Row], list[tables.Row]]
"""Of the thresholds, the exponents and the diagnostics."""


@dataclass(frozen=True, repr=False)
class Fit:
    """Three tables (pandas), as the command writes them, and remarks on rows and columns that were left out.

    It unpacks as `thresholds, exponents, diagnostics = fit(frame)`, and prints as a
    summary.
    """

    thresholds: Any
    exponents: Any
    diagnostics: Any
    remarks: list[str]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.thresholds, self.exponents, self.diagnostics))

    def __repr__(self) -> str:
        return "\n".join([*(f"note: {remark}" for remark in self.remarks), *summary(*self)])

    def _repr_html_(self) -> str:
        return html(self.exponents, repr(self).splitlines())


def fit(
    frame: Any,
    thetas: float | Sequence[float] = (0.5,),
    resamples: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    where: str | Sequence[str] = (),
    step: Steps = LAST,
    along: str | None = None,
    of: str = "accuracy",
    best: str | None = None,
    by: str | None = None,
    law: str | None = None,
) -> Fit:
    """Thresholds, exponents and diagnostics of a table of runs, as `load` and `run` return it.

    Any other table needs columns V, N, d, L, m, seed, n_test, n_correct, or the column
    `of` in place of the last two.

    Args:
        frame: one row per run, of runs that train on one per recorded step.
        thetas: the accuracy to cross, a fraction, or several.
        resamples: has no effect, since intervals leave out one seed at a time; kept for
            calls that were written before.
        on_progress: called with the curves estimated so far and in all, as often as
            there are thetas.
        where: restricts the law to the cells for which an expression of the axes holds,
            such as "L**2 > 10 * V**1.5 * d**0.5"; several give a law each, named in the
            column `regime`.
        along: the axis along which accuracy crosses theta: N, d, m, V, L or any other
            column of numbers greater than 0; unless given that of a search, else N.
            Along m, rows with m = 0 are no level; their accuracy is the column
            `reference` of the thresholds.
        step: which rows of runs that train on: "last", a step, several steps, or "all";
            with several, `step` is an axis.
        of: the column that crosses theta: the accuracy, or any other column of
            fractions that was measured, such as "attention_mass".
        best: an axis, such as a rate, of which each cell takes the value whose mean over
            seeds is largest at each level; of a search the value that crosses first. It
            is chosen anew without each seed. The value at the crossing is a column.
        by: an axis, each value of which has a law of its own, as by `where`.
        law: a column of numbers from 0. Instead of thresholds its mean over seeds obeys
            the law, along the axis `along` too; points of mean 0 are left out.

    Raises:
        FitError: with one line per problem.
    """
    frame = plain_table("frame", frame)
    thetas = fractions(thetas)
    listed = [where] if isinstance(where, str) else as_list("where", where, TEXTS, FitError, MAX_THETAS)
    where = [*dict.fromkeys(expect("where", text, str, TEXTS, FitError) for text in listed)]
    if law is not None and best is not None:
        raise FitError(f"best: got {best!r} with law; allowed: one of the two")
    counted = crossing(frame, of) if law is None else measured(frame, law)
    families, remarks = cells.families(at_steps(counted, step), along := along_of(frame, along))
    axes = [*families[0].cells[0].at, *(name for name in families[0].cells[0].names if name not in tables.THRESHOLDS)]
    if clash := [name for name in axes if name in tables.THRESHOLDS]:
        raise FitError(f"columns: {', '.join(clash)} is an axis here and a column of the thresholds; rename it")
    if law is not None:
        points = [means.estimates(family, law) for family in families]
        lawful = [one.family for one in points]
    else:
        lawful = [choice.without(family, best) for family in families] if best else families
    laws = regimes(lawful, _by_value(lawful, by, where))
    rows: Rows = [], [], []
    done, total = 0, len(thetas) * sum(len(family.cells) for family in families)
    edge, searched = edge_of(*thetas), frame.attrs.get("searched") == along
    for i, (family, by_regime) in enumerate(zip(families, laws, strict=True)):
        rows[2].append(tables.dispersion(family))
        if law is not None:
            _add(rows, points[i], by_regime, with_thresholds=False)
            continue
        curves = [] if best else [curve(cell, edge) for cell in family.cells]
        for theta in map(family.mirrored, thetas):
            found = choice.estimates(family, theta, edge, best, searched) if best else crossings(family, theta, curves)
            _add(rows, found, by_regime)
            on_progress(done := done + len(family.cells), total)
    rows[2].extend({"part": "", "diagnostic": "remark", "subject": "", "text": remark, "regime": ""} for remark in remarks)
    what = of if of != "accuracy" else frame.attrs.get("accuracy", of)
    found = Fit(*tables.frames(axes, *rows, law or what), remarks)
    about = {"fixed": fixed(frame), "constants": [*dict.fromkeys(axis for family in lawful for axis in family.factors)]}
    for table in found:
        table.attrs |= about
    return found


def _by_value(families: Sequence[Family], by: str | None, where: Sequence[str]) -> list[str]:
    """The expressions of the laws: those given, for each value of an axis if there is one. Raises FitError."""
    if by is None:
        return list(where)
    at = [cell.at for family in families for cell in family.cells]
    if by not in at[0]:
        raise FitError(f"by: got {by!r}; allowed: an axis of the table: {', '.join(at[0])}")
    values = [value for value in dict.fromkeys(cell[by] for cell in at) if not is_missing(value)]
    each = [f"{by} == {str(value).lower() if isinstance(value, bool) else repr(value)}" for value in values]
    return [f"({text}) and {one}" for text in where for one in each] or each


def _add(rows: Rows, found: Estimates, by_regime: dict[str, Family], with_thresholds: bool = True) -> None:
    """Adds the rows of a family at one theta."""
    thresholds, exponents, diagnostics = rows
    thresholds += tables.thresholds(found) if with_thresholds else []
    for regime, part in by_regime.items():
        mine = found.within(part)
        exponents += (of_law := tables.exponents(mine, regime))
        diagnostics += [row | {"regime": regime} for row in tables.diagnose(mine, of_law)]


def fractions(thetas: Any) -> list[float]:
    """Accuracies to cross, one or a list, each once; raises FitError for anything else."""
    given = [thetas] if isinstance(thetas, Real) else as_list("theta", thetas, FRACTIONS, FitError, MAX_THETAS)
    wrong = [theta for theta in given if not 0 < (as_number(theta, float) or 0) < 1] if given else [[]]
    if wrong:
        raise refusal("theta", ", ".join(shown(theta, 40) for theta in wrong), FRACTIONS, FitError)
    return list(dict.fromkeys(map(float, given)))


def regimes(families: Sequence[Family], where: Sequence[str]) -> list[dict[str, Family]]:
    """For each family the regimes, by expression, each as a
    family of its cells; all its cells if there is no expression.

    An expression uses the axes of the cells and the arithmetic of a grid file. Raises
    FitError if it cannot be read, or holds for no cell at all; a regime without cells
    in one of the families is left out there.
    """
    if not where:
        return [{ALL: family} for family in families]
    found = [{text: [cell for cell in family.cells if holds(text, cell)] for text in where} for family in families]
    if empty := [text for text in where if not any(by_text[text] for by_text in found)]:
        raise FitError([f"where: {text!r} holds for no cell" for text in empty])
    pairs = zip(families, found, strict=True)
    return [{text: replace(family, cells=mine) for text, mine in by_text.items() if mine} for family, by_text in pairs]


def holds(text: str, cell: Cell) -> bool:
    """Whether an expression holds for the cell; raises FitError."""
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
