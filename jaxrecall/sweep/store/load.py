"""Reads the rows of results folders and files into one table for pandas. Also makes
remarks about the rows.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import Table

from ...errors import StoreError, as_list, expect, shortened
from ...model.point import RunId
from ..files import (
    Unreadable,
    entries,
    holds_results,
    listed,
    local_path,
    no_rows,
    result_files,
)
from ..grid import Grid, GridLike, as_grid
from ..simulators.custom import Simulator
from .table import (
    ROW,
    RUN,
    VERSION,
    each_once,
    in_table_order,
    is_last,
    joined,
    read_facts,
    with_pandas_types,
)

if TYPE_CHECKING:
    import pandas as pd

Paths = str | Path | Sequence[str | Path]
PATHS = "a results folder or a .parquet file, or a list of them"


STATED = (
    "axes",
    "searched",
    "accuracy",
    "simulator",
    "kept",
    "fields",
    "labels",
    "rises",
)
"""The facts about a table that are attributes of its DataFrame."""


def load(
    path: Paths,
    grid: GridLike | None = None,
    *,
    last: bool = False,
) -> pd.DataFrame:
    """Returns all rows of a results folder as one tidy DataFrame. The path may also be
    a folder of parts, a .parquet file, or a list of such paths.

    If a `grid` is given, the function returns only the rows of its points and seeds.
    `grid` is a dict, a file, a point or a list of points, as for `run`. If the grid has
    a search, the function returns the rows of its cells at all levels that the search
    may try.

    A run that is trained further has a row for each recorded step. If `last` is true,
    the function returns only the row of the last step.

    There is one row for each (point_id, seed, step). If the files contain several such
    rows, a row with status ok is preferred, then a row of the newest code_version, then
    the first row. The columns are in table order, and unknown columns come last. The
    types of the columns are int64, float64, bool and str. A column of ints or bools
    that contains nulls has pandas' nullable type Int64 or boolean. The function warns
    of dropped rows, of mixed versions and of files that cannot be read. The function
    raises StoreError if there is no row, and UsageError if an argument is not a path.

    `attrs["axes"]` lists the fields that the grid varies. If there are several grids,
    their fields are in the order in which the grids were run. The entry is missing if a
    file does not contain this information. Files that older versions wrote do not
    contain it. `attrs["searched"]` is the field that a search varies. If the rows are
    from a simulator of your own, `attrs["simulator"]` is the name of the simulator and
    `attrs["accuracy"]` is the column that contains its accuracy. `attrs["kept"]` lists
    the helpers of the grid that are columns.

        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> df.groupby(["d", "N"])["accuracy"].mean().unstack("d")
        >>> few = jaxrecall.load("results/quickstart", grid="sweeps/quickstart.yaml")
        >>> ends = jaxrecall.load("results/quickstart", last=True)
    """
    wanted = None if grid is None else as_grid(grid)
    paths = _paths(path)
    files = itertools.chain.from_iterable(map(_files, paths))
    unreadable: Unreadable = []
    rows = joined(each_once(dict.fromkeys(files), unreadable))
    if not len(rows):
        raise no_rows(paths, unreadable)
    if unreadable:
        text = f"{len(unreadable)} unreadable files left out: {listed(unreadable)}"
        warnings.warn(text, UserWarning, stacklevel=2)
    where = f"in {', '.join(map(str, paths))}, which hold others"
    kept = _wanted(rows, wanted, last, where)
    order = in_table_order(rows, ROW, kept)
    for text in _remarks(rows, kept, order):
        warnings.warn(text, UserWarning, stacklevel=2)
    return _frame(rows.take(order), wanted.axes if wanted else None)


def _paths(given: Paths) -> list[Path]:
    one = isinstance(given, (str, os.PathLike))
    paths = []
    for path in [given] if one else as_list("path", given, PATHS):
        paths.append(local_path(expect("path", path, (str, os.PathLike), PATHS)))
    return paths


def _wanted(rows: Table, wanted: Grid | None, last: bool, where: str) -> np.ndarray:
    """Returns a mask of the rows that `load` was asked for. Raises StoreError if there
    are none; `where` states where they were looked for.
    """
    kept = np.ones(len(rows), bool)
    if wanted:
        kept &= _of_grid(rows, wanted)
        if not kept.any():
            raise StoreError(f"no rows of grid {wanted.name!r} {where}; has it run")
    if last:
        kept &= is_last(rows).to_numpy()
        if not kept.any():
            raise StoreError(f"no last step of a run {where}; allowed: last=False")
    return kept


def _remarks(rows: Table, kept: np.ndarray, order: pa.Array) -> Iterator[str]:
    """Yields remarks on a table that was made from the rows `kept` and contains the
    rows `order`.
    """
    dropped = kept.sum() - len(order)
    if dropped:
        text = (
            f"dropped {dropped} rows: one is kept per (point_id, seed, step), ok before"
            " others, then the newest code_version"
        )
        others = len(in_table_order(rows, [*ROW, *VERSION], kept)) - len(order)
        if others:
            text += f"; {others} were of another code_version or precision"
        yield text
    table = rows.select(VERSION).take(order)
    versions = table.group_by(VERSION).aggregate([([], "count_all")]).to_pylist()
    if len(versions) > 1:
        mix = []
        for of in versions:
            mix.append("{count_all} rows of {code_version}, {precision}".format(**of))
        told = shortened("; ".join(mix))
        yield f"rows of more than one code_version, precision: {told}"


def make_frame(
    tables: Iterable[Table],
    runs: Collection[RunId],
    axes: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Returns the rows of these runs in the form in which `load` returns rows. `axes`
    lists the axes of the grid.
    """
    rows = joined(tables)
    order = in_table_order(rows, ROW, _kept(rows, lambda *run: run in runs))
    return _frame(rows.take(order), axes)


