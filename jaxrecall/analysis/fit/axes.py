"""The axes of a table: what its runs were requested for, not what was measured on them.

V, d, L and m are axes always. So is any other column of the point that varies while those and N stay, the step of a row, and a
column from elsewhere if its values are shared by seeds. A column that merely follows others is none: where kappa was given,
gamma = kappa L^2 V / eta varies with V and L, and gamma2 with it unless it was given too. Nor is one that adds columns (diagnose,
decoders): of runs that differ in nothing else, one counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model.columns import COLUMNS
from ...model.point import EXTRAS, FIELDS, TRAINING, to_12_digits
from ...model.training import RECIPE_STEPS, STARTS

Table = Any  # pandas.DataFrame, whose own types say less than Any
LAW = ("V", "d", "L", "m")
"""Axes that get an exponent; any other axis is a factor: a constant of its own in the law for each of its values."""

DERIVED = ("kappa", "gamma", "gamma2")
"""Rates in the order in which they are taken as given if each could be computed from the others."""

RATIO = "gamma2_over_gamma"


def as_given(frame: Table) -> Table:
    """The table with `pool`, `batch` and `gamma2` as a grid gives them.

    `pool` is 0 for no pool and `batch` for all samples, as m is 0 for no MLP. `gamma2` is null where it is gamma, if that leaves
    it fewer values; where it is a multiple of gamma, the column gamma2_over_gamma is added. Floats of 16 bits, which pandas cannot
    group by, become longer.
    """
    from pandas.api.types import is_numeric_dtype

    frame = frame.astype({name: np.float64 for name, kind in frame.dtypes.items() if kind == np.float16})
    frame = _as_trained_on(frame)
    for name in ("pool", "batch"):
        if name in frame and is_numeric_dtype(frame[name]):
            frame = frame.assign(**{name: frame[name].fillna(0).astype(np.int64)})
    if not all(name in frame and is_numeric_dtype(frame[name]) for name in ("gamma", "gamma2")) or RATIO in frame:
        return frame
    ratio = rounded((frame["gamma2"] / frame["gamma"]).fillna(1.0))
    given, other = frame["gamma2"].mask(ratio == 1), rounded(frame["gamma2"])
    fewest = min(column.nunique(dropna=False) for column in (ratio, given, other))
    if ratio.nunique() == 1 or other.nunique(dropna=False) == fewest:
        return frame
    return frame.assign(gamma2=given) if given.nunique(dropna=False) == fewest else frame.assign(**{RATIO: ratio})


def _as_trained_on(frame: Table) -> Table:
    """The rows of the recipe alone, which has no optimiser, with what all others have; so steps may be an axis from 3 on."""
    if not {"steps", "start"} <= {*frame}:
        return frame
    alone = (frame["steps"] == RECIPE_STEPS) & (frame["start"] == STARTS[0])
    for name in (name for name in TRAINING if name in frame and frame[name].isna().equals(alone)):
        if len(values := frame[name].dropna().unique()) == 1:
            frame = frame.assign(**{name: values[0]})
    return frame


def rounded(column: Table) -> Table:
    """A column of floats to 12 significant digits, so that values that differ by rounding alone are one value of an axis."""
    return column.map({value: float(to_12_digits(value)) for value in column.unique()})


def axes_of(frame: Table) -> tuple[list[str], list[str]]:
    """All axes but N, and the columns of the point that vary but follow others. Rounds the columns of floats in place."""
    axes: list[str] = list(LAW)
    followers: list[str] = []
    n_points = frame.groupby([*axes, "N"], observed=True).ngroups
    asked = [name for name in (*FIELDS, "step", RATIO) if name in frame and name not in (*LAW, "N", "root_seed", "n_test", *DERIVED)]
    asked += [name for name in DERIVED if name in frame]
    foreign = [name for name in _foreign(frame) if name not in asked]
    for name in (name for name in asked + foreign if frame[name].dtype.kind == "f"):
        frame[name] = rounded(frame[name])  # kappa is computed back from gamma
    for name in sorted(asked, key=lambda name: frame[name].nunique(dropna=False)) + foreign:
        if frame[name].nunique(dropna=False) == 1:
            continue
        by_value = frame.groupby([*axes, name, "N"], dropna=False, observed=True)
        shared = name in asked or by_value["seed"].nunique().min() > 1
        if shared and by_value.ngroups > n_points:
            axes.append(name)
            n_points = by_value.ngroups
        elif name in asked:
            followers.append(name)
    return axes, followers


def without_switches(frame: Table) -> tuple[Table, list[str]]:
    """The table without switches that change no count, and one row of those that differ in such a switch alone."""
    from pandas.api.types import is_hashable

    switches = [name for name in EXTRAS if name in frame]
    names = {*FIELDS, "seed", "n_correct", "code_version", "precision", *_foreign(frame)} - {*switches}
    same = [name for name in frame if name in names and all(map(is_hashable, frame[name]))]
    again = frame.duplicated(same) & ~frame.duplicated([*same, *switches])
    remarks = [f"{again.sum()} runs differ from others in {', '.join(switches)} alone and were left out"] if again.any() else []
    return frame[~again].drop(columns=switches), remarks


def _foreign(frame: Table) -> list[str]:
    return [name for name in frame if name not in COLUMNS and all(map(np.isscalar, frame[name]))]
