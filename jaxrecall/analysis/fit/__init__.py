"""From a table of runs to thresholds N* and the exponents of N* ~ product of
axis^exponent, as three tables.

`runs` reads and checks rows, `axes` finds what they were requested for, and `cells`
makes curves of them. `estimate` has where those of a family cross theta, with their law
and intervals. `tables` makes the rows, `write` the output. `fit` does all of it: every
family, theta and regime of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real

from ...errors import FitError, as_list, expect, refusal, shown
from ...model.values import as_number, is_missing
from ...sweep.crossing import edge_of
from ...sweep.grid.expr import Expression, parse
from . import cells, tables
from .cells import Family
from .estimate import Estimates, by_level, curve, of_best, of_means, without_axis
from .runs import (
    LAST,
    Steps,
    Table,
    along_of,
    at_steps,
    common,
    crossing,
    measured,
    plain_table,
    without,
)
from .table_axes import AxisValue
from .write import summary

__all__ = ["Fit", "fit"]

MAX_THETAS = 1000
FRACTIONS = f"fractions between 0 and 1, up to {MAX_THETAS} of them, as in 0.5 0.9"
TEXTS = "a text or a list of texts"


@dataclass(frozen=True, repr=False)
class Fit:
    """Three tables (pandas), as the command writes them, and remarks on what was left
    out; prints as a summary.

    A fit unpacks as `thresholds, exponents, diagnostics = fit(frame)`.
    """

    thresholds: Table
    exponents: Table
    diagnostics: Table
    remarks: list[str]

    def __iter__(self) -> Iterator[Table]:
        return iter((self.thresholds, self.exponents, self.diagnostics))

    def __repr__(self) -> str:
        notes = map("note: {}".format, self.remarks)
        return "\n".join([*notes, *summary(self)])


def fit(
    frame: Table,
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
    """Thresholds, exponents and diagnostics of a table of runs, as `load` and `run`
    return it; any other table needs columns V, N, d, L, m, seed, and n_test and
    n_correct or the column `of`.

    Args:
        frame: one row per run, of runs that train on one per recorded step.
        thetas: the accuracy to cross, a fraction, or several.
        resamples: has no effect, since intervals leave out one seed at a time; kept for
            calls that were written before.
        on_progress: called with the curves estimated so far and in all, as often as
            there are thetas.
        where: restricts the law to the cells for which an expression of the axes holds,
            such as "L**2 > 10 * V**1.5 * d**0.5"; several give a law each, by which the
            column `regime` tells them apart.
        along: the axis along which accuracy crosses theta: N, d, m, V, L or any other
            column of numbers greater than 0; unless given that of a search, else N.
            Along m, rows with m = 0 are no level.
        step: which rows of runs that train on: "last", a step, several steps, or "all";
            with several, `step` is an axis.
        of: the column that crosses theta: the accuracy, or any other column of
            fractions that was measured, such as "attention_mass".
        best: an axis, such as a rate, of which each cell takes the value that crosses
            first. It is chosen anew without each seed, and is a column.
        by: an axis, each value of which has a law of its own, as by `where`.
        law: a column of numbers from 0. Instead of thresholds its mean over seeds obeys
            the law, along the axis `along` too; points of mean 0 are left out.

    Raises:
        FitError: with one line per problem.
    """
    frame = plain_table("frame", frame)
    wanted = _Wanted(fractions(thetas), _texts(where), step, along, of, best, by, law)
    return _fitted(frame, wanted, on_progress)


def fractions(thetas: float | Sequence[float]) -> list[float]:
    """Accuracies to cross, one or a list, each once; raises FitError for anything
    else.
    """
    if isinstance(thetas, Real):
        given = [thetas]
    else:
        given = as_list("theta", thetas, FRACTIONS, FitError, MAX_THETAS)
    wrong = [theta for theta in given if not 0 < (as_number(theta, float) or 0) < 1]
    if wrong or not given:
        got = ", ".join(shown(theta, 40) for theta in wrong) or "[]"
        raise refusal("theta", got, FRACTIONS, FitError)
    return list(dict.fromkeys(map(float, given)))


def _texts(where: str | Sequence[str]) -> list[str]:
    """Expressions, one or a list, each once; raises FitError for anything else."""
    if isinstance(where, str):
        return [where]
    texts = as_list("where", where, TEXTS, FitError, MAX_THETAS)
    for text in texts:
        expect("where", text, str, TEXTS, FitError)
    return list(dict.fromkeys(texts))


@dataclass(frozen=True)
class _Wanted:
    """What a call of `fit` wants, as its arguments say."""

    thetas: list[float]
    where: list[str]
    step: Steps
    along: str | None
    of: str
    best: str | None
    by: str | None
    law: str | None


def _fitted(
    frame: Table, wanted: _Wanted, on_progress: Callable[[int, int], None]
) -> Fit:
    law = wanted.law
    if law is not None and wanted.best is not None:
        raise FitError(f"best: got {wanted.best!r} with law; allowed: one of the two")
    counted = crossing(frame, wanted.of) if law is None else measured(frame, law)
    along = along_of(frame, wanted.along)
    families, remarks = cells.families(at_steps(counted, wanted.step), along)
    axes = _axis_columns(families[0])
    if law is not None:
        families = [by_level(family, law) for family in families]
    laws = _regimes(families, wanted)
    thresholds, exponents, diagnostics = [], [], []
    done, total = 0, len(wanted.thetas) * sum(len(family.cells) for family in families)
    for family, regimes in zip(families, laws, strict=True):
        for found in _estimates(family, wanted):
            if law is None:
                thresholds += tables.thresholds(found)
            for regime, among in regimes.items():
                mine = found.within(among)
                rows = tables.exponents(mine, regime)
                exponents += rows
                diagnostics += tables.diagnose(mine, rows, regime)
            done += len(family.cells)
            on_progress(done, total)
    for remark in remarks:
        diagnostics.append(tables.diagnostic("remark", remark))
    made = tables.frames(axes, thresholds, exponents, diagnostics)
    what = law or wanted.of
    if law is None and what == "accuracy":
        what = frame.attrs.get("accuracy", what)
    for table in made:
        table.attrs["of"] = what
    return Fit(*made, remarks)


def _axis_columns(family: Family) -> list[str]:
    """The columns of axes and of further names of a cell; raises FitError."""
    cell = family.cells[0]
    if clash := common(cell.at, tables.THRESHOLDS):
        raise FitError(
            f"columns: {', '.join(clash)} is an axis here and a column of the"
            " thresholds; rename it"
        )
    return [*cell.at, *without(cell.names, tables.THRESHOLDS)]


def _estimates(family: Family, wanted: _Wanted) -> Iterator[Estimates]:
    """Where the curves of a family cross each theta, or the means of a column."""
    if wanted.law is not None:
        yield of_means(family)
        return
    edge = edge_of(*wanted.thetas)
    thetas = map(family.mirrored, wanted.thetas)
    if wanted.best:
        for theta in thetas:
            yield of_best(family, theta, edge, wanted.best)
        return
    curves = [curve(cell, edge) for cell in family.cells]
    for theta in thetas:
        yield Estimates(family, theta, curves, [one.crossing(theta) for one in curves])


def _regimes(
    families: Sequence[Family], wanted: _Wanted
) -> list[dict[str, list[bool]]]:
    """For each family which of its cells are in each law, by the expression that holds
    for them, "" for a law through all cells.

    There is a law for each expression, and for each value of the axis `by` if there is
    one. Raises FitError for an expression that cannot be read, or holds for no cell at
    all.
    """
    if wanted.best:
        families = [without_axis(family, wanted.best) for family in families]
    axes = list(families[0].cells[0].at)
    where = wanted.where
    if wanted.by is not None:
        where = _by_value(families, axes, wanted.by, where)
    if not where:
        return [{"": [True] * len(family.cells)} for family in families]
    expressions = [_read(text, axes) for text in where]
    found = []
    for family in families:
        laws = {}
        for expression in expressions:
            among = [_holds(expression, cell.at) for cell in family.cells]
            if any(among):
                laws[expression.text] = among
        found.append(laws)
    if empty := without(where, set().union(*found)):
        raise FitError(list(map("where: {!r} holds for no cell".format, empty)))
    return found


def _by_value(
    families: Sequence[Family], axes: Sequence[str], by: str, where: Sequence[str]
) -> list[str]:
    """An expression for each value of an axis, each with each of those given."""
    if by not in axes:
        raise FitError(
            f"by: got {by!r}; allowed: an axis of the table: {', '.join(axes)}"
        )
    values: dict[AxisValue, None] = {}
    for family in families:
        values |= dict.fromkeys(cell.at[by] for cell in family.cells)
    each = [f"{by} == {_literal(value)}" for value in values if not is_missing(value)]
    if not where:
        return each
    return [f"({text}) and {one}" for text in where for one in each]


def _literal(value: AxisValue) -> str:
    """A value as an expression writes it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _read(text: str, axes: Sequence[str]) -> Expression:
    try:
        expression = parse(text, calls=True)
    except ValueError as error:
        raise FitError(f"where: {error}") from None
    if unknown := sorted(expression.names - {*axes}):
        raise FitError(
            f"where: {text!r}: {', '.join(unknown)} is no axis; allowed:"
            f" {', '.join(axes)}"
        )
    return expression


def _holds(expression: Expression, at: dict[str, AxisValue]) -> bool:
    try:
        value = expression.evaluate(at)
    except ValueError as error:
        raise FitError(f"where: {error}") from None
    if not isinstance(value, bool):
        raise FitError(
            f"where: {expression.text!r}: gives {value!r}; allowed: true or false"
        )
    return value
