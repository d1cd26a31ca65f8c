"""Simulators of one's own: swept, resumed, searched, fitted and drawn as ours, by this
process and by others; and what is refused.
"""

import inspect
import json
import linecache
import math
import re
import runpy
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from helpers import ROOT, combinations, python
from pandas.testing import assert_frame_equal

import jaxrecall
from jaxrecall.errors import GridError, StoreError, UsageError
from jaxrecall.status import main as status
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.simulators.custom import RESERVED
from jaxrecall.sweep.store.table import about, with_about

pytestmark = pytest.mark.skipif(
    "simulator" not in inspect.signature(as_grid).parameters,
    reason="grids take no simulator yet",
)

EXAMPLE = ROOT / "examples/perceptron.py"

COLUMNS = {"accuracy": (float, "fraction"), "count": (int, "a whole number")}
FIELDS = {
    "x": (float, None, 0.0, 10.0, "traced"),
    "n": (int, 4, 1, 100, "traced"),
    "size": (int, 8, 1, None, "static"),
    "kind": (str, "plain", ("plain", "fails", "nan", "shape", "lacks"), None, "static"),
    "on": (bool, True, None, None, "traced"),
}


def curve(point, key):
    """A logistic curve in x with noise of each seed; `kind` asks for faults."""
    if point.kind == "fails":
        raise RuntimeError("this one fails")
    noise = jax.random.normal(key, (point.size,)).mean()
    accuracy = jax.nn.sigmoid(3 * jnp.log(point.x) + 0.3 * noise) + (
        jnp.nan if point.kind == "nan" else 0.0
    )
    found = {"accuracy": jnp.where(point.on, accuracy, 0.0), "count": 2 * point.n}
    return {"lacks": {"accuracy": 0.0}, "shape": found | {"count": noise[None]}}.get(
        point.kind, found
    )


