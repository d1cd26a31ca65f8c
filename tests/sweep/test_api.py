"""Sweeps, rows and thresholds from Python: the same rows as the command line, wherever
they are kept and whoever interrupts.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import own_laws
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from helpers import NO_FIGURE, ROOT, python
from pandas.testing import assert_frame_equal

import jaxrecall
from jaxrecall import Point
from jaxrecall.compact import compact
from jaxrecall.errors import GridError, PointError, StoreError, UsageError
from jaxrecall.model.laws import Gaussian
from jaxrecall.sweep import api
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.running.engine import Engine
from jaxrecall.sweep.simulators.shipped import RECALL
from jaxrecall.sweep.store import MemoryStore

BASE = {"V": 20, "d": 12, "L": 3, "n_test": 200}  # one program serves most tests
GRID = {
    "name": "tiny",
    "base": BASE,
    "seeds": {"count": 2},
    "blocks": [{"axes": {"N": [100, 600]}}],
    "run": {"part_seconds": 0},
}
SEARCH = {
    "base": {"V": 16, "L": 4, "pool": 32, "n_test": 512},
    "seeds": {"count": 40},
    "blocks": [{"axes": {"d": [8, 32]}}],
    "search": {"axis": "N", "width": 1},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_same_rows(a: pd.DataFrame, b: pd.DataFrame) -> None:
    assert_frame_equal(a.drop(columns="seconds"), b.drop(columns="seconds"))


def rows_of_the_command_line(grid: dict) -> pd.DataFrame:
    Path("grid.yaml").write_text(yaml.safe_dump(grid))
    assert main(["--grid", "grid.yaml", "--out", "by-command", *NO_FIGURE]) == 0
    return jaxrecall.load("by-command")


@pytest.mark.slow
def test_40_runs_give_the_rows_of_the_command_line(folder, capsys):
    grid = GRID | {
        "seeds": {"count": 8},
        "blocks": [{"axes": {"N": [*range(100, 200, 20)]}}],
        "run": {},
    }
    before = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    found = jaxrecall.run(grid, progress=False)
    assert [*folder.iterdir()] == []
    assert_same_rows(found, jaxrecall.run(grid, out="out", progress=False))
    assert [path.name for path in folder.iterdir()] == ["out"]
    assert {number: signal.getsignal(number) for number in before} == before
    assert capsys.readouterr() == ("", "")
    assert len(found) == 40
    assert_same_rows(found, rows_of_the_command_line(grid))
    in_thread: list[pd.DataFrame] = []
    thread = threading.Thread(
        target=lambda: in_thread.append(jaxrecall.run(grid, progress=False))
    )
    thread.start()
    thread.join()
    assert_same_rows(found, in_thread[0])


def test_a_grid_may_be_a_dict_a_file_a_point_or_points(folder):
    Path("tiny.yaml").write_text(yaml.safe_dump(GRID))
    points = [Point(**BASE, N=100), Point(**BASE, N=600)]
    rows = [
        jaxrecall.run(given, seeds=2, progress=False)
        for given in (GRID, "tiny.yaml", folder / "tiny.yaml", points)
    ]
    for other in rows[1:]:
        assert_same_rows(rows[0], other)
    one = jaxrecall.run(points[1], progress=False)
    assert_same_rows(
        one, rows[0][(rows[0].N == 600) & (rows[0].seed == 0)].reset_index(drop=True)
    )
    assert list(jaxrecall.run(points[1], seeds=[5, 3], progress=False)["seed"]) == [
        3,
        5,
    ]


def test_points_are_taken_as_they_are():
    one = Point(V=8, N=10, d=4, L=2, root_seed=3)
    points = [
        one,
        one.replace(gamma=1 / 3),
        one.replace(kappa=2 / 3, m=8),
        one.replace(pool=7),
        one.replace(embedding="sphere", eta=0.1),
    ]
    grid = as_grid(points, range(3))
    assert grid.points == tuple(points) == as_grid(grid.resolved).points
    assert grid.seeds == range(3)
    assert as_grid(one).points == (one,)


def test_numbers_and_lists_of_numpy_count_as_plain_ones_and_the_dict_stays_as_it_is():
    axes = {"N": np.array([10, 20]), "d": (4, np.int64(8)), "L": range(2, 4)}
    given = {"base": {"V": np.int32(8)}, "blocks": [{"axes": axes}]}
    grid = as_grid(given, np.array([4, 7]))
    assert (len(grid.points), grid.seeds, grid.axes) == (8, (4, 7), ("N", "d", "L"))
    assert given["blocks"][0]["axes"] is axes
    assert "seeds" not in given


@pytest.mark.parametrize(
    ("given", "seeds", "message"),
    [
        (
            [],
            None,
            (
                "grid: got []; allowed: a dict with the keys of a grid file, its path,"
                " a Point, or a list of Points"
            ),
        ),
        ([Point(**BASE, N=1), 7], None, "grid: got 7; allowed: a dict"),
        (7, None, "grid: got 7; allowed: a dict"),
        (
            [Point(**BASE, N=1), Point(**BASE, N=1, root_seed=5)],
            None,
            "grid: got points of root_seed 0, 5; allowed: points of one",
        ),
        ("none.yaml", None, "none.yaml: cannot be read: No such file or directory"),
        (
            {"base": {**BASE, "V": -3, "N": 5}},
            None,
            "grid: base.V: got -3; allowed: whole numbers from 2 to 65536",
        ),
        (
            GRID,
            0,
            "grid: seeds.count: got 0; allowed: whole numbers from 1 to 4294967296",
        ),
        (GRID, [1, 1], "grid: seeds: got 1 more than once"),
    ],
)
def test_what_is_no_grid_is_refused_before_anything_runs(folder, given, seeds, message):
    with pytest.raises(GridError) as error:
        jaxrecall.run(given, seeds=seeds, out="out")
    assert str(error.value).startswith(message)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("workers", [0, "2", 1.5])
def test_workers_are_a_whole_number(workers):
    with pytest.raises(
        UsageError,
        match=rf"workers: got {workers!r}; allowed: whole numbers from 1 to 1000",
    ):
        jaxrecall.run(GRID, workers=workers)


def test_a_law_that_other_processes_cannot_import_is_refused_with_workers(folder):
    @dataclass(frozen=True)
    class Local(Gaussian):
        name = "local"

    point = Point(**BASE, N=100, embedding=Local())
    grid: Any = SimpleNamespace(points=(point,), simulator=RECALL)
    with pytest.raises(
        UsageError,
        match=(
            r"defined in a function; other processes need a class .* \(or use one"
            r" process\)"
        ),
    ):
        Engine(workers=2).check(grid)
    Engine().check(grid)


@pytest.mark.system  # starts two processes
def test_workers_give_the_same_rows():
    assert_same_rows(
        jaxrecall.run(GRID, workers=2, progress=False),
        jaxrecall.run(GRID, progress=False),
    )


def test_a_folder_resumes_from_python_and_from_the_command_line(capsys):
    two = rows_of_the_command_line(GRID)
    written = {
        path: path.stat().st_mtime_ns for path in Path("by-command/parts").iterdir()
    }
    assert_same_rows(jaxrecall.run(GRID, out="by-command", progress=False), two)
    four = jaxrecall.run("grid.yaml", seeds=4, out="by-command", progress=False)
    assert len(four) == 8
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert_frame_equal(four[four["seed"] < 2].reset_index(drop=True), two)
    assert_same_rows(four, jaxrecall.run(GRID, seeds=4, progress=False))
    assert (
        json.loads(Path("by-command/manifest.json").read_text())["command"]
        == "jaxrecall.run(grid, out='by-command')"
    )
    assert main(["--grid", "grid.yaml", "--set", "seeds=4", "--out", "by-command"]) == 0
    assert "nothing to do: all 8 runs are in by-command" in capsys.readouterr().out


def test_load_returns_the_rows_of_a_grid():
    all_rows = jaxrecall.run(GRID, seeds=3, out="out", progress=False)
    assert_frame_equal(jaxrecall.load("out"), all_rows)
    assert_frame_equal(
        jaxrecall.load("out", grid=GRID),
        all_rows[all_rows["seed"] < 2].reset_index(drop=True),
    )
    point = Point(**BASE, N=600)
    assert_frame_equal(
        jaxrecall.load("out", point),
        all_rows[(all_rows.N == 600) & (all_rows.seed == 0)].reset_index(drop=True),
    )
    with pytest.raises(
        StoreError,
        match="no rows of grid 'points' in out, which hold others; has it run",
    ):
        jaxrecall.load("out", point.replace(V=9))


@pytest.fixture(scope="module")
def searched() -> pd.DataFrame:
    """The rows of the search, kept in memory."""
    return jaxrecall.run(SEARCH, progress=False)


@pytest.mark.parametrize("out", [None, "out"])
def test_a_search_returns_its_thresholds(searched, out):
    rows = jaxrecall.run(SEARCH, out=out, progress=False) if out else searched
    found = jaxrecall.thresholds(rows)
    assert list(found.columns) == [
        *(
            "d",
            "theta",
            "axis",
            "critical",
            "lo",
            "hi",
            "N_star",
            "outcome",
            "seeds",
            "runs",
            "samples",
            "warning",
        ),
    ]
    assert list(found["d"]) == [8, 32]
    assert found["runs"].sum() == len(rows)
    assert found.loc[1, "outcome"] == "found"
    assert found.loc[1, "lo"] < found.loc[1, "N_star"] < found.loc[1, "hi"]
    assert_frame_equal(jaxrecall.thresholds(rows[rows["d"] == 32]), found)
    if out:
        assert_frame_equal(jaxrecall.thresholds(out), found)
        assert_frame_equal(jaxrecall.load(out, grid=SEARCH), rows)
        assert_same_rows(searched, rows)
        from_there = SEARCH | {"search": {"axis": "N", "from": 2**18}}
        assert_frame_equal(
            jaxrecall.load(out, grid=from_there),
            rows[rows["N"] >= 2**18].reset_index(drop=True),
        )


def test_what_holds_no_thresholds_is_refused(folder):
    with pytest.raises(
        UsageError,
        match=(
            r"source: got a table without thresholds; allowed: what `run` returned .*"
            r" jaxrecall\.fit"
        ),
    ):
        jaxrecall.thresholds(pd.DataFrame({"N": [1]}))
    with pytest.raises(
        StoreError,
        match=r"out/search\.json: is no result of a search \(FileNotFoundError\)",
    ):
        jaxrecall.thresholds("out")


class Watched(MemoryStore):
    """Sends this process a signal when the first rows are in."""

    def put_table(self, target, table):
        if not self.held:
            os.kill(os.getpid(), signal.SIGINT)
        return super().put_table(target, table)


def test_an_interrupt_keeps_finished_rows_in_memory(monkeypatch):
    monkeypatch.setattr(api, "MemoryStore", Watched)
    grid = GRID | {"seeds": {"count": 400}}
    with pytest.raises(
        jaxrecall.Interrupted,
        match=r"of 800 runs are finished; their rows are in `rows` of this exception",
    ) as stop:
        jaxrecall.run(grid, progress=False)
    assert isinstance(stop.value, KeyboardInterrupt)
    assert 0 < len(stop.value.rows) < 800
    assert stop.value.rows["accuracy"].notna().all()


def test_an_interrupted_search_returns_what_is_known(monkeypatch):
    monkeypatch.setattr(api, "MemoryStore", Watched)
    with pytest.raises(jaxrecall.Interrupted) as stop:
        jaxrecall.run(SEARCH, progress=False)
    assert list(jaxrecall.thresholds(stop.value.rows)["outcome"]) == ["unfinished"] * 2


SCRIPT = """
import jaxrecall, sys
grid = {"base": {"V": 20, "d": 12, "L": 3, "n_test": 200, "N": 600}, "run": {"part_seconds": 0.2}}
try:
    rows = jaxrecall.run(grid, seeds=int(sys.argv[1]), out="out", progress=False)
