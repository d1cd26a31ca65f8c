"""Chooses what is measured, at which steps, and the axis along which it crosses."""

from __future__ import annotations

from dataclasses import replace
from types import NoneType

from ...errors import FitError, expect, refusal, shown
from ...model.columns import EXTRA_COLUMNS, is_parameter
from ...model.point import FIELDS
from .columns import Table, common, is_numeric, no_numbers, seed_columns
from .roles import Roles
from .table_axes import unstated

LAST, ALL = STEPS = ("last", "all")


def choose_measure(
    frame: Table, roles: Roles, column: str, is_law: bool = False
) -> Roles:
    """Returns the roles with a column as the measure, or as the measure of a law.

    Raises FitError if the column was not measured. That of a law has to contain numbers
    that are 0 or greater.
    """
    argument, chosen = "of", roles.having(column)
    if is_law:
        argument, chosen = "law", replace(chosen, measure=column, counted=False)
    elif chosen is roles:
        return roles
    settings = (*roles.fields, *seed_columns(frame))
    if column not in frame or column in settings or is_parameter(column):
        allowed = "accuracy, or any other column of measured numbers"
        raise refusal(argument, shown(column), allowed, FitError)
    if problem := no_numbers(frame[column]):
        raise FitError(f"{column}: {problem}")
    if frame[column].isna().all():
        hint = ""
        if column in EXTRA_COLUMNS:
            hint = "; the sweep asks for it by decoders: true"
        raise FitError(f"{argument}: {column} is null in all rows{hint}")
    if is_law and (frame[column] < 0).any():
        raise FitError(f"law: {column} is less than 0 in some rows; allowed: from 0")
    return chosen


def choose_along(
    frame: Table,
    roles: Roles,
    wanted: str | None,
    argument: str = "along",
    is_law: bool = False,
) -> str:
    """Returns the axis along which the measure crosses theta.

    The default is the axis of a search, else N if it varies, else the only axis of
    numbers. In the law of a mean, where all axes have one role, it is the first axis of
    numbers that the table states. Raises FitError if there is no such axis; `argument`
    is the argument that names it.
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
    if "N" in frame and frame["N"].nunique() > 1:
        return "N"
    names = unstated(frame, roles) if roles.axes is None else roles.axes
    axes = [name for name in common(names, frame) if _may_be_level(frame[name])]
    if len(axes) == 1 or (is_law and axes and roles.axes):
        return axes[0]
    allowed = ", ".join(axes) or "a column of numbers that vary"
    raise FitError(
        f"{argument}: not given, and the table has no column N that varies; allowed:"
        f" {allowed}"
    )


def _may_be_level(column: Table) -> bool:
    values = column.dropna()
    return is_numeric(values) and values.nunique() > 1 and bool((values >= 0).all())


def at_steps(frame: Table, step: str) -> Table:
    """Returns the rows at all recorded steps, or those at the last step of each point.

    The last step is that of each point, not of each run. A run that has no row at that
    step is left out. A table without a column `step` has one row per run. Raises
    FitError for any other `step`.
    """
    if not isinstance(step, str) or step not in STEPS:
        raise FitError(f"step: got {shown(step)}; allowed: {', '.join(STEPS)}")
    if step == ALL or len(set(frame.get("step", ()))) < 2:
        return frame
    point = common(["point_id"], frame) or common(FIELDS, frame)
    last = frame.groupby(point, dropna=False)["step"].transform("max")
    return frame[frame["step"] == last].drop(columns="step").reset_index(drop=True)
