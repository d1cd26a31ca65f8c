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
from jaxrecall.sweep.store import MemoryStore

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


def plan(*points: Point) -> Plan:
    runs = [Run(point, seed) for point in points or [POINT] for seed in range(64)]
    return make_plan(runs)


def learn(factor: float, *programs: str) -> None:
    """Records that runs and compilation took `factor` times what was estimated."""
    measured = 10 * factor, 10.0
    speed.learn(run=measured, compile=measured, programs=programs)


def test_estimates_follow_what_was_measured():
    before = plan()
    usual = before.seconds
    speed.learn(run=(30.0, 10.0), compile=(8.0, 4.0), programs=[])
    made = plan()
    assert_close(usual, made.run_seconds + made.start_seconds, "float64")
    slow = 3 * made.run_seconds + 2 * made.start_seconds
    assert_close(made.seconds, slow, "float64")
    [entry] = made.describe()
    assert_close(entry["est_seconds"], 3 * made.run_seconds, "float64")
    assert made.chunks == before.chunks
    speed.learn(run=(60.0, 5.0), compile=(0.0005, 100.0), programs=[])  # too short
    assert_close(speed.slowness().of("any"), 30**0.5, "float64")
    assert_close(speed.slowness().of("compile"), 2.0, "float64")


def test_a_program_that_has_run_here_has_a_factor_of_its_own():
    other = POINT.replace(m=32)
    [ours, theirs] = plan(POINT, other).describe()
    learn(1.5, "another program")
    learn(6, ours["program"])
    [slower, as_others] = plan(POINT, other).describe()
    assert_close(slower["est_seconds"], 6 * ours["est_seconds"], "float64")
    assert_close(as_others["est_seconds"], 3 * theirs["est_seconds"], "float64")
    made = plan(POINT, other)
    runs = slower["est_seconds"] + as_others["est_seconds"]
    assert_close(made.seconds, runs + 3 * made.start_seconds, "float64")


def test_a_search_knows_the_factors_of_its_programs():
    grid = {
        "base": {"V": 64, "d": 32, "L": 8},
        "seeds": {"count": 200},
        "search": {"axis": "N", "theta": 0.5, "from": 10**5, "to": 10**6},
    }
    search = prepare(as_grid(grid), MemoryStore()).search
    [program] = search.guess.peaks
    _, _, usual = search.cost()
    learn(4, program.label)
    _, _, slow = search.cost()
    # a part of the time does not depend on the machine
    assert 3.9 * usual < slow < 4 * usual


def test_the_programs_that_have_run_last_are_kept(monkeypatch):
    monkeypatch.setattr(speed, "MAX_KEPT", 3)
    learn(2, "oldest", "next")
    learn(8, "oldest")
    assert [*speed.slowness()] == ["compile", "run", "oldest"]


@pytest.mark.parametrize("content", ["", "[1]", '{"run": null}', '{"run": [1]}'])
def test_a_damaged_file_is_no_measurement(folder, content):
    learn(3)
    [path] = folder.iterdir()
    path.write_text(content)
    assert not speed.slowness()
    learn(4)
    assert_close(speed.slowness().of("compile"), 4.0, "float64")


def test_nothing_is_written_where_others_may_write(folder):
    folder.chmod(0o777)
    learn(3)
    assert not [*folder.iterdir()]


def test_nothing_is_kept_where_no_programs_are(folder, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("JAXRECALL_CACHE", "")
    learn(3)
    assert not speed.slowness()
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
    assert speed.slowness()
    assert unknown not in prepare(as_grid(grid), tmp_path / "second").start_line()
