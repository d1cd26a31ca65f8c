"""Reads tables of runs from folders, files or pandas tables, and checks them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from ...errors import FitError, UsageError, as_list, expect, in_one_line, shown
from ...model.columns import EXTRA_COLUMNS, is_parameter
from ...model.point import FIELDS
from ...model.values import as_pandas
from ...sweep.files import is_folder
from ...sweep.store.load import STATED, load
from ...sweep.store.table import about
from ...sweep.summary import ALLOWED
from .roles import ACCURACY, COUNTS, Roles, Table

ALONG = (
    "axis along which accuracy crosses: N, d, m, V, L or another number (default: that"
    " of a search, else N, else the only axis of numbers)"
)

COLUMNS = (
    "the columns of a table that have other names, as in N=n_train accuracy=test_acc"
)

K, N = "_k", "_n"
"""The columns of the counts that a fit uses: k of n answers are correct.

If the measure is not counted, k is the measure and n is 1.
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

OF = (
    f"the column that crosses theta: {', '.join(OF_FRACTIONS)}, or any number that was"
    " measured (default: accuracy)"
)
THETA = (
    "accuracies to cross, fractions; numbers in the units of a measure that is no"
    " fraction"
)
SUMMARY = f"what crosses theta: {ALLOWED} (default: mean)"

LAST, ALL = "last", "all"

Steps = str | int | Sequence[int]
"""The type of the argument `step`: LAST, ALL, a step, or several steps."""

STEP_HELP = (
    "rows of runs that train on: last (the last step of each point), all, or steps;"
    " several make an axis (default: last)"
)

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


def read(
    path: Path, *others: Path, columns: Mapping[str, str] | None = None
) -> tuple[Table, list[str]]:
    """Returns the rows of results folders or of one Parquet or CSV file, and remarks.

    `columns` maps a name that this package uses to the column that has this role, as in
    {"N": "n_train"}. Raises FitError or StoreError if the rows cannot be read.
    """
    remarks = []
    if not others and not is_folder(path):
        frame = _read_file(path)
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            frame = load([path, *others])
        remarks = [str(warning.message) for warning in caught]
    return renamed(frame, columns or {}), remarks


def renamed(frame: Table, columns: Mapping[str, str]) -> Table:
    """Returns the table with its columns named as in `columns`: new name -> old name.

    Raises FitError if there is no such column, or if a new name is taken.
    """
    problems = []
    for name, given in columns.items():
        if given not in frame:
            has = ", ".join(map(str, frame))
            problems.append(f"columns: {name} = {given}: no such column; it has {has}")
        elif name in without(frame, columns.values()):
            problems.append(f"columns: {name} = {given}: {name} is a column, too")
    if problems:
        raise FitError(problems)
    made = frame.rename(columns={given: name for name, given in columns.items()})
    made.attrs = dict(frame.attrs)
    return made


def parsed_columns(words: Sequence[str]) -> dict[str, str]:
    """Returns the mapping that the words of a command line list, as in N=n_train.

    Raises UsageError for any other form.
    """
    found = {}
    for word in words:
        name, sign, given = word.partition("=")
        if not (name and sign and given) or name in found:
            raise UsageError(
                f"--columns: got {word}; allowed: NAME=COLUMN, once for each NAME, as"
                " in N=n_train"
            )
        found[name] = given
    return found


FILES = "a results folder, or a .parquet or .csv file"


def _read_file(path: Path) -> Table:
    import pandas as pd
    import pyarrow as pa

    if not os.path.isfile(path):  # reading a pipe would block forever
        what = "there is no such file or folder"
        if os.path.exists(path):
            what = "is neither a file nor a folder"
        raise FitError(f"{path}: {what}; allowed: {FILES}")
    try:
        if path.suffix.lower() == ".csv":
            return plain_table("table", pd.read_csv(path))
        return plain_table("table", _read_parquet(path))
    except (OSError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, FitError):
            raise
        raise FitError(
            f"{path}: cannot be read ({in_one_line(error)}); allowed: {FILES}"
        ) from error


def _read_parquet(path: Path) -> Table:
    """Returns the rows of a Parquet file. Its description becomes attributes."""
    import pyarrow.parquet as pq

    # pyarrow cannot open a path that is not UTF-8
    with open(path, "rb") as bytes_, pq.ParquetFile(bytes_) as file:
        table = file.read()
        frame = table.to_pandas(ignore_metadata=True)  # the index becomes columns
    facts = about(table)
    for name in STATED:
        if facts.get(name) is not None:
            frame.attrs[name] = facts[name]
    return frame


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


def seed_columns(frame: Table) -> list[str]:
    """The columns that identify a seed."""
    return [*common(["root_seed"], frame), "seed"]


def along_of(
    frame: Table, roles: Roles, wanted: str | None, argument: str = "along"
) -> str:
    """Returns the axis along which the measure crosses theta.

    The default is the axis of a search, else N, else the only axis of numbers. Raises
    FitError if there is no such axis; `argument` is the argument that names it.
    """
    expect(
        argument,
        wanted,
        (str, NoneType),
        "the name of a column of numbers, such as N, d, m, V, L",
        FitError,
    )
    usual = wanted or roles.along
    if usual:
        return usual
    axes = numeric_axes(frame, roles)
    if "N" in axes:
        return "N"
    if len(axes) == 1:
        return axes[0]
    allowed = ", ".join(axes) or "a column of numbers that vary"
    raise FitError(
        f"{argument}: not given, and the table has no column N; allowed: {allowed}"
    )


