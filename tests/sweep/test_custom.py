"""Simulators of one's own: swept, resumed, searched, fitted and drawn as ours, by this
process and by others; and what becomes of runs that fail. The words of refusals are in
tests/refusals/simulators.yaml.
"""

import json
import linecache
import re
import runpy
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import ROOT, combinations
from pandas.testing import assert_frame_equal
from tolerances import assert_close, assert_same_columns

import jaxrecall
from jaxrecall.errors import StoreError, UsageError
from jaxrecall.simulator import custom_runs
from jaxrecall.status import main as status
from jaxrecall.sweep.__main__ import main

EXAMPLE = ROOT / "examples/perceptron.py"

COLUMNS = {"accuracy": (float, "fraction"), "count": (int, "a whole number")}
KINDS = ("plain", "fails", "nan", "lacks")
FIELDS = {
    "x": (float, None, 0.0, 10.0, "traced"),
    "n": (int, 4, 1, 100, "traced"),
    "kind": (str, "plain", KINDS, None, "static"),
    "on": (bool, True, None, None, "traced"),
}


@jax.jit
def share(x, on, key):
    """A logistic curve in ln x, with noise of each seed."""
    noise = jax.random.normal(key, (8,)).mean()
    return jnp.where(on, jax.nn.sigmoid(3 * jnp.log(x) + 0.3 * noise), 0.0)


def curve(point, key):
    """`kind` asks for faults."""
    if point.kind == "fails":
        raise RuntimeError("this one fails")
    if point.kind == "lacks":
        return {"accuracy": 0.0}
    accuracy = np.nan if point.kind == "nan" else share(point.x, point.on, key)
    return {"accuracy": accuracy, "count": 2 * point.n}


def made(fn, **options):
    return jaxrecall.Simulator(fn, FIELDS, COLUMNS, accuracy="accuracy", **options)


compiled = made(curve)
plain = made(curve, jit=False)
GRID = {
    "seeds": 3,
    "base": {"n": 5},
    "blocks": [{"axes": {"x": [0.5, 1.0, 2.0]}}],
}


