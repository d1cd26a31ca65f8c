"""What a results folder holds and which runs are left, from its files alone."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...model.columns import CODE_VERSION, STATUSES
from ...model.point import RunId
from ..files import Json, Unreadable, entries, holds_results, is_file, read_json
from ..store import LastValues, Store, Version
from ..store.table import older, seen

MAX_SECONDS = 1e9
"""No run takes so long: a larger number, or NaN, is damage and is left out of the sum.
"""


def survey(folder: str | Path) -> Json:
    """The facts of a results folder as plain data.

    Nothing that a file in the folder names is imported: which runs there are was
    written into the manifest by the last sweep. `todo` counts the runs that the next
    call with this version of jaxrecall would run, of a search those of its next round.
    Where the manifest does not say, `points`, `runs` and `todo` are None, and every row
    of this version counts as done.

    Raises StoreError if it is not a results folder.
    """
    store = Store(folder)
    if not holds_results(store.folder) and not is_file(store.manifest):
        lacking = (
            "is not a results folder (it has no manifest.json, parts/ or table.parquet)"
        )
        raise StoreError(f"{store.folder}: {lacking}; allowed: the --out of a sweep")
    manifest, plan = _manifest(store)
    found, unreadable, tables = store.last_values("status", "seconds")
    version, runs = _version(manifest, found), plan["runs"]
    mine = found.pop(version, {})
    done = [
        row
        for run, row in mine.items()
        if runs is None or run.seed in runs.get(run.point_id, ())
    ]
    n_runs = None if runs is None else sum(map(len, runs.values()))
    todo = None if n_runs is None else n_runs - len(done)
    failures, no_record = _failures(store, mine.keys())
    return {
        "folder": str(store.folder),
        **plan,
        "runs": n_runs,
        "done": len(done),
        "todo": todo,
        **{
            status: sum(row[0] == status for row in done)
            for status in STATUSES
            if status != "ok"
        },
        "code_version": version[0],
        "precision": version[1],
        "other_grids": len(mine) - len(done),
        "other_versions": [
            {"code_version": v, "precision": p, "rows": len(others)}
            for (v, p), others in sorted(found.items())
        ],
        "failures": failures,
        "unreadable": [
            {"path": str(path), "reason": reason}
            for path, reason in [*unreadable, *no_record]
        ],
        "older": older(store.folder, seen(tables)),
        "seconds": sum(
            seconds
            for _, seconds in done
            if seconds is not None and 0 <= seconds <= MAX_SECONDS
        ),
        "command": None if todo == 0 else manifest.get("command"),
    }


def _version(manifest: Mapping[str, Any], found: LastValues) -> Version:
    """The code_version and precision that the next call would have.

    Where the manifest does not say, those of most rows. The version of a simulator of
    one's own is that of the last call.
    """
    usual = max(
        found,
        key=lambda version: len(found[version]),
        default=(CODE_VERSION, "highest"),
    )
    grid, version, precision = map(manifest.get, ("grid", "code_version", "precision"))
    theirs = version if isinstance(version, int) else usual[0]
    own = isinstance(grid, dict) and "simulator" in grid
    return theirs if own else CODE_VERSION, (
        precision if isinstance(precision, str) else usual[1]
    )


def _manifest(store: Store) -> tuple[Json, Json]:
    """The manifest, and what it says of its plan: the name of the grid, a remark, the
    number of points, and their seeds.
    """
    unknown: Json = dict.fromkeys(("grid", "remark", "points", "runs"))
    try:
        manifest = store.read_manifest()
        if manifest is None:
            return {}, unknown | {
                "remark": f"{store.manifest}: is missing, so the runs to do are unknown"
            }
        name, plan = str(manifest["grid"]["name"]), manifest.get("plan")
        if plan is None:
            again = (
                "the command of the sweep with --dry-run counts them, and without it"
                " also records them"
            )
            why = (
                f"{store.manifest}: does not list the runs of {name}, as it is of an"
                f" earlier version; {again}"
            )
            return manifest, unknown | {"remark": why}
        listed = [
            ({*map(int, seeds.split())}, points.split())
            for seeds, points in plan["runs"]
        ]
        runs, told = (
            {point: seeds for seeds, points in listed for point in points},
            plan["progress"],
        )
        return manifest, {
            "grid": name,
            "remark": told and str(told),
            "points": int(plan["points"]),
            "runs": runs,
        }
    except StoreError as error:
        return {}, unknown | {"remark": str(error)}
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        return {}, unknown | {
            "remark": f"{store.manifest}: is not the manifest of a sweep"
        }


def _failures(store: Store, done: Container[RunId]) -> tuple[list[Json], Unreadable]:
    """Failed chunks with the command that repeats each, and files in failures/ that are
    not such records.
    """
    records, others = [], Unreadable()
    for path in entries(store.failures):
        try:
            record = read_json(path)
            runs = [RunId(point_id, seed) for point_id, seed in record["runs"]]
            missing = sum(run not in done for run in runs)
            named = {
                key: str(record[key]) for key in ("error", "host", "bucket", "repeat")
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            others.append((path, f"no record of a failure: {type(error).__name__}"))
        else:
            records.append(
                {"path": str(path), "runs": len(runs), "missing": missing, **named}
            )
    return records, others