def _frame(rows: Table, axes: Sequence[str] | None) -> pd.DataFrame:
    """Returns the rows as a DataFrame. If `axes` is None, the axes in the metadata of
    the rows are used.
    """
    frame = with_pandas_types(rows).to_pandas()
    facts = read_facts(rows)
    if axes is not None:
        facts["axes"] = list(axes)
    for name in STATED:
        if facts.get(name) not in (None, "", {}):
            frame.attrs[name] = facts[name]
    return frame


def _of_grid(rows: Table, grid: Grid) -> np.ndarray:
    """Returns a mask of the rows whose points and seeds belong to a grid. If the grid
    has a search, all points of its cells belong to it.
    """
    points = grid.points
    if grid.search:
        lines = (line.levels.values() for line in grid.lines)
        points = itertools.chain.from_iterable(lines)
    ids = {point.point_id for point in points}
    seeds = grid.seeds if isinstance(grid.seeds, range) else set(grid.seeds)
    return _kept(rows, lambda point_id, seed: point_id in ids and seed in seeds)


def _kept(rows: Table, keep: Callable[[str, int], bool]) -> np.ndarray:
    """Returns a mask of the rows for which `keep(point_id, seed)` is true."""
    point_ids, seeds = (rows[name].to_pylist() for name in RUN)
    return np.fromiter(map(keep, point_ids, seeds), bool)


def _files(path: Path) -> list[Path]:
    """Returns the files to read. `path` is a file, a results folder or a folder of
    parts.
    """
    if os.path.isfile(path):
        return [path]
    return result_files(path) if holds_results(path) else entries(path)


def not_finite(rows: Any, simulator: Simulator) -> Iterator[str]:
    """Yields lines about rows whose metrics are not finite, and lines about nulls in
    the user's own columns.
    """
    nonfinite = list(rows["status"]).count("nonfinite")
    if nonfinite:
        why = f"{simulator.accuracy} is not finite, and null"
        yield f"{nonfinite} of {len(rows)} rows have the status nonfinite: {why}"
    for name in simulator.own_columns:
        missing = rows[name].isna().sum()
        if missing and name != simulator.accuracy:
            yield (
                f"{name}: absent, not a number, or too large (float32 ends at 3.4e38)"
                f" in {missing} of {len(rows)} rows, where it is null"
            )
