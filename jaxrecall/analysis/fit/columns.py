"""The columns of a table of runs: lists of names, groups of rows, and numbers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import shown
from ...model.values import to_12_digits

Table = Any  # a pandas.DataFrame, whose annotations help less than Any

AxisValue = Any  # a number, text, true or false; nan if missing

Row = dict[str, AxisValue]

ColumnNames = Sequence[str]

RIGHT, ANSWERS = "_right", "_answers"
"""The columns of the counts that a fit uses: how many answers are right, and how many
there are. If the measure is not counted, they are the measure and 1.
"""

NUMBERS = "iuf"
"""The values of `dtype.kind` that mean numbers in NumPy."""


def common(names: Iterable[Any], others: Container[Any]) -> list[Any]:
    """The list of names that are also in `others`, such as the columns of a table."""
    return [name for name in names if name in others]


def without(names: Iterable[Any], others: Container[Any]) -> list[Any]:
    """The list of names that are not in `others`."""
    return [name for name in names if name not in others]


def seed_columns(frame: Table) -> list[str]:
    """The columns that identify a seed."""
    return [*common(["root_seed"], frame), "seed"]


def groups(frame: Table, names: Iterable[str], sort: bool = True) -> Any:
    """Returns the rows grouped by columns, where null counts as a value.

    If no columns are given, all rows form one group.
    """
    by = [*names] or (lambda _: 0)
    return frame.groupby(by, dropna=False, observed=True, sort=sort)


def numbered(frame: Table, names: Iterable[str]) -> np.ndarray:
    """Returns a number for each row; rows with equal values have equal numbers.

    The numbers start at 0, in the order in which the values first appear.
    """
    return groups(frame, names, sort=False).ngroup().to_numpy()


def split(frame: Table, names: Iterable[str]) -> list[np.ndarray]:
    """Returns the positions of the rows that have equal values, as an array for each
    combination of values.
    """
    number = numbered(frame, names)
    return [np.flatnonzero(number == i) for i in range(number.max(initial=-1) + 1)]


def n_values(frame: Table, name: str) -> int:
    """The number of values of a column, where null counts as a value."""
    return frame[name].nunique(dropna=False)


def varying(frame: Table, names: Iterable[str]) -> list[str]:
    """The names of columns with two or more values."""
    return [name for name in names if n_values(frame, name) > 1]


def rounded(column: Table) -> Table:
    """Returns a column of floats rounded to 12 digits, and any other as it is.

    Values that differ only by rounding errors become equal.
    """
    if column.dtype.kind != "f":
        return column
    values = column.dropna().unique()
    return column.map({value: float(to_12_digits(value)) for value in values})


def is_numeric(column: Table) -> bool:
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(column)


def floats(table: Table) -> np.ndarray:
    """Returns the numbers of a column or of a table, with nan for missing values."""
    return table.to_numpy(float, na_value=np.nan)


def no_numbers(column: Table) -> str | None:
    """Returns a message if a column contains anything but numbers, else None."""
    values = column.dropna()
    if values.empty or is_numeric(values):
        return None
    return holds(values, "numbers")


def holds(values: Table, allowed: str) -> str:
    """Returns a message with the first of the values, which are of a wrong type."""
    first = values.tolist()[0]
    kind = values.dtype
    if isinstance(first, str):
        kind = "str"  # pandas 2 gives text the dtype object
    return f"holds {shown(first, 60)} ({kind}); allowed: {allowed}"
