"""Reading results: every row of results folders and files
as one table for pandas, or as labelled arrays of xarray.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pyarrow as pa

from ...errors import StoreError, UsageError, as_list, expect, printable
from ...model.columns import COLUMNS, UNITS, is_parameter
from ...model.point import FIELDS, RunId
from ..files import NAMES, entries, holds_results, is_file, listed, local_path, no_rows, read_json, result_files
from ..grid import Grid, GridLike, as_grid
from .table import ROW, VERSION, about, best, in_table_order, joined, last_rows, read, with_pandas_types

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Paths = str | Path | Sequence[str | Path]
Table = Any  # pandas.DataFrame, whose own types say less than Any
Names = Mapping[str, Any] | None
"""The contents of names.json: `cells`, each with its names and its `points`, and the
fields `following` an axis by derive."""

PATHS = "a results folder or a .parquet file, or a list of them"

MAX_EMPTY, SMALL = 100, 10**6
"""Arrays of more than SMALL values have at most MAX_EMPTY times as many as there are rows."""

RATES = ("kappa", "gamma", "gamma2")
"""Fields that follow from the others, so that they make
a dimension only where nothing else tells the rows apart.
"""


@overload
def load(path: Paths, grid: GridLike | None = ..., *, last: bool = ..., as_xarray: Literal[False] = ...) -> pd.DataFrame: ...
@overload
def load(path: Paths, grid: GridLike | None = ..., *, last: bool = ..., as_xarray: Literal[True]) -> xr.Dataset: ...


def load(path: Paths, grid: GridLike | None = None, *, last: bool = False, as_xarray: bool = False) -> pd.DataFrame | xr.Dataset:
    """All rows of a results folder, a folder of parts or a
    .parquet file, or of a list of them, as one tidy DataFrame.

    With a `grid` (a dict, a file, a point or several points, as `run` takes them) only
    the rows of its points and seeds; of a grid with a search, those of its cells at the
    levels that the search may try.

    A run that trains on has a row for each recorded step; with `last` only that of its
    last step.

    One row per (point_id, seed, step): ok before others, then the newest code_version,
    then the first. Columns in table order, unknown ones after; int64, float64, bool and
    str, and pandas' nullable Int64 and boolean where there are nulls. Warns of rows
    that were dropped, versions that are mixed and files that cannot be read. Raises
    StoreError if there is no row, and UsageError for what is no path.

    `attrs["axes"]` names the fields that the grid varies, or the grids in the order in
    which they ran; it is missing where a file does not say, as those of older versions.
    `attrs["searched"]` is the field that a search varies. Of a simulator of one's own,
    `attrs` has its name as "simulator" and its column of accuracy. A grid with labels gives
    its rows the column label; a run of several blocks has that of the first.

    With `as_xarray` the rows are a Dataset of xarray, which the extra [xarray]
    installs: over the axes of the grid, the seed, and the step if there are several.
    Other fields are coordinates, all other columns are arrays, and nan stands where
    there is no row. Each has its legend as `long_name` and what its numbers count as
    `units`.

        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> df.groupby(["d", "N"])["accuracy"].mean().unstack("d")
        >>> few = jaxrecall.load("results/quickstart", grid="sweeps/quickstart.yaml")
        >>> ends = jaxrecall.load("results/quickstart", last=True)
        >>> jaxrecall.load("results/quickstart", as_xarray=True)["accuracy"].mean("seed")
    """
    if as_xarray:
        _check_xarray()
    wanted = None if grid is None else as_grid(grid)
    given = [path] if isinstance(path, (str, os.PathLike)) else as_list("path", path, PATHS)
    paths = [local_path(expect("path", one, (str, os.PathLike), PATHS)) for one in given]
    tables, unreadable = read(dict.fromkeys(file for p in paths for file in _files(p)))
    if not any(map(len, tables.values())):
        raise no_rows(paths, unreadable)
    if unreadable:
        warnings.warn(f"{len(unreadable)} unreadable files left out: {listed(unreadable)}", UserWarning, stacklevel=2)
    rows = joined(tables.values())
    where = f"in {', '.join(map(str, paths))}, which hold others"
    if wanted and not len(rows := _of_grid(rows, wanted)):
        raise StoreError(f"no rows of grid {wanted.name!r} {where}; has it run")
    if last and not len(rows := last_rows(rows)):
        raise StoreError(f"no last step of a run {where}; allowed: last=False")
    table = in_table_order(best(rows, ROW))
    for text in _remarks(rows, table):
        warnings.warn(text, UserWarning, stacklevel=2)
    frame = _frame(table, wanted.axes if wanted else None, wanted.names() if wanted else names_in(paths))
    return labelled(frame, [*_requested(table), *({"label"} & {*frame})], _told(table)) if as_xarray else frame


def _remarks(rows: pa.Table, table: pa.Table) -> Iterator[str]:
    """What to know of a table that was made of these rows."""
    if odd := about(rows).get("dropped"):
        yield printable(f"metadata of some files cannot be used and is left out: {', '.join(odd)}")
    if dropped := len(rows) - len(table):
        others = len(rows.group_by([*ROW, *VERSION]).aggregate([])) - len(table)
        text = f"dropped {dropped} rows: one is kept per (point_id, seed, step), ok before others, then the newest code_version"
        yield text + (f"; {others} were of another code_version or precision" if others else "")
    if len(versions := table.group_by(VERSION).aggregate([([], "count_all")]).to_pylist()) > 1:
        mix = "; ".join(f"{v['count_all']} rows of {v['code_version']}, {v['precision']}" for v in versions)
        yield f"rows of more than one code_version, precision: {mix}"


def _requested(table: pa.Table) -> list[str]:
    """The columns that say what was requested: the fields of
    the simulator, parameters of laws, and helpers of the grid.
    """
    fields, kept = about(table).get("fields"), about(table).get("kept", [])
    return [*(fields if isinstance(fields, list) else [*FIELDS, *filter(is_parameter, table.column_names)]), *kept]


def _told(table: pa.Table) -> dict[str, dict[bytes, bytes]]:
    """What each column says of itself: its meaning as description, and its unit."""
    return {field.name: field.metadata or {} for field in table.schema}


def frame_of(tables: Iterable[pa.Table], runs: Collection[RunId], axes: Sequence[str] | None = None, names: Names = None) -> pd.DataFrame:
    """The rows of these runs of a grid with these axes and names, as `load` would return them."""
    rows = _kept(joined(tables), lambda *run: run in runs)
    return _frame(in_table_order(best(rows, ROW)), axes, names)


def names_in(folders: Iterable[Path]) -> dict[str, Any]:
    """The contents of names.json of results folders; a file that cannot be used is left out with a warning."""
    found: dict[str, Any] = {"cells": [], "following": {}}
    for path in (folder / NAMES for folder in folders if is_file(folder / NAMES)):
        try:
            held = read_json(path)
            cells = [{name: each for name, each in cell.items() if isinstance(each, (str, int, float))} for cell in held.get("cells", ())]
            found["following"] |= {axis: [*map(str, fields)] for axis, fields in held.get("following", {}).items()}
            found["cells"] += [cell for cell in cells if isinstance(cell["points"], str)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warnings.warn(f"{path}: cannot be used ({type(error).__name__}), so cells lack names", UserWarning, stacklevel=3)
    return found


def with_names(frame: Table, along: str = "") -> Table:
    """The rows with the names of their cells along an axis, from `attrs["names"]`: a run
    that several cells share has a row for each. Without an axis each row is there once,
    with a label alone.

    Names tell cells apart along an axis that fields follow; `told` are those that do.
    Along any other the fields themselves do, and labels where these are alike.
    """
    import pandas as pd

    names = frame.attrs.get("names", {})
    if "point_id" not in frame or not names.get("cells"):
        return frame
    cells = pd.DataFrame(names["cells"])
    cells = cells.assign(point_id=cells.pop("points").str.split()).explode("point_id")
    mine = [name for name in cells if name == "label" or (along and (name in names["columns"] or name not in frame))]
    told = mine if names["following"].get(along) else [name for name in mine if along and name == "label"]
    cells: Table = cells[["point_id", *mine]]
    rows = (
        frame[["point_id"]]
        .assign(**{" row": range(len(frame))})
        .merge(cells.drop_duplicates(["point_id", *told]), how="left", on="point_id")
    )
    found = frame.iloc[rows[" row"]].reset_index(drop=True)
    for name in mine:
        is_text = name == "label" or name.startswith("derive.")
        found[name] = rows[name].fillna("").astype(str) if is_text else rows[name].where(rows[name].notna(), found.get(name))
    found.attrs["names"] = names | ({"cells": [], "told": told, "columns": [*mine, *names["columns"]]} if along else {})
    return found


def _frame(table: pa.Table, axes: Sequence[str] | None, names: Names) -> pd.DataFrame:
    """The table for pandas; without `axes` those that it is about."""
    facts = about(table) | ({} if axes is None else {"axes": list(axes)})
    frame = with_pandas_types(table).to_pandas()
    frame.attrs.update({name: facts[name] for name in ("axes", "searched", "accuracy", "simulator") if facts.get(name) not in (None, "")})
    if (kept := about(table).get("kept", [])) or (names and names["cells"]):
        frame.attrs["names"] = {"cells": [], "following": {}, **(names or {}), "columns": kept}
    return with_names(frame)


def n_runs_in(frame: pd.DataFrame) -> int:
    """How many runs a table holds the last row of."""
    return int(np.sum(frame["step"].to_numpy() == frame["steps"].to_numpy()))


def _of_grid(rows: pa.Table, grid: Grid) -> pa.Table:
    """The rows of a grid's points, or of its cells, and seeds."""
    points = (point for line in grid.lines for point in line.levels.values()) if grid.search else grid.points
    ids = {point.point_id for point in points}
    seeds = grid.seeds if isinstance(grid.seeds, range) else set(grid.seeds)
    return _kept(rows, lambda point_id, seed: point_id in ids and seed in seeds)


