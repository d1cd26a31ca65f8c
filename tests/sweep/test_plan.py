"""Programs and chunks: every run once, few programs, honest sizes."""

import itertools
import threading
from dataclasses import replace

import pytest
from helpers import fits

import jaxrecall
from jaxrecall import simulate
from jaxrecall.errors import PointError
from jaxrecall.model.point import Point, Run
from jaxrecall.simulator import program
from jaxrecall.simulator.cost import peak_bytes
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.sweep import machine, plan
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.plan import CHUNK_SECONDS, Shard, cores, make_plan
from jaxrecall.sweep.running.job import prepare
from jaxrecall.sweep.simulators.merging import _resized
from jaxrecall.sweep.simulators.shipped import RecallSimulator
from jaxrecall.sweep.store import Store


def grid(**axes):
    """Runs of two seeds at the points of the product of these axes."""
    values = {"m": [0], "exact": ["full"], **axes}
    points = [
        Point(**dict(zip(values, at, strict=True)))
        for at in itertools.product(*values.values())
    ]
    return list(itertools.product(points, range(2)))


def of(point, seeds=1, **options):
    """The plan of these seeds of a point."""
    return make_plan([(point, seed) for seed in range(seeds)], **options)


def programs_of(made) -> dict:
    """The program of each point of a plan."""
    pairs = [(run[0], chunk.program) for chunk in made.chunks for run in chunk.runs]
    return dict(pairs)


POINT = Point(V=64, N=1024, d=16, L=8)
LIGHT = grid(V=[64, 128, 256], d=[16, 32, 64, 128], L=[8, 32], N=[1024, 4096, 16384])


def test_every_run_is_planned_once_in_a_program_that_fits():
    runs = grid(V=[50, 300], d=[16, 200], L=[8], N=[1024, 65536], m=[0, 10, 300])
    made = make_plan(runs)
    planned = [run for chunk in made.chunks for run in chunk.runs]
    assert sorted(planned, key=repr) == sorted(runs, key=repr)
    assert made.n_runs == len(runs)
    assert all(fits(program, point) for point, program in programs_of(made).items())


def test_light_points_share_a_program_and_heavy_ones_do_not():
    assert len(make_plan(LIGHT).peaks) <= 4
    heavy = make_plan([*LIGHT, *grid(V=[1000], d=[256], L=[64], N=[10**6])])
    assert {str(shape) for shape in heavy.peaks} == {"256x128", "1024x256"}


def test_forms_do_not_share_a_program():
    full, long = POINT.replace(exact="full"), POINT.replace(N=2**30)
    made = programs_of(make_plan([(POINT, 0), (full, 0), (long, 0)]))
    assert [str(made[point]) for point in made] == ["64x16"] * 3
    forms = [made[point].form for point in (POINT, full, long)]
    assert forms == ["counts", "full", "full"]
    assert of(POINT).seconds < of(full).seconds


def test_runs_that_will_be_rejected_join_the_program_that_their_neighbours_fall_back_on():  # noqa: E501
    sure, near = POINT.replace(N=128), POINT.replace(d=128)
    assert sure.exact == near.exact == "guarded"
    peaks = make_plan([(sure, 0), (near, 0)]).peaks
    guarded, exact = sorted(peaks, key=lambda shape: shape.fallback is None)
    assert guarded.fallback == exact
    assert fits(exact, sure)
    # padding d to 128 would cost more than half a compilation
    heavy = sure.replace(N=2**24, exact="full")
    made = make_plan([(heavy, 0), (near, 0)])
    assert {shape.d for shape in made.peaks} == {16, 128}


def test_a_merged_shape_has_the_tile_of_its_own_sizes():
    small, large = Shape(64, 16, 0, "none"), Shape(8192, 16, 0, "none")
    assert small.tile > large.tile
    assert _resized(small, 8192, 16, 0) == large


