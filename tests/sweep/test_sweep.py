"""The command line as a user meets it: from a grid to a table and a picture, again and
again, and all that can go wrong.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import METRICS, NO_FIGURE, ROOT, assert_same_metrics, process
from tolerances import assert_same_columns

from jaxrecall import Point, load, simulate
from jaxrecall.compact import main as compact
from jaxrecall.model.columns import CODE_VERSION, COLUMNS, EXTRA_COLUMNS, TRACE_COLUMNS
from jaxrecall.sweep.__main__ import main

GRID = """
name: tiny
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 2}
blocks:
  - axes: {d: [8, 12], N: [100, 600]}
"""
OUT = "results/tiny"
UNDRAWN = shlex.join(NO_FIGURE)


def sweep(words: str = "") -> int:
    return main(["--grid", "tiny.yaml", *shlex.split(words)])


@pytest.fixture
def grid(cwd) -> None:
    """It lies in the current folder."""
    Path("tiny.yaml").write_text(GRID)


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> Path:
    """A folder where the grid has run."""
    there = tmp_path_factory.mktemp("once")
    (there / "tiny.yaml").write_text(GRID)
    with contextlib.chdir(there):
        assert sweep("--set run.part_seconds=0") == 0
    return there


@pytest.fixture
def swept(grid, once) -> None:
    """Its eight parts of a row each, in the current folder."""
    shutil.copytree(once / "results", "results")


@pytest.fixture
def facts(capsys) -> Callable[..., list]:
    """What a dry run says: the facts of these names."""

    def told(words: str = "", names: str = "points runs done todo") -> list:
        capsys.readouterr()
        assert sweep(f"{words} --dry-run --json") == 0
        plan = json.loads(capsys.readouterr().out)
        return [plan[name] for name in names.split()]

    return told


@pytest.fixture
def events(capsys) -> Callable[[str], list[dict[str, Any]]]:
    """The events of a sweep."""

    def told(words: str = "") -> list[dict[str, Any]]:
        capsys.readouterr()
        assert sweep(f"{words} --json-log") == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return told


@pytest.mark.usefixtures("grid", "with_figures")
def test_from_grid_to_table_and_picture(capsys):
    assert sweep() == 0
    out = capsys.readouterr().out
    assert "accuracy, mean over 2 seeds; one column per d" in out
    assert f"figure:  {OUT}/accuracy.png" in out
    assert Path(OUT, "accuracy.png").read_bytes().startswith(b"\x89PNG")
    frame = load(OUT)
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 8
    frame = frame.set_index(["N", "d", "seed"], drop=False)
    row = frame.loc[(600, 12, 1)].to_dict()
    alone = simulate(Point(V=20, N=600, d=12, L=3, n_test=200), 1)
    nothing = [name for name, value in alone.items() if value is None]
    assert {*EXTRA_COLUMNS, *TRACE_COLUMNS} <= {*nothing}
    for name in alone.keys() - {*METRICS, *nothing}:
        assert row[name] == alone[name]
    assert frame[nothing].isna().all(axis=None)
    assert_same_metrics(row, alone)
    manifest = json.loads(Path(OUT, "manifest.json").read_text())
    assert manifest["grid"]["name"] == "tiny"
    versions = {"jaxrecall", "jax", "numpy", "optax", "threadpoolctl"}
    assert versions <= manifest["versions"].keys()
    part = next(Path(OUT, "parts").iterdir())
    about = json.loads(pq.read_schema(part).metadata[b"jaxrecall"])
    assert (about["code_version"], about["precision"]) == (CODE_VERSION, "highest")


@pytest.mark.usefixtures("swept")
def test_the_second_call_runs_nothing_and_a_grown_grid_what_is_missing(
    capsys, facts, events
):
    before, parts = load(OUT), {*Path(OUT, "parts").iterdir()}
    assert sweep() == 0
    assert f"nothing to do: all 8 runs are in {OUT}" in capsys.readouterr().out
    assert {*Path(OUT, "parts").iterdir()} == parts
    start, picture, done = events()
    assert [each["event"] for each in (start, picture, done)] == [
        *("start", "picture", "done")
    ]
    assert (start["done"], start["todo"]) == (8, 0)
    assert (done["runs_executed"], done["exit_code"]) == (0, 0)
    sets = "--set seeds.count=3 --set 'blocks.0.axes.d=[12, 8, 16]' --set name=other"
    more = f"--out {OUT} {sets}"
    assert facts(more) == [6, 18, 8, 10]
    assert events(f"{more} {UNDRAWN}")[-1]["runs_executed"] == 10
    assert parts < {*Path(OUT, "parts").iterdir()}
    run = ["point_id", "seed"]
    after = load(OUT).set_index(run)
    assert len(after) == 18
    old = before.set_index(run)
    assert after.loc[old.index].equals(old)


@pytest.mark.usefixtures("swept")
def test_runs_count_as_done_whatever_grid_asks_for_them(facts):
    def missing(*sets: str) -> list[int]:
        words = shlex.join(word for each in sets for word in ("--set", each))
        return facts(f"--out {OUT} {words}", "runs todo")

    assert missing("name=other", "blocks.0.axes.d=[12, 8]") == [8, 0]
    assert missing("seeds={start: 1, count: 3}") == [12, 8]
    assert missing("blocks.0.axes.N=[50, 100]") == [8, 4]
    assert missing("root_seed=1") == [8, 8]
    assert compact([OUT, "--prune"]) == 0
    assert not list(Path(OUT, "parts").iterdir())
    assert missing() == [8, 0]


@pytest.mark.usefixtures("swept")
def test_another_experiment_in_the_same_folder_is_noted(capsys):
    assert sweep(f"{UNDRAWN} --set seeds=3") == 0
    assert sweep("--shard 0/2") == 0
    assert "note" not in capsys.readouterr().err
    assert sweep("--set base.kappa=5 --set seeds=1 --dry-run") == 0
    note = f"note: {OUT} also holds 12 runs of points not in this grid; "
    assert capsys.readouterr().err.startswith(note)


@pytest.mark.filterwarnings("ignore:dropped 8 rows")
@pytest.mark.usefixtures("swept")
def test_the_printed_folder_holds_the_rows_before_and_after_compact(capsys):
    places = "parts", f"parts and {OUT}/table.parquet", "table.parquet"
    for options, place in zip((None, [], ["--prune"]), places, strict=True):
        assert options is None or compact([OUT, *options]) == 0
        assert sweep() == 0
        where = f"table:   {OUT}/{place} (8 runs of this grid;"
        assert f"{where} jaxrecall.load('{OUT}'))\n" in capsys.readouterr().out
        assert len(load(OUT).drop_duplicates(["point_id", "seed"])) == 8


@pytest.mark.usefixtures("swept")
def test_damaged_and_foreign_files_are_told_and_their_runs_run_again(capsys):
    before = load(OUT)
    parts = sorted(Path(OUT, "parts").iterdir())
    parts[0].write_bytes(parts[0].read_bytes()[:5000])
    parts[1].unlink()
    notes = Path(OUT, "parts/notes.txt")
    notes.write_text("mine")
    assert sweep("--json-log") == 0
    out, err = capsys.readouterr()
    told = [json.loads(line) for line in out.splitlines()]
    kinds = ["start", "compiling", "compiled", "batch", "part", "picture", "done"]
    assert list(dict.fromkeys(event["event"] for event in told)) == kinds
    assert (told[0]["done"], told[-1]["runs_executed"]) == (6, 2)
    files = [line.partition(": ")[0] for line in err.splitlines()]
    assert files == [str(parts[0]), str(notes)]
    assert notes.read_text() == "mine"
    with pytest.warns(UserWarning, match="2 unreadable files left out"):
        after = load(OUT)
    assert_same_columns(after, before, ["point_id", "seed", *METRICS])


@pytest.mark.usefixtures("grid")
def test_a_dry_run_is_one_object_with_the_promised_keys_and_makes_nothing(capsys):
    assert sweep("--dry-run --json") == 0
    told = json.loads(capsys.readouterr().out)
    counts = {"points": 4, "runs": 8, "done": 0, "todo": 8, "programs": 1}
    costs = "program_list est_flops est_seconds est_peak_bytes"
    assert " ".join(told) == f"{' '.join(counts)} {costs} engine workers requests"
    assert counts.items() <= told.items()
    assert len(told["program_list"]) == 1
    assert sweep("--dry-run") == 0
    assert "4 points x 2 seeds = 8 runs" in capsys.readouterr().out
    assert os.listdir() == ["tiny.yaml"]


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("more", ["", "--workers 2"])
def test_a_dry_run_with_nothing_to_do_says_so_and_names_no_worker(capsys, more):
    assert sweep(f"--dry-run {more}") == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == "tiny: 4 points x 2 seeds = 8 runs"
    assert last == f"nothing to do: all 8 runs are in {OUT}"


@pytest.mark.usefixtures("grid", "with_figures")
def test_a_point_that_overflows_is_a_row_not_a_crash(capsys):
    assert sweep("--set 'blocks.0.axes.eta=[0.001, 1e300]' --set base.gamma=1.0") == 0
    frame = load(OUT)
    assert frame["status"].value_counts().to_dict() == {"ok": 8, "nonfinite": 8}
    bad = frame.loc[frame.status == "nonfinite", ["n_correct", "accuracy", "snr"]]
    assert bad.isna().all(axis=None)
    assert "8 runs have no accuracy" in capsys.readouterr().out


@pytest.mark.usefixtures("swept")
def test_rows_of_another_version_do_not_mix(capsys):
    assert sweep("--set run.precision=high") == 2
    err = capsys.readouterr().err
    version = f"code_version {CODE_VERSION}, precision"
    assert f"holds 8 runs of {version} highest; this call would add {version} h" in err
    assert "Choose another --out" in err


CHARTS = "jaxrecall.analysis.figures.charts"


@pytest.mark.usefixtures("swept", "with_figures")
@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (None, f"import of {CHARTS} halted"),
        (MemoryError(), "MemoryError"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_a_figure_that_cannot_be_made_is_a_remark_and_made_by_the_next_call(
    capsys, monkeypatch, raised, why
):
    def refuse(*_: object) -> None:
        raise raised

    figure = Path(OUT, "accuracy.png")
    figure.unlink()
    with monkeypatch.context() as broken:
        if raised:
            broken.setattr(f"{CHARTS}.draw_sweep", refuse)
        else:
            broken.setitem(sys.modules, CHARTS, None)
        assert sweep("" if raised else "--json-log") == 0
    out, err = capsys.readouterr()
    (remark,) = (line for line in err.splitlines() if "figure" in line)
    assert remark.startswith(f"the figure could not be made: {why}")
    assert "To try again: python" in remark
    assert not figure.exists()
    if raised:
        assert "table: " in out, "the table does not depend on the figure"
        return
    for _ in range(2):
        assert sweep() == 0
        assert "\nfigure: " in capsys.readouterr().out
        figure.unlink()


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_while_jax_starts_ends_the_sweep(facts, number):
    call = [sys.executable, "-m", "jaxrecall.sweep", "--grid", "tiny.yaml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    sweep = subprocess.Popen(call, stderr=-1, stdout=-1, text=True, env=env)
    maps = Path(f"/proc/{sweep.pid}/maps")
    while "jaxlib" not in maps.read_text() and sweep.poll() is None:
        time.sleep(0.01)
    sweep.send_signal(number)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, err
    assert err.startswith("interrupted; finished runs are kept. To resume: python")
    assert facts("", "done") == [0]


CACHED = """
import jax, sys
from jaxrecall.sweep.__main__ import main
events = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
assert main(["--grid", "tiny.yaml", "--out", sys.argv[1]]) == 0
print(sum("compile" in event for event in events))
"""  # noqa: E501


@pytest.mark.system
@pytest.mark.usefixtures("grid")
def test_a_second_process_compiles_nothing(monkeypatch):
    """Nor does it trace anything."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")  # that of the tests
    n_events = []
    for out in ("first", "second"):
        told = process("-c", CACHED, out, folder=Path(), JAXRECALL_CACHE="cache")
        n_events.append(int(told.stdout.splitlines()[-1]))
    assert n_events[0] > 0
    assert n_events[1] == 0
    one, other = load("first"), load("second")
    assert one.drop(columns="seconds").equals(other.drop(columns="seconds"))


