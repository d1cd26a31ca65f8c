"""Finds the columns that tell rows apart, and gives advice on rows that are alike."""

from __future__ import annotations

import json

from ...errors import shortened
from ...model.values import is_missing
from .columns import ColumnNames, Table, common, groups, n_values, rounded

FEW = 3
"""The largest number of values of a column that a message lists."""


def tell_apart(
    rows: Table,
    placed: ColumnNames,
    names: ColumnNames,
    always: ColumnNames = (),
) -> list[str]:
    """Returns the columns that tell apart rows with equal values of `placed`.

    A column is left out if its values follow from those of the columns before it,
    unless it is among `always` and varies.
    """
    known = [*dict.fromkeys(placed)]
    n_placed, n_groups = len(known), groups(rows, known).ngroups
    for name in names:
        if name in known or n_values(rows, name) < 2:
            continue
        rows = rows.assign(**{name: rounded(rows[name])})
        n_apart = groups(rows, [*known, name]).ngroups
        if n_apart > n_groups or name in always:
            known.append(name)
            n_groups = n_apart
    return known[n_placed:]


def advise_on_copies(stored: Table, point: ColumnNames, results: ColumnNames) -> str:
    """Returns advice about rows with equal values of `point` that no setting tells
    apart. Only rows with equal results are copies of one run.
    """
    columns = common(dict.fromkeys(point), stored)
    alike = stored.duplicated(columns + common(results, stored))
    if alike.sum() < stored.duplicated(columns).sum():
        return (
            "no setting of the table tells them apart; add the column that does, or"
            " name it in --axes or --average"
        )
    return f"keep one row of each, as in df.drop_duplicates({json.dumps(columns)})"


def list_values(column: Table) -> str:
    """Returns a text with the first values of a column, text in double quotes."""
    values = column.drop_duplicates()
    texts = []
    for value in values.head(FEW):
        text = "missing" if is_missing(value) else repr(value)
        if isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False)
        texts.append(shortened(text, 60))
    if len(values) > FEW:
        texts.append(f"and {len(values) - FEW} more")
    return ", ".join(texts)
