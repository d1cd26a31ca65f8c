"""A table of runs, read and checked, and its axes: what runs were requested for, not
what was measured on them.

A table of a sweep names the axes of its grid in `attrs["axes"]`. A table without that,
as one of an older version or of another origin, is searched for them: every field of
the point that varies, and every column from elsewhere whose values seeds share.

Of our own simulator V, d, L and m are axes always, and the step of a row is one if
several are fitted. A column that merely follows others is no axis: where kappa was
given, gamma = kappa L^2 V / eta varies with V and L, and gamma2 with it unless it was
given too.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from ...errors import FitError, UsageError, as_list, expect, shown
from ...model.columns import COLUMNS, EXTRA_COLUMNS, is_parameter
from ...model.point import (
    EXTRAS,
    FIELDS,
    RECIPE_STEPS,
    SAME_AS,
    STARTS,
    TRAINING,
    to_12_digits,
    unusual,
)
from ...model.values import plain_type
from ...sweep.files import is_folder
from ...sweep.store.load import load
from ...sweep.store.table import about

Table = Any  # pandas.DataFrame, whose own types say less than Any
Value = Any  # of an axis: a number, text, true or false; nan where there is none

LAW = ("V", "d", "L", "m")
"""Axes of our simulator that get an exponent; any other axis is a
factor: a constant of its own in the law for each of its values.
"""

RATES = ("kappa", "gamma", "gamma2")
"""Rates in the order in which they are taken as given if each could be computed from
the others.
"""

ALONG = (
    "axis along which accuracy crosses: N, d, m, V, L or another number (default: that"
    " of a search, else N)"
)

NEEDED = {
    "V": 2,
    "N": 1,
    "d": 1,
    "L": 1,
    "m": 0,
    "seed": 0,
    "n_test": 1,
    "n_correct": 0,
}
"""Columns that a table of our simulator must have, each with the least value allowed;
whole numbers all.
"""

SIZES = ("V", "N", "d", "L", "m", "seed")
"""Those that are no counts."""

OF_FRACTIONS = (
    "memory_accuracy",
    "train_accuracy",
    "attention_mass",
    "attention_top1",
    "matched_accuracy",
    "assignment_accuracy",
)
"""Some columns that may cross theta in place of accuracy."""

LAST, ALL = "last", "all"

Steps = str | int | Sequence[int]
"""LAST, ALL, a step or several."""

STEP_HELP = (
    "rows of runs that train on: last (the last step of each point), all, or steps;"
    " several make an axis (default: last)"
)

TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "text"),
    "bool": ((bool, np.bool_), "true, false"),
}
"""Types of fields that are no numbers, and what to call their values."""


def plain_table(argument: str, frame: Table) -> Table:
    """The table without an index, whose levels are columns, and with numbers in place
    of objects.

    Raises FitError for what is no table, and for columns of one name.
    """
    import pandas as pd

    expect(
        argument,
        frame,
        pd.DataFrame,
        "a table as jaxrecall.load and jaxrecall.run return it",
        FitError,
    )
    named = [
        name for name in frame.index.names if name is not None and name not in frame
    ]
    names = pd.Index([*named, *frame])
    if twice := sorted(set(names[names.duplicated()])):
        raise FitError(
            f"columns: {', '.join(twice)} more than once; rename or drop one"
        )
    frame = frame.reset_index(named).reset_index(drop=True)
    loose = frame.columns[
        frame.dtypes.astype(str).str.contains("^object|^category|^dictionary")
    ]
    frame = (
        frame.astype(dict.fromkeys(loose, object)) if len(loose) else frame
    )  # each column would be copied
    for name in loose:
        if pd.api.types.infer_dtype(frame[name]) in (
            "integer",
            "floating",
            "mixed-integer-float",
            "decimal",
        ):
            frame[name] = pd.to_numeric(frame[name])
    return frame


def read(path: Path, *others: Path) -> tuple[Table, list[str]]:
    """The rows of results folders or of any one Parquet file, and remarks on them.

    Raises FitError or StoreError.
    """
    if others or is_folder(path):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            frame = load([path, *others])
        return frame, [str(warning.message) for warning in caught]
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not os.path.isfile(path):  # a pipe would wait forever
        what = (
            "is neither a file nor a folder"
            if os.path.exists(path)
            else "there is no such file or folder"
        )
        raise FitError(f"{path}: {what}; allowed: a results folder or a .parquet file")
    try:
        with (
            open(path, "rb") as bytes_,
            pq.ParquetFile(bytes_) as file,
        ):  # a path need not be UTF-8
            table = file.read()
            frame = table.to_pandas(ignore_metadata=True)  # an index is columns too
    except (OSError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise FitError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:200]}); allowed: a"
            " results folder or a .parquet file"
        ) from error
    facts = about(table)
    frame.attrs |= {
        name: facts[name]
        for name in ("axes", "accuracy", "searched")
        if facts.get(name) is not None
    }
    return plain_table("table", frame), []


def at_steps(frame: Table, step: Steps) -> Table:
    """The rows of these steps; raises FitError for a step that no row has.

    A table without the column has one row per run.
    The last step is that of each point, not of each run: a run that has no row there,
    as rows were left out, is left out too.
    """
    wanted = (
        [step]
        if isinstance(step, (str, int))
        else as_list("step", step, "a step, a list of steps, 'last' or 'all'", FitError)
    )
    if wanted == [ALL] or (wanted == [LAST] and "step" not in frame):
        return frame
    found = sorted(set(frame["step"])) if "step" in frame else []
    if wanted == [LAST]:
        if len(found) < 2:
            return frame
        point = (
            ["point_id"]
            if "point_id" in frame
            else [name for name in FIELDS if name in frame]
        )
        ends = frame["step"] == frame.groupby(point, dropna=False)["step"].transform(
            "max"
        )
        return frame[ends].drop(columns="step").reset_index(drop=True)
    if not wanted or not all(one in found for one in wanted):
        allowed = ", ".join(map(str, found)) or "the table has no column step"
        raise FitError(
            f"step: got {shown(step)}; allowed: {LAST!r}, {ALL!r}, or steps of the"
            f" table ({allowed})"
        )
    return frame[frame["step"].isin(wanted)].reset_index(drop=True)


def parsed(words: Sequence[str]) -> Steps:
    """The steps that a command line names; raises UsageError."""
    if list(words) in ([LAST], [ALL]):
        return words[0]
    if not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        raise UsageError(
            f"--step: got {' '.join(words)}; allowed: {LAST}, {ALL}, or whole numbers,"
            " as in 3 30 300"
        )
    return [int(word) for word in words]


def crossing(frame: Table, of: str) -> Table:
    """The table with another column in place of its accuracy; raises FitError."""
    if of in ("accuracy", frame.attrs.get("accuracy")):
        return frame
    allowed = (
        f"allowed: accuracy, {', '.join(OF_FRACTIONS)}, or any other column of"
        " fractions that was measured"
    )
    values = _measured(frame, "of", of, allowed, 1)
    if values.isna().all():
        raise FitError(
            f"of: {of} is null in all"
            f" rows{'; the sweep asks for it by decoders: true' if of in EXTRA_COLUMNS else ''}"  # noqa: E501
        )
    return _of_shares(frame, of)


def measured(frame: Table, column: str) -> Table:
    """The table with a column in place of its accuracy, over its largest value; raises
    FitError.

    No exponent sees that scale.
    """
    allowed = (
        "allowed: a column of numbers from 0 that was measured, such as"
        f" {', '.join(OF_FRACTIONS[:2])}"
    )
    values = _measured(frame, "law", column, allowed, np.inf)
    return _of_shares(
        frame.assign(**{column: values / max(values.max(), 1e-300)}), column
    )


def _measured(
    frame: Table, argument: str, name: str, allowed: str, high: float
) -> Table:
    """A column of numbers from 0 that was measured; raises FitError."""
    if (
        name not in frame
        or name in FIELDS
        or is_parameter(name)
        or name in seed_columns(frame)
    ):
        raise FitError(
            f"{argument}: got {shown(name)}, which"
            f" {'was not measured' if name in frame else 'is no column of the table'};"
            f" {allowed}"
        )
    if problem := no_numbers(frame[name]):
        raise FitError(f"{name}: {problem}")
    found = frame[name].dropna()
    if (bad := ~found.between(0, high)).any():
        raise FitError(
            f"{argument}: {name} is {found[bad].iloc[0]:.4g} in {bad.sum()} rows;"
            f" {allowed}"
        )
    return frame[name]


def _of_shares(frame: Table, column: str) -> Table:
    """The table with a column of fractions as shares of one answer."""
    made = frame.assign(n_correct=frame[column].astype(float), n_test=1)
    made.attrs |= {"of": column} | ({"accuracy": column} if is_own(frame) else {})
    return made


def checked(frame: Table, along: str = "N") -> tuple[Table, list[str]]:
    """The rows that have an accuracy, with columns as a grid gives them, and how many
    have none.

    Raises FitError with every problem.
    A table of our simulator needs the columns NEEDED. One of a user's own needs its
    accuracy, counted or not, the seed and `along`.
    """
    from pandas.api.types import is_numeric_dtype

    counts = ["n_test", "n_correct"]
    of = frame.attrs.get("of") or (
        frame.attrs["accuracy"] if is_own(frame) and not {*counts} <= {*frame} else None
    )
    needed = [*([along, "seed"] if is_own(frame) else SIZES), *([of] if of else counts)]
    if missing := [str(name) for name in needed if name not in frame]:
        raise FitError(
            f"columns: no {', '.join(missing)}; needed: {', '.join(map(str, needed))}"
        )
    if not len(frame):
        raise FitError("rows: the table is empty; has the sweep run?")
    frame, remarks = as_given(frame.copy()), []
    if (
        is_numeric_dtype(frame["n_correct"])
        and (gone := frame["n_correct"].isna()).any()
    ):
        what = of or "n_correct"
        why = (
            f" (status {', '.join(sorted(set(frame['status'][gone].astype(str))))})"
            if "status" in frame
            else ""
        )
        remarks.append(
            f"{gone.sum()} of {len(frame)} rows have no {what}{why} and were left out"
        )
        frame = frame[~gone]
        if not len(frame):
            raise FitError(f"{what}: null in all rows{why}; there is nothing to fit")
    if problems := _problems(frame, needed, of):
        raise FitError(problems)
    return frame, remarks


def _problems(frame: Table, needed: Sequence[str], of: str | None) -> list[str]:
    """What is wrong with the values of a table; makes columns of whole numbers
    int64.
    """
    fields = (
        []
        if is_own(frame)
        else [name for name in FIELDS if name in frame and name not in NEEDED]
    )
    problems = [
        f"{name}: {problem}"
        for name in fields
        if (problem := _not_of_field(frame, name))
    ]
    problems += [
        f"{name}: {problem}"
        for name in needed
        if name in NEEDED and (problem := _made_whole(frame, name))
    ]
    if problems:
        return problems
    if of is None:
        bad = frame["n_correct"] > frame["n_test"]
        return (
            [f"n_correct: more than n_test in {bad.sum()} rows; allowed: 0 to n_test"]
            if bad.any()
            else []
        )
    if problem := no_numbers(frame[of]):
        return [f"{of}: {problem}"]
    bad = ~frame[of].between(0, 1)
    return (
        [
            f"{of}: {frame[of][bad].iloc[0]:g} in {bad.sum()} rows; allowed: fractions"
            " from 0 to 1"
        ]
        if bad.any()
        else []
    )


def _made_whole(frame: Table, name: str) -> str:
    """What is wrong with a column that should hold whole numbers; it becomes int64."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    low = NEEDED[name]
    if not is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name]):
        return _holds(frame[name], f"whole numbers from {low}")
    values = frame[name].to_numpy(np.float64, na_value=np.nan)
    bad = ~((values >= low) & (values == np.round(values)) & (values < 2**53))
    frame[name] = np.where(bad, 0, values).astype(np.int64)
    return (
        f"{values[bad][0]:g} in {bad.sum()} rows; allowed: whole numbers from {low}"
        if bad.any()
        else ""
    )