@pytest.fixture(autouse=True)
def folder(cwd, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return cwd


def run(simulator=compiled, grid=GRID, **options) -> pd.DataFrame:
    return jaxrecall.run(grid, simulator=simulator, progress=False, **options)


def axes(**values) -> dict:
    return {"base": {"x": 1.0}, "blocks": [{"axes": values}]}


def parts(out="out") -> set[Path]:
    return {*Path(out, "parts").iterdir()}


def test_a_function_is_traced_once_for_each_combination_of_static_fields():
    """And its programs are released if they were not used lately: Linux gives a process
    memory maps for some hundred of them.
    """
    kinds = []

    def counted(point, key):
        kinds.append(point.kind)
        return {"accuracy": 0.5, "count": point.n}

    simulator = made(counted)
    for _ in range(2):
        assert len(run(simulator, axes(n=[1, 2], kind=["plain", "nan"]), seeds=9)) == 36
    assert sorted(kinds) == ["nan", "plain"]
    assert (
        custom_runs.compile_simulator.cache_info().maxsize
        == custom_runs.MAX_PROGRAMS
        < 100
    )


def test_rows_have_the_fields_the_columns_and_where_they_come_from():
    rows = run()
    fields = ["root_seed", *FIELDS, "streams"]
    assert rows.attrs == {
        "axes": ["x"],
        "accuracy": "accuracy",
        "simulator": "test_custom:compiled",
        "fields": fields,
        "labels": {"accuracy": "fraction", "count": "a whole number"},
    }
    expected = ["point_id", "seed", *fields, *COLUMNS, "step", "steps", "status"]
    assert list(rows.columns[: len(expected)]) == expected
    of_all = {"status": "ok", "code_version": 1, "count": 10, "on": True}
    of_all["simulator"] = "test_custom:compiled"
    assert (rows[[*of_all]] == pd.Series(of_all)).all(axis=None)
    assert rows["accuracy"].between(0, 1).all()
    assert rows["point_id"].nunique() == 3


def test_compiled_and_plain_python_give_the_same_numbers():
    together, one_by_one = run(), run(plain)
    assert_same_columns(together, one_by_one, ["x", "seed", *COLUMNS])
    # the name of the simulator enters the id
    assert {*together["point_id"]}.isdisjoint(one_by_one["point_id"])


def test_keys_are_common_to_all_points_unless_they_are_independent():
    def accuracies(**more):
        grid = axes(n=[1, 2])
        rows = run(grid=grid | {"base": grid["base"] | more}, seeds=3)
        return rows.pivot(index="seed", columns="n", values="accuracy")

    common, independent = accuracies(), accuracies(streams="independent")
    assert (common[1] == common[2]).all()
    assert common[1].nunique() == 3
    assert (independent[1] != independent[2]).all()
    of_root = run(grid=GRID | {"root_seed": 1})
    assert (of_root["accuracy"] != run()["accuracy"]).any()


def test_version_and_name_enter_the_id_and_one_folder_holds_one_simulator():
    rows = run(out="out")
    assert_frame_equal(jaxrecall.load("out"), rows)
    assert jaxrecall.load("out").attrs == rows.attrs
    newer = made(curve, version=2)
    newer.name = compiled.name
    assert {*run(newer)["point_id"]}.isdisjoint(rows["point_id"])
    point = jaxrecall.Point(V=8, N=8, d=4, L=2)
    for call, told in (
        (lambda: run(newer, out="out"), "holds 9 runs of code_version 1"),
        (
            lambda: run(plain, out="out"),
            "would add rows of test_custom:plain",
        ),
        (lambda: jaxrecall.run(point, out="out"), "would add rows of jaxrecall"),
    ):
        with pytest.raises(StoreError, match=told):
            call()
    run(plain, out="plain")
    with pytest.raises(StoreError, match="they are of the simulators test_custom:comp"):
        jaxrecall.load(["out", "plain"])


def test_only_what_is_missing_runs():
    run(out="out")
    before = parts()
    run(out="out")
    assert parts() == before
    assert len(run(grid=GRID | {"seeds": 5}, out="out")) == 15
    assert before < parts()
    named = GRID | {"simulator": "test_custom:compiled"}
    assert jaxrecall.load("out", grid=named)["seed"].max() == 2


@pytest.mark.filterwarnings("ignore:note. out also holds")
def test_an_accuracy_that_is_not_finite_is_a_row_with_a_status_of_its_own():
    with pytest.warns(UserWarning, match="3 of 6 rows have the status nonfinite"):
        rows = run(grid=axes(kind=["plain", "nan"]), seeds=3, out="out")
    found = rows.groupby("kind")["status"].agg(set).to_dict()
    assert found == {"nan": {"nonfinite"}, "plain": {"ok"}}
    assert rows.loc[rows["kind"] == "nan", "accuracy"].isna().all()
    assert (rows["count"] == 8).all(), "of the others nothing is lost"
    before = parts()
    run(grid=axes(kind=["plain"]), seeds=3, out="out")
    assert parts() == before


@pytest.mark.parametrize("simulator", [compiled, plain], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fails", "this one fails"),
        ("lacks", "the simulator returned the columns accuracy; allowed: a dict with"),
    ],
)
def test_an_exception_is_a_failed_run_with_its_traceback(simulator, kind, message):
    with pytest.raises(jaxrecall.RunFailed, match=message) as failed:
        run(simulator, axes(kind=["plain", kind]), seeds=3, out="out")
    assert list(failed.value.rows["kind"]) == ["plain"] * 3
    assert "static" not in str(failed.value)
    (path,) = Path("out/failures").iterdir()
    record = json.loads(path.read_text())
    assert message in record["error"]
    assert "Traceback" in record["traceback"]
    assert kind != "fails" or "in curve" in record["traceback"]


