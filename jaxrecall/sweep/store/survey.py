"""Describes a results folder and its missing runs. Only the folder's files are read."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...model.columns import CODE_VERSION, STATUSES
from ...model.point import RunId
from ..files import Json, Unreadable, entries, holds_results, read_json
from . import LastValues, Store, Version, failed_runs, kind_of

MAX_SECONDS = 1e9
"""The largest plausible time of a run, in seconds. Larger numbers and NaN indicate a
damaged file, so they are left out of the sum.
"""

REPORTED = ("error", "host", "bucket", "repeat")
"""The entries of a failure report that are shown."""


def survey(folder: str | Path) -> Json:
    """Returns a dict that describes a results folder, as plain data.

    The function never imports a user's module, even if a file in the folder refers to
    one. It finds the runs of the grid in the manifest, which the last sweep wrote.
    `todo` is the number of runs that the next call with this version of jaxrecall would
    compute. For a search, `todo` counts the runs of the next round. If the manifest
    does not list the runs, `points`, `runs` and `todo` are None, and every run with
    rows of this version counts as done.

    Raises StoreError if the folder is not a results folder.
    """
    store = Store(folder)
    if not holds_results(store.folder) and not os.path.isfile(store.manifest):
        raise StoreError(
            f"{store.folder}: is not a results folder (it has no manifest.json, parts/"
            " or table.parquet); allowed: the --out of a sweep"
        )
    manifest, plan = _manifest(store)
    found, unreadable, _ = store.last_values("status", "seconds")
    code_version, precision = _version(manifest, found)
    mine = found.pop((code_version, precision), {})
    runs, n_runs, todo = plan.pop("runs"), None, None
    done = list(mine.values())
    if runs is not None:
        done = [
            row for run, row in mine.items() if run.seed in runs.get(run.point_id, ())
        ]
        n_runs = sum(map(len, runs.values()))
        todo = n_runs - len(done)
    unfit = {status: 0 for status in STATUSES if status != "ok"}
    total = 0
    for status, seconds in done:
        if status in unfit:
            unfit[status] += 1
        if seconds is not None and 0 <= seconds <= MAX_SECONDS:
            total += seconds
    failures, no_reports = _failures(store, mine.keys())
    unreadable += no_reports
    others = []
    for (version, precise), rows in sorted(found.items()):
        others.append(
            {"code_version": version, "precision": precise, "rows": len(rows)}
        )
    return {
        "folder": str(store.folder),
        **plan,
        "runs": n_runs,
        "done": len(done),
        "todo": todo,
        **unfit,
        "code_version": code_version,
        "precision": precision,
        "other_grids": len(mine) - len(done),
        "other_versions": others,
        "failures": failures,
        "unreadable": [
            {"path": str(path), "reason": reason} for path, reason in unreadable
        ],
        "seconds": total,
        "command": None if todo == 0 else manifest.get("command"),
    }


def _version(manifest: Mapping[str, Any], found: LastValues) -> Version:
    """Returns the code_version and precision that the next call would use.

    The code_version is that of this package. For a user's simulator, it is the one that
    the last call used. The precision is also the one that the last call used. If the
    manifest lacks a value, the most frequent value among the rows is returned.
    """
    code_version, precision = max(
        found,
        key=lambda version: len(found[version]),
        default=(CODE_VERSION, "highest"),
    )
    grid, last_version, last_precision = map(
        manifest.get, ("grid", "code_version", "precision")
    )
    if not isinstance(grid, dict) or "simulator" not in grid:
        code_version = CODE_VERSION
    elif isinstance(last_version, int):
        code_version = last_version
    if isinstance(last_precision, str):
        precision = last_precision
    return code_version, precision


def _manifest(store: Store) -> tuple[Json, Json]:
    """Returns the contents of the manifest, and a dict that describes its plan.

    The dict contains the grid's name, a remark, the number of points, and the seeds of
    each point. Unknown values are None.
    """
    unknown: Json = dict.fromkeys(("grid", "remark", "points", "runs"))
    try:
        manifest = store.read_manifest()
        if manifest is not None:
            plan = manifest["plan"]
            progress = plan["progress"]
            runs: dict[str, set[int]] = {}
            for seeds, points in plan["runs"]:
                for point_id in points.split():
                    runs[point_id] = set(map(int, seeds.split()))
            return manifest, {
                "grid": str(manifest["grid"]["name"]),
                "remark": progress and str(progress),
                "points": int(plan["points"]),
                "runs": runs,
            }
        remark = f"{store.manifest}: is missing, so the runs to do are unknown"
    except StoreError as error:
        remark = str(error)
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        remark = (
            f"{store.manifest}: is not the manifest of a sweep of this version; the"
            " next sweep replaces it"
        )
    return {}, unknown | {"remark": remark}


def _failures(store: Store, done: Container[RunId]) -> tuple[list[Json], Unreadable]:
    """Returns the reports on failures, and the files in failures/ that are not reports.

    Reports on equal errors, as of several processes, are joined.
    """
    reports: dict[str, Json] = {}
    others = Unreadable()
    for path in entries(store.failures):
        try:
            report = read_json(path)
            runs = failed_runs(report)
            missing = sum(run not in done for run in runs)
            texts = {key: str(report[key]) for key in REPORTED}
        except (OSError, ValueError, KeyError, TypeError) as error:
            others.append((path, f"no record of a failure: {type(error).__name__}"))
        else:
            counts = {"path": str(path), "runs": 0, "missing": 0}
            joint = reports.setdefault(kind_of(texts["error"]), counts | texts)
            joint["runs"] += len(runs)
            joint["missing"] += missing
    return [*reports.values()], others
