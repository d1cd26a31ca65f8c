"""The axes of a table: what its runs were requested for, not what was measured on them.

A table of a sweep names the axes of its grid in `attrs["axes"]`. A table without that,
as one of an older version or of another origin, is searched for them: every field of
the point that varies, and every column from elsewhere whose values seeds share.

Of our own simulator V, d, L and m are axes always, and the step of a row is one if
several are fitted. A column that merely follows others is no axis: where kappa was
given, gamma = kappa L^2 V / eta varies with V and L, and gamma2 with it unless it was
given too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from ...errors import FitError, expect
from ...model.columns import COLUMNS
from ...model.point import EXTRAS, FIELDS, RECIPE_STEPS, SAME_AS, STARTS, TRAINING, to_12_digits, unusual

Table = Any  # pandas.DataFrame, whose own types say less than Any
Value = Any  # of an axis: a number, text, true or false; nan where there is none

LAW = ("V", "d", "L", "m")
"""Axes of our simulator that get an exponent; any other axis is a
factor: a constant of its own in the law for each of its values.
"""

RATES = ("kappa", "gamma", "gamma2")
"""Rates in the order in which they are taken as given if each could be computed from the others."""

ALONG = "axis along which accuracy crosses: N, d, m, V, L or another number (default: that of a search, else N)"


def is_own(frame: Table) -> bool:
    """Whether the table is of a user's own simulator, which names its column of accuracy."""
    return "accuracy" in frame.attrs


def seed_columns(frame: Table) -> list[str]:
    """The columns that identify a seed."""
    return ["root_seed", "seed"] if "root_seed" in frame else ["seed"]


def along_of(frame: Table, asked: str | None) -> str:
    """The axis along which accuracy crosses: the one asked for, else that of a search, else N."""
    expect("along", asked, (str, NoneType), "the name of a column of numbers, such as N, d, m, V, L", FitError)
    return asked or frame.attrs.get("searched") or "N"


def as_given(frame: Table) -> Table:
    """The table with its columns as a grid gives them, which is how axes are told apart.

    `pool` is 0 for no pool and `batch` for all samples, as m is 0 for no MLP. `gamma2`
    is null where it is gamma, if that leaves it fewer values. A law with parameters goes
    by its bare name, as they have columns of their own, and a file of embeddings by its
    name without its folder, as a sweep may go on after it was moved. Rows of the recipe
    alone, which have no optimiser, have what all others have, so that steps may be an axis
    from 3 on. Where accuracies were not counted, each counts as a share of one answer.
    Floats of 16 bits, which pandas cannot group by, become longer.
    """
    from pandas.api.types import infer_dtype, is_numeric_dtype

    frame = frame.astype({name: np.float64 for name, kind in frame.dtypes.items() if kind == np.float16})
    if is_own(frame):
        accuracy = frame.attrs["accuracy"]
        counted = {"n_correct", "n_test"} <= {*frame} or accuracy not in frame
        return frame if counted else frame.assign(n_correct=frame[accuracy], n_test=1)
    frame = frame.drop(columns=[name for name, of in SAME_AS.items() if {name, of} <= {*frame} and frame[name].equals(frame[of])])
    for name in {"embedding", "embedding_out"} & {*frame}:
        if infer_dtype(frame[name], skipna=True) in ("string", "categorical"):
            short = {text: re.sub(r'path="(?:[^"]*/)?([^"/]*)"', r'path="\1"', str(text)) for text in frame[name].dropna().unique()}
            frame = frame.assign(**{name: frame[name].map(short)}) if [*short] != [*short.values()] else frame
    for name in {column.partition(".")[0] for column in _parameters(frame)} & {*frame}:
        if all(isinstance(text, str) for text in frame[name].unique()):
            bare = frame.assign(**{name: frame[name].str.partition("(")[0]})
            is_told = bare.groupby([name, *_parameters(frame, name)], dropna=False).ngroups == frame[name].nunique()
            frame = bare if is_told else frame
    if {"steps", "start"} <= {*frame}:
        alone = (frame["steps"] == RECIPE_STEPS) & (frame["start"] == STARTS[0])
        for name in (name for name in TRAINING if name in frame and frame[name].isna().equals(alone)):
            if len(values := frame[name].dropna().unique()) == 1:
                frame = frame.assign(**{name: values[0]})
    for name in (name for name in ("pool", "batch") if name in frame and is_numeric_dtype(frame[name])):
        frame = frame.assign(**{name: frame[name].fillna(0).astype(np.int64)})
    if all(name in frame and is_numeric_dtype(frame[name]) for name in ("gamma", "gamma2")):
        own = frame["gamma2"].mask(rounded(frame["gamma2"] / frame["gamma"]).fillna(1) == 1)
        if own.notna().any() and own.nunique(dropna=False) < rounded(frame["gamma2"]).nunique(dropna=False):
            frame = frame.assign(gamma2=own)
    return frame


def fixed(frame: Table) -> dict[str, Value]:
    """The settings that all rows share and that are not at their defaults, of our own simulator."""
    frame = frame.iloc[:, :0] if is_own(frame) else as_given(frame)
    names = [name for name in (*FIELDS, *_parameters(frame)) if name in frame and frame[name].nunique(dropna=False) == 1]
    return unusual({name: frame[name].tolist()[0] for name in names})


