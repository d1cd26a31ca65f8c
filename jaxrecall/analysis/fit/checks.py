"""Checks of a table of runs: the rows that have an accuracy, with a message for each
problem.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import FitError, shown
from ...model.columns import EXTRA_COLUMNS, is_parameter
from ...model.point import FIELDS
from .axes import as_given
from .runs import NEEDED, OF_FRACTIONS, Table, columns, is_own, seed_columns, without

COUNTS = ("n_test", "n_correct")

FIELD_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "text"),
    "bool": ((bool, np.bool_), "true, false"),
}
"""Types of fields that are no numbers, and what to call their values."""


def crossing(frame: Table, of: str) -> Table:
    """The table with another column in place of its accuracy; raises FitError."""
    if of in ("accuracy", frame.attrs.get("accuracy")):
        return frame
    allowed = (
        f"allowed: accuracy, {', '.join(OF_FRACTIONS)}, or any other column of"
        " fractions that was measured"
    )
    if _measured(frame, "of", of, allowed, 1).isna().all():
        hint = ""
        if of in EXTRA_COLUMNS:
            hint = "; the sweep asks for it by decoders: true"
        raise FitError(f"of: {of} is null in all rows{hint}")
    return _of_shares(frame, of)


def measured(frame: Table, column: str) -> Table:
    """The table with a column in place of its accuracy, divided by its largest value.

    No exponent depends on that scale. Raises FitError.
    """
    allowed = (
        "allowed: a column of numbers from 0 that was measured, such as"
        f" {', '.join(OF_FRACTIONS[:2])}"
    )
    values = _measured(frame, "law", column, allowed, np.inf)
    scaled = values / max(values.max(), 1e-300)
    return _of_shares(frame.assign(**{column: scaled}), column)


def _measured(
    frame: Table, argument: str, name: str, allowed: str, high: float
) -> Table:
    """A column of numbers from 0 that was measured; raises FitError."""
    wrong = ""
    if name not in frame:
        wrong = "is no column of the table"
    elif name in (*FIELDS, *seed_columns(frame)) or is_parameter(name):
        wrong = "was not measured"
    if wrong:
        raise FitError(f"{argument}: got {shown(name)}, which {wrong}; {allowed}")
    if problem := no_numbers(frame[name]):
        raise FitError(f"{name}: {problem}")
    found = frame[name].dropna()
    bad = ~found.between(0, high)
    if bad.any():
        raise FitError(
            f"{argument}: {name} is {found[bad].iloc[0]:.4g} in {bad.sum()} rows;"
            f" {allowed}"
        )
    return frame[name]


def _of_shares(frame: Table, column: str) -> Table:
    """The table with a column of fractions as shares of one answer."""
    made = frame.assign(n_correct=frame[column].astype(float), n_test=1)
    made.attrs["of"] = column
    if is_own(frame):
        made.attrs["accuracy"] = column
    return made


def checked(frame: Table, along: str = "N") -> tuple[Table, list[str]]:
    """The rows that have an accuracy, with columns as a grid gives them, and how many
    have none.

    Raises FitError with every problem.
    A table of our simulator needs the columns NEEDED. One of a user's own needs its
    accuracy, counted or not, the seed and `along`.
    """
    of = _uncounted(frame)
    needed = [along, "seed"] if is_own(frame) else without(NEEDED, COUNTS)
    needed += [of] if of else COUNTS
    if missing := without(needed, frame):
        raise FitError(
            f"columns: no {', '.join(map(str, missing))}; needed:"
            f" {', '.join(map(str, needed))}"
        )
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    frame, remarks = _with_accuracy(as_given(frame), of or "n_correct")
    problems = _wrong_types(frame, needed) or _wrong_accuracies(frame, of)
    if problems:
        raise FitError(problems)
    return frame, remarks


def _uncounted(frame: Table) -> str | None:
    """The column of accuracies of which there are no counts; None if there are."""
    if of := frame.attrs.get("of"):
        return of
    if is_own(frame) and not {*COUNTS} <= {*frame}:
        return frame.attrs["accuracy"]
    return None


def _with_accuracy(frame: Table, what: str) -> tuple[Table, list[str]]:
    """The rows that have an accuracy, and a remark on the others; raises FitError."""
    from pandas.api.types import is_numeric_dtype

    gone = frame["n_correct"].isna()
    if not gone.any() or not is_numeric_dtype(frame["n_correct"]):
        return frame, []
    why = ""
    if "status" in frame:
        found = sorted(set(frame["status"][gone].astype(str)))
        why = f" (status {', '.join(found)})"
    if gone.all():
        raise FitError(f"{what}: null in all rows{why}; there is nothing to fit")
    remark = f"{gone.sum()} of {len(frame)} rows have no {what}{why} and were left out"
    return frame[~gone], [remark]


def _wrong_types(frame: Table, needed: Sequence[str]) -> list[str]:
    """A line for each column with values of another type; makes columns of whole
    numbers int64.
    """
    problems = []
    if not is_own(frame):
        for name in without(columns(frame, FIELDS), NEEDED):
            if problem := _wrong_field(frame, name):
                problems.append(f"{name}: {problem}")
    for name in needed:
        if name in NEEDED and (problem := _made_whole(frame, name)):
            problems.append(f"{name}: {problem}")
    return problems


def _wrong_accuracies(frame: Table, of: str | None) -> list[str]:
    """What is wrong with the accuracies, counted or not."""
    if of is None:
        n_bad = (frame["n_correct"] > frame["n_test"]).sum()
        if not n_bad:
            return []
        return [f"n_correct: more than n_test in {n_bad} rows; allowed: 0 to n_test"]
    if problem := no_numbers(frame[of]):
        return [f"{of}: {problem}"]
    bad = ~frame[of].between(0, 1)
    if not bad.any():
        return []
    first = frame[of][bad].iloc[0]
    return [f"{of}: {first:g} in {bad.sum()} rows; allowed: fractions from 0 to 1"]


def _made_whole(frame: Table, name: str) -> str | None:
    """What is wrong with a column that should hold whole numbers; it becomes int64."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    low = NEEDED[name]
    allowed = f"whole numbers from {low}"
    if not is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name]):
        return _holds(frame[name], allowed)
    values = frame[name].to_numpy(np.float64, na_value=np.nan)
    bad = ~((values >= low) & (values == np.round(values)) & (values < 2**53))
    frame[name] = np.where(bad, 0, values).astype(np.int64)
    if bad.any():
        return f"{values[bad][0]:g} in {bad.sum()} rows; allowed: {allowed}"
    return None


def _wrong_field(frame: Table, name: str) -> str | None:
    """What is wrong with a column of a field of the point."""
    kind = str(FIELDS[name].type).removesuffix(" | None")
    if kind not in FIELD_TYPES:
        return no_numbers(frame[name])
    values = frame[name].dropna()
    types, allowed = FIELD_TYPES[kind]
    if all(isinstance(value, types) for value in values):
        return None
    return _holds(values, allowed)


def no_numbers(column: Table) -> str | None:
    """What is wrong with a column that should hold numbers."""
    from pandas.api.types import is_numeric_dtype

    values = column.dropna()
    if values.empty or is_numeric_dtype(values):
        return None
    return _holds(values, "numbers")


def _holds(values: Table, allowed: str) -> str:
    first = values.tolist()[0]
    kind = values.dtype
    if isinstance(first, str):
        kind = "str"  # pandas 2 calls text object
    return f"holds {shown(first, 60)} ({kind}); allowed: {allowed}"