JAX_FREE = """
import contextlib, os, sys
from importlib import import_module
from pathlib import Path
from jaxrecall.sweep.store import Store

def call(module, words, code=0):
    main = import_module(f"jaxrecall.{module}").main
    with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(open(os.devnull, "w")):
        try:
            assert main(words.split()) == code, words
        except SystemExit as stop:
            assert stop.code == code

out = "results/tiny"
assert len(Store(out).last_values()[0][%d, "highest"]) == 8
call("status", out)
call("compact", "--help")
call("compact", "nowhere", 2)
assert not {"pandas", "jax", "ray"} & {*sys.modules}
call("sweep.__main__", "--help")
call("sweep.__main__", "--print-schema")
call("sweep.__main__", "--grid absent.yaml", 2)
call("sweep.__main__", "--grid tiny.yaml --set base.V=-1", 2)
call("sweep.__main__", "--grid tiny.yaml --dry-run --json")
call("sweep.__main__", "--grid tiny.yaml --set seeds=3 --dry-run")
call("sweep.__main__", "--grid tiny.yaml")  # has nothing to do
call("compact", out)
call("fit", out)
call("theory.__main__", "V=32 d=48 L=1")
import jaxrecall
assert callable(jaxrecall.plot.figure)
assert len(jaxrecall.load(out + "/table.parquet")) == 8
import jaxrecall.sweep.running as running
for path in Path(running.__file__).parent.glob("*.py"):
    import_module(f"{running.__name__}.{path.stem}")
assert not {"jax", "ray", "submitit"} & {*sys.modules}
"""  # noqa: E501


