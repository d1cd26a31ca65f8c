"""A table of runs becomes cells: counts of right answers against N, at fixed values of every other axis.

The seed is the independent unit: everything here is kept by seed. `axes` says what an axis is, `copies` which cells are the
same runs under another name.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FitError, shown
from ...model.columns import EXTRA_COLUMNS
from ...model.point import FIELDS
from ...sweep.store.load import load
from . import copies
from .axes import LAW, as_given, axes_of, without_switches

Table = Any  # pandas.DataFrame, whose own types say less than Any
NEEDED = {"V": 2, "N": 1, "d": 1, "L": 1, "m": 0, "seed": 0, "n_test": 1, "n_correct": 0}
"""Columns that a table must have, each with the least value allowed; whole numbers all."""

OF_VOCABULARY = ("memory_accuracy", "step1_memory_accuracy", "matched_accuracy", "whitened_accuracy", "assignment_accuracy")
"""Accuracies that count tokens of the vocabulary rather than test sequences."""

SPREAD = 1.5
"""Levels within this factor may count as one, if no seed ran at two of them."""


@dataclass(frozen=True)
class Cell:
    """One curve: `at` fixes every axis but N; `k` of `n` answers are right, (levels, seeds), 0 of 0 where a seed is missing.

    `copy_of` is the `at` of an earlier cell of the family that has the same runs, or None.
    """

    at: dict[str, Any]
    N: np.ndarray
    k: np.ndarray
    n: np.ndarray
    copy_of: dict[str, Any] | None = None

    @property
    def n_seeds(self) -> int:
        return int((self.n > 0).any(axis=0).sum())


@dataclass(frozen=True)
class Family:
    """Cells fitted together: those with m = 0, or those with m > 0. `law` and `factors` are the axes that vary in it.

    `name` is the value of the column `part` in the tables of a fit.
    """

    name: str
    cells: list[Cell]
    law: tuple[str, ...]
    factors: tuple[str, ...]

    @classmethod
    def of(cls, name: str, cells: list[Cell]) -> Family:
        """The family of these cells, its axes those that vary among them."""
        varies = [axis for axis in cells[0].at if len({cell.at[axis] for cell in cells}) > 1]
        return cls(name, cells, tuple(a for a in varies if a in LAW), tuple(a for a in varies if a not in LAW))


def evidence(cells: Sequence[Cell]) -> np.ndarray:
    """A number for each cell, the same for a cell and its copies, (cells,)."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(tuple((cell.copy_of or cell.at).items()), len(numbers)) for cell in cells], dtype=int)


def n_distinct(cells: Sequence[Cell]) -> int:
    """How many of the cells there are if a cell and its copies count as one."""
    return len(set(evidence(cells)))


def read(path: Path, *others: Path) -> tuple[Table, list[str]]:
    """The rows of results folders or of any one Parquet file, and remarks on them; raises FitError or StoreError."""
    if others or path.is_dir():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            frame = load([path, *others])
        return frame, [str(warning.message) for warning in caught]
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise FitError(f"{path}: there is no such file or folder; allowed: a results folder or a .parquet file")
    try:
        with open(path, "rb") as bytes_, pq.ParquetFile(bytes_) as file:  # a path need not be UTF-8
            return file.read().to_pandas(ignore_metadata=True), []  # an index is columns too
    except (OSError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise FitError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:200]}); allowed: a results folder or a .parquet file"
        ) from error


def counting(frame: Table, of: str) -> Table:
    """The table with another accuracy counted: n_correct = accuracy V of n_test = V; raises FitError."""
    if of == "accuracy":
        return frame
    if of not in OF_VOCABULARY:
        raise FitError(f"of: {of!r}; allowed: accuracy, {', '.join(OF_VOCABULARY)}")
    _refuse_twice(frame)
    if missing := [name for name in (of, "V") if name not in frame]:
        raise FitError(f"of: the table has no column {', '.join(missing)}")
    if problems := [f"{name}: {problem}" for name in (of, "V") if (problem := _of_numbers(frame[name]))]:
        raise FitError(problems)
    if frame[of].isna().all():
        hint = "; the sweep asks for it by decoders: true" if of in EXTRA_COLUMNS else ""
        raise FitError(f"of: {of} is null in all rows{hint}")
    return frame.assign(n_correct=(frame[of] * frame["V"]).round(), n_test=frame["V"])


def families(frame: Table) -> tuple[list[Family], list[str]]:
    """The cells of a table, m = 0 and m > 0 apart, and remarks on what was left out; raises FitError with every problem."""
    frame, remarks = _checked(frame)
    frame, dropped = without_switches(frame)
    remarks += dropped
    axes, followers = axes_of(frame)
    if followers:
        remarks.append(f"{', '.join(followers)}: no axis, set by the others")
    seeds = ["root_seed", "seed"] if "root_seed" in frame else ["seed"]
    _refuse_duplicates(frame, [*axes, "N"], seeds)
    found = []
    for name, rows in (("m = 0", frame[frame["m"] == 0]), ("m > 0", frame[frame["m"] > 0])):
        if len(rows):
            found.append(Family.of(name, _cells(rows, axes, rows.groupby(seeds, sort=True).ngroup().to_numpy())))
    return found, remarks


