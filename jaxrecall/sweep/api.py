"""Runs a grid from Python, and keeps its rows in a results folder or in memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any

import pandas as pd

from ..cli.process import ENDING, Interrupts
from ..errors import Interrupted, RunFailed, StoreError, UsageError, expect, shown
from .files import Json, local_path, read_json
from .grid import GridLike, as_grid
from .running.call import Call
from .running.engine import MAX_WORKERS, WORKERS, Engine
from .running.job import Job, carry_out, prepare
from .running.progress import display
from .simulators.custom import Simulator
from .simulators.function import FunctionSimulator
from .store import MemoryStore, Store
from .store.load import make_frame, not_finite

THRESHOLDS = "thresholds"
"""The name of the table attribute that contains the results of a search."""

ADVICE = "For a grid that lists its N: jaxrecall.fit.fit(df, [0.5]).thresholds"


def run(
    grid: GridLike | Simulator | Callable[..., Any],
    *,
    axes: Mapping[str, Any] | None = None,
    static: Iterable[str] | str = (),
    measure: str | None = None,
    arrays: Mapping[str, str] | None = None,
    seeds: int | Iterable[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int = 1,
    progress: bool = True,
    simulator: Simulator | str | None = None,
    columns: Mapping[str, Callable[..., Any] | str] | None = None,
    keep_going: bool = False,
    same_source: bool = False,
) -> pd.DataFrame:
    """Runs every point and seed of a grid. Returns a table of their rows, as `load`
    does.

    The table has one row for each run, or one for each recorded step of a run.

    Args:
        grid: a dict with the keys of a grid file, the path of a grid file, a `Point`,
            or a list of them. A grid with a `search` looks for thresholds;
            `jaxrecall.thresholds` returns them. Or a function of a key and of named
            parameters that returns a dict of numbers, as in `jaxrecall.simulator`.
        axes: the values of a function's parameters, as in the axes of a grid.
        static: the parameters of a function that a shape or a Python `if` needs.
        measure: the number that a function returns for figures, fits and searches.
        arrays: the arrays that a function returns, each with the name of its axis.
        seeds: the number of seeds or a list of seeds. They replace the grid's own.
            Points have only seed 0 unless seeds are given.
        out: a results folder. Only the runs that are missing there are computed.
            Finished rows are saved there every few seconds, as the command line does.
            Without a folder, rows stay in memory and no file is written.
        workers: the number of processes that share the work, each with its own cores or
            accelerator; 1 is this process.
        progress: whether to show a live line in a terminal or a notebook, and a line
            every 30 seconds elsewhere.
        simulator: a `jaxrecall.Simulator` of your own, or its name as module:name. The
            default is the grid's simulator, or this package's if the grid has none.
            With `workers`, its module must be in the current folder, in the folder of
            the grid file, or installed.
        columns: a dict of your own columns. Its keys are names. Its values are
            functions of (draws, learned) or their import paths. These columns replace
            those of the grid. With `workers`, the functions must also be in a module
            that can be imported.
        keep_going: whether to go on even if the first 100 runs fail alike.
        same_source: whether to add to rows of `out` although your code has changed
            since, because it computes the same numbers.

    Returns:
        The rows of this grid in table order. Rows of other grids in `out` are left out.

    Raises:
        GridError, UsageError or StoreError: if an argument is not allowed. No run has
            started yet.
        Interrupted: after Ctrl-C, a notebook's stop button, SIGTERM or SIGHUP, in the
            main thread. The current batch is finished first; a second Ctrl-C drops it.
            The finished rows are in `rows` of the exception, and also in `out` if a
            folder was given.
        RunFailed: if some runs failed, after all others have run, or if the first 100
            fail alike. The finished rows are in `rows` of the exception.

    Examples:
        >>> import jaxrecall
        >>> axes = {"d": [16, 32], "N": [256, 1024, 4096]}
        >>> grid = {"base": {"V": 64, "L": 8}, "blocks": [{"axes": axes}]}
        >>> df = jaxrecall.run(grid, seeds=4)
        >>> df.groupby(["d", "N"])["accuracy"].mean().unstack("d")
        >>> df = jaxrecall.run("sweeps/quickstart.yaml", out="results/quickstart")
        >>> point = jaxrecall.Point(V=64, N=1024, d=32, L=8)
        >>> df = jaxrecall.run(point, seeds=[0, 5, 7])
        >>> import jax
        >>> def walk(key, *, n, scale=1.0):
        ...     return {"end": scale * jax.random.normal(key, (n,)).sum()}
        >>> axes = {"n": [10, 100], "scale": [1, 2]}
        >>> df = jaxrecall.run(walk, axes=axes, static="n", measure="end", seeds=8)
    """
    _check(workers, simulator, out)
    allowed = "a dict from parameters to their values"
    axes = expect("axes", {} if axes is None else axes, Mapping, allowed)
    if callable(grid) and not isinstance(grid, Simulator):
        grid = FunctionSimulator(grid, static, measure, axes, arrays)
        static, measure, arrays = (), None, None
    if isinstance(grid, Simulator):
        expect("simulator", simulator, NoneType, "one simulator or function")
        simulator = grid
        grid, axes = {"blocks": [{"axes": axes}]} if axes else {}, {}
    if axes or static or measure or arrays:
        raise UsageError(
            "axes, static, measure, arrays: got with a grid or a simulator, which has"
            " its own; allowed: with a function as the first argument"
        )
    engine = Engine(workers=workers if workers > 1 else None)
    expanded = as_grid(grid, seeds, simulator, columns)
    engine.check(expanded)
    store, again = MemoryStore(), "the same call"
    if out is not None:
        store = Store(os.fspath(out))
        again = f"jaxrecall.run(grid, out={os.fspath(out)!r})"
    n_runs, losses = expanded.n_runs, list[str]()
    job: Job | None = None
    with Interrupts(ENDING) as interrupts:
        try:
            job = prepare(
                expanded,
                store,
                keep_going=keep_going,
                resume_command=again,
                same_source=same_source,
            )
            engine = engine.fitted(job)
            for remark in job.remarks:
                warnings.warn(remark, UserWarning, stacklevel=2)
            shown = display(announce=False) if progress else None
            with engine.opened(job, interrupts) as execute:
                carry_out(job, execute, shown, interrupts)
        except KeyboardInterrupt:
            interrupts.requested = True
        rows = _rows(job) if job else make_frame([], (), ())
        if job:
            n_runs, losses = len(job.runs), _losses(job.call)
    if interrupts.requested or losses:
        finished, again = _finished(rows, n_runs, store)
        if interrupts.requested:
            stopped = f"{finished} (in a notebook: sys.last_value.rows). {again}"
            raise Interrupted(stopped, rows)
        raise RunFailed("\n".join([f"{finished}. {again}", *losses]), rows)
    for message in not_finite(rows, expanded.simulator):
        warnings.warn(message, UserWarning, stacklevel=2)
    return rows


def _losses(call: Call) -> list[str]:
    """Returns a line for each kind of error, and lines for an early end and for the
    rows that could not be saved.
    """
    losses = [mistake.total for mistake in call.failures.values()]
    losses.append(call.early_end("keep_going=True"))
    if call.unsaved:
        losses.append(f"{call.unsaved} finished runs could not be saved and are lost")
    return list(filter(None, losses))


def _finished(rows: pd.DataFrame, n_runs: int, store: Store) -> tuple[str, str]:
    """Returns two texts. The first states how many runs are finished. The second states
    what a repeated call would do.
    """
    n_finished = (rows["step"] == rows["steps"]).sum()
    finished = (
        f"{n_finished} of {n_runs} runs are finished; their rows are in `rows` of this"
        " exception"
    )
    if isinstance(store, MemoryStore):
        again = "starts from the beginning; with out= it would resume"
    else:
        finished += f" and in {store.folder}"
        again = "computes the others"
    return finished, f"The same call {again}"


def _check(workers: Any, simulator: Any, out: Any) -> None:
    """Raises UsageError if an argument of `run` has a wrong type or value."""
    if not 1 <= expect("workers", workers, int, WORKERS) <= MAX_WORKERS:
        raise UsageError(f"workers: got {shown(workers)}; allowed: {WORKERS}")
    expect(
        "simulator",
        simulator,
        (Simulator, str, NoneType),
        "a jaxrecall.Simulator, or module:name of one",
    )
    expect(
        "out", out, (str, os.PathLike, NoneType), "a results folder, or None for none"
    )


def thresholds(source: pd.DataFrame | str | os.PathLike[str]) -> pd.DataFrame:
    """Returns a table of the results of a search.

    For each configuration and theta, the table has the critical value, its 95 %
    interval, and the outcome of the search.

    Args:
        source: a table that `run` returned for a grid with a `search`, or the results
            folder of a search.

    Returns:
        One row per configuration and theta. The columns are its axes, `theta`, `axis`
        (the searched axis), `critical`, `lo`, `hi`, `N_star`, `outcome`, `seeds`,
        `runs`, `samples` and `warning`. `critical`, `lo` and `hi` are missing values if
        the search found no crossing. `N_star` equals `critical` if the axis is N.
        Otherwise it is missing.

    Raises:
        UsageError or StoreError: if the source is not from a search.

    Examples:
        >>> import jaxrecall
        >>> grid = {"base": {"V": 64, "L": 8, "pool": 64}, "search": {"axis": "N"}}
        >>> grid["blocks"] = [{"axes": {"d": [16, 32]}}]
        >>> df = jaxrecall.run(grid, seeds=100)
        >>> jaxrecall.thresholds(df)
    """
    allowed = "what `run` returned for a grid with a search"
    if isinstance(source, pd.DataFrame):
        if THRESHOLDS in source.attrs:
            return _table_of(source.attrs[THRESHOLDS])
        raise UsageError(
            f"source: got a table without thresholds; allowed: {allowed}. {ADVICE}"
        )
    allowed += ", or the results folder of a search"
    folder = expect("source", source, (str, os.PathLike), allowed)
    path = local_path(os.fspath(folder)) / "search.json"
    try:
        return _table_of(read_json(path)["cells"])
    except Exception as error:  # a damaged file may raise any class
        raise StoreError(
            f"{path}: is no result of a search ({type(error).__name__}); allowed: its"
            f" results folder. {ADVICE}"
        ) from None


def _table_of(cells: list[Json]) -> pd.DataFrame:
    table = pd.DataFrame(list(map(dict, cells)))
    table = table.drop(columns="point", errors="ignore")
    return table.astype(dict.fromkeys(("critical", "lo", "hi", "N_star"), "float64"))


def _rows(job: Job) -> pd.DataFrame:
    """Returns a table of the rows that the job has so far.

    The thresholds of a search are an attribute of the table.
    """
    tables, _ = job.store.tables()
    frame = make_frame(tables.values(), job.runs, job.grid.axes)
    if job.search:
        frame.attrs[THRESHOLDS] = job.search.report()["cells"]
    return frame
