"""The table of runs behind a figure: its axes, means and thresholds.

Among the modules for figures, this one alone asks the fit what a table says. It also
refuses figures in which rows would be averaged that differ in more than their seed:
their mean would be the value of no setting at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ...errors import UsageError
from ...model.point import FIELDS
from ...sweep.grid.expr import parse
from ...sweep.summary import MEAN, Summary
from ..fit import Fit, cells, fit
from ..fit.columns import Table, common, groups, n_values, seed_columns, without
from ..fit.repeated import (
    advise_on_copies,
    choose_one,
    list_values,
    tell_apart,
    tell_repeated_apart,
)
from ..fit.roles import ACCURACY, COUNTS, SETTINGS, Roles
from ..fit.steps import ALL
from ..fit.table_axes import (
    as_given,
    rounded,
    settings_of,
    unstated,
    without_switches,
)
from ..fit.tables import with_state
from .layers import values_of
from .style import label

ORDER = ("d", "L", "V", "m")
"""The axes that come before all others, in this order."""

BANDS = ("sd", "se", "95 %", "quartiles")
MAX_LINES = 20
"""The largest number of lines, or of their entries in the legend."""

MEASURE = "_measure"
"""The column of rows in the form of `rows_of` that contains the measure."""

PLACES = "lines, rows, columns or panels"

PROVENANCE = (
    "code_version",
    "precision",
    "n_test",
    "simulator",
    "form",
    "dtype",
    "device_kind",
    "jax_version",
)
"""The columns that can tell repeated runs apart and are neither settings nor measured.
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
            rows = rows[rows[MEASURE].notna()]
            if along in rows:
                rows = rows[rows[along] > 0]
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
        drawn = common([MEASURE], self.rows)
        check_one_run_per_seed(self.given, self.rows, self.roles, placed, drawn, places)

    def check_cells(self, placed: Sequence[str], places: str = "") -> None:
        """Raises UsageError if several cells have equal values of the columns `placed`,
        so that their critical values would share a place.
        """
        rows = with_columns(self.rows, *placed)
        if several := tell_apart(rows, placed, self.axes):
            refuse_several(self.given, rows, several, places)

    @property
    def sizes(self) -> Table:
        """The table with only the columns that arithmetic may use."""
        names = dict.fromkeys((self.along, *self.roles.numbers, *self.axes))
        return self.rows[common(names, self.rows)]

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
        return measure_label(self.roles, self.rows[MEASURE])

    @cached_property
    def is_fraction(self) -> bool:
        return scale_of(self.rows[MEASURE]) == "fraction"

    @property
    def every(self) -> list[str]:
        """The list of all axes that vary, including `along`."""
        return [*self.axes, *([self.along] if _varies(self.rows, self.along) else [])]

    @cached_property
    def levels(self) -> Table:
        """The mean accuracy over seeds at every tested combination of the axes."""
        by = [*self.axes, self.along]
        others = groups(self.rows, by)[without(self.sizes, by)].first()
        means = averaged(self.rows, by, MEASURE, self.band)
        return means.join(others.reset_index(drop=True))

    @cached_property
    def is_search(self) -> bool:
        """Whether the runs are those of a search: more than a quarter of the levels
        have less than half as many seeds as the level of their cell with the most.
        """
        n_seeds = self.levels["n_seeds"]
        most = groups(self.levels, self.axes)["n_seeds"].transform("max")
        return (n_seeds < 0.5 * most).mean() > 0.25

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
        """Returns the thresholds at theta, with the columns of `with_tried` and
        `law`, the critical value that the fitted law predicts.
        """
        stars = found.thresholds[found.thresholds["theta"] == theta]
        powers = found.exponents[found.exponents["theta"] == theta]
        stars = with_tried(stars.reset_index(drop=True))
        return with_law(stars, powers, self.axes)


