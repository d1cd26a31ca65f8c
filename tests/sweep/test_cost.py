"""What a machine has shown decides the next plan: rates are recovered from batches, and kept between processes."""

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from jaxrecall.errors import PointError
from jaxrecall.model.point import Point
from jaxrecall.simulator.shape import Shape
from jaxrecall.sweep import calibration, machine, plan
from jaxrecall.sweep.calibration import Calibration, Rates
from jaxrecall.sweep.cost import Amounts, operations, peak_bytes, work
from jaxrecall.sweep.machine import cores
from jaxrecall.sweep.runners import runner_for, simulate
from jaxrecall.sweep.running.record import Record
from jaxrecall.sweep.store import MemoryStore

LARGE = Shape(256, 128, 0, "none", "counts")

POINTS = [Point(V=V, N=N, d=d, L=L) for V, N, d, L in itertools.product((64, 256), (1024, 16384), (16, 128), (8, 64))]


def batches(rates: Rates, noise: float = 0.0) -> list[tuple[Amounts, float]]:
    chance = random.Random(0)
    amounts = [operations(Shape.tight(point), work(point, runs)) for point in POINTS for runs in (1, 5)]
    return [(a, rates.seconds(a) * chance.uniform(1 - noise, 1 + noise)) for a in amounts]


def of_programs(times: list[tuple[Amounts, float]]) -> dict[Shape, tuple[Amounts, float]]:
    """As if each were of a program of its own."""
    return {Shape(16 + i, 16, 0, "none", "counts"): of_one for i, of_one in enumerate(times)}


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_rates_are_recovered_from_measured_batches(factor):
    machine = Rates(**{name: rate * factor for name, rate in asdict(Rates()).items()})
    learned = Rates().fitted(batches(machine, 0.2))
    for amounts, seconds in batches(machine):
        assert learned.seconds(amounts) == pytest.approx(seconds, rel=0.25)
    assert (learned.compile_seconds, learned.load_seconds) == (Rates().compile_seconds, Rates().load_seconds)
    assert Rates().fitted([]) == Rates()


def test_a_grid_of_one_kind_leaves_the_rates_of_others_alone():
    """A program whose lookups take five times as long as the model says, measured again and again beside others that obey it."""
    machine = of_programs(batches(Rates()))
    amounts = operations(Shape(1024, 64, 0, "none", "counts"), work(Point(V=1024, N=65536, d=64, L=8), 100))
    odd = {Shape(1024, 64, 0, "none", "counts"): (amounts, 5 * Rates().seconds(amounts))}
    known = Calibration().after(machine, {})
    for _ in range(20):
        known = known.after(odd, {})
    ratios = [known.rates.seconds(a) / seconds for a, seconds in machine.values()]
    assert max(ratios) < 1.3
    assert min(ratios) > 0.8
    for i in range(100):
        known = known.after({Shape(2000 + i, 16, 0, "none", "counts"): (Amounts(runs=1), 1.0)}, {})
    assert len(known.measured) == 64
    assert not odd.keys() & known.measured.keys()


def test_one_slow_compilation_does_not_decide_the_next_estimates():
    once = Calibration().after({}, {LARGE: 16 * Rates().compile_seconds, LARGE.fallback: None})
    assert once.rates.compile_seconds == pytest.approx(4 * Rates().compile_seconds)
    for _ in range(8):
        once = once.after({}, {LARGE: 2.0})
    assert once.rates.compile_seconds == pytest.approx(2.0, rel=0.02)


def test_calibration_is_kept_and_a_broken_file_is_not_trusted(tmp_path, monkeypatch):
    assert Calibration.kept() == Calibration()
    monkeypatch.setenv("JAXRECALL_CACHE", str(tmp_path / "cache"))
    shape = Shape(64, 32, 0, "none", "counts")
    known = Calibration(replace(Rates(), words=1e9), frozenset({shape}), {shape: (Amounts(words=2.0), 0.5)})
    known.keep()
    assert Calibration.kept() == known
    (file,) = (tmp_path / "cache").iterdir()
    saved = json.loads(file.read_text())
    (entry,) = saved["measured"]
    measured = (entry | {"seconds": -0.5}, entry | {"amounts": {"words": 0.0}}, [1, 2, 3])
    damages = ({"rates": {"words": -1.0}}, *({"measured": [one]} for one in measured))
    for broken in ("", "{", "[1]", '{"rates": {}}', *(json.dumps(saved | damage) for damage in damages)):
        file.write_text(broken)
        assert Calibration.kept() == Calibration()


def test_kept_programs_are_read_by_the_names_of_their_fields(tmp_path, monkeypatch):
    """A file from code with another field, or with the same fields in another order, is never read as something else."""
    monkeypatch.setenv("JAXRECALL_CACHE", str(tmp_path))
    shape, other = Shape(64, 32, 0, "none", "counts", decoders=True), Shape(32, 32, 0, "none", "counts")
    amounts = Amounts(words=2.0, flops=3.0)
    known = Calibration(Rates(), frozenset({shape, other}), {shape: (amounts, 0.5), other: (amounts, 0.25)})
    known.keep()
    (file,) = tmp_path.iterdir()
    saved = json.loads(file.read_text())

    def read(changed: Callable[[dict], dict]) -> Calibration:
        """What is read where all programs but `other` are changed."""
        programs = [changed(named) if named["V"] == 64 else named for named in saved["programs"]]
        measured = [entry | {"program": changed(named) if (named := entry["program"])["V"] == 64 else named} for entry in saved["measured"]]
        file.write_text(json.dumps(saved | {"programs": programs, "measured": measured}))
        return Calibration.kept()

    assert read(lambda named: dict(reversed(named.items()))) == known
    without = Calibration(Rates(), frozenset({other}), {other: (amounts, 0.25)})
    assert read(lambda named: {"zipf": True, **named}) == without
    assert read(lambda named: {name: value for name, value in named.items() if name != "diagnose"}) == without


