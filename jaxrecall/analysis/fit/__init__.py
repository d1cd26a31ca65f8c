"""Fits thresholds N* to a table of runs, and a scaling law to the thresholds.

According to the law, N* is proportional to the product of axis^exponent over the axes.
The modules of this package work in this order:

- `reading` reads tables, and `measure` chooses what is measured, and rows by their
  step.
- `roles` states what columns are, and `checks` checks their values.
- `table_axes` chooses the axes, which are the columns of settings that vary.
- `cells` combines the rows into curves, and groups the curves into families.
- `estimate` computes where the curves of a family cross theta. It then fits the law and
  computes intervals.
- `misfit` tells the distance of cells from the law from noise.
- `compare` compares two conditions seed by seed, `forms` compares forms of a law, and
  `predict` extends a law to new sizes.
- `tables` makes the rows of the three result tables, and `write` writes the output.

The function `fit` runs these steps for every family, theta and regime of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from numbers import Real

from ...errors import FitError, as_list, expect, refusal, shown
from ...model.values import as_number
from ...sweep.grid.expr import Expression, parse
from ...sweep.summary import ALLOWED, Summary, parsed
from . import cells, tables
from .additive import add_powers
from .cells import Family
from .columns import ColumnNames, Row, Table, common, without
from .compare import compare_values
from .estimate import estimate
from .forms import compare_forms
from .measure import ALL, LAST, at_steps, choose_along, choose_measure
from .predict import Sizes, parse_sizes, predict_law
from .reading import plain_table
from .roles import Names, roles_of, with_stated
from .write import summarise

__all__ = ["Fit", "fit"]

MAX_THETAS = 1000
FRACTIONS = (
    f"fractions between 0 and 1, up to {MAX_THETAS} of them, as in 0.5 0.9; for a"
    " measure that is no fraction, numbers in its units"
)
PRODUCTS = "numbers greater than 0, together with additive"
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
    predictions: Table | None = None
    additive: Table | None = None

    def __iter__(self) -> Iterator[Table]:
        return iter((self.thresholds, self.exponents, self.diagnostics))

    def __repr__(self) -> str:
        notes = map("note: {}".format, self.remarks)
        return "\n".join([*notes, *summarise(self)])


def fit(
    frame: Table,
    thetas: float | Sequence[float] = (0.5,),
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    where: str | Sequence[str] = (),
    step: str = LAST,
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
    predict: str | Sizes | Sequence[str | Sizes] = (),
    additive: bool = False,
    product: float | Sequence[float] | None = None,
) -> Fit:
    """Returns the thresholds, exponents and diagnostics of a table of runs.

    The table is one that `load` or `run` returned, or any other table with a column
    `seed`, a column of the axis `along`, and a column of the measure.

    Args:
        frame: one row per run; runs that train have one row per recorded step.
        thetas: the accuracy (fraction) that curves must cross, or several of them. For
            a measure that is no fraction, numbers in its units.
        on_progress: a function that is called with the number of estimated curves and
            the total number of curves. A curve counts once for each theta.
        where: restricts the law to the configurations for which an expression of the
            axes is true, such as "L**2 > 10 * V**1.5 * d**0.5". With several
            expressions, there is one law for each. The column `regime` contains its
            expression.
        along: the axis along which accuracy crosses theta: N, d, m, V, L or any other
            column of numbers greater than 0. The default is the axis of a search, else
            N, else the only axis of numbers. Along m and step, rows with 0 are
            ignored.
        step: the rows to fit, for runs that train: those at the "last" step of each
            point, or those at "all" recorded steps. With "all", `step` is an axis, and
            `where` may choose steps, as in "step == 30".
        of: the column that crosses theta: the accuracy, or any other measured column,
            such as "attention_mass" or "test_loss". If it has values outside 0 to 1,
            its mean is compared with theta, along straight lines between the levels.
        best: an axis, such as a rate. Each configuration uses the value at which
            accuracy crosses theta first. The value is chosen again whenever a seed is
            left out. A column of the thresholds contains the chosen value. In the law
            of a mean, the best value has the largest mean, or the smallest if the
            column falls along the axis `along`.
        by: an axis. There is a separate law for each value of this axis, as for each
            expression of `where`.
        law: a column of numbers that are 0 or greater. The law then describes the mean
            of this column over seeds instead of a threshold, and `along` is an axis of
            the law. Points whose mean is 0 are left out.
        compare: an axis. The table `comparison` of the fit then has, for each value of
            this axis, the ratio of N* to that at the first value, and the differences
            of exponents. The seeds of both are left out together, so that draws they
            share cancel. The column `quantity` contains "ratio" for two cells that
            differ in the axis alone, "mean ratio" for the geometric mean over such
            pairs, or "exponent of d" for the difference of two exponents. The column
            `correlation` contains that of the errors of the two cells of a pair.
        floor: an axis, or "" for the only axis of the law. The table `forms` of the fit
            then compares A x^p with E + A x^p along this axis. It has E, A and p with
            their intervals, and errors at the largest sizes, left out.
        summary: what crosses theta: the "mean" over seeds, the "median", or the
            fraction of seeds whose measure is at least a level, as in "above 0.9".
        axes: the columns that are settings, for a table that does not state them. If
            None, these are all columns that vary, and a remark names them.
        average: the columns over which the measure is averaged within each seed. If
            None, these are further seeds, such as a column data_seed.
        predict: new sizes, as in "V=1024,d=512" or {"V": 1024, "d": 512}, or a list of
            them. The table `predictions` of the fit then has the value of each law
            there, and its prefactor, with 95 % intervals.
        additive: whether the table `additive` of the fit has the law E + A x^p + B z^q
            + ... over all axes of the law, each of which needs an exponent. A table of
            one run for each setting then needs no column `seed`.
        product: values of the product of all axes of the law. The table `additive` then
            has the axes that make the law smallest at each of these products.

    Raises:
        FitError: if the table or an argument cannot be used. The message has one line
            per problem.
    """
    frame = plain_table("frame", frame)
    if additive and "seed" not in frame:
        frame = frame.assign(seed=0)
    frame = with_stated(frame, axes, average)
    products = [] if product is None else numbers(product, "product", PRODUCTS)
    if products and not (additive and min(products) > 0):
        raise refusal("product", shown(product), PRODUCTS, FitError)
    thetas, chosen = numbers(thetas), chosen_summary(summary)
    roles = roles_of(frame)
    roles = choose_measure(frame, roles, of if law is None else law, law is not None)
    along = choose_along(frame, roles, along, is_law=law is not None)
    step = ALL if along == "step" and step == LAST else step
    families, remarks = cells.families(
        at_steps(frame, step), roles, along, law or "", chosen.is_share
    )
    first = families[0]
    if clash := common(first.at, tables.COLUMNS_OF["thresholds"]):
        raise FitError(
            f"columns: {', '.join(clash)} is an axis here and a column of the"
            " thresholds; rename it"
        )
    wrong = [str(theta) for theta in thetas if not 0 < theta < 1]
    if wrong and law is None and (first.is_fraction or chosen.is_share):
        raise refusal("theta", ", ".join(wrong), FRACTIONS, FitError)
    laws, used = _laws(families, where, by, best), set()
    sizes = parse_sizes(predict)
    on_request = {
        "comparison": compare is not None,
        "forms": floor is not None,
        "additive": additive,
        "predictions": sizes,
    }
    rows = {name: [] for name in tables.COLUMNS_OF if on_request.get(name, True)}
    done, total = 0, len(thetas) * sum(len(family.cells) for family in families)
    for family in families:
        for estimates in estimate(family, thetas, best, chosen):
            if law is None:
                rows["thresholds"] += tables.thresholds(estimates)
            settings = estimates.family.settings.to_dict("records")
            for regime, expression in laws.items():
                among = [i for i, at in enumerate(settings) if _holds(expression, at)]
                if not among:
                    continue
                used.add(regime)
                within = estimates.take(among)
                facts = {
                    "theta": estimates.theta,
                    "part": family.name,
                    "regime": regime,
                    "along": family.critical,
                }
                exponents = tables.exponents(within)
                made = {
                    "exponents": exponents,
                    "diagnostics": tables.diagnose(within, exponents),
                    "predictions": chain(*(predict_law(within, one) for one in sizes)),
                    "comparison": compare_values(within, compare or ""),
                    "forms": compare_forms(within, floor or ""),
                    "additive": add_powers(within, products),
                }
                # generators: what was not requested is not computed
                for name in common(made, rows):
                    rows[name] += [facts | row for row in made[name]]
            done += len(family.cells)
            on_progress(done, total)
    if empty := without(laws, used):
        raise FitError(
            list(map("where: {!r} holds for no configuration".format, empty))
        )
    if sizes and not rows["predictions"]:
        raise FitError("predict: no law has these settings; allowed: those of cells")
    if additive and not rows["additive"]:
        raise FitError(
            "additive: no law has three values of each axis, more configurations than"
            " unknowns, and no axis without an exponent (use by or where)"
        )
    rows["diagnostics"] += [tables.REMARK | {"text": remark} for remark in remarks]
    columns = [*first.at, *without(first.names, tables.COLUMNS_OF["thresholds"])]
    predicted = dict.fromkeys(name for wanted in sizes for name in wanted)
    kept = {"thresholds": without(columns, [along]), "predictions": predicted}
    made = {}
    for name in rows:
        first_columns = kept.get(name, ())
        made[name] = tables.make_frame(name, columns, first_columns, rows[name])
        made[name].attrs["of"] = roles.measure
    return Fit(remarks=remarks, **made)


def numbers(
    values: float | Sequence[float], argument: str = "theta", allowed: str = FRACTIONS
) -> list[float]:
    """Returns a list of the distinct numbers in `values`.

    Raises FitError if one is not a finite number.
    """
    if isinstance(values, Real):
        given = [values]
    else:
        given = as_list(argument, values, allowed, FitError, MAX_THETAS)
    checked = dict.fromkeys(as_number(value, float) for value in given)
    if None in checked or not checked:
        raise refusal(argument, shown(given), allowed, FitError)
    return [*checked]


def chosen_summary(text: object) -> Summary:
    """Returns the summary that a text names. Raises FitError if it names none."""
    summary = parsed(text)
    if summary is None:
        raise refusal("summary", shown(text), ALLOWED, FitError)
    return summary


def _laws(
    families: Sequence[Family],
    where: str | Sequence[str],
    by: str | None,
    best: str | None,
) -> dict[str, Expression]:
    """Returns the expressions that select the cells of the laws, by their texts.

    There is a law for each expression, and for each value of the axis `by` if an axis
    is given. If `where` contains expressions, too, each of them is combined with each
    value. If neither is given, the only law, of all cells, has an empty text. Raises
    FitError for an expression that cannot be parsed.
    """
    axes = without(families[0].settings, [best])
    texts = [where] if isinstance(where, str) else where
    texts = as_list("where", texts, TEXTS, FitError, MAX_THETAS)
    if by is not None:
        cells.check_axis("by", by, axes)
        equals = {}
        for family in families:
            for value in family.settings[by].dropna().tolist():
                is_bool = isinstance(value, bool)
                literal = str(value).lower() if is_bool else repr(value)
                equals[f"{by} == {literal}"] = None
        pairs = product(texts, equals)
        texts = [f"({text}) and {one}" for text, one in pairs] if texts else [*equals]
    if not texts:
        return {"": parse("true", calls=False)}
    return {text: _read(text, axes) for text in texts}


def _read(text: str, axes: ColumnNames) -> Expression:
    expect("where", text, str, TEXTS, FitError)
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


def _holds(expression: Expression, at: Row) -> bool:
    try:
        value = expression.evaluate(at)
    except ValueError as error:
        raise FitError(f"where: {error}") from None
    if not isinstance(value, bool):
        raise FitError(
            f"where: {expression.text!r}: gives {value!r}; allowed: true or false"
        )
    return value