def rows_of(df: Table, roles: Roles) -> Table:
    """Returns the rows of a table of runs in the form that `as_given` returns.

    The rows also have the column MEASURE, if the table has a measure. If answers were
    counted, the fraction of correct answers replaces the column `accuracy`.
    """
    rows = as_given(df, roles)
    if roles.counted and {*COUNTS} <= {*rows}:
        rows = rows.assign(**{roles.measure: rows["n_correct"] / rows["n_test"]})
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
    every = pd.concat([family.at.astype(str) for family in families])
    axes = [*common(ORDER, every), *without(every, ORDER)]
    return tuple(axis for axis in axes if _varies(every, axis))


def _varies(df: Table, name: str) -> bool:
    return name in df and df[name].nunique(dropna=False) > 1


def is_setting(name: str) -> bool:
    """Whether a column contains a setting of the runs."""
    return name in FIELDS or name == "step" or "." in name


def foreign_setting(runs: Runs) -> str:
    """Returns a text about a column of settings that no formula covers, or ""."""
    if runs.roles.axes is not None:
        return ""
    for name in unstated(runs.rows, runs.roles):
        column = runs.rows[name]
        if n_values(runs.rows, name) == 1 and column.notna().all():
            return f"{name}: got {column.tolist()[0]!r}"
    return ""


def averaged(rows: Table, by: Sequence[str], y: str, band: str = "sd") -> Table:
    """Returns a table of the mean of a column for each combination of values in `by`.

    The column n_seeds is the number of averaged rows. The columns `low` and `high` are
    the ends of a band. The band "sd" is one standard deviation around the mean, "se"
    one standard error, and "95 %" the interval of the mean by Student's t. The band
    "quartiles" lies between the quartiles, and the median replaces the mean.
    """
    by = list(dict.fromkeys(by))
    values = groups(rows.dropna(subset=[y]), by)[y]
    means = values.agg(**{y: "mean", "n_seeds": "count"}).astype({y: float})
    if band == "quartiles":
        low, means[y], high = (values.quantile(q) for q in (0.25, 0.5, 0.75))
    else:
        half = values.std(ddof=0)
        if band != "sd":
            half = values.std(ddof=1) / np.sqrt(means["n_seeds"])
        if band == "95 %":
            half *= stdtrit((means["n_seeds"] - 1).clip(lower=1), 0.975)
        low, high = means[y] - half, means[y] + half
        if scale_of(rows[y]) == "fraction":
            low, high = low.clip(0.0, 1.0), high.clip(0.0, 1.0)
    return means.assign(low=low, high=high).reset_index(drop=not by)


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


def measure_label(roles: Roles, values: Table) -> str:
    """Returns the label of the measure that has these values."""
    is_fraction = scale_of(values) == "fraction"
    return label(roles.measure, roles) + (" (fraction)" if is_fraction else "")


def with_tried(thresholds: Table) -> Table:
    """Returns thresholds with the columns `state`, and `tried`: the level beyond which
    a threshold that does not cross lies.
    """
    tried = thresholds["N_above"].where(
        thresholds["censored"] == "left", thresholds["N_below"]
    )
    tried = tried.astype(float).mask(thresholds["censored"] == "no")
    return with_state(thresholds).assign(tried=tried)


