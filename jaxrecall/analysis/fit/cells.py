"""Cells and families: a cell is a curve of accuracy along one axis, usually N.

Every other axis has a fixed value in a cell. A family contains the cells that are
fitted together. All counts are kept per seed, because the seed is the independent unit.

With `streams: common`, cells share their random draws. Two cells then have equal counts
for every seed if the axes in which they differ have no effect on a run. For example, d
has no effect if embeddings are orthogonal, and L has almost no effect once attention is
locked. The later of two such cells is called a copy. A cell and all its copies count as
one piece of evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ...errors import FitError
from ...model.point import EXTRAS
from ...model.values import is_missing
from .checks import check_rows
from .columns import (
    ANSWERS,
    NUMBERS,
    RIGHT,
    AxisValue,
    ColumnNames,
    Table,
    common,
    groups,
    seed_columns,
    varying,
    without,
)
from .roles import COUNTS, SIZES, Roles
from .table_axes import (
    as_given,
    choose_axes,
    refuse_numbers_as_text,
    unstated,
)

CHANCE = 1e-9
"""The limit on the probability that two cells agree by accident.

A cell is called a copy only if two cells with independent draws would agree in all
counts with a lower probability.
"""

SHARED = 0.5
"""The smallest fraction of the smaller cell's runs that two cells must share to be
compared.
"""


class Cell(NamedTuple):
    """The counts of one curve: k of n answers are correct, at the levels N, ascending.

    k and n have shape (levels, seeds). Both are 0 where a seed is missing. If the
    measure falls along the axis, k counts the wrong answers, so that k rises. If the
    measure is not counted, k is the measure and n is 1. If it falls, k is 1 - measure.
    In the law of a mean, k does not depend on whether the measure falls.

    `n_lost` of the `n_tried` seeds have a run without a number, as of a run that
    diverged. Without any number, there are no levels.
    """

    N: ndarray
    k: ndarray
    n: ndarray
    n_lost: int = 0
    n_tried: int = 0

    @property
    def n_seeds(self) -> int:
        return int((self.n > 0).any(axis=0).sum())


@dataclass(frozen=True)
class Family:
    """The cells that are fitted together, such as all cells with m = 0.

    Attributes:
        name: the family's value in the column `part` of the results.
        at: the values of the axes of each cell, one row per cell.
        cells: the counts of each cell.
        origin: as `at`, but the row of a copy is that of the cell that it copies.
        names: other columns of the cells, such as their labels in the grid.
        powers: the axes that get an exponent if they vary.
        along: the axis along which the measure crosses theta.
        falls: whether the measure falls along this axis.
        measure: the column that crosses theta.
        is_fraction: whether every value of the measure is in [0, 1].
        what: the column that obeys the law, or empty for N*.
    """

    name: str
    at: Table
    cells: Sequence[Cell]
    origin: Table
    names: Table
    powers: ColumnNames = SIZES
    along: str = "N"
    falls: bool = False
    measure: str = "accuracy"
    is_fraction: bool = True
    what: str = ""

    @property
    def critical(self) -> str:
        """The name of the quantity that obeys the law, such as N* or a column."""
        return self.what or f"{self.along}*"

    def mirrored(self, value: AxisValue) -> AxisValue:
        """Converts a value of the measure to one that rises along the axis.

        If the measure falls along the axis, the result is 1 - value, else the value
        itself. The same function converts the result back.
        """
        return 1 - value if self.falls else value

    @property
    def settings(self) -> Table:
        """The axes of each cell, and the helpers of the grid that name it."""
        return self.at.join(self.names)

    @cached_property
    def varying(self) -> list[str]:
        return varying(self.at, self.at)

    @property
    def law(self) -> list[str]:
        """The varying axes that get an exponent."""
        return common(self.varying, self.powers)

    @property
    def factors(self) -> list[str]:
        """The varying axes without an exponent.

        The law has a separate constant for each combination of their values.
        """
        return without(self.varying, self.powers)

    def take(self, cells: Sequence[int] | ndarray) -> Family:
        """Returns the family with some of its cells."""
        tables = {}
        for name in ("at", "origin", "names"):
            tables[name] = getattr(self, name).iloc[cells].reset_index(drop=True)
        return replace(self, cells=[self.cells[i] for i in cells], **tables)


def check_axis(argument: str, axis: str, axes: Iterable[str]) -> None:
    """Raises FitError unless the argument names an axis."""
    if axis not in axes:
        raise FitError(
            f"{argument}: got {axis!r}; allowed: an axis of the table:"
            f" {', '.join(axes)}"
        )


def families(
    frame: Table,
    roles: Roles,
    along: str,
    what: str,
    counts_lost: bool,
) -> tuple[list[Family], list[str]]:
    """Returns the families of a table, and remarks on its rows and axes.

    In a table of our simulator, cells with m = 0 and cells with m > 0 are in separate
    families.

    Args:
        frame: one row per run. Runs that train have one row per step, and the step is
            an axis.
        roles: the roles of its columns.
        along: the axis along which the measure crosses theta.
        what: the column whose mean obeys the law in place of N*. Each level is then a
            cell, and `along` is an axis.
        counts_lost: whether runs without a number count, as below every level. They are
            otherwise missing.

    Raises:
        FitError: if the table cannot be fitted. The message lists the problems.
    """
    frame, axes, remarks = rows_of_cells(frame, roles, along, counts_lost)
    powers = roles.powers
    if powers is None:
        numbers = [axis for axis in axes if frame[axis].dtype.kind in NUMBERS]
        powers = [axis for axis in numbers if (frame[axis] > 0).all()]
    by_cell = groups(frame, axes)
    names = without(common(roles.kept, frame), (*axes, along))
    names = [name for name in names if by_cell[name].nunique().max() < 2]
    frame = frame.assign(_level=frame[along])
    if what:
        axes, powers = [*axes, along], [*powers, along]
        frame["_level"] = 1
    parts = {"all": frame}
    if zero := roles.split:
        has_none = frame[zero] == 0
        parts = {f"{zero} = 0": frame[has_none], f"{zero} > 0": frame[~has_none]}
    facts = {
        "powers": powers,
        "along": along,
        "falls": _falls(frame, roles, along),
        "measure": roles.measure,
        "is_fraction": bool(frame[RIGHT].between(0, frame[ANSWERS]).all()),
        "what": what,
    }
    filled = []
    for name, rows in parts.items():
        if len(rows):
            rows = rows.assign(_seed=groups(rows, seed_columns(rows)).ngroup())
            filled.append(
                _fill(rows, axes, names, roles.counted, counts_lost, name=name, **facts)
            )
    factors = dict.fromkeys(name for family in filled for name in family.factors)
    if factors and not any(family.law for family in filled):
        scaled = without(roles.powers or ("axes of numbers greater than 0",), [along])
        remarks.append(
            f"no exponents of {along}*: what varies is {', '.join(factors)}, and only"
            f" {', '.join(scaled)} get one; see {along}* in the thresholds, and compare"
            " for their ratios"
        )
    return filled, remarks


def rows_of_cells(
    frame: Table, roles: Roles, along: str, counts_lost: bool = False
) -> tuple[Table, list[str], list[str]]:
    """Returns the rows of which cells are made, their axes, and remarks.

    The arguments and errors are those of `families`.
    """
    given = frame
    frame, remarks = check_rows(as_given(frame, roles), roles, along, counts_lost)
    frame = _with_levels(frame, along, roles)
    axes, followers = choose_axes(frame, roles, along)
    if followers := without(followers, (*roles.rates, *EXTRAS)):
        others = ", ".join(varying(frame, axes)) or along
        remarks.append(
            f"{', '.join(followers)}: varies, but its values follow from those of"
            f" {others}, so it is not an axis"
        )
    if roles.axes is None:
        remarks += _on_settings(frame, roles, axes, along)
    point = [*axes, along, *seed_columns(frame)]
    if repeated := varying(frame, roles.averaged):
        remarks.append(f"{', '.join(repeated)}: averaged within each seed")
        frame = _averaged(frame, point, roles.counted)
    refuse_runs_twice(given, frame, roles, point)
    return frame, axes, remarks


def _on_settings(
    frame: Table, roles: Roles, axes: ColumnNames, along: str
) -> list[str]:
    """Returns a remark that names the settings of a table that does not state them.

    Raises FitError if they leave no curve, or if one is a number that is written as
    text.
    """
    unknown = common(axes, unstated(frame, roles))
    if roles.is_ours and not unknown:
        return []
    refuse_numbers_as_text(frame, unknown)
    names = varying(frame, axes)
    if not names:
        return []
    settings = ", ".join(names)
    is_single = groups(frame, names)[along].nunique() < 2
    if unknown and is_single.mean() > 0.5 and frame[along].nunique() > 1:
        raise FitError(
            f"axes: not given, and with all that varies as settings ({settings}), most"
            f" configurations have one value of {along}; allowed: the columns that are"
            f" settings, as in --axes {names[0]}"
        )
    return [
        f"settings: {settings}; leave one out with --axes, average over one with"
        " --average"
    ]


def _averaged(frame: Table, point: ColumnNames, counted: bool) -> Table:
    """Returns one row for each point and seed, with the mean of the measure."""
    by_run = groups(frame, point)
    counts = by_run[[RIGHT, ANSWERS]].agg("sum" if counted else "mean")
    rows = frame.drop_duplicates([*point]).set_index([*point])
    return rows.assign(**counts.reindex(rows.index)).reset_index()


def _with_levels(frame: Table, along: str, roles: Roles) -> Table:
    """Returns the rows whose value along the axis can be a level.

    Rows without the split of the families, and those of step 0, are left out.

    Raises FitError if the axis is not a column of numbers greater than 0.
    """
    refuse_numbers_as_text(frame, [along])
    is_numeric = frame[along].dtype.kind in NUMBERS
    if is_numeric and along in (roles.split, "step"):
        frame = frame[frame[along] != 0]
    if not (is_numeric and len(frame) and (frame[along] > 0).all()):
        raise FitError(
            f"along: got {along!r}; allowed: a column of numbers greater than 0, such"
            " as N, d, m, V, L"
        )
    return frame.assign(**{along: frame[along].to_numpy()})  # no nullable type


def _falls(frame: Table, roles: Roles, along: str) -> bool:
    """Whether the measure falls along an axis.

    If the table does not say, the means at the smallest and largest values of the axis
    are compared.
    """
    if along in roles.rises:
        return not roles.rises[along]
    sums = frame.groupby(along)[[RIGHT, ANSWERS]].sum()
    means = (sums[RIGHT] / sums[ANSWERS]).dropna()
    first, last = means.iloc[[0, -1]]
    return bool(first > last)


def refuse_runs_twice(
    given: Table, frame: Table, roles: Roles, point: ColumnNames
) -> None:
    """Raises FitError if runs come more than once. `given` is the table as its owner
    has it.
    """
    copies = groups(frame, point).size()
    twice = copies[copies > 1]
    if twice.empty:
        return
    where = ", ".join(map("{} = {}".format, copies.index.names, twice.index[0]))
    stored = given.loc[frame.index]
    columns = common(dict.fromkeys(point), stored)
    results = common((roles.measure, *COUNTS), stored)
    advice = f"keep one row of each, as in df.drop_duplicates({json.dumps(columns)})"
    # only rows with equal results are copies of one run
    alike = stored.duplicated(columns + results)
    if alike.sum() < stored.duplicated(columns).sum():
        advice = (
            "no setting of the table tells them apart; add the column that does, or"
            " name it in --axes or --average"
        )
    if mixed := varying(stored, common(("code_version", "precision"), stored)):
        advice = f"the table mixes {', '.join(mixed)}; keep one of each"
    raise FitError(
        f"rows: {len(twice)} runs come more than once, the first at {where}; {advice}"
    )


def _fill(
    rows: Table,
    axes: ColumnNames,
    names: ColumnNames,
    counted: bool,
    counts_lost: bool,
    **facts: Any,
) -> Family:
    """Returns the family of the cells of some rows. `facts` are its other attributes.

    The column `_seed` contains the number of each row's seed. The column `_level`
    contains the row's value along the axis.
    """
    import pandas as pd

    by_cell = groups(rows, axes)
    cells, at = [], []
    counts = ["_level", "_seed", RIGHT, ANSWERS]
    n_seeds = rows["_seed"].max() + 1
    for values, members in groups(rows[[*axes, *counts]], axes):
        level, seed, right, answers = (members[name].to_numpy() for name in counts)
        is_lost = answers == 0
        n_tried, n_lost = len({*seed}), len({*seed[is_lost]})
        # runs without a number are below every level, or else have no level
        kept = counts_lost | ~is_lost
        levels, at_level = np.unique(level[kept], return_inverse=True)
        k, n = np.zeros((2, len(levels), n_seeds))
        k[at_level, seed[kept]] = np.where(is_lost, -np.inf, right)[kept]
        n[at_level, seed[kept]] = np.where(is_lost, 1, answers)[kept]
        rising = n - k if facts["falls"] and not facts["what"] else k
        cells.append(Cell(levels, rising, n, n_lost, n_tried))
        at.append(list(map(_plain, values)) if axes else [])
    table = pd.DataFrame(at, columns=pd.Index(axes), index=range(len(cells)))
    origin = table
    if counted:
        origin = table.iloc[_originals(rows, by_cell.ngroup().to_numpy())]
    return Family(
        at=table,
        cells=cells,
        origin=origin.reset_index(drop=True),
        names=by_cell[[*names]].first().reset_index(drop=True),
        **facts,
    )


def _plain(value: AxisValue) -> AxisValue:
    """Returns a value as a Python object, and any missing value as the same nan object.

    Two cells that both lack the value then compare as equal.
    """
    if is_missing(value):
        return np.nan
    return value.item() if isinstance(value, np.generic) else value


def _originals(rows: Table, cell: ndarray) -> list[int]:
    """Returns, for each cell, the index of the earlier cell that it copies, or its own.

    `cell` contains the number of each row's cell. A cell copies another if n_correct
    and n_test are equal at every (level, seed) that both cells have. The shared runs
    must be at least half of the smaller cell's runs. An accidental agreement of the
    shared counts must also be improbable (CHANCE). Shared counts of 0 or n_test do not
    reduce its probability.

    If the table has a column `draw_check`, cells with equal L must also agree in this
    column. The check depends on L, so it is not compared between cells with different
    L.
    """
    run = groups(rows, ["_level", "_seed"]).ngroup().to_numpy()
    shape = (cell.max() + 1, run.max() + 1)
    k, n, check = np.zeros((3, *shape))
    L = np.zeros(shape[0])
    k[cell, run] = rows[RIGHT]
    n[cell, run] = rows[ANSWERS]
    if {"draw_check", "L"} <= {*rows}:
        check[cell, run] = rows["draw_check"].fillna(0)
        L[cell] = rows["L"]
    has_run = (n > 0).astype(np.float32)
    n_both = has_run @ has_run.T
    originals: list[int] = []
    for i in range(shape[0]):
        at = n[i] > 0
        before = np.unique(np.array(originals, int))
        least = SHARED * np.minimum(n_both[i, i], n_both[before, before])
        before = before[n_both[i, before] >= least]
        there = np.ix_(before, at)
        both = n[there] > 0
        differ = (k[there] != k[i, at]) | (n[there] != n[i, at])
        same_L = (L[before] == L[i])[:, None]
        differ |= same_L & (check[there] != check[i, at])
        sure = both @ _log_chance(k[i, at], n[i, at]) < np.log(CHANCE)
        same = before[sure & ~(both & differ).any(axis=1)]
        originals.append(int(same[0]) if len(same) else i)
    return originals


def _log_chance(k: ndarray, n: ndarray) -> ndarray:
    """ln of the probability that a second binomial count is also k of n.

    The second count is independent of the first and has the same mean.
    """
    variance = k * (1 - k / n)
    return -np.log(np.maximum(1, np.sqrt(4 * np.pi * variance)))
