"""Reads tables of runs from folders, files or pandas tables, and checks them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from ...errors import FitError, UsageError, as_list, expect, in_one_line, shown
from ...model.columns import EXTRA_COLUMNS, is_parameter
from ...model.point import FIELDS
from ...model.values import as_pandas, plain_type
from ...sweep.files import is_folder
from ...sweep.store.load import load
from ...sweep.store.table import about

Table = Any  # a pandas.DataFrame, whose annotations help less than Any

ALONG = (
    "axis along which accuracy crosses: N, d, m, V, L or another number (default: that"
    " of a search, else N)"
)

NEEDED = {
    "V": 2,
    "N": 1,
    "d": 1,
    "L": 1,
    "m": 0,
    "seed": 0,
    "n_test": 1,
    "n_correct": 0,
}
"""The columns that a table of our simulator needs, each with its smallest value.

All values are whole numbers.
"""

OF_FRACTIONS = (
    "memory_accuracy",
    "train_accuracy",
    "attention_mass",
    "attention_top1",
    "matched_accuracy",
    "assignment_accuracy",
)
"""Some of the columns that may replace the accuracy in a fit."""

LAST, ALL = "last", "all"

Steps = str | int | Sequence[int]
"""The type of the argument `step`: LAST, ALL, a step, or several steps."""

STEP_HELP = (
    "rows of runs that train on: last (the last step of each point), all, or steps;"
    " several make an axis (default: last)"
)

COUNTS = ("n_test", "n_correct")

FIELD_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "text"),
    "bool": ((bool, np.bool_), "true, false"),
}
"""A dict from the type name of a field to the allowed Python types.

The dict also contains the words for the allowed values in messages. It lists only the
types that are not numbers.
"""

NUMERIC = ("integer", "floating", "mixed-integer-float", "decimal")
"""The results of pandas' `infer_dtype` for a column whose objects are numbers."""


def plain_table(argument: str, frame: Table) -> Table:
    """Returns the table without an index.

    The levels of the index become columns. Columns of objects that are numbers become
    numeric columns. Raises FitError if `frame` is not a table, or if two columns have
    the same name.
    """
    import pandas as pd

    frame = as_pandas(frame)
    expect(
        argument,
        frame,
        pd.DataFrame,
        "a table as jaxrecall.load and jaxrecall.run return it",
        FitError,
    )
    levels = without(frame.index.names, (None, *frame))
    names = pd.Index([*levels, *frame])
    if twice := sorted(set(names[names.duplicated()])):
        raise FitError(
            f"columns: {', '.join(twice)} more than once; rename or drop one"
        )
    frame = frame.reset_index(levels).reset_index(drop=True)
    types = frame.dtypes.astype(str)
    loose = frame.columns[types.str.contains("^object|^category|^dictionary")]
    if len(loose):  # without columns, astype would still copy the table
        frame = frame.astype(dict.fromkeys(loose, object))
    for name in loose:
        if pd.api.types.infer_dtype(frame[name]) in NUMERIC:
            frame[name] = pd.to_numeric(frame[name])
    return frame


def read(path: Path, *others: Path) -> tuple[Table, list[str]]:
    """Returns the rows of results folders or of one Parquet file, and remarks.

    Raises FitError or StoreError if they cannot be read.
    """
    if not others and not is_folder(path):
        return _read_file(path), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        frame = load([path, *others])
    return frame, [str(warning.message) for warning in caught]