compiled = jaxrecall.Simulator(curve, FIELDS, COLUMNS, accuracy="accuracy")
plain = jaxrecall.Simulator(curve, FIELDS, COLUMNS, accuracy="accuracy", jit=False)
GRID = {
    "name": "tiny",
    "seeds": 3,
    "base": {"n": 5},
    "blocks": [{"axes": {"x": [0.5, 1.0, 2.0]}}],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return tmp_path


def run(simulator=compiled, grid=GRID, **options) -> pd.DataFrame:
    return jaxrecall.run(grid, simulator=simulator, progress=False, **options)


def test_programs_that_were_not_used_lately_are_released():
    """A grid may have any number of static values; Linux gives a process memory maps
    for some hundred programs.
    """
    from jaxrecall.simulator import custom_runs

    assert custom_runs.compiled.cache_info().maxsize == custom_runs.MAX_PROGRAMS < 100
    before = custom_runs.compiled.cache_info().misses
    grid = {"base": {"x": 1.0}, "blocks": [{"axes": {"size": [2, 3, 4, 5]}}]}
    for _ in range(2):
        assert (
            len(jaxrecall.run(grid, seeds=2, simulator=compiled, progress=False)) == 8
        )
    assert custom_runs.compiled.cache_info().misses == before + 4, (
        "a second call compiles nothing"
    )


def test_rows_have_the_fields_the_columns_and_where_they_come_from():
    rows = run()
    assert rows.attrs == {
        "axes": ["x"],
        "accuracy": "accuracy",
        "simulator": "test_custom:compiled",
        "fields": ["root_seed", *FIELDS, "streams"],
        "labels": {"accuracy": "fraction", "count": "a whole number"},
    }
    assert list(rows.columns[:9]) == [
        "point_id",
        "seed",
        "root_seed",
        *FIELDS,
        "streams",
    ]
    assert list(rows.columns[9:14]) == ["accuracy", "count", "step", "steps", "status"]
    assert {
        name: set(rows[name])
        for name in ("status", "simulator", "code_version", "count", "on")
    } == {
        "status": {"ok"},
        "simulator": {"test_custom:compiled"},
        "code_version": {1},
        "count": {10},
        "on": {True},
    }
    assert rows["accuracy"].between(0, 1).all()
    assert rows["point_id"].nunique() == 3


def test_compiled_and_plain_python_give_the_same_numbers():
    together, one_by_one = run(), run(plain)
    np.testing.assert_allclose(together["accuracy"], one_by_one["accuracy"], rtol=1e-6)
    assert set(together["point_id"]).isdisjoint(one_by_one["point_id"]), (
        "the name of the simulator enters the id"
    )


def test_keys_are_common_to_all_points_unless_they_are_independent():
    grid = GRID | {"base": {"x": 1.0}, "blocks": [{"axes": {"n": [1, 2]}}]}
    common = run(grid=grid).pivot(index="seed", columns="n", values="accuracy")
    assert (common[1] == common[2]).all()
    assert common[1].nunique() == 3
    own = run(grid=grid | {"base": {"x": 1.0, "streams": "independent"}}).pivot(
        index="seed", columns="n", values="accuracy"
    )
    assert (own[1] != own[2]).all()
    assert (
        run(grid=grid | {"root_seed": 1})["accuracy"] != run(grid=grid)["accuracy"]
    ).any()


def test_version_and_name_enter_the_id_and_one_folder_holds_one_simulator():
    rows = run(out="out")
    assert_frame_equal(jaxrecall.load("out"), rows)
    assert jaxrecall.load("out").attrs == rows.attrs
    newer = jaxrecall.Simulator(curve, FIELDS, COLUMNS, accuracy="accuracy", version=2)
    newer.name = compiled.name
    assert set(run(newer)["point_id"]).isdisjoint(rows["point_id"])
    with pytest.raises(
        StoreError,
        match=(
            "holds 9 runs of code_version 1, precision highest; this call would add"
            " code_version 2"
        ),
    ):
        run(newer, out="out")
    with pytest.raises(
        StoreError,
        match=(
            "holds rows of the simulator test_custom:compiled; this call would add rows"
            " of test_custom:plain"
        ),
    ):
        run(plain, out="out")
    with pytest.raises(
        StoreError,
        match=(
            "holds rows of the simulator test_custom:compiled; this call would add rows"
            " of jaxrecall"
        ),
    ):
        jaxrecall.run(jaxrecall.Point(V=8, N=8, d=4, L=2), out="out")
    run(plain, out="plain")
    with pytest.raises(
        StoreError,
        match=(
            "they are of the simulators test_custom:compiled, test_custom:plain; read"
            " those of one"
        ),
    ):
        jaxrecall.load(["out", "plain"])


def test_only_what_is_missing_runs():
    run(out="out")
    parts = set(Path("out/parts").iterdir())
    run(out="out")
    assert set(Path("out/parts").iterdir()) == parts
    more = run(grid=GRID | {"seeds": 5}, out="out")
    assert len(more) == 15
    assert parts < set(Path("out/parts").iterdir())
    assert (
        jaxrecall.load("out", grid=GRID | {"simulator": "test_custom:compiled"})[
            "seed"
        ].max()
        == 2
    )


@pytest.mark.filterwarnings("ignore:note. out also holds")
def test_numbers_that_are_not_finite_are_a_row():
    with pytest.warns(
        UserWarning,
        match="3 of 6 rows have the status nonfinite: accuracy is not finite, and null",
    ):
        rows = run(
            grid=GRID | {"blocks": [{"axes": {"x": [1.0], "kind": ["plain", "nan"]}}]},
            out="out",
        )
    assert rows.groupby("kind")["status"].agg(set).to_dict() == {
        "nan": {"nonfinite"},
        "plain": {"ok"},
    }
    assert rows.loc[rows["kind"] == "nan", "accuracy"].isna().all()
    assert (rows["count"] == 10).all(), "of the others nothing is lost"
    # the rest is there
    run(grid=GRID | {"blocks": [{"axes": {"x": [1.0], "kind": ["plain"]}}]}, out="out")


@pytest.mark.parametrize("simulator", [compiled, plain], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fails", "this one fails"),
        (
            "lacks",
            (
                "the simulator returned the columns accuracy; allowed: a dict with the"
                " columns accuracy, count"
            ),
        ),
    ],
)
def test_an_exception_is_a_failed_run_with_its_traceback(simulator, kind, message):
    grid = GRID | {"blocks": [{"axes": {"x": [1.0], "kind": ["plain", kind]}}]}
    with pytest.raises(jaxrecall.RunFailed) as failed:
        run(simulator, grid, out="out")
    assert list(failed.value.rows["kind"]) == ["plain"] * 3
    assert message in str(failed.value)
    record = json.loads(next(Path("out/failures").iterdir()).read_text())
    assert message in record["error"]
    assert "Traceback" in record["traceback"]
    assert kind != "fails" or "in curve" in record["traceback"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"fields": FIELDS | {"seed": (int, 0, 0, 1, "static")}},
            "fields.seed: is reserved for the sweep; choose another name",
        ),
        ({"columns": COLUMNS | {"status": (int, "no")}}, "columns.status: is reserved"),
        ({"columns": COLUMNS | {"x": (int, "no")}}, "columns.x: is a field, too"),
        (
            {"fields": FIELDS | {"replace": (int, 0, 0, 1, "static")}},
            "fields.replace: is reserved",
        ),
        (
            {"fields": {"x": (float, 1.0)}},
            "fields.x: got .*; allowed: .type, default, low, high",
        ),
        (
            {"fields": {"x": (str, "a", None, None, "static")}},
            "a text is static, and has its allowed values in place of low",
        ),
        (
            {"accuracy": "loss"},
            "accuracy: got 'loss'; allowed: a column of numbers: accuracy, count",
        ),
        ({"version": 0}, "version: got 0; allowed: whole numbers from 1"),
        ({"fn": 3}, "fn: got 3; allowed: a function"),
        (
            {"fields": {"x": (float, 1.0, "0", 2.0, "traced")}},
            "fields.x: got the limits '0' and 2.0; allowed: two numbers",
        ),
        (
            {"fields": {"x": (int, 1, 2, 0, "static")}},
            (
                "fields.x: got the limits 2 and 0; allowed: two numbers, the lower"
                " first, or None"
            ),
        ),
        (
            {"fields": {"x": (float, 1.0, math.nan, None, "static")}},
            "fields.x: got the limits nan and None",
        ),
        (
            {"fields": {"x": (int, 0, 1, 9, "traced")}},
            "fields.x: default: got 0; allowed: whole numbers from 1 to 9",
        ),
        (
            {"fields": {"x": (int, 1.5, None, None, "static")}},
            "fields.x: default: got 1.5; allowed: whole numbers",
        ),
        (
            {"fields": {"x": (str, "c", ("a", "b"), None, "static")}},
            "fields.x: default: got 'c'; allowed: a, b",
        ),
        (
            {"fields": {"x": (bool, 1, None, None, "static")}},
            "fields.x: default: got 1; allowed: true, false",
        ),
    ],
)
def test_what_is_no_simulator_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        jaxrecall.Simulator(
            **{
                "fn": curve,
                "fields": FIELDS,
                "columns": COLUMNS,
                "accuracy": "accuracy",
                **arguments,
            }
        )
    assert {
        "point_id",
        "seed",
        "step",
        "status",
        "code_version",
        "root_seed",
        "streams",
    } <= {*RESERVED}


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ({"y": 1}, "base.y"),
        ({"x": 11.0}, "base.x: got 11.0; allowed: finite numbers from 0 to 10"),
        ({"x": 1.0, "kind": "plane"}, "base.kind: got 'plane'; did you mean plain"),
        ({"x": 1.0, "V": 64}, "base.V"),
        ({}, "x is given nowhere"),
    ],
)
def test_a_grid_is_checked_by_the_fields(base, message):
    with pytest.raises(GridError, match=message):
        run(grid={"base": base})


