"""Settings of JAX under which no run can succeed are refused in one line, before
anything runs; others change nothing.
"""

import os
from unittest.mock import Mock

import jax
import pandas as pd
import pytest
import yaml
from helpers import combinations, process

from jaxrecall import Point, run, simulate
from jaxrecall.errors import UsageError
from jaxrecall.simulator import device
from jaxrecall.sweep.__main__ import main

TEXT = """
name: tiny
base: {V: 8, d: 4, L: 4, n_test: 32}
seeds: 2
blocks: [{axes: {N: [4, 8]}}]
"""
GRID = yaml.safe_load(TEXT)
ALLOWED = {
    "jax_disable_jit": "(jax_disable_jit); allowed: False",
    "jax_threefry_partitionable": "; allowed: True",
}
REFUSED = {
    "JAX_PLATFORMS=wrong": "JAX_PLATFORMS and JAX_PLATFORM_NAME: got 'wrong' and ''",
    "JAX_PLATFORMS=cuda": "JAX_PLATFORMS and JAX_PLATFORM_NAME: got 'cuda' and ''",
    "JAX_PLATFORM_NAME=wrong": "JAX_PLATFORMS and JAX_PLATFORM_NAME: got 'cpu' and",
    "JAX_DISABLE_JIT=1": f"JAX_DISABLE_JIT: got True {ALLOWED['jax_disable_jit']}",
    "JAX_THREEFRY_PARTITIONABLE=0": (
        f"jax_threefry_partitionable: got False{ALLOWED['jax_threefry_partitionable']}"
    ),
    "JAX_ENABLE_X64=maybe": (
        "JAX cannot be imported: invalid truth value 'maybe' for environment"
        " 'JAX_ENABLE_X64'"
    ),
}


def often(setting: str, workers: int) -> bool:
    """Those that JAX itself refuses; tests in this process have the others."""
    return (setting, workers) in {
        ("JAX_PLATFORMS=wrong", 0),
        ("JAX_ENABLE_X64=maybe", 0),
    }


@pytest.mark.parametrize(
    ("setting", "workers"), combinations(REFUSED, [0, 2], often=often)
)
def test_a_setting_that_lets_no_run_succeed_is_one_line(tmp_path, setting, workers):
    if setting.startswith("JAX_ENABLE_X64") and workers:
        pytest.skip(
            "a worker is told whether x64 is on, and does not read the variable"
        )
    if setting == "JAX_PLATFORMS=cuda" and os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has such a device")
    (tmp_path / "tiny.yaml").write_text(TEXT)
    words = ["-m", "jaxrecall.sweep", "--grid", "tiny.yaml", "--out", "out"]
    if workers:
        words += ["--workers", str(workers)]
    name, _, value = setting.partition("=")
    done = process(*words, folder=tmp_path, exit_code=2, **{name: value})
    [line] = done.stderr.splitlines()
    assert line.startswith(REFUSED[setting])
    assert not list(tmp_path.rglob("*.parquet"))
    assert workers or not (tmp_path / "out").exists()


@pytest.mark.parametrize("setting", ALLOWED)
def test_a_setting_of_this_process_that_lets_no_run_succeed_is_one_line(
    cwd, capsys, setting
):
    (cwd / "tiny.yaml").write_text(TEXT)
    before = getattr(jax.config, setting)
    jax.config.update(setting, not before)
    try:
        assert main(["--grid", "tiny.yaml", "--out", "out"]) == 2
    finally:
        jax.config.update(setting, before)
    [line] = capsys.readouterr().err.splitlines()
    assert f"got {not before}" in line
    assert ALLOWED[setting] in line
    assert not (cwd / "out").exists()


def test_a_device_that_fails_without_words_is_one_line(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", Mock(side_effect=AssertionError()))
    told = "JAX_PLATFORMS and JAX_PLATFORM_NAME: got 'cpu' and 'wrong', which does not"
    jax.config.update("jax_platform_name", "wrong")
    try:
        with pytest.raises(UsageError, match=f"^{told} start here .JAX has no plugin"):
            device.start()
    finally:
        jax.config.update("jax_platform_name", "")


def test_a_jax_that_does_not_fit_into_memory_is_one_line(tmp_path):
    why = (  # under `ulimit -v`
        "libjax_common.so: failed to map segment from shared object"
    )
    (tmp_path / "jax.py").write_text(f"raise ImportError({why!r})\n")
    (tmp_path / "tiny.yaml").write_text(TEXT)
    words = ["-m", "jaxrecall.sweep", "--grid", "tiny.yaml", "--out", "out"]
    done = process(*words, folder=tmp_path, exit_code=2)
    assert done.stderr == f"JAX cannot be imported: {why}\n"
    assert not (tmp_path / "out").exists()


def test_a_call_inside_jit_is_one_line():
    with pytest.raises(
        UsageError,
        match=r"^jaxrecall: got a call inside jax.jit; allowed: outside of it",
    ):
        jax.jit(lambda x: len(run(GRID, progress=False)) * x)(1.0)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return run(GRID, progress=False).drop(columns="seconds")


# "run" is what programs call their own
@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("axis", [pytest.param("x", marks=pytest.mark.slow), "run"])
def test_a_mesh_that_a_program_has_set_changes_nothing(axis, rows):
    with jax.set_mesh(jax.make_mesh((1,), (axis,))):
        pd.testing.assert_frame_equal(
            run(GRID, progress=False).drop(columns="seconds"), rows
        )
        assert (
            simulate(Point(V=8, d=4, L=4, N=4, n_test=32), 0)["accuracy"]
            == rows["accuracy"][0]
        )
        assert jax.sharding.get_abstract_mesh().axis_names == (axis,)
