"""Finds the axes of a table of runs: the columns of settings, not of measurements.

A table of a sweep lists the axes of its grid in `attrs["axes"]`. Tables from older
versions or from other programs do not list their axes. In such a table, the axes are
all fields of the point that vary, and all other columns whose values several seeds
share.

In a table of our simulator V, d, L and m are always axes, and so is the step if several
steps are fitted. A column that merely follows from others is not an axis. For example,
if kappa was given, gamma = kappa L^2 V / eta varies with V and L, and so does gamma2
unless it was also given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...model.point import (
    FIELDS,
    RECIPE_STEPS,
    SAME_AS,
    STARTS,
    TRAINING,
    to_12_digits,
    unusual,
)
from .roles import Roles, Table
from .runs import K, N, common, groups, is_numeric, seed_columns, without

AxisValue = Any  # a number, text, true or false; nan if missing

FOLDER = r'path="(?:[^"]*/)?([^"/]*)"'
"""A regular expression that finds the path in the text of an embedding law."""


def as_given(frame: Table, roles: Roles) -> Table:
    """Returns a copy of the table with its columns in the form that a grid uses.

    The search for axes needs this form. In every table, 16-bit floats, by which pandas
    cannot group, become 64-bit floats. In a table of our simulator, the other changes
    are:

    - `pool` is 0 for no pool and `batch` is 0 for all samples, as m is 0 for no MLP.
    - `gamma2` is null where it equals gamma, if it then has fewer distinct values.
    - The text of a law loses its parameters if other runs have the same law with other
      parameters. Columns such as embedding.rho are then axes.
    - The path of an embedding file loses its folder, because a sweep may be resumed
      after the file was moved.
    - Rows of the recipe alone, which have no optimiser, get the training settings that
      all other rows share. Steps can then be an axis that starts at 3.
    """
    from pandas.api.types import infer_dtype

    frame = frame.copy()
    halves = frame.columns[frame.dtypes == np.float16]
    if len(halves):
        frame = frame.astype(dict.fromkeys(halves, float))
    if not roles.is_ours:
        return frame
    for name, other in SAME_AS.items():
        if {name, other} <= {*frame} and frame[name].equals(frame[other]):
            del frame[name]
    for name in common(("embedding", "embedding_out"), frame):
        if infer_dtype(frame[name], skipna=True) in ("string", "categorical"):
            shorter = frame[name].str.replace(FOLDER, r'path="\1"', regex=True)
            if (shorter != frame[name]).any():
                frame[name] = shorter
    _drop_parameters(frame)
    _fill_training(frame)
    for name in common(("pool", "batch"), frame):
        if is_numeric(frame[name]):
            frame[name] = frame[name].fillna(0).astype(np.int64)
    _drop_equal_gamma2(frame)
    return frame


def _drop_parameters(frame: Table) -> None:
    """Removes the parameters from the texts of laws, in place.

    A column of laws is left unchanged if the bare names and the columns of parameters
    do not distinguish all of its laws. Among several laws, one whose parameters do not
    vary keeps its text, so that thresholds name it as the table does.
    """
    for name in common(FIELDS, frame):
        parameters = parameters_of(frame, [name])
        if not parameters:
            continue
        texts = frame[name].unique()
        if all(isinstance(text, str) for text in texts):
            bare = frame[name].str.partition("(")[0]
            told = groups(frame.assign(**{name: bare}), [name, *parameters])
            if told.ngroups == len(texts):
                varies = frame.groupby(bare)[name].transform("nunique") > 1
                shorter = (varies | (len(texts) == 1)) & (bare != frame[name])
                if shorter.any():  # otherwise, categories keep their order
                    frame[name] = bare.where(shorter, frame[name])


def _fill_training(frame: Table) -> None:
    """Fills in the training settings of runs that use the recipe alone.

    A setting is filled in if all other runs share its value.
    """
    if not {"steps", "start"} <= {*frame}:
        return
    alone = (frame["steps"] == RECIPE_STEPS) & (frame["start"] == STARTS[0])
    for name in common(TRAINING, frame):
        values = frame[name].dropna().unique()
        if len(values) == 1 and frame[name].isna().equals(alone):
            frame[name] = values[0]


def _drop_equal_gamma2(frame: Table) -> None:
    """Makes gamma2 null where it equals gamma, if it then has fewer distinct values."""
    if not {"gamma", "gamma2"} <= {*frame.select_dtypes("number")}:
        return
    gamma2 = frame["gamma2"]
    is_gamma = rounded(gamma2 / frame["gamma"]).fillna(1) == 1
    own = gamma2.mask(is_gamma)
    n_values = rounded(gamma2).nunique(dropna=False)
    if own.notna().any() and own.nunique(dropna=False) < n_values:
        frame["gamma2"] = own


def fixed(frame: Table, roles: Roles) -> dict[str, AxisValue]:
    """Returns a dict of the settings that all rows share and that are not defaults.

    The dict is empty unless the rows are those of our simulator.
    """
    if not roles.is_ours:
        return {}
    frame = as_given(frame, roles)
    settings = {}
    for name in common((*FIELDS, *parameters_of(frame, FIELDS)), frame):
        if frame[name].nunique(dropna=False) == 1:
            settings[name] = frame[name].tolist()[0]
    return unusual(settings)


def parameters_of(frame: Table, fields: Iterable[str]) -> list[str]:
    """The columns that contain parameters of laws, such as embedding.rho.

    Only the laws in the given fields count.
    """
    found = []
    for name in map(str, frame):
        field, dot, _ = name.partition(".")
        if dot and field in fields:
            found.append(name)
    return found


def rounded(column: Table) -> Table:
    """Returns a column of floats rounded to 12 digits.

    Values that differ only by rounding errors become equal.
    """
    values = column.dropna().unique()
    return column.map({value: float(to_12_digits(value)) for value in values})


def find_axes(
    frame: Table, roles: Roles, along: str = "N"
) -> tuple[list[str], list[str]]:
    """Returns the axes of a table, and its fields that vary but are not axes.

    The values of such a field follow from the values of the axes.

    Args:
        frame: one row per run and step, as returned by `as_given`. Columns of floats
            are rounded in place.
        roles: the roles of its columns.
        along: the axis along which accuracy crosses theta. It is not an axis of a cell.
    """
    known = without(common((*(roles.axes or ()), *roles.kept), frame), [along])
    sizes = without(common(dict.fromkeys((*roles.numbers, *known)), frame), [along])
    following = []
    for name in (*known, *without(sizes, known)):
        if _follows(frame, name, along, known if name in known else sizes):
            following.append(name)
    first = without(roles.sizes, (along, *following))
    if roles.axes is not None:
        fields = []
        for axis in (*known, "step"):
            fields += common([axis, *parameters_of(frame, [axis])], frame)
        fields = without(dict.fromkeys(fields), following)
        axes, followers = _distinguishing(frame, roles, first, fields, [], along, known)
        cell_rows = [*axes, along, *seed_columns(frame)]
        if not frame.duplicated(cell_rows).any():
            return axes, followers
        # rows of other grids or columns were added to the table
    parameters = parameters_of(frame, roles.fields)
    fields = common((*roles.fields, "step", *parameters), frame)
    left_out = {*roles.sizes, along, *following, "root_seed", *roles.rates}
    if roles.counted:
        left_out.add("n_test")
    fields = without(fields, left_out) + common(roles.rates, frame)
    fields.sort(key=lambda name: frame[name].nunique(dropna=False))
    foreign = without(foreign_columns(frame, roles), (*fields, along))
    return _distinguishing(frame, roles, first, fields, foreign, along)


def _follows(frame: Table, name: str, along: str, among: Sequence[str]) -> bool:
    """Whether a column varies only together with `along`, as N = 8 V does with V.

    If such a column were an axis, every level would be a separate cell.
    """
    if frame[name].nunique() < 2:
        return False
    others = without(among, [name])
    n_levels = groups(frame, [*others, name])[along].nunique().max()
    n_values = groups(frame, [*others, along])[name].nunique().max()
    return n_levels == n_values == 1


def _distinguishing(
    frame: Table,
    roles: Roles,
    axes: Sequence[str],
    fields: Sequence[str],
    foreign: Sequence[str],
    along: str,
    known: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Returns the list of axes, and the list of fields that vary but are not axes.

    The list of axes begins with `axes`. A further column is an axis if it distinguishes
    runs that the previous axes and `along` do not distinguish. For the columns in
    `known`, this test ignores `along`. A foreign column is an axis only if several
    seeds share each of its values. A text field of a grid is an axis even if its values
    follow from sizes, because a law in the sizes would mix the texts.
    """
    listed = roles.axes or ()
    names = without(fields, (*axes, along))
    axes, followers = list(axes), []
    for name in (*names, *foreign):
        if frame[name].dtype.kind == "f":
            frame[name] = rounded(frame[name])  # kappa is recomputed from gamma
        if frame[name].nunique(dropna=False) < 2:
            continue
        alike = axes if name in known else [*axes, along]
        by_value = groups(frame, [*alike, name])
        is_shared = name in names or by_value["seed"].nunique().min() > 1
        is_text_of_grid = name in listed and frame[name].dtype.kind == "O"
        tells_apart = by_value.ngroups > groups(frame, alike).ngroups
        if is_shared and (tells_apart or is_text_of_grid):
            axes.append(name)
        elif name in names:
            followers.append(name)
    return axes, followers


