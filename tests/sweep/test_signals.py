"""One signal ends a sweep, also if a worker hangs or a task waits for resources that
nobody has; a lost head of a Ray cluster ends it in order.

Real sweeps are processes of their own and are marked `system`; test_engines.py has
workers in trouble.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import NO_FIGURE
from test_crash import SMALL, Sweeps
from test_engines import (
    ENGINES,
    PROGRAMS,
    RAY,
    WORKERS,
    below,
    children,
    cluster,
    ended_at_last,
    needs_ray,
    wait_for,
)

from jaxrecall.cli.process import STOPPING_AT_ONCE, Interrupts
from jaxrecall.status import survey
from jaxrecall.sweep.running.workers import ALIVE_SECONDS, SILENT_SECONDS

END_SECONDS = SILENT_SECONDS + 5.0
HEAD_SECONDS = 60.0
LONG = (*NO_FIGURE, "--set", "seeds.count=5000", "--set", "run.part_seconds=0.3")
"""Of small runs: a sweep of 20,000 of them is not done when its signal comes."""

ENDLESS_AFTER_SOME = (*LONG, "--set", "blocks.0.axes.N=[100,1000000000]")


def test_signals_wait_only_while_runs_are_in_flight():
    said = []
    with Interrupts() as interrupts:
        interrupts.message = said.append
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.message = said.append
        with interrupts.patient():
            assert not interrupts.requested
            signal.raise_signal(signal.SIGINT)
            assert interrupts.requested
            with pytest.raises(KeyboardInterrupt), interrupts.droppable():
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt), interrupts.droppable():
                pytest.fail("the second signal came before")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert said == [STOPPING_AT_ONCE]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory) -> Sweeps:
    return Sweeps(tmp_path_factory.mktemp("signals"), "small", SMALL, PROGRAMS)


def ended_by(
    sweeps: Sweeps,
    out: Path,
    options: tuple[str, ...],
    act: Callable[[subprocess.Popen[str]], None],
    seconds: float,
) -> dict[str, Any]:
    """A sweep to which `act` does something at its first part. It ends in order within
    so many seconds, and every row that it told of is in the folder.
    """
    began = 0.0

    def at_first(sweep: subprocess.Popen[str], n: int) -> None:
        nonlocal began
        if n == 1:
            act(sweep)
            began = time.monotonic()

    ended = sweeps.run(out, *options, act=at_first)
    assert began, ended["err"]
    assert time.monotonic() - began < seconds
    assert ended["event"] == "done", ended["err"]
    assert ended["returncode"] == ended["exit_code"]
    batches = [event for event in ended["events"] if event["event"] == "batch"]
    told = sum(batch["rows"] for batch in batches)
    facts = survey(out)
    assert facts["done"] == ended["runs_executed"] == told > 0
    assert facts["unreadable"] == []
    _, _, again = ended["err"].splitlines()[-1].partition("To ")
    command = sweeps.command(out, *options)
    assert shlex.split(again.partition(": ")[2])[1:] == command[1:]
    return ended


def check_interrupted(ended: dict[str, Any]) -> None:
    facts = [ended[name] for name in ("exit_code", "interrupted", "unsaved")]
    assert facts == [130, True, 0]


@pytest.mark.system
@pytest.mark.parametrize("options", [(), WORKERS], ids=["one", "workers"])
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "USR2"])
def test_a_signal_to_all_processes_ends_a_sweep(sweeps, tmp_path, options, name):
    """As a terminal and Slurm send it."""

    def warn(sweep: subprocess.Popen[str]) -> None:
        for pid in (*children(sweep.pid), sweep.pid):
            os.kill(pid, signal.Signals[f"SIG{name}"])

    ended = ended_by(sweeps, tmp_path, (*LONG, *options), warn, END_SECONDS)
    check_interrupted(ended)
    assert ended["runs_executed"] < 20_000
    assert len(ended["told"]) == 1, "no worker was lost"


@pytest.mark.system
@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_a_stopped_worker_does_not_keep_a_sweep(sweeps, tmp_path, options):
    seconds = END_SECONDS + ALIVE_SECONDS  # Ray itself takes some seconds to end
    stopped = []

    def stop(sweep: subprocess.Popen[str]) -> None:
        pids = below(sweep.pid, "compute_share")
        stopped.extend(pids or children(sweep.pid)[:1])
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        sweep.send_signal(signal.SIGTERM)

    try:
        ended = ended_by(sweeps, tmp_path, (*LONG, *options), stop, seconds)
    finally:
        left = [pid for pid in stopped if Path(f"/proc/{pid}").exists()]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    check_interrupted(ended)
    assert any("no sign of life for 30 s" in text for text in ended["told"])
    assert left == []


# --- Ray


@pytest.mark.system
@needs_ray
def test_a_ray_sweep_is_interrupted_like_any_other(sweeps, tmp_path):
    def end(sweep: subprocess.Popen[str]) -> None:
        sweep.send_signal(signal.SIGTERM)

    check_interrupted(ended_by(sweeps, tmp_path, (*LONG, *RAY), end, END_SECONDS))


@pytest.mark.system
@needs_ray
def test_tasks_that_wait_for_resources_are_cancelled_at_once(sweeps, tmp_path):
    sweeps.run(tmp_path, "--set", "seeds.count=1")
    options = (*LONG, *RAY, "--worker-resource", "nosuch=1")
    with sweeps.start(tmp_path, *options) as sweep, ended_at_last(sweep):
        assert any("no room for a worker yet" in line for line in sweep.stdout)
        time.sleep(2)
        sweep.send_signal(signal.SIGTERM)
        began = time.monotonic()
        told, err = sweep.communicate(timeout=100)
        assert time.monotonic() - began < END_SECONDS
    assert sweep.returncode == 130, err
    assert STOPPING_AT_ONCE in told
    assert "running batch" not in told
    assert '"event": "done"' in told
    assert survey(tmp_path)["done"] == 4


def check_lost_head(
    sweeps: Sweeps, out: Path, options: tuple[str, ...], gcs: int = 0
) -> None:
    """The head is killed: the sweep ends in a minute with exit code 3."""

    def kill(sweep: subprocess.Popen[str]) -> None:
        os.kill(gcs or wait_for(sweep, "gcs_server"), signal.SIGKILL)

    options = (*ENDLESS_AFTER_SOME, *options)
    ended = ended_by(sweeps, out, options, kill, HEAD_SECONDS)
    assert ended["exit_code"] == 3
    failed = [event["text"] for event in ended["events"] if event["event"] == "failed"]
    for text in failed:
        assert " is lost" in text.partition("the head of the Ray cluster at ")[2]
    assert "Failed to connect to GCS" not in ended["err"]


@pytest.mark.system
@needs_ray
def test_a_ray_of_the_sweep_that_loses_its_head_ends_the_sweep(sweeps, tmp_path):
    check_lost_head(sweeps, tmp_path, RAY)


@pytest.mark.system
@needs_ray
def test_a_cluster_that_loses_its_head_ends_the_sweep(sweeps, tmp_path, monkeypatch):
    env = {**sweeps.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5" * 64}
    monkeypatch.setattr(sweeps, "env", env)
    with cluster(env, cpus=2) as (address, head):
        started = below(head.pid, "")
        options = ("--engine", "ray", "--ray-address", address)
        try:
            check_lost_head(sweeps, tmp_path, options, below(head.pid, "gcs_server")[0])
        finally:
            for pid in started:
                if pid != head.pid and Path(f"/proc/{pid}").exists():
                    os.kill(pid, signal.SIGKILL)