def _kept(rows: pa.Table, keep: Callable[[str, int], bool]) -> pa.Table:
    """The rows whose (point_id, seed) is to be kept."""
    return rows.filter(pa.array(map(keep, rows["point_id"].to_pylist(), rows["seed"].to_pylist()), pa.bool_()))


def _files(path: Path) -> list[Path]:
    """What is read for `path`: a file, a results folder, or else a folder of parts."""
    if os.path.isfile(path):
        return [path]
    return result_files(path) if holds_results(path) else entries(path)


def _check_xarray() -> None:
    """Raises UsageError if xarray is not there."""
    try:
        import xarray  # noqa: F401
    except ImportError as error:
        told = "xarray is not installed; to install it: pip install 'jaxrecall[xarray]'; allowed without it: False"
        raise UsageError(f"as_xarray: got True, and {told}") from error


def labelled(frame: Table, fields: Sequence[str], told: Mapping[str, Mapping[bytes, bytes]]) -> xr.Dataset:
    """The rows of a table as a Dataset.

    Args:
        frame: as `load` returns it.
        fields: the columns that say what was requested. They are coordinates: along a
            dimension each, along the one that they follow, or along all.
        told: description and unit by column; of other columns those of the package.

    Raises:
        StoreError: if several rows have the same coordinates, or the rows fill too
            little of the arrays.
    """
    import pandas as pd
    import xarray as xr

    fields = [name for name in fields if name in frame]
    dims = _dimensions(frame, fields)
    if frame.duplicated(dims).any():
        raise StoreError(f"as_xarray: several rows have the same {', '.join(dims)}; allowed: one, give the `grid` whose rows are wanted")
    codes, values = {}, {}
    for name in dims:
        codes[name], values[name] = _factorized(frame[name])
    if math.prod(map(len, values.values())) > max(SMALL, MAX_EMPTY * len(frame)):
        extent = " x ".join(f"{name} {len(each)}" for name, each in values.items())
        raise StoreError(f"as_xarray: {len(frame)} rows are too few for arrays of {extent}; allowed: a `grid` of fewer axes")
    columns = {str(name): _plain(frame[name]) for name in frame if name not in dims}
    following = {name: _followed(frame[name], codes) for name in columns if name in fields}
    few = {name: (along, columns.pop(name)[rows]) for name, (along, rows) in following.items() if along != dims}
    index = pd.MultiIndex.from_arrays([*codes.values()], names=dims)
    full = xr.Dataset({name: ("row", column) for name, column in columns.items()}, xr.Coordinates.from_pandas_multiindex(index, "row"))
    found = full.unstack("row").assign_coords(values).assign_coords(few).set_coords([*following])
    for name, variable in found.variables.items():
        variable.attrs = _about(str(name), variable.dtype, told.get(str(name), {}))
    about = {name: value if isinstance(value, str) else json.dumps(value) for name, value in frame.attrs.items()}
    return found.assign_attrs(about | {"axes": json.dumps(frame.attrs.get("axes", []))})