def test_the_less_work_a_program_has_the_less_it_is_optimised():
    def program(N):
        (shape,) = of(POINT.replace(N=N), seeds=4).peaks
        return shape

    tiny, little, much = map(program, (1024, 10**7, 10**8))
    kinds = [(shape.light, shape.quick) for shape in (tiny, little, much)]
    assert kinds == [(True, True), (True, False), (False, False)]
    assert [tiny.tile, little.tile] == [512, 2048]
    for each in (tiny, little, much):
        assert each.fallback == replace(each, form="full")
    (training,) = of(POINT.replace(steps=4, lr=0.1)).peaks
    assert not training.light


def test_dear_compilation_shares_programs_and_cheap_compilation_does_not(monkeypatch):
    runs = grid(V=[64, 256], N=[1024, 16384], d=[16, 128], L=[8, 64], exact=["guarded"])

    def programs(seconds: float) -> int:
        monkeypatch.setattr(Shape, "compile_seconds", seconds)
        return len(make_plan(runs).peaks)

    assert programs(1e3) == 1
    assert 1 < programs(0.005) <= programs(0.0) == 4


def sizes(**axes):
    """A grid whose points differ much in size and in work."""
    every = {"V": [64, 256], "d": [16, 32, 64, 128], "L": 8, "N": [1024, 2**18]}
    return as_grid({"blocks": [{"axes": every | axes}], "seeds": 20})


@pytest.fixture
def n_cores(monkeypatch):
    """Sets how many cores the machine has."""

    def has(n):
        monkeypatch.setattr(machine, "processors", lambda: (n, "this test"))

    return has


def test_all_runs_of_a_grid_decide_its_programs_on_any_machine(
    tmp_path, n_cores, monkeypatch
):
    grid = sizes()
    whole = programs_of(prepare(grid, tmp_path).plan)
    assert whole.keys() == {*grid.points}
    jobs = [prepare(grid, tmp_path, Shard(i, 3, "")) for i in range(3)]
    n_compiled = sum(len(job.plan.peaks) for job in jobs)
    assert n_compiled <= len({*whole.values()}) + 2  # each cut divides one program
    for n in (1, 64):
        n_cores(n)
        jobs.append(prepare(grid, tmp_path))
    heavy = [point for point in grid.points if point.N > 1024]
    finished = {Run(point, seed).id: () for point in heavy for seed in grid.seeds}
    rows = {(grid.simulator.version, "highest"): finished}, [], []
    monkeypatch.setattr(Store, "last_values", lambda *_: rows)
    jobs.append(prepare(grid, tmp_path))
    assert jobs[-1].plan.n_runs == grid.n_runs - len(finished)
    assert all(programs_of(job.plan).items() <= whole.items() for job in jobs)


def test_a_search_has_the_same_programs_on_any_machine(tmp_path, n_cores):
    axes = {"V": [64, 256], "d": [16, 128], "L": 512}
    search = {"axis": "N", "theta": 0.5, "from": 4096, "to": 2**18}
    grid = as_grid({"blocks": [{"axes": axes}], "search": search}, seeds=40)
    n_cores(1)
    of_one = programs_of(prepare(grid, tmp_path).plan)
    n_cores(64)
    assert programs_of(prepare(grid, tmp_path).plan) == of_one


