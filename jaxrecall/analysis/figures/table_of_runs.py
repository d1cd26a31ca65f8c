"""The table of runs behind a figure: its axes, means and thresholds.

Among the modules for figures, this one alone asks the fit what a table says. It also
refuses figures in which rows would be averaged that differ in more than their seed:
their mean would be the value of no setting at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import scipy

from ...errors import UsageError, shortened, suggest
from ...model.values import is_missing
from ...sweep.summary import MEAN, Summary
from ..fit import Fit, fit
from ..fit.cells import refuse_runs_twice, rows_of_cells
from ..fit.checks import tried
from ..fit.columns import (
    ColumnNames,
    Table,
    common,
    groups,
    seed_columns,
    varying,
    without,
)
from ..fit.measure import ALL
from ..fit.roles import ACCURACY, COUNTS, SETTINGS, Roles
from ..fit.table_axes import as_given, rounded, settings_of, tell_apart
from ..fit.tables import OF_SIDES
from .style import label

ORDER = ("d", "L", "V", "m")
"""The axes that get a place before all others, in this order."""

MEASURE = "_measure"
"""The column of rows in the form of `rows_of` that contains the measure."""

FEW = 3
"""The largest number of values of a column that a message lists."""

BANDS = ("sd", "se", "95 %", "quartiles")
PLACES = "lines, rows, columns or panels"


@dataclass(frozen=True)
class Runs:
    """The runs of a table, with the measure in the column MEASURE.

    `roles` are the roles of its columns. `along` is the axis along which the measure
    crosses theta, and `axes` are the other axes that vary. `given` is the table that
    the fit uses, and `rows` has its index.
    """

    given: Table
    rows: Table
    roles: Roles
    along: str = ""
    axes: tuple[str, ...] = ()
    summary: Summary = MEAN

    @classmethod
    def of(cls, df: Table, roles: Roles, along: str, summary: Summary = MEAN) -> Runs:
        """Returns the runs of a table that were to measure.

        Raises FitError if the table cannot be fitted. Raises UsageError if runs at one
        level of a cell differ in more than the seed.
        """
        used, axes, _ = rows_of_cells(df, roles, along)
        axes = in_order(varying(used, axes))
        rows = tried(rows_of(df, roles, summary), roles, MEASURE)
        rows = rows[rows[along] > 0]
        for name in axes:
            rows = rows.assign(**{name: rounded(rows[name])})
        runs = cls(df, rows, roles, along, tuple(axes), summary)
        runs.check(runs.every)
        return runs

    def check(
        self,
        placed: ColumnNames,
        drawn: ColumnNames = (MEASURE,),
        places: str = "",
        makes_lines: bool = False,
    ) -> list[str]:
        """Raises UsageError if runs with one place in a figure differ in more than a
        seed, and FitError if runs come more than once.

        Returns the settings that tell such runs apart if `makes_lines`, and otherwise
        raises UsageError for them, too. Settings that follow from the columns with a
        place are left out.

        Args:
            placed: the columns that have a place in the figure.
            drawn: the columns that are averaged. Rows without them are ignored.
            places: the arguments that may give a place to a column.
            makes_lines: whether settings without a place get one.
        """
        rows, roles = self.rows, self.roles
        if drawn := common(drawn, rows):
            rows = rows.dropna(subset=drawn, how="all")
        several = []
        if self.is_search and roles.along in placed:
            # the cells of a search may have no level in common
            axes = without(common(roles.axes or (), rows), placed)
            several = tell_apart(rows, without(placed, [roles.along]), axes)
        settings = without(settings_of(rows, roles), (roles.measure, *drawn, MEASURE))
        several += tell_apart(rows, [*placed, *several], settings)
        if several and not makes_lines:
            refuse_several(self.given, rows, several, places)
        point = [*dict.fromkeys([*placed, *several]), *seed_columns(rows)]
        refuse_runs_twice(self.given, rows, roles, point)
        return several

    @property
    def has_theory(self) -> bool:
        """Whether theory predicts what is drawn: the mean accuracy of our model."""
        is_predicted = self.roles.measure == ACCURACY and self.summary == MEAN
        return self.roles.is_ours and is_predicted and {*SETTINGS} <= {*self.rows}

    @property
    def band(self) -> str:
        """The band of lines. The numbers of a share are 0 or 1, so their standard
        deviation would say nothing.
        """
        return {"median": "quartiles", "above": "95 %"}.get(self.summary.kind, "sd")

    @property
    def measure(self) -> str:
        """The name of what crosses theta, such as accuracy or median accuracy."""
        if self.summary == MEAN:
            return self.roles.measure
        if self.summary.is_share:
            return f"seeds with {self.roles.measure} from {self.summary.level:g}"
        return f"{self.summary} {self.roles.measure}"

    @property
    def label(self) -> str:
        """The label of the summary of the measure."""
        if self.summary.is_share:
            return f"{self.measure} (fraction)"
        return label(self.roles.measure, self.roles)

    @property
    def every(self) -> list[str]:
        """The list of all axes that vary, including `along`."""
        return [*self.axes, *common([self.along], self.rows)]

    def means(self, by: ColumnNames) -> Table:
        """Returns the means of the measure, as `averaged` does."""
        return averaged(self.rows, by, MEASURE, self.band)

    @property
    def is_search(self) -> bool:
        """Whether the runs are those of a threshold search."""
        return bool(self.given.attrs.get("searched"))

    def fitted(self, thetas: Sequence[float], **options: Any) -> Fit:
        """Returns the fit, with the thresholds and laws along the axis `along`."""
        return fit(
            self.given,
            thetas,
            step=ALL,
            along=self.along,
            of=self.roles.measure,
            summary=str(self.summary),
            **options,
        )

    def thresholds(self, estimates: Fit, theta: float) -> Table:
        """Returns the thresholds at theta, with the columns of `with_tried`."""
        stars = estimates.thresholds[estimates.thresholds["theta"] == theta]
        return with_tried(stars.reset_index(drop=True))


def rows_of(df: Table, roles: Roles, summary: Summary = MEAN) -> Table:
    """Returns the rows of a table of runs in the form that `as_given` returns.

    The rows also have the column MEASURE, if the table has a measure. If answers were
    counted, the fraction of correct answers replaces the column `accuracy`. For a share
    of seeds, MEASURE is 1 if a run has reached the level of `summary`, else 0.
    """
    rows = as_given(df, roles)
    if roles.counted and {*COUNTS} <= {*rows}:
        rows = rows.assign(**{roles.measure: rows["n_correct"] / rows["n_test"]})
    if roles.measure in rows:
        measure = tried(rows, roles, roles.measure)[roles.measure]
        if summary.is_share:
            reached = summary.values(measure.fillna(-np.inf), 0.0)
            measure = pd.Series(reached, measure.index)
        rows = rows.assign(**{MEASURE: measure})
    return rows


def in_order(axes: Iterable[str]) -> list[str]:
    """Returns the list of axes; those in ORDER come first."""
    axes = [*axes]
    return [*common(ORDER, axes), *without(axes, ORDER)]


def averaged(rows: Table, by: ColumnNames, y: str, band: str = "sd") -> Table:
    """Returns a table of the mean of a column for each combination of values in `by`.

    The column n_seeds is the number of averaged rows, and n_lost that of rows without a
    value. The columns `low` and `high` are the ends of a band. The band "sd" is one
    standard deviation around the mean, "se" one standard error, and "95 %" the interval
    of the mean by Student's t. The band "quartiles" lies between the quartiles, and the
    median replaces the mean.
    """
    by = list(dict.fromkeys(by))
    values = groups(rows, by)[y]
    means = values.agg(**{y: "mean", "n_seeds": "count", "n_lost": "size"})
    means = means.astype({y: float})
    means["n_lost"] -= means["n_seeds"]
    if band == "quartiles":
        low, means[y], high = (values.quantile(q) for q in (0.25, 0.5, 0.75))
    else:
        half = values.std(ddof=0) if band == "sd" else values.sem()
        if band == "95 %":
            half *= scipy.special.stdtrit((means["n_seeds"] - 1).clip(lower=1), 0.975)
        low, high = means[y] - half, means[y] + half
    return means.assign(low=low, high=high).reset_index(drop=not by)


def with_tried(thresholds: Table) -> Table:
    """Returns thresholds with the columns `state`, and `tried`: the level beyond which
    a threshold that does not cross lies. Any other table is returned as it is.
    """
    if not {"censored", "N_below", "N_above"} <= {*thresholds}:
        return thresholds
    is_above = thresholds["censored"] == "left"
    tried = thresholds["N_above"].where(is_above, thresholds["N_below"])
    tried = tried.astype(float).mask(thresholds["censored"] == "no")
    if "state" not in thresholds:  # as in tables of earlier versions
        states = thresholds["censored"].map(OF_SIDES)
        thresholds = thresholds.assign(state=states)
    return thresholds.assign(tried=tried)


def predict_by_law(
    stars: Table, exponents: Table, axes: ColumnNames
) -> Iterator[Table]:
    """Yields the thresholds that cross with the column `law`, the critical value that
    the fitted law predicts. There is a table for each part that has a law.

    The law is the product of axis^exponent, times a constant. There is one constant for
    each combination of values of the other axes. Laws that the fit rejects are left
    out.
    """
    stars = stars[stars["critical"].notna()]
    for part, powers in exponents.groupby("part", sort=False):
        if powers["rejected"].any() or powers["exponent"].isna().any():
            continue
        rows = stars
        if part != "all" and "m" in stars:
            rows = stars[(stars["m"] > 0) == (part == "m > 0")]
        sizes = rows[[*powers["axis"]]].astype(float)
        log_power = np.log(sizes) @ powers["exponent"].to_numpy()
        rows = rows.assign(off=np.log(rows["critical"]) - log_power)
        others = without(axes, {*powers["axis"]})
        constant = groups(rows, others)["off"].transform("median")
        yield rows.assign(law=np.exp(log_power + constant))


Places = tuple[str, list[str], list[str]]
"""The axis along x, which is empty if there is none, the axes that make lines, and the
axes that make panels.
"""


def arranged(
    every: ColumnNames,
    x: str | None = None,
    lines: ColumnNames | None = None,
    panels: ColumnNames = (),
) -> Places:
    """Returns the axes that are along x, make lines, or make panels.

    Axes that were not chosen fill the remaining places in order. Raises UsageError for
    an axis that is not in `every`, or that has two places.
    """
    given = [*filter(None, [x]), *(lines or ()), *panels]
    if wrong := without(given, every):
        raise UsageError(
            f"x, lines, panels: got {wrong[0]!r}; allowed: an axis that varies, of"
            f" {', '.join(every) or 'none'}"
        )
    check_one_place(given, "x, lines, panels")
    rest = without(in_order(every), given)
    if not x and rest:
        x = rest.pop(0)
    if lines is None:
        lines, rest = rest[:1], rest[1:]
    return x or "", [*lines], [*panels, *rest]


def check_one_place(names: ColumnNames, places: str) -> None:
    """Raises UsageError if a name occurs twice."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"{places}: {', '.join(twice)} more than once; a column has one place"
        )