def _not_of_field(frame: Table, name: str) -> str | None:
    """What is wrong with a column of a field of the point that holds values of another
    type.
    """
    kind = plain_type(FIELDS[name])
    if kind not in TYPES:
        return no_numbers(frame[name])
    values, (types, allowed) = frame[name].dropna(), TYPES[kind]
    return (
        None
        if all(isinstance(value, types) for value in values)
        else _holds(values, allowed)
    )


def no_numbers(column: Table) -> str | None:
    """What is wrong with a column that should hold numbers."""
    from pandas.api.types import is_numeric_dtype

    values = column.dropna()
    return (
        None if is_numeric_dtype(values) or values.empty else _holds(values, "numbers")
    )


def _holds(values: Table, allowed: str) -> str:
    value = values.tolist()[0]
    kind = (
        "str" if isinstance(value, str) else values.dtype
    )  # pandas 2 calls text object
    return f"holds {shown(value, 60)} ({kind}); allowed: {allowed}"


def is_own(frame: Table) -> bool:
    """Whether the table is of a user's own simulator, which names its column of
    accuracy.
    """
    return "accuracy" in frame.attrs


def seed_columns(frame: Table) -> list[str]:
    """The columns that identify a seed."""
    return ["root_seed", "seed"] if "root_seed" in frame else ["seed"]


