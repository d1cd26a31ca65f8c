"""What a results folder holds and which runs are left, from its files alone."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import GridError, StoreError, UsageError
from ...model.columns import STATUSES
from ...model.point import Run, RunId
from ..files import Unreadable, holds_results, is_file, read_json
from ..grid import Grid, rebuilt
from ..rounds import Rounds
from ..simulators import RECALL, RecallSimulator, Simulator, add_to_path
from ..store import LastValues, Store, Version
from ..store.age import older, seen

LastRow = tuple[str, float | None, float | None]
"""Status, seconds and accuracy."""

MAX_SECONDS = 1e9
"""No run takes so long: a larger number, or NaN, is damage and is left out of the sum."""


def survey(*folders: str | Path) -> dict[str, Any]:
    """The facts of a results folder, or of several taken together,
    as plain data; raises StoreError if one is not a results folder.

    The grid is that of the last sweep, from the manifest of the first folder. `todo`
    counts the runs that the next call with this version of jaxrecall would run. Without
    a grid `points`, `runs` and `todo` are None, and every row of this version counts as
    done.
    """
    stores = [_results(folder) for folder in folders]
    manifest, grid, remark = _manifest(stores[0])
    if any(_manifest(store)[0].get("grid") != manifest.get("grid") for store in stores[1:]):
        remark = f"the folders hold different grids; the runs to do are counted for the grid of {stores[0].folder}"
    simulator = grid.simulator if grid else RECALL
    found, unreadable, stale = _rows(stores, simulator.accuracy)
    version = _version(manifest, grid, simulator, found)
    mine = found.pop(version, {})
    runs, progress = _runs(grid, mine)
    done = [row for run, row in mine.items() if run in runs]
    todo = len(runs) - len(done)
    failures, no_record = _failures(stores, mine.keys())
    for failure in failures:
        failure["repeat"] = _resuming(failure["repeat"], Path(failure["path"]).parents[1], grid)["command"]
    return {
        "folder": ", ".join(str(store.folder) for store in stores),
        "grid": grid.name if grid else None,
        "remark": remark or progress,
        "points": len(grid.points) if grid else None,
        "runs": len(runs) if grid else None,
        "done": len(done),
        "todo": todo if grid else None,
        **{status: sum(row[0] == status for row in done) for status in STATUSES if status != "ok"},
        "code_version": version[0],
        "precision": version[1],
        "other_grids": len(mine) - len(done),
        "other_versions": [{"code_version": v, "precision": p, "rows": len(others)} for (v, p), others in sorted(found.items())],
        "failures": failures,
        "unreadable": [{"path": str(path), "reason": reason} for path, reason in [*unreadable, *no_record]],
        "older": stale,
        "bytes": sum(stat.st_size for _, stat in _stats(*(store.folder for store in stores))),
        "seconds": sum(seconds for _, seconds, _ in done if seconds is not None and 0 <= seconds <= MAX_SECONDS),
        "newest_part_age": _newest_part_age(stores),
        **_resuming(manifest.get("command") if todo else None, stores[0].folder, grid),
    }


def _resuming(command: Any, folder: Path, grid: Grid | None) -> dict[str, Any]:
    """The command that resumes the sweep of a grid into this folder, and
    the other folder that the sweep wrote to, if the folder was moved or copied.
    """
    text = command if isinstance(command, str) else ""
    text += f" --out results/{grid and grid.name}" * (" --grid" in text and " --out" not in text)
    given = re.search(r"(?:( --out[ =])|, out=)('[^']*'|[^\s)]+)", text)
    old, places = os.path.normpath(given[2].strip("'") if given else ""), (os.path.abspath(folder), os.path.realpath(folder))
    if not given or os.path.realpath(old) in places or any(place.endswith(f"/{old}") for place in places):
        return {"command": command, "moved_from": None}
    now = shlex.quote(str(folder)) if given[1] else repr(str(folder))
    return {"command": text[: given.start(2)] + now + text[given.end(2) :], "moved_from": old}


def _results(folder: str | Path) -> Store:
    """A results folder; raises StoreError for any other."""
    store = Store(folder)
    if holds_results(store.folder) or is_file(store.manifest):
        return store
    raise StoreError(
        f"{store.folder}: is not a results folder (it has no manifest.json, parts/ or table.parquet); allowed: the --out of a sweep"
    )


def _version(manifest: dict[str, Any], grid: Grid | None, simulator: RecallSimulator | Simulator, found: LastValues) -> Version:
    """The code_version and precision that the next call would have;
    the usual one of the rows where the manifest does not say.
    """
    usual = max(found, key=lambda version: len(found[version]), default=(simulator.version, "highest"))
    given, precision = manifest.get("grid"), manifest.get("precision")
    unknown = not grid and isinstance(given, dict) and "simulator" in given
    return usual[0] if unknown else simulator.version, precision if isinstance(precision, str) else usual[1]


def _runs(grid: Grid | None, mine: dict[RunId, LastRow]) -> tuple[set[RunId], str | None]:
    """The runs of a grid, of a search those until its next round,
    and how far a search is; without a grid those that there are.
    """
    if grid and grid.search:
        rounds = Rounds(grid, {run: accuracy for run, (*_, accuracy) in mine.items()})
        progress = f"{rounds}" + "; the runs to do are those of its next round" * bool(rounds.pending)
        return rounds.used | {run.id for run in rounds.pending}, progress
    return {Run(point, seed).id for point in grid.points for seed in grid.seeds} if grid else set(mine), None


def _newest_part_age(stores: Sequence[Store]) -> float | None:
    ages = [time.time() - stat.st_mtime for path, stat in _stats(*(store.parts for store in stores)) if path.suffix == ".parquet"]
    return max(0.0, min(ages)) if ages else None


def _rows(stores: Sequence[Store], accuracy: str) -> tuple[LastValues, Unreadable, list[str]]:
    """Status, seconds and accuracy of the runs in all folders, ok before others, the
    files that cannot be read, and lines for those that were made from other rows."""
    found, unreadable, stale = LastValues(), Unreadable(), list[str]()
    for store in stores:
        rows, not_read, tables = store.last_values("status", "seconds", accuracy)
        unreadable += not_read
        stale += older(store.folder, seen(tables))
        for version, runs in rows.items():
            before = found.setdefault(version, {})
            before |= {run: row for run, row in runs.items() if run not in before or row[0] == "ok"}
    return found, unreadable, stale


def _manifest(store: Store) -> tuple[dict[str, Any], Grid | None, str | None]:
    """The manifest, its grid, and what is wrong with them."""
    try:
        manifest = store.read_manifest()
        if manifest is None:
            return {}, None, f"{store.manifest}: is missing, so the runs to do are unknown"
        add_to_path([os.getcwd(), *_grid_folder(manifest.get("command"))])  # for a simulator of one's own
        return manifest, rebuilt(manifest["grid"]), None
    except StoreError as error:
        return {}, None, str(error)
    except (GridError, UsageError) as error:
        return manifest or {}, None, f"{store.manifest}: holds a grid that this version cannot read ({error.lines[0]})"
    except (TypeError, KeyError, AttributeError):
        return {}, None, f"{store.manifest}: is not the manifest of a sweep"


def _grid_folder(command: Any) -> list[str]:
    """The folder of the grid file in a command, if there is one."""
    found = re.search(r"--grid[ =](\S+)", command) if isinstance(command, str) else None
    folder = os.path.abspath(os.path.dirname(found[1].strip("'\""))) if found else ""
    return [folder] if os.path.isdir(folder) else []


def _failures(stores: Sequence[Store], done: Container[RunId]) -> tuple[list[dict[str, Any]], list[tuple[Path, str]]]:
    """Failed chunks with the command that repeats each, and files in failures/ that are not such records."""
    records, others = [], []
    for path in sorted(path for path, _ in _stats(*(store.failures for store in stores))):
        try:
            record = read_json(path)
            runs = [RunId(point_id, seed) for point_id, seed in record["runs"]]
            missing = sum(run not in done for run in runs)
            named = {key: str(record[key]) for key in ("error", "host", "bucket", "repeat")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            others.append((path, f"no record of a failure: {type(error).__name__}"))
        else:
            records.append({"path": str(path), "runs": len(runs), "missing": missing, **named})
    return records, others


def _stats(*folders: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files below the folders, without those that disappear meanwhile."""
    for root, _, names in chain.from_iterable(map(os.walk, folders)):
        for name in names:
            with suppress(OSError):
                yield (path := Path(root, name)), path.stat()