def _dimensions(frame: Table, fields: Sequence[str]) -> list[str]:
    """The axes of the grid, other fields that tell rows
    apart, the seed, and the step if there are several.
    """
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


def _followed(column: Table, codes: Mapping[str, np.ndarray]) -> tuple[list[str], Any]:
    """The dimensions along which a field varies, and the rows
    with its values: none, the one that it follows, or all.
    """
    mine, _ = _factorized(column)
    if (mine == mine[0]).all():
        return [], 0
    for name, code in codes.items():
        first = np.unique(code, return_index=True)[1]
        if (mine == mine[first][code]).all():
            return [name], first
    return [*codes], slice(None)


def _factorized(column: Table) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's value, and the values in order, missing ones last."""
    import pandas as pd

    codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
    values = _plain(pd.Series(values))
    if (missing := codes < 0).any():
        codes = np.where(missing, len(values), codes)
        values = np.append(values.astype(float) if values.dtype.kind in "iu" else values, [np.nan])
    return codes, values


def _plain(column: Table) -> np.ndarray:
    """Values as NumPy has them: numbers, with nan where one is missing, true and false, or objects."""
    from pandas.api.types import is_numeric_dtype

    if isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    if not is_numeric_dtype(column):
        return column.to_numpy(object)
    return column.to_numpy(float, na_value=np.nan) if column.isna().any() else column.to_numpy(column.dtype.numpy_dtype)


def _about(name: str, dtype: Any, told: Mapping[bytes, bytes]) -> dict[str, str]:
    """The attributes of a column: its legend, and what its numbers count."""
    legend, unit = (told.get(key, b"").decode(errors="replace") for key in (b"description", b"unit"))
    legend = legend or (COLUMNS[name][1] if name in COLUMNS else FIELDS[name].metadata["legend"] if name in FIELDS else "")
    named = {"long_name": legend} if legend else {}
    return named | ({"units": unit or UNITS.get(name, "1")} if dtype.kind in "iuf" else {})