def _checked(frame: Table) -> tuple[Table, list[str]]:
    """The rows that have a count, as whole numbers, and how many have none."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    _refuse_twice(frame)
    if missing := [name for name in NEEDED if name not in frame]:
        raise FitError(f"columns: no {', '.join(missing)}; needed: {', '.join(NEEDED)}")
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    frame, remarks = as_given(frame.copy()), []
    if is_numeric_dtype(frame["n_correct"]) and (gone := frame["n_correct"].isna()).any():
        why = f" (status {', '.join(sorted(set(frame['status'][gone].astype(str))))})" if "status" in frame else ""
        remarks.append(f"{gone.sum()} of {len(frame)} rows have no n_correct{why} and were left out")
        frame = frame[~gone]
        if not len(frame):
            raise FitError(f"n_correct: null in all rows{why}; there is nothing to fit")
    problems = [f"{name}: {problem}" for name in FIELDS if name in frame and name not in NEEDED and (problem := _of_field(frame, name))]
    for name, low in NEEDED.items():
        if not is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name]):
            problems.append(f"{name}: holds {shown(frame[name].tolist()[0], 60)} ({frame[name].dtype}); allowed: whole numbers from {low}")
            continue
        values = frame[name].to_numpy(np.float64, na_value=np.nan)
        if (bad := ~((values >= low) & (values == np.round(values)) & (values < 2**53))).any():
            problems.append(f"{name}: {values[bad][0]:g} in {bad.sum()} rows; allowed: whole numbers from {low}")
        frame[name] = np.where(bad, 0, values).astype(np.int64)
    if not problems and (bad := frame["n_correct"] > frame["n_test"]).any():
        problems.append(f"n_correct: more than n_test in {bad.sum()} rows; allowed: 0 to n_test")
    if problems:
        raise FitError(problems)
    return frame, remarks


def _refuse_twice(frame: Table) -> None:
    if twice := sorted(set(frame.columns[frame.columns.duplicated()])):
        raise FitError(f"columns: {', '.join(twice)} more than once; rename or drop one")


def _of_field(frame: Table, name: str) -> str | None:
    """What is wrong with a column that is named as a field of the point but holds values of another type."""
    kind = str(FIELDS[name].type).removesuffix(" | None")
    if kind not in TYPES:
        return _of_numbers(frame[name])
    values, (types, allowed) = frame[name].dropna(), TYPES[kind]
    return None if all(isinstance(value, types) for value in values) else _holds(values, allowed)


TYPES: dict[str, tuple[Any, str]] = {"str": (str, "text"), "bool": ((bool, np.bool_), "true, false")}
"""Types of fields that are no numbers, and what to call their values."""


def _of_numbers(column: Table) -> str | None:
    """What is wrong with a column that should hold numbers."""
    from pandas.api.types import is_numeric_dtype

    values = column.dropna()
    return None if is_numeric_dtype(values) or values.empty else _holds(values, "numbers")


def _holds(values: Table, allowed: str) -> str:
    return f"holds {shown(values.tolist()[0], 60)} ({values.dtype}); allowed: {allowed}"


def _refuse_duplicates(frame: Table, point: list[str], seeds: list[str]) -> None:
    copies = frame.groupby([*point, *seeds], dropna=False, observed=True).size()
    if (twice := copies[copies > 1]).empty:
        return
    where = ", ".join(f"{name} = {value}" for name, value in zip(copies.index.names, twice.index[0], strict=True))
    differ = [name for name in ("code_version", "precision", "n_test") if name in frame and frame[name].dropna().map(str).nunique() > 1]
    hint = f" (the table mixes {', '.join(differ)})" if differ else ""
    raise FitError(f"rows: {len(twice)} runs come more than once, the first at {where}{hint}; keep one row per point, seed and step")


def _cells(rows: Table, axes: list[str], seed: np.ndarray) -> list[Cell]:
    cells = []
    rows = rows.assign(_seed=seed)
    groups = rows.groupby(axes, sort=True, dropna=False, observed=True)
    originals = copies.originals(rows, groups.ngroup().to_numpy())
    for at, mine in groups:
        levels, level = np.unique(mine["N"].to_numpy(), return_inverse=True)
        k, n = np.zeros((2, len(levels), seed.max() + 1))
        k[level, mine["_seed"]], n[level, mine["_seed"]] = mine["n_correct"], mine["n_test"]
        levels, k, n = _together(levels, k, n)
        original = originals[len(cells)]
        cells.append(Cell(dict(zip(axes, map(_plain, at), strict=True)), levels, k, n, None if original is None else cells[original].at))
    return cells


def _plain(value: Any) -> Any:
    """A Python number; the same object for every nan, so that cells without a value are alike."""
    value = value.item() if isinstance(value, np.generic) else value
    return np.nan if value != value else value


def _together(levels: np.ndarray, k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbouring levels that share no seed as one level at their mean ln N: a threshold search spreads its seeds over such."""
    start, group = 0, [0]
    for level in range(1, len(levels)):
        used = (n[start:level] > 0).any(axis=0)
        if levels[level] > SPREAD * levels[start] or (used & (n[level] > 0)).any():
            start = level
            group.append(level)
    weights = n.sum(axis=1)
    means = np.add.reduceat(np.log(levels) * weights, group) / np.add.reduceat(weights, group)
    return np.round(np.exp(means)).astype(np.int64), np.add.reduceat(k, group), np.add.reduceat(n, group)
