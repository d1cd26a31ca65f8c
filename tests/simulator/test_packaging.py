"""The same run gives the same draws and the same row alone, in company, in a larger
bucket, chunked otherwise, on two devices.
"""

import json
from dataclasses import replace

import pytest
import yaml
from helpers import assert_same_metrics, executed, python

from jaxrecall import Point
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

POINTS = yaml.safe_load("""
- {V: 12, N: 3000, d: 16, L: 4, n_test: 700, eta: 1.0e-6, kappa: 1.0e+4}
- {V: 30, N: 1700, d: 12, L: 7, n_test: 700, eta: 1.0e-6, kappa: 10}
- {V: 32, N: 3, d: 16, L: 1, n_test: 1}
- {V: 17, N: 513, d: 9, L: 20, n_test: 512, streams: independent}
- {V: 14, N: 2048, d: 16, L: 3, n_test: 2000, fresh_batches: true}
""")
RUNS = [(Point(**fields), seed) for fields in POINTS for seed in (0, 7)]
SHAPE = Shape(32, 32, 0, "none", "counts")


def rows(shape: Shape, size: int, runs=RUNS):
    """Metrics of the runs, some at a time, in the guarded form (None where its guard
    turns a run away) and in the full one.
    """
    return [
        row
        for form in (shape, shape.fallback)
        for i in range(0, len(runs), size)
        for row in executed(program.compiled(form, size), runs[i : i + size])
    ]


def assert_same(a, b):
    forms = {row["form"] for row in a if row}
    assert forms == {"counts+locked", "counts+counts", "full"}
    assert_alike(a, b)


def assert_alike(a, b):
    for x, y in zip(a, b, strict=True):
        assert (x is None) == (y is None)
        if x:
            for name in ("draw_check", "status", "form"):
                assert x[name] == y[name]
            assert_same_metrics(x, y)


@pytest.fixture(scope="module")
def alone():
    return rows(SHAPE, 1)


def test_in_a_batch_by_the_same_programs(alone):
    before = program._compiled.cache_info().misses
    assert_same(rows(SHAPE, 5), alone)
    other = Point(V=5, N=9, d=3, L=2, eta=0.3, gamma=0, n_test=9)
    rows(SHAPE, 1, [(other, 3)])
    assert program._compiled.cache_info().misses == before
    # draws stay what they were
    assert alone[3]["draw_check"] == 917969501


@pytest.mark.slow  # two programs each; others compile light ones and force shapes
@pytest.mark.parametrize(
    "shape",
    [replace(SHAPE, light=True), replace(SHAPE, V=80, d=48, tile=512)],
    ids=["light", "in a larger bucket with another tile"],
)
def test_in_another_program(alone, shape):
    assert_same(rows(shape, 8), alone)


@pytest.mark.parametrize(
    "form", ["counts", pytest.param("full", marks=pytest.mark.slow)]
)
def test_vmapped_as_on_an_accelerator(alone, form, monkeypatch):
    """Runs of different N, L, V and batches share their loops: each is masked where it
    needs fewer steps than another.
    """
    # several tiles for some of the runs, one for others
    monkeypatch.setattr("jaxrecall.simulator.program_shape.VMAPPED_SAMPLES", 1)
    shape = replace(SHAPE, form=form, tile=1024)
    vmapped = executed(program.compiled(shape, len(RUNS), vmapped=True), RUNS)
    in_full = len(RUNS) * (form == "full")
    assert_alike(vmapped, alone[in_full:][: len(RUNS)])


@pytest.mark.system  # a process with two devices compiles both forms anew
def test_on_two_devices(alone):
    code = """
import json, sys
sys.path[:0] = ["tests", "tests/simulator"]
import jax
import test_packaging
assert len(jax.local_devices()) == 2
print(json.dumps(test_packaging.rows(test_packaging.SHAPE, 3)))
"""
    out = python(code, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert out.returncode == 0, out.stderr
    assert_same(json.loads(out.stdout), alone)
