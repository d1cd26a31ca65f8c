"""Programs and chunks: every run once, few programs, honest sizes."""

import itertools
from dataclasses import replace

import pytest

from jaxrecall.errors import UsageError
from jaxrecall.model.point import Point
from jaxrecall.simulator import program
from jaxrecall.simulator.shape import Shape
from jaxrecall.sweep import plan
from jaxrecall.sweep.calibration import Calibration
from jaxrecall.sweep.cost import peak_bytes


def grid(**axes):
    values = {"m": [0], "exact": ["full"], **axes}
    points = [Point(**dict(zip(values, at, strict=True))) for at in itertools.product(*values.values())]
    return [(point, seed) for point in points for seed in range(2)]


LIGHT = grid(V=[64, 128, 256], d=[16, 32, 64, 128], L=[8, 32], N=[1024, 4096, 16384])


def test_every_run_is_planned_once_in_a_bucket_that_fits():
    runs = grid(V=[50, 300], d=[16, 200], L=[8], N=[1024, 65536], m=[0, 10, 300])
    made = plan.make(runs)
    planned = [run for chunk in made.chunks for run in chunk.runs]
    assert sorted(planned, key=repr) == sorted(runs, key=repr)
    assert made.n_runs == len(runs)
    assert all(chunk.shape.fits(point) for chunk in made.chunks for point, _ in chunk.runs)


def test_light_points_share_a_program_and_heavy_ones_do_not():
    assert len(plan.make(LIGHT).shapes) <= 4
    heavy = plan.make([*LIGHT, *grid(V=[1000], d=[256], L=[64], N=[10**6])])
    assert {str(shape) for shape in heavy.shapes} == {"256x128", "1024x256"}


def test_forms_do_not_share_a_program():
    point = Point(V=64, N=1024, d=16, L=8)
    made = plan.make([(point, 0), (point.replace(exact="full"), 0), (point.replace(N=2**30), 0)])
    assert {(shape.form, str(shape)) for shape in made.shapes} == {("full", "64x16"), ("counts", "64x16")}
    assert {chunk.shape.form for chunk in made.chunks for p, _ in chunk.runs if p.N == 2**30} == {"full"}
    assert plan.make([(point, 0)]).seconds < plan.make([(point.replace(exact="full"), 0)]).seconds


def test_the_estimate_says_what_it_would_be_without_shortcuts():
    point = Point(V=64, N=2**24, d=16, L=64)
    guarded, exact = (plan.make([(point.replace(exact=exact), seed) for seed in range(8)]) for exact in ("guarded", "full"))
    assert exact.seconds_in_full == exact.seconds
    assert guarded.seconds_in_full == pytest.approx(guarded.seconds + exact.seconds)


def test_runs_that_will_be_rejected_join_the_program_that_their_neighbours_fall_back_on():
    sure, near = Point(V=64, N=128, d=16, L=8), Point(V=64, N=1024, d=128, L=8)
    found = plan.make([(sure, 0), (near, 0)], calibration=Calibration())
    assert sure.exact == near.exact == "guarded"
    guarded, exact = sorted(found.shapes, key=lambda shape: shape.fallback is None)
    assert guarded.fallback == exact
    assert exact.fits(sure)
    heavy = sure.replace(N=2**24, exact="full")  # padding d to 128 would cost more than half a compilation
    assert {shape.d for shape in plan.make([(heavy, 0), (near, 0)], calibration=Calibration()).shapes} == {16, 128}
    in_full = found.seconds_in_full - found.seconds  # the fallback is compiled for the others anyway
    assert in_full < 0.1 * Calibration().seconds_to_get(exact)


def test_a_merged_shape_has_the_tile_of_its_own_sizes():
    small, large = Shape(64, 16, 0, "none"), Shape(8192, 16, 0, "none")
    assert small.tile > large.tile
    assert plan._both(small, large) == plan._both(large, small) == large


def test_little_work_runs_in_a_light_program_and_much_in_one_that_is_not():
    little, much = (plan.make([(Point(V=64, N=N, d=32, L=8), seed) for seed in range(4)]) for N in (1024, 10**8))
    assert [shape.light for shape in (*little.shapes, *much.shapes)] == [True, False]
    (light,) = little.shapes
    assert light.fallback == replace(light, form="full")
    (training,) = plan.make([(Point(V=64, N=1024, d=32, L=8, steps=4, lr=0.1), 0)]).shapes
    assert not training.light
    known = Calibration(programs=frozenset({replace(light, light=False)}))  # what is compiled already costs least
    assert plan.make([(Point(V=64, N=1024, d=32, L=8), 0)], calibration=known).shapes == (replace(light, light=False),)


def test_chunks_are_bounded():
    made = plan.make(grid(V=[256], d=[128], L=[64], N=[10**6, 10**7]))
    assert len(made.chunks) > 1
    assert all(chunk.seconds <= plan.CHUNK_SECONDS or len(chunk.runs) == 1 for chunk in made.chunks)


def test_forced_bucket():
    made = plan.make(LIGHT, (300, 130, 0))
    assert [str(shape) for shape in made.shapes] == ["300x130"]
    with pytest.raises(UsageError, match=r"--bucket: got 128x130, too small for 24 points; allowed: at least 256x128"):
        plan.make(LIGHT, (128, 130, 0))
    for text in ("12", "axb", "0x4", "4x4x4x4", ""):
        with pytest.raises(UsageError, match=r"--bucket: got .*; allowed: VxD or VxDxM"):
            Shape.parse(text)


def test_nothing_to_do_is_a_plan_too():
    made = plan.make([])
    assert (made.chunks, made.flops, made.seconds, made.peak_bytes) == ((), 0, 0, 0)


SHAPES = [Shape(32, 32, 0, "none", "counts"), Shape(2048, 64, 0, "none", "full"), Shape(64, 32, 512, "relu", "uniform")]


@pytest.mark.parametrize("shape", [SHAPES[0], *(pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES[1:])], ids=str)
def test_peak_bytes_bounds_what_the_compiler_reserves(shape):
    reserved = program.compiled(shape, 1).run.memory_analysis().temp_size_in_bytes
    assert reserved <= peak_bytes(shape) <= 8 * reserved