def along_of(frame: Table, asked: str | None) -> str:
    """The axis along which accuracy crosses: the one asked for, else that of a search,
    else N.
    """
    expect(
        "along",
        asked,
        (str, NoneType),
        "the name of a column of numbers, such as N, d, m, V, L",
        FitError,
    )
    return asked or frame.attrs.get("searched") or "N"


def as_given(frame: Table) -> Table:
    """The table with its columns as a grid gives them, which is how axes are told
    apart.

    `pool` is 0 for no pool and `batch` for all samples, as m is 0 for no MLP. `gamma2`
    is null where it is gamma, if that leaves it fewer values. A law with parameters
    goes by its bare name, as they have columns of their own, and a file of embeddings
    by its name without its folder, as a sweep may go on after it was moved. Rows of the
    recipe alone, which have no optimiser, have what all others have, so that steps may
    be an axis from 3 on. Where accuracies were not counted, each counts as a share of
    one answer. Floats of 16 bits, which pandas cannot group by, become longer.
    """
    from pandas.api.types import infer_dtype, is_numeric_dtype

    frame = (
        frame.astype(dict.fromkeys(halves, float))
        if len(halves := frame.columns[frame.dtypes == np.float16])
        else frame.copy()
    )
    if is_own(frame):
        accuracy = frame.attrs["accuracy"]
        counted = {"n_correct", "n_test"} <= {*frame} or accuracy not in frame
        return frame if counted else frame.assign(n_correct=frame[accuracy], n_test=1)
    frame = frame.drop(
        columns=[
            name
            for name, of in SAME_AS.items()
            if {name, of} <= {*frame} and frame[name].equals(frame[of])
        ]
    )
    for name in {"embedding", "embedding_out"} & {*frame}:
        if infer_dtype(frame[name], skipna=True) in ("string", "categorical"):
            short = {
                text: re.sub(r'path="(?:[^"]*/)?([^"/]*)"', r'path="\1"', str(text))
                for text in frame[name].dropna().unique()
            }
            frame = (
                frame.assign(**{name: frame[name].map(short)})
                if [*short] != [*short.values()]
                else frame
            )
    for name in {column.partition(".")[0] for column in _parameters(frame)} & {*frame}:
        if all(isinstance(text, str) for text in frame[name].unique()):
            bare = frame.assign(**{name: frame[name].str.partition("(")[0]})
            is_told = (
                bare.groupby([name, *_parameters(frame, name)], dropna=False).ngroups
                == frame[name].nunique()
            )
            frame = bare if is_told else frame
    if {"steps", "start"} <= {*frame}:
        alone = (frame["steps"] == RECIPE_STEPS) & (frame["start"] == STARTS[0])
        for name in (
            name
            for name in TRAINING
            if name in frame and frame[name].isna().equals(alone)
        ):
            if len(values := frame[name].dropna().unique()) == 1:
                frame = frame.assign(**{name: values[0]})
    for name in (
        name
        for name in ("pool", "batch")
        if name in frame and is_numeric_dtype(frame[name])
    ):
        frame = frame.assign(**{name: frame[name].fillna(0).astype(np.int64)})
    if all(
        name in frame and is_numeric_dtype(frame[name]) for name in ("gamma", "gamma2")
    ):
        own = frame["gamma2"].mask(
            rounded(frame["gamma2"] / frame["gamma"]).fillna(1) == 1
        )
        if own.notna().any() and own.nunique(dropna=False) < rounded(
            frame["gamma2"]
        ).nunique(dropna=False):
            frame = frame.assign(gamma2=own)
    return frame


