"""The table of runs behind a figure: its axes, means and thresholds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from ...errors import UsageError
from ...model.point import FIELDS
from ...sweep.grid.expr import parse
from ...sweep.summary import MEAN, Summary
from ..fit import Fit, cells, fit
from ..fit.columns import Table, common, n_values
from ..fit.roles import ACCURACY, COUNTS, SETTINGS, Roles
from ..fit.steps import ALL
from ..fit.table_axes import as_given, rounded, unstated
from ..fit.tables import PLATEAU, with_state
from .averages import MEASURE, PLACES, check_one_run_per_seed, refuse_several
from .axis import columns_in, with_columns
from .grammar import MAX_LINES
from .layers import values_of
from .several import telling
from .style import measure_label

ORDER = ("d", "L", "V", "m")
"""The axes that come before all others, in this order."""

BANDS = ("sd", "se", "95 %", "quartiles")


NO_SETTINGS = ("foreign", "mass")
"""The columns of `Runs.settings` that are not settings.

`foreign` is a text about a column that no formula covers. `mass` is the measured
attention mass.
"""


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
    along: str
    axes: tuple[str, ...]
    summary: Summary = MEAN

    @classmethod
    def of(cls, df: Table, roles: Roles, along: str, summary: Summary = MEAN) -> Runs:
        """Returns the runs of a table, without rows that lack the measure.

        For a share of seeds, the measure of a run is 1 if it has reached the level of
        `summary`, else 0.

        Raises FitError if the table cannot be fitted. Raises UsageError if runs at one
        level of a cell differ in more than the seed.
        """
        axes = varying(df, roles, along)
        rows = rows_of(df, roles)
        if MEASURE in rows:
            kept = rows[MEASURE].notna()
            if along in rows:
                kept = kept & (rows[along] > 0)
            rows = rows[kept]
        for name in axes:
            if rows[name].dtype.kind == "f":
                rows = rows.assign(**{name: rounded(rows[name])})
        if summary.is_share:
            rows = rows.assign(**{MEASURE: summary.values(rows[MEASURE], 0.0)})
        runs = cls(df, rows, roles, along, axes, summary)
        runs.check([*axes, *common([along], rows)], "")
        return runs

    def check(self, placed: Sequence[str], places: str = PLACES) -> None:
        """Raises UsageError if runs with equal values of the columns `placed` differ in
        more than the seed. `places` are the arguments that give a place to a column.
        """
        check_one_run_per_seed(
            self.given,
            self.rows,
            self.roles,
            placed=placed,
            drawn=common([MEASURE], self.rows),
            places=places,
        )

    def check_cells(self, placed: Sequence[str], places: str = "") -> None:
        """Raises UsageError if several cells have equal values of the columns `placed`,
        so that their critical values would share a place.
        """
        rows = with_columns(self.rows, *placed)
        if found := telling(rows, placed, self.axes):
            refuse_several(self.given, rows, found, places)

    @property
    def sizes(self) -> Table:
        """The table with only the columns that arithmetic may use."""
        names = dict.fromkeys((self.along, *self.roles.numbers, *self.axes))
        return self.rows[[name for name in names if name in self.rows]]

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
        named = measure_label(self.roles, self.is_fraction)
        if self.summary.is_share:
            return f"{self.measure} (fraction)"
        return named

    @cached_property
    def is_fraction(self) -> bool:
        return scale_of(self.rows[MEASURE]) == "fraction"

    @property
    def every(self) -> list[str]:
        """The list of all axes that vary, including `along`."""
        if _varies(self.rows, self.along):
            return [*self.axes, self.along]
        return [*self.axes]

    @cached_property
    def levels(self) -> Table:
        """The mean accuracy over seeds at every tested combination of the axes."""
        by = [*self.axes, self.along]
        others = _groups(self.rows, by)[[*self.sizes.columns.difference(by)]].first()
        means = averaged(self.rows, by, MEASURE, self.band)
        return means.join(others.reset_index(drop=True))

    def settings(self, by: Sequence[str]) -> Table:
        """Returns a table with one row of settings for each combination of values in
        the columns `by`.

        The table also has the columns NO_SETTINGS. `foreign` is the same text in all
        rows, and is empty if formulas cover every column. `mass` is present only if it
        was measured.
        """
        names = [name for name in self.rows if is_setting(name) and name not in by]
        found = _groups(self.rows, by)[names].first()
        found["foreign"] = ""
        names = unstated(self.rows, self.roles) if self.roles.axes is None else ()
        unknown = [name for name in names if n_values(self.rows, name) == 1]
        if unknown and self.rows[unknown[0]].notna().all():
            value = self.rows[unknown[0]].dropna().tolist()[0]
            found["foreign"] = f"{unknown[0]}: got {value!r}"
        if "attention_mass" in self.rows:
            places = _groups(self.rows, [*self.axes, self.along])
            means = places["attention_mass"].mean().reset_index()
            found["mass"] = _groups(means, by)["attention_mass"].min()
        return found.reset_index(drop=not by)

    def fitted(
        self,
        thetas: Sequence[float],
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Fit:
        """Returns the fit, with the thresholds and laws along the axis `along`."""
        return fit(
            self.given,
            thetas,
            step=ALL,
            along=self.along,
            of=self.roles.measure,
            summary=str(self.summary),
            on_progress=on_progress,
        )

    def thresholds(self, found: Fit, theta: float) -> Table:
        """Returns the thresholds at theta, with these additional columns:

        - state: crosses, levels off, not reached, or above.
        - tried: the level beyond which a censored threshold lies.
        - law: the critical value that the fitted law predicts. It is null if the fit
          rejects the law.
        """
        rows = _of_theta(found.thresholds, theta)
        exponents = _of_theta(found.exponents, theta)
        return with_law(with_states(rows), exponents, self.axes)


def rows_of(df: Table, roles: Roles) -> Table:
    """Returns the rows of a table of runs in the form that `as_given` returns.

    The rows also have the column MEASURE, if the table has a measure. If answers were
    counted, the fraction of correct answers replaces the column `accuracy`.
    """
    rows = as_given(df, roles)
    if roles.counted and {*COUNTS} <= {*rows}:
        accuracy = rows["n_correct"] / rows["n_test"]
        return rows.assign(**{roles.measure: accuracy, MEASURE: accuracy})
    if roles.measure in rows:
        return rows.assign(**{MEASURE: rows[roles.measure]})
    return rows


def varying(df: Table, roles: Roles, along: str) -> tuple[str, ...]:
    """Returns the axes of the fit that vary, except `along`; those in ORDER come first.

    If the table has no column `along`, its metadata determine the axes.
    """
    if along not in df and roles.axes:
        return tuple(name for name in roles.axes if name != along and _varies(df, name))
    families, _ = cells.families(df, roles, along)
    places = [cell.at for family in families for cell in family.cells]

    def rank(axis: str) -> int:
        return ORDER.index(axis) if axis in ORDER else len(ORDER)

    def varies(axis: str) -> bool:
        return len({str(place[axis]) for place in places}) > 1

    return tuple(filter(varies, sorted(places[0], key=rank)))


def _varies(df: Table, name: str) -> bool:
    return name in df and df[name].nunique(dropna=False) > 1


def is_setting(name: str) -> bool:
    """Whether a column contains a setting of the runs."""
    return name in FIELDS or name == "step" or "." in name


def _of_theta(table: Table, theta: float) -> Table:
    return table[table["theta"] == theta].reset_index(drop=True)


def _groups(rows: Table, by: Sequence[str]) -> Any:
    if by:
        return rows.groupby([*by], dropna=False, observed=True)
    return rows.groupby(lambda _: 0)


def averaged(rows: Table, by: Sequence[str], y: str, band: str = "sd") -> Table:
    """Returns a table of the mean of a column for each combination of values in `by`.

    The column n_seeds is the number of averaged rows. The columns `low` and `high` are
    the ends of a band. The band "sd" is one standard deviation around the mean, "se"
    one standard error, and "95 %" the interval of the mean by Student's t. The band
    "quartiles" lies between the quartiles, and the median replaces the mean.
    """
    by = list(dict.fromkeys(by))
    values = _groups(rows.dropna(subset=[y]), by)[y]
    if band == "quartiles":
        found = values.quantile([0.25, 0.5, 0.75]).unstack()
        found = found.set_axis(["low", y, "high"], axis=1)
        return found.assign(n_seeds=values.count()).reset_index()
    found = values.agg(**{y: "mean", "n_seeds": "count"}).astype({y: float})
    half = _half_width(values, found["n_seeds"], band)
    low = found[y] - half
    high = found[y] + half
    if scale_of(rows[y]) == "fraction":
        low = low.clip(0.0, 1.0)
        high = high.clip(0.0, 1.0)
    return found.assign(low=low, high=high).reset_index(drop=not by)


def _half_width(values: Any, n_seeds: Table, band: str) -> Table:
    """Returns the half-width of the band of grouped values. It is nan for a single
    value, unless the band is "sd".
    """
    if band == "sd":
        return values.std(ddof=0)
    error = values.std(ddof=1) / np.sqrt(n_seeds)
    if band == "se":
        return error
    return stdtrit((n_seeds - 1).clip(lower=1), 0.975) * error


def scale_of(column: Table) -> str:
    """The axis scale that suits the values of a column.

    The scale is "fraction" if all values are between 0 and 1. It is "log" if they are
    positive and span more than a factor of 20, and otherwise "linear".
    """
    values = column.to_numpy(float, na_value=np.nan)
    known = values[np.isfinite(values)]
    if not len(known) or (known.min() >= 0 and known.max() <= 1):
        return "fraction"
    if known.min() > 0 and known.max() > 20 * known.min():
        return "log"
    return "linear"


def with_states(found: Table) -> Table:
    """Returns thresholds with the columns `state` and `tried` of `Runs.thresholds`."""
    found = with_state(found)
    plateau = found["state"] == PLATEAU
    states = np.select(
        [found["censored"] == "no", found["censored"] == "left", plateau],
        ["crosses", "above", "levels off"],
        "not reached",
    )
    tried = found["N_above"].where(found["censored"] == "left", found["N_below"])
    return found.assign(
        state=states, tried=tried.astype(float).mask(states == "crosses")
    )


def with_law(found: Table, exponents: Table, axes: Sequence[str]) -> Table:
    """Returns thresholds with the column `law`, which the fitted law predicts.

    The law is the product of axis^exponent, times a constant. There is one constant for
    each combination of values of the other axes.
    """
    found = found.assign(law=np.nan, part="")
    for part, mine in exponents.groupby("part", sort=False):
        if mine["rejected"].any() or mine["exponent"].isna().any():
            continue
        rows = found
        if part != "all" and "m" in found:
            rows = found[(found["m"] > 0) == (part == "m > 0")]
        powers = sum(row.exponent * np.log(rows[row.axis]) for row in mine.itertuples())
        off = np.log(rows["critical"]) - powers
        others = [axis for axis in axes if axis not in {*mine["axis"]}]
        constant = off.median()
        if others:
            groups = off.groupby([rows[axis] for axis in others], dropna=False)
            constant = groups.transform("median")
        found.loc[rows.index, "law"] = np.exp(powers + constant)
        found.loc[rows.index, "part"] = part
    return found


class Places(NamedTuple):
    """The axis along x, the axes that make lines, and the axes that make panels."""

    x: str | None
    lines: list[str]
    panels: list[str]


def arranged(
    about: Table,
    every: Sequence[str],
    x: str | None = None,
    lines: Sequence[str] | None = None,
    panels: Sequence[str] = (),
) -> Places:
    """Returns the axes that are along x, make lines, or make panels.

    Axes that were not chosen fill the remaining places in order. If x is arithmetic,
    such as m * d, one of its axes gets no other place: the one with the most values.
    Raises UsageError with a list of all problems.
    """
    chosen = {"x": [], "lines": [*(lines or [])], "panels": [*panels]}
    problems = []
    if x and x in about:
        chosen["x"] = [x]
    elif x:
        problems = unknown("x", x, about)
    given = []
    for place, axes in chosen.items():
        given += axes
        allowed = [*every, "N"] if place == "x" else every
        problems += [
            f"{place}: got {axis!r}; allowed: an axis that varies, of"
            f" {', '.join(every) or 'none'}"
            for axis in axes
            if axis not in allowed
        ]
    twice = sorted({axis for axis in given if given.count(axis) > 1})
    if twice:
        problems.append(
            f"{', '.join(chosen)}: {', '.join(twice)} more than once; an axis has one"
            " place"
        )
    if problems:
        raise UsageError(problems)
    rest = [axis for axis in every if axis not in given]
    if not x and rest:
        x = rest.pop(0)
    inside = [axis for axis in rest if x and axis in columns_in(x)]
    if inside:
        rest.remove(max(inside, key=lambda axis: about[axis].nunique()))
    if lines is None:
        chosen["lines"] = rest[:1]
        rest = rest[1:]
    return Places(x or None, chosen["lines"], [*panels, *rest])


def in_one_panel(
    table: Table, lines: Sequence[str], panels: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Returns the axes that make lines and the axes that make panels.

    If most panels would contain a single line, all axes make lines.
    """
    if lines and panels:
        n_lines = len(values_of(table, [*lines, *panels]))
        n_panels = len(values_of(table, panels))
        are_single = n_panels > 2 and n_lines < 1.5 * n_panels
        if are_single and n_lines <= MAX_LINES:
            return [*lines, *(axis for axis in panels if _varies(table, axis))], []
    return [*lines], [*panels]


def check_maps(pairs: Sequence[tuple[str, str]], table: Table) -> None:
    """Raises UsageError for maps that cannot be drawn.

    The two axes of a map must differ. Each must be a column of the table, or arithmetic
    on its columns.
    """
    problems = []
    for axis in dict.fromkeys(axis for pair in pairs for axis in pair):
        if axis not in table:
            problems += unknown("phase", axis, table)
    for x, y in pairs:
        if x == y:
            problems.append(f"phase: x and y are both {x!r}; give two different axes")
    if problems:
        raise UsageError(problems)


def unknown(place: str, axis: str, table: Table) -> list[str]:
    """Returns a list of problems with an axis that is not a column of a table.

    The list is empty if the axis is valid arithmetic on the columns.
    """
    try:
        found = parse(axis, calls=False)
        missing = sorted(found.names - {*table})
        if missing:
            return [
                f"{place}: got {axis!r}, but no column {', '.join(missing)}; allowed:"
                f" {', '.join(map(str, table))} and arithmetic, as in 'm * d'"
            ]
        for row in table[sorted(found.names)].drop_duplicates().to_dict("records"):
            found.evaluate(row)
    except ValueError as error:
        return [f"{place}: {error}"]
    return []
