"""Which rows of runs that train on are fitted: those of the last step, of some steps, or of all, with the step as an axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...errors import FitError, UsageError, as_list, shown
from ...model.point import FIELDS

Table = Any  # pandas.DataFrame, whose own types say less than Any
LAST, ALL = "last", "all"

Steps = str | int | Sequence[int]
"""LAST, ALL, a step or several."""

HELP = "rows of runs that train on: last (the last step of each point), all, or steps; several make an axis (default: last)"


def at_steps(frame: Table, step: Steps) -> Table:
    """The rows of these steps; raises FitError for a step that no row has. A table without the column has one row per run.

    The last step is that of each point, not of each run: a run that has no row there, as rows were left out, is left out too.
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


def traced(frame: Table) -> Table:
    """The rows of points that have rows of several steps."""
    return frame[_by_point(frame)["step"].transform("nunique") > 1] if "step" in frame else frame.iloc[:0]


def _by_point(frame: Table) -> Any:
    point = ["point_id"] if "point_id" in frame else [name for name in FIELDS if name in frame]
    return frame.groupby(point, dropna=False)


def parsed(words: Sequence[str]) -> Steps:
    """The steps that a command line names; raises UsageError."""
    if list(words) in ([LAST], [ALL]):
        return words[0]
    if not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        raise UsageError(f"--step: got {' '.join(words)}; allowed: {LAST}, {ALL}, or whole numbers, as in 3 30 300")
    return [int(word) for word in words]
