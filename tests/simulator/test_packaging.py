"""The same run gives the same draws and the same row alone, in company, in a larger
bucket, chunked otherwise, on two devices.
"""

import functools
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import assert_same_metrics, executed, python, relative, streamed
from jax.sharding import Mesh

from jaxrecall import simulate
from jaxrecall.model.point import Point
from jaxrecall.simulator import program
from jaxrecall.simulator.arguments import arguments
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.rows import finish

POINTS = [
    Point(V=12, N=3000, d=16, L=4, n_test=700, eta=1e-6, kappa=1e4),
    Point(V=30, N=1700, d=12, L=7, n_test=700, eta=1e-6, kappa=10),
    Point(V=32, N=3, d=16, L=1, n_test=1),
    Point(
        V=17, N=513, d=9, L=20, n_test=512, embedding="sphere", streams="independent"
    ),
    Point(
        V=14, N=2048, d=16, L=3, n_test=2000, embedding="orthogonal", fresh_batches=True
    ),
]
RUNS = [(point, seed) for point in POINTS for seed in (0, 7)]


def rows(shape: Shape, size: int, runs=RUNS):
    """Metrics of the runs, some at a time, in the guarded form (None where its guard
    turns a run away) and in the full one.
    """
    batches = [runs[i : i + size] for i in range(0, len(runs), size)]
    forms = [program.compiled(form, size) for form in (shape, shape.fallback)]
    return [
        row
        for compiled in forms
        for batch in batches
        for row in executed(compiled, batch)
    ]


def assert_same(a, b):
    assert {row["form"] for row in a if row} == {
        "counts+locked",
        "counts+counts",
        "full",
    }
    assert_alike(a, b)


def assert_alike(a, b):
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            assert x is y
            continue
        assert (x["draw_check"], x["status"], x["form"]) == (
            y["draw_check"],
            y["status"],
            y["form"],
        )
        assert_same_metrics(x, y)


@pytest.fixture(scope="module")
def alone():
    return rows(Shape(32, 32, 0, "none", "counts"), 1)


@pytest.mark.slow
def test_in_a_batch(alone):
    assert_same(rows(Shape(32, 32, 0, "none", "counts"), 5), alone)


@pytest.mark.slow  # other tests compile with the options of light programs, and more
def test_in_a_light_program(alone):
    assert_same(rows(Shape(32, 32, 0, "none", "counts", light=True), 5), alone)


@pytest.mark.slow  # two programs of its own; test_sweep has a forced shape
def test_in_a_larger_bucket_with_another_tile(alone):
    assert_same(rows(Shape(80, 48, 0, "none", "counts", tile=512), 8), alone)


@pytest.mark.parametrize(
    "form", ["counts", pytest.param("full", marks=pytest.mark.slow)]
)
def test_vmapped_as_on_an_accelerator(alone, form, monkeypatch):
    """Runs of different N, L, V and batches share their loops: each is masked where it
    needs fewer steps than another.
    """
    # several tiles for some of the runs, one for others
    monkeypatch.setattr("jaxrecall.simulator.program_shape.VMAPPED_SAMPLES", 1)
    shape = Shape(32, 32, 0, "none", form, tile=1024)
    run, _ = program.batch_function(
        shape,
        len(RUNS),
        Mesh(np.array(jax.local_devices()[:1]), ("run",)),
        vmapped=True,
    )
    with jax.default_matmul_precision("highest"):
        raw = jax.device_get(run(arguments(RUNS, shape), np.ones(len(RUNS), bool)))
    finished = [
        finish(jax.tree.map(lambda a, i=i: a[i], raw), point, shape.trained_by)
        for i, (point, _) in enumerate(RUNS)
    ]
    found = [metrics and metrics[0] for metrics in finished]
    assert_alike(found, alone[: len(RUNS)] if form == "counts" else alone[len(RUNS) :])


def test_simulate_gives_the_row(alone):
    row = simulate(POINTS[1], 7)
    # draws stay what they were
    assert row["draw_check"] == alone[3]["draw_check"] == 917969501
    assert_same_metrics(row, alone[3])
    assert "seconds" not in row
    assert "bucket" not in row


@pytest.mark.system  # a process with two devices compiles both forms anew
def test_on_two_devices(alone):
    code = """
import json, sys
sys.path[:0] = ["tests", "tests/simulator"]
import jax
from jaxrecall.simulator.rows import finish
from jaxrecall.simulator.program_shape import Shape
import test_packaging
assert len(jax.local_devices()) == 2
print(json.dumps(test_packaging.rows(Shape(32, 32, 0, "none", "counts"), 3)))
"""
    out = python(code, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert out.returncode == 0, out.stderr
    assert_same(json.loads(out.stdout), alone)


@pytest.mark.parametrize(
    ("activation", "form"),
    [("quadratic", "full"), pytest.param("gelu", "uniform", marks=pytest.mark.slow)],
)
def test_padded_mlp_units_and_columns_are_silent(activation, form):
    point = Point(V=30, N=700, d=12, L=7, m=20, n_test=600, activation=activation)
    tight, metrics = streamed(point, 2, Shape(30, 12, 20, activation, form))
    wide, _ = streamed(point, 2, Shape(32, 32, 32, activation, form))
    assert (metrics["form"] == "full") == (form == "full")
    for a, b in zip(tight, wide, strict=True):
        assert relative(a, b) < 1e-5


def test_a_program_serves_every_point_of_its_bucket_without_tracing_again():
    before = program.n_compiled()
    rows(Shape(32, 32, 0, "none", "counts"), 1)
    rows(
        Shape(32, 32, 0, "none", "counts"),
        1,
        [
            (
                Point(
                    V=5, N=9, d=3, L=2, eta=0.3, gamma=0.0, embedding="sphere", n_test=9
                ),
                3,
            )
        ],
    )
    assert program.n_compiled() - before <= 2


def n_maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="counts the memory maps of a process on Linux"
)
@pytest.mark.slow  # test_custom.py has the same of other simulators
def test_programs_that_were_not_used_lately_are_released(monkeypatch):
    """Each takes memory maps; where these ran out, after some 66 programs, LLVM ended
    the process.
    """
    shapes = [Shape(16, 16, m, "tanh" if m else "none", "full") for m in (0, 16, 32)]
    program.compiled(shapes[0])  # what is loaded once
    monkeypatch.setattr(
        program, "_compiled", functools.lru_cache(1)(program._compiled.__wrapped__)
    )
    found = []
    for shape in shapes[1:]:
        program.compiled(shape)
        found.append(n_maps())
    assert program.MAX_PROGRAMS < 40
    assert found[-1] - found[0] < 100, found
