"""One signal ends a sweep, also if a worker hangs or a task waits for resources that
nobody has; a lost head of a Ray cluster ends it in order.

Real sweeps are processes of their own and are marked `system`.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers import NO_FIGURE
from test_crash import SMALL, Sweeps
from test_engines import (
    ENDLESS_AFTER_SOME,
    RAY,
    ScriptedWorkers,
    below,
    children,
    finished,
    killed_at_last,
    needs_ray,
    scripted,
    wait_for,
)

from jaxrecall.cli.process import STOPPING_AT_ONCE, Interrupts
from jaxrecall.status import survey
from jaxrecall.sweep.running import workers as processes
from jaxrecall.sweep.running.progress import Event
from jaxrecall.sweep.running.workers import SILENT_SECONDS, Place

END_SECONDS = SILENT_SECONDS + 5.0
HEAD_SECONDS = 60.0
LONG = (*NO_FIGURE, "--set", "seeds.count=5000", "--set", "run.part_seconds=0.3")
"""Of small runs: a sweep of 20,000 of them is not done when its signal comes."""


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory) -> Sweeps:
    home = tmp_path_factory.mktemp("signals")
    (home / "small.yaml").write_text(SMALL)
    sweeps = Sweeps(home, "small")
    sweeps.env["JAX_COMPILATION_CACHE_DIR"] = os.environ["JAX_COMPILATION_CACHE_DIR"]
    return sweeps


def texts(ended: dict[str, Any]) -> list[str]:
    return [event["text"] for event in ended["events"] if event["event"] == "message"]


def check_ended(ended: dict[str, Any], out: Path, command: list[str]) -> None:
    """A signal ended a sweep in order: every row that it told of is in the folder."""
    assert (ended["returncode"], ended["event"]) == (130, "done"), ended["err"]
    assert (ended["exit_code"], ended["interrupted"], ended["unsaved"]) == (
        130,
        True,
        0,
    )
    told = sum(event["rows"] for event in ended["events"] if event["event"] == "batch")
    assert survey(out)["done"] == ended["runs_executed"] == told
    last = ended["err"].splitlines()[-1]
    assert shlex.split(last.partition("To resume: ")[2])[1:] == command[1:]


@pytest.mark.system
@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "workers"])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_warning_of_a_scheduler_ends_a_sweep(sweeps, tmp_path, options, number):
    """To all of its processes, as Slurm sends it."""

    def warn(sweep: subprocess.Popen[str], n: int) -> None:
        if n == 1:
            for pid in (*children(sweep.pid), sweep.pid):
                os.kill(pid, number)

    ended = sweeps.run(tmp_path, *LONG, *options, act=warn)
    check_ended(ended, tmp_path, sweeps.command(tmp_path, *LONG, *options))
    assert 0 < ended["runs_executed"] < 20_000
    assert len(texts(ended)) == 1, "no worker was lost"


class Silent(ScriptedWorkers):
    """Workers that go on for ever; the last one is never heard of again."""

    queued = False

    def give(self, place: Place, message: bytes) -> None:
        super().give(place, message)
        place.is_queued = self.queued

    def events(self, seconds: float) -> list[tuple[Place, Event]]:
        time.sleep(0.01)
        busy = [place for place in self.places if place.chunk]
        if self.queue or self.queued or len(busy) < 2:
            return super().events(seconds) if self.queue else []
        return [(busy[0], ("alive",))]


@pytest.fixture
def interrupts() -> Interrupts:
    return Interrupts()


def test_a_worker_that_gives_no_sign_of_life_is_ended_and_a_busy_one_is_not(
    tmp_path, monkeypatch, interrupts
):
    monkeypatch.setattr(processes, "SILENT_SECONDS", 0.2)

    def script(workers: ScriptedWorkers, runs: Any) -> list[Event]:
        if len(workers.chunks) == 2:
            interrupts._handle(signal.SIGUSR1, None)
        return []

    class UntilOneIsEnded(Silent):
        def end(self, place: Place) -> None:
            super().end(place)
            (busy,) = [other for other in self.places if other is not place]
            if busy.chunk:
                runs = list(busy.left.values())
                self.queue.append((busy, finished(runs[:2])))

    workers = UntilOneIsEnded(script)
    call, messages, folder = scripted(tmp_path, workers, interrupts)
    assert workers.ended == [1, 0], "the busy one after its batch"
    assert (call.exit_code, call.runs, folder["done"]) == (130, 2, 2)
    assert messages[0].startswith("stopping when the running batch is finished")
    n = len(workers.ids()[1])
    assert messages[1:] == [
        f"worker 1: no sign of life for 0 s; the same command computes its {n} runs"
        " again"
    ]


def test_chunks_that_nobody_has_begun_are_dropped_at_once(tmp_path, interrupts):
    def script(workers: ScriptedWorkers, runs: Any) -> list[Event]:
        if len(workers.chunks) == 2:
            interrupts._handle(signal.SIGTERM, None)
        return []

    workers = Silent(script)
    workers.queued = True
    call, messages, _ = scripted(tmp_path, workers, interrupts)
    assert (call.exit_code, workers.ended) == (130, [0, 1])
    assert messages == [STOPPING_AT_ONCE]


@pytest.mark.system
def test_a_stopped_worker_does_not_keep_a_sweep(sweeps, tmp_path):
    began = 0.0

    def stop(sweep: subprocess.Popen[str], n: int) -> None:
        nonlocal began
        if n == 1:
            os.kill(children(sweep.pid)[0], signal.SIGSTOP)
            sweep.send_signal(signal.SIGTERM)
            began = time.monotonic()

    options = (*LONG, "--workers", "2")
    ended = sweeps.run(tmp_path, *options, act=stop)
    assert began, ended["err"]
    assert time.monotonic() - began < END_SECONDS
    check_ended(ended, tmp_path, sweeps.command(tmp_path, *options))
    assert any("worker 0: no sign of life for 30 s" in text for text in texts(ended))


# --- Ray


@pytest.mark.system
@needs_ray
def test_tasks_that_wait_for_resources_are_cancelled_at_once(sweeps, tmp_path):
    small = ("--set", "seeds.count=1")
    assert sweeps.run(tmp_path, *small)["runs_executed"] == 4
    options = (*LONG, *RAY, "--worker-resource", "nosuch=1")
    with sweeps.start(tmp_path, *options) as sweep, killed_at_last(sweep):
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


@pytest.mark.system
@needs_ray
def test_a_stopped_task_of_ray_does_not_keep_a_sweep(sweeps, tmp_path):
    began, stopped = 0.0, list[int]()

    def stop(sweep: subprocess.Popen[str], n: int) -> None:
        nonlocal began
        if n == 1:
            stopped.extend(below(sweep.pid, "run_chunk"))
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            sweep.send_signal(signal.SIGTERM)
            began = time.monotonic()

    options = (*LONG, *RAY)
    try:
        ended = sweeps.run(tmp_path, *options, act=stop)
        assert began, ended["err"]
        # Ray itself takes some seconds to end
        assert time.monotonic() - began < END_SECONDS + processes.ALIVE_SECONDS
    finally:
        left = [pid for pid in stopped if Path(f"/proc/{pid}").exists()]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    check_ended(ended, tmp_path, sweeps.command(tmp_path, *options))
    assert any("no sign of life for 30 s" in text for text in texts(ended))
    assert left == []


@contextmanager
def cluster(env: dict[str, str]) -> Iterator[tuple[str, int]]:
    """The address of a Ray cluster of its own, which asks for a token, and the process
    that holds its head.
    """
    ray = str(Path(sys.executable).with_name("ray"))
    words = "start --head --port=0 --num-cpus=2 --include-dashboard=false --block"
    with TemporaryDirectory(prefix="ray") as logs:  # short: it holds sockets
        command = [ray, *words.split(), f"--temp-dir={logs}"]
        with (
            subprocess.Popen(command, env=env, stdout=-1, stderr=-2, text=True) as head,
            killed_at_last(head),
        ):
            assert head.stdout
            address = next(
                line.split("'")[1]
                for line in head.stdout
                if "ray start --address=" in line
            )
            started = below(head.pid, "")
            try:
                yield address, below(head.pid, "gcs_server")[0]
            finally:
                for pid in started:
                    if pid != head.pid and Path(f"/proc/{pid}").exists():
                        os.kill(pid, signal.SIGKILL)


def check_lost_head(sweeps: Sweeps, out: Path, options: tuple[str, ...], gcs: int = 0):
    """The head is killed at the first part: the sweep ends in a minute with exit code
    3, and every row that it told of is in the folder.
    """
    began = 0.0

    def kill(sweep: subprocess.Popen[str], n: int) -> None:
        nonlocal began
        if n == 1:
            os.kill(gcs or wait_for(sweep, "gcs_server"), signal.SIGKILL)
            began = time.monotonic()

    ended = sweeps.run(out, *LONG, *ENDLESS_AFTER_SOME, *options, act=kill)
    assert began, ended["err"]
    assert time.monotonic() - began < HEAD_SECONDS
    assert (ended["returncode"], ended["event"], ended["exit_code"]) == (3, "done", 3)
    told = sum(event["rows"] for event in ended["events"] if event["event"] == "batch")
    facts = survey(out)
    assert facts["done"] == ended["runs_executed"] == told > 0
    assert facts["unreadable"] == []
    failed = [event["text"] for event in ended["events"] if event["event"] == "failed"]
    assert all("the head of the Ray cluster at " in text for text in failed)
    assert all(" is lost" in text for text in failed)
    again = ended["err"].splitlines()[-1].partition("To try them again: ")[2]
    assert (
        shlex.split(again)[1:]
        == sweeps.command(out, *LONG, *ENDLESS_AFTER_SOME, *options)[1:]
    )
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
    with cluster(env) as (address, gcs):
        options = ("--engine", "ray", "--ray-address", address)
        check_lost_head(sweeps, tmp_path, options, gcs)