def expect_columns(table: Table, names: Iterable[str]) -> None:
    """Raises UsageError if the table lacks a column."""
    known = [str(column) for column in table if str(column)[:1] != "_"]
    for name in without(names, table):
        raise UsageError(
            f"columns: got {name!r}{suggest(name, known)}; allowed: {', '.join(known)}"
        )


def refuse_several(
    df: Table, rows: Table, names: ColumnNames, places: str = ""
) -> NoReturn:
    """Raises UsageError because rows have several values of the columns `names`.

    `rows` has the index of `df`.
    """
    stored = df.loc[rows.index]
    values = ", ".join(f"{name} ({list_values(stored[name])})" for name in names)
    advice = "choose one of each"
    if places:
        them = names[0] if len(names) == 1 else "them"
        advice += f", or name {them} in {places}"
    raise UsageError(
        f"df: several values of {values} at one place of the figure; {advice}"
    )


def list_values(column: Table) -> str:
    """Returns a text with the first values of a column, text in double quotes."""
    values = column.drop_duplicates()
    texts = []
    for value in values.head(FEW):
        text = "missing" if is_missing(value) else repr(value)
        if isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False)
        texts.append(shortened(text, 60))
    if len(values) > FEW:
        texts.append(f"and {len(values) - FEW} more")
    return ", ".join(texts)