def without_switches(frame: Table, roles: Roles) -> tuple[Table, list[str]]:
    """Returns the table without its columns of switches, and remarks.

    The switches change no count. A row that differs from an earlier row in switches
    alone is dropped.
    """
    from pandas.api.types import is_hashable

    switches = common(roles.switches, frame)
    if not switches:
        return frame, []
    names = {"seed", K, "code_version", "precision"}
    names |= {*roles.fields, *foreign_columns(frame, roles)} - {*switches}
    same = []
    for name in common(names, frame):
        if frame[name].dtype.kind != "O" or frame[name].map(is_hashable).all():
            same.append(name)
    again = frame.duplicated(same) & ~frame.duplicated([*same, *switches])
    remarks = []
    if again.any():
        remarks.append(
            f"{again.sum()} runs differ from others in {', '.join(switches)} alone and"
            " were left out"
        )
    return frame[~again].drop(columns=switches), remarks


def unknown_settings(frame: Table, roles: Roles, point: Sequence[str]) -> list[str]:
    """The columns of unknown origin that may be settings.

    All seeds of a point share the value of such a column. The list is empty for a table
    that lists its axes.
    """
    if roles.axes is not None:
        return []
    names = without(foreign_columns(frame, roles), point)
    if not names:
        return []
    points = groups(frame, point)
    if points["seed"].nunique().max() < 2:
        return []
    n_values = points[names].nunique(dropna=False).max()
    return [name for name in names if frame[name].notna().any() and n_values[name] == 1]


def foreign_columns(frame: Table, roles: Roles) -> list[str]:
    """The columns of scalars that may be axes although nothing says what they are."""
    foreign = without(frame, (*roles.known, K, N))
    return [name for name in foreign if all(map(np.isscalar, frame[name]))]