def test_what_other_processes_cannot_import_is_refused_before_the_start(folder, capsys):
    local = jaxrecall.Simulator(curve, FIELDS, COLUMNS, accuracy="accuracy")
    with pytest.raises(
        UsageError,
        match=(
            r"is no variable of its module, so other processes cannot import it; .* one"
            r" process"
        ),
    ):
        run(local, out="out", workers=2)
    script = folder / "own.py"
    made = (
        "sim = jaxrecall.Simulator(lambda p, k: {'a': p.x}, {'x': (float, 1.0, 0, 1,"
        " 'traced')}, {'a': (float, '')}, accuracy='a')\n"
    )
    calls = (
        "for workers in (1, 2):\n    print(len(jaxrecall.run({'base': {'x': 1}},"
        " simulator=sim, progress=False, workers=workers)))\n"
    )
    script.write_text(f"import jaxrecall\n{made}{calls}")
    with pytest.raises(
        UsageError,
        match=(
            "simulator: own:sim is made in __main__, which other processes cannot"
            " import; put it into a module"
        ),
    ):
        runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == "1\n"
    assert not (folder / "out").exists()


@pytest.mark.usefixtures("with_figures")
def test_a_grid_file_names_it_and_the_command_line_sweeps_it(folder, capsys):
    """In the folder of the grid file, which is not the current one, and of which this
    process knows nothing else.
    """
    there = folder / "there"
    there.mkdir()
    (there / "mine.py").write_text(EXAMPLE.read_text())
    grid = {
        "simulator": "mine:simulator",
        "seeds": 2,
        "blocks": [{"axes": {"d": [8], "N": [16, 64]}}],
    }
    (there / "grid.yaml").write_text(yaml.safe_dump(grid))
    assert main(["--grid", "there/grid.yaml", "--dry-run"]) == 0
    assert "2 points x 2 seeds = 4 runs" in capsys.readouterr().out
    assert main(["--grid", "there/grid.yaml", "--out", "out"]) == 0
    assert "figure:  out/accuracy.png" in capsys.readouterr().out
    assert main(["--grid", "there/grid.yaml", "--out", "out"]) == 0
    assert "nothing to do: all 4 runs are in out" in capsys.readouterr().out
    assert status(["out"]) == 0
    assert "2 points, 4 runs in out\n4 done, 0 to do" in capsys.readouterr().out
    assert (
        main(
            [
                "--grid",
                "there/grid.yaml",
                "--out",
                "out",
                "--set",
                "simulator=nothing:here",
            ]
        )
        == 2
    )
    assert "nothing:here" in capsys.readouterr().err


