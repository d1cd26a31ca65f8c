"""Spreads the columns that contain arrays over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def explode(frame: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Returns a table with a row for each entry of the columns that are arrays along an
    axis, such as the tasks of a run.

    The axis is a further axis of the table, for fits and figures. Its column is the
    array of this name if the simulator returns one, and otherwise counts from 1.

    Raises UsageError if no array has the axis.

        >>> df = jaxrecall.explode(jaxrecall.run(parities, axes=axes), "task")
    """
    arrays = frame.attrs.get("arrays", {})
    names = [name for name in arrays if arrays[name] == axis and name in frame]
    if not names or (axis in frame and axis not in names):
        allowed = ", ".join({*arrays.values()} - {*frame} | {*arrays}) or "none here"
        raise UsageError(
            f"explode: got {axis!r}; allowed: an axis of arrays: {allowed}"
        )
    long = frame.explode(names, ignore_index=True)
    long[names] = long[names].infer_objects()
    if axis not in names:
        counts = [np.arange(1, len(entries) + 1) for entries in frame[names[0]]]
        long[axis] = np.concatenate(counts)
    others = {name: of for name, of in arrays.items() if of != axis}
    axes = [*frame.attrs.get("axes", ()), axis]
    long.attrs = frame.attrs | {"axes": axes, "arrays": others}
    return long