def fixed(frame: Table) -> dict[str, Value]:
    """The settings that all rows share and that are not at their defaults, of our own
    simulator.
    """
    frame = frame.iloc[:, :0] if is_own(frame) else as_given(frame)
    names = [
        name
        for name in (*FIELDS, *_parameters(frame))
        if name in frame and frame[name].nunique(dropna=False) == 1
    ]
    return unusual({name: frame[name].tolist()[0] for name in names})


def _parameters(frame: Table, law: str = "") -> list[str]:
    """Columns of the parameters of laws, such as embedding.rho; all of them, or those
    of one field.
    """
    dotted = [
        name
        for name in frame
        if isinstance(name, str) and name.partition(".")[0] in FIELDS and "." in name
    ]
    return [name for name in dotted if name.startswith(f"{law}.")] if law else dotted


def rounded(column: Table) -> Table:
    """A column of floats to 12 digits: values that differ by rounding alone are one of
    an axis.
    """
    return column.map(
        {value: float(to_12_digits(value)) for value in column.dropna().unique()}
    )


def find_axes(frame: Table, along: str = "N") -> tuple[list[str], list[str]]:
    """The axes of a table, and the fields that vary but follow others.

    Args:
        frame: one row per run and step, as `as_given` gives it. Columns of floats are
            rounded in
            place.
        along: the axis along which accuracy crosses theta, which is none of the axes of
            a cell.
    """
    listed = frame.attrs.get("axes")
    known = [
        name
        for name in (*(listed or ()), *frame.attrs.get("kept", ()))
        if name in frame and name != along
    ]
    following = [
        one
        for one in known
        if _follows(frame, one, along, [other for other in known if other != one])
    ]
    sizes = [
        name
        for name in dict.fromkeys((*LAW, "N", *known))
        if name in frame and name != along
    ]
    following += [
        one
        for one in sizes
        if one not in known
        and _follows(frame, one, along, [other for other in sizes if other != one])
    ]
    first = (
        []
        if is_own(frame)
        else [name for name in LAW if name not in (along, *following)]
    )
    if isinstance(listed, list):
        named = (
            name
            for axis in (*known, "step")
            for name in (axis, *_parameters(frame, axis))
            if name in frame
        )
        axes, followers = _distinguishing(
            frame,
            first,
            [name for name in dict.fromkeys(named) if name not in following],
            [],
            along,
            known,
        )
        if (
            is_own(frame)
            or not frame.duplicated([*axes, along, *seed_columns(frame)]).any()
        ):
            # otherwise the table holds rows of other grids, or columns that were added
            # to it
            return (
                axes,
                followers,
            )
    out = {*LAW, along, *following, "root_seed", "n_test", *RATES}
    fields = [
        name
        for name in (*FIELDS, "step", *_parameters(frame))
        if name in frame and name not in out
    ]
    fields += [name for name in RATES if name in frame]
    fields.sort(key=lambda name: frame[name].nunique(dropna=False))
    return _distinguishing(
        frame,
        first,
        fields,
        [name for name in _foreign(frame) if name not in (*fields, along)],
        along,
    )