def test_status_counts_without_the_module_of_the_simulator(folder, monkeypatch, capsys):
    there = folder / "there"
    there.mkdir()
    (there / "gone.py").write_text(EXAMPLE.read_text())
    grid = {
        "name": "mine",
        "simulator": "gone:simulator",
        "seeds": 2,
        "blocks": [{"axes": {"d": [8], "N": [16, 64]}}],
    }
    (there / "grid.yaml").write_text(yaml.safe_dump(grid))
    assert main(["--grid", "there/grid.yaml", "--out", "out"]) == 0
    (there / "gone.py").unlink()
    monkeypatch.delitem(sys.modules, "gone")
    capsys.readouterr()
    assert status(["out"]) == 0
    assert capsys.readouterr().out.startswith(
        "mine: 2 points, 4 runs in out\n4 done, 0 to do\n"
    )
    assert "gone" not in sys.modules


@pytest.mark.system  # starts two processes
def test_workers_give_the_same_rows():
    import perceptron

    grid = perceptron.GRID | {"seeds": 4}
    alone, shared = (
        run(perceptron.simulator, grid, workers=workers) for workers in (1, 2)
    )
    assert_frame_equal(alone.drop(columns="seconds"), shared.drop(columns="seconds"))
    assert len(alone) == 72


def test_search_fit_and_figure_of_the_example():
    import perceptron

    assert len(EXAMPLE.read_text().splitlines()) < 75
    search = {
        "blocks": [{"axes": {"d": [8, 16]}}],
        "search": {"axis": "N", "theta": 0.8, "from": 16, "to": 4096, "width": 0.25},
    }
    search["root_seed"] = 1
    rows = run(perceptron.simulator, search, seeds=200, out="searched")
    found = jaxrecall.thresholds(rows)
    assert list(found["outcome"]) == ["found", "found"]
    assert 1.6 < found["N_star"][1] / found["N_star"][0] < 2.7, (
        "the number of samples grows as d"
    )
    assert rows.attrs["axes"] == ["d", "N"]
    assert_frame_equal(jaxrecall.thresholds("searched"), found)
    again = run(perceptron.simulator, search, seeds=200, out="searched")
    assert_frame_equal(again, rows)


