"""Sweeps, rows and thresholds from Python: the same rows as the command line, wherever
they are kept and whoever interrupts.
"""

import json
import os
import pty
import re
import signal
import sys
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import own_laws
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from helpers import NO_FIGURE, python
from pandas.testing import assert_frame_equal

import jaxrecall
from jaxrecall import Point
from jaxrecall.compact import compact
from jaxrecall.errors import GridError, PointError, UsageError
from jaxrecall.model.laws import Gaussian
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.store import Store

GRID = yaml.safe_load("""
name: tiny
base: {V: 20, d: 12, L: 3, n_test: 200}
seeds: {count: 2}
blocks: [{axes: {N: [100, 600]}}]
run: {part_seconds: 0}
""")
BASE = GRID["base"]  # one program serves most tests
SEARCH = yaml.safe_load("""
base: {V: 8, L: 3, n_test: 400}
seeds: {count: 60}
blocks: [{axes: {d: [2, 12]}}]
search: {axis: N, from: 16, to: 1024, width: 2}
""")


pytestmark = pytest.mark.usefixtures("cwd")


def assert_same_rows(a: pd.DataFrame, b: pd.DataFrame) -> None:
    """But for the time that they took and their places in the table."""
    a, b = (table.drop(columns="seconds").reset_index(drop=True) for table in (a, b))
    assert_frame_equal(a, b)


def test_a_grid_may_be_a_dict_a_file_a_point_or_points(cwd, capsys):
    """The same rows, in any thread; nothing is printed, and no file or handler of a
    signal stays.
    """
    Path("tiny.yaml").write_text(yaml.safe_dump(GRID))
    one, other = Point(**BASE, N=100), Point(**BASE, N=600)
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [*map(signal.getsignal, numbers)]

    def rows(grid: Any) -> pd.DataFrame:
        return jaxrecall.run(grid, seeds=2, progress=False)

    expected = rows(GRID)
    for given in ("tiny.yaml", cwd / "tiny.yaml", [one, other]):
        assert_same_rows(rows(given), expected)
    with ThreadPool(1) as pool:
        assert_same_rows(*pool.map(rows, [GRID]), expected)
    assert os.listdir() == ["tiny.yaml"]
    assert [*map(signal.getsignal, numbers)] == handlers
    assert capsys.readouterr() == ("", "")
    first = expected[(expected.N == 600) & (expected.seed == 0)]
    assert_same_rows(jaxrecall.run(other, progress=False), first)
    assert jaxrecall.run(other, seeds=[5, 3], progress=False).seed.tolist() == [3, 5]


def test_points_are_taken_as_they_are():
    one = Point(V=8, N=10, d=4, L=2, root_seed=3)
    changes = [{}, {"gamma": 1 / 3}, {"kappa": 2 / 3, "m": 8}, {"pool": 7}]
    changes.append({"embedding": "sphere", "eta": 0.1})
    points = [one.replace(**change) for change in changes]
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


def test_what_is_no_grid_is_refused_before_anything_is_made(cwd):
    with pytest.raises(GridError, match=r"grid: base\.V: got -3"):
        jaxrecall.run({"base": {**BASE, "V": -3, "N": 5}}, out="out")
    assert not list(cwd.iterdir())


def test_a_law_that_other_processes_cannot_import_is_refused_with_workers():
    @dataclass(frozen=True)
    class Local(Gaussian):
        name = "local"

    point = Point(**BASE, N=100, embedding=Local())
    told = r"defined in a function; other processes .* \(or use one process\)"
    with pytest.raises(UsageError, match=told):
        jaxrecall.run(point, workers=2)


def test_a_folder_resumes_from_python_and_from_the_command_line(capsys):
    Path("grid.yaml").write_text(yaml.safe_dump(GRID))
    call = ["--grid", "grid.yaml", "--out", "out"]
    assert main([*call, *NO_FIGURE]) == 0
    two = jaxrecall.load("out")
    written = times("out")
    assert_same_rows(jaxrecall.run(GRID, out="out", progress=False), two)
    four = jaxrecall.run("grid.yaml", seeds=4, out="out", progress=False)
    assert len(four) == 8
    assert written.items() <= times("out").items()
    assert_same_rows(four[four["seed"] < 2], two)
    assert_same_rows(four, jaxrecall.run(GRID, seeds=4, progress=False))
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["command"] == "jaxrecall.run(grid, out='out')"
    assert main([*call, "--set", "seeds=4"]) == 0
    assert "nothing to do: all 8 runs are in out" in capsys.readouterr().out


def times(folder: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(folder, "parts").iterdir()}


