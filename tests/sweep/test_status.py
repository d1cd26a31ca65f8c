"""What `python -m jaxrecall.status` tells of a folder, from files alone."""

import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import NO_FIGURE, python
from test_store import row as any_row

from jaxrecall import status
from jaxrecall.compact import compact
from jaxrecall.fit import main as fit
from jaxrecall.model.columns import CODE_VERSION
from jaxrecall.report import main as report
from jaxrecall.status import survey
from jaxrecall.sweep.__main__ import main as sweep
from jaxrecall.sweep.grid import Grid, read_grid
from jaxrecall.sweep.running.job import prepare
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.load import load
from jaxrecall.sweep.store.table import about, seen

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


def row(i: int, **changes: object) -> dict:
    return any_row(i, **{"code_version": CODE_VERSION, **changes})


@pytest.fixture
def grid(tmp_path, monkeypatch) -> Grid:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(GRID)
    return read_grid("small.yaml")


@pytest.fixture
def store(grid) -> Store:
    job = prepare(grid, "results/small", resume_command=COMMAND)
    job.store.prepare(job.manifest())
    return job.store


def of_grid(grid: Grid, **changes: object) -> list[dict]:
    """A row for each run of the grid."""
    runs = [(point.point_id, seed) for point in grid.points for seed in grid.seeds]
    return [
        row(i, point_id=point_id, seed=seed, seconds=0.5, **changes)
        for i, (point_id, seed) in enumerate(runs)
    ]