def test_width_is_bounded_by_memory():
    ((shape, need),) = of(POINT, seeds=100).peaks.items()
    narrow, wide = (of(POINT, seeds=100, limit=n * need) for n in (1, 100))
    width = min(cores(), 100)
    widths = [made.simulator.width(shape, 1.0, made.room) for made in (narrow, wide)]
    assert widths == [1, width]
    assert wide.peak_bytes == need * width
    two = replace(wide, workers=2)
    assert (two.room.limit, two.room.cores) == (50 * need, -(-cores() // 2))


def test_memory_bounds_the_vmapped_runs_on_an_accelerator(monkeypatch):
    shape = Shape(256, 128, 0, "none", "counts")
    point = Point(V=256, N=1024, d=128, L=8)
    made = replace(of(point, seeds=100, program=lambda _: shape), batch=80)
    widths = (1, 16, 64)
    need = {width: 2 * width * peak_bytes(shape.vmapped(width)) for width in widths}
    monkeypatch.setattr(program, "on_cpu", lambda: False)

    def width(memory: int, plan=made) -> int:
        monkeypatch.setattr(program, "memory_of_device", lambda: memory)
        return plan.simulator.width(shape, 1e-9, plan.room)

    memories = (2**40, need[64], need[64] - 1, need[16], 1)
    assert [width(memory) for memory in memories] == [64, 64, 32, 16, 1]
    assert width(2**40, replace(made, batch=1000)) == 64  # there are 100 runs


def test_kernels_are_tuned_on_a_gpu_alone_and_for_long_work(monkeypatch):
    tuned = []

    def compiled(*_, **options):
        tuned.append(options["tuned"])
        return program.Executable(SHAPES[0], None, 1, 1)

    monkeypatch.setattr(program, "compiled", compiled)
    monkeypatch.setattr(program, "on_cpu", lambda: False)
    for seeds in (2000, 2):
        made = of(Point(V=256, N=10**7, d=64, L=64), seeds)
        made.simulator.run(SHAPES[0], 1, made.room)
    assert tuned == [True, False]
    untuned = [
        each
        for each in itertools.product(("cpu", "gpu", "tpu"), (False, True))
        if "xla_gpu_autotune_level" in program.options_for(SHAPES[0], *each)
    ]
    assert untuned == [("gpu", False)]


def test_simulate_refuses_a_point_that_does_not_fit_in_memory(monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: (2**30 / machine.SHARE, "this test"))
    told = r"^d: got V=2, d=65536, m=0, which needs about \d+ MiB; allowed: 1024 MiB"
    with pytest.raises(PointError, match=told):
        simulate(Point(V=2, N=1, d=65536, L=1), seed=0)


def test_every_program_has_a_label_of_its_own():
    changes = [
        {},
        {"m": 20},
        {"m": 20, "activation": "gelu"},
        {"pool": 32},
        {"diagnose": True},
        {"exact": "full"},
        {"steps": 9, "lr": 0.1},
        {"steps": 9, "lr": 0.1, "optimizer": "adam"},
    ]
    made = make_plan([Run(POINT.replace(**change), 0) for change in changes])
    labels = {entry["program"] for entry in made.describe()}
    assert len(labels) == len(changes)
    assert "64x16x32 gelu" in " ".join(labels)


def test_chunks_are_bounded():
    made = make_plan(grid(V=[256], d=[128], L=[64], N=[10**6, 10**7]))
    assert len(made.chunks) > 1
    for chunk in made.chunks:
        assert chunk.seconds <= CHUNK_SECONDS or len(chunk.runs) == 1


def test_nothing_to_do_is_a_plan_too():
    made = make_plan([])
    assert (made.chunks, made.flops, made.seconds, made.peak_bytes) == ((), 0, 0, 0)


SHAPES = [
    Shape(32, 32, 0, "none", "counts"),
    Shape(2048, 64, 0, "none", "full"),
    Shape(64, 32, 512, "relu", "uniform"),
    Shape(64, 32, 512, "relu", "uniform", diagnose=True),
    Shape(512, 64, 0, "none", "full", diagnose=True, decoders=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_peak_bytes_bounds_what_the_compiler_reserves(shape):
    about = program.compiled(shape, 1).run.memory_analysis()
    reserved = about.temp_size_in_bytes + about.output_size_in_bytes
    assert reserved <= peak_bytes(shape) <= 8 * reserved


def test_programs_are_loaded_side_by_side(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "MAX_LOADING", 4)
    monkeypatch.setattr(plan, "cores", lambda: 2)
    both, loaded = threading.Barrier(2, timeout=60), set()
    load = RecallSimulator.run

    def wait_and_load(simulator, program, *room):
        if program not in loaded:
            loaded.add(program)
            both.wait()
        return load(simulator, program, *room)

    monkeypatch.setattr(RecallSimulator, "run", wait_and_load)
    points = [POINT.replace(n_test=16), POINT.replace(n_test=16, diagnose=True)]
    frame = jaxrecall.run(points, seeds=1, out=tmp_path, progress=False)
    assert len(frame) == len(loaded) == 2