def numeric_axes(frame: Table, roles: Roles) -> list[str]:
    """The columns of positive numbers that vary and that may be axes."""
    if roles.axes is not None:
        names = common(roles.axes, frame)
    else:
        names = without(frame, (*seed_columns(frame), *COUNTS, roles.measure, "step"))
        names = [name for name in names if _is_shared(frame, name)]
    found = []
    for name in names:
        values = frame[name].dropna()
        if is_numeric(values) and values.nunique() > 1 and (values >= 0).all():
            found.append(name)
    return found


def _is_shared(frame: Table, name: str) -> bool:
    """Whether several seeds share each value of a column, as they share a setting."""
    if "seed" not in frame:
        return True
    return bool(frame.groupby(name)["seed"].nunique().min() > 1)


def with_measure(frame: Table, roles: Roles, of: str) -> Roles:
    """Returns the roles with the column `of` as the measure; raises FitError."""
    chosen = roles.having(of)
    if chosen is roles:
        return roles
    allowed = f"allowed: accuracy, {_examples(roles)}or any other measured number"
    if _measured(frame, roles, "of", of, allowed, -np.inf).isna().all():
        hint = ""
        if of in EXTRA_COLUMNS:
            hint = "; the sweep asks for it by decoders: true"
        raise FitError(f"of: {of} is null in all rows{hint}")
    return chosen


def with_law(frame: Table, roles: Roles, column: str) -> Roles:
    """Returns the roles with a column as the measure of a law.

    Raises FitError if the column was not measured or contains anything but numbers that
    are 0 or greater.
    """
    allowed = (
        f"allowed: a column of numbers from 0 that was measured, such as"
        f" {', '.join(OF_FRACTIONS[:2])}"
    )
    _measured(frame, roles, "law", column, allowed, 0)
    return replace(roles, measure=column, counted=False)


def _examples(roles: Roles) -> str:
    return "".join(f"{name}, " for name in OF_FRACTIONS if name in roles.known)


def _measured(
    frame: Table, roles: Roles, argument: str, name: str, allowed: str, low: float
) -> Table:
    """Returns a measured column of numbers from `low`; raises FitError."""
    wrong = ""
    if name not in frame:
        wrong = "is no column of the table"
    elif name in (*roles.fields, *seed_columns(frame)) or is_parameter(name):
        wrong = "was not measured"
    if wrong:
        raise FitError(f"{argument}: got {shown(name)}, which {wrong}; {allowed}")
    if problem := no_numbers(frame[name]):
        raise FitError(f"{name}: {problem}")
    found = frame[name].dropna()
    bad = found[~((found >= low) & np.isfinite(found.astype(float)))]
    if len(bad):
        raise FitError(
            f"{argument}: {name} is {bad.iloc[0]:.4g} in {len(bad)} rows; {allowed}"
        )
    return frame[name]


def checked(frame: Table, roles: Roles, along: str) -> tuple[Table, list[str]]:
    """Returns the rows that have a measure, with the columns K and N, and remarks on
    the other rows.

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
    frame, remarks = _with_measure(frame, measures[-1])
    whole = dict(roles.needed) | {"seed": 0}
    if roles.counted:
        whole |= {"n_test": 1, "n_correct": 0}
    problems = _wrong_types(frame, roles, whole)
    problems += [] if problems else _wrong_measures(frame, roles)
    if problems:
        raise FitError(problems)
    if roles.counted:
        return frame.assign(**{K: frame["n_correct"], N: frame["n_test"]}), remarks
    return frame.assign(**{K: frame[roles.measure].astype(float), N: 1}), remarks


def _missing_columns(
    missing: Sequence[str], needed: Sequence[str], roles: Roles
) -> str:
    line = f"columns: no {', '.join(missing)}; needed: {', '.join(needed)}"
    if roles.needed:
        return line
    example = f"--columns {missing[0]}=COLUMN"
    return f"{line}; a column with another name is given as in {example}"


def _with_measure(frame: Table, name: str) -> tuple[Table, list[str]]:
    """Returns the rows that have a measure, and remarks on the others.

    Raises FitError if no row has one.
    """
    gone = frame[name].isna()
    if not gone.any() or not is_numeric(frame[name]):
        return frame, []
    why = ""
    if "status" in frame:
        found = sorted(set(frame["status"][gone].astype(str)))
        why = f" (status {', '.join(found)})"
    if gone.all():
        raise FitError(f"{name}: null in all rows{why}; there is nothing to fit")
    remark = f"{gone.sum()} of {len(frame)} rows have no {name}{why} and were left out"
    return frame[~gone], [remark]


def _wrong_types(frame: Table, roles: Roles, whole: Mapping[str, int]) -> list[str]:
    """Returns a message for each column that has values of a wrong type.

    `whole` contains the smallest value of each column of whole numbers. The function
    also converts these columns to int64 in place.
    """
    problems = []
    for name in without(common(roles.kinds, frame), whole):
        if problem := _wrong_field(frame[name], roles.kinds[name]):
            problems.append(f"{name}: {problem}")
    for name, low in whole.items():
        if problem := _made_whole(frame, name, low):
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


def _made_whole(frame: Table, name: str, low: int) -> str | None:
    """Converts a column of whole numbers to int64 in place.

    Returns a message about wrong values, or None if there are none.
    """
    from pandas.api.types import is_bool_dtype

    allowed = f"whole numbers from {low}"
    if not is_numeric(frame[name]) or is_bool_dtype(frame[name]):
        return _holds(frame[name], allowed)
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
