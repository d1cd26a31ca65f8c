"""A table of runs, read and checked: which steps are fitted, and a line for all that is wrong."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import FitError, UsageError, as_list, expect, shown
from ...model.columns import EXTRA_COLUMNS, is_parameter
from ...model.point import FIELDS
from ...sweep.files import is_folder
from ...sweep.store.load import load
from ...sweep.store.table import about
from .axes import Table, as_given, is_own, seed_columns

NEEDED = {"V": 2, "N": 1, "d": 1, "L": 1, "m": 0, "seed": 0, "n_test": 1, "n_correct": 0}
"""Columns that a table of our simulator must have, each with the least value allowed; whole numbers all."""

SIZES = ("V", "N", "d", "L", "m", "seed")
"""Those that are no counts."""

OF_FRACTIONS = ("memory_accuracy", "train_accuracy", "attention_mass", "attention_top1", "matched_accuracy", "assignment_accuracy")
"""Some columns that may cross theta in place of accuracy."""

LAST, ALL = "last", "all"

Steps = str | int | Sequence[int]
"""LAST, ALL, a step or several."""

STEP_HELP = "rows of runs that train on: last (the last step of each point), all, or steps; several make an axis (default: last)"

TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {"str": (str, "text"), "bool": ((bool, np.bool_), "true, false")}
"""Types of fields that are no numbers, and what to call their values."""


def plain_table(argument: str, frame: Table) -> Table:
    """The table without an index, whose levels are columns, and with numbers in place of objects.

    Raises FitError for what is no table.
    """
    import pandas as pd

    expect(argument, frame, pd.DataFrame, "a table as jaxrecall.load and jaxrecall.run return it", FitError)
    index = {name: frame.index.get_level_values(i) for i, name in enumerate(frame.index.names) if name is not None}
    frame = frame.reset_index(drop=True)
    for i, name in enumerate(name for name in index if name not in frame):
        frame.insert(i, name, index[name])
    loose = frame.dtypes.astype(str).str.contains("^object|^category|^dictionary") & frame.columns.is_unique
    frame = frame.astype(dict.fromkeys(frame.columns[loose], object))
    for name in frame.columns[loose]:
        if pd.api.types.infer_dtype(frame[name]) in ("integer", "floating", "mixed-integer-float", "decimal"):
            frame[name] = pd.to_numeric(frame[name])
    return frame


def read(path: Path, *others: Path) -> tuple[Table, list[str]]:
    """The rows of results folders or of any one Parquet file, and remarks on them.

    Raises FitError or StoreError.
    """
    if others or is_folder(path):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            frame = load([path, *others])
        return frame, [str(warning.message) for warning in caught]
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not os.path.isfile(path):  # a pipe would wait forever
        what = "is neither a file nor a folder" if os.path.exists(path) else "there is no such file or folder"
        raise FitError(f"{path}: {what}; allowed: a results folder or a .parquet file")
    try:
        with open(path, "rb") as bytes_, pq.ParquetFile(bytes_) as file:  # a path need not be UTF-8
            table = file.read()
            frame = table.to_pandas(ignore_metadata=True)  # an index is columns too
    except (OSError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise FitError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:200]}); allowed: a results folder or a .parquet file"
        ) from error
    facts = about(table)
    frame.attrs |= {name: facts[name] for name in ("axes", "accuracy", "searched") if facts.get(name) is not None}
    return plain_table("table", frame), []


def at_steps(frame: Table, step: Steps) -> Table:
    """The rows of these steps; raises FitError for a step that no row has.

    A table without the column has one row per run.
    The last step is that of each point, not of each run: a run that has no row there,
    as rows were left out, is left out too.
    """
    wanted = [step] if isinstance(step, (str, int)) else as_list("step", step, "a step, a list of steps, 'last' or 'all'", FitError)
    if wanted == [ALL] or (wanted == [LAST] and "step" not in frame):
        return frame
    found = sorted(set(frame["step"])) if "step" in frame else []
    if wanted == [LAST]:
        if len(found) < 2:
            return frame
        ends = frame["step"] == _by_point(frame)["step"].transform("max")
        return frame[ends].drop(columns="step").reset_index(drop=True)
    if not wanted or not all(one in found for one in wanted):
        allowed = ", ".join(map(str, found)) or "the table has no column step"
        raise FitError(f"step: got {shown(step)}; allowed: {LAST!r}, {ALL!r}, or steps of the table ({allowed})")
    return frame[frame["step"].isin(wanted)].reset_index(drop=True)


def _by_point(frame: Table) -> Table:
    point = ["point_id"] if "point_id" in frame else [name for name in FIELDS if name in frame]
    return frame.groupby(point, dropna=False)


def parsed(words: Sequence[str]) -> Steps:
    """The steps that a command line names; raises UsageError."""
    if list(words) in ([LAST], [ALL]):
        return words[0]
    if not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        raise UsageError(f"--step: got {' '.join(words)}; allowed: {LAST}, {ALL}, or whole numbers, as in 3 30 300")
    return [int(word) for word in words]


def crossing(frame: Table, of: str) -> Table:
    """The table with another column in place of its accuracy; raises FitError."""
    if of in ("accuracy", frame.attrs.get("accuracy")):
        return frame
    allowed = f"allowed: accuracy, {', '.join(OF_FRACTIONS)}, or any other column of fractions that was measured"
    values = _measured(frame, "of", of, allowed, 1)
    if values.isna().all():
        raise FitError(f"of: {of} is null in all rows{'; the sweep asks for it by decoders: true' if of in EXTRA_COLUMNS else ''}")
    return _of_shares(frame, of)


def measured(frame: Table, column: str) -> Table:
    """The table with a column in place of its accuracy, over its largest value; raises FitError.

    No exponent sees that scale.
    """
    allowed = f"allowed: a column of numbers from 0 that was measured, such as {', '.join(OF_FRACTIONS[:2])}"
    values = _measured(frame, "law", column, allowed, np.inf)
    return _of_shares(frame.assign(**{column: values / max(values.max(), 1e-300)}), column)


def _measured(frame: Table, argument: str, name: str, allowed: str, high: float) -> Table:
    """A column of numbers from 0 that was measured; raises FitError."""
    _refuse_columns_twice(frame)
    if name not in frame or name in FIELDS or is_parameter(name) or name in seed_columns(frame):
        raise FitError(
            f"{argument}: got {shown(name)}, which {'was not measured' if name in frame else 'is no column of the table'}; {allowed}"
        )
    if problem := _no_numbers(frame[name]):
        raise FitError(f"{name}: {problem}")
    found = frame[name].dropna()
    if (bad := ~found.between(0, high)).any():
        raise FitError(f"{argument}: {name} is {found[bad].iloc[0]:.4g} in {bad.sum()} rows; {allowed}")
    return frame[name]


def _of_shares(frame: Table, column: str) -> Table:
    """The table with a column of fractions as shares of one answer."""
    made = frame.assign(n_correct=frame[column].astype(float), n_test=1)
    made.attrs |= {"of": column} | ({"accuracy": column} if is_own(frame) else {})
    return made


def checked(frame: Table, along: str = "N") -> tuple[Table, list[str]]:
    """The rows that have an accuracy, with columns as a grid gives them, and how many have none.

    Raises FitError with every problem.
    A table of our simulator needs the columns NEEDED. One of a user's own needs its
    accuracy, counted or not, the seed and `along`.
    """
    from pandas.api.types import is_numeric_dtype

    _refuse_columns_twice(frame)
    counts = ["n_test", "n_correct"]
    of = frame.attrs.get("of") or (frame.attrs["accuracy"] if is_own(frame) and not {*counts} <= {*frame} else None)
    needed = [*([along, "seed"] if is_own(frame) else SIZES), *([of] if of else counts)]
    if missing := [str(name) for name in needed if name not in frame]:
        raise FitError(f"columns: no {', '.join(missing)}; needed: {', '.join(map(str, needed))}")
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    frame, remarks = as_given(frame.copy()), []
    if is_numeric_dtype(frame["n_correct"]) and (gone := frame["n_correct"].isna()).any():
        what = of or "n_correct"
        why = f" (status {', '.join(sorted(set(frame['status'][gone].astype(str))))})" if "status" in frame else ""
        remarks.append(f"{gone.sum()} of {len(frame)} rows have no {what}{why} and were left out")
        frame = frame[~gone]
        if not len(frame):
            raise FitError(f"{what}: null in all rows{why}; there is nothing to fit")
    if problems := _problems(frame, needed, of):
        raise FitError(problems)
    return frame, remarks


def _problems(frame: Table, needed: Sequence[str], of: str | None) -> list[str]:
    """What is wrong with the values of a table; makes columns of whole numbers int64."""
    fields = [] if is_own(frame) else [name for name in FIELDS if name in frame and name not in NEEDED]
    problems = [f"{name}: {problem}" for name in fields if (problem := _not_of_field(frame, name))]
    problems += [f"{name}: {problem}" for name in needed if name in NEEDED and (problem := _made_whole(frame, name))]
    if problems:
        return problems
    if of is None:
        bad = frame["n_correct"] > frame["n_test"]
        return [f"n_correct: more than n_test in {bad.sum()} rows; allowed: 0 to n_test"] if bad.any() else []
    if problem := _no_numbers(frame[of]):
        return [f"{of}: {problem}"]
    bad = ~frame[of].between(0, 1)
    return [f"{of}: {frame[of][bad].iloc[0]:g} in {bad.sum()} rows; allowed: fractions from 0 to 1"] if bad.any() else []


def _made_whole(frame: Table, name: str) -> str:
    """What is wrong with a column that should hold whole numbers; it becomes int64."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    low = NEEDED[name]
    if not is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name]):
        return _holds(frame[name], f"whole numbers from {low}")
    values = frame[name].to_numpy(np.float64, na_value=np.nan)
    bad = ~((values >= low) & (values == np.round(values)) & (values < 2**53))
    frame[name] = np.where(bad, 0, values).astype(np.int64)
    return f"{values[bad][0]:g} in {bad.sum()} rows; allowed: whole numbers from {low}" if bad.any() else ""


def _refuse_columns_twice(frame: Table) -> None:
    if twice := sorted(set(frame.columns[frame.columns.duplicated()])):
        raise FitError(f"columns: {', '.join(twice)} more than once; rename or drop one")


def _not_of_field(frame: Table, name: str) -> str | None:
    """What is wrong with a column of a field of the point that holds values of another type."""
    kind = str(FIELDS[name].type).removesuffix(" | None")
    if kind not in TYPES:
        return _no_numbers(frame[name])
    values, (types, allowed) = frame[name].dropna(), TYPES[kind]
    return None if all(isinstance(value, types) for value in values) else _holds(values, allowed)


def _no_numbers(column: Table) -> str | None:
    """What is wrong with a column that should hold numbers."""
    from pandas.api.types import is_numeric_dtype

    values = column.dropna()
    return None if is_numeric_dtype(values) or values.empty else _holds(values, "numbers")


def _holds(values: Table, allowed: str) -> str:
    value = values.tolist()[0]
    kind = "str" if isinstance(value, str) else values.dtype  # pandas 2 calls text object
    return f"holds {shown(value, 60)} ({kind}); allowed: {allowed}"
