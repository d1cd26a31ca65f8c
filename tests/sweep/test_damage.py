"""Files that are damaged or made by hand: every command reads them, or says in a line
what is wrong. test_any_folder.py damages folders at random.
"""

import contextlib
import io
import json
import math
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import NO_FIGURE, process

from jaxrecall import compact, fit, load, report, status
from jaxrecall.sweep import __main__ as sweep

GRID = """
name: small
base: {V: 16, L: 4, n_test: 256}
seeds: 3
blocks: [{axes: {d: [4], N: [16, 64, 256]}}]
"""
COMMANDS = {"status": status, "fit": fit, "report": report, "compact": compact}
OPTIONS = {"fit": [], "report": ["--format", "svg"]}
DEEP = "[" * 5000 + "]" * 5000
NESTED = "[" * 400 + "]" * 400


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of the grid, with one curve, and under `wide` of two, which a report
    shows in three figures.
    """
    folder = tmp_path_factory.mktemp("damage")
    (folder / "small.yaml").write_text(GRID)
    for name, d in (("small", "[4]"), ("wide", "[4, 8]")):
        more = ("--out", folder / name, "--set", f"blocks.0.axes.d={d}", *NO_FIGURE)
        more += ("--set", "run.part_seconds=3600")  # one part, however slow
        assert run(sweep, "--grid", folder / "small.yaml", *more)[0] == 0
    return folder


@pytest.fixture
def folder(results, tmp_path):
    shutil.copy(results / "small.yaml", tmp_path)
    return shutil.copytree(results / "small", tmp_path / "results")


def run(command, *arguments):
    """The exit code, and what was printed to a UTF-8 stdout that takes any text, as
    that of a command does.
    """
    printed = io.BytesIO()
    out = io.TextIOWrapper(printed, encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out):
        code = command.main(list(map(str, arguments)))
        sys.stdout.flush()
        return code, printed.getvalue().decode()


def check_all_commands(folder):
    for name, command in COMMANDS.items():
        assert run(command, folder, *OPTIONS.get(name, []))[0] == 0, name


def change_part(folder, change):
    path = sorted((folder / "parts").iterdir())[0]
    pq.write_table(change(pq.read_table(path)).replace_schema_metadata(None), path)


def set_manifest(folder, **entries):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | entries))


def test_files_by_hand(folder):
    """All of them at once: loops of links, seconds that no run takes, records and
    results that are none.
    """
    failures = folder / "failures"
    failures.mkdir(exist_ok=True)
    for path in (folder / "parts" / "loop.parquet", failures / "loop.json"):
        path.symlink_to(path.name)
    (failures / "one.json").write_text(DEEP)
    (failures / "two.json").write_text('{"runs": ' + NESTED + "}")
    (folder / "search.json").write_text('{"cells": [{"point": []}]}')
    set_manifest(folder, versions=[1, 2], precision=[1], command={"a": [1]})
    odd = [math.nan, math.inf, -math.inf, 1e308, 1e308, 1e308, 1.0, 1.0, 1.0]
    change_part(folder, lambda table: with_column(table, "seconds", odd))
    check_all_commands(folder)
    told = run(status, folder)[1]
    for name in ("loop.parquet", "loop.json", "one.json", "two.json"):
        assert f"{name} (" in told
    assert math.isfinite(json.loads(run(status, folder, "--json")[1])["seconds"])
    again = ("--grid", folder.parent / "small.yaml", "--out", folder, *NO_FIGURE)
    assert run(sweep, *again)[0] == 0
    (folder / "manifest.json").write_text('{"grid": ' + DEEP + "}")
    assert "manifest.json" in run(status, folder)[1]
    for name, code in {"fit": 0, "compact": 0, "report": 2}.items():
        assert run(COMMANDS[name], folder, *OPTIONS.get(name, []))[0] == code


def with_column(table, name, values):
    """The table with a column of these values, once more or in its place."""
    if name in table.column_names:
        table = table.drop_columns(name)
    return table.append_column(name, pa.array(values))


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        *(
            pytest.param(value, marks=pytest.mark.slow)  # each draws a whole report
            for value in ([1, 2], b"\xff", pa.scalar(0, pa.timestamp("s")))
        ),
    ],
    ids=["struct", "list", "bytes", "date"],
)
def test_columns_of_other_programs(results, tmp_path, value):
    wide = shutil.copytree(results / "wide", tmp_path / "results")
    change_part(wide, lambda table: with_column(table, "extra$", [value] * len(table)))
    assert "extra$" in load(wide)
    check_all_commands(wide)


def test_a_path_that_is_not_utf8(folder):
    odd = folder.with_name(os.fsdecode(b"results\xff"))
    folder.rename(odd)
    check_all_commands(odd)
    assert run(report, odd)[0] == 0  # in formats that matplotlib writes
    more = ("--out", odd, "--set", "seeds={start: 3, count: 1}", *NO_FIGURE)
    assert run(sweep, "--grid", odd.parent / "small.yaml", *more)[0] == 0
    assert "12 rows" in run(compact, odd)[1]
    told = process("-m", "jaxrecall.status", odd, PYTHONIOENCODING="utf-8:strict")
    assert told.stderr == ""
    assert "results\\udcff" in told.stdout
