"""A grid run from Python: the job of the command line, with rows in a folder or in
memory.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any

import pandas as pd

from ..cli.command import absolute
from ..cli.process import Interrupts
from ..errors import Interrupted, RunFailed, StoreError, UsageError, expect, shown
from .files import Json, local_path, read_json
from .grid import GridLike, as_grid
from .running.job import Job, carry_out, prepare
from .running.options import MAX_WORKERS, WORKERS, Engine
from .running.progress import display
from .running.record import Record
from .simulators.custom import Simulator, add_to_path
from .store import MemoryStore, Store
from .store.load import frame_of, not_finite

THRESHOLDS = "thresholds"
"""The attribute of a table that holds what a search found, as plain data."""


def run(
    grid: GridLike,
    *,
    seeds: int | Iterable[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int = 1,
    progress: bool = True,
    simulator: Simulator | str | None = None,
    columns: Mapping[str, Callable[..., Any] | str] | None = None,
) -> pd.DataFrame:
    """Runs every point and seed of a grid and returns their rows, as `load` does.

    There is one a run, or one for each recorded step.

    Args:
        grid: a dict with the keys of a grid file, the path of a grid file, a `Point`,
            or a list of them. A grid with a `search` looks for thresholds; `thresholds`
            returns what it found.
        seeds: a count or a list, in place of the grid's own. Points have the one seed 0
            unless given others.
        out: a results folder. Only runs that it lacks are computed, and finished rows
            are saved there every few seconds, as by the command line. Without it rows
            stay in memory and no file is written.
        workers: processes that share the work, each with cores or an accelerator of its
            own; 1 is this process.
        progress: show a live line in a terminal or a notebook, and a line every 30
            seconds elsewhere.
        simulator: a `jaxrecall.Simulator` of your own, or its name as module:name;
            without it that of the grid, or else that of this package. With `workers` it
            must be in a module that can be imported from this folder, or that of the
            grid file.
        columns: columns of your own, functions of (draws, learned) or their import
            paths
            by name, in place of those of the grid. With `workers` the same holds for
                them.

    Returns:
        The rows of this grid in table order; rows of other grids in `out` are left out.

    Raises:
        GridError, UsageError or StoreError, before anything runs, for arguments that
        are refused.
        Interrupted: Ctrl-C, a notebook's stop button, SIGTERM or SIGHUP, in the main
            thread. The batch in flight is finished first; a second Ctrl-C drops it.
            Finished rows are saved in `out`, and are `rows` of the exception in any
            case.
        RunFailed: some runs failed, after all others have run; `rows` of the exception
            holds the finished ones.

    Examples:
        >>> import jaxrecall
        >>> grid = {"base": {"V": 64, "L": 8}, "blocks": [{"axes": {"d": [16, 32], "N":
            [256, 1024, 4096]}}]}
        >>> df = jaxrecall.run(grid, seeds=4)
        >>> df.groupby(["d", "N"])["accuracy"].mean().unstack("d")
        >>> df = jaxrecall.run("sweeps/quickstart.yaml", out="results/quickstart")
        >>> df = jaxrecall.run(jaxrecall.Point(V=64, N=1024, d=32, L=8), seeds=[0, 5,
            7])
    """
    _check(workers, simulator, out, columns)
    by = Engine(workers=workers if workers > 1 else None)
    paths = import_paths(grid if isinstance(grid, (str, os.PathLike)) else None)
    expanded = as_grid(grid, seeds, simulator, columns)
    by.check(expanded)
    store = MemoryStore() if out is None else Store(os.fspath(out))
    job: Job | None = None
    with Interrupts() as interrupts:
        try:
            job = prepare(
                expanded,
                store,
                resume_command=(
                    "the same call"
                    if out is None
                    else f"jaxrecall.run(grid, out={os.fspath(out)!r})"
                ),
            )
            by.share(job)
            for remark in job.remarks:
                warnings.warn(remark, UserWarning, stacklevel=2)
            with by.opened(job, interrupts, paths) as execute:
                carry_out(
                    job,
                    execute,
                    display(announce=False) if progress else None,
                    interrupts,
                )
        except KeyboardInterrupt:
            interrupts.requested = True
        rows = _rows(job) if job else frame_of([], (), ())
    n_runs, record = (
        (len(job.runs), job.record) if job else (expanded.n_runs, Record(store))
    )
    if problem := _problem(rows, n_runs, record, interrupts.requested, store):
        raise problem
    for message in not_finite(rows, expanded.simulator.facts):
        warnings.warn(message, UserWarning, stacklevel=2)
    return rows


def _problem(
    rows: pd.DataFrame, n_runs: int, record: Record, interrupted: bool, store: Store
) -> Interrupted | RunFailed | None:
    """The exception of a call of which not all runs are finished."""
    kept = not isinstance(store, MemoryStore)
    finished = (
        f"{(rows['step'] == rows['steps']).sum()} of {n_runs} runs are finished; their"
        " rows are in `rows` of this exception"
    )
    finished += f" and in {store.folder}" if kept else ""
    again = "The same call " + (
        "computes the others"
        if kept
        else "starts from the beginning; with out= it would resume"
    )
    if interrupted:
        return Interrupted(
            f"{finished} (in a notebook: sys.last_value.rows). {again}", rows
        )
    lost = (
        [f"{record.unsaved} finished runs could not be saved and are lost"]
        if record.unsaved
        else []
    )
    lines = [*lost, *record.failures]
    return (
        RunFailed("\n".join([f"{finished}. {again}", *lines]), rows) if lines else None
    )


def _check(workers: Any, simulator: Any, out: Any, columns: Any) -> None:
    """Raises UsageError for arguments of `run` of a wrong type."""
    if not 1 <= expect("workers", workers, int, WORKERS) <= MAX_WORKERS:
        raise UsageError(f"workers: got {shown(workers)}; allowed: {WORKERS}")
    expect(
        "simulator",
        simulator,
        (Simulator, str, NoneType),
        "a jaxrecall.Simulator, or module:name of one",
    )
    expect(
        "columns",
        columns,
        (Mapping, NoneType),
        "functions or their import paths by name, or None for those of the grid",
    )
    expect(
        "out", out, (str, os.PathLike, NoneType), "a results folder, or None for none"
    )


def thresholds(source: pd.DataFrame | str | os.PathLike[str]) -> pd.DataFrame:
    """What a search found: for each cell and theta the critical value and its 95 %
    interval.

    And how the search of that cell ended.

    Args:
        source: the table that `run` returned for a grid with a `search`, or the results
            folder of a search.

    Returns:
        One row per cell and theta, with the columns of the cell's axes, `theta`, `axis`
        (what was searched over), `critical`, `lo`, `hi`, `N_star`, `outcome`, `seeds`,
        `runs`, `samples` and `warning`. `critical`, `lo` and `hi` are missing unless
        the outcome has a crossing; `N_star` is `critical` along N and missing along
        other axes.

    Raises:
        UsageError or StoreError if the source holds no search.

    Examples:
        >>> import jaxrecall
        >>> grid = {"base": {"V": 64, "L": 8, "pool": 64}, "blocks": [{"axes": {"d":
            [16, 32]}}], "search": {"axis": "N"}}
        >>> df = jaxrecall.run(grid, seeds=100)
        >>> jaxrecall.thresholds(df)
    """
    advice = "For a grid that lists its N: jaxrecall.fit.fit(df, [0.5]).thresholds"
    if isinstance(source, pd.DataFrame):
        cells = source.attrs.get(THRESHOLDS)
        if cells is None:
            raise UsageError(
                "source: got a table without thresholds; allowed: what `run` returned"
                f" for a grid with a search. {advice}"
            )
        return _table_of(cells)
    expect(
        "source",
        source,
        (str, os.PathLike),
        "what `run` returned for a grid with a search, or the results folder of a"
        " search",
    )
    path = local_path(os.fspath(source)) / "search.json"
    try:
        found = read_json(path)
        return _table_of(found["cells"])
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise StoreError(
            f"{path}: is no result of a search ({type(error).__name__}); allowed: its"
            f" results folder. {advice}"
        ) from None


def _table_of(cells: list[Json]) -> pd.DataFrame:
    """One row per cell and theta."""
    table = pd.DataFrame(
        [
            {name: value for name, value in cell.items() if name != "point"}
            for cell in cells
        ]
    )
    return table.astype(dict.fromkeys(("critical", "lo", "hi", "N_star"), "float64"))


def _rows(job: Job) -> pd.DataFrame:
    """What the job has finished so far; of a search with its thresholds."""
    frame = frame_of(job.store.tables()[0].values(), job.runs, job.grid.axes)
    if job.search:
        frame.attrs[THRESHOLDS] = job.search.report()["cells"]
    return frame


def import_paths(grid: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """Makes the current folder and that of a grid file importable here.

    Returns all folders that this process imports from, which workers are given.
    """
    folders = [absolute()] + (
        [absolute(local_path(os.fspath(grid))).parent] if grid is not None else []
    )
    add_to_path(
        str(folder) for folder in folders if folder.is_absolute()
    )  # Python cannot import from a folder that was deleted
    return tuple(filter(None, sys.path))
