"""Sweeps that are killed, starved of disk or memory, or run twice at once: nothing
finished is lost, nothing is run twice.

Every sweep here is a process of its own; the programs it compiles are shared in one
folder, so that most start in seconds.
"""

import io
import json
import os
import random
import resource
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
from test_store import in_namespace, rows

from jaxrecall import Point, load
from jaxrecall.cli.command import called
from jaxrecall.cli.process import Interrupts
from jaxrecall.errors import StoreError
from jaxrecall.model.columns import COLUMNS
from jaxrecall.model.point import Run
from jaxrecall.status import survey
from jaxrecall.sweep.grid.file import Settings
from jaxrecall.sweep.plan import Chunk
from jaxrecall.sweep.running import call
from jaxrecall.sweep.running.call import Call
from jaxrecall.sweep.running.progress import Events, Failure
from jaxrecall.sweep.store import PART_BYTES, ROW_BYTES, Store

SMALL = """
name: small
base: {V: 20, L: 3, n_test: 200}
seeds: {count: 24}
blocks: [{axes: {d: [8, 12], N: [100, 600]}}]
run: {part_seconds: 0}
"""
S1 = """
name: s1
seeds: {count: 2}
blocks: [{axes: {V: [64, 128, 256], d: [16, 32, 64, 128], L: [8, 32], N: [1024, 4096, 16384]}}]
run: {part_seconds: 0}
"""  # noqa: E501
# forced: what is missing would choose its own, and round otherwise
BUCKETS = {
    "small": "20x12",
    "s1": "256x128",
    "wide": "4000x2",
    "steady": "64x32",
    "searched": "64x32",
    "trained": "32x16",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with both grids, where compiled programs are kept."""
    folder = tmp_path_factory.mktemp("crash")
    for name, text in (("small", SMALL), ("s1", S1)):
        (folder / f"{name}.yaml").write_text(text)
    return folder


class Sweeps:
    """Starts sweeps of one grid and reads their events."""

    def __init__(self, home: Path, grid: str):
        self.home, self.grid = home, grid
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAXRECALL_CACHE": str(home / "cache"),
        }
        self.env.pop("JAX_COMPILATION_CACHE_DIR", None)  # that of all tests

    def command(self, out: Path | str, *more: str, body: str = "") -> list[str]:
        """The command of a sweep into `out`; `body` runs before it in the same
        process.
        """
        program = (
            [
                "-c",
                (
                    "import sys; from jaxrecall.sweep.__main__ import"
                    f" main\n{body}\nsys.exit(main())"
                ),
            ]
            if body
            else ["-m", "jaxrecall.sweep"]
        )
        about = [
            "--grid",
            str(self.home / f"{self.grid}.yaml"),
            "--bucket",
            BUCKETS[self.grid],
            "--json-log",
            "--out",
            str(out),
        ]
        return [sys.executable, *program, *about, *more]

    def start(
        self, out: Path | str, *more: str, body: str = ""
    ) -> subprocess.Popen[str]:
        command = self.command(out, *more, body=body)
        return subprocess.Popen(
            command,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        out: Path | str,
        *more: str,
        body: str = "",
        act: Callable[..., Any] = lambda sweep, n: None,
    ) -> dict[str, Any]:
        """Runs a sweep to its end, calling `act(sweep, n)` at the n-th part; its last
        event, with `returncode`, `err`, `events`.
        """
        sweep = self.start(out, *more, body=body)
        events = []
        assert sweep.stdout
        for line in sweep.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "part":
                act(sweep, sum(event["event"] == "part" for event in events))
        _, err = sweep.communicate(timeout=300)
        last = events[-1] if events else {}
        if last.get("event") == "done":
            # the kill may come between its last event and its end
            assert sweep.returncode in (
                last["exit_code"],
                -signal.SIGKILL,
            )
            assert last["runs_executed"] - last["unsaved"] == sum(
                event["rows"] for event in events if event["event"] == "part"
            )
        return {**last, "returncode": sweep.returncode, "err": err, "events": events}


@pytest.fixture(scope="module")
def small(home) -> Sweeps:
    return Sweeps(home, "small")


def numbers(folder: Path) -> pd.DataFrame:
    """All columns but timing."""
    return load(folder).drop(columns="seconds")


@pytest.fixture(scope="module")
def uninterrupted(small, home) -> pd.DataFrame:
    done = small.run(home / "uninterrupted")
    assert (done["exit_code"], done["runs_executed"]) == (0, 96), done["err"]
    return numbers(home / "uninterrupted")


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, check_exact=True)


def quiet(folder: Path) -> pd.DataFrame:
    """Numbers of a folder that holds no run twice and nothing unreadable."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return numbers(folder)


# --- killed


@pytest.mark.system
def test_twenty_kills_just_after_a_part(home, tmp_path):
    """Each when the n-th part has appeared, n random; test_kills.py has other moments,
    signals and engines.
    """
    sweeps, out = Sweeps(home, "s1"), tmp_path / "killed"
    left = sweeps.run(tmp_path / "whole")["runs_executed"]
    assert left == 144
    for i in range(20):
        chance = random.Random(i)
        n, delay = chance.randint(1, 4), chance.uniform(0, 0.005)

        def end(
            sweep: subprocess.Popen[str], k: int, n: int = n, delay: float = delay
        ) -> None:
            if k == n:
                time.sleep(delay)
                sweep.kill()

        ended, before = sweeps.run(out, act=end), left
        assert ended["returncode"] == -signal.SIGKILL, ended["err"]
        facts = survey(out)
        left = facts["todo"]
        assert 0 < left <= before - n, f"sweep {i}"
        assert facts["unreadable"] == []
    last = sweeps.run(out)
    assert (last["exit_code"], last["runs_executed"]) == (0, left), last["err"]
    assert survey(out)["todo"] == 0
    same(quiet(out), quiet(tmp_path / "whole"))


@pytest.mark.system
@pytest.mark.parametrize(
    ("first", "others"),
    [("SIGTERM", ["SIGINT"]), ("SIGHUP", ["SIGHUP"]), ("SIGINT", ["SIGINT"] * 8)],
)
def test_a_second_signal_drops_the_batch_in_flight(small, tmp_path, first, others):
    # a run takes hours
    sweep = small.start(tmp_path, "--set", "blocks.0.axes.N=[1000000000]")
    assert sweep.stdout
    events = map(json.loads, sweep.stdout)
    assert any(event["event"] == "compiled" for event in events)
    sweep.send_signal(signal.Signals[first])
    assert "A second signal drops it" in next(events)["text"]
    for name in others:
        sweep.send_signal(signal.Signals[name])
        time.sleep(0.002)
    assert sweep.wait(timeout=60) == 130
    assert len(others) > 1 or [event["exit_code"] for event in events] == [130]
    err = sweep.communicate()[1]
    assert "interrupted" in err
    assert f"To resume: {called('sweep')}" in err or len(others) > 1
    assert not [
        line for line in err.splitlines() if "Traceback" in line or "ignored" in line
    ]


def test_signals_wait_only_while_runs_are_in_flight():
    with Interrupts() as interrupts:
        interrupts.message = (said := []).append
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
    assert len(said) == 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


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


def check_refused(events: list[dict[str, Any]], err: str, why: str) -> int:
    """The sweep of these events said once why it could not save, and how many rows that
    cost; returns how many.
    """
    done = events[-1]
    assert (done["event"], done["exit_code"]) == ("done", 3), err
    assert done["unsaved"] > 0
    assert [
        why in event["text"] for event in events if event["event"] == "message"
    ].count(True) == 1
    again = f"To compute just those again: {called('sweep')}"
    assert (
        f"{done['unsaved']} finished runs could not be saved and are lost. {again}"
        in err
    )
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
        command, env=small.env, capture_output=True, text=True, timeout=300, check=False
    )
    events = [json.loads(line) for line in told.stdout.splitlines()]
    second = [i for i, event in enumerate(events) if event["event"] == "start"][1]
    unsaved = check_refused(events[:second], told.stderr, "No space left on device")
    # the figure may be missing too, unless it was smaller than a part
    no_picture = (
        "the figure could not be made: [Errno 28] No space left on device"
        in told.stderr
    )
    drawn = [] if no_picture else ["accuracy.png"]
    assert sorted((tmp_path / "listed").read_text().split()) == [
        "_staging",
        *drawn,
        "manifest.json",
        "parts",
    ]
    executed = events[second - 1]["runs_executed"]
    saved = executed - unsaved
    assert saved > 0
    assert (
        events[second]["done"],
        events[-1]["exit_code"],
        events[-1]["runs_executed"],
    ) == (saved, 0, 96 - saved)
    same(quiet(tmp_path / "copy"), uninterrupted)


