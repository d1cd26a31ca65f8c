"""Functions as simulators: the signature declares the fields, and what the function
returns declares the columns. The words of refusals are in tests/refusals/.
"""

import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from tolerances import assert_close

import jaxrecall
from jaxrecall.errors import GridError, StoreError
from jaxrecall.simulator import custom_runs
from jaxrecall.sweep.__main__ import main as sweep

AXES = {"N": [4, 8], "d": range(2, 4), "lam": np.array([0.5, 2])}


def mean(key, *, N, d, lam=1.0, kind: Literal["plain", "odd"] = "plain"):
    x = jax.random.normal(key, (N, d))
    sign = -1 if kind == "odd" else 1
    return {"total": lam * sign * x.sum(), "count": N * 2, "is_large": lam > 1}


def run(fn=mean, axes=AXES, static=("N", "d"), measure="total", seeds=3, out=None):
    given = {"axes": axes, "static": static, "measure": measure, "seeds": seeds}
    return jaxrecall.run(fn, **given, out=out)


def assert_same(rows, wanted, but=("seconds",)):
    assert_frame_equal(rows.drop(columns=[*but]), wanted.drop(columns=[*but]))


@pytest.fixture(autouse=True)
def folder(cwd, monkeypatch) -> None:
    monkeypatch.syspath_prepend(cwd)


def test_a_function_has_the_rows_of_its_long_form():
    def of_point(point, key):
        return mean(key, N=point.N, d=point.d, lam=point.lam, kind=point.kind)

    size = (int, None, None, None, "static")
    fields = {
        "N": size,
        "d": size,
        "lam": (float, 1.0, None, None, "traced"),
        "kind": (str, "plain", ("plain", "odd"), None, "static"),
    }
    columns = {"total": (float, ""), "count": (int, ""), "is_large": (bool, "")}
    form = jaxrecall.Simulator(jax.jit(of_point), fields, columns, "total")
    axes = AXES | {"kind": ["plain", "odd"]}
    but = ("point_id", "simulator", "seconds")
    assert_same(run(axes=axes), jaxrecall.run(form, axes=axes, seeds=3), but)


def test_equal_functions_share_programs():
    def share_of(factor):
        return lambda key, *, lam: {"share": factor * lam}

    def compilations_and_shares(factor):
        before = custom_runs.compile_simulator.cache_info().misses
        rows = run(share_of(factor), {"lam": [1.0, 2.0]}, (), "share", seeds=1)
        compilations = custom_runs.compile_simulator.cache_info().misses - before
        return compilations, rows["share"].tolist()

    assert compilations_and_shares(2) == (1, [2, 4])
    assert compilations_and_shares(2) == (0, [2, 4])
    assert compilations_and_shares(3) == (1, [3, 6])


def test_types_follow_from_annotations_defaults_and_axes():
    boxes = jaxrecall.field(low=1, high=3, meaning="boxes")

    def typed(key, a: float, b: Annotated[int, boxes], c=2, *, e="x", f, g):
        assert e == "y"
        return {"sum": a + f, "all": b + c + g}

    axes = {"a": 1, "b": 2, "e": ["y"], "f": [1, 2.5], "g": [np.int64(3)]}
    rows = run(typed, axes, (), "sum", seeds=1)
    assert "".join(rows[name].dtype.kind for name in "abcfg") == "fiifi"
    assert rows["all"].tolist() == [7, 7]
    assert rows.attrs["labels"]["b"] == "boxes"
    with pytest.raises(GridError, match="got 4; allowed: whole numbers from 1 to 3"):
        run(typed, axes | {"b": 4}, (), "sum")


MODULE = """
import jax, jaxrecall

@jaxrecall.simulator(static="n", measure="end", rises={{"scale": False}}, jit={0})
def walk(key, *, n, scale=1.0):
    length = scale * jax.random.normal(key, n).sum() ** 2
    return {{"length": length, "end": 1 / (1 + length)}}
"""


@pytest.mark.parametrize("jit", [True, False])
def test_a_grid_file_names_a_decorated_function(jit, monkeypatch):
    monkeypatch.delitem(sys.modules, "walks", raising=False)
    Path("walks.py").write_text(MODULE.format(jit))
    axes = {"n": [2, 4], "scale": [1, 0.5]}
    grid = {"simulator": "walks:walk", "seeds": 12}
    Path("g.yaml").write_text(json.dumps(grid | {"blocks": [{"axes": axes}]}))
    workers = ["--workers", "1"] if jit else []
    assert sweep(["--grid", "g.yaml", "--out", "rows", *workers]) == 0
    walk = import_module("walks").walk
    assert_same(jaxrecall.run(walk, axes=axes, seeds=12), jaxrecall.load("rows"))
    assert 0 < walk(jax.random.key(0), n=3)["end"] < 1
    search = {"axis": "scale", "from": 1, "to": 9, "theta": 2, "of": "length"}
    grid |= {"base": {"n": 2}, "search": search}
    assert len(jaxrecall.thresholds(jaxrecall.run(grid))) == 1
    del sys.modules["walks"]
    search["of"] = "lengths"
    with pytest.raises(GridError, match="got 'lengths'; did you mean length"):
        jaxrecall.run(grid)


def test_partial_and_jitted_functions_resume_the_rows_of_the_function():
    axes = {"N": [4, 8], "d": [2]}
    plain = run(axes=axes | {"lam": 2}, out="rows")
    # seconds included: these rows were not computed again
    bound = partial(mean, lam=2.0)
    assert_frame_equal(run(bound, axes, out="rows"), plain)
    jitted = jax.jit(mean, static_argnames=("N", "d", "kind"))
    assert_same(run(jitted, axes | {"lam": 2}), plain)
    other = run(partial(mean, lam=0.5), axes)
    assert (4 * other["total"]).tolist() == plain["total"].tolist()


def test_a_batched_function_computes_many_runs_in_a_call():
    sizes = []

    @jaxrecall.simulator(static="N", measure="total", batched=True)
    def batched(keys, *, N, lam=1.0):
        sizes.append(len(keys))
        x = np.stack([jax.random.normal(key, (N, 2)) for key in keys])
        assert lam.shape == (len(keys),)
        return {"step": [1, 5], "total": lam * x.sum((1, 2)), "first": x[:, 0]}

    rows = jaxrecall.run(batched, axes={"N": [4, 8], "lam": [0.5, 2]}, seeds=3)
    assert sizes == [1, 6, 6]
    each = run(axes=AXES | {"d": 2})
    assert_close(rows["total"][::2], each["total"], "float32")
    assert rows["first"].nunique() == 6
    assert rows["step"].tolist() == [1, 5] * 12


def test_a_folder_tells_functions_without_a_name_apart():
    options = {"axes": {"x": 1.5}, "static": (), "measure": "y", "out": "rows"}
    assert run(lambda key, *, x: {"y": 2.0 * x}, **options)["y"].tolist() == [3] * 3
    with pytest.raises(StoreError, match="from other source"):
        run(lambda key, *, x: {"y": 3.0 * x}, **options)
