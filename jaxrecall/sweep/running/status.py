"""What a results folder holds and which runs are left, from its files alone."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...model.columns import CODE_VERSION, STATUSES
from ...model.point import RunId
from ..files import Unreadable, holds_results, is_file, read_json
from ..store import LastValues, Store, Version

MAX_SECONDS = 1e9
"""No run takes so long: a larger number, or NaN, is damage and is left out of the sum."""


def survey(*folders: str | Path) -> dict[str, Any]:
    """The facts of a results folder, or of several taken together, as plain data.

    Nothing that a file in a folder names is imported: which runs there are was written
    into the manifest by the last sweep, and counts for the first of the folders. `todo`
    counts the runs that the next call with this version of jaxrecall would run, of a
    search those of its next round. Where the manifest does not say, `points`, `runs` and
    `todo` are None, and every row of this version counts as done.

    Raises StoreError if one of them is not a results folder.
    """
    stores = [_results(folder) for folder in folders]
    manifest, plan = _manifest(stores[0])
    if any(_manifest(store)[0].get("grid") != manifest.get("grid") for store in stores[1:]):
        plan["remark"] = f"the folders hold different grids; the runs to do are counted for the grid of {stores[0].folder}"
    found, unreadable = _rows(stores)
    version = _version(manifest, found)
    mine, name, runs = found.pop(version, {}), plan["grid"], plan["runs"]
    done = [row for run, row in mine.items() if runs is None or run.seed in runs.get(run.point_id, ())]
    n_runs = None if runs is None else sum(map(len, runs.values()))
    todo = None if n_runs is None else n_runs - len(done)
    failures, no_record = _failures(stores, mine.keys())
    for failure in failures:
        failure["repeat"] = _resuming(failure["repeat"], Path(failure["path"]).parents[1], name)["command"]
    return {
        "folder": ", ".join(str(store.folder) for store in stores),
        **plan,
        "runs": n_runs,
        "done": len(done),
        "todo": todo,
        **{status: sum(row[0] == status for row in done) for status in STATUSES if status != "ok"},
        "code_version": version[0],
        "precision": version[1],
        "other_grids": len(mine) - len(done),
        "other_versions": [{"code_version": v, "precision": p, "rows": len(others)} for (v, p), others in sorted(found.items())],
        "failures": failures,
        "unreadable": [{"path": str(path), "reason": reason} for path, reason in [*unreadable, *no_record]],
        "bytes": sum(stat.st_size for _, stat in _stats(*(store.folder for store in stores))),
        "seconds": sum(seconds for _, seconds in done if seconds is not None and 0 <= seconds <= MAX_SECONDS),
        "newest_part_age": _newest_part_age(stores),
        **_resuming(None if todo == 0 else manifest.get("command"), stores[0].folder, name),
    }


def _resuming(command: Any, folder: Path, name: str | None) -> dict[str, Any]:
    """The command that resumes the sweep of a grid into this folder, and
    the other folder that the sweep wrote to, if the folder was moved or copied.
    """
    text = command if isinstance(command, str) else ""
    text += f" --out results/{name}" * (" --grid" in text and " --out" not in text)
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


def _version(manifest: Mapping[str, Any], found: LastValues) -> Version:
    """The code_version and precision that the next call would have, where the manifest
    does not say those of most rows. The version of a simulator of one's own is that of the last call.
    """
    usual = max(found, key=lambda version: len(found[version]), default=(CODE_VERSION, "highest"))
    grid, version, precision = map(manifest.get, ("grid", "code_version", "precision"))
    theirs = version if isinstance(version, int) else usual[0]
    own = isinstance(grid, dict) and "simulator" in grid
    return theirs if own else CODE_VERSION, precision if isinstance(precision, str) else usual[1]


def _newest_part_age(stores: Sequence[Store]) -> float | None:
    ages = [time.time() - stat.st_mtime for path, stat in _stats(*(store.parts for store in stores)) if path.suffix == ".parquet"]
    return max(0.0, min(ages)) if ages else None


def _rows(stores: Sequence[Store]) -> tuple[LastValues, Unreadable]:
    """Status and seconds of the runs in all folders, ok before others, and the files that cannot be read."""
    found, unreadable = LastValues(), Unreadable()
    for store in stores:
        rows, not_read = store.last_values("status", "seconds")
        unreadable += not_read
        for version, runs in rows.items():
            before = found.setdefault(version, {})
            before |= {run: row for run, row in runs.items() if run not in before or row[0] == "ok"}
    return found, unreadable


def _manifest(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest, and what it says of its plan: the name of the grid, a remark, the number of points, and their seeds."""
    unknown: dict[str, Any] = dict.fromkeys(("grid", "remark", "points", "runs"))
    try:
        manifest = store.read_manifest()
        if manifest is None:
            return {}, unknown | {"remark": f"{store.manifest}: is missing, so the runs to do are unknown"}
        name, plan = str(manifest["grid"]["name"]), manifest.get("plan")
        if plan is None:
            again = "the command of the sweep with --dry-run counts them, and without it also records them"
            why = f"{store.manifest}: does not list the runs of {name}, as it is of an earlier version; {again}"
            return manifest, unknown | {"remark": why}
        listed = [({*map(int, seeds.split())}, points.split()) for seeds, points in plan["runs"]]
        runs, told = {point: seeds for seeds, points in listed for point in points}, plan["progress"]
        return manifest, {"grid": name, "remark": told and str(told), "points": int(plan["points"]), "runs": runs}
    except StoreError as error:
        return {}, unknown | {"remark": str(error)}
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        return {}, unknown | {"remark": f"{store.manifest}: is not the manifest of a sweep"}


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
