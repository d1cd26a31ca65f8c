"""A table of rows as labelled arrays of xarray: over the axes of the grid, the seed and the step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import StoreError, UsageError
from ...model.columns import COLUMNS, UNITS, is_parameter
from ...model.point import FIELDS

if TYPE_CHECKING:
    import xarray as xr

Table = Any  # pandas.DataFrame, whose own types say less than Any

MAX_EMPTY, SMALL = 100, 10**6
"""Arrays of more than SMALL values have at most MAX_EMPTY times as many as there are rows."""

RATES = ("kappa", "gamma", "gamma2")
"""Fields that follow from the others, so that they make a dimension only where nothing else tells the rows apart."""

LACKING = {"i": np.dtype(float), "b": np.dtype(object)}
"""Types of arrays in which some values are missing, by the kind that cannot say so."""


def check_installed() -> None:
    """Raises UsageError if xarray is not there."""
    try:
        import xarray  # noqa: F401
    except ImportError as error:
        told = "xarray is not installed; to install it: pip install 'jaxrecall[xarray]'; allowed without it: False"
        raise UsageError(f"as_xarray: got True, and {told}") from error


def labelled(frame: Table, fields: Sequence[str], legends: Mapping[str, str]) -> xr.Dataset:
    """The rows of a table as a Dataset.

    Args:
        frame: as `load` returns it.
        fields: the columns that say what was requested. They are coordinates: along a dimension each, along the one that they follow,
            or along all.
        legends: meaning by column; of other columns it is that of the package.

    Raises:
        StoreError: if several rows have the same coordinates, or the rows fill too little of the arrays.
    """
    import xarray as xr

    fields = [name for name in fields if name in frame]
    dims = _dimensions(frame, fields)
    codes, values = {}, {}
    for name in dims:
        codes[name], values[name] = _factorized(frame[name])
    shape = tuple(map(len, values.values()))
    if frame.duplicated(dims).any():
        raise StoreError(f"as_xarray: several rows have the same {', '.join(dims)}; allowed: one, give the `grid` whose rows are wanted")
    if math.prod(shape) > max(SMALL, MAX_EMPTY * len(frame)):
        extent = " x ".join(f"{name} {n}" for name, n in zip(dims, shape, strict=True))
        raise StoreError(f"as_xarray: {len(frame)} rows are too few for arrays of {extent}; allowed: a `grid` of fewer axes")
    arrays, coordinates = {}, {}
    for name in (str(column) for column in frame):
        along = [name] if name in dims else _followed(frame[name], codes) if name in fields else dims
        filled = values[name] if name in dims else _filled(frame[name], codes, along, values)
        kept = coordinates if name in fields or name in dims else arrays
        kept[name] = xr.Variable(along, filled, _about(name, filled, legends))
    about = {name: value if isinstance(value, str) else json.dumps(value) for name, value in frame.attrs.items() if name != "axes"}
    return xr.Dataset(arrays, coordinates, about | {"axes": json.dumps(frame.attrs.get("axes", []))})


def _dimensions(frame: Table, fields: Sequence[str]) -> list[str]:
    """The axes of the grid, other fields that tell rows apart, the seed, and the step if there are several."""
    seeds = [name for name in ("root_seed", "seed") if name in frame and (name == "seed" or frame[name].nunique() > 1)]
    last = [*seeds, "step"] if "step" in frame and frame["step"].nunique() > 1 else seeds
    listed = [name for name in frame.attrs.get("axes", ()) if name in frame]
    others = [name for name in fields if name not in (*listed, *last, *RATES)] + [name for name in RATES if name in fields]
    dims: list[str] = []
    n_cells = 1
    for name in (*listed, *(name for name in others if name not in listed and frame[name].nunique(dropna=False) > 1)):
        if name not in listed and not frame.duplicated([*dims, *last]).any():
            break
        n_with = frame.groupby([*dims, name], dropna=False).ngroups
        if n_with > n_cells:
            dims.append(name)
            n_cells = n_with
    return [*dims, *last]


def _followed(column: Table, codes: Mapping[str, np.ndarray]) -> list[str]:
    """The dimensions along which a field varies: none, the one that it follows, or all."""
    mine, _ = _factorized(column)
    if (mine == mine[0]).all():
        return []
    for name, code in codes.items():
        first = np.unique(code, return_index=True)[1]
        if (mine == mine[first][code]).all():
            return [name]
    return [*codes]


def _factorized(column: Table) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's value, and the values in order, missing ones last."""
    import pandas as pd

    codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
    values = _plain(pd.Series(values))
    if (missing := codes < 0).any():
        codes = np.where(missing, len(values), codes)
        values = np.append(values.astype(float) if values.dtype.kind in "iu" else values, [np.nan])
    return codes, values


def _filled(column: Table, codes: Mapping[str, np.ndarray], along: Sequence[str], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """An array along some dimensions with the values of a column; missing where there is no row."""
    plain, shape = _plain(column), tuple(len(values[name]) for name in along)
    at = tuple(codes[name] for name in along)
    if not along:
        return plain[0]
    given = np.zeros(shape, bool)
    given[at] = True
    kind = plain.dtype if given.all() else LACKING.get(plain.dtype.kind, plain.dtype)
    made = np.full(shape, np.nan, kind) if kind.kind in "fO" else np.zeros(shape, kind)
    made[at] = plain
    return made


def _plain(column: Table) -> np.ndarray:
    """Values as NumPy has them: numbers, with nan where one is missing, true and false, or objects."""
    from pandas.api.types import is_numeric_dtype

    if isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    if not is_numeric_dtype(column):
        return column.to_numpy(object)
    return column.to_numpy(float, na_value=np.nan) if column.isna().any() else column.to_numpy(column.dtype.numpy_dtype)


def _about(name: str, values: Any, legends: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a column: its legend, and what its numbers count."""
    legend = legends.get(name) or (COLUMNS[name][1] if name in COLUMNS else FIELDS[name].metadata["legend"] if name in FIELDS else "")
    if not legend and is_parameter(name):
        legend = "parameter of a law"
    told = {"long_name": legend} if legend else {}
    return told | ({"units": UNITS.get(name, "1")} if np.asarray(values).dtype.kind in "iuf" else {})