def test_load_returns_the_rows_of_a_grid():
    whole = jaxrecall.run(GRID, seeds=3, out="out", progress=False)
    point = Point(**BASE, N=600)
    assert_same_rows(jaxrecall.load("out"), whole)
    assert_same_rows(jaxrecall.load("out", grid=GRID), whole[whole["seed"] < 2])
    first = whole[(whole.N == 600) & (whole.seed == 0)]
    assert_same_rows(jaxrecall.load("out", point), first)


@pytest.fixture(scope="module")
def searched() -> pd.DataFrame:
    """The rows of the search, kept in memory."""
    return jaxrecall.run(SEARCH, progress=False)


@pytest.mark.parametrize("out", [None, "out"])
def test_a_search_returns_its_thresholds(searched, out):
    rows = jaxrecall.run(SEARCH, out=out, progress=False) if out else searched
    found = jaxrecall.thresholds(rows)
    columns = "d theta axis critical lo hi N_star outcome seeds runs samples warning"
    assert " ".join(found.columns) == columns
    assert list(found["d"]) == [2, 12]
    assert found["runs"].sum() == len(rows)
    assert found.loc[1, "outcome"] == "found"
    assert found.loc[1, "lo"] < found.loc[1, "N_star"] < found.loc[1, "hi"]
    assert_frame_equal(jaxrecall.thresholds(rows[rows["d"] == 12]), found)
    if out:
        assert_frame_equal(jaxrecall.thresholds(out), found)
        assert_same_rows(jaxrecall.load(out, grid=SEARCH), rows)
        assert_same_rows(searched, rows)
        high = SEARCH | {"search": {"axis": "N", "from": 512}}
        assert_same_rows(jaxrecall.load(out, grid=high), rows[rows["N"] >= 512])


@pytest.fixture
def interrupting(monkeypatch) -> None:
    """This process gets a signal when the first rows are in."""
    write, written = Store.write, []

    def watched(self: Store, rows: list[dict[str, Any]]) -> Path:
        if not written:
            os.kill(os.getpid(), signal.SIGINT)
        written.append(write(self, rows))
        return written[-1]

    monkeypatch.setattr(Store, "write", watched)


@pytest.mark.parametrize(
    ("out", "told"),
    [(None, "The same call starts from the beginning"), ("out", " and in out")],
)
@pytest.mark.usefixtures("interrupting")
def test_an_interrupt_keeps_finished_rows(out, told):
    grid = GRID | {"seeds": {"count": 40}}
    with pytest.raises(jaxrecall.Interrupted, match=told) as stop:
        jaxrecall.run(grid, out=out, progress=False)
    assert isinstance(stop.value, KeyboardInterrupt)
    rows = stop.value.rows
    assert str(stop.value).startswith(f"{len(rows)} of 80 runs are finished; ")
    assert 0 < len(rows) < 80
    assert rows["accuracy"].notna().all()
    if out:
        written = times(out)
        assert_same_rows(jaxrecall.load(out), rows)
        more = jaxrecall.run(grid | {"run": {}}, out=out, progress=False)
        assert len(more) == 80
        assert written.items() <= times(out).items()


@pytest.mark.usefixtures("interrupting")
def test_an_interrupted_search_returns_what_is_known():
    with pytest.raises(jaxrecall.Interrupted) as stop:
        jaxrecall.run(SEARCH, progress=False)
    assert list(jaxrecall.thresholds(stop.value.rows)["outcome"]) == ["unfinished"] * 2


@pytest.fixture
def broken(monkeypatch):
    def refuses(self, u, xp, erf):
        raise ValueError("this activation is broken")

    monkeypatch.setattr(own_laws.Softplus, "value_and_slope", refuses)
    own = {"N": [100], "m": [8], "activation": ["own_laws:Softplus"]}
    return GRID | {"blocks": [{"axes": {"N": [100]}}, {"axes": own}]}


@pytest.mark.parametrize("out", [None, "out"])
def test_runs_that_fail_raise_after_the_others_have_run(broken, out):
    with pytest.raises(jaxrecall.RunFailed) as failed:
        jaxrecall.run(broken, out=out, progress=False)
    assert list(failed.value.rows["m"]) == [0, 0]
    message = str(failed.value)
    assert message.startswith("2 of 4 runs are finished; their rows are in `rows` of")
    assert "this activation is broken" in message
    assert ("details: out/failures/" in message) == bool(out)
    assert "memory" not in message


def test_runs_that_overflow_are_rows_and_a_warning():
    axes = {"N": [100], "eta": [0.001, 1e300]}
    grid = GRID | {"base": {**BASE, "gamma": 1.0}, "blocks": [{"axes": axes}]}
    with pytest.warns(UserWarning, match="2 of 4 rows have the status nonfinite"):
        rows = jaxrecall.run(grid, progress=False)
    assert list(rows.loc[rows["eta"] > 1, "status"]) == ["nonfinite"] * 2


