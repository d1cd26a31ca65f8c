"""What sweeps learn about a machine changes the times that are shown."""

from dataclasses import replace
from pathlib import Path

import pytest
from tolerances import assert_close

import jaxrecall
from jaxrecall.cli.program_cache import name_of
from jaxrecall.model.point import Point, Run
from jaxrecall.sweep import speed
from jaxrecall.sweep.grid import as_grid
from jaxrecall.sweep.plan import Plan, make_plan
from jaxrecall.sweep.running.job import prepare
from jaxrecall.sweep.speed import USUAL

POINT = Point(V=64, N=10**6, d=16, L=8)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of compiled programs."""
    folder = tmp_path / "programs"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
    monkeypatch.setattr(speed, "LEAST_SECONDS", 0.001)
    monkeypatch.setattr(speed, "FILE", "speed.json")
    return folder


def plan() -> Plan:
    return make_plan([Run(POINT, seed) for seed in range(64)])


def test_estimates_follow_what_was_measured():
    before = plan()
    usual = before.seconds
    speed.learn(run=(30.0, 10.0), compile=(8.0, 4.0))
    assert speed.slowness() == (3, 2)
    made = plan()
    assert_close(usual, made.run_seconds + made.start_seconds, "float64")
    slow = 3 * made.run_seconds + 2 * made.start_seconds
    assert_close(made.seconds, slow, "float64")
    [entry] = made.describe()
    assert_close(entry["est_seconds"], 3 * made.run_seconds, "float64")
    assert made.chunks == before.chunks
    speed.learn(run=(60.0, 5.0), compile=(0.0005, 100.0))  # is too short
    assert_close(speed.slowness().run, 30**0.5, "float64")
    assert speed.slowness().compile == 2


@pytest.mark.parametrize("content", ["", "[1]", "[1, null]"])
def test_a_damaged_file_is_no_measurement(folder, content):
    speed.learn(run=(30.0, 10.0))
    [path] = folder.iterdir()
    path.write_text(content)
    assert speed.slowness() is USUAL
    speed.learn(run=(30.0, 10.0))
    assert speed.slowness() == (3, 1)


def test_nothing_is_written_where_others_may_write(folder):
    folder.chmod(0o777)
    speed.learn(run=(30.0, 10.0))
    assert not [*folder.iterdir()]


def test_nothing_is_kept_where_no_programs_are(folder, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("JAXRECALL_CACHE", "")
    speed.learn(run=(30.0, 10.0))
    assert speed.slowness() is USUAL
    assert plan().start_seconds > 1
    assert not [*folder.iterdir()]


def test_a_program_that_is_kept_is_only_loaded(folder):
    cold = plan().start_seconds
    [shape] = plan().peaks
    other = replace(shape, V=32)
    folder.joinpath(f"{name_of(other)}-1.program").touch()
    assert plan().start_seconds == cold
    folder.joinpath(f"{name_of(shape)}-1.program").touch()
    assert plan().start_seconds < cold / 4


def test_a_sweep_measures_its_machine(tmp_path):
    grid = {"base": {"V": 8, "N": 64, "d": 4, "L": 3, "n_test": 16}, "seeds": 2}
    unknown = "no sweep has measured this machine"
    assert unknown in prepare(as_grid(grid), tmp_path / "first").start_line()
    jaxrecall.run(grid, out=tmp_path / "first")
    assert speed.slowness() is not USUAL
    assert unknown not in prepare(as_grid(grid), tmp_path / "second").start_line()
