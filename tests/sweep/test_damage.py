"""Files that are damaged or made by hand: every command reads them, or says in a line
what is wrong.
"""

import contextlib
import io
import json
import math
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import ROOT

from jaxrecall import compact, fit, load, report, status, sweep

GRID = """
name: small
base: {V: 16, L: 4, n_test: 256}
seeds: 3
blocks: [{axes: {d: [4], N: [16, 64, 256]}}]
"""
COMMANDS = {"status": status, "fit": fit, "report": report, "compact": compact}
OPTIONS = {"fit": ["--resamples", "100"], "report": ["--format", "svg"]}
DEEP = "[" * 5000 + "]" * 5000
NESTED = "[" * 400 + "]" * 400


def slow(*values):
    """The values as parameters of slow tests: each draws a whole report."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of the grid, with one curve, and under `wide` of two, which a report
    shows in three figures.
    """
    folder = tmp_path_factory.mktemp("damage")
    (folder / "small.yaml").write_text(GRID)
    for name, d in (("small", "[4]"), ("wide", "[4, 8]")):
        assert (
            run(
                sweep,
                "--grid",
                folder / "small.yaml",
                "--set",
                f"blocks.0.axes.d={d}",
                "--out",
                folder / name,
            )[0]
            == 0
        )
    return folder


@pytest.fixture
def folder(results, tmp_path):
    return shutil.copytree(results / "small", tmp_path / "results")


@pytest.fixture
def wide(results, tmp_path):
    return shutil.copytree(results / "wide", tmp_path / "results")


def run(command, *arguments):
    """The exit code, and what was printed to a UTF-8 stdout that takes any text, as
    that of a command does.
    """
    printed = io.BytesIO()
    with contextlib.redirect_stdout(
        io.TextIOWrapper(printed, encoding="utf-8", errors="backslashreplace")
    ):
        code = command.main(list(map(str, arguments)))
        sys.stdout.flush()
        return code, printed.getvalue().decode()


def all_commands(folder):
    """The exit codes of the commands; none may raise."""
    return {
        name: run(command, folder, *OPTIONS.get(name, []))[0]
        for name, command in COMMANDS.items()
    }


def change_part(folder, change):
    path = sorted((folder / "parts").iterdir())[0]
    pq.write_table(change(pq.read_table(path)).replace_schema_metadata(None), path)


def set_manifest(folder, **entries):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | entries))


FINE = dict.fromkeys(COMMANDS, 0)


def test_loops_of_links(folder):
    (folder / "failures").mkdir(exist_ok=True)
    for path in (folder / "parts" / "loop.parquet", folder / "failures" / "loop.json"):
        path.symlink_to(path.name)
    assert all_commands(folder) == FINE
    assert "unreadable: " in run(status, folder)[1]


@pytest.mark.parametrize("seconds", [math.nan, 1e308, *slow(math.inf, -math.inf)])
def test_seconds_that_no_run_takes(folder, seconds):
    def damaged(table):
        i = table.column_names.index("seconds")
        return table.set_column(
            i, "seconds", pa.array([seconds] * len(table), pa.float64())
        )

    change_part(folder, damaged)
    assert all_commands(folder) == FINE
    assert math.isfinite(json.loads(run(status, folder, "--json")[1])["seconds"])


@pytest.mark.parametrize("text", ['{"grid": ' + DEEP + "}"])
def test_manifests(folder, text):
    (folder / "manifest.json").write_text(text)
    codes = all_commands(folder)
    assert codes["status"] == codes["fit"] == 0
    assert set(codes.values()) <= {0, 2}
    assert "manifest.json" in run(status, folder)[1]


def test_entries_of_the_manifest_of_another_type(folder):
    set_manifest(folder, versions=[1, 2], precision=[1], command={"a": [1]})
    assert all_commands(folder) == FINE
    set_manifest(folder, versions={"\udcff": 1}, command="\ud800")
    assert all_commands(folder) == FINE


@pytest.mark.parametrize("text", [DEEP, '{"runs": ' + NESTED + "}"])
def test_records_of_failures(folder, text):
    (folder / "failures").mkdir(exist_ok=True)
    (folder / "failures" / "one.json").write_text(text)
    assert all_commands(folder) == FINE
    assert "one.json" in run(status, folder)[1]
    (folder.parent / "small.yaml").write_text(GRID)
    assert run(sweep, "--grid", folder.parent / "small.yaml", "--out", folder)[0] == 0


@pytest.mark.parametrize("text", [DEEP, '{"cells": [{"point": []}]}'])
def test_results_of_searches(folder, text):
    (folder / "search.json").write_text(text)
    assert all_commands(folder) == FINE


@pytest.mark.parametrize(
    "value",
    [{"a": 1}, *slow([1, 2], b"\xff", "$\\frac{", "2020-01-01T00:00:00")],
    ids=["struct", "list", "bytes", "text", "date"],
)
def test_columns_of_other_programs(wide, value):
    kind = pa.timestamp("s") if str(value).startswith("2020") else None
    column = pa.array([value] * 2).cast(kind) if kind else pa.array([value] * 2)
    change_part(
        wide,
        lambda table: table.append_column(
            "extra$", column.take(pa.array([0] * len(table)))
        ),
    )
    assert "extra$" in load(wide)
    assert all_commands(wide) == FINE


def test_a_dollar_in_the_report(wide, tmp_path):
    table = load(wide)
    both = [table.assign(**{"$x_{": "$\\frac{"}), table.assign(**{"$x_{": "$$$"})]
    path = tmp_path / "table.parquet"
    pq.write_table(pa.concat_tables(map(pa.Table.from_pandas, both)), path)
    assert run(report, path, *OPTIONS["report"])[0] == 0
    page = (tmp_path / "table-report.html").read_text()
    assert all(text in page for text in ("$x_{", "$\\frac{"))


def test_a_path_that_is_not_utf8(folder):
    odd = folder.with_name(os.fsdecode(b"results\xff"))
    folder.rename(odd)
    (odd.parent / "small.yaml").write_text(GRID)
    assert all_commands(odd) == FINE
    assert run(report, odd)[0] == 0  # in formats that matplotlib writes
    assert (
        run(
            sweep,
            "--grid",
            odd.parent / "small.yaml",
            "--set",
            "seeds={start: 3, count: 1}",
            "--out",
            odd,
        )[0]
        == 0
    )
    assert "12 rows" in run(compact, odd)[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:strict"}
    told = subprocess.run(
        [sys.executable, "-m", "jaxrecall.status", odd],
        env=env,
        capture_output=True,
        text=True,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert "results\\udcff" in told.stdout
