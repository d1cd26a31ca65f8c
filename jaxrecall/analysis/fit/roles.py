"""The roles that the columns of a table of runs play, as the table itself states them.

`roles_of` makes this record when a table is read. Fits, figures and reports read the
record and know nothing else about where a table comes from. There are three sources:

- Rows of this package's simulator have its fields as columns.
- Rows of a user's simulator come with the declarations of the simulator in `attrs`.
- Any other table states nothing. The columns that vary, and whose values several seeds
  share, are its axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...model.point import FIELDS
from ...sweep import simulators

Table = Any  # a pandas.DataFrame, whose annotations help less than Any

SIZES = ("V", "d", "L", "m")
"""The axes of our simulator that get an exponent."""

NEEDED = {"V": 2, "N": 1, "d": 1, "L": 1, "m": 0, "seed": 0}
"""The columns that every table of our simulator has, each with its smallest value.

All values are whole numbers.
"""

COUNTS = ("n_test", "n_correct")
ACCURACY = "accuracy"

LABELS = {name: field.metadata["legend"] for name, field in FIELDS.items()}
"""A dict from each field of our simulator, and the step, to its meaning."""

LABELS |= {"step": "gradient steps made"}

RISES = {"N": True} | simulators.RISES
"""Whether the accuracy of our simulator rises along an axis."""

SETTINGS = ("trigger_in_value", "kappa", "embedding")
"""Columns of our simulator without which theory does not know what was simulated."""


@dataclass(frozen=True)
class Roles:
    """The roles of the columns of one table.

    Attributes:
        is_ours: whether the rows are those of this package's simulator.
        measure: the column that crosses theta.
        counted: whether the measure is a fraction of answers, n_correct of n_test.
        along: the axis along which the measure crosses theta. It is empty if the table
            does not say.
        axes: the axes that the table lists, or None if it lists none.
        kept: the columns that name cells and are not axes.
        needed: the columns of whole numbers that must be there, each with its smallest
            value.
        fields: the settings of a run that are known by name.
        sizes: the axes that always distinguish cells.
        powers: the axes that may get an exponent. None means every axis of positive
            numbers.
        split: the column whose rows with the value 0 are a family of their own.
        labels: the meaning of each column for which the owner of the table gave one.
        rises: whether the measure rises along an axis, where the owner has said so.
    """

    is_ours: bool
    measure: str
    counted: bool
    along: str = ""
    axes: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    needed: Mapping[str, int] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    powers: tuple[str, ...] | None = None
    split: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    rises: Mapping[str, bool] = field(default_factory=dict)

    def having(self, measure: str) -> Roles:
        """Returns the roles with another column as the measure."""
        if measure in (ACCURACY, self.measure):
            return self
        rises = self.rises if not self.is_ours else {}
        return replace(self, measure=measure, counted=False, rises=rises)


def roles_of(frame: Table) -> Roles:
    """Returns the roles of a table's columns. The table may lack columns."""
    facts = frame.attrs
    listed = facts.get("axes")
    stated = Roles(
        is_ours=False,
        measure=facts.get("accuracy", ACCURACY),
        counted=False,
        along=facts.get("searched") or "",
        axes=tuple(listed) if isinstance(listed, list) else None,
        kept=tuple(facts.get("kept", ())),
        fields=tuple(facts.get("fields", ())),
        labels=facts.get("labels", {}),
        rises=facts.get("rises", {}),
    )
    has_counts = {*COUNTS} <= {*frame}
    is_own = "accuracy" in facts or "simulator" in frame
    if is_own or not {*SIZES, "N"} <= {*frame}:
        is_counts = stated.measure in COUNTS or stated.measure not in frame
        counted = has_counts and is_counts
        return replace(stated, counted=counted)
    return replace(
        stated,
        is_ours=True,
        counted=has_counts or ACCURACY not in frame,
        along=stated.along or "N",
        needed=NEEDED,
        fields=tuple(FIELDS),
        sizes=SIZES,
        powers=("N", *SIZES),
        split="m",
        labels=LABELS,
        rises=RISES,
    )