def _parameters(frame: Table, law: str = "") -> list[str]:
    """Columns of the parameters of laws, such as embedding.rho; all of them, or those of one field."""
    dotted = [name for name in frame if isinstance(name, str) and name.partition(".")[0] in FIELDS and "." in name]
    return [name for name in dotted if name.startswith(f"{law}.")] if law else dotted


def rounded(column: Table) -> Table:
    """A column of floats to 12 digits: values that differ by rounding alone are one of an axis."""
    return column.map({value: float(to_12_digits(value)) for value in column.dropna().unique()})


def find_axes(frame: Table, along: str = "N") -> tuple[list[str], list[str]]:
    """The axes of a table, and the fields that vary but follow others.

    Args:
        frame: one row per run and step, as `as_given` gives it. Columns of floats are rounded in
            place.
        along: the axis along which accuracy crosses theta, which is none of the axes of
            a cell.
    """
    listed = frame.attrs.get("axes")
    known = [name for name in (*(listed or ()), *frame.attrs.get("kept", ())) if name in frame and name != along]
    following = [one for one in known if _follows(frame, one, along, [other for other in known if other != one])]
    sizes = [name for name in dict.fromkeys((*LAW, "N", *known)) if name in frame and name != along]
    following += [one for one in sizes if one not in known and _follows(frame, one, along, [other for other in sizes if other != one])]
    first = [] if is_own(frame) else [name for name in LAW if name not in (along, *following)]
    if isinstance(listed, list):
        named = (name for axis in (*known, "step") for name in (axis, *_parameters(frame, axis)) if name in frame)
        axes, followers = _distinguishing(frame, first, [name for name in dict.fromkeys(named) if name not in following], [], along, known)
        if is_own(frame) or not frame.duplicated([*axes, along, *seed_columns(frame)]).any():
            return axes, followers  # otherwise the table holds rows of other grids, or columns that were added to it
    out = {*LAW, along, *following, "root_seed", "n_test", *RATES}
    fields = [name for name in (*FIELDS, "step", *_parameters(frame)) if name in frame and name not in out]
    fields += [name for name in RATES if name in frame]
    fields.sort(key=lambda name: frame[name].nunique(dropna=False))
    return _distinguishing(frame, first, fields, [name for name in _foreign(frame) if name not in (*fields, along)], along)


def _follows(frame: Table, name: str, along: str, others: Sequence[str]) -> bool:
    """Whether a column varies with `along` alone: N = 8 V would make a cell along V of each level."""
    levels = frame.groupby([*others, name], dropna=False, observed=True)[along].nunique()
    return frame[name].nunique() > 1 == levels.max() == frame.groupby([*others, along], dropna=False, observed=True)[name].nunique().max()


def _distinguishing(
    frame: Table, axes: Sequence[str], fields: Sequence[str], foreign: Sequence[str], along: str, known: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """`axes` and each further column that tells more runs apart, and the fields that vary but do not.

    A column that a grid names tells cells apart whose levels of `along` differ, too.
    """
    axes, followers = list(axes), []
    names = [name for name in fields if name not in (*axes, along)]
    for name in (name for name in (*names, *foreign) if frame[name].dtype.kind == "f"):
        frame[name] = rounded(frame[name])  # kappa is computed back from gamma
    for name in (name for name in (*names, *foreign) if frame[name].nunique(dropna=False) > 1):
        alike = axes if name in known else [*axes, along]
        n_alike = frame.groupby(alike, dropna=False, observed=True).ngroups if alike else 1
        by_value = frame.groupby([*alike, name], dropna=False, observed=True)
        shared = name in names or by_value["seed"].nunique().min() > 1
        if shared and by_value.ngroups > n_alike:
            axes.append(name)
        elif name in names:
            followers.append(name)
    return axes, followers


def without_switches(frame: Table) -> tuple[Table, list[str]]:
    """The table without switches that change no count, and one row of those alike in all else."""
    from pandas.api.types import is_hashable

    switches = [name for name in EXTRAS if name in frame]
    names = {*FIELDS, "seed", "n_correct", "code_version", "precision", *_foreign(frame)} - {*switches}
    same = [name for name in frame if name in names and all(map(is_hashable, frame[name]))]
    again = frame.duplicated(same) & ~frame.duplicated([*same, *switches])
    remarks = [f"{again.sum()} runs differ from others in {', '.join(switches)} alone and were left out"] if again.any() else []
    return frame[~again].drop(columns=switches), remarks


def unknown_settings(frame: Table, point: Sequence[str]) -> list[str]:
    """Columns from elsewhere that seeds of a point share, so that they might be settings.

    None of a table that names its axes.
    """
    if is_own(frame) or isinstance(frame.attrs.get("axes"), list) or not (names := [n for n in _foreign(frame) if n not in point]):
        return []
    points = frame.groupby([*point], dropna=False, observed=True)
    if points["seed"].nunique().max() < 2:
        return []
    return [name for name in names if frame[name].notna().any() and points[name].nunique(dropna=False).max() == 1]


def _foreign(frame: Table) -> list[str]:
    return [name for name in frame if name not in COLUMNS and all(map(np.isscalar, frame[name]))]