def with_law(found: Table, exponents: Table, axes: Sequence[str]) -> Table:
    """Returns thresholds with the column `law`, which the fitted law predicts, and
    `part`, the part of the table that the law is about.

    The law is the product of axis^exponent, times a constant. There is one constant for
    each combination of values of the other axes. It is null if the fit rejects the law.
    """
    found = found.assign(law=np.nan, part="")
    for part, powers in exponents.groupby("part", sort=False):
        if powers["rejected"].any() or powers["exponent"].isna().any():
            continue
        rows = found
        if part != "all" and "m" in found:
            rows = found[(found["m"] > 0) == (part == "m > 0")]
        log_power = 0.0
        for row in powers.itertuples():
            log_power = log_power + row.exponent * np.log(rows[row.axis])
        others = [rows[axis] for axis in without(axes, {*powers["axis"]})]
        off = np.log(rows["critical"]) - log_power
        constant = groups(off.to_frame("off"), others)["off"].transform("median")
        found.loc[rows.index, "law"] = np.exp(log_power + constant)
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
    Raises UsageError for an axis that has no place, or two.
    """
    chosen = {"x": [x] if x in about else [], "lines": lines or (), "panels": panels}
    if x:
        check_arithmetic("x", x, about)
    given = [axis for axes in chosen.values() for axis in axes]
    for place, axes in chosen.items():
        allowed = [*every, "N"] if place == "x" else every
        if wrong := without(axes, allowed):
            raise UsageError(
                f"{place}: got {wrong[0]!r}; allowed: an axis that varies, of"
                f" {', '.join(every) or 'none'}"
            )
    if twice := sorted({axis for axis in given if given.count(axis) > 1}):
        raise UsageError(
            f"{', '.join(chosen)}: {', '.join(twice)} more than once; an axis has one"
            " place"
        )
    rest = without(every, given)
    if not x and rest:
        x = rest.pop(0)
    if inside := [axis for axis in rest if x and axis in columns_in(x)]:
        rest.remove(max(inside, key=lambda axis: about[axis].nunique()))
    if lines is None:
        lines, rest = rest[:1], rest[1:]
    return Places(x or None, [*lines], [*panels, *rest])


def in_one_panel(
    table: Table, lines: Sequence[str], panels: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Returns the axes that make lines and the axes that make panels.

    If most panels would contain a single line, all axes make lines.
    """
    if lines and panels:
        n_lines = len(values_of(table, [*lines, *panels]))
        n_panels = len(values_of(table, panels))
        if n_panels > 2 and n_lines < 1.5 * n_panels and n_lines <= MAX_LINES:
            return [*lines, *(axis for axis in panels if _varies(table, axis))], []
    return [*lines], [*panels]


def check_maps(pairs: Sequence[tuple[str, str]], table: Table) -> None:
    """Raises UsageError unless the two axes of each map differ and are columns of the
    table, or arithmetic on its columns.
    """
    for x, y in pairs:
        check_arithmetic("phase", x, table)
        check_arithmetic("phase", y, table)
        if x == y:
            raise UsageError(f"phase: x and y are both {x!r}; give two different axes")


def check_arithmetic(argument: str, axis: str, table: Table) -> None:
    """Raises UsageError unless an axis is a column of the table, or arithmetic."""
    try:
        missing = sorted(parse(axis, calls=False).names - {*table})
        if not missing:
            with_columns(table, axis)
    except ValueError as error:
        raise UsageError(f"{argument}: {error}") from error
    if missing:
        raise UsageError(
            f"{argument}: got {axis!r}, but no column {', '.join(missing)}; allowed:"
            f" {', '.join(map(str, table))} and arithmetic, as in 'm * d'"
        )


def columns_in(name: str) -> frozenset[str]:
    """Returns the columns that an axis uses: itself, or those in its arithmetic."""
    try:
        return parse(name, calls=False).names
    except ValueError:
        return frozenset([name])


def with_columns(table: Table, *axes: str) -> Table:
    """Returns the table with a column for each axis that is arithmetic.

    Raises KeyError for a missing column, and ValueError for what is no arithmetic.
    """
    for axis in axes:
        if axis not in table:
            expression = parse(axis, calls=False)
            rows = table[sorted(expression.names)].to_dict("records")
            table = table.assign(**{axis: list(map(expression.evaluate, rows))})
    return table


