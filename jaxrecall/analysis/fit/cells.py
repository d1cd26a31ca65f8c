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

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...errors import FitError
from ...model.values import is_missing
from ...sweep.store.load import limited_by_kappa
from .checks import check_rows
from .columns import (
    ANSWERS,
    NUMBERS,
    RIGHT,
    AxisValue,
    Table,
    common,
    groups,
    n_values,
    seed_columns,
    without,
)
from .repeated import advise_on_copies, choose_one
from .roles import COUNTS, SIZES, Roles
from .table_axes import (
    as_given,
    choose_axes,
    refuse_numbers_as_text,
    unstated,
    without_switches,
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


@dataclass(frozen=True)
class Cell:
    """The counts of one curve: k of n answers are correct.

    k and n have shape (levels, seeds). Both are 0 where a seed is missing. If the
    measure falls along the axis, k counts the wrong answers, so that k rises. If the
    measure is not counted, k is the measure and n is 1. If it falls, k is 1 - measure.

    Attributes:
        at: the value of every other axis.
        N: the levels, ascending.
        copy_of: the `at` of the earlier cell that this cell copies, or None.
        names: other columns of the cell, such as its label in the grid, or the chosen
            value of an axis.
        told: a warning about the chosen value, or an empty text.
    """

    at: dict[str, AxisValue]
    N: np.ndarray
    k: np.ndarray
    n: np.ndarray
    copy_of: dict[str, AxisValue] | None = None
    names: dict[str, AxisValue] = field(default_factory=dict)
    told: str = ""

    def values(self, axes: Iterable[str]) -> tuple[AxisValue, ...]:
        return tuple(map(self.at.__getitem__, axes))

    @property
    def n_seeds(self) -> int:
        return int((self.n > 0).any(axis=0).sum())


@dataclass(frozen=True)
class Family:
    """The cells that are fitted together, such as all cells with m = 0.

    `name` is the family's value in the column `part` of the results.
    """

    name: str
    cells: list[Cell]
    powers: tuple[str, ...] = SIZES  # axes that get an exponent if they vary
    along: str = "N"
    falls: bool = False  # whether the measure falls along the axis
    measure: str = "accuracy"
    is_fraction: bool = True  # whether every value of the measure is in [0, 1]
    what: str = ""  # the column that obeys the law, or empty for N*

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

    @cached_property
    def varying(self) -> tuple[str, ...]:
        axes = self.cells[0].at
        return tuple(axis for axis in axes if len(values_of(self.cells, axis)) > 1)

    @property
    def law(self) -> tuple[str, ...]:
        """The varying axes that get an exponent."""
        return tuple(common(self.varying, self.powers))

    @property
    def factors(self) -> tuple[str, ...]:
        """The varying axes without an exponent.

        The law has a separate constant for each combination of their values.
        """
        return tuple(without(self.varying, self.powers))


def check_axis(argument: str, axis: str, axes: Iterable[str]) -> None:
    """Raises FitError unless the argument names an axis."""
    if axis not in axes:
        raise FitError(
            f"{argument}: got {axis!r}; allowed: an axis of the table:"
            f" {', '.join(axes)}"
        )


def values_of(cells: Sequence[Cell], axis: str) -> set[AxisValue]:
    return {cell.at[axis] for cell in cells}


def numbered(keys: Iterable[Hashable]) -> np.ndarray:
    """Returns an array with a number for each key; equal keys have equal numbers.

    The numbers start at 0, in the order in which keys first appear.
    """
    numbers: dict[Hashable, int] = {}
    each = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(each, dtype=int)


def evidence(cells: Sequence[Cell]) -> np.ndarray:
    """Returns a (cells,) array of numbers that are equal for a cell and its copies."""
    return numbered(tuple((cell.copy_of or cell.at).items()) for cell in cells)


def families(frame: Table, roles: Roles, along: str) -> tuple[list[Family], list[str]]:
    """Returns the families of a table, and remarks on its rows and axes.

    In a table of our simulator, cells with m = 0 and cells with m > 0 are in separate
    families.

    Args:
        frame: one row per run. Runs that train have one row per step, and the step is
            an axis.
        roles: the roles of its columns.
        along: the axis along which the measure crosses theta.

    Raises:
        FitError: if the table cannot be fitted. The message lists the problems.
    """
    given = frame
    frame, remarks = check_rows(as_given(frame, roles), roles, along)
    seeds = seed_columns(frame)
    frame, dropped = without_switches(frame, roles)
    remarks += dropped
    frame = _with_levels(frame, along, roles)
    axes, followers = choose_axes(frame, roles, along)
    if followers := without(followers, roles.rates):
        remarks.append(_on_followers(frame, followers, axes, along))
    if roles.axes is None:
        remarks += _on_settings(frame, roles, axes, along)
    point = [*axes, along, *seeds]
    if repeated := [name for name in roles.averaged if n_values(frame, name) > 1]:
        remarks.append(f"{', '.join(repeated)}: averaged within each seed")
        frame = _averaged(frame, point, roles.counted)
    if "kappa" in roles.rates and (line := limited_by_kappa(frame, axes, along)):
        remarks.append(line)
    _refuse_runs_twice(given, frame, roles, point)
    scaled = "axes of numbers greater than 0"
    powers = tuple(_scales(frame, axes))
    if roles.powers is not None:
        powers = tuple(without(roles.powers, [along]))
        scaled = ", ".join(powers)
    shared = Family(
        "",
        [],
        powers,
        along,
        _falls(frame, roles, along),
        measure=roles.measure,
        is_fraction=bool(frame[RIGHT].between(0, frame[ANSWERS]).all()),
    )
    names = _names(frame, roles, axes, along)
    frame = frame.assign(_level=frame[along])
    found, factors, exponents = [], {}, []
    for name, rows in _parts(frame, roles).items():
        if len(rows):
            numbered_rows = rows.assign(_seed=groups(rows, seeds).ngroup())
            cells = _cells(numbered_rows, axes, shared, names, roles.counted)
            family = replace(shared, name=name, cells=cells)
            factors |= dict.fromkeys(family.factors)
            exponents += family.law
            found.append(family)
    if factors and not exponents:
        remarks.append(
            f"no exponents of {along}*: what varies is {', '.join(factors)}, and only"
            f" {scaled} get one; see {along}* in the thresholds, and"
            " compare for their ratios"
        )
    return found, remarks


def _on_settings(
    frame: Table, roles: Roles, axes: Sequence[str], along: str
) -> list[str]:
    """Returns a remark that names the settings of a table that does not state them.

    Raises FitError if they leave no curve, or if one is a number that is written as
    text.
    """
    unknown = common(axes, unstated(frame, roles))
    if roles.is_ours and not unknown:
        return []
    refuse_numbers_as_text(frame, unknown)
    names = [name for name in axes if n_values(frame, name) > 1]
    if not names:
        return []
    settings = ", ".join(names)
    is_single = groups(frame, names)[along].nunique() < 2
    if unknown and is_single.mean() > 0.5 and frame[along].nunique() > 1:
        raise FitError(
            f"axes: not given, and with all that varies as settings ({settings}), most"
            f" cells have one value of {along}; allowed: the columns that are settings,"
            f" as in --axes {names[0]}"
        )
    return [
        f"settings: {settings}; leave one out with --axes, average over one with"
        " --average"
    ]


def _averaged(frame: Table, point: Sequence[str], counted: bool) -> Table:
    """Returns one row for each point and seed, with the mean of the measure."""
    by_run = groups(frame, point)
    counts = by_run[[RIGHT, ANSWERS]].agg("sum" if counted else "mean")
    rows = frame.drop_duplicates([*point]).set_index([*point])
    return rows.assign(**counts.reindex(rows.index)).reset_index()


def _parts(frame: Table, roles: Roles) -> dict[str, Table]:
    """Returns a dict from the name of a family to its rows."""
    name = roles.split
    if not name:
        return {"all": frame}
    is_zero = frame[name] == 0
    return {f"{name} = 0": frame[is_zero], f"{name} > 0": frame[~is_zero]}


def _with_levels(frame: Table, along: str, roles: Roles) -> Table:
    """Returns the rows whose value along the axis can be a level.

    Rows without the split of the families, and those of step 0, are left out.

    Raises FitError if the axis is not a column of numbers greater than 0.
    """
    refuse_numbers_as_text(frame, common([along], frame))
    if along not in frame or frame[along].dtype.kind not in NUMBERS:
        raise FitError(
            f"along: got {along!r}; allowed: a column of numbers, such as N, d, m, V, L"
        )
    if along in (roles.split, "step"):
        frame = frame[frame[along] != 0]
    if not len(frame) or not (frame[along] > 0).all():
        what = "0 or less in some" if len(frame) else "0 in all"
        raise FitError(
            f"along: {along} is {what} rows; allowed: numbers greater than 0"
        )
    frame = frame.copy()
    frame[along] = frame[along].to_numpy()  # no nullable type
    return frame


def _on_followers(
    frame: Table, followers: Sequence[str], axes: Sequence[str], along: str
) -> str:
    n_values = frame[axes].nunique(dropna=False)
    others = ", ".join(n_values.index[n_values > 1]) or along
    return (
        f"{', '.join(followers)}: varies, but its values follow from those of {others},"
        " so it is no axis of its own"
    )


def _scales(frame: Table, axes: Sequence[str]) -> list[str]:
    """The names of the axes whose values are all numbers greater than 0."""
    found = []
    for axis in axes:
        if frame[axis].dtype.kind in NUMBERS and (frame[axis] > 0).all():
            found.append(axis)
    return found


def _falls(frame: Table, roles: Roles, along: str) -> bool:
    """Whether the measure falls along an axis.

    If the table does not say, the means at the smallest and largest values of the axis
    are compared.
    """
    if along in roles.rises:
        return not roles.rises[along]
    sums = frame.groupby(along)[[RIGHT, ANSWERS]].sum()
    means = sums[RIGHT] / sums[ANSWERS]
    first, last = means.iloc[[0, -1]]
    return bool(first > last)


def _refuse_runs_twice(
    given: Table, frame: Table, roles: Roles, point: Sequence[str]
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
    differ = []
    for name in common(("code_version", "precision", "n_test"), frame):
        if stored[name].nunique() > 1:
            differ.append(name)
    advice = advise_on_copies(stored, point, (roles.measure, *COUNTS))
    if differ:
        one = choose_one(stored, differ[:1])
        advice = f"the table mixes {', '.join(differ)}; keep one of each, as in {one}"
    raise FitError(
        f"rows: {len(twice)} runs come more than once, the first at {where}; {advice}"
    )


def _cells(
    rows: Table, axes: list[str], family: Family, names: Sequence[str], counted: bool
) -> list[Cell]:
    """Returns the cells of a family, whose other properties are those of `family`.

    The column `_seed` contains the number of each row's seed. The column `_level`
    contains the row's value along the axis.
    """
    cells: list[Cell] = []
    by_cell = groups(rows, axes)
    originals = [None] * by_cell.ngroups
    if counted:
        originals = _originals(rows, by_cell.ngroup().to_numpy())
    for (at, mine), original in zip(by_cell, originals, strict=True):
        levels, level = np.unique(mine["_level"].to_numpy(), return_inverse=True)
        k, n = np.zeros((2, len(levels), rows["_seed"].max() + 1))
        k[level, mine["_seed"]] = mine[RIGHT]
        n[level, mine["_seed"]] = mine[ANSWERS]
        if family.falls:
            k = n - k
        values = dict(zip(axes, map(_plain, at), strict=True)) if axes else {}
        copy_of = None if original is None else cells[original].at
        cells.append(Cell(values, levels, k, n, copy_of, _values(mine, names)))
    return cells


def _values(rows: Table, names: Sequence[str]) -> dict[str, AxisValue]:
    """Returns a dict from column to the value that all rows of a cell share.

    The value is None if every row lacks one.
    """
    found = dict.fromkeys(names)
    for name in names:
        known = rows[name].dropna()
        if len(known):
            found[name] = _plain(known.iloc[0])
    return found


def _names(frame: Table, roles: Roles, axes: list[str], along: str) -> list[str]:
    """The grid's helper columns that are not axes and are constant within each cell."""
    names = without(common(roles.kept, frame), (*axes, along))
    by_cell = groups(frame, axes)
    return [name for name in names if by_cell[name].nunique().max() < 2]


def _plain(value: AxisValue) -> AxisValue:
    """Returns a value as a Python object, and any missing value as the same nan object.

    Two cells that both lack the value then compare as equal.
    """
    if is_missing(value):
        return np.nan
    return value.item() if isinstance(value, np.generic) else value


def _originals(rows: Table, cell: np.ndarray) -> list[int | None]:
    """Returns, for each cell, the index of the earlier cell that it copies, or None.

    `cell` contains the number of each row's cell. A cell copies another if n_correct
    and n_test are equal at every (level, seed) that both cells have. The shared runs
    must be at least half of the smaller cell's runs. An accidental agreement of the
    shared counts must also be improbable (CHANCE). Shared counts of 0 or n_test do not
    reduce its probability.

    If the table has a column `draw_check`, cells with equal L must also agree in this
    column. The check depends on L, so it is not compared between cells with different
    L.
    """
    runs = rows[["_level", "_seed"]].to_numpy()
    run = np.unique(runs, axis=0, return_inverse=True)[1].ravel()
    shape = (cell.max() + 1, run.max() + 1)
    k, n = np.zeros((2, *shape))
    check, L = np.zeros(shape, np.int64), np.zeros(shape[0])
    k[cell, run] = rows[RIGHT]
    n[cell, run] = rows[ANSWERS]
    if {"draw_check", "L"} <= {*rows}:
        check[cell, run] = rows["draw_check"].fillna(0)
        L[cell] = rows["L"]
    found: list[int | None] = []
    is_copy = np.zeros(shape[0], bool)
    for i in range(shape[0]):
        at = n[i] > 0
        before = np.flatnonzero(~is_copy[:i])
        there = np.ix_(before, at)
        both = n[there] > 0
        differ = (k[there] != k[i, at]) | (n[there] != n[i, at])
        same_L = (L[before] == L[i])[:, None]
        differ |= same_L & (check[there] != check[i, at])
        n_runs = (n[before] > 0).sum(axis=1)
        enough = both.sum(axis=1) >= SHARED * np.minimum(at.sum(), n_runs)
        sure = both @ _log_chance(k[i, at], n[i, at]) < np.log(CHANCE)
        same = enough & sure & ~(both & differ).any(axis=1)
        is_copy[i] = same.any()
        found.append(int(before[same.argmax()]) if is_copy[i] else None)
    return found


def _log_chance(k: np.ndarray, n: np.ndarray) -> np.ndarray:
    """ln of the probability that a second binomial count is also k of n.

    The second count is independent of the first and has the same mean.
    """
    variance = k * (1 - k / n)
    return -np.log(np.maximum(1, np.sqrt(4 * np.pi * variance)))
