"""Functions as simulators: the signature declares the fields, and what the function
returns declares the columns. The words of refusals are in tests/refusals/.
"""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import pytest
from pandas.testing import assert_frame_equal

import jaxrecall
from jaxrecall.errors import GridError, StoreError, UsageError
from jaxrecall.sweep.__main__ import main as sweep

AXES = {"N": [4, 8], "d": range(2, 4), "lam": np.array([0.5, 2])}


def mean(key, *, N, d, lam=1.0, kind: Literal["plain", "odd"] = "plain", on=True):
    x = jax.random.normal(key, (N, d))
    sign = -1 if kind == "odd" or not on else 1
    return {"total": lam * sign * x.sum(), "count": N * 2, "is_large": lam > 1}


def run(fn=mean, axes=AXES, static=("N", "d"), measure="total", **options):
    options = {"seeds": 3, "progress": False} | options
    return jaxrecall.run(fn, axes=axes, static=static, measure=measure, **options)


def assert_same_rows(given, wanted, but=("seconds",)):
    assert_frame_equal(given.drop(columns=[*but]), wanted.drop(columns=[*but]))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_function_has_the_rows_of_its_long_form():
    def of_point(point, key):
        names = ("N", "d", "lam", "kind", "on")
        return mean(key, **{name: getattr(point, name) for name in names})

    fields = {
        "N": (int, None, None, None, "static"),
        "d": (int, None, None, None, "static"),
        "lam": (float, 1.0, None, None, "traced"),
        "kind": (str, "plain", ("plain", "odd"), None, "static"),
        "on": (bool, True, None, None, "static"),
    }
    columns = {"total": (float, ""), "count": (int, ""), "is_large": (bool, "")}
    form = jaxrecall.Simulator(of_point, fields, columns, "total")
    axes = AXES | {"kind": ["plain", "odd"], "on": [True, False]}
    rows = run(axes=axes)
    long = jaxrecall.run(form, axes=axes, seeds=3)
    assert_same_rows(rows, long, ("point_id", "simulator", "seconds"))
    assert rows.attrs["accuracy"] == "total"


def test_types_follow_from_annotations_defaults_and_axes():
    boxes = jaxrecall.field(low=1, high=3, meaning="boxes")

    def typed(key, a: float, b: Annotated[int, boxes], c=2, *, e="x", f, g, h):
        assert (e, h) == ("y", True)
        return {"sum": a + f, "all": b + c + g}

    axes = {"a": 1, "b": 2, "e": ["y"], "f": [1, 2.5], "g": [np.int64(3)], "h": True}
    rows = run(typed, axes, (), "sum", seeds=1)
    kinds = {name: rows[name].dtype.kind for name in "abcfgh"}
    assert kinds == {"a": "f", "b": "i", "c": "i", "f": "f", "g": "i", "h": "b"}
    assert rows["all"].tolist() == [7, 7]
    assert rows.attrs["labels"]["b"] == "boxes"
    with pytest.raises(GridError, match="got 4; allowed: whole numbers from 1 to 3"):
        run(typed, axes | {"b": 4}, (), "sum")


def test_a_sweep_of_a_function_resumes_and_refuses_another_source():
    first = run(out="rows", seeds=2)
    again = run(out="rows", seeds=3)
    # `seconds` included: these rows were not computed again
    assert_frame_equal(again.query("seed < 2").reset_index(drop=True), first)
    other = {"__name__": __name__}
    exec("def mean(key, *, N, d, lam=1.0): return {'total': lam * N}", other)
    with pytest.raises(StoreError, match="other source"):
        run(other["mean"], out="rows")


MODULE = """
import jax, jaxrecall

@jaxrecall.simulator(static="n", measure="end", rises={{"scale": False}}, jit={0})
def walk(key, *, n, scale=1.0):
    length = scale * jax.random.normal(key, n).sum() ** 2
    return {{"length": length, "end": 1 / (1 + length)}}
"""


@pytest.mark.parametrize("jit", [True, False])
def test_a_grid_file_names_a_decorated_function(jit, folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "walks", raising=False)
    (folder / "walks.py").write_text(MODULE.format(jit))
    axes = {"n": [2, 4], "scale": [1, 0.5]}
    (folder / "g.yaml").write_text(
        "simulator: walks:walk\nblocks: [{axes: {n: [2, 4], scale: [1, 0.5]}}]\n"
    )
    options = ["--grid", "g.yaml", "--out", "rows", "--set", "seeds=2"]
    assert sweep([*options, "--workers", "2" if jit else "1"]) == 0
    rows = jaxrecall.load("rows")
    assert set(rows["simulator"]) == {"walks:walk"}
    walk = import_module("walks").walk
    assert_same_rows(jaxrecall.run(walk, axes=axes, seeds=2), rows)
    assert 0 < walk(jax.random.key(0), n=3)["end"] < 1
    search = {"axis": "scale", "from": 1, "to": 9, "theta": 2, "of": "length"}
    grid = {"simulator": "walks:walk", "base": {"n": 2}, "seeds": 12}
    assert len(jaxrecall.thresholds(jaxrecall.run(grid | {"search": search}))) == 1
    del sys.modules["walks"]
    with pytest.raises(GridError, match="got 'lengths'; did you mean length"):
        jaxrecall.run(grid | {"search": search | {"of": "lengths"}})


def test_partial_and_jitted_functions_have_the_rows_of_the_function():
    axes = {"N": [4, 8], "d": [2]}
    plain = run(axes=axes | {"lam": 2}, out="rows")
    bound = run(partial(mean, lam=2.0), axes, out="rows")
    assert_frame_equal(bound, plain, check_like=True)
    jitted = jax.jit(mean, static_argnames=("N", "d", "kind", "on"))
    # jit sorts what a function returns
    assert_same_rows(run(jitted, axes | {"lam": 2})[[*plain]], plain)
    other = run(partial(mean, lam=0.5), axes)
    assert set(other["lam"]) == {0.5}
    assert (4 * other["total"]).tolist() == plain["total"].tolist()
    with pytest.raises(GridError, match="got 1; allowed: finite numbers from 2"):
        run(partial(mean, lam=2.0), axes | {"lam": 1})


class Module:
    def __call__(self, key, *, x):
        return {"y": 2.0 * x}


@pytest.mark.parametrize("fn", [lambda key, *, x: {"y": 2.0 * x}, Module()])
def test_rows_in_a_folder_need_a_function_with_a_name(fn):
    assert run(fn, {"x": [1.5]}, (), "y")["y"].tolist() == [3] * 3
    with pytest.raises(UsageError, match="which has no name"):
        run(fn, {"x": [1.5]}, (), "y", out="rows")
    assert not Path("rows").exists()
