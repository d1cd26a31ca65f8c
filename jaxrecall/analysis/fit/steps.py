"""Chooses the rows of runs that train by their step."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import FitError, as_list, shown
from ...model.point import FIELDS
from .columns import Table, common, without

LAST, ALL = "last", "all"

Steps = str | int | Sequence[str | int]
"""The type of the argument `step`: LAST, ALL, a step, or several steps. A step may be a
number or its text.
"""


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
    recorded = sorted(set(frame.get("step", ())))
    texts = [*map(str, recorded)]
    if not wanted or without(wanted, [*recorded, *texts]):
        allowed = ", ".join(texts) or "the table has no column step"
        raise FitError(
            f"step: got {shown(step)}; allowed: {LAST!r}, {ALL!r}, or steps of the"
            f" table ({allowed})"
        )
    is_wanted = frame["step"].isin(wanted) | frame["step"].astype(str).isin(wanted)
    return frame[is_wanted].reset_index(drop=True)


def _at_last_step(frame: Table) -> Table:
    if len(set(frame.get("step", ()))) < 2:
        return frame
    point = common(["point_id"], frame) or common(FIELDS, frame)
    last = frame.groupby(point, dropna=False)["step"].transform("max")
    return frame[frame["step"] == last].drop(columns="step").reset_index(drop=True)
