"""What `python -m jaxrecall.status` tells of a folder, from files alone."""

import json
from pathlib import Path

import pytest
import yaml
from test_store import row as any_row

from jaxrecall import status
from jaxrecall.compact import compact
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.status import survey
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.grid import Grid, read_grid
from jaxrecall.sweep.running.job import prepare
from jaxrecall.sweep.store import Store

GRID = """
name: small
base: {V: 20, L: 3}
seeds: {count: 2}
blocks:
  - axes: {d: [8, 12], N: [100, 600]}
    where: ["d * N < 7000"]
  - derive: {d: "V // 2", N: "round(2.5 * V)"}
"""
COMMAND = "python -m jaxrecall.sweep --grid small.yaml"
OUT = "results/small"


def row(i: int, **changes: object) -> dict:
    return any_row(i, **{"code_version": CODE_VERSION, **changes})


@pytest.fixture
def grid(cwd) -> Grid:
    Path("small.yaml").write_text(GRID)
    return read_grid("small.yaml")


@pytest.fixture
def store(grid) -> Store:
    job = prepare(grid, OUT, resume_command=COMMAND)
    job.store.prepare(job.manifest())
    return job.store


@pytest.fixture
def rows(grid) -> list[dict]:
    """A row for each of the eight runs of the grid."""
    made = []
    for point in grid.points:
        for seed in grid.seeds:
            run = {"point_id": point.point_id, "seed": seed}
            made.append(row(len(made), **run, seconds=0.5))
    return made


def facts(folder: str, *names: str) -> list:
    found = survey(folder)
    return [found[name] for name in names]


COUNTS = ("points", "runs", "done", "todo")


def record(rows: list[dict]) -> dict:
    """That these runs failed."""
    return {
        "error": "RuntimeError: no\nmore",
        "host": "here",
        "bucket": "32x16",
        "repeat": f"{COMMAND} --fail-fast",
        "runs": [[each["point_id"], each["seed"]] for each in rows],
    }


def test_a_half_done_folder(store, rows, capsys):
    rows[1] |= {"status": "nonfinite", "seconds": None}
    store.write(rows[:3])
    others = [row(77), row(78, code_version=0), row(79, precision="high")]
    store.write([rows[3] | {"status": "degenerate"}, *others])
    compact(store.folder, prune=True)
    # the row that is ok counts, whichever of the two is read first
    bad = {"status": "nonfinite"}
    store.write([rows[0], rows[4] | bad, rows[5]])
    old = store.write([rows[4], rows[5] | bad])
    (store.parts / "cut.parquet").write_bytes(old.read_bytes()[:900])
    store.note("failures/first", record(rows[5:7]))
    (store.failures / "note.json").write_text("[]")
    store.note("failures/odd", record([]) | {"runs": [[["a"], 0]]})

    told = survey(store.folder)
    assert [told[name] for name in COUNTS] == [4, 8, 6, 2]
    names = ("nonfinite", "degenerate", "other_grids", "seconds", "command", "remark")
    assert [told[name] for name in names] == [1, 1, 1, 2.5, COMMAND, None]
    versions = [[*each.values()] for each in told["other_versions"]]
    assert versions == [[0, "highest", 1], [CODE_VERSION, "high", 1]]
    path = f"{OUT}/failures/first.json"
    failure = record([]) | {"path": path, "runs": 2, "missing": 1}
    assert told["failures"] == [failure]
    unreadable = ["parts/cut.parquet", "failures/note.json", "failures/odd.json"]
    assert [each["path"] for each in told["unreadable"]] == [
        f"{OUT}/{name}" for name in unreadable
    ]

    assert status.main([OUT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert status.main([OUT]) == 0
    lines = capsys.readouterr().out
    for line in (
        "small: 4 points, 8 runs in results/small\n",
        "6 done (1 nonfinite, 1 degenerate), 2 to do\n",
        "1 runs that the grid does not ask for\n",
        "1 runs of code_version 0, precision highest (this is ",
        "failed: 2 runs, 1 of them missing: RuntimeError: no (program 32x16 on here;"
        f" details: {path}; to try again: {COMMAND} --fail-fast)\n",
        "unreadable: results/small/parts/cut.parquet (",
        "/failures/note.json (no record of a failure: TypeError)\n",
        "\n2.5 s of simulation\n",
        f"to resume: {COMMAND}\n",
    ):
        assert line in lines


def test_it_agrees_with_the_dry_run_before_during_and_after(store, rows, capsys):
    assert facts(OUT, *COUNTS, "seconds") == [4, 8, 0, 8, 0]
    store.write(rows[:5])
    assert sweep(["--grid", "small.yaml", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert facts(OUT, *COUNTS) == [plan[name] for name in COUNTS] == [4, 8, 5, 3]
    store.write(rows[5:])
    assert facts(OUT, "todo", "command") == [0, None]


MANIFESTS = """
- [null, "is missing, so the runs to do are unknown"]
- ["{", not JSON]
- ['{"grid": {"name": "small"}}', is not the manifest of a sweep]
- ['{"grid": {"name": "small"}, "plan": []}', is not the manifest of a sweep]
"""
PLANS = """
- {points: 1, progress: null, runs: [[zero, a]]}
- {points: .inf, progress: null, runs: []}
"""


def manifests() -> list[tuple[str | None, str]]:
    found = [*map(tuple, yaml.safe_load(MANIFESTS))]
    for plan in yaml.safe_load(PLANS):
        text = json.dumps({"grid": {"name": "small"}, "plan": plan})
        text = text.replace("Infinity", "1e400")
        found.append((text, "is not the manifest of a sweep"))
    return found


@pytest.mark.parametrize(("text", "remark"), manifests())
def test_a_folder_without_a_grid_is_told_and_counted(store, rows, capsys, text, remark):
    store.write([each | {"precision": "high"} for each in rows])
    store.manifest.unlink()
    if text is not None:
        store.manifest.write_text(text)
    told = f"manifest.json: {remark}"
    found, *counts = facts(OUT, "remark", *COUNTS)
    assert told in found
    assert counts == [None, None, 8, None]
    assert status.main([OUT]) == 0
    out = capsys.readouterr().out
    assert "8 done\n" in out
    assert told in out


@pytest.mark.parametrize("folder", ["absent", "small.yaml", "results", f"{OUT}/parts"])
def test_a_folder_that_is_none_is_one_line(store, capsys, folder):
    assert status.main([folder]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"{folder}: is not a results folder")
