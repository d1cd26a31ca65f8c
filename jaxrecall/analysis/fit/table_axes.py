"""Finds the axes of a table of runs: the columns of settings, not of measurements.

A table of a sweep states the axes of its grid in `attrs["axes"]`, and so does any other
table whose user names them. Otherwise the axes are all fields of the point and all
other columns that vary, but not those in which most values occur once: they are names
of runs, times or measurements.

In a table of our simulator V, d, L and m are always axes, and so is the step if several
steps are fitted. A column that merely follows from others is not an axis. For example,
if kappa was given, gamma = kappa L^2 V / eta varies with V and L, and so does gamma2
unless it was also given.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...errors import FitError
from ...model.point import (
    FIELDS,
    LAW_FIELDS,
    RECIPE_STEPS,
    SAME_AS,
    STARTS,
    TRAINING,
    unusual,
)
from .columns import (
    ANSWERS,
    RIGHT,
    ColumnNames,
    Row,
    Table,
    common,
    groups,
    holds,
    is_numeric,
    n_values,
    rounded,
    seed_columns,
    varying,
    without,
)
from .roles import Roles

FOLDER = r'path="(?:[^"]*/)?([^"/]*)"'
"""A regular expression that finds the path in the text of an embedding law."""


def as_given(frame: Table, roles: Roles) -> Table:
    """Returns a copy of the table with its columns in the form that a grid uses.

    The search for axes needs this form. In every table, 16-bit floats, by which pandas
    cannot group, become 64-bit floats. In a table of our simulator, the other changes
    are:

    - `pool` is 0 for no pool and `batch` is 0 for all samples, as m is 0 for no MLP.
    - `gamma2` is null where it equals gamma, unless it does so everywhere.
    - The text of a law loses its parameters if other runs have the same law with other
      parameters. Columns such as embedding.rho are then axes.
    - The path of an embedding file loses its folder, because a sweep may be resumed
      after the file was moved.
    - Rows of the recipe alone, which have no optimiser, get the training settings that
      all other rows share. Steps can then be an axis that starts at 3.
    """
    from pandas.api.types import infer_dtype

    halves = frame.columns[frame.dtypes == np.float16]
    frame = frame.astype(dict.fromkeys(halves, float))
    if not roles.is_ours:
        return frame
    for name, other in SAME_AS.items():
        if {name, other} <= {*frame} and frame[name].equals(frame[other]):
            del frame[name]
    for name in common(("embedding", "embedding_out"), frame):
        if infer_dtype(frame[name], skipna=True) in ("string", "categorical"):
            frame[name] = frame[name].str.replace(FOLDER, r'path="\1"', regex=True)
    _drop_parameters(frame)
    _fill_training(frame)
    if {"gamma", "gamma2"} <= {*frame.select_dtypes("number")}:
        is_gamma = rounded(frame["gamma2"] / frame["gamma"]).fillna(1) == 1
        if not is_gamma.all():
            frame["gamma2"] = frame["gamma2"].mask(is_gamma)
    for name in common(("pool", "batch"), frame):
        if is_numeric(frame[name]):
            frame[name] = frame[name].fillna(0).astype(np.int64)
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
                frame[name] = bare.where(varies | (len(texts) == 1), frame[name])


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


def constants(frame: Table, roles: Roles) -> Row:
    """Returns a dict of the settings that headings list.

    All rows share these settings. The sizes are always included. In a table of our
    simulator, the pool, the path of the trigger and the laws are included if they are
    not the defaults.
    """
    needed = [name for name in roles.needed if frame[name].nunique() == 1]
    shared = {name: frame[name].iloc[0] for name in needed}
    if not roles.is_ours:
        return shared
    frame = as_given(frame, roles)
    settings = {}
    for name in common((*FIELDS, *parameters_of(frame, FIELDS)), frame):
        if n_values(frame, name) == 1:
            settings[name] = frame[name].tolist()[0]
    for name, value in unusual(settings).items():
        if name.partition(".")[0] in ("pool", "trigger_in_value", *LAW_FIELDS):
            shared[name] = value
    return shared


def parameters_of(frame: Table, fields: Iterable[str]) -> list[str]:
    """The columns that contain parameters of laws, such as embedding.rho.

    Only the laws in the given fields count.
    """
    dotted = [name for name in map(str, frame) if "." in name]
    return [name for name in dotted if name.split(".")[0] in fields]


def choose_axes(frame: Table, roles: Roles, along: str) -> tuple[list[str], list[str]]:
    """Returns the axes of a table, and its settings that vary but are not axes.

    The values of such a setting follow from the values of the axes.

    The sizes of our simulator are axes, and so is a text field of a grid that varies,
    even if its values follow from sizes: a law in the sizes would mix the texts. Any
    other setting is an axis if it distinguishes runs that the previous axes and `along`
    do not distinguish. For the columns that the table states, `along` does not count.

    Args:
        frame: one row per run and step, as returned by `as_given`. Columns of floats
            are rounded in place.
        roles: the roles of its columns.
        along: the axis along which accuracy crosses theta. It is not an axis of a cell.
    """
    listed = common(roles.axes or (), frame)
    stated = without([*listed, *common(roles.kept, frame)], [along])
    needed = without(common(dict.fromkeys((*roles.needed, *stated)), frame), [along])
    left_out = [along, *roles.averaged]
    # kept helpers first: of load and n, only one follows P = load n
    for name in reversed(needed):
        others = without(stated if name in stated else needed, [name, *left_out])
        # scattered numbers, as in a table of published runs, do not follow
        may_follow = roles.fields or _is_monotonic(frame, name, along)
        if may_follow and _follows(frame, name, along, others):
            left_out.append(name)
    axes, names, are_enough = [], [], False
    if roles.axes is not None:
        for axis in (*stated, *common(["step"], frame)):
            names += [axis, *parameters_of(frame, [axis])]
        axes = _tell_cells_apart(frame, roles, names, left_out, along, stated)
        is_twice = frame.duplicated([*axes, along, *seed_columns(frame)]).any()
        # rows of other grids, or columns, may have been added to the table
        are_enough = not (is_twice and roles.fields)
    if not are_enough:
        names = [*settings_of(frame, roles), *unstated(frame, roles)]
        axes = _tell_cells_apart(frame, roles, names, left_out, along)
    followers = without(varying(frame, dict.fromkeys(names)), (*axes, *left_out))
    return axes, followers


def _tell_cells_apart(
    frame: Table,
    roles: Roles,
    names: Iterable[str],
    left_out: ColumnNames,
    along: str,
    stated: ColumnNames = (),
) -> list[str]:
    """Returns the axes among the columns `names`, sizes first. Columns of floats are
    rounded in place.
    """
    sizes = without(roles.sizes, left_out)
    names = without(dict.fromkeys(names), (*left_out, *sizes))
    for name in names:
        frame[name] = rounded(frame[name])  # kappa is recomputed from gamma
    listed = common(roles.axes or (), frame)
    texts = [name for name in listed if frame[name].dtype.kind == "O"]
    axes = sizes + tell_apart(frame, sizes, common(names, stated), texts)
    axes += tell_apart(frame, [*axes, along], names, texts)
    return [*sizes, *common(names, axes)]


def tell_apart(
    rows: Table,
    placed: ColumnNames,
    names: ColumnNames,
    always: ColumnNames = (),
) -> list[str]:
    """Returns the columns that tell apart rows with equal values of `placed`.

    A column is left out if its values follow from those of the columns before it,
    unless it is among `always` and varies.
    """
    known = [*dict.fromkeys(placed)]
    n_placed, n_groups = len(known), groups(rows, known).ngroups
    for name in names:
        if name in known or n_values(rows, name) < 2:
            continue
        rows = rows.assign(**{name: rounded(rows[name])})
        n_apart = groups(rows, [*known, name]).ngroups
        if n_apart > n_groups or name in always:
            known.append(name)
            n_groups = n_apart
    return known[n_placed:]


def settings_of(frame: Table, roles: Roles) -> list[str]:
    """The columns that may be settings, those with few values first.

    These are the fields that are known by name. In a table that does not state its
    axes, they are also the columns of unknown origin.
    """
    fields = common((*roles.fields, "step", *parameters_of(frame, roles.fields)), frame)
    names = without(fields, roles.rates) + common(roles.rates, frame)
    if roles.axes is None:
        names += unstated(frame, roles)
    names += common((*(roles.axes or ()), *roles.kept), frame)
    names.sort(key=lambda name: n_values(frame, name))
    return [*dict.fromkeys((*common(roles.sizes, frame), *names))]


def unstated(frame: Table, roles: Roles) -> list[str]:
    """The columns of unknown origin that may be settings.

    A column in which most values occur once is a measurement or the name of a run. One
    that has a value for each seed is another name of the seed.
    """
    known = (*roles.known, *roles.fields, *roles.averaged, *seed_columns(frame))
    known += (RIGHT, ANSWERS, roles.measure, *parameters_of(frame, roles.fields))
    seeds = groups(frame, common(seed_columns(frame), frame)).ngroup()
    settings = []
    for name in without(frame, known):
        if not all(map(np.isscalar, frame[name])):
            continue
        n = n_values(frame, name)
        n_pairs = groups(frame.assign(_seed=seeds), [name, "_seed"]).ngroups
        is_seed = n_pairs == n == seeds.nunique() > 1
        if n <= max(2, len(frame) / 2) and not is_seed:
            settings.append(name)
    return settings


def _follows(frame: Table, name: str, along: str, others: ColumnNames) -> bool:
    """Whether a column varies only together with `along`, as N = 8 V does with V, at
    fixed values of the `others`.

    If such a column were an axis, every level would be a separate cell.
    """
    if frame[name].nunique() < 2:
        return False
    n_levels = groups(frame, [*others, name])[along].nunique().max()
    n_at_level = groups(frame, [*others, along])[name].nunique().max()
    return n_levels == n_at_level == 1


def _is_monotonic(frame: Table, name: str, along: str) -> bool:
    column = frame.sort_values(along)[name]
    return column.is_monotonic_increasing or column.is_monotonic_decreasing


def refuse_numbers_as_text(frame: Table, names: ColumnNames) -> None:
    """Raises FitError if a column contains numbers that are written as text, as in
    "1,024".
    """
    import pandas as pd

    problems = []
    for name in names:
        values = frame[name].dropna()
        if len(values) and not is_numeric(values):
            plain = values.astype(str).str.replace("[,_ ]", "", regex=True)
            numbers: Table = pd.to_numeric(plain, errors="coerce")
            if numbers.notna().all():
                problems.append(f"{name}: {holds(values, 'numbers that are no text')}")
    if problems:
        raise FitError(problems)