def _follows(frame: Table, name: str, along: str, others: Sequence[str]) -> bool:
    """Whether a column varies with `along` alone: N = 8 V would make a cell along V of
    each level.
    """
    levels = frame.groupby([*others, name], dropna=False, observed=True)[
        along
    ].nunique()
    return (
        frame[name].nunique()
        > 1
        == levels.max()
        == frame.groupby([*others, along], dropna=False, observed=True)[name]
        .nunique()
        .max()
    )


def _distinguishing(
    frame: Table,
    axes: Sequence[str],
    fields: Sequence[str],
    foreign: Sequence[str],
    along: str,
    known: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """`axes` and each further column that tells more runs apart, and the fields that
    vary but do not.

    A column that a grid names tells cells apart whose levels of `along` differ, too. A
    field of text stays an axis even where its values follow from sizes. A law of the
    sizes would mix them.
    """
    axes, followers = list(axes), []
    names = [name for name in fields if name not in (*axes, along)]
    for name in (name for name in (*names, *foreign) if frame[name].dtype.kind == "f"):
        frame[name] = rounded(frame[name])  # kappa is computed back from gamma
    for name in (
        name for name in (*names, *foreign) if frame[name].nunique(dropna=False) > 1
    ):
        alike = axes if name in known else [*axes, along]
        n_alike = (
            frame.groupby(alike, dropna=False, observed=True).ngroups if alike else 1
        )
        by_value = frame.groupby([*alike, name], dropna=False, observed=True)
        shared = name in names or by_value["seed"].nunique().min() > 1
        if shared and (
            by_value.ngroups > n_alike
            or (
                name in (frame.attrs.get("axes") or ())
                and frame[name].dtype.kind == "O"
            )
        ):
            axes.append(name)
        elif name in names:
            followers.append(name)
    return axes, followers


def without_switches(frame: Table) -> tuple[Table, list[str]]:
    """The table without switches that change no count, and one row of those alike in
    all else.
    """
    from pandas.api.types import is_hashable

    switches = [name for name in EXTRAS if name in frame]
    names = {
        *FIELDS,
        "seed",
        "n_correct",
        "code_version",
        "precision",
        *_foreign(frame),
    } - {*switches}
    same = [
        name
        for name in frame
        if name in names
        and (
            frame[name].dtype.kind != "O" or all(map(is_hashable, frame[name].tolist()))
        )
    ]
    again = frame.duplicated(same) & ~frame.duplicated([*same, *switches])
    remarks = (
        [
            f"{again.sum()} runs differ from others in {', '.join(switches)} alone and"
            " were left out"
        ]
        if again.any()
        else []
    )
    return frame[~again].drop(columns=switches), remarks


def unknown_settings(frame: Table, point: Sequence[str]) -> list[str]:
    """Columns from elsewhere that seeds of a point share, so that they might be
    settings.

    None of a table that names its axes.
    """
    if (
        is_own(frame)
        or isinstance(frame.attrs.get("axes"), list)
        or not (names := [n for n in _foreign(frame) if n not in point])
    ):
        return []
    points = frame.groupby([*point], dropna=False, observed=True)
    if points["seed"].nunique().max() < 2:
        return []
    return [
        name
        for name in names
        if frame[name].notna().any() and points[name].nunique(dropna=False).max() == 1
    ]


def _foreign(frame: Table) -> list[str]:
    return [
        name
        for name in frame
        if name not in COLUMNS and all(map(np.isscalar, frame[name]))
    ]
