"""Reading results: every row of results folders and files as one table for pandas."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pyarrow as pa

from ...errors import StoreError, as_list, expect
from ...model.columns import is_parameter
from ...model.point import FIELDS, RunId
from ..grid import Grid, GridLike, as_grid
from . import labelled
from .files import entries, holds_results, listed, local_path, no_rows, result_files
from .table import ROW, VERSION, about, best, in_table_order, joined, last_rows, read, with_pandas_types

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Paths = str | Path | Sequence[str | Path]


PATHS = "a results folder or a .parquet file, or a list of them"


@overload
def load(path: Paths, grid: GridLike | None = ..., *, last: bool = ..., as_xarray: Literal[False] = ...) -> pd.DataFrame: ...
@overload
def load(path: Paths, grid: GridLike | None = ..., *, last: bool = ..., as_xarray: Literal[True]) -> xr.Dataset: ...


def load(path: Paths, grid: GridLike | None = None, *, last: bool = False, as_xarray: bool = False) -> pd.DataFrame | xr.Dataset:
    """All rows of a results folder, a folder of parts or a .parquet file, or of a list of them, as one tidy DataFrame.

    With a `grid` (a dict, a file, a point or several points, as `run` takes them) only the rows of its points and seeds; of a grid
    with a search, those of its cells at the levels that the search may try.

    A run that trains on has a row for each recorded step; with `last` only that of its last step.

    One row per (point_id, seed, step): ok before others, then the newest code_version, then the first. Columns in table order,
    unknown ones after; int64, float64, bool and str, and pandas' nullable Int64 and boolean where there are nulls. Warns of
    rows that were dropped, versions that are mixed and files that cannot be read. Raises StoreError if there is no row, and UsageError
    for what is no path.

    `attrs["axes"]` names the fields that the grid varies, or the grids in the order in which they ran; it is missing where a file does
    not say, as those of older versions. `attrs["searched"]` is the field that a search varies. Of a simulator of one's own, `attrs` has
    its name as "simulator" and its column of accuracy.

    With `as_xarray` the rows are a Dataset of xarray, which the extra [xarray] installs: over the axes of the grid, the seed, and the
    step if there are several. Other fields are coordinates, all other columns are arrays, and nan stands where there is no row. Each
    has its legend as `long_name` and what its numbers count as `units`.

        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> df.groupby(["d", "N"])["accuracy"].mean().unstack("d")
        >>> few = jaxrecall.load("results/quickstart", grid="sweeps/quickstart.yaml")
        >>> ends = jaxrecall.load("results/quickstart", last=True)
        >>> jaxrecall.load("results/quickstart", as_xarray=True)["accuracy"].mean("seed")
    """
    if as_xarray:
        labelled.check_installed()
    wanted = None if grid is None else as_grid(grid)
    given = [path] if isinstance(path, (str, os.PathLike)) else as_list("path", path, PATHS)
    paths = [local_path(expect("path", one, (str, os.PathLike), PATHS)) for one in given]
    files = dict.fromkeys(file for p in paths for file in _files(p))
    tables, unreadable = read(files)
    if not any(map(len, tables.values())):
        raise no_rows(paths, unreadable)
    if unreadable:
        warnings.warn(f"{len(unreadable)} unreadable files left out: {listed(unreadable)}", UserWarning, stacklevel=2)
    rows = joined(tables.values())
    if wanted:
        rows = _of_grid(rows, wanted)
        if not len(rows):
            raise StoreError(f"no rows of grid {wanted.name!r} in {', '.join(map(str, paths))}, which hold others; has it run")
    if last and not len(rows := last_rows(rows)):
        raise StoreError(f"no last step of a run in {', '.join(map(str, paths))}, which hold others; allowed: last=False")
    table = in_table_order(best(rows, ROW))
    if dropped := len(rows) - len(table):
        others = len(rows.group_by([*ROW, *VERSION]).aggregate([])) - len(table)
        text = f"dropped {dropped} rows: one is kept per (point_id, seed, step), ok before others, then the newest code_version"
        warnings.warn(text + (f"; {others} were of another code_version or precision" if others else ""), UserWarning, stacklevel=2)
    if len(versions := table.group_by(VERSION).aggregate([([], "count_all")]).to_pylist()) > 1:
        mix = "; ".join(f"{v['count_all']} rows of {v['code_version']}, {v['precision']}" for v in versions)
        warnings.warn(f"rows of more than one code_version, precision: {mix}", UserWarning, stacklevel=2)
    frame = _frame(table, wanted.axes if wanted else None)
    return labelled.labelled(frame, _requested(table), _legends(table)) if as_xarray else frame


def _requested(table: pa.Table) -> list[str]:
    """The columns that say what was requested: the fields of the simulator, parameters of laws, and helpers of the grid."""
    fields, kept = about(table).get("fields"), about(table).get("kept", [])
    return [*(fields if isinstance(fields, list) else [*FIELDS, *filter(is_parameter, table.column_names)]), *kept]


def _legends(table: pa.Table) -> dict[str, str]:
    """The meaning of each column that says one."""
    return {field.name: field.metadata[b"description"].decode() for field in table.schema if b"description" in (field.metadata or {})}


def frame_of(tables: Iterable[pa.Table], runs: Collection[RunId], axes: Sequence[str] | None = None) -> pd.DataFrame:
    """The rows of these runs of a grid with these axes, as `load` would return them."""
    rows = _kept(joined(tables), lambda *run: run in runs)
    return _frame(in_table_order(best(rows, ROW)), axes)


def _frame(table: pa.Table, axes: Sequence[str] | None) -> pd.DataFrame:
    """The table for pandas; without `axes` those that it is about."""
    facts = about(table) | ({} if axes is None else {"axes": list(axes)})
    frame = with_pandas_types(table).to_pandas()
    frame.attrs.update({name: facts[name] for name in ("axes", "searched", "accuracy", "simulator") if facts.get(name) not in (None, "")})
    return frame


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
