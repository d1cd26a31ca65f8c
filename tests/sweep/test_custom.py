"""Simulators of one's own: swept, resumed, searched, fitted and drawn as ours, by this
process and by others; and what is refused.
"""

import inspect
import json
import math
import re
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import ROOT
from pandas.testing import assert_frame_equal

import jaxrecall
from jaxrecall.errors import GridError, StoreError, UsageError
from jaxrecall.status import main as status
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.simulators.custom import RESERVED

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
