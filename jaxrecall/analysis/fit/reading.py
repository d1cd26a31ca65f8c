"""Reads tables of runs from folders, files or pandas tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import FitError, UsageError, expect, in_one_line
from ...model.values import as_pandas
from ...sweep.files import is_folder
from ...sweep.store.load import STATED, load
from ...sweep.store.table import open_rows, read_facts
from .columns import Table, without

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


def read_tables(
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
    return rename_columns(frame, columns or {}), remarks


def rename_columns(frame: Table, columns: Mapping[str, str]) -> Table:
    """Returns the table with its columns named as in `columns`: new name -> old name.

    Raises FitError if there is no such column.
    """
    if missing := without(columns.values(), frame):
        raise FitError(
            f"columns: got {', '.join(missing)}; allowed: {', '.join(map(str, frame))}"
        )
    return frame.rename(columns={given: name for name, given in columns.items()})


def parse_columns(words: Sequence[str]) -> dict[str, str]:
    """Returns the mapping that the words of a command line list, as in N=n_train.

    Raises UsageError for any other form.
    """
    columns = {}
    for word in words:
        name, _, given = word.partition("=")
        if not (name and given) or name in columns:
            raise UsageError(
                f"--columns: got {word}; allowed: NAME=COLUMN, once for each NAME, as"
                " in N=n_train"
            )
        columns[name] = given
    return columns


FILES = "a results folder, or a .parquet or .csv file"


def _read_file(path: Path) -> Table:
    import pandas as pd

    if not os.path.isfile(path):  # reading a pipe would block forever
        raise FitError(
            f"{path}: there is no such regular file or folder; allowed: {FILES}"
        )
    try:
        is_csv = path.suffix.lower() == ".csv"
        frame = pd.read_csv(path) if is_csv else _read_parquet(path)
    except Exception as error:  # a damaged file may raise anything
        raise FitError(
            f"{path}: cannot be read ({in_one_line(error)}); allowed: {FILES}"
        ) from error
    return plain_table("table", frame)


def _read_parquet(path: Path) -> Table:
    """Returns the rows of a Parquet file. Its description becomes attributes."""
    with open_rows(path) as file:
        table = file.read()
    frame = table.to_pandas(ignore_metadata=True)  # the index becomes columns
    facts = read_facts(table)
    for name in STATED:
        if facts.get(name) is not None:
            frame.attrs[name] = facts[name]
    return frame
