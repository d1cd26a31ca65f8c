"""A table of runs, as it is read from results folders, files and tables of pandas."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from ...errors import FitError, UsageError, as_list, expect, shown
from ...model.point import FIELDS
from ...sweep.files import is_folder
from ...sweep.store.load import load
from ...sweep.store.table import about

Table = Any  # pandas.DataFrame, whose own types say less than Any

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
"""Columns that a table of our simulator must have, each with the least value allowed;
all are whole numbers.
"""

OF_FRACTIONS = (
    "memory_accuracy",
    "train_accuracy",
    "attention_mass",
    "attention_top1",
    "matched_accuracy",
    "assignment_accuracy",
)
"""Some columns that may cross theta in place of accuracy."""

LAST, ALL = "last", "all"

Steps = str | int | Sequence[int]
"""LAST, ALL, a step or several."""

STEP_HELP = (
    "rows of runs that train on: last (the last step of each point), all, or steps;"
    " several make an axis (default: last)"
)

NUMERIC = ("integer", "floating", "mixed-integer-float", "decimal")
"""What pandas calls objects that are numbers."""


def plain_table(argument: str, frame: Table) -> Table:
    """The table without an index, whose levels become columns, and with numbers in
    place of objects.

    Raises FitError for anything that is no table, and for columns of one name.
    """
    import pandas as pd

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
    if len(loose):  # with none, pandas would copy each column
        frame = frame.astype(dict.fromkeys(loose, object))
    for name in loose:
        if pd.api.types.infer_dtype(frame[name]) in NUMERIC:
            frame[name] = pd.to_numeric(frame[name])
    return frame


def read(path: Path, *others: Path) -> tuple[Table, list[str]]:
    """The rows of results folders or of any one Parquet file, and remarks on them.

    Raises FitError or StoreError.
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

    if not os.path.isfile(path):  # a pipe would wait forever
        what = "there is no such file or folder"
        if os.path.exists(path):
            what = "is neither a file nor a folder"
        raise FitError(f"{path}: {what}; allowed: a results folder or a .parquet file")
    try:
        # pyarrow opens no path that is not UTF-8
        with open(path, "rb") as bytes_, pq.ParquetFile(bytes_) as file:
            table = file.read()
            frame = table.to_pandas(ignore_metadata=True)  # an index is columns too
    except (OSError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise FitError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:200]}); allowed: a"
            " results folder or a .parquet file"
        ) from error
    facts = about(table)
    for name in ("axes", "accuracy", "searched"):
        if facts.get(name) is not None:
            frame.attrs[name] = facts[name]
    return plain_table("table", frame)


def at_steps(frame: Table, step: Steps) -> Table:
    """The rows of these steps; raises FitError for a step that no row has.

    A table without the column has one row per run.
    The last step is that of each point, not of each run: a run without a row of that
    step is left out.
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
    if not wanted or not all(one in found for one in wanted):
        allowed = ", ".join(map(str, found)) or "the table has no column step"
        raise FitError(
            f"step: got {shown(step)}; allowed: {LAST!r}, {ALL!r}, or steps of the"
            f" table ({allowed})"
        )
    return frame[frame["step"].isin(wanted)].reset_index(drop=True)


def _at_last_step(frame: Table) -> Table:
    if len(set(frame.get("step", ()))) < 2:
        return frame
    point = columns(frame, ["point_id"]) or columns(frame, FIELDS)
    last = frame.groupby(point, dropna=False)["step"].transform("max")
    return frame[frame["step"] == last].drop(columns="step").reset_index(drop=True)


def parsed(words: Sequence[str]) -> Steps:
    """The steps that a command line gives; raises UsageError."""
    if list(words) in ([LAST], [ALL]):
        return words[0]
    if not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        raise UsageError(
            f"--step: got {' '.join(words)}; allowed: {LAST}, {ALL}, or whole numbers,"
            " as in 3 30 300"
        )
    return [int(word) for word in words]


def is_own(frame: Table) -> bool:
    """Whether the table is of a user's own simulator, which says what its column of
    accuracy is.
    """
    return "accuracy" in frame.attrs


def seed_columns(frame: Table) -> list[str]:
    """The columns that identify a seed."""
    return [*columns(frame, ["root_seed"]), "seed"]


def along_of(frame: Table, wanted: str | None) -> str:
    """The axis along which accuracy crosses: the one wanted, else that of a search,
    else N.
    """
    expect(
        "along",
        wanted,
        (str, NoneType),
        "the name of a column of numbers, such as N, d, m, V, L",
        FitError,
    )
    return wanted or frame.attrs.get("searched") or "N"


def columns(frame: Table, names: Iterable[str]) -> list[str]:
    """Those of some names that are columns of the table."""
    return [name for name in names if name in frame]


def without(names: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """The names that are none of the others."""
    return [name for name in names if name not in others]


def groups(frame: Table, names: Iterable[str]) -> Any:
    """The rows grouped by some columns, where null is a value too; by none, one group."""
    return frame.groupby([*names] or (lambda _: 0), dropna=False, observed=True)