def _read_file(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not os.path.isfile(path):  # reading a pipe would block forever
        what = "there is no such file or folder"
        if os.path.exists(path):
            what = "is neither a file nor a folder"
        raise FitError(f"{path}: {what}; allowed: a results folder or a .parquet file")
    try:
        # pyarrow cannot open a path that is not UTF-8
        with open(path, "rb") as bytes_, pq.ParquetFile(bytes_) as file:
            table = file.read()
            frame = table.to_pandas(ignore_metadata=True)  # the index becomes columns
    except (OSError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise FitError(
            f"{path}: cannot be read ({in_one_line(error)}); allowed: a results folder"
            " or a .parquet file"
        ) from error
    facts = about(table)
    for name in ("axes", "accuracy", "searched"):
        if facts.get(name) is not None:
            frame.attrs[name] = facts[name]
    return plain_table("table", frame)


def at_steps(frame: Table, step: Steps) -> Table:
    """Returns the rows at the given steps; raises FitError for a step that no row has.

    A table without a column `step` has one row per run. LAST is the last step of each
    point, not of each run. A run that has no row at that step is left out.
    """
    if isinstance(step, (str, int)):
        wanted = [step]
    else:
        allowed = "a step, a list of steps, 'last' or 'all'"
        wanted = as_list("step", step, allowed, FitError)
    if wanted == [ALL]:
        return frame
    if wanted == [LAST]:
        return _at_last_step(frame)
    found = sorted(set(frame.get("step", ())))
    if not wanted or without(wanted, found):
        allowed = ", ".join(map(str, found)) or "the table has no column step"
        raise FitError(
            f"step: got {shown(step)}; allowed: {LAST!r}, {ALL!r}, or steps of the"
            f" table ({allowed})"
        )
    return frame[frame["step"].isin(wanted)].reset_index(drop=True)


def _at_last_step(frame: Table) -> Table:
    if len(set(frame.get("step", ()))) < 2:
        return frame
    point = common(["point_id"], frame) or common(FIELDS, frame)
    last = frame.groupby(point, dropna=False)["step"].transform("max")
    return frame[frame["step"] == last].drop(columns="step").reset_index(drop=True)


def parsed(words: Sequence[str]) -> Steps:
    """Returns the steps that the words of a command line list; raises UsageError."""
    if list(words) in ([LAST], [ALL]):
        return words[0]
    if not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        raise UsageError(
            f"--step: got {' '.join(words)}; allowed: {LAST}, {ALL}, or whole numbers,"
            " as in 3 30 300"
        )
    return list(map(int, words))


def is_own(frame: Table) -> bool:
    """Whether the table is from a user's own simulator.

    The `attrs` of such a table contain the name of its accuracy column.
    """
    return "accuracy" in frame.attrs


def seed_columns(frame: Table) -> list[str]:
    """The columns that identify a seed."""
    return [*common(["root_seed"], frame), "seed"]


def along_of(frame: Table, wanted: str | None) -> str:
    """The axis along which accuracy crosses theta.

    The default is the axis of a search, else N.
    """
    expect(
        "along",
        wanted,
        (str, NoneType),
        "the name of a column of numbers, such as N, d, m, V, L",
        FitError,
    )
    return wanted or frame.attrs.get("searched") or "N"


def crossing(frame: Table, of: str) -> Table:
    """Returns the table with the column `of` as its accuracy; raises FitError."""
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
    """Returns the table with a column as its accuracy, scaled to a largest value of 1.

    The scale has no effect on exponents. Raises FitError if the column was not measured
    or contains anything but numbers that are 0 or greater.
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
    """Returns a measured column of numbers from 0 to `high`; raises FitError."""
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
    bad = found[~found.between(0, high)]
    if len(bad):
        raise FitError(
            f"{argument}: {name} is {bad.iloc[0]:.4g} in {len(bad)} rows; {allowed}"
        )
    return frame[name]


def _of_shares(frame: Table, column: str) -> Table:
    """Returns the table with a column of fractions as its accuracy.

    Each fraction becomes the n_correct of its row, and n_test becomes 1.
    """
    made = frame.assign(n_correct=frame[column].astype(float), n_test=1)
    made.attrs["of"] = column
    if is_own(frame):
        made.attrs["accuracy"] = column
    return made


def checked(frame: Table, along: str = "N") -> tuple[Table, list[str]]:
    """Returns the rows that have an accuracy, and remarks on the others.

    A table of our simulator needs the columns NEEDED. A table of a user's own simulator
    needs the columns `seed` and `along`, and its accuracy as a fraction or as counts.
    Raises FitError with a list of the problems.

    Args:
        frame: a table that `as_given` returned.
        along: the axis along which accuracy crosses theta.
    """
    of = frame.attrs.get("of")
    needed = [along, "seed"] if is_own(frame) else without(NEEDED, COUNTS)
    needed += [of] if of else COUNTS
    if missing := without(needed, frame):
        raise FitError(
            f"columns: no {', '.join(map(str, missing))}; needed:"
            f" {', '.join(map(str, needed))}"
        )
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    frame, remarks = _with_accuracy(frame, of or "n_correct")
    problems = _wrong_types(frame, needed) or _wrong_accuracies(frame, of)
    if problems:
        raise FitError(problems)
    return frame, remarks


def _with_accuracy(frame: Table, what: str) -> tuple[Table, list[str]]:
    """Returns the rows that have an accuracy, and remarks on the others; raises
    FitError.
    """
    gone = frame["n_correct"].isna()
    if not gone.any() or not is_numeric(frame["n_correct"]):
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
    """Returns a message for each column that has values of a wrong type.

    The function also converts columns of whole numbers to int64 in place.
    """
    problems = []
    if not is_own(frame):
        for name in without(common(FIELDS, frame), NEEDED):
            if problem := _wrong_field(frame, name):
                problems.append(f"{name}: {problem}")
    for name in needed:
        if name in NEEDED and (problem := _made_whole(frame, name)):
            problems.append(f"{name}: {problem}")
    return problems


def _wrong_accuracies(frame: Table, of: str | None) -> list[str]:
    """Returns a list of messages about wrong accuracies.

    `of` is the column of accuracies, or None if correct answers are counted.
    """
    if of is None:
        n_bad = (frame["n_correct"] > frame["n_test"]).sum()
        if not n_bad:
            return []
        return [f"n_correct: more than n_test in {n_bad} rows; allowed: 0 to n_test"]
    if problem := no_numbers(frame[of]):
        return [f"{of}: {problem}"]
    bad = frame[of][~frame[of].between(0, 1)]
    if bad.empty:
        return []
    first = bad.iloc[0]
    return [f"{of}: {first:g} in {len(bad)} rows; allowed: fractions from 0 to 1"]


def _made_whole(frame: Table, name: str) -> str | None:
    """Converts a column of whole numbers to int64 in place.

    Returns a message about wrong values, or None if there are none.
    """
    from pandas.api.types import is_bool_dtype

    low = NEEDED[name]
    allowed = f"whole numbers from {low}"
    if not is_numeric(frame[name]) or is_bool_dtype(frame[name]):
        return _holds(frame[name], allowed)
    values = frame[name].to_numpy(np.float64, na_value=np.nan)
    bad = ~((values >= low) & (values == np.round(values)) & (values < 2**53))
    frame[name] = np.where(bad, 0, values).astype(np.int64)
    if bad.any():
        return f"{values[bad][0]:g} in {bad.sum()} rows; allowed: {allowed}"
    return None


def _wrong_field(frame: Table, name: str) -> str | None:
    """Returns a message if a field of the point has wrong values, else None."""
    kind = plain_type(FIELDS[name])
    if kind not in FIELD_TYPES:
        return no_numbers(frame[name])
    values = frame[name].dropna()
    types, allowed = FIELD_TYPES[kind]
    if all(isinstance(value, types) for value in values):
        return None
    return _holds(values, allowed)


def no_numbers(column: Table) -> str | None:
    """Returns a message if a column contains anything but numbers, else None."""
    values = column.dropna()
    if values.empty or is_numeric(values):
        return None
    return _holds(values, "numbers")


def _holds(values: Table, allowed: str) -> str:
    first = values.tolist()[0]
    kind = values.dtype
    if isinstance(first, str):
        kind = "str"  # pandas 2 gives text the dtype object
    return f"holds {shown(first, 60)} ({kind}); allowed: {allowed}"


def common(names: Iterable[Any], others: Container[Any]) -> list[Any]:
    """The list of names that are also in `others`, such as the columns of a table."""
    return [name for name in names if name in others]


def without(names: Iterable[Any], others: Container[Any]) -> list[Any]:
    """The list of names that are not in `others`."""
    return [name for name in names if name not in others]


def is_numeric(column: Table) -> bool:
    from pandas.api.types import is_numeric_dtype

    return is_numeric_dtype(column)


def groups(frame: Table, names: Iterable[str]) -> Any:
    """Returns the rows grouped by columns, where null counts as a value.

    If no columns are given, all rows form one group.
    """
    return frame.groupby([*names] or (lambda _: 0), dropna=False, observed=True)
