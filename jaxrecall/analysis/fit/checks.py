"""Checks the rows of a table, and counts the right answers of each."""

from __future__ import annotations

import numpy as np

from ...errors import FitError
from .columns import (
    ANSWERS,
    NUMBERS,
    RIGHT,
    Table,
    common,
    floats,
    holds,
    is_numeric,
    no_numbers,
    without,
)
from .roles import ACCURACY, COUNTS, Roles


def check_rows(
    frame: Table, roles: Roles, along: str, counts_lost: bool
) -> tuple[Table, list[str]]:
    """Returns the rows of runs with the columns RIGHT and ANSWERS, and remarks.

    Both columns are 0 for a run whose measure is no number. Rows in which the measure
    was not asked for are left out.

    A table needs the columns `seed` and `along`, its measure, and the columns that
    `roles` says are needed. Raises FitError with a list of the problems.

    Args:
        frame: a table that `as_given` returned. Columns of whole numbers are converted
            to int64 in place.
        roles: the roles of its columns.
        along: the axis along which the measure crosses theta.
        counts_lost: whether runs without a number count as not reached.
    """
    measures = [*COUNTS] if roles.counted else [roles.measure]
    needed = list(dict.fromkeys((*roles.needed, along, "seed", *measures)))
    if missing := without(needed, frame):
        line = f"columns: no {', '.join(missing)}; needed: {', '.join(needed)}"
        if not roles.needed:
            example = f"--columns {missing[0]}=COLUMN"
            line += f"; a column with another name is given as in {example}"
        raise FitError(line)
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    remarks = _on_lost_runs(frame, measures[-1], counts_lost)
    frame = tried(frame, roles, measures[-1])
    has_number = frame[measures[-1]].notna()
    least = dict(roles.needed) | {"seed": 0}
    if roles.counted:
        least |= {"n_test": 1, "n_correct": 0}
        are_counts = all(frame[name].dtype.kind in NUMBERS for name in COUNTS)
        if are_counts and not has_number.all():
            frame = frame.copy()
            frame.loc[~has_number, [*COUNTS]] = [1, 0]
    problems = {}
    for name in without(common(roles.numbers, frame), least):
        problems[name] = no_numbers(frame[name])
    for name, low in least.items():
        problems[name] = _convert_to_whole(frame, name, low)
    lines = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    if not lines and (problem := _wrong_measure(frame, roles)):
        lines = [f"{measures[-1]}: {problem}"]
    if lines:
        raise FitError(lines)
    frame = frame.assign(**{RIGHT: frame[measures[-1]].astype(float), ANSWERS: 1.0})
    if roles.counted:
        frame[ANSWERS] = frame["n_test"]
    frame.loc[~has_number, [RIGHT, ANSWERS]] = 0
    return frame, remarks


def _on_lost_runs(frame: Table, name: str, counts_lost: bool) -> list[str]:
    """Returns a remark on runs without a number. Raises FitError if none has one."""
    if not is_numeric(frame[name]):
        return []
    is_lost = ~np.isfinite(floats(frame[name]))
    if not is_lost.any():
        return []
    why = ""
    if "status" in frame:
        states = sorted(set(frame["status"][is_lost].astype(str)))
        why = f" (status {', '.join(states)})"
    if is_lost.all():
        raise FitError(f"{name}: null in all rows{why}; there is nothing to fit")
    how = "count as not reached" if counts_lost else "were left out"
    return [f"{is_lost.sum()} of {len(frame)} rows have no {name}{why} and {how}"]


def tried(frame: Table, roles: Roles, name: str) -> Table:
    """Returns the rows of runs that were to measure a column, with null for each value
    that is no finite number.

    Our simulator leaves a column null that was not asked for, such as that of a
    decoder. The status of such a run is not nonfinite.
    """
    if not is_numeric(frame[name]):
        return frame
    is_finite = np.isfinite(floats(frame[name]))
    if frame[name].dtype.kind == "f":
        frame = frame.assign(**{name: frame[name].where(is_finite)})
    if roles.is_ours and "status" in frame:
        return frame[is_finite | (frame["status"] == "nonfinite")]
    return frame


def _wrong_measure(frame: Table, roles: Roles) -> str | None:
    """Returns a message about wrong values of the measure, if there are any."""
    if roles.counted:
        n_wrong = (frame["n_correct"] > frame["n_test"]).sum()
        return n_wrong and f"more than n_test in {n_wrong} rows; allowed: 0 to n_test"
    values = frame[roles.measure].dropna()
    if problem := no_numbers(values):
        return problem
    if roles.measure != ACCURACY:
        return None
    return _listed(values, ~values.between(0, 1), "fractions from 0 to 1")


def _convert_to_whole(frame: Table, name: str, low: int) -> str | None:
    """Converts a column of whole numbers to int64 in place.

    Returns a message about wrong values, or None if there are none.
    """
    allowed = f"whole numbers from {low}"
    if not is_numeric(frame[name]) or frame[name].dtype in ("bool", "boolean"):
        return holds(frame[name], allowed)
    values = frame[name].astype(float)
    wrong = ~((values >= low) & (values == np.round(values)) & (values < 2**53))
    frame[name] = values.mask(wrong, 0).astype(np.int64)
    return _listed(values, wrong, allowed)


def _listed(values: Table, wrong: Table, allowed: str) -> str | None:
    if wrong.any():
        return f"{values[wrong].iloc[0]:g} in {wrong.sum()} rows; allowed: {allowed}"
    return None