def test_the_code_of_the_page_runs(folder):
    section = (
        (ROOT / "docs/extending.md")
        .read_text()
        .split("\n## A simulator of your own\n")[1]
    )
    [block] = re.findall(r"```python\n(.*?)```", section, re.S)
    (folder / "page.py").write_text(block)
    assert len(runpy.run_path("page.py", run_name="__main__")["df"]) == 48


def test_shards_of_a_grid_are_all_of_it():
    import perceptron

    from jaxrecall.sweep.grid import as_grid
    from jaxrecall.sweep.plan import shares

    grid = as_grid(perceptron.GRID, 4, perceptron.simulator)
    of_share = [
        share for share, _ in shares(grid.points, grid.seeds, 3, perceptron.simulator)
    ]
    assert len(of_share) == 72
    assert [of_share.count(share) for share in range(3)] == [24, 24, 24]


FLOOD = """
import jaxrecall

def out_of_range(point, key):
    return {"accuracy": 55.0 + point.x}

def raises(point, key):
    return {"accuracy": point.absent}

fields = {
    "x": (float, None, 0.0, 1e6, "traced"),
    "cell": (int, 0, 0, 1000, "traced"),
}
columns = {"accuracy": (float, "in percent by mistake")}
wrong = jaxrecall.Simulator(out_of_range, fields, columns, "accuracy")
called = jaxrecall.Simulator(raises, fields, columns, "accuracy", jit=False)
traced = jaxrecall.Simulator(raises, fields, columns, "accuracy")
"""
HUNDRED = {"x": {"range": {"from": 1, "to": 100, "step": 1}}}
RAISED = "AttributeError: '{}' object has no attribute 'absent' (File \"{}\", line 8, in raises: return {{\"accuracy\": point.absent}})"  # noqa: E501


@pytest.fixture
def flood(folder, monkeypatch) -> str:
    """The name of a module whose simulators always fail, with a grid file for each."""
    name = f"flood_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(FLOOD)
    monkeypatch.syspath_prepend(str(folder))
    for simulator in ("wrong", "called", "traced"):
        grid = {
            "name": simulator,
            "simulator": f"{name}:{simulator}",
            "seeds": 20,
            "blocks": [{"axes": HUNDRED}],
        }
        Path(f"{simulator}.yaml").write_text(yaml.safe_dump(grid))
    return name


