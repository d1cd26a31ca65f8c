"""What a report is about: the cells of a table, their curves
as the fit sees them, the laws, and which axis goes where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ...errors import FitError, UsageError
from ...model.point import FIELDS
from ...sweep.store.load import with_names
from ..fit import axes, cells
from ..fit.estimate import Law
from ..fit.fitting import Fit, fit
from ..fit.runs import ALL, traced
from . import predict
from .axis import columns_in, expression
from .grammar import arranged, banded
from .style import settings

SPREAD = 1.5
"""Levels within this factor may be drawn as one, if no seed ran at two of them."""

Table = Any  # pandas.DataFrame, whose own types say less than Any
Names = Sequence[str]
ORDER = ("d", "L", "V", "m")
LOCKED = 0.95
"""Attention counts as locked where its mass on the informative token is above this."""

NOT_MEASURED = {"point_id", "seed", *FIELDS, "n_correct", "accuracy", "n_tied", "draw_check", "seconds", "code_version"}
OWN = ("cell", "level", "part", "sd", "n_seeds", "state", "law", "low", "high", "tried", "foreign", "locked_from")
"""Columns with a meaning of their own in a report."""


@dataclass(frozen=True)
class Study:
    """A table with its fit, by cell and level.

    `along` is the axis of the levels, usually N. `cells`: one row per cell, with its
    settings and the name of its family (column `part`), `foreign`, what no formula
    knows of, and `locked_from`, the level from which attention is locked. `levels`: one
    row per cell (column `cell`) and level, with `accuracy`, the mean over its runs
    (fraction), `sd` over seeds and the band `low` to `high`, `n_seeds`, and the mean of
    whatever else was measured. `runs` are the rows that have a count, with their `cell`
    and their `level`, the index of a row of `levels`; `rows` are all rows. `axes` are
    those that vary between cells.

    `traces` are the rows of every step of runs that train on, as a study whose `axes`
    lack the step, or None. `surrogate_seeds` are draws of the locked-attention
    surrogate; 0 leaves it out.
    """

    rows: Table
    runs: Table
    cells: Table
    levels: Table
    axes: tuple[str, ...]
    families: list[cells.Family]
    thetas: list[float]
    fit: Fit
    surrogate_seeds: int
    traces: Study | None = None

    @property
    def along(self) -> str:
        return self.families[0].along

    def at(self, cell: int) -> str:
        """A cell's name: d = 64, L = 8."""
        return settings(self.cells.loc[cell], self.axes) if self.axes else "the only cell"

    def where(self, level: Any) -> str:
        """A level's name: d = 64, L = 8, N = 1024."""
        return settings(self.levels.loc[level], (*self.axes, self.along))

    def first_and_last(self, rows: Table) -> tuple[Table, Table]:
        """The rows of the first and of the last step of each curve,
        row by row; of levels a curve is a cell at one of them.
        """
        by = [*self.axes, *([self.along] if self.along in rows else [])]
        curves = rows.sort_values([*by, "step"]).groupby(by or (lambda _: 0), dropna=False)
        return curves.head(1).reset_index(drop=True), curves.tail(1).reset_index(drop=True)

    def means(self, column: str, within: tuple[float, float] = (0.0, 1.0)) -> Table:
        """The levels with a band of one standard deviation
        over seeds around the mean of a column of the runs.
        """
        if column == "accuracy":
            return self.levels
        over_seeds = self.runs.groupby("level")[column].std(ddof=0).reindex(self.levels.index)
        return banded(self.levels.assign(sd=over_seeds), column, within)

    def asked(self, formula: Callable[[Any, float], float | None]) -> Table:
        """What a formula of the settings of a cell and N says of
        each level; nan where it says nothing, as along other axes.
        """
        cells = self.cells.to_dict("index")
        found = [formula(cells[row.cell], float(row.N)) if self.along == "N" else None for row in self.levels.itertuples()]
        return pd.Series(found, self.levels.index, dtype=float)

    @cached_property
    def references(self) -> dict[int, float]:
        """The accuracy without an MLP of each cell, where the levels are widths of it."""
        return dict(enumerate(cell.reference for family in self.families for cell in family.cells))

    @cached_property
    def predicted_accuracy(self) -> Table:
        """Theory's accuracy at each level; nan where theory does not reach."""
        return self.asked(predict.accuracy)

    def named(self, name: str, theta: float) -> str:
        """The file name of a figure that there is for each theta: the first one has no number."""
        return name if theta == self.thetas[0] else f"{name}-{theta:g}"

    def thresholds(self, theta: float) -> Table:
        """The reported estimates, row i for cell i, with the settings of the cell and five columns more.

        `state`: crosses, plateau, not reached, above; `tried`: the last level before
        the crossing of a censored cell; `in_law`: it counts in the law; `law`: the
        critical value that the law gives it; `rejected`: the diagnostics reject that
        law.
        """
        found = with_states(reported(self.fit.thresholds, theta))
        found["in_law"] = (found["state"] == "crosses") & ~found["warning"].str.contains("not in the law")
        found["law"] = np.nan
        found["rejected"] = self.cells["part"].isin(self.rejected(theta))
        exponents = reported(self.fit.exponents, theta)
        for family, mine in self._by_family(found):
            exponent = exponents[exponents["part"] == family.name].set_index("axis")["exponent"]
            if len(exponent) and exponent.notna().all():
                steps = sum(e * np.log(mine[str(axis)]) for axis, e in exponent.items())
                off = (np.log(mine["critical"]) - steps).where(mine["in_law"] & mine["copy_of"].isna())
                constant = off.groupby([mine[f] for f in family.factors], dropna=False).transform("mean") if family.factors else off.mean()
                found.loc[mine.index, "law"] = np.exp(steps + constant)
        return found.join(self.cells[[name for name in self.cells if name not in found]])

    def rejected(self, theta: float) -> list[str]:
        """The families whose law the diagnostics reject: their
        cells are farther from it than the noise explains.
        """
        found = reported(self.fit.exponents, theta)
        return list(found.loc[found["rejected"], "part"].unique())

    def exponents_of(self, formula: Callable[[Any, float], float | None], theta: float) -> dict[tuple[str, str], float]:
        """Exponents, by (part, axis), of the law through the critical
        values of a formula, over the cells of the reported law.
        """
        out, critical = {}, np.array([formula(cell, theta) for cell in self.cells.to_dict("records")], dtype=float)
        for family, mine in self._by_family(self.thresholds(theta)):
            inside = mine["in_law"].to_numpy()
            law = Law([cell for cell, is_in in zip(family.cells, inside, strict=True) if is_in], family.law, family.factors)
            y = np.log(critical[mine.index][inside])
            y[~np.isfinite(y)] = np.nan
            found = law.exponents(y[None])[0] if not np.isnan(y).all() else np.full(len(family.law), np.nan)
            out |= {(family.name, axis): float(e) for axis, e in zip(family.law, found, strict=True)}
        return out

    def _by_family(self, table: Table) -> list[tuple[cells.Family, Table]]:
        return [(family, table[self.cells["part"] == family.name]) for family in self.families]


