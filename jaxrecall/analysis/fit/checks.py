"""Checks the rows of a table, and counts the right answers of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import FitError
from .columns import (
    ANSWERS,
    RIGHT,
    Table,
    common,
    holds,
    is_numeric,
    no_numbers,
    without,
)
from .roles import ACCURACY, COUNTS, Roles

FIELD_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "text"),
    "bool": ((bool, np.bool_), "true, false"),
}
"""A dict from the type name of a field to the allowed Python types and to their name in
messages. It lists only the types that are not numbers.
"""


def check_rows(frame: Table, roles: Roles, along: str) -> tuple[Table, list[str]]:
    """Returns the rows that have a measure, with the columns RIGHT and ANSWERS, and
    remarks on the other rows.

    A table needs the columns `seed` and `along`, its measure, and the columns that
    `roles` says are needed. Raises FitError with a list of the problems.

    Args:
        frame: a table that `as_given` returned.
        roles: the roles of its columns.
        along: the axis along which the measure crosses theta.
    """
    measures = [*COUNTS] if roles.counted else [roles.measure]
    needed = list(dict.fromkeys((*roles.needed, along, "seed", *measures)))
    if missing := without(needed, frame):
        raise FitError(_missing_columns(missing, needed, roles))
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    frame, remarks = _measured_rows(frame, measures[-1])
    lowest = dict(roles.needed) | {"seed": 0}
    if roles.counted:
        lowest |= {"n_test": 1, "n_correct": 0}
    problems = _wrong_types(frame, roles, lowest) or _wrong_measures(frame, roles)
    if problems:
        raise FitError(problems)
    if roles.counted:
        counts = {RIGHT: frame["n_correct"], ANSWERS: frame["n_test"]}
    else:
        counts = {RIGHT: frame[roles.measure].astype(float), ANSWERS: 1}
    return frame.assign(**counts), remarks


def _missing_columns(
    missing: Sequence[str], needed: Sequence[str], roles: Roles
) -> str:
    line = f"columns: no {', '.join(missing)}; needed: {', '.join(needed)}"
    if roles.needed:
        return line
    example = f"--columns {missing[0]}=COLUMN"
    return f"{line}; a column with another name is given as in {example}"


def _measured_rows(frame: Table, name: str) -> tuple[Table, list[str]]:
    """Returns the rows that have a measure, and remarks on the others.

    Raises FitError if no row has one.
    """
    is_gone = frame[name].isna()
    if not is_gone.any() or not is_numeric(frame[name]):
        return frame, []
    why = ""
    if "status" in frame:
        states = sorted(set(frame["status"][is_gone].astype(str)))
        why = f" (status {', '.join(states)})"
    if is_gone.all():
        raise FitError(f"{name}: null in all rows{why}; there is nothing to fit")
    n_gone = is_gone.sum()
    remark = f"{n_gone} of {len(frame)} rows have no {name}{why} and were left out"
    return frame[~is_gone], [remark]


def _wrong_types(frame: Table, roles: Roles, lowest: Mapping[str, int]) -> list[str]:
    """Returns a message for each column that has values of a wrong type.

    `lowest` contains the smallest value of each column of whole numbers. The function
    also converts these columns to int64 in place.
    """
    problems = []
    for name in without(common(roles.kinds, frame), lowest):
        if problem := _wrong_field(frame[name], roles.kinds[name]):
            problems.append(f"{name}: {problem}")
    for name, low in lowest.items():
        if problem := _convert_to_whole(frame, name, low):
            problems.append(f"{name}: {problem}")
    return problems


def _wrong_measures(frame: Table, roles: Roles) -> list[str]:
    """Returns a list of messages about wrong values of the measure."""
    if roles.counted:
        n_bad = (frame["n_correct"] > frame["n_test"]).sum()
        if not n_bad:
            return []
        return [f"n_correct: more than n_test in {n_bad} rows; allowed: 0 to n_test"]
    name = roles.measure
    if problem := no_numbers(frame[name]):
        return [f"{name}: {problem}"]
    values, allowed = frame[name].astype(float), "finite numbers"
    bad = values[~np.isfinite(values)]
    if name == ACCURACY and bad.empty:
        bad, allowed = values[~values.between(0, 1)], "fractions from 0 to 1"
    if bad.empty:
        return []
    return [f"{name}: {bad.iloc[0]:g} in {len(bad)} rows; allowed: {allowed}"]


def _convert_to_whole(frame: Table, name: str, low: int) -> str | None:
    """Converts a column of whole numbers to int64 in place.

    Returns a message about wrong values, or None if there are none.
    """
    from pandas.api.types import is_bool_dtype

    allowed = f"whole numbers from {low}"
    if not is_numeric(frame[name]) or is_bool_dtype(frame[name]):
        return holds(frame[name], allowed)
    values = frame[name].to_numpy(np.float64, na_value=np.nan)
    bad = ~((values >= low) & (values == np.round(values)) & (values < 2**53))
    frame[name] = np.where(bad, 0, values).astype(np.int64)
    if bad.any():
        return f"{values[bad][0]:g} in {bad.sum()} rows; allowed: {allowed}"
    return None


def _wrong_field(column: Table, kind: str) -> str | None:
    """Returns a message if a field has values of another type than `kind`, else
    None.
    """
    if kind not in FIELD_TYPES:
        return no_numbers(column)
    values = column.dropna()
    types, allowed = FIELD_TYPES[kind]
    if all(isinstance(value, types) for value in values):
        return None
    return holds(values, allowed)
