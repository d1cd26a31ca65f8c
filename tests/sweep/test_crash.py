"""Sweeps that are killed, starved of disk or memory, or run twice at once: nothing
finished is lost, nothing is run twice.

Most sweeps here are processes of their own; the programs that they compile are shared
in one folder, so that most start in seconds.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import ROOT
from test_store import rows
from tolerances import assert_close

from jaxrecall import Point, load
from jaxrecall.cli.command import called
from jaxrecall.model.point import Run
from jaxrecall.status import survey
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.plan import Chunk
from jaxrecall.sweep.running import call
from jaxrecall.sweep.running.call import Call
from jaxrecall.sweep.running.progress import Events, Failure
from jaxrecall.sweep.store import Store

SMALL = """
name: small
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 24}
blocks: [{axes: {d: [8, 12], N: [100, 600]}}]
run: {part_seconds: 0}
"""


class Sweeps:
    """Starts sweeps of one grid and reads their events. `programs` is a folder of
    compiled programs; the default is one in `home`.
    """

    def __init__(self, home: Path, grid: str, text: str = "", programs: str = ""):
        self.home, self.grid = home, grid
        if text:
            (home / f"{grid}.yaml").write_text(text)
        folders = {"PYTHONPATH": str(ROOT), "JAXRECALL_CACHE": str(home / "cache")}
        self.env = {**os.environ, **folders, "JAX_COMPILATION_CACHE_DIR": programs}
        if not programs:
            del self.env["JAX_COMPILATION_CACHE_DIR"]  # that of all tests

    def command(self, out: Path | str, *more: str, body: str = "") -> list[str]:
        """The command of a sweep into `out`; `body` runs before it in the same
        process.
        """
        code = "import sys; from jaxrecall.sweep.__main__ import main\n"
        program = ["-m", "jaxrecall.sweep"]
        if body:
            program = ["-c", f"{code}{body}\nsys.exit(main())"]
        grid = str(self.home / f"{self.grid}.yaml")
        about = ["--grid", grid, "--json-log", "--out", str(out)]
        return [sys.executable, *program, *about, *more]

    def start(
        self, out: Path | str, *more: str, body: str = ""
    ) -> subprocess.Popen[str]:
        command = self.command(out, *more, body=body)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.env, text=True, **pipes)

    def run(
        self,
        out: Path | str,
        *more: str,
        body: str = "",
        act: Callable[..., Any] = lambda sweep, n: None,
    ) -> dict[str, Any]:
        """Runs a sweep to its end, calling `act(sweep, n)` at the n-th part; its last
        event, with `returncode`, `err`, `events`, and the texts of its messages as
        `told`.
        """
        sweep = self.start(out, *more, body=body)
        events, parts, told = [], [], []
        assert sweep.stdout
        for line in sweep.stdout:
            event = json.loads(line)
            events.append(event)
            if event["event"] == "message":
                told.append(event["text"])
            if event["event"] == "part":
                parts.append(event["rows"])
                act(sweep, len(parts))
        _, err = sweep.communicate(timeout=300)
        last = events[-1] if events else {}
        if last.get("event") == "done":
            # the kill may come between its last event and its end
            assert sweep.returncode in (last["exit_code"], -signal.SIGKILL)
            assert last["runs_executed"] - last["unsaved"] == sum(parts)
        heard = {"err": err, "events": events, "told": told}
        return {**last, "returncode": sweep.returncode, **heard}


def check_done(ended: dict[str, Any], n: int) -> None:
    """The sweep computed so many runs, and none failed."""
    counts = ended.get("exit_code"), ended.get("runs_executed"), ended.get("failed")
    assert counts == (0, n, 0), ended["err"]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Sweeps:
    return Sweeps(tmp_path_factory.mktemp("crash"), "small", SMALL)


def numbers(folder: Path) -> pd.DataFrame:
    """All columns but timing. A run that is there twice is a warning, and so an error
    in every test.
    """
    return load(folder).drop(columns="seconds")


@pytest.fixture(scope="module")
def uninterrupted(small) -> pd.DataFrame:
    out = small.home / "uninterrupted"
    check_done(small.run(out), 96)
    return numbers(out)


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, check_exact=True)


# --- killed


@pytest.mark.system
@pytest.mark.parametrize("signals", ["TERM INT", "HUP HUP", "INT" + " INT" * 8])
def test_a_second_signal_drops_the_batch_in_flight(small, tmp_path, signals):
    # a run takes hours
    sweep = small.start(tmp_path, "--set", "blocks.0.axes.N=[1000000000]")
    first, *others = (signal.Signals[f"SIG{name}"] for name in signals.split())
    events = map(json.loads, sweep.stdout)
    assert any(event["event"] == "compiled" for event in events)
    sweep.send_signal(first)
    assert "A second signal drops it" in next(events)["text"]
    for number in others:
        sweep.send_signal(number)
        time.sleep(0.002)
    assert sweep.wait(timeout=60) == 130
    assert len(others) > 1 or [event["exit_code"] for event in events] == [130]
    err = sweep.communicate()[1]
    assert "interrupted" in err
    assert f"To resume: {called('sweep')}" in err or len(others) > 1
    assert not {"Traceback", "ignored"} & {*err.split()}


@pytest.mark.system
def test_two_sweeps_of_one_folder_at_once(small, uninterrupted, tmp_path):
    both = [small.start(tmp_path) for _ in range(2)]
    told = [sweep.communicate(timeout=300) for sweep in both]
    assert [sweep.returncode for sweep in both] == [0, 0], told
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same run twice is one row
        same(numbers(tmp_path), uninterrupted)
    assert not list((tmp_path / "_staging").iterdir())


# --- a disk that refuses

QUICK = "from jaxrecall.sweep.running import call; call.WAITS = (0.05, 0.1)"


def in_namespace(mount: str) -> tuple[str, ...]:
    """A command prefix: the rest runs after `mount`, in a mount namespace that ends
    with it. Skips where that is refused.
    """
    unshare = "unshare --user --map-root-user --mount sh -c"
    prefix = (*unshare.split(), f'{mount} && exec "$@"', "sh")
    if (
        not shutil.which("unshare")
        or subprocess.run([*prefix, "true"], capture_output=True).returncode
    ):
        pytest.skip("needs a mount of its own: no unshare, or user namespaces are off")
    return prefix


def check_refused(events: list[dict[str, Any]], err: str, why: str) -> int:
    """The sweep of these events said once why it could not save, and how many rows that
    cost; returns how many.
    """
    done = events[-1]
    assert (done["event"], done["exit_code"]) == ("done", 3), err
    assert done["unsaved"] > 0
    told = [event["text"] for event in events if event["event"] == "message"]
    assert sum(why in text for text in told) == 1
    lost = f"{done['unsaved']} finished runs could not be saved and are lost"
    assert f"{lost}. To compute just those again: {called('sweep')}" in err
    assert "Traceback" not in err
    return done["unsaved"]


@pytest.mark.system
def test_a_full_disk_costs_what_it_could_not_take(small, uninterrupted, tmp_path):
    out = tmp_path / "disk" / "out"
    out.parent.mkdir()
    before = in_namespace(
        f"mount -t tmpfs -o size=8m tmpfs {out.parent} && head -c 7472k /dev/zero >"
        f" {out}-filler"
    )
    twice = (  # the mount goes with the process
        f'"$@"; ls -A {out} > {tmp_path}/listed; rm {out}-filler; "$@"; cp -r {out}'
        f" {tmp_path}/copy"
    )
    command = [*before, "sh", "-c", twice, "sh", *small.command(out, body=QUICK)]
    told = subprocess.run(
        command, env=small.env, capture_output=True, text=True, timeout=300
    )
    events = [json.loads(line) for line in told.stdout.splitlines()]
    second = [i for i, event in enumerate(events) if event["event"] == "start"][1]
    unsaved = check_refused(events[:second], told.stderr, "No space left on device")
    listed = {"_staging", "manifest.json", "parts"}
    # the figure may be missing too, unless it was smaller than a part
    if "the figure could not be made: [Errno 28] No space" not in told.stderr:
        listed.add("accuracy.png")
    assert {*(tmp_path / "listed").read_text().split()} == listed
    saved = events[second - 1]["runs_executed"] - unsaved
    assert saved > 0
    assert events[second]["done"] == saved
    check_done({"err": told.stderr, **events[-1]}, 96 - saved)
    same(numbers(tmp_path / "copy"), uninterrupted)


@pytest.mark.system
def test_a_folder_deleted_in_mid_run_is_told_and_not_made_again(small, tmp_path):
    def delete(sweep, k: int) -> None:
        if k == 3:
            (tmp_path / "out").rename(tmp_path / "gone")

    ended = small.run(tmp_path / "out", body=QUICK, act=delete)
    why = "No such file or directory"
    n_saved = ended["runs_executed"] - check_refused(ended["events"], ended["err"], why)
    assert not (tmp_path / "out").exists()
    assert survey(tmp_path / "gone")["done"] == n_saved >= 3


# --- rows on their way to disk


class Log:
    """What a call shows."""

    def __init__(self, store: Store) -> None:
        self.out, self.store = io.StringIO(), store

    def call(self, part_seconds: float) -> Call:
        settings = Settings(part_seconds=part_seconds)
        return Call(self.store, settings, "again", display=Events(self.out))

    def __getitem__(self, kind: str) -> list[dict[str, Any]]:
        events = map(json.loads, self.out.getvalue().splitlines())
        return [event for event in events if event["event"] == kind]

    def parts(self) -> list[int]:
        return [part["rows"] for part in self["part"]]


@pytest.fixture
def log(tmp_path) -> Log:
    store = Store(tmp_path / "out")
    store.prepare({})
    return Log(store)


def part(*which: int) -> tuple[Chunk, list[list[dict[str, Any]]]]:
    """Runs of a second each with one row each."""
    runs = tuple(Run(Point(V=20, N=100, d=8, L=3), i) for i in which)
    return Chunk("20x12", runs, float(len(which))), [[row] for row in rows(*which)]


FAILED = {
    "ValueError: no good\nand more": "no good",
    "ValueError: ": "ValueError",
    "no worker starts: exit code 1": "no worker starts: exit code 1",
}


def test_the_log_counts_and_names_what_failed_in_a_line_without_its_class(log):
    failing = log.call(1000)
    for n, (error, line) in enumerate(FAILED.items(), 1):
        failing.take(part(*range(n))[0], Failure(error))
        failed = log["failed"][-1]
        assert failed["runs"] == n
        assert f": {line}; details: {failed['details']}" in failed["text"]
    details = {event["details"] for event in log["failed"]}
    assert details == {*map(str, log.store.failures.iterdir())}
    assert (len(failing.failures), failing.exit_code) == (3, 3)


def test_a_part_is_written_when_it_is_due_and_when_it_ends(log):
    slow = log.call(1000)
    slow.take(*part(0, 1))
    slow.take(*part(2))
    assert log.parts() == []
    slow.due = time.monotonic()
    slow.take(*part(3))
    assert log.parts() == [4]
    slow.take(*part(4))
    slow.save(now=True)
    slow.save(now=True)
    assert log.parts() == [4, 1]
    assert len(load(log.store.folder)) == 5
    every = log.call(0)
    every.take(*part(5))
    every.take(*part(6))
    assert log.parts() == [4, 1, 1, 1]


@pytest.fixture
def tries(monkeypatch) -> list[int]:
    """The rows of each try to write. The folder `away` comes back at the third and the
    sixth.
    """
    monkeypatch.setattr(call, "WAITS", (0.01, 0.02, 0.03))
    tries = []
    write = Store.write

    def watched(self: Store, rows: list[dict[str, Any]]) -> Path:
        tries.append(len(rows))
        away = self.folder.with_name("away")
        if len(tries) in (3, 6) and away.exists():
            away.rename(self.folder)
        return write(self, rows)

    monkeypatch.setattr(Store, "write", watched)
    return tries


def test_a_disk_that_comes_back_gets_every_row(log, tries):
    patient = log.call(0)
    for first in (0, 2):
        log.store.folder.rename(log.store.folder.with_name("away"))
        patient.take(*part(first, first + 1))
        assert (patient.rows, patient.gave_up) == ([], False)
    assert tries == [2] * 6, "another outage gets all its tries"
    again = [message["text"].split(": ")[-1] for message in log["message"]][1::2]
    assert again == ["2 rows written"] * 2
    assert load(log.store.folder).seed.tolist() == [0, 1, 2, 3]


def test_a_disk_that_stays_away_ends_it_after_so_many_tries(log, tries):
    shutil.rmtree(log.store.folder)
    patient = log.call(0)
    patient.take(*part(0, 1))
    assert patient.gave_up
    assert tries == [2, 2, 2, 2]
    patient.take(*part(2))
    patient.save(now=True)
    assert (len(patient.rows), patient.unsaved, patient.exit_code) == (3, 3, 3)
    assert len(tries) == 4
    assert len(log["message"]) == 1
    assert not log.store.folder.exists()


def test_nobody_waits_for_a_disk_who_was_asked_to_stop(log, monkeypatch):
    monkeypatch.setattr(call, "WAITS", (1000.0,) * 3)
    shutil.rmtree(log.store.folder)
    stopping = log.call(0)
    stopping.interrupts.requested = True
    start = time.monotonic()
    stopping.take(*part(0, 1))
    assert stopping.gave_up
    assert time.monotonic() - start < 100
    assert len(stopping.rows) == 2


def test_the_time_left_counts_programs_that_are_still_to_be_compiled(log):
    """And the line of progress says whose accuracy it is."""
    half = log.call(1000)
    half.n_runs, half.est_seconds, half.n_programs = 4, 4.0, 3
    half.accuracy_column = "snr"
    half.handle(("compiled", "16x16", 10.0))
    half.start = time.monotonic() - 12.0  # of which 2 s went to runs
    chunk, traces = part(0, 1)
    traces[1][0]["snr"] = 0.5
    half.take(chunk, traces)
    assert_close(half.eta, 2.0 + 2 * 10.0, 0.5)
    for _ in range(3):  # workers compile some programs more than once
        half.handle(("compiled", "16x16", 0.0))
    assert_close(half.eta, 2.0, 0.5)
    assert half.summary().startswith("2/4 runs, 50 %, ")
    assert "last snr 0.50" in half.summary()


# --- too little memory

SHORT = """
import jax, resource
from jaxrecall.simulator import program
program.on_cpu = lambda: False  # runs side by side, as on an accelerator
jax.numpy.zeros(3)
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 14 * 10**8,) * 2)  # too little for 8 runs at a time
"""  # noqa: E501


@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="needs RLIMIT_AS and /proc, which this system lacks",
)
@pytest.mark.system
def test_batches_are_halved_until_memory_suffices(tmp_path):
    # a folder of its own: rates that sweeps under faults measured would make the first
    # batch small
    grid = "base: {V: 4000, L: 1, d: 2, N: 1, n_test: 1, exact: full}\nseeds: 20"
    ended = Sweeps(tmp_path, "wide", grid).run(tmp_path / "rows", body=SHORT)
    check_done(ended, 20)
    short = "program 4096x16: out of memory with "
    assert {text[: len(short)] for text in ended["told"]} == {short}
    assert len(numbers(tmp_path / "rows")) == 20
