"""From a grid and a results folder to a job. Writes nothing, and refuses everything that can be refused before a run."""

from __future__ import annotations

from pathlib import Path

from ...errors import GridError, StoreError, UsageError
from ...model.columns import CODE_VERSION
from ..cost import memory_limit, peak_bytes
from ..grid import Grid
from ..settings import Settings
from ..shard import Shard
from ..store.store import Done, Store
from .job import Job
from .search_job import SearchJob
from .sweep_job import SweepJob


def prepare(
    grid: Grid,
    folder: str | Path | Store,
    shard: Shard | None = None,
    pad_to: tuple[int, int, int] | None = None,
    fail_fast: bool = False,
    resume_command: str = "",
) -> Job:
    """The job of a grid, or of a shard of it, in a results folder; `pad_to` = (V, d, m) runs every point in one program.

    `resume_command` repeats or resumes the call. Raises GridError, UsageError or StoreError.
    """
    if grid.search and shard and shard.count > 1:
        raise UsageError(f"--shard: got {shard} for a search, which is sequential; allowed: --workers, --engine ray, --shard 0/1")
    settings = Settings(grid.precision, grid.part_seconds, fail_fast)
    store = folder if isinstance(folder, Store) else Store(folder)
    store.check()
    done = _done(store, settings.precision)
    limit = grid.limits.max_bytes or memory_limit()
    if grid.search:
        job: Job = SearchJob(grid, store, done, pad_to, limit, settings, resume_command)
    else:
        job = SweepJob(grid, store, done, shard, pad_to, limit, settings, resume_command)
    job.remarks += [f"{path}: cannot be read as results, so its runs count as missing ({reason})" for path, reason in done.unreadable]
    if n_others := job.n_others(done.runs):
        job.remarks.append(
            f"note: {store.folder} also holds {n_others} runs that are not of this grid; load, fit and report read them too. "
            "--out DIR keeps grids apart"
        )
    if job.plan.peak_bytes > limit:
        largest = max(job.plan.shapes, key=peak_bytes)
        raise GridError(
            f"limits.max_bytes: program {largest} needs about {job.plan.peak_bytes / 2**20:.0f} MiB; allowed: {limit / 2**20:.0f} MiB. "
            "Lower V, d or m, or raise limits.max_bytes."
        )
    return job


def _done(store: Store, precision: str) -> Done:
    """The finished runs of the folder; raises StoreError if it holds rows of another version or precision."""
    done = store.done(CODE_VERSION, precision)
    if done.foreign:
        others = ", ".join(f"{n} runs of code_version {v}, precision {p}" for (v, p), n in done.foreign.items())
        raise StoreError(
            f"{store.folder}: holds {others}; this call would add code_version {CODE_VERSION}, precision {precision}. "
            "Choose another --out, set run.precision to match, or move the old rows away."
        )
    return done