def test_what_another_version_has_learned_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRECALL_CACHE", str(tmp_path))
    known = Calibration(replace(Rates(), words=1e9))
    known.keep()
    (file,) = tmp_path.iterdir()
    saved = json.loads(file.read_text())
    for learned_by in ({**saved["learned_by"], "jaxrecall": "0.0.1"}, None):
        file.write_text(json.dumps({**saved, "learned_by": learned_by}))
        assert Calibration.kept() == Calibration()
    file.write_text(json.dumps(saved))
    assert Calibration.kept() == known
    monkeypatch.setattr(calibration, "operations", lambda *of: operations(*of) + Amounts(flops=1.0))  # forms that count otherwise
    assert Calibration.kept() == Calibration()


@pytest.mark.system
def test_what_programs_take_is_the_same_on_a_busy_machine_and_on_a_quiet_one():
    """Other programs that keep all cores busy, two to a core, make runs take about three times as long."""
    point = Point(V=64, N=2**15, d=32, L=16, exact="full")
    made = plan.make([(point, seed) for seed in range(8)], (64, 32, 0), Calibration())
    runner = runner_for(made, Record(MemoryStore()))

    def seconds() -> float:
        runner.measured.clear()
        assert sum(len(runs) for chunk in made.chunks for runs, _ in runner.rows(chunk)) == 8
        ((_, taken),) = runner.measured.values()
        return taken

    seconds()  # which compiles
    quiet = seconds()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cores())]
    try:
        busy = seconds()
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert quiet > 0.02
    assert busy == pytest.approx(quiet, rel=0.4)


def test_dear_compilation_shares_programs_and_cheap_compilation_does_not():
    runs = [(point, seed) for point in POINTS for seed in range(4)]

    def programs(compile_seconds: float) -> int:
        return len(plan.make(runs, calibration=Calibration(replace(Rates(), compile_seconds=compile_seconds))).shapes)

    assert programs(1e3) == 1
    assert 1 < programs(0.005) <= programs(0.0) == 4


def test_a_program_that_is_compiled_already_is_preferred():
    runs = [(Point(V=60, N=1024, d=16, L=8), 0)]
    assert [str(shape) for shape in plan.make(runs, calibration=Calibration()).shapes] == ["64x16"]
    known = Calibration(programs=frozenset({LARGE, Shape(32, 16, 0, "none", "counts"), Shape(256, 128, 0, "none", "full")}))
    assert plan.make(runs, calibration=known).shapes == (LARGE,)
    # but not where its padding would cost more than compiling a tight one
    many = [(Point(V=60, N=2**20, d=16, L=64, exact="full"), seed) for seed in range(64)]
    assert [str(shape) for shape in plan.make(many, calibration=known).shapes] == ["64x16"]


def test_width_is_bounded_by_memory():
    runs = [(Point(V=64, N=1024, d=16, L=8), seed) for seed in range(100)]
    need = peak_bytes(Shape(64, 16, 0, "none", "counts"))
    assert plan.make(runs, limit=need).width(Shape(64, 16, 0, "none", "counts")) == 1
    wide = plan.make(runs, limit=100 * need)
    assert wide.width(Shape(64, 16, 0, "none", "counts")) == min(plan.cores(), 100)
    assert wide.peak_bytes == need * min(plan.cores(), 100)


def test_simulate_refuses_a_point_that_does_not_fit_in_memory(monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: (2**30 / machine.SHARE, "this test"))
    with pytest.raises(
        PointError, match=r"^d: got V=2, d=65536, m=0, which needs about \d+ MiB; allowed: 1024 MiB, 80 % of the 1280 MiB of this test"
    ):
        simulate(Point(V=2, N=1, d=65536, L=1), seed=0)


def test_memory_bounds_the_vmapped_runs_on_an_accelerator():
    runs = [(Point(V=256, N=1024, d=128, L=8), seed) for seed in range(100)]
    shape = Shape(256, 128, 0, "none", "counts")
    made = replace(plan.make(runs, (256, 128, 0)), batch=80)
    need = {width: 2 * width * peak_bytes(shape.vmapped(width)) for width in (1, 16, 64)}
    assert [made.vmapped_width(shape, memory, 1e-9) for memory in (2**40, need[64], need[64] - 1, need[16], 1)] == [64, 64, 32, 16, 1]
    assert replace(made, batch=1000).vmapped_width(shape, 2**40, 1e-9) == 64  # there are 100 runs
    assert peak_bytes(shape.vmapped(1)) > 1.5 * peak_bytes(shape.vmapped(64))  # more samples at a time


def test_cores_share_all_work_but_that_of_decoders(monkeypatch):
    monkeypatch.setattr(calibration, "cores", lambda: 4)
    both = Amounts(flops=1e12, decoded=1e12)
    assert Rates().on_all_cores(both) == pytest.approx(1e12 / Rates().flops / 4 + 1e12 / Rates().decoded)