def check_one_run_per_seed(
    df: Table,
    rows: Table,
    roles: Roles,
    placed: Sequence[str],
    drawn: Sequence[str],
    places: str = PLACES,
) -> None:
    """Raises UsageError if rows with one place in a figure differ in more than a seed.

    Args:
        df: the table of runs as the user has it.
        rows: the rows to draw, in the form of `rows_of`, with the index of `df`.
        roles: the roles of the columns.
        placed: the columns that have a place in the figure, or arithmetic on columns.
        drawn: the columns whose values are averaged. Rows without them are ignored.
        places: the arguments that may give a place to a column.
    """
    if several := settings_apart(rows, roles, placed, drawn):
        refuse_several(df, rows, several, places)
    rows = _drawn_rows(rows, placed, drawn)
    rows, _ = without_switches(rows, roles)
    point = [*dict.fromkeys(placed), *seed_columns(rows)]
    results = (roles.measure, *drawn, MEASURE)
    names = without(rows, (*roles.known, *point, *results)) + common(PROVENANCE, rows)
    check_one_row(df, rows, point, names, places, (*results, *COUNTS))


def settings_apart(
    rows: Table, roles: Roles, placed: Sequence[str], drawn: Sequence[str]
) -> list[str]:
    """Returns the settings that tell apart rows with one place in a figure.

    Settings that follow from the columns with a place are left out.
    """
    rows = _drawn_rows(rows, placed, drawn)
    several = _lying_apart(rows, roles, placed)
    names = without(settings_of(rows, roles), (*drawn, MEASURE, roles.measure))
    return several + tell_apart(rows, [*placed, *several], names)


def _drawn_rows(rows: Table, placed: Sequence[str], drawn: Sequence[str]) -> Table:
    if drawn:
        rows = rows.dropna(subset=[*drawn], how="all")
    return with_columns(rows, *placed)


def check_one_row(
    df: Table,
    rows: Table,
    point: Sequence[str],
    names: Sequence[str],
    places: str,
    results: Sequence[str] = (),
) -> None:
    """Raises UsageError if several rows have equal values of `point`.

    The message says which of the columns `names` tell such rows apart. If none does,
    rows with equal `results` are called copies.
    """
    rows = with_columns(rows, *point)
    repeated = rows[rows.duplicated([*point], keep=False)]
    if repeated.empty:
        return
    if several := tell_repeated_apart(repeated, point, names):
        refuse_several(df, rows, several, places)
    columns = [column for name in point for column in sorted(columns_in(name))]
    advice = advise_on_copies(df.loc[rows.index], columns, results)
    raise UsageError(
        f"df: {rows.duplicated([*point]).sum()} rows have the same"
        f" {', '.join(dict.fromkeys(columns))} as another row; {advice}"
    )


def refuse_several(
    df: Table, rows: Table, names: Sequence[str], places: str = ""
) -> NoReturn:
    """Raises UsageError because rows have several values of the columns `names`.

    The message contains an expression that selects rows of `df` with one value of each
    column. `rows` has the index of `df`.
    """
    stored = df.loc[rows.index]
    values = ", ".join(f"{name} ({list_values(stored[name])})" for name in names)
    advice = f"choose one, as in {choose_one(stored, names)}"
    if "seed" not in df and df[names[0]].dtype.kind in "iu":
        seeds = f'df.rename(columns={{"{names[0]}": "seed"}})'
        advice += f", or, if it numbers the seeds, draw {seeds}"
    if places:
        them = names[0] if len(names) == 1 else "them"
        advice += f", or name {them} in {places}"
    raise UsageError(
        f"df: several values of {values} at one place of the figure; {advice}"
    )


def _lying_apart(rows: Table, roles: Roles, placed: Sequence[str]) -> list[str]:
    """Returns the listed axes that would be mixed along a line, though not averaged.

    In a search, for example, two cells may have no level in common. An axis that is a
    function of the levels is left out.
    """
    along = roles.along or "N"
    across = [name for name in placed if along not in columns_in(name)]
    if along not in rows or len(across) == len(placed):
        return []
    used = frozenset().union(*map(columns_in, placed))
    axes = without(common(roles.axes or (), rows), used)
    by_level = groups(rows, [along])
    return [
        name
        for name in tell_apart(rows, across, axes)
        if by_level[name].nunique(dropna=False).max() > 1
    ]