@pytest.mark.usefixtures("swept")
def test_what_needs_no_jax_does_not_start_it():
    process("-c", JAX_FREE % CODE_VERSION, folder=Path())


FAILING_LAW = """
import numpy as np
from dataclasses import dataclass
from jaxrecall.model.laws import EmbeddingLaw
from jaxrecall.model.values import parameter

@dataclass(frozen=True)
class Failing(EmbeddingLaw):
    p: float = parameter(0.0, "any number", low=0.0, high=1.0)

    def rows(self, draws, xp):
        if xp is not np:
            raise RuntimeError("only rows of NumPy")
        return draws.normals
"""

TWO_LAWS = """
name: laws
base: {V: 16, N: 64, L: 4, d: 8, n_test: 64, exact: full}
seeds: 1
blocks:
  - axes: {N: [32, 64]}
  - axes: {N: [32, 64], embedding: equicorrelated, embedding.rho: [0.1, 0.3]}
  - axes: {embedding: "failing:Failing", embedding.p: [0.1, 0.3]}
"""


# the names of its lines leave a small figure no room
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
@pytest.mark.usefixtures("grid", "with_figures")
def test_parameters_of_laws_are_axes_if_runs_with_the_law_have_finished(capsys):
    Path("failing.py").write_text(FAILING_LAW)
    Path("tiny.yaml").write_text(TWO_LAWS)
    assert sweep() == 3
    out, err = capsys.readouterr()
    table = out.partition("one column per")[2]
    for word in ("gaussian", "equicorrelated(rho=0.1)", "equicorrelated(rho=0.3)"):
        assert word in table
    assert "figure:  results/laws/accuracy.png" in table
    assert "the figure could not be made" not in err