@pytest.mark.parametrize(
    ("simulator", "ran", "error"),
    [
        ("wrong", 100, "the simulator returned "),
        ("called", 100, RAISED.format("Point", "FILE")),
        ("traced", 2000, RAISED.format("types.SimpleNamespace", "FILE")),
    ],
)
def test_an_error_of_every_run_is_a_line_with_a_count_and_a_file(
    flood, folder, capsys, simulator, ran, error
):
    error = error.replace("FILE", str(folder / f"{flood}.py"))
    grid, out = f"{simulator}.yaml", Path("results", simulator)
    for _ in range(2):
        assert main(["--grid", grid]) == 3
        said = capsys.readouterr().err.splitlines()
        assert len(said) <= 4
        assert f": {error}" in said[0]
        assert any(f"{ran} runs failed" in line for line in said[1:])
        assert f"0/2000 runs, 0 %, {ran} failed" in re.sub(
            "compiled .*?, ", "", said[-2]
        )
        assert ("--keep-going runs them, too" in said[-1]) == (ran < 2000)
        assert len(list((out / "failures").iterdir())) == 1, "the second replaces it"
    assert status([str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"failed: {ran} runs, {ran} of them missing: " in told[2]
    assert len(told) == 5
    assert status([str(out), "--json"]) == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["runs"], failure["missing"]) == (ran, ran)


@pytest.mark.parametrize(
    "needs_value",
    [
        lambda point: 1.0 if point.x > 1 else 0.5,
        lambda point: len(range(point.n)) / 100,
        lambda point: jnp.ones(point.n).mean(),
        lambda point: float(point.x) / 10,
        lambda point: np.exp(-point.x),
    ],
    ids=["if", "range", "shape", "float", "numpy"],
)
def test_a_traced_field_whose_value_python_needs_is_told_to_be_static(needs_value):
    simulator = jaxrecall.Simulator(
        lambda point, key: {"accuracy": needs_value(point), "count": 0},
        FIELDS,
        COLUMNS,
        accuracy="accuracy",
    )
    with pytest.raises(jaxrecall.RunFailed) as failed:
        jaxrecall.run({"base": {"x": 1}}, simulator=simulator, progress=False)
    (line,) = str(failed.value).splitlines()[1:]
    assert "Make the field static whose value Python needs there" in line
    assert 'test_custom.py", line' in line


def test_other_errors_are_not_told_to_be_about_static_fields():
    grid = {"base": {"x": 1, "kind": "fails"}}
    with pytest.raises(jaxrecall.RunFailed) as failed:
        jaxrecall.run(grid, simulator=compiled, progress=False)
    assert "static" not in str(failed.value)


def test_keep_going_runs_all_and_events_are_few(flood, capsys):
    assert main(["--grid", "wrong.yaml", "--json-log", "--keep-going"]) == 3
    events = list(map(json.loads, capsys.readouterr().out.splitlines()))
    failed = [event["runs"] for event in events if event["event"] == "failed"]
    assert failed == [8, 2000]
    assert (events[-1]["event"], events[-1]["failed"]) == ("done", 2000)
    report = json.loads(next(Path("results/wrong/failures").iterdir()).read_text())
    assert sum(map(len, report["runs"].values())) == 2000
    with pytest.raises(SystemExit):
        main(["--grid", "wrong.yaml", "--fail-fast", "--keep-going"])
    assert "not allowed with argument --fail-fast" in capsys.readouterr().err


def test_a_search_whose_runs_all_fail_ends_early(flood, folder, capsys):
    cells = {"search": {"axis": "x", "from": 1, "to": 1000}, "seeds": 20}
    cells["blocks"] = [{"axes": {"cell": list(range(150))}}]
    grid = {"simulator": f"{flood}:wrong", "name": "cells", **cells}
    (folder / "cells.yaml").write_text(yaml.safe_dump(grid))
    assert main(["--grid", "cells.yaml"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert "--keep-going runs them, too" in said[-1]
    assert len(list(Path("results/cells/failures").iterdir())) == 1


@pytest.mark.system
def test_workers_tell_an_error_of_every_run_once(flood, capsys):
    for simulator in ("wrong", "traced"):
        assert main(["--grid", f"{simulator}.yaml", "--workers", "2"]) == 3
        said = capsys.readouterr().err.splitlines()
        assert not [line for line in said if "another one takes" in line]
        assert len(said) <= 5
        assert len(list(Path("results", simulator, "failures").iterdir())) == 1


@pytest.mark.parametrize("out", [None, "out"])
def test_python_shows_the_line_of_the_simulator_that_raises(flood, folder, out):
    with pytest.raises(jaxrecall.RunFailed) as failed:
        run(f"{flood}:called", {"blocks": [{"axes": HUNDRED}]}, seeds=2, out=out)
    told = str(failed.value)
    assert RAISED.format("Point", folder / f"{flood}.py") in told
    assert "keep_going=True runs them, too" in told
    assert len(told.splitlines()) == 3
    with pytest.raises(jaxrecall.RunFailed, match=r"\n200 runs failed, "):
        run(
            f"{flood}:called", {"blocks": [{"axes": HUNDRED}]}, seeds=2, keep_going=True
        )


def test_one_run_that_succeeds_keeps_the_others_running():
    def mostly(point, key):
        return {"accuracy": 0.5 if point.x == 1 else 55.0, "count": 1}

    sometimes = jaxrecall.Simulator(mostly, FIELDS, COLUMNS, "accuracy", jit=False)
    axes = {"x": [1.0, 2.0, 3.0]}
    with pytest.raises(jaxrecall.RunFailed) as failed:
        run(sometimes, {"blocks": [{"axes": axes}]}, seeds=100)
    assert len(failed.value.rows) == 100
    assert str(failed.value).splitlines()[1].startswith("200 runs failed, ")


def test_errors_that_differ_in_more_than_numbers_are_told_apart_up_to_a_limit():
    def odd(point, key):
        names = "abcdefghijklmnopqrstuvwxyz."
        raise ValueError(f"{names[point.n]} of {point.point_id}, {point.n}")

    simulator = jaxrecall.Simulator(odd, FIELDS, COLUMNS, "accuracy", jit=False)
    for n_values, n_lines in ((3, 4), (26, 22)):
        axes = {"n": list(range(1, 1 + n_values))}
        grid = {"base": {"x": 1.0}, "blocks": [{"axes": axes}]}
        with pytest.raises(jaxrecall.RunFailed) as failed:
            run(simulator, grid, seeds=2, out=f"out{n_values}")
        assert len(str(failed.value).splitlines()) == n_lines
        assert len(list(Path(f"out{n_values}/failures").iterdir())) == n_lines - 1


SOURCE = """
from functools import partial
import jaxrecall

{comment}
def run(point, key):
    return {{"accuracy": {value} + 0 * point.x}}

class Callable:
    def method(self, point, key):
        return {{"accuracy": {value} + 0 * point.x}}

    __call__ = method

fields = {{"x": (float, None, 0.0, 100.0, "traced")}}
columns = {{"accuracy": (float, "a")}}
ways = {{
    "function": run,
    "lambda": lambda point, key: {{"accuracy": {value} + 0 * point.x}},
    "partial": partial(run),
    "method": Callable().method,
    "callable": Callable(),
}}
simulator = jaxrecall.Simulator(ways["{way}"], fields, columns, "accuracy", {version})
"""


@pytest.mark.parametrize(
    ("way", "has_source"),
    combinations(
        ["function", "lambda", "partial", "method", "callable"],
        [True, False],
        often=lambda way, has_source: has_source or way == "function",
    ),
)
def test_rows_of_other_source_are_not_added_to(folder, way, has_source):
    def seeds_in(out, seeds, value=0.25, version=1, comment=""):
        text = SOURCE.format(value=value, way=way, version=version, comment=comment)
        path = folder / "changing.py"
        path.write_text(text)
        linecache.checkcache()
        module = types.ModuleType("changing")
        if has_source:
            module.__file__ = str(path)
        sys.modules["changing"] = module
        exec(compile(text, path if has_source else "<text>", "exec"), vars(module))
        grid = {"blocks": [{"axes": {"x": [1]}}]}
        run(module.simulator, grid, seeds=seeds, out=out)
        return jaxrecall.load(out)["seed"].nunique()

    assert seeds_in("out", 1) == 1
    assert seeds_in("out", 2, comment="# elsewhere in the module") == 2
    message = (
        "out: holds rows of changing:simulator, version 1, from other source than it"
        " has now. Undo the change, choose another --out, or move the old rows away."
    )
    with pytest.raises(StoreError, match=message):
        seeds_in("out", 3, value=0.75)
    with pytest.raises(StoreError, match="holds 2 runs of code_version 1, precision"):
        seeds_in("out", 3, value=0.75, version=2)
    assert seeds_in("other", 1, value=0.75) == 1
    assert seeds_in("out", 3) == 3


def test_rows_without_a_record_of_the_source_are_added_to():
    """Earlier versions wrote none."""
    run(out="out", seeds=1)
    (path,) = Path("out/parts").iterdir()
    table = pq.read_table(path)
    facts = about(table)
    assert facts.pop("sources")
    pq.write_table(with_about(table, facts), path)
    run(out="out", seeds=2)
    assert jaxrecall.load("out")["seed"].nunique() == 2


def test_the_source_of_a_function_without_a_file_is_the_same_in_every_process():
    text = """
from jaxrecall.model.laws.law import source_digest
def outer(point, key):
    def inner(x):
        return x + 1
    return inner(point)
print(source_digest(outer))
"""
    code = f"exec(compile({text!r}, '<text>', 'exec'), {{'__name__': 'mine'}})"
    first, second = (python(code).stdout for _ in range(2))
    assert first == second != ""
