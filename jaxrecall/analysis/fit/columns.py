"""The columns of a table of runs: lists of names, groups of rows, and numbers."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from ...errors import shown

Table = Any  # a pandas.DataFrame, whose annotations help less than Any

AxisValue = Any  # a number, text, true or false; nan if missing

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


def groups(frame: Table, names: Iterable[str]) -> Any:
    """Returns the rows grouped by columns, where null counts as a value.

    If no columns are given, all rows form one group.
    """
    return frame.groupby([*names] or (lambda _: 0), dropna=False, observed=True)


def n_values(frame: Table, name: str) -> int:
    """The number of values of a column, where null counts as a value."""
    return frame[name].nunique(dropna=False)


def is_numeric(column: Table) -> bool:
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(column)


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