@pytest.mark.usefixtures("compiled_anew")
def test_progress_is_a_live_line_in_a_terminal_and_lines_elsewhere(capsys, monkeypatch):
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        jaxrecall.run(GRID)
        terminal.flush()
        shown = os.read(ours, 2**16).decode()
    os.close(ours)
    assert re.search(r"compiling .*?\r.*4/4 runs, 100 %", shown, re.DOTALL)
    assert "\x1b[" not in shown
    assert capsys.readouterr() == ("", "")
    jaxrecall.run(GRID)
    out, err = capsys.readouterr()
    assert out == ""
    assert "4/4 runs" in err


@pytest.mark.parametrize("closed", [False, True])
def test_a_program_without_streams_gets_its_rows(monkeypatch, tmp_path, capfd, closed):
    for name in ("stdout", "stderr"):
        with open(tmp_path / name, "w") as stream:
            monkeypatch.setattr(sys, name, stream if closed else None)
    assert len(jaxrecall.run(GRID)) == 4
    assert capfd.readouterr() == ("", "")


def test_simulate_takes_several_seeds():
    point = Point(**BASE, N=600)
    rows = jaxrecall.simulate(point, range(20))
    assert [row["seed"] for row in rows] == [*range(20)]
    assert jaxrecall.simulate(point, 17) == rows[17]
    assert jaxrecall.simulate(point, [17]) == [rows[17]]
    assert jaxrecall.simulate(point, []) == []
    with pytest.raises(PointError, match="seed: got -1"):
        jaxrecall.simulate(point, [0, -1])


EVERYTHING = """
import pkgutil, sys
import jaxrecall
assert not {"jax", "pandas", "pyarrow", "pydantic", "matplotlib"} & sys.modules.keys()
assert dir(jaxrecall) == sorted(jaxrecall.__all__)
function = jaxrecall.run
import jaxrecall.simulator.custom_runs
import jaxrecall.simulator.program
import jaxrecall.analysis.figures.charts
# sweeps and single runs take up to a second less without them
unused = {"equinox", "scipy.special", "scipy.linalg", "scipy.optimize", "jaxrecall.theory.critical"}
assert not unused & sys.modules.keys(), unused & sys.modules.keys()
assert callable(jaxrecall.plot.figure) and "matplotlib" not in sys.modules
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
    python(EVERYTHING)


@pytest.mark.filterwarnings("ignore:note. out also holds")
def test_tables_say_which_fields_their_grid_varies():
    """In attrs of `run` and `load`; compaction keeps them, and a grown folder has those
    of all its grids.
    """

    def check(axes: list[str], out: str | None = "out", V: int = 20, **varied: list):
        base = {**BASE, "eta": 0.002, "V": V}
        grid = {"base": base, "blocks": [{"axes": varied}]}
        table = jaxrecall.run(grid, out=out, progress=False)
        assert table.attrs == {"axes": axes}
        if out:
            assert jaxrecall.load(out, grid=grid).attrs["axes"] == axes

    def loaded() -> list[str]:
        return sorted(jaxrecall.load("out").attrs["axes"])

    both = {"N": [100, 600], "m": [0]}
    for out in (None, "out"):
        check(["N"], out, **both)
    check(["exact"], exact=["guarded", "full"], N=[100])
    assert loaded() == ["N", "exact"]
    check(["N"], V=19, **both)
    assert loaded() == ["N", "V", "exact"]
    compact("out", prune=True)
    assert loaded() == ["N", "V", "exact"]
    foreign = pq.read_table("out/table.parquet").replace_schema_metadata(None)
    pq.write_table(foreign, "foreign.parquet")
    assert jaxrecall.load("foreign.parquet").attrs == {}
    with pytest.warns(UserWarning, match="dropped"):
        assert "axes" not in jaxrecall.load(["foreign.parquet", "out"]).attrs


def test_a_grid_file_finds_the_modules_beside_it_from_every_folder(cwd, monkeypatch):
    law = "from own_laws import Signs\n\n\nclass Mine(Signs):\n    pass\n"
    Path("laws_beside_it.py").write_text(law)
    base = "{V: 16, L: 4, d: 16, N: 64, embedding: 'laws_beside_it:Mine'}"
    Path("g.yaml").write_text(f"base: {base}\nblocks: [{{}}]\n")
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.chdir("/")
    (point,) = as_grid(cwd / "g.yaml").points
    assert point.embedding == "laws_beside_it:Mine"


def test_a_tilde_is_the_home_folder(cwd, monkeypatch):
    monkeypatch.setenv("HOME", str(cwd / "home"))
    Path("home").mkdir()
    Path("home/g.yaml").write_text("base: {V: 8, L: 4, d: 4, N: 16, n_test: 16}\n")
    jaxrecall.run("~/g.yaml", out="~/x", progress=False)
    assert len(jaxrecall.load("~/x")) == 1
    assert [path.name for path in cwd.iterdir()] == ["home"]