def study(
    frame: Table,
    families: list[cells.Family],
    thetas: Sequence[float],
    surrogate_seeds: int,
    on_progress: Callable[[int, int], None],
    every: Table | None = None,
) -> Study:
    """Fits the table and lays out its cells; `families` are the frame's own. Raises FitError.

    `every` is the same table with the rows of all steps, for the traces.
    """
    if clash := sorted({*OWN} & {*frame}):
        raise FitError(f"columns: {', '.join(clash)} has a meaning of its own in a report; rename it")
    along = families[0].along
    frame = with_names(frame, along)
    laws = fit(frame, thetas, on_progress=on_progress, step=ALL, along=along)
    frame = axes.as_given(frame)
    runs, at, levels = _laid_out(frame, families)
    traces, steps = None, every if every is None else traced(every)
    if steps is not None and "n_correct" in steps and steps["n_correct"].notna().any():
        of_steps, _ = cells.families(axes.as_given(steps), along)
        traces = study(steps, of_steps, thetas, 0, on_progress)
        traces = replace(traces, axes=tuple(axis for axis in traces.axes if axis != "step"))
    named = list(dict.fromkeys(thetas))
    return Study(frame, runs, at, levels, varying(families), families, named, laws, surrogate_seeds, traces)


def reported(table: Table, theta: float) -> Table:
    """The rows of a table of the fit that hold the reported estimate for one theta."""
    return table[table["record"] & (table["theta"] == theta)].reset_index(drop=True)


