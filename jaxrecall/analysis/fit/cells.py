"""Cells: accuracy along an axis, usually N, by seed, and which of them are fitted
together.

A cell fixes every other axis. The seed is the independent unit: everything here is kept
by seed. With `streams: common`, cells share their random draws. If what they differ in
has no effect on a run, as d has none with orthogonal embeddings and L hardly any once
attention is locked, they give the same counts, seed by seed. Such a cell is a copy: one
piece of evidence, however often it is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...errors import FitError
from ...model.values import is_missing
from ...sweep.grid.file import FALLING
from ...sweep.store.load import limited_by_kappa
from .runs import (
    LAW,
    RATES,
    Table,
    Value,
    checked,
    find_axes,
    is_own,
    seed_columns,
    without_switches,
)

CHANCE = 1e-9
"""Counts are taken for a copy if cells that share no draws
would agree in all of them with less than this probability.
"""

SHARED = 0.5
"""Two cells are compared if they share at least this part of the runs of the smaller.
"""


@dataclass(frozen=True)
class Cell:
    """One curve: k of n answers are right at each level, (levels, seeds).

    `at` fixes every other axis. They are 0 of 0 where a seed is missing. Along an axis
    on which accuracy falls, k counts wrong answers, which rise. Of accuracies that were
    not counted, n is 1. `names` are what else the grid calls the cell, such as its
    label, or the value of an axis that was chosen, and `told` is what to be careful
    about in that. `copy_of` is the `at` of an earlier cell of the family that has the
    same runs.
    """

    at: dict[str, Value]
    N: np.ndarray
    k: np.ndarray
    n: np.ndarray
    copy_of: dict[str, Value] | None = None
    names: dict[str, Value] = field(default_factory=dict)
    told: str = ""

    @property
    def n_seeds(self) -> int:
        return int((self.n > 0).any(axis=0).sum())


@dataclass(frozen=True)
class Family:
    """Cells fitted together, as those with m = 0; `name` is the value of the column
    `part`.
    """

    name: str
    cells: list[Cell]
    powers: tuple[str, ...] = LAW  # axes that get an exponent if they vary
    along: str = "N"
    falls: bool = False  # whether accuracy falls along it
    what: str = ""  # what obeys the law, as N*

    @property
    def critical(self) -> str:
        """What obeys the law: N*, or a column."""
        return self.what or f"{self.along}*"

    def mirrored(self, accuracy: Value) -> Value:
        """What crosses for an accuracy (fraction), and back: itself, or 1 less it where
        accuracy falls.
        """
        return 1 - accuracy if self.falls else accuracy

    @cached_property
    def varying(self) -> tuple[str, ...]:
        return tuple(
            axis
            for axis in self.cells[0].at
            if len({cell.at[axis] for cell in self.cells}) > 1
        )

    @property
    def law(self) -> tuple[str, ...]:
        """The varying axes that get an exponent."""
        return tuple(axis for axis in self.varying if axis in self.powers)

    @property
    def factors(self) -> tuple[str, ...]:
        """The other varying axes: each combination of their values has a constant of
        its own.
        """
        return tuple(axis for axis in self.varying if axis not in self.powers)


def evidence(cells: Sequence[Cell]) -> np.ndarray:
    """A number for each cell, the same for a cell and its copies, (cells,)."""
    originals = [tuple((cell.copy_of or cell.at).items()) for cell in cells]
    numbers = {original: i for i, original in enumerate(dict.fromkeys(originals))}
    return np.array([numbers[original] for original in originals], dtype=int)


def families(frame: Table, along: str = "N") -> tuple[list[Family], list[str]]:
    """The cells of a table, m = 0 and m > 0 apart, and remarks on what was left out.

    Args:
        frame: one row per run; of runs that train on, one per step, the step being an
            axis.
        along: the axis along which accuracy crosses theta.

    Raises:
        FitError: with every problem of the table.
    """
    frame, remarks = checked(frame, along)
    own, seeds = is_own(frame), seed_columns(frame)
    if not own:
        frame, dropped = without_switches(frame)
        remarks += dropped
    if along not in frame or frame[along].dtype.kind not in "iuf":
        raise FitError(
            f"along: got {along!r}; allowed: a column of numbers, such as N, d, m, V, L"
        )
    frame = (frame if own or along != "m" else frame[frame["m"] != 0]).copy()
    if not len(frame) or not (frame[along] > 0).all():
        raise FitError(
            f"along: {along} is {'0 in all' if not len(frame) else '0 or less in some'}"
            " rows; allowed: numbers greater than 0"
        )
    axes, followers = find_axes(frame, along)
    if told := [name for name in followers if name not in RATES]:
        others = ", ".join(
            axis for axis in axes if frame[axis].nunique(dropna=False) > 1
        )
        remarks.append(
            f"{', '.join(told)}: varies, but its values follow from those of"
            f" {others or along}, so it is no axis of its own"
        )
    if line := "" if own else limited_by_kappa(frame, axes, along):
        remarks.append(line)
    _refuse_runs_twice(frame, [*axes, along], seeds)
    scales = [
        axis
        for axis in axes
        if frame[axis].dtype.kind in "iuf" and (frame[axis] > 0).all()
    ]
    powers = tuple(scales if own else [axis for axis in ("N", *LAW) if axis != along])
    falls, names = _falls(frame, along), _names(frame, axes, along)
    parts, found = (
        (
            {"all": frame}
            if own
            else {"m = 0": frame[frame["m"] == 0], "m > 0": frame[frame["m"] > 0]}
        ),
        [],
    )
    for name, rows in ((name, rows) for name, rows in parts.items() if len(rows)):
        numbered = rows.assign(
            _seed=rows.groupby(seeds, dropna=False).ngroup(), _level=rows[along]
        )
        found.append(
            Family(name, _cells(numbered, axes, falls, names), powers, along, falls)
        )
    factors = dict.fromkeys(axis for family in found for axis in family.factors)
    if factors and not any(family.law for family in found):
        scaled = "axes of numbers greater than 0" if own else ", ".join(powers)
        remarks.append(
            f"no exponents of {along}*: what varies is {', '.join(factors)}, and only"
            f" {scaled} get one; see {along}* in the thresholds"
        )
    return found, remarks


def _falls(frame: Table, along: str) -> bool:
    """Whether accuracy falls along an axis.

    Of one that is not known, whether it is higher at the smallest value than at the
    largest.
    """
    if along in ("N", "d", "m", *FALLING):
        return along in FALLING
    ends = [
        frame[frame[along] == end] for end in (frame[along].min(), frame[along].max())
    ]
    first, last = (rows["n_correct"].sum() / rows["n_test"].sum() for rows in ends)
    return bool(first > last)


def _refuse_runs_twice(frame: Table, point: list[str], seeds: list[str]) -> None:
    copies = frame.groupby([*point, *seeds], dropna=False, observed=True).size()
    if (twice := copies[copies > 1]).empty:
        return
    where = ", ".join(
        f"{name} = {value}"
        for name, value in zip(copies.index.names, twice.index[0], strict=True)
    )
    differ = [
        name
        for name in ("code_version", "precision", "n_test")
        if name in frame and frame[name].dropna().map(str).nunique() > 1
    ]
    hint = f" (the table mixes {', '.join(differ)})" if differ else ""
    raise FitError(
        f"rows: {len(twice)} runs come more than once, the first at {where}{hint}; keep"
        " one row per point, seed and step"
    )


def _cells(
    rows: Table, axes: list[str], falls: bool, names: Sequence[str]
) -> list[Cell]:
    """The cells of a family; `_seed` numbers the seed of each row, `_level` is its
    value along the axis.
    """
    cells: list[Cell] = []
    groups = (
        rows.groupby(axes, sort=True, dropna=False, observed=True)
        if axes
        else rows.groupby(lambda _: 0)
    )
    for (at, mine), original in zip(
        groups, _originals(rows, groups.ngroup().to_numpy()), strict=True
    ):
        levels, level = np.unique(mine["_level"].to_numpy(), return_inverse=True)
        k, n = np.zeros((2, len(levels), rows["_seed"].max() + 1))
        k[level, mine["_seed"]], n[level, mine["_seed"]] = (
            mine["n_correct"],
            mine["n_test"],
        )
        values = dict(zip(axes, map(_plain, at), strict=True)) if axes else {}
        copy_of = None if original is None else cells[original].at
        told = {
            name: (
                _plain(mine[name].dropna().iloc[0])
                if mine[name].notna().any()
                else None
            )
            for name in names
        }
        cells.append(Cell(values, levels, n - k if falls else k, n, copy_of, told))
    return cells


def _names(frame: Table, axes: list[str], along: str) -> list[str]:
    """The helpers of the grid that are no axes and have one value in each cell."""
    names = [
        name
        for name in frame.attrs.get("kept", ())
        if name in frame and name not in (*axes, along)
    ]
    return [
        name
        for name in names
        if (
            frame.groupby(axes or (lambda _: 0), dropna=False)[name].nunique() < 2
        ).all()
    ]


def _plain(value: Value) -> Value:
    """A Python number; the same object for every nan, so that cells without a value are
    alike.
    """
    value = value.item() if isinstance(value, np.generic) else value
    return np.nan if is_missing(value) else value


def _originals(rows: Table, cell: np.ndarray) -> list[int | None]:
    """The earlier cell that each cell copies, or None; `cell` numbers the cell of each
    row.

    A cell copies another if they agree exactly in n_correct and n_test at every (seed,
    N) that both have. Those must be half of the runs of the smaller, and hold enough
    counts between 0 and n_test that agreement is no accident (CHANCE). Cells of one L
    must also agree in `draw_check`, if the table has it; the check depends on L, so
    between other cells it decides nothing.
    """
    _, run = np.unique(
        rows[["_level", "_seed"]].to_numpy(), axis=0, return_inverse=True
    )
    run, shape = run.ravel(), (cell.max() + 1, run.max() + 1)
    k, n = np.zeros((2, *shape))
    check, L = np.zeros(shape, np.int64), np.zeros(shape[0])
    k[cell, run], n[cell, run] = rows["n_correct"], rows["n_test"]
    if {"draw_check", "L"} <= {*rows}:
        check[cell, run], L[cell] = rows["draw_check"].fillna(0), rows["L"]
    found: list[int | None] = []
    for i in range(shape[0]):
        at = n[i] > 0
        before = np.array(
            [j for j, original in enumerate(found) if original is None], dtype=int
        )
        both = n[np.ix_(before, at)] > 0
        differ = (k[np.ix_(before, at)] != k[i, at]) | (
            n[np.ix_(before, at)] != n[i, at]
        )
        differ |= (check[np.ix_(before, at)] != check[i, at]) & (L[before] == L[i])[
            :, None
        ]
        enough = both.sum(axis=1) >= SHARED * np.minimum(
            at.sum(), (n[before] > 0).sum(axis=1)
        )
        same = (
            ~(both & differ).any(axis=1)
            & enough
            & (both @ _log_chance(k[i, at], n[i, at]) < np.log(CHANCE))
        )
        found.append(int(before[same.argmax()]) if same.any() else None)
    return found


def _log_chance(k: np.ndarray, n: np.ndarray) -> np.ndarray:
    """ln of the probability that another binomial count of the same mean equals k
    of n.
    """
    variance = k * (1 - k / n)
    return -np.log(np.maximum(1, np.sqrt(4 * np.pi * variance)))
