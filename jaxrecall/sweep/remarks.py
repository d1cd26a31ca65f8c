"""What to say of rows that are not as they should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .simulators import Facts

GAP = 0.03
"""Largest part of the attention that a locked cell may lose to noise tokens."""


def not_finite(rows: Any, facts: Facts) -> Iterator[str]:
    """Lines about rows without finite metrics, or without a number in columns of the user's."""
    if nonfinite := list(rows["status"]).count("nonfinite"):
        why = "a number overflowed, and their metrics are null" if facts.is_ours else f"{facts.accuracy} is not finite, and null"
        yield f"{nonfinite} of {len(rows)} rows have the status nonfinite: {why}"
    for name in facts.own_columns:
        if name != facts.accuracy and (missing := list(rows[name].isna()).count(True)):
            yield f"{name}: absent or not finite in {missing} of {len(rows)} rows, where it is null"


def limited_by_kappa(rows: Any, axes: Iterable[str], along: str = "N") -> str:
    """A line about the cells in which a larger kappa would raise recall, empty if there are none.

    `attention_top1` is the part of the sequences in which the informative token has the
    largest score, and `attention_mass` the attention that it gets. Where scores are
    right but too small, the first exceeds the second. Runs that train on are left out:
    they find attention by themselves.

    Args:
        rows: one row per run, as `load` returns them.
        axes: what varies between points.
        along: the axis whose values make up a cell; its largest value is judged.
    """
    columns = ["attention_top1", "attention_mass"]
    if not {along, "kappa", "steps", *columns} <= {*rows}:
        return ""
    rows = rows[rows["steps"] == 3]
    cell = [axis for axis in axes if axis in rows and axis != along and rows[axis].nunique(dropna=False) > 1]
    means = rows.groupby([*cell, along], dropna=False)[columns].mean().reset_index().sort_values(along, kind="stable")
    last = means.groupby(cell, dropna=False).tail(1) if cell else means.tail(1)
    gaps = last["attention_top1"] - last["attention_mass"]
    if not (open_ := gaps > GAP).any():
        return ""
    worst = last.loc[gaps.idxmax()]
    at = ", ".join(f"{axis} = {worst[axis] if isinstance(worst[axis], str) else format(worst[axis], 'g')}" for axis in [*cell, along])
    top1, mass = (worst[column] for column in columns)
    return (
        f"attention is limited by kappa in {open_.sum()} of {len(last)} cells, at {at} most: there attention_top1 is {top1:.2f} and "
        f"attention_mass {mass:.2f}, so recall is understated. Raise kappa until the two agree"
    )
