"""Refuses figures in which rows would be averaged that differ in more than their seed.

Rows with one place in a figure have equal values in the columns of its places, such as
x, lines and panels. They may differ in settings that follow from these columns. If they
differ in any other setting, their mean would be the value of no setting at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ...errors import UsageError
from ..fit.columns import Table, common, groups, seed_columns, without
from ..fit.roles import COUNTS, Roles
from ..fit.table_axes import settings_of, without_switches
from .axis import columns_in, with_columns
from .several import choice, listed, of_copies, of_repeated, telling

MEASURE = "_measure"
"""The column of rows in the form of `rows_of` that contains the measure."""

PLACES = "lines, rows, columns or panels"

PROVENANCE = (
    "code_version",
    "precision",
    "n_test",
    "simulator",
    "form",
    "dtype",
    "device_kind",
    "jax_version",
)
"""The columns that can tell repeated runs apart and are neither settings nor measured.
"""


def check_one_run_per_seed(
    df: Table,
    rows: Table,
    roles: Roles,
    *,
    placed: Sequence[str],
    drawn: Sequence[str] = (),
    places: str = PLACES,
) -> None:
    """Raises UsageError if rows with one place in a figure differ in more than a seed.

    Args:
        df: the table of runs as the user has it.
        rows: the rows to draw, in the form of `rows_of`, with the index of `df`.
        roles: the roles of the columns.
        placed: the columns that have a place in the figure, or arithmetic on columns.
        drawn: the columns whose values are averaged. Rows without them are ignored.
        places: the arguments that may give a place to a column.
    """
    if drawn:
        rows = rows.dropna(subset=[*drawn], how="all")
    rows = with_columns(rows, *placed)
    found = mixed(rows, roles, placed, drawn)
    if found:
        refuse_several(df, rows, found, places)
    point = [*dict.fromkeys(placed), *seed_columns(rows)]
    if not rows.duplicated(point).any():
        return
    rows, _ = without_switches(rows, roles)
    names = without(rows, (*roles.known, *drawn, *point, MEASURE, roles.measure))
    names += common(PROVENANCE, rows)
    check_one_row(df, rows, point, names, places, (roles.measure, *COUNTS, *drawn))


def check_one_row(
    df: Table,
    rows: Table,
    point: Sequence[str],
    names: Sequence[str],
    places: str,
    results: Sequence[str] = (),
) -> None:
    """Raises UsageError if several rows have equal values of `point`.

    The message says which of the columns `names` tell such rows apart. If none does,
    rows with equal `results` are called copies.
    """
    rows = with_columns(rows, *point)
    found = of_repeated(rows, point, names)
    if found:
        refuse_several(df, rows, found, places)
    if found is None:
        return
    columns = []
    for name in point:
        columns += sorted(columns_in(name))
    n_rows = rows.duplicated([*point]).sum()
    stored = df.loc[rows.index]
    advice = of_copies(stored, common(columns, stored), common(results, stored))
    raise UsageError(
        f"df: {n_rows} rows have the same {', '.join(dict.fromkeys(columns))} as"
        f" another row; {advice}"
    )


def refuse_several(
    df: Table, rows: Table, names: Sequence[str], places: str = ""
) -> NoReturn:
    """Raises UsageError because rows have several values of the columns `names`.

    The message contains an expression that selects rows of `df` with one value of each
    column. `rows` has the index of `df`.
    """
    stored = df.loc[rows.index]
    values = ", ".join(f"{name} ({listed(stored[name])})" for name in names)
    advice = f"choose one, as in {choice(stored, names)}"
    if "seed" not in df and df[names[0]].dtype.kind in "iu":
        seeds = f'df.rename(columns={{"{names[0]}": "seed"}})'
        advice += f", or, if it numbers the seeds, draw {seeds}"
    if places:
        them = names[0] if len(names) == 1 else "them"
        advice += f", or name {them} in {places}"
    raise UsageError(
        f"df: several values of {values} at one place of the figure; {advice}"
    )


def mixed(
    rows: Table, roles: Roles, placed: Sequence[str], drawn: Sequence[str] = ()
) -> list[str]:
    """Returns the settings that tell apart rows with one place in a figure."""
    found = _lying_apart(rows, roles, placed)
    names = without(settings_of(rows, roles), (*drawn, MEASURE, roles.measure))
    return found + telling(rows, [*placed, *found], names)


def _lying_apart(rows: Table, roles: Roles, placed: Sequence[str]) -> list[str]:
    """Returns the listed axes that would be mixed along a line, though not averaged.

    In a search, for example, two cells may have no level in common. An axis that is a
    function of the levels is left out.
    """
    along = roles.along or "N"
    across = [name for name in placed if along not in columns_in(name)]
    if along not in rows or len(across) == len(placed):
        return []
    used = frozenset().union(*map(columns_in, placed))
    axes = without(common(roles.axes or (), rows), used)
    apart = []
    for name in telling(rows, across, axes):
        by_level = groups(rows, [along])[name]
        if by_level.nunique(dropna=False).max() > 1:
            apart.append(name)
    return apart