@pytest.mark.parametrize(
    ("size", "n_rows", "refused"),
    [(10_000, 1, True), (10_000, 0, False), (70_000, 1, False), (70_000, 100, True)],
)
def test_room_for_a_part_is_checked_before_anything_runs(
    tmp_path, size, n_rows, refused
):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        Store(tmp_path / "out").prepare({}, n_rows)
    except StoreError as error:
        text = str(error)
    else:
        text = ""
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ("File too large" in text) is refused
    assert not refused or text.endswith(
        f"A part of {n_rows} rows needs about {64 + n_rows / 2:.0f} KiB"
    )
    assert list(tmp_path.rglob("*room*")) == []
    assert (tmp_path / "out").exists() is not refused


def test_a_part_needs_no_more_room_than_was_checked(tmp_path):
    for n in (1, 10, 1000):
        path = Store(tmp_path).write(
            [{**row, **_noise(i)} for i, row in enumerate(rows(*range(n)))]
        )
        assert path.stat().st_size < PART_BYTES + ROW_BYTES * n


def _noise(i: int) -> dict[str, float]:
    """Metrics that do not compress."""
    chance = random.Random(i)
    return {
        name: chance.random()
        for name, (kind, _) in COLUMNS.items()
        if kind == "float64"
    }


@pytest.mark.system
def test_a_tiny_disk_is_refused_before_anything_runs(small, tmp_path):
    before = in_namespace(f"mount -t tmpfs -o size=4k tmpfs {tmp_path}")
    told = subprocess.run(
        [*before, *small.command(tmp_path / "out")],
        env=small.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (told.returncode, told.stdout, len(told.stderr.splitlines())) == (2, "", 1)
    assert "No space left on device" in told.stderr


@pytest.mark.system
def test_a_file_size_limit_costs_what_it_could_not_take(small, uninterrupted, tmp_path):
    def limit(sweep: subprocess.Popen[str], k: int) -> None:
        if k == 1:
            resource.prlimit(sweep.pid, resource.RLIMIT_FSIZE, (15_000, 15_000))

    refused = small.run(tmp_path, body=QUICK, act=limit)
    unsaved = check_refused(refused["events"], refused["err"], "File too large")
    assert (
        small.run(tmp_path)["runs_executed"] == 96 - refused["runs_executed"] + unsaved
    )
    same(quiet(tmp_path), uninterrupted)


@pytest.mark.system
def test_a_folder_deleted_in_mid_run_is_told_and_not_made_again(small, tmp_path):
    def delete(sweep: subprocess.Popen[str], k: int) -> None:
        if k == 3:
            (tmp_path / "out").rename(tmp_path / "gone")

    refused = small.run(tmp_path / "out", body=QUICK, act=delete)
    check_refused(
        refused["events"], refused["err"], "was the folder moved or deleted meanwhile?"
    )
    assert not (tmp_path / "out").exists()
    assert (
        survey(tmp_path / "gone")["done"]
        == refused["runs_executed"] - refused["unsaved"]
        >= 3
    )


# --- rows on their way to disk


class Log:
    """What a call shows."""

    def __init__(self) -> None:
        self.out = io.StringIO()

    def call(self, store: Store, part_seconds: float) -> Call:
        return Call(
            store,
            Settings(part_seconds=part_seconds),
            "again",
            display=Events(self.out),
        )

    def __getitem__(self, kind: str) -> list[dict[str, Any]]:
        events = map(json.loads, self.out.getvalue().splitlines())
        return [event for event in events if event["event"] == kind]


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "out")
    store.prepare({})
    return store