def with_states(found: Table) -> Table:
    """Thresholds with the columns `state`, what the estimate comes
    to, and `tried`, the level beyond which a censored one lies.
    """
    plateau = found["warning"].str.contains(r"plateau|again:|(?:falls|rises): accuracy")
    states = np.select([found["censored"] == "no", found["censored"] == "left", plateau], ["crosses", "above", "plateau"], "not reached")
    tried = found["N_above"].where(found["censored"] == "left", found["N_below"])
    return found.assign(state=states, tried=tried.astype(float).mask(states == "crosses"))


def varying(families: Sequence[cells.Family]) -> tuple[str, ...]:
    """The axes that differ between cells, widths and lengths first."""
    at = [cell.at for family in families for cell in family.cells]
    names = (*(axis for axis in ORDER if axis in at[0]), *(axis for axis in at[0] if axis not in ORDER))
    return tuple(axis for axis in names if len({str(one[axis]) for one in at}) > 1)


def _laid_out(frame: Table, families: list[cells.Family]) -> tuple[Table, Table, Table]:
    """The runs that have a count, the cells and the levels of a table."""
    every = [(family, cell) for family in families for cell in family.cells]
    at = pd.DataFrame([cell.at | {"part": family.name} for family, cell in every])
    curves = pd.concat([_curve(i, cell, family) for i, (family, cell) in enumerate(every)], ignore_index=True)
    along = families[0].along
    rows = frame[frame["n_correct"].notna() & (frame[along] > 0)].copy()
    for name in (name for name in every[0][1].at if rows[name].dtype.kind == "f"):
        rows[name] = axes.rounded(rows[name])
    mine = rows.merge(at.rename_axis("cell").reset_index(), on=list(every[0][1].at), how="left")
    fields = [name for name in rows if name in (*FIELDS, "step") or "." in name]
    table = at.join(mine.groupby("cell")[[name for name in fields if name not in (*at, along)]].first())
    unknown = axes.unknown_settings(rows, [*every[0][1].at, along])
    table["foreign"] = f"{unknown[0]}: got {rows[unknown[0]].dropna().iloc[0]!r}" if unknown else None
    runs = _with_levels(mine, curves, along)
    known = NOT_MEASURED | {*at, *fields, "_at", "cell", "level"}
    measured = [name for name in runs if name not in known and pd.api.types.is_float_dtype(runs[name])]
    means = curves.join(runs.groupby("level")[measured].mean())
    table["locked_from"] = _locked_from(means, along).reindex(table.index)
    return runs, table, means.merge(table, left_on="cell", right_index=True)


def _locked_from(levels: Table, along: str) -> Table:
    """By cell, the level from which on attention is locked: 0 if
    it is everywhere, inf if nowhere, nan if it was not measured.
    """
    name = next((name for name in ("attention_mass", "attention_top1") if name in levels), None)
    if name is None:
        return levels.groupby("cell")[along].first() * np.nan

    def first(mine: Table) -> float:
        mine = mine[mine[name].notna()].sort_values(along)
        open_ = np.flatnonzero(mine[name] <= LOCKED)
        after = mine[along].to_numpy(float)[open_[-1] + 1 :] if len(open_) else np.zeros(1)
        return float(after[0]) if len(after) else np.inf

    known = levels.groupby("cell")[name].count() > 0
    return levels.groupby("cell")[[along, name]].apply(first).where(known)


def _curve(index: int, cell: cells.Cell, family: cells.Family) -> Table:
    N, k, n = _merged(cell.N, cell.k, cell.n)
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.nanstd(k / n, axis=1)
    means = {"accuracy": family.mirrored(k.sum(1) / n.sum(1)), "sd": sd, "n_seeds": (n > 0).sum(1)}
    return banded(pd.DataFrame({"cell": index, family.along: N, **means}), "accuracy")


