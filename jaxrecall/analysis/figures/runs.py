"""What figures are drawn of: a table of runs, its axes, their means, where accuracy
crosses, and what theory says of all that.

This is the one place where figures use the formulas. A formula gets every setting of a
row. Where one is off its default and the formula does not know it, there is no
prediction, and `Runs.reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ... import theory
from ...errors import TheoryError, UsageError
from ...model.point import FIELDS
from ...model.values import is_missing
from ...sweep.grid.expr import parse
from ...theory import Model
from ...theory.noise import has_score_noise
from ..fit import Fit, cells, fit
from ..fit.axes import LAW, as_given, rounded, unknown_settings
from ..fit.runs import ALL, is_own
from .axis import columns_in
from .grammar import MAX_NAMED, Table, Values, values_of

ORDER = ("d", "L", "V", "m")
"""Widths and lengths stand before other axes."""

BANDS = ("sd", "quartiles")

LOCKED = 0.95
"""Attention counts as locked where its mass on the informative token is above this."""

NO_SETTINGS = ("foreign", "mass")
"""What a row says besides its settings: a column that no formula knows, and the
attention mass that was measured.
"""


@dataclass(frozen=True)
class Runs:
    """Runs with the column `accuracy` (fraction), the axis `along` which it crosses,
    and the other `axes` that vary.

    `given` is the table as the fit takes it.
    """

    given: Table
    rows: Table
    along: str
    axes: tuple[str, ...]

    @classmethod
    def of(cls, df: Table, along: str) -> Runs:
        """The runs of a table that have an accuracy; raises FitError."""
        axes, rows = varying(df, along), rows_of(df)
        if "n_correct" in rows:
            rows = rows[
                rows["n_correct"].notna()
                & ((rows[along] > 0) if along in rows else True)
            ]
        rows = rows.assign(
            **{
                name: rounded(rows[name])
                for name in axes
                if rows[name].dtype.kind == "f"
            }
        )
        return cls(df, rows.reset_index(drop=True), along, axes)

    @property
    def sizes(self) -> Table:
        """The axes that there are, for arithmetic."""
        return self.rows[
            [
                name
                for name in dict.fromkeys((self.along, *LAW, "N", *self.axes))
                if name in self.rows
            ]
        ]

    @property
    def every(self) -> list[str]:
        """All axes that vary."""
        return [*self.axes, *([self.along] if _varies(self.rows, self.along) else [])]

    @cached_property
    def levels(self) -> Table:
        """Mean accuracy over seeds at every place that was tested."""
        by = [*self.axes, self.along]
        return averaged(self.rows, by, "accuracy").join(
            _groups(self.rows, by)[[*self.sizes.columns.difference(by)]]
            .first()
            .reset_index(drop=True)
        )

    def settings(self, by: Sequence[str]) -> Table:
        """All settings of runs alike in the columns `by`, with what no formula knows of
        them, and how locked attention is.
        """
        names = [
            name
            for name in self.rows
            if (name in FIELDS or name == "step" or "." in name) and name not in by
        ]
        found = _groups(self.rows, by)[names].first()
        unknown = unknown_settings(self.rows, [*self.axes, self.along])
        found["foreign"] = (
            f"{unknown[0]}: got {self.rows[unknown[0]].dropna().tolist()[0]!r}"
            if unknown
            else ""
        )
        if "attention_mass" in self.rows:
            means = _groups(self.rows, [*self.axes, self.along])[
                "attention_mass"
            ].mean()
            found["mass"] = _groups(means.reset_index(), by)["attention_mass"].min()
        return found.reset_index(drop=not by)

    @cached_property
    def predicted(self) -> Table:
        """The levels with what theory says of their accuracy."""
        return self._predicted(
            self.levels,
            [*self.axes, self.along],
            lambda at: predicted(theory.accuracy, at, float(at["N"])),
        )

    def _predicted(
        self, table: Table, by: Sequence[str], formula: Callable[[Values], float | None]
    ) -> Table:
        """A table with the column `theory`, what a formula says of the settings of each
        of its rows.

        The column `assumes` says where it covers them only by assuming that attention
        is locked. Where attention was measured not to be, there is no prediction.
        """
        if is_own(self.rows):
            return table.assign(theory=np.nan, assumes=False)
        settings = self.settings(by)
        rows = settings.to_dict("records")
        assumes = [bool(predicted(_without_noise, row)) for row in rows]
        open_ = [
            assumed and row.get("mass", 1.0) <= LOCKED
            for row, assumed in zip(rows, assumes, strict=True)
        ]
        said = [
            None if is_open else formula(row)
            for row, is_open in zip(rows, open_, strict=True)
        ]
        settings = settings[[*by]].assign(
            theory=np.array(said, dtype=float), assumes=assumes
        )
        found = (
            table.merge(settings, on=[*by], how="left")
            if by
            else table.merge(settings, how="cross")
        )
        return found.assign(theory=found["theory"].replace([np.inf, -np.inf], np.nan))

    def fitted(
        self,
        thetas: Sequence[float],
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Fit:
        """Thresholds and laws along the axis."""
        return fit(
            self.given, thetas, step=ALL, along=self.along, on_progress=on_progress
        )

    def thresholds(self, found: Fit, theta: float, with_theory: bool = False) -> Table:
        """The thresholds, with what they come to, the law's, and along N theory's if
        that is asked for.

        `state`: crosses, levels off, not reached, above; `tried`: the level beyond
        which a censored one lies; `law`: the critical value by the law, null where the
        fit rejects it.
        """
        rows, exponents = (
            table[table["theta"] == theta].reset_index(drop=True)
            for table in (found.thresholds, found.exponents)
        )
        rows = with_law(with_states(rows), exponents, self.axes)
        if self.along != "N" or not with_theory:
            return rows.assign(theory=np.nan, assumes=False)
        return self._predicted(
            rows, self.axes, lambda at: predicted(theory.critical_N, at, theta)
        )

    def reason(self) -> str:
        """One sentence on the cells without a prediction of accuracy, with the first
        reason; nothing if there are none.
        """
        cells, why = self.settings(self.axes).to_dict("records"), []
        for cell in cells:
            try:
                _answer(theory.accuracy, cell, 1024.0)
            except TheoryError as refused:
                why.append(str(refused))
        return (
            f"Theory does not cover {len(why)} of {len(cells)} cells ({why[0]})."
            if why
            else ""
        )


def predicted(
    formula: Callable[..., Any], at: Mapping[str, Any], *arguments: Any
) -> Any:
    """What a formula says of a model; None where it does not cover the settings
    `at`.
    """
    try:
        return _answer(formula, at, *arguments)
    except TheoryError:
        return None


def _answer(formula: Callable[..., Any], at: Mapping[str, Any], *arguments: Any) -> Any:
    """What a formula says of all settings of a cell; raises the TheoryError that
    refuses them.
    """
    if at.get("foreign"):
        raise TheoryError(f"{at['foreign']}; covered by theory: no such column")
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in at.items()
        if name not in NO_SETTINGS
    }
    settings = {name: value for name, value in plain.items() if not is_missing(value)}
    for law in {
        name.partition(".")[0] for name in settings if "." in name
    }:  # the text of a law holds its numbers
        numbers = [
            f"{name.partition('.')[2]}={settings.pop(name)}"
            for name in [*settings]
            if name.startswith(f"{law}.")
        ]
        if law in settings and "(" not in settings[law]:
            settings[law] = f"{settings[law]}({', '.join(numbers)})"
    return _cached(formula, tuple(settings.items()), *arguments)


@lru_cache(maxsize=200_000)
def _cached(
    formula: Callable[..., Any], settings: tuple[tuple[str, Any], ...], *arguments: Any
) -> Any:
    return formula(Model.from_fields(dict(settings)), *arguments)


def _without_noise(model: Model) -> bool:
    """Whether theory covers a model only by assuming that its attention is locked."""
    return model.L > 1 and not has_score_noise(model)


def rows_of(df: Table) -> Table:
    """The rows of a table of runs with columns as a grid gives them, and with the
    column `accuracy` where they were counted.
    """
    rows = as_given(df)
    return (
        rows.assign(accuracy=rows["n_correct"] / rows["n_test"])
        if {"n_correct", "n_test"} <= {*rows}
        else rows
    )


def varying(df: Table, along: str) -> tuple[str, ...]:
    """The axes that vary but `along`, widths and lengths first: those of the fit, or of
    the metadata where there is nothing to fit.
    """
    listed = df.attrs.get("axes")
    if along not in df and listed:
        return tuple(name for name in listed if name != along and _varies(df, name))
    at = [cell.at for family in cells.families(df, along)[0] for cell in family.cells]
    names = (
        *(axis for axis in ORDER if axis in at[0]),
        *(axis for axis in at[0] if axis not in ORDER),
    )
    return tuple(axis for axis in names if len({str(one[axis]) for one in at}) > 1)


def _varies(df: Table, name: str) -> bool:
    return name in df and df[name].nunique(dropna=False) > 1


def _groups(rows: Table, by: Sequence[str]) -> Any:
    return rows.groupby([*by] if by else (lambda _: 0), dropna=False, observed=True)


def averaged(rows: Table, by: Sequence[str], y: str, band: str = "sd") -> Table:
    """A column over rows alike in `by`, with n_seeds and the ends `low` and `high` of a
    band.

    The band is one standard deviation around the mean, or the quartiles around the
    median.
    """
    by = list(dict.fromkeys(by))
    values = _groups(rows.dropna(subset=[y]), by)[y]
    if band == "quartiles":
        found = (
            values.quantile([0.25, 0.5, 0.75])
            .unstack()
            .set_axis(["low", y, "high"], axis=1)
        )
        return found.assign(n_seeds=values.count()).reset_index()
    found = values.agg(**{y: "mean", "n_seeds": "count"}).astype({y: float})
    sd = values.std(ddof=0)
    ends = (0.0, 1.0) if scale_of(rows[y]) == "fraction" else (-np.inf, np.inf)
    return found.assign(
        low=(found[y] - sd).clip(*ends), high=(found[y] + sd).clip(*ends)
    ).reset_index(drop=not by)


def scale_of(column: Table) -> str:
    """The scale that suits some values: "fraction" within 0 and 1, "log" for positive
    ones over a factor of 20, else "linear".
    """
    values = column.to_numpy(float, na_value=np.nan)
    known = values[np.isfinite(values)]
    if not len(known) or (known.min() >= 0 and known.max() <= 1):
        return "fraction"
    return "log" if known.min() > 0 and known.max() > 20 * known.min() else "linear"


def with_states(found: Table) -> Table:
    """Thresholds with the columns `state` and `tried`."""
    plateau = found["warning"].str.contains("plateau")
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
    """Thresholds with the column `law`: product of axis^exponent, times a constant for
    all other axes.
    """
    found = found.assign(law=np.nan, part="")
    for part, mine in exponents.groupby("part", sort=False):
        if mine["rejected"].any() or mine["exponent"].isna().any():
            continue
        rows = (
            found
            if part == "all" or "m" not in found
            else found[(found["m"] > 0) == (part == "m > 0")]
        )
        powers = sum(row.exponent * np.log(rows[row.axis]) for row in mine.itertuples())
        off, others = (
            np.log(rows["critical"]) - powers,
            [axis for axis in axes if axis not in {*mine["axis"]}],
        )
        constant = (
            off.groupby([rows[axis] for axis in others], dropna=False).transform(
                "median"
            )
            if others
            else off.median()
        )
        found.loc[rows.index, "law"] = np.exp(powers + constant)
        found.loc[rows.index, "part"] = part
    return found


def arranged(
    about: Table,
    every: Sequence[str],
    x: str | None = None,
    lines: Sequence[str] | None = None,
    panels: Sequence[str] = (),
) -> tuple[str | None, list[str], list[str]]:
    """What stands along x, what makes lines, and what panels: the choices that were
    made, and for the rest the next axis.

    Where x is arithmetic, such as m * d, the one of its axes with most values has no
    place of its own. Raises UsageError with everything that is wrong.
    """
    arithmetic = x is not None and x not in about
    problems = unknown("x", x, about) if arithmetic and x else []
    chosen = {
        "x": [x] if x and not arithmetic else [],
        "lines": [*(lines or [])],
        "panels": [*panels],
    }
    problems += [
        f"{place}: {axis!r}; allowed, as these vary: {', '.join(every) or 'none'}"
        for place, given in chosen.items()
        for axis in given
        if axis not in every and not (place == "x" and axis == "N")
    ]
    given = [axis for axes in chosen.values() for axis in axes]
    if twice := sorted({axis for axis in given if given.count(axis) > 1}):
        problems.append(
            f"{', '.join(chosen)}: {', '.join(twice)} more than once; an axis has one"
            " place"
        )
    if problems:
        raise UsageError(problems)
    rest = [axis for axis in every if axis not in given]
    x = x or (rest.pop(0) if rest else None)
    inside = [axis for axis in rest if x and axis in columns_in(x)]
    if inside:
        rest.remove(max(inside, key=lambda axis: about[axis].nunique()))
    taken = list(lines) if lines is not None else [rest.pop(0)] if rest else []
    return x, taken, [*panels, *(axis for axis in rest if axis not in taken)]


def in_one_panel(
    table: Table, lines: Sequence[str], panels: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Which axes make the lines and which the panels: where most panels would hold a
    single line, all make lines.
    """
    if not lines or not panels:
        return [*lines], [*panels]
    n_lines, n_panels = (
        len(values_of(table, [*lines, *panels])),
        len(values_of(table, panels)),
    )
    if n_panels > 2 and n_lines < 1.5 * n_panels and n_lines <= MAX_NAMED:
        return [*lines, *(axis for axis in panels if _varies(table, axis))], []
    return [*lines], [*panels]


def check_maps(pairs: Sequence[tuple[str, str]], table: Table) -> None:
    """Raises UsageError for axes of maps that are one twice, or neither columns of a
    table nor arithmetic on them.
    """
    axes = dict.fromkeys(axis for pair in pairs for axis in pair if axis not in table)
    problems = [problem for axis in axes for problem in unknown("phase", axis, table)]
    problems += [f"phase: {x!r} twice; allowed: two axes" for x, y in pairs if x == y]
    if problems:
        raise UsageError(problems)


def unknown(place: str, axis: str, table: Table) -> list[str]:
    """What is wrong with an axis that is no column of a table: it is no arithmetic on
    those either.
    """
    try:
        found = parse(axis, calls=False)
        if missing := sorted(found.names - {*table}):
            return [
                f"{place}: {axis!r} has no {', '.join(missing)}; allowed:"
                f" {', '.join(map(str, table))} and arithmetic, as in 'm * d'"
            ]
        for row in table[sorted(found.names)].drop_duplicates().to_dict("records"):
            found.evaluate(row)
    except ValueError as error:
        return [f"{place}: {error}"]
    return []