def part(*which: int) -> tuple[Chunk, list[list[dict[str, Any]]]]:
    """Runs with one row each."""
    runs = tuple(Run(Point(V=20, N=100, d=8, L=3), i) for i in which)
    return Chunk("20x12", runs, 1.0), [[row] for row in rows(*which)]


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_log_counts_and_names_what_failed(store, log):
    r = log.call(store, 1000)
    for runs, why in (((0, 1, 2), "no good"), ((3,), "worse")):
        r.take(part(*runs)[0], Failure(f"ValueError: {why}", "", "box"))
    assert [event["runs"] for event in log["failed"]] == [3, 1]
    assert [
        why in event["text"]
        for why, event in zip(("no good", "worse"), log["failed"], strict=True)
    ] == [True, True]
    paths = sorted(map(str, store.failures.iterdir()))
    assert sorted(event["details"] for event in log["failed"]) == paths
    assert (len(r.failures), r.exit_code) == (2, 3)


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(call, "WAITS", (0.01, 0.02, 0.03))


def test_a_part_is_written_when_it_is_due_and_when_it_ends(store, log):
    s = log.call(store, 1000)
    s.take(*part(0, 1))
    s.take(*part(2))
    assert log["part"] == []
    s.due = time.monotonic()
    s.take(*part(3))
    assert [part["rows"] for part in log["part"]] == [4]
    s.take(*part(4))
    s.save(now=True)
    s.save(now=True)
    assert [part["rows"] for part in log["part"]] == [4, 1]
    assert len(load(store.folder)) == 5
    every = log.call(store, 0)
    every.take(*part(5))
    every.take(*part(6))
    assert [part["rows"] for part in log["part"]] == [4, 1, 1, 1]