def test_a_half_done_folder(grid, store, capsys):
    rows = of_grid(grid)
    assert len(rows) == 8
    rows[1] |= {"status": "nonfinite", "seconds": None}
    store.write(rows[:3])
    store.write(
        [
            rows[3] | {"status": "degenerate"},
            row(77),
            row(78, code_version=0),
            row(79, precision="high"),
        ]
    )
    compact(store.folder, prune=True)
    # the row that is ok counts, whichever of the two is read first
    store.write([rows[0], rows[4] | {"status": "nonfinite"}, rows[5]])
    old = store.write([rows[4], rows[5] | {"status": "nonfinite"}])
    (store.parts / "cut.parquet").write_bytes(old.read_bytes()[:900])
    failure = {
        "error": "RuntimeError: no\nmore",
        "host": "here",
        "bucket": "32x16",
        "repeat": COMMAND + " --bucket 32x16",
    }
    store.note(
        "failures/first",
        failure | {"runs": [[r["point_id"], r["seed"]] for r in rows[5:7]]},
    )
    (store.failures / "note.json").write_text("[]")
    store.note("failures/odd", failure | {"runs": [[["a"], 0]]})

    facts = status.survey(store.folder)
    expected = {
        "grid": "small",
        "remark": None,
        "points": 4,
        "runs": 8,
        "done": 6,
        "todo": 2,
        "nonfinite": 1,
        "degenerate": 1,
    }
    expected |= {"other_grids": 1, "seconds": 2.5, "command": COMMAND}
    assert {name: facts[name] for name in expected} == expected
    versions = [
        (v["code_version"], v["precision"], v["rows"]) for v in facts["other_versions"]
    ]
    assert versions == [(0, "highest", 1), (CODE_VERSION, "high", 1)]
    assert facts["failures"] == [
        failure | {"path": str(store.failures / "first.json"), "runs": 2, "missing": 1}
    ]
    assert [f["path"] for f in facts["unreadable"]] == [
        str(store.parts / "cut.parquet"),
        str(store.failures / "note.json"),
        str(store.failures / "odd.json"),
    ]

    assert status.main(["results/small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == facts.keys()
    assert status.main(["results/small"]) == 0
    told = capsys.readouterr().out
    for line in (
        "small: 4 points, 8 runs in results/small\n",
        "6 done (1 nonfinite, 1 degenerate), 2 to do\n",
        "1 runs that the grid does not ask for\n",
        (
            "1 runs of code_version 0, precision highest (this is code_version"
            f" {CODE_VERSION}, precision highest: a sweep into this folder"
        ),
        (
            "failed: 2 runs, 1 of them missing: RuntimeError: no (program 32x16 on"
            f" here; details: {store.failures / 'first.json'}; to try again: {COMMAND}"
            " --bucket 32x16)\n"
        ),
        "unreadable: results/small/parts/cut.parquet (",
        (
            "unreadable: results/small/failures/note.json (no record of a failure:"
            " TypeError)\n"
        ),
        "\n2.5 s of simulation\n",
        f"to resume: {COMMAND}\n",
    ):
        assert line in told


def test_it_agrees_with_the_dry_run(grid, store, capsys):
    store.write(of_grid(grid)[:5])
    assert sweep(["--grid", "small.yaml", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    facts = status.survey("results/small")
    assert [facts[name] for name in ("points", "runs", "done", "todo")] == [
        plan[name] for name in ("points", "runs", "done", "todo")
    ]
    store.write(of_grid(grid)[5:])
    facts = status.survey("results/small")
    assert (facts["todo"], facts["command"]) == (0, None)


def test_a_folder_that_was_only_prepared(store):
    facts = status.survey(store.folder)
    assert (facts["done"], facts["todo"], facts["seconds"]) == (0, 8, 0)


MANIFESTS = {
    None: "manifest.json: is missing, so the runs to do are unknown",
    "{": "manifest.json: not JSON",
    "[1]": "manifest.json: is not the manifest of a sweep",
    '{"command": "x"}': "manifest.json: is not the manifest of a sweep",
    '{"grid": {"name": "small"}}': (
        "manifest.json: does not list the runs of small, as it is of an earlier version"
    ),
    **{
        f'{{"grid": {{"name": "small"}}, "plan": {plan}}}': (
            "manifest.json: is not the manifest of a sweep"
        )
        for plan in (
            "[]",
            '{"points": 1, "progress": null, "runs": [[[0], ["a"]]]}',
            '{"points": 1, "progress": null, "runs": [["zero", "a"]]}',
            '{"points": 1e400, "progress": null, "runs": []}',
            '{"points": "many", "progress": null, "runs": []}',
        )
    },
}


@pytest.mark.parametrize(("text", "remark"), MANIFESTS.items())
def test_a_folder_without_a_grid_is_told_and_counted(grid, store, capsys, text, remark):
    store.write(of_grid(grid, precision="high"))
    store.manifest.unlink()
    if text is not None:
        store.manifest.write_text(text)
    facts = status.survey(store.folder)
    assert remark in facts["remark"]
    assert [facts[name] for name in ("grid", "points", "runs", "todo", "done")] == [
        None,
        None,
        None,
        None,
        8,
    ]
    assert status.main([str(store.folder)]) == 0
    out = capsys.readouterr().out
    assert "8 done\n" in out
    assert remark in out


@pytest.mark.parametrize(
    "folder", ["absent", "small.yaml", "results", "results/small/parts"]
)
def test_a_folder_that_is_none_is_one_line(store, capsys, folder):
    assert status.main([folder]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(f"{folder}: is not a results folder")


def test_it_starts_no_jax_and_no_pandas(store):
    told = python(
        "import sys; from jaxrecall.status import main; assert"
        f" main([{str(store.folder.absolute())!r}]) == 0; assert not {{'jax',"
        " 'pandas'} & set(sys.modules)"
    )
    assert told.returncode == 0, told.stderr


# --- how old derived files are


STALE = (
    "diagnostics.parquet, exponents.parquet, exponents.tex, report.html,"
    " thresholds.parquet, thresholds.tex"
)


def test_derived_files_say_which_rows_they_have_not_seen(grid, capsys):
    def told() -> list[str]:
        facts = survey("out")
        assert status.main(["out"]) == 0
        assert set(facts["older"]) <= set(capsys.readouterr().out.splitlines())
        return facts["older"]

    assert sweep(["--grid", "small.yaml", "--out", "out", *NO_FIGURE]) == 0
    n = len(load("out"))
    assert (
        fit(["out", "--latex", "--resamples", "100"])
        == report(["out", "--format", "svg"])
        == 0
    )
    assert told() == []
    assert (
        about(pq.read_schema("out/thresholds.parquet")).items()
        >= {
            "rows": n,
            "version": version("jaxrecall"),
        }.items()
    )
    assert (
        Path("out/exponents.tex")
        .read_text()
        .startswith(f'% jaxrecall: {{"rows": {n}, "digest": "')
    )
    assert (
        sweep(["--grid", "small.yaml", "--out", "out", *NO_FIGURE, "--set", "seeds=6"])
        == 0
    )
    n_new = len(load("out")) - n
    assert n_new > 0
    assert told() == [f"{STALE}: older than {n_new} rows"]
    assert fit(["out", "--resamples", "100"]) == 0
    assert (
        f"note: exponents.tex, report.html, thresholds.tex: older than {n_new} rows\n"
        in capsys.readouterr().out
    )
    assert report(["out", "--format", "svg"]) == 0
    assert (
        f"note: exponents.tex, thresholds.tex: older than {n_new} rows\n"
        in capsys.readouterr().out
    )
    compact("out")  # the same rows twice
    capsys.readouterr()
    assert told() == [f"exponents.tex, thresholds.tex: older than {n_new} rows"]
    compact("out", prune=True)
    Path("out/table.parquet").unlink()
    assert sweep(["--grid", "small.yaml", "--out", "out", *NO_FIGURE]) == 0
    capsys.readouterr()
    assert told() == [
        f"{', '.join(name for name in STALE.split(', ') if not name.endswith('.tex'))}:"
        " not made from these rows"
    ]


def test_a_derived_file_that_does_not_say_or_is_damaged_is_passed_over(store):
    for name, text in {
        "a.tex": "% jaxrecall: {no}",
        "b.html": "<html>",
        "c.parquet": "PAR1",
        "d.tex": '% jaxrecall: {"rows": "9"}',
    }.items():
        (store.folder / name).write_text(text)
    os.mkfifo(store.folder / "pipe.html")
    assert survey(store.folder)["older"] == []


def test_the_digest_is_of_rows_wherever_they_are():
    def rows_of(*which: int, step: int = 3, version: int = 2) -> pa.Table:
        columns = {
            "point_id": [f"{i % 3:016x}" for i in which],
            "seed": [i // 3 for i in which],
        }
        return pa.table(
            {
                **columns,
                "step": [step] * len(which),
                "code_version": [version] * len(which),
            }
        )

    whole = seen([rows_of(*range(30))])
    assert whole["rows"] == 30
    for tables in (
        [rows_of(*range(29, -1, -1))],
        [rows_of(*range(20)), rows_of(*range(10, 30))],
        [rows_of(*range(30)).to_pandas()],
    ):
        assert seen(tables) == whole
    for tables in (
        [rows_of(*range(29))],
        [rows_of(*range(1, 31))],
        [rows_of(*range(30), step=4)],
        [rows_of(*range(30), version=3)],
        [],
    ):
        assert seen(tables)["digest"] != whole["digest"]


def test_the_command_that_resumes_is_told_as_it_was_recorded(grid, store, capsys):
    store.write(rows := of_grid(grid)[:5])
    failure = {
        "error": "no",
        "host": "here",
        "bucket": "32x16",
        "repeat": COMMAND,
        "runs": [[rows[0]["point_id"], 1]],
    }
    store.note("failures/first", failure)
    shutil.copytree("results/small", "my copy")
    for folder in ("results/small", "my copy"):
        facts = status.survey(folder)
        assert (facts["command"], facts["failures"][0]["repeat"]) == (COMMAND, COMMAND)
        assert status.main([folder]) == 0
        assert f"to resume: {COMMAND}\n" in capsys.readouterr().out
