"""Fits thresholds N* to a table of runs, and a scaling law to the thresholds.

According to the law, N* is proportional to the product of axis^exponent over the axes.
The modules of this package work in this order:

- `reading` reads tables, `steps` chooses rows by their step, and `measure` chooses what
  is measured.
- `roles` states what columns are, and `checks` checks their values.
- `table_axes` chooses the axes, which are the columns of settings that vary.
- `repeated` finds the columns that tell rows apart, and gives advice on copies.
- `cells` combines the rows into curves, and groups the curves into families.
- `estimate` computes where the curves of a family cross theta. It then fits the law and
  computes intervals.
- `misfit` tells the distance of cells from the law from noise.
- `compare` compares two conditions seed by seed, and `forms` compares forms of a law.
- `tables` makes the rows of the three result tables, and `write` writes the output.

The function `fit` runs these steps for every family, theta and regime of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from ...errors import FitError, as_list, expect, refusal, shown
from ...model.values import as_number, is_missing
from ...sweep.crossing import AnyCurve, edge_of
from ...sweep.grid.expr import Expression, parse
from ...sweep.summary import ALLOWED, MEAN, Summary, parsed
from . import cells, tables
from .cells import Family
from .columns import AxisValue, Table, common, without
from .compare import compare_values
from .estimate import (
    Estimates,
    curve,
    estimate_at_best,
    estimate_means,
    split_by_level,
    summarised,
    without_axis,
)
from .forms import compare_forms
from .measure import choose_along, choose_law, choose_measure
from .reading import plain_table
from .roles import Names, roles_of, with_stated
from .steps import ALL, LAST, Steps, at_steps
from .write import summarise

__all__ = ["Fit", "fit"]

MAX_THETAS = 1000
FRACTIONS = (
    f"fractions between 0 and 1, up to {MAX_THETAS} of them, as in 0.5 0.9; for a"
    " measure that is no fraction, numbers in its units"
)
TEXTS = "a text or a list of texts"


@dataclass(frozen=True, repr=False)
class Fit:
    """The three pandas tables of a fit, and remarks on the rows and axes.

    The command `fit` writes the same tables. A fit unpacks as `thresholds, exponents,
    diagnostics = fit(frame)`. Printing a fit shows a summary. The tables of a
    comparison and of forms of the law are None unless they were asked for.
    """

    thresholds: Table
    exponents: Table
    diagnostics: Table
    remarks: list[str]
    comparison: Table | None = None
    forms: Table | None = None

    def __iter__(self) -> Iterator[Table]:
        return iter((self.thresholds, self.exponents, self.diagnostics))

    def __repr__(self) -> str:
        notes = map("note: {}".format, self.remarks)
        return "\n".join([*notes, *summarise(self)])


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
    compare: str | None = None,
    floor: str | None = None,
    summary: str = "mean",
    axes: Names = None,
    average: Names = None,
) -> Fit:
    """Returns the thresholds, exponents and diagnostics of a table of runs.

    The table is one that `load` or `run` returned, or any other table with a column
    `seed`, a column of the axis `along`, and a column of the measure.

    Args:
        frame: one row per run; runs that train have one row per recorded step.
        thetas: the accuracy (fraction) that curves must cross, or several of them. For
            a measure that is no fraction, numbers in its units.
        resamples: has no effect, because intervals are computed by leaving out one seed
            at a time. The argument exists so that older calls still work.
        on_progress: a function that is called with the number of estimated curves and
            the total number of curves. A curve counts once for each theta.
        where: restricts the law to the cells for which an expression of the axes is
            true, such as "L**2 > 10 * V**1.5 * d**0.5". With several expressions, there
            is one law for each. The column `regime` contains its expression.
        along: the axis along which accuracy crosses theta: N, d, m, V, L or any other
            column of numbers greater than 0. The default is the axis of a search, else
            N, else the only axis of numbers. Along m and step, rows with 0 are
            ignored.
        step: the step of the rows to fit, for runs that train: "last", a step, several
            steps, or "all". With several steps, `step` is an axis.
        of: the column that crosses theta: the accuracy, or any other measured column,
            such as "attention_mass" or "test_loss". If it has values outside 0 to 1,
            its mean is compared with theta, along straight lines between the levels.
        best: an axis, such as a rate. Each cell uses the value of this axis at which
            accuracy crosses theta first. The value is chosen again whenever a seed is
            left out. A column of the thresholds contains the chosen value.
        by: an axis. There is a separate law for each value of this axis, as for each
            expression of `where`.
        law: a column of numbers that are 0 or greater. The law then describes the mean
            of this column over seeds instead of a threshold, and `along` is an axis of
            the law. Points whose mean is 0 are left out.
        compare: an axis. The table `comparison` of the fit then has, for each value of
            this axis, the ratio of N* to that at the first value, and the differences
            of exponents. The seeds of both are left out together.
        floor: an axis, or "" for the only axis of the law. The table `forms` of the fit
            then compares A x^p, E + A x^p and E + A ln x along this axis. It has E, A
            and p with their intervals, and errors at the largest sizes, left out.
        summary: what crosses theta: the "mean" over seeds, the "median", or the share
            of seeds whose measure is at least a level, as in "above 0.9".
        axes: the columns that are settings, for a table that does not state them. If
            None, these are all columns that vary, and a remark names them.
        average: the columns over which the measure is averaged within each seed. If
            None, these are further seeds, such as a column data_seed.

    Raises:
        FitError: if the table or an argument cannot be used. The message has one line
            per problem.
    """
    frame = with_stated(plain_table("frame", frame), axes, average)
    thetas, where, chosen = numbers(thetas), _texts(where), chosen_summary(summary)
    if law is not None and best is not None:
        raise FitError(f"best: got {best!r} with law; allowed: one of the two")
    roles = roles_of(frame)
    if law is None:
        roles = choose_measure(frame, roles, of)
    else:
        roles = choose_law(frame, roles, law)
    along = choose_along(frame, roles, along)
    step = ALL if along == "step" and step == LAST else step
    families, remarks = cells.families(at_steps(frame, step), roles, along)
    columns = _axis_columns(families[0])
    if law is None:
        _check_thetas(thetas, families[0].is_fraction or chosen.is_share)
    else:
        families = [split_by_level(family, law) for family in families]
    laws = _regimes(families, where, by, best)
    thresholds, exponents, diagnostics, compared, forms = [], [], [], [], []
    done, total = 0, len(thetas) * sum(len(family.cells) for family in families)
    for family, regimes in zip(families, laws, strict=True):
        for estimates in _estimates(family, thetas, best, chosen):
            if law is None:
                thresholds += tables.thresholds(estimates)
            for regime, among in regimes.items():
                within = estimates.within(among)
                rows = tables.exponents(within, regime)
                exponents += rows
                diagnostics += tables.diagnose(within, rows, regime)
                if compare is not None:
                    compared += compare_values(within, compare, regime)
                if floor is not None:
                    forms += compare_forms(within, floor, regime)
            done += len(family.cells)
            on_progress(done, total)
    diagnostics += [tables.diagnostic("remark", remark) for remark in remarks]
    frames = tables.frames(columns, thresholds, exponents, diagnostics)
    for table in frames:
        table.attrs["of"] = roles.measure
    if law is not None:
        columns = [*columns, along]
    further = {}
    if compare is not None:
        rest = without(columns, [compare])
        further["comparison"] = tables.frame(rest, tables.COMPARISON, compared)
    if floor is not None:
        further["forms"] = tables.frame(columns, tables.FORMS, forms)
    return Fit(*frames, remarks, **further)


def numbers(thetas: float | Sequence[float]) -> list[float]:
    """Returns a list of the distinct numbers in `thetas`.

    Raises FitError if one is not a finite number.
    """
    if isinstance(thetas, Real):
        given = [thetas]
    else:
        given = as_list("theta", thetas, FRACTIONS, FitError, MAX_THETAS)
    checked = [as_number(theta, float) for theta in given]
    wrong = [shown(given[i], 40) for i, n in enumerate(checked) if n is None]
    if wrong or not given:
        raise refusal("theta", ", ".join(wrong) or "[]", FRACTIONS, FitError)
    return list(dict.fromkeys(checked))


def _texts(where: str | Sequence[str]) -> list[str]:
    """Returns a list of the distinct expressions in `where`.

    Raises FitError if an expression is not a text.
    """
    if isinstance(where, str):
        return [where]
    texts = as_list("where", where, TEXTS, FitError, MAX_THETAS)
    for text in texts:
        expect("where", text, str, TEXTS, FitError)
    return list(dict.fromkeys(texts))


def chosen_summary(text: object) -> Summary:
    """Returns the summary that a text names. Raises FitError if it names none."""
    summary = parsed(text)
    if summary is None:
        raise refusal("summary", shown(text), ALLOWED, FitError)
    return summary


def _check_thetas(thetas: Sequence[float], is_fraction: bool) -> None:
    """Raises FitError if a theta cannot be crossed by a fraction."""
    wrong = [theta for theta in thetas if not 0 < theta < 1]
    if wrong and is_fraction:
        raise refusal("theta", ", ".join(map(str, wrong)), FRACTIONS, FitError)


def _axis_columns(family: Family) -> list[str]:
    """Returns the names of the axes, and of the other columns that describe a cell.

    Raises FitError if an axis has the same name as a column of the thresholds.
    """
    cell = family.cells[0]
    if clash := common(cell.at, tables.THRESHOLDS):
        raise FitError(
            f"columns: {', '.join(clash)} is an axis here and a column of the"
            " thresholds; rename it"
        )
    return [*cell.at, *without(cell.names, tables.THRESHOLDS)]


def _estimates(
    family: Family, thetas: Sequence[float], best: str | None, summary: Summary
) -> Iterator[Estimates]:
    """Yields the estimates of a family at each theta.

    If the law describes a column, yields the means of the column instead.
    """
    if family.what:
        yield estimate_means(family)
        return
    given = list(map(family.mirrored, thetas))
    crossed = list(map(summary.crossed, given))
    curves: list[AnyCurve] = []
    for theta, level in zip(given, crossed, strict=True):
        compared = summarised(family, summary, theta)
        edge = edge_of(*crossed) if compared.is_fraction else 0.0
        if best:
            estimates = estimate_at_best(compared, level, edge, best)
        else:
            if not curves or summary != MEAN:
                curves = [curve(cell, compared, edge) for cell in compared.cells]
            crossings = [one.crossing(level) for one in curves]
            estimates = Estimates(compared, level, curves, crossings)
        if summary != MEAN:
            estimates = replace(estimates, asked=family.mirrored(theta))
        yield estimates


def _regimes(
    families: Sequence[Family],
    where: Sequence[str],
    by: str | None,
    best: str | None,
) -> list[dict[str, list[bool]]]:
    """Returns, for each family, a dict from the expression of a law to a mask of cells.

    There is a law for each expression, and for each value of the axis `by` if an axis
    is given. If neither is given, a single law with the expression "" contains all
    cells. Raises FitError for an expression that cannot be parsed, or that is true for
    no cell at all.
    """
    if best:
        families = [without_axis(family, best) for family in families]
    axes = list(families[0].cells[0].at)
    if by is not None:
        where = _by_value(families, axes, by, where)
    if not where:
        return [{"": [True] * len(family.cells)} for family in families]
    expressions = [_read(text, axes) for text in where]
    regimes = []
    for family in families:
        laws = {}
        for expression in expressions:
            among = [_holds(expression, cell.at) for cell in family.cells]
            if any(among):
                laws[expression.text] = among
        regimes.append(laws)
    if empty := without(where, set().union(*regimes)):
        raise FitError(list(map("where: {!r} holds for no cell".format, empty)))
    return regimes


def _by_value(
    families: Sequence[Family], axes: Sequence[str], by: str, where: Sequence[str]
) -> list[str]:
    """Returns an expression for each value of the axis `by`.

    If `where` contains expressions, each of them is combined with each value. Raises
    FitError if `by` is not an axis.
    """
    cells.check_axis("by", by, axes)
    values: dict[AxisValue, None] = {}
    for family in families:
        values |= dict.fromkeys(cell.at[by] for cell in family.cells)
    each = [f"{by} == {_literal(value)}" for value in values if not is_missing(value)]
    if not where:
        return each
    return [f"({text}) and {one}" for text in where for one in each]


def _literal(value: AxisValue) -> str:
    """Returns the text of a value as a literal in an expression."""
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