@pytest.mark.usefixtures("quick")
def test_a_disk_that_comes_back_gets_every_row(store, log, monkeypatch):
    away = store.folder.with_name("away")
    tries = []
    write = Store.write

    def comes_back(self: Store, rows: list[dict[str, Any]]) -> Path:
        tries.append(len(rows))
        if len(tries) in (3, 6):
            away.rename(store.folder)
        return write(self, rows)

    monkeypatch.setattr(Store, "write", comes_back)
    s = log.call(store, 0)
    for first in (0, 2):
        store.folder.rename(away)
        s.take(*part(first, first + 1))
        assert s.rows == []
        assert not s.gave_up
    assert tries == [2] * 6, "another outage gets all its tries"
    assert [message["text"].split(":")[-1] for message in log["message"]][1::2] == [
        " 2 rows written"
    ] * 2
    assert load(store.folder).seed.tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("quick")
def test_a_disk_that_stays_away_ends_it_after_so_many_tries(store, log, monkeypatch):
    tries = []
    write = Store.write
    monkeypatch.setattr(
        Store,
        "write",
        lambda self, rows: (tries.append(len(rows)), write(self, rows))[1],
    )
    shutil.rmtree(store.folder)
    s = log.call(store, 0)
    s.take(*part(0, 1))
    assert s.gave_up
    assert tries == [2, 2, 2, 2]
    s.take(*part(2))
    s.save(now=True)
    assert len(s.rows) == 3
    assert len(tries) == 4
    assert len(log["message"]) == 1
    assert not store.folder.exists()


def test_nobody_waits_for_a_disk_who_was_asked_to_stop(store, log, monkeypatch):
    monkeypatch.setattr(call, "WAITS", (1000.0,) * 3)
    store.folder.rename(store.folder.with_name("away"))
    s = log.call(store, 0)
    s.interrupts.requested = True
    start = time.monotonic()
    s.take(*part(0, 1))
    assert s.gave_up
    assert time.monotonic() - start < 100
    assert len(s.rows) == 2


# --- too little memory

SHORT = """
import jax, resource
from jaxrecall.simulator import program
program.on_cpu = lambda: False  # runs side by side, as on an accelerator
jax.numpy.zeros(3)
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 8 * 10**8,) * 2)  # too little for 8 runs at a time
"""  # noqa: E501


@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="needs RLIMIT_AS and /proc, which this system lacks",
)
@pytest.mark.system
def test_batches_are_halved_until_memory_suffices(tmp_path):
    # a folder of its own: rates that sweeps under faults measured would make the first
    # batch small
    (tmp_path / "wide.yaml").write_text(
        "base: {V: 4000, L: 1, d: 2, N: 1, n_test: 1, exact: full}\nseeds: {count:"
        " 20}\n"
    )
    done = Sweeps(tmp_path, "wide").run(tmp_path / "rows", body=SHORT)
    assert (done["exit_code"], done["runs_executed"], done["failed"]) == (
        0,
        20,
        0,
    ), done["err"]
    told = [event["text"] for event in done["events"] if event["event"] == "message"]
    assert told
    assert all(text.startswith("program 4000x2: out of memory with ") for text in told)
    assert len(quiet(tmp_path / "rows")) == 20
