"""A whole fit: every family, theta and regime of a table, as three tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import FitError, as_list, expect, refusal, shown
from ...model.values import as_number
from ...sweep.crossing import edge_of
from ...sweep.grid.expr import parse
from . import cells, tables
from .axes import along_of
from .cells import Cell, Family
from .estimate import Estimates, curve
from .runs import LAST, Steps, at_steps, crossing
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
    thetas: Sequence[float] = (0.5,),
    resamples: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    where: str | Sequence[str] = (),
    step: Steps = LAST,
    along: str | None = None,
    of: str = "accuracy",
) -> Fit:
    """Thresholds, exponents and diagnostics of a table of runs, as `load` and `run` return it.

    Any other table needs columns V, N, d, L, m, seed, n_test, n_correct, or the column
    `of` in place of the last two.

    Args:
        frame: one row per run, of runs that train on one per recorded step.
        thetas: accuracies to cross, fractions.
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

    Raises:
        FitError: with one line per problem.
    """
    expect_table("frame", frame)
    thetas = fractions(thetas)
    listed = [where] if isinstance(where, str) else as_list("where", where, TEXTS, FitError, MAX_THETAS)
    where = [*dict.fromkeys(expect("where", text, str, TEXTS, FitError) for text in listed)]
    frame = crossing(frame, of)
    families, remarks = cells.families(at_steps(frame, step), along_of(frame, along))
    axes = list(families[0].cells[0].at)
    if clash := [name for name in axes if name in tables.THRESHOLDS]:
        raise FitError(f"columns: {', '.join(clash)} is an axis here and a column of the thresholds; rename it")
    laws = regimes(families, where)
    rows: Rows = [], [], []
    done, total = 0, len(thetas) * sum(len(family.cells) for family in families)
    for family, by_regime in zip(families, laws, strict=True):
        curves = [curve(cell, edge_of(*thetas)) for cell in family.cells]
        rows[2].append(tables.dispersion(family))
        for theta in thetas:
            theta = family.mirrored(theta)
            _add(rows, Estimates(family, theta, curves, [one.crossing(theta) for one in curves]), by_regime)
            on_progress(done := done + len(curves), total)
    rows[2].extend({"part": "", "diagnostic": "remark", "subject": "", "text": remark, "regime": ""} for remark in remarks)
    what = of if of != "accuracy" else frame.attrs.get("accuracy", of)
    return Fit(*tables.frames(axes, *rows, what), remarks)


def _add(rows: Rows, found: Estimates, by_regime: dict[str, Family]) -> None:
    """Adds the rows of a family at one theta."""
    thresholds, exponents, diagnostics = rows
    thresholds += tables.thresholds(found)
    for regime, part in by_regime.items():
        mine = found.within(part)
        exponents += (of_law := tables.exponents(mine, regime))
        diagnostics += [row | {"regime": regime} for row in tables.diagnose(mine, of_law)]


def expect_table(argument: str, frame: Any) -> None:
    """Raises FitError for what is no table of pandas."""
    import pandas as pd

    expect(argument, frame, pd.DataFrame, "a table as jaxrecall.load and jaxrecall.run return it", FitError)


def fractions(thetas: Any) -> list[float]:
    """Accuracies to cross, each once; raises FitError for anything else."""
    given = as_list("theta", thetas, FRACTIONS, FitError, MAX_THETAS)
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