except jaxrecall.Interrupted as stop:
    print(len(stop.rows), stop)
"""  # noqa: E501


@pytest.mark.system  # starts and interrupts a process
def test_a_script_that_is_interrupted_and_called_again_loses_nothing(folder):
    n = 3000
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(n)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    parts = Path("out/parts")
    while script.poll() is None and not (parts.is_dir() and list(parts.iterdir())):
        time.sleep(0.02)
    script.send_signal(signal.SIGINT)
    said = script.communicate(timeout=60)[0]
    kept = jaxrecall.load("out")
    assert 0 < len(kept) < n
    assert said.startswith(
        f"{len(kept)} {len(kept)} of {n} runs are finished; their rows are in `rows` of"
        " this exception and in out"
    )
    written = {path: path.stat().st_mtime_ns for path in parts.iterdir()}
    again = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(n)], env=environment, timeout=300, check=True
    )
    assert again.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
    whole = jaxrecall.load("out")
    assert list(whole["seed"]) == [*range(n)]
    assert_frame_equal(
        whole[whole["seed"].isin(kept["seed"])].reset_index(drop=True), kept
    )


@pytest.fixture
def broken(monkeypatch):
    def refuses(self, u, xp, erf):
        raise ValueError("this activation is broken")

    monkeypatch.setattr(own_laws.Softplus, "value_and_slope", refuses)
    return GRID | {
        "blocks": [
            {"axes": {"N": [100]}},
            {"axes": {"N": [100], "m": [8], "activation": ["own_laws:Softplus"]}},
        ]
    }


@pytest.mark.parametrize("out", [None, "out"])
def test_runs_that_fail_raise_after_the_others_have_run(broken, out):
    with pytest.raises(jaxrecall.RunFailed) as failed:
        jaxrecall.run(broken, out=out, progress=False)
    assert list(failed.value.rows["m"]) == [0, 0]
    message = str(failed.value)
    assert message.startswith(
        "2 of 4 runs are finished; their rows are in `rows` of this exception"
    )
    assert "this activation is broken" in message
    assert ("details: out/failures/" in message) == bool(out)
    assert "memory" not in message


def test_runs_that_overflow_are_rows_and_a_warning():
    grid = GRID | {
        "base": {**BASE, "gamma": 1.0},
        "blocks": [{"axes": {"N": [100], "eta": [0.001, 1e300]}}],
    }
    with pytest.warns(UserWarning, match="2 of 4 rows have the status nonfinite"):
        rows = jaxrecall.run(grid, progress=False)
    assert list(rows.loc[rows["eta"] > 1, "status"]) == ["nonfinite"] * 2


def read(terminal: int) -> bytes:
    """What was written to a terminal; nothing at its end, which Linux reports as an
    error.
    """
    try:
        return os.read(terminal, 2**16)
    except OSError:
        return b""


def test_progress_is_a_live_line_in_a_terminal_and_lines_elsewhere(capsys):
    jaxrecall.run(GRID)
    out, err = capsys.readouterr()
    assert out == ""
    assert "4/4 runs" in err
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", f"import jaxrecall; jaxrecall.run({GRID!r})"]
    script = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    shown = b"".join(iter(lambda: read(ours), b"")).decode()
    assert script.communicate() == (b"", None)
    assert script.returncode == 0
    assert "4/4 runs, 100 %" in shown
    assert re.search(r"compiling .*?\r.*4/4 runs, 100 %", shown, re.S)
    assert "\x1b[" not in shown


def test_a_program_without_streams_gets_its_rows(monkeypatch, capfd):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert len(jaxrecall.run(GRID)) == 4
    assert capfd.readouterr() == ("", "")


def test_a_program_whose_streams_are_closed_gets_its_rows(monkeypatch, tmp_path):
    for name in ("stdout", "stderr"):
        with open(tmp_path / name, "w") as stream:
            monkeypatch.setattr(sys, name, stream)
    assert len(jaxrecall.run(GRID)) == 4


def test_simulate_takes_several_seeds():
    point = Point(**BASE, N=600)
    rows = jaxrecall.simulate(point, range(20))
    assert [row["seed"] for row in rows] == [*range(20)]
    assert jaxrecall.simulate(point, 17) == rows[17]
    assert jaxrecall.simulate(point, [17]) == [rows[17]]
    assert jaxrecall.simulate(point, []) == []
    with pytest.raises(PointError, match="seed: got -1"):
        jaxrecall.simulate(point, [0, -1])


@pytest.mark.system  # compiles a program in a process of its own
def test_simulate_keeps_its_programs_for_other_processes(folder):
    code = f"from jaxrecall import Point, simulate; simulate(Point(**{BASE}, N=600), 0)"
    done = python(
        code, JAXRECALL_CACHE=str(folder / "kept"), JAX_COMPILATION_CACHE_DIR=""
    )
    assert done.returncode == 0, done.stderr
    assert list((folder / "kept").glob("*.program"))


EVERYTHING = """
import pkgutil, sys
import jaxrecall
assert not {"jax", "pandas", "pyarrow", "pydantic", "matplotlib"} & sys.modules.keys()
assert dir(jaxrecall) == sorted(jaxrecall.__all__)
function = jaxrecall.run
for module in pkgutil.walk_packages(jaxrecall.__path__, "jaxrecall."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
assert jaxrecall.run is function
assert dir(jaxrecall) == sorted(jaxrecall.__all__)
for name in jaxrecall.__all__:
    shown = getattr(jaxrecall, name)
    assert name == "__version__" or shown.__doc__.strip(), name
    assert not (callable(shown) and not isinstance(shown, type) or name == "Point") or ">>>" in shown.__doc__, name
assert all(map(callable, (jaxrecall.fit.fit, jaxrecall.theory.critical_N, jaxrecall.model.loss)))
import pydoc
text = pydoc.plain(pydoc.render_doc(jaxrecall))
assert all(name in text for name in jaxrecall.__all__ if name != "__version__")
assert "import_module" not in text and "TYPE_CHECKING" not in text
assert ">>> df = jaxrecall.run(grid, seeds=4)" in text
try:
    jaxrecall.sweeps
except AttributeError as error:
    assert "has no attribute 'sweeps'; it has Descended, Interrupted, Point" in str(error)
"""  # noqa: E501


def test_the_package_shows_its_public_names_and_nothing_else():
    done = python(EVERYTHING)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:note. out also holds")
def test_tables_say_which_fields_their_grid_varies(folder):
    """In attrs of `run` and `load`; compaction keeps them, and a grown folder has those
    of all its grids.
    """
    grid = {
        "base": {**BASE, "eta": 0.002},
        "blocks": [{"axes": {"N": [100, 600], "m": [0]}}],
    }
    assert jaxrecall.run(grid, progress=False).attrs["axes"] == ["N"]
    assert jaxrecall.run(grid, out="out", progress=False).attrs == {"axes": ["N"]}
    wider = grid | {
        "blocks": [{"axes": {"embedding": ["gaussian", "sphere"], "N": [100]}}]
    }
    assert jaxrecall.run(wider, out="out", progress=False).attrs["axes"] == [
        "embedding"
    ]
    loaded = jaxrecall.load("out")
    assert sorted(loaded.attrs["axes"]) == ["N", "embedding"]
    assert jaxrecall.load("out", grid=grid).attrs["axes"] == ["N"]
    other = grid | {"base": {**BASE, "V": 19, "eta": 0.002, "n_test": 200}}
    jaxrecall.run(other, out="out", progress=False)
    assert sorted(jaxrecall.load("out").attrs["axes"]) == ["N", "V", "embedding"]
    compact("out", prune=True)
    assert sorted(jaxrecall.load("out").attrs["axes"]) == ["N", "V", "embedding"]
    pq.write_table(
        pq.read_table("out/table.parquet").replace_schema_metadata(None),
        "foreign.parquet",
    )
    assert jaxrecall.load("foreign.parquet").attrs == {}
    with pytest.warns(UserWarning, match="dropped"):
        assert "axes" not in jaxrecall.load(["foreign.parquet", "out"]).attrs


def test_a_grid_file_finds_the_modules_beside_it_from_every_folder(
    tmp_path, monkeypatch
):
    law = "from own_laws import Signs\n\n\nclass Mine(Signs):\n    pass\n"
    (tmp_path / "laws_beside_it.py").write_text(law)
    (tmp_path / "g.yaml").write_text(
        "base: {V: 16, L: 4, d: 16, N: 64, embedding: 'laws_beside_it:Mine'}\nblocks:"
        " [{}]\n"
    )
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.chdir("/")
    (point,) = as_grid(tmp_path / "g.yaml").points
    assert point.embedding == "laws_beside_it:Mine"