def test_what_other_processes_cannot_import_is_refused_before_the_start(folder, capsys):
    with pytest.raises(UsageError, match="cannot be imported by other"):
        run(made(curve), out="out", workers=2)
    assert not (folder / "out").exists()
    made_here = (
        "import jaxrecall\nsimulator = jaxrecall.Simulator(lambda p, k: {'a': p.x},"
        " {'x': (float, 1.0, 0, 1, 'traced')}, {'a': (float, '')}, 'a', jit=False)\n"
        "for workers in (1, 2):\n    print(len(jaxrecall.run({'base': {'x': 1}},"
        " simulator=simulator, progress=False, workers=workers)))\n"
    )
    Path("own.py").write_text(made_here)
    with pytest.raises(UsageError, match="own:simulator cannot be imported"):
        runpy.run_path("own.py", run_name="__main__")
    assert capsys.readouterr().out == "1\n"


@pytest.mark.usefixtures("with_figures")
def test_a_grid_file_names_it_and_the_command_line_sweeps_it(folder, capsys):
    """In the folder of the grid file, which is not the current one, and of which this
    process knows nothing else. `status` needs no module.
    """

    def sweep(*options):
        code = main(["--grid", "there/grid.yaml", "--out", "out", *options])
        return code, "".join(capsys.readouterr())

    grid = "name: mine\nsimulator: mine:simulator\nseeds: 2\n"
    grid += "blocks: [{axes: {d: [8], N: [16, 64]}}]\n"
    Path("there").mkdir()
    Path("there/grid.yaml").write_text(grid)
    Path("there/mine.py").write_text(EXAMPLE.read_text())
    for options, code, told in (
        (["--dry-run"], 0, "2 points x 2 seeds = 4 runs"),
        ([], 0, "figure:  out/accuracy.png"),
        ([], 0, "nothing to do: all 4 runs are in out"),
        (["--set", "simulator=nothing:here"], 2, "nothing:here"),
    ):
        result, printed = sweep(*options)
        assert result == code
        assert told in printed
    Path("there/mine.py").unlink()
    del sys.modules["mine"]
    assert status(["out"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("mine: 2 points, 4 runs in out\n4 done, 0 to do\n")
    assert "mine" not in sys.modules


def test_the_example_is_searched_and_the_search_resumed():
    import perceptron

    search = {"axis": "N", "theta": 0.8, "from": 16, "to": 4096, "width": 0.25}
    grid = {"root_seed": 1, "search": search, "blocks": [{"axes": {"d": [8, 16]}}]}
    rows = run(perceptron.simulator, grid, seeds=200, out="searched")
    cells = jaxrecall.thresholds(rows)
    assert list(cells["outcome"]) == ["found", "found"]
    # the number of samples grows as d
    assert 1.6 < cells["N_star"][1] / cells["N_star"][0] < 2.7
    assert rows.attrs["axes"] == ["d", "N"]
    assert_frame_equal(jaxrecall.thresholds("searched"), cells)
    again = run(perceptron.simulator, grid, seeds=200, out="searched")
    assert_frame_equal(again, rows)


def test_a_simulator_says_where_its_accuracy_falls():
    """Without `rises` the search warns; with it, it finds the crossing."""

    def falls(point, key):
        return {"accuracy": 1 / (1 + (point.x / 2) ** 3), "count": 1}

    search = {"search": {"axis": "x", "from": 0.125, "to": 10}}
    found, warned = (
        jaxrecall.thresholds(run(made(falls, rises=rises, jit=False), search, seeds=24))
        for rises in ({"x": False}, None)
    )
    assert_close(found["critical"][0], 2, 0.2)
    assert found["samples"].isna().all()
    assert "try rises: false" in warned["warning"][0]


# many runs that fail alike

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
FLOOD_GRID = """
simulator: flood_of_failures:{0}
name: {0}
seeds: 20
blocks: [{{axes: {{x: {{range: {{from: 1, to: 100, step: 1}}}}}}}}]
"""


@pytest.fixture(scope="module")
def module_of_failures(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("flood") / "flood_of_failures.py"
    path.write_text(FLOOD)
    return path


@pytest.fixture
def flood(module_of_failures, monkeypatch):
    """How a line ends that tells where a simulator of the module raises. There is a
    grid file for each simulator.
    """
    monkeypatch.syspath_prepend(str(module_of_failures.parent))
    for simulator in ("wrong", "called", "traced"):
        Path(f"{simulator}.yaml").write_text(FLOOD_GRID.format(simulator))
    code = 'line 8, in raises: return {"accuracy": point.absent}'
    return f"no attribute 'absent' (File \"{module_of_failures}\", {code})"


@pytest.mark.parametrize(
    ("simulator", "ran"), [("wrong", 100), ("called", 100), ("traced", 2000)]
)
def test_an_error_of_every_run_is_a_line_with_a_count_and_a_file(
    flood, capsys, simulator, ran
):
    error = ": the simulator returned " if simulator == "wrong" else flood
    grid, out = f"{simulator}.yaml", f"results/{simulator}"
    for _ in range(2):
        assert main(["--grid", grid]) == 3
        said = capsys.readouterr().err.splitlines()
        assert len(said) <= 4
        assert error in said[0]
        assert any(f"{ran} runs failed" in line for line in said[1:])
        progress = re.sub("compiled .*?, ", "", said[-2])
        assert f"0/2000 runs, 0 %, {ran} failed" in progress
        assert ("--keep-going runs them, too" in said[-1]) == (ran < 2000)
        assert len([*Path(out, "failures").iterdir()]) == 1, "the second replaces it"
    assert status([out]) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"failed: {ran} runs, {ran} of them missing: " in told[2]
    assert len(told) == 5
    assert status([out, "--json"]) == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["runs"], failure["missing"]) == (ran, ran)


def test_keep_going_runs_all_and_events_are_few(flood, capsys):
    assert main(["--grid", "wrong.yaml", "--json-log", "--keep-going"]) == 3
    events = [*map(json.loads, capsys.readouterr().out.splitlines())]
    failed = [event["runs"] for event in events if event["event"] == "failed"]
    assert failed == [8, 2000]
    assert (events[-1]["event"], events[-1]["failed"]) == ("done", 2000)
    (path,) = Path("results/wrong/failures").iterdir()
    runs = json.loads(path.read_text())["runs"]
    assert sum(map(len, runs.values())) == 2000
    with pytest.raises(SystemExit):
        main(["--grid", "wrong.yaml", "--fail-fast", "--keep-going"])
    assert "not allowed with argument --fail-fast" in capsys.readouterr().err


def test_a_search_whose_runs_all_fail_ends_early(flood, capsys):
    grid = {
        "simulator": "flood_of_failures:wrong",
        "seeds": 20,
        "blocks": [{"axes": {"cell": [*range(150)]}}],
        "search": {"axis": "x", "from": 1, "to": 1000},
    }
    Path("cells.yaml").write_text(yaml.safe_dump(grid))
    assert main(["--grid", "cells.yaml"]) == 3
    assert "--keep-going runs them, too" in capsys.readouterr().err.splitlines()[-1]
    assert len([*Path("results/cells/failures").iterdir()]) == 1


@pytest.mark.system
def test_workers_tell_an_error_of_every_run_once(flood, capsys):
    for simulator in ("wrong", "traced"):
        assert main(["--grid", f"{simulator}.yaml", "--workers", "2"]) == 3
        said = capsys.readouterr().err
        assert "another one takes" not in said
        assert len(said.splitlines()) <= 5
        assert len([*Path("results", simulator, "failures").iterdir()]) == 1


@pytest.mark.parametrize("out", [None, "out"])
def test_python_shows_the_line_of_the_simulator_that_raises(flood, out):
    with pytest.raises(jaxrecall.RunFailed) as failed:
        jaxrecall.run("called.yaml", seeds=2, out=out, progress=False)
    told = str(failed.value)
    assert flood in told
    assert "keep_going=True runs them, too" in told
    assert len(told.splitlines()) == 3
    with pytest.raises(jaxrecall.RunFailed, match=r"\n200 runs failed, "):
        jaxrecall.run("called.yaml", seeds=2, keep_going=True)


def test_one_run_that_succeeds_keeps_the_others_running():
    def mostly(point, key):
        return {"accuracy": 0.5 if point.x == 1 else 55.0, "count": 1}

    with pytest.raises(jaxrecall.RunFailed, match=r"\n200 runs failed, ") as failed:
        run(made(mostly, jit=False), axes(x=[1.0, 2.0, 3.0]), seeds=100)
    assert len(failed.value.rows) == 100


def test_errors_that_differ_in_more_than_numbers_are_told_apart_up_to_a_limit():
    def odd(point, key):
        names = "abcdefghijklmnopqrstuvwxyz."
        raise ValueError(f"{names[point.n]} of {point.point_id}, {point.n}")

    for n_values, n_lines in ((3, 4), (26, 22)):
        grid, out = axes(n=[*range(1, 1 + n_values)]), f"out{n_values}"
        with pytest.raises(jaxrecall.RunFailed) as failed:
            run(made(odd, jit=False), grid, seeds=2, out=out)
        assert len(str(failed.value).splitlines()) == n_lines
        assert len([*Path(out, "failures").iterdir()]) == n_lines - 1


NEEDS_VALUE = {
    "x": lambda point: 1.0 if point.x > 1 else np.exp(point.x),
    "n": lambda point: jnp.ones(8)[: point.n].mean(),
}


@pytest.mark.parametrize("name", NEEDS_VALUE)
def test_a_traced_field_whose_value_python_needs_is_told_to_be_static(name):
    needs_value = NEEDS_VALUE[name]
    simulator = made(lambda point, key: {"accuracy": needs_value(point), "count": 0})
    with pytest.raises(jaxrecall.RunFailed) as failed:
        run(simulator, {"base": {"x": 1}})
    (line,) = str(failed.value).splitlines()[1:]
    assert f"static={('kind', name)}" in line
    assert 'test_custom.py", line' in line


# the source of a simulator

SOURCE = """
from functools import partial
import jaxrecall

{comment}
def run(point, key):
    return {{"accuracy": {value}}}

class Callable:
    def method(self, point, key):
        return {{"accuracy": {value}}}

    __call__ = method

columns = {{"accuracy": (float, "a")}}
ways = {{
    "function": run,
    "lambda": lambda point, key: {{"accuracy": {value}}},
    "partial": partial(run),
    "method": Callable().method,
    "callable": Callable(),
}}
simulator = jaxrecall.Simulator(
    ways["{way}"], {{}}, columns, "accuracy", {version}, jit=False
)
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
        run(module.simulator, {}, seeds=seeds, out=out)
        return jaxrecall.load(out)["seed"].nunique()

    assert seeds_in("out", 1) == 1
    assert seeds_in("out", 2, comment="# elsewhere in the module") == 2
    message = "out: holds rows of changing:simulator, version 1, from other source than"
    with pytest.raises(StoreError, match=message):
        seeds_in("out", 3, value=0.75)
    with pytest.raises(StoreError, match="holds 2 runs of code_version 1, precision"):
        seeds_in("out", 3, value=0.75, version=2)
    assert seeds_in("other", 1, value=0.75) == 1
    assert seeds_in("out", 3) == 3


def test_with_jax_debug_nans_only_the_run_with_the_nan_fails():
    def log(point, key):
        return {"accuracy": jnp.log(point.x), "count": 1}

    fields = {"x": (float, None, -1, 2, "traced")}
    simulator = jaxrecall.Simulator(log, fields, COLUMNS, accuracy="accuracy")
    grid = {"blocks": [{"axes": {"x": [-1, 1, 1.5, 2]}}], "seeds": 1}
    told = pytest.raises(jaxrecall.RunFailed, match="JAX_DEBUG_NANS or")
    with jax.debug_nans(True), told as failed:
        jaxrecall.run(grid, simulator=simulator, progress=False)
    assert sorted(failed.value.rows["x"]) == [1, 1.5, 2]
