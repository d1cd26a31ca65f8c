"""The roles that the columns of a table of runs play, as the table itself states them.

`roles_of` makes this record when a table is read. Fits, figures and reports read the
record and know nothing else about where a table comes from. There are three sources:

- Rows of this package's simulator have its fields as columns.
- Rows of a user's simulator come with the declarations of the simulator in `attrs`.
- Any other table states nothing but what its user says (`with_stated`). Without that,
  every column that varies is an axis, as `table_axes` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import FitError, as_list
from ...model.columns import COLUMNS
from ...model.point import EXTRAS, FIELDS
from ...model.values import plain_type
from ...sweep.simulators import RISES
from .columns import Table, without

SIZES = ("V", "d", "L", "m")
"""The axes of our simulator that get an exponent."""

COUNTS = ("n_test", "n_correct")
ACCURACY = "accuracy"
NUMBERS = ("int", "float")

SETTINGS = ("trigger_in_value", "kappa", "embedding")
"""Columns of our simulator without which theory does not know what was simulated."""

AFTER = (
    "seed",
    "root_seed",
    "point_id",
    "status",
    "seconds",
    "simulator",
    "code_version",
)
"""Columns of the rows of any simulator that are no settings."""


@dataclass(frozen=True)
class Roles:
    """The roles of the columns of one table.

    Attributes:
        is_ours: whether the rows are those of this package's simulator, so that its
            defaults and its theory apply.
        measure: the column that crosses theta.
        counted: whether the measure is a fraction of answers, n_correct of n_test.
        along: the axis along which the measure crosses theta. It is empty if the table
            does not say.
        axes: the axes that the table lists, or None if it lists none.
        kept: the columns that name cells and are not axes.
        averaged: the columns over which the measure is averaged within a seed. By
            default these are further seeds, such as data_seed.
        fields: the settings of a run that are known by name and may change its results.
        known: the columns that are no axes unless they are among the other roles.
        needed: the settings that are whole numbers and must be there, each with its
            smallest value.
        numbers: the fields that contain numbers.
        sizes: the axes that always distinguish cells.
        rates: the rates in order of priority, each of which follows from others.
        powers: the axes that may get an exponent. None means every axis of positive
            numbers.
        split: the column whose rows with the value 0 are a family of their own.
        labels: the meaning of each column for which the owner of the table gave one.
        titles: the labels of columns that are shown in place of their names.
        units: the units of critical values.
        rises: whether the measure rises along an axis, where the owner has said so.
    """

    measure: str
    is_ours: bool = False
    counted: bool = False
    along: str = ""
    axes: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    needed: Mapping[str, int] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    powers: tuple[str, ...] | None = None
    split: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    rises: Mapping[str, bool] = field(default_factory=dict)

    def having(self, measure: str) -> Roles:
        """Returns the roles with another column as the measure.

        What the owner said about the direction holds for the usual measure alone.
        """
        if measure in (ACCURACY, self.measure):
            return self
        return replace(self, measure=measure, counted=False, rises={})


Names = str | Sequence[str] | None


def with_stated(frame: Table, axes: Names, average: Names) -> Table:
    """Returns the table with its axes, and the columns to average over, as attributes.

    Raises FitError if one is no column of the table.
    """
    frame = frame.copy(deep=False)
    given = (("axes", "axes", axes), ("averaged", "average", average))
    for fact, argument, names in given:
        if names is None:
            continue
        allowed = f"columns of the table: {', '.join(map(str, frame))}"
        names = [names] if isinstance(names, str) else names
        names = as_list(argument, names, allowed, FitError)
        if unknown := without(names, frame):
            got = ", ".join(map(str, unknown))
            raise FitError(f"{argument}: got {got}; allowed: {allowed}")
        frame.attrs = {**frame.attrs, fact: names}
    return frame


def roles_of(frame: Table) -> Roles:
    """Returns the roles of a table's columns. The table may lack columns."""
    facts, has_counts = frame.attrs, {*COUNTS} <= {*frame}
    if {*SIZES, "N"} <= {*frame} and not ("accuracy" in facts or "simulator" in frame):
        roles = replace(OURS, counted=has_counts or ACCURACY not in frame)
    else:
        measure = facts.get("accuracy", ACCURACY)
        if measure not in frame and ACCURACY in frame:
            measure = ACCURACY  # a table that pandas melted keeps its attributes
        is_counts = measure in COUNTS or measure not in frame
        roles = Roles(
            measure=measure,
            counted=has_counts and is_counts,
            fields=tuple(facts.get("fields", ())),
            known=(measure, *COUNTS, *AFTER),
            labels=facts.get("labels", {}),
            rises=facts.get("rises", {}),
        )
    axes = facts.get("axes")
    axes = tuple(axes) if isinstance(axes, list) else None
    others = without(map(str, frame), (*(axes or ()), "seed", "root_seed"))
    # such as data_seed; runs of one seed that differ in them repeat it
    further_seeds = [name for name in others if name.endswith("seed")]
    return replace(
        roles,
        along=facts.get("searched") or roles.along,
        axes=axes,
        kept=tuple(facts.get("kept", ())),
        averaged=tuple(facts.get("averaged") or further_seeds),
    )


OURS = Roles(
    measure=ACCURACY,
    is_ours=True,
    along="N",
    fields=tuple(without(FIELDS, (*EXTRAS, "root_seed", "n_test"))),
    known=tuple(COLUMNS),
    needed={"V": 2, "N": 1, "d": 1, "L": 1, "m": 0},
    numbers=tuple(name for name in FIELDS if plain_type(FIELDS[name]) in NUMBERS),
    sizes=SIZES,
    rates=("kappa", "gamma", "gamma2"),
    powers=("N", *SIZES),
    split="m",
    labels={name: f.metadata["legend"] for name, f in FIELDS.items()}
    | {"step": "gradient steps made"},
    titles={ACCURACY: "test accuracy (fraction)"},
    units={"N": "samples"},
    rises={"N": True} | RISES,
)
"""The roles of the columns of this package's simulator."""
