"""Chooses the rows of runs that train by their step."""

from __future__ import annotations

from ...errors import FitError, shown
from ...model.point import FIELDS
from .columns import Table, common

LAST, ALL = STEPS = ("last", "all")


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