def _merged(levels: np.ndarray, k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbouring levels that share no seed as one level at their
    geometric mean: a threshold search spreads its seeds over such.
    """
    start, group = 0, [0]
    for level in range(1, len(levels)):
        used = (n[start:level] > 0).any(axis=0)
        if levels[level] > SPREAD * levels[start] or (used & (n[level] > 0)).any():
            start = level
            group.append(level)
    weights = n.sum(axis=1)
    means = np.exp(np.add.reduceat(np.log(levels) * weights, group) / np.add.reduceat(weights, group))
    whole = np.round(means).astype(np.int64) if levels.dtype.kind in "iu" else means
    return whole, np.add.reduceat(k, group), np.add.reduceat(n, group)


def _with_levels(rows: Table, curves: Table, along: str) -> Table:
    """The rows with the column `level`: the index of the
    nearest level of their cell, which they are part of.
    """
    return pd.merge_asof(
        rows.assign(_at=np.log(rows[along].astype(float))).sort_values("_at"),
        curves.assign(_at=np.log(curves[along].astype(float)), level=curves.index)[["cell", "_at", "level"]].sort_values("_at"),
        on="_at", by="cell", direction="nearest",
    )  # fmt: skip


@dataclass(frozen=True)
class Roles:
    """`x` of the figure of critical values, what makes `lines`,
    what makes `panels`, and the two axes of each phase diagram.

    `against` is arithmetic on axes that accuracy is drawn against. The first `n_chosen`
    panels were asked for.
    """

    x: str | None
    lines: str | None
    panels: tuple[str, ...]
    phases: tuple[tuple[str, str], ...]
    against: str | None = None
    n_chosen: int = 0

    def lines_and_panels(self, table: Table, axes: Sequence[str]) -> tuple[list[str], list[str]]:
        """Where neither stands along x: of `lines` and `x` the one
        with more values makes the lines, and all other axes panels.
        """
        candidates = [axis for axis in (self.lines, self.x) if axis in axes]
        lines = max(candidates, key=lambda axis: table[axis].nunique(), default=None)
        return arranged(table, lines, [axis for axis in axes if axis != lines])


def roles(
    families: Sequence[cells.Family], x: str | None = None, lines: str | None = None, panels: Names = (), phases: Sequence[Names] = ()
) -> Roles:
    """The choices that were made, and good ones for the
    rest; raises UsageError with everything that is wrong.
    """
    axes, along = varying(families), families[0].along
    at = [{along: 1} | cell.at for family in families for cell in family.cells]
    against = x if x is not None and x not in at[0] and columns_in(x) != {x} else None
    problems = misplaced(axes, x=[x] if x and not against else [], lines=[lines] if lines else [], panels=panels)
    problems += [problem for name in ([against] if against else []) for problem in _unknown("x", name, at)]
    new = dict.fromkeys(axis for pair in phases for axis in pair if axis not in at[0])
    problems += [problem for axis in new for problem in _unknown("phase", axis, at)]
    problems += [f"phase: {a!r} twice; allowed: two axes" for a, b in phases if a == b]
    if problems:
        raise UsageError(problems)
    taken = {lines, *panels}
    if against:
        x = None if along in columns_in(against) else against
        taken |= {swept(x, [axis for axis in axes if axis not in taken], pd.DataFrame(at))} if x else set()
    rest = [axis for axis in axes if axis not in taken and axis != x]
    x = x or (rest.pop(0) if rest else None)
    lines = lines or (rest.pop(0) if rest else None)
    pairs = tuple((a, b) for a, b in phases) or (((x, along),) if x else ())
    return Roles(x, lines, (*panels, *rest), pairs, against, len(panels))


def swept(x: str, axes: Sequence[str], table: Table) -> str | None:
    """Of the axes that arithmetic along x is made of, the
    one with most values: it makes neither lines nor panels.
    """
    inside = [axis for axis in axes if axis != x and axis in columns_in(x)]
    return max(inside, key=lambda axis: table[axis].nunique(), default=None)


def _unknown(place: str, axis: str, at: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with an axis that is arithmetic on those of the cells `at`."""
    try:
        if unknown := sorted(expression(axis).names - {*at[0]}):
            return [f"{place}: {axis!r} has no {', '.join(unknown)}; allowed: {', '.join(at[0])} and arithmetic, as in 'm * d'"]
        for cell in at:
            expression(axis).evaluate(cell)
    except ValueError as error:
        return [f"{place}: {error}"]
    return []


def misplaced(axes: Sequence[str], **chosen: Sequence[str]) -> list[str]:
    """What is wrong with the axes that were chosen for each place: they do not vary, or have two places."""
    found = [
        f"{name}: {axis!r}; allowed, as these vary: {', '.join(axes) or 'none'}"
        for name, given in chosen.items()
        for axis in given
        if axis not in axes
    ]
    every = [axis for given in chosen.values() for axis in given]
    if twice := sorted({axis for axis in every if every.count(axis) > 1}):
        found.append(f"{', '.join(chosen)}: {', '.join(twice)} more than once; an axis has one place")
    return found
