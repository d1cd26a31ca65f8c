"""From a table of runs to thresholds N* and the exponents of N* ~ product of
axis^exponent, as three tables.

`runs` reads and checks rows and says what they were requested for, and `cells`
makes curves of them. `estimate` has where those of a family cross theta, with their law
and intervals. `tables` makes the rows, `write` the output. `fit` does all
of it: every family, theta and regime of a table.
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
from .estimate import Estimates, curve, of_best, of_means, without_axis
from .runs import (
    LAST,
    Steps,
    Table,
    Value,
    along_of,
    at_steps,
    crossing,
    measured,
    plain_table,
)
from .write import summary

__all__ = ["Fit", "fit"]

MAX_THETAS = 1000
FRACTIONS = f"fractions between 0 and 1, up to {MAX_THETAS} of them, as in 0.5 0.9"
TEXTS = "a text or a list of texts"


@dataclass(frozen=True, repr=False)
class Fit:
    """Three tables (pandas), as the command writes them, and remarks on what was left
    out.

    It unpacks as `thresholds, exponents, diagnostics = fit(frame)`, and prints as a
    summary.
    """

    thresholds: Table
    exponents: Table
    diagnostics: Table
    remarks: list[str]

    def __iter__(self) -> Iterator[Table]:
        return iter((self.thresholds, self.exponents, self.diagnostics))

    def __repr__(self) -> str:
        return "\n".join(
            [*(f"note: {remark}" for remark in self.remarks), *summary(self)]
        )


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
    return it.

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
    thetas = fractions(thetas)
    listed = (
        [where]
        if isinstance(where, str)
        else as_list("where", where, TEXTS, FitError, MAX_THETAS)
    )
    texts = [
        *dict.fromkeys(expect("where", text, str, TEXTS, FitError) for text in listed)
    ]
    if law is not None and best is not None:
        raise FitError(f"best: got {best!r} with law; allowed: one of the two")
    counted = crossing(frame, of) if law is None else measured(frame, law)
    families, remarks = cells.families(
        at_steps(counted, step), along := along_of(frame, along)
    )
    axes = [
        *families[0].cells[0].at,
        *(name for name in families[0].cells[0].names if name not in tables.THRESHOLDS),
    ]
    if clash := [name for name in axes if name in tables.THRESHOLDS]:
        raise FitError(
            f"columns: {', '.join(clash)} is an axis here and a column of the"
            " thresholds; rename it"
        )
    points = [of_means(family, law) for family in families] if law is not None else []
    lawful = [one.family for one in points] or [
        without_axis(family, best) if best else family for family in families
    ]
    laws = _regimes(lawful, texts, by)
    edge = edge_of(*thetas)

    def estimated(i: int) -> Iterator[Estimates]:
        family = families[i]
        curves = [] if best else [curve(cell, edge) for cell in family.cells]
        for theta in map(family.mirrored, thetas):
            found = [one.crossing(theta) for one in curves]
            yield (
                of_best(family, theta, edge, best)
                if best
                else Estimates(family, theta, curves, found)
            )

    thresholds, exponents, diagnostics = (
        list[tables.Row](),
        list[tables.Row](),
        list[tables.Row](),
    )
    done, total = 0, len(thetas) * sum(len(family.cells) for family in families)
    for i, family in enumerate(families):
        for found in [points[i]] if points else estimated(i):
            thresholds += [] if points else tables.thresholds(found)
            for regime, among in laws[i].items():
                mine = found.within(among)
                exponents += (rows := tables.exponents(mine, regime))
                diagnostics += [
                    row | {"regime": regime} for row in tables.diagnose(mine, rows)
                ]
            on_progress(done := done + len(family.cells), total)
    diagnostics += [
        {
            "part": "",
            "diagnostic": "remark",
            "subject": "",
            "text": remark,
            "regime": "",
        }
        for remark in remarks
    ]
    made = Fit(*tables.frames(axes, thresholds, exponents, diagnostics), remarks)
    what = law or (of if of != "accuracy" else frame.attrs.get("accuracy", of))
    for table in made:
        table.attrs["of"] = what
    return made


def fractions(thetas: float | Sequence[float]) -> list[float]:
    """Accuracies to cross, one or a list, each once; raises FitError for anything
    else.
    """
    given = (
        [thetas]
        if isinstance(thetas, Real)
        else as_list("theta", thetas, FRACTIONS, FitError, MAX_THETAS)
    )
    wrong = (
        [theta for theta in given if not 0 < (as_number(theta, float) or 0) < 1]
        if given
        else [[]]
    )
    if wrong:
        raise refusal(
            "theta", ", ".join(shown(theta, 40) for theta in wrong), FRACTIONS, FitError
        )
    return list(dict.fromkeys(map(float, given)))


def _regimes(
    families: Sequence[Family], where: Sequence[str], by: str | None
) -> list[dict[str, list[int]]]:
    """For each family the numbers of the cells of each law, by the expression that
    holds for them.

    It is "" for a law through all cells. There is a law for each expression, and for
    each value of the axis `by` if there is one. Raises FitError for an expression that
    cannot be read, or holds for no cell at all.
    """
    axes = families[0].cells[0].at
    if by is not None:
        if by not in axes:
            raise FitError(
                f"by: got {by!r}; allowed: an axis of the table: {', '.join(axes)}"
            )
        values = dict.fromkeys(
            value
            for family in families
            for cell in family.cells
            if not is_missing(value := cell.at[by])
        )
        each = [
            f"{by} == {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for value in values
        ]
        where = [f"({text}) and {one}" for text in where for one in each] or each
    if not where:
        return [{"": [*range(len(family.cells))]} for family in families]
    read = {text: _read(text, [*axes]) for text in where}
    found = [
        {
            text: [
                i for i, cell in enumerate(family.cells) if _holds(read[text], cell.at)
            ]
            for text in where
        }
        for family in families
    ]
    if empty := [text for text in where if not any(laws[text] for laws in found)]:
        raise FitError([f"where: {text!r} holds for no cell" for text in empty])
    return [{text: among for text, among in laws.items() if among} for laws in found]


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


def _holds(expression: Expression, at: dict[str, Value]) -> bool:
    try:
        value = expression.evaluate(at)
    except ValueError as error:
        raise FitError(f"where: {error}") from None
    if not isinstance(value, bool):
        raise FitError(
            f"where: {expression.text!r}: gives {value!r}; allowed: true or false"
        )
    return value
